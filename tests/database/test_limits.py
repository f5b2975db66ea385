"""No call takes more than its limits, and what stops one call leaves everything usable for the next."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from dbtools.backends.pool import Pool
from dbtools.backends.postgresql import runner as postgresql_runner
from dbtools.backends.postgresql.connections import prepare
from dbtools.backends.postgresql.syntax import lexis
from dbtools.backends.sqlite import runner as sqlite_runner
from dbtools.backends.sqlite.connections import Connection, ConnectionLost
from dbtools.backends.sqlite.files import location_of
from dbtools.backends.sqlite.guard import CONTAINS, Search
from dbtools.errors import CallError, DatabaseUnavailable, DbtoolsError
from dbtools.links import ROW_TEMPLATE
from dbtools.policy import Caller
from dbtools.results import Answer
from dbtools.settings import LimitsSection
from dbtools.sql import scan
from dbtools.tools.binding import LONGEST_PATTERN, MOST_SEARCHES
from dbtools.tools.resources import Completed
from dbtools.types import Operator
from tests.database.conftest import Serve, Shops, open_shops
from tests.database.shop import Shop, open_bare, rows_of

SHORT = LimitsSection(timeout=0.3)
PATIENCE = 5  #: seconds
END_ALL = """
select pg_terminate_backend(pid) from pg_stat_activity
where application_name = 'dbtools' and datname = current_database()
"""
CONNECTIONS = {"sqlite": sqlite_runner.CONNECTIONS, "postgresql": postgresql_runner.CONNECTIONS}

#: Views that take for ever, each in another way.
ENDLESS = {
    "sqlite": """
    create view counting as
        with recursive n (i) as (select 1 union all select i + 1 from n)
        select count(*) as total from n;
    create view growing as
        with recursive n (i) as (select 1 union all select i + 1 from n)
        select i from n where i < 0;
    """,
    "postgresql": """
    create view counting as
        with recursive n (i) as (select 1 union all select i # 1 from n)
        select count(*) as total from n;
    create view growing as select pg_sleep(60)::text as i;
    create view crossing as
        select count(*) as i from generate_series(1, 1000000) as a, generate_series(1, 1000000) as b;
    """,
}
DDL = """
create table t (id int not null primary key, v text);
insert into t values (1, 'one'), (2, 'SECRET');
create view divided as select id, 1 / (id - 2) as share from t;
"""
#: Views that fail on a row, in words of the engine's that quote it.
FAILING = {
    "sqlite": """
    create view broken as select id, json_extract(v, '$.a') as number from t;
    create view overflowing as select id, abs(-9223372036854775807 - id) as number from t;
    create view gone as select id from missing;
    """,
    "postgresql": """
    create view broken as select id, v::int as number from t;
    create view overflowing as select id, 2147483647 + id as number from t;
    create function gone() returns int language plpgsql as
        $$ begin raise exception 'SECRET' using detail = 'SECRET', hint = 'SECRET'; end $$;
    create view raising as select gone() as number;
    """,
}
ENDLESS_VIEWS = [("sqlite", "counting"), ("sqlite", "growing")] + [
    ("postgresql", view) for view in ("counting", "growing", "crossing")
]
FAILING_VIEWS = [("sqlite", "broken"), ("sqlite", "overflowing")] + [
    ("postgresql", view) for view in ("divided", "broken", "overflowing", "raising")
]


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give databases whose views take for ever or fail, under a short timeout."""
    ddl = {dialect: DDL + ENDLESS[dialect] + FAILING[dialect] for dialect in ENDLESS}
    with open_shops(serve, ddl, limits=SHORT) as shops:
        yield shops


def code_of(call: Callable[[], object]) -> str:
    """Return the code of the error that *call* ends with, or nothing, or its text where that quotes data."""
    try:
        call()
    except DbtoolsError as exc:
        return exc.code if "SECRET" not in str(exc) else str(exc)
    return ""


def _active(shop: Shop) -> int:
    """Return how many statements of the server's run in the database."""
    if shop.dialect == "sqlite":
        return 0
    sql = """
    select count(*) from pg_stat_activity
    where application_name = 'dbtools' and datname = current_database() and state <> 'idle'
    """
    return int(shop.bare.rows(sql)[0][0])


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

        assert _active(patient) == 0
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

        with pytest.raises(sqlite3.OperationalError, match="user-defined function"):
            connection.execute(f"select {CONTAINS}(cast('text' as blob), 'x')").fetchone()


async def test_no_connection_is_opened_in_place_of_one_whose_statement_still_runs(
    sqlite_database: Callable[[str], Path],
) -> None:
    where = location_of(f"sqlite:///{sqlite_database(DDL)}")
    ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    seen = []

    def connect() -> Connection:
        seen.append("opened")
        return Connection(where)

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

    class Stopping(Connection):
        """A connection that tells when its work is to be stopped."""

        async def interrupt(self) -> None:
            await super().interrupt()
            stopping.set()

    def work(_: Connection, cancelled: threading.Event) -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(PATIENCE)
        seen.append(cancelled.is_set())

    async def run() -> None:
        async with pool.connection() as connection:
            lent.append(connection)
            await connection.run(work)

    lent: list[Connection] = []
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


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_connections_that_the_server_ended_are_replaced_unseen(dialect: str, serve: Serve) -> None:
    with serve(dialect, DDL) as shop:
        _use_every_connection(shop)
        shop.bare.execute(END_ALL)

        answers = [shop.rows("t") for _ in range(CONNECTIONS[dialect] + 1)]

    assert [len(rows) for rows in answers] == [2] * len(answers)


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_conditions_are_understood_where_the_server_has_ended_the_connection(
    dialect: str, serve: Serve
) -> None:
    async def casts() -> tuple[str, ...]:
        table = next(each for each in (await shop.toolbox.snapshot()).catalog.tables if each.name == "t")
        async with shop.database.describe() as describe:
            return await describe.condition(table, scan("id = :claims.id", lexis))

    with serve(dialect, DDL) as shop:
        before = shop.portal.call(casts)
        shop.bare.execute(END_ALL)
        after = shop.portal.call(casts)

    assert before == after
    assert len(before) == 1


async def pool_of(shop: Shop) -> Pool:
    """Return the pool of connections that calls run on."""
    runner: Any = await shop.database.runner()
    pool = runner._pool
    assert isinstance(pool, Pool)
    return pool


def _use_every_connection(shop: Shop) -> None:
    """Let every connection of the pool have served the same call."""

    async def use() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4 * CONNECTIONS[shop.dialect]):
                group.start_soon(shop.toolbox.call, Caller(), "list_t", {})

    shop.portal.call(use)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param("alter table t add column w int", "", id="column added"),
        pytest.param("alter table t rename column v to w", "", id="column renamed"),
        pytest.param("drop view divided; drop table t", "unknown_tool", id="table gone"),
        pytest.param("create index i on t (v)", "", id="index added"),
    ],
)
def test_schema_that_changed_since_is_met_cleanly(change: str, code: str, dialect: str, serve: Serve) -> None:
    with serve(dialect, DDL) as shop:
        _use_every_connection(shop)
        if dialect == "sqlite" and "rename" in change:
            change = "drop view divided; " + change
        shop.bare.execute(change)

        codes = {code_of(lambda: shop.page("t")) for _ in range(CONNECTIONS[dialect] + 1)}

    assert codes == {code}


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_type_that_changed_since_is_unseen_on_every_connection(dialect: str, serve: Serve) -> None:
    with serve(dialect, "create table t (id int primary key, v int); insert into t values (1, 2)") as shop:
        _use_every_connection(shop)
        shop.bare.execute("alter table t alter column v type text")

        answers = [shop.rows("t") for _ in range(CONNECTIONS[dialect] + 1)]

    assert answers == [[[1, "2"]]] * len(answers)


def test_rows_are_limited_by_default_and_at_most(dialect: str, serve: Serve) -> None:
    ddl = "create table t (id int not null primary key);"
    numbers = ", ".join(f"({number})" for number in range(300))
    with serve(dialect, f"{ddl} insert into t values {numbers}", limits=LimitsSection(max_rows=120)) as shop:
        default = shop.page("t")
        most = shop.page("t", limit=120)

        assert code_of(lambda: shop.page("t", limit=121)) == "bad_argument"
        assert (default["row_count"], default["truncated"]) == (50, True)
        assert (most["row_count"], most["truncated"]) == (120, True)


@pytest.mark.parametrize(("held", "rows"), [(10_500, 11), (100_000, 20)])
def test_rows_that_may_be_long_are_weighed_as_they_come(
    held: int, rows: int, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql_runner, "CELLS_HELD", held)
    monkeypatch.setattr(postgresql_runner, "BYTES_AT_ONCE", 1)
    ddl = "create table t (id integer primary key, v text);"
    with serve(
        "postgresql", f"{ddl} insert into t select i, repeat('x', 1000) from generate_series(1, 20) as i"
    ) as shop:
        longest = {"function": "max", "column": "v", "name": "longest"}
        arguments = {"table": "t", "group_by": ["id"], "measures": [longest]}
        groups = shop.call("aggregate_rows", arguments).structured
        page = shop.page("t")

    assert (len(rows_of(groups)), groups["truncated"]) == (rows, rows < 20)
    assert (len(rows_of(page)), page["truncated"]) == (rows, rows < 20)


def test_answers_are_limited_in_bytes_and_go_on(dialect: str, serve: Serve) -> None:
    limits = LimitsSection(max_tokens=1_000, max_cell=500)
    ddl = "create table t (id int not null primary key, v text);"
    texts = ", ".join(f"({number}, '{'é' * (number * 7 % 700)}')" for number in range(60))
    with serve(dialect, f"{ddl} insert into t values {texts}", limits=limits) as shop:
        answers = []
        arguments: dict[str, object] = {}
        while True:
            answers.append(shop.call("list_t", arguments))
            if not answers[-1].truncated:
                break
            arguments = {"cursor": answers[-1].structured["next_cursor"]}

    assert [row[0] for answer in answers for row in rows_of(answer.structured)] == list(range(60))
    assert max(len(answer.text.encode()) for answer in answers) <= 3_000
    assert all(answer.rows for answer in answers)


@pytest.mark.parametrize("beginning", [b"\x89PNG\r\n\x1a\n", b"."])
def test_bytes_that_go_along_are_limited_as_well(beginning: bytes, dialect: str, serve: Serve) -> None:
    type = {"sqlite": "blob", "postgresql": "bytea"}
    ddl = f"create table t (id int not null primary key, v {type[dialect]});"
    with serve(dialect, ddl, limits=LimitsSection(max_tokens=500)) as shop:
        content = beginning + b"." * 90_000
        shop.bare.execute(f"insert into t values ({shop.places([1, content])})", 1, content)
        got = shop.call("get_t", {"id": 1})

    assert len(got.text) + sum(each.size for each in got.media) <= 1_500
    assert [link.uri for link in got.links] == ["dbtools://cell/t/1/v"]


def test_completions_are_limited_as_rows_are(dialect: str, serve: Serve) -> None:
    tables = "".join(f"create table t{number} (id int not null primary key);" for number in range(5))
    with serve(
        dialect, f"{tables} insert into t1 values (1), (2), (3);", limits=LimitsSection(max_rows=2)
    ) as shop:
        complete = partial(shop.portal.call, shop.toolbox.complete, Caller(), ROW_TEMPLATE)

        assert complete("table", "", {}) == Completed(values=("t0", "t1"), more=True)
        assert complete("key", "", {"table": "t1"}) == Completed(values=("1", "2"), more=True)


@pytest.mark.parametrize("length", [19, 20, 21, 399, 400, 401])
def test_long_cells_are_cut_with_their_length(length: int, dialect: str, serve: Serve) -> None:
    with serve(
        dialect,
        "create table t (id int not null primary key, v text)",
        limits=LimitsSection(max_cell=20),
    ) as shop:
        text = "🦉" * length
        shop.insert("t", [[1, text]])

        (cell,) = shop.rows("t")[0][1:]
        whole = shop.get("t", id=1)["v"]

    assert cell == (text if length <= 20 else f"{'🦉' * 20}… [{length} characters]")
    assert whole == text


def test_locked_database_is_busy(dialect: str, serve: Serve) -> None:
    lock = {"sqlite": "begin exclusive", "postgresql": "begin; lock table t in access exclusive mode"}
    with serve(dialect, DDL) as shop, ExitStack() as stack:
        shop.rows("t")
        writer = open_bare(dialect, shop.url, shop.portal)
        stack.callback(writer.close)
        writer.execute(lock[dialect])

        code = code_of(lambda: shop.page("t"))
        writer.execute("rollback")

        assert code == "busy"
        assert len(shop.rows("t")) == 2


def test_calls_that_find_no_connection_are_told_so(dialect: str, serve: Serve) -> None:
    with serve(dialect, DDL) as shop:

        async def call_while_all_are_lent() -> None:
            pool = await pool_of(shop)
            async with AsyncExitStack() as stack:
                for _ in range(CONNECTIONS[dialect]):
                    await stack.enter_async_context(pool.connection())
                await shop.toolbox.call(Caller(), "list_t", {})

        shop.refresh()
        code = code_of(lambda: shop.portal.call(call_while_all_are_lent))

        assert code == "busy"
        assert len(shop.rows("t")) == 2


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_connection_in_use_while_the_pool_reopens_is_closed_afterwards(dialect: str, serve: Serve) -> None:
    with serve(dialect, DDL) as shop:

        async def lend_while_reopening() -> object:
            pool = await pool_of(shop)
            async with pool.connection() as connection:
                await pool.dispose()
            async with pool.connection() as other:
                assert other is not connection
            return connection

        shop.rows("t")
        connection = shop.portal.call(lend_while_reopening)

        assert isinstance(connection, asyncpg.Connection)
        assert connection.is_closed()
        assert len(shop.rows("t")) == 2


def test_value_that_only_the_database_can_refuse_names_its_column(serve: Serve) -> None:
    table = "create table host (id int primary key, address inet)"
    with serve("postgresql", table) as shop, pytest.raises(CallError) as raised:
        shop.page("host", where=[{"column": "address", "value": "nonsense"}])

    assert raised.value.code == "bad_value"
    assert "address (inet)" in str(raised.value)
    assert "nonsense" not in str(raised.value)


@pytest.mark.parametrize("losses", [pytest.param(1, id="once"), pytest.param(100, id="always")])
def test_connection_that_is_lost_while_it_is_prepared_is_opened_again(
    losses: int, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy would put an error of its own in the place of the driver's."""
    left = [None] * losses

    async def lose(connection: Any) -> None:
        if left:
            left.pop()
            connection.terminate()
        await prepare(connection)

    monkeypatch.setattr(postgresql_runner, "prepare", lose)
    with serve("postgresql", DDL) as shop:
        if losses == 1:
            assert shop.call("get_t", {"id": 1}).structured == {"row": {"id": 1, "v": "one"}}
            return
        with pytest.raises(DatabaseUnavailable):
            shop.call("get_t", {"id": 1})
