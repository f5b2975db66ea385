"""Clients that stay connected while something happens, and collect each message in order."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import TaskGroup
from starlette.types import ASGIApp, Message as Event

from tests.oracle.exchanges import LONGEST_LINE, SESSION, HttpRequest, Message, Side, comparable, scope_of
from tests.oracle.messages import ACCEPT, headers, initialize, notification, post, request
from tests.oracle.validation import validate
from tests.protocol.client import MODERN, Client

PATIENCE = 30.0  #: seconds for what comes


class LineClient(Client):
    """A client over lines that can say that it has said all."""

    def hang_up(self) -> None:
        """End the server's input, and go on reading."""
        self._writer.write_eof()


@asynccontextmanager
async def line_client(side: Side, version: str) -> AsyncIterator[LineClient]:
    """Yield a client of *side* over lines, its handshake done."""
    near, far = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=near, limit=LONGEST_LINE)
    far_reader, far_writer = await asyncio.open_connection(sock=far, limit=LONGEST_LINE)

    async def serve() -> None:
        try:
            await side.serve_lines(far_reader, far_writer)
        finally:
            far_writer.close()

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        client = LineClient(reader, writer, version)
        await client.open()
        # The SDK may still be busy with the end of the handshake.
        await anyio.wait_all_tasks_blocked()
        client.received.clear()
        yield client
        writer.close()


class HttpCall:
    """A request, and what comes of its answer."""

    def __init__(self, app: ASGIApp, asked: HttpRequest, version: str) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_whole = False  #: the answer has an end
        self._app, self._asked, self._version = app, asked, version
        self._begun, self._left = anyio.Event(), anyio.Event()
        self._messages: asyncio.Queue[Message | None] = asyncio.Queue()  #: None: there are no more
        self._incoming: list[Event] = [{"type": "http.request", "body": asked.body, "more_body": False}]
        self._rest = b""

    async def run(self) -> None:
        """Send the request and take the answer."""
        await self._app(scope_of(self._asked), self._receive, self._take)
        if "json" in self.headers.get("content-type", "") and self._rest:
            self._put(self._rest)
        self._messages.put_nowait(None)

    async def _receive(self) -> Event:
        if self._incoming:
            return self._incoming.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _take(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            self.status = int(event["status"])
            self.headers = {name.decode().lower(): value.decode() for name, value in event["headers"]}
            self._begun.set()
            return
        self._rest += event.get("body", b"")
        self.is_whole = not event.get("more_body", False)
        if "event-stream" in self.headers.get("content-type", ""):
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    self._put(line[6:])

    def _put(self, content: bytes) -> None:
        message: Message = json.loads(content)
        sent = json.loads(self._asked.body) if self._asked.body else {}
        validate(message, version=self._version, method=sent.get("method"))
        self._messages.put_nowait(comparable(message))

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()

    async def begun(self) -> int:
        """Return the status as soon as it is there."""
        with anyio.fail_after(PATIENCE):
            await self._begun.wait()
            # A stream of the SDK's takes messages a moment after its head has been sent.
            await anyio.wait_all_tasks_blocked()
        return self.status

    async def next(self) -> Message:
        """Return the next message."""
        message = await self._next()
        assert message is not None, "the answer has ended"
        return message

    async def rest(self) -> list[Message]:
        """Return what comes until the answer ends."""
        found: list[Message] = []
        while message := await self._next():
            found.append(message)
        return found

    async def _next(self) -> Message | None:
        with anyio.fail_after(PATIENCE):
            return await self._messages.get()


class HttpClient:
    """A client over HTTP, of a session where its *version* has them."""

    def __init__(self, side: Side, version: str, group: TaskGroup) -> None:
        self._app, self.version, self._group = side.app, version, group
        self._session = ""

    async def open(self) -> None:
        """Shake hands, where the version has that."""
        if self.version == MODERN:
            return
        opened = self.post(initialize(self.version))
        await opened.rest()
        self._session = opened.headers[SESSION]
        await self.post(notification("notifications/initialized")).rest()
        await anyio.wait_all_tasks_blocked()

    def post(self, message: Message) -> HttpCall:
        """Send *message*."""
        return self._start(post(message, headers(message, self.version)))

    def ask(self, method: str, params: Message, id: object = 1) -> HttpCall:
        """Send a request."""
        return self.post(request(method, params, self.version, id))

    def send(self, verb: str) -> HttpCall:
        """Send a request without a body, such as GET or DELETE."""
        named = {SESSION: self._session, "mcp-protocol-version": self.version, **dict([ACCEPT])}
        return self._start(HttpRequest(verb=verb, headers=tuple(named.items())))

    def _start(self, asked: HttpRequest) -> HttpCall:
        call = HttpCall(self._app, asked.within(self._session), self.version)
        self._group.start_soon(call.run)
        return call


@asynccontextmanager
async def http_client(side: Side, version: str) -> AsyncIterator[HttpClient]:
    """Yield a client of *side* over HTTP, its session open where it has one."""
    async with anyio.create_task_group() as group:
        client = HttpClient(side, version, group)
        await client.open()
        yield client
