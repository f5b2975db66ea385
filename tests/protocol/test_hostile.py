"""Hostile callers: others still get slots and answers, and the server ends in time."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import psutil  # type: ignore[import-untyped]
import pytest

from dbtools.server.http.identity import hash_of, new_token
from tests.conftest import OpenDatabase
from tests.processes import FRESH
from tests.protocol.client import PATIENCE
from tests.protocol.http_server import (
    HttpServer,
    call,
    events,
    http_server,
    initialize,
    modern,
    open_session,
    posted,
)

#: A cell of it is larger than any buffer between two processes; the view takes ten seconds and more.
DDL = {
    "sqlite": """
    create table person (id integer primary key, name text not null, life text);
    insert into person values (1, 'Ada', hex(zeroblob(1500000)));
    create view slow as
    with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) as total from n;
    create view brief as
    with recursive n (i) as (select 1 union all select i + 1 from n limit 800000)
    select count(*) as total from n;
    """,
    "postgresql": """
    create table person (id integer primary key, name text not null, life text);
    insert into person values (1, 'Ada', repeat('0123456789', 300000));
    create view slow as select count(*) as total from pg_sleep(600);
    create view brief as select count(*) as total from pg_sleep(1);
    """,
}
INTERNAL_ERROR = -32603
GREEDY, MODEST = new_token(), new_token()
SECTIONS = f"""
[limits]
timeout = "60s"
calls_per_minute = 100000
[roles.all]
tables."*" = true
[auth]
tokens = [
    {{ sha256 = "{hash_of(GREEDY)}", role = "all" }},
    {{ sha256 = "{hash_of(MODEST)}", role = "all" }},
]
[server]
max_requests = 8
max_streams = 8
max_sessions = 8
"""
CELL = modern("resources/read", {"uri": "dbtools://cell/person/1/life"})
LISTEN = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})


@pytest.fixture
def url(request: pytest.FixtureRequest, open_database: OpenDatabase) -> Iterator[str]:
    """Yield a database, of SQLite unless a test names another."""
    dialect: str = getattr(request, "param", "sqlite")
    with open_database(dialect, DDL[dialect]) as url:
        yield url


def _configured(url: str, folder: Path, sections: str = SECTIONS) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n{sections}')
    return path


@pytest.fixture
async def server(url: str, tmp_path: Path) -> AsyncIterator[HttpServer]:
    """Yield a server with little room, for two who are known."""
    async with http_server(_configured(url, tmp_path), tmp_path) as server:
        yield server


def _client(server: HttpServer, token: str) -> httpx2.AsyncClient:
    return server.client(Authorization=f"Bearer {token}")


def _legacy_slow(id: int, view: str = "list_slow") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": view}}


async def _modest(server: HttpServer) -> None:
    """Assert that the modest one is served: a call, a stream, and a session."""
    async with _client(server, MODEST) as client:
        answer = await call(client, "get_person", {"id": 1})
        async with client.stream("POST", **LISTEN) as stream:
            assert stream.status_code == 200
        session = await open_session(client)
        await client.delete("/mcp", headers=session)
    assert answer["structuredContent"]["row"]["name"] == "Ada"


@asynccontextmanager
async def _raw(server: HttpServer, head: bytes) -> AsyncIterator[asyncio.StreamReader]:
    """Send *head* as the greedy one and do no more."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=2**10)
    token = b"Authorization: Bearer " + GREEDY.encode() + b"\r\n"
    writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + token + head)
    try:
        yield reader
    finally:
        writer.close()


async def test_bodies_that_never_come_leave_room_for_others(server: HttpServer) -> None:
    async with AsyncExitStack() as stack:
        begun = b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        readers = [await stack.enter_async_context(_raw(server, begun)) for _ in range(20)]
        # All but two are refused at once.
        with anyio.fail_after(PATIENCE):
            heads = [await reader.readline() for reader in readers[2:]]
        await _modest(server)

    assert {head.split()[1] for head in heads} == {b"503"}


async def test_unread_answers_leave_room_for_others(server: HttpServer) -> None:
    content: bytes = CELL["content"]
    head = "".join(f"{name}: {value}\r\n" for name, value in CELL["headers"].items())
    asked = head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content
    async with AsyncExitStack() as stack:
        for _ in range(20):
            await stack.enter_async_context(_raw(server, asked))
        await _modest(server)


async def test_streams_and_sessions_of_one_leave_room_for_others(server: HttpServer) -> None:
    async with _client(server, GREEDY) as client, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(client.stream("POST", **LISTEN)) for _ in range(4)]
        sessions = [await client.post(**initialize()) for _ in range(4)]
        await _modest(server)

    assert [each.status_code for each in streams] == [200, 200, 503, 503]
    assert [each.status_code for each in sessions] == [200, 200, 503, 503]


async def test_name_of_a_stream_makes_none_of_a_call_of_the_2025_era(server: HttpServer) -> None:
    async with _client(server, GREEDY) as client, AsyncExitStack() as stack:
        session = await open_session(client)
        named = {**session, "Mcp-Method": "subscriptions/listen"}
        answers = [
            await stack.enter_async_context(client.stream("POST", **posted(_legacy_slow(id), named)))
            for id in range(6)
        ]

    assert [each.status_code for each in answers] == [200, 200, 503, 503, 503, 503]


async def test_calls_whose_clients_have_hung_up_are_counted_until_they_end(url: str, tmp_path: Path) -> None:
    limits = '[limits]\ntimeout = "60s"\n[server]\nmax_requests = 3\n'
    path = _configured(url, tmp_path, limits)
    async with http_server(path, tmp_path) as server, server.client() as client:
        session = await open_session(client)
        for id in range(1, 4):
            await _hung_up(server, session, id)
        # They go on in the session, so that there is no room for another.
        full = await client.post(**modern("tools/list"))
        ended = await client.delete("/mcp", headers=session)
        with anyio.fail_after(PATIENCE):
            while (await client.post(**modern("tools/list"))).status_code == 503:
                pass

    assert (full.status_code, ended.status_code) == (503, 200)


async def _hung_up(server: HttpServer, session: dict[str, str], id: int) -> None:
    """Begin a call in *session*, and leave when it runs."""
    asked = posted(_legacy_slow(id), session)
    async with server.client() as client, client.stream("POST", **asked) as answer:
        assert answer.status_code == 200


async def test_thousands_of_sessions_hold_up_no_request(url: str, tmp_path: Path) -> None:
    path = _configured(url, tmp_path, "[server]\nmax_sessions = 2000\n")
    async with http_server(path, tmp_path) as server, server.client() as client:
        statuses: list[int] = []

        async def open_some() -> None:
            for _ in range(260):
                statuses.append((await client.post(**initialize())).status_code)

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(open_some)
            answers = [await call(client, "get_person", {"id": 1}) for _ in range(20)]
        again = await call(client, "get_person", {"id": 1})

    assert (statuses.count(200), statuses.count(503)) == (2_000, 80)
    assert [each["isError"] for each in (*answers, again)] == [False] * 21


async def test_call_that_outlasts_the_shutdown_is_asked_to_retry(url: str, tmp_path: Path) -> None:
    log = tmp_path / "calls.jsonl"
    sections = f'[limits]\ntimeout = "60s"\n[log]\nfile = "{log}"\n[server]\nmax_requests = 1\n'
    path = _configured(url, tmp_path, sections)
    answers: list[httpx2.Response] = []
    async with http_server(path, tmp_path) as server, server.client() as client:

        async def run() -> None:
            with suppress(httpx2.TransportError):
                # Until it has the only place, and until the server has ended.
                while True:
                    answers.append(await client.post(**modern("tools/call", {"name": "list_slow"})))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await _is_running(client)
            status = await server.end(signal.SIGTERM)

    assert status == 0
    assert {(each.status_code, each.headers["retry-after"]) for each in answers} == {(503, "1")}
    assert '"outcome":"cancelled"' in log.read_text()
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize(
    ("url", "way"),
    [*(("sqlite", way) for way in ("progress", "session", "stateless")), ("postgresql", "session")],
    indirect=["url"],
)
async def test_stream_that_takes_too_long_at_the_end_gets_an_error(
    way: str, url: str, tmp_path: Path
) -> None:
    path = _configured(url, tmp_path, '[limits]\ntimeout = "60s"\n')
    params: dict[str, Any] = {"name": "list_slow", "arguments": {}}
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}
    options = ("--stateless",) if way == "stateless" else ()
    async with http_server(path, tmp_path, *options) as server, server.client() as client:
        asked = posted(message, await open_session(client) if way == "session" else {})
        if way == "progress":
            asked = modern("tools/call", params)
            told = json.loads(asked["content"])
            told["params"]["_meta"]["progressToken"] = "p"
            asked["content"] = json.dumps(told).encode()
        asked_id = json.loads(asked["content"])["id"]
        async with client.stream("POST", **asked) as stream:
            begun = stream.status_code
            status = await server.end(signal.SIGTERM)
            ended = events((await stream.aread()).decode())

    assert (begun, status) == (200, 0)
    assert (ended[-1]["id"], ended[-1]["error"]["code"]) == (asked_id, INTERNAL_ERROR)
    assert "Traceback" not in server.log.read_text()


@pytest.mark.parametrize("options", [(), ("--stateless",)])
async def test_call_of_the_2025_era_that_runs_at_the_end_is_answered(
    options: tuple[str, ...], url: str, tmp_path: Path
) -> None:
    path = _configured(url, tmp_path, "")
    async with http_server(path, tmp_path, *options) as server, server.client() as client:
        asked = posted(_legacy_slow(7, "list_brief"), {} if options else await open_session(client))
        async with client.stream("POST", **asked) as stream:
            assert stream.status_code == 200
            status = await server.end(signal.SIGTERM)
            answered = events((await stream.aread()).decode())

    assert status == 0
    assert [each["id"] for each in answered] == [7]
    assert answered[0]["result"]["structuredContent"]["row_count"] == 1


async def _is_running(client: httpx2.AsyncClient) -> None:
    """Return when the only request that there is room for is being answered."""
    with anyio.fail_after(PATIENCE):
        while (await client.post(**modern("tools/list"))).status_code != 503:
            pass


async def test_worker_is_replaced_when_it_ends_and_ends_when_its_parent_is_gone(
    url: str, tmp_path: Path
) -> None:
    async with http_server(url, tmp_path, "--workers", "2", program=FRESH) as server:
        first, _ = await _workers(server)
        first.kill()
        with anyio.fail_after(PATIENCE):
            while f"Worker {first.pid} has ended" not in await anyio.Path(server.log).read_text():
                pass
        workers = await _workers(server)
        async with server.client(Accept="text/event-stream") as client:
            statuses = [(await client.request(each, "/mcp")).status_code for each in ("GET", "DELETE")]
        os.kill(server.process.pid, signal.SIGKILL)
        gone, left = await anyio.to_thread.run_sync(psutil.wait_procs, workers, PATIENCE)

    assert first not in workers
    assert statuses == [405, 405]  # without sessions, they have no streams
    assert (len(gone), left) == (2, [])


async def _workers(server: HttpServer) -> list[psutil.Process]:
    """Return both workers, once they are there."""
    with anyio.fail_after(PATIENCE):
        while True:
            children = psutil.Process(server.process.pid).children()
            workers = [each for each in children if "spawn_main" in " ".join(each.cmdline())]
            if len(workers) == 2:
                return workers
            await anyio.sleep(0.02)


async def test_there_are_no_streams_of_sessions_without_sessions(url: str, tmp_path: Path) -> None:
    async with (
        http_server(url, tmp_path, "--stateless") as server,
        server.client(Accept="text/event-stream") as client,
    ):
        answers = [await client.request(each, "/mcp") for each in ("GET", "DELETE")]

    assert [(each.status_code, each.headers["allow"]) for each in answers] == [(405, "POST")] * 2
