"""Connections that are cut during a change: the database holds what the caller's answer says, once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import anyio
import pytest

from dbtools import errors
from tests.database.cutting_proxy import Cut, Cutting, is_commit, numbered, proxy_of_shop as proxy_of_shop
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop
from tests.database.written_journal import (
    AFTER,
    BEFORE,
    CALLS,
    DDL,
    Told,
    journal,
    restore,
    things,
    told,
    writing,
)

MOST_REQUESTS = 60
#: Every way to cut the connection, and every kind of change.
CUTS = [*(("update", cut) for cut in Cut), *((kind, Cut.AFTER) for kind in CALLS if kind != "update")]


@pytest.fixture(scope="module")
def shop(serve: Serve) -> Iterator[Shop]:
    with serve("postgresql", DDL["postgresql"]) as shop:
        yield shop


@pytest.fixture
def caller(shop: Shop, proxy: Cutting) -> Iterator[Caller]:
    """Yield a caller whose changes go through the proxy."""
    restore(shop)
    with writing(shop, write_url=proxy.url) as caller:
        caller.tools()  # the query is checked before a connection is cut
        yield caller


def _each_request(caller: Caller, shop: Shop, proxy: Cutting, kind: str, cut: Cut) -> Iterator[Told]:
    """Yield the outcome with the first request cut, then with the second, and so on."""
    for number in range(MOST_REQUESTS):
        proxy.at(numbered(number), cut)
        found = told(caller, shop, kind)
        if not proxy.met.is_set():
            return
        yield found
    raise AssertionError("the call has no end")


@pytest.mark.parametrize(("kind", "cut"), CUTS)
def test_connection_that_is_cut_at_any_request_leaves_what_the_caller_is_told(
    kind: str, cut: Cut, caller: Caller, shop: Shop, proxy: Cutting
) -> None:
    new = list(_each_request(caller, shop, proxy, kind, cut))
    known = list(_each_request(caller, shop, proxy, kind, cut))

    assert [each for each in new + known if not each.is_true(kind)] == []
    assert {each.code for each in new + known} == {"", "database_unavailable"}
    # BEGIN, the change, the row as it is now, the number of the transaction and COMMIT at least.
    assert len(known) >= 3


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize(
    ("cut", "codes"),
    [
        pytest.param(Cut.BEFORE, {"database_unavailable"}, id="COMMIT does not arrive"),
        pytest.param(Cut.DURING, {""}, id="COMMIT arrives"),
        pytest.param(Cut.AFTER, {""}, id="COMMIT is answered"),
    ],
)
def test_outcome_of_commit_is_asked_for(
    kind: str, cut: Cut, codes: set[str], caller: Caller, shop: Shop, proxy: Cutting
) -> None:
    proxy.at(is_commit, cut)
    found = told(caller, shop, kind)

    assert found.is_true(kind)
    assert {found.code} == codes


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_outcome_that_cannot_be_asked_for_is_unknown(
    cut: Cut, caller: Caller, shop: Shop, proxy: Cutting
) -> None:
    proxy.at(is_commit, cut, refuses=True)
    found = told(caller, shop, "update")
    proxy.at(lambda _: False, None)
    again = told(caller, shop, "update")

    assert found.code == "unknown_outcome"
    assert found.message.endswith("Read the rows before you try again.")
    assert found.things == {Cut.BEFORE: BEFORE, Cut.AFTER: AFTER["update"]}[cut]
    assert len(found.journal) == (cut is Cut.AFTER)
    assert (again.code, again.is_true("update")) == ("", True)


async def _by_task(work: Awaitable[str], proxy: Cutting) -> str:
    task = asyncio.ensure_future(work)
    await proxy.met.wait()
    task.cancel()
    await anyio.lowlevel.checkpoint()
    proxy.released.set()
    await asyncio.wait([task])
    return "cancelled" if task.cancelled() else task.result()


async def _by_scope(work: Awaitable[str], proxy: Cutting) -> str:
    found: list[str] = []

    async def run() -> None:
        found.append(await work)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await proxy.met.wait()
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.lowlevel.checkpoint()
            proxy.released.set()
    return found[0] if found else "cancelled"


async def _by_timeout(work: Awaitable[str], proxy: Cutting) -> str:
    async def release() -> None:
        await proxy.met.wait()
        limit.reschedule(0)
        await anyio.lowlevel.checkpoint()
        proxy.released.set()

    found = "cancelled"
    with suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            releasing = asyncio.ensure_future(release())
            found = await work
    await releasing
    return found


Way = Callable[[Awaitable[str], Cutting], Awaitable[str]]
WAYS: Mapping[str, Way] = {"task": _by_task, "scope": _by_scope, "timeout": _by_timeout}


async def _cancelled(caller: Caller, proxy: Cutting, way: str) -> str:
    """Return the outcome of a call that is cancelled in this *way* when *proxy* meets its request."""

    async def call() -> str:
        tool, arguments, _ = CALLS["update"]
        try:
            answer = await caller.toolbox.call(caller.identity, tool, arguments)
        except errors.CallError as exc:
            return exc.code
        return f"{answer.structured['affected']} affected"

    with anyio.fail_after(60):
        return await WAYS[way](call(), proxy)


@pytest.mark.parametrize("way", WAYS)
def test_call_that_is_cancelled_during_commit_is_answered(
    way: str, caller: Caller, shop: Shop, proxy: Cutting
) -> None:
    proxy.at(is_commit, None)
    said = caller.portal.call(_cancelled, caller, proxy, way)

    assert said == "1 affected"
    assert things(shop) == AFTER["update"]
    assert journal(shop) == [CALLS["update"][2]]


@pytest.mark.parametrize("way", WAYS)
def test_call_that_is_cancelled_while_its_outcome_is_asked_for_is_told_that_it_is_unknown(
    way: str, caller: Caller, proxy: Cutting
) -> None:
    proxy.at(is_commit, Cut.AFTER, refuses=True)

    assert caller.portal.call(_cancelled, caller, proxy, way) == "unknown_outcome"


@pytest.mark.parametrize("way", WAYS)
def test_call_that_is_cancelled_before_commit_changes_nothing_and_leaves_its_connection(
    way: str, caller: Caller, shop: Shop, proxy: Cutting
) -> None:
    told(caller, shop, "update")
    pid = caller.portal.call(_pid, caller)
    # The first request is BEGIN, the second one locks the row.
    proxy.at(numbered(1), None)
    said = caller.portal.call(_cancelled, caller, proxy, way)
    found = things(shop), journal(shop)
    again = told(caller, shop, "update")

    assert (said, found) == ("cancelled", (BEFORE, []))
    assert again.is_true("update")
    assert caller.portal.call(_pid, caller) == pid


async def _pid(caller: Caller) -> object:
    """Return the number of the process that the next change runs in."""
    writer: Any = await caller.database.writer()
    async with writer.pool.connection() as connection:
        return await connection.fetchval("select pg_backend_pid()")
