"""Results: encoded once, the same in both channels, and never larger than the limit."""

import csv
import io
import json
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from dbtools.answers.results import Answer, Budget, EncodedRows, Page, ResultSet, encode_rows
from dbtools.answers.styles import Text
from dbtools.errors import BadArgument
from dbtools.policy.roles import Limits
from dbtools.statements.select import Output
from dbtools.values.cells import INVISIBLE, Cut, cut_text, escape, is_media, json_of, media_type, size
from dbtools.values.types import Family
from tests.unit.shop import ID, column

OUTPUTS = (Output(term=ID), Output(term=column("name")), Output(term=column("photo", Family.BYTES)))
NAMES = ("id", "name", "photo")
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=30)


def _found(*rows: tuple[object, ...], more: bool = False) -> ResultSet:
    return ResultSet(outputs=OUTPUTS, rows=rows, more=more)


def _budget(bytes: int, reserved: int, text: Text = Text.JSON) -> Budget:
    assert bytes % 3 == 0
    return Budget(limits=Limits(max_tokens=bytes // 3), text=text, reserved=reserved)


def _answer(
    table: EncodedRows, text: Text, *, truncated: bool = False, next_cursor: str = "", **extra: object
) -> Answer:
    found = ResultSet(outputs=(), rows=tuple(map(tuple, table.rows)))
    page = Page(found=found, table=replace(table, text=text), capped=truncated, next_cursor=next_cursor)
    return Budget(limits=Limits(), text=text, reserved=0).rows_answer(page, **extra)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cut", "shown"),
    [
        (Cut(start="abc", length=12_345), "abc… [12,345 characters]"),
        (Cut(start=b"\x89PNG\r\n\x1a\n..", length=2_000), "[2,000 bytes, image/png]"),
        (Cut(start=b"..", length=3), "[3 bytes, application/octet-stream]"),
    ],
)
def test_cut_cell_states_its_full_length(cut: Cut, shown: str) -> None:
    assert cut_text(cut) == shown


@pytest.mark.parametrize(
    ("content", "type"),
    [
        (b"\x89PNG\r\n\x1a\n\0", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a..", "image/gif"),
        (b"GIF89a..", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
        (b"ID3\x03", "audio/mpeg"),
        (b"\xff\xfb\x90", "audio/mpeg"),
        (b"OggS\0", "audio/ogg"),
        (b"fLaC\0", "audio/flac"),
        (b"%PDF-1.7", "application/pdf"),
        (b"....\0\0\0\0WEBP", "application/octet-stream"),
        (b"GIF88a", "application/octet-stream"),
        (b"\x89PN", "application/octet-stream"),
        (b"", "application/octet-stream"),
    ],
)
def test_first_bytes_tell_the_type(content: bytes, type: str) -> None:
    assert media_type(content) == type
    assert is_media(type) is type.startswith(("image", "audio"))


def test_cells_are_encoded_by_their_columns() -> None:
    found = ResultSet(
        outputs=(*OUTPUTS, Output(term=column("hidden"))),
        rows=((2**60, None, b"hi", "x"), (1, Cut(start="ab", length=9), Cut(start=b"..", length=70), "x")),
    )

    assert encode_rows(found, NAMES, Text.CSV) == EncodedRows(
        columns=NAMES,
        rows=[
            ("1152921504606846976", None, "aGk="),
            (1, "ab… [9 characters]", "[70 bytes, application/octet-stream]"),
        ],
        text=Text.CSV,
    )


TABLE = EncodedRows(columns=("id", "name"), rows=[[1, "a"], [2, None]])


def test_both_channels_say_the_same() -> None:
    table = EncodedRows(columns=("id", "näme"), rows=[[1, "a\ud800\u202e"], [2, {"x": ["\udcff"]}]])
    answer = _answer(table, Text.JSON)

    assert answer.text is answer.json
    assert not INVISIBLE.search(answer.json)
    assert json.loads(answer.text.encode()) == answer.structured
    assert answer.structured["rows"] == [[1, "a\\ud800\u202e"], [2, {"x": ["\\xff"]}]]


@given(
    text=st.sampled_from(Text),
    rows=st.lists(st.tuples(ANY_TEXT | st.integers(), ANY_TEXT | st.none()), max_size=12),
    reserve=st.integers(100, 1_200),
)
def test_answer_is_the_json_of_the_rows_that_fit(
    text: Text, rows: list[tuple[object, object]], reserve: int
) -> None:
    budget = _budget(1_500, reserve, text)
    found = ResultSet(outputs=OUTPUTS[:2], rows=tuple(rows))

    page = budget.page(found, ("id", "näme"))
    answer = budget.rows_answer(replace(page, next_cursor="x"), note="\u202e")
    shown = encode_rows(page.found, ("id", "näme"), text).rows

    assert answer.json == json_of(
        {
            "row_count": len(shown),
            "truncated": len(shown) < len(rows),
            "columns": ["id", "näme"],
            "rows": shown,
            "next_cursor": "x",
            "note": "\u202e",
        }
    )


def test_result_knows_how_much_it_holds() -> None:
    whole = _found((1, "abc", b"de"), (None, "", None))
    cut = _found((1, Cut(start="abc", length=99), b"de"), (None, 2.5, Cut(start=b"x", length=70)))

    assert [whole.is_longer(4), whole.is_longer(5), whole.is_cut] == [True, False, False]
    assert [cut.is_longer(5), cut.is_longer(6), cut.is_cut] == [True, False, True]
    assert [_found().is_longer(0), _found().is_cut] == [False, False]
    assert [_found(cut.rows[0]).is_longer(4), _found(cut.rows[0]).is_longer(5)] == [True, False]


def _csv(table: EncodedRows, *, truncated: bool = False, next_cursor: str = "", **extra: object) -> str:
    return _answer(table, Text.CSV, truncated=truncated, next_cursor=next_cursor, **extra).text


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        pytest.param(None, "", id="null"),
        pytest.param("", '""', id="empty text"),
        pytest.param("a b", "a b", id="text"),
        pytest.param("a,b", '"a,b"', id="comma"),
        pytest.param('say "x"', '"say ""x"""', id="quotes"),
        pytest.param("a\nb", '"a\nb"', id="newline"),
        pytest.param("a\rb", '"a\rb"', id="carriage return"),
        pytest.param(1, "1", id="number"),
        pytest.param(True, "true", id="boolean"),
        pytest.param([1, "x"], '"[1,""x""]"', id="array"),
        pytest.param({"a": None}, '"{""a"":null}"', id="object"),
        pytest.param("\u202ea\x1b", "\\u202ea\\u001b", id="invisible"),
        pytest.param("\ud800", "\\ud800", id="half a surrogate pair"),
    ],
)
def test_cell_of_csv_is_written_as_copy_does(cell: object, written: str) -> None:
    table = EncodedRows(columns=("a", "b"), rows=[["x", cell]])

    assert _csv(table) == f"# 1 rows, 2 columns, complete\na,b\nx,{written}"


PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"]) | st.sampled_from(' ,"\n\r;#'), max_size=12)


@given(st.lists(st.lists(PRINTABLE | st.none(), min_size=2, max_size=2), max_size=6))
def test_csv_is_read_back(rows: list[list[str | None]]) -> None:
    text = _csv(EncodedRows(columns=("a", 'b"c'), rows=[[*row] for row in rows]))
    _, header, *cells = csv.reader(io.StringIO(text, newline=""))

    assert header == ["a", 'b"c']
    assert cells == [[escape(cell or "") for cell in row] for row in rows]


ROWS: list[list[object]] = [[1, "x" * 30], [2, None], [3, "é" * 50], [4, '"' * 20], [5, ["\n", {}]]]


def test_rows_fit_exactly_up_to_the_cap() -> None:
    table = EncodedRows(columns=("id", "name"), rows=ROWS)
    taken = [size(row) + 1 for row in ROWS]
    room = 3_000 - size(["id", "name"])

    for count in range(len(ROWS) + 1):
        exact = room - sum(taken[:count])
        assert _budget(3_000, exact).fitting_rows(table) == count
        if count:
            assert _budget(3_000, exact + 1).fitting_rows(table) == count - 1
            assert _budget(3_000, exact).fitting_rows(table, "x") == count - 1


@given(
    text=st.sampled_from(Text),
    rows=st.lists(st.lists(st.text(max_size=30) | st.none(), min_size=2, max_size=2), max_size=12),
    reserve=st.integers(100, 1_400),
)
def test_rows_that_fit_stay_below_the_cap(text: Text, rows: list[list[object]], reserve: int) -> None:
    table = EncodedRows(columns=("id", "näme"), rows=rows, text=text)
    count = _budget(1_500, reserve, text).fitting_rows(table)
    shown = EncodedRows(columns=table.columns, rows=rows[:count])

    assert len(_answer(shown, text).text.encode()) <= 1_500 - reserve + 100


@pytest.mark.parametrize("text", Text)
def test_huge_row_is_narrowed_until_it_fits(text: Text) -> None:
    budget = _budget(1_500, 300, text)
    found = _found((2**60, "\x01" * 5_000, b"x" * 5_000), (2, "second", b""))

    page = budget.page(found, NAMES)
    shown = page.found

    assert (page.table, page.capped) == (encode_rows(shown, NAMES, text), True)
    assert budget.fitting_rows(page.table) == 1
    assert shown.rows[0][0] == 2**60
    assert [cell.length for cell in shown.rows[0] if isinstance(cell, Cut)] == [5_000, 5_000]
    assert len(shown.rows) == 1


def test_narrowed_cells_state_the_full_length_of_what_was_cut_before() -> None:
    found = _found((1, Cut(start="x" * 2_000, length=1_000_000), Cut(start=b"GIF89a" * 10, length=70_000)))

    shown = _budget(1_500, 300).page(found, NAMES).table

    (number, text, image), *_ = shown.rows
    assert (number, image) == (1, "[70,000 bytes, image/gif]")
    assert str(text).strip("x") == "… [1,000,000 characters]"
    assert 1_000 < len(str(text)) < 1_200


def test_narrowed_row_keeps_what_is_not_shown() -> None:
    found = _found((1, "x" * 5_000, b"y" * 5_000))

    (row,) = _budget(1_500, 300).page(found, NAMES[:2]).found.rows

    assert row[2] == b"y" * 5_000


@pytest.mark.parametrize("rows", [(("x" * 10,) * 300,), ()], ids=["a row", "no rows"])
def test_too_many_columns_are_refused(rows: tuple[tuple[str, ...], ...]) -> None:
    outputs = tuple(Output(term=column(f"column {number}")) for number in range(300))
    found = ResultSet(outputs=outputs, rows=rows)
    names = [output.term.name for output in outputs]

    with pytest.raises(BadArgument):
        _budget(1_500, 300).page(found, names)


@pytest.mark.parametrize(
    ("length", "more", "count"), [(0, True, 5), (10, True, 4), (100, True, 1), (100, False, 5)]
)
def test_page_leaves_room_for_its_cursor(length: int, more: bool, count: int) -> None:
    found = _found(*((number, "x" * 20, b"") for number in range(5)), more=more)
    exact = 1_500 - size(list(NAMES)) - size(encode_rows(found, NAMES, Text.JSON).rows)

    page = _budget(1_500, exact).page(found, NAMES, cursor=lambda rows: "x" * (rows * length // 5))

    assert (len(page.found.rows), page.capped, page.truncated) == (count, count < 5, more)
    assert len(page.next_cursor) == (count * length // 5 if more else 0)
    assert json.loads(page.json) == [[number, "x" * 20, ""] for number in range(count)]


def test_values_fit_one_after_the_other_and_a_first_entry_is_shortened() -> None:
    entries: list[dict[str, object]] = [{"name": "x" * 300}, {"name": "y"}]
    sizes: list[list[int]] = [[], [200], [201], [100, 100, 1], [300, 1]]

    assert [_budget(300, 100).fitting_count(each) for each in sizes] == [0, 1, 0, 2, 0]
    assert _budget(300, 100).entries(entries, lambda entry: {"name": "…"}) == [{"name": "…"}]
    assert _budget(3_000, 100).entries(entries, lambda entry: {"name": "…"}) == entries


def test_entries_fit_with_the_commas_between_them() -> None:
    entries: list[dict[str, object]] = [{"name": "x" * 30} for _ in range(5)]
    taken = size(entries[0]) + 1

    for count in range(1, 6):
        assert _budget(3_000, 3_000 - count * taken).entries(iter(entries)) == entries[:count]
        assert len(_budget(3_000, 3_000 - count * taken + 1).entries(iter(entries))) == max(count - 1, 1)
