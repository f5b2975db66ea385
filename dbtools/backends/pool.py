"""A connection pool for any driver. A function that connects in; connections, one call at a time, out."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from dbtools.backends.refusals import Cause
from dbtools.telemetry import note_wait

CONNECTION_TIMEOUT = 5.0  #: seconds that a call waits for a connection
IDLE = 300.0  #: seconds after which an unused connection is closed


class Pool:
    """At most *size* connections, each used by one call at a time, in the order of arrival.

    *connect* opens one if none is idle. *end* closes one, and may return a future: no other one is opened in
    its place until the future is done.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[Any]],
        *,
        size: int,
        is_usable: Callable[[Any], bool],
        end: Callable[[Any], asyncio.Future[object] | None],
    ) -> None:
        self._connect, self._is_usable, self._end = connect, is_usable, end
        self._slots = asyncio.Semaphore(size)
        self._disposals = 0
        #: Idle connections with the times of their release. The most recent one is last: its caches are warm.
        self._idle: list[tuple[Any, float]] = []
        self._timer: asyncio.TimerHandle | None = None

    def connection(self) -> "PooledConnection":
        """Return a context that acquires a connection, or raises Busy."""
        return PooledConnection(self)

    @property
    def warmest(self) -> Any:
        """The idle connection that was used last, if any; do not await anything while you use it."""
        return self._idle[-1][0] if self._idle else None

    async def dispose(self) -> None:
        """Close the idle connections now, and those in use when they are released."""
        self._disposals += 1
        idle, self._idle = self._idle, []
        ending = [ended for connection, _ in idle if (ended := self._end(connection))]
        if ending:
            # Their threads must not outlive the event loop of a cancelled task.
            with anyio.CancelScope(shield=True):
                await asyncio.wait(ending)

    async def acquire(self) -> tuple[Any, int]:
        """Return a connection and a number, both to be released, or raise Busy."""
        if self._slots.locked():
            await self._wait()
        else:
            await self._slots.acquire()
        disposals = self._disposals
        while self._idle:
            connection, _ = self._idle.pop()
            if self._is_usable(connection):
                return connection, disposals
        try:
            return await self._connect(), disposals
        except BaseException:
            self._slots.release()
            raise

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(CONNECTION_TIMEOUT):
                await self._slots.acquire()
        except TimeoutError as exc:
            raise Cause.NO_CONNECTION.error() from exc

    def release(self, connection: Any, disposals: int) -> None:
        """Make *connection* idle, or close it if it is not usable or from before the last `dispose`."""
        ended: asyncio.Future[object] | None = None
        if self._is_usable(connection) and disposals == self._disposals:
            self._idle.append((connection, time.monotonic()))
            self._timer = self._timer or asyncio.get_running_loop().call_later(IDLE, self._close_idle)
        else:
            ended = self._end(connection)
        if ended is None:
            self._slots.release()
        else:
            ended.add_done_callback(lambda _: self._slots.release())

    def _close_idle(self) -> None:
        """Close connections that have been idle for IDLE."""
        self._timer, before = None, time.monotonic() - IDLE
        while self._idle and self._idle[0][1] <= before:
            self._end(self._idle.pop(0)[0])
        if self._idle:
            self._timer = asyncio.get_running_loop().call_later(IDLE, self._close_idle)


class PooledConnection:
    """Acquires and releases a connection of *pool*: a generator would take three times as long."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Any:
        """Acquire a connection, or raise Busy."""
        began = time.monotonic()
        self._loan = await self._pool.acquire()
        note_wait(time.monotonic() - began)
        return self._loan[0]

    async def __aexit__(self, *_: object) -> None:
        """Release the connection."""
        self._pool.release(*self._loan)
