"""A pool of connections to a database, for both drivers."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from dbtools import errors
from dbtools.telemetry import note_wait

PATIENCE = 5.0  #: seconds that a call waits for a connection
IDLE = 300.0  #: seconds after which a connection that nobody has needed is closed


class Pool:
    """At most *size* connections, each lent to one call at a time: to the one that has waited longest.

    *connect* opens one if none is idle. *end* closes one, and may return a future: until that is done, no
    other one is opened in its place. A connection that is no longer usable is closed.
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
        self._free = size  #: connections that may still be opened
        #: With the times since when they wait, those used last at the end: what was used last is warm.
        self._idle: list[tuple[Any, float]] = []
        #: The calls that wait. Each gets a connection, or None to open one.
        self._turns: deque[asyncio.Future[Any]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._era = object()  #: another one after each disposal

    def connection(self) -> "Loan":
        """Return what lends a connection, or raises Busy where none comes free in time."""
        return Loan(self)

    @property
    def warmest(self) -> Any:
        """The idle connection that was used last, if any: for use before anything is awaited."""
        return self._idle[-1][0] if self._idle else None

    async def dispose(self) -> None:
        """Close the idle connections; those in use are closed when they are released."""
        idle, self._idle, self._era = self._idle, [], object()
        await _all_of(self._close(connection for connection, _ in idle))

    async def acquire(self) -> tuple[Any, object]:
        """Return a connection that is to be released, and its era; or raise Busy."""
        while self._idle:
            connection, _ = self._idle.pop()
            if self._is_usable(connection):
                return connection, self._era
            self._free += 1
        if self._free:
            self._free -= 1
        else:
            connection, era = await self._turn()
            if connection is not None:
                return connection, era
        era = self._era
        try:
            return await self._connect(), era
        except BaseException:
            self._hand_on(None)
            raise

    async def _turn(self) -> tuple[Any, object]:
        """Wait for a connection, with its era, or for None: the right to open one."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(PATIENCE):
                connection, era = await turn
                return connection, era
        except BaseException as exc:
            if turn.done() and not turn.cancelled():
                # It came at the moment at which the wait ended.
                self._take_back(*turn.result())
            if isinstance(exc, TimeoutError):
                raise _busy() from exc
            raise

    async def release(self, connection: Any, era: object) -> None:
        """Take *connection* back, which is of *era*."""
        await _all_of(self._take_back(connection, era))

    def _take_back(self, connection: Any, era: object) -> Sequence[asyncio.Future[object]]:
        if connection is not None and not (self._is_usable(connection) and era is self._era):
            return self._close([connection])
        self._hand_on(connection)
        return ()

    def _hand_on(self, connection: Any) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result((connection, self._era))
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
        self._close(connection for connection, _ in old)
        if self._idle:
            self._timer = asyncio.get_running_loop().call_later(IDLE, self._close_idle)

    def _close(self, connections: Iterable[Any]) -> list[asyncio.Future[object]]:
        """Close *connections*, and return the futures of those that end soon."""
        ending: list[asyncio.Future[object]] = []
        for connection in connections:
            is_idle, ended = self._is_usable(connection), self._end(connection)
            if ended is None:
                self._hand_on(None)
            else:
                ended.add_done_callback(lambda _: self._hand_on(None))
                if is_idle:
                    ending.append(ended)
        return ending


class Loan:
    """Lends a connection of *pool*: written out, since a generator would take thrice as long."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def __aenter__(self) -> Any:
        """Lend a connection, or raise Busy."""
        began = time.monotonic()
        self._connection, self._era = await self._pool.acquire()
        note_wait(time.monotonic() - began)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        """Give it back."""
        await self._pool.release(self._connection, self._era)


def _busy() -> errors.Busy:
    return errors.Busy("All connections to the database are busy.", hint="Try again.")


async def _all_of(ending: Sequence[asyncio.Future[object]]) -> None:
    if ending:
        await asyncio.wait(ending)
