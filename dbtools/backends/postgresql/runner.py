"""Statements on PostgreSQL: each in a read-only transaction that the server itself ends in time.

The first time, a transaction takes several round trips, and the versions of the tables that it has read
are compared before their locks are released. From then on it is one round trip: what begins it, the
statement, and what rolls it back. The statement itself fails if anything that it names has changed since
(GUARDED). Then it is prepared and compared anew.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import asyncpg
import sqlalchemy as sa

from dbtools.backends.plans import CELLS_HELD, Plan
from dbtools.backends.pool import Pool
from dbtools.backends.port import Label, Probe, Run, is_current
from dbtools.backends.postgresql.connections import (
    BEGIN,
    DRIVER_ERRORS,
    SAME_SESSION,
    SET,
    UNREADABLE,
    UNSURE,
    UNTOUCHED,
    applying,
    connect,
    dated,
    guarded,
    is_another,
    is_lost,
    is_pooled,
    keep_setting,
    prepare,
    roll_back,
    says,
    with_role_last,
)
from dbtools.backends.postgresql.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.inspection import LIST_FORMS
from dbtools.backends.postgresql.pipeline import Connection, Kept, running
from dbtools.backends.postgresql.syntax import lexis
from dbtools.backends.postgresql.versions import CHANGED, confirmation, fingerprint, stays_confirmed
from dbtools.backends.selects import compile_query, compile_select
from dbtools.cells import Cut, held
from dbtools.errors import (
    BadValue,
    Busy,
    CallError,
    DatabaseUnavailable,
    OutOfRange,
    Refused,
    SchemaChanged,
    TimedOut,
    Unreadable,
)
from dbtools.results import ResultSet
from dbtools.statement import QueryShape, Shape

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

SCHEME = "postgresql+asyncpg://"
CONNECTIONS = 8
BYTES_AT_ONCE = 8 * 2**20  #: that one fetch may bring at the most
GRACE = 1.0  #: seconds in which the server itself is expected to have stopped a statement
VICTIMS = 5  #: times that a statement is run again which had to make way for others
BEGINNING, END, LEFT_ALONE = running(BEGIN), running("rollback"), running(UNTOUCHED)
MAKING_WAY = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
#: Statements of migrations take long on large tables only, which the registry's are not.
MIGRATING = "60s"
GRAMMAR = PostgresqlGrammar()

WRITTEN, PROBE_TIMEOUT = "dbtools_probe", 5.0  #: a table that is never made; seconds


class PostgresqlRunner:
    """The Runner of PostgreSQL. Its connections keep dates, intervals and numbers exactly."""

    confirms = False  #: the stamp would cost too much: versions of tables are compared instead

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = Pool(self._open, size=CONNECTIONS, is_usable=_is_usable, end=Connection.terminate)

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, lexis, LIST_FORMS)
        return compile_select(shape, GRAMMAR)

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*, which runs between BEGIN READ ONLY and ROLLBACK."""
        failures: list[bool] = []
        try:
            async with asyncio.timeout(run.timeout + GRACE):
                while True:
                    try:
                        return await self._fetch(run)
                    except DRIVER_ERRORS as exc:
                        await self._overcome(exc, failures, run.stamp)
        except TimeoutError as exc:
            raise TimedOut from exc

    async def stamp(self) -> str:
        """Return the stamp of the schema now."""
        failures: list[bool] = []
        while True:
            try:
                async with self._pool.connection() as connection:
                    return await fingerprint(connection)
            except DRIVER_ERRORS as exc:
                await self._overcome(exc, failures)

    async def _overcome(self, error: Exception, failures: list[bool], stamp: str = "") -> None:
        """Raise a CallError unless it may help to run again what *error* has ended.

        *failures*: of each error before, whether the statement had to make way; this one is added.
        """
        if says(error, CHANGED):
            raise SchemaChanged from error
        makes_way = isinstance(error, MAKING_WAY)
        most = VICTIMS if makes_way else 1 if is_lost(error) or is_stale(error) or is_another(error) else 0
        if failures.count(makes_way) >= most:
            raise translated(error) from error
        if is_stale(error) and stamp and not await is_current(self, stamp):
            # Its columns are of other types by now.
            raise SchemaChanged from error
        if not makes_way:
            # The other connections that wait are out of date as well.
            await self.close()
        failures.append(makes_way)

    async def _open(self) -> Connection:
        connection = await connect(self._url)
        try:
            await prepare(connection)
            # What carries messages is prepared now: its snapshot must not be there when BEGIN comes.
            await connection.send(b"")
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _fetch(self, run: Run) -> ResultSet:
        """Run a statement."""
        async with self._pool.connection() as connection:
            sql = run.plan.sql
            if _is_guarded(connection, run):
                sql = guarded(sql, len(run.plan.parameters) + 1)
            sql = f"{run.label.comment}{sql}"
            try:
                records, more = await _read(connection, dated(connection, sql, run.stamp), run)
            except BaseException as exc:
                await roll_back(connection)
                if isinstance(exc, Exception) and is_another(exc):
                    connection.terminate()
                if isinstance(exc, UNREADABLE) and is_pooled(connection):
                    raise _outdated(connection) from exc
                raise
        rows = _rows(records[: run.limit], run.plan)
        return ResultSet(outputs=run.plan.outputs, rows=rows, more=more)

    async def probe(self) -> Probe:
        """Try to make a table in a transaction like those of calls."""
        async with self._pool.connection() as connection:
            version = await connection.fetchval("show server_version")
            try:
                await _begin(connection, PROBE_TIMEOUT, Label())
                await connection.execute(f"create table {WRITTEN} ()")
            except asyncpg.ReadOnlySQLTransactionError:
                return Probe(version=f"PostgreSQL {version}", refuses_writes=True)
            finally:
                await roll_back(connection)
        return Probe(version=f"PostgreSQL {version}", refuses_writes=False)

    async def ready(self) -> None:
        """Raise a CallError where no connection can be had."""
        async with self._pool.connection():
            pass

    async def close(self) -> None:
        """Close every connection; a call that comes later opens others."""
        await self._pool.dispose()


def _outdated(connection: Connection) -> asyncpg.OutdatedSchemaCacheError:
    """End *connection*, which cannot read the rows, and return what it means.

    asyncpg knows the types of columns from one connection of the server's. After a migration the
    pooler may have prepared it on another one, with others.
    """
    connection.terminate()
    return asyncpg.OutdatedSchemaCacheError("the columns are of other types by now")


def _is_usable(connection: Any) -> bool:
    """Return whether another call may have *connection*: in a transaction it has a role and settings."""
    if not connection.is_closed() and connection.is_in_transaction():
        connection.terminate()
    return not connection.is_closed()


def open_engine(url: str) -> "AsyncEngine":
    """Return an engine that may change the database at *url*."""

    async def connect_to_migrate() -> Any:
        connection = await connect(url)
        await keep_setting(connection, "statement_timeout", MIGRATING)
        return connection

    # It imports the ORM, which no call needs.
    asynchronous = import_module("sqlalchemy.ext.asyncio")
    engine: AsyncEngine = asynchronous.create_async_engine(
        SCHEME, async_creator=connect_to_migrate, poolclass=sa.NullPool
    )
    return engine


def is_stale(error: Exception) -> bool:
    """Return whether a prepared statement met a schema that has changed since."""
    return isinstance(error, asyncpg.InvalidCachedStatementError | asyncpg.OutdatedSchemaCacheError)


async def _read(connection: Connection, sql: str, run: Run) -> tuple[list[asyncpg.Record], bool]:
    """Return the records of *sql* in a transaction of its own, and whether *run* leaves some out."""
    kept = connection.kept(sql)
    if kept is not None and kept.guard:
        try:
            return await _run(connection, kept, run, BEGINNING + _limits(run.timeout, run.label))
        except asyncpg.UndefinedObjectError as exc:
            if not says(exc, UNSURE):
                raise
        connection.forget(sql)
        await roll_back(connection)
        kept = None
    moment = await _begin(connection, run.timeout, run.label)
    await _set(connection, run.session)
    guard = (f"{connection.marks} {moment}",) if _is_guarded(connection, run) else ()
    return await _run(connection, kept or await connection.keep(sql, guard), run, b"")


def _is_guarded(connection: Connection, run: Run) -> bool:
    """Return whether the server analyses the statement of *run* again after changes, and not otherwise.

    A pooler prepares it anew on each connection of the server's, and policies mean it anew for each role.
    """
    return not run.session and not is_pooled(connection)


async def _run(
    connection: Connection, kept: Kept, run: Run, before: bytes
) -> tuple[list[asyncpg.Record], bool]:
    """Run *kept* after the messages *before*, compare the versions if need be, and end the transaction."""
    versions = tuple(run.versions)
    end = END if kept.versions == versions else confirmation(versions) + END
    if run.plan.runs_functions or run.session:
        end = LEFT_ALONE + end
    values = (*run.parameters, *kept.guard)
    batch = max(1, BYTES_AT_ONCE // max(1, run.plan.most_bytes))
    if batch > run.limit or run.limit == 1:
        records = await connection.run(kept.statement, values, before, end)
        more = len(records) > run.limit
    else:
        if before:
            await connection.send(before)
        records, more = await _fetch_batches(kept.statement, values, run, batch)
        await connection.send(end)
    if kept.guard and stays_confirmed(versions):
        kept.versions = versions
    return records, more


def _limits(timeout: float, label: Label) -> bytes:
    """Return what has the transaction last *timeout* seconds, under the name of *label*."""
    limits = _limit(timeout)
    return limits + running(SET, "application_name", label.application) if label.application else limits


@lru_cache
def _limit(timeout: float) -> bytes:
    return running(f"set local statement_timeout = {max(1, round(timeout * 1000))}")


async def _begin(connection: Connection, timeout: float, label: Label) -> str:
    """Begin a transaction that lasts *timeout* seconds, and return when that was."""
    begin = b"" if is_pooled(connection) else BEGINNING
    if not begin:
        await connection.execute(BEGIN)
    return await connection.send(begin + _limits(timeout, label) + running(SAME_SESSION, connection.marks))


async def _set(connection: Connection, session: Mapping[str, str]) -> None:
    """Set *session* for the transaction of *connection*."""
    if not session:
        return
    try:
        with applying(session):
            await connection.send(b"".join(running(SET, *each) for each in with_role_last(session)))
    except Refused as exc:
        # The server's words are for operators.
        raise Refused("The database does not take the settings of this role.") from exc


async def _fetch_batches(
    statement: Any, values: tuple[object, ...], run: Run, batch: int
) -> tuple[list[asyncpg.Record], bool]:
    """Fetch at most one record more than *run* asks for, and say whether there are more than it does.

    No more than *batch* come at once, and no more altogether than what is held at the most.
    """
    cursor = await statement.cursor(*values)
    records: list[asyncpg.Record] = []
    room, fits = CELLS_HELD, run.plan.is_bounded and run.limit * run.plan.most_bytes < CELLS_HELD
    while len(records) <= run.limit:
        found = await cursor.fetch(min(batch, run.limit + 1 - len(records)))
        if not found:
            return records, False
        records += found
        room -= 0 if fits else sum(map(held, zip(*found, strict=True)))
        if room < 0:
            break
    return records, True


def _rows(records: Sequence[asyncpg.Record], plan: Plan) -> tuple[tuple[object, ...], ...]:
    """Return the cells of *records*; lengths stand behind them, for outputs that may be cut."""
    width = len(plan.outputs)
    whole = (None,) * len(plan.cuts)
    return tuple(
        record[:width] if not plan.sums and record[width:] == whole else _row(record, width, plan)
        for record in records
    )


def _row(record: asyncpg.Record, width: int, plan: Plan) -> tuple[object, ...]:
    cells = list(record[:width])
    for (at, longest), length in zip(plan.cuts.items(), record[width:], strict=True):
        if length is not None and length > longest:
            cells[at] = Cut(start=cells[at], length=length)
    for at in plan.sums:
        # What the server sums up as numeric it writes as digits.
        cells[at] = int(cells[at]) if isinstance(cells[at], str) else cells[at]
    return tuple(cells)


BAD_VALUE = BadValue("The database cannot read one of the values, or a view fails on its rows.")
#: What SQLSTATEs mean to a caller, or classes of them by two characters (PostgreSQL, appendix A).
MEANINGS: Sequence[tuple[str, CallError]] = (
    # Our own statements have no errors of syntax: what searches texts reads a value as syntax.
    ("42601 22", BAD_VALUE),
    ("22003 22008", OutOfRange()),
    ("57014", TimedOut()),
    ("55P03 40001 40P01 53300 53400", Busy()),
    ("55000", Unreadable("The view has no data yet: it has never been refreshed.")),
    ("42P01 42703 42883 42804 3F000", SchemaChanged()),
    ("25006", Refused("What is called writes, and dbtools only reads.")),
    ("42501", Unreadable("The login may not read this table or view, or one that it reads.")),
    ("54011", Refused("A row of all these columns is too wide.", hint="Name fewer columns.")),
    ("08 57", DatabaseUnavailable()),
    ("53 54", Refused("The database has no room for this call.", hint="Ask for less.")),
)
STATES = {state: meaning for states, meaning in MEANINGS for state in states.split()}


def translated(error: Exception) -> CallError:
    """Return what *error* means to a caller."""
    if not isinstance(error, asyncpg.PostgresError):
        return DatabaseUnavailable()
    state = error.sqlstate or ""
    known = STATES.get(state) or STATES.get(state[:2]) or Unreadable()
    return type(known)(known.message, hint=known.hint)
