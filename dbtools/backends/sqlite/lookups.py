"""Rows by their keys, read where they are asked for: a hop to a thread takes ten times as long as they do."""

import sqlite3
import time

from dbtools.backends.port import Fetched, Run
from dbtools.backends.sqlite.guard import secure
from dbtools.backends.sqlite.job import length
from dbtools.backends.sqlite.location import Location
from dbtools.backends.sqlite.opened import open_file
from dbtools.errors import SchemaChanged

LARGEST_VALUE = 65_536  #: bytes of one cell
OPERATIONS = 10_000  #: of SQLite's machine, of which a statement here takes less than three times as many
MOST_LOOKS = 3
LONG = 0.01  #: seconds of CPU after which a statement that has run here was one too long
PAUSE = 60.0  #: seconds in which a statement that takes longer is not tried again
MOST_LEFT = 1_000  #: statements that are known to take longer


class Lookups:
    """A connection on which statements that end at once are run, on the thread of whoever asks.

    It waits for no lock. What is not as it should be is nothing that it knows of: the statement is left to be
    run with time, on a thread, where that is told or mended. A disk is waited for, as for a page of memory.
    """

    def __init__(self, where: Location) -> None:
        """Open the file *where* and look at it, which may take its time; or raise sqlite3.Error."""
        self._file = open_file(where)
        self._left: dict[str, float] = {}  #: statements that take longer, and until when they are left
        self._looks = 0  #: of the statement that runs, so many OPERATIONS apart
        self.is_current = True  #: whether what is in the file has been seen since it was written
        self._connection = sqlite3.connect(
            where.uri(),
            uri=True,
            isolation_level=None,
            cached_statements=256,
            check_same_thread=False,
            timeout=0,
        )
        try:
            secure(self._connection, patience=0)
            self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
            self.look()
        except BaseException:
            self._connection.close()
            raise

    def look(self) -> None:
        """Read the schema again, which takes longer the larger it is, or raise what Lookups does.

        Raise ConnectionLost where this connection is of no use any more.
        """
        self._connection.set_progress_handler(None, 0)
        self._connection.execute("begin")
        try:
            self._file.look(self._connection)
        finally:
            self._connection.rollback()
        self._connection.set_progress_handler(self._is_over, OPERATIONS)
        self.is_current = True

    def fetch(self, run: Run) -> Fetched | None:
        """Return what *run* reads; or None where it has to be run with time.

        Raise ConnectionLost where this connection is of no use any more.
        """
        sql = run.plan.sql
        if not (run.stamp and self.is_current) or self._is_left(sql):
            return None
        began = time.thread_time()
        try:
            rows = self._rows(run)
        except SchemaChanged:
            self.is_current = False
            return None
        except (sqlite3.Error, ValueError, OverflowError) as exc:
            if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
                self._leave(sql)
            return None
        if time.thread_time() - began > LONG:
            self._leave(sql)
        if any(length(row) > run.plan.shortest for row in rows):
            return None
        return Fetched(rows=tuple(rows[: run.limit]), more=len(rows) > run.limit)

    def _rows(self, run: Run) -> list[tuple[object, ...]]:
        connection, self._looks = self._connection, 0
        sql, parameters = f"{run.label.comment}{run.plan.sql}", run.parameters
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

    def _is_left(self, sql: str) -> bool:
        return bool(self._left) and self._left.get(sql, 0.0) > time.monotonic()

    def _leave(self, sql: str) -> None:
        if len(self._left) >= MOST_LEFT:
            self._left.clear()
        self._left[sql] = time.monotonic() + PAUSE

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
