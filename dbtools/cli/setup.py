"""What an operator does before a server starts: `check`, `schema`, `grants`, `watch` and `token`."""

import json
import os
import sys
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import (
    DEFAULT_ROLE,
    REFUSED,
    ExampleCommand,
    complaints,
    json_option,
    run,
    settings_for,
    target_argument,
    wait_for,
    with_toolbox,
)
from dbtools.cli.terminal import waiting

if TYPE_CHECKING:
    from dbtools.backends.port import Backend
    from dbtools.policy import Finding
    from dbtools.service.checking import Review
    from dbtools.settings import Settings


@click.command(cls=ExampleCommand, example="dbtools check dbtools.toml")
@target_argument
@click.option("--against", metavar="URL", help="A migrated database: show how the tools change there.")
@click.option("--connect", is_flag=True, help="Try everything, from the login to a call, and show each step.")
@json_option
def check(target: str | None, against: str | None, connect: bool, as_json: bool) -> None:
    """Validate the configuration against the live database.

    The exit status is 1 if there are errors, and 2 if the configuration or the database cannot be read.
    """
    if connect and against is not None:
        raise click.UsageError("--connect and --against exclude each other.")
    with complaints():
        from dbtools.cli.presentation import print_review, review_json

        other = settings_for(against).database.url if against is not None else None
        with waiting("Checking"):
            settings = settings_for(target)
            found = run(_review, settings, other)
            steps = run(_examine, settings) if connect else ()
        if as_json:
            click.echo(review_json(found, steps))
        else:
            print_review(found, steps)
        if any(finding.level == "error" for finding in (*found.findings, *steps)):
            sys.exit(REFUSED)


async def _examine(settings: "Settings") -> "tuple[Finding, ...]":
    from dbtools.service.doctor import examine

    return await examine(settings)


async def _review(settings: "Settings", against: str | None) -> "Review":
    from dbtools.server import review_server
    from dbtools.service.checking import check, check_against

    served = await review_server(settings)
    if against is not None:
        return await check_against(settings, against, served)
    return await check(settings, served)


@click.command(cls=ExampleCommand, example="dbtools schema > dbtools.schema.json")
@click.option("--json", is_flag=True, expose_value=False, help="Print JSON, as without it.")
def schema() -> None:
    """Print the JSON Schema of dbtools.toml, for editors."""
    from dbtools.settings import Settings

    click.echo(json.dumps(Settings.model_json_schema(), indent=2))


@click.command(cls=ExampleCommand, example="dbtools grants dbtools.toml --role support > support.sql")
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
    target: str | None, roles: tuple[str, ...], login: str | None, url: str | None, as_json: bool
) -> None:
    """Print the SQL for a login that can read what roles read.

    The login can read nothing else of TARGET. Nothing is changed: run the script yourself, as somebody who
    may create logins.
    """
    with complaints():
        names = tuple(dict.fromkeys(roles)) or (os.environ.get("DBTOOLS_ROLE") or DEFAULT_ROLE,)
        settings = settings_for(target, *names)
        if url is not None:
            settings = settings.having("database", "url", url)
        name = f"dbtools_{'_'.join(names)}" if login is None else login
        script = with_toolbox(settings, lambda _, backend: _script(settings, backend, names, name))
        if as_json:
            click.echo(json.dumps({"login": name, "roles": names, "sql": script}))
        else:
            click.echo(script, nl=False)


async def _script(settings: "Settings", backend: "Backend", roles: tuple[str, ...], login: str) -> str:
    from dbtools.service.checking import grants_of

    script, findings = await grants_of(settings, backend, roles, login)
    for finding in findings:
        click.echo(f"dbtools: {finding}", err=True)
    return script


@click.group(epilog="\b\nExample:\n  dbtools watch install postgres://admin@db/shop")
def watch() -> None:
    """Let a database notify dbtools of schema changes.

    Without it, dbtools polls.
    """


@watch.command(cls=ExampleCommand, example="dbtools watch install postgres://admin@db/shop --apply")
@click.argument("url")
@click.option("--apply", "applied", is_flag=True, help="Run the script, instead of printing it.")
@json_option
def install(url: str, applied: bool, as_json: bool) -> None:
    """Print the SQL that lets the database at URL notify dbtools.

    It is told of each change of the schema at once.
    """
    with complaints():
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
        if as_json:
            click.echo(json.dumps({"applied": applied, "sql": script}))
        else:
            click.echo("The database tells of changes from now on.\n" if applied else script, nl=False)


@click.group(epilog="\b\nExample:\n  dbtools token new")
def token() -> None:
    """Make tokens for callers over HTTP."""


@token.command(cls=ExampleCommand, example="dbtools token new --json")
@json_option
def new(as_json: bool) -> None:
    """Print a new token, and its hash for the configuration.

    The token cannot be printed again: the configuration holds only its hash.
    """
    from dbtools.server.identity import hash_of, new_token

    made = new_token()
    hashed = hash_of(made)
    if as_json:
        click.echo(json.dumps({"token": made, "sha256": hashed}))
        return
    click.echo(
        f"token:  {made}\nsha256: {hashed}\n\n"
        "Give the token to the caller, who sends it as Authorization: Bearer TOKEN, and the hash to "
        f'dbtools.toml:\n\n[auth]\ntokens = [{{ sha256 = "{hashed}", role = "default" }}]'
    )
