"""What the catalog of a PostgreSQL database becomes, read from a real server."""

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from typing import NamedTuple, cast

import anyio
import asyncpg
import pytest

from dbtools import errors
from dbtools.catalog import Catalog, Column, ForeignKey, Key, Selection, Table, TableKind
from dbtools.column_types import ColumnType, Family
from dbtools.dialects.postgresql.introspection import check_version, read_catalog
from tests.postgresql_server import PostgresqlServer

EVERYTHING = Selection()
NO_MORE = "select"  #: DDL that changes nothing

INTEGER = ColumnType(
    family=Family.INTEGER, name="integer", cast="pg_catalog.int4", minimum=-(2**31), maximum=2**31 - 1
)
BIGINT = ColumnType(
    family=Family.INTEGER, name="bigint", cast="pg_catalog.int8", minimum=-(2**63), maximum=2**63 - 1
)
TEXT = ColumnType(family=Family.TEXT, name="text", cast="pg_catalog.text", large=True)
NUMERIC = ColumnType(
    family=Family.DECIMAL, name="numeric", cast="pg_catalog.numeric", infinite=True, large=True
)
JSON = ColumnType(
    family=Family.JSON,
    name="json",
    cast="pg_catalog.json",
    equatable=False,
    ordered=False,
    large=True,
)
DATE = ColumnType(family=Family.DATE, name="date", cast="pg_catalog.date", infinite=True)
MOOD = ColumnType(family=Family.ENUM, name="app.mood", cast="app.mood", labels=("sad", "ok", "Très bien"))
POINT_2D = ColumnType(
    family=Family.OBJECT,
    name="app.point_2d",
    cast="app.point_2d",
    fields=(("x", INTEGER), ("Y value", replace(NUMERIC, name="numeric(6,2)", large=False))),
    large=True,
)
ORDERED_AS_TEXT = ColumnType(family=Family.OTHER, name="", cast="", large=True)

TYPE_DEFINITIONS = """
create schema app;
create schema "The App";
create type app.mood as enum ('sad', 'ok', 'Très bien');
create type "The App"."select" as enum ();
create type app.point_2d as (x integer, "Y value" numeric(6,2));
create type app.route as (name varchar(9), via app.point_2d[], note json);
create table app.parent (id integer, gone text, name text);
alter table app.parent drop column gone;
create type app.span as range (subtype = integer);
create type app.name_span as range (subtype = text);
create domain app.code as varchar(20);
create domain app.short_code as app.code;
create domain app.codes as app.code[];
create domain app.feeling as app.mood;
create domain app.place as app.point_2d;
"""


def _plain(family: Family, name: str, native: str, **facts: object) -> ColumnType:
    return ColumnType(family=family, name=name, cast=f"pg_catalog.{native}", **facts)  # type: ignore[arg-type]


def _other(name: str, native: str = "", **facts: object) -> ColumnType:
    return _plain(Family.OTHER, name, native or name, **facts)


def _array(name: str, cast: str, element: ColumnType, **facts: object) -> ColumnType:
    return ColumnType(
        family=Family.ARRAY,
        name=name,
        cast=cast,
        element=element,
        large=True,
        **facts,  # type: ignore[arg-type]
    )


UNORDERED = {"ordered": False}
INCOMPARABLE = {"equatable": False, "ordered": False}

#: How a column is declared, and its type.
TYPES: dict[str, ColumnType] = {
    "smallint": _plain(Family.INTEGER, "smallint", "int2", minimum=-(2**15), maximum=2**15 - 1),
    "integer": INTEGER,
    "bigint": BIGINT,
    "real": _plain(Family.NUMBER, "real", "float4", infinite=True),
    "double precision": _plain(Family.NUMBER, "double precision", "float8", infinite=True),
    "numeric": NUMERIC,
    "numeric(10,2)": replace(NUMERIC, name="numeric(10,2)", large=False),
    "numeric(1000)": replace(NUMERIC, name="numeric(1000,0)"),
    "boolean": _plain(Family.BOOLEAN, "boolean", "bool"),
    "text": TEXT,
    "varchar": _plain(Family.TEXT, "character varying", "varchar", large=True),
    "varchar(400)": _plain(Family.TEXT, "character varying(400)", "varchar"),
    "varchar(401)": _plain(Family.TEXT, "character varying(401)", "varchar", large=True),
    "char(3)": _plain(Family.TEXT, "character(3)", "bpchar"),
    "bpchar": _plain(Family.TEXT, "bpchar", "bpchar", large=True),
    "name": _plain(Family.TEXT, "name", "name"),
    "date": DATE,
    "time": _plain(Family.TIME, "time without time zone", "time"),
    "timestamp": _plain(Family.TIMESTAMP, "timestamp without time zone", "timestamp", infinite=True),
    "timestamptz(3)": _plain(Family.TIMESTAMPTZ, "timestamp(3) with time zone", "timestamptz", infinite=True),
    "interval": _plain(Family.INTERVAL, "interval", "interval"),
    "uuid": _plain(Family.UUID, "uuid", "uuid"),
    "json": JSON,
    "jsonb": _plain(Family.JSON, "jsonb", "jsonb", large=True),
    "bytea": _plain(Family.BYTES, "bytea", "bytea", large=True),
    "app.mood": MOOD,
    '"The App"."select"': ColumnType(
        family=Family.ENUM, name='"The App"."select"', cast='"The App"."select"'
    ),
    "integer[]": _array("integer[]", "pg_catalog.int4[]", INTEGER),
    "varchar(5)[][]": _array(
        "character varying(5)[]",
        "pg_catalog.varchar[]",
        _plain(Family.TEXT, "character varying(5)", "varchar"),
    ),
    "json[]": _array("json[]", "pg_catalog.json[]", JSON, **INCOMPARABLE),
    "app.mood[]": _array("app.mood[]", "app.mood[]", MOOD),
    "app.code[]": _array("app.code[]", "app.code[]", _plain(Family.TEXT, "app.code", "varchar")),
    "app.codes": _array("app.codes", "app.code[]", _plain(Family.TEXT, "app.code", "varchar")),
    "app.point_2d": POINT_2D,
    "app.route": ColumnType(
        family=Family.OBJECT,
        name="app.route",
        cast="app.route",
        fields=(
            ("name", _plain(Family.TEXT, "character varying(9)", "varchar")),
            ("via", _array("app.point_2d[]", "app.point_2d[]", POINT_2D)),
            ("note", JSON),
        ),
        large=True,
        **INCOMPARABLE,
    ),
    "app.parent": ColumnType(
        family=Family.OBJECT,
        name="app.parent",
        cast="app.parent",
        fields=(("id", INTEGER), ("name", TEXT)),
        large=True,
    ),
    "app.code": _plain(Family.TEXT, "app.code", "varchar"),
    "app.short_code": _plain(Family.TEXT, "app.short_code", "varchar"),
    "app.feeling": replace(MOOD, name="app.feeling"),
    "app.place": replace(POINT_2D, name="app.place"),
    "int4range": _other("int4range"),
    "numrange": _other("numrange", large=True),
    "tstzrange": _other("tstzrange"),
    "app.span": ColumnType(family=Family.OTHER, name="app.span", cast="app.span"),
    "app.name_span": ColumnType(family=Family.OTHER, name="app.name_span", cast="app.name_span", large=True),
    "timetz": _other("time with time zone", "timetz"),
    "money": _other("money"),
    "inet": _other("inet"),
    "cidr": _other("cidr"),
    "macaddr": _other("macaddr"),
    "bit(8)": _other("bit(8)", "bit"),
    "bit(999)": _other("bit(999)", "bit", large=True),
    "varbit": _other("bit varying", "varbit", large=True),
    "varbit(9)": _other("bit varying(9)", "varbit"),
    "xml": _other("xml", large=True, **INCOMPARABLE),
    "tsvector": _other("tsvector", large=True),
    "tsquery": _other("tsquery", large=True),
    "jsonpath": _other("jsonpath", large=True, **INCOMPARABLE),
    "point": _other("point", **INCOMPARABLE),
    "box": _other("box", **INCOMPARABLE),
    "circle": _other("circle", **INCOMPARABLE),
    "path": _other("path", large=True, **INCOMPARABLE),
    "polygon": _other("polygon", large=True, **INCOMPARABLE),
    "oid": _other("oid"),
    "regclass": _other("regclass"),
    "pg_lsn": _other("pg_lsn"),
    "xid": _other("xid", **UNORDERED),
    '"char"': _other('"char"', "char"),
    "int2vector": _other("int2vector", large=True, **INCOMPARABLE),
}

TYPED_TABLE = f"""
{TYPE_DEFINITIONS}
create table typed ({", ".join(f'"c{place}" {declared}' for place, declared in enumerate(TYPES))});
"""


class Typed(NamedTuple):
    """A database with a column of each type."""

    url: str
    types: dict[str, ColumnType]


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def _catalog(url: str, ddl: str, selection: Selection = EVERYTHING) -> Catalog:
    async with _connected(url) as connection:
        await connection.execute(ddl)
        return await read_catalog(connection, selection)


async def _table(url: str, ddl: str, name: str) -> Table:
    return next(table for table in (await _catalog(url, ddl)).tables if table.name == name)


@pytest.fixture(scope="module")
async def typed(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> AsyncIterator[Typed]:
    """Give a table with a column of each type, and what its catalog says."""
    with postgresql_database(TYPED_TABLE) as url:
        table = await _table(url, NO_MORE, "typed")
        types = (column.type for column in table.columns)
        yield Typed(url=url, types=dict(zip(TYPES, types, strict=True)))


@pytest.fixture
async def reader(postgresql_url: str) -> AsyncIterator[str]:
    """Give a role that may do nothing, in the test's own database."""
    name = f"reader_{secrets.token_hex(8)}"
    async with _connected(postgresql_url) as connection:
        await connection.execute(f"create role {name}")
        yield name
        await connection.execute(f"drop owned by {name}; drop role {name}")


async def _catalog_of_role(url: str, role: str, ddl: str) -> Catalog:
    async with _connected(url) as connection:
        await connection.execute(ddl)
        await connection.execute(f"set role {role}")
        return await read_catalog(connection, EVERYTHING)


def _columns(catalog: Catalog) -> dict[str, list[str]]:
    return {catalog.qualified(table): [column.name for column in table.columns] for table in catalog.tables}


# Types


@pytest.mark.parametrize("declared", TYPES)
async def test_type_of_column_is_known(declared: str, typed: Typed) -> None:
    assert typed.types[declared] == TYPES[declared]


@pytest.mark.parametrize("declared", TYPES)
async def test_operators_that_a_type_has_work_with_its_cast(declared: str, typed: Typed) -> None:
    type = typed.types[declared]
    column = f"c{list(TYPES).index(declared)}"
    operators = ["="] * type.equatable + ["<"] * type.ordered
    conditions = [f"{column} {operator} $1::text::{type.cast}" for operator in operators]
    async with _connected(typed.url) as connection:
        statement = f"select from typed where {' or '.join([*conditions, '$1::text is null'])}"

        assert await connection.fetch(statement, None) == []


@pytest.mark.parametrize("declared", [each for each in TYPES if TYPES[each].element])
async def test_element_of_an_array_is_compared_with_its_cast(declared: str, typed: Typed) -> None:
    element = typed.types[declared].element
    column = f"c{list(TYPES).index(declared)}"
    async with _connected(typed.url) as connection:
        statement = f"select from typed where $1::text::{element and element.cast} = any ({column})"

        if element and element.equatable:
            assert await connection.fetch(statement, None) == []
        else:
            with pytest.raises(asyncpg.UndefinedFunctionError):
                await connection.fetch(statement, None)


async def test_multirange_is_large(postgresql_url: str, postgresql_server: PostgresqlServer) -> None:
    if postgresql_server.version < 14:
        pytest.skip("multiranges came with version 14")

    table = await _table(postgresql_url, "create table t (c int4multirange)", "t")

    assert table.columns == (Column(name="c", type=_other("int4multirange", large=True)),)


@pytest.mark.parametrize(
    ("extension", "declared", "type"),
    [
        pytest.param("citext", "citext", replace(TEXT, name="citext", cast="public.citext"), id="citext"),
        pytest.param("hstore", "hstore", _other("hstore", large=True), id="hstore"),
        pytest.param("vector", "vector(3)", _other("vector(3)", "vector", large=True), id="vector"),
    ],
)
async def test_type_of_an_extension_is_known(
    postgresql_url: str, extension: str, declared: str, type: ColumnType
) -> None:
    async with _connected(postgresql_url) as connection:
        available = await connection.fetch("select name from pg_available_extensions")
    if extension not in {row["name"] for row in available}:
        pytest.skip(f"the server has no {extension}")
    cast = f"public.{extension}"

    table = await _table(postgresql_url, f"create extension {extension}; create table t (c {declared})", "t")

    assert table.columns == (Column(name="c", type=replace(type, cast=cast)),)


async def test_type_whose_operators_are_out_of_reach_is_not_compared(postgresql_url: str) -> None:
    ddl = """
    create schema away;
    create type away.feet;
    create function away.feet_in(cstring) returns away.feet language internal as 'int4in' immutable strict;
    create function away.feet_out(away.feet) returns cstring language internal as 'int4out' immutable strict;
    create type away.feet (input = away.feet_in, output = away.feet_out, like = int4);
    create function away.eq(away.feet, away.feet) returns bool language internal as 'int4eq' immutable strict;
    create operator away.= (leftarg = away.feet, rightarg = away.feet, function = away.eq, hashes);
    create function away.hash(away.feet) returns integer language internal as 'hashint4' immutable strict;
    create operator class away.feet_ops default for type away.feet using hash as
        operator 1 away.=, function 1 away.hash(away.feet);
    create table t (c away.feet);
    """
    feet = ColumnType(family=Family.OTHER, name="away.feet", cast="away.feet", **INCOMPARABLE)

    away = await _table(postgresql_url, ddl, "t")
    here = await _table(postgresql_url, "set search_path = public, away", "t")

    assert away.columns == (Column(name="c", type=feet),)
    assert here.columns == (Column(name="c", type=replace(feet, name="feet", equatable=True)),)


async def test_type_of_a_closed_schema_is_not_compared(postgresql_url: str, reader: str) -> None:
    ddl = f"{TYPE_DEFINITIONS} create table t (c app.mood); grant select on t to {reader}"

    catalog = await _catalog_of_role(postgresql_url, reader, ddl)

    assert catalog.tables[0].columns == (Column(name="c", type=replace(MOOD, **INCOMPARABLE)),)


async def test_deeply_nested_types_are_cut_off(postgresql_url: str) -> None:
    nested = "".join(f"create type n{depth} as (c n{depth - 1});" for depth in range(1, 200))

    table = await _table(postgresql_url, f"create type n0 as (c text); {nested} create table t (c n199)", "t")

    levels, type = 0, table.columns[0].type
    while type.family is Family.OBJECT:
        levels, type = levels + 1, type.fields[0][1]
    assert (levels, type) == (
        16,
        ColumnType(family=Family.OTHER, name="n183", cast="public.n183", large=True, **INCOMPARABLE),
    )


# Columns


async def test_columns_are_read_with_all_that_is_said_of_them(postgresql_url: str) -> None:
    ddl = """
    create table t (
        id bigint generated always as identity,
        number integer generated by default as identity,
        serial serial,
        gone text,
        name text not null default 'it''s',
        day date default current_date,
        doubled integer generated always as (number * 2) stored
    );
    alter table t drop column gone;
    comment on column t.name is E'The name,\nas spoken';
    """
    serial = "nextval('t_serial_seq'::regclass)"

    table = await _table(postgresql_url, ddl, "t")

    assert table.columns == (
        Column(name="id", type=BIGINT, nullable=False, generated=True),
        Column(name="number", type=INTEGER, nullable=False, generated=True),
        Column(name="serial", type=INTEGER, nullable=False, default=serial),
        Column(
            name="name", type=TEXT, nullable=False, default="'it''s'::text", comment="The name,\nas spoken"
        ),
        Column(name="day", type=DATE, default="CURRENT_DATE"),
        Column(name="doubled", type=INTEGER, generated=True),
    )


async def test_virtual_column_is_generated(postgresql_url: str, postgresql_server: PostgresqlServer) -> None:
    if postgresql_server.version < 18:
        pytest.skip("virtual columns came with version 18")
    ddl = "create table t (a integer, b integer generated always as (a + 1) virtual)"

    table = await _table(postgresql_url, ddl, "t")

    assert table.columns == (
        Column(name="a", type=INTEGER),
        Column(name="b", type=INTEGER, generated=True),
    )


async def test_null_that_is_only_refused_from_now_on_may_be_stored(
    postgresql_url: str, postgresql_server: PostgresqlServer
) -> None:
    if postgresql_server.version < 18:
        pytest.skip("NOT NULL without validation came with version 18")
    ddl = "create table t (a integer unique); alter table t add constraint c not null a not valid"

    table = await _table(postgresql_url, ddl, "t")

    assert (table.columns, table.keys) == ((Column(name="a", type=INTEGER),), ())


async def test_columns_of_a_view_may_be_null_and_have_comments(postgresql_url: str) -> None:
    ddl = """
    create domain filled as integer not null check (value > 0);
    create table t (id integer primary key, f filled);
    create view v as select * from t;
    comment on view v is 'All of t';
    comment on column v.id is 'as in t';
    """
    filled = replace(INTEGER, name="filled")

    catalog = await _catalog(postgresql_url, ddl)

    assert catalog.tables == (
        Table(
            name="t",
            schema="public",
            columns=(
                Column(name="id", type=INTEGER, nullable=False),
                Column(name="f", type=filled, nullable=False, minimum="1"),
            ),
            keys=(Key(columns=("id",), primary=True),),
        ),
        Table(
            name="v",
            schema="public",
            kind=TableKind.VIEW,
            columns=(
                Column(name="id", type=INTEGER, comment="as in t"),
                Column(name="f", type=filled, minimum="1"),
            ),
            comment="All of t",
        ),
    )


@pytest.mark.parametrize(
    ("declared", "checked"),
    [
        pytest.param("integer check (c > 0)", {"minimum": "1"}, id="exclusive-minimum"),
        pytest.param("integer check (c >= -5 and c < 10)", {"minimum": "-5", "maximum": "9"}, id="both"),
        pytest.param(
            "integer check (c > 3) check (c >= 4) check (c >= 2) check (c <= 9) check (c <= 7)",
            {"minimum": "4", "maximum": "7"},
            id="narrowest",
        ),
        pytest.param("numeric check (c > 0)", {"minimum": "> 0"}, id="decimal-minimum"),
        pytest.param("numeric check (c < 1.5)", {"maximum": "< 1.5"}, id="decimal-maximum"),
        pytest.param("numeric check (c >= 2) check (c > 2)", {"minimum": "> 2"}, id="exclusive-wins"),
        pytest.param("date check (c >= '2020-01-01')", {"minimum": "2020-01-01"}, id="date"),
        pytest.param("text check (c in ('new', 'done'))", {"choices": ("new", "done")}, id="choices"),
        pytest.param(
            "varchar(9) check (c in ('a', 'b', 'c')) check (c in ('c', 'b', 'd'))",
            {"choices": ("b", "c")},
            id="choices-in-common",
        ),
        pytest.param("text check (length(c) > 3)", {}, id="not-understood"),
        pytest.param("text check (c in ('a', 'b')) no inherit", {}, id="not-of-those-who-inherit"),
    ],
)
async def test_checks_say_what_a_column_holds(
    postgresql_url: str, declared: str, checked: dict[str, object]
) -> None:
    table = await _table(postgresql_url, f"create table t (c {declared}, d integer)", "t")

    plain = Column(name="c", type=table.columns[0].type)
    assert table.columns == (
        replace(plain, **checked),  # type: ignore[arg-type]
        Column(name="d", type=INTEGER),
    )


async def test_check_that_old_rows_may_break_says_nothing(postgresql_url: str) -> None:
    ddl = "create table t (c integer); alter table t add check (c > 0) not valid"

    table = await _table(postgresql_url, ddl, "t")

    assert table.columns == (Column(name="c", type=INTEGER),)


async def test_checks_of_all_domains_hold_for_a_column(postgresql_url: str) -> None:
    ddl = """
    create domain positive as integer check (value > 0);
    create domain grade as positive not null check (value <= 6) check (value <= 5);
    create domain status as text check (value in ('on', 'off'));
    alter domain status add check (value <> 'off') not valid;
    create table t (a positive, b grade, c status, d grade[], "VALUE" positive check ("VALUE" < 9));
    """
    positive, grade = replace(INTEGER, name="positive"), replace(INTEGER, name="grade")

    table = await _table(postgresql_url, ddl, "t")

    assert table.columns == (
        Column(name="a", type=positive, minimum="1"),
        Column(name="b", type=grade, nullable=False, minimum="1", maximum="5"),
        Column(name="c", type=replace(TEXT, name="status"), choices=("on", "off")),
        Column(name="d", type=_array("grade[]", "public.grade[]", grade)),
        Column(name="VALUE", type=positive, minimum="1", maximum="8"),
    )


# Keys


@pytest.mark.parametrize(
    ("ddl", "keys"),
    [
        pytest.param("create table t (a integer, b integer)", (), id="none"),
        pytest.param(
            "create table t (a integer, b integer, primary key (b, a))",
            (Key(columns=("b", "a"), primary=True),),
            id="composite-in-its-own-order",
        ),
        pytest.param(
            "create table t (a integer not null, b integer primary key, unique (a), unique (a, b))",
            (Key(columns=("b",), primary=True), Key(columns=("a",)), Key(columns=("a", "b"))),
            id="primary-first",
        ),
        pytest.param(
            "create table t (a integer unique, b integer not null unique)",
            (Key(columns=("b",)),),
            id="not-with-nulls",
        ),
        pytest.param(
            "create table t (a integer not null, b text not null);"
            "create unique index on t (a) include (b);"
            "create unique index on t (b) where a > 0;"
            "create unique index on t (lower(b));"
            "create index on t (b)",
            (Key(columns=("a",)),),
            id="plain-indexes",
        ),
        pytest.param(
            "create table t (a integer primary key deferrable, b integer not null unique deferrable)",
            (Key(columns=("a",), primary=True),),
            id="deferrable",
        ),
        pytest.param(
            "create table t (a integer primary key, unique (a))",
            (Key(columns=("a",), primary=True),),
            id="said-twice",
        ),
        pytest.param(
            "create table t (a integer primary key); create table child () inherits (t)",
            (),
            id="not-those-that-heirs-repeat",
        ),
        pytest.param(
            "create table s (a integer not null); create materialized view t as select a from s;"
            "create unique index on t (a)",
            (),
            id="materialized-view-may-hold-nulls",
        ),
    ],
)
async def test_keys_name_one_row(postgresql_url: str, ddl: str, keys: tuple[Key, ...]) -> None:
    table = await _table(postgresql_url, ddl, "t")

    assert table.keys == keys


async def test_key_and_foreign_key_over_periods(
    postgresql_url: str, postgresql_server: PostgresqlServer
) -> None:
    if postgresql_server.version < 18:
        pytest.skip("keys over periods came with version 18")
    ddl = """
    create table room (id int4range, valid daterange, primary key (id, valid without overlaps));
    create table stay (
        room int4range,
        valid daterange,
        foreign key (room, period valid) references room (id, period valid)
    );
    """

    catalog = await _catalog(postgresql_url, ddl)

    assert [(table.keys, table.foreign_keys) for table in catalog.tables] == [
        ((Key(columns=("id", "valid"), primary=True),), ()),
        ((), ()),
    ]


# Foreign keys


def _foreign_key(columns: str, target: str, target_columns: str, schema: str = "public") -> ForeignKey:
    return ForeignKey(
        columns=tuple(columns.split()),
        target_schema=schema,
        target=target,
        target_columns=tuple(target_columns.split()),
    )


TARGETS = """
create schema other;
create table one (id integer primary key, code text unique);
create table two (x integer, y integer, primary key (x, y));
create table other.one (id integer primary key);
"""


@pytest.mark.parametrize(
    ("ddl", "foreign_keys"),
    [
        pytest.param(
            "create table t (a integer references one)", (_foreign_key("a", "one", "id"),), id="simple"
        ),
        pytest.param(
            "create table t (a text references one (code))",
            (_foreign_key("a", "one", "code"),),
            id="to-a-unique-key",
        ),
        pytest.param(
            "create table t (a integer, b integer, foreign key (b, a) references two (x, y))",
            (_foreign_key("b a", "two", "x y"),),
            id="composite",
        ),
        pytest.param(
            "create table t (id integer primary key, parent integer references t)",
            (_foreign_key("parent", "t", "id"),),
            id="to-itself",
        ),
        pytest.param(
            "create table t (a integer references one, b integer references one)",
            (_foreign_key("a", "one", "id"), _foreign_key("b", "one", "id")),
            id="two-to-one-table",
        ),
        pytest.param(
            "create table t (a integer references one references other.one, b integer references other.one)",
            (
                _foreign_key("a", "one", "id"),
                _foreign_key("a", "one", "id", "other"),
                _foreign_key("b", "one", "id", "other"),
            ),
            id="to-another-schema",
        ),
        pytest.param(
            "create table t (a integer references one); alter table t add foreign key (a) references one",
            (_foreign_key("a", "one", "id"),),
            id="said-twice",
        ),
        pytest.param("create table t (a integer not null check (a > 0))", (), id="none"),
    ],
)
async def test_foreign_keys_name_their_targets(
    postgresql_url: str, ddl: str, foreign_keys: tuple[ForeignKey, ...]
) -> None:
    table = await _table(postgresql_url, f"{TARGETS} {ddl}", "t")

    assert table.foreign_keys == foreign_keys


async def test_foreign_key_to_a_table_that_is_not_wanted_is_left_out(postgresql_url: str) -> None:
    ddl = f"{TARGETS} create table t (a integer references one, b integer references other.one)"

    catalog = await _catalog(postgresql_url, ddl, Selection(exclude=("other.*",)))

    assert catalog.named("t")[0].foreign_keys == (_foreign_key("a", "one", "id"),)


# Tables


ALL_KINDS = """
create table "Zebra" (id integer);
create table apple (id integer);
create view view as select 1 as id;
create materialized view "materialized" as select 1 as id;
create table parted (id integer) partition by list (id);
create table part partition of parted for values in (1);
create foreign data wrapper nothing;
create server nowhere foreign data wrapper nothing;
create foreign table "foreign" (id integer) server nowhere;
create sequence sequence;
create type composite as (id integer);
create schema "A";
create table "A".apple (id integer);
create schema zoo;
create table zoo.apple (id integer);
"""


async def test_tables_of_every_kind_are_found_in_order(postgresql_url: str) -> None:
    catalog = await _catalog(postgresql_url, ALL_KINDS)

    assert [(table.schema, table.name, table.kind) for table in catalog.tables] == [
        ("public", "Zebra", TableKind.TABLE),
        ("public", "apple", TableKind.TABLE),
        ("public", "foreign", TableKind.FOREIGN),
        ("public", "materialized", TableKind.MATERIALIZED_VIEW),
        ("public", "parted", TableKind.PARTITIONED),
        ("public", "view", TableKind.VIEW),
        ("A", "apple", TableKind.TABLE),
        ("zoo", "apple", TableKind.TABLE),
    ]


@pytest.mark.parametrize(
    ("search_path", "default_schema"),
    [
        pytest.param("zoo, public", "zoo", id="first-of-the-path"),
        pytest.param("nowhere", "public", id="none"),
    ],
)
async def test_default_schema_is_the_first_of_the_search_path(
    postgresql_url: str, search_path: str, default_schema: str
) -> None:
    catalog = await _catalog(postgresql_url, f"{ALL_KINDS} set search_path = {search_path}")

    assert (catalog.default_schema, catalog.tables[0].schema) == (default_schema, default_schema)


async def test_tables_of_the_system_and_internal_ones_are_hidden(postgresql_url: str) -> None:
    ddl = """
    create schema dbtools;
    create schema app;
    create table dbtools.call (id integer);
    create table alembic_version (id integer);
    create table app.alembic_version (id integer);
    create table dbtools_version (id integer);
    create table dbtools_query (id integer);
    create table dbtools_call (id integer);
    create table of_extension (id integer);
    alter extension plpgsql add table of_extension;
    create temporary table brief (id integer);
    create table shown (id integer);
    """

    catalog = await _catalog(postgresql_url, ddl)

    assert (_columns(catalog), catalog.warnings) == ({"public.shown": ["id"]}, ())


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        pytest.param(Selection(schemas=("A", "zoo")), ["A.apple", "zoo.apple"], id="schemas"),
        pytest.param(
            Selection(include=("public.*e*",), exclude=("*er*", "apple")),
            ["public.Zebra", "public.foreign", "public.parted", "public.view"],
            id="patterns",
        ),
        pytest.param(Selection(schemas=("pg_catalog",)), [], id="system"),
    ],
)
async def test_only_wanted_tables_are_read(
    postgresql_url: str, selection: Selection, names: list[str]
) -> None:
    catalog = await _catalog(postgresql_url, ALL_KINDS, selection)

    assert [catalog.qualified(table) for table in catalog.tables] == names


NAMES = (
    *("two words", 'quo"te', "apo'strophe", "sla/sh", "back\\slash", "do.t", "Ünïcode", "日本", "🦊", "1st"),
    *("select", "UPPER", "new\nline", "per%cent", "$1", ":name", "a" * 63, "é" * 31),
)


async def test_names_are_read_exactly(postgresql_url: str) -> None:
    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    columns = ", ".join(f"{quoted(name)} integer not null check ({quoted(name)} < 3)" for name in NAMES)
    tables = "".join(
        f"create schema {name}; create table {name}.{name} ({columns},"
        f" primary key ({name}), foreign key ({name}) references {name}.{name});"
        for name in map(quoted, NAMES)
    )

    catalog = await _catalog(postgresql_url, tables)

    read = tuple(Column(name=name, type=INTEGER, nullable=False, maximum="2") for name in NAMES)
    assert catalog.tables == tuple(
        Table(
            name=name,
            schema=name,
            columns=read,
            keys=(Key(columns=(name,), primary=True),),
            foreign_keys=(
                ForeignKey(columns=(name,), target_schema=name, target=name, target_columns=(name,)),
            ),
        )
        for name in sorted(NAMES)
    )


async def test_table_without_columns_is_left_out(postgresql_url: str) -> None:
    catalog = await _catalog(postgresql_url, "create table empty ()")

    assert catalog == Catalog(default_schema="public")


async def test_estimate_is_of_the_last_analysis(postgresql_url: str) -> None:
    ddl = """
    create table counted as select * from generate_series(1, 12) as id;
    create table never (id integer);
    create table empty (id integer);
    create view view as select * from counted;
    create materialized view stored as select * from counted;
    vacuum
    """
    statements = [each for each in ddl.split(";\n") if each.strip() != "vacuum"]
    async with _connected(postgresql_url) as connection:
        await connection.execute(";".join(statements))
        await connection.execute("vacuum analyze counted, stored")

        catalog = await read_catalog(connection, EVERYTHING)

    assert {table.name: table.row_estimate for table in catalog.tables} == {
        "counted": 12,
        "empty": None,
        "never": None,
        "stored": 12,
        "view": None,
    }


# Partitions


PARTITIONED = """
create table customer (id integer primary key);
create table product (id integer primary key);
create table staff (id integer primary key);
create table sale (
    id integer,
    day date,
    customer integer references customer,
    product integer,
    staff integer,
    primary key (day, id)
) partition by range (day);
create table sale_2023 partition of sale for values from ('2023-01-01') to ('2024-01-01');
create table sale_2024 (
    product integer, day date not null, staff integer, customer integer, id integer not null
) partition by range (id);
create table sale_2024_low partition of sale_2024 for values from (0) to (10);
create table sale_2024_high partition of sale_2024 for values from (10) to (20);
alter table sale attach partition sale_2024 for values from ('2024-01-01') to ('2025-01-01');
alter table sale_2023 add foreign key (product) references product;
alter table sale_2023 add foreign key (staff) references staff;
alter table sale_2024_low add foreign key (product) references product;
alter table sale_2024_low add foreign key (staff) references staff;
alter table sale_2024_high add foreign key (product) references product;
insert into sale select i, '2023-05-05' from generate_series(1, 5) as i;
insert into sale select i, '2024-05-05' from generate_series(1, 12) as i;
create table refund (sale integer, day date, foreign key (day, sale) references sale);
analyze sale_2023, sale_2024_low, sale_2024_high;
"""


async def test_partitioned_table_stands_for_its_partitions(postgresql_url: str) -> None:
    catalog = await _catalog(postgresql_url, PARTITIONED, Selection(include=("sale*", "customer", "product")))

    assert [table.name for table in catalog.tables] == ["customer", "product", "sale"]
    assert catalog.tables[2] == Table(
        name="sale",
        schema="public",
        kind=TableKind.PARTITIONED,
        columns=(
            Column(name="id", type=INTEGER, nullable=False),
            Column(name="day", type=DATE, nullable=False),
            Column(name="customer", type=INTEGER),
            Column(name="product", type=INTEGER),
            Column(name="staff", type=INTEGER),
        ),
        keys=(Key(columns=("day", "id"), primary=True),),
        foreign_keys=(_foreign_key("customer", "customer", "id"), _foreign_key("product", "product", "id")),
        row_estimate=17,
    )


async def test_foreign_key_to_a_partitioned_table_is_one(postgresql_url: str) -> None:
    table = await _table(postgresql_url, PARTITIONED, "refund")

    assert table.foreign_keys == (_foreign_key("day sale", "sale", "day id"),)


async def test_partitioned_table_without_partitions_has_its_own_foreign_keys(postgresql_url: str) -> None:
    ddl = """
    create table customer (id integer primary key);
    create table sale (customer integer references customer) partition by list (customer);
    """

    table = await _table(postgresql_url, ddl, "sale")

    assert (table.foreign_keys, table.row_estimate) == ((_foreign_key("customer", "customer", "id"),), None)


# Privileges


PRIVATE = """
create schema app;
create table app.person (id integer primary key, name text not null unique, salary integer);
create table app.secret (id integer primary key);
create table app.badge (person integer references app.person, secret integer references app.secret);
"""


@pytest.mark.parametrize(
    ("grants", "columns"),
    [
        pytest.param("grant select on all tables in schema app to {}", {}, id="schema-is-closed"),
        pytest.param("grant usage on schema app to {}", {}, id="tables-are-closed"),
        pytest.param(
            "grant usage on schema app to {}; grant select on app.secret to {}",
            {"app.secret": ["id"]},
            id="table",
        ),
        pytest.param(
            "grant usage on schema app to {}; grant select (name, id) on app.person to {}",
            {"app.person": ["id", "name"]},
            id="columns",
        ),
        pytest.param(
            "grant usage on schema app to {}; grant insert, update, delete on app.person to {}",
            {},
            id="others",
        ),
    ],
)
async def test_only_what_the_login_may_select_is_read(
    postgresql_url: str, reader: str, grants: str, columns: dict[str, list[str]]
) -> None:
    ddl = PRIVATE + grants.replace("{}", reader)

    catalog = await _catalog_of_role(postgresql_url, reader, ddl)

    assert _columns(catalog) == columns


async def test_keys_with_a_closed_column_are_left_out(postgresql_url: str, reader: str) -> None:
    grants = f"""
    grant usage on schema app to {reader};
    grant select (name) on app.person to {reader};
    grant select on app.secret, app.badge to {reader};
    """

    catalog = await _catalog_of_role(postgresql_url, reader, PRIVATE + grants)

    assert [(table.name, table.keys, table.foreign_keys) for table in catalog.tables] == [
        ("badge", (), (_foreign_key("secret", "secret", "id", "app"),)),
        ("person", (Key(columns=("name",)),), ()),
        ("secret", (Key(columns=("id",), primary=True),), ()),
    ]


async def test_operator_is_told_what_the_login_may_not_select(postgresql_url: str, reader: str) -> None:
    grants = f"grant usage on schema app to {reader}; grant select on app.badge to {reader}"

    catalog = await _catalog_of_role(postgresql_url, reader, PRIVATE + grants)

    assert catalog.warnings == ("The login may not select from app.person, app.secret.",)


# Safety


async def test_functions_and_operators_of_others_are_not_called(postgresql_url: str) -> None:
    trap = "language plpgsql as $$ begin raise exception 'caught'; end $$"
    ddl = f"""
    {ALL_KINDS}
    create function public.quote_ident(name) returns text {trap};
    create function public.has_table_privilege(oid, unknown) returns boolean {trap};
    create function public.starts_with(name, text) returns boolean {trap};
    create function public.trap(real, integer) returns boolean {trap};
    create operator public.> (leftarg = real, rightarg = integer, function = public.trap);
    set search_path = public, pg_catalog;
    """

    catalog = await _catalog(postgresql_url, ddl)

    assert len(catalog.tables) == 8


async def test_locked_table_is_read_without_waiting(postgresql_url: str) -> None:
    ddl = "create table t (a integer default 3 check (a > 0), b integer generated always as (a + 1) stored)"
    async with _connected(postgresql_url) as other:
        await other.execute(ddl)
        async with other.transaction():
            await other.execute("lock table t in access exclusive mode")
            with anyio.fail_after(5):
                table = await _table(postgresql_url, NO_MORE, "t")

    assert table.columns == (
        Column(name="a", type=INTEGER, default="3", minimum="1"),
        Column(name="b", type=INTEGER, generated=True),
    )


async def test_two_readings_of_one_schema_are_equal(postgresql_url: str) -> None:
    first = await _catalog(postgresql_url, TYPED_TABLE + PARTITIONED + ALL_KINDS)

    assert await _catalog(postgresql_url, NO_MORE) == first


class OldServer:
    """A connection to a server of the year 2019."""

    def get_server_version(self) -> asyncpg.ServerVersion:
        """Return the version."""
        return asyncpg.ServerVersion(12, 0, 22, "final", 0)


def test_old_server_is_refused() -> None:
    connection = cast("asyncpg.Connection[asyncpg.Record]", OldServer())

    with pytest.raises(errors.ConfigurationError, match="PostgreSQL 13 or later is needed, this is 12"):
        check_version(connection)


async def test_server_of_the_tests_is_accepted(postgresql_url: str) -> None:
    async with _connected(postgresql_url) as connection:
        check_version(connection)
