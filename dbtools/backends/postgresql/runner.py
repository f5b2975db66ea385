"""Statements on PostgreSQL: each in a read-only transaction that the server itself ends in time."""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import sqlalchemy as sa

from dbtools.aggregates import Measure
from dbtools.backends.plans import CELLS_HELD, Plan
from dbtools.backends.pool import EnginePool
from dbtools.backends.port import Label, Probe, Run, is_current
from dbtools.backends.postgresql.connections import (
    DRIVER_ERRORS,
    apply,
    connect,
    dated,
    is_lost,
    keep_setting,
    prepare,
    reading,
    roll_back,
    set_local,
)
from dbtools.backends.postgresql.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.inspection import LIST_FORMS
from dbtools.backends.postgresql.syntax import lexis
from dbtools.backends.postgresql.versions import confirmation, fingerprint
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
from dbtools.statement import Output, QueryShape, Shape
from dbtools.types import Family

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

SCHEME = "postgresql+asyncpg://"
CONNECTIONS = 8
BYTES_AT_ONCE = 8 * 2**20  #: that one fetch may bring at the most
GRACE = 1.0  #: seconds in which the server itself is expected to have stopped a statement
VICTIMS = 5  #: times that a statement is run again which had to make way for others
MAKING_WAY = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)
#: Statements of migrations take long on large tables only, which the registry's are not.
MIGRATING = "'60s'"
GRAMMAR = PostgresqlGrammar()

WRITTEN, PROBE_TIMEOUT = "dbtools_probe", 5.0  #: a table that is never made; seconds


class PostgresqlRunner:
    """The Runner of PostgreSQL. Its connections keep dates, intervals and numbers exactly."""

    confirms = False  #: the stamp would cost too much: versions of tables are compared instead

    def __init__(self, url: str) -> None:
        self._url = url
        self._pool = EnginePool(
            SCHEME, partial(connect, url), size=CONNECTIONS, is_usable=_is_usable, prepare=prepare
        )

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, lexis, LIST_FORMS)
        return compile_select(shape, GRAMMAR)

    async def run(self, run: Run) -> ResultSet:
        """Return the rows of *run*, which runs between BEGIN READ ONLY and ROLLBACK."""
        failures: list[bool] = []
        # A scope of anyio, since a native timeout would cut a rollback short that is shielded from scopes.
        with anyio.move_on_after(run.timeout + GRACE):
            while True:
                try:
                    return await self._fetch(run)
                except DRIVER_ERRORS as exc:
                    await self._overcome(exc, failures, run.stamp)
        raise TimedOut

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
        makes_way = isinstance(error, MAKING_WAY)
        most = VICTIMS if makes_way else 1 if is_lost(error) or is_stale(error) else 0
        if failures.count(makes_way) >= most:
            raise translated(error) from error
        if is_stale(error) and stamp and not await is_current(self, stamp):
            # Its columns are of other types by now.
            raise SchemaChanged from error
        if not makes_way:
            # The other connections that wait are out of date as well.
            await self.close()
        failures.append(makes_way)

    async def _fetch(self, run: Run) -> ResultSet:
        """Run a statement; the versions of its tables are compared before the locks are released."""
        batch = max(1, BYTES_AT_ONCE // max(1, sum(map(_most_bytes, run.plan.outputs))))
        async with self._pool.connection() as connection:
            try:
                await connection.execute(_beginning(run.timeout, run.label))
                if run.session:
                    await _set(connection, run.session)
                sql = dated(connection, f"{run.label.comment}{run.plan.sql}", run.stamp)
                with reading(connection):
                    if batch > run.limit:
                        records = await connection.fetch(sql, *run.parameters)
                        more = len(records) > run.limit
                    else:
                        records, more = await _fetch_batches(connection, sql, run, batch)
                await _end(connection, run.versions)
            except BaseException:
                await roll_back(connection)
                raise
        outputs = run.plan.outputs
        return ResultSet(outputs=outputs, rows=_rows(records[: run.limit], outputs), more=more)

    async def probe(self) -> Probe:
        """Try to make a table in a transaction like those of calls."""
        async with self._pool.connection() as connection:
            version = await connection.fetchval("show server_version")
            try:
                await connection.execute(_beginning(PROBE_TIMEOUT, Label()))
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


async def _set(connection: Any, session: Mapping[str, str]) -> None:
    try:
        await apply(connection, session, local=True)
    except Refused as exc:
        # The server's words are for operators.
        raise Refused("The database does not take the settings of this role.") from exc


def is_stale(error: Exception) -> bool:
    """Return whether a prepared statement met a schema that has changed since."""
    return isinstance(error, asyncpg.InvalidCachedStatementError | asyncpg.OutdatedSchemaCacheError)


def _beginning(timeout: float, label: Label) -> str:
    """Return what begins a transaction that lasts *timeout* seconds, under the name of *label*."""
    settings = [set_local("statement_timeout", str(max(1, round(timeout * 1000))))]
    if label.application:
        settings.append(set_local("application_name", label.application))
    # The SELECT takes the snapshot, after which the transaction cannot be made one that writes.
    return f"begin read only; select {', '.join(settings)}"


async def _end(connection: Any, versions: Sequence[str]) -> None:
    """End the transaction, or raise SchemaChanged where a table that it has read has not its version."""
    try:
        await connection.execute(f"{confirmation(versions)}; rollback" if versions else "rollback")
    except asyncpg.DivisionByZeroError as exc:
        raise SchemaChanged from exc


async def _fetch_batches(
    connection: Any, sql: str, run: Run, batch: int
) -> tuple[list[asyncpg.Record], bool]:
    """Fetch at most one record more than *run* asks for, and say whether there are more than it does.

    No more than *batch* come at once, and no more altogether than what is held at the most.
    """
    cursor = await connection.cursor(sql, *run.parameters)
    records: list[asyncpg.Record] = []
    room = CELLS_HELD
    while len(records) <= run.limit:
        found = await cursor.fetch(min(batch, run.limit + 1 - len(records)))
        if not found:
            return records, False
        records += found
        room -= sum(map(held, zip(*found, strict=True)))
        if room < 0:
            break
    return records, True


def _most_bytes(output: Output) -> int:
    """Return how many bytes one cell may take, so that memory is bounded before anything is fetched."""
    if output.longest is None or not _is_cut(output):
        return 64
    return output.longest * (1 if output.term.type.family is Family.BYTES else 4)


def _rows(records: Sequence[asyncpg.Record], outputs: Sequence[Output]) -> tuple[tuple[object, ...], ...]:
    """Return the cells of *records*; lengths stand behind them, for outputs that may be cut."""
    width = len(outputs)
    cuts = [(at, output.longest or 0) for at, output in enumerate(outputs) if _is_cut(output)]
    sums = [at for at, output in enumerate(outputs) if _is_sum_of_integers(output)]
    whole = (None,) * len(cuts)
    return tuple(
        record[:width] if not sums and record[width:] == whole else _row(record, width, cuts, sums)
        for record in records
    )


def _row(
    record: asyncpg.Record, width: int, cuts: Sequence[tuple[int, int]], sums: Sequence[int]
) -> tuple[object, ...]:
    cells = list(record[:width])
    for (at, longest), length in zip(cuts, record[width:], strict=True):
        if length is not None and length > longest:
            cells[at] = Cut(start=cells[at], length=length)
    for at in sums:
        # What the server sums up as numeric it writes as digits.
        cells[at] = int(cells[at]) if isinstance(cells[at], str) else cells[at]
    return tuple(cells)


def _is_sum_of_integers(output: Output) -> bool:
    return isinstance(output.term, Measure) and output.term.type.family is Family.INTEGER


def _is_cut(output: Output) -> bool:
    type = output.term.type
    return output.longest is not None and (type.large or type.family is Family.BYTES)


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
