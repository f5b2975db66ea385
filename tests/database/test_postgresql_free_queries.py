"""Queries of analysts on PostgreSQL have the same answers as plain SQL over what the role sees."""

from pathlib import Path

import asyncpg
import pytest

from tests.database.postgresql_free_shop import SqlShop, shop as shop, twin as twin

#: Queries, separated by empty lines. Their rows have a definite order, or there is only one.
QUERIES = (Path(__file__).parent / "postgresql_free_queries.sql").read_text().strip().split("\n\n")


def test_there_are_many_queries() -> None:
    assert len(QUERIES) >= 100


@pytest.mark.parametrize("query", QUERIES, ids=map(str, range(len(QUERIES))))
def test_query_has_the_answer_of_plain_sql_over_visible_data(
    query: str, shop: SqlShop, twin: SqlShop
) -> None:
    text = query.rstrip(";").strip()
    if "regexp_count" in query and twin.portal.call(_version, twin.url) < 15:
        pytest.skip("a function of later versions")
    plain = twin.portal.call(_plain, twin.url, text)

    found = shop.run(query)
    rows = [row[0] for row in shop.rows(f"select cast(q as text) from (\n{text}\n) as q")]

    assert rows == plain
    assert len(found.rows) == len(plain)


async def _plain(url: str, query: str) -> list[str]:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("set timezone = 'UTC'")
        found = await connection.fetch(f"select cast(q as text) as row from (\n{query}\n) as q")
        return [row["row"] for row in found]
    finally:
        await connection.close()


async def _version(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        return connection.get_server_version().major
    finally:
        await connection.close()
