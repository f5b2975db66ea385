"""A connection to a SQLite file that can only read, with its thread: statements in, rows out."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Event
from typing import TypeVar

import aiosqlite
import anyio

from dbtools.backends.port import Run
from dbtools.backends.sqlite.files import (
    SCHEMA_VERSION,
    Location,
    identity_of,
    is_locked,
    open_file,
    stamp_of,
    unavailable,
)
from dbtools.backends.sqlite.guard import LARGEST_VALUE, LOCK_TIMEOUT, Search, secure
from dbtools.cells import held
from dbtools.results import ResultSet

T = TypeVar("T")
STOP_TIMEOUT = 2.0  #: seconds that a stopped statement has to end before its connection is given up
PAUSE = 0.01  #: seconds between two attempts to read a file that another program locks
OPERATIONS = 5_000  #: of SQLite's machine between two looks at the deadline
MOST_LOOKS = 5  #: of a statement on the event loop
SMALL_VALUE = 65_536  #: bytes of a cell that is read there
DATA_VERSION = "pragma data_version"  #: differs on a connection once any other one has written to the file


class ConnectionLost(Exception):
    """The connection's thread has ended, or it has opened another file or schema than there is now."""


class Connection(aiosqlite.Connection):
    """A connection that can only read, with its thread. It serves the file and the schema that it has opened.

    SQLite keeps what it has read of a schema while the count of changes is the same, and another program may
    fill the file with a database of the same count.

    aiosqlite 0.22 has no public way to run several steps in one hop. A public `run` would let us drop the use
    of `_execute`, `_conn` and `_thread`.
    """

    def __init__(self, where: Location) -> None:
        super().__init__(lambda: _patiently(self._open), iter_chunk_size=64)
        # A statement that cannot be stopped must not keep the process from ending.
        self._thread.daemon = True
        self._where, self._identity = where, identity_of(where)
        self._seen = -1, -1  #: the versions when the stamp was read
        self._stamp = ""
        self.search: Search
        self.ended: asyncio.Future[object] | None = None  #: if given up: when its thread ends

    @property
    def driver(self) -> sqlite3.Connection:
        """The connection itself: for its thread, or for the event loop while that has nothing to do."""
        return self._conn

    def _open(self) -> sqlite3.Connection:
        """Open the file, or raise DatabaseUnavailable."""
        try:
            connection = open_file(self._where, lock_timeout=0)
            # Before it is secured, whose functions nobody replaces.
            self.search = Search(connection)
            secure(connection)
        except sqlite3.Error as exc:
            if is_locked(exc):
                raise
            raise unavailable(self._where, exc) from exc
        return connection

    def stamp(self) -> str:
        """Return the stamp of the schema, in the transaction that has begun; or raise ConnectionLost."""
        versions = self._versions()
        if versions != self._seen:
            stamp = stamp_of(self.driver, self._identity)
            if self._stamp not in ("", stamp):
                raise ConnectionLost
            self._seen, self._stamp = versions, stamp
        return self._stamp

    def _versions(self) -> tuple[int, int]:
        """Return the version of the schema, and that of the file."""
        # No file at all may be one that is being replaced: what is open can still be read.
        if identity_of(self._where) not in (self._identity, ""):
            raise ConnectionLost
        (schema,) = self.driver.execute(SCHEMA_VERSION).fetchone()
        (content,) = self.driver.execute(DATA_VERSION).fetchone()
        return schema, content

    def lookup(self, run: Run) -> ResultSet | None:
        """Return what *run*, which reads a row by its key, finds at once, on the event loop.

        A hop to a thread takes ten times as long. Return None where there is something to wait for or to cut,
        such as a lock, and raise Stopped where the statement takes long: it is to be run on the thread.
        """
        driver, plan, looks = self.driver, run.plan, count(1)
        driver.set_progress_handler(lambda: next(looks) > MOST_LOOKS, OPERATIONS)
        driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, SMALL_VALUE)
        try:
            driver.execute("begin")
            # As quick for any schema: what has been written is looked at on the thread.
            if not run.stamp or run.stamp != self._stamp or self._versions() != self._seen:
                return None
            rows = driver.execute(run.label.comment + plan.sql, run.parameters).fetchmany(run.limit + 1)
        except (sqlite3.Error, ConnectionLost, ValueError, OverflowError) as exc:
            if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                raise Stopped from exc
            return None
        finally:
            driver.rollback()
            driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
            driver.set_progress_handler(None, 0)
        length, more = sum(map(held, rows)), len(rows) > run.limit
        if length > plan.shortest:
            return None
        return ResultSet(outputs=plan.outputs, rows=tuple(rows[: run.limit]), more=more, length=length)

    async def run(self, work: Callable[["Connection", Event], T]) -> T:
        """Return what *work* returns on the thread, in one hop, or raise ConnectionLost.

        The event is set where the task is cancelled. Then *work* has stopped before this returns, or the
        connection is given up.
        """
        cancelled = Event()
        try:
            result: T = await self._execute(  # type: ignore[no-untyped-call]
                _patiently, lambda: work(self, cancelled), cancelled.is_set
            )
        except ValueError as exc:
            raise ConnectionLost from exc
        except asyncio.CancelledError:
            cancelled.set()
            with anyio.CancelScope(shield=True):
                await self._stop_work()
            raise
        return result

    async def _stop_work(self) -> None:
        with suppress(TimeoutError):
            try:
                await self.interrupt()
                async with asyncio.timeout(STOP_TIMEOUT):
                    # What the thread does next.
                    await self._execute(lambda: None)  # type: ignore[no-untyped-call]
            except BaseException:
                # A second cancellation, which asyncio sends through the scope, also leaves the thread busy.
                self.give_up()
                raise

    def give_up(self) -> "asyncio.Future[object]":
        """Close the connection when its thread has done its work, and return what is done then."""
        if self.ended is None:
            self.ended = self.stop()
        assert self.ended is not None
        return self.ended


class Stopped(Exception):
    """The statement was stopped: by its deadline, or because nobody waits for it."""


def _patiently(work: Callable[[], T], is_over: Callable[[], bool] = lambda: False) -> T:
    """Return what *work* returns, which is done again while another program locks the file."""
    until = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            return work()
        except sqlite3.OperationalError as exc:
            if not is_locked(exc) or is_over() or time.monotonic() > until:
                raise
        time.sleep(PAUSE)
