"""`dbtools connect`: the snippet that adds this server to a client, or the edit of the client's file."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from dbtools.cli.clients import CLIENTS, PLACEHOLDER, Client
from dbtools.cli.documents import ClientFile, Entry, edit
from dbtools.cli.options import (
    CLAIMS,
    claim_option,
    example,
    is_target,
    json_option,
    role_option,
    secrets_warning,
    settings_for,
    target_argument,
    wait_for,
    words_of_caller,
)

if TYPE_CHECKING:
    from dbtools.settings import Settings

PACKAGE = "dbtools-mcp"
TOKEN = "DBTOOLS_TOKEN"
SECRET = " It now holds values of the environment, such as a password: do not commit it."
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  #: of a variable of the environment


class ClientName(click.Choice[str]):
    """The name of a client. What stands in its place may be a URL with a password, and is not shown."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or raise UsageError."""
        from dbtools.settings.files import is_login

        if value not in CLIENTS and (is_target(value) or is_login(value)):
            self.fail("CLIENT comes first, and TARGET after it.", param, ctx)
        return super().convert(value, param, ctx)


@click.command(epilog=example("dbtools connect cursor shop.db --write"))
@click.argument("client", type=ClientName([*CLIENTS]), metavar="CLIENT")
@target_argument
@role_option
@claim_option
@click.option("--http", metavar="URL", help="A server that runs already, by its URL.")
@click.option(
    "--token-env",
    metavar="NAME",
    help=f"The variable that holds the token for --http.  [default: {TOKEN}; none for a URL on this machine]",
)
@click.option("--name", help="The server's name in the client.  [default: the name of the database]")
@click.option("--write", is_flag=True, help="Edit the client's file, and keep a copy of it beside it.")
@click.option("--remove", is_flag=True, help="Take the server out of the client's file again.")
@json_option
def connect(
    client: str,
    target: str | None,
    role: str,
    claims: Sequence[str],
    http: str | None,
    token_env: str | None,
    name: str | None,
    write: bool,
    remove: bool,
    as_json: bool,
) -> None:
    """Print what adds TARGET to CLIENT, or add it with --write.

    CLIENT is claude-code, claude-desktop, cursor, vscode, windsurf, zed, gemini, codex, or mcp.json for any
    client that reads a .mcp.json in the current folder. The entry starts this dbtools by its full path. A
    password is in the environment of the entry, not among the arguments of the server.
    """
    if write and remove:
        raise click.UsageError("--write and --remove exclude each other.")
    _check_options(target, http, token_env)
    chosen, known_as = CLIENTS[client], name or _name_of(target, http)
    if remove:
        done = _removed(chosen, known_as)
        click.echo(json.dumps({"client": client, "done": done}, indent=2) if as_json else done)
        return
    url, variable = _address(http, token_env) if http is not None else ("", None)
    kind = {"type": "stdio"} if chosen.has_type else {}
    entry = chosen.http(url, variable) if url else {**kind, **_launch(target, role, claims)}
    shown = {"client": client, "file": str(chosen.path()), "name": known_as, "entry": entry}
    if not write:
        if as_json:
            click.echo(json.dumps(shown, indent=2))
        else:
            _print(client, known_as, entry)
        return
    if PLACEHOLDER in json.dumps(entry):
        raise click.UsageError(f"This client keeps the token in its file: set {variable} first.")
    done = _written(chosen, known_as, entry, is_named=name is not None)
    click.echo(json.dumps({**shown, "done": done}, indent=2) if as_json else done)
    for doubt in _doubts_of_url(url, variable) if url else wait_for(_doubts, settings_for(target)):
        click.echo(f"dbtools: {doubt}", err=True)


def _check_options(target: str | None, http: str | None, token: str | None) -> None:
    """Raise UsageError where options do not go together, or a token stands where its variable belongs."""
    given = click.get_current_context().get_parameter_source
    if http is not None and ParameterSource.COMMANDLINE in (given("role"), given("claims")):
        raise click.UsageError("--role and --claim go with a server that the client starts, not with --http.")
    if http is not None and target is not None:
        raise click.UsageError("TARGET and --http exclude each other.")
    if http is None and token is not None:
        raise click.UsageError("--token-env goes with --http.")
    if token is not None and NAME.fullmatch(token) is None:
        raise click.UsageError("--token-env takes the name of an environment variable, not a token.")


def _name_of(target: str | None, http: str | None) -> str:
    """Return what the client calls the server: the host, or the database that *target* names."""
    from dbtools.errors import ConfigurationError

    if http is not None:
        name = "dbtools" if _is_local(http) else urlsplit(http).hostname or ""
    else:
        try:
            place = settings_for(target).database.url
        except ConfigurationError:
            # An entry can be removed even if its target no longer exists.
            place = target or ""
        name = Path(urlsplit(place).path).stem
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "database"


def _address(url: str, token: str | None) -> tuple[str, str | None]:
    """Return *url* with its path, and the variable of its token: none where the server is on this machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise click.UsageError("--http takes the URL of a server, such as https://db.example.com/mcp.")
    whole = url if parts.path not in ("", "/") else f"{url.rstrip('/')}/mcp"
    return whole, token or (None if _is_local(url) else TOKEN)


def _is_local(url: str) -> bool:
    from dbtools.settings.fields import LOOPBACK

    return urlsplit(url).hostname in LOOPBACK


def _launch(target: str | None, role: str, claims: Sequence[str]) -> Entry:
    """Return the entry of a server that a client starts for *target*, from any folder."""
    from dbtools.backends import open_backend
    from dbtools.settings.files import VARIABLE

    settings = settings_for(target, role)
    url, environment = open_backend(settings.database.url).shareable()
    if settings.origin.path:
        # A password in the file stays there. What the file takes from the environment, the client passes on.
        names = [*environment, *VARIABLE.findall(json.dumps(settings.origin.content()))]
        environment = {each: os.environ[each] for each in names if each in os.environ}
        place = settings.origin.path
    else:
        place = url if target is not None and "://" in target else os.path.abspath(target or "")
    if os.environ.get(CLAIMS):
        environment = {**environment, CLAIMS: os.environ[CLAIMS]}
    command, *words = command_of()
    args = [*words, "serve", place, *words_of_caller(role, claims)]
    return {"command": command, "args": args} | ({"env": dict(environment)} if environment else {})


def command_of() -> list[str]:
    """Return the words that start this dbtools, by full paths."""
    uvx = shutil.which("uvx")
    if uvx is not None and "archive-v0" in Path(sys.prefix).parts:
        # uvx makes an environment for one run, which its cache may drop.
        return [uvx, PACKAGE]
    program = Path(sys.argv[0]).absolute()
    if program.stem in ("dbtools", PACKAGE) and program.is_file():
        return [str(program)]
    return [sys.executable, "-m", "dbtools"]


def _print(client: str, name: str, entry: Entry) -> None:
    """Print the snippet on stdout, and on stderr what to do with it."""
    chosen = CLIENTS[client]
    if client == "claude-code":
        words = ["claude", "mcp", "add-json", "--scope", "user", name, json.dumps(entry, ensure_ascii=False)]
        click.echo(shlex.join(words))
        what = "Run this command"
    else:
        click.echo(edit("", chosen.path().suffix, chosen.section, name, entry), nl=False)
        what = f"Add this to {chosen.path()}"
    click.echo(f"\n{what}, or run `dbtools connect` again with --write: it edits the file for you.", err=True)
    if client == "claude-code" and entry.get("env"):
        click.echo("That keeps the secrets in it out of the history of your shell.", err=True)


def _written(client: Client, name: str, entry: Entry, *, is_named: bool) -> str:
    """Write *entry* into the client's file, and return what was done."""
    from dbtools.errors import ConfigurationError

    file = ClientFile(client.path(), client.section)
    before = file.servers.get(name)
    if before == entry:
        return f"{name} is in {file.path} already: nothing has changed."
    # An entry that differs in its environment alone is one of the same server.
    is_same = isinstance(before, dict) and {**before, "env": None} == {**entry, "env": None}
    if before is not None and not is_named and not is_same:
        raise ConfigurationError(
            f"{file.path} has another server {name!r}.",
            hint=f"--name NAME adds this one beside it; --name {name} replaces it.",
        )
    done = "was added to" if before is None else "was replaced in"
    secret = SECRET if entry.get("env") else ""
    return f"{name} {done} {file.path}{file.write(name, entry)}. {client.then}{secret}"


def _removed(client: Client, name: str) -> str:
    """Remove the server *name* from the client's file, and return what was done."""
    from dbtools.errors import ConfigurationError

    file = ClientFile(client.path(), client.section)
    before = file.servers.get(name)
    if before is None:
        raise ConfigurationError(f"{file.path} has no server {name!r}.", hint="--name names another one.")
    had_secrets = isinstance(before, dict) and before.get("env")
    copies = " Copies of the file still hold its environment." if had_secrets else ""
    return f"{name} was removed from {file.path}{file.write(name, None)}. {client.then}{copies}"


async def _doubts(settings: "Settings") -> list[str]:
    """Return what the one who connects a client should know, and would not see in the client."""
    from dbtools.backends import open_backend
    from dbtools.errors import DatabaseUnavailable

    backend = open_backend(settings.database.url)
    try:
        catalog = await backend.introspect(settings.selection())
    except DatabaseUnavailable as exc:
        return [f"The database cannot be read now: {exc}"]
    finally:
        await backend.close()
    return [*catalog.posture, *([] if settings.roles else secrets_warning(catalog))]


def _doubts_of_url(url: str, variable: str | None) -> list[str]:
    """Return what the one who connects a client to *url* should know."""
    if variable is None:
        return []
    doubts = [f"{variable} has to be set where the client starts: it holds the token."]
    if url.startswith("http://") and not _is_local(url):
        doubts.append("The token would travel unencrypted: put a proxy with TLS in front of the server.")
    return doubts
