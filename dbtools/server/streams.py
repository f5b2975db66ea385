"""How one request over HTTP is answered: as JSON, or as a stream of server-sent events (HTML, 9.2)."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from starlette.types import Receive, Scope, Send

from dbtools.policy import Caller
from dbtools.server.requests import ID, fields

PIECE = 65_536  #: bytes of an answer that wait for the client to take them
BACKLOG = 1_024  #: messages that a client may leave unread
PING = 15.0  #: seconds of silence after which a comment keeps proxies from closing a stream
LOOK_AFTER = 0.05  #: seconds until a client is watched that may leave; most requests are answered by then
STILL = 5.0  #: seconds between two checks whether an open stream is still authorized
#: Why a request is stopped: cancelled, its client has left, its body was too slow, or the server ends.
CANCEL, LEAVE, LATE, END = "cancelled", "left", "late", "ending"
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
            # There is no replay: a client that does not read has to ask again.
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
            while self._waiting:
                event = b"event: message\r\ndata: " + self._waiting.popleft() + b"\r\n\r\n"
                await send_pieces(self._send, event, more=True)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _wait(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(PING):
                await self._changed.wait()
        except TimeoutError:
            await self._send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})


class Turn:
    """One request over HTTP while it is answered: as JSON, or as a stream if it takes long or sends more."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        caller: Caller,
        admit: Callable[[], Awaitable[object]],
    ) -> None:
        """Answer *caller*, whom *admit* returns as long as the token is valid."""
        task = asyncio.current_task()
        assert task is not None
        self.scope = scope
        self.receive = receive
        self.send = send
        self.caller = caller
        self.id: str = scope[ID]
        self.reason = ""  #: why it was stopped, if it was
        self.is_begun = False  #: whether a part of the answer has been sent
        self._task = task
        self._admit = admit
        self._stream: EventStream | None = None
        self._streaming: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream already."""
        return self._stream is not None

    def header(self, name: str) -> Sequence[str]:
        """Return the values of the header *name*, which is in lower case."""
        return fields(self.scope, name.encode())

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Call *act* after so many *seconds*, in place of what was to be called before."""
        self.settle()
        self._timer = asyncio.get_running_loop().call_later(seconds, act)

    def settle(self) -> None:
        """Call nothing more, and watch no longer."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def wait(self, quiet: float, *, leaves: bool, is_long: bool) -> None:
        """Become a stream after *quiet* seconds; if it *leaves*, stop when the client does.

        A request that *is_long* is also stopped when its token is no longer valid.
        """
        self.after(LOOK_AFTER, partial(self._wait, quiet, leaves=leaves, is_long=is_long))

    def _wait(self, quiet: float, *, leaves: bool, is_long: bool) -> None:
        self.after(quiet - LOOK_AFTER, self.begin)
        if leaves:
            self.watch(partial(self.stop, LEAVE), is_long=is_long)

    def watch(self, leave: Callable[[], object], *, is_long: bool) -> None:
        """Call *leave* when the client leaves; if *is_long*, also when its token is no longer valid."""
        self._watching = asyncio.get_running_loop().create_task(self._watch(leave, is_long=is_long))

    async def _watch(self, leave: Callable[[], object], *, is_long: bool) -> None:
        loop, is_here = asyncio.get_running_loop(), True
        due = loop.time() + STILL
        while is_here:
            try:
                # A client that goes on sending does not put the check off.
                async with asyncio.timeout_at(due if is_long else None):
                    is_here = (await self.receive())["type"] != "http.disconnect"
            except TimeoutError:
                due = loop.time() + STILL
                is_here = await self._admit() == self.caller
        leave()

    def stop(self, reason: str) -> None:
        """Stop the request, unless that is under way."""
        if not self.reason:
            self.reason = reason
            self._task.cancel()

    def caught(self) -> str:
        """Return why `stop` cancelled the task, and undo that; an empty text if it did not."""
        reason, self.reason = self.reason, ""
        if reason:
            self._task.uncancel()
        return reason

    def begin(self) -> EventStream:
        """Make the answer a stream."""
        if self._stream is None:
            self.is_begun, self._stream = True, EventStream(self.send)
            self._streaming = asyncio.get_running_loop().create_task(self._stream.run())
        return self._stream

    def put(self, message: bytes) -> None:
        """Send *message* before the answer."""
        self.begin().put(message)

    async def end(self) -> None:
        """End the stream, if the answer is one."""
        if self._stream is not None and self._streaming is not None:
            self._stream.close()
            await self._streaming

    async def finish(self, message: bytes, status: int, headers: Headers = ()) -> None:
        """Send the answer itself, with *status* unless it is a stream already."""
        if self._stream is not None:
            self._stream.put(message)
            await self.end()
            return
        self.is_begun = True
        length = (b"content-length", b"%d" % len(message))
        head = [(b"content-type", b"application/json"), length, *headers]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await send_pieces(self.send, message)


async def send_pieces(send: Send, body: bytes, *, more: bool = False) -> None:
    """Send *body*; the last of it only when the client takes it, so that its slot is held until then."""
    last = max(0, len(body) - 1) // PIECE * PIECE
    for start in range(0, last, PIECE):
        await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": body[last:] if last else body, "more_body": more})
