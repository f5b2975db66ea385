"""Sessions, IDs and streams over HTTP: how many there may be, and when they end."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.protocol.changing import CHANGED, open_changing
from tests.protocol.client import MODERN, PATIENCE
from tests.protocol.http_server import (
    HANDSHAKE,
    SESSION,
    HttpServer,
    call,
    events,
    http_server,
    initialize,
    modern,
    open_session,
    posted,
)
from tests.protocol.http_servers import DDL, configured, server as server, shared as shared


async def test_sessions_are_as_many_as_allowed_and_end_when_clients_say_so(server: HttpServer) -> None:
    async with server.client() as client:
        sessions = [await open_session(client) for _ in range(5)]
        full = await client.post(**initialize())
        ended = await client.delete("/mcp", headers=sessions[0])
        again = await client.post(**initialize())
        stateless = await call(client, "get_person", {"id": 1})

    assert (full.status_code, full.headers["retry-after"]) == (503, "1")
    assert (ended.status_code, again.status_code) == (200, 200)
    assert stateless["structuredContent"]["row"]["name"] == "Ada"


@pytest.mark.parametrize("id", ["7", '"7"'])
async def test_id_of_a_request_that_runs_is_taken_in_its_session(id: str, server: HttpServer) -> None:
    def asked(session: dict[str, str], method: str, id: str) -> dict[str, Any]:
        # JSON as the SDK reads it.
        text = '{"jsonrpc": "2.0", "id": %s, "x": NaN, "method": "%s", "params": {"name": "list_slow"}}'
        return posted((text % (id, method)).encode(), session)

    async with server.client() as client:
        one, other = await open_session(client), await open_session(client)
        async with client.stream("POST", **asked(one, "tools/call", id)) as running:
            same = await client.post(**asked(one, "ping", id))
            another = await client.post(**asked(one, "ping", '"b"'))
            elsewhere = await client.post(**asked(other, "ping", id))
        await client.delete("/mcp", headers=one)  # which also ends what runs in it
        gone = await client.post(**asked({**one, SESSION: "0" * 32}, "ping", id))

    assert running.status_code == 200
    assert (same.status_code, same.json()["error"]["code"]) == (400, -32600)
    assert (another.status_code, elsewhere.status_code, gone.status_code) == (200, 200, 404)


async def test_id_of_a_request_whose_client_has_left_is_taken_until_it_ends(server: HttpServer) -> None:
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "list_slow"}}
    told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    async with server.client() as client:
        session = await open_session(client)
        ping = posted({**call, "method": "ping"}, session)
        async with client.stream("POST", **posted(call, session)) as stream:
            assert stream.status_code == 200
        taken = await client.post(**ping)
        await client.post(**posted(told, session))
        with anyio.fail_after(PATIENCE):
            while (free := await client.post(**ping)).status_code == 400:
                pass

    assert (taken.status_code, free.status_code) == (400, 200)


async def test_each_answer_names_its_request(shared: HttpServer) -> None:
    async with shared.client() as client:
        given = await client.post(**posted({}, {"X-Request-Id": "proxy-1"}))
        odd = await client.post(**posted({}, {"X-Request-Id": "a b"}))
        other = await client.post(**posted({}, {}))

    assert given.headers["x-request-id"] == "proxy-1"
    assert re.fullmatch("[0-9a-f]{16}", odd.headers["x-request-id"])
    assert odd.headers["x-request-id"] != other.headers["x-request-id"]


async def test_streams_are_as_many_as_allowed(server: HttpServer) -> None:
    asked = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    async with server.client() as client:
        async with AsyncExitStack() as stack:
            opened = [await stack.enter_async_context(client.stream("POST", **asked)) for _ in range(3)]
            full = await client.post(**asked)
        # Those that have ended count no more.
        with anyio.fail_after(PATIENCE):
            while True:
                async with client.stream("POST", **asked) as again:
                    if again.status_code == 200:
                        break

    assert [each.status_code for each in opened] == [200] * 3
    assert (full.status_code, full.headers["retry-after"]) == (503, "1")


async def test_calls_over_the_concurrency_limit_are_asked_to_retry(server: HttpServer) -> None:
    async with server.client() as client, anyio.create_task_group() as group:
        running = [0]

        async def run() -> None:
            running[0] += 1
            await client.post(**modern("tools/call", {"name": "list_slow", "arguments": {}}))

        for _ in range(4):
            group.start_soon(run)
        with anyio.fail_after(PATIENCE):
            while (refused := await client.post(**modern("tools/list"))).status_code == 200:
                pass
        alive = await client.get("/healthz")
        group.cancel_scope.cancel()

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert alive.status_code == 200


@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_client_that_hangs_up_stops_its_statement(
    version: str, postgresql_database: Callable[[str], AbstractContextManager[str]], tmp_path: Path
) -> None:
    running = "select count(*) from pg_stat_activity where query like '%slow%' and state = 'active'"
    params = {"name": "list_slow", "arguments": {}}
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    with postgresql_database(DDL) as url:
        async with http_server(configured(url, tmp_path), tmp_path) as server, server.client() as client:
            asked, session = modern("tools/call", params), dict[str, str]()
            if version == HANDSHAKE:
                session = await open_session(client)
                asked = posted({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, session)
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: client.post(**asked))
                await _until(url, running, 1)
                if version == HANDSHAKE:
                    await client.post(**posted(note, session))
                group.cancel_scope.cancel()
            await _until(url, running, 0)


async def _until(url: str, sql: str, number: int) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        with anyio.fail_after(PATIENCE):
            while await connection.fetchval(f"{sql} and pid <> pg_backend_pid()") != number:
                pass
    finally:
        await connection.close()


async def test_changes_are_notified_to_subscribers_of_a_server_without_sessions(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    listening = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="w")
    with open_changing("sqlite", DDL, request) as changing:
        async with http_server(changing.url, tmp_path, "--stateless") as server, server.client() as client:
            opened = events((await client.post(**initialize())).text)[0]["result"]["capabilities"]
            async with client.stream("POST", **listening) as stream:
                lines = aiter(stream.aiter_lines())
                await _event(lines)
                await changing.change("alter table person add column nick text")
                heard = await _event(lines)

    assert opened["tools"].get("listChanged", False) is False
    assert heard["method"] == CHANGED
    assert heard["params"]["_meta"] == {"io.modelcontextprotocol/subscriptionId": "w"}


async def _event(lines: AsyncIterator[str]) -> Any:
    with anyio.fail_after(PATIENCE):
        async for line in lines:
            if line.startswith("data: {"):
                return json.loads(line[6:])
    raise AssertionError("the stream has ended")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
async def test_server_ends_with_streams_open_and_answers_what_it_has_begun(
    number: int, status: int, server: HttpServer
) -> None:
    listening = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="w")
    async with server.client() as client:
        _, idle = await asyncio.open_connection("127.0.0.1", server.port)
        session = await open_session(client)
        accept = {"Accept": "text/event-stream"}
        async with (
            client.stream("POST", **listening) as stream,
            client.stream("GET", "/mcp", headers={**session, **accept}) as other,
        ):
            lines = aiter(stream.aiter_lines())
            await _event(lines)
            ended = await server.end(number)
            last = await _event(lines)
            # Raises where it is not whole.
            rest = await other.aread()
        idle.close()

    assert ended == status
    assert last["id"] == "w"
    assert last["result"]["resultType"] == "complete"
    assert events(rest.decode()) == []
