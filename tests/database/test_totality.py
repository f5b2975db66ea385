"""Every operator, on every type and any stored cell, gives rows or an error that names the mistake."""

from collections.abc import Iterator, Mapping, Sequence

import pytest

from dbtools.errors import BadArgument, BadOperator, BadValue, CallError
from dbtools.values.types import Operator
from tests.database.shop import Serve, Shop
from tests.database.test_values import KINDS, TYPES
from tests.database.test_values_sqlite import DECLARED

Outcomes = Mapping[tuple[str, Operator, str], object]

MANY = (Operator.IN, Operator.NOT_IN, Operator.BETWEEN)
EXPECTED = (BadOperator, BadValue, BadArgument)

#: Values at the ends of types, and such as are written to do harm.
WRITTEN = (
    *("", " ", "0", "-0", "1", "-1", "1.0", "1.5", "0.1", "1e400", "-1e400", "1e-400", "1e16001", "NaN"),
    *("inf", "-Infinity", "nan", "1_000", "0x10", "٣", "32768", "2147483648", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9" * 400, "9" * 401),
    *("true", "t", "TRUE", "yes", "null", "NULL", "None", "infinity", "-infinity", "now", "today"),
    *("epoch", "2024-02-30", "2024-02-29", "0000-01-01", "0044-03-15 BC", "10000-01-01", "294277-01-01"),
    *("5874898-01-01", "24:00:00", "25:00", "12:30", "12:30:00+02", "12:30:00+25"),
    *("2024-03-05T14:30:00Z", "2024-03-05 14:30 BC", "P1M", "1 month", "P", "P1Y2M3DT4H5M6.7S"),
    *("P99999999999Y", "1 fortnight", "5 days 5 days", "{}", "{1,2}", "[1]", "[", "(1,2)", "[1,2)"),
    *("(,)", '{"a": 1}', '"', "'", "\\", "\\\\", "\\x", "\\x0", "aGVsbG8=", "====", "sad", "it's"),
    *("00000000-0000-0000-0000-000000000000", "10.0.0.0/8", "10.0.0.1/99", "%", "_", "%%%", "\\%"),
    *("%' or '1'='1", "'; drop table t; --", '"; drop table t; --', "$1", ":k0", "?", "🦉", "\u202e"),
    *("a:b", "a & ", "!", "&", "<a>", "a" * 999, "%" * 1000, "_" * 1001, "e\u0301", "İ", "ß"),
)
#: For the operators that read a value like another one.
FEW = (
    "",
    "1",
    "1e400",
    "9223372036854775808",
    "NaN",
    "2024-02-30",
    "infinity",
    "'; drop table t; --",
    "{",
    "\\",
)


def values_for(operator: Operator, at: int) -> Sequence[str]:
    """Return what column *at* is compared with."""
    match operator:
        case Operator.EQ:
            return WRITTEN
        case Operator.CONTAINS:
            return WRITTEN[at % 4 :: 4]
        case _:
            return FEW


@pytest.fixture(scope="module")
def postgresql(serve: Serve) -> Iterator[Shop]:
    """Yield a table with a column of every type and of an array of it, and two rows, one of nulls."""
    columns = [f"c{at} {kind.name}" for at, kind in enumerate(KINDS)]
    arrays = [f"a{at} {kind.name}[]" for at, kind in enumerate(KINDS)]
    with serve("postgresql", f"{TYPES} create table t (id int, {', '.join([*columns, *arrays])});") as shop:
        samples = ", ".join(f"${at + 1}::text::{kind.name}" for at, kind in enumerate(KINDS))
        lists = ", ".join(f"array[${at + 1}::text::{kind.name}, null]" for at, kind in enumerate(KINDS))
        shop.bare.execute(
            f"insert into t select 1, {samples}, {lists}", *(SAMPLES[kind.name] for kind in KINDS)
        )
        shop.bare.execute("insert into t (id) values (2)")
        yield shop


#: Cells of SQLite of every storage class, as SQL.
CELLS = (
    *("null", "0", "1", "-9223372036854775808", "9223372036854775807", "1.5", "9e999", "-9e999", "''", "'a'"),
    *("'1'", "'2024-02-29'", "'2024-99-99'", "'{'", "'[1]'", "x''", "x'00ff'", "x'61'"),
    *("cast(x'61ff' as text)", "'a' || char(0) || 'b'", "zeroblob(1000)"),
)
SAMPLES = {
    **dict.fromkeys(
        ("int2", "int4", "int8", "numeric", "numeric(12,4)", "float4", "float8", "oid", "money"), "1"
    ),
    **dict.fromkeys(("oid", "money", "positive"), "1"),
    **dict.fromkeys(("text", "varchar(40)", "name", "tsvector", "tsquery"), "a"),
    **dict.fromkeys(("timestamp", "timestamptz"), "2024-03-05 14:30"),
    **dict.fromkeys(("json", "jsonb"), "[1]"),
    "bool": "true",
    "mood": "it's",
    "date": "2024-02-29",
    "time": "12:30",
    "timetz": "12:30+02",
    "interval": "1 month",
    "uuid": "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f",
    "bytea": "\\x00ff",
    "int4range": "[1,2)",
    "tstzrange": "(,)",
    "inet": "10.0.0.1",
    "cidr": "10.0.0.0/8",
    "macaddr": "080020010203",
    "bit(8)": "10101010",
    "varbit": "101",
    "point": "(1,2)",
    "path": "((0,0),(1,1))",
    "pg_lsn": "16/B374D848",
}


def outcome(shop: Shop, column: str, operator: Operator, value: str) -> object:
    """Return the rows of `t` that are listed so, or the type of the CallError that the call ends with."""
    try:
        return _listed(shop, column, operator, value)
    except CallError as exc:
        return type(exc)


def _unclean(outcomes: Outcomes) -> Outcomes:
    """Return those of *outcomes* that are neither rows nor an error that names what is wrong."""
    return {
        call: each for call, each in outcomes.items() if not isinstance(each, list) and each not in EXPECTED
    }


@pytest.mark.parametrize("at", range(len(KINDS)), ids=[kind.name for kind in KINDS])
def test_every_operator_takes_or_refuses_every_value(at: int, postgresql: Shop) -> None:
    outcomes = {
        (column, operator, value): outcome(postgresql, column, operator, value)
        for operator in Operator
        for column, values in ((f"c{at}", values_for(operator, at)), (f"a{at}", FEW))
        for value in values
    }

    assert _unclean(outcomes) == {}


def _listed(shop: Shop, column: str, operator: Operator, value: str) -> list[list[object]]:
    condition: dict[str, object] = {"column": column, "op": operator}
    condition |= {"values": [value, value]} if operator in MANY else {"value": value}
    return shop.rows("t", columns=["id"], where=[condition], order_by=["id"])


each_declared = pytest.mark.parametrize(
    "at", range(len(DECLARED)), ids=[declared or "nothing" for declared, _ in DECLARED]
)


@pytest.fixture(scope="module")
def sqlite(serve: Serve) -> Iterator[Shop]:
    """Yield a table with a column of every declared type, each of which holds cells of every kind."""
    columns = ", ".join(f"c{at} {declared}" for at, (declared, _) in enumerate(DECLARED))
    with serve("sqlite", f"create table t (id integer primary key, {columns})") as shop:
        for cell in CELLS:
            shop.bare.execute(f"insert into t values (null, {', '.join([cell] * len(DECLARED))})")
        yield shop


@each_declared
def test_every_operator_is_total_whatever_a_cell_holds(at: int, sqlite: Shop) -> None:
    outcomes = {
        (f"c{at}", operator, value): outcome(sqlite, f"c{at}", operator, value)
        for operator in Operator
        for value in values_for(operator, at)
    }

    assert _unclean(outcomes) == {}
