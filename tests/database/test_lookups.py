"""Lookups by key in a SQLite file run on the event loop only if they do not have to wait."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TypeVar

import pytest

from dbtools.backends import open_backend, url_of_file
from dbtools.backends.compiled import Compiled
from dbtools.backends.runs import Run, RunContext
from dbtools.backends.sqlite.connection.connections import SMALL_VALUE, FileConnection
from dbtools.backends.sqlite.connection.files import location_of
from dbtools.backends.sqlite.reading.runner import SqliteRunner
from dbtools.policy.roles import Caller
from dbtools.schema.catalog import Key, RowFilter, Selection, Table
from dbtools.schema.paths import Names, Paths
from dbtools.schema.sql import Fragment
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, Settings
from dbtools.statements.select import Condition, Output, Select
from dbtools.values.types import Operator
from tests.database.shop import Serve, Shop, rows_of

DDL = """
create table item (id integer primary key, name text, body text);
insert into item values (1, 'one', 'short'), (2, 'two', cast(x'ff41' as text));
insert into item values (3, 'three', zeroblob(2000000)), (4, 'four', zeroblob(101));
"""
#: What takes as long as there are numbers up to `most`.
COUNTING = (
    "(with recursive n (i) as (select 1 union all select i + 1 from n where i < {most}) "
    "select count(*) from n)"
)
T = TypeVar("T")
ONE = (1, "one", "short")


@dataclass(frozen=True)
class Looked:
    """What looks up rows of `item` in a file by their ids."""

    connection: FileConnection
    plan: Compiled
    stamp: str

    def run(self, id: object) -> Run:
        """Return what reads the row *id*."""
        context = RunContext(timeout=5, stamp=self.stamp, comment="/*abc*/ ")
        return Run(self.plan, {"id": id}, limit=1, context=context)

    def row(self, id: object) -> tuple[object, ...] | None:
        """Return the row *id*, or None if reading it may take long."""
        found = self.connection.lookup(self.run(id))
        return None if found is None else found.rows[0]


def _see(connection: FileConnection, _: Event) -> None:
    """Have *connection* see what is in the file now."""
    connection.driver.execute("begin")
    connection.stamp()
    connection.driver.rollback()


@asynccontextmanager
async def _looked(path: Path) -> AsyncIterator[Looked]:
    url = url_of_file(path)
    catalog = await open_backend(url).introspect(Selection())
    (item,) = catalog.tables
    condition = Condition(term=item.columns[0], operator=Operator.EQ, parameters=("id",))
    outputs = tuple(Output(term=column, cut=100) for column in item.columns)
    shape = Select(table=item, outputs=outputs, conditions=(condition,))
    connection = FileConnection(location_of(url))
    await connection
    try:
        await connection.run(_see)
        yield Looked(connection, SqliteRunner(location_of(url)).compile(shape), catalog.stamp)
    finally:
        await connection.give_up()


@pytest.fixture
def path(sqlite_database: Callable[[str], Path]) -> Path:
    return sqlite_database(DDL)


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    """Yield a connection that may write to the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        yield writer


@pytest.fixture
async def looked(path: Path) -> AsyncIterator[Looked]:
    async with _looked(path) as looked:
        yield looked


def test_rows_are_as_they_are_by_way_of_a_thread(serve: Serve) -> None:
    with serve("sqlite", DDL) as shop:
        listed = rows_of(shop.call("list_item", {"where": [{"column": "id", "value": "1"}]}).structured)
        got = shop.call("get_item", {"id": 1}).structured["row"]

    assert isinstance(got, dict)
    assert list(got.values()) == listed[0] == list(ONE)


@pytest.fixture
async def runner(path: Path) -> AsyncIterator[SqliteRunner]:
    runner = SqliteRunner(location_of(url_of_file(path)))
    yield runner
    await runner.close()


@pytest.mark.parametrize(("id", "length"), [(1, 8), (2, 5), (3, 105), (4, 104)])
async def test_length_of_what_is_read_is_counted(
    looked: Looked, runner: SqliteRunner, id: int, length: int
) -> None:
    by_thread = await runner.run(looked.run(id))
    at_once = looked.connection.lookup(looked.run(id))

    assert by_thread.length == length
    assert at_once is None or at_once == by_thread


async def test_comment_reaches_the_database(looked: Looked) -> None:
    seen: list[str] = []
    looked.connection.driver.set_trace_callback(seen.append)

    looked.row(1)

    assert [each.lower()[:14] for each in seen if "item" in each] == ["/*abc*/ select"]


async def test_what_would_take_time_is_left(looked: Looked) -> None:
    assert SMALL_VALUE < 2_000_000
    assert [looked.row(id) for id in (2, 3, 4)] == [None] * 3
    assert looked.row(1) == ONE


async def test_lock_is_not_waited_for(looked: Looked, writer: sqlite3.Connection) -> None:
    writer.execute("begin exclusive")
    locked = looked.row(1)
    writer.execute("rollback")

    assert (locked, looked.row(1)) == (None, ONE)


async def test_statement_that_takes_long_is_stopped_and_run_with_time(
    looked: Looked, runner: SqliteRunner
) -> None:
    sql = looked.plan.sql.replace(" AS t \n", f" AS t, {COUNTING} \n")
    plans = (replace(looked.plan, sql=sql.format(most=most)) for most in (9, 100_000))
    quick, slow = (replace(looked, plan=plan) for plan in plans)

    assert [quick.row(1) for _ in range(2_000)] == [ONE] * 2_000
    assert slow.row(1) is None
    assert quick.row(1) == ONE
    assert [(await runner.run(slow.run(1))).rows for _ in range(3)] == [(ONE,)] * 3


async def test_another_schema_and_another_file_are_left(
    looked: Looked, path: Path, writer: sqlite3.Connection
) -> None:
    assert replace(looked, stamp=f"{looked.stamp}0").row(1) is None
    assert looked.row(1) == ONE

    copy = path.with_name("copy.db")
    writer.execute("vacuum into ?", [str(copy)])
    copy.rename(path)

    assert looked.row(1) is None


async def test_file_that_has_been_written_is_read_with_time_first(
    looked: Looked, writer: sqlite3.Connection
) -> None:
    writer.execute("update item set body = 'longer' where id = 1")
    written = [looked.row(1), looked.row(1)]
    await looked.connection.run(_see)

    assert written == [None, None]
    assert looked.row(1) == (1, "one", "longer")


async def test_value_that_cannot_be_bound_is_left(looked: Looked) -> None:
    assert looked.row("\ud800") is None
    assert looked.row(1) == ONE


def test_rows_are_current_after_a_write_and_a_reopening(serve: Serve) -> None:
    def body(shop: Shop) -> object:
        row = shop.call("get_item", {"id": 1}).structured["row"]
        assert isinstance(row, dict)
        return row["body"]

    with serve("sqlite", DDL, fresh=True) as shop:
        before = body(shop)
        shop.bare.execute("update item set body = 'longer' where id = 1")
        written = [body(shop), body(shop)]
        shop.bare.execute("alter table item add column size integer")
        altered = [body(shop), body(shop)]

    assert before == "short"
    assert written == altered == ["longer"] * 2


async def test_runner_hops_to_a_thread_for_the_first_row_alone(looked: Looked, path: Path) -> None:
    where, hops = location_of(url_of_file(path)), []

    class Counted(FileConnection):
        """A connection that counts its hops."""

        async def run(self, work: Callable[[FileConnection, Event], T]) -> T:
            hops.append(work)
            return await super().run(work)

    runner = SqliteRunner(where, Counted)
    try:
        rows = [(await runner.run(looked.run(1))).rows for _ in range(3)]
    finally:
        await runner.close()

    assert rows == [(ONE,)] * 3
    assert len(hops) == 1


WIDE = """
create table item (id integer primary key, name text, secret text as ({slow}) virtual,
 kept text as (upper(name)) stored);
create table plain (id integer primary key, name text, item_id integer references item);
create table target (id integer primary key, kept text as (upper('x')) stored);
create table near (id integer primary key, name text, target_id integer references target);
create view seen as select * from plain;
create virtual table words using fts5 (body);
insert into item (id, name) values (1, '{text}');
insert into plain values (1, 'one', 1);
"""


def _filtered(table: Table, condition: str) -> Table:
    return replace(table, filter=RowFilter(condition=Fragment(pieces=(condition,))))


@pytest.mark.parametrize(
    ("name", "condition", "column", "brief"),
    [
        ("plain", "", "name", True),
        ("near", "", "target.id", True),
        ("near", "", "target.kept", True),
        ("plain", "name = 'one'", "name", True),
        ("plain", "(name = 'x' or id <> -1) and name is not null and id in (1, 2)", "name", True),
        ("plain", "id between 1 and 2 and not (name >= 'a''(b')", "name", True),
        ("plain", "lower(name) = 'one'", "name", False),
        ("plain", '"lower"(name) = name', "name", False),
        ("plain", "name like 'o%'", "name", False),
        ("plain", "name not glob 'o*'", "name", False),
        ("plain", "name || name = 'x'", "name", False),
        ("plain", "name -> '$.x' = 1", "name", False),
        ("plain", "id in (select id from item)", "name", False),
        ("plain", "exists (select 1 from item)", "name", False),
        ("plain", "case when id = 1 then 1 end = 1", "name", False),
        ("plain", "cast(name as integer) = 1", "name", False),
        ("plain", "", "item.name", False),
        ("item", "", "name", False),
        ("seen", "", "name", False),
        ("words", "", "body", False),
    ],
)
async def test_only_what_compares_runs_on_the_event_loop(
    sqlite_database: Callable[[str], Path], name: str, condition: str, column: str, brief: bool
) -> None:
    url = url_of_file(sqlite_database(WIDE.format(slow="upper(name)", text="x")))
    catalog = await open_backend(url).introspect(Selection())
    (table,) = (each for each in catalog.tables if each.name == name)
    key = table.keys or (Key(columns=(table.columns[0].name,), primary=True),)
    table = replace(_filtered(table, condition) if condition else table, keys=key)
    of = Condition(term=table.key_columns[0], operator=Operator.EQ, parameters=("id",))
    read = Names(table=table, paths=Paths(catalog)).find(column, "columns")
    shape = Select(table=table, outputs=(Output(term=read),), conditions=(of,))

    assert shape.is_lookup
    assert SqliteRunner(location_of(url)).compile(shape).brief is brief


async def test_other_work_goes_on_while_a_generated_column_is_computed(
    sqlite_database: Callable[[str], Path],
) -> None:
    slow = " + ".join(["instr(name, 'ab')"] * 100)
    url = url_of_file(sqlite_database(WIDE.format(slow=slow, text="a" * 50_000)))
    toolbox, backend = open_toolbox(Settings(database=DatabaseSection(url=url)))
    try:
        await toolbox.call(Caller(), "get_plain", {"id": 1})
        call = asyncio.create_task(toolbox.call(Caller(), "get_item", {"id": 1}))
        for _ in range(3):
            await asyncio.sleep(0)
        was_over = call.done()
        await call
    finally:
        await backend.close()

    assert not was_over
