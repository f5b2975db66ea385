"""Rows by their keys, read where they are asked for: a hop to a thread takes ten times as long as they do."""

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from dbtools.dialects.driver import Fetched, Plan
from dbtools.dialects.sqlite.guard import secure
from dbtools.dialects.sqlite.job import Job, Stopped
from dbtools.dialects.sqlite.location import Location
from dbtools.dialects.sqlite.opened import open_file
from dbtools.errors import SchemaChanged

LARGEST_VALUE = 65_536  #: bytes of one cell
MOST_LOOKS = 8  #: at its deadline that a statement may take here: about 30,000 operations
LONG = 0.01  #: seconds after which a statement that has run here was one too long
PAUSE = 60.0  #: seconds in which a statement that takes longer is not tried again
MOST_LEFT = 1_000  #: statements that are known to take longer


@dataclass(kw_only=True)
class Lookup(Job):
    """A job whose time is a number of operations: how busy the machine is says nothing of the statement."""

    looks: int = 0

    def is_over(self) -> bool:
        """Return whether it takes too long to be run here."""
        self.looks += 1
        return self.looks > MOST_LOOKS


class Lookups:
    """A connection on which statements that end at once are run, on the thread of whoever asks.

    It waits for no lock. What is not as it should be is nothing that it knows of: the statement is left to be
    run with time, on a thread, where that is told or mended. A disk is waited for, as for a page of memory.
    """

    def __init__(self, where: Location) -> None:
        """Open the file *where* and look at it, which may take its time; or raise sqlite3.Error."""
        self._file = open_file(where)
        self._left: dict[str, float] = {}  #: statements that take longer, and until when they are left
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
        self._connection.execute("begin")
        try:
            self._file.look(self._connection)
        finally:
            self._connection.rollback()
        self.is_current = True

    def fetch(
        self, plan: Plan, parameters: Sequence[object], *, limit: int, stamp: str, comment: str
    ) -> Fetched | None:
        """Return what *plan*, made for the schema *stamp*, reads; or None where it has to be run with time.

        Raise ConnectionLost where this connection is of no use any more.
        """
        began = time.monotonic()
        if not (stamp and self.is_current) or self._left.get(plan.sql, 0.0) > began:
            return None
        job = Lookup(
            sql=f"{comment}{plan.sql}",
            parameters=parameters,
            outputs=plan.outputs,
            shortest=plan.shortest,
            limit=limit,
            timeout=0.0,
            confirm=partial(self._file.confirm_as_seen, stamp=stamp),
        )
        try:
            return job.run(self._connection)
        except SchemaChanged:
            self.is_current = False
        except Stopped:
            self._leave(plan.sql)
        except (sqlite3.Error, ValueError, OverflowError):
            pass
        finally:
            if time.monotonic() - began > LONG:
                self._leave(plan.sql)
        return None

    def _leave(self, sql: str) -> None:
        if len(self._left) >= MOST_LEFT:
            self._left.clear()
        self._left[sql] = time.monotonic() + PAUSE

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
