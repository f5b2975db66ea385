"""MCP over stdin and stdout: one JSON message a line, and a protocol of asyncio's for both directions."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any

from dbtools.policy import Caller
from dbtools.server.exchange import Exchange, Questions
from dbtools.server.kernel import Session
from dbtools.server.logs import Descriptors
from dbtools.server.messages import (
    INVALID_REQUEST,
    Id,
    Malformed,
    Notification,
    ProtocolError,
    Request,
    Response,
    encode_error,
    id_of,
    identifier,
    parse,
)
from dbtools.server.protocol import Server
from dbtools.telemetry import new_request_id

LONGEST_LINE = 64 * 2**20  #: bytes
CHUNK = 2**16
GRACE = 3.0  #: seconds for what is being answered when the client has said everything


async def serve(server: Server, caller: Caller, descriptors: Descriptors) -> None:
    """Let *server* answer *caller* at *descriptors* until the client leaves."""
    connection = LineConnection(server, caller)
    output = Output(connection, descriptors.output)
    loop = asyncio.get_running_loop()
    if _is_pipe(descriptors.output, descriptors.input):
        writing = os.fdopen(os.dup(descriptors.output), "wb", buffering=0)
        await loop.connect_write_pipe(lambda: output, writing)
    connection.write_to(output.write)
    if _is_pipe(descriptors.input, descriptors.output):
        reading = os.fdopen(os.dup(descriptors.input), "rb", buffering=0)
        await loop.connect_read_pipe(lambda: connection, reading)
    else:
        # A copy that is never closed: nothing interrupts the thread while it waits for a terminal.
        feed = threading.Thread(target=_feed, args=(os.dup(descriptors.input), connection, loop), daemon=True)
        feed.start()
    await connection.ended.wait()
    await connection.finish()
    await output.flush()


class LineConnection(asyncio.Protocol):
    """A client at the other end of a pair of pipes, or of a socket."""

    def __init__(self, server: Server, caller: Caller) -> None:
        self.ended = asyncio.Event()  #: the client says no more, or nobody reads any more
        self._server = server
        self._caller = caller
        self._session = Session()
        self._questions = Questions()
        self._running: dict[Id, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._buffer = bytearray()
        self._skipping = False  #: the rest of a line that was too long
        self._write: Callable[[bytes], object] = lambda line: None
        self._reading: Any = None  #: the transport

    def write_to(self, write: Callable[[bytes], object]) -> None:
        """Write answers by *write* from now on."""
        self._write = write

    def connection_made(self, transport: Any) -> None:
        """Begin to read; a transport that also writes takes the answers."""
        self._reading = transport
        if isinstance(transport, asyncio.WriteTransport):
            self._write = transport.write

    def data_received(self, data: bytes) -> None:
        """Take some bytes, which may hold any number of lines."""
        if self.ended.is_set():
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._buffer:
                self._buffer += line
                line = bytes(self._buffer)
                self._buffer.clear()
            self._take(line)
        self._buffer += rest
        if len(self._buffer) > LONGEST_LINE:
            if not self._skipping:
                self._refuse_long()
            self._skipping = True
            self._buffer.clear()

    def _refuse_long(self) -> None:
        message = f"The line has over {LONGEST_LINE:,} bytes."
        self.send(Malformed(identifier(bytes(self._buffer)), INVALID_REQUEST, message).reply())

    def eof_received(self) -> bool:
        """Take the last line, which needs no end; leave the other direction open."""
        if self._buffer and not self.ended.is_set():
            self._take(bytes(self._buffer))
            self._buffer.clear()
        self.ended.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self.eof_received()

    def pause_writing(self) -> None:
        """Read no more until the client has read its answers."""
        if self._reading is not None:
            self._reading.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        if self._reading is not None and not self._reading.is_closing():
            self._reading.resume_reading()

    def _take(self, line: bytes) -> None:
        """Act on one line."""
        if self._skipping:
            self._skipping = False
            return
        line = line.strip()
        if not line:
            return
        match parse(line):
            case Request() as request:
                self._open(request)
            case Notification() as notification:
                self._note(notification)
            case Response() as response:
                self._questions.answer(response)
            case Malformed() as malformed:
                self.send(malformed.reply())

    def _open(self, request: Request) -> None:
        request_id = new_request_id()
        try:
            peer = self._server.admit(self._session, request, self._caller, request_id)
        except ProtocolError as exc:
            self.send(encode_error(request.id, exc))
            return
        exchange = Exchange(
            id=request.id,
            method=request.method,
            params=request.params,
            peer=peer,
            caller=self._caller,
            send=self.send,
            questions=self._questions,
            request_id=request_id,
        )
        task = asyncio.get_running_loop().create_task(self._answer(exchange))
        self._running[request.id] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, exchange: Exchange) -> None:
        """Answer one request; a request that was cancelled gets no answer."""
        task = asyncio.current_task()
        assert task is not None
        try:
            reply = await self._server.answer(exchange)
            if not task.cancelling():
                self.send(reply.message)
        finally:
            if self._running.get(exchange.id) is task:
                del self._running[exchange.id]

    def _note(self, notification: Notification) -> None:
        if notification.method == "notifications/initialized" and self._session.peer is not None:
            self._server.notices.follow(self._caller.role, self.send)
        if notification.method == "notifications/cancelled":
            id = id_of(notification.params.get("requestId"))
            if id in self._running:
                # Not before it has begun: a call that is cancelled at once is written down, too.
                asyncio.get_running_loop().call_soon(self._running.pop(id).cancel)

    def send(self, message: bytes) -> None:
        """Write one message."""
        self._write(message + b"\n")

    def leave(self) -> None:
        """End at once: nobody reads any more."""
        self._write = lambda line: None
        self._cancel()
        self.ended.set()

    async def finish(self) -> None:
        """Let what is being answered be answered, where that takes no time."""
        self._server.notices.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE)
        self._cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE)

    def _cancel(self) -> None:
        for task in self._tasks:
            # A second cancellation could interrupt what the first one cleans up.
            if not task.cancelling():
                task.cancel()


class Output(asyncio.Protocol):
    """What a client reads: a pipe, or a file or a terminal, which an event loop cannot wait for."""

    def __init__(self, connection: LineConnection, descriptor: int) -> None:
        self._connection = connection
        self._descriptor = descriptor
        self._transport: Any = None  #: of a pipe
        self._lost = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        """Begin to write."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Notice that nobody reads any more."""
        self._lost.set()
        self._connection.leave()

    def pause_writing(self) -> None:
        """Have nothing read while the client reads nothing."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Have it read again."""
        self._connection.resume_writing()

    def write(self, line: bytes) -> None:
        """Write *line*, now or as soon as there is room."""
        if self._transport is not None:
            self._transport.write(line)
            return
        left = memoryview(line)
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            self._connection.leave()

    async def flush(self) -> None:
        """Wait a moment until everything is written."""
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait([asyncio.ensure_future(self._lost.wait())], timeout=GRACE)


def _is_pipe(descriptor: int, other: int) -> bool:
    """Return whether an event loop can wait for *descriptor*: not for a socket that is *other* as well."""
    mode = os.fstat(descriptor).st_mode
    is_pipe = sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
    return is_pipe and not os.path.sameopenfile(descriptor, other)


def _feed(descriptor: int, connection: LineConnection, loop: asyncio.AbstractEventLoop) -> None:
    """Read a file or a terminal, which an event loop cannot wait for."""
    try:
        while chunk := os.read(descriptor, CHUNK):
            loop.call_soon_threadsafe(connection.data_received, chunk)
        loop.call_soon_threadsafe(connection.eof_received)
    except RuntimeError:
        # The loop has been closed meanwhile.
        return
