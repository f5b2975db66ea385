"""Settings of dbtools' sessions do not show in what callers' SQL computes."""

import random
from typing import Any

import asyncpg
import pytest

from dbtools.backends.postgresql.schema.types import lexis
from dbtools.policy.roles import Grant, Role, Rule, restrict
from dbtools.schema.catalog import RowFilter
from dbtools.schema.sql import scan
from tests.database.postgresql_free_shop import SqlShop, shop

__all__ = ["shop"]

#: Expressions whose text depends on a setting.
TEXTS = (
    "age(date '2024-03-05', date '2023-01-01')::text",
    "(interval '-1 month 2 days -03:04:05.6')::text",
    "to_json(interval '1 year')::text",
    "array[interval '1 day', interval '90 minutes']::text",
    "concat(interval '36 hours', ' ', interval '0')",
    "format('%s', interval '1 day')",
    "row_to_json(row(interval '1 day'))::text",
    "date '2024-03-05'::text",
    "timestamp '2024-03-05 01:02:03.5'::text",
    "timestamptz '2024-03-05 01:02:03+02'::text",
    "'abc'::bytea::text",
    "0.1::float4::text",
    "(0.1::float8 + 0.2::float8)::text",
    "make_interval(days => 2)::text || 'x'",
)


@pytest.mark.parametrize("expression", TEXTS)
def test_text_of_a_value_is_what_the_server_writes_by_default(shop: SqlShop, expression: str) -> None:
    async def default() -> Any:
        # The session of dbtools is in UTC.
        connection = await asyncpg.connect(shop.url, server_settings={"timezone": "UTC"})
        try:
            return await connection.fetchval(f"select {expression}")
        finally:
            await connection.close()

    assert shop.rows(f"select {expression}") == [(shop.portal.call(default),)]


def test_cells_of_intervals_are_in_iso_8601(shop: SqlShop) -> None:
    chance = random.Random(43)
    parts = [
        tuple(chance.choice((0, 0, 1, -1, chance.randint(-most, most))) for most in (40, 70, 400_000_000_000))
        for _ in range(150)
    ]
    texts = [f"{months} months {days} days {seconds} microseconds" for months, days, seconds in parts]

    async def written() -> list[str]:
        connection = await asyncpg.connect(shop.url, server_settings={"intervalstyle": "iso_8601"})
        try:
            return [await connection.fetchval("select $1::text::interval::text", text) for text in texts]
        finally:
            await connection.close()

    columns = ", ".join(f"interval '{text}'" for text in texts)
    assert list(shop.rows(f"select {columns}")[0]) == shop.portal.call(written)


def test_infinite_interval_is_a_cell(shop: SqlShop) -> None:
    answer = shop.answer("select interval 'infinity', interval '-infinity'")

    # PostgreSQL has them from version 17 on.
    assert answer[0] == "sql_refused" or answer[1] == (("infinity", "-infinity"),)


def test_row_filter_means_the_same_as_in_other_tools(shop: SqlShop) -> None:
    condition = scan("(placed - timestamptz '2024-01-01 08:00Z')::text = 'P1DT7H'", lexis)
    rule = Rule(pattern="orders", grant=Grant(filter=RowFilter(condition=condition, total=False)))
    catalog = restrict(shop.whole, Role(rules=(rule,)))

    assert shop.rows("select id from orders", catalog=catalog) == [(1,)]


def test_ambiguous_date_is_refused(shop: SqlShop) -> None:
    assert shop.answer("select '03/04/2024'::date")[0] == "sql_refused"
    assert shop.rows("select '2024-03-04'::date") == [("2024-03-04",)]
