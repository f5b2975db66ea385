"""`dbtools connect`: print the entry that adds dbtools to a client, or edit the client's file.

CLIENTS says in which file each client keeps its servers, and in which form.
"""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from dbtools.cli.documents import ClientFile, Entry, edit
from dbtools.cli.options import (
    CLAIMS,
    claim_option,
    echo,
    example,
    json_option,
    role_option,
    settings_for,
    target_argument,
    with_toolbox,
    words_of_caller,
)

if TYPE_CHECKING:
    from dbtools.findings import Finding
    from dbtools.settings import Settings

PACKAGE = "dbtools-mcp"
TOKEN_VARIABLE = "DBTOOLS_TOKEN"
FILE_SECRETS = " The file now holds secrets, such as a password: do not commit it."
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  #: of a variable of the environment
HEADER_VARIABLE, PLACEHOLDER = "DBTOOLS_AUTHORIZATION", "<the value of"


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client, by its file."""

    file: str  #: its path; `_folders` has the words in braces
    section: str = "mcpServers"  #: the key of the file that holds the servers
    has_type: bool = False  #: whether an entry names its transport
    url: str | None = "url"  #: the key of a server's URL, unless the client starts commands only
    #: The keys that send the token in a variable, if the client reads variables.
    token: Callable[[str], Entry] | None = None
    then: str  #: what makes the client read the file

    def path(self) -> Path:
        """Return the path of the file on this machine."""
        return Path(self.file.format(**_folders())).absolute()

    def entry(self, url: str, token: str | None) -> Entry:
        """Return the entry of the server at *url*; *token* is the variable that holds the token."""
        if self.url is None or (token and self.token is None):
            return _bridge_entry(url, token)
        kind = {"type": "http"} if self.has_type else {}
        return {**kind, self.url: url, **(self.token(token) if token and self.token else {})}


def _folders() -> Mapping[str, Path]:
    """Return the folders in which clients keep their settings on this system."""
    home, get = Path.home(), os.environ.get
    dot_config = Path(get("XDG_CONFIG_HOME") or home / ".config")
    config = dot_config
    if sys.platform == "win32":
        config = dot_config = Path(get("APPDATA") or home / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        config, dot_config = home / "Library" / "Application Support", home / ".config"
    claude, codex = Path(get("CLAUDE_CONFIG_DIR") or home), Path(get("CODEX_HOME") or home / ".codex")
    return {"home": home, "config": config, "dot_config": dot_config, "claude": claude, "codex": codex}


def _bridge_entry(url: str, token: str | None) -> Entry:
    """Return an entry that starts mcp-remote, for a client without HTTP or without variables in headers.

    Such a client does not pass on its environment, so the entry holds the token itself.
    """
    insecure = ["--allow-http"] if url.startswith("http://") else []
    entry = {"command": "npx", "args": ["-y", "mcp-remote", url, *insecure]}
    if token is None:
        return entry
    value = f"Bearer {os.environ.get(token) or f'{PLACEHOLDER} {token}>'}"
    args = [*entry["args"], "--header", f"Authorization:${{{HEADER_VARIABLE}}}"]
    return {**entry, "args": args, "env": {HEADER_VARIABLE: value}}


def _header(reference: str) -> Callable[[str], Entry]:
    """Return a function that makes the headers of an entry; *reference* is how the client writes NAME."""
    return lambda name: {"headers": {"Authorization": f"Bearer {reference.replace('NAME', name)}"}}


#: The formats are those of the clients' documentation: code.claude.com/docs/en/mcp, cursor.com/docs/mcp,
#: modelcontextprotocol.io (Connect to local servers), docs.windsurf.com/windsurf/cascade/mcp,
#: code.visualstudio.com/docs/agents/reference/mcp-configuration, zed.dev/docs/ai/mcp,
#: geminicli.com/docs/tools/mcp-server, developers.openai.com/codex/mcp.
CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        file="{claude}/.claude.json",
        has_type=True,
        token=_header("${NAME}"),
        then="Start a new session of Claude Code.",
    ),
    "claude-desktop": Client(
        file="{config}/Claude/claude_desktop_config.json",
        url=None,
        then="Restart Claude Desktop.",
    ),
    "cursor": Client(
        file="{home}/.cursor/mcp.json",
        token=_header("${env:NAME}"),
        then="Cursor reloads the file. If the server is off, turn it on in the settings.",
    ),
    "vscode": Client(
        file="{config}/Code/User/mcp.json",
        section="servers",
        has_type=True,
        token=_header("${env:NAME}"),
        then="Start the server with “MCP: List Servers” in VS Code.",
    ),
    "windsurf": Client(
        file="{home}/.codeium/windsurf/mcp_config.json",
        url="serverUrl",
        token=_header("${env:NAME}"),
        then="Refresh the MCP servers in Cascade.",
    ),
    "zed": Client(
        file="{dot_config}/zed/settings.json",
        section="context_servers",
        then="Zed reloads the file.",
    ),
    "gemini": Client(
        file="{home}/.gemini/settings.json",
        url="httpUrl",
        token=_header("$NAME"),
        then="Restart Gemini CLI.",
    ),
    "codex": Client(
        file="{codex}/config.toml",
        section="mcp_servers",
        token=lambda name: {"bearer_token_env_var": name},
        then="Restart Codex.",
    ),
    "mcp.json": Client(
        file=".mcp.json",
        has_type=True,
        token=_header("${NAME}"),
        then="A client that you start in this folder asks you to approve the server.",
    ),
}


@click.command(epilog=example("dbtools connect cursor shop.db --write"))
@click.argument("client", shell_complete=lambda *given: [each for each in CLIENTS if given[-1] in each])
@target_argument
@role_option
@claim_option
@click.option("--http", metavar="URL", help="Connect to the running server at this URL.")
@click.option(
    "--token-env",
    metavar="NAME",
    help=f"The environment variable with the token for --http.  "
    f"[default: {TOKEN_VARIABLE}; none for localhost]",
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
        entry, warnings = _over_http(chosen, http, token_env)
    else:
        kind = {"type": "stdio"} if chosen.has_type else {}
        entry, warnings = {**kind, **_launch(target, role, claims)}, []
    content = {"client": client, "file": str(chosen.path()), "name": known_as, "entry": entry}
    if not write:
        echo(as_json, content, "" if as_json else _snippet(client, known_as, entry))
        return
    if PLACEHOLDER in json.dumps(entry):
        raise click.UsageError(
            f"This client stores the token in its file: set {token_env or TOKEN_VARIABLE} first."
        )
    done = _change(chosen, known_as, entry, is_named=name is not None)
    echo(as_json, {**content, "done": done}, done)
    for warning in warnings if http else _warnings(settings_for(target), role):
        click.echo(f"dbtools: {warning}", err=True)


def _check_options(client: str, target: str | None, http: str | None, token: str | None) -> None:
    """Raise UsageError if arguments contradict each other, or a token is given instead of its variable."""
    given = click.get_current_context().get_parameter_source
    names_caller = ParameterSource.COMMANDLINE in (given("role"), given("claims"))
    for is_wrong, problem in (
        # Do not repeat the word: it may be a URL with a password.
        (client not in CLIENTS, f"CLIENT must be one of {', '.join(CLIENTS)}. TARGET comes after it."),
        (http and target, "Use either TARGET or --http."),
        (http and names_caller, "Over HTTP, the token decides role and claims: omit --role and --claim."),
        (token and not http, "--token-env needs --http."),
        (
            token and not VARIABLE_NAME.fullmatch(token),
            "--token-env must be the name of a variable, not a token.",
        ),
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
    variable = token or (None if is_local else TOKEN_VARIABLE)
    entry = client.entry(url if parts.path not in ("", "/") else f"{url.rstrip('/')}/mcp", variable)
    warnings = [f"Set {variable} to the token in the environment of the client."] if variable else []
    if variable and parts.scheme == "http" and not is_local:
        warnings.append("The token would be sent unencrypted. Put a proxy with TLS in front of the server.")
    return entry, warnings


def _is_local(url: str) -> bool:
    from dbtools.settings.fields import LOOPBACK

    return urlsplit(url).hostname in LOOPBACK


def _launch(target: str | None, role: str, claims: Sequence[str]) -> Entry:
    """Return the entry with which a client starts dbtools for *target*, from any folder."""
    from dbtools.backends import open_backend
    from dbtools.settings.files import VARIABLE

    settings = settings_for(target, role)
    _, environment = open_backend(settings.database.url).shareable_url()
    if settings.origin.path:
        # A password in the file stays there. The client passes on the variables that the file uses.
        names = [*environment, *VARIABLE.findall(json.dumps(settings.origin.content()))]
        environment = {each: os.environ[each] for each in names if each in os.environ}
    if os.environ.get(CLAIMS):
        environment = {**environment, CLAIMS: os.environ[CLAIMS]}
    command, *words = command_of()
    args = [*words, "serve", place_of(target), *words_of_caller(role, claims)]
    return {"command": command, "args": args} | ({"env": dict(environment)} if environment else {})


def place_of(target: str | None) -> str:
    """Return *target* as it is found from any folder, without a password."""
    from dbtools.backends import home_path, is_url, open_backend
    from dbtools.settings.files import FILE

    if target is not None and is_url(target):
        url, _ = open_backend(target).shareable_url()
        return url
    return os.path.abspath(home_path(target or FILE))


def command_of() -> list[str]:
    """Return the words that start this dbtools, by full paths."""
    uvx = shutil.which("uvx")
    if uvx is not None and "archive-v0" in Path(sys.prefix).parts:
        # uvx creates an environment for one run, which its cache may delete.
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
    # An entry that differs only in its environment starts the same server.
    if entry is None or before is None or is_named or {**old, "env": None} == {**entry, "env": None}:
        done = f"Replaced {name} in" if before else f"Added {name} to"
        done = done if entry else f"Removed {name} from"
        remark = FILE_SECRETS if entry and "env" in entry else ""
        return f"{done} {file.path}{file.write(name, entry)}. {client.then}{remark}"
    hint = f"Add this one with --name NAME, or replace the other with --name {name}."
    raise ConfigurationError(f"{file.path} already has another server {name!r}.", hint=hint)


def _warnings(settings: "Settings", role: str) -> "Sequence[str | Finding]":
    """Return warnings that the client would not show."""
    from dbtools.errors import DatabaseUnavailable

    try:
        view = with_toolbox(settings, lambda toolbox, _: toolbox.view(role), role)
    except DatabaseUnavailable as exc:
        return [f"The database cannot be read now: {exc}"]
    return [*view.problems]
