"""MCP over stdin and stdout: one JSON message a line, and one asyncio protocol for both directions."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from dbtools.policy import Caller
from dbtools.server.exchange import Exchange, Questions
from dbtools.server.kernel import Session
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
    parse,
)
from dbtools.server.protocol import Server
from dbtools.telemetry import new_request_id

LONGEST_LINE = 64 * 2**20  #: bytes
TOO_LONG = Malformed(None, INVALID_REQUEST, f"The line has over {LONGEST_LINE:,} bytes.")
CHUNK = 2**16
GRACE = 3.0  #: seconds for running requests when the client closes its end


@contextmanager
def private_descriptors() -> Iterator[tuple[int, int]]:
    """Give copies of stdin and stdout, which nothing else in the process, or a child process, can use."""
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.flush()
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


async def serve(server: Server, caller: Caller, descriptors: tuple[int, int]) -> None:
    """Let *server* answer *caller*, read and written at *descriptors*, until the client leaves."""
    reader, writer = descriptors
    connection = LineConnection(server, caller)
    loop = asyncio.get_running_loop()
    if _is_pipe(writer, reader):
        writing = os.fdopen(os.dup(writer), "wb", buffering=0)
        await loop.connect_write_pipe(lambda: connection, writing)
    else:
        connection.write_to(partial(_write_all, connection, writer))
    if _is_pipe(reader, writer):
        reading = os.fdopen(os.dup(reader), "rb", buffering=0)
        await loop.connect_read_pipe(lambda: connection, reading)
    else:
        # A copy that is never closed: nothing interrupts the thread while it waits for a terminal.
        feed = threading.Thread(target=_feed, args=(os.dup(reader), connection, loop), daemon=True)
        feed.start()
    await connection.ended.wait()
    await connection.finish()


class LineConnection(asyncio.Protocol):
    """A client at the other end of two pipes or of a socket."""

    def __init__(self, server: Server, caller: Caller) -> None:
        self.ended = asyncio.Event()  #: set when the client has closed either direction
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
        self._writing: Any = None  #: the transport
        self._written = asyncio.Event()  #: set when the transport has written everything, or failed

    def write_to(self, write: Callable[[bytes], object]) -> None:
        """Write answers with *write* from now on."""
        self._write = write

    def connection_made(self, transport: Any) -> None:
        """Take the transport of one direction, or of both."""
        if isinstance(transport, asyncio.WriteTransport):
            self._writing, self._write = transport, transport.write
        if isinstance(transport, asyncio.ReadTransport):
            self._reading = transport

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
                self.send(TOO_LONG.reply())
            self._skipping = True
            self._buffer.clear()

    def eof_received(self) -> bool:
        """Take the last line, which needs no end; leave the other direction open."""
        if self._buffer and not self.ended.is_set():
            self._take(bytes(self._buffer))
            self._buffer.clear()
        self.ended.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End; at once if the client no longer reads."""
        self.eof_received()
        if self._writing is not None and self._writing.is_closing():
            self._written.set()
            self.leave()

    def pause_writing(self) -> None:
        """Stop reading until the client has read its answers."""
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
            self._server.notifications.follow(self._caller.role, self.send)
        if notification.method == "notifications/cancelled":
            id = id_of(notification.params.get("requestId"))
            if id in self._running:
                # Let a call begin before it is cancelled: the audit log has an entry for each.
                asyncio.get_running_loop().call_soon(self._running.pop(id).cancel)

    def send(self, message: bytes) -> None:
        """Write one message."""
        self._write(message + b"\n")

    def leave(self) -> None:
        """End at once: the client no longer reads."""
        self._write = lambda line: None
        self._cancel()
        self.ended.set()

    async def finish(self) -> None:
        """Give running requests some time to be answered, and the client some to read the answers."""
        self._server.notifications.close()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE)
        self._cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GRACE)
        if self._writing is not None:
            self._writing.close()
            await asyncio.wait([asyncio.ensure_future(self._written.wait())], timeout=GRACE)

    def _cancel(self) -> None:
        for task in self._tasks:
            # A second cancellation could interrupt what the first one cleans up.
            if not task.cancelling():
                task.cancel()


def _is_pipe(descriptor: int, other: int) -> bool:
    """Return whether an event loop can wait for *descriptor*: not for a socket that is *other* as well."""
    mode = os.fstat(descriptor).st_mode
    is_pipe = sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
    return is_pipe and not os.path.sameopenfile(descriptor, other)


def _write_all(connection: LineConnection, descriptor: int, line: bytes) -> None:
    """Write *line* to a file or a terminal, which an event loop cannot wait for."""
    left = memoryview(line)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        connection.leave()


def _feed(descriptor: int, connection: LineConnection, loop: asyncio.AbstractEventLoop) -> None:
    """Read a file or a terminal, which an event loop cannot wait for."""
    with suppress(RuntimeError):  # the loop has been closed meanwhile
        with suppress(OSError):  # a terminal that is gone, or a client that did not read its answers
            while chunk := os.read(descriptor, CHUNK):
                loop.call_soon_threadsafe(connection.data_received, chunk)
        loop.call_soon_threadsafe(connection.eof_received)
