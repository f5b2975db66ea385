"""What an operator does before a server starts: `check`, `schema`, `grants`, `watch` and `token`."""

import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import (
    DEFAULT_ROLE,
    REFUSED,
    echo,
    example,
    json_option,
    run,
    settings_for,
    target_argument,
    wait_for,
    waiting,
    with_toolbox,
)

if TYPE_CHECKING:
    from dbtools.service.checking import Review
    from dbtools.service.resolve import Progress
    from dbtools.settings import Settings


@click.command(epilog=example("dbtools check dbtools.toml"))
@target_argument
@click.option("--against", metavar="URL", help="A migrated database: show how the tools change there.")
@click.option("--connect", is_flag=True, help="Try everything, from the login to a call, and show each step.")
@json_option
def check(target: str | None, against: str | None, connect: bool, as_json: bool) -> None:
    """Validate the configuration against the live database.

    The exit status is 1 if there are errors, and 2 if the configuration or the database cannot be read.
    """
    from dbtools.cli.presentation import print_review, review_content
    from dbtools.service.doctor import examine

    if connect and against is not None:
        raise click.UsageError("--connect and --against exclude each other.")
    other = settings_for(against).database.url if against is not None else None
    with waiting("Checking") as progress:
        settings = settings_for(target)
        found = run(_review, settings, other, progress)
        steps = run(examine, settings) if connect else ()
    if as_json:
        echo(as_json, review_content(found, steps))
    else:
        print_review(found, steps)
    if any(finding.level == "error" for finding in (*found.findings, *steps)):
        sys.exit(REFUSED)


async def _review(settings: "Settings", against: str | None, progress: "Progress") -> "Review":
    from dbtools.server import review_server
    from dbtools.service.checking import check, check_against

    served = await review_server(settings)
    if against is not None:
        return await check_against(settings, against, progress, served)
    return await check(settings, progress, served)


@click.command(epilog=example("dbtools schema > dbtools.schema.json"))
@click.option("--json", is_flag=True, expose_value=False, help="Print JSON, as without it.")
def schema() -> None:
    """Print the JSON Schema of dbtools.toml, for editors."""
    from dbtools.settings import Settings

    click.echo(json.dumps(Settings.model_json_schema(), indent=2))


@click.command(epilog=example("dbtools grants dbtools.toml --role support > support.sql"))
@target_argument
@click.option(
    "--role",
    "roles",
    metavar="ROLE",
    multiple=True,
    help="Whose view of the database; again for each role that the login serves.  [default: default]",
)
@click.option("--login", metavar="NAME", help="The name of the login.  [default: dbtools_ROLE]")
@click.option("--url", help="The database by a login that sees all of it, where that of TARGET does not.")
@json_option
def grants(
    target: str | None, roles: Sequence[str], login: str | None, url: str | None, as_json: bool
) -> None:
    """Print the SQL for a login that can read what roles read.

    The login can read nothing else of TARGET. Nothing is changed: run the script yourself, as somebody who
    may create logins.
    """
    from dbtools.service.checking import grants_of

    names = tuple(dict.fromkeys(roles)) or (os.environ.get("DBTOOLS_ROLE") or DEFAULT_ROLE,)
    settings = settings_for(target, *names)
    if url is not None:
        settings = settings.having("database", "url", url)
    name = f"dbtools_{'_'.join(names)}" if login is None else login
    script, findings = with_toolbox(settings, lambda _, backend: grants_of(settings, backend, names, name))
    for finding in findings:
        click.echo(f"dbtools: {finding}", err=True)
    echo(as_json, {"login": name, "roles": names, "sql": script}, script.removesuffix("\n"))


@click.group(epilog=example("dbtools watch install postgres://admin@db/shop"))
def watch() -> None:
    """Let a database notify dbtools of schema changes.

    Without it, dbtools polls.
    """


@watch.command(epilog=example("dbtools watch install postgres://admin@db/shop --apply"))
@click.argument("url")
@click.option("--apply", "applied", is_flag=True, help="Run the script, instead of printing it.")
@json_option
def install(url: str, applied: bool, as_json: bool) -> None:
    """Print the SQL that lets the database at URL notify dbtools.

    It is told of each change of the schema at once.
    """
    from dbtools.backends import open_backend
    from dbtools.errors import ConfigurationError

    backend = open_backend(settings_for(url).database.url)
    script = backend.facts.watch_script
    if script is None:
        raise ConfigurationError(
            "This database has nothing to install: it cannot tell anybody.",
            hint="dbtools looks at it each second, and before each call.",
        )
    if applied:
        wait_for(backend.install_watch)
    text = "The database tells of changes from now on." if applied else script.removesuffix("\n")
    echo(as_json, {"applied": applied, "sql": script}, text)


@click.group(epilog=example("dbtools token new"))
def token() -> None:
    """Make tokens for callers over HTTP."""


@token.command(epilog=example("dbtools token new --json"))
@json_option
def new(as_json: bool) -> None:
    """Print a new token, and its hash for the configuration.

    The token cannot be printed again: the configuration holds only its hash.
    """
    from dbtools.server.identity import hash_of, new_token

    made = new_token()
    hashed = hash_of(made)
    text = (
        f"token:  {made}\nsha256: {hashed}\n\n"
        "Give the token to the caller, who sends it as Authorization: Bearer TOKEN, and the hash to "
        f'dbtools.toml:\n\n[auth]\ntokens = [{{ sha256 = "{hashed}", role = "default" }}]'
    )
    echo(as_json, {"token": made, "sha256": hashed}, text)
