"""One statement on SQLite's thread: it looks at its deadline as it runs, and cuts cells as it reads them."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dbtools.backends.plans import CELLS_HELD
from dbtools.backends.port import Fetched
from dbtools.backends.sqlite.searching import Search
from dbtools.cells import Cut
from dbtools.statement import Output

OPERATIONS = 5_000  #: of SQLite's machine between two looks at the deadline


class Stopped(Exception):
    """The statement was stopped: by its deadline, or because nobody waits for it."""


@dataclass(kw_only=True)
class Job:
    """What the thread is given, and what others may tell it meanwhile."""

    sql: str
    parameters: Sequence[object]
    outputs: tuple[Output, ...]
    shortest: int  #: characters or bytes up to which no cell is cut
    limit: int
    timeout: float
    confirm: Callable[[sqlite3.Connection], None]  #: raises where the statement is for another schema
    search: Search  #: of the connection
    cancelled: bool = False
    deadline: float = field(default=0.0, init=False)

    def run(self, connection: sqlite3.Connection) -> Fetched:
        """Run the statement and return its rows, or raise Stopped or sqlite3.Error."""
        self.deadline = time.monotonic() + self.timeout
        connection.set_progress_handler(self._expired, OPERATIONS)
        self.search.check = self._check
        try:
            self._check()
            # What is read is of one moment, and so is the version of its schema.
            connection.execute("begin")
            self.confirm(connection)
            return self._fetch(connection)
        except sqlite3.OperationalError as exc:
            # The error of a function that has ended by itself is a general one.
            if exc.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT or self._expired():
                raise Stopped from exc
            raise
        finally:
            connection.set_progress_handler(None, 0)
            connection.rollback()

    def _fetch(self, connection: sqlite3.Connection) -> Fetched:
        try:
            return self._rows(connection.execute(self.sql, self.parameters))
        except sqlite3.OperationalError as exc:
            if not str(exc).startswith("Could not decode"):
                raise
        # Text that is no UTF-8: read it again by way of the bytes, which costs more.
        connection.text_factory = _decoded
        try:
            return self._rows(connection.execute(self.sql, self.parameters))
        finally:
            connection.text_factory = str

    def _rows(self, cursor: sqlite3.Cursor) -> Fetched:
        rows: list[tuple[object, ...]] = []
        room = CELLS_HELD
        try:
            for row in cursor:
                self._check()
                if len(rows) == self.limit or room < 0:
                    return Fetched(rows=tuple(rows), more=True)
                cells = self._row(cursor, row)
                room -= length(cells)
                rows.append(cells)
        finally:
            cursor.close()
        return Fetched(rows=tuple(rows), more=False)

    def _row(self, cursor: sqlite3.Cursor, row: Sequence[object]) -> tuple[object, ...]:
        # Few rows hold so much that a cell of theirs may have to be cut.
        return tuple(map(cut, row, self.outputs)) if length(row) > self.shortest else tuple(row)

    def _check(self) -> None:
        if self._expired():
            raise Stopped

    def _expired(self) -> bool:
        return self.cancelled or time.monotonic() > self.deadline


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def length(row: Sequence[object]) -> int:
    """Return how many characters and bytes *row* holds."""
    return sum([len(cell) for cell in row if isinstance(cell, str | bytes)])


def cut(cell: object, output: Output) -> object:
    """Return *cell*, or its beginning where it is longer than *output* wants it."""
    longest = output.longest
    if isinstance(cell, str | bytes) and longest is not None and len(cell) > longest:
        return Cut(start=cell[:longest], length=len(cell))
    return cell
