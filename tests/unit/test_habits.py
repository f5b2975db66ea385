"""SQL that callers write out of habit gets a hint about what to write instead."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dbtools.catalog import ForeignKey, Table
from dbtools.errors import CallError, UnknownColumn
from dbtools.habits import corrected, hint, written
from dbtools.tools.arguments import read
from dbtools.tools.list_rows import ListArguments
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


def test_measure_of_a_column_is_told_apart_from_one_of_related_rows() -> None:
    with pytest.raises(CallError, match="For totals use aggregate_rows"):
        TOOLS["list_product"].bind({"columns": ["sum(price)"]})


def test_very_long_text_is_looked_at_quickly() -> None:
    assert hint("case " * 100_000) == ""


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("count(*)", 'Write {"function": "count"} as measures[0].'),
        ("month", "Use a bucket in group_by"),
        ("distinct", "Use count_distinct."),
    ],
)
def test_function_of_another_name_is_answered_with_the_right_one(function: str, told: str) -> None:
    with pytest.raises(CallError) as raised:
        TOOLS["aggregate_rows"].bind({"table": "product", "measures": [{"function": function}]})

    assert raised.value.hint.startswith(told)


@pytest.mark.parametrize(
    ("argument", "given", "form"),
    [
        ("order_by", "total:desc", '"total desc"'),
        ("order_by", "total DESC NULLS LAST", '"total DESC"'),
        ("order_by", "total desc, id asc", '"total desc", "id asc"'),
        ("order_by", {"field": "total", "order": "descending"}, '"total desc"'),
        ("order_by", {"total": "desc", "id": "asc"}, '"total desc", "id asc"'),
        ("measures", "count(*)", '{"function": "count"}'),
        ("measures", "Sum(total) as revenue", '{"function": "sum", "column": "total", "name": "revenue"}'),
        ("measures", "count(distinct day)", '{"function": "count_distinct", "column": "day"}'),
        ("measures", {"total": "sum"}, '{"function": "sum", "column": "total"}'),
        ("measures", {"sum": "total"}, '{"function": "sum", "column": "total"}'),
        ("measures", {"revenue": "sum(total)"}, '{"function": "sum", "column": "total", "name": "revenue"}'),
        (
            "measures",
            {"func": "avg", "field": "a", "as": "b"},
            '{"function": "avg", "column": "a", "name": "b"}',
        ),
        ("having", "count >= 2", '{"column": "count", "op": "gte", "value": "2"}'),
    ],
)
def test_item_in_the_form_of_another_tool_is_corrected(argument: str, given: object, form: str) -> None:
    assert written(corrected(argument, given)) == form


A, B, C = ({"column": name, "value": "1"} for name in "abc")
NOT_A = {"column": "a", "op": "ne", "value": "1"}


@pytest.mark.parametrize(
    ("given", "items"),
    [
        ({"a": "1"}, [A]),
        ({"a": "1", "b": "1"}, [A, B]),
        ({"a": ["1", "2"]}, [{"column": "a", "op": "in", "values": ["1", "2"]}]),
        ({"a": None}, [{"column": "a", "op": "is_null", "value": "true"}]),
        ({"field": "a", "operator": "==", "value": "1"}, [A]),
        (
            {"column": "a", "op": "between", "value": [1, 2]},
            [{"column": "a", "op": "between", "values": [1, 2]}],
        ),
        ("a = '1' AND b is not null", [A, {"column": "b", "op": "is_null", "value": "false"}]),
        ({"and": [A, B]}, [A, B]),
        ({"$or": [A, B]}, [{"any": [A, B]}]),
        ({"any": [A, {"any": [B, C]}]}, [{"any": [A, B, C]}]),
        ({"not": A}, [NOT_A]),
        ({"not": {"a": None}}, [{"column": "a", "op": "is_null", "value": "false"}]),
        ({"some": "orders", "where": {"a": "1"}}, [{"some": "orders", "where": [A]}]),
    ],
)
def test_condition_in_the_form_of_another_tool_is_corrected(given: object, items: Sequence[object]) -> None:
    with pytest.raises(CallError) as raised:
        read(ListArguments, {"where": [given]})

    assert corrected("where", given) == items
    assert raised.value.hint.startswith(f"Write {written(items)}")
    assert read(ListArguments, {"where": items}).where


@pytest.mark.parametrize(
    ("argument", "given"),
    [
        ("where", {"not": {"column": "a", "op": "contains", "value": "x"}}),
        ("where", {"colum": "a", "value": "1"}),
        ("where", {"or": []}),
        ("where", {"or": [{"and": [A, B]}, C]}),
        ("where", {"not": {"or": [A, B]}}),
        ("where", "lower(a) = 'x'"),
        ("where", "a = 1" + " " * 100_000 + "and b = 1"),
        ("where", {"column": "a", "op": "gt", "value": None}),
        ("where", {"column": "a", "op": "in", "value": "b,c"}),
        ("measures", "median(a)"),
        ("measures", "avg"),
        ("measures", "sum(a) / count(*)"),
        ("measures", {"a": "sum(" + " " * 100_000}),
        ("order_by", "total"),
        ("limit", 5),
    ],
)
def test_item_of_unclear_meaning_is_not_corrected(argument: str, given: object) -> None:
    assert not corrected(argument, given)


def test_conditions_that_one_of_must_hold_are_not_corrected_to_several() -> None:
    with pytest.raises(CallError) as raised:
        read(ListArguments, {"where": [{"and": [A, B]}, C], "match": "any"})

    assert not raised.value.hint.startswith("Write")


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


def test_names_of_related_rows_lead_to_no_further_rows() -> None:
    columns = ("order_id", "product_id")
    key = ForeignKey(columns=columns, target_schema="", target="order line", target_columns=columns)

    with pytest.raises(CallError) as raised:
        terms(PRODUCT, ORDER_LINE, replace(ORDER_LINE, name="parcel", foreign_keys=(key,))).find(
            "max(order_line.quantty)", "columns[0]"
        )

    assert "Related rows" not in raised.value.hint
