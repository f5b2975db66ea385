"""`dbtools connect`: the snippet that adds this server to a client, or the edit of the client's file."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from dbtools.cli.clients import CLIENTS, Client, Entry, Launch, claude_command, name_for
from dbtools.cli.options import (
    CLAIMS,
    DEFAULT_ROLE,
    ExampleCommand,
    claim_option,
    complaints,
    json_option,
    role_option,
    settings_for,
    target_argument,
)

if TYPE_CHECKING:
    pass

PACKAGE = "dbtools-mcp"
TOKEN = "DBTOOLS_TOKEN"
SECRET = " It now holds values of the environment, such as a password: do not commit it."
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  #: of a variable of the environment


@click.command(cls=ExampleCommand, example="dbtools connect cursor shop.db --write")
@click.argument("client", type=click.Choice(list(CLIENTS)), metavar="CLIENT")
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
    claim: tuple[str, ...],
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
    _check_options(http, token_env)
    with complaints():
        chosen = CLIENTS[client]
        if remove:
            _tell(as_json, {"client": client}, _removed(chosen, name or _name_of(target, http)))
            return
        if http is not None:
            entry = chosen.http(*_address(http, token_env))
        else:
            entry = chosen.launched(_launch(target, role, claim))
        shown = {"client": client, "file": str(chosen.file()), "name": name or _name_of(target, http)}
        if write:
            done = _written(chosen, str(shown["name"]), entry, is_named=name is not None)
            _tell(as_json, {**shown, "entry": entry}, done)
            if http is None:
                click.echo(f"To try the connection first: {_trial(target)}", err=True)
        elif as_json:
            click.echo(json.dumps({**shown, "entry": entry}, indent=2))
        else:
            _print(client, str(shown["name"]), entry)


def _check_options(http: str | None, token: str | None) -> None:
    """Raise UsageError where options do not go together, or a token stands where its variable belongs."""
    given = click.get_current_context().get_parameter_source
    if http is not None and ParameterSource.COMMANDLINE in (given("role"), given("claim")):
        raise click.UsageError("--role and --claim go with a server that the client starts, not with --http.")
    if http is None and token is not None:
        raise click.UsageError("--token-env goes with --http.")
    if token is not None and NAME.fullmatch(token) is None:
        raise click.UsageError("--token-env takes the name of an environment variable, not a token.")


def _tell(as_json: bool, shown: dict[str, object], done: str) -> None:
    click.echo(json.dumps({**shown, "done": done}, indent=2) if as_json else done)


def _trial(target: str | None) -> str:
    """Return the command that tries *target*; a URL is left out, since it may hold a password."""
    named = [target] if target and "://" not in target else []
    return shlex.join([*command_of(), "check", "--connect", *named])


def _address(url: str, token: str | None) -> tuple[str, str | None]:
    """Return *url* with its path, and the variable of its token: none where the server is on this machine."""
    from dbtools.settings.fields import LOOPBACK

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise click.UsageError("--http takes the URL of a server, such as https://db.example.com/mcp.")
    whole = url if parts.path not in ("", "/") else f"{url.rstrip('/')}/mcp"
    return whole, token or (None if parts.hostname in LOOPBACK else TOKEN)


def _name_of(target: str | None, http: str | None) -> str:
    """Return what the client calls the server: the host, or the database that *target* names."""
    from dbtools.errors import ConfigurationError
    from dbtools.settings.fields import LOOPBACK

    if http is not None:
        host = urlsplit(http).hostname or ""
        return "dbtools" if host in LOOPBACK else name_for(host)
    try:
        place = settings_for(target).database.url
    except ConfigurationError:
        # What is gone can be removed all the same.
        place = target or ""
    return name_for(Path(urlsplit(place).path).stem)


def _launch(target: str | None, role: str, claims: tuple[str, ...]) -> Launch:
    """Return how a client starts dbtools for *target*, from any folder."""
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
    options = words_of_caller(role, claims)
    return Launch(command=command, args=(*words, "serve", place, *options), env=environment)


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


def words_of_caller(role: str, claims: tuple[str, ...]) -> list[str]:
    """Return the options that say who calls."""
    options = [] if role == DEFAULT_ROLE else ["--role", role]
    return options + [word for each in claims for word in ("--claim", each)]


def _print(client: str, name: str, entry: Entry) -> None:
    """Print the snippet on stdout, and on stderr what to do with it."""
    chosen = CLIENTS[client]
    if client == "claude-code":
        click.echo(claude_command(name, entry))
        what = "Run this command"
    else:
        click.echo(chosen.changed("", name, entry), nl=False)
        what = f"Add this to {chosen.file()}"
    click.echo(f"\n{what}, or run `dbtools connect` again with --write: it edits the file for you.", err=True)
    if entry.get("env"):
        click.echo("The second way keeps the secrets in it out of the history of your shell.", err=True)


def _written(client: Client, name: str, entry: Entry, *, is_named: bool) -> str:
    """Write *entry* into the client's file, and return what was done."""
    from dbtools.cli.client_files import ClientFile
    from dbtools.errors import ConfigurationError

    file = ClientFile(client)
    before = file.servers().get(name)
    if before == entry:
        return f"{name} is in {file.path} already: nothing has changed."
    if before is not None and not is_named:
        raise ConfigurationError(
            f"{file.path} has another server {name!r}.",
            hint=f"--name NAME adds this one beside it; --name {name} replaces it.",
        )
    kept = file.write(name, entry)
    done = "was added to" if before is None else "was replaced in"
    secret = SECRET if entry.get("env") else ""
    return f"{name} {done} {file.path}{kept}. {client.then}{secret}"


def _removed(client: Client, name: str) -> str:
    """Remove the server *name* from the client's file, and return what was done."""
    from dbtools.cli.client_files import ClientFile
    from dbtools.errors import ConfigurationError

    file = ClientFile(client)
    if name not in file.servers():
        raise ConfigurationError(f"{file.path} has no server {name!r}.", hint="--name names another one.")
    return f"{name} was removed from {file.path}{file.write(name, None)}. {client.then}"
