"""`dbtools connect`: the snippet that adds this server to a client, or the edit of the client's file."""

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

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
    from dbtools.settings import Settings

PACKAGE = "dbtools-mcp"
TOKEN = "DBTOOLS_TOKEN"
MOST_COPIES = 100  #: of one file; then the first one is replaced
LOCAL = ("127.0.0.1", "::1", "localhost")
VARIABLE = re.compile(r"\$\{([^}]*)\}")


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
    password is passed by the environment, never as an argument.
    """
    if write and remove:
        raise click.UsageError("--write and --remove exclude each other.")
    with complaints():
        chosen = CLIENTS[client]
        if http is not None:
            name = name or name_for(Path(target).stem if target else "dbtools")
            entry = chosen.http(*_address(http, token_env))
        else:
            settings = settings_for(target, role)
            name = name or _name_of(settings)
            entry = chosen.launched(_launch(settings, target, role, claim))
        shown = {"client": client, "file": str(chosen.file()), "name": name, "entry": entry}
        if write or remove:
            done = _edit(chosen, name, None if remove else entry)
            click.echo(json.dumps(shown | {"done": done}, indent=2) if as_json else done)
            if write and entry.get("env"):
                click.echo("The file now holds values of the environment, such as a password.", err=True)
            if write and http is None:
                click.echo(f"To try the connection first: {_trial(target)}", err=True)
        elif as_json:
            click.echo(json.dumps(shown, indent=2))
        else:
            _print(client, name, entry)


def _trial(target: str | None) -> str:
    """Return the command that tries *target*; a URL is left out, since it may hold a password."""
    named = [target] if target and "://" not in target else []
    return shlex.join(["dbtools", "check", "--connect", *named])


def _address(url: str, token: str | None) -> tuple[str, str | None]:
    """Return *url* with its path, and the variable of its token: none where the server is on this machine."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise click.UsageError("--http takes the URL of a server, such as https://db.example.com/mcp.")
    whole = url if parts.path not in ("", "/") else f"{url.rstrip('/')}/mcp"
    return whole, token or (None if parts.hostname in LOCAL else TOKEN)


def _name_of(settings: "Settings") -> str:
    """Return the name of the database."""
    return name_for(Path(urlsplit(settings.database.url).path).stem)


def _launch(settings: "Settings", target: str | None, role: str, claims: tuple[str, ...]) -> Launch:
    """Return how a client starts dbtools for *target*, from any folder."""
    from dbtools.backends import open_backend

    url, environment = open_backend(settings.database.url).shareable()
    if settings.origin.path:
        # What the file takes from the environment, the client passes on.
        written = VARIABLE.findall(json.dumps(settings.origin.content()))
        environment = {**environment, **{each: os.environ[each] for each in written}}
        place = settings.origin.path
    else:
        place = url if target is not None and "://" in target else os.path.abspath(target or "")
    options = [] if role == DEFAULT_ROLE else ["--role", role]
    options += [word for each in claims for word in ("--claim", each)]
    if os.environ.get(CLAIMS):
        environment = {**environment, CLAIMS: os.environ[CLAIMS]}
    command, *words = _command()
    return Launch(command=command, args=(*words, "serve", place, *options), env=environment)


def _command() -> list[str]:
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


def _edit(client: Client, name: str, entry: Entry | None) -> str:
    """Write *entry* into the client's file, or remove it where it is None; return what was done."""
    from dbtools.errors import ConfigurationError

    # Some people keep such files elsewhere and have a link here.
    path = client.file().resolve()
    try:
        text = path.read_text(encoding="utf-8-sig") if path.exists() else ""
        before = client.servers(text).get(name)
        changed = client.changed(text, name, entry)
    except (OSError, ValueError) as exc:
        problem = "it cannot be read" if isinstance(exc, OSError) else str(exc)
        hint = "Fix the file, or add by hand what this command prints without --write."
        raise ConfigurationError(f"{path}: {problem}.", hint=hint) from exc
    if changed is None:
        raise ConfigurationError(f"{path} has no server {name!r}.", hint="--name names another one.")
    if before == entry:
        return f"{name} is in {path} already: nothing has changed."
    try:
        backup = _replace(path, changed)
    except OSError as exc:
        raise ConfigurationError(f"{path}: it cannot be written.") from exc
    done = "was removed from" if entry is None else "was added to" if before is None else "was replaced in"
    kept = f" (a copy of the file as it was: {backup.name})" if backup else ""
    return f"{name} {done} {path}{kept}. {client.then}"


def _replace(path: Path, text: str) -> Path | None:
    """Write *text* to *path* in one step, and return the copy of the file that was there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    backup = None
    if path.exists():
        copies = (path.with_name(f"{path.name}.bak{number}") for number in ("", *range(2, MOST_COPIES)))
        backup = next((each for each in copies if not each.exists()), path.with_name(f"{path.name}.bak"))
        shutil.copy2(path, backup)
    # Nobody else may read a new file: it may hold a password.
    descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    if backup is not None:
        shutil.copymode(backup, written)
    os.replace(written, path)
    return backup
