"""What a call costs: in process and over stdio, against the driver alone and the SDK alone."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings
from tests.benchmarks.bare_drivers import Bare, open_bare
from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure, Work, medians
from tests.benchmarks.stdio_client import StdioClient, open_client

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]

MANY = 1_000
DEFAULTS: Mapping[str, int] = {}
ROOMY: Mapping[str, int] = {"max_rows": MANY, "max_tokens": 1_000_000}
POINT = "select * from customers where id = ?"
ROWS = "select * from orders order by id limit ?"
GROUPS = "select status, count(*), sum(unit_price) from orders where id <= ? group by status"
RELATED = """
select id, (select count(*) from orders where customer_id = customers.id) as orders
from customers
where id <= ?
"""
KEY = {"id": 4711}
CONSTANT_SERVER = ("-m", "tests.benchmarks.constant_server")


@asynccontextmanager
async def _opened(target: Target, limits: Mapping[str, int]) -> AsyncIterator[Toolbox]:
    settings = Settings(database=DatabaseSection(url=target.url), limits=LimitsSection.model_validate(limits))
    toolbox, database = open_toolbox(settings)
    try:
        yield toolbox
    finally:
        await database.close()


@asynccontextmanager
async def _served(target: Target, limits: Mapping[str, int], folder: Path) -> AsyncIterator[StdioClient]:
    lines = "".join(f"{name} = {value}\n" for name, value in limits.items())
    file = folder / "dbtools.toml"
    file.write_text(f'[database]\nurl = "{target.url}"\n[limits]\n{lines}')
    async with open_client("-m", "dbtools", "serve", str(file)) as client:
        yield client


def _fetch(bare: Bare, sql: str, value: int) -> Work:
    async def work() -> object:
        return list(await bare.fetch(sql, value))

    return work


def _fetch_and_encode(bare: Bare, sql: str, value: int) -> Work:
    async def work() -> object:
        return orjson.dumps(list(map(tuple, await bare.fetch(sql, value))), default=str)

    return work


def _call(caller: Toolbox | StdioClient, tool: str, arguments: Mapping[str, object]) -> Work:
    async def work() -> object:
        if isinstance(caller, Toolbox):
            return await caller.call(Caller(), tool, arguments)
        return await caller.call(tool, arguments)

    return work


def _at_once(width: int, work: Work) -> Work:
    async def works() -> object:
        return await asyncio.gather(*(work() for _ in range(width)))

    return works


async def test_point_lookup_costs_little_more_than_the_driver(shop: Target, report: Report) -> None:
    async with open_bare(shop.url) as bare, _opened(shop, DEFAULTS) as toolbox:
        lookup = _call(toolbox, "get_customers", KEY)
        found = await medians(ours=lookup, floor=_fetch(bare, POINT, KEY["id"]), rounds=15, calls=100)

    figure = report(found.figure("get_T, in process", shop.dialect, floor_is="driver, same row"))
    assert figure.ratio < 40


async def test_point_lookup_over_stdio_is_within_reach_of_the_driver(
    shop: Target, report: Report, tmp_path: Path
) -> None:
    async with open_bare(shop.url) as bare, _served(shop, DEFAULTS, tmp_path) as client:
        lookup = _call(client, "get_customers", KEY)
        found = await medians(ours=lookup, floor=_fetch(bare, POINT, KEY["id"]), rounds=15, calls=100)

    figure = report(found.figure("get_T, stdio", shop.dialect, floor_is="driver, same row"))
    assert figure.ratio < 80


@pytest.mark.parametrize("at_once", [1, 8])
async def test_point_lookups_cost_little_more_than_constant_answers(
    shop: Target, report: Report, tmp_path: Path, at_once: int
) -> None:
    async with _served(shop, DEFAULTS, tmp_path) as client, open_client(*CONSTANT_SERVER) as constant_server:
        lookups = _at_once(at_once, _call(client, "get_customers", KEY))
        constants = _at_once(at_once, _call(constant_server, "constant", {}))
        found = (await medians(ours=lookups, floor=constants, rounds=15, calls=160 // at_once)) / at_once

    measured = f"get_T, stdio, {at_once} at once, a call"
    figure = report(found.figure(measured, shop.dialect, floor_is="SDK, constant answers"))
    assert figure.ratio < 10


async def test_list_costs_little_more_than_to_fetch_and_to_encode(shop: Target, report: Report) -> None:
    async with open_bare(shop.url) as bare, _opened(shop, ROOMY) as toolbox:
        listing = _call(toolbox, "list_orders", {"limit": MANY})
        found = await medians(ours=listing, floor=_fetch_and_encode(bare, ROWS, MANY), rounds=15, calls=5)

    figure = report(
        found.figure("list_T of 1,000 rows, in process", shop.dialect, floor_is="driver and orjson")
    )
    assert figure.ratio < 20


async def test_list_over_stdio_costs_little_more_than_to_fetch_and_to_encode(
    shop: Target, report: Report, tmp_path: Path
) -> None:
    async with open_bare(shop.url) as bare, _served(shop, ROOMY, tmp_path) as client:
        listing = _call(client, "list_orders", {"limit": MANY})
        found = await medians(ours=listing, floor=_fetch_and_encode(bare, ROWS, MANY), rounds=15, calls=5)

    figure = report(found.figure("list_T of 1,000 rows, stdio", shop.dialect, floor_is="driver and orjson"))
    assert figure.ratio < 30


@pytest.mark.parametrize("expression", ["unit_price", "quantity * unit_price"])
async def test_aggregate_costs_little_more_than_its_statement(
    shop: Target, report: Report, expression: str
) -> None:
    arguments = {
        "table": "orders",
        "group_by": ["status"],
        "measures": [{"function": "count"}, {"function": "sum", "column": expression}],
        "where": [{"column": "id", "op": "lte", "value": MANY}],
    }
    async with open_bare(shop.url) as bare, _opened(shop, DEFAULTS) as toolbox:
        aggregate = _call(toolbox, "aggregate_rows", arguments)
        found = await medians(ours=aggregate, floor=_fetch(bare, GROUPS, MANY), rounds=15, calls=20)

    measured = f"aggregate of {expression}"
    figure = report(found.figure(measured, shop.dialect, floor_is="driver, sum of unit_price"))
    assert figure.ratio < 20


async def test_related_rows_cost_little_more_than_their_statement(shop: Target, report: Report) -> None:
    arguments = {
        "columns": ["id", "count(orders)"],
        "where": [{"column": "id", "op": "lte", "value": 3}],
    }
    async with open_bare(shop.url) as bare, _opened(shop, DEFAULTS) as toolbox:
        listing = _call(toolbox, "list_customers", arguments)
        found = await medians(ours=listing, floor=_fetch(bare, RELATED, 3), rounds=15, calls=5)

    figure = report(found.figure("count(orders), no index", shop.dialect, floor_is="driver, same subquery"))
    assert figure.ratio < 5
