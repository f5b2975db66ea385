"""`dbtools connect`: the snippet that adds this server to a client, or the edit of the client's file."""

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from dbtools.cli.clients import CLIENTS, PLACEHOLDER, Client, Entry, Launch, claude_command, name_for
from dbtools.cli.options import (
    CLAIMS,
    ExampleCommand,
    claim_option,
    complaints,
    is_target,
    json_option,
    role_option,
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

    def __init__(self) -> None:
        super().__init__(list(CLIENTS))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name, or raise UsageError."""
        from dbtools.errors import nearest
        from dbtools.settings.files import is_login

        name = str(value)
        if name in CLIENTS:
            return name
        problem = f"Unknown client {name!r}. {nearest(name, CLIENTS)}Clients: {', '.join(CLIENTS)}."
        if is_target(name) or is_login(name):
            problem = "CLIENT comes first, and TARGET after it."
        raise click.BadParameter(problem, ctx, param)


@click.command(cls=ExampleCommand, example="dbtools connect cursor shop.db --write")
@click.argument("client", type=ClientName(), metavar="CLIENT")
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
    _check_options(target, http, token_env)
    with complaints():
        chosen = CLIENTS[client]
        if remove:
            known = chosen.http(*_address(http, token_env)) if http is not None else None
            done = _removed(chosen, name or _name_of(target, http), known if name is None else None)
            _tell(as_json, {"client": client}, done)
            return
        if http is not None:
            entry = chosen.http(*_address(http, token_env))
        else:
            entry = chosen.launched(_launch(target, role, claim))
        shown = {"client": client, "file": str(chosen.file()), "name": name or _name_of(target, http)}
        if write:
            if PLACEHOLDER in json.dumps(entry):
                raise click.UsageError(
                    f"This client keeps the token in its file: set {token_env or TOKEN} first."
                )
            done = _written(chosen, str(shown["name"]), entry, is_named=name is not None)
            _tell(as_json, {**shown, "entry": entry}, done)
            for doubt in _doubts_of_url(http, token_env) if http else wait_for(_doubts, settings_for(target)):
                click.echo(f"dbtools: {doubt}", err=True)
            if http is None:
                click.echo(f"To try it: {_trial(target)}", err=True)
        elif as_json:
            click.echo(json.dumps({**shown, "entry": entry}, indent=2))
        else:
            _print(client, str(shown["name"]), entry)


def _check_options(target: str | None, http: str | None, token: str | None) -> None:
    """Raise UsageError where options do not go together, or a token stands where its variable belongs."""
    given = click.get_current_context().get_parameter_source
    if http is not None and ParameterSource.COMMANDLINE in (given("role"), given("claim")):
        raise click.UsageError("--role and --claim go with a server that the client starts, not with --http.")
    if http is not None and target is not None:
        raise click.UsageError("TARGET and --http exclude each other.")
    if http is None and token is not None:
        raise click.UsageError("--token-env goes with --http.")
    if token is not None and NAME.fullmatch(token) is None:
        raise click.UsageError("--token-env takes the name of an environment variable, not a token.")


def _tell(as_json: bool, shown: dict[str, object], done: str) -> None:
    click.echo(json.dumps({**shown, "done": done}, indent=2) if as_json else done)


async def _doubts(settings: "Settings") -> list[str]:
    """Return what the one who connects a client should know, and would not see in the client."""
    from dbtools.backends import open_backend
    from dbtools.errors import DatabaseUnavailable, listing
    from dbtools.vetting import secret_names

    backend = open_backend(settings.database.url)
    try:
        catalog = await backend.introspect(settings.selection())
    except DatabaseUnavailable as exc:
        return [f"The database cannot be read now: {exc}"]
    finally:
        await backend.close()
    shown = [] if settings.roles else secret_names(catalog)
    doubt = f"Columns that look like secrets are shown: {listing(shown)}. `dbtools init` leaves them out."
    return [*catalog.posture, *([doubt] if shown else [])]


def _doubts_of_url(url: str, token: str | None) -> list[str]:
    """Return what the one who connects a client to *url* should know."""
    whole, variable = _address(url, token)
    doubts = []
    if variable is not None:
        doubts.append(f"{variable} has to be set where the client starts: it holds the token.")
        if whole.startswith("http://") and not _is_local(whole):
            doubts.append("The token would travel unencrypted: put a proxy with TLS in front of the server.")
    return doubts


def _trial(target: str | None) -> str:
    """Return the command that tries *target*, with variables in the place of what is secret in it."""
    from dbtools.backends import open_backend

    if target is None or "://" not in target:
        return shlex.join([*command_of(), "check", "--connect", *([target] if target else [])])
    url, environment = open_backend(target).shareable()
    missing = "".join(f"{name}=… " for name in environment if name not in os.environ)
    return f"{missing}{shlex.join([*command_of(), 'check', '--connect', url])}"


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


def _name_of(target: str | None, http: str | None) -> str:
    """Return what the client calls the server: the host, or the database that *target* names."""
    from dbtools.errors import ConfigurationError

    if http is not None:
        return "dbtools" if _is_local(http) else name_for(urlsplit(http).hostname or "")
    try:
        place = settings_for(target).database.url
    except ConfigurationError:
        # An entry can be removed even if its target no longer exists.
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
    if client == "claude-code" and entry.get("env"):
        click.echo("That keeps the secrets in it out of the history of your shell.", err=True)


def _written(client: Client, name: str, entry: Entry, *, is_named: bool) -> str:
    """Write *entry* into the client's file, and return what was done."""
    from dbtools.cli.client_files import ClientFile
    from dbtools.errors import ConfigurationError

    file = ClientFile(client)
    before = file.servers().get(name)
    if before == entry:
        return f"{name} is in {file.path} already: nothing has changed."
    if before is not None and not is_named and not _is_same(before, entry):
        raise ConfigurationError(
            f"{file.path} has another server {name!r}.",
            hint=f"--name NAME adds this one beside it; --name {name} replaces it.",
        )
    kept = file.write(name, entry)
    done = "was added to" if before is None else "was replaced in"
    secret = SECRET if entry.get("env") else ""
    return f"{name} {done} {file.path}{kept}. {client.then}{secret}"


def _is_same(before: object, entry: Entry) -> bool:
    """Return whether two entries are of one server, whatever its environment is."""
    bare = {key: value for key, value in entry.items() if key != "env"}
    return isinstance(before, dict) and {key: before[key] for key in before if key != "env"} == bare


def _removed(client: Client, name: str, known: Entry | None) -> str:
    """Remove the server *name*, which is *known* if that is given, and return what was done."""
    from dbtools.cli.client_files import ClientFile
    from dbtools.errors import ConfigurationError

    file = ClientFile(client)
    before = file.servers().get(name)
    if before is None:
        raise ConfigurationError(f"{file.path} has no server {name!r}.", hint="--name names another one.")
    if known is not None and not _is_same(before, known):
        raise ConfigurationError(
            f"{file.path} has another server {name!r}.", hint=f"--name {name} removes that one."
        )
    had_secrets = isinstance(before, dict) and before.get("env")
    copies = " Copies of the file still hold its environment." if had_secrets else ""
    return f"{name} was removed from {file.path}{file.write(name, None)}. {client.then}{copies}"
