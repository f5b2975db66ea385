"""How soon a client is notified of a migration, and what it costs to watch an unchanged schema."""

import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import asyncpg
import psutil  # type: ignore[import-untyped]
import pytest

from dbtools.backends import open_backend
from dbtools.schema.catalog import Selection
from tests.benchmarks import databases
from tests.benchmarks.conftest import Build, Target
from tests.benchmarks.contest import Figure
from tests.protocol.changing import HANDSHAKE, Hearing, hearing

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]
ROUNDS = 7
IDLE = 20.0  #: seconds
COLUMNS = count(1)


@pytest.fixture(scope="module", params=[100, 1_000])
def tables(request: pytest.FixtureRequest, build: Build) -> tuple[int, Target]:
    number: int = request.param
    script = "".join(f"create table t{at} (id integer primary key, a text, b text);" for at in range(number))
    return number, build(f"pragma journal_mode = wal; {script}", script)


async def _commit(target: Target) -> None:
    """Add a column to a table, and return when that has been committed."""
    sql = f"alter table t1 add column c{next(COLUMNS)} text"
    if target.dialect == "SQLite":
        path = urlsplit(target.url).path

        def execute() -> None:
            with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
                connection.execute(sql)

        await anyio.to_thread.run_sync(execute)
        return
    connection = await asyncpg.connect(target.url)
    await connection.execute(sql)
    await connection.close(timeout=5)


async def _introspection(target: Target) -> float:
    """Return how many seconds it takes to read the catalog."""
    database = open_backend(target.url)
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await database.introspect(Selection())
        times.append(time.perf_counter() - began)
    await database.close()
    return min(times)


async def _heard(target: Target, folder: Path, wait: Callable[[Hearing], Awaitable[object]]) -> list[float]:
    """Return the seconds from each commit until a client of a warm server has heard of it, sorted."""
    times = []
    async with hearing(target.url, folder, HANDSHAKE) as client:
        await client.tools()
        await client.client.call("list_t1", {"limit": 1})
        await _commit(target)
        await wait(client)
        for _ in range(ROUNDS):
            await _commit(target)
            began = time.perf_counter()
            await wait(client)
            times.append(time.perf_counter() - began)
    return sorted(times)


async def test_client_hears_soon_of_what_is_looked_at(
    tables: tuple[int, Target], tmp_path: Path, report: Report
) -> None:
    number, target = tables
    times = await _heard(target, tmp_path, Hearing.told)
    interval = open_backend(target.url).facts.interval

    figure = report(
        Figure(
            measured=f"commit to notice, by looking, {number} tables",
            dialect=target.dialect,
            ours=times[-1],
            floor=interval + await _introspection(target),
            floor_is="the interval, and reading the catalog",
        )
    )
    assert figure.ratio < 2


async def test_client_hears_at_once_of_what_the_server_tells(
    tables: tuple[int, Target], tmp_path: Path, report: Report
) -> None:
    number, target = tables
    if target.dialect == "SQLite":
        pytest.skip("a file tells nobody")
    await open_backend(target.url).install_watch()
    times = await _heard(target, tmp_path, Hearing.told)

    figure = report(
        Figure(
            measured=f"commit to notice, by LISTEN, {number} tables",
            dialect=target.dialect,
            ours=times[len(times) // 2],
            floor=await _introspection(target),
            floor_is="reading the catalog",
        )
    )
    assert figure.ratio < 5


async def test_call_that_comes_first_meets_the_new_schema(
    tables: tuple[int, Target], tmp_path: Path, report: Report
) -> None:
    number, target = tables

    async def call(client: Hearing) -> object:
        return await client.client.call("list_t1", {"limit": 1})

    times = await _heard(target, tmp_path, call)

    figure = report(
        Figure(
            measured=f"first call after a commit, {number} tables",
            dialect=target.dialect,
            ours=times[len(times) // 2],
            floor=await _introspection(target),
            floor_is="reading the catalog",
        )
    )
    assert figure.ratio < 6


async def test_watching_costs_next_to_nothing_while_nothing_happens(
    build: Build, tmp_path: Path, report: Report
) -> None:
    target = build(databases.sqlite_wide(), databases.postgresql_wide())
    async with hearing(target.url, tmp_path, HANDSHAKE) as client:
        await client.tools()
        process = psutil.Process(client.client.process.pid)  # type: ignore[attr-defined]
        await anyio.sleep(3)
        before, began = sum(process.cpu_times()[:2]), time.perf_counter()
        await anyio.sleep(IDLE)
        spent, passed = sum(process.cpu_times()[:2]) - before, time.perf_counter() - began

    figure = report(
        Figure(
            measured="a core, while idle, 1,000 tables",
            dialect=target.dialect,
            ours=spent,
            floor=passed,
            floor_is="the time that passes",
        )
    )
    assert figure.ratio < 0.01
