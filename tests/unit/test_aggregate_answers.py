"""Answers of `aggregate_rows`: which groups they show, and whether there are more."""

import json
from collections.abc import Mapping, Sequence

import pytest
from jsonschema import Draft202012Validator

from dbtools.cells import Cut
from dbtools.policy import Limits
from dbtools.results import Answer
from dbtools.styles import Rows, Style, Text
from dbtools.tools.definition import ROWS_SCHEMA, Toolset
from dbtools.types import Family
from tests.unit.aggregated import COUNT, COUNTRY, SALE, SUM, TOOLS
from tests.unit.shop import answer, column, select_of, table, tools


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
        pytest.param(
            {"measures": [{"function": "count_distinct", "column": "shop"}]},
            ["count_distinct_shop"],
            id="function of two words",
        ),
        pytest.param(
            {"measures": [{"function": "max", "column": "country.name"}]}, ["max_country.name"], id="path"
        ),
        pytest.param({"measures": [{**SUM, "name": " revenue "}]}, ["revenue"], id="name given"),
        pytest.param({"measures": [{**SUM, "name": ""}]}, ["sum_total"], id="empty name given"),
        pytest.param(
            {"group_by": ["SHOP", " country.name"]}, ["SHOP", "country.name", "count"], id="groups as given"
        ),
        pytest.param(
            {"group_by": ["country_id.name"]}, ["country_id.name", "count"], id="path by its column"
        ),
        pytest.param({"group_by": ["DAY:Month"]}, ["DAY:Month", "count"], id="bucket as given"),
        pytest.param(
            {"group_by": ["country.founded:year"]}, ["country.founded:year", "count"], id="bucket of a path"
        ),
        pytest.param({"group_by": ['"a:b":year']}, ['"a:b":year', "count"], id="bucket of a quoted column"),
        pytest.param({"group_by": ["a:b"]}, ["a:b", "count"], id="column with a colon"),
    ],
)
def test_columns_of_the_answer_carry_the_names_of_groups_and_measures(
    arguments: dict[str, object], columns: list[str]
) -> None:
    assert _answer(arguments).structured["columns"] == columns


def test_answer_shows_the_groups_and_whether_there_are_more() -> None:
    arguments = {"group_by": ["day:month"], "measures": [SUM]}
    rows = [("2024-03", "1.10"), (None, None)]

    complete = _answer(arguments, *rows)
    more = _answer(arguments, *rows, more=True)

    assert complete == Answer(
        json='{"row_count":2,"truncated":false,"columns":["day:month","sum_total"],'
        '"rows":[["2024-03","1.10"],[null,null]]}',
        rows=2,
    )
    assert more.truncated
    assert more.structured == {**complete.structured, "truncated": True, "note": more.structured["note"]}


@pytest.mark.parametrize(
    ("limit", "says"),
    [({}, "raise limit"), ({"limit": 2}, "Stopped at your limit."), ({"limit": 200}, "Limit reached as")],
)
def test_note_names_the_cheapest_next_step(limit: dict[str, object], says: str) -> None:
    more = _answer({"group_by": ["shop"], **limit}, ("a", 1), more=True)

    assert says in str(more.structured["note"])


@pytest.mark.parametrize("style", [Style(rows=rows, text=text) for rows in Rows for text in Text], ids=str)
def test_groups_beyond_the_cap_are_left_out(style: Style) -> None:
    limits = Limits(max_tokens=1_000)
    small = tools(SALE, COUNTRY, limits=limits, style=style)

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


def test_cell_that_was_read_in_part_says_how_long_it_is() -> None:
    found = _answer({"group_by": ["shop"]}, (Cut(start="ab", length=5_000), 1))

    assert found.structured["rows"] == [["ab… [5,000 characters]", 1]]
    assert not found.truncated


def test_csv_answer_says_whether_it_is_complete() -> None:
    csv = tools(SALE, COUNTRY, style=Style(text=Text.CSV))

    found = _answer({"group_by": ["shop"]}, ("a,b", 1), (None, 2), of=csv)

    assert found.text == '# 2 rows, 2 columns, complete\nshop,count\n"a,b",1\n,2'
    assert found.structured["rows"] == [["a,b", 1], [None, 2]]


def test_groups_may_be_objects() -> None:
    objects = tools(SALE, COUNTRY, style=Style(rows=Rows.OBJECTS))

    found = _answer({"group_by": ["country.name"]}, ("Peru", 1), of=objects)

    assert found.structured["rows"] == [{"country.name": "Peru", "count": 1}]
    assert json.loads(found.text) == found.structured


def test_sum_of_integers_beyond_a_double_is_exact() -> None:
    found = _answer({"measures": [{"function": "sum", "column": "country_id"}]}, (str(2**60),))

    assert found.structured["rows"] == [[str(2**60)]]


def test_group_may_begin_and_end_with_blanks() -> None:
    odd = table(column(" day ", Family.DATE), name="odd", key=())
    arguments: dict[str, object] = {"table": "odd", "measures": [COUNT], "group_by": [" day "]}

    statement = tools(odd)["aggregate_rows"].bind(arguments).statement

    assert statement is not None
    assert select_of(statement).groups == odd.columns
