"""SQL that callers write out of habit gets a hint about what to write instead."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dbtools.errors import CallError, UnknownColumn
from dbtools.expressions.hints import (
    CONDITION_KEYS,
    CONDITION_WORDS,
    MEASURE_KEYS,
    STEP_KEYS,
    hint,
    translate,
)
from dbtools.schema.catalog import Table
from dbtools.tools.aggregate_rows import AggregateArguments
from dbtools.tools.arguments import read
from dbtools.tools.list_rows import ListArguments
from tests.calls import statement_of
from tests.unit.shop import ORDER_LINE, PRODUCT, SALE, terms, tools

TOOLS = tools(PRODUCT, SALE)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("*", "Omit columns to get all of them."),
        ("product.*", "Omit columns to get all of them."),
        ("count(*)", 'measures [{"function": "count"}]'),
        ("COUNT( * )", 'measures [{"function": "count"}]'),
        ("count", "having and order_by"),
        ("sum(price) over (order by id)", "window functions"),
        ("distinct name", "distinct groups"),
        ("count(distinct name)", "count_distinct"),
        ("count_distinct(name)", "count_distinct"),
        ("date_trunc('month', day)", "ordered_on:month"),
        ("extract(year from day)", "ordered_on:month"),
        ("strftime('%Y', day)", "ordered_on:month"),
        ("Year(day)", "ordered_on:month"),
        ("julianday(day) - 1", "number of days"),
        ("datediff(day, day)", "number of days"),
        ("now() - day", "'2024-03-05'"),
        ("current_date", "'2024-03-05'"),
        ("day + interval '7 days'", "a week later"),
        ("case when price > 1 then 1 else 0 end", "case is not supported"),
        ("ifnull(price, 0)", "coalesce"),
        ("price::int", "There are no casts"),
        ("cast(price as int)", "There are no casts"),
        ("name || size", "Text cannot be concatenated"),
        ("substr(name, 1, 2)", "starts_with"),
        ("name like 'h%'", "without %"),
        ("name is not null", "is_null"),
        ("today - day", "'2024-03-05'"),
        ("price % 2", "Numbers take + - * /."),
        ('price * 2 as "two prices"', "A name after as"),
        ("price > 5", '"op": "gt"'),
        ("name = 'x'", '"op": "gt"'),
        ("rank(name)", "rank(column) is for order_by of a list"),
        ("sum(price) where sold = true", "call aggregate_rows on their table"),
        ("count(order_line) filter", "call aggregate_rows on their table"),
        ("name, price", "each item of the array"),
        ("2024-03-05 - added_on", "'2024-03-05'"),
    ],
)
def test_habit_is_answered_with_the_way_that_works(text: str, told: str) -> None:
    assert told in hint(text)
    for arguments in ({"columns": [text]}, {"where": [{"column": text, "value": "1"}]}):
        with pytest.raises(CallError) as raised:
            TOOLS["list_product"].bind(arguments)
        assert raised.value.hint == hint(text)


@pytest.mark.parametrize(
    "text", ["nam", "prices * 2", "coalesce(nam, 'a = b')", '"is null"', "cases", "overs (", "conditions"]
)
def test_other_mistakes_keep_their_own_hint(text: str) -> None:
    assert hint(text) == ""


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("month", "Use a bucket in group_by"),
        ("distinct", "Use count_distinct."),
    ],
)
def test_function_of_another_name_is_answered_with_the_right_one(function: str, told: str) -> None:
    with pytest.raises(CallError) as raised:
        TOOLS["aggregate_rows"].bind({"table": "product", "measures": [{"function": function}]})

    assert raised.value.hint.startswith(told)


A, B, C = ({"column": name, "value": "1"} for name in "abc")
NULL, VALUE = ({"column": "a", "op": "is_null", "value": wanted} for wanted in ("true", "false"))


def _compared(op: str, value: object, column: str = "a") -> dict[str, object]:
    return {"column": column, "op": op, "values" if isinstance(value, list) else "value": value}


@pytest.mark.parametrize(
    ("condition", "items"),
    [
        ({"a": "1"}, [A]),
        ({"a": "1", "b": 1}, [A, B]),
        ({"order": "1", "as": "x"}, [_compared("eq", "1", "order"), _compared("eq", "x", "as")]),
        ({"a": ["1", "2"]}, [_compared("in", ["1", "2"])]),
        ({"a": ["x", None]}, [{"any": [_compared("in", ["x"]), NULL]}]),
        ({"a": None}, [NULL]),
        ({"field": "a", "operator": "==", "value": "1"}, [A]),
        ({"column": "a", "op": " NOT IN ", "values": "[1, 2]"}, [_compared("not_in", [1, 2])]),
        ({"column": "a", "op": "between", "value": [1, 2]}, [_compared("between", [1, 2])]),
        ({"column": "a", "op": "IS NOT NULL"}, [VALUE]),
        ({"column": "a", "op": "in", "values": ["x", None]}, [{"any": [_compared("in", ["x"]), NULL]}]),
        ({"column": "a", "op": "not_in", "values": ["x", None]}, [_compared("not_in", ["x"]), VALUE]),
        ({"column": "a", "op": "not_in", "values": [None]}, [VALUE]),
        ("a = '1' AND b is not null", [A, {**VALUE, "column": "b"}]),
        ("a gte 3", [_compared("gte", "3")]),
        ("a <> 'O x'", [_compared("ne", "O x")]),
        ("a in ('x', 'y')", [_compared("in", ["x", "y"])]),
        ("a NOT IN (1,2)", [_compared("not_in", ["1", "2"])]),
        ("a between 1 and 3", [_compared("between", ["1", "3"])]),
        ("a ilike '%x%'", [_compared("contains", "x")]),
        ("a ilike 'x%'", [_compared("starts_with", "x")]),
        ("a ilike '%x'", [_compared("ends_with", "x")]),
        ({"and": [A, {"all": [B, C]}]}, [A, B, C]),
        ({"$or": [A, B]}, [{"any": [A, B]}]),
        ({"and": [A, {"or": [{"b": 1}, "c = 1"]}]}, [A, {"any": [B, C]}]),
        ({"any": [A, {"any": [B, C]}]}, [{"any": [A, B, C]}]),
        ({"not": A}, [_compared("ne", "1")]),
        ({"not": "a < 5"}, [_compared("gte", "5")]),
        ({"not": {"a": None}}, [VALUE]),
        ({"some": "orders", "where": {"a": "1", "b": 1}}, [{"some": "orders", "where": [A, B]}]),
        (
            {"none": "orders", "match": "any", "where": {"a": 1}},
            [{"none": "orders", "match": "any", "where": [A]}],
        ),
    ],
)
def test_condition_in_the_form_of_another_tool_is_understood(
    condition: object, items: Sequence[object]
) -> None:
    assert read(ListArguments, {"where": condition}) == read(ListArguments, {"where": items})
    if len(items) == 1:
        assert (
            read(ListArguments, {"where": [condition], "match": "any"}).where
            == read(ListArguments, {"where": items}).where
        )


@pytest.mark.parametrize(
    ("item", "measure"),
    [
        ("count(*)", {"function": "count"}),
        ("Sum( total ) as revenue", {"function": "sum", "column": "total", "name": "revenue"}),
        ("count(distinct day)", {"function": "count_distinct", "column": "day"}),
        ({"total": "sum"}, {"function": "sum", "column": "total"}),
        ({"total": "SUM"}, {"function": "sum", "column": "total"}),
        ({"sum": "total"}, {"function": "sum", "column": "total"}),
        ({"revenue": "sum(total)"}, {"function": "sum", "column": "total", "name": "revenue"}),
        ({"func": "AVG", "field": "a", "as": "b"}, {"function": "avg", "column": "a", "name": "b"}),
        ({"function": "count(*)", "name": "b"}, {"function": "count", "name": "b"}),
    ],
)
def test_measure_in_the_form_of_another_tool_is_understood(item: object, measure: object) -> None:
    understood = read(AggregateArguments, {"table": "sale", "measures": item})

    assert understood == read(AggregateArguments, {"table": "sale", "measures": [measure]})


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        ("price:desc", ["price desc"]),
        ("price DESC NULLS LAST", ["price desc"]),
        ("price descending, id asc", ["price desc", "id asc"]),
        ({"field": "price", "order": "descending"}, ["price desc"]),
        ({"price": "desc", "id": "asc"}, ["price desc", "id asc"]),
        ([{"column": "price"}, "id:desc"], ["price asc", "id desc"]),
    ],
)
def test_order_in_the_form_of_another_tool_is_understood(order: object, steps: Sequence[str]) -> None:
    understood, expected = (
        statement_of(TOOLS["list_product"].bind({"order_by": each, "columns": ["id"]}))
        for each in (order, steps)
    )

    assert understood == expected


@pytest.mark.parametrize(
    ("argument", "item"),
    [
        *(
            ("where", each)
            for each in ({"not": {"a": ["x", None]}}, {"not": _compared("not_in", ["x", None])})
        ),
        *(("where", {"not": each}) for each in (_compared("contains", "x"), {"or": [A, B]}, {"and": [A, B]})),
        *(("where", {"or": each}) for each in ([], [{"and": [A, B]}, C], ["a = 1 and b = 2"])),
        ("where", {"colum": "a", "value": "1"}),
        ("where", {"field": "a", "column": "b", "value": "1"}),
        *(("where", {"a": value}) for value in ([], {"gt": 5}, [[1]])),
        ("where", {"$nor": [A]}),
        ("where", {"match": "any", "a": 1}),
        ("where", {"operator": "x", "a": 1}),
        ("where", {"some": "orders", "match": "any", "where": {"a": 1, "b": 1}}),
        *(("where", _compared("eq", value)) for value in (None, "")),
        *(("where", {"column": "a", "op": op, "value": ["x"]}) for op in ("contains", "gt", ["in"])),
        ("where", {"column": "a", "op": "in", "value": "b,c"}),
        ("where", {"column": "a", "op": "ne", "value": []}),
        *(
            ("where", each)
            for each in ("lower(a) = 'x'", 'a = "b"', "a like 'x%'", "a ilike 'x'", "a ilike 'x_%'")
        ),
        *(
            ("where", each)
            for each in ("a = 1 or b = 1", "a = b", "a => 1", "a = 'x' and b = 'y", "a = 'it''s'")
        ),
        ("where", "a = 1" + " " * 100_000 + "and b = 1"),
        ("any", {"and": [A, {"or": [B, []]}]}),
        *(
            ("measures", each)
            for each in ("median(a)", "avg", "sum(*)", "sum(a) / count(*)", "sum(distinct a)")
        ),
        *(
            ("measures", each)
            for each in ({"as": "sum"}, {"COUNT": "sum"}, {"a": "sum", "b": "sum"}, {"a": ["sum"]})
        ),
        ("measures", {"function": "sum(a)", "column": "b"}),
        ("measures", {"a": "sum(" + " " * 100_000}),
        *(
            ("order_by", each)
            for each in ({"total": "desc nulls first"}, {"dir": "asc", "id": "desc"}, {"total": -1})
        ),
        ("limit", 5),
        ("columns", {"a": 1}),
    ],
)
def test_item_without_an_exact_translation_stays_as_it_is(argument: str, item: object) -> None:
    assert translate(argument, item) == [item]


PARTS = (
    st.none()
    | st.integers()
    | st.sampled_from(
        [
            "a",
            "1",
            "is null",
            "NOT IN",
            "==",
            "lt",
            "a < 5",
            "a = 1 and b in ('x')",
            "any",
            "sum",
            "max(a)",
            "desc",
        ]
    )
)
NAMES = st.sampled_from(
    [
        *CONDITION_KEYS,
        *MEASURE_KEYS,
        *STEP_KEYS,
        *sorted(CONDITION_WORDS),
        "a",
        "b",
        "$and",
        "function",
        "direction",
    ]
)
FORMS = st.recursive(
    PARTS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


@given(argument=st.sampled_from(["where", "any", "having", "measures", "order_by"]), item=FORMS)
def test_translation_of_anything_is_in_the_form_that_stays_as_it_is(argument: str, item: object) -> None:
    items = translate(argument, item)

    assert [again for each in items for again in translate(argument, each)] == [*items]


@pytest.mark.parametrize(
    "arguments",
    [
        {"having": {"or": [A, B]}},
        {"having": [_compared("in", [1, None])]},
        {"where": {"or": [{"some": "orders"}, A]}},
        {"where": {"some": "orders", "where": {"none": "lines"}}},
    ],
)
def test_condition_is_translated_only_where_it_may_stand(arguments: dict[str, object]) -> None:
    with pytest.raises(CallError) as raised:
        read(AggregateArguments, {"table": "sale", **arguments})

    assert raised.value.code == "unknown_argument"


@pytest.mark.parametrize("nested", [False, True])
def test_condition_between_which_or_stands_does_not_become_several(nested: bool) -> None:
    where: list[object] = [{"a": "1", "b": "1"}, C]
    some = {"some": "orders", "match": "any", "where": where}
    with pytest.raises(CallError) as raised:
        read(ListArguments, {"where": [some]} if nested else {"where": where, "match": "any"})

    assert raised.value.code == "unknown_argument"


def _hint(of: Table, text: str, argument: str = "columns[0]") -> str:
    with pytest.raises(UnknownColumn) as raised:
        terms(PRODUCT, of).find(text, argument)
    return raised.value.hint.rstrip()


def test_rows_that_may_not_be_aggregated_are_asked_for_and_not_measured() -> None:
    closed = replace(ORDER_LINE, aggregated=False)

    assert _hint(ORDER_LINE, "order_line.quantity") == (
        "Aggregate order line by quantity, or write count(order_line) or max(order_line.…), or some and none "
        "in where."
    )
    assert _hint(closed, "order_line.quantity") == "List order line, or write some and none in where."
