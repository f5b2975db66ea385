"""Limits of connections: request heads, waiting times, and answers that the client does not read."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from dbtools.server.http import app as http
from dbtools.server.http.connections import LONGEST_HEAD, MOST_FIELDS, BoundedProtocol
from tests.conftest import Clock
from tests.protocol.client import PATIENCE

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"
#: The option of the kernel for connections whose client does not read.
UNREAD = (socket.IPPROTO_TCP, getattr(socket, "TCP_USER_TIMEOUT", 0))
LARGE = 16 * 2**20  #: bytes of an answer


class App:
    """Answers what it was asked, by the path: at once, all of the body, or much."""

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.asked = asyncio.Event()  #: set when a request has arrived
        self.left = asyncio.Event()  #: set when a client did not stay for a large answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        assert scope["type"] == "http"
        self.asked.set()
        if scope["path"] == "/body":
            while (await receive()).get("more_body"):
                pass
        self.fields = scope["headers"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/large":
            for _ in range(LARGE // 2**16):
                await send({"type": "http.response.body", "body": b"x" * 2**16, "more_body": True})
            self.left.set()
        await send({"type": "http.response.body", "body": b"done"})


@asynccontextmanager
async def _serving(
    app: App,
    *,
    idle: int = http.KEEP_ALIVE,
    unread: int | None = None,
    protocol: type[BoundedProtocol] = BoundedProtocol,
) -> AsyncIterator[int]:
    """Serve *app* within this process, and give the port; *unread*: milliseconds in place of the usual."""
    config = uvicorn.Config(
        app, http=protocol, lifespan="off", log_config=None, log_level="critical", timeout_keep_alive=idle
    )
    server = uvicorn.Server(config)
    with http.listening_socket(http.ListenAddress(host="127.0.0.1", port=0)) as listener:
        if unread is not None:
            assert listener.getsockopt(*UNREAD) == http.UNREAD_TIMEOUT
            listener.setsockopt(*UNREAD, unread)
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve([listener]))
            yield listener.getsockname()[1]
            server.should_exit = True


class Peer:
    """The other end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def write(self, content: bytes) -> None:
        """Send *content*, soon."""
        self._writer.write(content)

    async def answer(self) -> bytes:
        """Return an answer to its end."""
        with anyio.fail_after(PATIENCE):
            return await self._reader.readuntil(b"\r\n0\r\n\r\n")

    async def rest(self) -> bytes:
        """Return what comes until the server ends the connection."""
        content = b""
        with anyio.fail_after(PATIENCE), suppress(ConnectionError):
            while part := await self._reader.read(2**16):
                content += part
        return content

    async def pour(self, content: bytes) -> None:
        """Send *content* again and again until the server ends the connection."""
        with anyio.fail_after(PATIENCE), suppress(ConnectionError):
            while not self._reader.at_eof():
                self._writer.write(content)
                await self._writer.drain()

    def close(self) -> None:
        """Leave."""
        self._writer.close()


@asynccontextmanager
async def _peer(port: int) -> AsyncIterator[Peer]:
    peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield peer
    finally:
        peer.close()


class Impatient(BoundedProtocol):
    """Waits briefly for the head of a request."""

    head_timeout = 0.5


BEGUN = {
    "nothing": b"",
    "half a line": b"GET / HT",
    "half a head": POST,
    "idle": GET,
    "blank lines after an answer": GET + b"\r\n\r\n",
    "half of another head": GET + b"GET / HT",
    "body that was not awaited": POST + b"Content-Length: 100\r\n\r\nx",
    "chunks that were not awaited": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
}


async def test_wait_for_a_client_ends() -> None:
    async with _serving(App(), idle=1, protocol=Impatient) as port, AsyncExitStack() as stack:
        peers = {each: await stack.enter_async_context(_peer(port)) for each in BEGUN}
        for name, peer in peers.items():
            peer.write(BEGUN[name])
        answers = {name: (await peer.rest()).count(b"200 OK") for name, peer in peers.items()}

    assert answers == {name: int(b"\r\n\r\n" in begun) for name, begun in BEGUN.items()}


async def test_request_that_is_answered_slowly_has_its_time(clock: Clock) -> None:
    app = App()
    async with _serving(app) as port, _peer(port) as peer:
        peer.write(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx")
        with anyio.fail_after(PATIENCE):
            await app.asked.wait()
        clock.advance(BoundedProtocol.head_timeout)
        peer.write(b"x")
        first = await peer.answer()
        peer.write(GET)
        second = await peer.answer()

    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 200")


HEADS = [
    (b"GET / HTTP/1.1\r\nHost: x\r\na: ", b"a" * 1_000),
    (GET[:-2], b"a:b\r\n"),
    (b"GET /", b"a" * 1_000),
]


@pytest.mark.parametrize(("head", "more"), HEADS, ids=["a long field", "many fields", "a long path"])
async def test_head_that_is_too_large_is_refused(head: bytes, more: bytes) -> None:
    async with _serving(App()) as port, _peer(port) as peer, _peer(port) as endless:
        peer.write(head + more * (2 * LONGEST_HEAD // len(more)))
        answered = await peer.rest()
        endless.write(head)
        await endless.pour(more)

    assert answered.startswith(b"HTTP/1.1 431 ")


async def test_head_that_is_too_large_is_refused_also_in_one_piece() -> None:
    async with _serving(App()) as port:
        for head in (b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", GET[:-2] + b"a: %s\r\n\r\n"):
            for size in (LONGEST_HEAD + 1, 100_000):
                async with _peer(port) as peer:
                    peer.write(head % (b"a" * size))
                    assert (await peer.rest()).startswith(b"HTTP/1.1 431 ")


async def test_head_that_is_as_large_as_allowed_is_read() -> None:
    app = App()
    fields = b"".join(b"f%d: %s  \t\r\n" % (at, b"v" * 200) for at in range(MOST_FIELDS - 1))
    async with _serving(app) as port, _peer(port) as peer:
        peer.write(GET.replace(b"\r\n\r\n", b"\r\n" + fields + b"\r\n"))
        answered = await peer.answer()

    assert answered.startswith(b"HTTP/1.1 200")
    assert app.fields[-1] == (b"f98", b"v" * 200)


async def test_trailers_are_no_fields_of_the_head() -> None:
    app = App()
    body = b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nmcp-method: tools/call\r\n\r\n"
    async with _serving(app) as port, _peer(port) as peer:
        peer.write(POST.replace(b" / ", b" /body ") + body)
        answered = await peer.answer()

    assert answered.startswith(b"HTTP/1.1 200")
    assert [name for name, _ in app.fields] == [b"host", b"transfer-encoding"]


@pytest.mark.parametrize("more", [b"a:b\r\n", b"a" * 1_000], ids=["many", "long"])
@pytest.mark.parametrize("path", [b"/", b"/body"], ids=["answered", "awaited"])
async def test_trailers_without_end_end_the_connection(path: bytes, more: bytes) -> None:
    async with _serving(App()) as port, _peer(port) as peer:
        peer.write(POST.replace(b" / ", b" %b " % path) + b"Transfer-Encoding: chunked\r\n\r\n0\r\na:")
        await peer.pour(more)


async def test_body_may_be_large_and_in_small_pieces() -> None:
    async with _serving(App()) as port, _peer(port) as peer:
        peer.write(POST.replace(b" / ", b" /body ") + b"Transfer-Encoding: chunked\r\n\r\n")
        peer.write(b"1\r\nx\r\n" * 4 * LONGEST_HEAD + b"0\r\n\r\n")
        answered = await peer.answer()

    assert answered.startswith(b"HTTP/1.1 200")


@pytest.mark.skipif(sys.platform != "linux", reason="other kernels have no such bound")
async def test_client_that_takes_nothing_is_left() -> None:
    app = App()
    async with _serving(app, unread=200) as port, _peer(port) as peer:
        peer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        with anyio.fail_after(PATIENCE):
            await app.left.wait()
        taken = await peer.rest()

    assert len(taken) < LARGE


async def test_client_that_takes_a_large_answer_gets_all() -> None:
    async with _serving(App()) as port, _peer(port) as peer:
        peer.write(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await peer.rest()

    assert len(answer) > LARGE
    assert answer.endswith(b"0\r\n\r\n")


class OfTwo(BoundedProtocol):
    """Takes two connections."""

    most = 2


class OfOne(BoundedProtocol):
    """Takes one connection."""

    most = 1


async def test_connection_that_has_waited_longest_makes_room() -> None:
    async with _serving(App(), protocol=OfTwo) as port, _peer(port) as first, _peer(port) as second:
        second.write(GET)
        await second.answer()
        async with _peer(port) as third:
            assert await first.rest() == b""
            third.write(GET)
            second.write(GET)
            answers = [await third.answer(), await second.answer()]

    assert all(each.startswith(b"HTTP/1.1 200") for each in answers)


async def test_connection_that_is_being_answered_makes_no_room() -> None:
    async with _serving(App(), protocol=OfOne) as port, _peer(port) as first:
        first.write(POST.replace(b" / ", b" /body ") + b"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
        async with _peer(port) as second:
            assert await second.rest() == b""
        first.write(b"x")
        answered = await first.answer()

    assert b"200 OK" in answered
