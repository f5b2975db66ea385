"""An invalid message fails the test that reads it, over lines and over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.validation import validate
from tests.protocol.client import MODERN, Client, Message
from tests.protocol.http_server import HttpServer, initialize, modern

OLDEST, LATEST = "2024-11-05", "2025-11-25"
TOOL: Message = {"name": "t", "inputSchema": {"type": "object", "x-any": 1}}
LISTED: Message = {"tools": [TOOL], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
TOKEN: Message = {"progressToken": "t", "progress": 1, "total": 2.5}


def _answer(result: object, **more: object) -> Message:
    return {"jsonrpc": "2.0", "id": 1, "result": result, **more}


def _error(code: object, **more: object) -> Message:
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no"}, **more}


def _notice(method: str, **params: object) -> Message:
    return {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}


def _called(**content: object) -> Message:
    return _answer({"content": [content]})


SOUND = {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}
LINK = {"type": "resource_link", "uri": "dbtools://schema", "name": "schema"}


#: Versions, methods that are answered if any, and messages.
RIGHT: list[tuple[str, str | None, Message]] = [
    (LATEST, "tools/list", _answer({"tools": [TOOL]})),
    (MODERN, "tools/list", _answer(LISTED)),
    (LATEST, "tools/call", _called(**LINK)),
    (OLDEST, "ping", _answer({})),
    (LATEST, "resources/read", _error(-32002)),
    (MODERN, None, _error(-32700, id=None)),
    (LATEST, None, _notice("progress", **TOKEN)),
    (LATEST, None, {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
]
WRONG: list[tuple[str, str | None, Message]] = [
    (MODERN, "tools/list", _answer({"tools": [TOOL]})),  # no type of result
    (MODERN, "tools/list", _answer({**LISTED, "x": 1})),
    (LATEST, "tools/list", _answer(LISTED)),  # members of 2026
    (MODERN, "tools/list", _answer({**LISTED, "tools": [{**TOOL, "x": 1}]})),
    (MODERN, "tools/list", _answer({**LISTED, "ttlMs": "0"})),
    (MODERN, "tools/list", _answer({**LISTED, "ttlMs": False})),
    (LATEST, "tools/call", _answer({"content": [], "isError": 0})),
    (LATEST, "tools/call", _called(type="video")),
    (OLDEST, "tools/call", _called(**SOUND)),
    ("2025-03-26", "tools/call", _called(**LINK)),
    (MODERN, "ping", _answer({"resultType": "complete"})),  # a method of another version
    (LATEST, None, _answer({})),  # an answer to nothing
    (LATEST, "ping", _answer({}, error={"code": 1, "message": ""})),
    (LATEST, "ping", _answer({}, extra=1)),
    (LATEST, "ping", _answer({}, jsonrpc="1.0")),
    (LATEST, "ping", _answer({}, id=None)),
    (LATEST, "ping", _error("-32600")),
    (MODERN, "resources/read", _error(-32002)),  # a code of 2025
    (LATEST, None, _notice("progress", progress=1)),  # no token
    (LATEST, None, _notice("progress", **TOKEN, x=1)),
    (LATEST, None, _notice("subscriptions/acknowledged", notifications={})),
    (MODERN, None, {"jsonrpc": "2.0", "id": 1, "method": "ping"}),
]


def test_right_messages_pass_and_wrong_ones_are_noticed() -> None:
    for version, method, message in RIGHT:
        validate(message, version=version, method=method)
    for version, method, message in WRONG:
        with pytest.raises(AssertionError):
            validate(message, version=version, method=method)


@asynccontextmanager
async def _answering(answer: bytes) -> AsyncIterator[int]:
    """Yield the port of a server that answers whatever comes with *answer*, and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_client_of_lines_fails_on_a_wrong_message() -> None:
    async with _answering(json.dumps(_answer({"tools": [TOOL]})).encode() + b"\n") as port:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        with pytest.raises(AssertionError, match="resultType"):
            await client.result("tools/list")
        client.hang_up()


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        pytest.param(modern("tools/list"), _answer({"tools": [TOOL]}), id="2026"),
        pytest.param(initialize(), _answer({"protocolVersion": LATEST, "capabilities": {}}), id="2025"),
        pytest.param(modern("tools/list"), _notice("progress", progress=1), id="notification"),
    ],
)
async def test_client_of_http_fails_on_a_wrong_message(
    asked: dict[str, Any], message: Message, kind: str
) -> None:
    body = json.dumps(message)
    content = body if kind == "application/json" else f"event: message\r\ndata: {body}\r\n\r\n"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n\r\n"
    async with _answering((head + content).encode()) as port:
        server = HttpServer(url=f"http://127.0.0.1:{port}", process=None, log=Path())  # type: ignore[arg-type]
        async with server.client() as client:
            with pytest.raises(AssertionError, match="Field required"):
                await client.post(**asked)
