"""Rows by their keys, read where they are asked for: a hop to a thread takes ten times as long as they do."""

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from dbtools.backends.port import Run
from dbtools.backends.sqlite.guard import secure
from dbtools.backends.sqlite.location import Location, open_file
from dbtools.backends.sqlite.stamps import ConnectionLost, Opened
from dbtools.cells import held
from dbtools.errors import SchemaChanged
from dbtools.results import ResultSet

LARGEST_VALUE = 65_536  #: bytes of one cell
OPERATIONS = 10_000  #: of SQLite's machine, of which a statement here takes less than three times as many
MOST_LOOKS = 3
LONG = 0.01  #: seconds of CPU after which a statement that has run here was one too long
PAUSE = 60.0  #: seconds in which a statement that takes longer is not tried again
MOST_LEFT = 1_000  #: statements that are known to take longer
RETRY = 1.0  #: seconds after which a file that could not be opened or read is tried again


class Lookups:
    """A connection on which statements that end at once are run, on the thread of whoever asks.

    It waits for no lock. What is not as it should be is nothing that it knows of: the statement is left to be
    run with time, on a thread, where that is told or mended. A disk is waited for, as for a page of memory.
    """

    def __init__(self, where: Location) -> None:
        self._where = where
        self._connection: sqlite3.Connection | None = None
        self._file: Opened
        self.are_current = False  #: whether what is in the file has been seen since it was written
        self._thread = ThreadPoolExecutor(max_workers=1)
        #: Set while the thread reads the file; nothing else uses the connection then.
        self._renewal: asyncio.Future[None] | None = None
        self._closed = False
        self._retry = 0.0  #: when they may be renewed
        self._left: dict[str, float] = {}  #: statements that take longer, and until when they are left
        self._slow: set[str] = set()  #: statements that took long once
        self._looks = 0  #: of the statement that runs, so many OPERATIONS apart

    def fetch(self, run: Run) -> ResultSet | None:
        """Return what *run*, which reads a row by its key, finds; None where it has to be run with time."""
        plan, sql = run.plan, run.plan.sql
        if not (run.stamp and self.are_current) or self._left.get(sql, 0.0) > time.monotonic():
            return None
        began = time.thread_time()
        try:
            rows = self._rows(run)
        except SchemaChanged:
            self.are_current = False
            return None
        except ConnectionLost:
            self.drop()
            return None
        except (sqlite3.Error, ValueError, OverflowError) as exc:
            if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                self._leave(sql)
            return None
        if time.thread_time() - began > LONG:
            # Once, it may have been the garbage collector.
            if sql in self._slow:
                self._leave(sql)
            self._slow.add(sql)
        length, more = sum(map(held, rows)), len(rows) > run.limit
        if length > plan.shortest:
            return None
        return ResultSet(outputs=plan.outputs, rows=tuple(rows[: run.limit]), more=more, length=length)

    def _rows(self, run: Run) -> list[tuple[object, ...]]:
        connection, self._looks = self._connection, 0
        assert connection is not None
        sql, parameters = run.label.comment + run.plan.sql, run.parameters
        # What is read is of one moment, and so is the version of its schema.
        connection.execute("begin")
        try:
            self._file.confirm_as_seen(connection, run.stamp)
            return connection.execute(sql, parameters).fetchmany(run.limit + 1)
        finally:
            connection.rollback()

    def _is_over(self) -> bool:
        """Return whether the statement takes too long: how busy the machine is says nothing of that."""
        self._looks += 1
        return self._looks > MOST_LOOKS

    def _leave(self, sql: str) -> None:
        if len(self._left) >= MOST_LEFT:
            self._left.clear()
            self._slow.clear()
        self._left[sql] = time.monotonic() + PAUSE

    @property
    def are_due(self) -> bool:
        """Whether somebody is to `renew` them."""
        ready = not (self.are_current or self._renewal or self._closed)
        return ready and time.monotonic() >= self._retry

    async def renew(self) -> None:
        """See what is in the file, on a thread."""
        renewal = asyncio.get_running_loop().run_in_executor(self._thread, self.look)
        renewal.add_done_callback(self._end)
        self._renewal = renewal
        # Where nobody waits any more, the thread goes on, and the loop hears of its end.
        await asyncio.wait([renewal])
        with suppress(sqlite3.Error, ConnectionLost):
            renewal.result()

    def _end(self, renewal: asyncio.Future[None]) -> None:
        """Take the connection back from the thread of *renewal*."""
        self._renewal = None
        self.are_current = not renewal.cancelled() and renewal.exception() is None
        if not self.are_current:
            # Locked, it may be. Every statement runs with time till then.
            self._retry = time.monotonic() + RETRY

    def look(self) -> None:
        """Open the file, or read its schema again, which takes longer the larger that is.

        Raise sqlite3.Error or ConnectionLost, and leave nothing open.
        """
        try:
            connection = self._connection or self._open()
            connection.set_progress_handler(None, 0)
            connection.execute("begin")
            try:
                self._file.look(connection)
            finally:
                connection.rollback()
            connection.set_progress_handler(self._is_over, OPERATIONS)
        except BaseException:
            self._close_connection()
            raise

    def _open(self) -> sqlite3.Connection:
        self._file = Opened(self._where)
        self._connection = open_file(self._where, lock_timeout=0)
        secure(self._connection)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
        return self._connection

    def close(self) -> None:
        """Close the connection for good."""
        self._closed = True
        self._thread.shutdown(wait=False)
        self.drop()

    def drop(self) -> None:
        """Close the connection, once no thread uses it; `renew` opens another."""
        if self._renewal:
            self._renewal.add_done_callback(lambda _: self.drop())
            return
        self.are_current = False
        self._close_connection()

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
