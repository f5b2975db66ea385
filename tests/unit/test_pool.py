"""The connection pool, with stubs of connections: who gets one, and when one is closed."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from dbtools.backends.pool import CONNECTION_TIMEOUT, IDLE, Pool
from dbtools.errors import Busy
from tests.conftest import Clock

pytestmark = pytest.mark.anyio


class Stub:
    def __init__(self) -> None:
        self.usable, self.ended = True, asyncio.Event()

    def end(self) -> None:
        self.usable = False
        self.ended.set()


class Opening:
    def __init__(self) -> None:
        self.opened: list[Stub] = []
        self.failures = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> Stub:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("connection refused")
        self.opened.append(Stub())
        return self.opened[-1]


@pytest.fixture
def opening() -> Opening:
    return Opening()


@pytest.fixture
def pool(opening: Opening) -> Pool:
    return Pool(opening, size=2, is_usable=lambda each: each.usable, end=Stub.end)


@pytest.fixture
def start() -> Callable[..., Any]:
    """Return a function that starts a task and lets it run until it waits."""

    async def start(work: Any) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        for _ in range(5):
            await asyncio.sleep(0)
        return task

    return start


async def _use(pool: Pool, seen: list[Any], mark: object = None) -> None:
    async with pool.connection() as connection:
        seen.append(connection if mark is None else mark)


async def test_connection_used_last_is_reused_first(pool: Pool, opening: Opening) -> None:
    seen: list[Stub] = []
    async with pool.connection() as first, pool.connection() as second:
        pass
    for _ in range(3):
        await _use(pool, seen)

    assert opening.opened == [first, second]
    assert seen == [first] * 3  # the outer one was released last


async def test_call_that_has_waited_longest_is_served_first(pool: Pool, start: Callable[..., Any]) -> None:
    seen: list[object] = []
    async with pool.connection(), pool.connection():
        waiting = [await start(_use(pool, seen, mark)) for mark in range(4)]
    # Two connections are free now, but the waiting tasks have not run yet.
    await _use(pool, seen, "late")
    await asyncio.gather(*waiting)

    assert seen == [0, 1, 2, 3, "late"]


async def test_pool_opens_no_more_connections_than_its_size(pool: Pool, opening: Opening) -> None:
    async def use() -> None:
        async with pool.connection():
            await asyncio.sleep(0)

    await asyncio.gather(*(use() for _ in range(20)))

    assert len(opening.opened) == 2


async def test_call_that_gets_no_connection_in_time_is_busy(
    pool: Pool, clock: Clock, opening: Opening, start: Callable[..., Any]
) -> None:
    async with pool.connection(), pool.connection():
        waiting = await start(_use(pool, []))
        clock.advance(CONNECTION_TIMEOUT)
        with pytest.raises(Busy, match="All connections"):
            await waiting
    seen: list[Stub] = []
    await _use(pool, seen)

    assert seen[0] in opening.opened


async def test_cancelled_wait_gets_no_connection(pool: Pool, start: Callable[..., Any]) -> None:
    seen: list[object] = []
    async with pool.connection(), pool.connection():
        gone = await start(_use(pool, seen, "gone"))
        stays = await start(_use(pool, seen, "stays"))
        gone.cancel()
    with anyio.fail_after(30):
        await stays

    assert seen == ["stays"]


async def test_connection_of_a_wait_that_is_cancelled_goes_to_the_next(
    pool: Pool, start: Callable[..., Any]
) -> None:
    seen: list[object] = []
    async with pool.connection(), pool.connection():
        gone = await start(_use(pool, seen, "gone"))
        stays = await start(_use(pool, seen, "stays"))
    # Both have a connection now, but have not run yet.
    gone.cancel()
    with anyio.fail_after(30):
        await stays
        async with pool.connection(), pool.connection():
            seen.append("both")

    assert seen == ["stays", "both"]


async def test_slot_goes_to_the_next_call_if_opening_fails(
    pool: Pool, opening: Opening, start: Callable[..., Any]
) -> None:
    opening.gate.clear()
    seen: list[object] = []
    failing = [await start(_use(pool, seen, mark)) for mark in range(2)]
    waiting = await start(_use(pool, seen, "waiting"))
    opening.failures = 2
    opening.gate.set()
    with anyio.fail_after(30):
        results = await asyncio.gather(*failing, return_exceptions=True)
        await waiting

    assert [type(each) for each in results] == [ConnectionError] * 2
    assert seen == ["waiting"]


async def test_closed_connection_is_replaced(pool: Pool, opening: Opening) -> None:
    seen: list[Stub] = []
    await _use(pool, seen)
    seen[0].usable = False
    await _use(pool, seen)
    async with pool.connection() as left:
        left.usable = False
    async with pool.connection(), pool.connection():
        pass

    assert seen == opening.opened[:2]
    assert len(opening.opened) == 4


async def test_disposed_pool_closes_a_connection_in_use_when_it_is_released(
    pool: Pool, opening: Opening
) -> None:
    async with pool.connection() as used:
        async with pool.connection() as idle:
            pass
        await pool.dispose()

        assert (idle.ended.is_set(), used.ended.is_set()) == (True, False)
    async with pool.connection() as other:
        pass

    assert used.ended.is_set()
    assert opening.opened == [used, idle, other]


async def test_idle_connection_is_closed(pool: Pool, clock: Clock) -> None:
    async with pool.connection() as connection:
        pass
    clock.advance(IDLE)
    with anyio.fail_after(30):
        await connection.ended.wait()
    async with pool.connection() as other:
        pass

    assert other is not connection


async def test_cancelled_disposal_waits_for_the_threads_of_its_connections() -> None:
    ending: list[asyncio.Future[object]] = []

    def end(_: object) -> asyncio.Future[object]:
        loop = asyncio.get_running_loop()
        ending.append(loop.create_future())
        loop.call_later(0.01, ending[0].set_result, None)
        return ending[0]

    pool = Pool(Opening(), size=1, is_usable=lambda _: True, end=end)
    async with pool.connection():
        pass
    with anyio.CancelScope() as scope:
        scope.cancel()
        await pool.dispose()

    assert ending[0].done()
