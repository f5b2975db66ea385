"""A name that looks like a parameter, or like a placeholder of a library, is a name in every statement."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dbtools.backends import open_backend
from dbtools.backends.plans import Plan
from dbtools.backends.sqlite.runner import filtering_plan
from dbtools.catalog import Column, ForeignKey, RowFilter, Table
from dbtools.paths import PathColumn, Place, Relation
from dbtools.settings.sections import GrantSection
from dbtools.sql import Fragment, Parameter
from dbtools.statement import Condition, Match, Order, Output, QueryShape, Select, Shape
from dbtools.terms import Function, Measure
from dbtools.tools.get_row import GetRow
from dbtools.types import ColumnType, Family, Mask, Operator
from dbtools.uris import CELL_TEMPLATE, ROW_TEMPLATE, cell_uri, row_uri
from tests.database.query_shop import ServeQueries
from tests.database.role_callers import Ask, Caller, Grants, calling, calling_as, completing, reading
from tests.database.shop import Serve, Shop, Shops, open_shops, quote

#: What is written for parameters, and for what is filled in later.
MARKS = (
    *("%(limit)s", "%(skip)s", "%(c0_0)s", "%(c1_0)s", "%(claim0)s", "%(h0_0)s", "%%(limit)s", "%(number)s"),
    *("$1", "$2", "$1::VARCHAR", "?", "?1", ":limit", ":c0_0", "%", "%%", "%s", "c0", "c0_0", "claim0"),
    *("__[POSTCOMPILE_limit]", "__[POSTCOMPILE_c0_0]", "__[POSTCOMPILE_c0_0~~x~~]", "__[SCHEMA__none]"),
    *("(1 + %(limit)s)", '"%(limit)s"', "<%(limit)s>", "{limit}", "\\1", "\\g<0>", "@limit", "t", "j1"),
)
PLAIN = tuple(f"plain {at}" for at in range(9))
INTEGER = ColumnType(family=Family.INTEGER, name="integer", cast="pg_catalog.int4")
OPERATORS = (Operator.EQ, Operator.CONTAINS, Operator.IN, Operator.NE, Operator.STARTS_WITH, Operator.BETWEEN)


def _shapes(dialect: str, names: Sequence[str]) -> Iterator[Shape]:
    """Yield statements about a schema, a type, and tables and columns of these *names*."""
    schema, kind, own, other, *columns = names
    cast = f"{quote(schema)}.{quote(kind)}" if dialect == "postgresql" else ""
    text = ColumnType(family=Family.TEXT, name="odd", cast=cast, large=True)
    filter = RowFilter(condition=Fragment(pieces=("1 = ", Parameter("claims.one"))), casts=(cast,))

    def table(name: str, key: str, *others: str) -> Table:
        texts = (Column(name=each, type=text) for each in others)
        key_column = Column(name=key, type=INTEGER, nullable=False)
        return Table(
            name=name, schema=schema, columns=(key_column, *texts), filter=filter, row_identifier="oid"
        )

    target, whole = table(other, *columns[:2]), table(own, *columns[2:])
    key = ForeignKey(columns=(columns[3],), target_schema=schema, target=other, target_columns=(columns[0],))
    path = (Relation(name=other, foreign_key=key, target=target),)
    terms: tuple[Place, ...] = (
        *whole.columns,
        *(PathColumn(path=path, column=column) for column in target.columns),
    )
    compared = tuple(
        Condition(term=term, operator=operator, parameters=(f"c{at}_0", f"c{at}_1")[: 1 + (at == 5)])
        for at, (term, operator) in enumerate(zip((*terms, terms[0]), OPERATORS, strict=True))
    )
    read = tuple(Output(term=term, cut=9 if term.type.large else None) for term in terms)
    order = tuple(Order(term=term) for term in terms)
    for match in Match:
        yield Select(table=whole, outputs=read, conditions=compared, match=match, order=order, skip=True)
    yield Select(table=whole, outputs=tuple(Output(term=each) for each in whole.columns), conditions=compared)
    measures = tuple(Output(term=Measure(function=Function.MAX, place=term)) for term in terms)
    yield Select(table=whole, outputs=measures, groups=terms, conditions=compared)
    yield QueryShape(
        name="q",
        pieces=("select ", Parameter("limit")),
        outputs=tuple(Output(term=Column(name=each, type=text), cut=9) for each in columns),
        types={"limit": INTEGER},
        casts={"limit": cast},
    )


def _plans(dialect: str, names: Sequence[str]) -> Iterator[Plan]:
    runner = open_backend(f"{dialect}:///a").load_runner()
    for shape in _shapes(dialect, names):
        yield runner.compile(shape)
        if dialect == "sqlite" and isinstance(shape, Select):
            yield filtering_plan(shape)


letters = st.text(st.sampled_from("%()slimtck0_$1?:[]~'\"`<>{}\\ \n"), min_size=1, max_size=12)
names = st.one_of(st.sampled_from(MARKS), letters, st.builds("{}{}".format, st.sampled_from(MARKS), letters))


@given(odd=st.lists(names, min_size=len(PLAIN), max_size=len(PLAIN), unique_by=str.lower))
def test_statement_about_odd_names_is_that_about_plain_ones(odd: list[str], dialect: str) -> None:
    quoted = {quote(plain): quote(name) for plain, name in zip(PLAIN, odd, strict=True)}

    for plain, found in zip(_plans(dialect, PLAIN), _plans(dialect, odd), strict=True):
        assert found.sql == re.sub('"plain ."', lambda name: quoted[name[0]], plain.sql)
        assert (found.parameters, found.constants) == (plain.parameters, plain.constants)


#: What the role does not see says so.
DDL = """
create table "%(skip)s" (
    "%(number)s" integer primary key, "%(limit)s" varchar(9) not null, "$1" varchar(9) default 'HIDDEN'
);
insert into "%(skip)s" values (1, 'red', 'HIDDEN'), (2, 'blue', 'HIDDEN');
create table "%(limit)s" (
    "%(c0_0)s" integer primary key, "%(limit)s" varchar(9) not null, "%(claim0)s" varchar(9) not null,
    "?" varchar(9) default 'HIDDEN', "$1" varchar(9) default 'HIDDEN', "$2" varchar(9) default 'HIDDEN',
    "%(h0_0)s" date, "__[POSTCOMPILE_limit]" varchar(9), "%(skip)s" integer,
    "%(key)s_id" integer references "%(skip)s"("%(number)s")
);
insert into "%(limit)s"
    ("%(c0_0)s", "%(limit)s", "%(claim0)s", "%(h0_0)s", "__[POSTCOMPILE_limit]", "%(skip)s", "%(key)s_id")
values
    (1, 'one', 'north', '2024-01-02', 'mask', 10, 1), (2, 'two', 'north', '2024-02-03', 'mask', 20, 2),
    (3, 'three', 'north', null, null, null, null), (4, 'HIDDEN', 'south', '2024-01-02', 'mask', 9, 1);
create table c0 (id integer primary key, c0 varchar(9), c1 integer);
insert into c0 values (1, 'a', 1), (2, 'a', 1), (3, 'a', 1), (4, 'b', 2);
"""
GRANTS: Grants = {
    "c0": True,
    "%(skip)s": GrantSection(columns=("%(number)s", "%(limit)s"), where="\"$1\" = 'HIDDEN'"),
    "%(limit)s": GrantSection(
        exclude=("?", "$1", "$2"),
        where='"%(claim0)s" = :claims.region and "$1" = \'HIDDEN\' and "?" is not null',
        mask={"__[POSTCOMPILE_limit]": Mask.PARTIAL},
    ),
}
TABLE = {"table": "%(limit)s"}
COUNT = {"function": "count"}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give a database of nothing but odd names."""
    with open_shops(serve, {"sqlite": DDL, "postgresql": DDL}) as shops:
        yield shops


@pytest.fixture
def caller(shop: Shop) -> Iterator[Caller]:
    """Return a caller who does not see all of it."""
    with calling_as(shop, GRANTS, {"region": "north"}) as caller:
        assert caller.problems() == ()
        yield caller


def where(column: str, op: str, *values: object) -> dict[str, object]:
    """Return a condition."""
    given = {"values": list(values)} if op in ("in", "not_in", "between") else {"value": values[0]}
    return {"column": column, "op": op, **given}


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ({"columns": ["%(limit)s"]}, [["one"], ["two"], ["three"]]),
        ({"columns": ["%(limit)s", "__[POSTCOMPILE_limit]"], "limit": 2}, [["one", "m…"], ["two", "m…"]]),
        ({"columns": ["%(c0_0)s"], "where": [where("%(limit)s", "eq", "two")]}, [[2]]),
        ({"columns": ["%(c0_0)s"], "where": [where("%(c0_0)s", "in", 1, 3, 4)]}, [[1], [3]]),
        ({"columns": ["%(c0_0)s"], "where": [where("%(limit)s", "contains", "E")]}, [[1], [3]]),
        (
            {"columns": ["%(c0_0)s"], "where": [where("%(h0_0)s", "between", "2024-01-01", "2024-01-31")]},
            [[1]],
        ),
        ({"columns": ["%(limit)s"], "order_by": ["%(skip)s desc"]}, [["two"], ["one"], ["three"]]),
        (
            {"columns": ["%(key)s.%(limit)s"], "order_by": ["%(key)s.%(limit)s", "%(c0_0)s"]},
            [["blue"], ["red"], [None]],
        ),
        ({"columns": ["%(c0_0)s"], "match": "any", "where": [where("%(key)s.%(number)s", "gte", 2)]}, [[2]]),
    ],
    ids=str,
)
def test_rows_of_odd_names_are_listed(
    arguments: dict[str, object], rows: list[list[object]], caller: Caller
) -> None:
    assert caller.rows("list_rows", **TABLE, **arguments) == rows


def test_hidden_column_that_is_called_like_a_place_of_a_parameter_is_not_shown(shop: Shop) -> None:
    grants = {"%(skip)s": GrantSection(columns=("%(number)s", "%(limit)s"))}
    with calling_as(shop, grants) as caller:
        rows = caller.rows("list_rows", table="%(skip)s")

    assert rows == [[1, "red"], [2, "blue"]]


def test_pages_of_odd_names_run_to_the_end(caller: Caller) -> None:
    orders = [["%(limit)s desc"], ["%(skip)s"], ["%(key)s.%(limit)s desc", "%(c0_0)s"]]

    pages = [
        [*caller.pages("list_rows", **TABLE, limit=1, columns=["%(c0_0)s"], order_by=each)] for each in orders
    ]

    assert [[page["rows"] for page in each] for each in pages] == [
        [[[2]], [[3]], [[1]]],
        [[[1]], [[2]], [[3]]],
        [[[1]], [[2]], [[3]]],
    ]


@pytest.mark.parametrize(
    ("arguments", "rows"),
    [
        ({"group_by": ["%(key)s.%(limit)s"], "measures": [COUNT]}, [["blue", 1], ["red", 1], [None, 1]]),
        ({"group_by": ["%(h0_0)s:month"], "measures": [COUNT]}, [["2024-01", 1], ["2024-02", 1], [None, 1]]),
        (
            {
                "group_by": ["%(claim0)s"],
                "measures": [
                    {"function": "sum", "column": "%(skip)s", "name": "%(sum)s"},
                    {"function": "max", "column": "%(key)s.%(limit)s", "name": "?"},
                    {"function": "count_distinct", "column": "%(limit)s", "name": "$1"},
                ],
                "where": [where("%(limit)s", "ne", "%(limit)s")],
                "having": [where("%(sum)s", "gt", 1)],
                "order_by": ["$1 desc"],
            },
            [["north", 30, "red", 3]],
        ),
    ],
    ids=str,
)
def test_rows_of_odd_names_are_aggregated(
    arguments: dict[str, object], rows: list[list[object]], caller: Caller
) -> None:
    found = caller.rows("aggregate_rows", **TABLE, **arguments)

    assert sorted(found, key=str) == sorted(rows, key=str)


def test_order_by_a_measure_is_by_no_column_of_its_output_s_name(caller: Caller) -> None:
    total = {"function": "sum", "column": "c1", "name": "total"}

    rows = caller.rows("aggregate_rows", table="c0", group_by=["c0"], measures=[total], order_by=["total"])

    assert rows == [["b", 2], ["a", 3]]


def test_row_of_odd_names_is_got_in_every_way(caller: Caller, shop: Shop) -> None:
    expected = {"%(limit)s": "two", "%(skip)s": 20, "__[POSTCOMPILE_limit]": "m…"}
    uri = str(row_uri("%(limit)s", ["2"]))
    cell = str(cell_uri("%(limit)s", ["2"], "%(limit)s"))
    tools = caller.portal.call(caller.toolbox.view, caller.role).tools.values()
    (getting,) = (
        each for each in tools if isinstance(each, GetRow) and each.table and each.table.name == "%(limit)s"
    )
    assert getting.lookup is not None
    (argument,) = getting.lookup.keys

    rows: list[Any] = [
        caller.call("get_row", **TABLE, key={"%(c0_0)s": "2"})["row"],
        caller.call(getting.definition.name, **{argument: 2})["row"],
        json.loads(shop.portal.call(caller.toolbox.read, caller.identity, uri).content)["row"],
    ]
    content = shop.portal.call(caller.toolbox.read, caller.identity, cell).content

    assert [{name: row[name] for name in expected} for row in rows] == [expected] * 3
    assert content == b"two"


ASKED: dict[str, Ask] = {
    "nearest values": calling("list_rows", **TABLE, where=[where("%(limit)s", "eq", "thre")]),
    "nearest values of a path": calling(
        "list_rows", **TABLE, where=[where("%(key)s.%(limit)s", "eq", "rde")]
    ),
    "all": calling("list_rows", **TABLE),
    "description": calling("describe_tables", detail="full"),
    "tables": calling("list_tables", search="%(limit)s"),
    "hidden column": calling("list_rows", **TABLE, columns=["$1"]),
    "hidden condition": calling("list_rows", **TABLE, where=[where("?", "eq", "HIDDEN")]),
    "hidden group": calling("aggregate_rows", **TABLE, group_by=["$2"], measures=[COUNT]),
    "hidden row": calling("get_row", **TABLE, key={"%(c0_0)s": "4"}),
    "hidden cell": reading(str(cell_uri("%(limit)s", ["1"], "$1"))),
    "completion of a key": completing(ROW_TEMPLATE, "key", "", table="%(limit)s"),
    "completion of a column": completing(CELL_TEMPLATE, "column", "", table="%(limit)s", key="1"),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_answer_about_odd_names_holds_nothing_hidden(ask: Ask, caller: Caller) -> None:
    outcome = caller.outcome(ask)

    assert "HIDDEN" not in repr(outcome).replace("'value': 'HIDDEN'", "")


def test_nearest_values_of_odd_names_are_offered(caller: Caller) -> None:
    told = [repr(caller.outcome(ASKED[each])) for each in ("nearest values", "nearest values of a path")]

    assert ["three" in told[0], "red" in told[1]] == [True, True]


@pytest.mark.parametrize("name", MARKS)
def test_column_of_a_query_may_have_any_name(name: str, dialect: str, serve_queries: ServeQueries) -> None:
    query = f"-- name: odd\n-- param limit: text\nselect 'x' as {quote(name)}, 1 as other where 'y' = :limit"
    with serve_queries(dialect, "create table a (b integer);", {"odd.sql": query}) as shop:
        found = shop.call("odd", {"limit": "y"}).structured

    assert (found["columns"], found["rows"]) == ([name, "other"], [["x", 1]])


def test_giant_cell_of_a_hidden_row_of_odd_names_changes_nothing(serve: Serve) -> None:
    ddl = """
    create table "%(number)s" ("%(number)s" integer primary key, "%(limit)s" text, "DBTOOLS SEEN" integer);
    insert into "%(number)s" values (1, 'a', 0), (2, 'b', 0), (3, hex(zeroblob(9000000)), 1);
    alter table "%(number)s" add column "?" text default 'late';
    """
    grant = GrantSection(where='exists (select 1 from (select 3 as n) where n > "%(number)s")')
    asked = {"table": "%(number)s", "columns": ["%(limit)s", "?"], "where": [where("%(limit)s", "ne", "x")]}
    with serve("sqlite", ddl) as shop, calling_as(shop, {"%(number)s": grant}) as caller:
        filtered = caller.rows("list_rows", **asked)

    assert filtered == [["a", "late"], ["b", "late"]]
