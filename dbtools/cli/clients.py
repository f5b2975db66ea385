"""The clients that dbtools can be added to: where each keeps its servers, and in which form."""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from dbtools.cli.documents import Json, Toml

HEADER, PLACEHOLDER = "DBTOOLS_AUTHORIZATION", "<the value of"
Entry = Mapping[str, object]  #: of a client's file, for one server
Http = Callable[[str, str | None], Entry]  #: of a URL, and of the variable that holds the token


class Form(StrEnum):
    """How a client's file is written."""

    JSON = "json"
    TOML = "toml"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a client starts dbtools."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    def entry(self) -> dict[str, object]:
        """Return the keys that all clients share."""
        entry: dict[str, object] = {"command": self.command, "args": list(self.args)}
        return entry | ({"env": dict(self.env)} if self.env else {})


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client, by its file."""

    file: Callable[[], Path]
    section: str  #: the key of the file that holds the servers
    http: Http
    form: Form = Form.JSON
    stdio: Entry = field(default_factory=dict)  #: what stands in an entry beside the command
    then: str  #: what makes the client read the file

    def launched(self, launch: Launch) -> Entry:
        """Return the entry of a server that the client starts."""
        return {**self.stdio, **launch.entry()}

    def changed(self, text: str, name: str, entry: Entry | None) -> str:
        """Return the client's file *text* with *entry* as the server *name*, and all else as it was.

        Without an entry the server, which is there, is removed. ValueError says why that cannot be.
        """
        document = self._document(text)
        servers = {**self.servers(text), name: entry}
        if entry is None:
            changed = document.without(self.section, name)
            del servers[name]
        else:
            changed = document.having(self.section, name, entry)
        # What edits TOML may take keys that follow for keys of the new table.
        if (self.servers(changed), self._others(changed)) != (servers, self._others(text)):
            raise ValueError("it cannot be edited without changing more than the entry")
        return changed

    def _others(self, text: str) -> Mapping[str, object]:
        return {key: value for key, value in self._document(text).content.items() if key != self.section}

    def servers(self, text: str) -> Mapping[str, object]:
        """Return the servers in the client's file *text*, or raise ValueError."""
        servers = self._document(text).content.get(self.section, {})
        if not isinstance(servers, dict):
            raise ValueError(f"{self.section} is not an object")
        return servers

    def _document(self, text: str) -> Json | Toml:
        return Toml(text) if self.form is Form.TOML else Json(text)


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


def _remote(key: str, reference: str, **fixed: str) -> Http:
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
        file=lambda: _home("CLAUDE_CONFIG_DIR") / ".claude.json",
        section="mcpServers",
        stdio={"type": "stdio"},
        http=_remote("url", "${NAME}", type="http"),
        then="Start a new session of Claude Code.",
    ),
    "claude-desktop": Client(
        file=lambda: _config("Claude", "claude_desktop_config.json"),
        section="mcpServers",
        http=_bridged,
        then="Quit Claude Desktop and start it again.",
    ),
    "cursor": Client(
        file=lambda: Path.home() / ".cursor" / "mcp.json",
        section="mcpServers",
        http=_remote("url", "${env:NAME}"),
        then="Cursor reads the file at once; switch the server on in its settings if it is off.",
    ),
    "vscode": Client(
        file=lambda: _config("Code", "User", "mcp.json"),
        section="servers",
        stdio={"type": "stdio"},
        http=_remote("url", "${env:NAME}", type="http"),
        then="Start the server with “MCP: List Servers” in VS Code.",
    ),
    "windsurf": Client(
        file=lambda: Path.home() / ".codeium" / "windsurf" / "mcp_config.json",
        section="mcpServers",
        http=_remote("serverUrl", "${env:NAME}"),
        then="Refresh the MCP servers in Cascade.",
    ),
    "zed": Client(
        file=_zed,
        section="context_servers",
        http=_zed_http,
        then="Zed reads the file at once.",
    ),
    "gemini": Client(
        file=lambda: Path.home() / ".gemini" / "settings.json",
        section="mcpServers",
        http=_remote("httpUrl", "$NAME"),
        then="Start Gemini CLI again.",
    ),
    "codex": Client(
        file=lambda: _home("CODEX_HOME", ".codex") / "config.toml",
        section="mcp_servers",
        form=Form.TOML,
        http=_codex_http,
        then="Start Codex again.",
    ),
    "mcp.json": Client(
        file=lambda: Path.cwd() / ".mcp.json",
        section="mcpServers",
        stdio={"type": "stdio"},
        http=_remote("url", "${NAME}", type="http"),
        then="Clients that are started in this folder ask whether they may use the server.",
    ),
}


def name_for(text: str) -> str:
    """Return *text* as the name of a server, which every client takes."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:40] or "database"


def claude_command(name: str, entry: Entry) -> str:
    """Return the command of Claude Code that adds *entry* as the server *name*."""
    words = ["claude", "mcp", "add-json", "--scope", "user", name, json.dumps(entry, ensure_ascii=False)]
    return shlex.join(words)
