"""The column types of PostgreSQL, read from a real server."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import NamedTuple

import asyncpg
import pytest

from dbtools.schema.catalog import Column, Key
from dbtools.values.types import ColumnType, Family
from tests.database.postgresql_catalog import (
    BIGINT,
    DATE,
    INTEGER,
    NO_MORE,
    TEXT,
    array,
    connected,
    incomparable,
    table_of,
)
from tests.postgresql_server import PostgresqlServer

NUMERIC = ColumnType(
    family=Family.DECIMAL, name="numeric", cast="pg_catalog.numeric", infinite=True, large=True
)
JSON = ColumnType(
    family=Family.JSON, name="json", cast="pg_catalog.json", equatable=False, ordered=False, large=True
)
MOOD = ColumnType(family=Family.ENUM, name="app.mood", cast="app.mood", labels=("sad", "ok", "Très bien"))
POINT_2D = ColumnType(
    family=Family.OBJECT,
    name="app.point_2d",
    cast="app.point_2d",
    fields=(("x", INTEGER), ("Y value", replace(NUMERIC, name="numeric(6,2)", large=False))),
    large=True,
)

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


def _plain(
    family: Family, name: str, native: str, *, infinite: bool = False, large: bool = False
) -> ColumnType:
    cast = f"pg_catalog.{native}"
    return ColumnType(family=family, name=name, cast=cast, infinite=infinite, large=large)


def _other(name: str, native: str = "", *, large: bool = False) -> ColumnType:
    return _plain(Family.OTHER, name, native or name, large=large)


#: How a column is declared, and its type.
TYPES: dict[str, ColumnType] = {
    "smallint": replace(
        INTEGER, name="smallint", cast="pg_catalog.int2", minimum=-(2**15), maximum=2**15 - 1
    ),
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
    "interval": _plain(Family.INTERVAL, "interval", "interval", infinite=True),
    "uuid": _plain(Family.UUID, "uuid", "uuid"),
    "json": JSON,
    "jsonb": _plain(Family.JSON, "jsonb", "jsonb", large=True),
    "bytea": _plain(Family.BYTES, "bytea", "bytea", large=True),
    "app.mood": MOOD,
    '"The App"."select"': ColumnType(
        family=Family.ENUM, name='"The App"."select"', cast='"The App"."select"'
    ),
    "integer[]": array("integer[]", "pg_catalog.int4[]", INTEGER),
    "varchar(5)[][]": array(
        "character varying(5)[]",
        "pg_catalog.varchar[]",
        _plain(Family.TEXT, "character varying(5)", "varchar"),
    ),
    "json[]": incomparable(array("json[]", "pg_catalog.json[]", JSON)),
    "app.mood[]": array("app.mood[]", "app.mood[]", MOOD),
    "app.code[]": array("app.code[]", "app.code[]", _plain(Family.TEXT, "app.code", "varchar")),
    "app.codes": array("app.codes", "app.code[]", _plain(Family.TEXT, "app.code", "varchar")),
    "app.point_2d": POINT_2D,
    "app.route": ColumnType(
        family=Family.OBJECT,
        name="app.route",
        cast="app.route",
        fields=(
            ("name", _plain(Family.TEXT, "character varying(9)", "varchar")),
            ("via", array("app.point_2d[]", "app.point_2d[]", POINT_2D)),
            ("note", JSON),
        ),
        large=True,
        equatable=False,
        ordered=False,
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
    "app.feeling": incomparable(replace(MOOD, name="app.feeling")),
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
    "xml": incomparable(_other("xml", large=True)),
    "tsvector": _other("tsvector", large=True),
    "tsquery": _other("tsquery", large=True),
    "jsonpath": incomparable(_other("jsonpath", large=True)),
    "point": incomparable(_other("point")),
    "box": incomparable(_other("box")),
    "circle": incomparable(_other("circle")),
    "path": incomparable(_other("path", large=True)),
    "polygon": incomparable(_other("polygon", large=True)),
    "oid": _other("oid"),
    "regclass": replace(_other("regclass"), equatable=False, ordered=False),
    "aclitem": replace(_other("aclitem"), equatable=False, ordered=False),
    "pg_lsn": _other("pg_lsn"),
    "xid": replace(_other("xid"), ordered=False),
    '"char"': replace(_other('"char"', "char"), ordered=False),
    "int2vector": incomparable(_other("int2vector", large=True)),
}

TYPED_TABLE = f"""
{TYPE_DEFINITIONS}
create table typed ({", ".join(f'"c{place}" {declared}' for place, declared in enumerate(TYPES))});
"""


class Typed(NamedTuple):
    """A database with a column of each type."""

    url: str
    types: dict[str, ColumnType]


@pytest.fixture(scope="module")
async def typed(postgresql_database: Callable[[str], AbstractContextManager[str]]) -> AsyncIterator[Typed]:
    """Yield a table with a column of each type, and what its catalog says."""
    with postgresql_database(TYPED_TABLE) as url:
        table = await table_of(url, NO_MORE, "typed")
        types = (column.type for column in table.columns)
        yield Typed(url=url, types=dict(zip(TYPES, types, strict=True)))


@pytest.mark.parametrize("declared", TYPES)
async def test_type_of_column_is_known(declared: str, typed: Typed) -> None:
    assert typed.types[declared] == TYPES[declared]


@pytest.mark.parametrize("declared", TYPES)
async def test_operators_that_a_type_has_work_with_its_cast(declared: str, typed: Typed) -> None:
    type = typed.types[declared]
    column = f"c{list(TYPES).index(declared)}"
    operators = ["="] * type.equatable + ["<"] * type.ordered
    conditions = [f"{column} {operator} $1::text::{type.cast}" for operator in operators]
    async with connected(typed.url) as connection:
        statement = f"select from typed where {' or '.join([*conditions, '$1::text is null'])}"

        assert await connection.fetch(statement, None) == []


@pytest.mark.parametrize("declared", [each for each in TYPES if TYPES[each].element])
async def test_element_of_an_array_is_compared_with_its_cast(declared: str, typed: Typed) -> None:
    element = typed.types[declared].element
    column = f"c{list(TYPES).index(declared)}"
    async with connected(typed.url) as connection:
        statement = f"select from typed where $1::text::{element and element.cast} = any ({column})"

        if element and element.equatable:
            assert await connection.fetch(statement, None) == []
        else:
            with pytest.raises(asyncpg.UndefinedFunctionError):
                await connection.fetch(statement, None)


async def test_multirange_is_large(postgresql_url: str, postgresql_server: PostgresqlServer) -> None:
    if postgresql_server.version < 14:
        pytest.skip("multiranges came with version 14")

    table = await table_of(postgresql_url, "create table t (c int4multirange)", "t")

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
    async with connected(postgresql_url) as connection:
        available = await connection.fetch("select name from pg_available_extensions")
    if extension not in {row["name"] for row in available}:
        pytest.skip(f"the server has no {extension}")
    cast = f"public.{extension}"

    table = await table_of(
        postgresql_url, f"create extension {extension}; create table t (c {declared})", "t"
    )

    expected = replace(type, cast=cast, operator_schema="public")
    assert table.columns == (Column(name="c", type=expected),)


async def test_operators_of_a_type_are_found_in_their_schema(postgresql_url: str) -> None:
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
    type = ColumnType(family=Family.OTHER, name="away.feet", cast="away.feet", operator_schema="away")
    feet = replace(incomparable(type), equatable=True)

    away = await table_of(postgresql_url, ddl, "t")
    here = await table_of(postgresql_url, "set search_path = public, away", "t")

    assert away.columns == (Column(name="c", type=feet),)
    assert here.columns == (Column(name="c", type=replace(feet, name="feet")),)


async def test_key_that_cannot_be_compared_is_none(postgresql_url: str) -> None:
    ddl = """
    create type mood as enum ('sad', 'ok');
    create domain feeling as mood;
    create table t (feeling feeling primary key, id integer not null unique);
    """

    table = await table_of(postgresql_url, ddl, "t")

    assert table.keys == (Key(columns=("id",)),)
