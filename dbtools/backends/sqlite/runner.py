"""Statements on SQLite: a Run in, rows out, by one hop to a connection's thread, or none.

A Job looks at its deadline as it runs, and cuts cells as they are read. Where SQLite refuses to load a cell,
the statement runs again for all but texts and blobs, and these are read piece by piece by the number of their
row.
"""

import asyncio
import codecs
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from threading import Event
from typing import TypeVar

import sqlalchemy as sa

from dbtools import errors
from dbtools.backends.plans import CELLS_HELD, Plan, identifier
from dbtools.backends.pool import Pool
from dbtools.backends.port import Probe, Run
from dbtools.backends.selects import compile_query, compile_select
from dbtools.backends.sources import Element
from dbtools.backends.sqlite.connections import OPERATIONS, Connection, ConnectionLost, Stopped
from dbtools.backends.sqlite.files import RECOVERY, Location, is_locked, read_any_text, wants_recovery
from dbtools.backends.sqlite.grammar import SqliteGrammar
from dbtools.backends.sqlite.inspection import LIST_FORMS
from dbtools.backends.sqlite.syntax import lexis
from dbtools.catalog import Column
from dbtools.cells import Cut, held
from dbtools.errors import SchemaChanged
from dbtools.results import ResultSet
from dbtools.statement import Output, QueryShape, Select, Shape
from dbtools.types import ColumnType, Family

T = TypeVar("T")
CONNECTIONS = 8
ATTEMPTS = 2  #: to run something, where connections are lost
MOST_SLOW = 1_000  #: lookups that are known to take long
GRACE = 1.0  #: seconds beyond its timeout in which a statement is expected to have stopped itself
WRITTEN = "dbtools_probe"  #: a table that is never kept
GRAMMAR = SqliteGrammar()
Row = tuple[object, ...]
Reading = Callable[[Row], Row]  #: cells as they are fetched in, as they are answered out
PIECE = 2**20  #: bytes of a cell that are read at once
CELL = "select {} from {} where {} = ?"
LARGE = "('text', 'blob')"  #: storage classes of what is read piece by piece


class SqliteRunner:
    """The Runner of SQLite."""

    confirms = True

    def __init__(self, where: Location, connect: Callable[[Location], Connection] = Connection) -> None:
        self._pool = pool_of(lambda: connect(where), size=CONNECTIONS)
        self._slow: set[str] = set()  #: lookups that take long

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, lexis, LIST_FORMS)
        return compile_select(shape, GRAMMAR)

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*: at once where it reads a row by its key, else in one hop."""
        found = self._lookup(run) if run.plan.is_lookup else None
        if found is not None:
            return found
        try:
            async with asyncio.timeout(run.timeout + GRACE):
                return await self._on_thread(lambda *thread: Job(run, *thread).fetch())
        except TimeoutError as exc:
            raise errors.TimedOut from exc

    def _lookup(self, run: Run) -> ResultSet | None:
        """Return the rows of *run* where it ends at once on the connection that was used last."""
        connection: Connection | None = self._pool.warmest
        if connection is None or run.plan.sql in self._slow:
            return None
        try:
            return connection.lookup(run)
        except Stopped:
            if len(self._slow) >= MOST_SLOW:
                self._slow.clear()
            self._slow.add(run.plan.sql)
        return None

    async def stamp(self) -> str:
        """Return the stamp of the schema now, in one hop."""
        return await self._on_thread(lambda connection, _: _stamp(connection))

    async def ready(self) -> None:
        """Raise a CallError where no connection can be had."""
        await self._on_thread(lambda *_: None)

    async def probe(self) -> Probe:
        """Try to make a table on a connection for calls."""
        return await self._on_thread(lambda connection, _: _probe(connection.driver))

    async def _on_thread(self, work: Callable[[Connection, Event], T]) -> T:
        """Return what *work* returns on the thread of a connection, and of another one where that is lost."""
        for _ in range(ATTEMPTS):
            try:
                async with self._pool.connection() as connection:
                    result: T = await connection.run(work)
                    return result
            except ConnectionLost as exc:
                lost = exc
                # The other connections that wait are out of date as well.
                await self._pool.dispose()
            except (Stopped, sqlite3.Error) as exc:
                raise translated(exc) from exc
        raise errors.Unreadable from lost

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.dispose()


def pool_of(connect: Callable[[], Connection], *, size: int) -> Pool:
    """Return the pool of connections that *connect* makes, each with its thread."""

    async def opened() -> Connection:
        connection = connect()
        await connection
        return connection

    return Pool(
        opened, size=size, is_usable=lambda connection: connection.ended is None, end=Connection.give_up
    )


def open_engine(where: Location) -> sa.Engine:
    """Return an engine that may change the database file at *where*, or make it."""
    return sa.create_engine(sa.URL.create("sqlite", database=where.name), poolclass=sa.NullPool)


def translated(error: Exception) -> errors.CallError:
    """Return what *error* means to a caller, without its text: that quotes data."""
    if isinstance(error, Stopped):
        return errors.TimedOut()
    name = getattr(error, "sqlite_errorname", "") or ""
    if is_locked(error):
        return errors.Busy()
    if wants_recovery(error):
        return errors.DatabaseUnavailable(RECOVERY[0], hint=RECOVERY[1])
    if "integer overflow" in str(error):
        return errors.OutOfRange()
    if is_too_big(error):
        return errors.Unreadable(
            "A cell is larger than 16 MiB and cannot be read here.", hint="Name columns without it."
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_IOERR")):
        return errors.DatabaseUnavailable()
    if "no such table" in str(error) or "no such column" in str(error):
        return errors.SchemaChanged()
    return errors.Unreadable()


def _stamp(connection: Connection) -> str:
    connection.driver.execute("begin")
    try:
        return connection.stamp()
    finally:
        connection.driver.rollback()


def _probe(connection: sqlite3.Connection) -> Probe:
    version = f"SQLite {sqlite3.sqlite_version}"
    try:
        connection.execute(f"create table {WRITTEN} (id)")
        connection.execute(f"drop table {WRITTEN}")
    except sqlite3.DatabaseError as exc:
        if exc.sqlite_errorname not in ("SQLITE_AUTH", "SQLITE_READONLY"):
            raise
        return Probe(version=version, refuses_writes=True)
    return Probe(version=version, refuses_writes=False)


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
            if self._run.stamp and self._connection.stamp() != self._run.stamp:
                raise SchemaChanged
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
        """Run the statement, and in another way where a cell is too large to be loaded."""
        plan = self._run.plan
        try:
            return self._fetch(plan, None)
        except sqlite3.DataError as exc:
            if not is_too_big(exc) or not isinstance(plan.shape, Select):
                raise
        giant = giant_plan(plan.shape)
        return self._fetch(giant or filtering_plan(plan.shape), self._giant_row if giant else None)

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
                    length = held(row) + held(cell.start for cell in row if isinstance(cell, Cut))
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
            # The row was found behind the filter, in the same transaction.
            sql = CELL.format(*map(identifier, (name, shape.table.name, str(shape.table.row_identifier))))
            (cell,) = self._driver.execute(sql, (number,)).fetchone()
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
def filtering_plan(shape: Select) -> Plan:
    """Return how *shape* is read without loading hidden rows."""
    return compile_select(shape, FilteringGrammar())


@lru_cache(maxsize=100)
def giant_plan(shape: Select) -> Plan | None:
    """Return how *shape* is read without texts and blobs, or None where its cells have no number of a row."""
    own = all(isinstance(output.term, Column) for output in shape.outputs)
    if shape.table.row_identifier is None or shape.groups or not own:
        return None
    integer = ColumnType(family=Family.INTEGER, name="integer")
    number = Output(term=Column(name=shape.table.row_identifier, type=integer, nullable=False))
    return compile_select(replace(shape, outputs=(*shape.outputs, number)), GiantGrammar())
