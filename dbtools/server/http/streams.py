"""Answer one HTTP request. Messages in; JSON, or a stream of server-sent events (HTML, 9.2), out."""

import asyncio
from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from dbtools.policy.roles import Caller
from dbtools.server.http.requests import fields

PIECE = 65_536  #: bytes of an answer that are sent at once
BACKLOG = 1_024  #: unread messages after which a stream ends
PING = 15.0  #: seconds between comments that keep proxies from closing an idle stream
WATCH_AFTER = 0.05  #: seconds until a request is watched for a disconnect; most are answered by then
#: Why a request is stopped: cancelled, the client has left or lost its authorization, or a shutdown.
CANCEL, DISCONNECT, SHUTDOWN = "cancelled", "disconnected", "shutdown"
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """A response of server-sent events, which ends when it is closed or too many messages are unread."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()  #: None ends the stream
        self._is_closed = False
        self._running = asyncio.get_running_loop().create_task(self.run())

    def put(self, message: bytes) -> None:
        """Queue *message*."""
        if self._is_closed:
            return
        self._waiting.put_nowait(message)
        if self._waiting.qsize() > BACKLOG:
            # There is no replay: a client that does not read must ask again.
            self.close()

    def close(self) -> None:
        """End the stream after the queued messages."""
        self._is_closed = True
        self._waiting.put_nowait(None)

    async def ended(self) -> None:
        """Wait until the stream has ended."""
        await asyncio.wait([self._running])

    async def run(self) -> None:
        """Send events until the stream is closed."""
        await self._send({"type": "http.response.start", "status": 200, "headers": list(STREAM_HEADERS)})
        # Send the head at once: a client may wait for it before its next request.
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        while (message := await self._next_chunk()) is not None:
            await send_pieces(self._send, b"event: message\r\ndata: " + message + b"\r\n\r\n", more=True)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next_chunk(self) -> bytes | None:
        while True:
            try:
                async with asyncio.timeout(PING):
                    return await self._waiting.get()
            except TimeoutError:
                await self._send({"type": "http.response.body", "body": b": ping\r\n\r\n", "more_body": True})


class PendingRequest:
    """An HTTP request until it is answered: as JSON, or as a stream if it takes long or sends more."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.scope = scope
        self.receive = receive
        self.send = send
        self.caller = caller
        self.headers: list[tuple[bytes, bytes]] = []  #: of the answer, unless it is a stream
        self.reason = ""  #: why it is being stopped, if at all
        self.has_started = False  #: whether a part of the answer has been sent
        self.stream: EventStream | None = None  #: set if the answer is a stream
        self.is_subscription = False  #: whether the token is checked again while the answer lasts
        self._task = task
        self._is_stopped = False
        self._watching: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def header(self, name: str) -> Sequence[str]:
        """Return the values of the header *name*, which is in lower case."""
        return fields(self.scope, name.encode())

    def become_stream_after(self, seconds: float, *, cancel_on_disconnect: bool) -> None:
        """Start a stream after *seconds*, and soon watch for a disconnect if that cancels the request."""
        self._timer = asyncio.get_running_loop().call_later(
            WATCH_AFTER, self._start_watching, seconds, cancel_on_disconnect
        )

    def _start_watching(self, seconds: float, cancel_on_disconnect: bool) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds - WATCH_AFTER, self.become_stream)
        if cancel_on_disconnect:
            self.stop_on_disconnect()

    def stop_on_disconnect(self) -> None:
        """Stop the request when the client closes the connection."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.stop(DISCONNECT)

    def stop_watching(self) -> None:
        """Neither start a stream nor stop any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def stop(self, reason: str) -> None:
        """Stop the request, but only once: a second cancellation could interrupt the end of its stream."""
        if not self._is_stopped:
            self._is_stopped, self.reason = True, reason
            self._task.cancel()

    def take_stop_reason(self) -> str:
        """Return why `stop` cancelled the task and clear the cancellation; an empty text if it did not."""
        reason, self.reason = self.reason, ""
        if reason:
            self._task.uncancel()
        return reason

    def become_stream(self) -> EventStream:
        """Start a stream, if there is none yet."""
        if self.stream is None:
            self.has_started, self.stream = True, EventStream(self.send)
        return self.stream

    def put(self, message: bytes) -> None:
        """Send *message* before the answer."""
        self.become_stream().put(message)

    async def end(self) -> None:
        """End the stream, if there is one."""
        if self.stream is not None:
            self.stream.close()
            await self.stream.ended()

    async def finish(self, message: bytes, status: int) -> None:
        """Send the answer; *status* applies only without a stream."""
        if self.stream is not None:
            self.stream.put(message)
            await self.end()
            return
        length = (b"content-length", b"%d" % len(message))
        head = [(b"content-type", b"application/json"), length, *self.headers]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        self.has_started = True
        await send_pieces(self.send, message)


async def send_pieces(send: Send, body: bytes, *, more: bool = False) -> None:
    """Send *body* in pieces, each when the client has read enough; its slot is not released before that."""
    last = max(0, len(body) - 1) // PIECE * PIECE
    for start in range(0, last, PIECE):
        await send({"type": "http.response.body", "body": body[start : start + PIECE], "more_body": True})
    await send({"type": "http.response.body", "body": body[last:] if last else body, "more_body": more})
