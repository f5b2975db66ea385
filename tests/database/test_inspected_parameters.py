"""The types of a query's parameters, as PostgreSQL and SQLite report them."""

import pytest

from dbtools.backends.sqlite.schema.types import column_type
from dbtools.errors import Refused
from dbtools.values.types import Family
from tests.database.inspecting import (
    by_name,
    inspected,
    postgresql as postgresql,
    sqlite as sqlite,
    url as url,
)
from tests.database.postgresql_catalog import BIGINT, DATE, INTEGER, TEXT, array


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
        pytest.param("select 1 as a limit :n", "n: integer", "n: bigint", id="limit"),
        pytest.param("select id from people where kind = :k", "k: text", "k: app.kind", id="enum"),
        pytest.param("select id from people where host = :k", "k: text", "k: inet", id="inet"),
        pytest.param("select id from people where mail = :k", "k: text", "k: text", id="domain"),
        pytest.param("select id from people where rate > :r", "r: integer", "r: bigint", id="wider"),
        pytest.param(
            "select id from people where rate > :r", "r: number", "r: double precision", id="number"
        ),
        pytest.param("select id from people where seen >= :d", "d: date", "d: date", id="date for a moment"),
        pytest.param(
            "select id from people where id in (:ids) and kind not in (:kinds)",
            "ids: integer[], kinds: text[]",
            "ids: bigint[], kinds: app.kind[]",
            id="lists",
        ),
        pytest.param(
            "select id from people where born between :since and :until",
            "since: date, until: date",
            "since: date, until: date",
            id="between",
        ),
        pytest.param(
            "select :a::int8 as a, cast(:b as numeric) as b",
            "a: integer, b: decimal",
            "a: bigint, b: numeric",
            id="casts",
        ),
        pytest.param(
            "select id from people where doc @> :j and doc ->> :k = 'x'",
            "j: json, k: text",
            "j: jsonb, k: text",
            id="JSON operators",
        ),
        pytest.param(
            "select substr(name, :n::int) as s, app.twice(:m::int) as t from people",
            "n: integer, m: integer",
            "n: bigint, m: bigint",
            id="arguments",
        ),
        pytest.param(
            "select id from people where :k is null or kind = :k::app.kind",
            "k: text",
            "k: text",
            id="text in one place, and a label in another",
        ),
        pytest.param(
            "select id from people where (:d is null or born >= :d) and (:d is null or seen >= :d)",
            "d: date",
            "d: date",
            id="two types",
        ),
        pytest.param("select :a is null as a", "a: date", "a: date", id="no context"),
        pytest.param(
            "select :a as a, :b as b, :c as c, :d as d",
            "a: integer, b: text, c: boolean, d: uuid",
            "a: bigint, b: text, c: boolean, d: uuid",
            id="only shown",
        ),
        pytest.param(
            "select jsonb_build_object('a', :a, 'b', :b) as j, to_jsonb(:c) as k",
            "a: integer, b: text, c: json",
            "a: bigint, b: text, c: jsonb",
            id="any type",
        ),
        pytest.param(
            "select born + :n::int as d from people where kind = :k",
            "n: integer, k: text",
            "n: bigint, k: app.kind",
            id="operator with many types",
        ),
        pytest.param(
            "select id from people where key = :key and boss = :claims.boss and name = :claims.name",
            "key: uuid",
            "key: uuid, claims.boss: bigint, claims.name: text",
            id="claims",
        ),
        pytest.param("select :claims.x is null as a", "", "claims.x: text", id="claim without context"),
        pytest.param(
            "select id from people where (:p is null or name = :p) and boss = :claims.boss",
            "p: text",
            "p: text, claims.boss: bigint",
            id="claim beside a text without context",
        ),
        pytest.param(
            "select id from people where tags @> :tags and :tag = any(tags) and name like :p || '%'",
            "tags: text[], tag: text, p: text",
            "tags: text[], tag: text, p: text",
            id="arrays",
        ),
        pytest.param(
            "select id from people where daterange(born, null) @> :a::date and daterange(born, null)"
            " && :r::text::daterange",
            "a: date, r: text",
            "a: date, r: text",
            id="ranges",
        ),
        pytest.param("select (:ids)[1] as a", "ids: integer[]", "ids: bigint[]", id="subscript"),
    ],
)
async def test_parameters_on_postgresql(postgresql: str, sql: str, declared: str, types: str) -> None:
    found = await inspected(postgresql, sql, **by_name(declared))

    assert {name: type.name for name, type in found.parameters.items()} == by_name(types)
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
    assert message.startswith(f":p is declared {declared}, but its type in the database is {taken}.")
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
