"""Any cell in SQLite, of its declared type or not, is returned by list and get as it is stored."""

import base64
import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given, strategies as st

from tests.database.shop import BareSqlite, Serve, Shop, same
from tests.database.test_values import SAFE, examples

EXAMPLES = 15
MOST_VALUES = 6

#: A declared type, and how its cells are shown: most by the type of the cell itself.
DECLARED = (
    ("integer", "plain"),
    ("text", "plain"),
    ("real", "plain"),
    ("numeric", "plain"),
    ("decimal(10,2)", "plain"),
    ("varchar(20)", "plain"),
    ("date", "plain"),
    ("time", "plain"),
    ("timestamp", "plain"),
    ("uuid", "plain"),
    ("", "plain"),
    ("geometry", "plain"),
    ("boolean", "boolean"),
    ("json", "json"),
    ("blob", "bytes"),
)
STRICT = (("integer", "plain"), ("text", "plain"), ("real", "plain"), ("any", "plain"), ("blob", "bytes"))
TABLES = {
    **{
        f"v{at}": (f"create table v{at} (id integer primary key, v {declared})", shown)
        for at, (declared, shown) in enumerate(DECLARED)
    },
    **{
        f"w{at}": (f"create table w{at} (id int not null primary key, v {declared}) without rowid", shown)
        for at, (declared, shown) in enumerate(DECLARED)
    },
    **{
        f"s{at}": (f"create table s{at} (id integer primary key, v {declared}) strict", shown)
        for at, (declared, shown) in enumerate(STRICT)
    },
}
TEXTS = st.text(max_size=30).filter(
    lambda text: text.isascii() or not _has_surrogates(text)
) | st.sampled_from(
    [
        "",
        "\0",
        "a\0b",
        "not a date",
        "2024-03-05",
        "1.50",
        "9007199254740993",
        "{",
        '{"a": [1.10, 1e400]}',
        "\u202e🦉",
    ]
)
NUMBERS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.sampled_from([0, 1, 2, SAFE, SAFE + 1, -SAFE, -SAFE - 1, -0.0, math.inf, -math.inf, 5e-324])
)
#: They begin with a zero byte, since images and audio are shown differently.
BLOBS = st.binary(max_size=40).map(lambda content: b"\0" + content) | st.just(b"")
#: A cast stores text that is not valid UTF-8.
BROKEN = st.binary(min_size=1, max_size=8).map(lambda content: ("cast(? as text)", content))
VALUES = (st.none() | NUMBERS | TEXTS | BLOBS).map(lambda value: ("?", value)) | BROKEN


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= each <= "\udfff" for each in text)


@pytest.fixture(scope="module")
def sqlite(serve: Serve) -> Iterator[Shop]:
    """Return a database with a table for each declared type."""
    with serve("sqlite", ";".join(ddl for ddl, _ in TABLES.values())) as shop:
        yield shop


@pytest.mark.parametrize(
    "table", [pytest.param(table, id=ddl.partition("(")[2]) for table, (ddl, _) in TABLES.items()]
)
@examples(EXAMPLES)
@given(values=st.lists(VALUES, min_size=1, max_size=MOST_VALUES))
def test_any_cell_is_returned_as_it_is_stored(
    table: str, values: list[tuple[str, object]], sqlite: Shop
) -> None:
    sqlite.bare.execute(f"delete from {table}")
    for number, (place, value) in enumerate(values):
        # A strict table rejects values of other types.
        with suppress(sqlite3.IntegrityError):
            sqlite.bare.execute(f"insert into {table} values (?, {place})", number, value)
    stored = _stored(sqlite, table)
    expected = [[key, _shown(kind, content, TABLES[table][1])] for key, kind, content in stored]

    listed = sqlite.page(table)
    got = [list(sqlite.get(table, id=key).values()) for key, _ in expected]

    assert same(listed["rows"]) == same(expected)
    assert same(got) == same(expected)


def _stored(shop: Shop, table: str) -> list[tuple[int, str, object]]:
    """Return keys, storage classes and cells of *table*, texts as bytes."""
    assert isinstance(shop.bare, BareSqlite)
    connection = shop.bare.connection
    connection.text_factory = bytes
    try:
        rows = connection.execute(f"select id, typeof(v), v from {table} order by id").fetchall()
    finally:
        connection.text_factory = str
    return [(key, kind.decode(), content) for key, kind, content in rows]


def _shown(kind: str, content: object, column: str) -> object:
    """Return *content*, of the storage class *kind*, as JSON shows it in a *column* of this kind."""
    match kind, content:
        case "text", bytes():
            return _text(content.decode(errors="backslashreplace"), column)
        case "blob", bytes():
            encoded = base64.b64encode(content).decode()
            return encoded if column == "bytes" else {"base64": encoded}
        case "integer", 0 | 1 if column == "boolean":
            return bool(content)
        case "integer", int():
            return content if abs(content) <= SAFE else str(content)
        case "real", float():
            return content if math.isfinite(content) else str(content).replace("inf", "Infinity")
        case _:
            return content


def _text(text: str, column: str) -> object:
    if column == "bytes":
        return {"text": text}
    if column != "json":
        return text
    try:
        return json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=str)
    except ValueError:
        return text


def _integer(digits: str) -> object:
    return int(digits) if abs(int(digits)) <= SAFE else digits


def _float(digits: str) -> object:
    value = float(digits)
    return value if math.isfinite(value) and Decimal(repr(value)) == Decimal(digits) else digits


def test_both_channels_show_broken_and_invisible_text_alike(sqlite: Shop) -> None:
    sqlite.bare.execute("delete from v1")
    sqlite.bare.execute("insert into v1 values (1, cast(x'61ff62' as text)), (2, 'a' || char(8238) || 'b')")

    answer = sqlite.call("list_v1", {})

    assert answer.structured["rows"] == [[1, "a\\xffb"], [2, "a\u202eb"]]
    assert json.loads(answer.text) == answer.structured
    assert "\u202e" not in answer.text


def test_generated_columns_are_returned(serve: Serve) -> None:
    ddl = """
    create table t (
        id integer primary key,
        a int,
        b int as (a * 2) virtual,
        c text as ('<' || a || '>') stored
    );
    insert into t (a) values (21);
    """
    with serve("sqlite", ddl) as shop:
        rows = shop.rows("t")

    assert rows == [[1, 21, 42, "<21>"]]


def test_text_in_utf16_is_returned(serve: Serve) -> None:
    ddl = """
    pragma encoding = 'UTF-16le';
    create table t (id integer primary key, v text);
    insert into t values (1, 'a🦉');
    """
    with serve("sqlite", ddl) as shop:
        rows = shop.rows("t", where=[{"column": "v", "op": "contains", "value": "🦉"}])

    assert rows == [[1, "a🦉"]]
