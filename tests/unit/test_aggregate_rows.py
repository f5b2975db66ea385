"""Calls of `aggregate_rows`: the statements that they make, and how mistakes are reported."""

import json
from collections.abc import Sequence

import pytest

from dbtools.catalog import Column
from dbtools.errors import CallError
from dbtools.paths import PathColumn
from dbtools.policy import Limits
from dbtools.statement import Condition, Direction, Match, Order, Output, Select, Statement
from dbtools.terms import Bucket, Bucketed, Function, Measure, buckets_of, functions_of
from dbtools.types import ColumnType, Family, Operator
from tests.unit.aggregated import COUNT, COUNTRY, SALE, SUM, TOOLS
from tests.unit.shop import TYPES, column, names, select_of, tools

ROWS_COUNTED = Measure(function=Function.COUNT)


def _statement(**arguments: object) -> Statement:
    call = TOOLS["aggregate_rows"].bind({"table": "sale", "measures": [COUNT], **arguments})
    assert call.statement is not None
    return call.statement


def _own(name: str) -> Column:
    return SALE.column_by_name[name]


def _distant(name: str) -> PathColumn:
    found = names(SALE, COUNTRY).find(name, "columns")
    assert isinstance(found, PathColumn)
    return found


def test_call_asks_for_what_its_arguments_say() -> None:
    country = _distant("country.name")
    month = Bucketed(place=_own("day"), bucket=Bucket.MONTH)
    revenue = Measure(function=Function.SUM, place=_own("total"))

    assert _statement(
        group_by=["country.name", "day:month"],
        measures=[{**SUM, "name": "revenue"}, COUNT],
        where=[{"column": "country.name", "op": "ne", "value": "Peru"}],
        match="any",
        having=[{"column": "count", "op": "gt", "value": 5}],
        order_by=["revenue desc"],
        limit=7,
    ) == Statement(
        shape=Select(
            table=SALE,
            outputs=(
                Output(term=country, cut=2_000),
                Output(term=month),
                Output(term=revenue),
                Output(term=ROWS_COUNTED),
            ),
            conditions=(Condition(term=country, operator=Operator.NE, parameters=("c0_0",)),),
            match=Match.ANY,
            groups=(country, month),
            having=(Condition(term=ROWS_COUNTED, operator=Operator.GT, parameters=("h0_0",)),),
            order=(Order(term=revenue, direction=Direction.DESC), Order(term=country), Order(term=month)),
        ),
        values={"c0_0": "Peru", "h0_0": 5},
        limit=7,
    )


def test_count_without_a_column_counts_rows() -> None:
    rows, values = _statement(measures=[COUNT, {"function": "count", "column": "shop"}]).shape.outputs

    assert rows.term == ROWS_COUNTED
    assert values.term == Measure(function=Function.COUNT, place=_own("shop"))


def test_shape_does_not_depend_on_values() -> None:
    first, second = (
        _statement(having=[{"column": "count", "op": "gt", "value": each}]).shape for each in (1, 2)
    )

    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("families", "functions"),
    [
        pytest.param(
            (Family.INTEGER, Family.NUMBER, Family.DECIMAL, Family.INTERVAL, Family.ANY),
            set(Function),
            id="numbers",
        ),
        pytest.param(
            (
                *(Family.BOOLEAN, Family.TEXT, Family.ENUM, Family.UUID),
                *(Family.DATE, Family.TIME, Family.TIMESTAMP, Family.TIMESTAMPTZ),
            ),
            set(Function) - {Function.SUM, Function.AVG},
            id="what has an order",
        ),
        pytest.param(
            (Family.BYTES, Family.ARRAY, Family.OBJECT, Family.OTHER),
            {Function.COUNT, Function.COUNT_DISTINCT},
            id="what can be equal",
        ),
        pytest.param((Family.JSON,), {Function.COUNT}, id="what cannot be compared"),
    ],
)
def test_functions_are_those_that_a_type_has(families: Sequence[Family], functions: set[Function]) -> None:
    assert {family: set(functions_of(TYPES[family])) for family in families} == dict.fromkeys(
        families, functions
    )


def test_dates_have_buckets_and_moments_have_hours() -> None:
    moments = (
        TYPES[Family.TIMESTAMP],
        TYPES[Family.TIMESTAMPTZ],
        ColumnType(family=Family.TEXT, name="text", dated=True),
    )
    others = set(Family) - {Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ}

    assert buckets_of(TYPES[Family.DATE]) == ("year", "quarter", "month", "week", "day", "weekday")
    assert [buckets_of(each) for each in moments] == [tuple(Bucket)] * 3
    assert {buckets_of(TYPES[family]) for family in others} == {()}


@pytest.mark.parametrize(
    ("function", "family", "of"),
    [
        (Function.COUNT, Family.INTEGER, Family.TEXT),
        (Function.COUNT_DISTINCT, Family.INTEGER, Family.DATE),
        (Function.SUM, Family.INTEGER, Family.INTEGER),
        (Function.AVG, Family.DECIMAL, Family.INTEGER),
        (Function.AVG, Family.NUMBER, Family.NUMBER),
        (Function.SUM, Family.INTERVAL, Family.INTERVAL),
        (Function.MIN, Family.ENUM, Family.ENUM),
        (Function.MAX, Family.TIMESTAMPTZ, Family.TIMESTAMPTZ),
    ],
)
def test_measure_has_the_type_of_its_values(function: Function, family: Family, of: Family) -> None:
    measure = Measure(function=function, place=column("x", of))

    assert measure.type.family is family
    assert measure.nullable is not (family is Family.INTEGER and function is not Function.SUM)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param({"measures": []}, "bad_argument", ["measures", '{"function": "count"}'], id="none"),
        pytest.param({"measures": None}, "bad_argument", ["group_by", "measures"], id="missing"),
        pytest.param({"table": None}, "bad_argument", ["table", "missing"], id="no table"),
        pytest.param({"table": "sales"}, "unknown_table", ["'sales'", "Did you mean sale?"], id="table"),
        pytest.param(
            {"measures": [COUNT, {"function": "sum"}]},
            "bad_argument",
            ["measures[1].column", "missing", "sum"],
            id="sum without a column",
        ),
        pytest.param(
            {"measures": [{"function": "median", "column": "total"}]},
            "bad_argument",
            ["measures[0].function", "'median'", "'avg'"],
            id="unknown function",
        ),
        pytest.param(
            {"measures": [{"function": "sum", "column": "shop"}]},
            "bad_argument",
            ["measures[0]", "sum", "shop (text)", "Functions: count, count_distinct, min, max."],
            id="function that the column does not have",
        ),
        pytest.param(
            {"measures": [{"function": "sum", "column": "totl"}]},
            "unknown_column",
            ["measures[0].column", "'totl'", "Did you mean total?"],
            id="column of a measure",
        ),
        pytest.param(
            {"measures": [SUM, SUM]}, "bad_argument", ["measures[1]", "sum_total", "own name"], id="twice"
        ),
        pytest.param(
            {"measures": [{**SUM, "name": "shop"}], "group_by": ["shop"]},
            "bad_argument",
            ["measures[0]", "shop", "own name"],
            id="name of a group",
        ),
        pytest.param(
            {"measures": [{**SUM, "name": "x" * 101}]}, "bad_argument", ["measures[0].name"], id="long name"
        ),
        pytest.param(
            {"measures": [{"function": "sum", "colum": "total"}]},
            "unknown_argument",
            ["measures[0]", "'colum'", "Did you mean column?", "function, column, name"],
            id="unknown part of a measure",
        ),
        pytest.param(
            {"measures": ["count"]},
            "bad_argument",
            ["measures[0]", '{"function": "'],
            id="measure that is no object",
        ),
        pytest.param({"measures": [COUNT] * 33}, "bad_argument", ["measures", "32"], id="too many measures"),
        pytest.param({"group_by": ["shop"] * 17}, "bad_argument", ["group_by", "16"], id="too many groups"),
        pytest.param(
            {"group_by": ["shop", "countr.name"]},
            "unknown_column",
            ["group_by[1]", "'countr'", "Did you mean country?"],
            id="group",
        ),
        pytest.param({"group_by": ["shop", "SHOP"]}, "bad_argument", ["group_by", "shop"], id="group twice"),
        pytest.param(
            {"group_by": ["country.name", "country_id.name"]},
            "bad_argument",
            ["group_by", "country.name"],
            id="group in two spellings",
        ),
        pytest.param(
            {"group_by": ["note"]},
            "bad_argument",
            ["group_by[0]", "note (json)"],
            id="group that has no order",
        ),
        pytest.param(
            {"group_by": ["day:moth"]},
            "bad_argument",
            ["group_by[0]", "'moth'", "Did you mean month", "year, quarter, month, week, day, weekday."],
            id="unknown bucket",
        ),
        pytest.param(
            {"group_by": ["day:hour"]}, "bad_argument", ["day (date)", "'hour'"], id="hour of a date"
        ),
        pytest.param(
            {"group_by": ["shop:month"]},
            "bad_argument",
            ["group_by[0]", "shop (text)", "dates"],
            id="bucket of a text",
        ),
        pytest.param(
            {"group_by": ["dy:month"]},
            "unknown_column",
            ["group_by[0]", "'dy'", "Did you mean day?"],
            id="bucket of nothing",
        ),
        pytest.param(
            {"having": [{"column": "total", "op": "gt", "value": "5"}], "measures": [SUM]},
            "unknown_column",
            ["having[0].column", "'total'", "Did you mean sum_total?", "where"],
            id="having a column",
        ),
        pytest.param(
            {"having": [{"column": "shop", "value": "x"}], "group_by": ["shop"]},
            "unknown_column",
            ["having[0].column", "'shop'", "Names: count.", "where"],
            id="having a group",
        ),
        pytest.param(
            {"having": [{"column": "count", "op": "gt", "value": "many"}]},
            "bad_value",
            ["having[0].value", "'many'", "integer"],
            id="having a text",
        ),
        pytest.param(
            {"having": [{"column": "count", "op": "contains", "value": "1"}]},
            "bad_operator",
            ["having[0]", "contains"],
            id="having an operator that the measure does not take",
        ),
        pytest.param(
            {"where": [{"column": "count", "value": "5"}]},
            "unknown_column",
            ["where[0].column", "'count'"],
            id="where a measure",
        ),
        pytest.param(
            {"order_by": ["shop"], "measures": [SUM]},
            "unknown_column",
            ["order_by[0]", "'shop'", "Names: sum_total."],
            id="order by what is no group",
        ),
        pytest.param(
            {"order_by": ["revenu desc"], "measures": [{**SUM, "name": "revenue"}]},
            "unknown_column",
            ["order_by[0]", "'revenu'", "Did you mean revenue?"],
            id="order by no measure",
        ),
        pytest.param({"limit": 0}, "bad_argument", ["limit"], id="no rows"),
        pytest.param({"limit": 201}, "bad_argument", ["limit", "200"], id="too many rows"),
        pytest.param({"cursor": "x"}, "unknown_argument", ["'cursor'"], id="cursor"),
    ],
)
def test_refusal_names_the_argument_and_what_there_is(
    arguments: dict[str, object], code: str, says: list[str]
) -> None:
    with pytest.raises(CallError) as raised:
        _statement(**arguments)

    assert raised.value.code == code
    assert [said for said in says if said not in str(raised.value)] == []


@pytest.mark.parametrize(
    ("order_by", "first"),
    [
        pytest.param("shop", ("shop", "asc"), id="group"),
        pytest.param("SHOP desc", ("shop", "desc"), id="group in another case"),
        pytest.param("day:month", ("day:month", "asc"), id="bucket as given"),
        pytest.param("day:MONTH desc", ("day:month", "desc"), id="bucket in another case"),
        pytest.param("country.name DESC", ("country.name", "desc"), id="path as given"),
        pytest.param("revenue desc", ("sum_total", "desc"), id="measure"),
        pytest.param(" count ", ("count", "asc"), id="blanks around"),
        pytest.param("by desc", ("max_total", "asc"), id="name that ends like a direction"),
        pytest.param("by desc desc", ("max_total", "desc"), id="such a name and a direction"),
    ],
)
def test_order_is_by_groups_and_measures_and_then_by_the_other_groups(
    order_by: str, first: tuple[str, str]
) -> None:
    order = select_of(
        _statement(
            group_by=["shop", "day:month", "country.name"],
            measures=[
                {**SUM, "name": "revenue"},
                COUNT,
                {"function": "max", "column": "total", "name": "by desc"},
            ],
            order_by=[order_by],
        )
    ).order

    groups = [(each, "asc") for each in ("shop", "day:month", "country.name") if each != first[0]]
    assert [(step.term.name, step.direction) for step in order] == [first, *groups]


def test_order_is_total_where_none_is_asked_for() -> None:
    assert [step.term.name for step in select_of(_statement(group_by=["shop", "day"])).order] == [
        "shop",
        "day",
    ]
    assert select_of(_statement()).order == ()


def test_arrays_may_come_as_their_json() -> None:
    arguments: dict[str, object] = {
        "group_by": ["shop"],
        "measures": [SUM],
        "where": [{"column": "shop", "op": "in", "values": ["a"]}],
        "having": [{"column": "sum_total", "op": "gt", "value": "5"}],
        "order_by": ["sum_total desc"],
    }

    texts = {name: json.dumps(each) for name, each in arguments.items()}

    assert _statement(**texts) == _statement(**arguments)


def test_limit_is_never_above_what_the_role_may_have() -> None:
    few = tools(SALE, COUNTRY, limits=Limits(max_rows=20))["aggregate_rows"]

    statement = few.bind({"table": "sale", "measures": [COUNT]}).statement
    assert statement is not None
    assert statement.limit == 20
    with pytest.raises(CallError):
        few.bind({"table": "sale", "measures": [COUNT], "limit": 21})


def test_large_cells_are_read_no_further_than_they_are_shown() -> None:
    outputs = _statement(group_by=["shop", "day"], measures=[{"function": "min", "column": "shop"}]).shape

    assert [output.cut for output in outputs.outputs] == [2_000, None, 2_000]
