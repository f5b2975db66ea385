"""The ID of a request, passed to the database in a comment or as the name of the connection."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast
from unittest.mock import create_autospec

import pytest

from dbtools import errors
from dbtools.backends.sqlite.connection.connections import FileConnection
from dbtools.policy.roles import Caller
from dbtools.records import AuditLog
from dbtools.server.calls import Calls, Limiter
from dbtools.server.mcp.kernel import Peer, Session
from dbtools.server.mcp.protocol import Server
from dbtools.server.mcp.versions import LATEST_HANDSHAKE
from dbtools.server.messages import Code, Request
from dbtools.service.serving import open_served, open_toolbox
from dbtools.settings import Settings
from dbtools.settings.files import load
from dbtools.telemetry import REQUEST
from tests.database.poolers import proxy
from tests.database.shop import pool_of
from tests.protocol.conftest import settings_for
from tests.protocol.http_server import http_server, modern

#: What the server knows of the statement that reads it.
DDL = "create view told as select current_setting('application_name') as name, current_query() as query"
TRACE = "0af7651916cd43dd8448eb211c80319c"

NAMED = 'request_id = "application_name"'


@pytest.fixture(scope="module")
def url(postgresql_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the URL of a database with a view that shows the statement."""
    with postgresql_database(DDL) as url:
        yield url


async def _told(url: str, way: str, folder: Path, headers: dict[str, str], **meta: str) -> dict[str, Any]:
    """Return what the database gets of a call's ID in this *way*, and the `request` of the log."""
    path, log = folder / "dbtools.toml", folder / "calls.jsonl"
    path.write_text(f'[database]\nurl = "{url}"\n{way}\n[log]\nfile = "{log}"\n')
    asked = modern("tools/call", {"name": "list_told", "arguments": {}})
    message = json.loads(asked["content"])
    message["params"]["_meta"] |= meta
    asked |= {"content": json.dumps(message).encode(), "headers": asked["headers"] | headers}
    async with http_server(path, folder) as server, server.client() as client:
        answer = await client.post(**asked)
        content = answer.json()["result"]["structuredContent"]
    row = dict(zip(content["columns"], content["rows"][0], strict=True))
    return row | {"request": json.loads(log.read_text().splitlines()[0]).get("request")}


@pytest.mark.parametrize("given", ["proxy-1.a:b_c", "'; select 1 --", "x" * 51, ""])
async def test_connection_has_the_name_of_the_request(given: str, url: str, tmp_path: Path) -> None:
    told = await _told(url, NAMED, tmp_path, {"X-Request-Id": given})

    assert told["name"] == f"dbtools:{told['request']}"
    assert (told["request"] == given) is (given == "proxy-1.a:b_c")
    assert told["request"]
    assert "/*" not in told["query"]


async def test_name_passes_a_pooler(url: str, tmp_path: Path) -> None:
    async with proxy(url, refuses=True) as pooler:
        told = await _told(pooler, NAMED, tmp_path, {"X-Request-Id": "abc"})

    assert told["name"] == "dbtools:abc"


@pytest.mark.parametrize(
    ("way", "meta", "begins", "request_id"),
    [
        ('request_id = "comment"', {}, "/*request_id='abc'*/ select ", "abc"),
        (
            'request_id = "comment"',
            {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"},
            "/*traceparent='",
            TRACE,
        ),
        ("", {}, "select ", None),
    ],
    ids=["comment", "trace", "not configured"],
)
async def test_statement_has_a_comment_with_the_request_or_its_trace_if_configured(
    way: str, meta: dict[str, str], begins: str, request_id: str | None, url: str, tmp_path: Path
) -> None:
    told = await _told(url, way, tmp_path, {"X-Request-Id": "abc"}, **meta)

    assert told["query"].lower().startswith(begins)
    assert (told["name"], told["request"]) == ("dbtools", request_id)
    assert ("/*" in told["query"]) is bool(way)


async def test_comment_reaches_sqlite(sqlite_database: Callable[[str], Path], tmp_path: Path) -> None:
    path = sqlite_database("create table person (id integer primary key); insert into person values (1);")
    settings = Settings.model_validate({"database": {"url": f"sqlite:///{path}", "request_id": "comment"}})
    served, seen = open_served(settings), list[str]()

    def trace(connection: FileConnection, _: object) -> None:
        connection.driver.set_trace_callback(seen.append)

    try:
        async with (await pool_of(served.backend)).connection() as connection:
            await cast(FileConnection, connection).run(trace)
        calls = Calls(served.toolbox, Limiter(), AuditLog([], arguments=False))
        REQUEST.set("abc")
        await calls.call(Caller(), "list_person", {})
    finally:
        await served.backend.close()

    assert [each for each in seen if each.startswith("/*request_id='abc'*/ ") and "person" in each]


async def test_call_that_is_refused_as_malformed_has_the_id_of_its_request(path: Path) -> None:
    toolbox, database = open_toolbox(settings_for(path))
    log = create_autospec(AuditLog)
    server = Server(toolbox, Calls(toolbox, Limiter(), log, named=True))
    # Another test may have turned tracing on in this process: then it is the ID of the trace.
    trace = "0af7651916cd43dd8448eb211c80319c"
    meta = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    request, sent = Request(1, "tools/call", {"_meta": meta}), list[bytes]()

    REQUEST.set(trace)
    exchange = server.admit(Session(Peer(LATEST_HANDSHAKE)), request, Caller(), sent.append)
    reply = await server.answer(exchange)
    await database.close()

    assert reply.code == Code.INVALID_PARAMS
    assert [each.args[0].request for each in log.record.call_args_list] == [trace]


async def test_names_that_a_role_sees_are_collected_only_for_the_log(path: Path) -> None:
    """Where there are many tables it takes long, and other callers would wait."""
    toolbox, database = open_toolbox(settings_for(path))
    log = create_autospec(AuditLog)
    await Calls(toolbox, Limiter(), log).call(Caller(), "list_person", {})
    view = await toolbox.view("default")
    await database.close()

    assert "vocabulary" not in vars(view.context)
    assert "person" in log.record.call_args.args[0].vocabulary()


def test_file_has_no_name_for_a_connection(sqlite_database: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{sqlite_database("")}"\nrequest_id = "application_name"\n')

    with pytest.raises(errors.ConfigurationError, match=r"dbtools.toml:3: .* have no application name"):
        load(path)
