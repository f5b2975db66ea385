"""Streamable HTTP in both eras: what it answers, what it refuses, and how it ends."""

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from dbtools.policy import Caller
from dbtools.server.http import Address, HttpApp, Plan
from dbtools.server.requests import BODY_IN, RequestMiddleware, is_too_much
from dbtools.settings import DatabaseSection, Settings
from dbtools.settings.sections import ServerSection
from tests.postgresql_server import PostgresqlServer
from tests.protocol.changing import CHANGED, Changing, open_changing
from tests.protocol.client import MODERN, PATIENCE, ROOT
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

DDL = """
create table person (id integer primary key, name text not null);
insert into person values (1, 'Ada'), (2, 'Bo');
create view slow as
with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) as total from n;
"""
PARSE_ERROR = -32700
LIMITS = """
[limits]
timeout = "60s"
[server]
max_body = 10000
max_sessions = 5
max_streams = 3
max_requests = 4
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def changing(request: pytest.FixtureRequest) -> Iterator[Changing]:
    """Give a database of each dialect."""
    with open_changing(request.param, DDL, request) as changing:
        yield changing


def _configured(url: str, folder: Path, rest: str = LIMITS) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n{rest}')
    return path


@pytest.fixture
async def server(changing: Changing, tmp_path: Path) -> AsyncIterator[HttpServer]:
    """Give a server of each dialect with low limits."""
    async with http_server(_configured(changing.url, tmp_path), tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
async def shared(
    sqlite_database: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HttpServer]:
    """Give a server that no test ends or fills."""
    folder = tmp_path_factory.mktemp("shared")
    path = _configured(f"sqlite:///{sqlite_database(DDL)}", folder)
    async with http_server(path, folder) as server:
        yield server


@pytest.mark.parametrize("mode", ["legacy", "auto", MODERN])
@pytest.mark.parametrize("options", [(), ("--stateless",), ("--workers", "2")])
async def test_client_of_the_sdk_lists_and_calls(
    options: tuple[str, ...], mode: str, changing: Changing, tmp_path: Path
) -> None:
    async with (
        http_server(changing.url, tmp_path, *options) as server,
        Client(f"{server.url}/mcp", mode=mode) as client,
    ):
        listed = await client.list_tools(cache_mode="bypass")
        called = await client.call_tool("get_person", {"id": 1})
        refused = await client.call_tool("get_person", {"id": "one"})
        read = await client.read_resource("dbtools://schema/person", cache_mode="bypass")

    assert [tool.name for tool in listed.tools][:2] == ["describe_tables", "aggregate_rows"]
    assert called.structured_content == {"row": {"id": 1, "name": "Ada"}}
    assert refused.is_error
    assert '"person"' in read.contents[0].text  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:80", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("evil.example:localhost", 421),
        ("", 421),
    ],
)
async def test_only_names_of_the_own_machine_are_answered(host: str, status: int, shared: HttpServer) -> None:
    async with shared.client(Host=host) as client:
        answer = await client.post(**modern("tools/list"))

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost", 200),
        ("https://127.0.0.1:5173", 200),
        ("http://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_only_pages_of_the_own_machine_may_call(origin: str, status: int, shared: HttpServer) -> None:
    async with shared.client(Origin=origin) as client:
        answer = await client.post(**modern("tools/list"))

    assert answer.status_code == status


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
    path = _configured(f"sqlite:///{sqlite_database(DDL)}", tmp_path, rest)
    page = {"Host": "db.example.com", "Origin": "https://app.example.com"}
    asks = {**page, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "mcp-method"}
    async with http_server(path, tmp_path) as server, server.client() as client:
        preflight = await client.options("/mcp", headers=asks)
        asked = modern("tools/list")
        asked["headers"] |= page
        answer = await client.post(**asked)

    assert (preflight.status_code, answer.status_code) == (200, 200)
    assert preflight.headers["access-control-allow-origin"] == "https://app.example.com"
    assert answer.headers["access-control-allow-origin"] == "https://app.example.com"


async def test_health_is_told_to_anybody(shared: HttpServer) -> None:
    async with shared.client() as client:
        alive = await client.get("/healthz")
        ready = await client.get("/readyz")
        nothing = await client.get("/")

    assert (alive.status_code, alive.text) == (200, "ok\n")
    assert (ready.status_code, ready.json()["ready"]) == (200, True)
    assert ready.json()["snapshot_age"] >= 0
    assert (nothing.status_code, nothing.text) == (404, "Not found. MCP is at /mcp.\n")


def _nested(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


#: In other encodings its letters beyond ASCII have the byte of a quote: the brackets seem to be in a text.
MESSAGE = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", '
    '"capabilities": {"experimental": {"\u0122": ' + "[" * 100 + "]" * 100 + ', "\u0122 ": 1}}, '
    '"clientInfo": {"name": "x", "version": "1"}}}'
)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(b"x" * 10_001, 413, id="large"),
        pytest.param(_nested(65), 400, id="deep"),
        pytest.param(b"[" * 9_000, 400, id="open"),
        pytest.param(b'{"jsonrpc": "2.0", "id": 1, "method"', 400, id="half"),
        pytest.param(b"\xff\xfe", 400, id="no text"),
        pytest.param(b"[]", 400, id="batch"),
        pytest.param(b"", 400, id="empty"),
    ],
)
@pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
async def test_bodies_that_are_no_message_are_refused(
    version: str, body: bytes, status: int, shared: HttpServer
) -> None:
    async with shared.client() as client:
        answer = await client.post(**posted(body, {"MCP-Protocol-Version": version, "Mcp-Method": "x"}))
        after = await call(client, "get_person", {"id": 1})

    assert answer.status_code == status
    assert after["structuredContent"] == {"row": {"id": 1, "name": "Ada"}}


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
async def test_body_in_another_encoding_than_utf8_is_refused(encoding: str, shared: HttpServer) -> None:
    async with shared.client() as client:
        answer = await client.post(**posted(MESSAGE.encode(encoding)))

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == PARSE_ERROR


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
    assert is_too_much(body) is much


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


async def test_session_that_is_not_there_is_not_found(shared: HttpServer) -> None:
    headers = {SESSION: "0" * 32, "MCP-Protocol-Version": HANDSHAKE}
    async with shared.client() as client:
        answer = await client.post(**posted({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers))

    assert answer.status_code == 404


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


@pytest.mark.parametrize("id", [7, "7", "a"])
async def test_id_of_a_request_that_runs_is_taken_in_its_session(id: object, server: HttpServer) -> None:
    def slow(session: dict[str, str], id: object) -> dict[str, Any]:
        params = {"name": "list_slow", "arguments": {}}
        return posted({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}, session)

    async with server.client() as client:
        one, other = await open_session(client), await open_session(client)
        ping = {"jsonrpc": "2.0", "id": id, "method": "ping"}
        async with client.stream("POST", **slow(one, id)) as running:
            same = await client.post(**posted(ping, one))
            another = await client.post(**posted({**ping, "id": "b"}, one))
            elsewhere = await client.post(**posted(ping, other))

    assert running.status_code == 200
    assert (same.status_code, same.json()["error"]["code"]) == (400, -32600)
    assert (another.status_code, elsewhere.status_code) == (200, 200)


async def test_id_is_taken_as_the_sdk_reads_it(server: HttpServer) -> None:
    written = b'{"jsonrpc": "2.0", "id": 7, "x": NaN, "method": "%s", "params": {"name": "list_slow"}}'
    async with server.client() as client:
        session = posted({}, await open_session(client))
        async with client.stream("POST", **{**session, "content": written % b"tools/call"}):
            same = await client.post(**{**session, "content": written % b"ping"})

    assert same.status_code == 400


async def test_id_of_a_request_whose_client_has_left_is_taken_until_it_ends(
    changing: Changing, server: HttpServer
) -> None:
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "list_slow"}}
    async with server.client() as client:
        session = await open_session(client)
        async with client.stream("POST", **posted(call, session)) as stream:
            assert stream.status_code == 200
        taken = await client.post(**posted({**call, "method": "ping"}, session))
        told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        await client.post(**posted(told, session))
        with anyio.fail_after(PATIENCE):
            while (
                free := await client.post(**posted({**call, "method": "ping"}, session))
            ).status_code == 400:
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


async def test_calls_beyond_those_that_are_answered_are_told_to_come_again(server: HttpServer) -> None:
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


async def test_client_that_hangs_up_stops_its_statement(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    tmp_path: Path,
) -> None:
    running = "select count(*) from pg_stat_activity where query like '%slow%' and state = 'active'"
    with postgresql_database(DDL) as url:
        async with http_server(_configured(url, tmp_path), tmp_path) as server:
            for version in (HANDSHAKE, MODERN):
                async with server.client() as client:
                    asked = modern("tools/call", {"name": "list_slow", "arguments": {}})
                    if version == HANDSHAKE:
                        session = await open_session(client)
                        message = {"name": "list_slow", "arguments": {}}
                        asked = posted(
                            {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": message}, session
                        )
                    async with anyio.create_task_group() as group:
                        group.start_soon(lambda asked=asked, client=client: client.post(**asked))  # type: ignore[misc]
                        await _until(url, running, 1)
                        if version == HANDSHAKE:
                            cancelled = {"requestId": 1}
                            note = {
                                "jsonrpc": "2.0",
                                "method": "notifications/cancelled",
                                "params": cancelled,
                            }
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


@pytest.mark.parametrize("stateless", [False, True])
async def test_changes_are_told_to_those_who_listen(
    stateless: bool, changing: Changing, tmp_path: Path
) -> None:
    options = ("--stateless",) if stateless else ()
    listening = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="w")
    async with http_server(changing.url, tmp_path, *options) as server, server.client() as client:
        opened = events((await client.post(**initialize())).text)[0]["result"]["capabilities"]
        async with client.stream("POST", **listening) as stream:
            lines = aiter(stream.aiter_lines())
            await _event(lines)
            if not stateless:
                session = await open_session(client)
                accept = {"Accept": "text/event-stream"}
                async with client.stream("GET", "/mcp", headers={**session, **accept}) as other:
                    await changing.change("alter table person add column nick text")
                    told = await _event(aiter(other.aiter_lines()))
                assert told["method"] in (CHANGED, "notifications/resources/list_changed")
            else:
                await changing.change("alter table person add column nick text")
            heard = await _event(lines)

    assert opened["tools"].get("listChanged", False) is not stateless
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


@pytest.mark.parametrize(
    "options", [("--http", "nowhere"), ("--http", "127.0.0.1:99999"), ("--workers", "2")]
)
async def test_wrong_options_are_told(options: tuple[str, ...], shared: HttpServer, tmp_path: Path) -> None:
    from tests.protocol.command_line import run

    answer = run("serve", "sample.db", *options)

    assert (answer.exit_code, answer.stdout) == (2, "")
    assert "--" in answer.stderr


async def test_address_that_is_taken_is_told(shared: HttpServer) -> None:
    command = [sys.executable, "-m", "dbtools", "serve", "sample.db", "--http", f"127.0.0.1:{shared.port}"]

    ended = await anyio.run_process(command, check=False, cwd=ROOT)

    assert ended.returncode == 2
    assert b"Cannot listen at 127.0.0.1" in ended.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.1:8000"])
async def test_listener_that_others_reach_wants_to_know_them(address: str) -> None:
    from tests.protocol.command_line import run

    answer = run("serve", "sample.db", "--http", address)

    assert answer.exit_code == 2
    assert "must require authentication" in answer.stderr


async def test_slow_heads_and_bodies_hold_up_nobody(
    shared: HttpServer,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    writer.write(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
    other_reader, other_writer = await asyncio.open_connection("127.0.0.1", shared.port)
    other_writer.write(b"GET /healthz HT")
    async with shared.client() as client:
        answered = await call(client, "get_person", {"id": 2})
    with anyio.fail_after(BODY_IN + PATIENCE):
        slow = await reader.read(12)
        unfinished = await other_reader.read()
    for each in (writer, other_writer):
        each.close()
        await each.wait_closed()

    assert answered["structuredContent"]["row"]["name"] == "Bo"
    assert slow == b"HTTP/1.1 408"
    assert unfinished == b""


@pytest.mark.parametrize("workers", ["1", "2"])
def test_server_that_cannot_count_calls_does_not_start(workers: str, path: Path, tmp_path: Path) -> None:
    configuration = tmp_path / "dbtools.toml"
    limits = '[limits]\nstorage = "redis://127.0.0.1:1"\ncalls_per_minute = 5\n'
    configuration.write_text(f'[database]\nurl = "{path}"\n{limits}')
    command = (sys.executable, "-m", "dbtools", "serve", str(configuration), "--http", "127.0.0.1:0")

    ended = subprocess.run(
        (*command, "--workers", workers), cwd=ROOT, capture_output=True, timeout=PATIENCE, check=False
    )

    assert ended.returncode == 2
    assert b"[limits] storage: calls cannot be counted there" in ended.stderr


async def test_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    told: list[str] = []
    sent: list[str] = []

    class Operator:
        def warn(self, message: str) -> None:
            told.append(message)

        changed = announce = listening = resolved = warn

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    plan = Plan(
        settings=Settings(database=DatabaseSection(url=f"sqlite:///{tmp_path / 'gone.db'}")),
        anonymous=Caller(),
        operator=Operator(),  # type: ignore[arg-type]
        address=Address(host="127.0.0.1", port=0),
        stateless=False,
        workers=2,
    )
    await HttpApp(plan)({"type": "lifespan"}, receive, send)

    assert sent == ["lifespan.startup.failed"]
    assert told == [f"{tmp_path / 'gone.db'}: The database file does not exist."]
