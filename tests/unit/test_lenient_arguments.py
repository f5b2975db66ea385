"""Arguments as models write them: numbers as text, JSON as text, SQL operators, one item for a list."""

from datetime import date
from typing import Any

import pytest

from dbtools.errors import BadArgument, CallError
from dbtools.tools.aggregate_rows import AggregateArguments
from dbtools.tools.arguments import Arguments, as_text, read, unknown_argument
from dbtools.tools.describe_tables import DescribeArguments
from dbtools.tools.list_rows import ListArguments


def _refusal(arguments: dict[str, Any], model: type[Arguments] = ListArguments) -> CallError:
    with pytest.raises(CallError) as raised:
        read(model, arguments, max_rows=200)
    return raised.value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (-5, "-5"),
        (1.5, "1.5"),
        (True, "true"),
        (False, "false"),
        ("x", "x"),
        (None, None),
        ([1], [1]),
    ],
)
def test_numbers_and_booleans_are_taken_as_their_text(value: object, text: object) -> None:
    assert as_text(value) == text


def test_value_that_is_not_json_is_refused_like_any_other() -> None:
    refusal = _refusal({"where": [{"column": "day", "value": date(2024, 3, 5)}]})

    assert isinstance(refusal, BadArgument)
    assert "2024-03-05" in refusal.message


def test_unknown_argument_is_answered_with_the_known() -> None:
    refusal = unknown_argument("colum", ["column", "op"], "where[1]")

    assert str(refusal) == ("where[1] has no argument 'colum'. Did you mean column? Arguments: column, op.")
    assert str(unknown_argument("x", [])) == "There is no argument 'x'. Arguments: none."


HINT = 'List all conditions in where; match: "any" joins them with "or" (default "all": "and"). Arguments:'


@pytest.mark.parametrize(
    "arguments", [pytest.param({"where.or": []}, id="path"), pytest.param({"any": []}, id="beside where")]
)
@pytest.mark.parametrize("model", [ListArguments, AggregateArguments])
def test_or_between_conditions_is_answered_with_match(
    arguments: dict[str, Any], model: type[Arguments]
) -> None:
    refusal = _refusal(arguments, model)

    assert refusal.code == "unknown_argument"
    assert refusal.hint.startswith(HINT)


A, B, C = ({"column": name, "value": "1"} for name in "abc")


@pytest.mark.parametrize("nested", [{"or": [A, {"AND": [B, C]}]}, {"$or": []}, {"any": [A, {"all": [B, C]}]}])
@pytest.mark.parametrize("model", [ListArguments, AggregateArguments])
def test_conditions_that_nest_are_answered_with_the_form_that_does_not(
    nested: Any, model: type[Arguments]
) -> None:
    refusal = _refusal({"where": [nested]}, model)

    assert refusal.hint.startswith('{"any": [A, B]} joins with "or"; "(A and B) or C" is {"any": [A, C]}, ')


def test_or_is_no_hint_at_match_where_there_is_none() -> None:
    assert "match" not in _refusal({"or": []}, DescribeArguments).hint
    assert "match" not in unknown_argument("or", ["origin"]).hint


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("=", "eq"),
        ("<>", "ne"),
        (">=", "gte"),
        ("IN", "in"),
        ("NOT IN", "not_in"),
        (" lt ", "lt"),
        ("equals", "eq"),
        ("not_equals", "ne"),
        ("less_than", "lt"),
        ("greater_than", "gt"),
    ],
)
def test_sign_of_an_operator_is_taken_for_it(written: str, meant: str) -> None:
    asked = read(ListArguments, {"where": [{"column": "id", "op": written, "value": "1"}]})

    assert asked.where[0].op == meant


def test_one_item_is_an_array_of_itself() -> None:
    one = read(
        ListArguments,
        {"where": {"column": "id", "op": "in", "values": "1"}, "columns": "id", "order_by": "id desc"},
    )

    assert one == read(
        ListArguments,
        {
            "where": [{"column": "id", "op": "in", "values": ["1"]}],
            "columns": ["id"],
            "order_by": ["id desc"],
        },
    )


def test_array_may_come_as_its_json() -> None:
    asked = read(
        ListArguments, {"where": '[{"column": "id", "op": "in", "values": "[1, 2]"}]', "columns": '["id"]'}
    )

    assert asked.where[0].values == ("1", "2")
    assert asked.columns == ("id",)
