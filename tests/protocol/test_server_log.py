"""What a server tells of itself on stderr: lines of text, or of JSON."""

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

from dbtools.server.logs import JsonFormatter, StderrHandler
from dbtools.server.requests import Requests
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


async def test_refusals_are_told_at_once_and_then_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1_000.0
    monkeypatch.setattr("dbtools.server.requests.time.monotonic", lambda: now)
    caplog.set_level("WARNING")
    statuses = iter((401, 401, 421, 200, 404, 401))

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": next(statuses), "headers": []})

    async def nothing(*_: object) -> Any:
        return None

    requests = Requests(answer)
    for _ in range(5):
        await requests({"type": "http", "headers": []}, nothing, nothing)
    now += 61
    await requests({"type": "http", "headers": []}, nothing, nothing)

    assert [record.getMessage() for record in caplog.records] == [
        "Requests have been refused: 1 with 401.",
        "Requests have been refused: 2 with 401, 1 with 421.",
    ]
