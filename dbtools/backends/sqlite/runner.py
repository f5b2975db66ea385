"""Statements on SQLite: one hop to the connection's thread a call, stopped there when nobody waits."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from weakref import WeakKeyDictionary

import aiosqlite
import anyio
import sqlalchemy as sa

from dbtools.backends.plans import Plan
from dbtools.backends.port import Fetched, Run
from dbtools.backends.queries import compile_query
from dbtools.backends.selects import compile_select
from dbtools.backends.sqlite.giant import GiantJob, filtering_plan, giant_plan
from dbtools.backends.sqlite.grammar import SqliteGrammar
from dbtools.backends.sqlite.guard import secure
from dbtools.backends.sqlite.inspection import LIST_FORMS
from dbtools.backends.sqlite.job import Job, Stopped
from dbtools.backends.sqlite.location import Location, to_be_recovered, unavailable, wants_recovery
from dbtools.backends.sqlite.opened import ConnectionLost, Opened, open_file
from dbtools.backends.sqlite.pooled import SqlitePool
from dbtools.backends.sqlite.searching import Search
from dbtools.backends.sqlite.syntax import lexis
from dbtools.backends.sqlite.threads import on_thread
from dbtools.errors import (
    Busy,
    CallError,
    DatabaseUnavailable,
    OutOfRange,
    SchemaChanged,
    TimedOut,
    Unreadable,
)
from dbtools.statement import QueryShape, Select, Shape

CONNECTIONS = 8
PATIENCE = 2.0  #: seconds that a stopped statement has to end before its connection is given up
GRACE = 1.0  #: seconds beyond its timeout in which a statement is expected to have stopped itself
DRIVER_ERRORS = (Stopped, sqlite3.Error, ConnectionLost)
GRAMMAR = SqliteGrammar()

FILES: "WeakKeyDictionary[aiosqlite.Connection, Opened]" = WeakKeyDictionary()
SEARCHES: "WeakKeyDictionary[aiosqlite.Connection, Search]" = WeakKeyDictionary()
#: Connections whose threads are still busy with what was stopped, and what is done when they have ended.
GIVEN_UP: "dict[aiosqlite.Connection, asyncio.Future[object]]" = {}


class SqliteRunner:
    """The Runner of SQLite. Its connections are guarded before anything runs on them."""

    confirms = True

    def __init__(self, where: Location) -> None:
        self._pool = SqlitePool(where, lambda: _connect(where), size=CONNECTIONS, given_up=GIVEN_UP)

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, lexis, LIST_FORMS)
        return compile_select(shape, GRAMMAR)

    async def run(self, run: Run) -> Fetched:
        """Return the rows of *run*: at once where it reads a row by its key, else in one hop."""
        found = self._pool.look_up(run) if run.plan.is_lookup else None
        if found is not None:
            return found
        try:
            async with asyncio.timeout(run.timeout + GRACE):
                try:
                    return await self._fetch(run)
                except ConnectionLost:
                    # The other connections that wait are out of date as well.
                    await self._pool.reopen()
                return await self._fetch(run)
        except TimeoutError as exc:
            raise TimedOut from exc
        except DRIVER_ERRORS as exc:
            raise translated(exc) from exc

    async def _fetch(self, run: Run) -> Fetched:
        """Run a statement, and in other ways where a cell is too large to be loaded."""
        async with self._pool.connection() as connection:
            file = FILES[connection]
            ends = time.monotonic() + run.timeout
            too_big: Exception = sqlite3.DataError()
            for plan, make in _ways(run.plan):
                job = make(
                    sql=f"{run.label.comment}{plan.sql}",
                    parameters=plan.bound(run.values, run.limit),
                    outputs=run.plan.outputs,
                    shortest=run.plan.shortest,
                    limit=run.limit,
                    timeout=ends - time.monotonic(),
                    confirm=partial(file.confirm, stamp=run.stamp),
                    search=SEARCHES[connection],
                )
                try:
                    return await _run(connection, job)
                except sqlite3.DataError as exc:
                    if not _is_too_big(exc):
                        raise
                    too_big = exc
            raise too_big

    async def stamp(self) -> str:
        """Return the stamp of the schema now, in one hop."""
        try:
            try:
                return await self._stamp()
            except ConnectionLost:
                await self._pool.reopen()
            return await self._stamp()
        except DRIVER_ERRORS as exc:
            raise translated(exc) from exc

    async def _stamp(self) -> str:
        async with self._pool.connection() as connection:
            return await on_thread(connection, FILES[connection].stamp)

    async def ready(self) -> None:
        """Raise a CallError where no connection can be had."""
        async with self._pool.connection():
            pass

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()


def open_engine(where: Location) -> sa.Engine:
    """Return an engine that may change the database file at *where*, or make it."""
    return sa.create_engine(sa.URL.create("sqlite", database=str(where.path)), poolclass=sa.NullPool)


def _ways(plan: Plan) -> Iterator[tuple[Plan, Callable[..., Job]]]:
    """Yield the ways to run *plan*, each for when a cell was too large for the one before."""
    yield plan, Job
    shape = plan.shape
    if not isinstance(shape, Select):
        return
    filtering = filtering_plan(shape)
    if filtering is not None:
        yield filtering, Job
    giant = giant_plan(shape)
    if giant is not None:
        yield giant, partial(GiantJob, table=shape.table)


async def _connect(where: Location) -> aiosqlite.Connection:
    file = open_file(where)
    connection = aiosqlite.connect(where.uri(), uri=True, isolation_level=None, cached_statements=256)
    # A statement that cannot be stopped must not keep the process from ending.
    connection._thread.daemon = True
    try:
        opened = await connection
        # Before it is secured, whose functions nobody replaces.
        SEARCHES[opened] = await on_thread(opened, Search)
        await on_thread(opened, secure)
    except sqlite3.Error as exc:
        raise unavailable(where, exc) from exc
    FILES[opened] = file
    return opened


async def _run(connection: aiosqlite.Connection, job: Job) -> Fetched:
    try:
        return await on_thread(connection, job.run)
    except asyncio.CancelledError:
        await _stop(connection, job)
        raise


async def _stop(connection: aiosqlite.Connection, job: Job) -> None:
    """Stop *job* and wait until its thread does what comes after it; else give the connection up."""
    job.cancelled = True
    with anyio.CancelScope(shield=True):
        await connection.interrupt()
        try:
            async with asyncio.timeout(PATIENCE):
                await on_thread(connection, _do_nothing)
        except TimeoutError:
            ended = connection.stop()
            assert ended is not None  # there is a loop
            GIVEN_UP[connection] = ended
            ended.add_done_callback(lambda _: GIVEN_UP.pop(connection))


def _do_nothing(connection: sqlite3.Connection) -> None:
    return None


def _is_too_big(error: Exception) -> bool:
    return getattr(error, "sqlite_errorname", "") == "SQLITE_TOOBIG" or "too big" in str(error)


def translated(error: Exception) -> CallError:
    """Return what *error* means to a caller, without its text: that quotes data."""
    if isinstance(error, Stopped):
        return TimedOut()
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Busy()
    if wants_recovery(error):
        return to_be_recovered()
    if "integer overflow" in str(error):
        return OutOfRange()
    if _is_too_big(error):
        return Unreadable(
            "A cell is larger than 16 MiB and cannot be read here.", hint="Name columns without it."
        )
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_NOTADB", "SQLITE_IOERR")):
        return DatabaseUnavailable()
    if "no such table" in str(error) or "no such column" in str(error):
        return SchemaChanged()
    return Unreadable()
