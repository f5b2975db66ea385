"""Expressions, columns compared with columns, and related rows: the same answers on every database."""

import re
from typing import Any

import pytest

from dbtools.errors import CallError
from tests.database.shop import Serve, Shop, rows_of

DDL = """
create table customers (
    id integer not null primary key, name text not null, country text, limit_of decimal(10,2)
);
create table orders (
    id integer not null primary key, customer_id integer references customers (id), ordered_on date,
    shipped_at timestamp, quantity integer, unit_price decimal(10,2), discount double precision, note text
);
create table transfers (
    id integer not null primary key, giver_id integer references customers (id),
    taker_id integer references customers (id), amount decimal(10,2)
);
insert into customers values
    (1, 'Ada', 'UK', 100), (2, 'Ben', 'DE', 20.50), (3, 'Cleo', null, null), (4, 'Dora', 'DE', 0);
insert into orders values
    (10, 1, '2024-02-28', '2024-03-01 12:00:00', 3, 19.99, 0.25, 'gift'),
    (11, 1, '2024-12-31', '2025-01-02 00:00:00', 0, 5.00, null, null),
    (12, 2, '2023-01-15', null, 7, 1.10, 0.5, 'UK'),
    (13, 2, '2024-02-28', '2024-02-28 06:30:00', null, 2.50, 0, 'DE'),
    (14, null, null, '2024-06-01 00:00:00', 2, null, 0.125, '');
insert into transfers values (1, 1, 2, 5), (2, 2, 1, 7.5), (3, 1, 1, 1), (4, 4, 2, 100);
"""


def listed(shop: Shop, table: str, *columns: str, **more: Any) -> list[list[object]]:
    """Return the rows that list_rows gives of *columns*; numbers that are written differently are equal."""
    answer = shop.call("list_rows", {"table": table, "columns": list(columns), **more})
    return [[_plain(cell) for cell in row] for row in rows_of(answer.structured)]


def _plain(cell: object) -> object:
    try:
        return float(str(cell)) if cell is not None and not isinstance(cell, bool) else cell
    except ValueError:
        return re.sub(r"T(?=\d\d:)", " ", str(cell)).removesuffix(" 00:00:00").removesuffix("Z")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("quantity * unit_price", [59.97, 0, 7.7, None, None]),
        ("quantity * unit_price * (1 - discount)", [44.9775, None, 3.85, None, None]),
        ("quantity + 1", [4, 1, 8, None, 3]),
        ("-quantity", [-3, 0, -7, None, -2]),
        ("unit_price / quantity", [6.66333333333333, None, 0.157142857142857, None, None]),
        ("7 / 2", [3.5] * 5),
        ("id / 4", [2.5, 2.75, 3, 3.25, 3.5]),
        ("round(unit_price / 3, 2)", [6.66, 1.67, 0.37, 0.83, None]),
        ("round(discount * 10)", [3, None, 5, 0, 1]),
        ("abs(quantity - 3)", [0, 3, 4, None, 1]),
        ("coalesce(discount, 1)", [0.25, 1, 0.5, 0, 0.125]),
        ("coalesce(note, 'none')", ["gift", "none", "UK", "DE", ""]),
        ("length(note)", [4, None, 2, 2, 0]),
        ("upper(note)", ["GIFT", None, "UK", "DE", ""]),
        ("shipped_at - ordered_on", [2.5, 2, None, 0.270833, None]),
        ("ordered_on + 2", ["2024-03-01", "2025-01-02", "2023-01-17", "2024-03-01", None]),
        (
            "ordered_on + 0.5",
            [
                "2024-02-28 12:00:00",
                "2024-12-31 12:00:00",
                "2023-01-15 12:00:00",
                "2024-02-28 12:00:00",
                None,
            ],
        ),
        ("shipped_at - 1", ["2024-02-29 12:00:00", "2025-01-01", None, "2024-02-27 06:30:00", "2024-05-31"]),
        ("ordered_on + 4000000", [None] * 5),
        ("ordered_on - '2024-01-01'", [58, 365, -351, 58, None]),
        ("(ordered_on + 2):month", ["2024-03", "2025-01", "2023-01", "2024-03", None]),
        ("customer.limit_of - unit_price", [80.01, 95, 19.4, 18, None]),
    ],
)
def test_expression_is_computed_alike(shop: Shop, expression: str, expected: list[object]) -> None:
    assert listed(shop, "orders", expression) == [[each] for each in expected]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (" + ".join(["id"] * 64), [640, 704, 768, 832, 896]),
        (" - ".join(["id"] * 60), [-580, -638, -696, -754, -812]),
        ("- " * 60 + "id", [10, 11, 12, 13, 14]),
        ("(id * " * 8 + "0" + ")" * 8, [0] * 5),
        ("coalesce(quantity, id * " * 8 + "0" + ")" * 8, [3, 0, 7, 0, 2]),
    ],
    ids=["sum", "difference", "signs", "parentheses", "coalesce"],
)
def test_longest_expressions_are_computed(shop: Shop, expression: str, expected: list[object]) -> None:
    condition = {"column": expression, "op": "is_null", "value": "false"}

    assert listed(shop, "orders", expression) == [[each] for each in expected]
    assert len(listed(shop, "orders", "id", where=[condition], order_by=[expression])) == 5


@pytest.mark.parametrize(
    "term",
    [" + ".join(["orders.id"] * 60), "coalesce(orders.quantity, orders.id * " * 7 + "orders.id" + ")" * 7],
    ids=["sum", "coalesce"],
)
def test_longest_measures_of_related_rows_are_computed(shop: Shop, term: str) -> None:
    own = {"column": term.replace("orders.", ""), "op": "gt", "value": "0"}
    where = [{"some": "orders", "where": [own]}]

    assert len(listed(shop, "customers", f"sum({term})", where=where)) == 2


READINGS = """
create table readings (
    id integer not null primary key, ratio double precision, amount numeric, day date,
    first_id integer references readings (id)
);
insert into readings values (1, 0.5, 2, '2024-02-29', 1), (2, null, null, null, 1), (3, {}, {}, {}, 3);
"""
ENDLESS = {
    "sqlite": ("9e999", "'many'", "'someday'"),
    "postgresql": ("'Infinity'", "'NaN'", "'infinity'"),
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("coalesce(ratio, 7)", [0.5, 7, 7]),
        ("coalesce(amount, 7)", [2, 7, 7]),
        ("coalesce(day, '2000-01-01')", ["2024-02-29", "2000-01-01", "2000-01-01"]),
        ("coalesce(ratio, 7) + 1", [1.5, 8, 8]),
        ("max(readings.ratio) + 1", [1.5, None, None]),
        ("coalesce(max(readings.ratio), 7)", [0.5, 7, 7]),
        ("max(readings.day) - '2024-02-28'", [1, None, None]),
        ("coalesce(max(readings.day), '2000-01-01')", ["2024-02-29", "2000-01-01", "2000-01-01"]),
    ],
)
def test_what_is_not_a_number_or_a_date_has_no_value(
    serve: Serve, dialect: str, expression: str, expected: list[object]
) -> None:
    with serve(dialect, READINGS.format(*ENDLESS[dialect])) as shop:
        assert listed(shop, "readings", expression) == [[each] for each in expected]
        assert [str(cell) for (cell,) in listed(shop, "readings", "ratio")][2] == "inf"


@pytest.mark.parametrize(
    ("table", "expression", "expected"),
    [
        ("customers", "count(orders)", [2, 2, 0, 0]),
        ("customers", "count(orders.quantity)", [2, 1, 0, 0]),
        ("customers", "sum(orders.quantity * orders.unit_price)", [59.97, 7.7, None, None]),
        ("customers", "avg(orders.unit_price)", [12.495, 1.8, None, None]),
        ("customers", "min(orders.ordered_on)", ["2024-02-28", "2023-01-15", None, None]),
        ("customers", "sum(coalesce(orders.quantity, 0) + 1)", [5, 9, None, None]),
        ("customers", "max(orders.shipped_at - orders.ordered_on)", [2.5, 0.270833, None, None]),
        ("customers", "count(orders) * 10 + id", [21, 22, 3, 4]),
        ("customers", "count(transfers_by_giver_id)", [2, 1, 0, 1]),
        ("customers", "sum(transfers_by_taker_id.amount)", [8.5, 105, None, None]),
        ("customers", "sum(orders.customer.limit_of)", [200, 41, None, None]),
    ],
)
def test_rows_that_refer_to_a_row_are_counted_and_summed(
    shop: Shop, table: str, expression: str, expected: list[object]
) -> None:
    assert listed(shop, table, expression) == [[each] for each in expected]


@pytest.mark.parametrize(
    ("table", "where", "expected"),
    [
        ("orders", [{"column": "note", "value_column": "customer.country"}], [13]),
        ("orders", [{"column": "discount", "op": "lt", "value_column": "quantity / 10"}], [10, 12, 14]),
        ("orders", [{"column": "shipped_at", "op": "gte", "value_column": "ordered_on + 2"}], [10, 11]),
        ("orders", [{"column": "ordered_on", "op": "lt", "value_column": "shipped_at"}], [10, 11, 13]),
        ("orders", [{"column": "quantity * unit_price", "op": "gt", "value": "5"}], [10, 12]),
        (
            "orders",
            [{"column": "ordered_on:month", "op": "in", "values": ["2024-02", "2023-01"]}],
            [10, 12, 13],
        ),
        (
            "orders",
            [{"any": [{"column": "quantity", "value": "3"}, {"column": "note", "value": "DE"}]}],
            [10, 13],
        ),
        (
            "orders",
            [
                {"column": "unit_price", "op": "gt", "value": "2"},
                {
                    "any": [
                        {"column": "quantity", "value": "3"},
                        {"column": "quantity", "op": "is_null", "value": "true"},
                    ]
                },
            ],
            [10, 13],
        ),
        ("customers", [{"none": "orders"}], [3, 4]),
        ("customers", [{"some": "orders"}], [1, 2]),
        ("customers", [{"some": "orders", "where": [{"column": "note", "value": "gift"}]}], [1]),
        (
            "customers",
            [{"none": "orders", "where": [{"column": "ordered_on:year", "value": "2023"}]}],
            [1, 3, 4],
        ),
        (
            "customers",
            [
                {
                    "some": "orders",
                    "where": [{"column": "quantity", "value": "7"}, {"column": "note", "value": "DE"}],
                }
            ],
            [],
        ),
        (
            "customers",
            [
                {
                    "some": "orders",
                    "match": "any",
                    "where": [{"column": "quantity", "value": "7"}, {"column": "note", "value": "gift"}],
                }
            ],
            [1, 2],
        ),
        ("customers", [{"some": "orders", "where": [{"any": [{"column": "quantity", "value": "7"}]}]}], [2]),
        (
            "customers",
            [{"some": "transfers_by_giver_id", "where": [{"column": "amount", "op": "gt", "value": "50"}]}],
            [4],
        ),
        (
            "customers",
            [{"column": "count(orders)", "op": "gte", "value": "2"}, {"column": "country", "value": "DE"}],
            [2],
        ),
    ],
)
def test_condition_leaves_the_rows_that_meet_it(
    shop: Shop, table: str, where: list[dict[str, Any]], expected: list[int]
) -> None:
    assert listed(shop, table, "id", where=where) == [[each] for each in expected]


def test_alternatives_beside_conditions_of_which_any_may_hold(shop: Shop) -> None:
    where = [{"none": "orders"}, {"any": [{"column": "id", "value": "1"}]}]

    assert listed(shop, "customers", "id", where=where, match="any") == [[1], [3], [4]]


def test_name_of_an_expression_stands_in_the_answer_and_in_the_order(shop: Shop) -> None:
    asked = {"table": "orders", "columns": ["id", "quantity * unit_price as net"], "order_by": ["net desc"]}
    answer = shop.call("list_rows", asked).structured

    assert answer["columns"] == ["id", "net"]
    assert [row[0] for row in rows_of(answer)] == [10, 12, 11, 14, 13]


def test_pages_go_on_in_the_order_of_an_expression(shop: Shop) -> None:
    asked: dict[str, object] = {
        "table": "orders",
        "columns": ["id"],
        "order_by": ["quantity * 2 desc"],
        "limit": 2,
    }
    found, cursor = [], None
    while True:
        page = shop.call("list_rows", asked | ({"cursor": cursor} if cursor else {})).structured
        found += [row[0] for row in rows_of(page)]
        cursor = page.get("next_cursor")
        if not cursor:
            break

    assert found == [12, 10, 14, 11, 13]


@pytest.mark.parametrize("offset", range(6))
def test_offset_begins_where_pages_would_have_come(shop: Shop, offset: int) -> None:
    rows = listed(shop, "orders", "id", limit=2, offset=offset)

    assert rows == [[each] for each in (10, 11, 12, 13, 14)][offset : offset + 2]


def grouped(shop: Shop, table: str, **asked: Any) -> list[list[object]]:
    """Return the rows of aggregate_rows."""
    answer = shop.call("aggregate_rows", {"table": table, **asked})
    return [[_plain(cell) for cell in row] for row in rows_of(answer.structured)]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (
            {"table": "orders", "measures": [{"function": "sum", "column": "quantity * unit_price"}]},
            [[67.67]],
        ),
        (
            {"table": "orders", "group_by": ["quantity * 2 > 5"], "measures": [{"function": "count"}]},
            "bad_argument",
        ),
        (
            {"table": "orders", "group_by": ["quantity + 1 - 1"], "measures": [{"function": "count"}]},
            [[0, 1], [2, 1], [3, 1], [7, 1], [None, 1]],
        ),
        (
            {"table": "customers", "group_by": ["count(orders)"], "measures": [{"function": "count"}]},
            [[0, 2], [2, 2]],
        ),
        (
            {"table": "customers", "measures": [{"function": "max", "column": "sum(orders.quantity)"}]},
            [[7]],
        ),
        (
            {"table": "orders", "measures": [{"function": "count_distinct", "column": "ordered_on:year"}]},
            [[2]],
        ),
        (
            {
                "table": "orders",
                "group_by": ["(ordered_on + 2):month as due"],
                "measures": [{"function": "count"}],
                "order_by": ["due desc"],
            },
            [["2025-01", 1], ["2024-03", 2], ["2023-01", 1], [None, 1]],
        ),
        ({"table": "orders", "group_by": ["customer.country"]}, [["DE"], ["UK"], [None]]),
        ({"table": "orders", "group_by": ["id"], "offset": 3, "limit": 1}, [[13]]),
    ],
)
def test_groups_and_measures_take_expressions(shop: Shop, asked: dict[str, Any], expected: Any) -> None:
    if isinstance(expected, str):
        with pytest.raises(CallError) as caught:
            grouped(shop, **asked)

        assert caught.value.code == expected
    else:
        assert grouped(shop, **asked) == expected


def test_texts_of_two_collations_are_joined_and_ordered(serve: Serve) -> None:
    ddl = """
    create table words (id integer primary key, one text collate "C", other text collate "POSIX");
    insert into words values (1, null, 'b'), (2, 'a', 'c');
    """
    with serve("postgresql", ddl) as shop:
        rows = listed(shop, "words", "coalesce(one, other)", order_by=["coalesce(one, other)"])

    assert rows == [["a"], ["b"]]
