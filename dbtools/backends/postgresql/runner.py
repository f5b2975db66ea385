"""Statements on PostgreSQL: each in a read-only transaction that the server itself ends in time.

The first time, a transaction takes several round trips, and the versions of the tables that it has read
are compared before their locks are released. From then on it is one round trip: what begins it, the
statement, and what rolls it back. The statement itself fails if anything that it names has changed since
(GUARDED). Then it is prepared and compared anew.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg
import sqlalchemy as sa

from dbtools import errors
from dbtools.backends.plans import CELLS_HELD, Plan
from dbtools.backends.pool import Pool
from dbtools.backends.port import Probe, Run
from dbtools.backends.postgresql.changes import CHANGED, confirmation, fingerprint
from dbtools.backends.postgresql.connections import UNREADABLE, connect, is_lost, is_of_session, prepare
from dbtools.backends.postgresql.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.inspection import LIST_FORMS
from dbtools.backends.postgresql.pipeline import (
    ANOTHER,
    BEGIN,
    DRIVER_ERRORS,
    SESSION,
    Connection,
    Kept,
    Key,
    assertion,
    roll_back,
    rolled_back,
    running,
    says,
    setting,
)
from dbtools.backends.postgresql.syntax import lexis
from dbtools.backends.selects import compile_query, compile_select
from dbtools.cells import Cut, held
from dbtools.results import ResultSet
from dbtools.statement import QueryShape, Shape

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")

CONNECTIONS = 8
BYTES_AT_ONCE = 8 * 2**20  #: that one fetch may bring at the most
GRACE = 1.0  #: seconds in which the server itself is expected to have stopped a statement
ATTEMPTS = 3  #: to run a statement that a lost connection or another statement has ended
MAKING_WAY = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
STALE = (asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError)
#: Statements of migrations take long on large tables only, which the registry's are not.
MIGRATING = {"statement_timeout": "60s"}
PROBE = "create table dbtools_probe ()"  #: it is never made
GRAMMAR = PostgresqlGrammar()

SAME = f"pg_catalog.concat_ws(' ', {SESSION}) = $1::pg_catalog.text"
#: Fails in another session. Its SELECT takes a snapshot: the transaction cannot be made one that writes.
SAME_SESSION = f"select where {assertion(SAME, ANOTHER)} is null"
UNPREPARED = "not exists (select from pg_catalog.pg_prepared_statements as s where s.from_sql)"
#: Fails where a function has prepared a statement, which it may have put in the place of one of ours: that
#: would serve the next caller, without the filters of a role. It ends the locks that a function may hold.
UNTOUCHED = f"""select
where {assertion(UNPREPARED, ANOTHER)} is null
    or pg_catalog.pg_advisory_unlock_all()::pg_catalog.text is null"""
#: What the server says where anything may have happened to what a statement names since it was confirmed.
UNSURE = "dbtools_unsure"
#: 'now' is a constant: when the transaction began in which the statement was last analysed.
UNCHANGED = f"pg_catalog.concat_ws(' ', {SESSION}, 'now'::pg_catalog.timestamptz) = ${{}}::pg_catalog.text"
#: A statement that fails before it reads anything, unless the session is known and nothing has happened. The
#: server analyses a prepared statement again after each change of what it names (PREPARE, Notes).
GUARDED = f"""select * from ({{}}
) as q
where {assertion(UNCHANGED, UNSURE)} is not null"""
END, LEFT_ALONE = running("rollback"), running(UNTOUCHED)


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
        try:
            async with asyncio.timeout(run.timeout + GRACE):
                return await self._attempt(partial(self._fetch, run))
        except TimeoutError as exc:
            raise errors.TimedOut from exc

    async def stamp(self) -> str:
        """Return the stamp of the schema now."""
        return await self._attempt(self._fingerprint)

    async def _attempt(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what *work* returns, run again where something else has ended it; or raise a CallError."""
        attempts = 1
        while True:
            try:
                return await work()
            except DRIVER_ERRORS as exc:
                if says(exc, CHANGED) or isinstance(exc, STALE):
                    raise errors.SchemaChanged from exc
                makes_way = isinstance(exc, MAKING_WAY)
                if attempts == ATTEMPTS or not (makes_way or is_lost(exc)):
                    raise translated(exc) from exc
                attempts += 1
                if not makes_way:
                    # The other connections that wait are lost as well.
                    await self.close()

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
        async with self._pool.connection() as connection:
            key = _key(connection, run)
            try:
                records, more = await _read(connection, key, run)
            except BaseException as exc:
                await roll_back(connection, _check(run))
                if isinstance(exc, STALE):
                    connection.forget(key)
                if isinstance(exc, Exception) and is_lost(exc):
                    connection.terminate()
                if isinstance(exc, UNREADABLE) and connection.local:
                    # asyncpg knows the types of columns from one connection of the server's. After a
                    # migration the pooler may have prepared it on another one, with others.
                    connection.terminate()
                    raise errors.SchemaChanged from exc
                raise
        rows = _rows(records[: run.limit], run.plan)
        return ResultSet(outputs=run.plan.outputs, rows=rows, more=more)

    async def _fingerprint(self) -> str:
        async with self._pool.connection() as connection:
            return await fingerprint(connection)

    async def probe(self) -> Probe:
        """Try to make a table in a transaction like those of calls."""
        async with self._pool.connection() as connection:
            version = f"PostgreSQL {await connection.fetchval('show server_version')}"
            try:
                async with rolled_back(connection, BEGIN):
                    await connection.execute(PROBE)
            except asyncpg.ReadOnlySQLTransactionError:
                return Probe(version=version, refuses_writes=True)
        return Probe(version=version, refuses_writes=False)

    async def ready(self) -> None:
        """Raise a CallError where no connection can be had."""
        async with self._pool.connection():
            pass

    async def close(self) -> None:
        """Close every connection; a call that comes later opens others."""
        await self._pool.dispose()


def _is_usable(connection: Any) -> bool:
    """Return whether another call may have *connection*: in a transaction it has a role and settings."""
    if not connection.is_closed() and connection.is_in_transaction():
        connection.terminate()
    return not connection.is_closed()


def open_engine(url: str) -> "AsyncEngine":
    """Return an engine that may change the database at *url*."""

    async def opened() -> Connection:
        connection = await connect(url)
        await connection.keep_setting(MIGRATING)
        return connection

    # It imports the ORM, which no call needs.
    create: Callable[..., AsyncEngine] = import_module("sqlalchemy.ext.asyncio").create_async_engine
    return create("postgresql+asyncpg://", async_creator=opened, poolclass=sa.NullPool)


def _key(connection: Connection, run: Run) -> Key:
    """Return by what the statement of *run* is kept."""
    sql = run.plan.sql
    if _is_guarded(connection, run):
        sql = _guarded(sql, len(run.plan.parameters) + 1)
    return run.label.comment + sql, run.stamp


def _is_guarded(connection: Connection, run: Run) -> bool:
    """Return whether the server analyses the statement of *run* again after changes, and not otherwise.

    A pooler prepares it anew on each connection of the server's, and policies mean it anew for each role.
    """
    return not (run.session or connection.local)


@lru_cache(maxsize=1_000)
def _guarded(sql: str, place: int) -> str:
    """Return *sql* as GUARDED by the parameter with the number *place*."""
    return GUARDED.format(sql, place)


def _check(run: Run) -> bytes:
    """Return what fails where a function that *run* has called leaves something behind."""
    return LEFT_ALONE if run.session or run.plan.runs_functions else b""


async def _read(connection: Connection, key: Key, run: Run) -> tuple[list[asyncpg.Record], bool]:
    """Return the records of *run* in a transaction of its own, and whether it leaves some out."""
    kept = connection.kept(key)
    begin = connection.beginning + _limit(run.timeout)
    if run.label.application:
        begin += setting({"application_name": run.label.application})
    if kept is not None and kept.guard:
        try:
            return await _run(connection, kept, run, begin)
        except asyncpg.UndefinedObjectError as exc:
            if not says(exc, UNSURE):
                raise
        await roll_back(connection)
        kept = None
    moment = await _begin(connection, run, begin)
    if kept is None:
        guard = (f"{connection.marks} {moment}",) if _is_guarded(connection, run) else ()
        kept = await connection.keep(key, guard)
    return await _run(connection, kept, run, b"")


async def _begin(connection: Connection, run: Run, begin: bytes) -> str:
    """Begin the transaction of *run* with the settings of its role, and return when that was."""
    begin += running(SAME_SESSION, connection.marks)
    if not run.session:
        return await connection.send(begin)
    try:
        return await connection.send(begin + setting(run.session))
    except asyncpg.PostgresError as exc:
        if not is_of_session(exc):
            raise
        # The server's words are for operators.
        raise errors.Refused("The database does not take the settings of this role.") from exc


async def _run(
    connection: Connection, kept: Kept, run: Run, before: bytes
) -> tuple[list[asyncpg.Record], bool]:
    """Run *kept* after the messages *before*, compare the versions if need be, and end the transaction."""
    end = _check(run) + (END if kept.is_confirmed else confirmation(tuple(run.versions)) + END)
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
    kept.is_confirmed = bool(kept.guard)
    return records, more


@lru_cache
def _limit(timeout: float) -> bytes:
    return running(f"set local statement_timeout = {max(1, round(timeout * 1000))}")


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


BAD_VALUE = errors.BadValue("The database cannot read one of the values, or a view fails on its rows.")
#: What SQLSTATEs mean to a caller, or classes of them by two characters (PostgreSQL, appendix A).
MEANINGS: Sequence[tuple[str, errors.CallError]] = (
    # Our own statements have no errors of syntax: what searches texts reads a value as syntax.
    ("42601 22", BAD_VALUE),
    ("22003 22008", errors.OutOfRange()),
    ("57014", errors.TimedOut()),
    ("55P03 40001 40P01 53300 53400", errors.Busy()),
    ("55000", errors.Unreadable("The view has no data yet: it has never been refreshed.")),
    ("42P01 42703 42883 42804 3F000", errors.SchemaChanged()),
    ("25006", errors.Refused("What is called writes, and dbtools only reads.")),
    ("42501", errors.Unreadable("The login may not read this table or view, or one that it reads.")),
    ("54011", errors.Refused("A row of all these columns is too wide.", hint="Name fewer columns.")),
    ("08 57", errors.DatabaseUnavailable()),
    ("53 54", errors.Refused("The database has no room for this call.", hint="Ask for less.")),
)
STATES = {state: meaning for states, meaning in MEANINGS for state in states.split()}


def translated(error: Exception) -> errors.CallError:
    """Return what *error* means to a caller."""
    if not isinstance(error, asyncpg.PostgresError):
        return errors.DatabaseUnavailable()
    state = error.sqlstate or ""
    known = STATES.get(state) or STATES.get(state[:2]) or errors.Unreadable()
    return type(known)(known.message, hint=known.hint)
