"""Poolers in front of a PostgreSQL server: proxies that treat a client's settings as poolers do."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteStream

PROTOCOL = 196_608  #: the version 3.0
KNOWN = (b"user", b"database", b"application_name", b"client_encoding")


@asynccontextmanager
async def proxy(url: str, *, refuses: bool) -> AsyncIterator[str]:
    """Give the URL of a proxy of the server at *url* that *refuses* settings, or else ignores them."""
    place = urlsplit(url)

    async def serve(client: ByteStream) -> None:
        async with client:
            message = await _startup(client)
            while struct.unpack_from("!I", message, 4)[0] != PROTOCOL:
                await client.send(b"N")  # no encryption
                message = await _startup(client)
            words = message[8:].rstrip(b"\0").split(b"\0")
            pairs = list(zip(words[::2], words[1::2], strict=True))
            unknown = [name for name, _ in pairs if name not in KNOWN]
            if unknown and refuses:
                await client.send(_refusal(f"unsupported startup parameter: {unknown[0].decode()}"))
                return
            async with await anyio.connect_tcp(str(place.hostname), place.port or 5432) as server:
                await server.send(_message([pair for pair in pairs if pair[0] in KNOWN]))
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


async def _startup(client: ByteReceiveStream) -> bytes:
    message = b""
    while len(message) < 4 or len(message) < struct.unpack_from("!I", message)[0]:
        message += await client.receive()
    return message


def _message(pairs: list[tuple[bytes, bytes]]) -> bytes:
    body = b"".join(b"%b\0%b\0" % pair for pair in pairs) + b"\0"
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
