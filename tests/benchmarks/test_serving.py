"""What serving over HTTP costs: latency and CPU, as ratios to a trivial server of the SDK."""

import asyncio
import os
import random
import statistics
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from tests.benchmarks.conftest import Target
from tests.benchmarks.contest import Figure
from tests.benchmarks.http_client import (
    HANDSHAKE,
    MODERN,
    Call,
    HttpConnection,
    HttpProcess,
    Load,
    call_of,
    measure,
    open_http,
    prepared,
)

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]
CONSTANT = "tests.benchmarks.constant_http_server"
KEY = {"id": 4711}
CALLS, ROUNDS = 640, 5
SOAK = int(os.environ.get("DBTOOLS_SOAK", "100000"))  #: calls
OPEN = "[limits]\ncalls_per_minute = 1000000000\ntimeout = '5s'\n[server]\nmax_requests = 1000\n"


@asynccontextmanager
async def _served(target: Target, folder: Path, *options: str) -> AsyncIterator[HttpProcess]:
    path = folder / "dbtools.toml"
    log = folder / "calls.jsonl"
    path.write_text(f'[database]\nurl = "{target.url}"\n[log]\nfile = "{log}"\n{OPEN}')
    async with open_http("-m", "dbtools", "serve", str(path), "--http", "127.0.0.1:0", *options) as process:
        yield process


@pytest.mark.parametrize(
    ("workers", "version", "width"),
    [
        *((1, MODERN, width) for width in (1, 8, 32)),
        *((2, MODERN, width) for width in (1, 8, 32)),
        *((1, HANDSHAKE, width) for width in (1, 8, 32)),
    ],
)
async def test_point_lookups_over_http(
    workers: int, version: str, width: int, shop: Target, report: Report, tmp_path: Path
) -> None:
    options = ("--workers", str(workers)) if workers > 1 else ()
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(_served(shop, tmp_path, *options))
        floor = await stack.enter_async_context(open_http("-m", CONSTANT, str(workers)))
        pairs = {
            ours: await stack.enter_async_context(prepared(ours, version, "get_customers", KEY, width)),
            floor: await stack.enter_async_context(prepared(floor, version, "constant", {}, width)),
        }
        loads: dict[HttpProcess, list[Load]] = {ours: [], floor: []}
        for round in range(ROUNDS + 1):
            for process, calls in pairs.items():
                found = await measure(process, calls, CALLS)
                # The first round is for what is done once.
                loads[process] += [found] if round else []

    def tell(measured: str, of: Callable[[Load], float]) -> Figure:
        values = [statistics.median(map(of, loads[process])) for process in (ours, floor)]
        name = f"HTTP {version}, {workers} worker(s), {width} at once: {measured}"
        told = Figure(measured=name, dialect=shop.dialect, ours=values[0], floor=values[1], floor_is="SDK")
        return report(told)

    tell("seconds a call", lambda load: load.seconds / CALLS)
    tell("p50", lambda load: load.share(0.5))
    tell("p99", lambda load: load.share(0.99))
    cpu = tell("CPU a call", lambda load: load.cpu / CALLS)
    assert cpu.ratio < 4


async def test_soak_leaves_nothing_behind(shop: Target, report: Report, tmp_path: Path) -> None:
    """Calls by the tens of thousands, of which some are cancelled and some lose their client."""
    chance = random.Random(7)
    async with _served(shop, tmp_path) as process:
        await _soak(process, SOAK // 2, chance)
        before, descriptors = process.memory(), _descriptors(process)
        await _soak(process, SOAK // 2, chance)
        after = process.memory()
        left = _descriptors(process)
        # As many calls at once as there are connections to the database are answered: none is missing.
        async with prepared(process, MODERN, "get_customers", KEY, 8) as calls, asyncio.timeout(30):
            await measure(process, calls, 80)

    report(
        Figure(
            measured=f"memory after {SOAK:,} calls",
            dialect=shop.dialect,
            ours=after,
            floor=before,
            floor_is="after half of them",
            unit="bytes",
        )
    )
    assert after < before * 1.05
    assert left <= descriptors + 8


def _descriptors(process: HttpProcess) -> int:
    found: int = psutil.Process(process.pid).num_fds()
    return found


async def _soak(process: HttpProcess, number: int, chance: random.Random) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(_client(process, number // 8, chance))


async def _client(process: HttpProcess, number: int, chance: random.Random) -> None:
    """Make so many calls: one in twenty is left while it runs, one in forty is cancelled in its session."""
    measures = [{"function": "count_distinct", "column": "note"}]
    slow: dict[str, object] = {"table": "orders", "measures": measures}
    modern = [call_of(MODERN, "get_customers", {"id": each}) for each in range(1, 100)]
    lost = call_of(MODERN, "aggregate_rows", slow)
    connection = await process.connect()
    for _ in range(number):
        fate = chance.random()
        if fate < 0.05:
            connection = await _left(process, connection, lost)
        elif fate < 0.075:
            await _cancelled(process, slow)
        else:
            await connection.call(chance.choice(modern))
    await connection.close()


async def _left(process: HttpProcess, connection: HttpConnection, call: Call) -> HttpConnection:
    """Begin *call*, and leave; return another connection."""
    connection.begin(call.content)
    await asyncio.sleep(0.002)
    await connection.close()
    return await process.connect()


async def _cancelled(process: HttpProcess, slow: dict[str, object]) -> None:
    """Open a session, cancel a call in it, and end it."""
    calling, telling = await process.connect(), await process.connect()
    session = await calling.shake_hands()
    calling.begin(call_of(HANDSHAKE, "aggregate_rows", slow, session).content)
    await asyncio.sleep(0.002)
    await telling.cancel(session)
    await telling.end(session)
    await calling.close()
    await telling.close()
