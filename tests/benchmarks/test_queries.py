"""What a permitted query costs, in process and over stdio, against the same SQL on the driver alone."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import load
from tests.benchmarks.bare_drivers import Bare, open_bare
from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure, Work, medians
from tests.benchmarks.stdio_client import StdioClient, open_client

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]

SQL = "select id, name, email, country from customers where id = ?"
QUERY = f"""
-- name: customer
-- returns: one
-- param id: integer
-- param country: text?
{SQL.replace("?", ":id")} /*? and country = :country ?*/
"""
KEY = 4711


def _configured(target: Target, folder: Path) -> Path:
    (folder / "queries").mkdir()
    (folder / "queries" / "customer.sql").write_text(QUERY)
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{target.url}"\n[queries]\ndirectory = "queries"\n')
    return path


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[Toolbox]:
    toolbox, database = open_toolbox(load(path))
    try:
        yield toolbox
    finally:
        await database.close()


def _fetch(bare: Bare) -> Work:
    async def work() -> object:
        return list(await bare.fetch(SQL, KEY))

    return work


def _call(caller: Toolbox | StdioClient) -> Work:
    async def work() -> object:
        if isinstance(caller, Toolbox):
            return await caller.call(Caller(), "customer", {"id": KEY})
        return await caller.call("customer", {"id": KEY})

    return work


async def test_permitted_lookup_costs_little_more_than_the_driver(
    shop: Target, report: Report, tmp_path: Path
) -> None:
    path = _configured(shop, tmp_path)
    async with open_bare(shop.url) as bare, _opened(path) as toolbox:
        answer = await toolbox.call(Caller(), "customer", {"id": KEY})
        found = await medians(ours=_call(toolbox), floor=_fetch(bare), rounds=15, calls=100)

    assert '"id":4711' in answer.text
    figure = report(found.figure("permitted query, in process", shop.dialect, floor_is="driver, same SQL"))
    assert figure.ratio < 40


async def test_permitted_lookup_over_stdio_is_within_reach_of_the_driver(
    shop: Target, report: Report, tmp_path: Path
) -> None:
    path = _configured(shop, tmp_path)
    async with open_bare(shop.url) as bare, open_client("-m", "dbtools", "serve", str(path)) as client:
        found = await medians(ours=_call(client), floor=_fetch(bare), rounds=15, calls=100)

    figure = report(found.figure("permitted query, stdio", shop.dialect, floor_is="driver, same SQL"))
    assert figure.ratio < 80
