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

    path: Callable[[], Path]
    section: str  #: the key of the file that holds the servers
    http: Callable[[str, str | None], Entry]  #: of a URL, and of the variable that holds the token
    has_type: bool = False  #: whether an entry names its transport
    then: str  #: what makes the client read the file


def _config(*parts: str) -> Path:
    """Return a path below the folder where this system's programs keep their settings."""
    if sys.platform == "win32":
        folder = Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming"))
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Application Support"
    else:
        folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return folder.joinpath(*parts)


def _zed() -> Path:
    # On macOS Zed keeps to ~/.config as well.
    is_mac = sys.platform == "darwin"
    return Path.home() / ".config/zed/settings.json" if is_mac else _config("zed", "settings.json")


def _home(variable: str, *default: str) -> Path:
    """Return the folder that *variable* names, or else the *default* below the home folder."""
    return Path(os.environ[variable]) if os.environ.get(variable) else Path.home().joinpath(*default)


def _remote(key: str, reference: str, **fixed: str) -> Callable[[str, str | None], Entry]:
    """Return what makes the entry of a server over HTTP, with its URL as *key*.

    *reference* is how the client's file refers to the variable NAME.
    """

    def entry(url: str, token: str | None) -> Entry:
        value = f"Bearer {reference.replace('NAME', token or '')}"
        return {**fixed, key: url} | ({"headers": {"Authorization": value}} if token else {})

    return entry


def _bridged(url: str, token: str | None) -> Entry:
    """Return an entry for a client that starts commands only, or that reads no variables in headers.

    Such a client does not pass on its environment: the token itself is in the entry, as mcp-remote wants it.
    """
    insecure = ["--allow-http"] if url.startswith("http://") else []
    entry = {"command": "npx", "args": ["-y", "mcp-remote", url, *insecure]}
    if token is None:
        return entry
    value = f"Bearer {os.environ.get(token) or f'{PLACEHOLDER} {token}>'}"
    args = [*entry["args"], "--header", f"Authorization:${{{HEADER}}}"]
    return {**entry, "args": args, "env": {HEADER: value}}


def _zed_http(url: str, token: str | None) -> Entry:
    return _bridged(url, token) if token else {"url": url}


def _codex_http(url: str, token: str | None) -> Entry:
    return {"url": url} | ({"bearer_token_env_var": token} if token else {})


#: The formats are those of the clients' documentation: code.claude.com/docs/en/mcp, cursor.com/docs/mcp,
#: modelcontextprotocol.io (Connect to local servers), docs.windsurf.com/windsurf/cascade/mcp,
#: code.visualstudio.com/docs/agents/reference/mcp-configuration, zed.dev/docs/ai/mcp,
#: geminicli.com/docs/tools/mcp-server, developers.openai.com/codex/mcp.
CLIENTS: Mapping[str, Client] = {
    "claude-code": Client(
        path=lambda: _home("CLAUDE_CONFIG_DIR") / ".claude.json",
        section="mcpServers",
        has_type=True,
        http=_remote("url", "${NAME}", type="http"),
        then="Start a new session of Claude Code.",
    ),
    "claude-desktop": Client(
        path=lambda: _config("Claude", "claude_desktop_config.json"),
        section="mcpServers",
        http=_bridged,
        then="Quit Claude Desktop and start it again.",
    ),
    "cursor": Client(
        path=lambda: Path.home() / ".cursor" / "mcp.json",
        section="mcpServers",
        http=_remote("url", "${env:NAME}"),
        then="Cursor reads the file at once; switch the server on in its settings if it is off.",
    ),
    "vscode": Client(
        path=lambda: _config("Code", "User", "mcp.json"),
        section="servers",
        has_type=True,
        http=_remote("url", "${env:NAME}", type="http"),
        then="Start the server with “MCP: List Servers” in VS Code.",
    ),
    "windsurf": Client(
        path=lambda: Path.home() / ".codeium" / "windsurf" / "mcp_config.json",
        section="mcpServers",
        http=_remote("serverUrl", "${env:NAME}"),
        then="Refresh the MCP servers in Cascade.",
    ),
    "zed": Client(
        path=_zed,
        section="context_servers",
        http=_zed_http,
        then="Zed reads the file at once.",
    ),
    "gemini": Client(
        path=lambda: Path.home() / ".gemini" / "settings.json",
        section="mcpServers",
        http=_remote("httpUrl", "$NAME"),
        then="Start Gemini CLI again.",
    ),
    "codex": Client(
        path=lambda: _home("CODEX_HOME", ".codex") / "config.toml",
        section="mcp_servers",
        http=_codex_http,
        then="Start Codex again.",
    ),
    "mcp.json": Client(
        path=lambda: Path.cwd() / ".mcp.json",
        section="mcpServers",
        has_type=True,
        http=_remote("url", "${NAME}", type="http"),
        then="Clients that are started in this folder ask whether they may use the server.",
    ),
}
