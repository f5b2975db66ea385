"""A PostgreSQL connection keeps prepared statements only up to a number, and up to a length in total."""

from collections.abc import Iterator

import pytest

from dbtools.backends.postgresql.connection.pipeline import MOST_PREPARED, STATEMENTS
from tests.database.shop import Serve, Shop, pool_of

DDL = "create table item (id integer primary key, price numeric); insert into item values (1, 2);"
KEPT = """
select count(*), coalesce(sum(length(statement)), 0) from pg_prepared_statements where statement ~ '"item"'
"""
#: What is closed with the next statement, and what the connection adds to the SQL.
MARGIN = 50_000


@pytest.fixture
def shop(serve: Serve) -> Iterator[Shop]:
    with serve("postgresql", DDL) as shop:
        yield shop


def _kept(shop: Shop) -> tuple[int, int]:
    """Return how many statements the connection keeps, and the characters of their SQL."""

    async def kept() -> tuple[int, int]:
        async with (await pool_of(shop.database)).connection() as connection:
            count, length = await connection.fetchrow(KEPT)
            return int(count), int(length)

    return shop.portal.call(kept)


def test_long_statements_are_kept_up_to_their_length(shop: Shop) -> None:
    for term in ("price", "id", "(price + id)"):
        for number in range(1, 26):
            shop.call("list_item", {"columns": [f"round({term} + {at}, 2) as a{at}" for at in range(number)]})
    count, length = _kept(shop)

    assert 1 < count < 75
    assert MOST_PREPARED / 2 < length < MOST_PREPARED + MARGIN


def test_short_statements_are_kept_up_to_their_number(shop: Shop) -> None:
    for number in range(STATEMENTS // 10):
        for names in (["id"], ["price"], ["id", "price"]):
            shop.call("list_item", {"columns": names, "where": [{"column": "id", "value": "1"}] * number})
    count, length = _kept(shop)

    assert 10 < count <= STATEMENTS
    assert length < MOST_PREPARED + MARGIN
