"""Run statements on SQLite, on the thread of a connection or on the event loop. A Run in, rows out.

A ReadJob checks its deadline as it runs, and cuts cells as it reads them. SQLite loads no cell of more than
16 MiB. If it refuses one, the statement runs again without the cells of hidden rows, which change no answer.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from threading import Event
from typing import TypeVar

import sqlalchemy as sa

from dbtools import errors
from dbtools.answers.results import ResultSet
from dbtools.backends.compile.queries import compile_query
from dbtools.backends.compile.selects import compile_select
from dbtools.backends.compiled import CELLS_HELD, Compiled
from dbtools.backends.pool import Pool
from dbtools.backends.port import Probe
from dbtools.backends.refusals import Cause
from dbtools.backends.runs import Row, Run
from dbtools.backends.sqlite.connection.connections import OPERATIONS, FileConnection, Job, Stopped, on_thread
from dbtools.backends.sqlite.connection.files import (
    BUSY,
    UNFINISHED,
    FileLocation,
    has_code,
    read_any_text,
)
from dbtools.backends.sqlite.queries.inspection import LIST_FORMS
from dbtools.backends.sqlite.reading.grammar import SqliteGrammar
from dbtools.backends.sqlite.schema.syntax import lexis
from dbtools.errors import SchemaChanged
from dbtools.schema.sql import Fragment, TokenKind, code_of, words
from dbtools.statements.select import Output, QueryShape, Select, Shape
from dbtools.values.cells import Cut, length_of

T = TypeVar("T")
CONNECTIONS = 8
GRACE = 1.0  #: seconds after its timeout in which a statement should stop by itself
PROBE_TABLE = "dbtools_probe"  #: a table that must not be created
GRAMMAR = SqliteGrammar()
FILTERING_PLANS = 10  #: compiled shapes that are kept for large cells, which are rare: 2 MB at most
LONGEST_BRIEF = 20_000  #: characters of SQL that is parsed and planned in about a millisecond
PLAIN_SIGNS = words("= == <> != < <= > >= , . -")  #: signs of comparisons and constants
BRACKETED = words("and or not in between where")  #: words before a parenthesis that call no function
#: Words that compute something, or read another table.
COMPUTING = words("like glob match regexp collate cast case select values exists raise escape")


class SqliteRunner:
    """The Runner of SQLite."""

    def __init__(
        self, where: FileLocation, connect: Callable[[FileLocation], FileConnection] = FileConnection
    ) -> None:
        self.pool = pool_of(lambda: connect(where), size=CONNECTIONS)

    def compile(self, shape: Shape) -> Compiled:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, LIST_FORMS)
        plan = compile_select(shape, GRAMMAR)
        return replace(plan, brief=is_brief(plan, shape))

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*: on the event loop if it is brief, otherwise in one hop."""
        warmest: FileConnection | None = self.pool.warmest if run.plan.brief else None
        if warmest is not None and (found := warmest.lookup(run)) is not None:
            return found
        try:
            async with asyncio.timeout(run.context.timeout + GRACE):
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
            raise cause_of(exc).error() from exc

    async def close(self) -> None:
        """Close every connection."""
        await self.pool.dispose()


def is_brief(plan: Compiled, shape: Select) -> bool:
    """Return whether *plan* of *shape* always ends soon: a lookup that calls no function of a file's author.

    SQLite can stop a statement between two operations, but a call of a function is one of them.
    """
    filters = [table.filter.condition for table in shape.tables if table.filter is not None]
    return (
        shape.is_lookup
        and len(plan.sql) <= LONGEST_BRIEF
        and not any(table.computed for table in shape.tables)
        and all(map(_only_compares, filters))
    )


def _only_compares(condition: Fragment) -> bool:
    """Return whether *condition* consists of comparisons of columns, constants and claims."""
    tokens = code_of(condition.text, lexis)
    calls = any(
        each.is_name and following.text == "(" and each.word not in BRACKETED
        for each, following in pairwise(tokens)
    )
    signs = {each.text for each in tokens if each.kind is TokenKind.SIGN}
    words = {each.word for each in tokens if each.kind is TokenKind.WORD}
    return not calls and signs <= PLAIN_SIGNS and words.isdisjoint(COMPUTING)


def pool_of(connect: Callable[[], FileConnection], *, size: int) -> Pool:
    """Return a pool of the connections that *connect* returns."""
    return Pool(connect, size=size, is_usable=lambda each: each.ended is None, end=FileConnection.give_up)


def open_engine(where: FileLocation) -> sa.Engine:
    """Return an engine that can change or create the database file at *where*."""
    return sa.create_engine(sa.URL.create("sqlite", database=where.name), poolclass=sa.NullPool)


def cause_of(error: Exception) -> Cause:
    """Return the cause of *error*, which a statement has raised."""
    if isinstance(error, Stopped):
        return Cause.TIMED_OUT
    if has_code(error, BUSY):
        return Cause.BUSY
    if has_code(error, UNFINISHED):
        return Cause.UNFINISHED
    if "integer overflow" in str(error) or "user-defined function" in str(error):
        return Cause.OUT_OF_RANGE
    if is_too_big(error):
        return Cause.LARGE_CELL
    if has_code(error, ("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_IOERR")):
        return Cause.UNAVAILABLE
    if "no such table" in str(error) or "no such column" in str(error):
        return Cause.SCHEMA_CHANGED
    return Cause.UNREADABLE


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
        super().__init__(connection, cancelled, run.context.timeout)
        self._run = run
        self._outputs, self._shortest = run.plan.outputs, run.plan.shortest

    def fetch(self) -> ResultSet:
        """Return the rows, or raise Stopped, SchemaChanged, ConnectionLost or sqlite3.Error."""
        self.driver.set_progress_handler(self.is_over, OPERATIONS)
        try:
            self.check()
            # The rows and the stamp of the schema are from one snapshot.
            self.driver.execute("begin")
            if self._run.context.stamp and self.connection.stamp() != self._run.context.stamp:
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
        """Run the statement; if a cell is too large to load, run it without those of hidden rows."""
        plan = self._run.plan
        try:
            return self._fetch(plan)
        except sqlite3.DataError as exc:
            if not is_too_big(exc) or not isinstance(plan.shape, Select):
                raise
        return self._fetch(filtering_plan(plan.shape))

    def _fetch(self, plan: Compiled) -> ResultSet:
        sql = f"{self._run.context.comment}{plan.sql}"
        parameters = plan.bind_values(self._run.values, self._run.limit)
        driver = self.driver
        return read_any_text(driver, lambda: self._rows(driver.execute(sql, parameters)))

    def _rows(self, cursor: sqlite3.Cursor) -> ResultSet:
        rows: list[Row] = []
        total, most, shortest, more = 0, self._run.limit, self._shortest, False
        try:
            for row in cursor:
                if len(rows) == most or total > CELLS_HELD:
                    more = True
                    break
                length = length_of(row)
                if length > shortest:
                    # Only a long row may have a cell to cut, or take long to read.
                    self.check()
                    row = tuple(map(cut_cell, row, self._outputs))
                    length = length_of(row)
                total += length
                rows.append(row)
        finally:
            cursor.close()
        return ResultSet(outputs=self._outputs, rows=tuple(rows), more=more, length=total)


def is_too_big(error: Exception) -> bool:
    """Return whether a cell exceeds the largest that SQLite may load."""
    return has_code(error, "SQLITE_TOOBIG") or "too big" in str(error)


def cut_cell(cell: object, output: Output) -> object:
    """Return *cell*, cut to the longest that *output* allows."""
    if isinstance(cell, str | bytes) and output.longest is not None and len(cell) > output.longest:
        return Cut(start=cell[: output.longest], length=len(cell))
    return cell


class FilteringGrammar(SqliteGrammar):
    """The Grammar for statements that load no cell of a hidden row, except for their filter."""

    barrier = True


@lru_cache(maxsize=FILTERING_PLANS)
def filtering_plan(shape: Select) -> Compiled:
    """Return a plan of *shape* that does not load hidden rows."""
    return compile_select(shape, FilteringGrammar())
