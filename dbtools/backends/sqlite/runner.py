"""Run statements on SQLite, on the thread of a connection or on the event loop. A Run in, rows out.

A ReadJob checks its deadline as it runs, and cuts cells as it reads them. If SQLite refuses to load a cell,
the statement runs again without texts and blobs, which are then read in pieces by rowid.
"""

import asyncio
import codecs
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from threading import Event
from typing import TypeVar

import sqlalchemy as sa

from dbtools import errors
from dbtools.backends.plans import CELLS_HELD, Plan, identifier
from dbtools.backends.pool import Pool
from dbtools.backends.port import Probe, Row, Run
from dbtools.backends.queries import compile_query
from dbtools.backends.selects import compile_select
from dbtools.backends.sources import Element
from dbtools.backends.sqlite.connections import OPERATIONS, FileConnection, Job, Stopped, on_thread
from dbtools.backends.sqlite.files import (
    BUSY,
    RECOVERY,
    UNFINISHED,
    FileLocation,
    has_code,
    location_of,
    read_any_text,
)
from dbtools.backends.sqlite.grammar import SqliteGrammar
from dbtools.backends.sqlite.inspection import LIST_FORMS
from dbtools.catalog import Column
from dbtools.cells import Cut, held
from dbtools.errors import SchemaChanged
from dbtools.results import ResultSet
from dbtools.statement import Output, QueryShape, Select, Shape
from dbtools.terms import Rank
from dbtools.types import ColumnType, Family

T = TypeVar("T")
CONNECTIONS = 8
GRACE = 1.0  #: seconds after its timeout in which a statement should stop by itself
PROBE_TABLE = "dbtools_probe"  #: a table that must not be created
GRAMMAR = SqliteGrammar()
Reading = Callable[[Row], Row]  #: makes the cells of the result from a fetched row
PIECE = 2**20  #: bytes of a large cell that are read at once
CELL = "select {} from {} where {} = ?"
LARGE = "('text', 'blob')"  #: storage classes of the cells that are read in pieces


class SqliteRunner:
    """The Runner of SQLite."""

    def __init__(
        self, where: FileLocation, connect: Callable[[FileLocation], FileConnection] = FileConnection
    ) -> None:
        self.pool = pool_of(lambda: connect(where), size=CONNECTIONS)

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, LIST_FORMS)
        return compile_select(shape, GRAMMAR)

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*: of a lookup on the event loop if possible, otherwise in one hop."""
        warmest: FileConnection | None = self.pool.warmest if run.plan.is_lookup else None
        if warmest is not None and (found := warmest.lookup(run)) is not None:
            return found
        try:
            async with asyncio.timeout(run.timeout + GRACE):
                return await self._on_thread(lambda *thread: ReadJob(run, *thread).fetch())
        except TimeoutError as exc:
            raise errors.TimedOut from exc

    async def ready(self) -> None:
        """Raise a CallError if no connection is available."""
        await self._on_thread(lambda *_: None)

    async def probe(self) -> Probe:
        """Try to create a table on a connection that serves calls."""
        return await self._on_thread(lambda connection, _: _probe(connection.driver))

    async def _on_thread(self, work: Callable[[FileConnection, Event], T]) -> T:
        """Return the result of *work* on the thread of a connection, or raise a CallError."""
        try:
            return await on_thread(self.pool, work)
        except (Stopped, sqlite3.Error) as exc:
            raise translated(exc) from exc

    async def close(self) -> None:
        """Close every connection."""
        await self.pool.dispose()


def pool_of(connect: Callable[[], FileConnection], *, size: int) -> Pool:
    """Return a pool of the connections that *connect* returns."""
    return Pool(connect, size=size, is_usable=lambda each: each.ended is None, end=FileConnection.give_up)


def open_runner(url: str) -> SqliteRunner:
    """Return the Runner of the file at *url*."""
    return SqliteRunner(location_of(url))


def open_engine(url: str) -> sa.Engine:
    """Return an engine that can change or create the database file at *url*."""
    return sa.create_engine(sa.URL.create("sqlite", database=location_of(url).name), poolclass=sa.NullPool)


def translated(error: Exception) -> errors.CallError:
    """Return *error* as a CallError, without its text, which may quote data."""
    if isinstance(error, Stopped):
        return errors.TimedOut()
    if has_code(error, BUSY):
        return errors.Busy()
    if has_code(error, UNFINISHED):
        return errors.DatabaseUnavailable(RECOVERY[0], hint=RECOVERY[1])
    if "integer overflow" in str(error) or "user-defined function" in str(error):
        return errors.OutOfRange()
    if is_too_big(error):
        return errors.Unreadable(
            "A cell is larger than 16 MiB and cannot be read here.", hint="Name columns without it."
        )
    if has_code(error, ("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_IOERR")):
        return errors.DatabaseUnavailable()
    if "no such table" in str(error) or "no such column" in str(error):
        return errors.SchemaChanged()
    return errors.Unreadable()


def _probe(connection: sqlite3.Connection) -> Probe:
    refused = False
    try:
        connection.execute(f"create table {PROBE_TABLE} (id)")
        connection.execute(f"drop table {PROBE_TABLE}")
    except sqlite3.DatabaseError as exc:
        if getattr(exc, "sqlite_errorname", "") not in ("SQLITE_AUTH", "SQLITE_READONLY"):
            raise
        refused = True
    return Probe(version=f"SQLite {sqlite3.sqlite_version}", refuses_writes=refused)


class ReadJob(Job):
    """Runs the statement of *run*."""

    def __init__(self, run: Run, connection: FileConnection, cancelled: Event) -> None:
        super().__init__(connection, cancelled, run.timeout)
        self._run = run
        self._outputs, self._shortest = run.plan.outputs, run.plan.shortest

    def fetch(self) -> ResultSet:
        """Return the rows, or raise Stopped, SchemaChanged, ConnectionLost or sqlite3.Error."""
        self.driver.set_progress_handler(self.is_over, OPERATIONS)
        try:
            self.check()
            # The rows and the stamp of the schema are from one snapshot.
            self.driver.execute("begin")
            if self._run.stamp and self.connection.stamp() != self._run.stamp:
                raise SchemaChanged
            return self._fetch_somehow()
        except sqlite3.OperationalError as exc:
            # An error in a function of dbtools has no specific code.
            if exc.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT or self.is_over():
                raise Stopped from exc
            raise
        finally:
            self.driver.set_progress_handler(None, 0)
            self.driver.rollback()

    def _fetch_somehow(self) -> ResultSet:
        """Run the statement; if a cell is too large to load, run it in another way."""
        plan = self._run.plan
        try:
            return self._fetch(plan, None)
        except sqlite3.DataError as exc:
            if not is_too_big(exc) or not isinstance(plan.shape, Select):
                raise
        giant = giant_plan(plan.shape)
        return self._fetch(giant or filtering_plan(plan.shape), self._giant_row if giant else None)

    def _fetch(self, plan: Plan, read: Reading | None) -> ResultSet:
        sql = f"{self._run.comment}{plan.sql}"
        parameters = plan.bound(self._run.values, self._run.limit)
        driver = self.driver
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
                    # Only a long row may have a cell to cut, or take long to read.
                    self.check()
                    row = tuple(map(cut, row, self._outputs))
                    length = held(row)
                total += length
                rows.append(row)
        finally:
            cursor.close()
        return ResultSet(outputs=self._outputs, rows=tuple(rows), more=more, length=total)

    def _giant_row(self, row: Row) -> Row:
        """Return the cells of *row* of a `giant_plan`."""
        self.check()
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
            blob = self.driver.blobopen(shape.table.name, name, number, readonly=True)
        except sqlite3.OperationalError:
            # The cell is computed, or the default of a column that was added after the row. The filter has
            # already selected the row, in the same transaction.
            sql = CELL.format(*map(identifier, (name, shape.table.name, str(shape.table.row_identifier))))
            (cell,) = self.driver.execute(sql, (number,)).fetchone()
            return cut(cell, output)
        with blob:
            most = len(blob) if output.longest is None else output.longest
            return self._text(blob, most) if kind == "text" else _begun(blob.read(most), len(blob))

    def _text(self, blob: sqlite3.Blob, most: int) -> object:
        (encoding,) = self.driver.execute("pragma encoding").fetchone()
        # As in small cells, invalid UTF-8 is kept, and invalid UTF-16 is replaced.
        errors = "surrogateescape" if encoding == "UTF-8" else "replace"
        decoder = codecs.getincrementaldecoder(encoding)(errors)
        start, whole = "", 0
        while piece := blob.read(PIECE):
            self.check()
            text = decoder.decode(piece, final=blob.tell() == len(blob))
            start += text[: most - len(start)]
            whole += len(text)
        return _begun(start, whole)


def is_too_big(error: Exception) -> bool:
    """Return whether a cell exceeds the largest that SQLite may load."""
    return has_code(error, "SQLITE_TOOBIG") or "too big" in str(error)


def cut(cell: object, output: Output) -> object:
    """Return *cell*, cut to the longest that *output* allows."""
    if isinstance(cell, str | bytes) and output.longest is not None:
        return _begun(cell[: output.longest], len(cell))
    return cell


def _begun(start: str | bytes, whole: int) -> object:
    """Return *start*, as a Cut if the cell is longer: its length is *whole*."""
    return start if len(start) == whole else Cut(start=start, length=whole)


class FilteringGrammar(SqliteGrammar):
    """The Grammar for statements that load no cell of a hidden row, except for their filter."""

    barrier = True


class GiantGrammar(FilteringGrammar):
    """The Grammar for statements that load no text and no blob."""

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Read the cell if it is small, and its storage class, which needs no content."""
        kind = sa.func.typeof(column)
        small = kind.op("not in", is_comparison=True)(sa.literal_column(LARGE))
        return sa.case((small, column)), kind


@lru_cache(maxsize=100)
def filtering_plan(shape: Select) -> Plan:
    """Return a plan of *shape* that does not load hidden rows."""
    return compile_select(shape, FilteringGrammar())


@lru_cache(maxsize=100)
def giant_plan(shape: Select) -> Plan | None:
    """Return a plan of *shape* without texts and blobs, None if its cells have no rowid."""
    own = all(isinstance(output.term, Column | Rank) for output in shape.outputs)
    if shape.table.row_identifier is None or shape.groups or not own:
        return None
    integer = ColumnType(family=Family.INTEGER, name="integer")
    number = Output(term=Column(name=shape.table.row_identifier, type=integer, nullable=False))
    return compile_select(replace(shape, outputs=(*shape.outputs, number)), GiantGrammar())
