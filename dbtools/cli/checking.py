"""`dbtools check` and `schema`: a configuration held against the database, and what may stand in one."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import REFUSED, ExampleCommand, complaints, json_option, run

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from dbtools.service.checking import Review
    from dbtools.service.resolve import Progress
    from dbtools.settings import Settings


@click.command(cls=ExampleCommand, example="dbtools check dbtools.toml")
@click.argument("target", required=False)
@click.option("--against", metavar="URL", help="A migrated database: what becomes of the tools there.")
@json_option
def check(target: str | None, against: str | None, as_json: bool) -> None:
    """Hold the configuration TARGET against the live database: exit status 1 where something is wrong."""
    with complaints():
        from dbtools.cli.presentation import print_review, review_json
        from dbtools.settings import settings_of

        other = settings_of(against, Path.cwd()).database.url if against is not None else None
        found = run(_review, settings_of(target, Path.cwd()), other)
        if as_json:
            click.echo(review_json(found))
        else:
            print_review(found)
        if any(finding.level == "error" for finding in found.findings):
            sys.exit(REFUSED)


async def _review(settings: "Settings", against: str | None) -> "Review":
    from dbtools.server import review_server
    from dbtools.service.checking import check, check_against

    served = await review_server(settings)
    with _progress() as progress:
        if against is not None:
            return await check_against(settings, against, progress, served)
        return await check(settings, progress, served)


def _progress() -> "AbstractContextManager[Progress]":
    """Return what shows progress on a terminal: what is no terminal is read by programs."""
    if not sys.stderr.isatty():
        return nullcontext(lambda done, of, name: None)
    from dbtools.cli.presentation import progress

    return progress("Checking")


@click.command(cls=ExampleCommand, example="dbtools schema > dbtools.schema.json")
def schema() -> None:
    """Print the JSON Schema of dbtools.toml, for editors."""
    from dbtools.settings import Settings

    click.echo(json.dumps(Settings.model_json_schema(), indent=2))
