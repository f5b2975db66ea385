"""Expressions on SQLite over cells whose type differs from the declared one."""

import pytest

from tests.database.shop import Serve


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n + 1", None),
        ("-n", None),
        ("abs(n)", None),
        ("round(n)", None),
        ("coalesce(n, 0)", 0),
        ("a + n", None),
        ("abs(a)", None),
        ("coalesce(a, 0)", 0),
        ("d - e", None),
        ("d + 1", None),
        ("coalesce(d, e)", "2024-03-04"),
    ],
)
def test_text_that_is_not_utf_8_is_no_number_and_no_date(
    serve: Serve, expression: str, expected: object
) -> None:
    ddl = """
    create table t (id integer primary key, n integer, d date, e date, a);
    insert into t values (1, cast(x'ff' as text), cast(x'ff' as text), '2024-03-04', cast(x'ff' as text));
    """
    with serve("sqlite", ddl) as shop:
        answer = shop.call("list_rows", {"table": "t", "columns": [expression]})
        compared = [{"column": "d", "op": "lt", "value_column": "e"}]

        assert answer.structured["rows"] == [[expected]]
        assert shop.call("list_rows", {"table": "t", "where": compared}).structured["rows"] == []


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + 1", [6, None, None, 3.5]),
        ("abs(a)", [5, None, None, 2.5]),
        ("coalesce(a, 0)", [5, 0, 0, 2.5]),
        ("d - a", [None, 1.0, None, None]),
        ("d + a", ["2024-03-11", None, None, "2024-03-08 12:00:00"]),
    ],
)
def test_column_of_no_type_holds_numbers_and_dates(
    serve: Serve, expression: str, expected: list[object]
) -> None:
    ddl = """
    create table t (id integer primary key, a, d date);
    insert into t values (1, 5, '2024-03-06'), (2, '2024-03-05', '2024-03-06'),
        (3, cast('2024-03-05' as blob), '2024-03-06'), (4, 2.5, '2024-03-06');
    """
    with serve("sqlite", ddl) as shop:
        answer = shop.call("list_rows", {"table": "t", "columns": [expression], "order_by": ["id"]})

        assert answer.structured["rows"] == [[each] for each in expected]
