"""Statements on PostgreSQL: each in a read-only transaction that the server itself ends in time."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from dbtools.aggregates import Measure
from dbtools.backends.driver import CELLS_HELD, Fetched, Label, Plan
from dbtools.backends.identifiers import identifier
from dbtools.backends.pool import EnginePool
from dbtools.backends.postgresql import location
from dbtools.backends.postgresql.fingerprint import fingerprint
from dbtools.backends.postgresql.grammar import PostgresqlGrammar, list_parameter, parameter
from dbtools.backends.postgresql.inspection import LIST_FORMS
from dbtools.backends.postgresql.pooled import dated, keep_setting, literal, reading
from dbtools.backends.postgresql.session import apply, prepare
from dbtools.backends.postgresql.syntax import MISWRITTEN, NO_PARAMETER, lexis, placeholder_in
from dbtools.backends.postgresql.transactions import DRIVER_ERRORS, is_lost, roll_back
from dbtools.backends.postgresql.types import sql_name
from dbtools.backends.postgresql.versions import confirmation
from dbtools.backends.queries import compile_query
from dbtools.backends.selects import compile_select, driver_values
from dbtools.catalog import Table
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
from dbtools.sql import Fragment
from dbtools.statement import Output, QueryShape, Shape
from dbtools.types import Family

CONNECTIONS = 8
BYTES_AT_ONCE = 8 * 2**20  #: that one fetch may bring at the most

#: Statements of migrations take long on large tables only, which the registry's are not.
MIGRATING = "'60s'"


class PostgresqlDriver:
    """The Driver of PostgreSQL."""

    grammar = PostgresqlGrammar()
    confirms = False

    errors = DRIVER_ERRORS

    def open_pool(self, url: str) -> EnginePool:
        """Return a pool whose connections keep dates, intervals and numbers exactly."""
        return EnginePool(
            "postgresql+asyncpg://",
            lambda: location.connect(url),
            size=CONNECTIONS,
            is_usable=lambda connection: not connection.is_closed(),
            prepare=prepare,
        )

    def open_engine(self, url: str) -> AsyncEngine:
        """Return an engine that may change the database at *url*."""

        async def connect() -> Any:
            connection = await location.connect(url)
            await keep_setting(connection, "statement_timeout", MIGRATING)
            return connection

        return create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=sa.NullPool)

    async def casts(
        self, connection: Any, table: Table, condition: Fragment, session: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Return what the server takes each parameter of *condition* for."""
        numbers = count(1)
        written = condition.written(lambda _: f"${next(numbers)}")
        name = ".".join(identifier(part) for part in (table.schema, table.name) if part)
        sql = f"select 1 from {name} where ({written}\n)"
        try:
            await connection.execute("begin read only")
            if session:
                await apply(connection, session, local=True)
            prepared = await connection.prepare(sql)
            # Only what is about to run looks at privileges, and nothing is run.
            nulls = [None for _ in prepared.get_parameters()]
            # Anew each time: of a statement that is kept the types may be those before a migration.
            await connection.fetch(f"explain {sql} /* {secrets.token_hex(8)} */", *nulls)
        except asyncpg.PostgresError as exc:
            if is_lost(exc):
                raise
            is_placeholder = exc.sqlstate in MISWRITTEN and placeholder_in(condition.text) is not None
            raise Refused(f"{NO_PARAMETER if is_placeholder else exc.args[0]}.") from exc
        finally:
            await roll_back(connection)
        return tuple(sql_name(each) for each in prepared.get_parameters())

    def compile(self, shape: Shape) -> Plan:
        """Return the SQL of *shape*."""
        if isinstance(shape, QueryShape):
            return compile_query(shape, self.grammar, lexis, LIST_FORMS)
        return compile_select(shape, self.grammar)

    def bound(self, plan: Plan, values: Mapping[str, object], limit: int) -> tuple[object, ...]:
        """Return *values* as texts, which the server casts."""
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
        """Run *plan* between BEGIN READ ONLY and ROLLBACK.

        The *versions* are looked at before the locks are released; the *stamp* would cost too much.
        """
        clean = False
        try:
            await connection.execute(_beginning(timeout, label))
            if session:
                await self._set(connection, session)
            sql = dated(connection, f"{label.comment}{plan.sql}", stamp)
            parameters = self.bound(plan, values, limit)
            with reading(connection):
                records, more = await _records(connection, plan, sql, parameters, limit)
            await _end(connection, versions)
            clean = True
        finally:
            if not clean:
                await roll_back(connection)
        return Fetched(rows=_rows(records, plan.outputs), more=more)

    async def _set(self, connection: Any, session: Mapping[str, str]) -> None:
        try:
            await apply(connection, session, local=True)
        except Refused as exc:
            # The server's words are for operators.
            raise Refused("The database does not take the settings of this role.") from exc

    async def stamp(self, connection: Any) -> str:
        """Return the stamp of the schema now."""
        return await fingerprint(connection)

    def translate(self, error: Exception) -> CallError:
        """Return what *error* means to a caller, by its SQLSTATE."""
        if isinstance(error, asyncpg.PostgresError):
            return _translated(error)
        return DatabaseUnavailable()

    def is_lost(self, error: Exception) -> bool:
        """Return whether the server or the network ended the connection."""
        return is_lost(error)

    def is_victim(self, error: Exception) -> bool:
        """Return whether the server has stopped the statement so that another could go on: of a deadlock."""
        return isinstance(error, asyncpg.DeadlockDetectedError | asyncpg.SerializationError)

    def is_stale(self, error: Exception) -> bool:
        """Return whether a prepared statement met a schema that has changed since."""
        return isinstance(error, asyncpg.InvalidCachedStatementError | asyncpg.OutdatedSchemaCacheError)


def _beginning(timeout: float, label: Label) -> str:
    """Return what begins a transaction that lasts *timeout* seconds, under the name of *label*."""
    settings = {"statement_timeout": str(max(1, round(timeout * 1000)))}
    if label.application:
        settings["application_name"] = label.application
    set_all = ", ".join(f"set_config('{name}', {literal(value)}, true)" for name, value in settings.items())
    # The SELECT takes the snapshot, after which the transaction cannot be made one that writes.
    return f"begin read only; select {set_all}"


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
    is_large = type.large or type.family is Family.BYTES
    return output.longest is not None and is_large


def _cut(record: asyncpg.Record, outputs: Sequence[Output], places: Sequence[int]) -> tuple[object, ...]:
    cells = list(record[: len(outputs)])
    for at, length in zip(places, record[len(outputs) :], strict=True):
        longest = outputs[at].longest
        if longest is not None and length is not None and length > longest:
            cells[at] = Cut(start=cells[at], length=length)
    return tuple(cells)


BAD_VALUE = BadValue("The database cannot read one of the values, or a view fails on its rows.")
STATES: Mapping[str, CallError] = {
    "42601": BAD_VALUE,  # our own statements have no such errors: what searches texts reads a value as syntax
    "22003": OutOfRange(),
    "22008": OutOfRange(),
    "57014": TimedOut(),
    "55P03": Busy(),
    "40001": Busy(),
    "40P01": Busy(),
    "53300": Busy(),
    "53400": Busy(),
    "55000": Unreadable("The view has no data yet: it has never been refreshed."),
    "42P01": SchemaChanged(),
    "42703": SchemaChanged(),
    "42883": SchemaChanged(),
    "42804": SchemaChanged(),
    "3F000": SchemaChanged(),
    "25006": Refused("What is called writes, and dbtools only reads."),
    "42501": Unreadable("The login may not read this table or view, or one that it reads."),
    "54011": Refused("A row of all these columns is too wide.", hint="Name fewer columns."),
}
CLASSES: Mapping[str, CallError] = {
    "22": BAD_VALUE,
    "08": DatabaseUnavailable(),
    "57": DatabaseUnavailable(),
    "53": Refused("The database has no room for this call.", hint="Ask for less."),
    "54": Refused("The database has no room for this call.", hint="Ask for less."),
}


def _translated(error: asyncpg.PostgresError) -> CallError:
    """Return what an SQLSTATE (PostgreSQL, appendix A) means to a caller."""
    state = error.sqlstate or ""
    known = STATES.get(state) or CLASSES.get(state[:2]) or Unreadable()
    return type(known)(known.message, hint=known.hint)


DRIVER = PostgresqlDriver()
