"""Which queries the databases refuse to inspect, and that the connection stays usable."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import psutil  # type: ignore[import-untyped]
import pytest

from dbtools.backends.port import Inspected
from dbtools.backends.postgresql.queries import inspection as postgresql_inspection
from dbtools.backends.sqlite.connection.files import location_of
from dbtools.backends.sqlite.queries.inspection import SqliteInspector
from dbtools.backends.sqlite.schema.syntax import lexis as sqlite_lexis
from dbtools.errors import Refused
from dbtools.schema.catalog import Table
from dbtools.schema.sql import scan
from tests.database.inspecting import (
    SQLITE,
    describing,
    inspected,
    lenient,
    lent,
    postgresql as postgresql,
    reads,
    shown,
    sqlite as sqlite,
    url as url,
)
from tests.database.postgresql_catalog import connected

PATIENCE = 30  #: seconds


NOT_READING = {
    "insert": "insert into orders values (1, 2, 3, null)",
    "update": "update orders set total = 1",
    "delete": "delete from orders",
    "values into": "insert into orders (id) select :n",
    "create": "create table x (id integer)",
    "drop": "drop table orders",
    "explain": "explain select 1 as a",
    "begin": "begin",
    "commit": "commit",
    "vacuum": "vacuum",
}
ONLY_POSTGRESQL = {
    "insert in a CTE": "with x as (insert into orders values (99, 1, 1, null) returning id) select * from x",
    "update in a CTE": "with x as (update orders set total = 0 returning id) select id from x",
    "for update": "select id from orders for update",
    "for share": "select id from (select id from orders for key share) as o",
    "nextval": "select nextval('numbers') as n",
    "nextval in quotes": "select pg_catalog.\"nextval\"('numbers') as n",
    "setval": "select setval('numbers', 5) as n",
    "set_config": "select set_config('role', 'none', true) as s, id from orders",
    "in a condition": "select id from orders where pg_notify('a', 'b') is null",
    "in FROM": "select x from pg_advisory_lock(1) as x",
    "txid_current": "select txid_current() as n",
    "pg_current_xact_id": "select pg_current_xact_id()::text as n",
    "lo_create": "select lo_create(0) as x",
    "query_to_xml": "select query_to_xml('select 1', true, true, '') as x",
    "table_to_xml": "select table_to_xml('orders', true, true, '') as x",
    "pg_read_file": "select pg_read_file('PG_VERSION') as x",
    "terminate": "select pg_terminate_backend(1) as x",
    "set": "set role none",
    "show": "show role",
    "copy": "copy orders to stdout",
    "do": "do $$ begin end $$",
    "lock": "lock table orders",
    "into": "select id into x from orders",
    "call": "call x()",
    "prepare": "prepare x as select 1",
    "listen": "listen x",
    "truncate": "truncate orders",
}
ONLY_SQLITE = {
    "pragma": "pragma user_version = 5",
    "pragma in FROM": "select * from pragma_table_info('orders')",
    "attach": "attach '/tmp/x.db' as x",
    "detach": "detach main",
    "returning": "delete from orders returning id",
    "load_extension": "select load_extension('x') as x",
    "replace": "replace into orders values (1, 2, 3, null)",
    "insert after WITH": "with x as (select 1) insert into orders select 1, 2, 3, 4",
}


@pytest.mark.parametrize("sql", [pytest.param(sql, id=id) for id, sql in NOT_READING.items()])
async def test_what_does_not_only_read_is_refused(url: str, sql: str) -> None:
    with pytest.raises(Refused):
        await inspected(url, sql, n="integer")


@pytest.mark.parametrize("sql", [pytest.param(sql, id=id) for id, sql in ONLY_POSTGRESQL.items()])
async def test_what_does_not_only_read_is_refused_on_postgresql(postgresql: str, sql: str) -> None:
    with pytest.raises(Refused):
        await inspected(postgresql, sql)

    async with connected(postgresql) as connection:
        assert await connection.fetchval("select is_called from numbers") is False
        assert await connection.fetchval("select count(*) from orders") == 10


@pytest.mark.parametrize("sql", [pytest.param(sql, id=id) for id, sql in ONLY_SQLITE.items()])
async def test_what_does_not_only_read_is_refused_on_sqlite(sqlite: str, sql: str) -> None:
    with pytest.raises(Refused):
        await inspected(sqlite, sql)


@pytest.mark.parametrize("sql", ["select 1 as a; select 2", "select 1 as a) as q; drop table orders; --"])
async def test_second_statement_is_refused_though_the_scanner_let_it_pass(url: str, sql: str) -> None:
    async with describing(url) as inspector:
        with pytest.raises(Refused):
            await inspector.query([sql], {})


@pytest.mark.parametrize(
    ("sql", "at"),
    [
        pytest.param("select name from pragma_table_list", 17, id="all columns"),
        pytest.param("select 1 as one from Pragma_Table_List", 21, id="rows alone"),
        pytest.param("select name from tables_of", None, id="below a view"),
    ],
)
async def test_pragma_that_no_call_may_read_is_refused_on_sqlite(
    sqlite: str, sql: str, at: int | None
) -> None:
    with pytest.raises(Refused, match=r"pragma_\w+ may not be read") as caught:
        await inspected(sqlite, sql)

    assert caught.value.offset == at


async def test_table_that_is_called_like_a_pragma_is_read_on_sqlite(sqlite: str) -> None:
    found = await inspected(sqlite, "select id from pragma_of_mine")

    assert reads(found) == {".pragma_of_mine.id"}


@pytest.mark.parametrize(
    ("sql", "at"),
    [
        pytest.param("select nme from people", "nme", id="column"),
        pytest.param("select id from people where id in (:ids) and nme = 1", "nme", id="after a list"),
        pytest.param("select id from people where id = :a and :a = nme", "nme", id="after parameters"),
        pytest.param("select id from people\nwhere x.y = :a", "x.y", id="on another line"),
        pytest.param("select id from", "", id="at the end"),
        pytest.param("selec id from people", "selec", id="at the beginning"),
        pytest.param("select app.twice(id, nextval('numbers')) as a from people", "app.twice", id="function"),
        pytest.param("select id, NextVal ('numbers') as n from people", "NextVal", id="acting function"),
        pytest.param("select id from people where born = :a", "= :a", id="parameter"),
    ],
)
async def test_complaint_tells_the_place(postgresql: str, sql: str, at: str) -> None:
    with pytest.raises(Refused) as caught:
        await inspected(postgresql, sql, a="integer", ids="integer[]")

    assert caught.value.offset == (sql.index(at) if at else len(sql))


@pytest.mark.parametrize("sql", ["select id, id from orders", "select 1 as a, 2 as a"])
async def test_columns_by_one_name_are_refused(url: str, sql: str) -> None:
    with pytest.raises(Refused, match=r"2 columns are named '(id|a)'"):
        await inspected(url, sql)


@pytest.mark.parametrize(
    "sql",
    [
        pytest.param("select p, p from people p", id="columns by one name"),
        pytest.param("select p, row(1) from people p", id="type that no column can have"),
        pytest.param("select 1 as a where daterange(now()::date, null) && :a", id="range"),
    ],
)
async def test_what_the_driver_cannot_tell_is_refused(postgresql: str, sql: str) -> None:
    with pytest.raises(Refused):
        await inspected(postgresql, sql, a="text")


async def test_query_without_columns_is_refused(postgresql: str) -> None:
    with pytest.raises(Refused, match="no columns"):
        await inspected(postgresql, "select from people")


async def test_number_of_a_transaction_is_read_where_none_is_taken(postgresql: str) -> None:
    found = await inspected(postgresql, "select txid_current_if_assigned() as n")

    assert shown(found) == {"n": "bigint"}


GRANTS = "grant usage on schema app to {}; grant select on orders, totals, people to {};"


@pytest.fixture
def no_temp(postgresql: str, postgresql_login: Any) -> Iterator[str]:
    """Yield the URL of a login that makes no temporary views."""
    grants = f"revoke temporary on database {postgresql.rpartition('/')[2]} from public; {GRANTS}"
    with postgresql_login(postgresql, grants) as url:
        yield url


async def test_login_without_temporary_views_learns_types_alone(no_temp: str) -> None:
    sql = "select id, name, mail, kind, rate from people where kind = :k limit :n"

    found = await inspected(no_temp, sql, k="text", n="integer")

    assert shown(found) == {
        "id": "bigint",
        "name": "character varying",
        "mail": "character varying",
        "kind": "app.kind",
        "rate": "numeric",
    }
    assert {name: type.name for name, type in found.parameters.items()} == {"k": "app.kind", "n": "bigint"}
    assert (found.reads, found.functions, lenient(found)) == (None, (), set())


@pytest.mark.parametrize(
    "sql",
    [
        "select setval('numbers', 5) as n",
        "select pg_catalog . \"nextval\" /* ( */ ('numbers') as n",
        "select id from orders for update",
        "delete from orders",
    ],
)
async def test_login_without_temporary_views_is_refused_what_acts(no_temp: str, sql: str) -> None:
    with pytest.raises(Refused):
        await inspected(no_temp, sql)


async def test_login_with_read_only_default_inspects_everything(
    postgresql: str, postgresql_login: Any
) -> None:
    with postgresql_login(
        postgresql,
        f"grant temporary on database {postgresql.rpartition('/')[2]} to {{}};"
        f" alter role {{}} set default_transaction_read_only = on; {GRANTS}",
    ) as url:
        found = await inspected(url, "select id, mail from people")

    assert shown(found) == {"id": "bigint", "mail": "app.email"}
    assert reads(found) == {"public.people.id", "public.people.mail"}


async def test_table_that_the_login_may_not_read_is_refused(no_temp: str) -> None:
    with pytest.raises(Refused, match="permission denied"):
        await inspected(no_temp, "select id from parent")


async def test_connection_is_as_it_was(postgresql: str) -> None:
    async with lent(postgresql) as connection:
        for sql in ("select id from people", "selec", "select id from people for update"):
            try:
                await postgresql_inspection.PostgresqlInspector(connection, ("public",), {}).query([sql], {})
            except Refused:
                continue
        assert not connection.is_in_transaction()
        assert await connection.fetchval("select count(*) from pg_class where relname like 'dbtools%'") == 0
        assert await connection.fetchval("show statement_timeout") == "0"


async def test_file_is_not_written(sqlite: str) -> None:
    before = _folder(sqlite)

    await inspected(sqlite, "select id from people where id = :id", id="integer")

    assert _folder(sqlite) == before


def _folder(url: str) -> Mapping[str, bytes]:
    folder = Path(url.removeprefix("sqlite:///")).parent
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "sql",
    [
        "select nme from people",
        "select from people",
        "select id from people where id =",
        "select * from nothing",
    ],
)
async def test_sqlite_complains_in_its_own_words(sqlite: str, sql: str) -> None:
    with pytest.raises(Refused, match=r"no such|syntax error|incomplete"):
        await inspected(sqlite, sql)


@pytest.mark.parametrize(
    ("sql", "at"),
    [
        pytest.param("select length(1, 2) as a", "length", id="arguments"),
        pytest.param("select length('a'), length(1, 2) as a", None, id="one of two"),
        pytest.param("select row_number() over w as r from people", "w as", id="window"),
        pytest.param("select id from people where count(*) > 1", "count", id="aggregate"),
        pytest.param("select id from people order by name collate unknown", "unknown", id="collation"),
        pytest.param("select id\nfrom people\nwhere id =", "", id="at the end"),
        pytest.param("select id from people\nwhere id > :ids", ":ids", id="list"),
        pytest.param(
            "select id from people\nwhere id in (:ids) and id in (1, :ids)", ":ids)", id="list again"
        ),
    ],
)
async def test_sqlite_complains_in_its_place(sqlite: str, sql: str, at: str | None) -> None:
    with pytest.raises(Refused) as caught:
        await inspected(sqlite, sql, ids="integer[]")

    expected = None if at is None else sql.rindex(at) if at else len(sql)
    assert caught.value.offset == expected


async def test_sqlite_closes_the_connection_after_what_was_cancelled_on_its_thread(sqlite: str) -> None:
    path = sqlite.removeprefix("sqlite:///")
    loop, arrived, released = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    open_meanwhile: list[bool] = []

    def hold(*_: object) -> Inspected:
        loop.call_soon_threadsafe(arrived.set)
        released.wait(PATIENCE)
        open_meanwhile.append(_is_open(path))
        raise Refused("nobody waits for this")

    with anyio.fail_after(PATIENCE):
        with closing(SqliteInspector(location_of(sqlite), hold)) as inspector:
            await inspector.condition(Table(name="people", columns=()), scan("name = 'x'", sqlite_lexis))
            asked = asyncio.create_task(inspector.query((), {}))
            await arrived.wait()
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        released.set()
        while not open_meanwhile or _is_open(path):
            await anyio.lowlevel.checkpoint()

    assert open_meanwhile == [True]


def _is_open(path: str) -> bool:
    """Return whether this process has opened the file at *path*."""
    return path in [each.path for each in psutil.Process().open_files()]


async def test_condition_is_not_refused_for_good_while_the_file_is_locked(
    sqlite_database: Callable[[str], Path],
) -> None:
    path = sqlite_database(SQLITE)
    table, condition = Table(name="people", columns=()), scan("name = 'x'", sqlite_lexis)
    async with describing(f"sqlite:///{path}") as inspector:
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("begin exclusive")
            with pytest.raises(Refused) as refused:
                await inspector.condition(table, condition)
        understood = await inspector.condition(table, condition)

    assert refused.value.temporary
    assert understood.casts == ()
