"""Stand-ins for poolers in front of PostgreSQL: proxies that treat a client's settings as poolers do."""

import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteStream
from anyio.streams.buffered import BufferedByteReceiveStream

PROTOCOL = 196_608  #: the version 3.0
SYNC = b"S\0\0\0\4"
KNOWN = (b"user", b"database", b"application_name", b"client_encoding")


@asynccontextmanager
async def proxy(url: str, *, refuses: bool) -> AsyncIterator[str]:
    """Yield the URL of a proxy of the server at *url* that *refuses* settings, or else ignores them."""
    place = urlsplit(url)

    async def serve(client: ByteStream) -> None:
        async with client:
            message = await startup_of(client)
            while struct.unpack_from("!I", message, 4)[0] != PROTOCOL:
                await client.send(b"N")  # no encryption
                message = await startup_of(client)
            if refuses and (unknown := _unknown(message)):
                await client.send(_refusal(f"unsupported startup parameter: {unknown[0].decode()}"))
                return
            async with await anyio.connect_tcp(str(place.hostname), place.port or 5432) as server:
                await server.send(_known(message))
                async with anyio.create_task_group() as group:
                    group.start_soon(_pass_on, client, server, group.cancel_scope)
                    group.start_soon(_pass_on, server, client, group.cancel_scope)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        user = place.netloc.rpartition("@")[0]
        yield place._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()
        group.cancel_scope.cancel()


@dataclass(kw_only=True)
class Swapping:
    """A pooler of one session, until a message is due to meet another session of the server."""

    url: str
    is_due: bool = False
    sessions: int = 0  #: that have been opened


@asynccontextmanager
async def swapping_proxy(url: str, *, replays: bool, refuses: bool = False) -> AsyncIterator[Swapping]:
    """Yield such a pooler of the server at *url*; where it *replays*, it prepares statements again.

    Unless it *refuses* settings, it looks like a server until then.
    """
    place = urlsplit(url)

    async def connect(stack: AsyncExitStack, startup: bytes) -> ByteStream:
        swapping.sessions += 1
        server = await anyio.connect_tcp(str(place.hostname), place.port or 5432)
        await stack.enter_async_context(server)
        await server.send(startup)
        return server

    async def serve(client: ByteStream) -> None:
        async with client, AsyncExitStack() as stack, anyio.create_task_group() as group:
            startup = await startup_of(client)
            while struct.unpack_from("!I", startup, 4)[0] != PROTOCOL:
                await client.send(b"N")  # no encryption
                startup = await startup_of(client)

            if refuses and (unknown := _unknown(startup)):
                await client.send(_refusal(f"unsupported startup parameter: {unknown[0].decode()}"))
                return

            async def answer(server: ByteStream, scope: anyio.CancelScope) -> None:
                with scope:
                    await _pass_on(server, client, group.cancel_scope)

            server, scope, prepared = await connect(stack, startup), anyio.CancelScope(), b""
            group.start_soon(answer, server, scope)
            async for kind, message in messages_of(client):
                if swapping.is_due:
                    swapping.is_due = False
                    scope.cancel()
                    server, scope = await connect(stack, _known(startup)), anyio.CancelScope()
                    await _ready(server)
                    if replays:
                        await server.send(prepared + SYNC)
                        await _ready(server)
                    group.start_soon(answer, server, scope)
                prepared += message if kind == b"P" else b""
                await server.send(message)
            group.cancel_scope.cancel()

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        user = place.netloc.rpartition("@")[0]
        swapping = Swapping(url=place._replace(netloc=f"{user}@127.0.0.1:{port}").geturl())
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, serve)
            yield swapping
            group.cancel_scope.cancel()


async def messages_of(stream: ByteReceiveStream) -> AsyncIterator[tuple[bytes, bytes]]:
    """Yield what comes from *stream*, message by message, each with its kind."""
    buffered = BufferedByteReceiveStream(stream)
    with suppress(anyio.IncompleteRead, anyio.BrokenResourceError):
        while True:
            head = await buffered.receive_exactly(5)
            yield head[:1], head + await buffered.receive_exactly(struct.unpack_from("!I", head, 1)[0] - 4)


async def _ready(server: ByteReceiveStream) -> None:
    """Read up to where *server* is ready for a query."""
    async for kind, _ in messages_of(server):
        if kind == b"Z":
            return


async def startup_of(client: ByteReceiveStream) -> bytes:
    """Return the first message of *client*, which has no kind."""
    message = b""
    while len(message) < 4 or len(message) < struct.unpack_from("!I", message)[0]:
        message += await client.receive()
    return message


def _settings(startup: bytes) -> list[tuple[bytes, bytes]]:
    words = startup[8:].rstrip(b"\0").split(b"\0")
    return list(zip(words[::2], words[1::2], strict=True))


def _unknown(startup: bytes) -> list[bytes]:
    """Return the names of settings in the message *startup* that a pooler does not know."""
    return [name for name, _ in _settings(startup) if name not in KNOWN]


def _known(startup: bytes) -> bytes:
    """Return the message *startup* with the settings that a pooler knows."""
    body = b"".join(b"%b\0%b\0" % each for each in _settings(startup) if each[0] in KNOWN) + b"\0"
    return struct.pack("!II", len(body) + 8, PROTOCOL) + body


def _refusal(text: str) -> bytes:
    fields = b"SFATAL\0VFATAL\0C08P01\0M" + text.encode() + b"\0\0"
    return b"E" + struct.pack("!I", len(fields) + 4) + fields


async def _pass_on(source: ByteReceiveStream, target: ByteStream, scope: anyio.CancelScope) -> None:
    try:
        while True:
            await target.send(await source.receive())
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        scope.cancel()
