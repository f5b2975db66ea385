"""Why an answer is empty: empty aggregates, ranges of values, pages past the end."""

from dataclasses import replace

import pytest

from dbtools.answers.results import Answer
from dbtools.tools.calls import Call
from dbtools.tools.reasons import TOGETHER
from tests.unit.empty_answers import (
    CITIES,
    CITY,
    INFINITE,
    SHOP,
    TOOLS,
    asked_by,
    inquiries_of,
    listing,
    note_of,
    said_by,
    where,
)
from tests.unit.shop import tools


def _aggregate(**arguments: object) -> Call[Answer]:
    return TOOLS["aggregate_rows"].bind(
        {
            "table": "shop",
            "measures": [{"function": "count"}],
            "where": [where("name", "Porto"), where("owner", "Ann")],
            **arguments,
        }
    )


RENT = {"function": "sum", "column": "rent"}


SIZES = {"group_by": ["size"]}
COUNT_AND_RENT = {"measures": [{"function": "count"}, RENT]}


@pytest.mark.parametrize(
    ("arguments", "rows", "asked"),
    [
        pytest.param({}, [(0,)], 4, id="no rows"),
        pytest.param({}, [(3,)], 0, id="some rows"),
        pytest.param(SIZES, [], 3, id="no groups"),
        pytest.param(SIZES, [("small", 1)], 0, id="some groups"),
        pytest.param(SIZES, [("small", None)], 0, id="group of nulls"),
        pytest.param(SIZES | {"offset": 5}, [], 0, id="no groups this far"),
        pytest.param(COUNT_AND_RENT, [(0, None)], 4, id="nothing to add up"),
        pytest.param(COUNT_AND_RENT, [(3, None)], 1, id="nulls"),
        pytest.param({"measures": [RENT]}, [(0.0,)], 0, id="sum of nothing but zeros"),
        pytest.param({"measures": [{"function": "max", "column": "owner"}]}, [("",)], 0, id="empty text"),
    ],
)
def test_aggregate_of_no_rows_is_explained(
    arguments: dict[str, object], rows: list[tuple[object, ...]], asked: int
) -> None:
    assert len(inquiries_of(_aggregate(**arguments), *rows)) == asked


def test_measure_of_nulls_is_explained_by_how_many_there_are() -> None:
    area = {"function": "avg", "column": "area"}
    call = _aggregate(measures=[RENT, area, {"function": "count"}])

    assert said_by(call, [(1234, 0, 0)], found=[(None, None, 1234)]) == (
        "rent is null in all 1,234 rows. area is null in all 1,234 rows."
    )
    assert said_by(call, [(1234, 0, 1)], found=[(None, None, 1234)]) == (
        "rent is null in all 1,234 rows. No row has a number in area."
    )
    assert said_by(call, found=[(None, None, 1234)]) == ""


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        pytest.param(where("rent", "100", "gt"), "rent runs from 5.5 to 99.", id="above"),
        pytest.param(where("rent", "9", "between"), "rent runs from 5.5 to 99.", id="gap"),
        pytest.param(where("city.id", "1", "lt"), "city.id runs from 5.5 to 99.", id="path"),
    ],
)
def test_range_of_the_values_is_told(condition: dict[str, object], told: str) -> None:
    if condition["op"] == "between":
        condition = condition | {"values": ["9", "10"]}

    assert said_by(listing(condition), [(1,)], [(5.5, 99)]) == told


@pytest.mark.parametrize(
    ("condition", "is_told"),
    [
        (where("rent", "100", "gt"), True),
        (where("rent", "50", "gt"), False),
        (where("rent", "1", "gt"), False),
        (where("rent", "1", "lte"), True),
        (where("rent", "1000", "lte"), False),
        (where("rent", ["1", "2"], "between"), True),
        (where("rent", ["200", "300"], "between"), True),
        (where("rent", ["1", "300"], "between"), False),
        (where("rent", "NaN", "gt"), True),
    ],
)
def test_range_is_told_beside_other_conditions_where_it_excludes_the_value(
    condition: dict[str, object], is_told: bool
) -> None:
    call = listing(condition, where("franchise", "true"), of=tools(replace(SHOP, columns=INFINITE), CITY))

    assert said_by(call, [(1,)], [(5.5, 99)]) == ("rent runs from 5.5 to 99." if is_told else "")


def test_range_that_includes_a_number_is_met_by_some_row() -> None:
    rent, name = where("rent", "50", "gt"), where("name", "Coimbra", "gt")
    owner, gap = where("owner", "Ann"), where("rent", ["50", "60"], "between")

    assert said_by(listing(rent, owner), [(1,)], [(5.5, 99)], [("Ann",)]) == TOGETHER
    assert said_by(listing(name, owner), [(1,)], [("Beja", "York")], [("Ann",)]) == ""
    assert said_by(listing(gap, owner), [(1,)], [(5.5, 99)], [("Ann",)]) == ""


def test_column_that_is_computed_from_nulls_is_named() -> None:
    arguments = {"table": "shop", "columns": ["rent * area as size_", "city.code + 1 as code"]}
    call = TOOLS["list_rows"].bind(arguments)
    mixed = TOOLS["list_rows"].bind(
        {**arguments, "match": "any", "where": [where("rent", "5"), where("rent", "6")]}
    )
    found = [(None, 7, 1), (None, None, 2)]

    assert len(inquiries_of(call, *found)) == 2
    assert said_by(call, [(1,)], [], found=found) == "area is null in every row."
    assert said_by(call, [(1,)], [(1,)], found=found) == ""
    assert inquiries_of(call, (3, None, 1), (None, 7, 2)) == ()
    assert inquiries_of(mixed, *found) == ()


def test_range_of_texts_is_quoted_and_that_of_nothing_is_said_to_be_null() -> None:
    name, rent = listing(where("name", "Z", "gt")), listing(where("rent", "5", "gt"))
    day = listing(where("opened:month", "2031-01"))

    assert said_by(name, [(1,)], [("Beja", "York")]) == "name runs from 'Beja' to 'York'."
    assert said_by(day, [(1,)], [("2020-01", "2024-12")]) == "opened:month runs from 2020-01 to 2024-12."
    assert said_by(name, [(1,)], [(None, None)]) == "name is null in every row."
    assert said_by(rent, [(1,)], [(None, None)]) == "No row has a number in rent."


def test_bounds_in_the_wrong_order_are_explained() -> None:
    rent = {"column": "rent", "op": "between", "values": ["90", "10"]}

    assert said_by(listing(rent), [(1,)], [(5.5, 99)]) == "between takes the lower value first."


def test_array_that_has_no_such_item_is_explained() -> None:
    call = listing(where("tags", "1", "contains"))

    assert said_by(call, [(1,)]) == "contains looks for a whole item of tags, case included."


def test_rows_that_may_not_be_aggregated_are_not_summed_up_in_a_note() -> None:
    shop = replace(SHOP, aggregated=False)
    few = listing(where("name", "lisbon"), of=tools(shop, CITY))

    assert note_of(few, CITIES[:3]) == "Stored values of name: 'Lisbon', …"
    assert note_of(few, [None]) == ""
    assert asked_by(listing(where("rent", "5", "gt"), of=tools(shop, CITY))) == ()
    assert len(asked_by(listing(where("city.id", "5", "gt"), of=tools(shop, CITY)))) == 2
    closed = tools(SHOP, replace(CITY, aggregated=False))
    assert asked_by(listing(where("city.id + 1", "5", "gt"), of=closed)) == ()
