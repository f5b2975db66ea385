"""Statements whose tables change, move or restart during a call are prepared again and answer correctly."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.runs import Run, RunContext
from dbtools.errors import DbtoolsError, SchemaChanged
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, Settings, load
from dbtools.statements.select import Output, Select
from tests.database.poolers import Swapping, swapping_proxy
from tests.database.shop import Serve, Shop, open_shop, pool_of, rows_of
from tests.database.transaction_views import PATIENCE, url as url
from tests.postgresql_server import LOGIN, open_cluster


async def _migrate(shop: Shop, call: str, lock: str, change: str) -> object:
    """Return the rows of the table *call*, which is called while *change* is about to be made."""
    found: list[object] = []

    async def read() -> None:
        found.extend(rows_of((await shop.toolbox.call(Caller(), f"list_{call}", {})).structured))

    migration = await asyncpg.connect(shop.url)
    watcher = await asyncpg.connect(shop.url)
    await migration.execute("set default_transaction_read_only = off")
    with anyio.fail_after(PATIENCE):
        async with migration.transaction(), anyio.create_task_group() as group:
            await migration.execute(f"lock table {lock} in access exclusive mode")
            group.start_soon(read)
            while not await watcher.fetchval("select count(*) from pg_locks where not granted"):
                await anyio.lowlevel.checkpoint()
            await migration.execute(change)
            await migration.execute("commit; begin")
    await migration.close()
    await watcher.close()
    return found


LATEST = """
create table m (v integer); insert into m values (7);
create function latest() returns integer language plpgsql volatile as $$
    begin return (select v from m); end
$$;
create view newest as select latest() as v;
create table t (id integer primary key, size text); insert into t values (1, '7');
"""
NEW_M = "alter table m rename to old; create table m (v integer); insert into m values (8)"


@pytest.mark.parametrize(
    ("call", "lock", "change", "rows"),
    [
        pytest.param("newest", "m", NEW_M, [[8]], id="function that reads a table"),
        pytest.param("t", "t", "alter table t alter size type integer using size::int", [[1, 7]], id="table"),
    ],
)
def test_read_that_waits_for_a_migration_is_of_what_is_there_afterwards(
    call: str, lock: str, change: str, rows: object, serve: Serve
) -> None:
    with serve("postgresql", LATEST) as shop:
        isolation = "set default_transaction_isolation = 'repeatable read'"
        shop.bare.execute(f"alter database {shop.url.rpartition('/')[2]} {isolation}")
        shop.rows(call)

        assert shop.portal.call(_migrate, shop, call, lock, change) == rows


#: All other connections.
PIDS = """
select pid
from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
order by pid
"""
#: What a statement reads beneath the table that it names, and how that becomes something else.
BENEATH = {
    "child": (
        "create table things (id integer); create table other (id integer); insert into other values (1);",
        "alter table other inherit things",
    ),
    "view of a view": (
        """
        create table notes (id integer); create table other (id integer); insert into other values (1);
        create view beneath as select id from notes; create view things as select id from beneath;
        """,
        "create or replace view beneath as select id from other",
    ),
    "columns of the same type": (
        "create table things (a text, b text, primary key (a)); ",
        "alter table things rename a to c; alter table things rename b to a"
        "; alter table things rename c to b",
    ),
    "nulls": ("create table things (a integer not null);", "alter table things alter a drop not null"),
}


@asynccontextmanager
async def _running(url: str) -> AsyncIterator[Callable[[str | None], Awaitable[object]]]:
    """Yield what reads the table things, as of its version or of another one that is given."""
    toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=url)))
    try:
        tables = (await toolbox.snapshot()).catalog.tables
        table = next(each for each in tables if each.name == "things")
        runner = await database.runner()
        outputs = tuple(Output(term=column, cut=100) for column in table.columns)
        plan = runner.compile(Select(table=table, outputs=outputs))

        async def read(version: str | None = None) -> object:
            shape = Select(table=replace(table, version=version or table.version), outputs=outputs)
            run = Run(plan, {}, limit=1, context=RunContext(timeout=5, stamp=version or ""), shape=shape)
            return (await runner.run(run)).rows

        yield read
    finally:
        await database.close()


async def test_statement_is_confirmed_again_for_another_schema(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> None:
    with postgresql_database(THINGS) as url:
        async with _running(url) as read:
            before = [await read(None) for _ in range(3)]
            with pytest.raises(SchemaChanged):
                await read("1 2")
            after = await read(None)

    assert [*before, after] == [((1, "7", "text"),)] * 4


async def test_statement_that_is_found_stale_is_prepared_again_on_its_connection(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> None:
    with postgresql_database(THINGS) as url:
        other = await asyncpg.connect(url)
        async with _running(url) as read:
            before = await read(None), await other.fetch(PIDS)
            await other.execute("alter table things alter id type bigint")
            causes = []
            for _ in range(2):
                with pytest.raises(SchemaChanged) as changed:
                    await read(None)
                causes.append(type(changed.value.__cause__))
            after = await other.fetch(PIDS)
        await other.close()

    assert before == (((1, "7", "text"),), after)
    assert causes == [asyncpg.InvalidCachedStatementError, asyncpg.UndefinedObjectError]


@pytest.mark.parametrize("case", BENEATH)
async def test_change_of_what_is_read_is_found_by_a_statement_that_has_been_confirmed(
    case: str, postgresql_database: Callable[[str], AbstractContextManager[str]]
) -> None:
    ddl, change = BENEATH[case]
    with postgresql_database(ddl) as url:
        other = await asyncpg.connect(url)
        async with _running(url) as read:
            # So often that the server has made a plan for any values.
            before = [await read(None) for _ in range(8)]
            await other.execute(change)
            with pytest.raises(SchemaChanged):
                await read(None)
        await other.close()

    assert before == [()] * 8


async def test_statement_is_prepared_again_where_its_table_has_been_analyzed(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> None:
    with postgresql_database(THINGS) as url:
        toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=url)))
        other = await asyncpg.connect(url)
        try:
            rows = []
            for _ in range(3):
                for _ in range(2):
                    answer = await toolbox.call(Caller(), "list_things", {})
                    rows.append(rows_of(answer.structured))
                await other.execute("analyze things")
            async with (await pool_of(database)).connection() as connection:
                await connection.prepare("select 'asyncpg closes what is given up now'")
                prepared = await connection.fetch("select statement from pg_prepared_statements")
        finally:
            await other.close()
            await database.close()

    assert rows == [[[1, "7", "text"]]] * 6
    assert len([each for (each,) in prepared if "things" in each]) == 1


#: Each makes the type of a column another one, and says so in the rows.
CHANGES = (
    "alter table things alter size type integer using size::integer; update things set kind = 'integer'",
    """
    create table next (id integer primary key, size text, kind text);
    insert into next values (1, '7', 'text');
    alter table things rename to old; alter table next rename to things; drop table old
    """,
    """
    drop table things; create table things (id integer primary key, size integer, kind text);
    insert into things values (1, 7, 'integer')
    """,
    "alter table things alter size type text; update things set kind = 'text'",
)
THINGS = """
create table things (id integer primary key, size text, kind text);
insert into things values (1, '7', 'text');
"""
ROUNDS, CALLERS = 15, 4


async def _load(shop: Shop) -> tuple[set[object], set[str]]:
    """Return what is answered, and by which codes calls fail, while the table is changed again and again."""
    answers, codes, done = set[object](), set[str](), anyio.Event()

    async def call() -> None:
        answer = await shop.toolbox.call(Caller(), "list_things", {"columns": ["size", "kind"]})
        ((size, kind),) = rows_of(answer.structured)
        answers.add((type(size).__name__, kind))

    async def call_on() -> None:
        while not done.is_set():
            try:
                await call()
            except DbtoolsError as exc:
                codes.add(exc.code)

    migration = await asyncpg.connect(shop.url)
    async with anyio.create_task_group() as group:
        for _ in range(CALLERS):
            group.start_soon(call_on)
        for _ in range(ROUNDS):
            for change in CHANGES:
                await migration.execute(change)
                await call()
        done.set()
    await migration.close()
    return answers, codes


def test_table_that_is_changed_swapped_and_made_again_under_load_is_answered_as_what_it_is(
    serve: Serve,
) -> None:
    with serve("postgresql", THINGS) as shop:
        answers, codes = shop.portal.call(_load, shop)

    assert answers == {("str", "text"), ("int", "integer")}
    assert codes <= {"schema_changed"}


SPANS = "create view spans as select '1 day 2 hours'::interval::text as span"


@pytest.mark.parametrize("replays", [False, True], ids=["forgets statements", "prepares them again"])
async def test_session_that_a_pooler_has_swapped_serves_nothing(
    replays: bool, postgresql_database: Callable[[str], AbstractContextManager[str]], tmp_path: Path
) -> None:
    with postgresql_database(SPANS) as url:
        async with swapping_proxy(url, replays=replays) as pooler:
            answers = await _spans(pooler, tmp_path)

    assert answers == [[["P1DT2H"]]] * 3
    assert pooler.is_due is False


async def _spans(pooler: Swapping, folder: Path) -> list[object]:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{pooler.url}"\n')
    toolbox, database = open_toolbox(load(path))
    answers: list[object] = []
    try:
        for due in (False, True, False):
            await toolbox.snapshot()
            pooler.is_due = due
            with anyio.fail_after(PATIENCE):
                answers.append(rows_of((await toolbox.call(Caller(), "list_spans", {})).structured))
    finally:
        await database.close()
    return answers


def test_server_that_restarts_is_found_again(portal: BlockingPortal) -> None:
    with open_cluster() as cluster:
        port = cluster.start()
        url = f"postgresql://{LOGIN}@127.0.0.1:{port}/postgres"
        with _stopping(cluster), open_shop("postgresql", url, portal) as shop:
            shop.bare.execute("create table t (id integer primary key); insert into t values (1)")
            shop.bare.execute("checkpoint")
            before = shop.rows("t")
            cluster.stop()
            with pytest.raises(DbtoolsError) as away:
                shop.rows("t")
            cluster.start_at(port)

            assert (before, away.value.code, shop.rows("t")) == ([[1]], "database_unavailable", [[1]])


@contextmanager
def _stopping(cluster: Any) -> Iterator[None]:
    try:
        yield
    finally:
        cluster.stop()
