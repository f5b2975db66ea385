"""Why nothing was found: which conditions are doubted, what is asked, and what the answer says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from dbtools.catalog import ForeignKey, Key
from dbtools.cells import Cut
from dbtools.results import Answer, ResultSet
from dbtools.statement import Order, Output, Select, Statement
from dbtools.tools.definition import Call, Toolset
from dbtools.tools.reasons import MOST_ROWS
from dbtools.types import Family
from tests.unit.shop import ID, column, select_of, table, tools

CITY = table(ID, column("name"), column("code", Family.INTEGER), name="city")
SHOP = table(
    ID,
    column("number", Family.INTEGER, nullable=False),
    column("name"),
    column("owner"),
    column("city_id", Family.INTEGER),
    column("size", Family.ENUM),
    column("rent", Family.DECIMAL),
    column("area", Family.NUMBER),
    column("opened", Family.DATE),
    column("closed_at", Family.TIMESTAMP),
    column("anything", Family.ANY),
    column("franchise", Family.BOOLEAN),
    column("uuid", Family.UUID),
    column("logo", Family.BYTES),
    column("tags", Family.ARRAY),
    column("note", Family.JSON),
    name="shop",
    keys=(Key(columns=("id",), primary=True), Key(columns=("number",))),
    foreign_keys=(ForeignKey(columns=("city_id",), target_schema="", target="city", target_columns=("id",)),),
)
TOOLS = tools(SHOP, CITY)
INFINITE = tuple(replace(each, type=replace(each.type, infinite=True)) for each in SHOP.columns)
CITIES = (
    "Lisbon",
    "Porto",
    "Faro",
    "Évora",
    "Braga",
    "Coimbra",
    "New York",
    "York",
    "Leiria",
    "Sines",
    "Beja",
)
Stored = Sequence[object]  #: the values of one column


def _condition(name: str, value: object, op: str = "eq") -> dict[str, object]:
    return {"column": name, "op": op, "values" if op in ("in", "between") else "value": value}


def _call(*conditions: Mapping[str, object], of: Toolset = TOOLS, match: str = "all") -> Call[Answer]:
    return of["list_rows"].bind({"table": "shop", "where": conditions, "match": match})


def _asked(call: Call[Answer]) -> Sequence[Statement]:
    """Return what *call* asks about its conditions where there is no row."""
    return _inquiries(call)[1:]


def _inquiries(call: Call[Answer], *rows: tuple[object, ...]) -> Sequence[Statement]:
    """Return what *call* asks of the database where it has found the *rows*."""
    assert call.statement is not None
    return call.inquire(ResultSet(outputs=call.statement.shape.outputs, rows=rows))


def _note(call: Call[Answer], *stored: Stored, more: bool = False) -> str:
    """Return the note of an empty answer of *call*, whose inquiries brought the *stored* values."""
    return _said(call, [(1,)], *([(value,) for value in values] for values in stored), more=more)


def _said(
    call: Call[Answer],
    *further: Sequence[tuple[object, ...]],
    found: Sequence[tuple[object, ...]] = (),
    more: bool = False,
) -> str:
    """Return the note of *call* that has *found* rows, whose inquiries brought the *further* ones."""
    assert call.statement is not None
    results = [
        ResultSet(outputs=each.shape.outputs, rows=tuple(rows), more=more)
        for each, rows in zip(_inquiries(call, *found), further, strict=False)
    ]
    answer = call.render(ResultSet(outputs=call.statement.shape.outputs, rows=tuple(found)), results)
    return str(answer.structured.get("note", ""))


def test_stored_values_are_read_once_each_in_their_order() -> None:
    name = SHOP.column_by_name["name"]

    assert list(_asked(_call(_condition("name", "x")))) == [
        Statement(
            shape=Select(
                table=SHOP,
                outputs=(Output(term=name, cut=200),),
                groups=(name,),
                order=(Order(term=name),),
            ),
            limit=1_000,
        )
    ]


def test_values_at_the_end_of_a_path_are_read_from_its_table() -> None:
    [asked] = _asked(_call(_condition("city.name", "x")))
    name = CITY.column_by_name["name"]

    assert (select_of(asked).table, select_of(asked).groups) == (CITY, (name,))
    assert asked.shape.outputs == (Output(term=name, cut=200),)


def test_nothing_is_asked_where_rows_were_found() -> None:
    call = _call(_condition("name", "x"))
    assert call.statement is not None

    assert not call.inquire(ResultSet(outputs=call.statement.shape.outputs, rows=((1,),)))


VALUES, RANGE, NOTHING = [1], [2], list[int]()  #: how much is read of each condition


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        *(
            pytest.param(_condition("name", "x", op), VALUES, id=op)
            for op in ("eq", "contains", "starts_with")
        ),
        pytest.param(_condition("name", "x", "ends_with"), VALUES, id="ends_with"),
        pytest.param(_condition("name", ["x"], "in"), VALUES, id="in"),
        pytest.param(_condition("name", "x", "ne"), VALUES, id="ne"),
        *(pytest.param(_condition("name", "x", op), RANGE, id=op) for op in ("gt", "lte")),
        pytest.param(_condition("name", ["a", "b"], "between"), RANGE, id="between"),
        pytest.param(
            _condition("uuid", "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f", "gt"), RANGE, id="range of uuids"
        ),
        pytest.param(_condition("rent * 2", "5"), VALUES, id="expression"),
        pytest.param(_condition("rent * 2", "5", "gt"), RANGE, id="range of an expression"),
        pytest.param(_condition("opened:month", "2024-03"), RANGE, id="bucket"),
        pytest.param({"column": "rent", "op": "gt", "value_column": "area"}, NOTHING, id="two columns"),
        pytest.param(_condition("name", "true", "is_null"), NOTHING, id="is_null"),
        pytest.param(_condition("name", [], "in"), NOTHING, id="in nothing"),
        pytest.param(_condition("size", "small"), VALUES, id="enum"),
        pytest.param(_condition("rent", "5"), VALUES, id="decimal"),
        pytest.param(_condition("area", "5"), VALUES, id="number"),
        pytest.param(_condition("city_id", "5"), VALUES, id="integer that is no key"),
        pytest.param(_condition("opened", "2024-03-05"), VALUES, id="date"),
        pytest.param(_condition("closed_at", "2024-03-05T10:00:00"), VALUES, id="timestamp"),
        pytest.param(_condition("anything", "5"), VALUES, id="any"),
        pytest.param(_condition("id", "5"), RANGE, id="key by number"),
        pytest.param(_condition("number", "5"), RANGE, id="another key by number"),
        pytest.param(_condition("city.id", "5"), RANGE, id="key by number at the end of a path"),
        pytest.param(_condition("city.code", "5"), VALUES, id="number at the end of a path"),
        pytest.param(_condition("franchise", "true"), NOTHING, id="boolean"),
        pytest.param(_condition("uuid", "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f"), NOTHING, id="uuid"),
        pytest.param(_condition("logo", "aGVsbG8="), NOTHING, id="bytes"),
        pytest.param(_condition("tags", "5", "contains"), NOTHING, id="array"),
        pytest.param(_condition("note", "x", "contains"), NOTHING, id="json"),
    ],
)
def test_condition_is_doubted_where_stored_values_can_tell(
    condition: dict[str, object], asked: Sequence[int]
) -> None:
    # Values are groups, and a range has two measures.
    assert [len(select_of(each).outputs) for each in _asked(_call(condition))] == asked


def test_key_of_texts_is_doubted() -> None:
    shop = table(column("slug", nullable=False), name="shop", key=("slug",))

    assert len(_asked(_call(_condition("slug", "x"), of=tools(shop)))) == 1


@pytest.mark.parametrize(("rows", "asked"), [(None, 1), (MOST_ROWS - 1, 1), (MOST_ROWS, 0)])
def test_large_tables_are_not_asked_for_values(rows: int | None, asked: int) -> None:
    shop, city = replace(SHOP, row_estimate=rows), replace(CITY, row_estimate=rows)

    assert len(_asked(_call(_condition("name", "x"), of=tools(shop, CITY)))) == asked
    assert len(_asked(_call(_condition("city.name", "x"), of=tools(SHOP, city)))) == asked
    assert len(_asked(_call(_condition("rent", "5", "gt"), of=tools(shop, CITY)))) == 1


def test_size_that_counts_is_that_of_the_table_with_the_values() -> None:
    large = tools(replace(SHOP, row_estimate=MOST_ROWS), CITY)

    assert len(_asked(_call(_condition("city.name", "x"), of=large))) == 1


def test_no_more_than_three_conditions_are_doubted() -> None:
    conditions = [_condition(name, "x") for name in ("name", "owner", "anything", "city.name")]

    call = _call(*conditions)

    assert [each.shape.outputs[0].term.name for each in _asked(call)] == ["name", "owner", "anything"]
    assert _note(call, "x", "x", "x") == ""


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        pytest.param("lisbon", "'Lisbon'", id="case"),
        pytest.param(" Lisbon  ", "'Lisbon'", id="blanks around"),
        pytest.param("Lisbonn", "'Lisbon'", id="typo"),
        pytest.param("Lsibon", "'Lisbon'", id="letters exchanged"),
        pytest.param("éVORA", "'Évora'", id="case beyond ASCII"),
        pytest.param("Coim", "'Coimbra'", id="beginning"),
        pytest.param("york", "'York', 'New York'", id="the same before a part"),
        pytest.param("Porto, Portugal", "'Porto'", id="more than is stored"),
    ],
)
def test_nearest_text_is_told(wanted: str, told: str) -> None:
    note = _note(_call(_condition("name", wanted)), CITIES)

    assert note == f"name has no {wanted!r}; nearest stored values: {told}."


def test_nothing_near_is_said_to_be_nothing() -> None:
    many = [f"{letter}{letter}{number}" for letter in "abc" for number in range(10)]

    assert _note(_call(_condition("name", "qqqq")), many) == "No name is like 'qqqq'."


def test_name_is_that_of_the_column() -> None:
    note = _note(_call(_condition("city_id.Name", "lisbon")), CITIES)

    assert note.startswith("city.name has no 'lisbon'; ")


def test_few_values_are_all_told() -> None:
    call = _call(_condition("name", "qqqq"))

    assert _note(call, CITIES[:3]) == "name has only these values: 'Lisbon', 'Porto', 'Faro'."
    assert "only these" in _note(_call(_condition("name", "lisbon")), CITIES[:10])
    assert "only these" not in _note(_call(_condition("name", "lisbon")), CITIES[:11])
    assert "only these" in _note(call, [f"{number:02}" for number in range(25)])
    assert "only these" not in _note(call, [f"{number:02}" for number in range(26)])
    assert "only these" not in _note(call, CITIES[:10], more=True)


def test_work_and_words_are_bounded_however_much_is_asked_for() -> None:
    stored = [f"n{number:05}" + "x" * 150 for number in range(1_000)]
    wanted = [f"n{number:05}z" + "x" * 150 for number in range(1_000)]

    note = _note(_call(_condition("name", wanted, "in")), stored)

    assert note.count("'") <= 2 * (3 + 5)
    assert len(note) < 800


def test_nulls_are_no_values() -> None:
    call = _call(_condition("name", "x"))

    assert _note(call, ["a", None]) == "name has only these values: 'a'."
    assert _note(call, [None]) == "name is null in every row."


def test_nothing_is_said_of_a_table_without_rows() -> None:
    assert "null" not in _note(_call(_condition("name", "x")), [])


NUMBERS = [str(number) for number in (*range(10, 110, 10), 1_000)]


@pytest.mark.parametrize(
    ("wanted", "told"),
    [("52", "'50', '60'"), ("-7", "'10'"), ("1e9", "'1000'"), ("94.9", "'90', '100'")],
)
def test_nearest_numbers_are_those_before_and_after(wanted: str, told: str) -> None:
    assert _note(_call(_condition("rent", wanted)), NUMBERS).endswith(f"nearest stored values: {told}.")


def test_one_cell_that_is_no_number_does_not_hide_the_nearest() -> None:
    note = _note(_call(_condition("rent", "52")), [*NUMBERS, "free", "NaN"])

    assert note.endswith("nearest stored values: '50', '60'.")


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("2024-03-15", "'2024-03-01', '2024-04-01'"),
        ("1999-01-01", "'2024-01-01'"),
        ("2030-01-01", "'2024-12-01'"),
    ],
)
def test_nearest_dates_are_those_before_and_after(wanted: str, told: str) -> None:
    stored = [f"2024-{month:02}-01" for month in range(1, 13)]

    assert _note(_call(_condition("opened", wanted)), stored).endswith(f"values: {told}.")


def test_those_of_many_values_that_are_missing_are_told() -> None:
    note = _note(_call(_condition("name", ["Porto", "lisbon", "Bragga"], "in")), CITIES)

    assert note == "name has no 'lisbon', 'Bragga'; nearest stored values: 'Lisbon', 'Braga'."


@pytest.mark.parametrize(
    ("operator", "wanted", "is_stored"),
    [
        ("contains", "ISBO", True),
        ("contains", "isbom", False),
        ("starts_with", "lis", True),
        ("starts_with", "isbon", False),
        ("ends_with", "BON", True),
        ("ends_with", "lis", False),
    ],
)
def test_part_of_a_text_is_looked_for_as_its_operator_does(
    operator: str, wanted: str, is_stored: bool
) -> None:
    note = _note(_call(_condition("name", wanted, operator)), CITIES)

    assert (note == "") is is_stored
    assert is_stored or "'Lisbon'" in note


@pytest.mark.parametrize(
    ("name", "wanted", "stored"),
    [
        pytest.param("rent", "5", "5.00", id="decimal with more digits"),
        pytest.param("rent", "5.0", "5", id="decimal with fewer"),
        pytest.param("area", "5", 5.0, id="float"),
        pytest.param("city_id", "+5", 5, id="sign"),
        pytest.param("closed_at", "2024-03-05 10:00", "2024-03-05T10:00:00", id="timestamp in words of SQL"),
        pytest.param("opened", " 2024-03-05", "2024-03-05", id="blank before a date"),
    ],
)
def test_value_in_another_spelling_is_not_called_missing(name: str, wanted: str, stored: object) -> None:
    call = _call(_condition(name, wanted), _condition("name", "Porto"))

    assert _note(call, [stored], CITIES) == "Each of these values is stored, but no row has all of them."


def test_values_that_are_stored_each_but_not_together_are_told_apart() -> None:
    name, owner = _condition("name", "Porto"), _condition("owner", "Ann")
    together = "Each of these values is stored, but no row has all of them."

    assert _note(_call(name, owner), CITIES, ["Ann"]) == together
    assert _note(_call(name, owner), CITIES, ["Bob"]) == "owner has only these values: 'Bob'."
    assert _note(_call(name, owner), CITIES) == ""
    assert _note(_call(name), CITIES) == ""
    assert _note(_call(name, owner, match="any"), CITIES, ["Ann"]) == ""
    assert _note(_call(name, owner, _condition("rent", "5", "gt")), CITIES, ["Ann"]) == ""


def test_every_condition_that_found_nothing_is_explained() -> None:
    note = _note(_call(_condition("name", "lisbon"), _condition("owner", "Ann")), CITIES, ["Bob"])

    assert note == (
        "name has no 'lisbon'; nearest stored values: 'Lisbon'. owner has only these values: 'Bob'."
    )


@pytest.mark.parametrize("wanted", ["b999", "zzz"])
def test_value_beyond_those_that_were_read_is_called_neither_missing_nor_stored(wanted: str) -> None:
    first = [f"a{number:03}" for number in range(1_000)]
    call = _call(_condition("name", wanted), _condition("owner", "Ann"))

    note = _note(call, first, ["Ann"], more=True)

    assert "has no" not in note
    assert "is stored" not in note


def test_text_beyond_what_was_read_of_it_is_not_called_missing() -> None:
    long = [Cut(start=letter * 200, length=900) for letter in "abcdefghijkl"]

    assert _note(_call(_condition("name", "deep inside", "contains")), long) == ""


def test_no_value_of_the_database_is_shown_with_its_controls() -> None:
    note = _note(_call(_condition("name", "x")), ["a\x1b[31m\u202eb", "c" * 300])

    assert note.isprintable()
    assert "c" * 61 not in note


def _aggregate(**arguments: object) -> Call[Answer]:
    return TOOLS["aggregate_rows"].bind(
        {
            "table": "shop",
            "measures": [{"function": "count"}],
            "where": [_condition("name", "Porto"), _condition("owner", "Ann")],
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
    assert len(_inquiries(_aggregate(**arguments), *rows)) == asked


def test_explanation_of_an_aggregate_is_its_note() -> None:
    note = _said(_aggregate(), [(0,)], [(1,)], [(each,) for each in CITIES], [("Bob",)], found=[(0,)])

    assert note == "owner has only these values: 'Bob'."
    assert _said(_aggregate(), [(0,)], [], found=[(0,)]) == "shop has no rows."
    assert _said(_aggregate(where=[]), [(0,)], found=[(0,)]) == "shop has no rows."
    assert _said(_aggregate(**SIZES, offset=5)) == "Past the last row."


def test_measure_of_nulls_is_explained_by_how_many_there_are() -> None:
    area = {"function": "avg", "column": "area"}
    call = _aggregate(measures=[RENT, area, {"function": "count"}])

    assert _said(call, [(1234, 0, 0)], found=[(None, None, 1234)]) == (
        "rent is null in all 1,234 rows. area is null in all 1,234 rows."
    )
    assert _said(call, [(1234, 0, 1)], found=[(None, None, 1234)]) == (
        "rent is null in all 1,234 rows. No row has a number in area."
    )
    assert _said(call, found=[(None, None, 1234)]) == ""


def test_groups_that_having_left_out_are_not_blamed_on_where() -> None:
    call = _aggregate(group_by=["size"], having=[{"column": "count", "op": "gt", "value": 5}])
    names, owners = [(each,) for each in CITIES], [("Bob",)]

    assert _said(call, [(1234,)], [(1,)], names, owners) == "having leaves out all groups (1,234)."
    assert _said(call, [(0,)], [(1,)], names, owners) == "owner has only these values: 'Bob'."
    assert _said(call) == ""


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        pytest.param(_condition("rent", "100", "gt"), "rent runs from 5.5 to 99.", id="above"),
        pytest.param(_condition("rent", "9", "between"), "rent runs from 5.5 to 99.", id="gap"),
        pytest.param(_condition("number", "17"), "number runs from 5.5 to 99.", id="key"),
        pytest.param(_condition("rent - 1", "1000", "gte"), "rent - 1 runs from 5.5 to 99.", id="expression"),
        pytest.param(_condition("city.id", "1", "lt"), "city.id runs from 5.5 to 99.", id="path"),
    ],
)
def test_range_of_the_values_is_told(condition: dict[str, object], told: str) -> None:
    if condition["op"] == "between":
        condition = condition | {"values": ["9", "10"]}

    assert _said(_call(condition), [(1,)], [(5.5, 99)]) == told


@pytest.mark.parametrize(
    ("condition", "is_told"),
    [
        (_condition("rent", "100", "gt"), True),
        (_condition("rent", "50", "gt"), False),
        (_condition("rent", "1", "gt"), False),
        (_condition("rent", "1", "lte"), True),
        (_condition("rent", "1000", "lte"), False),
        (_condition("rent", ["1", "2"], "between"), True),
        (_condition("rent", ["200", "300"], "between"), True),
        (_condition("rent", ["1", "300"], "between"), False),
        (_condition("rent", "NaN", "gt"), True),
    ],
)
def test_range_is_told_beside_other_conditions_where_it_excludes_the_value(
    condition: dict[str, object], is_told: bool
) -> None:
    call = _call(condition, _condition("franchise", "true"), of=tools(replace(SHOP, columns=INFINITE), CITY))

    assert _said(call, [(1,)], [(5.5, 99)]) == ("rent runs from 5.5 to 99." if is_told else "")


def test_range_of_texts_is_quoted_and_that_of_nothing_is_said_to_be_null() -> None:
    name, rent = _call(_condition("name", "Z", "gt")), _call(_condition("rent", "5", "gt"))
    day = _call(_condition("opened:month", "2031-01"))

    assert _said(name, [(1,)], [("Beja", "York")]) == "name runs from 'Beja' to 'York'."
    assert _said(day, [(1,)], [("2020-01", "2024-12")]) == "opened:month runs from 2020-01 to 2024-12."
    assert _said(name, [(1,)], [(None, None)]) == "name is null in every row."
    assert _said(rent, [(1,)], [(None, None)]) == "No row has a number in rent."


def test_table_without_rows_is_said_to_have_none() -> None:
    assert _said(_call(_condition("franchise", "true")), []) == "shop has no rows."
    assert _said(_call()) == "shop has no rows."
    assert _inquiries(_call()) == ()


def test_page_past_the_end_is_said_to_be() -> None:
    call = TOOLS["list_rows"].bind({"table": "shop", "offset": 5, "where": [_condition("name", "x")]})

    assert _inquiries(call) == ()
    assert _said(call) == "Past the last row."


def test_value_that_may_mean_something_else_is_explained() -> None:
    other = "To compare with the column owner, pass it as value_column."

    assert _note(_call(_condition("name", "owner")), CITIES[:1]) == (
        f"name has only these values: 'Lisbon'. {other}"
    )
    assert _note(_call(_condition("name", "owner")), ["owner", "x"]) == ""
    for null in ("", "NULL", " none "):
        note = _note(_call(_condition("name", null)), CITIES[:1])
        assert note.endswith('For null use op is_null with value "true".')


def test_bounds_in_the_wrong_order_are_explained() -> None:
    rent = {"column": "rent", "op": "between", "values": ["90", "10"]}

    assert _said(_call(rent), [(1,)], [(5.5, 99)]) == "between takes the lower value first."


def test_array_that_has_no_such_item_is_explained() -> None:
    note = _note(_call(_condition("tags", "1", "contains")))

    assert note == "contains looks for a whole item of tags, case included."


def test_values_that_are_excluded_are_explained() -> None:
    porto = _call(_condition("name", "Porto", "ne"))

    assert _note(porto, ["Porto", None]) == "name has only these values: 'Porto'."
    assert _note(porto, ["Porto", "Lisbon"]) == ""
    assert _note(_call(_condition("name", "porto", "ne")), CITIES) == "Stored values of name: 'Porto', …"
    assert _note(_call(_condition("name", "qqqq", "ne")), CITIES) == ""


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        pytest.param({"any": [_condition("name", "lisbon")]}, "name has no 'lisbon'", id="any"),
        pytest.param(
            {"some": "shop", "where": [_condition("name", "lisbon")]}, "shop.name has no 'lisbon'", id="some"
        ),
        pytest.param({"none": "shop", "where": [_condition("name", "lisbon")]}, "", id="none"),
    ],
)
def test_conditions_within_conditions_are_explained(condition: Mapping[str, object], told: str) -> None:
    call = TOOLS["list_rows"].bind({"table": "city", "where": [condition]})

    assert _note(call, CITIES).startswith(told)
    assert bool(_asked(call)) is bool(told)


def test_rows_that_may_not_be_aggregated_are_not_summed_up_in_a_note() -> None:
    shop = replace(SHOP, aggregated=False)
    few = _call(_condition("name", "lisbon"), of=tools(shop, CITY))

    assert _note(few, CITIES[:3]) == "Stored values of name: 'Lisbon', …"
    assert _note(few, [None]) == ""
    assert _note(_call(_condition("name", "Porto", "ne"), of=tools(shop, CITY)), ["Porto"]) == ""
    assert _asked(_call(_condition("rent", "5", "gt"), of=tools(shop, CITY))) == ()
    assert len(_asked(_call(_condition("city.id", "5", "gt"), of=tools(shop, CITY)))) == 1
    closed = tools(SHOP, replace(CITY, aggregated=False))
    assert _asked(_call(_condition("city.id + 1", "5", "gt"), of=closed)) == ()
