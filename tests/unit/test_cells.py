"""Cells: whatever a driver reads can be encoded, without loss."""

import datetime
import json
import math
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import example, given, strategies as st

from dbtools.values.cells import (
    INVISIBLE,
    class_of,
    encode_column,
    encoder,
    json_of,
    json_value,
    size,
    utf8_text,
)
from dbtools.values.types import SAFE_INTEGER, ColumnType, Family
from tests.unit.shop import TYPES

ANY_TEXT = st.text(st.characters(exclude_categories=()))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    ANY_TEXT,
    st.binary(),
    st.binary().map(bytearray),
    st.binary().map(lambda content: memoryview(content)),
    st.decimals(allow_nan=True, allow_infinity=True),
    st.uuids(),
    st.dates(),
    st.times(),
    st.datetimes(timezones=st.just(datetime.UTC)),
    st.timedeltas(),
)
CELLS = st.recursive(
    SCALARS,
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.tuples(parts, parts)
        | st.dictionaries(ANY_TEXT | st.integers(), parts, max_size=4)
    ),
    max_leaves=8,
)
JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(ANY_TEXT, parts, max_size=4),
    max_leaves=12,
).map(json.dumps)
NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,25})?", fullmatch=True)


def _no_constant(token: str) -> object:
    raise AssertionError(f"{token} is no JSON")


def _numbers(value: object) -> list[int]:
    match value:
        case dict():
            return [number for each in value.values() for number in _numbers(each)]
        case list():
            return [number for each in value for number in _numbers(each)]
        case int():
            return [value]
        case _:
            return []


def _made_valid(value: object) -> object:
    match value:
        case str():
            return utf8_text(value)
        case list():
            return [_made_valid(each) for each in value]
        case dict():
            return {_made_valid(name): _made_valid(each) for name, each in value.items()}
        case _:
            return value


@given(type=st.sampled_from(list(TYPES.values())), cell=CELLS | JSON_TEXTS | NUMBERS)
@example(type=TYPES[Family.JSON], cell="0e99999999999999999999")
@example(type=TYPES[Family.JSON], cell="1e-99999999999999999999")
@example(type=TYPES[Family.ARRAY], cell="[0e99999999999999999999]")
@example(type=TYPES[Family.JSON], cell="[" * 100_000 + "]" * 100_000)
@example(type=TYPES[Family.ARRAY], cell="[" * 100_000 + "]" * 100_000)
@example(type=TYPES[Family.ARRAY], cell="[" * 400 + "]" * 400)
@example(type=TYPES[Family.OBJECT], cell='{"a":' * 400 + "1" + "}" * 400)
@example(type=TYPES[Family.JSON], cell="9" * 5_000)
@example(type=TYPES[Family.ARRAY], cell="[" + "9" * 5_000 + "]")
def test_any_cell_has_an_encoding(type: ColumnType, cell: object) -> None:
    value = encoder(type)(cell)
    text = json_of(value)
    parsed = json.loads(text, parse_constant=_no_constant)

    assert parsed == _made_valid(value)
    assert all(abs(number) <= SAFE_INTEGER for number in _numbers(parsed))
    assert not INVISIBLE.search(text)
    assert size(value) == len(text.encode())


@given(
    type=st.sampled_from(list(TYPES.values())),
    cells=st.lists(CELLS, max_size=4)
    | st.lists(st.none() | ANY_TEXT, max_size=4)
    | st.lists(st.none() | st.integers(-(2**54), 2**54), max_size=4)
    | st.lists(st.integers() | st.booleans(), max_size=4)
    | st.lists(st.none() | st.floats(), max_size=4)
    | st.lists(st.none() | st.booleans(), max_size=4),
)
@example(type=TYPES[Family.INTEGER], cells=[None, SAFE_INTEGER, SAFE_INTEGER + 1])
@example(type=TYPES[Family.INTEGER], cells=[-SAFE_INTEGER - 1, 0])
@example(type=TYPES[Family.BOOLEAN], cells=[0, 1])
@example(type=TYPES[Family.BOOLEAN], cells=[True, None])
@example(type=TYPES[Family.NUMBER], cells=[math.inf, -math.inf, None])
@example(type=TYPES[Family.NUMBER], cells=[math.nan, 1.5])
@example(type=TYPES[Family.NUMBER], cells=[1e308, 1e308])
def test_column_is_encoded_as_its_cells_are(type: ColumnType, cells: list[object]) -> None:
    encoded = json_of(encode_column(type, tuple(cells), set(map(class_of, cells))))

    assert encoded == json_of([encoder(type)(cell) for cell in cells])


@given(NUMBERS)
@example("9007199254740991")
@example("-9007199254740991")
@example("9007199254740992")
@example("0.1000000000000000055511151231257827")
def test_number_in_json_is_shown_without_loss(digits: str) -> None:
    shown = encoder(TYPES[Family.JSON])(digits)

    if isinstance(shown, str):
        assert shown == digits
    else:
        assert isinstance(shown, int | float)
        assert Decimal(repr(shown)) == Decimal(digits)


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        pytest.param(None, None, id="null"),
        pytest.param(True, True, id="boolean"),
        pytest.param(2**53 - 1, 2**53 - 1, id="last safe integer"),
        pytest.param(2**53, "9007199254740992", id="first unsafe integer"),
        pytest.param(-(2**53), "-9007199254740992", id="first unsafe negative integer"),
        pytest.param(10**30, "1" + "0" * 30, id="integer beyond 64 bits"),
        pytest.param(0.1, 0.1, id="float"),
        pytest.param(float("nan"), "NaN", id="nan"),
        pytest.param(float("inf"), "Infinity", id="infinity"),
        pytest.param(float("-inf"), "-Infinity", id="negative infinity"),
        pytest.param(Decimal("1.10"), "1.10", id="decimal"),
        pytest.param(Decimal("1E+3"), "1000", id="decimal with exponent"),
        pytest.param(Decimal("NaN"), "NaN", id="decimal nan"),
        pytest.param(b"hi", {"base64": "aGk="}, id="bytes where none are declared"),
        pytest.param(UUID(int=1), "00000000-0000-0000-0000-000000000001", id="uuid"),
        pytest.param(datetime.date(2024, 3, 5), "2024-03-05", id="date"),
        pytest.param((1, [None, 2**60]), [1, [None, "1152921504606846976"]], id="nested"),
        pytest.param({"a": b"hi", 1: 2}, {"a": {"base64": "aGk="}, "1": 2}, id="mapping"),
    ],
)
def test_cell_is_shown_by_its_own_type(cell: object, shown: object) -> None:
    assert json_value(cell) == shown
    assert encoder(TYPES[Family.TEXT])(cell) == shown


@pytest.mark.parametrize(
    ("family", "cell", "shown"),
    [
        pytest.param(Family.BOOLEAN, 1, True, id="boolean stored as 1"),
        pytest.param(Family.BOOLEAN, 0, False, id="boolean stored as 0"),
        pytest.param(Family.BOOLEAN, 2, 2, id="boolean stored as 2"),
        pytest.param(Family.BOOLEAN, "yes", "yes", id="boolean stored as text"),
        pytest.param(Family.BYTES, b"hi", "aGk=", id="bytes"),
        pytest.param(Family.BYTES, "aGk=", {"text": "aGk="}, id="text among bytes"),
        pytest.param(Family.BYTES, 5, 5, id="number among bytes"),
        pytest.param(Family.JSON, '{"a":[1,null]}', {"a": [1, None]}, id="json"),
        pytest.param(Family.JSON, "9007199254740993", "9007199254740993", id="json: large integer"),
        pytest.param(Family.JSON, "1.00000000000000000001", "1.00000000000000000001", id="json: many digits"),
        pytest.param(Family.JSON, "1e400", "1e400", id="json: large float"),
        pytest.param(Family.JSON, "1.50", 1.5, id="json: float"),
        pytest.param(Family.JSON, "[NaN,-Infinity]", ["NaN", "-Infinity"], id="json: constants"),
        pytest.param(Family.JSON, "{oops", "{oops", id="json: invalid"),
        pytest.param(Family.JSON, "", "", id="json: empty"),
        pytest.param(Family.JSON, 7, 7, id="json stored as a number"),
        pytest.param(Family.JSON, b"\x01", {"base64": "AQ=="}, id="json stored as bytes"),
        pytest.param(Family.ARRAY, "[1.10,null,2]", ["1.10", None, "2"], id="array of decimals"),
        pytest.param(Family.ARRAY, "[[1.10],[2.00]]", [["1.10"], ["2.00"]], id="array of two dimensions"),
        pytest.param(Family.ARRAY, "{1,2}", "{1,2}", id="array in another notation"),
        (Family.OBJECT, '{"street":"x","rent":9.90}', {"street": "x", "rent": "9.90"}),
        pytest.param(Family.OBJECT, '{"later":9.90}', {"later": 9.9}, id="object with an unknown field"),
    ],
)
def test_cell_is_shown_by_its_declared_type(family: Family, cell: object, shown: object) -> None:
    value = encoder(TYPES[family])(cell)

    assert (value, value.__class__) == (shown, shown.__class__)


@pytest.mark.parametrize(
    ("element", "cell", "shown"),
    [
        (Family.INTEGER, "[1,9007199254740993]", [1, "9007199254740993"]),
        (Family.NUMBER, '[1.5,"NaN"]', [1.5, "NaN"]),
        (Family.BYTES, '["\\\\x6869"]', ["aGk="]),
        (Family.TIMESTAMPTZ, '["2024-03-05T14:30:00+00:00"]', ["2024-03-05T14:30:00Z"]),
        (Family.BOOLEAN, "[true,null]", [True, None]),
        (Family.JSON, '[{"a":[1.0]}]', [{"a": [1.0]}]),
        (Family.BYTES, '["\\\\xzz"]', '["\\\\xzz"]'),
    ],
)
def test_items_of_arrays_are_shown_by_their_type(element: Family, cell: str, shown: object) -> None:
    type = ColumnType(family=Family.ARRAY, name="array", element=TYPES[element])

    assert encoder(type)(cell) == shown


def test_digits_and_brackets_of_json_stay() -> None:
    objects = ColumnType(family=Family.ARRAY, name="address[]", element=TYPES[Family.OBJECT])
    digits, json_type = "9" * 5_000, TYPES[Family.JSON]

    assert encoder(objects)('[{"rent":1.10}]') == [{"rent": "1.10"}]
    assert encoder(json_type)("[" + ",".join(["[]"] * 100) + "]") == [[]] * 100
    assert encoder(json_type)(f"[{digits}]") == [digits]


@pytest.mark.parametrize("family", [Family.JSON, Family.ARRAY, Family.OBJECT])
@pytest.mark.parametrize("depth", [61, 400, 100_000])
def test_deep_json_is_shown_as_its_text(family: Family, depth: int) -> None:
    cell = "[" * depth + "]" * depth

    assert encoder(TYPES[family])(cell) == cell


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\ud800", "\\ud800", id="half a pair"),
        pytest.param("a\udcffb", "a\\xffb", id="byte that is no text"),
        pytest.param("straße 😀", "straße 😀", id="valid"),
    ],
)
def test_what_is_no_text_is_made_visible(text: str, shown: str) -> None:
    written = json_of([text, {text: 1}, (text,)])

    assert utf8_text(text) == shown
    assert json.loads(written) == [shown, {shown: 1}, [shown]]
