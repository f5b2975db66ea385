"""Any value in a PostgreSQL column is returned by list and get as it is stored."""

import base64
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st

from tests.database.shop import Serve, Shop, literal, quote, same

SAFE = 2**53 - 1
EXAMPLES = 12
LONGEST_LIST = 1_800  #: characters of its items: a cell of 2,000 is cut
MOST_VALUES = 6

Strategy = st.SearchStrategy[str]


def examples(number: int) -> Callable[[Any], Any]:
    """Return the settings of a property that *number* examples show; rows are replaced within each."""
    return settings(max_examples=number, suppress_health_check=[HealthCheck.function_scoped_fixture])


# What the types of PostgreSQL hold, as texts, and what JSON shows of the text that the server writes.

CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS, max_size=40) | st.sampled_from(
    [
        "",
        " ",
        "''",
        '"',
        "\\",
        "\\x41",
        "{a,b}",
        "NULL",
        "null",
        "%_",
        "\u202e\u200b\ufeff",
        "e\u0301",
        "🦉",
        "\x7f\x01",
    ]
)
DIGITS = st.text("0123456789", min_size=1, max_size=60)
NUMERICS = (
    st.sampled_from(["0", "-0", "NaN", "Infinity", "-Infinity", "1e-300", "-1e300", "0.10", "1.000", "1e5"])
    | st.builds("{}{}.{}".format, st.sampled_from(["", "-"]), DIGITS, DIGITS)
    | st.integers(-(10**400), 10**400).map(str)
)
FLOATS = st.floats().map(repr)
SINGLES = st.floats(width=32).map(repr)
DATES = st.dates().map(date.isoformat) | st.sampled_from(
    ["infinity", "-infinity", "0044-03-15 BC", "10000-01-01", "5874897-12-31", "4713-01-01 BC", "2024-02-29"]
)
TIMES = st.times().map(str) | st.sampled_from(["24:00:00", "00:00:00.000001"])
ZONES = st.sampled_from(["+00", "-08", "+05:30", "+14:00", "-15:59"])
ZONED_TIMES = st.builds("{}{}".format, TIMES, ZONES)
TIMESTAMPS = st.datetimes().map(str) | st.sampled_from(
    [
        "infinity",
        "-infinity",
        "0044-03-15 12:00:00.5 BC",
        "294276-12-31 23:59:59.999999",
        "10000-01-01 00:00:00",
    ]
)
INTERVALS = st.builds(
    "{} months {} days {} microseconds".format,
    st.integers(-2000, 2000),
    st.integers(-2000, 2000),
    st.integers(-(10**12), 10**12),
) | st.sampled_from(["0", "1 month", "30 days", "-1 year -2 days 3 hours", "178000000 years"])
JSONS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(CHARACTERS, max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(CHARACTERS, max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
).map(json.dumps) | st.sampled_from(
    [
        "1.10",
        "123456789012345678901234567890.123456789",
        "-9007199254740991",
        "9007199254740993",
        "1e400",
        '"NaN"',
        "-0",
        "[]",
        "{}",
        '{"a": {"b": [1.0]}}',
    ]
)
#: A nought in front, since pictures and sound come as such.
BYTES = st.binary(max_size=60).map(lambda content: "\\x00" + content.hex()) | st.just("\\x")
INTS = st.integers(-(2**31), 2**31 - 1)
LABELS = ("sad", "it's", 'q"uo\\te', "a,b", "🦉", " ")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type of PostgreSQL: what it holds, and what is shown of the text that the server writes of it."""

    name: str
    values: Strategy
    shown: Callable[[str], object] = str


def _integer(text: str) -> object:
    return int(text) if abs(int(text)) <= SAFE else text


def _float(text: str) -> object:
    value = float(text)
    return value if math.isfinite(value) else text


def _address(text: str) -> str:
    """Return an address as the server writes one of a column: alone if it is a host's."""
    return text.removesuffix("/128") if ":" in text else text.removesuffix("/32")


def _bytes(text: str) -> str:
    return base64.b64encode(bytes.fromhex(text.removeprefix("\\x"))).decode()


def _timestamp(text: str) -> str:
    return text.replace(" ", "T", 1) if "infinity" not in text else text


def _zoned(text: str) -> str:
    return _timestamp(text).replace("+00", "Z", 1)


def _json(text: str) -> object:
    return json.loads(text, parse_int=_integer, parse_float=_exact)


def _exact(digits: str) -> object:
    """Return the number that *digits* are where a double has it, else the digits."""
    value = float(digits)
    return (
        value
        if (math.isfinite(value) and Decimal(value) == Decimal(digits))
        or Decimal(repr(value)) == Decimal(digits)
        else digits
    )


KINDS = (
    Kind(name="int2", values=st.integers(-(2**15), 2**15 - 1).map(str), shown=_integer),
    Kind(name="int4", values=INTS.map(str), shown=_integer),
    Kind(
        name="int8",
        values=(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([SAFE, SAFE + 1, -SAFE, -SAFE - 1])).map(
            str
        ),
        shown=_integer,
    ),
    Kind(name="numeric", values=NUMERICS),
    Kind(name="numeric(12,4)", values=st.decimals(-9_999_999, 9_999_999, places=6).map(str)),
    Kind(name="float4", values=SINGLES, shown=_float),
    Kind(name="float8", values=FLOATS, shown=_float),
    Kind(name="bool", values=st.sampled_from(["true", "false"]), shown=lambda text: text == "true"),
    Kind(name="text", values=TEXTS),
    Kind(name="varchar(40)", values=TEXTS),
    Kind(name="name", values=st.text(CHARACTERS, max_size=15)),
    Kind(name="mood", values=st.sampled_from(LABELS)),
    Kind(name="positive", values=st.integers(1, 2**31 - 1).map(str), shown=_integer),
    Kind(name="date", values=DATES),
    Kind(name="time", values=TIMES),
    Kind(name="timetz", values=ZONED_TIMES),
    Kind(name="timestamp", values=TIMESTAMPS, shown=_timestamp),
    Kind(name="timestamptz", values=TIMESTAMPS, shown=_zoned),
    Kind(name="interval", values=INTERVALS),
    Kind(name="uuid", values=st.uuids().map(str)),
    Kind(name="json", values=JSONS, shown=_json),
    Kind(name="jsonb", values=JSONS, shown=_json),
    Kind(name="bytea", values=BYTES, shown=_bytes),
    Kind(
        name="int4range",
        values=st.builds("[{},{})".format, st.integers(-9, 0), st.integers(0, 9)) | st.just("(,)"),
    ),
    Kind(name="tstzrange", values=TIMESTAMPS.filter(lambda text: text != "-infinity").map("(,{}]".format)),
    Kind(name="inet", values=st.ip_addresses().map(str) | st.just("10.1.2.3/8"), shown=_address),
    Kind(name="cidr", values=st.ip_addresses().map(str)),
    Kind(name="macaddr", values=st.binary(min_size=6, max_size=6).map(bytes.hex)),
    Kind(name="bit(8)", values=st.text("01", min_size=8, max_size=8)),
    Kind(name="varbit", values=st.text("01", max_size=30)),
    Kind(name="money", values=st.decimals(-(10**9), 10**9, places=2).map(str)),
    Kind(name="tsvector", values=st.sampled_from(["a:1 fat:2,4 cat:3A", "'it''s' 'a\\\\b'", ""])),
    Kind(name="tsquery", values=st.sampled_from(["fat & (rat | cat)", "!a <-> b"])),
    Kind(name="point", values=st.builds("({!r},{!r})".format, st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))),
    Kind(name="path", values=st.just("((0,0),(1,1),(2,0.5))")),
    Kind(name="oid", values=st.integers(0, 2**32 - 1).map(str)),
    Kind(name="pg_lsn", values=st.just("16/B374D848")),
)
NESTED = (
    "int8",
    "numeric",
    "float4",
    "float8",
    "bool",
    "text",
    "mood",
    "date",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "jsonb",
    "bytea",
    "inet",
    "timetz",
)
KIND = {kind.name: kind for kind in KINDS}
TYPES = f"""
create type mood as enum ({", ".join(map(literal, LABELS))});
create domain positive as int check (value > 0);
create type part as (
    number numeric, moment timestamptz, content bytea, "a name" text, tags text[], ratio float8
);
"""
LISTS = (
    "create table lists (id int primary key, " + ", ".join(f'"of {name}" {name}[]' for name in NESTED) + ");"
)


def _table(at: int, name: str) -> str:
    return f"create table v{at} (id int primary key, v {name});"


COMPOSITES = """
create table composites (id int primary key, one part, many part[], deep int[][]);
"""
POSTGRESQL = "\n".join((TYPES, LISTS, COMPOSITES, *(_table(at, kind.name) for at, kind in enumerate(KINDS))))


@pytest.fixture(scope="module")
def postgresql(serve: Serve) -> Iterator[Shop]:
    """Yield a database with a table `vN` of each kind N."""
    with serve("postgresql", POSTGRESQL) as shop:
        yield shop


@pytest.mark.parametrize("at", [pytest.param(at, id=kind.name) for at, kind in enumerate(KINDS)])
@examples(EXAMPLES)
@given(data=st.data())
def test_value_of_any_type_comes_out_as_it_is_stored(at: int, data: st.DataObject, postgresql: Shop) -> None:
    table, kind = f"v{at}", KINDS[at]
    values = data.draw(st.lists(st.none() | kind.values, min_size=1, max_size=MOST_VALUES))
    postgresql.bare.execute(f"truncate {table}")
    postgresql.bare.execute(
        f"insert into {table} select i, v::{kind.name} from unnest($1::text[]) with ordinality as u (v, i)",
        values,
    )
    written = postgresql.bare.rows(f"select v::text from {table} order by id")
    expected = [None if text is None else kind.shown(str(text)) for (text,) in written]

    listed = [row[1] for row in postgresql.rows(table)]
    got = [postgresql.get(table, id=number + 1)["v"] for number in range(len(values))]

    assert same(listed) == same(expected)
    assert same(got) == same(expected)


@pytest.mark.parametrize("name", NESTED)
@examples(EXAMPLES)
@given(data=st.data())
def test_items_of_an_array_come_out_as_they_are_stored(
    name: str, data: st.DataObject, postgresql: Shop
) -> None:
    kind = KIND[name]
    items = data.draw(st.lists(st.none() | kind.values, max_size=MOST_VALUES))
    postgresql.bare.execute("truncate lists; insert into lists (id) values (1)")
    column = quote(f"of {name}")
    postgresql.bare.execute(f"update lists set {column} = $1::text[]::{name}[]", items)
    written = postgresql.bare.rows(
        f"select i::text from lists, unnest({column}) with ordinality as u (i, n) order by n"
    )
    assume(sum(len(str(text)) for (text,) in written) < LONGEST_LIST)
    expected = [None if text is None else kind.shown(str(text)) for (text,) in written]

    listed = postgresql.rows("lists", columns=[f"of {name}"])
    got = postgresql.get("lists", id=1)[f"of {name}"]

    assert same(listed) == same([[expected]])
    assert same(got) == same(expected)


def test_composites_and_nested_arrays_come_out_by_the_types_of_their_parts(postgresql: Shop) -> None:
    postgresql.bare.execute("truncate composites")
    postgresql.bare.execute(
        """
        insert into composites values (
            1,
            (1.10, '2024-03-05 14:30+02', '\\x00ff', 'it''s "q"', '{a,NULL,"b,c"}', 'NaN'),
            array[(123456789012345678901.5, 'infinity', null, '', '{}', '-0')::part, null],
            '{{1,2},{3,null}}'
        )
        """
    )

    row = postgresql.get("composites", id=1)

    assert same(row) == same(
        {
            "id": 1,
            "one": {
                "number": "1.10",
                "moment": "2024-03-05T12:30:00Z",
                "content": "AP8=",
                "a name": 'it\'s "q"',
                "tags": ["a", None, "b,c"],
                "ratio": "NaN",
            },
            "many": [
                {
                    "number": "123456789012345678901.5",
                    "moment": "infinity",
                    "content": None,
                    "a name": "",
                    "tags": [],
                    "ratio": -0.0,
                },
                None,
            ],
            "deep": [[1, 2], [3, None]],
        }
    )
    assert postgresql.rows("composites") == [list(row.values())]
