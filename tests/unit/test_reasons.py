"""Why nothing was found: which conditions are doubted, what is asked, and what the answer says."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from dbtools.catalog import ForeignKey, Key
from dbtools.cells import Cut
from dbtools.results import ResultSet
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


def _call(*conditions: Mapping[str, object], of: Toolset = TOOLS, match: str = "all") -> Call:
    return of["list_rows"].bind({"table": "shop", "where": conditions, "match": match})


def _asked(call: Call) -> Sequence[Statement]:
    """Return what *call* asks of the database where there is no row."""
    assert call.statement is not None
    return call.inquire(ResultSet(outputs=call.statement.shape.outputs, rows=()))


def _note(call: Call, *stored: Stored, more: bool = False) -> str:
    """Return the note of an empty answer of *call*, whose inquiries brought the *stored* values."""
    asked = _asked(call)
    further = [
        ResultSet(outputs=each.shape.outputs, rows=tuple((value,) for value in values), more=more)
        for each, values in zip(asked, stored, strict=False)
    ]
    assert call.statement is not None
    found = ResultSet(outputs=call.statement.shape.outputs, rows=())
    return str(call.render(found, further).structured.get("note", ""))


def test_stored_values_are_read_once_each_in_their_order() -> None:
    name = SHOP.column_by_name["name"]

    assert _asked(_call(_condition("name", "x"))) == [
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


@pytest.mark.parametrize(
    ("condition", "doubted"),
    [
        *(pytest.param(_condition("name", "x", op), True, id=op) for op in ("eq", "contains", "starts_with")),
        pytest.param(_condition("name", "x", "ends_with"), True, id="ends_with"),
        pytest.param(_condition("name", ["x"], "in"), True, id="in"),
        *(pytest.param(_condition("name", "x", op), False, id=op) for op in ("ne", "gt", "lte")),
        pytest.param(_condition("name", ["a", "b"], "between"), False, id="between"),
        pytest.param(_condition("name", "true", "is_null"), False, id="is_null"),
        pytest.param(_condition("name", [], "in"), False, id="in nothing"),
        pytest.param(_condition("size", "small"), True, id="enum"),
        pytest.param(_condition("rent", "5"), True, id="decimal"),
        pytest.param(_condition("area", "5"), True, id="number"),
        pytest.param(_condition("city_id", "5"), True, id="integer that is no key"),
        pytest.param(_condition("opened", "2024-03-05"), True, id="date"),
        pytest.param(_condition("closed_at", "2024-03-05T10:00:00"), True, id="timestamp"),
        pytest.param(_condition("anything", "5"), True, id="any"),
        pytest.param(_condition("id", "5"), False, id="key by number"),
        pytest.param(_condition("number", "5"), False, id="another key by number"),
        pytest.param(_condition("city.id", "5"), False, id="key by number at the end of a path"),
        pytest.param(_condition("city.code", "5"), True, id="number at the end of a path"),
        pytest.param(_condition("franchise", "true"), False, id="boolean"),
        pytest.param(_condition("uuid", "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f"), False, id="uuid"),
        pytest.param(_condition("logo", "aGVsbG8="), False, id="bytes"),
        pytest.param(_condition("tags", "5", "contains"), False, id="array"),
        pytest.param(_condition("note", "x", "contains"), False, id="json"),
    ],
)
def test_condition_is_doubted_where_stored_values_can_tell(
    condition: dict[str, object], doubted: bool
) -> None:
    assert len(_asked(_call(condition))) == doubted


def test_key_of_texts_is_doubted() -> None:
    shop = table(column("slug", nullable=False), name="shop", key=("slug",))

    assert len(_asked(_call(_condition("slug", "x"), of=tools(shop)))) == 1


@pytest.mark.parametrize(("rows", "asked"), [(None, 1), (MOST_ROWS - 1, 1), (MOST_ROWS, 0)])
def test_large_tables_are_not_asked(rows: int | None, asked: int) -> None:
    shop, city = replace(SHOP, row_estimate=rows), replace(CITY, row_estimate=rows)

    assert len(_asked(_call(_condition("name", "x"), of=tools(shop, CITY)))) == asked
    assert len(_asked(_call(_condition("city.name", "x"), of=tools(SHOP, city)))) == asked


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


def _aggregate(**arguments: object) -> Call:
    return TOOLS["aggregate_rows"].bind(
        {
            "table": "shop",
            "measures": [{"function": "count"}],
            "where": [_condition("name", "Porto"), _condition("owner", "Ann")],
            **arguments,
        }
    )


RENT = {"function": "sum", "column": "rent"}


@pytest.mark.parametrize(
    ("arguments", "rows", "asked"),
    [
        pytest.param({}, [(0,)], 2, id="no rows"),
        pytest.param({}, [(3,)], 0, id="some rows"),
        pytest.param({"group_by": ["size"]}, [], 2, id="no groups"),
        pytest.param({"group_by": ["size"]}, [("small", 1)], 0, id="some groups"),
        pytest.param({"measures": [{"function": "count"}, RENT]}, [(0, None)], 2, id="nothing to add up"),
        pytest.param({"measures": [RENT]}, [(0.0,)], 0, id="sum of nothing but zeros"),
        pytest.param({"measures": [{"function": "max", "column": "owner"}]}, [("",)], 0, id="empty text"),
    ],
)
def test_aggregate_of_no_rows_is_explained(
    arguments: dict[str, object], rows: list[tuple[object, ...]], asked: int
) -> None:
    call = _aggregate(**arguments)
    assert call.statement is not None

    inquiries = call.inquire(ResultSet(outputs=call.statement.shape.outputs, rows=tuple(rows)))

    assert len(inquiries) == asked


def test_explanation_of_an_aggregate_is_its_note() -> None:
    assert _note(_aggregate(), CITIES, ["Bob"]) == "owner has only these values: 'Bob'."


def test_groups_that_having_left_out_are_not_blamed_on_where() -> None:
    call = _aggregate(group_by=["size"], having=[{"column": "count", "op": "gt", "value": 5}])

    assert _note(call, CITIES, ["Ann"]) == ""
