"""A proxy of a PostgreSQL server that holds or cuts a connection at a chosen request of the client."""

import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

import anyio
import pytest
from anyio.abc import ByteStream
from anyio.from_thread import BlockingPortal

from tests.database.poolers import PROTOCOL, SYNC, messages_of, startup_of
from tests.database.shop import Shop

#: Kinds of messages that end a request: Query, Sync, Flush and Terminate.
ENDS = (b"Q", b"S", b"H", b"X")
READY = b"Z"
LOST = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError)


class Cut(Enum):
    """When a connection is cut."""

    BEFORE = "before the request arrives"
    DURING = "after the request was passed on"
    AFTER = "after the server has answered, before the answer arrives"


@dataclass(kw_only=True, eq=False)
class Cutting:
    """A proxy that does something at the request that *is_due* chooses, once unless it *repeats*."""

    url: str
    is_due: Callable[[bytes], bool] = lambda request: False
    cut: Cut | None = None  #: None: the request is only held
    refuses: bool = False  #: whether no connection is accepted after the cut
    repeats: bool = False
    sessions: int = 0  #: connections that clients have opened
    met: anyio.Event = field(default_factory=anyio.Event)  #: the request has arrived
    released: anyio.Event = field(default_factory=anyio.Event)  #: it may go on

    def at(self, is_due: Callable[[bytes], bool], cut: Cut | None, *, refuses: bool = False) -> None:
        """Wait for a request that *is_due*, and *cut* its connection, or hold it until it is released."""
        self.is_due, self.cut, self.refuses = is_due, cut, refuses
        self.met, self.released = anyio.Event(), anyio.Event()
        if cut is not None:
            self.released.set()

    @property
    def is_refusing(self) -> bool:
        """Whether new connections are refused now."""
        return self.refuses and self.met.is_set()


def is_commit(request: bytes) -> bool:
    """Return whether *request* begins with COMMIT."""
    return b"commit\0" in request


def numbered(number: int) -> Callable[[bytes], bool]:
    """Return what chooses the request *number* from now on, the first one being 0."""
    left = iter(range(number, -1, -1))
    return lambda request: next(left, -1) == 0


@asynccontextmanager
async def cutting_proxy(url: str) -> AsyncIterator[Cutting]:
    """Yield a proxy of the server at *url*."""
    place = urlsplit(url)

    async def serve(client: ByteStream) -> None:
        proxy.sessions += 1
        async with client, AsyncExitStack() as stack:
            try:
                server = await anyio.connect_tcp(str(place.hostname), place.port or 5432)
                await stack.enter_async_context(server)
                startup = await startup_of(client)
                while struct.unpack_from("!I", startup, 4)[0] not in (PROTOCOL, CANCEL):
                    await client.send(b"N")  # no encryption
                    startup = await startup_of(client)
                if proxy.is_refusing:
                    return
                await server.send(startup)
            except LOST:
                return
            async with anyio.create_task_group() as group:
                with suppress(*LOST):
                    await _relay(proxy, client, server, group)
                group.cancel_scope.cancel()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        user = place.netloc.rpartition("@")[0]
        proxy = Cutting(url=place._replace(netloc=f"{user}@127.0.0.1:{port}").geturl())
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            yield proxy
            group.cancel_scope.cancel()


CANCEL = 80_877_102  #: the code of a request to cancel a statement


@pytest.fixture(name="proxy")
def proxy_of_shop(shop: Shop, portal: BlockingPortal) -> Iterator[Cutting]:
    """Yield a proxy in front of the database."""
    with portal.wrap_async_context_manager(cutting_proxy(shop.url)) as proxy:
        yield proxy


async def _relay(proxy: Cutting, client: ByteStream, server: ByteStream, group: anyio.abc.TaskGroup) -> None:
    """Pass requests on to *server*, and its answers to *client*, until a connection ends or is cut."""
    is_silent, ready = False, anyio.Event()

    async def answer() -> None:
        with suppress(*LOST):
            async for kind, message in messages_of(server):
                if not is_silent:
                    await client.send(message)
                elif kind == READY:
                    ready.set()
        ready.set()
        await client.aclose()

    group.start_soon(answer)
    async for request in _requests(client):
        is_met = (proxy.repeats or not proxy.met.is_set()) and proxy.is_due(request)
        is_silent = is_met and proxy.cut is not None
        if is_met:
            proxy.met.set()
            await proxy.released.wait()
        if is_silent and proxy.cut is Cut.BEFORE:
            return
        await server.send(request)
        if is_silent and proxy.cut is Cut.AFTER and (request.endswith(SYNC) or request[:1] == b"Q"):
            await ready.wait()
        if is_silent:
            return


async def _requests(client: ByteStream) -> AsyncIterator[bytes]:
    """Yield the messages of *client*, together up to one that ends a request."""
    request = b""
    async for kind, message in messages_of(client):
        request += message
        if kind in ENDS:
            yield request
            request = b""
