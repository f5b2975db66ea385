"""Requests over HTTP: hosts, origins, bodies and statuses."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from dbtools.server.http.requests import (
    BODY_TIMEOUT,
    HttpError,
    RequestMiddleware,
    is_too_complex,
    read_message,
)
from dbtools.settings.sections import ServerSection
from tests.conftest import Clock
from tests.protocol.client import MODERN, PATIENCE
from tests.protocol.http_server import HANDSHAKE, HttpServer, call, http_server, modern, posted
from tests.protocol.http_servers import DDL, configured, shared as shared

PARSE_ERROR = -32700


async def test_clients_of_the_sdk_list_and_call_at_workers(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    async with http_server(sqlite_database(DDL), tmp_path, "--workers", "2") as server:
        for mode in ("legacy", "auto", MODERN):
            async with Client(f"{server.url}/mcp", mode=mode) as client:
                listed = await client.list_tools(cache_mode="bypass")
                called = await client.call_tool("get_person", {"id": 1})
                refused = await client.call_tool("get_person", {"id": "one"})

            assert [tool.name for tool in listed.tools][:2] == ["describe_tables", "aggregate_rows"]
            assert called.structured_content == {"row": {"id": 1, "name": "Ada"}}
            assert refused.is_error


#: Values of the headers Host and Origin, and the status of the answer.
HOSTS = {
    "localhost": 200,
    "LOCALHOST:1": 200,
    "127.0.0.1:80": 200,
    "[::1]:80": 200,
    "evil.example": 421,
    "localhost.evil.example": 421,
    "evil.example:localhost": 421,
    "": 421,
}
ORIGINS = {
    "http://localhost": 200,
    "https://127.0.0.1:5173": 200,
    "http://evil.example": 403,
    "http://localhost.evil.example": 403,
    "null": 403,
    "": 403,
}


@pytest.mark.parametrize(("header", "statuses"), [("Host", HOSTS), ("Origin", ORIGINS)])
async def test_only_names_and_pages_of_the_own_machine_are_answered(
    header: str, statuses: dict[str, int], shared: HttpServer
) -> None:
    found = {}
    for value in statuses:
        async with shared.client(**{header: value}) as client:
            found[value] = (await client.post(**modern("tools/list"))).status_code

    assert found == statuses


async def test_two_hosts_or_origins_are_none() -> None:
    async def app(*_: Any) -> None:
        raise AssertionError("it is passed on")

    statuses = []

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    guard = RequestMiddleware(app, ServerSection(), local=True)
    for headers in (
        [(b"host", b"localhost"), (b"host", b"localhost")],
        [(b"host", b"localhost"), (b"origin", b"http://localhost"), (b"origin", b"http://localhost")],
    ):
        await guard({"type": "http", "path": "/mcp", "headers": headers}, app, send)  # type: ignore[arg-type]

    assert [status for status in statuses if status] == [421, 403]


async def test_configured_hosts_and_origins_are_answered(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    rest = '[server]\nallowed_hosts = ["db.example.com"]\nallowed_origins = ["https://app.example.com"]\n'
    path = configured(f"sqlite:///{sqlite_database(DDL)}", tmp_path, rest)
    page = {"Host": "db.example.com", "Origin": "https://app.example.com"}
    asks = {**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "mcp-method"}
    async with http_server(path, tmp_path) as server, server.client() as client:
        preflight = await client.options("/mcp", headers=asks)
        foreign = await client.options("/mcp", headers={**asks, "Origin": "http://localhost.evil.example"})
        probed = await client.get("/readyz", headers={"Host": "10.0.0.7:8000"})
        asked = modern("tools/list")
        asked["headers"] |= page
        answer = await client.post(**asked)

    assert (preflight.status_code, answer.status_code) == (200, 200)
    assert (foreign.status_code, probed.status_code) == (403, 200)
    assert preflight.headers["access-control-allow-origin"] == "https://app.example.com"
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"


async def test_health_needs_no_token(shared: HttpServer) -> None:
    async with shared.client() as client:
        alive = await client.get("/healthz")
        ready = await client.get("/readyz")
        start = await client.get("/")
        nothing = await client.get("/other")

    assert (alive.status_code, alive.text) == (200, "ok\n")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert ready.json()["snapshot_age"] >= 0
    assert (start.status_code, start.text) == (200, "dbtools serves MCP clients at /mcp.\n")
    assert (nothing.status_code, nothing.text) == (404, "Not found. MCP is at /mcp.\n")


def _nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


#: In other encodings its letters beyond ASCII have the byte of a quote: the brackets seem to be in a text.
MESSAGE = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", '
    '"capabilities": {"experimental": {"\u0122": ' + "[" * 100 + "]" * 100 + ', "\u0122 ": 1}}, '
    '"clientInfo": {"name": "x", "version": "1"}}}'
)


#: Bodies that are no message, and the status of the answer.
BODIES = [
    (b"x" * 10_001, 413),
    (_nested(65), 400),
    (b"[" * 9_000, 400),
    (b'{"jsonrpc": "2.0", "id": 1, "m"', 400),
    (b"\xff\xfe", 400),
    (b"[]", 400),
    (b"", 400),
]
ENCODINGS = ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_bodies_that_are_no_message_are_refused(version: str, shared: HttpServer) -> None:
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": "x"}
    async with shared.client() as client:
        answers = [await client.post(**posted(body, headers)) for body, _ in BODIES]
        encoded = [await client.post(**posted(MESSAGE.encode(each))) for each in ENCODINGS]
        after = await call(client, "get_person", {"id": 1})

    assert [each.status_code for each in answers] == [status for _, status in BODIES]
    assert [(each.status_code, each.json()["error"]["code"]) for each in encoded] == [(400, PARSE_ERROR)] * 5
    assert after["structuredContent"] == {"row": {"id": 1, "name": "Ada"}}


@pytest.mark.parametrize(
    ("body", "much"),
    [
        (_nested(64), False),
        (_nested(65), True),
        (json.dumps(["[" * 1_000] * 100).encode(), False),
        (json.dumps(['"]\\[' * 100] * 100).encode(), False),
        (b"[[],[],{}]" + b" " * 100, False),
        (json.dumps([[{}] for _ in range(100)]).encode(), False),
        (b"]" + b"[" * 100, True),
        (b"[" * 65 + b'"' + b'\\"' * 2_000_000, True),  # which may not take hours
        (json.dumps([0] * 9_000).encode(), False),
        (json.dumps([0] * 11_000).encode(), True),
        (json.dumps([{}] * 6_000).encode(), True),
        (json.dumps(["," * 20_000] * 2).encode(), False),
    ],
)
def test_json_has_so_many_levels_and_values_at_most(body: bytes, much: bool) -> None:
    assert is_too_complex(body) is much


@pytest.mark.parametrize(
    ("method", "headers", "status", "code"),
    [
        ("tools/list", {"Mcp-Method": "tools/call"}, 400, -32020),
        ("no/such", {}, 404, -32601),
        ("tools/list", {"MCP-Protocol-Version": "2027-01-01"}, 400, -32020),
    ],
)
async def test_errors_of_2026_have_their_statuses(
    method: str, headers: dict[str, str], status: int, code: int, shared: HttpServer
) -> None:
    asked = modern(method)
    asked["headers"] |= headers
    async with shared.client() as client:
        answer = await client.post(**asked)
        got = await client.get("/mcp", headers={"MCP-Protocol-Version": MODERN})

    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert got.status_code == 405


async def test_slow_heads_and_bodies_hold_up_no_other_request(shared: HttpServer) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    _, other_writer = await asyncio.open_connection("127.0.0.1", shared.port)
    other_writer.write(b"GET /healthz HT")
    async with shared.client() as client:
        answered = await call(client, "get_person", {"id": 2})
    for each in (writer, other_writer):
        each.close()
        await each.wait_closed()

    assert answered["structuredContent"]["row"]["name"] == "Bo"


async def test_body_that_does_not_arrive_in_time_is_refused(clock: Clock) -> None:
    parts = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Any:
        if parts:
            return parts.pop()
        clock.advance(BODY_TIMEOUT)
        return await asyncio.Event().wait()

    with anyio.fail_after(PATIENCE), pytest.raises(HttpError) as refused:
        await read_message({"type": "http", "headers": []}, receive, 100)

    assert refused.value.response.status_code == 408
