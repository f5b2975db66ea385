"""Which stored values the note of an empty answer lists."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from dbtools.tools.reasons import MOST_ROWS, TOGETHER
from dbtools.values.cells import Cut
from tests.unit.empty_answers import CITIES, CITY, SHOP, TOOLS, asked_by, listing, note_of, where
from tests.unit.shop import column, select_of, table, tools

VALUES, RANGE, NOTHING = [1], [2], list[int]()  #: how much is read of each condition
NULLS = [1]  #: how many rows with null it leaves out
ROW = [1]  #: whether there is one with a value


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        *(pytest.param(where("name", "x", op), VALUES, id=op) for op in ("eq", "contains", "starts_with")),
        pytest.param(where("name", "x", "ends_with"), VALUES, id="ends_with"),
        pytest.param(where("name", ["x"], "in"), VALUES, id="in"),
        pytest.param(where("name", "x", "ne"), NULLS, id="ne"),
        *(pytest.param(where("name", "x", op), RANGE, id=op) for op in ("gt", "lte")),
        pytest.param(where("name", ["a", "b"], "between"), RANGE, id="between"),
        pytest.param(where("uuid", "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f", "gt"), RANGE, id="range of uuids"),
        pytest.param(where("rent * 2", "5"), VALUES, id="expression"),
        pytest.param(where("rent * 2", "5", "gt"), RANGE, id="range of an expression"),
        pytest.param(where("opened:month", "2024-03"), RANGE, id="bucket"),
        pytest.param({"column": "rent", "op": "gt", "value_column": "area"}, ROW * 2, id="two columns"),
        pytest.param(where("name", "true", "is_null"), ROW, id="is_null"),
        pytest.param(where("name", [], "in"), NOTHING, id="in nothing"),
        pytest.param(where("size", "small"), VALUES, id="enum"),
        pytest.param(where("rent", "5"), VALUES, id="decimal"),
        pytest.param(where("area", "5"), VALUES, id="number"),
        pytest.param(where("city_id", "5"), VALUES, id="integer that is no key"),
        pytest.param(where("opened", "2024-03-05"), VALUES, id="date"),
        pytest.param(where("closed_at", "2024-03-05T10:00:00"), VALUES, id="timestamp"),
        pytest.param(where("anything", "5"), VALUES, id="any"),
        pytest.param(where("id", "5"), RANGE, id="key by number"),
        pytest.param(where("number", "5"), RANGE, id="another key by number"),
        pytest.param(where("city.id", "5"), RANGE + ROW, id="key by number at the end of a path"),
        pytest.param(where("city.code", "5"), VALUES + ROW, id="number at the end of a path"),
        pytest.param(where("franchise", "true"), NOTHING, id="boolean"),
        pytest.param(where("uuid", "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f"), NOTHING, id="uuid"),
        pytest.param(where("logo", "aGVsbG8="), NOTHING, id="bytes"),
        pytest.param(where("tags", "5", "contains"), NOTHING, id="array"),
        pytest.param(where("note", "x", "contains"), NOTHING, id="json"),
    ],
)
def test_condition_is_doubted_where_stored_values_can_tell(
    condition: dict[str, object], asked: Sequence[int]
) -> None:
    # Values are groups, and a range has two measures.
    assert [len(select_of(each).outputs) for each in asked_by(listing(condition))] == asked


def test_key_of_texts_is_doubted() -> None:
    shop = table(column("slug", nullable=False), name="shop", key=("slug",))

    assert len(asked_by(listing(where("slug", "x"), of=tools(shop)))) == 1


@pytest.mark.parametrize(("rows", "asked"), [(None, 1), (MOST_ROWS - 1, 1), (MOST_ROWS, 0)])
def test_large_tables_are_not_asked_for_values(rows: int | None, asked: int) -> None:
    shop, city = replace(SHOP, row_estimate=rows), replace(CITY, row_estimate=rows)

    assert len(asked_by(listing(where("name", "x"), of=tools(shop, CITY)))) == asked
    assert len(asked_by(listing(where("city.name", "x"), of=tools(SHOP, city)))) == asked + 1
    assert len(asked_by(listing(where("rent", "5", "gt"), of=tools(shop, CITY)))) == 1


def test_no_more_than_three_conditions_are_doubted() -> None:
    conditions = [where(name, "x") for name in ("name", "owner", "anything", "city.name")]

    call = listing(*conditions)

    assert [each.shape.outputs[0].term.name for each in asked_by(call)][:3] == ["name", "owner", "anything"]
    assert len(asked_by(call)) == 4
    assert note_of(call, "x", "x", "x") == ""


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
    note = note_of(listing(where("name", wanted)), CITIES)

    assert note == f"name has no {wanted!r}; nearest stored values: {told}."


def test_few_values_are_all_told() -> None:
    call = listing(where("name", "qqqq"))

    assert note_of(call, CITIES[:3]) == "name has only these values: 'Lisbon', 'Porto', 'Faro'."
    assert "only these" in note_of(listing(where("name", "lisbon")), CITIES[:10])
    assert "only these" not in note_of(listing(where("name", "lisbon")), CITIES[:11])
    assert "only these" in note_of(call, [f"{number:02}" for number in range(25)])
    assert "only these" not in note_of(call, [f"{number:02}" for number in range(26)])
    assert "only these" not in note_of(call, CITIES[:10], more=True)


def test_work_and_words_are_bounded_however_much_is_asked_for() -> None:
    stored = [f"n{number:05}" + "x" * 150 for number in range(1_000)]
    wanted = [f"n{number:05}z" + "x" * 150 for number in range(1_000)]

    note = note_of(listing(where("name", wanted, "in")), stored)

    assert note.count("'") <= 2 * (3 + 5)
    assert len(note) < 800


NUMBERS = [str(number) for number in (*range(10, 110, 10), 1_000)]


@pytest.mark.parametrize(
    ("wanted", "told"), [("52", "'50', '60'"), ("-7", "'10'"), ("1e9", "'1000'"), ("94.9", "'90', '100'")]
)
def test_nearest_numbers_are_those_before_and_after(wanted: str, told: str) -> None:
    assert note_of(listing(where("rent", wanted)), NUMBERS).endswith(f"nearest stored values: {told}.")


def test_one_cell_that_is_no_number_does_not_hide_the_nearest() -> None:
    note = note_of(listing(where("rent", "52")), [*NUMBERS, "free", "NaN"])

    assert note.endswith("nearest stored values: '50', '60'.")


def test_those_of_many_values_that_are_missing_are_told() -> None:
    note = note_of(listing(where("name", ["Porto", "lisbon", "Bragga"], "in")), CITIES)

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
    note = note_of(listing(where("name", wanted, operator)), CITIES)

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
    call = listing(where(name, wanted), where("name", "Porto"))

    assert note_of(call, [stored], CITIES) == TOGETHER


def test_values_that_are_stored_each_but_not_together_are_told_apart() -> None:
    name, owner = where("name", "Porto"), where("owner", "Ann")

    assert note_of(listing(name, owner), CITIES, ["Ann"]) == TOGETHER
    assert note_of(listing(name, owner), CITIES, ["Bob"]) == "owner has only these values: 'Bob'."
    assert note_of(listing(name, owner), CITIES) == ""
    assert note_of(listing(name), CITIES) == ""
    assert note_of(listing(name, owner, match="any"), CITIES, ["Ann"]) == ""
    assert note_of(listing(name, owner, where("rent", "5", "gt")), CITIES, ["Ann"]) == ""


@pytest.mark.parametrize("wanted", ["b999", "zzz"])
def test_value_beyond_those_that_were_read_is_called_neither_missing_nor_stored(wanted: str) -> None:
    first = [f"a{number:03}" for number in range(1_000)]
    call = listing(where("name", wanted), where("owner", "Ann"))

    note = note_of(call, first, ["Ann"], more=True)

    assert "has no" not in note
    assert TOGETHER not in note


def test_text_beyond_what_was_read_of_it_is_not_called_missing() -> None:
    long = [Cut(start=letter * 200, length=900) for letter in "abcdefghijkl"]

    assert note_of(listing(where("name", "deep inside", "contains")), long) == ""


def test_no_value_of_the_database_is_shown_with_its_controls() -> None:
    note = note_of(listing(where("name", "x")), ["a\x1b[31m\u202eb", "c" * 300])

    assert note.isprintable()
    assert "c" * 61 not in note


def test_value_that_may_mean_something_else_is_explained() -> None:
    other = "To compare with the column owner, pass it as value_column."

    assert note_of(listing(where("name", "owner")), CITIES[:1]) == (
        f"name has only these values: 'Lisbon'. {other}"
    )
    assert note_of(listing(where("name", "owner")), ["owner", "x"]) == ""
    for null in ("", "NULL", " none "):
        note = note_of(listing(where("name", null)), CITIES[:1])
        assert note.endswith('For null use op is_null with value "true".')


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        pytest.param({"any": [where("name", "lisbon")]}, "name has no 'lisbon'", id="any"),
        ({"some": "shop", "where": [where("name", "lisbon")]}, "shop.name has no 'lisbon'"),
        pytest.param({"none": "shop", "where": [where("name", "lisbon")]}, "", id="none"),
    ],
)
def test_conditions_within_conditions_are_explained(condition: Mapping[str, object], told: str) -> None:
    call = TOOLS["list_rows"].bind({"table": "city", "where": [condition]})

    assert note_of(call, CITIES).startswith(told)
    assert bool(asked_by(call)) is bool(told)
