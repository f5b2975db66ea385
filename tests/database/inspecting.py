"""What the databases report about a query before it is called. SQL and types in, an Inspected out."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dbtools.backends import open_backend
from dbtools.backends.port import Declared, Inspected, Inspector
from dbtools.backends.runs import NO_SESSION
from dbtools.schema.sql import scan
from tests.database.shop import pool_of

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
create function app.touch(integer) returns integer language sql volatile
    set search_path = pg_catalog as 'select $1';
create function app.twice(integer) returns integer language sql immutable
    set search_path = pg_catalog as 'select 2 * $1';
create function app.nextval(integer) returns integer language sql immutable
    set search_path = pg_catalog as 'select 3 * $1';
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


def declarations(declared: Mapping[str, str]) -> Mapping[str, Declared]:
    """Return what *declared* says, such as integer[]."""
    return {
        name: Declared(type=type.removesuffix("[]"), array=type.endswith("[]"))
        for name, type in declared.items()
    }


@asynccontextmanager
async def lent(url: str) -> AsyncIterator[Any]:
    """Open a connection of the driver to *url*."""
    backend = open_backend(url)
    try:
        async with (await pool_of(backend)).connection() as connection:
            yield connection
    finally:
        await backend.close()


async def inspected(url: str, sql: str, **declared: str) -> Inspected:
    """Return what the database at *url* says of *sql*, whose parameters are *declared*."""
    pieces = scan(sql, open_backend(url).facts.lexis).pieces
    async with describing(url) as inspector:
        return await inspector.query(pieces, declarations(declared))


@asynccontextmanager
async def describing(url: str, session: Mapping[str, str] = NO_SESSION) -> AsyncIterator[Inspector]:
    """Open an Inspector of the database at *url*, and close everything in the end."""
    backend = open_backend(url)
    try:
        async with backend.describe(session) as inspector:
            yield inspector
    finally:
        await backend.close()


@pytest.fixture(scope="module")
def postgresql(postgresql_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the URL of the database that most tests ask."""
    with postgresql_database(POSTGRESQL) as url:
        yield url


@pytest.fixture(scope="module")
def sqlite(sqlite_database: Callable[[str], Path]) -> str:
    """Return the URL of the file that most tests ask."""
    return f"sqlite:///{sqlite_database(SQLITE)}"


@pytest.fixture
def url(dialect: str, request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(dialect))


def by_name(types: str) -> dict[str, str]:
    """Return *types*, such as `id: integer, name: text`, by name."""
    return dict(each.split(": ") for each in types.split(", ") if each)


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
