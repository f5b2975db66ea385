"""Arguments are read, or rejected by name, within limits."""

import math
import tracemalloc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from dbtools.answers.results import Answer
from dbtools.errors import CallError
from dbtools.schema.catalog import Column
from dbtools.tools.arguments import (
    DEEPEST_VALUE,
    MOST_CHARACTERS,
    MOST_CONDITIONS,
    MOST_PARTS,
    MOST_VALUES,
    Arguments,
    Where,
    check,
    read,
)
from dbtools.tools.calls import Call, CatalogCall
from dbtools.tools.describe_tables import DescribeArguments
from dbtools.tools.list_rows import ListArguments
from dbtools.values.types import Family, Operator
from tests.calls import statement_of
from tests.unit.shop import ANYTHING, select_of, tools

TOOLS = tools()


def _deep(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


def _refusal(arguments: dict[str, Any], model: type[Arguments] = ListArguments) -> CallError:
    with pytest.raises(CallError) as raised:
        read(model, arguments, max_rows=200)
    return raised.value


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"a": _deep(DEEPEST_VALUE)}, id="nested too deep"),
        pytest.param({"a": _deep(500)}, id="nested very deep"),
        pytest.param({"a": "x" * (MOST_CHARACTERS + 1)}, id="long text"),
        pytest.param({"a": ["x" * 1_000] * 1_001}, id="long texts"),
        pytest.param({"x" * (MOST_CHARACTERS + 1): 1}, id="long name"),
        pytest.param({"a": [0] * (MOST_PARTS + 1)}, id="many values"),
        pytest.param({"a": [{"b": 0}] * MOST_PARTS}, id="many objects"),
        pytest.param({"a": "x\0"}, id="NUL"),
        pytest.param({"a": ["\ud800"]}, id="half a surrogate pair"),
        pytest.param({"a\0": 1}, id="NUL in a name"),
        pytest.param({"a": {"\udfff": 1}}, id="half a surrogate pair in a name"),
        pytest.param({"a": math.nan}, id="nan"),
        pytest.param({"a": [math.inf]}, id="infinity"),
        pytest.param({"a": {"b": -math.inf}}, id="negative infinity"),
        pytest.param({"a": 10**5_000}, id="huge integer"),
        pytest.param({"a": -(10**401)}, id="huge negative integer"),
    ],
)
def test_what_no_tool_can_read_is_refused_first(arguments: dict[str, object]) -> None:
    with pytest.raises(CallError) as raised:
        check(arguments)

    assert raised.value.code == "bad_argument"
    assert len(str(raised.value)) < 300


def test_most_of_everything_is_let_through() -> None:
    check({"a": _deep(DEEPEST_VALUE - 1), "b": "x" * (MOST_CHARACTERS - 2)})
    check({"a": [0] * (MOST_PARTS - 5), "b": 10**400})
    check({"a": ["😀", "\x01", 1.5, None, True]})


def test_long_names_do_not_make_refusals_long_or_slow() -> None:
    arguments = {"x" * 900_000: [0] * (MOST_PARTS - 4) + ["\0"]}
    tracemalloc.start()
    with pytest.raises(CallError) as raised:
        check(arguments)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(str(raised.value)) < 300
    assert most < 20 * 2**20  # the name is not repeated for each part


@pytest.mark.parametrize("name", ["where", "match", "columns", "order_by", "limit", "cursor"])
@pytest.mark.parametrize("absent", ["", None])
def test_empty_text_and_null_mean_absent_at_the_top(name: str, absent: object) -> None:
    assert read(ListArguments, {name: absent}) == ListArguments()


def test_conditions_keep_what_was_written() -> None:
    asked = read(
        ListArguments,
        {
            "where": [
                {"column": "id", "value": 5},
                {"column": "name", "op": "contains", "value": ""},
                {"column": "id", "op": "in", "values": [1, "2", True, 2.5]},
                {"column": "id", "op": "is_null"},
                {"column": "id", "value": None, "values": None},
            ]
        },
    )

    assert asked.where == (
        Where(column="id", value="5"),
        Where(column="name", op=Operator.CONTAINS, value=""),
        Where(column="id", op=Operator.IN, values=("1", "2", "true", "2.5")),
        Where(column="id", op=Operator.IS_NULL),
        Where(column="id", value=None, values=None),
    )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        pytest.param({"wher": []}, "unknown_argument", ["'wher'", "where", "cursor"], id="unknown argument"),
        pytest.param({"function-x": 1}, "unknown_argument", ["'function-x'"], id="named like a validator"),
        pytest.param({"tuple[x": 1}, "unknown_argument", ["'tuple[x'"], id="named like another validator"),
        pytest.param({"": 1}, "unknown_argument", ["''"], id="empty name"),
        ({"where": [{"column": "id", "val": 1}]}, "unknown_argument", ["where[0]", "'val'", "values"]),
        pytest.param(
            {"where": [{"column": "id", "function-x": 1}]},
            "unknown_argument",
            ["where[0]", "'function-x'", "values"],
            id="argument of a condition named like a validator",
        ),
        pytest.param({"limit": "x", "wher": 1}, "unknown_argument", ["'wher'"], id="unknown before the rest"),
        pytest.param({"where": 1}, "bad_argument", ["where "], id="number for an array"),
        pytest.param({"where": "id ~ 1"}, "bad_argument", ["where[0] ", "'id ~ 1'"], id="text for an object"),
        pytest.param({"where": [["id", 1]]}, "bad_argument", ["where[0] "], id="array for an object"),
        pytest.param({"where": [None]}, "bad_argument", ["where[0] "], id="null for an object"),
        pytest.param({"where": [{"column": None}]}, "bad_argument", ["where[0].column "], id="null column"),
        ({"where": [{"column": 1}]}, "bad_argument", ["where[0].column "]),
        ({"where": [{"column": "id", "op": "~"}]}, "bad_argument", ["where[0].op ", "'eq'"]),
        ({"where": [{"column": "id", "op": ""}]}, "bad_argument", ["where[0].op "]),
        ({"where": [{"column": "id", "op": None}]}, "bad_argument", ["where[0].op "]),
        ({"where": [{"column": "id", "op": "gt", "value": [1]}]}, "bad_argument", ["where[0].value "]),
        ({"where": [{"column": "id", "values": 1}]}, "bad_argument", ["where[0].values "]),
        ({"where": [{"column": "id", "values": [1, None]}]}, "bad_argument", ["where[0].values[1] "]),
        pytest.param(
            {"where": [{"column": "id", "op": "in", "values": ["1"] * (MOST_VALUES + 1)}]},
            "bad_argument",
            ["where[0].values ", "1,000"],
            id="too many values",
        ),
        ({"where": [{"column": "id"}] * (MOST_CONDITIONS + 1)}, "bad_argument", ["where ", "50"]),
        pytest.param({"match": "some"}, "bad_argument", ["match ", "'any'"], id="match"),
        pytest.param({"columns": 1}, "bad_argument", ["columns "], id="number for columns"),
        pytest.param({"columns": ["id"] * 501}, "bad_argument", ["columns ", "500"], id="too many columns"),
        pytest.param({"order_by": ["id"] * 17}, "bad_argument", ["order_by ", "16"], id="too long an order"),
        pytest.param({"columns": [1]}, "bad_argument", ["columns[0] "], id="number among columns"),
        pytest.param({"order_by": 1}, "bad_argument", ["order_by "], id="number for an order"),
        ({"order_by": [{"column": "id", "by": 1}]}, "bad_argument", ["order_by[0] "]),
        pytest.param({"cursor": 5}, "bad_argument", ["cursor "], id="number for a cursor"),
        *(
            pytest.param({"limit": limit}, "bad_argument", ["limit "], id=f"limit {limit!s:.9}")
            for limit in (0, -1, 201, 10**30, -(10**300), 1.5, 1e300, "x", "1.5", True, [1], {"a": 1})
        ),
    ],
)
def test_argument_that_cannot_be_read_is_named(arguments: dict[str, Any], code: str, says: list[str]) -> None:
    refusal = _refusal(arguments)

    assert refusal.code == code
    assert [said for said in says if said not in str(refusal)] == []


@pytest.mark.parametrize("limit", [1, 200, 200.0, "200"])
def test_limit_is_taken_up_to_its_bound(limit: object) -> None:
    assert read(ListArguments, {"limit": limit}, max_rows=200).limit == int(limit)  # type: ignore[call-overload]


def test_bound_lowers_the_limit_that_was_not_given() -> None:
    assert read(ListArguments, {}, max_rows=5) == read(ListArguments, {"limit": 5})
    assert read(ListArguments, {}, max_rows=60).limit == 50


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"table": ["product"]}, "unknown_argument"),
        ({"where": []}, "unknown_argument"),
        ({"tables": 1}, "bad_argument"),
        ({"tables": ["product"] * 201}, "bad_argument"),
        ({"tables": [1]}, "bad_argument"),
        ({"detail": "everything"}, "bad_argument"),
    ],
)
def test_arguments_of_a_description_are_read_the_same_way(arguments: dict[str, Any], code: str) -> None:
    assert _refusal(arguments, DescribeArguments).code == code


NASTY = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=12),
    st.sampled_from(
        [
            *("", " ", "\0", "\ud800", "function-x", "tuple[", "id", "name", "eq", "1", "-1", "1e999"),
            *("null", "true"),
            *[
                *("9" * 400, "' or 1=1 --", "2024-02-30", "NaN", "Infinity", "id desc", "id desc desc"),
                "__proto__",
            ],
        ]
    ),
)
LEAVES = st.none() | st.booleans() | st.integers() | st.integers(-(10**30), 10**30) | st.floats() | NASTY
ANY_JSON = st.recursive(
    LEAVES,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(NASTY, parts, max_size=4),
    max_leaves=10,
)
VALUES = (
    st.sampled_from(["1", "x", "", "true", "2024-03-05", "19.90", "aGk=", "small", 1, 2.5, True]) | ANY_JSON
)
NAMES = st.sampled_from([each.name for each in ANYTHING.columns] + ["nothing"]) | NASTY
CONDITIONS = st.fixed_dictionaries(
    {"column": NAMES},
    optional={
        "op": st.sampled_from([*map(str, Operator), "="]),
        "value": VALUES,
        "values": st.lists(VALUES, max_size=3) | VALUES,
        "more": VALUES,
    },
)
EXAMPLES: Mapping[Family, object] = {
    Family.INTEGER: 42,
    Family.NUMBER: 4.2,
    Family.DECIMAL: "19.90",
    Family.BOOLEAN: True,
    Family.TEXT: "",
    Family.ENUM: "small",
    Family.DATE: "2024-03-05",
    Family.TIME: "14:30:00",
    Family.TIMESTAMP: "2024-03-05T14:30:00",
    Family.TIMESTAMPTZ: "2024-03-05T14:30:00Z",
    Family.INTERVAL: "P1DT2H",
    Family.UUID: "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f",
    Family.BYTES: "aGVsbG8=",
    Family.ARRAY: "19.90",
    Family.JSON: "a",
    Family.OTHER: "10.0.0.1",
    Family.ANY: 5,
}


def _meant(column: Column, operator: Operator) -> dict[str, object]:
    condition: dict[str, object] = {"column": column.name, "op": str(operator)}
    match operator:
        case Operator.IS_NULL:
            return condition | {"value": True}
        case Operator.IN | Operator.NOT_IN | Operator.BETWEEN:
            return condition | {"values": [EXAMPLES[column.type.family]] * 2}
        case _:
            return condition | {"value": EXAMPLES[column.type.family]}


MEANT = st.sampled_from(
    [_meant(column, operator) for column in ANYTHING.columns for operator in column.type.operators]
)
NEARLY_A_LIST = st.fixed_dictionaries(
    {},
    optional={
        "where": st.lists(MEANT | CONDITIONS, max_size=3) | ANY_JSON,
        "match": st.sampled_from(["all", "any"]) | ANY_JSON,
        "columns": st.lists(NAMES, max_size=3) | ANY_JSON,
        "order_by": st.lists(
            st.tuples(NAMES, st.sampled_from(["", " desc", " asc"])).map("".join), max_size=3
        )
        | ANY_JSON,
        "limit": st.integers(-1, 300) | ANY_JSON,
        "cursor": st.sampled_from(["", "WyJhIiwwLG51bGxd"]) | ANY_JSON,
        "tables": st.lists(NAMES | st.sampled_from(["product", "Sale", "order line"]), max_size=3) | ANY_JSON,
        "detail": st.sampled_from(["names", "summary", "full"]) | ANY_JSON,
        "id": VALUES,
        "order_id": VALUES,
        "product_id": VALUES,
    },
)
NAMES_OF_TOOLS = sorted(TOOLS)


def _bound(name: str, arguments: dict[str, object]) -> tuple[Call[Answer] | None, CallError | None]:
    try:
        return TOOLS[name].bind(arguments), None
    except CallError as exc:
        return None, exc


@given(
    name=st.sampled_from(NAMES_OF_TOOLS),
    arguments=st.dictionaries(NASTY, ANY_JSON, max_size=4) | NEARLY_A_LIST,
)
@example(name="list_product", arguments={"function-x": 1})
@example(name="list_product", arguments={"where": [{"column": "id", "tuple[": 1}]})
@example(name="get_product", arguments={"id": 10**399})
def test_any_arguments_are_a_call_or_a_clear_error(name: str, arguments: dict[str, object]) -> None:
    call, refusal = _bound(name, arguments)

    if refusal is not None:
        assert refusal.code != "call_error"
        assert str(refusal).isprintable()
        assert len(str(refusal)) < 3_000
    if call is not None:
        assert isinstance(call, CatalogCall) is (name in ("describe_tables", "list_tables"))
        assert isinstance(call, CatalogCall) or 1 <= statement_of(call).limit <= 200


@given(st.lists(MEANT, min_size=1, max_size=4))
def test_no_condition_is_dropped(where: list[dict[str, object]]) -> None:
    statement = statement_of(TOOLS["list_anything"].bind({"where": where}))
    conditions = select_of(statement).comparisons

    assert [each.term.name for each in conditions] == [each["column"] for each in where]
    assert set(statement.values) == {name for each in conditions for name in each.parameters}
