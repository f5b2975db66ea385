"""Watching: a change leads to a refresh, a failure is reported once, and the old snapshot stays."""

import asyncio
import selectors
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import anyio
import pytest
import sqlalchemy as sa

from dbtools import errors
from dbtools.answers.results import ResultSet
from dbtools.findings import Finding
from dbtools.policy.roles import Caller, Role
from dbtools.schema.catalog import Catalog
from dbtools.service.serving import Observed, Watch
from dbtools.service.snapshot import DATABASE, RoleSnapshot, Snapshot
from dbtools.service.toolbox import Toolbox
from dbtools.statements.select import Statement
from tests.unit.shop import SALE, resolving
from tests.unit.stub_database import Unchanging

FIRST = Catalog(tables=(SALE,), stamp="1")
SECRET = "postgresql://app:hunter2@db/shop"
SEE_LOG = "The server's log shows where."
SECOND = Catalog(tables=(replace(SALE, comment="what was sold"),), stamp="2")


class UnforeseenError(Exception):
    """A problem of a kind that no list of kinds has."""


class Executed(Unchanging):
    """Stands in for the execution, which no test here needs."""

    async def execute(
        self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
    ) -> ResultSet:
        return ResultSet(outputs=(), rows=())

    async def is_current(self, stamp: str) -> bool:
        return True


@dataclass
class World:
    now: Catalog | Exception = FIRST
    polls: list[Hashable | errors.DbtoolsError] = field(default_factory=list)  #: then: of the current catalog
    read: int = 0
    opened: int = 0
    polled: int = 0
    told: list[str | Finding] = field(default_factory=list)
    resolved: list[str] = field(default_factory=list)
    hear: Callable[[], None] = lambda: None
    held: anyio.Event | None = None  #: what a refresh waits for
    news: anyio.Condition = field(default_factory=anyio.Condition)

    async def introspect(self) -> Catalog:
        found = self.now
        self.read += 1
        await self._tell_all()
        if self.held is not None:
            await self.held.wait()
        if isinstance(found, Exception):
            raise found
        return found

    @asynccontextmanager
    async def listen(self, hear: Callable[[], None]) -> AsyncIterator[None]:
        self.opened += 1
        self.hear = hear
        yield

    async def poll(self) -> Hashable:
        self.polled += 1
        await self._tell_all()
        found = self.polls.pop(0) if self.polls else getattr(self.now, "stamp", "broken")
        if isinstance(found, errors.DbtoolsError):
            raise found
        return found

    async def _tell_all(self) -> None:
        async with self.news:
            self.news.notify_all()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until *happened*, which is checked whenever something is asked."""
        with anyio.fail_after(20):
            async with self.news:
                while not happened():
                    await self.news.wait()


@pytest.fixture
async def world() -> World:
    return World()


@asynccontextmanager
async def _watched(world: World, interval: float = 0.01) -> AsyncIterator[Toolbox]:
    toolbox = Toolbox(resolving(world.introspect, (Role(),)), Executed())
    await toolbox.snapshot()
    watch = Watch(
        toolbox,
        [Observed(name=DATABASE, poll=world.poll, listen=world.listen, interval=interval)],
        warn=world.told.append,
        resolved=world.resolved.append,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(watch.run)
        yield toolbox
        group.cancel_scope.cancel()


async def _stamp(toolbox: Toolbox) -> Hashable:
    return (await toolbox.snapshot()).stamps[DATABASE]


async def test_poll_that_finds_another_stamp_leads_to_a_refresh(world: World) -> None:
    async with _watched(world) as toolbox:
        changes: list[Snapshot] = []
        toolbox.subscribe(lambda snapshot, _: changes.append(snapshot))
        world.now = SECOND
        await world.until(lambda: bool(changes))

        assert await _stamp(toolbox) == "2"
        assert world.read == 2


async def test_same_stamp_leads_to_none(world: World) -> None:
    async with _watched(world):
        for _ in range(5):
            await world.until(lambda: True)
            await world.poll()

    assert world.read == 1


async def test_what_is_heard_during_a_refresh_leads_to_another(world: World) -> None:
    async with _watched(world, interval=60) as toolbox:
        await world.until(lambda: world.opened == 1)
        world.held = anyio.Event()
        world.now = SECOND
        world.hear()
        await world.until(lambda: world.read == 2)
        world.now = replace(SECOND, stamp="3")
        world.hear()
        world.hear()
        world.held.set()
        await world.until(lambda: world.read == 3)
        await toolbox.refresh()

        assert await _stamp(toolbox) == "3"
        assert world.read == 4


async def test_storm_of_what_is_heard_leads_to_polls_alone(world: World) -> None:
    async with _watched(world, interval=60):
        await world.until(lambda: world.polled == 1)
        for number in range(2, 22):
            for _ in range(100):
                world.hear()
            await world.until(lambda number=number: world.polled == number)  # type: ignore[misc]
            await anyio.wait_all_tasks_blocked()

        assert world.polled == 21
        assert world.read == 1


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        pytest.param(errors.DatabaseUnavailable("The server is away."), "The server is away.", id="known"),
        *(
            pytest.param(each, f"Internal error: {type(each).__name__}. {SEE_LOG}", id=type(each).__name__)
            for each in (
                ValueError(SECRET),
                RuntimeError(SECRET),
                MemoryError(SECRET),
                OSError(5, SECRET),
                RecursionError(SECRET),
                KeyError(SECRET),
                ExceptionGroup(SECRET, [ValueError(SECRET)]),
                sa.exc.InvalidRequestError(SECRET),
                UnforeseenError(SECRET),
            )
        ),
    ],
)
async def test_failing_refresh_keeps_the_snapshot_and_is_reported_once(
    failure: Exception, reason: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async with _watched(world, interval=60) as toolbox:
        await world.until(lambda: world.opened == 1)
        world.now = failure
        for number in (2, 3, 4):
            world.polls.append(f"broken {number}")
            world.hear()
            await world.until(lambda number=number: world.read == number)  # type: ignore[misc]

        assert await _stamp(toolbox) == "1"
        assert world.told == [f"Changes cannot be read, so the previous state stays in force: {reason}"]
        assert [each.exc_info and each.exc_info[1] for each in caplog.records] == (
            [failure] if SEE_LOG in reason else []
        )
        has_failed = [toolbox.failure is not None]

        world.now = SECOND
        world.hear()
        await world.until(lambda: world.read == 5)
        await toolbox.refresh()
        assert await _stamp(toolbox) == "2"
        has_failed.append(toolbox.failure is not None)
    assert has_failed == [True, False]
    assert world.resolved == ["Changes are in force again."]


async def test_failing_poll_is_reported_once_and_opened_again(world: World) -> None:
    gone = errors.DatabaseUnavailable("The server is away.")
    world.polls = [gone, gone]
    async with _watched(world):
        world.now = SECOND
        await world.until(lambda: world.read == 2)

    assert world.opened == 3
    assert world.told == ["database: cannot watch for changes, but tries again: The server is away."]
    assert world.resolved == ["database: watching for changes again."]


async def test_new_warning_is_reported(world: World) -> None:
    async with _watched(world):
        world.now = replace(SECOND, warnings=("table x is left out.",))
        await world.until(lambda: bool(world.told))

    assert [str(each) for each in world.told] == ["warning: table x is left out."]
    assert world.resolved == []


async def test_resolved_warning_is_reported_unless_another_remains(world: World) -> None:
    one, other, third = "table x is left out.", "table y is left out.", "table z is left out."
    world.now = replace(FIRST, warnings=(one, other))
    async with _watched(world):
        for number, warnings in enumerate(((one, third), (third,), ()), 2):
            world.now = replace(SECOND, stamp=str(number), warnings=warnings)
            await world.until(lambda number=number: world.read == number)  # type: ignore[misc]
            await world.until(lambda number=number: len(world.told) + len(world.resolved) == number - 1)  # type: ignore[misc]

    assert [str(each) for each in world.told] == [f"warning: {third}"]
    assert world.resolved == [f"Resolved: warning: {one}", f"Resolved: warning: {third}"]


class Leaps(selectors.SelectSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, or let the time of *timeout* be over."""
        ready = super().select(timeout and 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class Clock(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._leaps = Leaps()
        super().__init__(self._leaps)

    def time(self) -> float:
        return self._leaps.now


@dataclass
class Slow(World):
    """A database that never changes, and takes its time to say so."""

    lasting: Sequence[float] = ()  #: seconds of each poll
    began: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    async def poll(self) -> Hashable:
        """Return the same stamp after a while, and at last none."""
        self.began.append(anyio.current_time())
        await self._tell_all()
        if len(self.began) > len(self.lasting):
            await anyio.sleep_forever()
        await anyio.sleep(self.lasting[len(self.ended)])
        self.ended.append(anyio.current_time())
        return FIRST.stamp


async def _pauses(interval: float, lasting: Sequence[float]) -> list[float]:
    """Return the seconds that a watch pauses after each poll, which take so many."""
    world = Slow(lasting=lasting)
    with anyio.fail_after(10_000_000):
        async with _watched(world, interval), world.news:
            while len(world.began) <= len(lasting):
                await world.news.wait()
    return [began - ended for ended, began in zip(world.ended, world.began[1:], strict=True)]


@pytest.mark.parametrize(
    ("lasting", "pauses"),
    [
        pytest.param((0, 0, 0, 0), [10, 10, 10, 10], id="quick"),
        pytest.param((0.25, 0.25), [25, 25], id="slow"),
        pytest.param((1, 1), [30, 30], id="slower"),
        pytest.param((1_000, 1_000), [30, 30], id="slowest"),
        pytest.param((1, 0, 1), [30, 10, 30], id="one is quick"),
    ],
)
def test_pause_grows_with_the_polls_to_three_intervals(lasting: Sequence[float], pauses: list[float]) -> None:
    assert anyio.run(_pauses, 10, lasting, backend_options={"loop_factory": Clock}) == pauses


async def _end_of_waiting(*failures: Exception) -> tuple[str, list[str | Finding]]:
    """Return the error that ends a watch whose first snapshots fail like this, and what it reports."""
    raised, world = iter(failures), World()

    async def introspect() -> Catalog:
        raise next(raised)

    toolbox = Toolbox(resolving(introspect, (Role(),)), Executed())
    watch = Watch(toolbox, [], warn=world.told.append, resolved=world.resolved.append)
    with pytest.raises(errors.DbtoolsError) as caught:
        await watch.run()
    return str(caught.value), world.told


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (errors.ConfigurationError("It is a superuser."), "It is a superuser."),
        pytest.param(errors.DatabaseUnavailable("Unknown login."), "Unknown login.", id="login"),
    ],
)
def test_watch_waits_for_the_database_until_waiting_cannot_help(failure: Exception, reason: str) -> None:
    away = errors.DatabaseUnavailable("The server is away.", temporary=True)
    ending = partial(_end_of_waiting, away, away, failure)

    ended = anyio.run(ending, backend_options={"loop_factory": Clock})

    assert ended == (reason, ["The server is away. The server waits for the database."])
