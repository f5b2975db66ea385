"""What a server tells of itself on stderr: lines of text, or of JSON."""

import json
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from dbtools.server.logs import JsonFormatter, StderrHandler
from dbtools.server.requests import MOST_REASONS, REASON, Refusals, Requests
from dbtools.telemetry import REQUEST
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


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
async def test_each_line_is_an_object(
    options: tuple[str, ...], sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = _configured(sqlite_database(DDL), tmp_path)
    async with http_server(path, tmp_path, *options) as server, server.client() as client:
        await call(client, "get_person", {"id": 1})
        await server.end()
        told: list[dict[str, Any]] = [json.loads(line) for line in server.log.read_text().splitlines()]

    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"]) for each in told)
    assert [each["level"] for each in told if "served at" in each["message"]] == ["info"]
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


def test_nobody_who_reads_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as gone:
        monkeypatch.setattr(sys, "stderr", gone)
        StderrHandler().handle(logging.makeLogRecord({"msg": "told"}))
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            gone.close()


@pytest.mark.parametrize("minute", [0.0, 60.0])
async def test_first_refusals_of_a_kind_are_told_at_once_and_the_others_together(
    minute: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("dbtools.server.requests.MINUTE", minute)
    caplog.set_level("WARNING")
    answers = [(401, "no token"), (401, "no token"), (421, ""), (200, ""), (404, ""), (401, "no token")]
    answers += [(401, "expired"), (421, "")]

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        status, scope[REASON] = answers[scope["at"]]
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def nothing(*_: object) -> Any:
        return None

    def told() -> list[str]:
        return [record.getMessage().partition(": ")[2] for record in caplog.records]

    refusals = Refusals()
    requests = Requests(answer, refusals)
    async with anyio.create_task_group() as group:
        for at in range(len(answers)):
            await requests({"type": "http", "headers": [], "at": at}, nothing, nothing)
        first = told()
        group.start_soon(refusals.run)
        with anyio.fail_after(5):
            await anyio.wait_all_tasks_blocked()
            while not minute and len(told()) == len(first):
                await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    assert first == ["1 with 401 (no token).", "1 with 421.", "1 with 401 (expired)."]
    assert told()[3:] == ["2 with 401 (no token), 1 with 421."]


async def test_kinds_of_refusals_are_no_more_than_so_many(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope[REASON] = f"reason {scope['at']}"
        await send({"type": "http.response.start", "status": 403, "headers": []})

    async def nothing(*_: object) -> Any:
        return None

    refusals = Refusals()
    requests = Requests(answer, refusals)
    for at in range(10 * MOST_REASONS):
        await requests({"type": "http", "headers": [], "at": at}, nothing, nothing)

    assert len(caplog.records) == MOST_REASONS + 1
