"""MCP over stdin and stdout, one JSON message a line: streams of our own for the SDK's server."""

import asyncio
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, SupportsIndex

from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from dbtools.server.logs import Descriptors
from dbtools.server.messages import Malformed, encode, identifier, parse

LONGEST_LINE = 64 * 2**20  #: bytes
CHUNK = 2**16
GRACE = 3.0  #: seconds for what is being answered when the client has said all that it will


async def serve(server: Server[Any], descriptors: Descriptors, end: Callable[[], None]) -> None:
    """Let *server* answer the client at *descriptors* until it leaves, and *end* what has no end then."""
    output = Output()
    reader = await _open_reader(descriptors.input)
    writer = await _open_writer(descriptors.output, output)
    streams = LineStreams(reader, writer, end)
    output.lost = streams.leave
    await server.run(streams, streams, server.create_initialization_options())


class LineStreams:
    """Both streams of the SDK's server in one: `receive` and iteration read, `send` writes."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: "asyncio.StreamWriter | FileWriter",
        end: Callable[[], None] | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._end = end  #: to be called when the client has said all that it will
        self._unanswered: set[RequestId] = set()
        self._answered = asyncio.Event()
        self._gone = False

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message."""
        return await self.__anext__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._gone:
            line = await self._line()
            if not line:
                break
            message = parse(line) if isinstance(line, bytes) else line
            if not isinstance(message, Malformed):
                self._note(message)
                return SessionMessage(message)
            await self._refuse(message)
        await self._finish()
        raise StopAsyncIteration

    async def _line(self) -> bytes | Malformed:
        """Return the next line that is not blank, or nothing at the end."""
        while True:
            try:
                line = await self._reader.readuntil()
            except asyncio.IncompleteReadError as exc:
                return exc.partial.strip()
            except asyncio.LimitOverrunError as exc:
                head = await self._reader.readexactly(exc.consumed)
                await self._skip_line()
                message = f"The line has over {LONGEST_LINE:,} bytes."
                return Malformed(id=identifier(head), code=INVALID_REQUEST, message=message)
            if line.strip():
                return line

    async def _skip_line(self) -> None:
        while True:
            try:
                await self._reader.readuntil()
            except asyncio.LimitOverrunError as exc:
                await self._reader.readexactly(exc.consumed)
            except asyncio.IncompleteReadError:
                return
            else:
                return

    def _note(self, message: object) -> None:
        """Remember what is to be answered."""
        match message:
            case JSONRPCRequest(id=id):
                self._unanswered.add(id)
            case JSONRPCNotification(method="notifications/cancelled", params=params):
                self._settle((params or {}).get("requestId"))
            case _:
                pass

    def _settle(self, id: object) -> None:
        if isinstance(id, str | int):
            self._unanswered.discard(id)
        if not self._unanswered:
            self._answered.set()

    async def _finish(self) -> None:
        """Let what is being answered be answered, where that takes no time."""
        if not self._unanswered or self._gone:
            return
        self._answered.clear()
        if self._end is not None:
            self._end()
        try:
            async with asyncio.timeout(GRACE):
                await self._answered.wait()
        except TimeoutError:
            return

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message."""
        await self._write(encode(item.message))
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._settle(item.message.id)

    async def _refuse(self, malformed: Malformed) -> None:
        await self._write(encode(malformed.reply()))

    async def _write(self, line: bytes) -> None:
        if self._gone:
            return
        try:
            self._writer.write(line)
            await self._writer.drain()
        except OSError:
            self.leave()

    def leave(self) -> None:
        """End as if stdin had closed, and at once: nobody reads any more."""
        self._gone = True
        self._answered.set()
        self._reader.feed_eof()

    async def aclose(self) -> None:
        """Do nothing: stdin and stdout belong to the process."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        return None


class Reader(asyncio.StreamReader):
    """A reader that may end before its pipe does: what still comes is left."""

    ended = False

    def feed_eof(self) -> None:
        """End."""
        self.ended = True
        super().feed_eof()

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take *data*, unless nobody wants any more."""
        if not self.ended:
            super().feed_data(data)


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))


async def _open_reader(descriptor: int) -> asyncio.StreamReader:
    reader = Reader(limit=LONGEST_LINE)
    loop = asyncio.get_running_loop()
    if _is_pipe(descriptor):
        pipe = os.fdopen(os.dup(descriptor), "rb", buffering=0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    else:
        # A copy that is never closed: nothing interrupts the thread when it waits for a terminal.
        threading.Thread(target=_feed, args=(os.dup(descriptor), reader, loop), daemon=True).start()
    return reader


def _feed(descriptor: int, reader: asyncio.StreamReader, loop: asyncio.AbstractEventLoop) -> None:
    """Read a file or a terminal, which an event loop cannot wait for."""
    try:
        while chunk := os.read(descriptor, CHUNK):
            loop.call_soon_threadsafe(reader.feed_data, chunk)
        loop.call_soon_threadsafe(reader.feed_eof)
    except RuntimeError:
        # The loop has been closed meanwhile: nobody reads any more.
        return


class Output(asyncio.streams.FlowControlMixin):
    """The protocol of asyncio's that writes; it notices when nobody reads any more."""

    def __init__(self) -> None:
        super().__init__()
        self.lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell."""
        super().connection_lost(exc)
        if self.lost is not None:
            self.lost()


async def _open_writer(descriptor: int, output: Output) -> "asyncio.StreamWriter | FileWriter":
    if not _is_pipe(descriptor):
        return FileWriter(descriptor)
    loop = asyncio.get_running_loop()
    pipe = os.fdopen(os.dup(descriptor), "wb", buffering=0)
    transport, _ = await loop.connect_write_pipe(lambda: output, pipe)
    return asyncio.StreamWriter(transport, output, None, loop)


class FileWriter:
    """Writes to a file or a terminal, which an event loop cannot wait for."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, line: bytes) -> None:
        """Write all of *line*."""
        left = memoryview(line)
        while left:
            left = left[os.write(self._descriptor, left) :]

    async def drain(self) -> None:
        """Do nothing: all has been written."""
