"""The schemas of permitted queries agree with what real databases bind and answer."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools.values.types import PARAMETERS
from tests.database.query_shop import FILES, QueryShop, ServeQueries
from tests.unit.permitted_queries import FAMILIES
from tests.unit.test_query_tools import VALID

POSTGRESQL = """
create type size as enum ('small', 'large');
create type address as (street text, rent numeric, since date);
create domain positive as bigint check (value > 0);
create table cell (
    id integer primary key, whole positive, short smallint not null, number float8, single float4,
    price numeric, text text, yes boolean, day date, moment timestamp, zoned timestamptz,
    duration interval, clock time,
    paper bytea, document jsonb, key uuid, size size, home address, tags text[], prices numeric[], place inet,
    span int4range
);
insert into cell values
    (1, 9007199254740993, 1, 'NaN', 0.1, 'Infinity', repeat('x', 9000), true, 'infinity', '0044-03-15 BC',
        '2024-03-05 14:30+02', '1 day', '24:00', decode(repeat('00ff', 9000), 'hex'), '{"a": 1}',
        '3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f', 'large', row(repeat('x', 9000), 1, null),
        array_fill('word'::text, array[5000]), '{1.5,NaN}', '::1', '[1,3)'),
    (2, 1, 2, '-Infinity', 'NaN', 1e40, '', false, '2024-03-05', 'infinity', '-infinity', '-1 mon', '00:00',
        '', 'null', null, 'small', row(null, null, null), '{}', '{}', '10.0.0.0/8', 'empty');
insert into cell (id, short) values (3, 3);
"""
STRICT = """
create table cell (
    id integer primary key, whole integer, number real, text text not null, paper blob, some any
) strict;
insert into cell values
    (1, 9007199254740993, 9e999, 'x', x'00', 1), (2, -9223372036854775808, -9e999, '', null, 'text'),
    (3, null, null, 'long', null, null);
update cell set text = replace(hex(zeroblob(4500)), '00', 'xy'), paper = zeroblob(9000), some = zeroblob(5)
where id = 3;
"""
LOOSE = STRICT.replace(") strict", ")").replace("(1, 9007199254740993, 9e999", "(1, 'text', 'text'")
SCHEMAS = {"postgresql": POSTGRESQL, "strict": STRICT, "loose": LOOSE}
ANSWERS = {
    "whole": "",
    "cut": "[limits]\nmax_cell = 20\nmax_tokens = 1000\n",
}
EXACT_CELLS = {
    "postgresql": {
        "id": {"type": ["integer", "null"]},
        "whole": {"type": ["integer", "string", "null"]},
        "short": {"type": ["integer", "null"]},
        "number": {"type": ["number", "string", "null"]},
        "single": {"type": ["number", "string", "null"]},
        "price": {"type": ["string", "null"]},
        "text": {"type": ["string", "null"]},
        "yes": {"type": ["boolean", "null"]},
        "day": {"type": ["string", "null"]},
        "moment": {"type": ["string", "null"]},
        "zoned": {"type": ["string", "null"]},
        "duration": {"type": ["string", "null"]},
        "clock": {"type": ["string", "null"]},
        "paper": {"type": ["string", "null"]},
        "document": {},
        "key": {"type": ["string", "null"]},
        "size": {"type": ["string", "null"]},
        "home": {"type": ["object", "string", "null"]},
        "tags": {"type": ["array", "string", "null"], "items": {}},
        "prices": {"type": ["array", "string", "null"], "items": {}},
        "place": {"type": ["string", "null"]},
        "span": {"type": ["string", "null"]},
    },
    "strict": {
        "id": {"type": ["integer", "string", "null"]},
        "whole": {"type": ["integer", "string", "null"]},
        "number": {"type": ["number", "string", "null"]},
        "text": {"type": ["string", "null"]},
        "paper": {"type": ["string", "null"]},
        "some": {},
    },
    "loose": {name: {} for name in ("id", "whole", "number", "text", "paper", "some")},
}


@pytest.fixture(scope="module", params=SCHEMAS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=ANSWERS)
def cells(kind: str, request: pytest.FixtureRequest, serve_queries: ServeQueries) -> Iterator[QueryShop]:
    """Yield a database of cells of each type, with whole and with cut answers."""
    dialect = "postgresql" if kind == "postgresql" else "sqlite"
    queries = {"cells.sql": (FILES / "strict.sql").read_text()}
    with serve_queries(dialect, SCHEMAS[kind], queries, ANSWERS[request.param]) as shop:
        yield shop


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [("cells", {}), ("joined", {}), *(("one_cell", {"id": at}) for at in (1, 2, 3))],
)
def test_every_result_conforms_to_its_schema(
    cells: QueryShop, tool: str, arguments: Mapping[str, object]
) -> None:
    definition = cells.view().tools[tool].definition
    jsonschema.Draft202012Validator.check_schema(definition.output_schema)
    for name, given_arguments in ((tool, arguments), ("run_query", {"query": tool, "arguments": arguments})):
        answer = cells.call(name, given_arguments)
        for schema in (definition.output_schema, cells.view().tools[name].definition.output_schema):
            jsonschema.Draft202012Validator(schema).validate(answer.structured)


def test_schema_is_exact_where_the_database_keeps_its_types(kind: str, cells: QueryShop) -> None:
    schema: Any = cells.view().tools["one_cell"].definition.output_schema

    assert schema["properties"]["row"]["properties"] == EXACT_CELLS[kind]
    assert schema["required"] == ["row"]
    assert "additionalProperties" not in schema["properties"]["row"]


def test_column_of_an_outer_join_may_be_null(serve_queries: ServeQueries) -> None:
    with serve_queries("postgresql", POSTGRESQL, {"q.sql": (FILES / "strict.sql").read_text()}) as shop:
        schema: Any = shop.view().tools["joined"].definition.output_schema

    assert schema["properties"]["rows"]["items"]["prefixItems"] == [
        {"type": ["integer", "null"]},
        {"type": ["integer", "string", "null"]},
        {"type": ["integer", "null"]},
        {"type": ["integer", "string", "null"]},
    ]


def test_columns_of_strict_tables_are_exact_beside_expressions(serve_queries: ServeQueries) -> None:
    query = (
        "-- name: q\nselect id, whole, number, text, paper, count(*) as k from cell group by id order by id"
    )
    with serve_queries("sqlite", STRICT, {"q.sql": query}) as shop:
        schema: Any = shop.view().tools["q"].definition.output_schema
        jsonschema.validate(shop.call("q").structured, schema)

    assert schema["properties"]["rows"]["items"]["prefixItems"] == [
        {"type": ["integer", "string", "null"]},
        {"type": ["integer", "string", "null"]},
        {"type": ["number", "string", "null"]},
        {"type": ["string", "null"]},
        {"type": ["string", "null"]},
        {},
    ]


def test_column_is_exact_only_where_it_is_so_with_every_clause(serve_queries: ServeQueries) -> None:
    ddl = f"{STRICT}; create table loose (id integer primary key, text text);"
    clause = "/*? where exists (select 1 from loose where loose.id = :id) ?*/"
    query = f"-- name: q\n-- param id: integer?\nselect text from cell {clause}"
    with serve_queries("sqlite", ddl, {"q.sql": query}) as shop:
        schema: Any = shop.view().tools["q"].definition.output_schema

    assert schema["properties"]["rows"]["items"]["prefixItems"] == [{}]


CASTS = {
    "integer": "bigint",
    "number": "float8",
    "decimal": "numeric",
    "text": "text",
    "boolean": "boolean",
    "date": "date",
    "time": "time",
    "timestamp": "timestamptz",
    "uuid": "uuid",
    "json": "jsonb",
}


def _echo(type: str, dialect: str) -> str:
    cast, many = (f"::{CASTS[type]}", f"::{CASTS[type]}[]") if dialect == "postgresql" else ("", "")
    header = f"-- name: echo_{type}\n-- returns: one\n-- param value: {type}\n-- param items: {type}[]\n"
    return f"{header}select :value{cast} as value, :items{many} as items\n"


@pytest.fixture(scope="module")
def shops(serve_queries: ServeQueries) -> Iterator[object]:
    """Yield, of each dialect, queries that answer what they are given."""
    with ExitStack() as stack:

        @cache
        def shop(dialect: str) -> QueryShop:
            files = {f"{type}.sql": _echo(type, dialect) for type in FAMILIES}
            return stack.enter_context(serve_queries(dialect, "create table t (a integer);", files))

        yield shop


def _meant(type: str, value: object) -> object:
    """Return what *value* of *type* means, as an argument or as a cell."""
    match type, value:
        case "json", str():
            return json.loads(value)
        case (("text" | "json"), _):
            return value
        case "boolean", (bool() | int()):
            return bool(value)
        case "timestamp", str():
            # A cell has a T, and on one database a Z behind it.
            return PARAMETERS["timestamp"].comparable_value(value.replace(" ", "T").removesuffix("Z"))
        case "decimal", float():
            return PARAMETERS["number"].comparable_value(repr(value))
        case _:
            return PARAMETERS[type].comparable_value(str(value))


@pytest.mark.parametrize("type", FAMILIES)
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_value_reaches_the_database_as_it_is_meant(shop: QueryShop, type: str, data: st.DataObject) -> None:
    exact = shop.bare.__class__.__name__ == "BarePostgresql"
    value, items = data.draw(VALID[type]), data.draw(st.lists(VALID[type], max_size=3))
    row: Any = shop.call(f"echo_{type}", {"value": value, "items": items}).structured["row"]

    if type == "decimal" and not exact:
        # There are no decimals but doubles.
        assert float(row["value"]) == float(str(value))
        return
    echoed = row["items"] if exact else json.loads(row["items"])
    if type == "json":
        # Cells of JSON come as what they are; the other database has the texts.
        found = [row["value"], *echoed] if exact else [json.loads(each) for each in (row["value"], *echoed)]
        assert found == [json.loads(str(each)) for each in (value, *items)]
        return
    assert [_meant(type, each) for each in (row["value"], *echoed)] == [
        _meant(type, each) for each in (value, *items)
    ]
