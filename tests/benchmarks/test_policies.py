"""What a policy costs a call: row filters against the same SQL on the driver, and the log around it."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from dbtools.policy.roles import Caller
from dbtools.records import AuditLog, FileSink
from dbtools.server.calls import Calls, Limiter
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import DatabaseSection, Settings
from dbtools.settings.sections import GrantSection, RoleSection
from tests.benchmarks.bare_drivers import Bare, open_bare
from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure, Work, medians

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]

CALLER = Caller(role="support", claims={"country": "IT"})
BOSS = Caller(role="boss")
SIMPLE = "country = :claims.country"
CORRELATED = "exists (select 1 from customers c where c.id = customer_id and c.country = :claims.country)"
LOOKUPS = {
    "get_customers": "select * from (select * from customers where (country = ?)) as t where id = ?",
    "get_orders": (
        "select * from (select * from orders where (exists (select 1 from customers c "
        "where c.id = customer_id and c.country = ?))) as t where id = ?"
    ),
}
KEYS = {"get_customers": 4711, "get_orders": 94_211}  #: of rows in Italy


@asynccontextmanager
async def _opened(target: Target) -> AsyncIterator[Toolbox]:
    grants = {"customers": GrantSection(where=SIMPLE), "orders": GrantSection(where=CORRELATED)}
    settings = Settings(
        database=DatabaseSection(url=target.url),
        roles={"support": RoleSection(tables=dict(grants)), "boss": RoleSection(tables={"*": True})},
    )
    toolbox, database = open_toolbox(settings)
    try:
        yield toolbox
    finally:
        await database.close()


def _call(toolbox: Toolbox, caller: Caller, tool: str) -> Work:
    async def work() -> object:
        answer = await toolbox.call(caller, tool, {"id": KEYS[tool]})
        assert answer.rows == 1
        return answer

    return work


def _fetch(bare: Bare, tool: str) -> Work:
    async def work() -> object:
        (row,) = await bare.fetch(LOOKUPS[tool], "IT", KEYS[tool])
        return row

    return work


@pytest.mark.parametrize("tool", LOOKUPS)
async def test_filtered_lookup_costs_little_more_than_the_same_on_the_driver(
    shop: Target, report: Report, tool: str
) -> None:
    async with open_bare(shop.url) as bare, _opened(shop) as toolbox:
        found = await medians(
            ours=_call(toolbox, CALLER, tool), floor=_fetch(bare, tool), rounds=15, calls=100
        )

    figure = report(found.figure(f"{tool}, filtered", shop.dialect, floor_is="driver, same SQL"))
    assert figure.ratio < 40


@pytest.mark.parametrize("tool", LOOKUPS)
async def test_filter_costs_a_call_little(shop: Target, report: Report, tool: str) -> None:
    async with _opened(shop) as toolbox:
        found = await medians(
            ours=_call(toolbox, CALLER, tool), floor=_call(toolbox, BOSS, tool), rounds=15, calls=100
        )

    figure = report(found.figure(f"{tool}, filtered", shop.dialect, floor_is="not filtered"))
    assert figure.ratio < 2


async def test_log_and_quotas_cost_a_call_little(shop: Target, report: Report, tmp_path: Path) -> None:
    log = AuditLog([FileSink(tmp_path / "calls.jsonl")], arguments=False)
    async with _opened(shop) as toolbox:
        calls = Calls(toolbox, Limiter(), log)
        arguments = {"id": KEYS["get_customers"]}

        async def work() -> object:
            return await calls.call(BOSS, "get_customers", arguments)

        try:
            found = await medians(
                ours=work, floor=_call(toolbox, BOSS, "get_customers"), rounds=15, calls=100
            )
        finally:
            log.close()

    figure = report(found.figure("get_T, logged", shop.dialect, floor_is="not logged"))
    assert figure.ratio < 2
