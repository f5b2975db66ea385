"""The clients that dbtools can be added to: where each keeps its servers, and in which form."""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dbtools.cli.documents import Entry

HEADER, PLACEHOLDER = "DBTOOLS_AUTHORIZATION", "<the value of"


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
            return _bridged(url, token)
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


def _bridged(url: str, token: str | None) -> Entry:
    """Return an entry that starts mcp-remote, for a client without HTTP or without variables in headers.

    Such a client does not pass on its environment, so the entry holds the token itself.
    """
    insecure = ["--allow-http"] if url.startswith("http://") else []
    entry = {"command": "npx", "args": ["-y", "mcp-remote", url, *insecure]}
    if token is None:
        return entry
    value = f"Bearer {os.environ.get(token) or f'{PLACEHOLDER} {token}>'}"
    args = [*entry["args"], "--header", f"Authorization:${{{HEADER}}}"]
    return {**entry, "args": args, "env": {HEADER: value}}


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
