"""Masks: how a masked cell is shown, whatever it contains."""

import hashlib
import hmac
import re
from datetime import date
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from dbtools.values.cells import HASH_DIGITS, READ_OF_MASKED, REDACTED, Cut, mask_cell, masked_rows
from dbtools.values.types import ColumnType, Family, Mask
from tests.unit.shop import TYPES

KEY = b"a key of hashes"
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.decimals(),
    st.text(),
    st.text(st.characters(categories=["Cs", "Cc", "Cf", "Mn"])),
    st.binary(),
    st.binary().map(lambda cell: memoryview(cell)),
    st.uuids(),
    st.dates(),
    st.datetimes(),
    st.timedeltas(),
)
CELLS = st.recursive(SCALARS, lambda cells: st.lists(cells) | st.dictionaries(st.text(), cells), max_leaves=6)


def _digest(text: str) -> str:
    return hmac.new(KEY, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:16]


@given(cell=CELLS, mask=st.sampled_from(Mask))
def test_any_cell_is_masked_as_a_text_or_null(cell: object, mask: Mask) -> None:
    shown = mask_cell(cell, mask, KEY)

    match mask:
        case Mask.NULL:
            assert shown is None
        case Mask.REDACT:
            assert shown == REDACTED
        case Mask.HASH if cell is not None:
            assert shown is not None
            assert re.fullmatch(r"[0-9a-f]{16}", shown)
        case Mask.PARTIAL if cell is not None:
            assert shown is not None
            assert shown[1:2] == "…" or shown == "…"
        case _:
            assert shown is None


@given(text=st.text().filter(lambda text: "@" not in text))
def test_partial_shows_nothing_behind_the_first_character(text: str) -> None:
    assert mask_cell(text, Mask.PARTIAL, KEY) == f"{text[:1]}…"


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        pytest.param("ada@example.com", "a…@example.com", id="e-mail address"),
        pytest.param("a@example.com", "a…@example.com", id="one character before the at sign"),
        pytest.param('"a@b"@example.com', '"…@example.com', id="at sign within quotes"),
        pytest.param("Ünal@exämple.de", "Ü…@exämple.de", id="letters beyond ASCII"),
        pytest.param("Ada Lovelace", "A…", id="name"),
        pytest.param("", "…", id="empty text"),
        pytest.param("x", "x…", id="one character"),
        pytest.param("@example.com", "@…", id="no name before the at sign"),
        pytest.param("ada@", "a…", id="no domain"),
        pytest.param("@", "@…", id="at sign alone"),
        pytest.param("write to ada@example.com", "w…", id="address within a text"),
        pytest.param("ada@example.com\nsecret", "a…", id="address before another line"),
        pytest.param("ada@example.com secret", "a…", id="address before a text"),
        pytest.param(4711, "4…", id="integer"),
        pytest.param(-4711, "-…", id="negative integer"),
        pytest.param(2**60, "1…", id="large integer"),
        pytest.param(Decimal("98.7"), "9…", id="decimal"),
        pytest.param(date(1999, 1, 2), "1…", id="date"),
        pytest.param(None, None, id="null"),
    ],
)
def test_partial_shows_the_first_character_and_the_domain(cell: object, shown: str | None) -> None:
    assert mask_cell(cell, Mask.PARTIAL, KEY) == shown


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("https://ada:pw@host/private?token=1", id="URL"),
        pytest.param("ada:p@ssw0rd!", id="password"),
        pytest.param("4711@{'iban':'DE02'}", id="JSON"),
        pytest.param("mailto:x@example.com?subject=secret", id="behind a domain"),
        pytest.param("x@" + "secret" * 100, id="longer than any domain"),
    ],
)
def test_partial_shows_no_end_that_is_no_domain(text: str) -> None:
    assert mask_cell(text, Mask.PARTIAL, KEY) == f"{text[:1]}…"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        pytest.param("ada@example.com", "ada@example.com", id="text"),
        pytest.param("", "", id="empty text"),
        pytest.param("\ud800", "\ud800", id="half a character"),
        pytest.param(4711, "4711", id="integer"),
        pytest.param(2**60, str(2**60), id="integer beyond a double"),
        pytest.param(Decimal("1.50"), "1.50", id="decimal"),
        pytest.param(UUID(int=1), str(UUID(int=1)), id="uuid"),
    ],
)
def test_hash_is_the_beginning_of_a_keyed_digest(cell: object, text: str) -> None:
    assert mask_cell(cell, Mask.HASH, KEY) == _digest(text)
    assert len(_digest(text)) == HASH_DIGITS


@given(first=st.binary(), second=st.binary())
def test_bytes_have_the_same_hash_if_and_only_if_they_are_the_same(first: bytes, second: bytes) -> None:
    hashes = [mask_cell(cell, Mask.HASH, KEY) for cell in (first, second, memoryview(first))]

    assert (hashes[0] == hashes[1]) == (first == second)
    assert hashes[0] == hashes[2]


READ_OF_MASKED_ADDRESS = f'"{"a" * 64}"@{".".join(["b" * 63] * 3)}.{"c" * 61}'


def test_longest_address_is_not_longer_than_what_is_read_of_it() -> None:
    assert len(READ_OF_MASKED_ADDRESS) == READ_OF_MASKED[Mask.PARTIAL]
    assert mask_cell(READ_OF_MASKED_ADDRESS, Mask.PARTIAL, KEY) == '"…' + READ_OF_MASKED_ADDRESS[66:]
    assert mask_cell(READ_OF_MASKED_ADDRESS + "c", Mask.PARTIAL, KEY) == '"…'


@pytest.mark.parametrize(
    ("start", "shown"),
    [
        pytest.param("ada@example.com", "a…", id="address at the beginning of a text"),
        pytest.param(b"ada@example.com", "{…", id="bytes"),
    ],
)
def test_beginning_of_a_cell_has_no_domain_and_no_hash(start: str | bytes, shown: str) -> None:
    cut = Cut(start=start, length=1_000_000)

    assert mask_cell(cut, Mask.PARTIAL, KEY) == shown
    assert mask_cell(cut, Mask.HASH, KEY) == REDACTED


PLACE = "\0".join(("sales", "customers", "email"))
#: The key of one column, derived from that of the operator.
OWN_KEY = hmac.digest(KEY, PLACE.encode(), "sha256")


def _type(mask: Mask, place: str = PLACE) -> ColumnType:
    return ColumnType(family=Family.TEXT, name="masked", mask=mask, place=place)


def test_rows_are_masked_in_their_masked_columns_only() -> None:
    types = [_type(Mask.PARTIAL), TYPES[Family.TEXT], _type(Mask.NULL), _type(Mask.HASH), _type(Mask.REDACT)]
    rows = [("Ada", "Ada", "Ada", "Ada", "Ada"), (None, None, None, None, None)]

    assert masked_rows(types, rows, KEY) == (
        ("A…", "Ada", None, mask_cell("Ada", Mask.HASH, OWN_KEY), "***"),
        (None, None, None, None, "***"),
    )
    assert rows[0] == ("Ada",) * 5


def test_equal_cells_have_different_hashes_in_different_columns() -> None:
    """Even if the names of schema, table and column are the same when they are joined."""
    places = ["", "\0a\0b", "a\0b\0", "\0a\0bc", "\0ab\0c", "a\0b\0c", "ab\0\0c", "\0a\0\ud800"]
    ((*hashes,),) = masked_rows([_type(Mask.HASH, each) for each in places], [("Ada",) * len(places)], KEY)

    assert len(set(hashes)) == len(places)


@given(rows=st.lists(st.tuples(CELLS, CELLS), max_size=4), mask=st.sampled_from(Mask))
def test_number_and_order_of_rows_stay(rows: list[tuple[object, ...]], mask: Mask) -> None:
    shown = masked_rows([TYPES[Family.ANY], _type(mask)], rows, KEY)

    assert [row[1] for row in shown] == [mask_cell(row[1], mask, OWN_KEY) for row in rows]
    assert all(after[0] is before[0] for after, before in zip(shown, rows, strict=True))
