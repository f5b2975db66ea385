"""The server's log on stderr: lines of text, or of JSON."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from dbtools.server.http.requests import MOST_KINDS, REASON, RequestMiddleware
from dbtools.server.running import JsonFormatter, begin_log
from dbtools.settings.sections import LogSection, ServerSection
from dbtools.telemetry import REQUEST
from tests.conftest import Clock
from tests.protocol.http_server import call, http_server

DDL = "create table person (id integer primary key); insert into person values (1);"
SECTIONS = """
[tables.nothing]
description = "gone"
[log]
format = "json"
file = "calls.jsonl"
"""


def _configured(url: object, folder: Path) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n{SECTIONS}')
    return path


async def test_each_line_is_an_object(sqlite_database: Callable[[str], Path], tmp_path: Path) -> None:
    path = _configured(sqlite_database(DDL), tmp_path)
    async with http_server(path, tmp_path, "--workers", "2") as server, server.client() as client:
        await call(client, "get_person", {"id": 1})
        await server.end()
        told: list[dict[str, Any]] = [json.loads(line) for line in server.log.read_text().splitlines()]

    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"]) for each in told)
    assert [each["level"] for each in told if " at http:" in each["message"]] == ["info"]
    assert [each["level"] for each in told if "nothing" in each["message"]][:1] == ["error"]


def test_line_tells_of_the_request_and_of_what_went_wrong() -> None:
    REQUEST.set("abc")
    try:
        raise ValueError("one\ntwo")
    except ValueError:
        record = logging.LogRecord("dbtools", logging.ERROR, "", 1, "in %s", ("call",), sys.exc_info())

    line = JsonFormatter().format(record)

    told = json.loads(line)
    assert "\n" not in line
    assert (told["level"], told["message"], told["request"]) == ("error", "in call", "abc")
    assert told["exception"].endswith("ValueError: one\ntwo")


def test_closed_stderr_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        begin_log(LogSection())
        logging.getLogger("dbtools").error("told")
        monkeypatch.undo()
        begin_log(LogSection())
        with pytest.raises(BrokenPipeError):
            gone.close()


async def _answered(requests: RequestMiddleware, times: int) -> None:
    async def nothing(*_: object) -> Any:
        return None

    for at in range(times):
        await requests({"type": "http", "path": "/mcp", "headers": [], "at": at}, nothing, nothing)


ANONYMOUS, EXPIRED, MISDIRECTED = "1 with 401 (no token)", "1 with 401 (expired)", "1 with 421"
#: What is logged of requests that come so many seconds one after the other.
LOGGED = {
    0: [f"{ANONYMOUS}.", f"{ANONYMOUS}, {MISDIRECTED}.", f"{EXPIRED}, {ANONYMOUS}."],
    60: [f"{each}." for each in (ANONYMOUS, ANONYMOUS, MISDIRECTED, ANONYMOUS, EXPIRED, MISDIRECTED)],
}


@pytest.mark.parametrize(("seconds", "expected"), LOGGED.items())
async def test_first_rejection_of_a_kind_is_logged_with_those_that_were_counted(
    seconds: int, expected: list[str], clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    answers = [(401, "no token"), (401, "no token"), (421, ""), (200, ""), (404, ""), (401, "no token")]
    answers += [(401, "expired"), (421, "")]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        status, scope[REASON] = answers[scope["at"]]
        clock.advance(seconds)
        await send({"type": "http.response.start", "status": status, "headers": []})

    def logged() -> list[str]:
        return [record.getMessage().partition(": ")[2] for record in caplog.records]

    requests = RequestMiddleware(answer, ServerSection(), local=True, exempt=["/mcp"])
    await _answered(requests, len(answers))
    before = logged()
    requests.report()
    requests.report()
    rest = logged()[len(before) :]

    assert before == expected
    assert rest == ([] if seconds else ["1 with 421."])


async def test_kinds_of_rejections_are_no_more_than_so_many(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[REASON] = f"reason {scope['at']}"
        await send({"type": "http.response.start", "status": 403, "headers": []})

    requests = RequestMiddleware(answer, ServerSection(), local=True, exempt=["/mcp"])
    await _answered(requests, 10 * MOST_KINDS)
    before = [each.getMessage() for each in caplog.records]
    requests.report()

    assert len(before) == MOST_KINDS + 1
    assert caplog.messages[-1] == f"Requests have been refused: {9 * MOST_KINDS - 1} with 403."


async def test_rejections_that_were_counted_are_logged_at_the_end(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    async with http_server(sqlite_database(DDL), tmp_path) as server:
        async with server.client(Host="evil.example.com") as client:
            statuses = [(await client.get("/mcp")).status_code for _ in range(3)]
        await server.end()
        log = server.log.read_text()

    assert statuses == [421] * 3
    assert [line for line in log.splitlines() if "refused" in line] == [
        "dbtools: Requests have been refused: 1 with 421.",
        "dbtools: Requests have been refused: 2 with 421.",
    ]
