"""Run statements on PostgreSQL, each in a read-only transaction with a deadline. A Run in, rows out.

A statement is prepared in one transaction, which then compares the versions of all that it names, and holds
the locks of its tables. It runs in the next transaction. From then on, a transaction is one round trip:
BEGIN, the statement, ROLLBACK. The statement is guarded: it fails if the server has analysed it since, and is
then compared again.

The versions alone would not do: the server locks no functions and operators. One could exist only while the
server analyses the statement. When it is dropped, the server analyses it again, and the guard fails.

Functions of users may run in any statement, even while it is planned. Each transaction therefore ends with a
check of the session. Only a read without settings of a role does without, if in its first transaction no
function of users could run: until the guard fails, none can.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import asyncpg
import sqlalchemy as sa

from dbtools import errors
from dbtools.answers.results import ResultSet
from dbtools.backends.compile.queries import compile_query
from dbtools.backends.compile.selects import compile_select
from dbtools.backends.compiled import CELLS_HELD, Compiled
from dbtools.backends.pool import Pool
from dbtools.backends.port import Probe
from dbtools.backends.postgresql.connection.connections import (
    ANOTHER,
    BEGIN_READ,
    DECODING_ERRORS,
    SESSION_VALUES,
    connect,
    is_lost,
    is_of_settings,
    prepare,
)
from dbtools.backends.postgresql.connection.pipeline import (
    CLEAN,
    DRIVER_ERRORS,
    UNLOCKING,
    UNPREPARED,
    Prepared,
    ServerConnection,
    StatementKey,
    assertion,
    is_failure_of,
    messages,
    roll_back,
    rolled_back,
    setting,
)
from dbtools.backends.postgresql.queries.inspection import LIST_FORMS
from dbtools.backends.postgresql.reading.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.schema.catalog_queries import ARE_PLAIN
from dbtools.backends.postgresql.schema.changes import CHANGED, confirmation
from dbtools.backends.refusals import Cause
from dbtools.backends.runs import Run, RunContext
from dbtools.statements.select import QueryShape, Shape
from dbtools.values.cells import Cut, length_of

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

CONNECTIONS = 8
BYTES_AT_ONCE = 8 * 2**20  #: most bytes in one fetch
GRACE = 1.0  #: seconds in which the server should have stopped a statement after its deadline
ATTEMPTS = 3  #: at a statement, after a lost connection or a conflict
ANALYSES = 10  #: of a statement for one call: VACUUM and ANALYZE cause one as well
CONFLICTS = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
STALE = (asyncpg.InvalidCachedStatementError, asyncpg.OutdatedSchemaCacheError)
MIGRATING = {"statement_timeout": "60s"}  #: the registry's tables are small
PROBE = "create table dbtools_probe ()"  #: a statement that must fail
GRAMMAR = PostgresqlGrammar()

SAME = f"pg_catalog.concat_ws(' ', {SESSION_VALUES}) = $1::pg_catalog.text"
#: Fails in another session. This SELECT takes a snapshot, after which the transaction must stay read-only.
SAME_SESSION = f"select where {assertion(SAME, ANOTHER)} is null"
#: Fails if a function has prepared a statement, which could replace one of dbtools and serve the next caller
#: without the filters of a role. Also releases the advisory locks that a function has taken.
UNTOUCHED = f"select where {assertion(UNPREPARED, ANOTHER)} is null or {UNLOCKING}"
#: The mark of an assertion that what a statement names may have changed.
UNSURE = "dbtools_unsure"
#: 'now' is a constant: the start of the transaction in which the server last analysed the statement.
UNCHANGED = (
    f"pg_catalog.concat_ws(' ', {SESSION_VALUES}, 'now'::pg_catalog.timestamptz) = ${{}}::pg_catalog.text"
)
#: Fails before it reads anything, unless the session is known and nothing has changed: the server analyses a
#: prepared statement again after each change of what it names (PREPARE, Notes).
GUARDED = f"""select * from ({{}}
) as q
where {assertion(UNCHANGED, UNSURE)} is not null"""
#: The same at the end of a SELECT without OFFSET, whatever the settings are.
SAME_MOMENT = (
    "'now'::pg_catalog.timestamptz operator(pg_catalog.=) ${}::pg_catalog.text::pg_catalog.timestamptz"
)
GUARD = f"""
offset case when {assertion(SAME_MOMENT, UNSURE)} is not null then '0'::pg_catalog.int8 end"""
ROLLBACK, CHECK = messages("rollback"), messages(UNTOUCHED)
PLAIN = messages(ARE_PLAIN)
PROCESS = messages("select pg_catalog.pg_backend_pid()::pg_catalog.text")
POLICED_BY = ("role", "row_security")  #: settings on which policies of row-level security depend


class Unsure(Exception):
    """The server has analysed a statement again since it was confirmed; nothing is changed."""


class PostgresqlRunner:
    """The Runner of PostgreSQL."""

    def __init__(self, url: str) -> None:
        connect = partial(open_connection, url)
        self.pool = Pool(connect, size=CONNECTIONS, is_usable=is_usable, end=ServerConnection.terminate)

    def compile(self, shape: Shape) -> Compiled:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, LIST_FORMS)
        return compile_select(shape, GRAMMAR)

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*, read between BEGIN READ ONLY and ROLLBACK."""
        try:
            async with asyncio.timeout(run.context.timeout + GRACE):
                return await self._attempt(run)
        except TimeoutError as exc:
            raise errors.TimedOut from exc

    async def _attempt(self, run: Run) -> ResultSet:
        """Return the rows of *run*, repeated after a lost connection or a conflict."""
        attempts = 1
        while True:
            try:
                return await self._fetch(run)
            except DRIVER_ERRORS as exc:
                if is_failure_of(exc, CHANGED) or isinstance(exc, STALE):
                    raise errors.SchemaChanged from exc
                is_conflict = isinstance(exc, CONFLICTS)
                if attempts == ATTEMPTS or not (is_conflict or is_lost(exc)):
                    raise cause_of(exc).error() from exc
                attempts += 1
                if not is_conflict:
                    # The idle connections are probably lost as well.
                    await self.close()

    async def _fetch(self, run: Run) -> ResultSet:
        async with self.pool.connection() as connection:
            try:
                records, more = await _read(connection, run)
            except BaseException as exc:
                await roll_back(connection, CLEAN)
                if isinstance(exc, Exception) and is_lost(exc):
                    connection.terminate()
                if isinstance(exc, DECODING_ERRORS) and connection.local:
                    # asyncpg knows the types from one connection of the server. After a migration, the
                    # pooler may have prepared the statement on another one, with other types.
                    connection.terminate()
                    raise errors.SchemaChanged from exc
                raise
        rows = rows_of(records[: run.limit], run.plan)
        return ResultSet(outputs=run.plan.outputs, rows=rows, more=more)

    async def probe(self) -> Probe:
        """Try to create a table in a transaction like those of calls."""
        async with self.pool.connection() as connection:
            version = f"PostgreSQL {await connection.fetchval('show server_version')}"
            try:
                async with rolled_back(connection, BEGIN_READ):
                    await connection.execute(PROBE)
            except asyncpg.ReadOnlySQLTransactionError:
                return Probe(version=version, refuses_writes=True)
        return Probe(version=version, refuses_writes=False)

    async def ready(self) -> None:
        """Raise a CallError if no connection can be opened."""
        async with self.pool.connection():
            pass

    async def close(self) -> None:
        """Close every connection; later calls open new ones."""
        await self.pool.dispose()


async def open_connection(url: str) -> ServerConnection:
    """Return a connection to *url* for a pool, or raise DatabaseUnavailable."""
    connection = await connect(url)
    try:
        await prepare(connection)
        # Prepare the carrier of messages now: its snapshot must not precede BEGIN.
        await connection.send(b"")
    except BaseException:
        connection.terminate()
        raise
    return connection


def is_usable(connection: Any) -> bool:
    """Return whether another call may use *connection*; terminate one whose transaction has not ended."""
    if not connection.is_closed() and connection.is_in_transaction():
        connection.terminate()
    return not connection.is_closed()


def open_engine(url: str) -> "AsyncEngine":
    """Return an engine that may write to the database at *url*."""

    async def open_reader() -> ServerConnection:
        connection = await connect(url)
        await connection.keep_setting(MIGRATING)
        return connection

    # This imports the ORM, which no call needs.
    create: Callable[..., AsyncEngine] = import_module("sqlalchemy.ext.asyncio").create_async_engine
    return create("postgresql+asyncpg://", async_creator=open_reader, poolclass=sa.NullPool)


async def _read(connection: ServerConnection, run: Run) -> tuple[list[asyncpg.Record], bool]:
    """Return the records of *run*, and whether there are more."""
    sql = run.context.comment + GUARDED.format(run.plan.sql, len(run.plan.parameters) + 1)
    for _ in range(ANALYSES):
        try:
            return await _read_once(connection, run, sql)
        except asyncpg.UndefinedObjectError as exc:
            if not is_failure_of(exc, UNSURE):
                raise
        await roll_back(connection, CLEAN)
    raise errors.SchemaChanged


async def _read_once(connection: ServerConnection, run: Run, sql: str) -> tuple[list[asyncpg.Record], bool]:
    """Return the records and whether there are more, read by *sql* once it is confirmed."""
    context = run.context
    before = begin = limited_begin(connection, context)
    moment = ""
    if context.session or connection.local:
        before, moment = b"", await begin_transaction(connection, context.session, begin)
    key = key_of(connection, sql, context)
    prepared = connection.prepared_statement(key)
    if prepared is None:
        moment = moment or await begin_transaction(connection, context.session, begin)
        prepared = await connection.prepare_key(key, (f"{connection.marks} {moment}",))
        before = another_transaction((run.shape or run.plan.shape).versions, begin, context.session)
    try:
        return await _run(connection, prepared, run, before)
    except (*STALE, asyncpg.UndefinedObjectError):
        connection.forget(key)
        raise


def key_of(connection: ServerConnection, sql: str, context: RunContext) -> StatementKey:
    """Return the key of *sql*, prepared for one process of the server and for what policies depend on.

    The server analyses a statement again for another role, and in another process behind a pooler.
    """
    policed = (f"{name} {context.session[name]}" for name in POLICED_BY if name in context.session)
    return sql, "\n".join((context.stamp, connection.process, *policed))


def limited_begin(connection: ServerConnection, context: RunContext) -> bytes:
    """Return the messages that begin a transaction with the timeout and the application name of *context*."""
    name = setting({"application_name": context.application}) if context.application else b""
    return connection.begin + time_limit(context.timeout) + name


def another_transaction(versions: tuple[str, ...], begin: bytes, session: Mapping[str, str]) -> bytes:
    """Return the messages that confirm *versions*, and begin the transaction in which a statement runs.

    Whatever a statement names may have been replaced while the server analysed it, and be as it was when the
    versions are confirmed: then the server analyses the statement again, in the next transaction. A pooler
    keeps both transactions in one process, as the messages are sent together.
    """
    return confirmation(versions) + ROLLBACK + begin + setting(session)


def begin_messages(connection: ServerConnection, begin: bytes) -> bytes:
    """Return the messages that send *begin* and check the session."""
    return begin + messages(SAME_SESSION, connection.marks)


async def begin_transaction(
    connection: ServerConnection, session: Mapping[str, str], begin: bytes, after: bytes = b""
) -> str:
    """Send *begin*, check the session, send *after* and the settings *session*; return the start."""
    begin = begin_messages(connection, begin) + after
    if connection.local:
        begin += PROCESS
    try:
        *process, moment = await connection.carried_texts(begin + setting(session))
    except asyncpg.PostgresError as exc:
        if not (session and is_of_settings(exc)):
            raise
        # The server's message is for operators.
        raise Cause.SESSION_REFUSED.error() from exc
    connection.process = "".join(process)
    return moment


async def _run(
    connection: ServerConnection, prepared: Prepared, run: Run, before: bytes
) -> tuple[list[asyncpg.Record], bool]:
    """Run *prepared* after the messages *before*, check what must be checked, and roll back."""
    end, values = prepared.end, (*run.parameters, *prepared.guard)
    batch = max(1, BYTES_AT_ONCE // max(1, run.plan.most_bytes))
    if batch > run.limit or run.limit == 1:
        records = await connection.run(prepared.statement, values, before, end)
        more = len(records) > run.limit
    else:
        if before:
            await connection.send(before)
        fits = run.plan.is_bounded and run.limit * run.plan.most_bytes < CELLS_HELD
        room = None if fits else CELLS_HELD
        records, more = await fetch_batches(prepared.statement, values, run.limit, batch, room)
        await connection.send(end)
    if not end:
        # After the statement has run: a change that this does not see makes the guard fail later.
        is_plain = await connection.texts(PLAIN + CHECK + ROLLBACK) == ["true"]
        is_own = not (run.context.session or connection.local or run.plan.runs_functions)
        prepared.end = ROLLBACK if is_plain and is_own else CHECK + ROLLBACK
        prepared.is_confirmed = True
    return records, more


@lru_cache
def time_limit(timeout: float) -> bytes:
    """Return the messages that limit each statement of a transaction to *timeout* seconds."""
    return messages(f"set local statement_timeout = {max(1, round(timeout * 1000))}")


async def fetch_batches(
    statement: Any, values: tuple[object, ...], limit: int, batch: int, room: int | None
) -> tuple[list[asyncpg.Record], bool]:
    """Fetch *batch* records at a time, at most one more than *limit*, and say whether there are more.

    Stop when the cells have more than *room* characters and bytes, unless *room* is None.
    """
    cursor = await statement.cursor(*values)
    records: list[asyncpg.Record] = []
    while len(records) <= limit and (room is None or room >= 0):
        found = await cursor.fetch(min(batch, limit + 1 - len(records)))
        if not found:
            return records, False
        records += found
        room = None if room is None else room - sum(map(length_of, zip(*found, strict=True)))
    return records, True


def rows_of(records: Sequence[asyncpg.Record], plan: Compiled) -> tuple[tuple[object, ...], ...]:
    """Return the cells of *records*, in which the lengths of cells that may be cut follow the outputs."""
    width = len(plan.outputs)
    whole = (None,) * len(plan.cuts)
    return tuple(
        record[:width] if not plan.sums and record[width:] == whole else _row(record, width, plan)
        for record in records
    )


def _row(record: asyncpg.Record, width: int, plan: Compiled) -> tuple[object, ...]:
    cells = list(record[:width])
    for (at, longest), length in zip(plan.cuts.items(), record[width:], strict=True):
        if length is not None and length > longest:
            cells[at] = Cut(start=cells[at], length=length)
    for at in plan.sums:
        # The server returns a sum of type numeric as digits.
        cells[at] = int(cells[at]) if isinstance(cells[at], str) else cells[at]
    return tuple(cells)


#: By SQLSTATE, or by a class of these with two characters (PostgreSQL, appendix A).
CAUSES_BY_STATE: Mapping[str, Cause] = {
    # Our statements have no syntax errors: a text search parses a value.
    **dict.fromkeys(("42601", "22"), Cause.BAD_VALUE),
    **dict.fromkeys(("22003", "22008"), Cause.OUT_OF_RANGE),
    "57014": Cause.TIMED_OUT,
    **dict.fromkeys(("55P03", "40001", "40P01", "53300", "53400"), Cause.BUSY),
    "55000": Cause.NEVER_REFRESHED,
    **dict.fromkeys(("42P01", "42703", "42883", "42804", "3F000"), Cause.SCHEMA_CHANGED),
    "25006": Cause.READ_WRITES,
    "42501": Cause.NO_PRIVILEGE,
    "54011": Cause.WIDE_ROW,
    **dict.fromkeys(("08", "57"), Cause.UNAVAILABLE),
    **dict.fromkeys(("53", "54"), Cause.NO_RESOURCES),
}


def cause_of(error: Exception) -> Cause:
    """Return the cause of *error*, which a statement has raised."""
    if not isinstance(error, asyncpg.PostgresError):
        return Cause.UNAVAILABLE
    state = error.sqlstate or ""
    return CAUSES_BY_STATE.get(state) or CAUSES_BY_STATE.get(state[:2]) or Cause.UNREADABLE
