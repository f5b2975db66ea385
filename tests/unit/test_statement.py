"""Conditions: which values they bind, and which are rejected."""

from dataclasses import replace
from typing import Any

import pytest

from dbtools import errors
from dbtools.errors import CallError
from dbtools.expressions.terms import Function, Measure, alternatives_of
from dbtools.schema.catalog import Table, TextIndex
from dbtools.statements.select import Condition, Match, Output, Select
from dbtools.tools.arguments import MOST_CONDITIONS, MOST_VALUES, Where
from dbtools.tools.binding import LONGEST_PATTERN, MOST_SEARCHES, bind_where
from dbtools.values.types import TEXTUAL, Operator
from tests.unit.shop import ANYTHING, ORDER_LINE, PRODUCT, column, terms

TOTAL = Measure(function=Function.COUNT)
MANY = (Operator.IN, Operator.NOT_IN, Operator.BETWEEN)


def _bound(of: Table, name: str, operator: Operator, *values: str) -> tuple[Operator, bool, list[object]]:
    """Return operator, wanted and the values, in the order of the parameters, of one bound condition."""
    many = operator in MANY
    comparison = Where(
        column=name, op=operator, value=None if many else values[0], values=values if many else None
    )
    (condition,), bound = bind_where(terms(of), [comparison])
    assert isinstance(condition, Condition)
    assert condition.term is of.column_by_name[name]
    assert set(condition.parameters) == set(bound)
    return condition.operator, condition.wanted, [bound[each] for each in condition.parameters]


@pytest.mark.parametrize(
    ("name", "operator", "texts", "values"),
    [
        pytest.param("id", Operator.EQ, ["1"], [1], id="eq"),
        pytest.param("id", Operator.NE, ["1"], [1], id="ne"),
        pytest.param("id", Operator.LT, ["1"], [1], id="lt"),
        pytest.param("id", Operator.LTE, ["1"], [1], id="lte"),
        pytest.param("id", Operator.GT, ["1"], [1], id="gt"),
        pytest.param("id", Operator.GTE, ["1"], [1], id="gte"),
        pytest.param("id", Operator.IN, ["1", "2"], [[1, 2]], id="in"),
        pytest.param("id", Operator.NOT_IN, ["1"], [[1]], id="not_in"),
        pytest.param("id", Operator.IN, [], [[]], id="in nothing"),
        pytest.param("id", Operator.BETWEEN, ["1", "2"], [1, 2], id="between"),
        pytest.param("name", Operator.EQ, [""], [""], id="empty text"),
        pytest.param("name", Operator.CONTAINS, ["50%_"], ["50%_"], id="contains"),
        pytest.param("name", Operator.STARTS_WITH, [" x"], [" x"], id="starts_with"),
        pytest.param("name", Operator.ENDS_WITH, [""], [""], id="ends_with"),
        pytest.param("tags", Operator.CONTAINS, ["1.10"], ["1.10"], id="membership"),
        pytest.param("price", Operator.GTE, ["19.90"], ["19.90"], id="decimal"),
        pytest.param("sold", Operator.EQ, ["yes"], [True], id="boolean"),
        pytest.param("photo", Operator.EQ, ["aGk="], [b"hi"], id="bytes"),
        pytest.param("color", Operator.EQ, ["red"], ["red"], id="choice"),
        pytest.param("color", Operator.GT, ["purple"], ["purple"], id="order beyond choices"),
    ],
)
def test_condition_binds_the_values_of_its_column(
    name: str, operator: Operator, texts: list[str], values: list[object]
) -> None:
    assert _bound(PRODUCT, name, operator, *texts) == (operator, True, values)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("name", [each.name for each in ANYTHING.columns])
def test_is_null_says_which_is_wanted(name: str, wanted: bool) -> None:
    bound = _bound(ANYTHING, name, Operator.IS_NULL, "true" if wanted else "false")

    assert bound == (Operator.IS_NULL, wanted, [])


@pytest.mark.parametrize(
    ("operator", "texts", "bound", "values"),
    [
        pytest.param(Operator.EQ, ["5"], Operator.IN, [[5, "5"]], id="eq number"),
        pytest.param(Operator.EQ, ["five"], Operator.IN, [["five"]], id="eq text"),
        pytest.param(Operator.NE, ["5.5"], Operator.NOT_IN, [[5.5, "5.5"]], id="ne"),
        pytest.param(Operator.IN, ["5", "x"], Operator.IN, [[5, "x", "5"]], id="in"),
        pytest.param(Operator.NOT_IN, ["5"], Operator.NOT_IN, [[5, "5"]], id="not_in"),
        pytest.param(Operator.LT, ["5"], Operator.LT, [5, "5"], id="lt"),
        pytest.param(Operator.BETWEEN, ["a", "5"], Operator.BETWEEN, [None, 5, "a", "5"], id="between"),
        pytest.param(Operator.CONTAINS, ["5"], Operator.CONTAINS, ["5"], id="contains"),
    ],
)
def test_column_without_a_type_equals_a_number_and_its_text(
    operator: Operator, texts: list[str], bound: Operator, values: list[object]
) -> None:
    assert _bound(ANYTHING, "any", operator, *texts) == (bound, True, values)


def test_parameters_of_several_conditions_have_names_of_their_own() -> None:
    conditions, values = bind_where(
        terms(PRODUCT),
        [
            Where(column="id", op=Operator.GT, value="1"),
            Where(column="id", op=Operator.BETWEEN, values=("2", "3")),
            Where(column="name", op=Operator.IS_NULL, value="true"),
            Where(column="id", op=Operator.IN, values=("4", "5")),
        ],
    )
    id, name = PRODUCT.column_by_name["id"], PRODUCT.column_by_name["name"]

    assert conditions == (
        Condition(term=id, operator=Operator.GT, parameters=("c0_0",)),
        Condition(term=id, operator=Operator.BETWEEN, parameters=("c1_0", "c1_1")),
        Condition(term=name, operator=Operator.IS_NULL, wanted=True),
        Condition(term=id, operator=Operator.IN, parameters=("c3_0",)),
    )
    assert values == {"c0_0": 1, "c1_0": 2, "c1_1": 3, "c3_0": [4, 5]}


INDEX = TextIndex(reads=frozenset({"body"}), document="body")
INDEXED = replace(ANYTHING, columns=(*ANYTHING.columns, replace(column("body"), text_index=INDEX)))


def _refusal(comparison: Where, of: Table = INDEXED) -> CallError:
    with pytest.raises(CallError) as raised:
        bind_where(terms(of), [comparison])
    return raised.value


def _column_with(operator: Operator) -> str:
    typed = (each.name for each in ANYTHING.columns if operator in each.type.operators)
    return next(typed, "body")


PLACE = ("order_id", Operator.EQ), ("product_id", Operator.EQ)


@pytest.mark.parametrize(
    ("of", "asked", "more", "is_lookup"),
    [
        pytest.param(PRODUCT, [("id", Operator.EQ)], {}, True, id="by its key"),
        pytest.param(PRODUCT, [("id", Operator.EQ), ("name", Operator.EQ)], {}, False, id="and more"),
        pytest.param(PRODUCT, [("id", Operator.EQ), ("id", Operator.EQ)], {}, False, id="twice"),
        pytest.param(PRODUCT, [("id", Operator.EQ), ("name", Operator.CONTAINS)], {}, False, id="a search"),
        pytest.param(ORDER_LINE, PLACE, {}, True, id="composite"),
        pytest.param(ORDER_LINE, PLACE[:1], {}, False, id="by a part of its key"),
        pytest.param(PRODUCT, [("id", Operator.GT)], {}, False, id="greater"),
        pytest.param(PRODUCT, [("name", Operator.EQ)], {}, False, id="by another column"),
        pytest.param(ORDER_LINE, PLACE, {"match": Match.ANY}, False, id="any of them"),
        pytest.param(PRODUCT, [("id", Operator.EQ)], {"outputs": (Output(term=TOTAL),)}, False, id="total"),
        pytest.param(PRODUCT, [], {}, False, id="all rows"),
        pytest.param(replace(PRODUCT, keys=()), [("id", Operator.EQ)], {}, False, id="no key"),
    ],
)
def test_row_that_is_read_by_its_key_is_looked_up(
    of: Table, asked: list[tuple[str, Operator]], more: dict[str, Any], is_lookup: bool
) -> None:
    conditions = tuple(
        Condition(term=of.column_by_name[name], operator=operator, parameters=("c",))
        for name, operator in asked
    )
    shape = Select(**{"table": of, "outputs": (), "conditions": conditions, **more})

    assert shape.is_lookup is is_lookup


@pytest.mark.parametrize("operator", Operator)
def test_values_that_the_operator_does_not_take_are_refused(operator: Operator) -> None:
    column = _column_with(operator)
    wrong = [
        Where(column=column, op=operator, value="1", values=("1", "2")),
        *([] if operator is Operator.IS_NULL else [Where(column=column, op=operator)]),
        Where(column=column, op=operator, **({"value": "1"} if operator in MANY else {"values": ("1",)})),
    ]
    if operator is Operator.BETWEEN:
        wrong += [Where(column=column, op=operator, values=("1",) * count) for count in (0, 1, 3)]

    assert {_refusal(each).code for each in wrong} == {"bad_argument"}


@pytest.mark.parametrize("name", [each.name for each in ANYTHING.columns])
@pytest.mark.parametrize("operator", Operator)
def test_operator_that_the_column_lacks_is_refused_with_those_it_has(name: str, operator: Operator) -> None:
    operators = ANYTHING.column_by_name[name].type.operators
    if operator in operators:
        return
    refusal = _refusal(Where(column=name, op=operator, value="1"))

    assert refusal.code == "bad_operator"
    assert all(each in refusal.hint for each in operators)


@pytest.mark.parametrize(
    ("comparison", "code", "says"),
    [
        (Where(column="color", value="gren"), "bad_value", ["color", "gren", "green"]),
        pytest.param(
            Where(column="color", op=Operator.IN, values=("red", "blue")),
            "bad_value",
            ["where[0].values[1]", "'blue'", "red, green"],
            id="one of several choices",
        ),
        (Where(column="product.nme", value="x"), "unknown_column", ["mean name?"]),
        pytest.param(Where(column="", value="x"), "bad_argument", ["needs column"], id="empty"),
        (Where(column="id", op=Operator.IS_NULL, value="yes"), "bad_value", ["is_null", "'yes'"]),
        pytest.param(
            Where(column="name", op=Operator.CONTAINS, value="x" * (LONGEST_PATTERN + 1)),
            "bad_value",
            ["where"],
            id="long pattern",
        ),
    ],
)
def test_condition_that_cannot_be_meant_is_refused(comparison: Where, code: str, says: list[str]) -> None:
    refusal = _refusal(comparison, PRODUCT)

    assert refusal.code == code
    assert [said for said in says if said not in str(refusal)] == []


def test_most_values_and_longest_pattern_are_taken() -> None:
    numbers = tuple(map(str, range(MOST_VALUES)))

    assert _bound(PRODUCT, "id", Operator.IN, *numbers)[2] == [list(range(MOST_VALUES))]
    assert _bound(PRODUCT, "name", Operator.CONTAINS, "x" * LONGEST_PATTERN)[2] == ["x" * LONGEST_PATTERN]


def test_conditions_are_counted() -> None:
    one = Where(column="id", value="1")

    assert len(bind_where(terms(PRODUCT), [one] * MOST_CONDITIONS)[0]) == MOST_CONDITIONS
    with pytest.raises(errors.BadArgument):
        bind_where(terms(PRODUCT), [one] * (MOST_CONDITIONS + 1))


@pytest.mark.parametrize("operator", TEXTUAL)
def test_conditions_that_search_texts_are_few(operator: Operator) -> None:
    one = Where(column="name", op=operator, value="x")
    others = [Where(column="name", value="x")] * MOST_SEARCHES

    assert len(bind_where(terms(PRODUCT), [one] * MOST_SEARCHES + others)[0]) == 2 * MOST_SEARCHES
    with pytest.raises(errors.BadArgument, match="contains or starts_with or ends_with"):
        bind_where(terms(PRODUCT), [one] * (MOST_SEARCHES + 1))


@pytest.mark.parametrize(
    ("column", "operator", "value", "says"),
    [
        ("added_on:month", Operator.EQ, "2024-03-01", "added_on:month is a month such as 2024-03"),
        ("added_on:weekday", Operator.EQ, "Sunday", "1 (Monday) to 7 (Sunday)"),
        ("added_on:quarter", Operator.GTE, "Q1 2024", "a quarter such as 2024-Q1"),
        ("2", Operator.EQ, "2", "2 is a number, not a column"),
        ("'price'", Operator.EQ, "2", "'price' is text in single quotes, not a column"),
    ],
)
def test_condition_that_could_never_mean_anything_is_refused(
    column: str, operator: Operator, value: str, says: str
) -> None:
    with pytest.raises(CallError) as raised:
        bind_where(terms(PRODUCT), [Where(column=column, op=operator, value=value)])

    assert says in raised.value.message


@pytest.mark.parametrize(
    ("search", "alternatives"),
    [
        ("red shoes", [(["red", "shoes"], [])]),
        ('"red shoes" -boots', [(["red shoes"], ["boots"])]),
        ('-"old boots" red', [(["red"], ["old boots"])]),
        ("red OR blue or", [(["red"], []), (["blue"], [])]),
        ('"or" -or', [(["or"], ["or"])]),
        ('say"hello', [(["say", "hello"], [])]),
        ("well-known -", [(["well-known", "-"], [])]),
        (" ", []),
    ],
)
def test_search_has_alternatives_of_words_and_phrases(
    search: str, alternatives: list[tuple[list[str], list[str]]]
) -> None:
    assert alternatives_of(search) == alternatives
