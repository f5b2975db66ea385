"""A row by its key from a file: read where it is asked for, while nothing has to be waited for."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from dbtools.backends import url_of_file
from dbtools.backends.plans import Plan
from dbtools.backends.port import Label, Run
from dbtools.backends.sqlite.location import Location, location_of
from dbtools.backends.sqlite.lookups import LARGEST_VALUE, PAUSE, RETRY, Lookups
from dbtools.backends.sqlite.runner import SqliteRunner
from dbtools.backends.sqlite.stamps import identity_of, stamp_of
from dbtools.catalog import Catalog
from dbtools.results import ResultSet
from dbtools.statement import Condition, Output, Select
from dbtools.types import Operator
from tests.database.conftest import Serve
from tests.database.shop import Shop, rows_of

DDL = """
create table item (id integer primary key, name text, body text);
insert into item values (1, 'one', 'short'), (2, 'two', cast(x'ff41' as text));
insert into item values (3, 'three', zeroblob(2000000)), (4, 'four', zeroblob(101));
"""
PATIENCE = 5  #: seconds
ONE = [1, "one", "short"]


@pytest.fixture(scope="module")
def shop(serve: Serve) -> Iterator[Shop]:
    """Give a file that is served."""
    with serve("sqlite", DDL) as shop:
        yield shop


@dataclass(frozen=True)
class Looked:
    """What looks up rows of `item` in a file by their ids."""

    lookups: Lookups
    plan: Plan
    stamp: str

    def look(self) -> None:
        """See what is in the file now."""
        self.lookups.look()
        self.lookups.are_current = True

    def row(self, id: object) -> list[object] | None:
        """Return the row *id*, None where it has to be read with time."""
        label = Label(comment="/*abc*/ ")
        run = Run(self.plan, {"id": id}, limit=1, timeout=5, stamp=self.stamp, label=label)
        found = self.lookups.fetch(run)
        return None if found is None else list(found.rows[0])


def _catalog(shop: Shop) -> Catalog:
    return shop.portal.call(shop.toolbox.snapshot).catalog


def _stamp(where: Location) -> str:
    with closing(sqlite3.connect(where.path)) as connection:
        return stamp_of(connection, identity_of(where))


@contextmanager
def _looked(shop: Shop, url: str) -> Iterator[Looked]:
    (item,) = _catalog(shop).tables
    condition = Condition(term=item.columns[0], operator=Operator.EQ, parameters=("id",))
    outputs = tuple(Output(term=column, cut=100) for column in item.columns)
    plan = SqliteRunner(location_of(url)).compile(
        Select(table=item, outputs=outputs, conditions=(condition,))
    )
    with closing(Lookups(location_of(url))) as lookups:
        looked = Looked(lookups, plan, _stamp(location_of(url)))
        looked.look()
        yield looked


@pytest.fixture
def looked(shop: Shop) -> Iterator[Looked]:
    """Give lookups of the file."""
    with _looked(shop, shop.database.url) as looked:
        yield looked


def test_rows_are_as_they_are_by_way_of_a_thread(shop: Shop, looked: Looked) -> None:
    listed = rows_of(shop.call("list_item", {"where": [{"column": "id", "value": "1"}]}).structured)

    assert looked.row(1) == listed[0] == ONE


@pytest.mark.parametrize(("id", "length"), [(1, 8), (2, 5), (3, 105), (4, 104)])
def test_length_of_what_is_read_is_counted(shop: Shop, looked: Looked, id: int, length: int) -> None:
    run = Run(looked.plan, {"id": id}, limit=1, timeout=5, stamp=looked.stamp)
    runner = SqliteRunner(location_of(shop.database.url))
    by_thread = shop.portal.call(_run_with_time, runner, run)
    at_once = looked.lookups.fetch(run)

    assert by_thread.length == length
    assert at_once is None or at_once == by_thread


async def _run_with_time(runner: SqliteRunner, run: Run) -> ResultSet:
    try:
        return await runner.run(run)
    finally:
        await runner.close()


def test_comment_reaches_the_database(looked: Looked) -> None:
    seen: list[str] = []
    assert looked.lookups._connection is not None
    looked.lookups._connection.set_trace_callback(seen.append)

    looked.row(1)

    assert [each.lower()[:14] for each in seen if "item" in each] == ["/*abc*/ select"]


def test_what_would_take_time_is_left(looked: Looked) -> None:
    assert LARGEST_VALUE < 2_000_000
    assert [looked.row(id) for id in (2, 3, 4)] == [None] * 3
    assert looked.row(1) == ONE


def test_lock_is_not_waited_for(shop: Shop, looked: Looked) -> None:
    with closing(sqlite3.connect(location_of(shop.database.url).path, isolation_level=None)) as writer:
        writer.execute("begin exclusive")
        locked = looked.row(1)
        writer.execute("rollback")

    assert (locked, looked.row(1)) == (None, ONE)


def test_statement_that_takes_long_is_left_for_a_while(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = (
        " AS t, (with recursive n (i) as (select 1 union all select i + 1 from n where i < {}) "
        "select count(*) from n) "
    )
    sql = looked.plan.sql.replace(" AS t \n", counting)
    plans = (replace(looked.plan, sql=sql.format(most)) for most in (9, 100_000))
    quick, slow = (replace(looked, plan=plan) for plan in plans)

    assert [quick.row(1) for _ in range(2_000)] == [ONE] * 2_000
    assert (slow.row(1), quick.row(1)) == (None, ONE)

    monkeypatch.setattr("dbtools.backends.sqlite.lookups.MOST_LOOKS", 10**9)
    now = time.monotonic()
    assert slow.row(1) is None
    monkeypatch.setattr("dbtools.backends.sqlite.lookups.time.monotonic", lambda: now + PAUSE + 1)
    assert slow.row(1) == ONE


def test_another_schema_is_left_and_another_file_is_lost(shop: Shop, looked: Looked, tmp_path: Path) -> None:
    copies = [tmp_path / "served.db", tmp_path / "copy.db"]
    for copy in copies:
        shop.bare.execute("vacuum into ?", str(copy))
    url = url_of_file(copies[0])

    assert replace(looked, stamp=f"{looked.stamp}0").row(1) is None
    with _looked(shop, url) as other:
        assert other.row(1) == ONE
        copies[1].rename(copies[0])
        assert other.row(1) is None
        assert other.lookups._connection is None


def test_file_that_has_been_written_is_looked_at_with_time_first(shop: Shop, looked: Looked) -> None:
    shop.bare.execute("update item set body = 'longer' where id = 1")
    written = looked.row(1)
    again = looked.row(1)
    looked.look()
    seen = looked.row(1)
    shop.bare.execute("update item set body = 'short' where id = 1")

    assert (written, again, seen) == (None, None, [1, "one", "longer"])


def test_statement_whose_one_operation_took_long_twice_is_left_then(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dbtools.backends.sqlite.lookups.LONG", -1.0)

    assert (looked.row(1), looked.row(1), looked.row(1)) == (ONE, ONE, None)


def test_value_that_cannot_be_bound_is_left(looked: Looked) -> None:
    assert looked.row("\ud800") is None
    assert looked.row(1) == ONE


def test_lookups_are_there_again_after_a_lock_a_write_and_a_reopening(serve: Serve) -> None:
    with serve("sqlite", DDL) as shop:
        runner = shop.portal.call(_runner, shop)
        lookups = runner._lookups

        def told() -> tuple[str, bool]:
            row = shop.call("get_item", {"id": 1}).structured["row"]
            assert isinstance(row, dict)
            return row["body"], lookups.are_current

        begun = told()
        shop.bare.execute("update item set body = 'longer' where id = 1")
        written = [told(), told()]
        shop.portal.call(runner.reopen)
        reopened = lookups._connection
        again = told()

    assert begun == ("short", True)
    assert written == [("longer", True)] * 2
    assert (reopened, again) == (None, ("longer", True))
    assert lookups._connection is None


async def _runner(shop: Shop) -> SqliteRunner:
    runner: Any = await shop.database.runner()
    assert isinstance(runner, SqliteRunner)
    return runner


async def test_lookups_that_cannot_be_opened_are_tried_again(
    sqlite_database: Callable[[str], Path],
) -> None:
    path = sqlite_database(DDL)
    runner = SqliteRunner(location_of(url_of_file(path)))
    await runner.ready()
    lookups = runner._lookups
    lookups.drop()

    async def is_there() -> bool:
        await runner.ready()
        return lookups.are_current

    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("begin exclusive")
        locked = await is_there()
        writer.execute("rollback")
    at_once = await is_there()
    lookups._retry -= RETRY
    later = await is_there()
    await runner.close()

    assert (locked, at_once, later) == (False, False, True)
    assert lookups._connection is None


class Held(Lookups):
    """Lookups whose looks at the file last until `release` is set, each with its thread."""

    def __init__(self, where: Location) -> None:
        super().__init__(where)
        self.loop, self.ended_on = asyncio.get_running_loop(), 0
        self.looked, self.ended, self.release = asyncio.Event(), asyncio.Event(), threading.Event()

    def look(self) -> None:
        super().look()
        self.loop.call_soon_threadsafe(self.looked.set)
        self.release.wait(PATIENCE)

    def _end(self, renewal: asyncio.Future[None]) -> None:
        super()._end(renewal)
        self.ended_on = threading.get_ident()
        self.ended.set()


@pytest.mark.parametrize("end", ["reopen", "close"])
async def test_lookups_are_closed_once_the_thread_that_renews_them_is_done(
    end: str, sqlite_database: Callable[[str], Path]
) -> None:
    where = location_of(url_of_file(sqlite_database(DDL)))
    runner, lookups = SqliteRunner(where), Held(where)
    runner._lookups = lookups
    with anyio.fail_after(PATIENCE):
        renewing = asyncio.create_task(runner.ready())
        await lookups.looked.wait()
        opened, current = lookups._connection, lookups.are_current
        await getattr(runner, end)()
        kept = lookups._connection
        lookups.release.set()
        await renewing
    due = lookups.are_due
    await runner.close()

    assert (kept is opened is not None, current) == (True, False)
    assert (lookups._connection, lookups.are_current, due) == (None, False, end == "reopen")
    assert lookups.ended_on == threading.get_ident()


async def test_thread_that_nobody_waits_for_still_renews_lookups(
    sqlite_database: Callable[[str], Path],
) -> None:
    where = location_of(url_of_file(sqlite_database(DDL)))
    with closing(Held(where)) as lookups, anyio.fail_after(PATIENCE):
        renewing = asyncio.create_task(lookups.renew())
        await lookups.looked.wait()
        renewing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await renewing
        meanwhile = lookups.are_current, lookups.are_due
        lookups.release.set()
        await lookups.ended.wait()

        assert meanwhile == (False, False)
        assert lookups.are_current
        assert lookups.ended_on == threading.get_ident()


async def test_lookups_are_not_renewed_after_the_end(sqlite_database: Callable[[str], Path]) -> None:
    runner = SqliteRunner(location_of(url_of_file(sqlite_database(DDL))))
    await runner.ready()
    await runner.close()
    # Whoever runs a statement after all has a connection, which is closed below.
    await runner.ready()
    lookups = runner._lookups._connection
    await runner.close()

    assert lookups is None
