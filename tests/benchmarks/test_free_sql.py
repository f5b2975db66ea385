"""What ad-hoc SQL costs: beside the driver, for other tools, and for other callers while it is hostile."""

import asyncio
import os
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from itertools import count, cycle

import pytest

from dbtools import errors
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings
from dbtools.settings.sections import ToolsSection
from tests.benchmarks.bare_drivers import Bare, open_bare
from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure, Work, medians
from tests.benchmarks.process_memory import forget_peak, peak, resident

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]

STATEMENTS = {
    "point query": "select * from customers where id = {}",
    "join of three tables": (
        "select c.name, o.id, o.unit_price, p.status from orders o join customers c on c.id = o.customer_id "
        "join orders p on p.id = o.id + 1 where o.id between {0} and {0} + 19 order by o.id"
    ),
}
CALLS = {
    "get_T": ("get_customers", {"id": 4711}),
    "list_T of 20 rows": ("list_orders", {"limit": 20}),
}
READS = "grant select on all tables in schema public to {}"
ENDLESS = "with recursive t (n) as (select 1 union all select n + 1 from t) select max(n) from t"
NUMBERS = "with recursive t (n) as (select 1 union all select n + 1 from t where n < 1000000) "
ANYWHERE = (
    ENDLESS,
    "select count(*) from orders a, orders b, orders c",
    f"{NUMBERS} select n from t order by n desc",
    f"select {'(' * 200}1{')' * 200}",
)
HOSTILE = {
    "SQLite": (
        *ANYWHERE,
        "select length(printf('%.900000000c', 'x'))",
        "select zeroblob(900000000)",
        "select instr(a, b) from (select hex(zeroblob(4000000)) as a, hex(zeroblob(400000)) || '1' as b)",
        "select length(replace(hex(zeroblob(2000000)), '00', hex(zeroblob(2000))))",
        f"{NUMBERS} select {', '.join(['n'] * 1900)} from t",
    ),
    "PostgreSQL": (
        *ANYWHERE,
        "select length(repeat('x', 900000000))",
        "select repeat('x', 900000000)",
        "select strpos(repeat('a', 4000000), repeat('a', 400000) || 'b')",
        "select length(replace(repeat('a', 2000000), 'a', repeat('b', 400)))",
        f"{NUMBERS} select {', '.join(['n'] * 400)} from t",
    ),
}
HOSTILE_CALLERS = 8
LONG = 6.0  #: seconds that they are hostile
TIMEOUT = 1.0  #: of each call
IN_TIME = 0.3  #: seconds after the deadline
MOST_MEMORY = 50 * 2**20


@pytest.fixture(scope="session")
def readable(shop: Target, request: pytest.FixtureRequest) -> Iterator[Target]:
    """Yield the shop under a login that may only read, as run_sql requires."""
    if shop.dialect == "SQLite":
        yield shop
        return
    login: Callable[[str, str], AbstractContextManager[str]] = request.getfixturevalue("postgresql_login")
    with login(shop.url, READS) as url:
        yield Target(dialect=shop.dialect, url=url)


@asynccontextmanager
async def _opened(target: Target, *, sql: bool, timeout: float = 10) -> AsyncIterator[Toolbox]:
    settings = Settings(
        database=DatabaseSection(url=target.url),
        limits=LimitsSection(timeout=timeout),
        tools=ToolsSection(sql=sql),
    )
    toolbox, database = open_toolbox(settings)
    try:
        assert ("run_sql" in {tool.name for tool in await toolbox.list("default")}) == sql
        yield toolbox
    finally:
        await database.close()


def _fetch(bare: Bare, sql: str) -> Work:
    numbers = count(1_000)

    async def work() -> object:
        return list(await bare.fetch(sql.format(next(numbers))))

    return work


def _run(toolbox: Toolbox, sql: str) -> Work:
    # A model writes another statement each time, so none is prepared on either side.
    numbers = count(1_000)

    async def work() -> object:
        return await toolbox.call(Caller(), "run_sql", {"sql": sql.format(next(numbers))})

    return work


@pytest.mark.parametrize("what", STATEMENTS)
async def test_free_sql_costs_a_bounded_multiple_of_the_driver(
    readable: Target, report: Report, what: str
) -> None:
    async with open_bare(readable.url) as bare, _opened(readable, sql=True) as toolbox:
        ours, floor = _run(toolbox, STATEMENTS[what]), _fetch(bare, STATEMENTS[what])
        found = await medians(ours=ours, floor=floor, rounds=15, calls=50)

    figure = report(found.figure(f"run_sql, {what}", readable.dialect, floor_is="driver, same SQL"))
    assert figure.ratio < 40


@pytest.mark.parametrize("what", CALLS)
async def test_typed_tools_are_not_slower_where_sql_is_offered(
    readable: Target, report: Report, what: str
) -> None:
    tool, arguments = CALLS[what]
    async with _opened(readable, sql=True) as with_sql, _opened(readable, sql=False) as without:
        await _run(with_sql, "select {}")()
        found = await medians(
            ours=lambda: with_sql.call(Caller(), tool, arguments),
            floor=lambda: without.call(Caller(), tool, arguments),
            rounds=21,
            calls=100,
        )

    figure = report(found.figure(f"{what}, run_sql offered", readable.dialect, floor_is="not offered"))
    assert figure.ratio < 1.2


async def _lookups(toolbox: Toolbox) -> float:
    """Return the 99th percentile of the seconds that calls of another one take."""
    seconds, ends = [], time.perf_counter() + LONG
    while time.perf_counter() < ends:
        began = time.perf_counter()
        await toolbox.call(Caller(identity="modest"), "get_customers", {"id": 4711})
        seconds.append(time.perf_counter() - began)
        await asyncio.sleep(0.002)
    return statistics.quantiles(seconds, n=100)[98]


async def _be_hostile(toolbox: Toolbox, number: int, dialect: str, answered: list[float]) -> None:
    """Run every hostile statement in turns, and note how long the answers took."""
    for sql in cycle(HOSTILE[dialect][number:] + HOSTILE[dialect][:number]):
        began = time.perf_counter()
        with suppress(errors.Busy):
            with suppress(errors.TimedOut, errors.SqlRefused, errors.Refused):
                await toolbox.call(Caller(identity=f"hostile {number}"), "run_sql", {"sql": sql})
            answered.append(time.perf_counter() - began)


async def test_hostile_statements_leave_other_callers_their_speed_and_the_server_its_memory(
    readable: Target, report: Report
) -> None:
    answered: list[float] = []
    async with _opened(readable, sql=True, timeout=TIMEOUT) as toolbox:
        await _run(toolbox, "select {}")()
        idle = await _lookups(toolbox)
        before = resident(os.getpid())
        forget_peak(os.getpid())
        callers = [
            asyncio.ensure_future(_be_hostile(toolbox, number, readable.dialect, answered))
            for number in range(HOSTILE_CALLERS)
        ]
        # The first slow statements run side by side.
        await asyncio.sleep(3 * TIMEOUT)
        busy = await _lookups(toolbox)
        grown = peak(os.getpid()) - before
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)

    dialect, slowest, limit = readable.dialect, max(answered), TIMEOUT + IN_TIME
    figures = (
        ("p99 of get_T beside eight hostile callers", busy, idle, "nobody", "s"),
        ("slowest answer to a hostile statement", slowest, limit, "its limit", "s"),
        ("memory of the server", grown, MOST_MEMORY, "its limit", "bytes"),
    )
    for measured, ours, floor, floor_is, unit in figures:
        report(
            Figure(measured=measured, dialect=dialect, ours=ours, floor=floor, floor_is=floor_is, unit=unit)
        )
    assert slowest < 1.5 * limit
    assert grown < MOST_MEMORY
