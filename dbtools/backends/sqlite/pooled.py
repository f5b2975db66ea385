"""The pool of connections to a file, and beside it one for lookups."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
import anyio

from dbtools.backends.pool import EnginePool
from dbtools.backends.port import Fetched, Run
from dbtools.backends.sqlite.location import Location
from dbtools.backends.sqlite.lookups import Lookups
from dbtools.backends.sqlite.opened import ConnectionLost
from dbtools.backends.sqlite.threads import on_thread

PAUSE = 1.0  #: seconds after which lookups that could not be opened are tried again


class SqlitePool(EnginePool):
    """Connections with a thread each. Whoever is lent one sees to it that there are lookups."""

    def __init__(
        self,
        where: Location,
        connect: Callable[[], Awaitable[aiosqlite.Connection]],
        *,
        size: int,
        given_up: "Mapping[aiosqlite.Connection, asyncio.Future[object]]",
    ) -> None:
        super().__init__(
            "sqlite+aiosqlite://", connect, size=size, is_usable=lambda connection: connection not in given_up
        )
        self._given_up = given_up
        self._where = where
        self._lookups: Lookups | None = None  #: none while somebody prepares them
        self._preparing = False
        self._again = 0.0  #: when they may be prepared
        self._closed = False

    def look_up(self, run: Run) -> Fetched | None:
        """Return what *run*, which reads a row by its key, finds; None where that may take its time."""
        if self._lookups is None:
            return None
        try:
            return self._lookups.fetch(run)
        except ConnectionLost:
            self._end_lookups()
            return None

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """Lend a connection, or raise Busy where none comes free in time."""
        async with super().connection() as connection:
            if self._wants_lookups():
                await self._prepare(connection)
            yield connection

    def _leave(self, pooled: Any) -> None:
        """Open none in its place before its thread has ended: each takes a core."""
        ended = self._given_up[pooled.driver_connection]
        ended.add_done_callback(lambda _: super(SqlitePool, self)._leave(pooled))

    def _wants_lookups(self) -> bool:
        is_current = self._lookups is not None and self._lookups.is_current
        return not (is_current or self._preparing or time.monotonic() < self._again)

    async def _prepare(self, connection: aiosqlite.Connection) -> None:
        """Open lookups, or have them look again, on the thread of *connection*."""
        lookups, self._lookups = self._lookups, None

        def prepare(_: sqlite3.Connection) -> Lookups:
            if lookups is None:
                return Lookups(self._where)
            try:
                lookups.look()
            except BaseException:
                lookups.close()
                raise
            return lookups

        self._preparing = True
        try:
            with anyio.CancelScope(shield=True):
                prepared = await on_thread(connection, prepare)
        except (sqlite3.Error, ConnectionLost):
            # Locked, it may be. Every statement runs with time till then.
            self._again = time.monotonic() + PAUSE
        else:
            self._lookups = prepared
        finally:
            self._preparing = False
        if self._closed:
            self._end_lookups()

    async def reopen(self) -> None:
        """Close the connections that nobody uses, also that for lookups."""
        self._end_lookups()
        await super().reopen()

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        self._end_lookups()
        await super().close()

    def _end_lookups(self) -> None:
        lookups, self._lookups = self._lookups, None
        if lookups is not None:
            lookups.close()
