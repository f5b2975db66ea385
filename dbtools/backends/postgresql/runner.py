"""Statements on PostgreSQL: each in a read-only transaction that the server itself ends in time."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import anyio
import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dbtools.aggregates import Measure
from dbtools.backends.plans import CELLS_HELD, Plan
from dbtools.backends.pool import EnginePool
from dbtools.backends.port import Fetched, Label, Run, is_current
from dbtools.backends.postgresql.connections import (
    DRIVER_ERRORS,
    connect,
    dated,
    is_lost,
    keep_setting,
    reading,
    roll_back,
    set_local,
)
from dbtools.backends.postgresql.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.inspection import LIST_FORMS
from dbtools.backends.postgresql.session import apply, prepare
from dbtools.backends.postgresql.syntax import lexis
from dbtools.backends.postgresql.versions import confirmation, fingerprint
from dbtools.backends.selects import compile_query, compile_select
from dbtools.cells import Cut
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
from dbtools.statement import Output, QueryShape, Shape
from dbtools.types import Family

T = TypeVar("T")

SCHEME = "postgresql+asyncpg://"
CONNECTIONS = 8
BYTES_AT_ONCE = 8 * 2**20  #: that one fetch may bring at the most
GRACE = 1.0  #: seconds in which the server itself is expected to have stopped a statement
VICTIMS = 5  #: times that a statement is run again which had to make way for others
#: Statements of migrations take long on large tables only, which the registry's are not.
MIGRATING = "'60s'"
GRAMMAR = PostgresqlGrammar()


class PostgresqlRunner:
    """The Runner of PostgreSQL. Its connections keep dates, intervals and numbers exactly."""

    confirms = False  #: the stamp would cost too much: versions of tables are compared instead

    def __init__(self, url: str) -> None:
        self._pool = EnginePool(
            SCHEME,
            lambda: connect(url),
            size=CONNECTIONS,
            is_usable=_is_usable,
            prepare=prepare,
        )

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, GRAMMAR, lexis, LIST_FORMS)
        return compile_select(shape, GRAMMAR)

    async def run(self, run: Run) -> Fetched:
        """Return the rows of *run*, which runs between BEGIN READ ONLY and ROLLBACK."""
        # A scope of anyio, since a native timeout would cut a rollback short that is shielded from scopes.
        with anyio.move_on_after(run.timeout + GRACE):
            return await self._tried(lambda: self._fetch(run), run.stamp)
        raise TimedOut

    async def stamp(self) -> str:
        """Return the stamp of the schema now."""
        return await self._tried(self._stamp)

    async def _tried(self, attempt: Callable[[], Awaitable[T]], stamp: str = "") -> T:
        """Return what *attempt* does, made again where it had to make way or its connection is stale.

        Raise a CallError where that does not help.
        """
        victims, renewed = 0, False
        while True:
            try:
                return await attempt()
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as exc:
                victims += 1
                if victims > VICTIMS:
                    raise translated(exc) from exc
            except DRIVER_ERRORS as exc:
                if renewed or not (is_lost(exc) or is_stale(exc)):
                    raise translated(exc) from exc
                if is_stale(exc) and stamp and not await is_current(self, stamp):
                    # Its columns are of other types by now.
                    raise SchemaChanged from exc
                # The other connections that wait are out of date as well.
                await self.reopen()
                renewed = True

    async def _fetch(self, run: Run) -> Fetched:
        """Run a statement; the versions of its tables are compared before the locks are released."""
        async with self._pool.connection() as connection:
            clean = False
            try:
                await connection.execute(_beginning(run.timeout, run.label))
                if run.session:
                    await _set(connection, run.session)
                sql = dated(connection, f"{run.label.comment}{run.plan.sql}", run.stamp)
                with reading(connection):
                    records, more = await _records(connection, run.plan, sql, run.parameters, run.limit)
                await _end(connection, run.versions)
                clean = True
            finally:
                if not clean:
                    await roll_back(connection)
        return Fetched(rows=_rows(records, run.plan.outputs), more=more)

    async def _stamp(self) -> str:
        async with self._pool.connection() as connection:
            return await fingerprint(connection)

    async def reopen(self) -> None:
        """Close the connections that wait: the server has ended them, or names mean something else now."""
        await self._pool.dispose()

    async def ready(self) -> None:
        """Raise a CallError where no connection can be had."""
        async with self._pool.connection():
            pass

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.dispose()


def _is_usable(connection: Any) -> bool:
    """Return whether another call may have *connection*: in a transaction it has a role and settings."""
    if not connection.is_closed() and connection.is_in_transaction():
        connection.terminate()
    return not connection.is_closed()


def open_engine(url: str) -> AsyncEngine:
    """Return an engine that may change the database at *url*."""

    async def connect_to_migrate() -> Any:
        connection = await connect(url)
        await keep_setting(connection, "statement_timeout", MIGRATING)
        return connection

    return create_async_engine(SCHEME, async_creator=connect_to_migrate, poolclass=sa.NullPool)


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


async def _records(
    connection: Any, plan: Plan, sql: str, parameters: Sequence[object], limit: int
) -> tuple[list[asyncpg.Record], bool]:
    """Fetch at most *limit* records, never many bytes at once, and say whether there are more."""
    batch = max(1, BYTES_AT_ONCE // _most_bytes(plan.outputs))
    if batch > limit:
        records = await connection.fetch(sql, *parameters)
        return records[:limit], len(records) > limit
    cursor = await connection.cursor(sql, *parameters)
    records = []
    room = CELLS_HELD
    while len(records) <= limit:
        found = await cursor.fetch(min(batch, limit + 1 - len(records)))
        room -= sum(len(cell) for each in found for cell in each if isinstance(cell, str | bytes))
        records += found
        if not found or room < 0:
            break
    more = len(records) > limit or (bool(found) and room < 0)
    return records[:limit], more


def _most_bytes(outputs: Sequence[Output]) -> int:
    """Return how many bytes one row may take, so that memory is bounded before anything is fetched."""
    return sum(_width(output) for output in outputs) or 1


def _width(output: Output) -> int:
    if output.longest is None or not _is_cut(output):
        return 64
    return output.longest * (1 if output.term.type.family is Family.BYTES else 4)


def _rows(records: Sequence[asyncpg.Record], outputs: Sequence[Output]) -> tuple[tuple[object, ...], ...]:
    """Return the cells of *records*; lengths stand behind them, for outputs that may be cut."""
    width = len(outputs)
    places = [at for at, output in enumerate(outputs) if _is_cut(output)]
    whole = (None,) * len(places)
    rows = tuple(
        record[:width] if record[width:] == whole else _cut(record, outputs, places) for record in records
    )
    sums = {at for at, output in enumerate(outputs) if _is_sum_of_integers(output)}
    return tuple(_with_integers(row, sums) for row in rows) if sums else rows


def _is_sum_of_integers(output: Output) -> bool:
    return isinstance(output.term, Measure) and output.term.type.family is Family.INTEGER


def _with_integers(row: tuple[object, ...], sums: Collection[int]) -> tuple[object, ...]:
    """Return *row* with integers for what the server sums up as numeric, and so writes as digits."""
    return tuple(int(cell) if at in sums and isinstance(cell, str) else cell for at, cell in enumerate(row))


def _is_cut(output: Output) -> bool:
    type = output.term.type
    return output.longest is not None and (type.large or type.family is Family.BYTES)


def _cut(record: asyncpg.Record, outputs: Sequence[Output], places: Sequence[int]) -> tuple[object, ...]:
    cells = list(record[: len(outputs)])
    for at, length in zip(places, record[len(outputs) :], strict=True):
        longest = outputs[at].longest
        if longest is not None and length is not None and length > longest:
            cells[at] = Cut(start=cells[at], length=length)
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
