"""How one request over HTTP is answered: as JSON, or as a stream of server-sent events (HTML, 9.2)."""

import asyncio
from collections import deque
from collections.abc import Sequence

from starlette.types import Send

PIECE = 65_536  #: bytes of an answer that wait for the client to take them
BACKLOG = 1_024  #: messages that a client may leave unread
PING = 15.0  #: seconds of silence after which a comment keeps proxies from closing a stream
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
Headers = Sequence[tuple[bytes, bytes]]


class EventStream:
    """A response of events, which ends when it is closed, or when too many of them wait."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, message: bytes) -> None:
        """Send *message* as soon as the client takes it."""
        if self._closed:
            return
        self._waiting.append(message)
        if len(self._waiting) > BACKLOG:
            # There is no replay: whoever does not read asks again.
            self._closed = True
        self._changed.set()

    def close(self) -> None:
        """End the stream after what has been put into it."""
        self._closed = True
        self._changed.set()

    async def run(self) -> None:
        """Send events until the stream is closed."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        # The head leaves at once: a client may wait for it before it asks for more.
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        while self._waiting or not self._closed:
            if not self._waiting:
                await self._wait()
            for body in self._events():
                await send_pieces(self._send, body, more=True)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _events(self) -> list[bytes]:
        events = [b"event: message\r\ndata: " + each + b"\r\n\r\n" for each in self._waiting]
        self._waiting.clear()
        return events

    async def _wait(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(PING):
                await self._changed.wait()
        except TimeoutError:
            await self._send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})


class Answering:
    """The answer to one POST: JSON if it is ready soon and nothing is sent before it, else a stream."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._stream: EventStream | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream already."""
        return self._stream is not None

    def begin(self) -> EventStream:
        """Make the answer a stream."""
        if self._stream is None:
            self._stream = EventStream(self._send)
            self._task = asyncio.get_running_loop().create_task(self._stream.run())
        return self._stream

    def put(self, message: bytes) -> None:
        """Send *message* before the answer."""
        self.begin().put(message)

    def abandon(self) -> None:
        """Send no more: nobody reads it, or the server ends."""
        if self._task is not None:
            self._task.cancel()

    async def finish(self, message: bytes, status: int = 200, headers: Headers = ()) -> None:
        """Send the answer itself, with *status* unless it is a stream already."""
        if self._stream is not None and self._task is not None:
            self._stream.put(message)
            self._stream.close()
            await self._task
            return
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(message)),
            *headers,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await send_pieces(self._send, message)


async def send_pieces(send: Send, body: bytes, *, more: bool = False) -> None:
    """Send *body*; the last of it only when the client takes it, so that its slot is held until then."""
    last = max(0, len(body) - 1) // PIECE * PIECE
    for start in range(0, last, PIECE):
        await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": body[last:] if last else body, "more_body": more})
