"""`aggregate_rows`: the statements of its calls, how mistakes are reported, and which groups are shown."""

from collections.abc import Mapping, Sequence

import pytest
from jsonschema import Draft202012Validator

from dbtools.answers.results import Answer
from dbtools.answers.styles import Text
from dbtools.errors import CallError
from dbtools.expressions.terms import Bucket, Bucketed, Function, Measure, buckets_of, functions_of
from dbtools.policy.roles import Limits
from dbtools.schema.catalog import Column, ForeignKey
from dbtools.schema.paths import PathColumn
from dbtools.statements.select import Condition, Direction, Match, Order, Output, Select, Statement
from dbtools.tools.definition import ROWS_SCHEMA, Toolset
from dbtools.values.types import ColumnType, Family, Operator
from tests.calls import statement_of
from tests.unit.shop import ID, TYPES, answer, column, names, select_of, table, tools

COUNTRY = table(ID, column("name"), column("founded", Family.DATE), name="country")
SALE = table(
    ID,
    column("country_id", Family.INTEGER),
    column("day", Family.DATE),
    column("at", Family.TIMESTAMPTZ),
    column("shop"),
    column("total", Family.DECIMAL),
    column("note", Family.JSON),
    column("a:b", Family.DATE),
    name="sale",
    foreign_keys=(
        ForeignKey(columns=("country_id",), target_schema="", target="country", target_columns=("id",)),
    ),
)
TOOLS = tools(SALE, COUNTRY)
COUNT: Mapping[str, object] = {"function": "count"}
SUM: Mapping[str, object] = {"function": "sum", "column": "total"}


ROWS_COUNTED = Measure(function=Function.COUNT)


def _statement(**arguments: object) -> Statement:
    return statement_of(TOOLS["aggregate_rows"].bind({"table": "sale", "measures": [COUNT], **arguments}))


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


def test_shape_does_not_depend_on_values() -> None:
    first, second = (
        _statement(having=[{"column": "count", "op": "gt", "value": each}]).shape for each in (1, 2)
    )

    assert first == second
    assert hash(first) == hash(second)


@pytest.mark.parametrize(
    ("families", "functions"),
    [
        ((Family.INTEGER, Family.NUMBER, Family.DECIMAL, Family.INTERVAL, Family.ANY), set(Function)),
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
        pytest.param({"table": None}, "bad_argument", ["table", "missing"], id="no table"),
        pytest.param(
            {"measures": [{"function": "sum", "column": "totl"}]},
            "unknown_column",
            ["measures[0].column", "'totl'", "Did you mean total?"],
            id="column of a measure",
        ),
        pytest.param(
            {"measures": [{**SUM, "name": "shop"}], "group_by": ["shop"]},
            "bad_argument",
            ["measures[0]", "shop", "own name"],
            id="name of a group",
        ),
        ({"measures": [{**SUM, "name": "x" * 101}]}, "bad_argument", ["measures[0].name"]),
        ({"measures": ["sum"]}, "bad_argument", ["measures[0]", '{"function": "']),
        pytest.param({"measures": [COUNT] * 33}, "bad_argument", ["measures", "32"], id="too many measures"),
        pytest.param({"group_by": ["shop"] * 17}, "bad_argument", ["group_by", "16"], id="too many groups"),
        pytest.param({"group_by": ["shop", "SHOP"]}, "bad_argument", ["group_by", "shop"], id="group twice"),
        ({"group_by": ["country.name", "country_id.name"]}, "bad_argument", ["group_by", "country.name"]),
        ({"group_by": ["dy:month"]}, "unknown_column", ["group_by[0]", "'dy'", "Did you mean day?"]),
        pytest.param(
            {"having": [{"column": "count", "op": "contains", "value": "1"}]},
            "bad_operator",
            ["having[0]", "contains"],
            id="having an operator that the measure does not take",
        ),
        ({"where": [{"column": "count", "value": "5"}]}, "unknown_column", ["where[0].column", "'count'"]),
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


def test_limit_is_never_above_what_the_role_may_have() -> None:
    few = tools(SALE, COUNTRY, limits=Limits(max_rows=20))["aggregate_rows"]

    statement = statement_of(few.bind({"table": "sale", "measures": [COUNT]}))
    assert statement.limit == 20
    with pytest.raises(CallError):
        few.bind({"table": "sale", "measures": [COUNT], "limit": 21})


def test_large_cells_are_read_no_further_than_they_are_shown() -> None:
    outputs = _statement(group_by=["shop", "day"], measures=[{"function": "min", "column": "shop"}]).shape

    assert [output.cut for output in outputs.outputs] == [2_000, None, 2_000]


def _answer(
    arguments: Mapping[str, object], *rows: Sequence[object], of: Toolset = TOOLS, more: bool = False
) -> Answer:
    asked = {"table": "sale", "measures": [COUNT], **arguments}
    return answer(of, "aggregate_rows", asked, *rows, more=more)


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        pytest.param({"measures": [COUNT]}, ["count"], id="count"),
        pytest.param({"measures": [SUM]}, ["sum_total"], id="function and column"),
        ({"measures": [{"function": "count_distinct", "column": "shop"}]}, ["count_distinct_shop"]),
        ({"measures": [{"function": "max", "column": "country.name"}]}, ["max_country.name"]),
        pytest.param({"measures": [{**SUM, "name": " revenue "}]}, ["revenue"], id="name given"),
        pytest.param({"measures": [{**SUM, "name": ""}]}, ["sum_total"], id="empty name given"),
        ({"group_by": ["SHOP", " country.name"]}, ["SHOP", "country.name", "count"]),
        ({"group_by": ["country_id.name"]}, ["country_id.name", "count"]),
        pytest.param({"group_by": ["DAY:Month"]}, ["DAY:Month", "count"], id="bucket as given"),
        ({"group_by": ["country.founded:year"]}, ["country.founded:year", "count"]),
        pytest.param({"group_by": ['"a:b":year']}, ['"a:b":year', "count"], id="bucket of a quoted column"),
        pytest.param({"group_by": ["a:b"]}, ["a:b", "count"], id="column with a colon"),
    ],
)
def test_columns_of_the_answer_carry_the_names_of_groups_and_measures(
    arguments: dict[str, object], columns: list[str]
) -> None:
    assert _answer(arguments).structured["columns"] == columns


@pytest.mark.parametrize("text", Text)
def test_groups_beyond_the_cap_are_left_out(text: Text) -> None:
    limits = Limits(max_tokens=1_000)
    small = tools(SALE, COUNTRY, limits=limits, text=text)

    found = _answer({"group_by": ["shop"]}, *[(f"{n} {'x' * 300}", n) for n in range(20)], of=small)
    Draft202012Validator(ROWS_SCHEMA).validate(found.structured)

    assert 1 < found.rows < 20
    assert found.structured["row_count"] == found.rows
    assert found.structured["truncated"] is found.truncated is True
    assert "max_tokens" in str(found.structured["note"])
    assert len(found.text.encode()) <= limits.max_bytes


def test_single_huge_group_is_narrowed_with_its_cells_cut() -> None:
    small = tools(SALE, COUNTRY, limits=Limits(max_tokens=500))

    found = _answer({"group_by": ["shop"]}, ("x" * 2_000, 7), ("y", 8), of=small)

    rows = found.structured["rows"]
    assert isinstance(rows, list)
    [[shop, count]] = rows
    assert shop.endswith("x… [2,000 characters]")
    assert count == 7
    assert found.truncated
    assert len(found.text) <= 1_500


def test_group_may_begin_and_end_with_blanks() -> None:
    odd = table(column(" day ", Family.DATE), name="odd", key=())
    arguments: dict[str, object] = {"table": "odd", "measures": [COUNT], "group_by": [" day "]}

    statement = statement_of(tools(odd)["aggregate_rows"].bind(arguments))

    assert select_of(statement).groups == odd.columns
