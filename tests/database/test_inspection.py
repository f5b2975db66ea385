"""What the databases say of a query before it is ever called: types, what is read, and what is refused."""

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import pytest

from dbtools.backends import open_backend
from dbtools.backends.plans import with_lists
from dbtools.backends.port import Declared, Inspected
from dbtools.backends.postgresql import inspection as postgresql_inspection
from dbtools.backends.postgresql.inspection import LIST_FORMS as POSTGRESQL_LISTS
from dbtools.backends.sqlite.files import Location, location_of
from dbtools.backends.sqlite.inspection import LIST_FORMS as SQLITE_LISTS, Description
from dbtools.backends.sqlite.syntax import lexis as sqlite_lexis
from dbtools.backends.sqlite.types import column_type
from dbtools.catalog import Table
from dbtools.errors import Refused
from dbtools.sql import Fragment, Parameter, scan
from dbtools.types import Family
from tests.database.postgresql_catalog import BIGINT, DATE, INTEGER, TEXT, array, connected

PATIENCE = 5  #: seconds
POSTGRESQL = """
create schema app;
create schema "Odd schema";
create type app.kind as enum ('a', 'b');
create type app.pair as (x integer, y text);
create domain app.email as varchar(80) check (value like '%@%');
create table people (
    id bigint primary key,
    name varchar(80) not null,
    mail app.email,
    kind app.kind not null,
    born date,
    seen timestamptz,
    rate numeric(12,2) not null,
    score float8,
    tags text[],
    doc jsonb,
    pair app.pair,
    host inet,
    key uuid,
    boss bigint references people
);
create table orders (id bigint primary key, person bigint not null, total integer not null, at timestamp);
create table "Odd schema"."Odd ""table" ("Odd column" integer not null, "select" text);
create table parent (id integer not null);
create table child () inherits (parent);
create view adults as select id, name, born from people where born < '2000-01-01';
create view totals (person, total) as select person, sum(total) from orders group by person;
create sequence numbers;
create table hidden (id integer primary key);
create function app.spies(value text) returns boolean language sql stable
    as 'select exists (select from hidden where id::text = value)';
create domain app.spy as text check (app.spies(value));
create domain app.spy_of_spies as app.spy;
create type app.spying as (name app.spy);
create table spied (id integer primary key, name app.spy, row app.spying);
create function app.touch(integer) returns integer language sql volatile as 'select $1';
create function app.twice(integer) returns integer language sql immutable as 'select 2 * $1';
create function app.nextval(integer) returns integer language sql immutable as 'select 3 * $1';
insert into orders select n, n % 3, n, now() from generate_series(1, 10) as n;
"""
SQLITE = """
create table people (
    id integer primary key, name varchar(80) not null, born date, rate decimal(12,2), boss integer, doc json
);
create table orders (id integer primary key, person integer not null, total integer not null, at timestamp);
create table exact (id integer primary key, v text, n real, free any) strict;
create table "Odd ""table" ("Odd column" integer, "select" text);
create view adults as select id, name, born from people where born < '2000-01-01';
create view totals (person, total) as select person, sum(total) from orders group by person;
create view some as select 1 as one from people;
create view "some more" as select * from "some" where one = 1;
create view both_of as select v from exact union all select name from people;
create view tables_of as select name from pragma_table_list;
create table pragma_of_mine (id integer primary key);
create virtual table notes using fts5(body);
create index orders_of on orders (person);
with recursive n (n) as (select 1 union all select n + 1 from n where n < 10)
insert into orders select n, n % 3, n, '2024-01-01' from n;
"""

Inspect = Callable[..., Any]


def declarations(declared: Mapping[str, str]) -> Mapping[str, Declared]:
    """Return what *declared* says, such as integer[]."""
    return {
        name: Declared(type=type.removesuffix("[]"), array=type.endswith("[]"))
        for name, type in declared.items()
    }


@asynccontextmanager
async def lent(url: str) -> AsyncIterator[Any]:
    """Lend a connection of the driver of *url*."""
    runner: Any = open_backend(url).load_runner()
    try:
        async with runner._pool.connection() as connection:
            yield connection
    finally:
        await runner.close()


async def inspected(url: str, sql: str, **declared: str) -> Inspected:
    """Return what the database at *url* says of *sql*, whose parameters are *declared*."""
    pieces = scan(sql, open_backend(url).facts.lexis).pieces
    async with open_backend(url).describe() as describe:
        return await describe.query(pieces, declarations(declared))


@pytest.fixture(scope="module")
def postgresql(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> Iterator[str]:
    """Give the URL of the database that most tests ask."""
    with postgresql_database(POSTGRESQL) as url:
        yield url


@pytest.fixture(scope="module")
def sqlite(sqlite_database: Callable[[str], Path]) -> str:
    """Give the URL of the file that most tests ask."""
    return f"sqlite:///{sqlite_database(SQLITE)}"


@pytest.fixture
def url(dialect: str, request: pytest.FixtureRequest) -> str:
    """Give the URL of each."""
    return str(request.getfixturevalue(dialect))


def shown(found: Inspected) -> dict[str, str]:
    """Return the columns with the names of their types."""
    return {each.name: each.type.name for each in found.columns}


def lenient(found: Inspected) -> set[str]:
    """Return the columns of which a cell may be of another type."""
    return {each.name for each in found.columns if each.type.lenient}


def reads(found: Inspected) -> set[str]:
    """Return what is read, in one text each."""
    assert found.reads is not None
    return {".".join(each) for each in found.reads}


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        pytest.param(
            "select id, name, mail, kind, born, seen, rate, score, tags, doc, pair, host, key from people",
            {
                "id": "bigint",
                "name": "character varying(80)",
                "mail": "app.email",
                "kind": "app.kind",
                "born": "date",
                "seen": "timestamp with time zone",
                "rate": "numeric(12,2)",
                "score": "double precision",
                "tags": "text[]",
                "doc": "jsonb",
                "pair": "app.pair",
                "host": "inet",
                "key": "uuid",
            },
            id="columns",
        ),
        pytest.param(
            "select id + 1 as next, upper(name), doc ->> 'a' as a, (pair).x, tags[1] from people",
            {"next": "bigint", "upper": "text", "a": "text", "x": "integer", "tags": "text"},
            id="expressions",
        ),
        pytest.param(
            "select kind, count(*), sum(rate), avg(score), array_agg(id) as ids from people group by kind",
            {
                "kind": "app.kind",
                "count": "bigint",
                "sum": "numeric",
                "avg": "double precision",
                "ids": "bigint[]",
            },
            id="aggregates",
        ),
        pytest.param(
            "with p as (select id, mail from people) select * from p order by mail limit 3",
            {"id": "bigint", "mail": "app.email"},
            id="CTE",
        ),
        pytest.param(
            "with recursive b (id) as (select 1::bigint union all select p.id from people p, b"
            " where p.boss = b.id) select * from b",
            {"id": "bigint"},
            id="recursive CTE",
        ),
        pytest.param(
            "select * from adults",
            {"id": "bigint", "name": "character varying(80)", "born": "date"},
            id="view",
        ),
        pytest.param("select id from people union all select 5", {"id": "bigint"}, id="set operation"),
        pytest.param(
            "select s.id, (select name from people limit 1) as n from (select id from orders) as s",
            {"id": "bigint", "n": "character varying(80)"},
            id="subqueries",
        ),
        pytest.param(
            "select id, rank() over (order by total) as r, lag(total) over () as l from orders",
            {"id": "bigint", "r": "bigint", "l": "integer"},
            id="window functions",
        ),
        pytest.param(
            "select o.id, p.name from orders o left join people p on p.id = o.person",
            {"id": "bigint", "name": "character varying(80)"},
            id="outer join",
        ),
        pytest.param(
            "select p.id, p.kind from people p group by grouping sets ((p.id, p.kind), ())",
            {"id": "bigint", "kind": "app.kind"},
            id="grouping sets",
        ),
        pytest.param("select id from parent", {"id": "integer"}, id="table that others inherit"),
        pytest.param("values (1, 'a'), (2, null)", {"column1": "integer", "column2": "text"}, id="values"),
        pytest.param("table totals", {"person": "bigint", "total": "bigint"}, id="table"),
        pytest.param(
            'select "Odd column", "select" as "a ""b" from "Odd schema"."Odd ""table" -- a comment',
            {"Odd column": "integer", 'a "b': "text"},
            id="odd names",
        ),
        pytest.param(
            "select p, p.pair, array_agg(p) as a, daterange(born, null) as d from people p group by id",
            {"p": "people", "pair": "app.pair", "a": "people[]", "d": "daterange"},
            id="rows and ranges",
        ),
        pytest.param(
            "select row(1, 'a') as r, ctid, pg_sleep(0) as v from people",
            {"r": "record", "ctid": "tid", "v": "void"},
            id="types that no column can have",
        ),
        pytest.param("select 'a' as \"été\", null as n", {"été": "text", "n": "text"}, id="literals"),
    ],
)
async def test_columns_on_postgresql(postgresql: str, sql: str, columns: Mapping[str, str]) -> None:
    found = await inspected(postgresql, sql)

    assert (shown(found), lenient(found), found.casts) == (columns, set(), {})


async def test_types_are_those_of_introspection(postgresql: str) -> None:
    sql = "select kind, pair, tags, mail from people where id = :id and born = any(:days)"

    found = await inspected(postgresql, sql, id="integer", days="date[]")

    kind, pair, tags, mail = (each.type for each in found.columns)
    assert (kind.family, kind.labels, kind.cast) == (Family.ENUM, ("a", "b"), "app.kind")
    assert pair.fields == (("x", INTEGER), ("y", TEXT))
    assert tags == array("text[]", "pg_catalog.text[]", TEXT)
    assert (mail.family, mail.cast, mail.large) == (Family.TEXT, "pg_catalog.varchar", False)
    assert found.parameters == {"id": BIGINT, "days": array("date[]", "pg_catalog.date[]", DATE)}
    assert found.casts == {"id": "pg_catalog.int8", "days": "pg_catalog.date[]"}


@pytest.mark.parametrize(
    ("sql", "declared", "types"),
    [
        pytest.param("select 1 as a limit :n", {"n": "integer"}, {"n": "bigint"}, id="limit"),
        pytest.param("select id from people where kind = :k", {"k": "text"}, {"k": "app.kind"}, id="enum"),
        pytest.param("select id from people where host = :k", {"k": "text"}, {"k": "inet"}, id="inet"),
        pytest.param("select id from people where mail = :k", {"k": "text"}, {"k": "text"}, id="domain"),
        pytest.param("select id from people where rate > :r", {"r": "integer"}, {"r": "bigint"}, id="wider"),
        pytest.param(
            "select id from people where rate > :r", {"r": "number"}, {"r": "double precision"}, id="number"
        ),
        pytest.param(
            "select id from people where seen >= :d",
            {"d": "date"},
            {"d": "date"},
            id="date for a moment",
        ),
        pytest.param(
            "select id from people where id in (:ids) and kind not in (:kinds)",
            {"ids": "integer[]", "kinds": "text[]"},
            {"ids": "bigint[]", "kinds": "app.kind[]"},
            id="lists",
        ),
        pytest.param(
            "select id from people where born between :since and :until",
            {"since": "date", "until": "date"},
            {"since": "date", "until": "date"},
            id="between",
        ),
        pytest.param(
            "select :a::int8 as a, cast(:b as numeric) as b",
            {"a": "integer", "b": "decimal"},
            {"a": "bigint", "b": "numeric"},
            id="casts",
        ),
        pytest.param(
            "select id from people where doc @> :j and doc ->> :k = 'x'",
            {"j": "json", "k": "text"},
            {"j": "jsonb", "k": "text"},
            id="JSON operators",
        ),
        pytest.param(
            "select substr(name, :n::int) as s, app.twice(:m::int) as t from people",
            {"n": "integer", "m": "integer"},
            {"n": "bigint", "m": "bigint"},
            id="arguments",
        ),
        pytest.param(
            "select id from people where :k is null or kind = :k::app.kind",
            {"k": "text"},
            {"k": "text"},
            id="text in one place, and a label in another",
        ),
        pytest.param(
            "select id from people where (:d is null or born >= :d) and (:d is null or seen >= :d)",
            {"d": "date"},
            {"d": "date"},
            id="two types",
        ),
        pytest.param("select :a is null as a", {"a": "date"}, {"a": "date"}, id="no context"),
        pytest.param(
            "select :a as a, :b as b, :c as c, :d as d",
            {"a": "integer", "b": "text", "c": "boolean", "d": "uuid"},
            {"a": "bigint", "b": "text", "c": "boolean", "d": "uuid"},
            id="only shown",
        ),
        pytest.param(
            "select jsonb_build_object('a', :a, 'b', :b) as j, to_jsonb(:c) as k",
            {"a": "integer", "b": "text", "c": "json"},
            {"a": "bigint", "b": "text", "c": "jsonb"},
            id="any type",
        ),
        pytest.param(
            "select born + :n::int as d from people where kind = :k",
            {"n": "integer", "k": "text"},
            {"n": "bigint", "k": "app.kind"},
            id="operator with many types",
        ),
        pytest.param(
            "select id from people where key = :key and boss = :claims.boss and name = :claims.name",
            {"key": "uuid"},
            {"key": "uuid", "claims.boss": "bigint", "claims.name": "text"},
            id="claims",
        ),
        pytest.param("select :claims.x is null as a", {}, {"claims.x": "text"}, id="claim without context"),
        pytest.param(
            "select id from people where (:p is null or name = :p) and boss = :claims.boss",
            {"p": "text"},
            {"p": "text", "claims.boss": "bigint"},
            id="claim beside a text without context",
        ),
        pytest.param(
            "select id from people where tags @> :tags and :tag = any(tags) and name like :p || '%'",
            {"tags": "text[]", "tag": "text", "p": "text"},
            {"tags": "text[]", "tag": "text", "p": "text"},
            id="arrays",
        ),
        pytest.param(
            "select id from people where daterange(born, null) @> :a::date and daterange(born, null)"
            " && :r::text::daterange",
            {"a": "date", "r": "text"},
            {"a": "date", "r": "text"},
            id="ranges",
        ),
        pytest.param("select (:ids)[1] as a", {"ids": "integer[]"}, {"ids": "bigint[]"}, id="subscript"),
    ],
)
async def test_parameters_on_postgresql(
    postgresql: str, sql: str, declared: Mapping[str, str], types: Mapping[str, str]
) -> None:
    found = await inspected(postgresql, sql, **declared)

    assert {name: type.name for name, type in found.parameters.items()} == types
    assert found.casts == {name: type.cast for name, type in found.parameters.items()}


@pytest.mark.parametrize(
    ("sql", "declared", "taken"),
    [
        pytest.param("select 1 as a from people where id = :p", "text", "bigint", id="text"),
        pytest.param("select 1 as a from people where tags = :p", "text", "text[]", id="no list"),
        pytest.param("select 1 as a from people where id = any(:p)", "text[]", "bigint[]", id="list"),
        pytest.param("select 1 as a from people where doc = :p", "text", "jsonb", id="JSON"),
    ],
)
async def test_text_that_stands_for_something_else_is_refused(
    postgresql: str, sql: str, declared: str, taken: str
) -> None:
    with pytest.raises(Refused) as caught:
        await inspected(postgresql, sql, p=declared)

    message = caught.value.message
    assert message.startswith(f":p is declared {declared}, and the database takes it for {taken}.")
    assert caught.value.offset == sql.index(":p")


@pytest.mark.parametrize(
    ("place", "declared", "problem"),
    [
        pytest.param("born = :p", "integer", "operator does not exist: date = bigint.", id="date"),
        pytest.param(
            "name = :p", "integer", "operator does not exist: character varying = bigint", id="text"
        ),
        pytest.param("id = :p", "integer[]", "operator does not exist: bigint = bigint[].", id="list"),
        pytest.param(
            "substr(name, :p) = ''", "integer", "function substr(character varying, bigint)", id="wide"
        ),
    ],
)
async def test_declared_type_that_does_not_fit_is_refused(
    postgresql: str, place: str, declared: str, problem: str
) -> None:
    with pytest.raises(Refused) as caught:
        await inspected(postgresql, f"select 1 as a from people where {place}", p=declared)

    assert caught.value.message.startswith(problem)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param("select name from people where boss = 1", {"people.name", "people.boss"}, id="columns"),
        pytest.param("select count(*) as n from people", {"people."}, id="rows alone"),
        pytest.param(
            "select a.name as n from adults a where id = 1", {"adults.name", "adults.id"}, id="view"
        ),
        pytest.param(
            "with p as (select name from people) select count(*) as n from p", {"people.name"}, id="CTE"
        ),
        pytest.param(
            "select o.total from orders o join people p using (id)",
            {"orders.total", "orders.id", "people.id"},
            id="USING",
        ),
        pytest.param(
            "select 1 as x from (select 'guess' as name) g join people using (name)",
            {"people.name"},
            id="oracle",
        ),
        pytest.param(
            "select 1 as x from (select 'guess' as name) g join adults using (name)",
            {"adults.name"},
            id="oracle through a view",
        ),
        pytest.param("select 1 as x where exists (select 1 from orders)", {"orders."}, id="exists"),
        pytest.param("select 1 as x", set(), id="nothing"),
        pytest.param(
            "select total from orders where id in (select id from orders where at is null)"
            " union select id from adults",
            {"orders.total", "orders.id", "orders.at", "adults.id"},
            id="everywhere",
        ),
    ],
)
async def test_what_is_read(url: str, dialect: str, sql: str, expected: set[str]) -> None:
    found = await inspected(url, sql)

    schema = "public" if dialect == "postgresql" else ""
    assert reads(found) == {f"{schema}.{each}" for each in expected}


async def test_cte_that_is_named_like_a_view_reads_its_tables(postgresql: str, sqlite: str) -> None:
    sql = "with adults as (select name from people) select * from adults"

    exact, more = await inspected(postgresql, sql), await inspected(sqlite, sql)

    assert reads(exact) == {"public.people.name"}
    assert reads(more) == {".people.name", ".adults."}


async def test_sqlite_tells_more_of_a_table_that_is_named_beside_its_view(sqlite: str) -> None:
    found = await inspected(sqlite, "select total from orders union select total from totals")

    assert reads(found) == {".orders.total", ".orders.person", ".totals.total"}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param("select 1 as x from adults", {"adults."}, id="rows alone"),
        pytest.param("select count(*) as n from main.Totals", {"totals."}, id="count"),
        pytest.param("select 1 as x where exists (select 1 from adults)", {"adults."}, id="exists"),
        pytest.param("select count(*) as n from some", {"some."}, id="no column below"),
        pytest.param('select 1 as x from "some more"', {"some more."}, id="view of a view"),
        pytest.param("select o.id from orders o, adults", {"orders.id", "adults."}, id="joined"),
        pytest.param(
            "select p.name, (select count(*) from adults) as n from people p",
            {"people.id", "people.name", "people.born", "adults."},
            id="beside its table",
        ),
    ],
)
async def test_view_whose_rows_alone_are_read_is_told_on_sqlite(
    sqlite: str, sql: str, expected: set[str]
) -> None:
    found = await inspected(sqlite, sql)

    assert reads(found) == {f".{each}" for each in expected}


async def test_natural_join_reads_what_both_sides_have(url: str, dialect: str) -> None:
    found = await inspected(url, "select 1 as x from (select 'guess' as name) g natural join people")

    schema = "public" if dialect == "postgresql" else ""
    assert found.reads is not None
    assert (schema, "people", "name") in found.reads


async def test_whole_row_reads_every_column(postgresql: str) -> None:
    found = await inspected(postgresql, "select to_json(o) as o from orders o")

    assert reads(found) == {f"public.orders.{name}" for name in ("id", "person", "total", "at")}


async def test_odd_names_are_read(url: str, dialect: str) -> None:
    table = '"Odd schema"."Odd ""table"' if dialect == "postgresql" else '"Odd ""table"'

    found = await inspected(url, f'select "select" as a from {table} where "Odd column" = :n', n="integer")

    schema = "Odd schema" if dialect == "postgresql" else ""
    names = ("select", "Odd column")
    assert found.reads == frozenset((schema, 'Odd "table', name) for name in names)


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
    async with open_backend(url).describe() as describe:
        with pytest.raises(Refused):
            await describe.query([sql], {})


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


async def test_names_in_another_case_are_the_same_to_sqlite_alone(postgresql: str, sqlite: str) -> None:
    sql = 'select 1 as a, 2 as "A"'

    found = await inspected(postgresql, sql)

    assert list(shown(found)) == ["a", "A"]
    with pytest.raises(Refused):
        await inspected(sqlite, sql)


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


async def test_functions_of_users_are_listed(postgresql: str) -> None:
    found = await inspected(
        postgresql, "select app.touch(total) as a, app.nextval(1) as b, abs(1) as c from orders"
    )

    assert found.functions == ("app.nextval", "app.touch")


@pytest.mark.parametrize(
    ("sql", "functions"),
    [
        pytest.param("select :a::app.spy is null as x", ("app.spies",), id="parameter"),
        pytest.param("select :a::text::app.spy is null as x", ("app.spies",), id="cast"),
        pytest.param("select cast('x' as app.spy_of_spies) as x", ("app.spies",), id="domain over it"),
        pytest.param("select array[:a]::app.spy[] as x", ("app.spies",), id="array"),
        pytest.param("select row(:a)::app.spying is null as x", ("app.spies",), id="row"),
        pytest.param("select (:a::text::app.spying).name as x", ("app.spies",), id="row from a text"),
        pytest.param(
            "select x.name from jsonb_to_record(:j) as x (name app.spy)", ("app.spies",), id="columns in FROM"
        ),
        pytest.param("select name from spied where name = :a", (), id="column"),
        pytest.param("select (row).name as x from spied", (), id="field"),
        pytest.param("select mail from people", (), id="other domain"),
    ],
)
async def test_functions_of_domains_that_a_query_makes_are_listed(
    postgresql: str, sql: str, functions: tuple[str, ...]
) -> None:
    declared = {name: type for name, type in (("a", "text"), ("j", "json")) if f":{name}" in sql}

    found = await inspected(postgresql, sql, **declared)

    assert found.functions == functions


GRANTS = "grant usage on schema app to {}; grant select on orders, totals, people to {};"


@pytest.fixture
def no_temp(postgresql: str, postgresql_login: Any) -> Iterator[str]:
    """Give the URL of a login that makes no temporary views."""
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


async def test_login_that_is_told_to_read_only_learns_everything(
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


async def test_names_mean_to_a_role_what_they_mean_in_its_calls(
    postgresql: str, postgresql_login: Any
) -> None:
    schema = (
        "create schema authorization {}; create table {}.orders (own text);"
        " alter table {}.orders owner to {}; grant select on orders to {}"
    )
    with postgresql_login(postgresql, schema) as login:
        session = {"role": str(urlsplit(login).username)}
        async with open_backend(postgresql).describe(session) as describe:
            found = await describe.query(["select id from orders"], {})

    assert list(shown(found)) == ["id"]


async def test_connection_is_as_it_was(postgresql: str) -> None:
    async with lent(postgresql) as connection:
        for sql in ("select id from people", "selec", "select id from people for update"):
            try:
                await postgresql_inspection.Description(connection).query([sql], {})
            except Refused:
                continue
        assert not connection.is_in_transaction()
        assert await connection.fetchval("select count(*) from pg_class where relname like 'dbtools%'") == 0
        assert await connection.fetchval("show statement_timeout") == "0"


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        pytest.param(
            "select id, name, born, rate, doc from people",
            {"id": "integer", "name": "varchar(80)", "born": "date", "rate": "decimal(12,2)", "doc": "json"},
            id="columns",
        ),
        pytest.param(
            "select count(*), total + 1, max(total) as m from orders",
            {"count(*)": "any", "total + 1": "any", "m": "any"},
            id="expressions",
        ),
        pytest.param(
            "with p as (select rate from people) select * from p", {"rate": "decimal(12,2)"}, id="CTE"
        ),
        pytest.param(
            "select * from adults", {"id": "integer", "name": "varchar(80)", "born": "date"}, id="view"
        ),
        pytest.param(
            "select s.id, (select name from people limit 1) as n from (select id from orders) as s",
            {"id": "integer", "n": "varchar(80)"},
            id="subqueries",
        ),
        pytest.param(
            "select rank() over (order by total) as r, id from orders",
            {"r": "any", "id": "integer"},
            id="window",
        ),
        pytest.param("values (1, 'a')", {"column1": "any", "column2": "any"}, id="values"),
        pytest.param("select body from notes where notes match :q", {"body": "any"}, id="virtual table"),
        pytest.param(
            "select id as 'a b', name as [c d] from people -- x",
            {"a b": "integer", "c d": "varchar(80)"},
            id="odd names",
        ),
    ],
)
async def test_columns_on_sqlite(sqlite: str, sql: str, columns: Mapping[str, str]) -> None:
    found = await inspected(sqlite, sql, q="text")

    assert (shown(found), lenient(found), found.casts) == (columns, set(columns), {})


@pytest.mark.parametrize(
    ("sql", "loose"),
    [
        pytest.param("select id, v, n from exact", set(), id="strict"),
        pytest.param(
            "with e as (select v from exact) select e.v, x.id from e join exact x", set(), id="joined"
        ),
        pytest.param("select v, free from exact", {"free"}, id="any"),
        pytest.param("select id, count(*) as k, n + 1 as m from exact", {"k", "m"}, id="expression"),
        pytest.param("select v from exact union all select 5", {"v"}, id="union"),
        pytest.param("select v from both_of", {"v"}, id="union in a view"),
        pytest.param("select exact.v from exact join people using (id)", {"v"}, id="other table"),
    ],
)
async def test_only_strict_columns_are_exact_on_sqlite(sqlite: str, sql: str, loose: set[str]) -> None:
    found = await inspected(sqlite, sql)

    assert lenient(found) == loose


@pytest.mark.parametrize(
    "shown",
    [":a", ":a + 1", "case when id = :a then 1 end", "id in (:ids)", "*, :claims.x || 'a'", ":a = :a"],
)
async def test_expression_with_a_parameter_wants_a_name_on_sqlite(sqlite: str, shown: str) -> None:
    with pytest.raises(Refused) as caught:
        await inspected(sqlite, f"select id, {shown} from orders", a="integer", ids="integer[]")

    assert caught.value.message == "A column that is computed from a parameter has no name."
    assert caught.value.hint == "Name it with AS."


async def test_parameters_on_sqlite_are_as_declared(sqlite: str) -> None:
    declared = {
        "a": "integer",
        "b": "number",
        "c": "decimal",
        "d": "text",
        "e": "boolean",
        "f": "date",
        "g": "time",
        "h": "timestamp",
        "i": "uuid",
        "j": "json",
        "k": "integer[]",
    }
    shown = ", ".join(f":{name} as {name}" for name in declared if name != "k")
    sql = f"select {shown}, :claims.x as x where 1 in (:k) limit :a"

    found = await inspected(sqlite, sql, **declared)

    families = {name: type.family for name, type in found.parameters.items()}
    assert families == {
        "a": Family.INTEGER,
        "b": Family.NUMBER,
        "c": Family.DECIMAL,
        "d": Family.TEXT,
        "e": Family.BOOLEAN,
        "f": Family.DATE,
        "g": Family.TIME,
        "h": Family.TIMESTAMP,
        "i": Family.TEXT,
        "j": Family.JSON,
        "claims.x": Family.TEXT,
        "k": Family.ARRAY,
    }
    assert found.parameters["f"] == column_type("date", strict=False)
    assert found.parameters["k"].element == column_type("integer", strict=False)


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


async def test_list_that_does_not_stand_alone_is_told_how_to_on_sqlite(sqlite: str) -> None:
    with pytest.raises(Refused) as caught:
        await inspected(sqlite, "select id from people where id = :ids", ids="integer[]")

    assert caught.value.message == (":ids is a list: write in (:ids), not in (:ids) or = any(:ids).")


LISTS = [
    ("x in (:ids)", "x = any(:ids)", "x in (J(:ids))"),
    ("x IN ( :ids )", "x = any( :ids )", "x in (J( :ids ))"),
    ("x not in (:ids)", "x <> all(:ids)", "x not in (J(:ids))"),
    ("x Not /* in ( */ in\n(:ids) and y", "x <> all(:ids) and y", "x not in (J(:ids)) and y"),
    ("x = any(:ids)", "x = any(:ids)", "x in (J(:ids))"),
    ("x <> ALL (:ids)", "x <> all(:ids)", "x not in (J(:ids))"),
    ("x != all(:ids)", "x <> all(:ids)", "x not in (J(:ids))"),
    ("x <= any(:ids)", "x <= any(:ids)", "x <= any(:ids)"),
    ("x in (1, :ids)", "x in (1, :ids)", "x in (1, :ids)"),
    ("x in (:ids, 1)", "x in (:ids, 1)", "x in (:ids, 1)"),
    ("x in (:one)", "x in (:one)", "x in (:one)"),
    ("f(:ids)", "f(:ids)", "f(:ids)"),
    ("x = -- in (\n:ids", "x = -- in (\n:ids", "x = -- in (\n:ids"),
    ("x in (:ids) or y in (:ids)", "x = any(:ids) or y = any(:ids)", "x in (J(:ids)) or y in (J(:ids))"),
]


@pytest.mark.parametrize(("sql", "postgresql_sql", "sqlite_sql"), LISTS)
def test_lists_are_written_as_the_database_reads_them(sql: str, postgresql_sql: str, sqlite_sql: str) -> None:
    for scheme, forms, expected in (
        ("postgresql://a", POSTGRESQL_LISTS, postgresql_sql),
        ("sqlite:///a", SQLITE_LISTS, sqlite_sql.replace("J(", "select value from json_each(")),
    ):
        lexis = open_backend(scheme).facts.lexis
        pieces = scan(sql, lexis).pieces

        written = with_lists(pieces, {"ids"}.__contains__, forms)

        assert "".join(map(str, written)) == expected
        assert [isinstance(each, Parameter) for each in written] == [
            isinstance(each, Parameter) for each in pieces
        ]


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("id in (:ids)", {0: 0, 3: 3, 10_000: 10}),
        ("id = any(:ids)", {0: 0, 3: 3, 10_000: 10}),
        ("id not in (:ids)", {0: 10, 3: 7, 10_000: 0}),
        ("id <> all(:ids)", {0: 10, 3: 7, 10_000: 0}),
    ],
)
async def test_lists_of_any_length_run(
    url: str, dialect: str, condition: str, rows: Mapping[int, int]
) -> None:
    lexis = open_backend(url).facts.lexis
    pieces = scan(f"select count(*) as n from orders where {condition}", lexis).pieces
    forms = POSTGRESQL_LISTS if dialect == "postgresql" else SQLITE_LISTS
    written = with_lists(pieces, {"ids"}.__contains__, forms)
    sql = "".join(each if isinstance(each, str) else "$1" for each in written)

    async with lent(url) as connection:
        for length, expected in rows.items():
            ids = list(range(1, length + 1))
            if dialect == "postgresql":
                assert await connection.fetchval(sql, ids) == expected
            else:
                cursor = await connection.execute(sql, (json.dumps(ids),))
                assert await cursor.fetchone() == (expected,)


@pytest.mark.parametrize(
    "condition",
    ["id in (:ids, 2)", "id in (2, :ids)", "id not in (:ids, 2)", "id >= (:ids)", "id = :ids", "id < :ids"],
)
async def test_list_that_is_compared_as_one_value_is_refused(url: str, condition: str) -> None:
    with pytest.raises(Refused):
        await inspected(url, f"select id from orders where {condition}", ids="integer[]")


@pytest.mark.parametrize(
    "shown", ["json_array_length(:ids)", ":ids", "(select count(*) from json_each(:ids))"]
)
async def test_list_may_be_shown_and_read_as_json(sqlite: str, shown: str) -> None:
    found = await inspected(sqlite, f"select {shown} as shown from orders", ids="integer[]")

    assert [column.name for column in found.columns] == ["shown"]


class Held(Description):
    """Holds what it explains on its thread until `release` is set, and uses the connection again then."""

    def __init__(self, where: Location) -> None:
        super().__init__(where)
        self.loop, self.seen = asyncio.get_running_loop(), list[object]()
        self.explained, self.closed, self.release = asyncio.Event(), asyncio.Event(), threading.Event()

    def _explain(self, table: Table, condition: Fragment) -> None:
        super()._explain(table, condition)
        connection = self._connection
        assert connection is not None
        self.loop.call_soon_threadsafe(self.explained.set)
        self.release.wait(PATIENCE)
        self.seen += [connection, connection.execute("select 1").fetchone()]

    def _close(self) -> None:
        super()._close()
        self.loop.call_soon_threadsafe(self.closed.set)


async def test_sqlite_closes_the_connection_after_what_was_cancelled_on_it(sqlite: str) -> None:
    table, condition = Table(name="people", columns=()), scan("name = 'x'", sqlite_lexis)
    with anyio.fail_after(PATIENCE):
        with closing(Held(location_of(sqlite))) as held:
            asked = asyncio.create_task(held.condition(table, condition))
            await held.explained.wait()
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
        held.release.set()
        await held.closed.wait()

    (connection, row) = held.seen
    assert row == (1,)
    assert isinstance(connection, sqlite3.Connection)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("select 1")


async def test_condition_is_not_refused_for_good_while_the_file_is_locked(
    sqlite_database: Callable[[str], Path],
) -> None:
    path = sqlite_database(SQLITE)
    table, condition = Table(name="people", columns=()), scan("name = 'x'", sqlite_lexis)
    async with open_backend(f"sqlite:///{path}").describe() as describe:
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("begin exclusive")
            with pytest.raises(Refused) as refused:
                await describe.condition(table, condition)
        understood = await describe.condition(table, condition)

    assert refused.value.passes
    assert understood == ()
