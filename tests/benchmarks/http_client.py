"""A minimal HTTP/1.1 client: connections stay open, with one call at a time on each."""

import asyncio
import os
import re
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import orjson
import psutil  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
MODERN, HANDSHAKE = "2026-07-28", "2025-11-25"
INFORMATION = {"name": "benchmark", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": INFORMATION,
}
ADDRESS = re.compile(rb"(http://\S+)")


@dataclass(frozen=True, kw_only=True)
class Call:
    """A request that can be sent again and again: the bytes of it."""

    content: bytes


def call_of(version: str, tool: str, arguments: Mapping[str, object], session: bytes = b"") -> Call:
    """Return the call of *tool* in *version* of the protocol, in a *session* where it has such."""
    parameters: dict[str, object] = {"name": tool, "arguments": arguments}
    head = {"MCP-Protocol-Version": version}
    if version == MODERN:
        parameters["_meta"] = META
        head |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
    if session:
        head["Mcp-Session-Id"] = session.decode()
    return Call(content=_request({"id": 1, "method": "tools/call", "params": parameters}, head))


def _request(message: Mapping[str, object], head: Mapping[str, str]) -> bytes:
    body = orjson.dumps({"jsonrpc": "2.0", **message})
    lines = {
        "Host": "localhost",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **head,
    }
    return b"POST /mcp HTTP/1.1\r\n" + _lines(lines) + b"\r\n" + body


def _session(id: bytes) -> dict[str, str]:
    return {"MCP-Protocol-Version": HANDSHAKE, "Mcp-Session-Id": id.decode()}


def _lines(head: Mapping[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in head.items()).encode()


class HttpConnection:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, content: bytes) -> tuple[bytes, bytes]:
        """Send a request; return head and body of the answer."""
        self._writer.write(content)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        assert head[9:12] in (b"200", b"202"), head
        if found := re.search(rb"content-length: (\d+)", head):
            return head, await self._reader.readexactly(int(found[1]))
        body = b""
        if b"chunked" in head:
            while size := int(await self._reader.readline(), 16):
                body += await self._reader.readexactly(size)
                await self._reader.readline()
            await self._reader.readline()
        return head, body

    async def call(self, call: Call) -> None:
        """Make a call that must not fail."""
        _, body = await self.send(call.content)
        assert b'"content":' in body, body
        assert b'"isError":true' not in body, body

    async def shake_hands(self) -> bytes:
        """Open a session, and return its id."""
        told = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": INFORMATION}
        head, _ = await self.send(_request({"id": 0, "method": "initialize", "params": told}, {}))
        session = re.search(rb"mcp-session-id: (\S+)", head)
        assert session is not None
        await self.send(_request({"method": "notifications/initialized"}, _session(session[1])))
        return session[1]

    def begin(self, content: bytes) -> None:
        """Send a request without reading the answer."""
        self._writer.write(content)

    async def cancel(self, session: bytes) -> None:
        """Cancel the call of *session*."""
        told = {"method": "notifications/cancelled", "params": {"requestId": 1}}
        await self.send(_request(told, _session(session)))

    async def end(self, session: bytes) -> None:
        """End *session*."""
        await self.send(_request({}, _session(session)).replace(b"POST", b"DELETE", 1))

    async def close(self) -> None:
        """Close it."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


@dataclass(frozen=True, kw_only=True)
class HttpProcess:
    """A server, with all its processes."""

    pid: int
    host: str
    port: int

    async def connect(self) -> HttpConnection:
        """Open a connection."""
        return HttpConnection(*await asyncio.open_connection(self.host, self.port, limit=2**26))

    def _processes(self) -> list[psutil.Process]:
        main = psutil.Process(self.pid)
        return [main, *main.children(recursive=True)]

    def cpu(self) -> float:
        """Return how many seconds of CPU it has taken."""
        times = [each.cpu_times() for each in self._processes()]
        return float(sum(each.user + each.system for each in times))

    def memory(self) -> int:
        """Return how many bytes it holds."""
        return sum(each.memory_info().rss for each in self._processes())


@asynccontextmanager
async def open_http(*arguments: str) -> AsyncIterator[HttpProcess]:
    """Run a server by Python with *arguments*, which says on stderr at which URL it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=ROOT, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, env={**os.environ}
    )
    assert process.stderr is not None
    try:
        while not (found := ADDRESS.search(line := await process.stderr.readline())):
            assert line, "the server has left"
        drain = asyncio.create_task(process.stderr.read())
        parts = urlsplit(found[1].decode())
        yield HttpProcess(pid=process.pid, host=str(parts.hostname), port=int(parts.port or 80))
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
    await drain


@asynccontextmanager
async def prepared(
    process: HttpProcess, version: str, tool: str, arguments: Mapping[str, object], width: int
) -> AsyncIterator[list[tuple[HttpConnection, Call]]]:
    """Yield *width* connections, each with a call for it, in a session where *version* has such."""
    calls: list[tuple[HttpConnection, Call]] = []
    try:
        for _ in range(width):
            connection = await process.connect()
            session = b"" if version == MODERN else await connection.shake_hands()
            calls.append((connection, call_of(version, tool, arguments, session)))
        yield calls
    finally:
        for connection, _ in calls:
            await connection.close()


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a number of calls took."""

    seconds: float
    cpu: float  #: seconds of the server's
    latencies: list[float]  #: seconds, in order

    def share(self, part: float) -> float:
        """Return the latency below which this *part* of the calls is."""
        return self.latencies[min(len(self.latencies) - 1, int(part * len(self.latencies)))]


async def measure(process: HttpProcess, calls: list[tuple[HttpConnection, Call]], number: int) -> Load:
    """Make so many calls in all, each connection one at a time."""
    latencies: list[float] = []

    async def work(connection: HttpConnection, call: Call) -> None:
        for _ in range(number // len(calls)):
            start = time.perf_counter()
            await connection.call(call)
            latencies.append(time.perf_counter() - start)

    cpu, start = process.cpu(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for each in calls:
            group.create_task(work(*each))
    seconds = time.perf_counter() - start
    return Load(seconds=seconds, cpu=process.cpu() - cpu, latencies=sorted(latencies))
