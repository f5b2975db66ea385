"""How much memory a server uses for a list over 200,000 rows."""

from collections.abc import Callable

import pytest

from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure
from tests.benchmarks.process_memory import forget_peak, peak, resident
from tests.benchmarks.stdio_client import StdioClient, open_client, open_process

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]

MOST = 10 * 2**20
#: a bare driver that fetches all, and says how much that took
FETCH_ALL = """
import asyncio, sys, psutil
from tests.benchmarks.bare_drivers import open_bare
async def main():
    async with open_bare(sys.argv[1]) as bare:
        await bare.fetch("select * from orders limit 1")
        before = psutil.Process().memory_info().rss
        rows = list(await bare.fetch("select * from orders"))
        print(psutil.Process().memory_info().rss - before, flush=True)
asyncio.run(main())
"""
CALLS: tuple[dict[str, object], ...] = (
    {},
    {"limit": 200},
    {"limit": 200, "order_by": ["note desc", "unit_price"]},
    {"limit": 200, "where": [{"column": "note", "op": "contains", "value": "9"}]},
    {"limit": 200, "where": [{"column": "id", "op": "gt", "value": 190_000}]},
)


async def test_list_over_many_rows_takes_no_more_memory_than_its_page(shop: Target, report: Report) -> None:
    async with open_client("-m", "dbtools", "serve", shop.url) as client:
        await client.call("list_orders", {"limit": 1})
        grown = await _growth(client)
    fetched = await _growth_of_fetching_all(shop)

    report(
        Figure(
            measured="memory of lists over 200,000 rows",
            dialect=shop.dialect,
            ours=grown,
            floor=fetched,
            floor_is="driver, all rows at once",
            unit="bytes",
        )
    )
    assert grown < MOST


async def _growth(client: StdioClient) -> int:
    before = resident(client.pid)
    forget_peak(client.pid)
    for arguments in CALLS:
        await client.call("list_orders", arguments)
    return max(peak(client.pid), resident(client.pid)) - before


async def _growth_of_fetching_all(shop: Target) -> int:
    async with open_process("-c", FETCH_ALL, shop.url) as process:
        assert process.stdout is not None
        return int(await process.stdout.readline())
