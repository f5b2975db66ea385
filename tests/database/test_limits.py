"""Limits of time: timeouts and cancellations stop the statement in the database."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from dbtools.answers.results import Answer
from dbtools.backends.sqlite.connection.connections import ConnectionLost, FileConnection, Search
from dbtools.backends.sqlite.connection.files import MATCHES, location_of
from dbtools.backends.sqlite.reading import runner as sqlite_runner
from dbtools.errors import CallError
from dbtools.policy.roles import Caller
from dbtools.settings import LimitsSection
from dbtools.tools.binding import LONGEST_PATTERN, MOST_SEARCHES
from dbtools.values.types import Operator
from tests.database.shop import Serve, Shop
from tests.database.slow_tables import CONNECTIONS, DDL, ENDLESS, code_of, shops as shops

PATIENCE = 30  #: seconds
ENDLESS_VIEWS = [("sqlite", "counting"), ("sqlite", "growing")] + [
    ("postgresql", view) for view in ("counting", "growing", "crossing")
]
FAILING_VIEWS = [("sqlite", "broken"), ("sqlite", "overflowing")] + [
    ("postgresql", view) for view in ("divided", "broken", "overflowing", "raising")
]

SOON = 5.0  #: seconds, half of the timeout of these calls


def _active(shop: Shop) -> int:
    """Return how many statements of the server's run in the database."""
    if shop.dialect == "sqlite":
        return 0
    sql = """
    select count(*) from pg_stat_activity
    where application_name = 'dbtools' and datname = current_database() and state <> 'idle'
    """
    return int(shop.bare.rows(sql)[0][0])


def _are_stopped(shop: Shop) -> bool:
    """Return whether all statements end long before their timeout; a busy server may need a while."""
    ends = time.monotonic() + SOON
    while _active(shop) and time.monotonic() < ends:
        pass
    return _active(shop) == 0


@pytest.mark.parametrize(("dialect", "view"), ENDLESS_VIEWS)
def test_endless_view_is_stopped_by_the_timeout_in_the_database_too(view: str, shop: Shop) -> None:
    codes = {code_of(lambda: shop.page(view)) for _ in range(2)}

    assert codes == {"timeout"}
    assert _active(shop) == 0
    assert len(shop.rows("t")) == 2


@pytest.mark.parametrize(("dialect", "view"), ENDLESS_VIEWS)
def test_cancelled_call_is_stopped_in_the_database_too(
    view: str, dialect: str, shop: Shop, serve: Serve
) -> None:
    with serve(dialect, ENDLESS[dialect] + DDL) as patient:

        async def cancel_all() -> None:
            with anyio.move_on_after(0.2):
                async with anyio.create_task_group() as group:
                    for _ in range(CONNECTIONS[dialect] + 2):
                        group.start_soon(patient.toolbox.call, Caller(), f"list_{view}", {})

        patient.rows("t")
        patient.portal.call(cancel_all)

        assert _are_stopped(patient)
        assert len(patient.rows("t")) == 2


@pytest.mark.parametrize("operator", [Operator.CONTAINS, Operator.ENDS_WITH])
def test_searching_a_long_text_takes_no_longer_for_what_is_sought(
    operator: Operator, dialect: str, serve: Serve
) -> None:
    """LIKE compares almost all that is sought at each character, and cannot be stopped meanwhile."""
    text = {"sqlite": "replace(hex(zeroblob(1000000)), '0', 'a')", "postgresql": "repeat('a', 2000000)"}
    ddl = f"create table t (id int not null primary key, v text); insert into t values (1, {text[dialect]});"
    wanted = ["a" * (LONGEST_PATTERN - MOST_SEARCHES + number) + "b" for number in range(MOST_SEARCHES)]
    where = [{"column": "v", "op": operator, "value": each} for each in wanted]
    with serve(dialect, ddl, limits=LimitsSection(timeout=2)) as shop:
        rows = shop.rows("t", columns=["id"], where=where, match="any")

    assert rows == []


def test_search_in_a_long_text_can_be_stopped() -> None:
    class Over(Exception):
        """The deadline has passed."""

    def check() -> None:
        raise Over

    with closing(sqlite3.connect(":memory:")) as connection:
        search = Search(connection)
        search.check = check
        long = "cast(replace(hex(zeroblob(1000000)), '0', 'a') as blob)"

        with pytest.raises(sqlite3.OperationalError, match="user-defined function"):
            connection.execute(f"select {MATCHES}({long}, 'x', 'contains')").fetchone()


async def test_no_connection_is_opened_in_place_of_one_whose_statement_still_runs(
    sqlite_database: Callable[[str], Path],
) -> None:
    where = location_of(f"sqlite:///{sqlite_database(DDL)}")
    ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    seen = []

    def connect() -> FileConnection:
        seen.append("opened")
        return FileConnection(where)

    async def borrow() -> None:
        async with pool.connection():
            seen.append("lent")

    pool = sqlite_runner.pool_of(connect, size=1)
    async with pool.connection() as first:
        first.ended = ended
    waiting = asyncio.create_task(borrow())
    for _ in range(100):
        await asyncio.sleep(0)  # one turn of the loop, in which another one would be opened
    seen.append("ended")
    ended.set_result(None)
    await waiting
    await pool.dispose()
    await first.close()

    assert seen == ["opened", "ended", "opened", "lent"]


async def test_connection_is_given_up_where_the_wait_for_its_thread_is_cancelled_too(
    sqlite_database: Callable[[str], Path],
) -> None:
    stopping, started, release = asyncio.Event(), asyncio.Event(), threading.Event()
    loop, where = asyncio.get_running_loop(), location_of(f"sqlite:///{sqlite_database(DDL)}")
    seen = []

    class Stopping(FileConnection):
        """A connection that tells when its work is to be stopped."""

        async def interrupt(self) -> None:
            await super().interrupt()
            stopping.set()

    def work(_: FileConnection, cancelled: threading.Event) -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(PATIENCE)
        seen.append(cancelled.is_set())

    async def run() -> None:
        async with pool.connection() as connection:
            lent.append(connection)
            await connection.run(work)

    lent: list[FileConnection] = []
    pool = sqlite_runner.pool_of(lambda: Stopping(where), size=2)
    with anyio.fail_after(PATIENCE):
        running = asyncio.create_task(run())
        await started.wait()
        running.cancel()
        await stopping.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        async with pool.connection() as other:
            lent.append(other)
        with pytest.raises(ConnectionLost):
            await lent[0].run(lambda *_: None)
        release.set()
        assert lent[0].ended is not None
        await lent[0].ended
        await pool.dispose()

    assert lent[0] is not lent[1]
    assert seen == [True]


def test_other_calls_are_answered_while_one_takes_for_ever(dialect: str, serve: Serve) -> None:
    with serve(dialect, ENDLESS[dialect] + DDL) as shop:

        async def call_both() -> Answer:
            async with anyio.create_task_group() as group:
                group.start_soon(shop.toolbox.call, Caller(), "list_counting", {})
                answers = [await shop.toolbox.call(Caller(), "list_t", {}) for _ in range(20)]
                group.cancel_scope.cancel()
            return answers[-1]

        answer = shop.portal.call(call_both)

    assert answer.rows == 2


@pytest.mark.parametrize(("dialect", "view"), FAILING_VIEWS)
def test_failing_view_is_a_clean_error_and_breaks_nothing_else(view: str, shop: Shop) -> None:
    assert code_of(lambda: shop.page(view)) in ("bad_value", "unreadable")
    assert len(shop.rows("t")) == 2


def test_value_that_only_the_database_can_refuse_names_its_column(serve: Serve) -> None:
    table = "create table host (id int primary key, address inet)"
    with serve("postgresql", table) as shop, pytest.raises(CallError) as raised:
        shop.page("host", where=[{"column": "address", "value": "nonsense"}])

    assert raised.value.code == "bad_value"
    assert "address (inet)" in str(raised.value)
    assert "nonsense" not in str(raised.value)
