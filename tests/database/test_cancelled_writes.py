"""The audit log of cancelled changes: before COMMIT nothing happened, after COMMIT they were made."""

import asyncio
from typing import cast

from dbtools import errors
from dbtools.backends.compiled import CompiledWrite
from dbtools.backends.port import Backend, Runner, Writer
from dbtools.backends.runs import WriteResult, WriteRun
from dbtools.configured.resolved import Resolved
from dbtools.service.execution import Execution
from dbtools.service.toolbox import Toolbox
from dbtools.statements.write import WriteShape
from tests.database.logged_calls import Logged
from tests.database.role_callers import Caller
from tests.database.shop import Shop
from tests.database.written_shop import Opens, stored

NOTE = "select note from orders where id = 1"
CHANGE = {"id": 1, "set": {"note": "x"}}
#: Locks the row until the end of the transaction.
LOCK = {
    "sqlite": ("begin immediate",),
    "postgresql": ("begin", "update orders set quantity = 3 where id = 1"),
}
WAITING = "select count(*) from pg_locks where not granted"


class Passing:
    """A Writer that leaves the work to another one, and says when it begins."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.begun = asyncio.Event()

    def compile(self, shape: WriteShape) -> CompiledWrite:
        """Return the SQL of *shape*."""
        return self.writer.compile(shape)

    async def write(self, run: WriteRun) -> WriteResult:
        """Run the steps of *run*."""
        self.begun.set()
        return await self.writer.write(run)

    async def close(self) -> None:
        """Do nothing: the other one is closed by its owner."""


class Cancelling(Passing):
    """Cancels the call after COMMIT."""

    async def write(self, run: WriteRun) -> WriteResult:
        """Run the steps of *run*; whatever is awaited from now on is interrupted."""
        written = await super().write(run)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return written


class Losing(Passing):
    """Loses the connection at COMMIT."""

    async def write(self, run: WriteRun) -> WriteResult:
        """Run the steps of *run*, and do not know it."""
        await super().write(run)
        raise errors.UnknownOutcome


class Seam:
    """A backend with another Writer."""

    def __init__(self, database: Backend, writer: Writer) -> None:
        self._database = database
        self._writer = writer

    async def runner(self) -> Runner:
        """Return what reads."""
        return await self._database.runner()

    async def writer(self) -> Writer:
        """Return what writes."""
        return self._writer


async def _never() -> Resolved:
    raise AssertionError


def _logged(caller: Caller, kind: type[Passing]) -> tuple[Logged, Passing]:
    """Return a log of the calls of *caller*, whose Writer is of this *kind*, and the Writer."""

    async def writing() -> Passing:
        return kind(await caller.database.writer())

    writer = caller.portal.call(writing)
    toolbox = Toolbox(_never, Execution(cast(Backend, Seam(caller.database, writer))))
    toolbox.current = caller.portal.call(caller.toolbox.snapshot)
    return Logged(caller=caller, toolbox=toolbox), writer


async def _called(logged: Logged, **arguments: object) -> object:
    """Return what a task returned or raised that made the call, as a server makes it."""
    call = logged.calls.call(logged.caller.identity, "update_orders", arguments)
    (found,) = await asyncio.gather(asyncio.create_task(call), return_exceptions=True)
    return found


def test_call_that_is_cancelled_after_commit_is_logged_with_what_it_changed(
    opened: Opens, dialect: str
) -> None:
    with opened(dialect) as (caller, shop):
        logged, _ = _logged(caller, Cancelling)
        found = caller.portal.call(lambda: _called(logged, **CHANGE))
        line = logged.last()
        after = stored(shop, NOTE)

    assert isinstance(found, asyncio.CancelledError)
    assert after == [("x",)]
    assert (line["outcome"], line["code"], line["affected"], line["dry_run"]) == ("ok", None, 1, False)
    assert line["changes"] == [{"key": {"id": 1}, "old": {"note": "call"}, "new": {"note": "x"}}]


def test_call_whose_outcome_is_unknown_is_logged_so(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        logged, _ = _logged(caller, Losing)
        line = logged.call("update_orders", **CHANGE)

    assert (line["outcome"], line["code"], line["dry_run"]) == ("error", "unknown_outcome", False)
    assert (line["affected"], line["changes"]) == (None, None)


def test_call_that_is_cancelled_while_it_waits_for_a_lock_changes_nothing(
    opened: Opens, dialect: str
) -> None:
    with opened(dialect) as (caller, shop):
        logged, writer = _logged(caller, Passing)
        for statement in LOCK[dialect]:
            shop.bare.execute(statement)
        future = caller.portal.start_task_soon(_cancelled, logged, writer, shop)
        found = future.result()
        line = logged.last()
        shop.bare.execute("rollback")
        after = stored(shop, NOTE)
        again = logged.call("update_orders", **CHANGE)

    assert isinstance(found, asyncio.CancelledError)
    assert after == [("call",)]
    assert (line["outcome"], line["code"], line["dry_run"]) == ("cancelled", "cancelled", False)
    assert (line["affected"], line["changes"]) == (None, None)
    assert (again["outcome"], again["affected"]) == ("ok", 1)


async def _cancelled(logged: Logged, writer: Passing, shop: Shop) -> object:
    call = asyncio.create_task(_called(logged, **CHANGE))
    await writer.begun.wait()
    async with asyncio.timeout(5):
        while not await _waits(shop):
            pass
    call.cancel()
    (found,) = await asyncio.gather(call, return_exceptions=True)
    return found


async def _waits(shop: Shop) -> bool:
    """Return whether the call waits for the lock, as far as the database says so."""
    if shop.dialect == "sqlite":
        return True
    return bool(await shop.bare.connection.fetchval(WAITING))  # type: ignore[attr-defined]
