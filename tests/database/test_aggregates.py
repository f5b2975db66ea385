"""`aggregate_rows` computes the same as Python over all rows."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given

from dbtools.errors import OutOfRange
from dbtools.expressions.terms import Bucket
from dbtools.settings import LimitsSection
from tests.database.python_aggregates import (
    COUNTS,
    DATES,
    EXAMPLES,
    KINDS,
    ROWS,
    TEXT,
    Asked,
    Row,
    calls,
    grouped,
    insert,
    means,
)
from tests.database.shop import Serve, Shop, Shops, open_shops, rows_of
from tests.database.test_values import examples

CALENDAR = "create table calendar (id int primary key, day date, moment timestamp);"


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Yield a table with a column of each kind, and one of dates."""
    columns = ", ".join(f"{name} {kind.declared}" for name, kind in KINDS.items())
    ddl = {
        dialect: f"create table facts ({columns.format(text=text)}); {CALENDAR}"
        for dialect, text in TEXT.items()
    }
    with open_shops(serve, ddl, limits=LimitsSection(max_rows=1_000, max_tokens=1_000_000)) as shops:
        yield shops


@examples(EXAMPLES)
@given(rows=ROWS, asked=calls(KINDS))
def test_answer_is_what_python_computes_over_all_rows(rows: list[Row], asked: Asked, shop: Shop) -> None:
    shop.bare.execute("delete from facts")
    insert(shop, "facts", rows)
    expected = asked.answer(rows, lambda row, name: row[name])

    page = shop.call("aggregate_rows", asked.arguments("facts")).structured

    assert asked.read(rows_of(page), KINDS) == means(expected[: asked.limit])
    assert page["columns"] == asked.names()
    assert page["row_count"] == len(rows_of(page))
    assert page["truncated"] is (len(expected) > asked.limit)


def test_buckets_are_those_of_the_calendar(shop: Shop) -> None:
    turns = [date(year, 12, 24) + timedelta(days=days) for year in range(1990, 2040) for days in range(16)]
    first = [date.min + timedelta(days=days) for days in range(9)]
    last = [date.max - timedelta(days=days) for days in range(9)]
    days = [*first, *turns, *last]
    moments = [datetime(day.year, day.month, day.day, at % 24, 59, 59) for at, day in enumerate(days)]
    rows = [{"id": at, "day": day, "moment": moments[at]} for at, day in enumerate(days)]
    shop.bare.execute("delete from calendar")
    insert(shop, "calendar", rows)
    groups = [*(f"day:{bucket}" for bucket in DATES), *(f"moment:{bucket}" for bucket in Bucket)]

    answer = shop.call(
        "aggregate_rows",
        {
            "table": "calendar",
            "group_by": ["id", *groups],
            "measures": [{"function": "count"}],
            "limit": 1_000,
        },
    )

    assert rows_of(answer.structured) == [
        [row["id"], *(grouped(row, group, lambda row, name: row[name]) for group in groups), 1]
        for row in rows
    ]


def test_moments_with_an_offset_are_bucketed_in_utc(dialect: str, serve: Serve) -> None:
    ddl = """
    create table t (v timestamp with time zone);
    insert into t values ('2024-01-01 00:30:00+02:00'), ('2024-12-29 22:30:00-03:30'), ('2024-06-30 12:00Z')
    """
    groups = ["v:day", "v:week", "v:hour"]
    with serve(dialect, ddl) as shop:
        page = shop.call(
            "aggregate_rows", {"table": "t", "group_by": groups, "measures": [{"function": "count"}]}
        )

    assert rows_of(page.structured) == [
        ["2023-12-31", "2023-W52", "22", 1],
        ["2024-06-30", "2024-W26", "12", 1],
        ["2024-12-30", "2025-W01", "02", 1],
    ]


def test_what_is_no_date_is_in_no_bucket(serve: Serve) -> None:
    broken = (
        *("'now'", "'2024-02-30'", "'2023-02-29'", "'2024-13-01'", "'2024-1-5'", "' 2024-03-05'", "'12:30'"),
        *("''", "'2459000.5'", "1700000000", "2459000.5", "x'323032342d30332d3035'", "null", "9e999"),
        *("'2024-03-05 25:00'", "'2024-03-05 noon'", "'+2024-03-05'", "'-2024-03-05'", "'12024-03-05'"),
    )
    right = ("'2024-03-05'", "'2024-03-05T14:30:00.123Z'", "'2024-03-05 14:30'")
    values = ", ".join(f"({value}, {value}, {value})" for value in (*broken, *right))
    ddl = f"create table t (day date, word text, plain); insert into t values {values}"
    with serve("sqlite", ddl) as shop:
        found = {
            group: rows_of(
                shop.call(
                    "aggregate_rows", {"table": "t", "group_by": [group], "measures": [{"function": "count"}]}
                ).structured
            )
            for group in _every(("day", "word", "plain"), ("year", "month", "week", "weekday"))
        }

    shown = {"year": "2024", "month": "2024-03", "week": "2024-W10", "weekday": "2"}
    assert found == {
        group: [[shown[group.partition(":")[2]], len(right)], [None, len(broken)]] for group in found
    }


def _every(columns: Sequence[str], buckets: Sequence[str]) -> list[str]:
    """Return every bucket of every column."""
    return [f"{column}:{bucket}" for column in columns for bucket in buckets]


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_means_of_large_integers_keep_their_digits(shop: Shop) -> None:
    numbers = [2**58 + 1, -(2**58), 2**53 + 1, -(2**53)]
    shop.bare.execute("delete from facts")
    insert(shop, "facts", [{"large": number} for number in numbers])

    [[mean]] = _computed(shop, "facts", {"function": "avg", "column": "large"})

    assert float(str(mean)) == sum(numbers) / len(numbers)


def test_sum_of_many_decimals_has_no_error_of_binary_fractions(dialect: str, serve: Serve) -> None:
    ddl = """
    create table t (v decimal(10,2));
    insert into t
    with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 10000)
    select 99999999.99 from numbers;
    """
    measures = [{"function": function, "column": "v"} for function in ("sum", "avg")]
    with serve(dialect, ddl) as shop:
        [sums] = _computed(shop, "t", *measures)

    assert [Decimal(str(each)) for each in sums] == [Decimal("999999999900.00"), Decimal("99999999.99")]


def test_there_is_one_row_where_nothing_is_grouped(shop: Shop) -> None:
    shop.bare.execute("delete from facts")
    pairs = [(function, name) for name, kind in KINDS.items() for function in kind.functions]

    rows = _computed(
        shop, "facts", *({"function": function, "column": name} for function, name in pairs[:32])
    )

    assert rows == [[0 if function in COUNTS else None for function, _ in pairs[:32]]]


@pytest.mark.parametrize(
    ("dialect", "declared", "value"),
    [
        pytest.param("sqlite", "bigint", "9223372036854775807", id="sqlite integers"),
        pytest.param("postgresql", "float8", "1e308", id="numbers"),
        pytest.param("postgresql", "interval", "'178000000 years'", id="intervals"),
    ],
)
def test_sum_that_is_too_large_is_an_error_that_says_so(
    dialect: str, declared: str, value: str, serve: Serve
) -> None:
    ddl = f"create table t (v {declared}); insert into t values ({value}), ({value})"
    with serve(dialect, ddl) as shop, pytest.raises(OutOfRange):
        _computed(shop, "t", {"function": "sum", "column": "v"})


def test_answer_that_is_too_long_is_truncated(dialect: str, serve: Serve) -> None:
    words = ", ".join(f"('{at:03}{'x' * 97}')" for at in range(100))
    ddl = f"create table t (v varchar(100)); insert into t values {words}"
    limits = LimitsSection(max_tokens=2_000)
    with serve(dialect, ddl, limits=limits) as shop:
        answer = shop.call(
            "aggregate_rows",
            {"table": "t", "group_by": ["v"], "measures": [{"function": "count"}], "limit": 100},
        )

    rows = rows_of(answer.structured)
    assert rows == [[f"{at:03}{'x' * 97}", 1] for at in range(len(rows))]
    assert 0 < len(rows) < 100
    assert answer.structured["truncated"] is True
    assert len(answer.text.encode()) <= 3 * limits.max_tokens


def _computed(shop: Shop, table: str, *measures: Mapping[str, object]) -> list[list[object]]:
    """Return the rows of *measures* over all of *table*."""
    return rows_of(shop.call("aggregate_rows", {"table": table, "measures": list(measures)}).structured)
