"""`dbtools check` and `schema`: a configuration held against the database, and what may stand in one."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import REFUSED, ExampleCommand, complaints, json_option, run, with_toolbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dbtools.backends.port import Backend
    from dbtools.service.migration import RoleChange
    from dbtools.service.review import Review
    from dbtools.settings import Settings


@click.command(cls=ExampleCommand, example="dbtools check dbtools.toml")
@click.argument("target", required=False)
@click.option("--against", metavar="URL", help="A migrated database: what becomes of the tools there.")
@json_option
def check(target: str | None, against: str | None, as_json: bool) -> None:
    """Hold the configuration TARGET against the live database: exit status 1 where something is wrong."""
    with complaints():
        from dbtools.presentation import print_review, review_json
        from dbtools.settings import settings_of

        settings = settings_of(target, Path.cwd())
        changes = None
        if against is not None:
            settings, changes = _migrated(settings, settings_of(against, Path.cwd()))
        found = with_toolbox(settings, lambda _, backend: _review(settings, backend))
        if as_json:
            click.echo(review_json(found, changes))
        else:
            print_review(found, changes)
        if any(finding.level == "error" for finding in found.findings):
            sys.exit(REFUSED)


def _migrated(settings: "Settings", other: "Settings") -> "tuple[Settings, Mapping[str, RoleChange]]":
    """Return the settings for the migrated database of *other*, and what changes there."""
    from dbtools.service.migration import changes_by, migrated

    after = run(migrated, settings, other.database.url)
    return after, run(changes_by, settings, after)


async def _review(settings: "Settings", backend: "Backend") -> "Review":
    from dbtools.server import review_server
    from dbtools.service.review import review
    from dbtools.service.served import read_catalog

    catalog = await read_catalog(settings, backend)
    served = await review_server(settings)
    # What is no terminal is read by programs.
    if not sys.stderr.isatty():
        return await review(settings, catalog, backend, lambda done, of, name: None, served)
    from dbtools.presentation import progress

    with progress("Checking") as report:
        return await review(settings, catalog, backend, report, served)


@click.command(cls=ExampleCommand, example="dbtools schema > dbtools.schema.json")
def schema() -> None:
    """Print the JSON Schema of dbtools.toml, for editors."""
    from dbtools.settings import Settings

    click.echo(json.dumps(Settings.model_json_schema(), indent=2))
