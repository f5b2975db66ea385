"""What an operator prints and pastes elsewhere: the login that roles need, the watch script, and tokens."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import (
    DEFAULT_ROLE,
    ExampleCommand,
    complaints,
    json_option,
    run,
    settings_for,
    with_toolbox,
)

if TYPE_CHECKING:
    from dbtools.backends.port import Backend
    from dbtools.settings import Settings


@click.command(cls=ExampleCommand, example="dbtools grants dbtools.toml --role support > support.sql")
@click.argument("target", required=False)
@click.option(
    "--role",
    "roles",
    metavar="ROLE",
    multiple=True,
    help="Whose view of the database; again for each role that the login serves.  [default: default]",
)
@click.option("--login", metavar="NAME", help="The name of the login.  [default: dbtools_ROLE]")
@click.option("--url", help="The database by a login that sees all of it, where that of TARGET does not.")
def grants(target: str | None, roles: tuple[str, ...], login: str | None, url: str | None) -> None:
    """Print the SQL that makes a login which can read what roles read of TARGET, and nothing else.

    Nothing is changed: run the script yourself, as somebody who may create logins.
    """
    with complaints():
        names = tuple(dict.fromkeys(roles)) or (os.environ.get("DBTOOLS_ROLE") or DEFAULT_ROLE,)
        settings = settings_for(target, *names)
        if url is not None:
            settings = settings.at(url)
        name = f"dbtools_{'_'.join(names)}" if login is None else login
        click.echo(
            with_toolbox(settings, lambda _, backend: _script(settings, backend, names, name)), nl=False
        )


async def _script(settings: "Settings", backend: "Backend", roles: tuple[str, ...], login: str) -> str:
    from dbtools.service.checking import grants_of

    script, findings = await grants_of(settings, backend, roles, login)
    for finding in findings:
        click.echo(f"dbtools: {finding}", err=True)
    return script


@click.group(epilog="\b\nExample:\n  dbtools watch install postgres://admin@db/shop")
def watch() -> None:
    """Have a database tell dbtools of changes, at once. Without it dbtools looks from time to time."""


@watch.command(cls=ExampleCommand, example="dbtools watch install postgres://admin@db/shop --apply")
@click.argument("url")
@click.option("--apply", "applied", is_flag=True, help="Run the script, instead of printing it.")
def install(url: str, applied: bool) -> None:
    """Print the script with which the database at URL tells of each change of its schema."""
    with complaints():
        from dbtools.backends import open_backend
        from dbtools.errors import ConfigurationError
        from dbtools.settings import settings_of

        backend = open_backend(settings_of(url, Path.cwd()).database.url)
        script = backend.facts.watch_script
        if script is None:
            raise ConfigurationError(
                "This database has nothing to install: it cannot tell anybody.",
                hint="dbtools looks at it each second, and before each call.",
            )
        if not applied:
            click.echo(script, nl=False)
            return
        run(backend.install_watch)
        click.echo("The database tells of changes from now on.")


@click.group(epilog="\b\nExample:\n  dbtools token new")
def token() -> None:
    """Make tokens for callers over HTTP."""


@token.command(cls=ExampleCommand, example="dbtools token new --json")
@json_option
def new(as_json: bool) -> None:
    """Print a new token, which nobody can print again, and its hash, which the configuration holds."""
    from dbtools.server.tokens import hash_of, new_token

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
