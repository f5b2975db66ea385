"""Each operator finds the same rows as Python, on every database."""

import base64
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from dbtools.backends.compile.sources import LONG
from dbtools.backends.sqlite.connection.connections import SEARCHED_BYTES
from dbtools.values.types import Operator
from tests.database.shop import DIALECTS, Serve, Shop, Shops, literal, open_shops

MANY = (Operator.IN, Operator.NOT_IN, Operator.BETWEEN)
ROWS = 60
WORDS = (
    "",
    "a",
    "A",
    "aB",
    "Ab",
    "%",
    "_",
    "\\",
    "a%b",
    "a_b",
    "a\\b",
    "'",
    '"',
    "é",
    "É",
    "🦉",
    "a\nb",
    " a",
    "ß",
)
COLUMNS: Mapping[str, tuple[object, ...]] = {
    "number": (None, -(2**31), -1, 0, 1, 2, 2**31 - 1),
    "large": (None, -(2**63), -1, 0, 2**53 + 1, 2**53, 2**63 - 1),
    "ratio": (None, -1.5, -0.0, 0.1, 0.30000000000000004, 1e300, 5e-324),
    "price": (None, Decimal("-1.50"), Decimal("0"), Decimal("0.10"), Decimal("9007199254740993")),
    "word": (None, *WORDS),
    "day": (None, "2023-12-31", "2024-01-01", "2024-02-29"),
    "flag": (None, True, False),
    "content": (None, b"", b"\0", b"\xff\0", b"a"),
}
DDL = {
    "sqlite": """
    create table chosen (
        id integer primary key, number int, large bigint, ratio real, price decimal(20,2), word text,
        day date, flag boolean, content blob
    );
    """,
    "postgresql": """
    create table chosen (
        id int primary key, number int, large bigint, ratio float8, price numeric(20,2),
        word text collate "C", day date, flag bool, content bytea
    );
    create table lists (id int primary key, numbers int[], words text[]);
    insert into lists values
        (1, '{1,2,NULL}', '{a,"b,c"}'), (2, '{}', '{}'), (3, null, null),
        (4, '{{3},{4}}', '{A}');
    """,
}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Yield a table in which every column has each of its values."""
    ddl = {dialect: own + _inserts(dialect) for dialect, own in DDL.items()}
    with open_shops(serve, ddl) as shops:
        yield shops


def _inserts(dialect: str) -> str:
    rows = (
        ", ".join(_sql(values[at % len(values)], dialect) for values in COLUMNS.values())
        for at in range(ROWS)
    )
    return f"insert into chosen values {', '.join(f'({at}, {row})' for at, row in enumerate(rows))};"


def _sql(value: object, dialect: str) -> str:
    match value:
        case None:
            return "null"
        case bool() | int() | Decimal():
            return str(value).lower()
        case float():
            return repr(value)
        case bytes():
            return f"x'{value.hex()}'" if dialect == "sqlite" else f"'\\x{value.hex()}'"
        case _:
            return literal(str(value))


def _argument(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return base64.b64encode(value).decode()
        case float():
            return repr(value)
        case _:
            return str(value)


CHOSEN: Mapping[Operator, Callable[[Any, Any, Any], bool]] = {
    Operator.EQ: lambda cell, first, _: cell == first,
    Operator.NE: lambda cell, first, _: cell != first,
    Operator.LT: lambda cell, first, _: cell < first,
    Operator.LTE: lambda cell, first, _: cell <= first,
    Operator.GT: lambda cell, first, _: cell > first,
    Operator.GTE: lambda cell, first, _: cell >= first,
    Operator.IN: lambda cell, first, second: cell in (first, second),
    Operator.NOT_IN: lambda cell, first, second: cell not in (first, second),
    Operator.BETWEEN: lambda cell, first, second: first <= cell <= second,
    Operator.CONTAINS: lambda cell, first, _: first in cell,
    Operator.STARTS_WITH: lambda cell, first, _: cell.startswith(first),
    Operator.ENDS_WITH: lambda cell, first, _: cell.endswith(first),
}
TEXTUAL = (Operator.CONTAINS, Operator.STARTS_WITH, Operator.ENDS_WITH)


def _operators(column: str) -> list[Operator]:
    if column in ("flag", "content"):
        return [Operator.EQ, Operator.NE, Operator.IN, Operator.NOT_IN]
    return [operator for operator in CHOSEN if column == "word" or operator not in TEXTUAL]


@pytest.mark.parametrize(
    ("column", "operator"),
    [pytest.param(column, operator) for column in COLUMNS for operator in _operators(column)],
)
def test_operator_chooses_the_rows_that_python_chooses(column: str, operator: Operator, shop: Shop) -> None:
    values = COLUMNS[column]
    for at, first in enumerate(values[1:], 1):
        second = values[at % (len(values) - 1) + 1]
        condition: dict[str, object] = {"column": column, "op": operator}
        many = {"values": [_argument(first), _argument(second)]}
        condition |= many if operator in MANY else {"value": _argument(first)}

        found = [row[0] for row in shop.rows("chosen", columns=["id"], where=[condition], limit=ROWS)]

        assert found == [
            row for row in range(ROWS) if _chosen(operator, values[row % len(values)], first, second)
        ]


def _chosen(operator: Operator, cell: object, first: object, second: object) -> bool:
    if cell is None:
        return False
    if operator in TEXTUAL:
        cell, first = str(cell).lower(), str(first).lower()
    return CHOSEN[operator](cell, first, second)


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize("column", COLUMNS)
def test_nulls_are_found_and_left_out(column: str, wanted: bool, shop: Shop) -> None:
    condition = {"column": column, "op": "is_null", "value": wanted}

    found = [row[0] for row in shop.rows("chosen", columns=["id"], where=[condition], limit=ROWS)]

    nulls = [row for row in range(ROWS) if COLUMNS[column][row % len(COLUMNS[column])] is None]
    assert found == (nulls if wanted else sorted(set(range(ROWS)) - set(nulls)))


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [
        pytest.param("numbers", "2", [1], id="number"),
        pytest.param("numbers", "4", [4], id="number in a nested array"),
        pytest.param("numbers", "9", [], id="missing number"),
        pytest.param("words", "b,c", [1], id="text with a comma"),
        pytest.param("words", "A", [4], id="text with its case"),
        pytest.param("words", "{", [], id="text like a broken array"),
    ],
)
@pytest.mark.parametrize("dialect", ["postgresql"])
def test_array_contains_an_item(column: str, value: str, found: list[int], shop: Shop) -> None:
    condition = {"column": column, "op": "contains", "value": value}

    rows = shop.rows("lists", columns=["id"], where=[condition])

    assert rows == [[each] for each in found]


@pytest.mark.parametrize("operator", [Operator.IN, Operator.NOT_IN])
@pytest.mark.parametrize("column", ["number", "large", "ratio", "price", "word", "day", "content"])
def test_a_thousand_values_are_one_list(column: str, operator: Operator, shop: Shop) -> None:
    values = [_argument(value) for value in COLUMNS[column][1:]]
    filling = {"word": "x{}", "content": base64.b64encode(b"xxx").decode(), "day": "2030-01-01"}.get(
        column, "7{}"
    )
    condition = {
        "column": column,
        "op": operator,
        "values": values + [filling.format(number) for number in range(1_000 - len(values))],
    }

    found = [row[0] for row in shop.rows("chosen", columns=["id"], where=[condition], limit=ROWS)]

    there = [row for row in range(ROWS) if COLUMNS[column][row % len(COLUMNS[column])] is not None]
    assert found == (there if operator is Operator.IN else [])


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_texts_in_a_collation_that_ignores_case_can_be_searched(dialect: str, serve: Serve) -> None:
    ddl = "create table t (id int primary key, v text)"
    with serve(dialect, ddl) as shop:
        try:
            shop.bare.execute(
                "create collation folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
            )
        except asyncpg.FeatureNotSupportedError:
            pytest.skip("this server was built without ICU")
        shop.bare.execute(
            """
            alter table t alter column v type text collate folded;
            insert into t values (1, 'abc'), (2, 'ABC'), (3, 'b');
            """
        )
        shop.refresh()

        outcomes = {
            operator: [
                row[0]
                for row in shop.rows(
                    "t", where=[{"column": "v", "op": operator, "value": "AB"}], order_by=["id"]
                )
            ]
            for operator in TEXTUAL
        }
        equal = shop.rows("t", where=[{"column": "v", "value": "aBc"}], columns=["id"], order_by=["id"])

    assert outcomes == {Operator.CONTAINS: [1, 2], Operator.STARTS_WITH: [1, 2], Operator.ENDS_WITH: []}
    assert equal == [[1], [2]]


AROUND_A_PIECE = "-" * (SEARCHED_BYTES - 3) + "NEEDLE" + "-" * LONG
LONG_TEXTS = (
    AROUND_A_PIECE,
    "needle" + "-" * LONG,
    "-" * LONG + "50%_.*\\é",
    "-" * LONG + "ne.edle",
    "needle",
    "-" * LONG + "nneedlE",
)


@pytest.fixture(scope="module")
def long_texts(serve: Serve) -> Iterator[Shops]:
    """Return texts in which a search must be linear, and a short one."""
    rows = ", ".join(f"({id}, {literal(text)})" for id, text in enumerate(LONG_TEXTS, 1))
    ddl = f"create table t (id int not null primary key, v text); insert into t values {rows}, (7, null);"
    with open_shops(serve, dict.fromkeys(DIALECTS, ddl)) as shops:
        yield shops


@pytest.mark.parametrize(
    ("operator", "value", "found"),
    [
        pytest.param("contains", "nEEdle", [1, 2, 5, 6], id="any case"),
        pytest.param("contains", "", [1, 2, 3, 4, 5, 6], id="nothing"),
        pytest.param("contains", "needles", [], id="longer"),
        pytest.param("contains", "%_.*\\É", [3], id="all signs"),
        pytest.param("contains", "ne.", [4], id="sign of a regular expression"),
        pytest.param("contains", "(", [], id="parenthesis"),
        pytest.param("contains", "***=n", [], id="director"),
        pytest.param("starts_with", "NEEDLE", [2, 5], id="at the beginning"),
        pytest.param("ends_with", "NEEDLE", [5, 6], id="at the end"),
        pytest.param("ends_with", "_.*\\É", [3], id="signs at the end"),
        pytest.param("ends_with", "", [1, 2, 3, 4, 5, 6], id="nothing at the end"),
        pytest.param("ends_with", "-", [1, 2], id="one character"),
    ],
)
def test_long_texts_are_searched_as_short_ones(
    operator: str, value: str, found: list[int], dialect: str, long_texts: Shops
) -> None:
    condition = {"column": "v", "op": operator, "value": value}

    rows = long_texts(dialect).rows("t", columns=["id"], where=[condition])

    assert [id for (id,) in rows] == found


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
def test_long_texts_are_searched_in_any_encoding(encoding: str, serve: Serve) -> None:
    long = f"replace(hex(zeroblob({LONG})), '0', '\u4100')"  # its bytes in UTF-16 are those of an A
    ddl = f"""
    pragma encoding = '{encoding}';
    create table t (id integer primary key, v text);
    insert into t values
        (1, {long} || 'É owl'),
        (2, {long} || char(0) || 'owl'),
        (3, {long} || cast(x'ffd8' as text) || 'owl');
    """
    with serve("sqlite", ddl) as shop:
        found = {
            wanted: [
                id
                for (id,) in shop.rows(
                    "t", columns=["id"], where=[{"column": "v", "op": "contains", "value": wanted}]
                )
            ]
            for wanted in ("a", "É", "OWL", "\u4100")
        }

    # What follows a NUL is not found in short texts either.
    assert found == {"a": [], "É": [1], "OWL": [1, 3], "\u4100": [1, 2, 3]}
