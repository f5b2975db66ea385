"""`dbtools grants`: the login that roles need, as a script for the database's own client."""

import os
from typing import TYPE_CHECKING

import click

from dbtools.cli.options import DEFAULT_ROLE, ExampleCommand, complaints, settings_for, with_toolbox

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
