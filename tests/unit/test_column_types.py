"""The table of column types: what each family reads, rejects, advertises and compares."""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import example, given, strategies as st

from dbtools.errors import BadValue
from dbtools.values.cells import utf8_text
from dbtools.values.types import (
    EQUALITY,
    FAMILIES,
    ORDER,
    TEXTUAL,
    ColumnType,
    Family,
    Operator,
    quote,
    with_bytes,
)
from tests.unit.shop import TYPES

SMALL = replace(TYPES[Family.INTEGER], name="smallint", minimum=-(2**15), maximum=2**15 - 1)
UNBOUNDED = ColumnType(family=Family.INTEGER, name="integer")
INFINITE = {
    family: replace(TYPES[family], infinite=True)
    for family in (Family.NUMBER, Family.DECIMAL, Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ)
}
LENIENT = {
    family: replace(TYPES[family], lenient=True)
    for family in (Family.DATE, Family.TIME, Family.TIMESTAMP, Family.TIMESTAMPTZ)
}
DATES = (TYPES[Family.DATE], INFINITE[Family.DATE], LENIENT[Family.DATE])
TIMESTAMPS = (TYPES[Family.TIMESTAMP], INFINITE[Family.TIMESTAMP], LENIENT[Family.TIMESTAMP])
#: One date, as all databases read it.
MIDNIGHTS = (
    *("20240229", "2024-02-29T00:00", "2024-02-29 00:00:00.000", "2024-02-29T00:00:00Z"),
    *("2024-02-29T02:00+02:00", "2024-02-28T24:00:00"),
)
TIMES_OF_DAY = (
    *("2024-02-29T10:00", "2024-02-29T00:00:00.001", "2024-02-29T00:00:00+02:00", "2024-02-29T23:00Z"),
)
UNTYPED_ARRAY = ColumnType(family=Family.ARRAY, name="array")
A_UUID = "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f"
#: Families that read every text.
FREE = {Family.TEXT, Family.JSON, Family.OBJECT, Family.OTHER, Family.ANY}

GOOD: list[tuple[ColumnType, str, object]] = [
    (TYPES[Family.INTEGER], "42", 42),
    (TYPES[Family.INTEGER], " -42 ", -42),
    (TYPES[Family.INTEGER], "+7", 7),
    (TYPES[Family.INTEGER], "42.0", 42),
    (TYPES[Family.INTEGER], "9223372036854775807", 2**63 - 1),
    (TYPES[Family.INTEGER], "-9223372036854775808", -(2**63)),
    (SMALL, "32767", 32767),
    (SMALL, "-32768", -32768),
    (TYPES[Family.NUMBER], "4.2", 4.2),
    (TYPES[Family.NUMBER], "-1e-3", -0.001),
    (TYPES[Family.NUMBER], "7", 7.0),
    (INFINITE[Family.NUMBER], "Infinity", float("inf")),
    (INFINITE[Family.NUMBER], "-inf", float("-inf")),
    (TYPES[Family.DECIMAL], "19.90", "19.90"),
    (TYPES[Family.DECIMAL], "-0.10", "-0.10"),
    (TYPES[Family.DECIMAL], "1e3", "1E+3"),
    (TYPES[Family.DECIMAL], "1" * 300 + ".5", "1" * 300 + ".5"),
    (INFINITE[Family.DECIMAL], "nan", "NaN"),
    (INFINITE[Family.DECIMAL], "-NaN12", "NaN"),
    (INFINITE[Family.DECIMAL], "-infinity", "-Infinity"),
    (TYPES[Family.BOOLEAN], "true", True),
    (TYPES[Family.BOOLEAN], "FALSE", False),
    (TYPES[Family.BOOLEAN], "1", True),
    (TYPES[Family.BOOLEAN], "0", False),
    (TYPES[Family.BOOLEAN], "no", False),
    (TYPES[Family.BOOLEAN], "F", False),
    (TYPES[Family.BOOLEAN], "t", True),
    (TYPES[Family.BOOLEAN], "Yes", True),
    (TYPES[Family.TEXT], "  as it is ", "  as it is "),
    (TYPES[Family.TEXT], "", ""),
    (TYPES[Family.ENUM], "small", "small"),
    (TYPES[Family.DATE], "2024-02-29", "2024-02-29"),
    *((type, text, "2024-02-29") for type in DATES for text in MIDNIGHTS),
    (INFINITE[Family.DATE], "Infinity", "infinity"),
    (INFINITE[Family.DATE], "-infinity", "-infinity"),
    (INFINITE[Family.DATE], "0044-03-15 BC", "0044-03-15 BC"),
    (INFINITE[Family.DATE], "12024-01-31", "12024-01-31"),
    (LENIENT[Family.DATE], "19782", 19782),
    (LENIENT[Family.DATE], "2460375.5", 2460375.5),
    (TYPES[Family.TIME], "14:30", "14:30"),
    (TYPES[Family.TIME], "14:30:00.123456+02:00", "14:30:00.123456+02:00"),
    (TYPES[Family.TIME], "24:00:00", "24:00:00"),
    (TYPES[Family.TIME], "24:00:00.000-15:59:59", "24:00:00.000-15:59:59"),
    (LENIENT[Family.TIME], "52200", 52200),
    (TYPES[Family.TIMESTAMP], "2024-03-05", "2024-03-05"),
    (TYPES[Family.TIMESTAMP], "2024-03-05 14:30:00", "2024-03-05 14:30:00"),
    (TYPES[Family.TIMESTAMP], "2024-03-05T14:30", "2024-03-05T14:30"),
    *((type, "2024-03-05T14:30:00-05:30", "2024-03-05 20:00:00") for type in TIMESTAMPS),
    *((type, "2024-03-05T00:30:00.50+01:00", "2024-03-04 23:30:00.5") for type in TIMESTAMPS),
    (TYPES[Family.TIMESTAMP], "20240305", "2024-03-05"),
    (LENIENT[Family.TIMESTAMP], "20240305", "2024-03-05 00:00:00"),
    (TYPES[Family.TIMESTAMPTZ], "20240305", "2024-03-05"),
    (INFINITE[Family.TIMESTAMP], "0044-03-15 12:00:00 BC", "0044-03-15 12:00:00 BC"),
    (LENIENT[Family.TIMESTAMP], "1709649000", 1709649000),
    (TYPES[Family.TIMESTAMPTZ], "2024-03-05T14:30:00Z", "2024-03-05T14:30:00Z"),
    (TYPES[Family.TIMESTAMPTZ], "2024-03-05t14:30:00-05:30", "2024-03-05t14:30:00-05:30"),
    (INFINITE[Family.TIMESTAMPTZ], "-INFINITY", "-infinity"),
    (TYPES[Family.INTERVAL], "P1DT2H", "P1DT2H"),
    (TYPES[Family.INTERVAL], "1 year 2 mons -3 days 04:05:06.7", "1 year 2 mons -3 days 04:05:06.7"),
    (TYPES[Family.UUID], A_UUID.upper(), A_UUID),
    (TYPES[Family.UUID], A_UUID.replace("-", ""), A_UUID),
    (TYPES[Family.JSON], '{"a": 1}', '{"a": 1}'),
    (TYPES[Family.BYTES], "aGVsbG8=", b"hello"),
    (TYPES[Family.BYTES], "", b""),
    (TYPES[Family.ARRAY], "1.10", "1.10"),
    (TYPES[Family.OBJECT], '{"street": "x"}', '{"street": "x"}'),
    (TYPES[Family.OTHER], " 10.0.0.1", " 10.0.0.1"),
    (TYPES[Family.ANY], "12", 12),
    (TYPES[Family.ANY], "-1.5e3", -1500.0),
    (TYPES[Family.ANY], "9223372036854775808", 2.0**63),
    (TYPES[Family.ANY], "1e999", "1e999"),
    (TYPES[Family.ANY], "१२", "१२"),
    (TYPES[Family.ANY], "twelve", "twelve"),
]
BAD: list[tuple[ColumnType, str]] = [
    *(
        (TYPES[Family.INTEGER], text)
        for text in ("", "x", "1.5", "1e3", "1_000", "१२", "0x1f", "true", "NaN")
    ),
    (TYPES[Family.INTEGER], "9223372036854775808"),
    (TYPES[Family.INTEGER], "-9223372036854775809"),
    (TYPES[Family.INTEGER], "9" * 5_000),
    (SMALL, "32768"),
    (SMALL, "-32769"),
    *(
        (TYPES[Family.NUMBER], text)
        for text in ("", "x", "1_0", "१२", "1e999999999", "NaN", "Infinity", "--1")
    ),
    (TYPES[Family.NUMBER], "1" * 500),
    (INFINITE[Family.NUMBER], "1e999999999"),
    *((TYPES[Family.DECIMAL], text) for text in ("", "x", "1_0.5", "१२", "NaN", "sNaN", "Infinity", "1,5")),
    *(
        (TYPES[Family.DECIMAL], text)
        for text in ("1e999999999", "1e-999999999", "0e-999999999", "0e999999999")
    ),
    (TYPES[Family.DECIMAL], "1" * 500),
    (TYPES[Family.DECIMAL], "1." + "1" * 300 + "e-15900"),
    (INFINITE[Family.DECIMAL], "sNaN"),
    *((TYPES[Family.BOOLEAN], text) for text in ("", "2", "maybe", "１")),
    *((TYPES[Family.ENUM], text) for text in ("", "Small", "small ", "medium")),
    *((TYPES[Family.DATE], text) for text in ("", "2024-02-30", "2023-02-29", "2024-13-01", "2024-1-1")),
    *((TYPES[Family.DATE], text) for text in ("infinity", "0044-03-15 BC", "12024-01-01", "-2024-01-01")),
    *((TYPES[Family.DATE], text) for text in ("19782", "05.03.2024", "２０２４-03-05", "20240230")),
    *((INFINITE[Family.DATE], text) for text in ("2024-02-30", "infinite", "0044-02-30 BC", "2024-01-01 AD")),
    *((LENIENT[Family.DATE], text) for text in ("1978", "1" * 20, "9223372036854775808", "2024-02-30")),
    *((type, text) for type in DATES for text in TIMES_OF_DAY),
    *((TYPES[Family.TIME], text) for text in ("", "25:00", "14:60", "14", "24:00:01", "14:30:61", "52200")),
    *((TYPES[Family.TIME], text) for text in ("24:00:00.5", "24:30", "14:30+16", "14:30+01:60")),
    *(
        (TYPES[Family.TIMESTAMP], text)
        for text in ("", "2024-02-30 10:00", "2024-03-05T", "2024-03-05 25:00")
    ),
    *((TYPES[Family.TIMESTAMP], text) for text in ("infinity", "0044-03-15 10:00 BC", "12024-01-01 10:00")),
    (TYPES[Family.TIMESTAMP], "1709649000"),
    *((type, "9999-12-31T23:30:00-05:00") for type in (TYPES[Family.TIMESTAMP], INFINITE[Family.TIMESTAMP])),
    (INFINITE[Family.TIMESTAMP], "2024-02-30 10:00"),
    *((TYPES[Family.TIMESTAMPTZ], text) for text in ("", "now", "2024-03-05T14:30:00 Europe/Berlin")),
    *((TYPES[Family.INTERVAL], text) for text in ("", "P", "PT", "soon", "1 fortnight", "P1D" * 40)),
    *((TYPES[Family.UUID], text) for text in ("", "3f2b8c1e", A_UUID + "0", A_UUID.replace("3", "_"))),
    (TYPES[Family.UUID], "١" * 32),
    *((TYPES[Family.BYTES], text) for text in ("a", "aGVsbG8", "aGVs bG8=", "é===", "_-_-")),
    *((TYPES[Family.ARRAY], text) for text in ("", "x", "[1]")),
    (UNTYPED_ARRAY, "1"),
]


def _named(type: ColumnType, text: str) -> str:
    return f"{type.family}{' infinite' * type.infinite}{' lenient' * type.lenient} {text[:30]!a}"


@pytest.mark.parametrize(("type", "text", "value"), [pytest.param(*row, id=_named(*row[:2])) for row in GOOD])
def test_text_is_read_as_the_value_it_means(type: ColumnType, text: str, value: object) -> None:
    read = type.decode(text)

    assert (read, read.__class__) == (value, value.__class__)


@pytest.mark.parametrize(("type", "text"), [pytest.param(*row, id=_named(*row)) for row in BAD])
def test_text_that_means_no_value_is_refused(type: ColumnType, text: str) -> None:
    with pytest.raises(BadValue) as raised:
        type.decode(text)

    assert raised.value.code == "bad_value"
    # The message has the bounds only for an integer outside of them.
    whole = text.isascii() and text.strip().lstrip("+-").isdecimal()
    wants = type.expected if whole or type.family is not Family.INTEGER else FAMILIES[Family.INTEGER].expected
    assert wants in raised.value.message


@given(moment=st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), minutes=st.integers(1, 15 * 60))
def test_moment_with_an_offset_is_the_same_in_every_timestamp(moment: datetime, minutes: int) -> None:
    there = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    read = {str(type.decode(there.isoformat())) for type in TIMESTAMPS}

    assert [datetime.fromisoformat(f"{each}+00:00") for each in read] == [there]


def test_every_family_is_in_the_tables() -> None:
    assert set(FAMILIES) == set(Family) == set(TYPES)
    assert {type.family for type, _, _ in GOOD} == set(Family)
    assert {type.family for type, _ in BAD} == set(Family) - FREE


@pytest.mark.parametrize("family", [family for family in Family if family not in FREE])
def test_what_a_column_wants_has_an_example_that_it_reads(family: Family) -> None:
    type = TYPES[family]
    examples = {
        Family.INTEGER: "-9223372036854775808",
        Family.NUMBER: "4.2",
        Family.DECIMAL: "19.90",
        Family.BOOLEAN: "true",
        Family.ENUM: "small",
        Family.DATE: "2024-03-05",
        Family.TIME: "14:30:00",
        Family.TIMESTAMP: "2024-03-05T14:30:00",
        Family.TIMESTAMPTZ: "2024-03-05T14:30:00Z",
        Family.INTERVAL: "P1DT2H",
        Family.UUID: A_UUID,
        Family.BYTES: "aGVsbG8=",
        Family.ARRAY: "19.90",
    }

    assert examples[family] in type.expected
    assert type.decode(examples[family]) is not None


def test_integer_without_bounds_wants_an_example() -> None:
    assert "42" in UNBOUNDED.expected
    assert UNBOUNDED.decode("42") == 42


@pytest.mark.parametrize(
    ("family", "schema"),
    [
        (Family.INTEGER, {"type": "integer"}),
        (Family.NUMBER, {"type": "number"}),
        (Family.DECIMAL, {"type": "string"}),
        (Family.BOOLEAN, {"type": "boolean"}),
        (Family.TEXT, {"type": "string"}),
        (Family.ENUM, {"type": "string", "enum": ["small", "large"]}),
        (Family.DATE, {"type": "string", "description": "YYYY-MM-DD"}),
        (Family.TIME, {"type": "string"}),
        (Family.TIMESTAMP, {"type": "string"}),
        (Family.TIMESTAMPTZ, {"type": "string"}),
        (Family.INTERVAL, {"type": "string"}),
        (Family.UUID, {"type": "string", "description": "UUID"}),
        (Family.JSON, {"type": "string", "description": "JSON"}),
        (Family.BYTES, {"type": "string", "description": "base64"}),
        (Family.ARRAY, {"type": "array", "items": {"type": "string"}}),
        (Family.OBJECT, {"type": "string", "description": "JSON"}),
        (Family.OTHER, {"type": "string"}),
        (Family.ANY, {"type": "string"}),
    ],
)
def test_type_is_advertised_as_json_schema(family: Family, schema: dict[str, object]) -> None:
    advertised = TYPES[family].schema()
    advertised["description"] = "changed by its owner"

    assert TYPES[family].schema() == schema


ALL = (*EQUALITY, *ORDER, *TEXTUAL)
IS_NULL = (Operator.IS_NULL,)


@pytest.mark.parametrize(
    ("family", "equatable", "ordered", "operators"),
    [
        (Family.INTEGER, True, True, (*EQUALITY, *ORDER)),
        (Family.INTEGER, True, False, EQUALITY),
        (Family.INTEGER, False, False, IS_NULL),
        (Family.BOOLEAN, True, True, EQUALITY),
        (Family.TEXT, True, True, ALL),
        (Family.TEXT, True, False, (*EQUALITY, *TEXTUAL)),
        (Family.TEXT, False, True, (Operator.IS_NULL, *TEXTUAL)),
        (Family.ENUM, True, True, (*EQUALITY, *ORDER)),
        (Family.BYTES, True, True, EQUALITY),
        (Family.JSON, True, True, (Operator.CONTAINS, Operator.IS_NULL)),
        (Family.JSON, False, False, (Operator.CONTAINS, Operator.IS_NULL)),
        (Family.OBJECT, True, True, IS_NULL),
        (Family.ARRAY, True, True, (Operator.CONTAINS, Operator.IS_NULL)),
        (Family.OTHER, True, True, ALL),
        (Family.OTHER, False, False, (Operator.IS_NULL, *TEXTUAL)),
        (Family.ANY, True, True, ALL),
    ],
)
def test_operators_are_those_that_the_type_has(
    family: Family, equatable: bool, ordered: bool, operators: tuple[Operator, ...]
) -> None:
    type = replace(TYPES[family], equatable=equatable, ordered=ordered)

    assert type.operators == operators


@given(
    type=st.sampled_from([*TYPES.values(), *INFINITE.values(), *LENIENT.values(), SMALL, UNTYPED_ARRAY]),
    text=st.text()
    | st.text("0123456789+-.:eE_ TZPDHMBCnaif", max_size=30)
    | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?( BC)?", fullmatch=True),
)
def test_any_text_is_read_or_refused(type: ColumnType, text: str) -> None:
    try:
        value = type.decode(text)
    except BadValue:
        return

    assert isinstance(value, bool | int | float | str | bytes)


@given(st.integers(-(2**63), 2**63 - 1))
def test_integer_is_read_exactly(value: int) -> None:
    assert TYPES[Family.INTEGER].decode(str(value)) == value
    assert TYPES[Family.ANY].decode(str(value)) == value


@given(st.dates())
def test_every_day_of_the_calendar_is_a_date(day: object) -> None:
    assert TYPES[Family.DATE].decode(str(day)) == str(day)


@given(st.binary(max_size=60))
@example(b"\xff\xfe")
def test_quoted_text_has_nothing_invisible(content: bytes) -> None:
    shown = quote(content.decode("latin-1") + "\u202e\ud800", 1_000)

    assert shown.isprintable()
    assert shown.startswith("'")


def test_quoted_text_is_cut() -> None:
    assert quote("x" * 100, 5) == "'xxxxx…'"
    assert quote("a\x00b") == "'a\\u0000b'"


@pytest.mark.parametrize("byte", range(0x80, 0x100))
def test_byte_that_is_not_text_has_one_spelling_in_cells_and_in_messages(byte: int) -> None:
    text = (b"a" + bytes([byte]) + b"b").decode(errors="surrogateescape")

    assert quote(text) == f"'{utf8_text(text)}'" == f"'a\\x{byte:02x}b'"
    assert with_bytes(utf8_text(text)) == text


@given(st.binary(max_size=8).filter(lambda content: b"\\" not in content))
def test_a_shown_text_means_its_bytes_unless_they_are_text(content: bytes) -> None:
    text = content.decode(errors="surrogateescape")
    is_text = content == text.encode(errors="replace")

    assert with_bytes(utf8_text(text)) == (None if is_text else text)
