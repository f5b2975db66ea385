"""A connection of sqlite3 whose cache of prepared statements is bounded by their length. SQL in, rows out.

sqlite3 bounds the number of statements only. One of 28 expressions takes 170 kB, so 256 of them on each of
8 connections would take 350 MB.
"""

import sqlite3
from typing import Any

STATEMENTS = 256  #: prepared statements that a connection caches
LONG = 1_000  #: characters; shorter statements take 2 MB together at most
MOST_PREPARED = 250_000  #: characters of the long statements; SQLite takes about eight bytes for each


class BoundedConnection(sqlite3.Connection):
    """A connection that forgets its prepared statements when the long ones among them are too many."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Open a connection as `sqlite3.connect` does."""
        super().__init__(*arguments, **options)
        self.long: set[str] = set()  #: the long statements that may be cached
        self.length = 0  #: characters of them

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        """Execute *sql*."""
        if len(sql) > LONG and sql not in self.long:
            self._make_room(len(sql))
            self.long.add(sql)
            self.length += len(sql)
        return super().execute(sql, *parameters)

    def _make_room(self, length: int) -> None:
        """Forget all statements if those that are *length* longer would be too long."""
        if not self.long or self.length + length <= MOST_PREPARED:
            return
        # sqlite3 (Python 3.14) has no other way to empty its cache.
        for number in range(STATEMENTS):
            super().execute(f"select {number}").close()
        self.long.clear()
        self.length = 0
