"""`dbtools connect`: print the entry that adds dbtools to a client, or edit the client's file."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from dbtools.cli.clients import CLIENTS, PLACEHOLDER, Client
from dbtools.cli.documents import ClientFile, Entry, edit
from dbtools.cli.options import (
    CLAIMS,
    claim_option,
    echo,
    example,
    json_option,
    role_option,
    secrets_warning,
    settings_for,
    target_argument,
    with_toolbox,
    words_of_caller,
)

if TYPE_CHECKING:
    from dbtools.policy import Finding
    from dbtools.settings import Settings

PACKAGE = "dbtools-mcp"
TOKEN = "DBTOOLS_TOKEN"
SECRET = " The file now holds secrets, such as a password: do not commit it."
COPIES = " Backups of the file still hold its secrets."
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  #: of a variable of the environment


@click.command(epilog=example("dbtools connect cursor shop.db --write"))
@click.argument("client", shell_complete=lambda *given: [each for each in CLIENTS if given[-1] in each])
@target_argument
@role_option
@claim_option
@click.option("--http", metavar="URL", help="Connect to the running server at this URL.")
@click.option(
    "--token-env",
    metavar="NAME",
    help=f"The environment variable with the token for --http.  [default: {TOKEN}; none for localhost]",
)
@click.option("--name", help="The server's name in the client.  [default: the name of the database]")
@click.option("--write", is_flag=True, help="Edit the client's file, and keep a backup.")
@click.option("--remove", is_flag=True, help="Remove the server from the client's file.")
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
    """Print the entry that connects CLIENT to TARGET, or add it.

    CLIENT is claude-code, claude-desktop, cursor, vscode, windsurf, zed, gemini, codex, or mcp.json for any
    client that reads a .mcp.json in the current folder. The entry starts dbtools by its full path. A password
    goes into the environment of the entry, not into the arguments of the server.
    """
    _check_options(client, target, http, token_env)
    if write and remove:
        raise click.UsageError("Use either --write or --remove.")
    chosen, known_as = CLIENTS[client], name or _name_of(target, http)
    if remove:
        done = _change(chosen, known_as, None, is_named=True)
        echo(as_json, {"client": client, "done": done}, done)
        return
    if http:
        entry, doubts = _over_http(chosen, http, token_env)
    else:
        kind = {"type": "stdio"} if chosen.has_type else {}
        entry, doubts = {**kind, **_launch(target, role, claims)}, []
    content = {"client": client, "file": str(chosen.path()), "name": known_as, "entry": entry}
    if not write:
        echo(as_json, content, "" if as_json else _snippet(client, known_as, entry))
        return
    if PLACEHOLDER in json.dumps(entry):
        raise click.UsageError(f"This client stores the token in its file: set {token_env or TOKEN} first.")
    done = _change(chosen, known_as, entry, is_named=name is not None)
    echo(as_json, {**content, "done": done}, done)
    for doubt in doubts if http else _doubts(settings_for(target), role):
        click.echo(f"dbtools: {doubt}", err=True)


def _check_options(client: str, target: str | None, http: str | None, token: str | None) -> None:
    """Raise UsageError if arguments contradict each other, or a token stands in place of its variable."""
    given = click.get_current_context().get_parameter_source
    names_caller = ParameterSource.COMMANDLINE in (given("role"), given("claims"))
    for is_wrong, problem in (
        # Do not repeat the word: it may be a URL with a password.
        (client not in CLIENTS, f"CLIENT must be one of {', '.join(CLIENTS)}. TARGET comes after it."),
        (http and target, "Use either TARGET or --http."),
        (http and names_caller, "Over HTTP, the token decides role and claims: omit --role and --claim."),
        (token and not http, "--token-env needs --http."),
        (token and not NAME.fullmatch(token), "--token-env must be the name of a variable, not a token."),
    ):
        if is_wrong:
            raise click.UsageError(problem)


def _name_of(target: str | None, http: str | None) -> str:
    """Return the name of the server in the client: its host, or the database that *target* names."""
    if http is not None:
        name = "dbtools" if _is_local(http) else urlsplit(http).hostname or ""
    else:
        place = target
        if place is None or place.endswith(".toml"):
            place = settings_for(target).database.url
        name = Path(urlsplit(place).path).stem
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40] or "database"


def _over_http(client: Client, url: str, token: str | None) -> tuple[Entry, list[str]]:
    """Return the entry of the server at *url*, and warnings."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise click.UsageError("--http must be the URL of a server, such as https://db.example.com/mcp.")
    is_local = _is_local(url)
    variable = token or (None if is_local else TOKEN)
    entry = client.entry(url if parts.path not in ("", "/") else f"{url.rstrip('/')}/mcp", variable)
    doubts = [f"Set {variable} to the token in the environment of the client."] if variable else []
    if variable and parts.scheme == "http" and not is_local:
        doubts.append("The token would be sent unencrypted. Put a proxy with TLS in front of the server.")
    return entry, doubts


def _is_local(url: str) -> bool:
    from dbtools.settings.fields import LOOPBACK

    return urlsplit(url).hostname in LOOPBACK


def _launch(target: str | None, role: str, claims: Sequence[str]) -> Entry:
    """Return the entry with which a client starts dbtools for *target*, from any folder."""
    from dbtools.backends import open_backend
    from dbtools.settings.files import VARIABLE

    settings = settings_for(target, role)
    _, environment = open_backend(settings.database.url).shareable()
    if settings.origin.path:
        # A password in the file stays there. What the file takes from the environment, the client passes on.
        names = [*environment, *VARIABLE.findall(json.dumps(settings.origin.content()))]
        environment = {each: os.environ[each] for each in names if each in os.environ}
    if os.environ.get(CLAIMS):
        environment = {**environment, CLAIMS: os.environ[CLAIMS]}
    command, *words = command_of()
    args = [*words, "serve", place_of(target), *words_of_caller(role, claims)]
    return {"command": command, "args": args} | ({"env": dict(environment)} if environment else {})


def place_of(target: str | None) -> str:
    """Return *target* as it is found from any folder, without a password."""
    from dbtools.backends import open_backend
    from dbtools.settings.files import FILE

    if target is not None and "://" in target:
        url, _ = open_backend(target).shareable()
        return url
    return os.path.abspath(target or FILE)


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


def _snippet(client: str, name: str, entry: Entry) -> str:
    """Return what adds the server to *client*, and print on stderr what to do with it."""
    chosen = CLIENTS[client]
    is_command = client == "claude-code"
    what = "Run this command" if is_command else f"Add this to {chosen.path()}"
    why = " That keeps secrets out of your shell's history." if is_command and "env" in entry else ""
    click.echo(f"{what}, or run `dbtools connect` with --write, which edits the file.{why}\n", err=True)
    if is_command:
        return shlex.join(
            ["claude", "mcp", "add-json", "--scope", "user", name, json.dumps(entry, ensure_ascii=False)]
        )
    return edit("", chosen.path().suffix, chosen.section, name, entry).removesuffix("\n")


def _change(client: Client, name: str, entry: Entry | None, *, is_named: bool) -> str:
    """Set or remove the server *name* in the client's file, and return what was done."""
    from dbtools.errors import ConfigurationError

    file = ClientFile(client.path(), client.section)
    before = file.servers.get(name)
    if entry is None and before is None:
        raise ConfigurationError(f"{file.path} has no server {name!r}.", hint="Name another one with --name.")
    if before == entry:
        return f"{file.path} already has this entry for {name}."
    old = before if isinstance(before, dict) else {}
    # An entry that differs in its environment alone is one of the same server.
    if entry is None or before is None or is_named or {**old, "env": None} == {**entry, "env": None}:
        done = f"Replaced {name} in" if before else f"Added {name} to"
        remark = SECRET if entry and "env" in entry else ""
        if entry is None:
            done, remark = f"Removed {name} from", COPIES if "env" in old else ""
        return f"{done} {file.path}{file.write(name, entry)}. {client.then}{remark}"
    hint = f"Add this one with --name NAME, or replace the other with --name {name}."
    raise ConfigurationError(f"{file.path} already has another server {name!r}.", hint=hint)


def _doubts(settings: "Settings", role: str) -> "Sequence[str | Finding]":
    """Return warnings that the client would not show."""
    from dbtools.errors import DatabaseUnavailable

    try:
        view = with_toolbox(settings, lambda toolbox, _: toolbox.view(role), role)
    except DatabaseUnavailable as exc:
        return [f"The database cannot be read now: {exc}"]
    return [*view.problems, *([] if settings.roles else secrets_warning(view.catalog))]
