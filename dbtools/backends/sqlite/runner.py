"""Statements on SQLite: a Run in, rows out, by one hop to a connection's thread, or none."""

import asyncio
import sqlite3
from collections.abc import Callable
from threading import Event
from typing import TypeVar

import sqlalchemy as sa

from dbtools import errors
from dbtools.backends.plans import Plan
from dbtools.backends.pool import Pool
from dbtools.backends.port import Probe, Run
from dbtools.backends.selects import compile_query, compile_select
from dbtools.backends.sqlite.grammar import SqliteGrammar
from dbtools.backends.sqlite.inspection import LIST_FORMS
from dbtools.backends.sqlite.jobs import Connection, Job, Stopped, is_too_big
from dbtools.backends.sqlite.location import RECOVERY, Location, is_locked, wants_recovery
from dbtools.backends.sqlite.stamps import ConnectionLost
from dbtools.backends.sqlite.syntax import lexis
from dbtools.results import ResultSet
from dbtools.statement import QueryShape, Shape

T = TypeVar("T")

CONNECTIONS = 8
ATTEMPTS = 2  #: to run something, where connections are lost
MOST_SLOW = 1_000  #: lookups that are known to take long
GRACE = 1.0  #: seconds beyond its timeout in which a statement is expected to have stopped itself
WRITTEN = "dbtools_probe"  #: a table that is never kept
GRAMMAR = SqliteGrammar()


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
        return await self._on_thread(lambda connection, _: connection.stamp())

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
    if "integer overflow" in str(error) or "user-defined function" in str(error):
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
