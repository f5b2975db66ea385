"""Statements on SQLite: one hop to the connection's thread a call, stopped there when nobody waits."""

import asyncio
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import aiosqlite
import anyio
import sqlalchemy as sa

from dbtools.backends.driver import Fetched, Label, Plan
from dbtools.backends.identifiers import identifier
from dbtools.backends.queries import compile_query
from dbtools.backends.selects import compile_select, driver_values
from dbtools.backends.sqlite.giant import GiantJob, filtering_plan, giant_plan
from dbtools.backends.sqlite.grammar import SqliteGrammar, list_parameter, parameter
from dbtools.backends.sqlite.guard import read_quotes_as_names, secure
from dbtools.backends.sqlite.inspection import LIST_FORMS
from dbtools.backends.sqlite.job import Job, Stopped
from dbtools.backends.sqlite.location import (
    Location,
    location_of,
    to_be_recovered,
    unavailable,
    wants_recovery,
)
from dbtools.backends.sqlite.opened import ConnectionLost, Opened, open_file
from dbtools.backends.sqlite.pooled import SqlitePool
from dbtools.backends.sqlite.searching import Search
from dbtools.backends.sqlite.syntax import explained, lexis, with_names
from dbtools.backends.sqlite.threads import on_thread
from dbtools.catalog import Table
from dbtools.errors import (
    Busy,
    CallError,
    DatabaseUnavailable,
    OutOfRange,
    Refused,
    SchemaChanged,
    TimedOut,
    Unreadable,
)
from dbtools.sql import Fragment, Parameter
from dbtools.statement import QueryShape, Select, Shape

CONNECTIONS = 8
PATIENCE = 2.0  #: seconds that a stopped statement has to end before its connection is given up

T = TypeVar("T")
FILES: "WeakKeyDictionary[aiosqlite.Connection, Opened]" = WeakKeyDictionary()
SEARCHES: "WeakKeyDictionary[aiosqlite.Connection, Search]" = WeakKeyDictionary()
#: Connections whose threads are still busy with what was stopped, and what is done when they have ended.
GIVEN_UP: "dict[aiosqlite.Connection, asyncio.Future[object]]" = {}


class SqliteDriver:
    """The Driver of SQLite."""

    grammar = SqliteGrammar()
    confirms = True

    errors = (Stopped, sqlite3.Error, ConnectionLost)

    def open_pool(self, url: str) -> SqlitePool:
        """Return a pool whose connections are guarded before anything runs on them."""
        where = location_of(url)
        return SqlitePool(where, lambda: _connect(where), size=CONNECTIONS, given_up=GIVEN_UP)

    def open_engine(self, url: str) -> sa.Engine:
        """Return an engine that may change the database file at *url*, or make it."""
        path = location_of(url).path
        return sa.create_engine(sa.URL.create("sqlite", database=str(path)), poolclass=sa.NullPool)

    async def casts(
        self, connection: Any, table: Table, condition: Fragment, session: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Return nothing, once SQLite has understood *condition*."""
        name = identifier(table.name)
        pieces = ("?" if isinstance(each, Parameter) else with_names(each) for each in condition.pieces)
        written = "".join(pieces)
        nulls = [None for piece in condition.pieces if isinstance(piece, Parameter)]

        def explain(bare: sqlite3.Connection) -> None:
            # To explain is not to look at the file: what is known of its schema may be of before a migration,
            # and so may a statement that is kept.
            bare.execute("select 1 from main.sqlite_schema").close()
            read_quotes_as_names(bare)
            sql = f"explain select 1 from {name} where ({written}\n) /* {secrets.token_hex(8)} */"
            bare.execute(sql, nulls).close()

        try:
            await on_thread(connection, explain)
        except sqlite3.Error as exc:
            raise Refused(explained(str(exc), condition.text)) from exc
        return ()

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, self.grammar, lexis, LIST_FORMS)
        return compile_select(shape, self.grammar)

    def bound(self, plan: Plan, values: Mapping[str, object], limit: int) -> tuple[object, ...]:
        """Return *values* as SQLite binds them."""
        return driver_values(plan, values, limit, parameter, list_parameter)

    async def fetch(
        self,
        connection: Any,
        plan: Plan,
        values: Mapping[str, object],
        *,
        limit: int,
        timeout: float,
        session: Mapping[str, str],
        stamp: str,
        versions: Sequence[str],
        label: Label,
    ) -> Fetched:
        """Run *plan* in one hop, and in further ones where a cell is too large to be loaded.

        The *stamp* costs next to nothing here; tables have no *versions*.
        """
        file = FILES[connection]
        ends = time.monotonic() + timeout
        too_big: Exception = sqlite3.DataError()
        for way, make in _ways(plan):
            job = make(
                sql=f"{label.comment}{way.sql}",
                parameters=self.bound(way, values, limit),
                outputs=plan.outputs,
                shortest=plan.shortest,
                limit=limit,
                timeout=ends - time.monotonic(),
                confirm=partial(file.confirm, stamp=stamp),
                search=SEARCHES[connection],
            )
            try:
                return await _run(connection, job)
            except sqlite3.DataError as exc:
                if not _is_too_big(exc):
                    raise
                too_big = exc
        raise too_big

    async def stamp(self, connection: Any) -> str:
        """Return the stamp of the schema now, in one hop."""
        return await on_thread(connection, FILES[connection].stamp)

    def translate(self, error: Exception) -> CallError:
        """Return what *error* means to a caller."""
        if isinstance(error, Stopped):
            return TimedOut()
        return _translated(error)

    def is_lost(self, error: Exception) -> bool:
        """Return whether the connection was given up before the call."""
        return isinstance(error, ConnectionLost)

    def is_victim(self, error: Exception) -> bool:
        """Return False: readers are never stopped for others."""
        return False

    def is_stale(self, error: Exception) -> bool:
        """Return False: SQLite prepares stale statements again by itself."""
        return False


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


def _translated(error: Exception) -> CallError:
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


DRIVER = SqliteDriver()
