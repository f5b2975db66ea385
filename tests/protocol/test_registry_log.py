"""`[log] registry`: the audit log in the tables of a registry."""

import json
import os
import signal
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from anyio import fail_after, run as run_async

from dbtools.backends.postgresql.registry import PostgresqlRecords
from dbtools.backends.records import Purpose
from dbtools.records.registry import RegistrySink
from tests.protocol.changing import Changing, open_changing
from tests.protocol.client import PATIENCE, spawn
from tests.protocol.command_line import run
from tests.protocol.test_log import (
    ALL,
    CHANGED,
    NEW,
    NEWEST,
    OLD,
    OLDEST,
    REFUSED,
    TRIED,
    following_in,
    read_lines,
)

DDL = "create table note (id integer primary key, body text); insert into note values (1, 'one'), (2, 'two');"
SLEEPING = (
    "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()"
)
CALLED = "select tool, outcome, code, rows, arguments, truncated, client from {}dbtools_call order by id"


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    """Return the URL of a database with a registry, on each dialect."""
    url = url_of(DDL)
    assert run("registry", "upgrade", url).exit_code == 0
    return url


def _calls(url: str) -> list[tuple[object, ...]]:
    """Return what the registry at *url* has of calls."""
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            rows = connection.execute(CALLED.format("")).fetchall()
        return [
            (*row[:4], json.loads(row[4]), None if row[5] is None else bool(row[5]), row[6]) for row in rows
        ]

    async def fetch() -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(url)
        try:
            rows = await connection.fetch(CALLED.format("dbtools."))
        finally:
            await connection.close()
        return [(*tuple(row)[:4], json.loads(row[4]), row[5], row[6]) for row in rows]

    return run_async(fetch)


def _configured(folder: Path, url: str, log: str) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[registry]\nurl = "{url}"\n[log]\n{log}')
    return path


def test_calls_of_a_server_are_in_the_registry_when_it_has_ended(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'registry = true\nfile = "calls.jsonl"\n')

    async def serve() -> None:
        async with spawn(path, tmp_path) as client:
            await client.open()
            await client.call("list_note", {"limit": 1})
            await client.call("get_note", {"id": 9})
            await client.call("get_note", {"id": "\ud800\0"})
            client.hang_up()
            assert await client.status() == 0

    run_async(serve)
    assert _calls(url) == [
        ("list_note", "ok", None, 1, {"limit": 1}, True, "raw"),
        ("get_note", "error", "no_row", None, {"id": "…"}, None, "raw"),
        ("get_note", "error", "bad_argument", None, {"id": "…"}, None, "raw"),
    ]
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 3


def test_values_may_be_anything(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, "registry = true\narguments = true\n")
    odd = run("call", str(path), "get_note", json.dumps({"id": "nul \0 \ud800 'quoted' \\u0000"}))
    right = run("call", str(path), "get_note", "id=1", "--json")

    assert [call[:3] for call in _calls(url)] == [
        ("get_note", "error", "bad_argument"),
        ("get_note", "ok", None),
    ]
    assert odd.exit_code == 1
    assert (right.exit_code, json.loads(right.stdout)["row"]["body"], right.stderr) == (0, "one", "")


def test_registry_without_tables_keeps_no_call_from_its_answer(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = _configured(
        tmp_path, f"sqlite:///{sqlite_database(DDL)}", 'registry = true\nfile = "calls.jsonl"\n'
    )
    result = run("call", str(path), "get_note", "id=1")

    assert result.exit_code == 0
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 1


def _write(url: str, *lines: str) -> None:
    sink = RegistrySink(url)
    sink.write(deque(line.encode() for line in lines))
    sink.close()


def _printed(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def test_log_reads_what_the_registry_keeps(url: str, tmp_path: Path) -> None:
    path = str(_configured(tmp_path, url, "registry = true\n"))
    _write(url, *ALL, CHANGED, TRIED, REFUSED)
    cases = [
        ((), [*ALL, CHANGED, TRIED, REFUSED]),
        (("--tool", "list_*"), [OLDEST, NEW, NEWEST]),
        (("--role", "support"), [OLDEST, NEW]),
        (("--outcome", "denied"), [OLD]),
        (("--since", "90m"), [NEW, NEWEST, CHANGED, TRIED, REFUSED]),
        (("--since", "1h", "--role", "support", "--tool", "list_*"), [NEW]),
        (("--writes",), [CHANGED, TRIED, REFUSED]),
    ]
    for options, lines in cases:
        result = run("log", path, "--json", *options)
        found = _printed(result.stdout.splitlines())

        assert (result.exit_code, result.stderr) == (0, "")
        assert [list(each.items()) for each in found] == [list(each.items()) for each in _printed(lines)]
    assert "support (ann)" in run("log", path).stdout


def test_changes_are_kept_where_that_is_wanted(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, 'registry = true\nfile = "calls.jsonl"\nchanges = true\n')
    path.write_text(path.read_text().replace("[registry]", "writable = true\n[registry]"))
    run("call", str(path), "update_note", "id=1", 'set={"body": "new"}')
    (call,) = _printed(run("log", str(path), "--json").stdout.splitlines())

    assert call == json.loads((tmp_path / "calls.jsonl").read_text())
    assert (call["affected"], call["dry_run"], call["confirmed"]) == (1, False, None)
    assert call["changes"] == [{"key": {"id": 1}, "old": {"body": "one"}, "new": {"body": "new"}}]


def test_log_of_many_calls_is_read_whole(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, "registry = true\n")
    for _ in range(4):
        _write(url, *[NEW] * 400)
    result = run("log", str(path), "--json")

    assert len(result.stdout.splitlines()) == 1_600


@pytest.fixture(params=["sqlite", "postgresql"])
def changing(request: pytest.FixtureRequest) -> Iterator[Changing]:
    """Yield a database with a registry, and a hand that changes it."""
    with open_changing(request.param, DDL, request) as changing:
        assert run("registry", "upgrade", changing.url).exit_code == 0
        yield changing


def test_follow_prints_calls_as_they_come_into_the_registry(changing: Changing, tmp_path: Path) -> None:
    _configured(tmp_path, changing.url, "registry = true\n")
    _write(changing.url, *ALL)
    table = "dbtools_call" if changing.dialect == "sqlite" else "dbtools.dbtools_call"
    forced = "" if changing.dialect == "sqlite" else "overriding system value"
    insert = f"insert into {table} (id, time, tool, arguments, outcome) {forced} values "
    with following_in(tmp_path, "--json", "--follow", "--tool", "t*") as process:
        # Another server may have begun to write before.
        for number in (100, 99, 101, 98):
            changing.execute(f"{insert} ({number}, '2026-03-01 12:00:00', 't{number}', '{{}}', 'ok')")
            (line,) = read_lines(process, 1)
            assert json.loads(line)["tool"] == f"t{number}"
        process.send_signal(signal.SIGINT)
        rest, complaint = process.communicate(timeout=PATIENCE)

    assert (rest, complaint, process.returncode) == ("", "", 130)


def test_interrupt_ends_a_step_and_leaves_no_thread(postgresql_url: str) -> None:
    async def interrupt() -> None:
        watcher = await asyncpg.connect(postgresql_url)
        try:
            with fail_after(PATIENCE):
                while not await watcher.fetchval(SLEEPING):
                    pass
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            await watcher.close()

    assert run("registry", "upgrade", postgresql_url).exit_code == 0
    threads, interrupting = {*threading.enumerate()}, threading.Thread(target=run_async, args=(interrupt,))
    store = PostgresqlRecords(postgresql_url, None)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt), closing(store), store.begin(Purpose.READ_CALLS):
        store.fetch("select pg_sleep(60)", ())
    interrupting.join()

    assert {*threading.enumerate()} == threads


def test_sink_goes_on_once_the_database_has_a_registry(url_of: Callable[[str], str]) -> None:
    url = url_of(DDL)
    sink, lines = RegistrySink(url), deque([NEW.encode()] * 3)
    with pytest.raises(OSError, match=r"the registry cannot be written: .*dbtools_call"):
        sink.write(lines)
    kept = len(lines)
    assert run("registry", "upgrade", url).exit_code == 0
    sink.write(lines)
    sink.close()

    assert (kept, len(lines), len(_calls(url))) == (3, 0, 3)


def test_locked_file_takes_the_same_calls_later(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    assert run("registry", "upgrade", url).exit_code == 0
    sink, lines = RegistrySink(url), deque([NEW.encode()])
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.raises(OSError, match=r"the registry cannot be written: .*locked"):
            sink.write(lines)
        other.execute("rollback")
    sink.write(lines)
    sink.close()

    assert len(_calls(url)) == 1


def test_rows_of_others_are_read_whatever_they_hold(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    assert run("registry", "upgrade", url).exit_code == 0
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        insert = "insert into dbtools_call (time, tool, arguments, truncated, outcome) values (?, ?, ?, ?, ?)"
        connection.execute(insert, ("2026-03-01 12:00:00", b"\xff", "{", 0, "ok"))
        connection.execute(insert, ("soon", "t", '{"a": 1}', 1, "ok"))
    result = run("log", str(_configured(tmp_path, url, "registry = true\n")), "--json")

    found = [
        (call["time"], call["tool"], call["arguments"], call["truncated"])
        for call in _printed(result.stdout.splitlines())
    ]
    assert found == [("2026-03-01T12:00:00.000Z", "\ufffd", None, False), (None, "t", {"a": 1}, True)]
