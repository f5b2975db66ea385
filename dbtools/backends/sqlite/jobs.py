"""One statement on a connection's thread: a Run in, rows out, their cells cut as they are read.

It looks at its deadline as it runs. Where SQLite refuses to load a cell, the statement runs again for all but
texts and blobs, and these are read piece by piece by the number of their row.
"""

import asyncio
import codecs
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from threading import Event
from typing import TypeVar

import aiosqlite
import anyio
import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools.backends.plans import CELLS_HELD, Plan
from dbtools.backends.port import Run
from dbtools.backends.selects import compile_select
from dbtools.backends.sources import Element, source, unveiled
from dbtools.backends.sqlite.grammar import SqliteGrammar
from dbtools.backends.sqlite.guard import LOCK_TIMEOUT, Search, secure
from dbtools.backends.sqlite.location import Location, open_file, read_any_text, unavailable
from dbtools.backends.sqlite.stamps import ConnectionLost, Opened
from dbtools.catalog import Column, Table
from dbtools.cells import Cut, held
from dbtools.results import ResultSet
from dbtools.statement import Output, Select
from dbtools.types import ColumnType, Family

T = TypeVar("T")
Row = tuple[object, ...]
Reading = Callable[[Row], Row]  #: cells as they are fetched in, as they are answered out

STOP_TIMEOUT = 2.0  #: seconds that a stopped statement has to end before its connection is given up
OPERATIONS = 5_000  #: of SQLite's machine between two looks at the deadline
PIECE = 2**20  #: bytes of a cell that are read at once
LARGE = "('text', 'blob')"  #: storage classes of what is read piece by piece


class Connection(aiosqlite.Connection):
    """A connection that can only read, with its thread, and what is known of both.

    aiosqlite 0.22 has no public way to run several steps in one hop. A public `run` would let us drop the use
    of `_execute`, `_conn` and `_thread`.
    """

    def __init__(self, where: Location) -> None:
        super().__init__(lambda: self._open(where), iter_chunk_size=64)
        # A statement that cannot be stopped must not keep the process from ending.
        self._thread.daemon = True
        self.file = Opened(where)
        self.search: Search
        self.ended: asyncio.Future[object] | None = None  #: if given up: when its thread ends

    @property
    def driver(self) -> sqlite3.Connection:
        """The connection itself, for use on its thread."""
        return self._conn

    def _open(self, where: Location) -> sqlite3.Connection:
        """Open *where*, or raise DatabaseUnavailable."""
        try:
            connection = open_file(where, lock_timeout=LOCK_TIMEOUT)
            # Before it is secured, whose functions nobody replaces.
            self.search = Search(connection)
            secure(connection)
        except sqlite3.Error as exc:
            raise unavailable(where, exc) from exc
        return connection

    async def run(self, work: Callable[["Connection", Event], T]) -> T:
        """Return what *work* returns on the thread, in one hop, or raise ConnectionLost.

        The event is set where the task is cancelled. Then *work* has stopped before this returns, or the
        connection is given up.
        """
        cancelled = Event()
        try:
            result: T = await self._execute(work, self, cancelled)  # type: ignore[no-untyped-call]
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


class Job:
    """The statement of *run* on the thread of *connection*, from this moment until *cancelled* is set."""

    def __init__(self, run: Run, connection: Connection, cancelled: Event) -> None:
        self._run = run
        self._connection = connection
        self._cancelled = cancelled
        self._driver = connection.driver
        self._outputs, self._shortest = run.plan.outputs, run.plan.shortest
        self._deadline = time.monotonic() + run.timeout

    def fetch(self) -> ResultSet:
        """Return the rows, or raise Stopped, SchemaChanged, ConnectionLost or sqlite3.Error."""
        self._driver.set_progress_handler(self._expired, OPERATIONS)
        self._connection.search.check = self._check
        try:
            self._check()
            # What is read is of one moment, and so is the version of its schema.
            self._driver.execute("begin")
            self._connection.file.confirm(self._driver, self._run.stamp)
            return self._fetch_somehow()
        except sqlite3.OperationalError as exc:
            # The error of a function that has ended by itself is a general one.
            if exc.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT or self._expired():
                raise Stopped from exc
            raise
        finally:
            self._driver.set_progress_handler(None, 0)
            self._driver.rollback()

    def _fetch_somehow(self) -> ResultSet:
        """Run the statement, and in other ways where a cell is too large to be loaded."""
        too_big = sqlite3.DataError()
        for plan, read in self._ways():
            try:
                return self._fetch(plan, read)
            except sqlite3.DataError as exc:
                if not is_too_big(exc):
                    raise
                too_big = exc
        raise too_big

    def _ways(self) -> Iterator[tuple[Plan, Reading | None]]:
        """Yield the ways to run the statement, each for when a cell was too large for the one before."""
        shape = self._run.plan.shape
        yield self._run.plan, None
        if isinstance(shape, Select):
            if filtering := filtering_plan(shape):
                yield filtering, None
            if giant := giant_plan(shape):
                yield giant, self._giant_row

    def _fetch(self, plan: Plan, read: Reading | None) -> ResultSet:
        sql = f"{self._run.label.comment}{plan.sql}"
        parameters = plan.bound(self._run.values, self._run.limit)
        driver = self._driver
        return read_any_text(driver, lambda: self._rows(driver.execute(sql, parameters), read))

    def _rows(self, cursor: sqlite3.Cursor, read: Reading | None) -> ResultSet:
        rows: list[Row] = []
        total, most, shortest, more = 0, self._run.limit, self._shortest, False
        try:
            for row in cursor:
                if len(rows) == most or total > CELLS_HELD:
                    more = True
                    break
                if read is not None:
                    row = read(row)
                length = held(row)
                if length > shortest or read is not None:
                    # Few rows hold so much that a cell of theirs may have to be cut, or take long to read.
                    self._check()
                    row = tuple(map(_cut, row, self._outputs))
                    length = held(row)
                total += length
                rows.append(row)
        finally:
            cursor.close()
        return ResultSet(outputs=self._outputs, rows=tuple(rows), more=more, length=total)

    def _giant_row(self, row: Row) -> Row:
        """Return the cells of *row*, which is of a `giant_plan`."""
        self._check()
        half = len(row) // 2
        cells, kinds = row[:half], row[half:]
        number = cells[-1]
        assert isinstance(number, int)
        return tuple(
            self._large_cell(output, number, kind) if kind in ("text", "blob") else cell
            for output, cell, kind in zip(self._outputs, cells, kinds, strict=False)
        )

    def _large_cell(self, output: Output, number: int, kind: object) -> object:
        shape, name = self._run.plan.shape, output.term.name
        assert isinstance(shape, Select)
        try:
            blob = self._driver.blobopen(shape.table.name, name, number, readonly=True)
        except sqlite3.OperationalError:
            # Computed, or the default of a column that is younger than the row: only a statement has it.
            (cell,) = self._driver.execute(_statement_of_cell(shape.table, name), (number,)).fetchone()
            return _cut(cell, output)
        with blob:
            most = len(blob) if output.longest is None else output.longest
            return self._text(blob, most) if kind == "text" else _begun(blob.read(most), len(blob))

    def _text(self, blob: sqlite3.Blob, most: int) -> object:
        (encoding,) = self._driver.execute("pragma encoding").fetchone()
        # As small cells are read: bytes that are no UTF-8 stay, what is no UTF-16 SQLite itself replaces.
        errors = "surrogateescape" if encoding == "UTF-8" else "replace"
        decoder = codecs.getincrementaldecoder(encoding)(errors)
        start, whole = "", 0
        while piece := blob.read(PIECE):
            self._check()
            text = decoder.decode(piece, final=blob.tell() == len(blob))
            start += text[: most - len(start)]
            whole += len(text)
        return _begun(start, whole)

    def _check(self) -> None:
        if self._expired():
            raise Stopped

    def _expired(self) -> bool:
        return self._cancelled.is_set() or time.monotonic() > self._deadline


def is_too_big(error: Exception) -> bool:
    """Return whether a cell is larger than SQLite may load."""
    return getattr(error, "sqlite_errorname", "") == "SQLITE_TOOBIG" or "too big" in str(error)


def _cut(cell: object, output: Output) -> object:
    """Return *cell*, or its beginning where it is longer than *output* wants it."""
    if isinstance(cell, str | bytes) and output.longest is not None:
        return _begun(cell[: output.longest], len(cell))
    return cell


def _begun(start: str | bytes, whole: int) -> object:
    """Return *start*, as a Cut where it is only the beginning of a cell of the length *whole*."""
    return start if len(start) == whole else Cut(start=start, length=whole)


class FilteringGrammar(SqliteGrammar):
    """The Grammar of SQLite for statements that load no cell of a hidden row, but for their filter."""

    barrier = True


class GiantGrammar(FilteringGrammar):
    """The Grammar of SQLite for statements that load no text and no blob."""

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Read the cell where it is small, and its storage class, which is known without its content."""
        kind = sa.func.typeof(column)
        small = kind.op("not in", is_comparison=True)(sa.literal_column(LARGE))
        return sa.case((small, column)), kind


@lru_cache(maxsize=100)
def filtering_plan(shape: Select) -> Plan | None:
    """Return how *shape* is read without loading hidden rows, or None where nothing is filtered."""
    plan = compile_select(shape, FilteringGrammar())
    return plan if plan.sql != compile_select(shape, SqliteGrammar()).sql else None


def giant_plan(shape: Select) -> Plan | None:
    """Return how *shape* is read without texts and blobs, or None where its cells have no number of a row."""
    own = all(isinstance(output.term, Column) for output in shape.outputs)
    if shape.table.row_identifier is None or shape.groups or not own:
        return None
    integer = ColumnType(family=Family.INTEGER, name="integer")
    number = Output(term=Column(name=shape.table.row_identifier, type=integer, nullable=False))
    return compile_select(replace(shape, outputs=(*shape.outputs, number)), GiantGrammar())


@lru_cache(maxsize=100)
def _statement_of_cell(table: Table, name: str) -> str:
    rows = source(table, "t", SqliteGrammar(), {})
    column: Element = sa.column(quoted_name(name, quote=True), _selectable=rows)
    number: Element = sa.column(quoted_name(str(table.row_identifier), quote=True), _selectable=rows)
    statement = sa.select(column).select_from(rows).where(number == sa.bindparam("number"))
    return unveiled(str(statement.compile(dialect=SqliteGrammar.dialect)))
