"""MCP over stdio. Lines in and out, each with one JSON message, by one asyncio protocol."""

import asyncio
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import anyio

from dbtools.policy.roles import Caller
from dbtools.server.mcp.exchange import Exchange, deliver_response
from dbtools.server.mcp.kernel import Session, is_modern_request
from dbtools.server.mcp.protocol import Server
from dbtools.server.messages import (
    ClientResponse,
    Code,
    Id,
    Notification,
    ProtocolError,
    Request,
    encode_error,
    id_of,
    parse,
)
from dbtools.server.running import Reporter, exporting, first_snapshot, open_server
from dbtools.settings import Settings
from dbtools.telemetry import REQUEST, new_request_id

LONGEST_LINE = 64 * 2**20  #: bytes
TOO_LONG = ProtocolError(Code.INVALID_REQUEST, f"The line has more than {LONGEST_LINE:,} bytes.")
MIXED = "This connection began with a handshake: requests of 2026-07-28 need another connection."
CHUNK = 2**16
CATALOG_TIMEOUT = 10.0  #: seconds to read the catalog after the client has left
CLOSING_GRACE = 3.0  #: seconds for running requests when the client closes its end


def _private_descriptors() -> tuple[int, int]:
    """Return copies of stdin and stdout that no other code and no child process can use."""
    reading, writing = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.flush()
    return reading, writing


async def serve_stdio(settings: Settings, caller: Caller, operator: Reporter) -> None:
    """Serve the database of *settings* to *caller* over stdin and stdout, until the client leaves.

    The catalog is read during the handshake. If that fails, the server ends with the reason, unless the
    database may come back.
    """
    signals: list[int] = []
    reader, writer = _private_descriptors()
    with exporting():
        async with open_server(settings, operator, stateless=False, only=caller.role) as run:
            run.group.start_soon(run.limiter.check)
            run.group.start_soon(_end_on_signal, run.group.cancel_scope, signals)
            announced = anyio.Event()

            async def announce() -> None:
                if snapshot := await first_snapshot(run.served.toolbox):
                    operator.announce(snapshot.view(caller.role))
                announced.set()

            run.group.start_soon(announce)
            await _serve(run.server, caller, reader, writer)
            # Report problems even if the client closes stdin at once.
            with anyio.move_on_after(CATALOG_TIMEOUT):
                await announced.wait()
    if signal.SIGINT in signals:
        raise KeyboardInterrupt


async def _serve(server: Server, caller: Caller, reader: int, writer: int) -> None:
    connection = LineConnection(server, caller)
    loop = asyncio.get_running_loop()
    if _is_pipe(writer, reader):
        writing = os.fdopen(writer, "wb", buffering=0)
        connection.writing, _ = await loop.connect_write_pipe(lambda: connection, writing)
        connection.write = connection.writing.write
    else:
        connection.write = partial(_write_file, connection, writer)
    if _is_pipe(reader, writer):
        reading = os.fdopen(reader, "rb", buffering=0)
        connection.reading, _ = await loop.connect_read_pipe(lambda: connection, reading)
    else:
        threading.Thread(target=_read_file, args=(reader, connection, loop), daemon=True).start()
    try:
        await connection.ended.wait()
        await connection.finish()
    finally:
        with anyio.CancelScope(shield=True):
            await connection.stop()


async def _end_on_signal(scope: anyio.CancelScope, seen: list[int]) -> None:
    """Cancel *scope* when a signal arrives; unlike a task, a scope stays cancelled until its end."""
    if sys.platform == "win32":
        return
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            seen.append(number)
            scope.cancel()


class LineConnection(asyncio.Protocol):
    """A client at the other end of two pipes or of a socket."""

    def __init__(self, server: Server, caller: Caller) -> None:
        self.ended = asyncio.Event()  #: set when the client closes either direction
        self._server = server
        self._caller = caller
        self._session: Session | None = Session()  #: None in the modern era
        self._is_new = True  #: until the first request
        self._running: dict[asyncio.Task[None], Id] = {}
        self._buffer = bytearray()
        self._skipping = False  #: whether the rest of a line that is too long is skipped
        self.write: Callable[[bytes], object] = lambda line: None
        self.reading: Any = None  #: the transport
        self.writing: Any = None  #: the transport
        self._written = asyncio.Event()  #: set when everything has been written or cannot be

    def data_received(self, data: bytes) -> None:
        """Process the lines in *data*."""
        if self.ended.is_set():
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._buffer:
                self._buffer += line
                line = bytes(self._buffer)
                self._buffer.clear()
            self._process_line(line)
        self._buffer += rest
        if len(self._buffer) > LONGEST_LINE:
            if not self._skipping:
                self.send(encode_error(None, TOO_LONG))
            self._skipping = True
            self._buffer.clear()

    def eof_received(self) -> bool:
        """Process the last line, which needs no line end; keep the other direction open."""
        if self._buffer and not self.ended.is_set():
            self._process_line(bytes(self._buffer))
            self._buffer.clear()
        self.ended.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End, at once if the client no longer reads."""
        self.eof_received()
        if self.writing is not None and self.writing.is_closing():
            self._written.set()
            self.disconnect()

    def pause_writing(self) -> None:
        """Stop reading until the client reads its answers."""
        if self.reading is not None and not self.reading.is_closing():
            self.reading.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        if self.reading is not None and not self.reading.is_closing():
            self.reading.resume_reading()

    def _process_line(self, line: bytes) -> None:
        if self._skipping:
            self._skipping = False
            return
        line = line.strip()
        if not line:
            return
        try:
            match parse(line):
                case Request() as request:
                    self._start_request(request)
                case Notification() as notification:
                    self._process_notification(notification)
                case ClientResponse() as response:
                    deliver_response(self._session, response)
        except ProtocolError as exc:
            self.send(encode_error(exc.id, exc))

    def _start_request(self, request: Request) -> None:
        REQUEST.set(new_request_id())
        is_alone, is_new, self._is_new = is_modern_request(request), self._is_new, False
        if is_alone and is_new:
            self._session = None
        if is_alone and self._session is not None:
            raise ProtocolError(Code.INVALID_REQUEST, MIXED, id=request.id)
        exchange = self._server.admit(self._session, request, self._caller, self.send)
        task = asyncio.get_running_loop().create_task(self._answer(exchange))
        self._running[task] = request.id
        task.add_done_callback(self._running.pop)

    async def _answer(self, exchange: Exchange) -> None:
        """Answer a request, unless it is cancelled."""
        task = asyncio.current_task()
        assert task is not None
        reply = await self._server.answer(exchange)
        if not task.cancelling():
            self.send(reply.message)

    def _process_notification(self, notification: Notification) -> None:
        if notification.method == "notifications/initialized" and self._session and self._session.peer:
            self._server.notifications.follow(self._caller.role, self.send)
        if notification.method == "notifications/cancelled":
            id = id_of(notification.params.get("requestId"))
            for task in [each for each, running in self._running.items() if running == id]:
                # Let the call start before it is cancelled, so that the audit log records it.
                asyncio.get_running_loop().call_soon(_cancel, task)

    def send(self, message: bytes) -> None:
        """Write one message."""
        self.write(message + b"\n")

    def disconnect(self) -> None:
        """End at once: the client no longer reads."""
        self.write = lambda line: None
        self._cancel_all()
        self.ended.set()

    async def finish(self) -> None:
        """Give running requests time to finish, and the client time to read their answers."""
        self._server.notifications.close()
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSING_GRACE)
        await self.stop()
        if self.writing is not None:
            self.writing.close()
            await asyncio.wait([asyncio.ensure_future(self._written.wait())], timeout=CLOSING_GRACE)

    async def stop(self) -> None:
        """Stop running requests, before the database closes."""
        self._cancel_all()
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSING_GRACE)

    def _cancel_all(self) -> None:
        for task in self._running:
            _cancel(task)


def _cancel(task: asyncio.Task[None]) -> None:
    # A second cancellation could interrupt the cleanup after the first.
    if not task.cancelling():
        task.cancel()


def _is_pipe(descriptor: int, other: int) -> bool:
    """Return whether an event loop can wait for *descriptor*; it cannot if a socket is also *other*."""
    mode = os.fstat(descriptor).st_mode
    is_pipe = sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))
    return is_pipe and not os.path.sameopenfile(descriptor, other)


def _write_file(connection: LineConnection, descriptor: int, line: bytes) -> None:
    """Write *line* to a file or terminal, for which an event loop cannot wait."""
    left = memoryview(line)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        connection.disconnect()


def _read_file(descriptor: int, connection: LineConnection, loop: asyncio.AbstractEventLoop) -> None:
    """Read a file or terminal, for which an event loop cannot wait."""
    with suppress(RuntimeError):  # the loop has been closed
        with suppress(OSError):  # the terminal is gone, or the client does not read
            while chunk := os.read(descriptor, CHUNK):
                loop.call_soon_threadsafe(connection.data_received, chunk)
        loop.call_soon_threadsafe(connection.eof_received)
