"""Run free SQL on PostgreSQL, checked twice. A FreeRun in, rows or a refusal out.

The guard checks the caller's SQL and writes what the role sees of each table into it. Then the server reads
first what the role sees of the tables, and then the statement: it must lock no relation more, neither when it
is parsed nor when it is planned. The transaction is read-only, and the login cannot write.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import asyncpg
import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools import errors
from dbtools.backends.free import FreeExplanation, FreeRun, refused, unknown_column
from dbtools.backends.plans import Plan, identifier
from dbtools.backends.pool import Pool
from dbtools.backends.postgresql.changes import CHANGED, confirmation
from dbtools.backends.postgresql.connections import UNREADABLE, is_lost
from dbtools.backends.postgresql.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.guard import Guarded, guard
from dbtools.backends.postgresql.lenses import lens
from dbtools.backends.postgresql.pipeline import (
    DRIVER_ERRORS,
    Connection,
    is_failure_of,
    messages,
    roll_back,
    rolled_back,
    setting,
)
from dbtools.backends.postgresql.runner import (
    CLEAN,
    STALE,
    begin_transaction,
    is_usable,
    open_connection,
    rows_of,
    time_limit,
    translated,
)
from dbtools.backends.postgresql.types import UNLIMITED, DeclaredTypes, read_types
from dbtools.backends.postgresql.vocabulary import Vocabulary, read_vocabulary
from dbtools.backends.selects import CLAIM
from dbtools.catalog import Column, Table
from dbtools.cells import held
from dbtools.results import ResultSet
from dbtools.statement import Output, QueryShape
from dbtools.types import quoted

CONNECTIONS = 4
OF_ONE_CALLER = 2  #: statements at the same time; others wait
GRACE = 0.2  #: seconds in which the server should have stopped a statement after its deadline
ATTEMPTS = 2  #: after a lost connection
BYTES_AT_ONCE = 2 * 2**20  #: most bytes in one fetch
MOST_BYTES = 16 * 2**20  #: that the server sends in one call
MOST_COLUMNS = 400
KEPT = 16  #: vocabularies
FIRST_OF_USERS = 16384  #: the least OID of what is not a part of the system
GRAMMAR = PostgresqlGrammar()
UNDECODABLE = (asyncpg.UnsupportedClientFeatureError, asyncpg.InternalClientError)
#: One process, and not for long: other callers need the server as well.
SESSION = (
    "set local lock_timeout = 2000",
    "set local idle_in_transaction_session_timeout = 20000",
    "set local max_parallel_workers_per_gather = 0",
    "set local jit = off",
    "set local row_security = on",
    "set local transform_null_equals = off",
    "set local array_nulls = on",
)
SETTINGS = b"".join(map(messages, SESSION))
#: The relations that the transaction has locked. It locks none itself.
LOCKED = """
select coalesce(pg_catalog.array_agg(l.relation::pg_catalog.int8), '{}')
from pg_catalog.pg_lock_status() as l
where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation'
"""


class _Meter(asyncio.Protocol):
    """Passes what the server sends to asyncpg, and aborts the connection when it is too much for one call.

    Rows and cells are cut in the server, but an error message may quote a value of any size.
    """

    def __init__(self, transport: Any) -> None:
        self._transport, self._inner = transport, transport.get_protocol()
        self.room = MOST_BYTES
        for name in ("connection_lost", "eof_received", "pause_writing", "resume_writing"):
            setattr(self, name, getattr(self._inner, name))
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        """Pass *data* on."""
        self.room -= len(data)
        if self.room < 0:
            self._transport.abort()
        else:
            self._inner.data_received(data)


class PostgresqlFreeRunner:
    """The FreeRunner of PostgreSQL."""

    def __init__(self, url: str) -> None:
        connect = partial(_connect, url)
        self._pool = Pool(connect, size=CONNECTIONS, is_usable=is_usable, end=Connection.terminate)
        self._vocabularies: dict[object, Vocabulary] = {}
        self._types: dict[object, Any] = {}  #: rows of types
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def run(self, run: FreeRun) -> ResultSet:
        """Return the rows of *run*, or raise a CallError."""
        attempts, turn = 1, self._turns.setdefault(run.caller, asyncio.Semaphore(OF_ONE_CALLER))
        try:
            async with asyncio.timeout(run.timeout + GRACE) as deadline, turn:
                while True:
                    try:
                        return await self._run(run, deadline)
                    except DRIVER_ERRORS as exc:
                        if attempts == ATTEMPTS or not is_lost(exc):
                            raise translated(exc) from exc
                    attempts += 1
                    await self._pool.dispose()
        except TimeoutError as exc:
            raise errors.TimedOut from exc

    async def explain(self, run: FreeRun) -> FreeExplanation:
        """Return the statement that would run, and what the checks say; or raise a CallError."""
        async with asyncio.timeout(run.timeout + GRACE) as deadline:
            try:
                async with self._transaction(deadline) as connection:
                    statement = await self._prepared(connection, run)
            except DRIVER_ERRORS as exc:
                raise translated(exc) from exc
        names = ", ".join(run.catalog.label(table) for table in statement.guarded.tables) or "no table"
        return FreeExplanation(
            sql=statement.plan.sql,
            verdicts=(
                f"The guard permits it: it reads {names}, and calls only functions that compute a value.",
                "The server reads and plans it without any other relation, in a read-only transaction.",
            ),
        )

    async def close(self) -> None:
        """Close every connection; later calls open new ones."""
        await self._pool.dispose()

    async def _run(self, run: FreeRun, deadline: asyncio.Timeout) -> ResultSet:
        async with self._transaction(deadline) as connection:
            statement = await self._prepared(connection, run)
            records, more = await _rows(connection, statement, run)
        rows = rows_of(records[: run.limit], statement.plan)
        return ResultSet(outputs=statement.plan.outputs, rows=rows, more=more)

    @asynccontextmanager
    async def _transaction(self, deadline: asyncio.Timeout) -> AsyncIterator[Connection]:
        """Acquire a connection, and roll back at the end."""
        async with self._pool.connection() as connection:
            connection.meter.room = MOST_BYTES
            try:
                yield connection
            except Exception as exc:
                if connection.meter.room < 0:
                    raise errors.Refused("The server sends too much for one call.", hint=LESS) from exc
                if isinstance(exc, UNREADABLE) or is_lost(exc):
                    connection.terminate()
                raise
            finally:
                # After the deadline, the server stops the statement by itself.
                if deadline.expired():
                    connection.terminate()
                elif not connection.is_closed():
                    await roll_back(connection, CLEAN)

    async def _prepared(self, connection: Connection, run: FreeRun) -> "Confined":
        """Check *run* in a new transaction, and return the statement to run in it."""
        vocabulary = await self._vocabulary(connection, run)
        mark = f"cte_{secrets.token_hex(6)}_"
        guarded = guard(run.sql, run.catalog, vocabulary, partial(lens, whole=run.whole), mark)
        begin = connection.begin + time_limit(run.timeout)
        if run.application:
            begin += setting({"application_name": run.application})
        await begin_transaction(connection, run.session, begin, SETTINGS)
        statement = Confined(guarded, tuple(_bound(run.claims.get(claim)) for claim in guarded.claims), run)
        try:
            await statement.check(connection)
            statement.plan = await self._planned(connection, statement)
            await statement.audit(connection)
        except asyncpg.PostgresError as exc:
            raise statement.refusal(exc) from exc
        return statement

    async def _vocabulary(self, connection: Connection, run: FreeRun) -> Vocabulary:
        """Return what may be named, read in a separate transaction, since it locks catalogs."""
        key = (run.stamp, run.catalog.search_path, run.functions)
        if key not in self._vocabularies:
            if len(self._vocabularies) >= KEPT:
                self._vocabularies.clear()
                self._types.clear()
            async with rolled_back(connection, "begin read only"):
                found = await read_vocabulary(connection, run.catalog.search_path, run.functions)
            self._vocabularies[key] = found
        return self._vocabularies[key]

    async def _planned(self, connection: Connection, statement: "Confined") -> Plan:
        """Return the plan of *statement*, with the types of the server."""
        attributes = statement.prepared.get_attributes()
        if not attributes or len(attributes) > MOST_COLUMNS:
            raise refused(f"A result has from 1 to {MOST_COLUMNS} columns", "Name the columns that you need.")
        numbers = {(each.type.oid, UNLIMITED) for each in attributes}
        rows = await read_types(connection, numbers - self._types.keys())
        # Types of users may change.
        self._types |= {(row["number"], row["modifier"]): row for row in rows if row["native"]}
        types = DeclaredTypes([*self._types.values(), *rows])
        longest = statement.run.longest
        columns = (Column(name=each.name, type=types[each.type.oid, UNLIMITED].type) for each in attributes)
        return _wrapped(statement, tuple(Output(column, longest) for column in columns))


class Confined:
    """A statement that the guard permits, in its transaction."""

    plan: Plan
    prepared: Any

    def __init__(self, guarded: Guarded, values: tuple[object, ...], run: FreeRun) -> None:
        self.guarded, self.values, self.run = guarded, values, run
        self.before = 0  #: characters before it in what was sent last
        self._locked: frozenset[int] = frozenset()
        self._functions: set[str] = set()

    async def check(self, connection: Connection) -> None:
        """Let the server parse the statement, and refuse it if that locks more than its tables do."""
        claims = self.guarded.claims
        used = ", ".join(["1", *(f"${number}::pg_catalog.text" for number in range(1, len(claims) + 1))])
        tables = [self._source(table) for table in self.guarded.tables]
        both = ", ".join(f"{source} as t{number}" for number, source in enumerate(tables))
        await connection.prepare(f"select {used} from {both}" if both else "select")
        named = await _locks(connection)
        # Without columns of the statement, the driver needs no types, so it reads no catalog.
        self.before = len(BEFORE)
        await connection.prepare(f"{BEFORE}{self.guarded.sql}\n) as q")
        _compare(await _locks(connection), named)
        for source in tables:
            plan = await self._explained(connection, f"select *, {used} from {source} as t")
            self._functions |= set(_functions(plan))
        self._locked = await _locks(connection)
        self.before = len(self.run.comment)
        self.prepared = await connection.prepare(f"{self.run.comment}{self.guarded.sql}")

    def _source(self, table: Table) -> str:
        """Return what the role sees of *table*, with the parameters of the statement."""
        texts = lens(table, self.run.whole)
        if texts is None:
            return f"{identifier(table.schema)}.{identifier(table.name)}"
        numbers = {claim: f"${number}" for number, claim in enumerate(self.guarded.claims, 1)}
        return f"({''.join(text + numbers.get(claim, '') for text, claim in texts)})"

    async def _explained(self, connection: Connection, sql: str) -> object:
        # The driver does not keep this statement, so it has no types from before a migration.
        prepared = await connection.prepare(f"explain (format json, costs off) {sql}")
        return json.loads(await prepared.fetchval(*self.values))

    async def audit(self, connection: Connection) -> None:
        """Plan the statement, and refuse it if that locks another relation or scans another function.

        The server also opens the tables that functions in SQL read, so this says nothing about a
        statement that calls a function which the operator has named.
        """
        self.before = self.plan.sql.index(self.guarded.sql)
        plan = await self._explained(connection, self.plan.sql)
        locked = () if self.guarded.named and self.run.functions else await _locks(connection)
        _compare((number for number in locked if number >= FIRST_OF_USERS), self._locked)
        called = {piece.value for piece in self.guarded.pieces}
        for name in set(_functions(plan)) - self._functions:
            if name not in called:
                raise refused("The plan of the statement scans a function that it does not name")
        # All of its tables are locked, so they stay as they are now.
        await connection.send(confirmation(tuple(table.version for table in self.guarded.tables)))

    def refusal(self, error: asyncpg.PostgresError) -> errors.CallError:
        """Return the refusal for *error*, in words without anything of the server's."""
        if is_failure_of(error, CHANGED) or isinstance(error, STALE):
            return errors.SchemaChanged()
        state, position = error.sqlstate or "", getattr(error, "position", None)
        at = None if position is None else self.guarded.piece_at(int(position) - 1 - self.before)
        offset, name = (None, "") if at is None else (self.guarded.pieces[at].offset, self._name_at(at))
        tables = {table.name.lower() for table in self.guarded.tables}
        if state == "42703":
            return unknown_column(name, self.run.catalog, tables=tables, position=offset)
        if state in STATES:
            rule, hint = STATES[state]
            return refused(rule.format(name=quoted(name, 60) if name else "it"), hint, position=offset)
        if state.startswith(REFUSED):
            return refused("The database cannot run this statement", SIMPLER, position=offset)
        return translated(error)

    def _name_at(self, at: int) -> str:
        """Return the name, with the names after its dots, that begins with piece number *at*."""
        pieces, end = self.guarded.pieces, at + 1
        while end + 1 < len(pieces) and pieces[end].text == ".":
            end += 2
        return "".join(piece.value or piece.text for piece in pieces[at:end])


async def _locks(connection: Connection) -> frozenset[int]:
    """Return the relations that the transaction has locked."""
    return frozenset(await connection.fetchval(LOCKED))


def _compare(locked: Iterable[int], known: frozenset[int]) -> None:
    if not known.issuperset(locked):
        raise refused("The statement reads more than the tables that it names")


BEFORE = "select 1 from (\n"
SIMPLER = "Write it more simply."
LESS = "Ask for fewer and shorter values."
CAST = "Cast the values, as in value::numeric."
#: The rules and hints for SQLSTATEs. {name}: of what is wrong, if it is known.
STATES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("42P01", "42501", "3F000"),
        ("There is no table or alias {name}", "Name each table in from, before where it is used."),
    ),
    "42601": ("The statement cannot be read near {name}", "Is a word or a comma missing?"),
    "42702": ("{name} could be a column of several tables", "Write table.column."),
    "42712": ("Two tables have the same name", "Give each an alias."),
    "42803": ("{name} is neither grouped nor in an aggregate function", "Add it to group by."),
    "42883": ("No function or operator {name} takes values of these types", CAST),
    "42725": ("Several functions {name} take values of these types", CAST),
    **dict.fromkeys(("42804", "42846", "42P18", "42P21", "42P22"), ("The types do not fit at {name}", CAST)),
    "42P20": ("A window function is not permitted here", "Use it in a subquery, and its column outside."),
    "42P19": ("This recursion is not permitted", "select … union all select … from the CTE itself, once."),
    "42P10": ("order by or distinct on does not fit the columns", "Repeat the expressions."),
    "21000": ("A subquery returned more than one row", "Add limit 1, or use in."),
    "22012": ("A division by zero", "Write a / nullif(b, 0)."),
    "22P02": ("A text is not a value of the type that it is cast to", "Test it with ~ in a case first."),
    **dict.fromkeys(("22007", "22008"), ("A text is not a date or time, or is out of range", "2024-12-31")),
    "0A000": ("{name} is not supported here", SIMPLER),
    "25006": ("The statement tries to write, but may only read", "Use the tools that change rows."),
}
REFUSED = ("42", "22", "21", "0A", "54", "2F", "38", "39", "HV", "XX")


async def _rows(
    connection: Connection, statement: Confined, run: FreeRun
) -> tuple[Sequence[asyncpg.Record], bool]:
    """Return at most one row more than the limit, and whether there are more; stop at too large cells."""
    try:
        prepared = await connection.prepare(f"{run.comment}{statement.plan.sql}")
        statement.before += len(run.comment)
        cursor = await prepared.cursor(*statement.values)
        records: list[asyncpg.Record] = []
        room, batch = run.most_bytes, max(1, BYTES_AT_ONCE // max(1, statement.plan.most_bytes))
        while len(records) <= run.limit and room >= 0:
            found = await cursor.fetch(min(batch, run.limit + 1 - len(records)))
            if not found:
                return records, False
            records += found
            room -= sum(map(held, zip(*found, strict=True)))
    except asyncpg.PostgresError as exc:
        if is_lost(exc):
            raise
        raise statement.refusal(exc) from exc
    return records, True


def _wrapped(statement: Confined, outputs: tuple[Output, ...]) -> Plan:
    """Return a plan that cuts rows and cells of *statement* in the server."""
    names = [f"c{at}" for at in range(len(outputs))]
    read = [
        GRAMMAR.cell(sa.column(quoted_name(name, quote=True)), output)
        for name, output in zip(names, outputs, strict=True)
    ]
    cells = [cell for cell, *_ in read] + [other for _, *others in read for other in others]
    select = ", ".join(str(cell.compile(dialect=GRAMMAR.dialect)) for cell in cells)
    sql = (
        f"select {select} from (\n{statement.guarded.sql}\n) as q ({', '.join(map(identifier, names))}) "
        f"limit {statement.run.limit + 1}"
    )
    shape = QueryShape(name="run_sql", pieces=(sql,), outputs=outputs, types={}, casts={})
    return Plan(
        shape=shape,
        sql=sql,
        parameters=(),
        types={},
        lists=frozenset(),
        constants={},
        claims={},
        one=GRAMMAR.bound,
        many=GRAMMAR.bound_list,
    )


def _functions(plan: object) -> Iterator[str]:
    """Yield the functions that *plan* scans."""
    if isinstance(plan, list):
        for each in plan:
            yield from _functions(each)
    elif isinstance(plan, dict):
        if "Function Name" in plan:
            yield plan["Function Name"]
        for each in plan.values():
            yield from _functions(each)


async def _connect(url: str) -> Connection:
    """Return a connection with a meter."""
    connection = await open_connection(url)
    connection.meter = _Meter(connection.transport.inner)
    return connection


def _bound(claim: object) -> object:
    """Return *claim* as the driver takes it, or raise Denied if it is missing."""
    if claim is None:
        raise errors.Denied
    return GRAMMAR.bound(claim, CLAIM)


def open_free(url: str) -> PostgresqlFreeRunner:
    """Return the FreeRunner of the database at *url*."""
    return PostgresqlFreeRunner(url)
