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

LARGEST_VALUE = 2**20  #: bytes of one cell
MOST_LOOKS = 8  #: at its deadline that a statement may take here: about 30,000 operations
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

    It never waits for a lock. What is not as it should be is nothing that it knows of: the statement is left
    to be run with time, on a thread, where that is told or mended.
    """

    def __init__(self, where: Location) -> None:
        """Open the file *where*, or raise sqlite3.Error."""
        self._file = open_file(where)
        self._left: dict[str, float] = {}  #: statements that take longer, and until when they are left
        # Opened on a thread, since that may take its time, and used on another.
        self._connection = sqlite3.connect(
            where.uri(),
            uri=True,
            isolation_level=None,
            cached_statements=256,
            check_same_thread=False,
            timeout=0,
        )
        secure(self._connection, patience=0)
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)

    def fetch(
        self, plan: Plan, parameters: Sequence[object], *, limit: int, stamp: str, comment: str
    ) -> Fetched | None:
        """Return what *plan* reads, or None where it has to be run with time.

        Raise ConnectionLost where this connection is of no use any more.
        """
        if self._left.get(plan.sql, 0.0) > time.monotonic():
            return None
        job = Lookup(
            sql=f"{comment}{plan.sql}",
            parameters=parameters,
            outputs=plan.outputs,
            shortest=plan.shortest,
            limit=limit,
            timeout=0.0,
            confirm=partial(self._file.confirm, stamp=stamp),
        )
        try:
            return job.run(self._connection)
        except Stopped:
            self._leave(plan.sql)
        except (SchemaChanged, sqlite3.Error):
            pass
        return None

    def _leave(self, sql: str) -> None:
        if len(self._left) >= MOST_LEFT:
            self._left.clear()
        self._left[sql] = time.monotonic() + PAUSE

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
