"""A minimal client: lines of JSON out and in, in every version of the protocol."""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import anyio

from dbtools.policy.roles import Caller
from dbtools.records import AuditLog
from dbtools.server.calls import Calls, Limiter
from dbtools.server.mcp.exchange import Notifications
from dbtools.server.mcp.protocol import Server
from dbtools.server.stdio import LineConnection
from dbtools.service.toolbox import Toolbox
from tests.oracle.validation import validate
from tests.processes import started_by

ROOT = Path(__file__).parents[2]
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
VERSIONS = (*HANDSHAKES, MODERN)
PATIENCE = 30  #: seconds for one answer, which a busy machine may need
MOST_NOTED = 4_000  #: characters of what a server wrote that a failure shows
LONGEST_LINE = 128 * 2**20  #: bytes
CLIENT = {"name": "raw", "version": "1"}

Message = dict[str, Any]


class Client:
    """One end of a connection; the server is at the other, and each of its messages is validated."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: str = MODERN
    ) -> None:
        self.version = version
        self.able: Mapping[str, object] = {}  #: the capabilities of a client of 2026-07-28
        self.received: list[Message] = []  #: everything, in the order of its arrival
        self._reader = reader
        self._writer = writer
        self._last = 0
        self._methods: dict[object, str] = {}  #: of requests, by id

    async def open(self) -> Message:
        """Shake hands in the client's version, or discover the server; return the result."""
        if self.version == MODERN:
            return await self.result("server/discover")
        params = {"protocolVersion": self.version, "capabilities": {}, "clientInfo": CLIENT}
        result = await self.result("initialize", params)
        await self.notify("notifications/initialized")
        return result

    async def start(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        token: object = None,
        id: object = None,
    ) -> object:
        """Send a request and return its id."""
        self._last += 1
        id = self._last if id is None else id
        await self.send(
            {"jsonrpc": "2.0", "id": id, "method": method, "params": self._params(params, token=token)}
        )
        return id

    def _params(self, params: Mapping[str, object] | None, *, token: object) -> Message:
        meta: Message = {} if token is None else {"progressToken": token}
        if self.version == MODERN:
            meta["io.modelcontextprotocol/protocolVersion"] = MODERN
            meta["io.modelcontextprotocol/clientCapabilities"] = self.able
            meta["io.modelcontextprotocol/clientInfo"] = CLIENT
        return {**(params or {}), **({"_meta": meta} if meta else {})}

    async def request(self, method: str, params: Mapping[str, object] | None = None) -> Message:
        """Return the whole answer to a request."""
        return await self.answer(await self.start(method, params))

    async def result(self, method: str, params: Mapping[str, object] | None = None) -> Message:
        """Return the result of a request, which must have one."""
        answer = await self.request(method, params)
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    async def error(self, method: str, params: Mapping[str, object] | None = None) -> Message:
        """Return the error of a request, which must fail."""
        answer = await self.request(method, params)
        assert "error" in answer, answer
        error: Message = answer["error"]
        return error

    async def call(self, name: str, arguments: Mapping[str, object] | None = None) -> Message:
        """Return the result of calling a tool."""
        return await self.result("tools/call", {"name": name, "arguments": arguments or {}})

    async def start_call(
        self, name: str, arguments: Mapping[str, object] | None = None, *, token: object = None
    ) -> object:
        """Call a tool without waiting for its answer; return the id of the request."""
        return await self.start("tools/call", {"name": name, "arguments": arguments or {}}, token=token)

    async def cancel(self, id: object) -> None:
        """Take back the request *id*."""
        await self.notify("notifications/cancelled", {"requestId": id})

    async def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Send a notification."""
        await self.send(
            {"jsonrpc": "2.0", "method": method, "params": params}
            if params
            else {"jsonrpc": "2.0", "method": method}
        )

    async def send(self, message: object) -> None:
        """Send *message* as a line."""
        await self.send_line(json.dumps(message).encode())

    async def send_line(self, line: bytes, *, end: bytes = b"\n") -> None:
        """Send a line as it is."""
        self._note(line)
        self._writer.write(line + end)
        with anyio.fail_after(PATIENCE):
            await self._writer.drain()

    def _note(self, line: bytes) -> None:
        """Remember the method of the request that *line* is."""
        try:
            # As a server may read them, of too many digits only the first ones.
            message = json.loads(line, parse_int=lambda digits: int(digits[:4_000]))
        except (ValueError, RecursionError):
            return  # a line that is answered by an error only
        if isinstance(message, dict) and isinstance(message.get("id"), int | str) and "method" in message:
            self._methods[message["id"]] = message["method"]

    def _read(self, line: bytes) -> Message:
        message = read_message(line)
        validate(message, version=self.version, method=self._methods.get(message.get("id")))
        return message

    async def answer(self, id: object) -> Message:
        """Return the answer to the request *id*."""
        return await self._first(lambda message: "method" not in message and message["id"] == id)

    async def progress(self, token: object) -> Message:
        """Return the first report on the progress of the call with *token*."""
        return await self._first(lambda message: message.get("params", {}).get("progressToken") == token)

    async def _first(self, matches: "Any") -> Message:
        seen = 0
        while True:
            for message in self.received[seen:]:
                seen += 1
                if matches(message):
                    return message
            self.received.append(await self.receive())

    async def receive(self) -> Message:
        """Return the next message."""
        with anyio.fail_after(PATIENCE):
            line = await self._reader.readline()
        if not line:
            raise EOFError("The server has closed its output.")
        return self._read(line)

    async def rest(self) -> list[Message]:
        """Say no more, and return everything that was received until the server closed its output."""
        self.hang_up()
        with anyio.fail_after(PATIENCE):
            async for line in self._reader:
                self.received.append(self._read(line))
        return self.received

    def hang_up(self) -> None:
        """Close the server's input."""
        self._writer.close()

    async def list_all(self, method: str, key: str) -> list[Message]:
        """Return the items of all pages."""
        items: list[Message] = []
        params: Message = {}
        while True:
            page = await self.result(method, params)
            items.extend(page[key])
            if "nextCursor" not in page:
                return items
            params = {"cursor": page["nextCursor"]}


def read_message(line: bytes) -> Message:
    """Return the JSON-RPC message that *line* must be."""
    message = json.loads(line)
    assert isinstance(message, dict), line
    assert message["jsonrpc"] == "2.0", line
    assert ("method" in message) != (("result" in message) != ("error" in message)), line
    return message


class ProcessClient(Client):
    """A client of a server in a separate process."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        version: str,
        output: asyncio.ReadTransport,
        process: asyncio.subprocess.Process,
        log: Path,
    ) -> None:
        super().__init__(reader, writer, version)
        self.process = process
        self.log = log  #: what the server wrote to stderr
        self._output = output

    def vanish(self) -> None:
        """Close both pipes at once, as the end of the client's process does."""
        self._output.close()
        self._writer.transport.abort()

    def stop_reading(self) -> None:
        """Close the server's output, and leave its input open."""
        self._output.close()

    async def status(self) -> int:
        """Wait for the process to end by itself; return its exit status."""
        with anyio.fail_after(PATIENCE):
            return await self.process.wait()


@asynccontextmanager
async def spawn(
    target: object,
    folder: Path,
    *,
    version: str = MODERN,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    program: Sequence[str] = (),
) -> AsyncIterator[ProcessClient]:
    """Run `dbtools serve TARGET` with its stderr in *folder*, and give a client of it.

    It is forked, unless it has an *environment* or *program* starts it.
    """
    log = folder / "stderr.txt"
    command = (*(program or started_by(environment)), "serve", str(target), *options)
    their_input, our_output = os.pipe()
    our_input, their_output = os.pipe()
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=their_input,
            stdout=their_output,
            stderr=errors,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )
    os.close(their_input)
    os.close(their_output)
    reader, output = await _open_reader(os.fdopen(our_input, "rb", buffering=0))
    writer = await _open_writer(os.fdopen(our_output, "wb", buffering=0))
    try:
        yield ProcessClient(reader, writer, version=version, output=output, process=process, log=log)
    except BaseException as exc:
        exc.add_note(f"The server wrote: {log.read_text()[-MOST_NOTED:]}")
        raise
    finally:
        if process.returncode is None:
            # It may have ended, although its status has not arrived.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        if not writer.is_closing():
            writer.transport.abort()
        output.close()
        await anyio.lowlevel.checkpoint()


async def _open_reader(pipe: BinaryIO) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


async def _open_writer(pipe: BinaryIO) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


@dataclass(frozen=True, kw_only=True)
class Serving:
    """A server, and whom it serves."""

    server: Server
    caller: Caller


def build_server(
    toolbox: Toolbox,
    caller: Caller,
    instructions: str,
    *,
    calls: Calls | None = None,
    notifications: Notifications | None = None,
    answer_timeout: float = PATIENCE,
) -> Serving:
    """Return a server of *toolbox* for *caller*; with *notifications*, it notifies clients of changes.

    A person has *answer_timeout* seconds to answer.
    """
    calls = calls or Calls(toolbox, Limiter(), AuditLog([], arguments=False))
    server = Server(
        toolbox, calls, instructions=instructions, notifications=notifications, answer_timeout=answer_timeout
    )
    return Serving(server=server, caller=caller)


@asynccontextmanager
async def connect(serving: Serving, *, version: str = MODERN) -> AsyncIterator[Client]:
    """Answer over a socket by the protocol that `serve` has for its pipes, and give a client of it."""
    ours, theirs = socket.socketpair()
    connection = LineConnection(serving.server, serving.caller)
    transport, _ = await asyncio.get_running_loop().connect_accepted_socket(lambda: connection, theirs)
    connection.reading, connection.writing, connection.write = transport, transport, transport.write
    reader, writer = await asyncio.open_connection(sock=ours, limit=LONGEST_LINE)
    try:
        yield Client(reader, writer, version)
    finally:
        connection.disconnect()
        await connection.finish()
        writer.close()
        transport.close()
        await anyio.lowlevel.checkpoint()
