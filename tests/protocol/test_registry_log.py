"""`[log] registry`: calls in the tables that dbtools keeps in a database."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from anyio import run as run_async

from tests.protocol.client import spawn
from tests.protocol.test_command_line import run

DDL = "create table note (id integer primary key, body text); insert into note values (1, 'one'), (2, 'two');"
CALLED = "select tool, outcome, code, rows, arguments, truncated, client from {}dbtools_call order by id"


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    """Give the URL of a database with a registry, on each dialect."""
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
    result = run("call", str(path), "get_note", json.dumps({"id": "nul \0 \ud800 'quoted' \\u0000"}))

    (called,) = _calls(url)
    assert result.exit_code == 1
    assert called[:3] == ("get_note", "error", "bad_argument")


def test_registry_that_is_not_named_is_an_error(url: str, tmp_path: Path) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[log]\nregistry = true\n')
    result = run("check", str(path))

    assert result.exit_code == 2
    assert "dbtools.toml:4: log.registry: wants the database of a registry" in result.stderr


def test_registry_without_tables_keeps_no_call_from_its_answer(
    sqlite_database: Callable[[str], Path], tmp_path: Path
) -> None:
    path = _configured(
        tmp_path, f"sqlite:///{sqlite_database(DDL)}", 'registry = true\nfile = "calls.jsonl"\n'
    )
    result = run("call", str(path), "get_note", "id=1")

    assert result.exit_code == 0
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == 1
