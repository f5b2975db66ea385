"""Pages: the total order of a table, the place after a row, and the cursor that holds it."""

import base64
import math
from dataclasses import replace

import orjson
import pytest
from hypothesis import given, strategies as st

from dbtools.errors import BadCursor
from dbtools.schema.catalog import Key, Table
from dbtools.statements.paging import (
    LONGEST_KEY,
    MOST_SKIPPED,
    Position,
    TotalOrder,
    after_position,
    digest,
    next_position,
    read_cursor,
    total_order,
    write_cursor,
)
from dbtools.statements.select import Direction, Order
from dbtools.values.types import Family
from tests.unit.shop import ORDER_LINE, PRODUCT, SALE, TYPES, column, table

MARK = "0123456789ab"
LENIENT = replace(TYPES[Family.ANY], lenient=True)


def _total(*families: Family, nullable: bool = True) -> TotalOrder:
    return TotalOrder(
        order=tuple(
            Order(term=column(f"k{at}", family, nullable=nullable)) for at, family in enumerate(families)
        ),
        keyset=True,
    )


def _named(total: TotalOrder) -> tuple[list[str], bool]:
    return [f"{step.term.name} {step.direction}" for step in total.order], total.keyset


def _by(table: Table, name: str, direction: Direction = Direction.ASC) -> Order:
    return Order(term=table.column_by_name[name], direction=direction)


UNIQUE_CODE = column("code", nullable=False)
NULLABLE_ID = column("id", Family.INTEGER)
ITEMS = column("items", Family.ARRAY, nullable=False)
FLAG = column("flag", Family.BOOLEAN)


@pytest.mark.parametrize(
    ("of", "wanted", "order", "keyset"),
    [
        pytest.param(PRODUCT, [], ["id asc"], True, id="key"),
        (PRODUCT, [("price", "desc")], ["price desc", "id desc"], True),
        (PRODUCT, [("price", "desc"), ("name", "asc")], ["price desc", "name asc", "id asc"], True),
        pytest.param(PRODUCT, [("id", "desc")], ["id desc"], True, id="by the key"),
        pytest.param(ORDER_LINE, [], ["order_id asc", "product_id asc"], True, id="composite key"),
        (ORDER_LINE, [("product_id", "desc")], ["product_id desc", "order_id desc"], True),
        pytest.param(SALE, [], ["day asc", "total asc"], False, id="no key"),
        pytest.param(SALE, [("total", "desc")], ["total desc", "day desc"], False, id="no key, ordered"),
        pytest.param(table(NULLABLE_ID, FLAG), [], ["id asc", "flag asc"], False, id="key that may be null"),
        (table(NULLABLE_ID, row_identifier="rowid"), [], ["id asc", "rowid asc"], True),
        pytest.param(
            table(NULLABLE_ID, FLAG, row_identifier="rowid"),
            [("flag", "desc")],
            ["flag desc", "rowid desc"],
            True,
            id="row identifier, ordered",
        ),
        (replace(SALE, row_identifier="rowid"), [], ["rowid asc"], True),
        pytest.param(
            table(
                NULLABLE_ID, UNIQUE_CODE, keys=(Key(columns=("id",), primary=True), Key(columns=("code",)))
            ),
            [],
            ["code asc"],
            True,
            id="another unique key",
        ),
        pytest.param(table(ITEMS, key=("items",)), [], ["items asc"], False, id="key that is an array"),
        pytest.param(
            table(column("id", nullable=False, type=replace(TYPES[Family.OTHER], ordered=False))),
            [],
            ["id asc"],
            False,
            id="key without an order",
        ),
    ],
)
def test_order_has_no_ties(of: Table, wanted: list[tuple[str, str]], order: list[str], keyset: bool) -> None:
    steps = tuple(_by(of, name, Direction(direction)) for name, direction in wanted)

    assert _named(total_order(of, steps)) == (order, keyset)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=LONGEST_KEY),
    st.binary(max_size=LONGEST_KEY),
)


@given(values=st.lists(VALUES, min_size=1, max_size=4).map(tuple), skip=st.integers(0, MOST_SKIPPED))
def test_cursor_is_read_as_it_was_written(values: tuple[object, ...], skip: int) -> None:
    total = TotalOrder(
        order=tuple(Order(term=column(f"k{at}", type=LENIENT)) for at in range(len(values))), keyset=True
    )
    position = Position(values=values, skip=skip)
    read = read_cursor(write_cursor(position, MARK), MARK, total)
    assert read.values is not None

    assert read == position
    assert [value.__class__ for value in read.values] == [value.__class__ for value in values]


@pytest.mark.parametrize(
    ("family", "value"),
    [(Family.DATE, day) for day in ("0044-03-15 BC", "infinity", "-infinity", "12024-01-31")]
    + [(Family.NUMBER, math.nan)],
)
def test_cursor_takes_values_that_only_some_databases_have(family: Family, value: object) -> None:
    infinite = column("k", type=replace(TYPES[family], infinite=True))
    total = TotalOrder(order=(Order(term=infinite),), keyset=True)

    assert repr(read_cursor(write_cursor(Position(values=(value,)), MARK), MARK, total).values) == repr(
        (value,)
    )


@pytest.mark.parametrize(
    ("family", "value"),
    [
        (Family.INTEGER, -(2**63)),
        (Family.INTEGER, 2**63 - 1),
        (Family.NUMBER, 1),
        (Family.NUMBER, 1.5),
        (Family.DECIMAL, "19.90"),
        (Family.BOOLEAN, False),
        (Family.TEXT, ""),
        (Family.ENUM, "small"),
        (Family.DATE, "2024-03-05"),
        (Family.TIME, "14:30:00.5"),
        (Family.TIMESTAMP, "2024-03-05T14:30:00"),
        (Family.TIMESTAMPTZ, "2024-03-05T14:30:00.123456Z"),
        (Family.INTERVAL, "1 year -2 days +04:05:06.7"),
        (Family.UUID, "3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f"),
        (Family.BYTES, b"\xff\x00"),
        (Family.OTHER, "10.0.0.1"),
        (Family.ANY, "x"),
        (Family.ANY, 1),
        (Family.ANY, b"x"),
    ],
)
def test_cursor_takes_what_its_column_holds(family: Family, value: object) -> None:
    position = Position(values=(value,))

    assert read_cursor(write_cursor(position, MARK), MARK, _total(family)) == position


@pytest.mark.parametrize(
    ("family", "value"),
    [
        (Family.INTEGER, True),
        (Family.INTEGER, 2**63),
        (Family.NUMBER, True),
        (Family.DECIMAL, "x"),
        (Family.TEXT, "a\0b"),
        (Family.ENUM, "medium"),
        (Family.DATE, "2024-02-30"),
        (Family.DATE, "infinity"),
        (Family.UUID, "x"),
        (Family.ANY, 2**63),
        (Family.ANY, "a\0b"),
    ],
)
def test_cursor_with_a_value_that_its_column_cannot_hold_is_forged(family: Family, value: object) -> None:
    with pytest.raises(BadCursor):
        read_cursor(write_cursor(Position(values=(value,)), MARK), MARK, _total(family))


def _encoded(content: object) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(content)).decode().rstrip("=")


GENUINE = write_cursor(Position(values=(1,)), MARK)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x", id="one letter"),
        pytest.param("not a cursor", id="words"),
        pytest.param("🙂", id="emoji"),
        pytest.param("%%%%", id="no base64"),
        pytest.param(GENUINE[:-3], id="truncated"),
        pytest.param(GENUINE + "AAAA", id="longer"),
        pytest.param("A" * 1_000_000, id="huge"),
        pytest.param(base64.urlsafe_b64encode(b"[" * 100_000).decode(), id="deep"),
        pytest.param(_encoded(None), id="null"),
        pytest.param(_encoded(1), id="number"),
        pytest.param(_encoded("abc"), id="text of three"),
        pytest.param(_encoded({"a": 1, "b": 2, "c": 3}), id="object of three"),
        pytest.param(_encoded([MARK, 0]), id="too few parts"),
        pytest.param(_encoded([MARK, 0, [1], 0]), id="too many parts"),
        pytest.param(_encoded([MARK, -1, None]), id="negative"),
        pytest.param(_encoded([MARK, MOST_SKIPPED + 1, None]), id="beyond the most"),
        pytest.param(_encoded([MARK, True, None]), id="boolean"),
        pytest.param(_encoded([MARK, 1.0, None]), id="float"),
        pytest.param(_encoded([MARK, "1", None]), id="text"),
        pytest.param(_encoded([MARK, 0, 1]), id="values that are no list"),
        pytest.param(_encoded([MARK, 0, []]), id="no values"),
        pytest.param(_encoded([MARK, 0, [1, 2]]), id="too many values"),
        pytest.param(_encoded([MARK, 0, [[1]]]), id="list for a value"),
        pytest.param(_encoded([MARK, 0, [{"x": 1}]]), id="object for a value"),
        pytest.param(_encoded([MARK, 0, [{"b": "!"}]]), id="bytes that are no base64"),
        pytest.param(_encoded([MARK, 0, [{"f": "x"}]]), id="float that is none"),
        pytest.param(_encoded([MARK, 0, [{"s": "7aCA"}]]), id="half a surrogate pair"),
        pytest.param(_encoded([MARK, 0, [None]]), id="null where none is"),
        pytest.param(_encoded(["", 0, None]), id="no mark"),
        pytest.param(_encoded([None, 0, [1]]), id="null for a mark"),
        pytest.param(write_cursor(Position(values=(1,)), "another"), id="foreign"),
    ],
)
def test_cursor_that_was_not_given_is_refused(text: str) -> None:
    with pytest.raises(BadCursor) as raised:
        read_cursor(text, MARK, _total(Family.INTEGER, nullable=False))

    assert raised.value.code == "bad_cursor"
    assert "cursor" in raised.value.message


def test_values_are_refused_where_pages_are_counted() -> None:
    counted = replace(_total(Family.INTEGER), keyset=False)

    assert read_cursor(_encoded([MARK, 7, None]), MARK, counted) == Position(skip=7)
    with pytest.raises(BadCursor):
        read_cursor(GENUINE, MARK, counted)


CONTENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=8),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.sampled_from("bfsx"), parts, max_size=2),
    max_leaves=6,
)


@given(
    st.text(max_size=40)
    | CONTENTS.map(_encoded)
    | st.tuples(st.just(MARK), st.integers(-1, 9), st.lists(CONTENTS, max_size=2)).map(_encoded)
)
def test_any_text_is_a_position_or_a_bad_cursor(text: str) -> None:
    total = _total(Family.INTEGER)
    try:
        position = read_cursor(text, MARK, total)
    except BadCursor:
        return

    assert position.skip >= 0
    assert position.values is None or all(
        value is None or (isinstance(value, int) and -(2**63) <= value < 2**63) for value in position.values
    )


def test_digest_tells_tables_conditions_and_orders_apart() -> None:
    parts: list[tuple[object, ...]] = [
        ("t", [["a", "eq", "1", None]], "all", [["id", "asc"]]),
        ("u", [["a", "eq", "1", None]], "all", [["id", "asc"]]),
        ("t", [["a", "eq", "2", None]], "all", [["id", "asc"]]),
        ("t", [["a", "eq", None, ("1",)]], "all", [["id", "asc"]]),
        ("t", [["a", "eq", "1", None]], "any", [["id", "asc"]]),
        ("t", [["a", "eq", "1", None]], "all", [["id", "desc"]]),
    ]

    assert len({digest(*each) for each in parts}) == len(parts)
    assert digest(*parts[0]) == digest(*parts[0])


@pytest.mark.parametrize(
    ("last", "position", "expected"),
    [
        pytest.param([1, None], Position(), Position(values=(1, None)), id="after the row"),
        pytest.param([1, "x" * 400], Position(skip=3), Position(values=(1, "x" * 400)), id="longest"),
        *(
            pytest.param([1, each], Position(), Position(skip=5), id=f"no key {each[:1]!r}")
            for each in ("x" * 401, b"x" * 401, "a\0", "\udc80", ["x"])
        ),
        ([1, "x" * 401], Position(values=(0, "a"), skip=2), Position(values=(0, "a"), skip=7)),
    ],
)
def test_next_page_begins_after_the_last_row_or_is_counted(
    last: list[object], position: Position, expected: Position
) -> None:
    total = _total(Family.INTEGER, Family.TEXT)

    assert next_position(total, position, 5, last) == expected
    assert next_position(replace(total, keyset=False), Position(skip=10), 5, []) == Position(skip=15)


def test_place_after_a_row_binds_its_values() -> None:
    assert after_position(Position()) == ((), {})
    assert after_position(Position(values=("9.90", 7))) == (("k0", "k1"), {"k0": "9.90", "k1": 7})
    assert after_position(Position(values=(None, 7), skip=2)) == ((None, "k1"), {"k1": 7, "skip": 2})
