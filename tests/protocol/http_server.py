"""An HTTP server in a separate process, and requests to it."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2

from tests.oracle.validation import ValidatingTransport
from tests.processes import started_by
from tests.protocol.client import CLIENT, MODERN, MOST_NOTED, PATIENCE, ROOT

HANDSHAKE = "2025-11-25"
SESSION = "Mcp-Session-Id"
ADDRESS = re.compile(r"(?:Serving .*|Listening) at (http://\S+?)/mcp\b")

Message = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class HttpServer:
    """A running server."""

    url: str  #: without a path
    process: asyncio.subprocess.Process
    log: Path  #: what it writes on stderr

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.url.rpartition(":")[2])

    def client(self, **headers: str) -> httpx2.AsyncClient:
        """Return a client that sends *headers*, whose names have underscores for hyphens.

        It validates what it reads.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        transport = ValidatingTransport()
        return httpx2.AsyncClient(base_url=self.url, headers=named, timeout=PATIENCE, transport=transport)

    async def end(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the status with which it ends."""
        os.kill(self.process.pid, number)
        with anyio.fail_after(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def http_server(
    target: object,
    folder: Path,
    *options: str,
    environment: Mapping[str, str] | None = None,
    port: int = 0,
    program: Sequence[str] = (),
    until: str = "/readyz",
) -> AsyncIterator[HttpServer]:
    """Run `dbtools serve TARGET --http` on *port*, or a free one, with stderr in *folder*, and give it.

    It has answered a request for *until*.
    It is forked, unless it has an *environment* or *program* starts it.
    """
    log = folder / "stderr.txt"
    address = f"127.0.0.1:{port}"
    command = (*(program or started_by(environment)), "serve", str(target), "--http", address, *options)
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=errors,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )
    try:
        server = HttpServer(url=await _address(process, log), process=process, log=log)
        async with server.client() as client:
            await _answered(client, until)
        yield server
    except BaseException as exc:
        exc.add_note(f"The server wrote: {log.read_text()[-MOST_NOTED:]}")
        raise
    finally:
        if process.returncode is None:
            os.kill(process.pid, signal.SIGTERM)
            try:
                with anyio.fail_after(PATIENCE):
                    await process.wait()
            except TimeoutError:
                os.kill(process.pid, signal.SIGKILL)
                await process.wait()


async def _answered(client: httpx2.AsyncClient, path: str) -> None:
    with anyio.fail_after(PATIENCE):
        while True:
            with suppress(httpx2.TransportError):
                if (await client.get(path)).status_code == 200:
                    return
            await anyio.sleep(0.02)


async def _address(process: asyncio.subprocess.Process, log: Path) -> str:
    """Return where the server says that it listens."""
    with anyio.fail_after(PATIENCE):
        while True:
            told = await anyio.Path(log).read_text()
            found = ADDRESS.search(told)
            if found:
                return found[1]
            assert process.returncode is None, told
            await anyio.sleep(0.02)


def modern(method: str, params: Mapping[str, object] | None = None, id: object = 1) -> dict[str, Any]:
    """Return the headers and the body of a request of 2026-07-28, as arguments of a client's `post`."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": CLIENT,
    }
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = (params or {}).get("name") or (params or {}).get("uri")
    if isinstance(name, str):
        headers["Mcp-Name"] = name
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**(params or {}), "_meta": meta}}
    return posted(message, headers)


def posted(message: object, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return *message* as a client's `post` takes it."""
    accept = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    return {"url": "/mcp", "headers": {**accept, **(headers or {})}, "content": content}


async def call(client: httpx2.AsyncClient, tool: str, arguments: Mapping[str, object] | None = None) -> Any:
    """Return the result of a tool, asked for as in 2026-07-28."""
    answer = await client.post(**modern("tools/call", {"name": tool, "arguments": arguments or {}}))
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


def initialize(version: str = HANDSHAKE) -> dict[str, Any]:
    """Return the request that opens a session of the 2025 era."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
    return posted({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})


async def open_session(client: httpx2.AsyncClient, **headers: str) -> dict[str, str]:
    """Shake hands and return the headers of the session."""
    asked = initialize()
    asked["headers"] |= headers
    answer = await client.post(**asked)
    assert answer.status_code == 200, answer.text
    session = {SESSION: answer.headers[SESSION], "MCP-Protocol-Version": HANDSHAKE, **headers}
    told = await client.post(**posted({"jsonrpc": "2.0", "method": "notifications/initialized"}, session))
    assert told.status_code == 202
    return session


def events(text: str) -> list[Message]:
    """Return the messages of an answer: of a stream of events, or the one that it is."""
    if text.startswith("{"):
        return [json.loads(text)]
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
