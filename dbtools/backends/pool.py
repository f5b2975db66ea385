"""Pools of connections: one of our own, and SQLAlchemy's, each lent as the driver's own."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import sqlalchemy as sa
from sqlalchemy.pool import AsyncAdaptedQueuePool
from sqlalchemy.util import greenlet_spawn

from dbtools import errors
from dbtools.telemetry import note_wait

PATIENCE = 5.0  #: seconds that a call waits for a connection
IDLE = 300.0  #: seconds after which a connection that nobody has needed is closed


class EnginePool:
    """The pool of an engine."""

    def __init__(
        self,
        scheme: str,
        connect: Callable[[], Awaitable[Any]],
        *,
        size: int,
        is_usable: Callable[[Any], bool],
    ) -> None:
        self._is_usable = is_usable
        # As create_async_engine makes it, whose package imports the whole ORM (SQLAlchemy 2.1).
        self._engine: sa.Engine = sa.create_engine(
            scheme,
            creator=lambda: self._engine.dialect.loaded_dbapi.connect(async_creator_fn=connect),
            poolclass=AsyncAdaptedQueuePool,
            pool_size=size,
            max_overflow=0,
            pool_timeout=PATIENCE,
            # What was used last is warm: its thread, its pages, its prepared statements.
            pool_use_lifo=True,
            pool_reset_on_return=None,
            isolation_level="AUTOCOMMIT",
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Lend a connection, or raise Busy where none comes free in time."""
        pool, began = self._engine.pool, time.monotonic()
        try:
            pooled = await greenlet_spawn(pool.connect)
        except sa.exc.TimeoutError as exc:
            raise _busy() from exc
        note_wait(time.monotonic() - began)
        try:
            yield pooled.driver_connection
        finally:
            await self._take_back(pooled, pool)

    async def _take_back(self, pooled: Any, pool: Any) -> None:
        if not self._is_usable(pooled.driver_connection):
            self._leave(pooled)
            return
        try:
            if pool is not self._engine.pool:
                # The pool was replaced meanwhile: the old one would never close what comes back.
                with anyio.CancelScope(shield=True):
                    await greenlet_spawn(pooled.invalidate)
        finally:
            # Nothing is reset, so nothing waits: the connection goes back into its queue.
            pooled.close()

    def _leave(self, pooled: Any) -> None:
        """Let another connection take the place of one that ends by itself: to close it would be to wait."""
        pooled.detach()

    async def dispose(self) -> None:
        """Close the connections that nobody uses; those in use are closed when they come back."""
        await greenlet_spawn(self._engine.dispose)


class Pool:
    """At most *size* connections, each lent to one call at a time: to the one that has waited longest.

    *connect* opens one, when there is none that waits, and *end* closes one at once. One that is not usable
    any more is lent to nobody else.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        *,
        size: int,
        is_usable: Callable[[Any], bool],
        end: Callable[[Any], None],
    ) -> None:
        self._connect, self._is_usable, self._end = connect, is_usable, end
        self._free = size  #: connections that may still be opened
        #: With the times since when they wait, those used last at the end: what was used last is warm.
        self._idle: list[tuple[Any, float]] = []
        #: The calls that wait. Each gets a connection, or None to open one.
        self._turns: deque[asyncio.Future[Any]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def connection(self) -> "Loan":
        """Return what lends a connection, or raises Busy where none comes free in time."""
        return Loan(self)

    @property
    def era(self) -> object:
        """What is another one since the pool was disposed of."""
        return self._idle

    async def dispose(self) -> None:
        """Close the connections that nobody uses; those in use are closed when they come back."""
        idle, self._idle = self._idle, []
        self._close(idle)

    async def acquire(self) -> Any:
        """Return a connection that is to be released, or raise Busy."""
        while self._idle:
            connection, _ = self._idle.pop()
            if self._is_usable(connection):
                return connection
            self._free += 1
        if self._free:
            self._free -= 1
        elif (connection := await self._turn()) is not None:
            return connection
        try:
            return await self._connect()
        except BaseException:
            self._hand_on(None)
            raise

    async def _turn(self) -> Any:
        """Wait for what comes free, a connection or the right to open one."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(PATIENCE):
                return await turn
        except BaseException as exc:
            if turn.done() and not turn.cancelled():
                # It came at the moment at which the wait ended.
                self._hand_on(turn.result())
            if isinstance(exc, TimeoutError):
                raise _busy() from exc
            raise

    def release(self, connection: Any, era: object) -> None:
        """Take *connection* back, which was lent in *era*."""
        if self._is_usable(connection) and era is self.era:
            self._hand_on(connection)
            return
        self._end(connection)
        self._hand_on(None)

    def _hand_on(self, connection: Any) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is None:
            self._free += 1
            return
        self._idle.append((connection, time.monotonic()))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE, self._close_idle)

    def _close_idle(self) -> None:
        """Close what nobody has needed for long."""
        self._timer, before = None, time.monotonic() - IDLE
        old = [each for each in self._idle if each[1] <= before]
        del self._idle[: len(old)]
        self._close(old)
        if self._idle:
            self._timer = asyncio.get_running_loop().call_later(IDLE, self._close_idle)

    def _close(self, idle: Iterable[tuple[Any, float]]) -> None:
        for connection, _ in idle:
            self._free += 1
            self._end(connection)


class Loan:
    """Lends a connection of *pool*: written out, since a generator would take thrice as long."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self._era = pool, pool.era

    async def __aenter__(self) -> Any:
        """Lend a connection, or raise Busy."""
        began = time.monotonic()
        self._connection = await self._pool.acquire()
        note_wait(time.monotonic() - began)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        """Give it back."""
        self._pool.release(self._connection, self._era)


def _busy() -> errors.Busy:
    return errors.Busy("All connections to the database are busy.", hint="Try again.")
