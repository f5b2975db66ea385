"""Run ad-hoc SQL on PostgreSQL, checked twice. A SqlRun in, rows or a refusal out.

The guard checks the caller's SQL and writes what the role sees of each table into it. Then the server reads
first what the role sees of the tables, and then the statement: it must lock no other relation, neither when
it is parsed nor when it is planned. The transaction is read-only, and the login cannot write.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools import errors
from dbtools.answers.results import ResultSet
from dbtools.backends.compiled import Compiled, identifier
from dbtools.backends.pool import Pool
from dbtools.backends.postgresql.connection.connections import DECODING_ERRORS, is_lost
from dbtools.backends.postgresql.connection.pipeline import (
    CLEAN,
    DRIVER_ERRORS,
    END_TIMEOUT,
    ServerConnection,
    finished,
    messages,
    rolled_back,
)
from dbtools.backends.postgresql.reading.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.reading.runner import (
    ANALYSES,
    ROLLBACK,
    Unsure,
    begin_messages,
    begin_transaction,
    cause_of,
    fetch_batches,
    limited_begin,
    open_connection,
    rows_of,
)
from dbtools.backends.postgresql.run_sql.confinement import Confined
from dbtools.backends.postgresql.run_sql.guarded import Guarded
from dbtools.backends.postgresql.run_sql.guarding import Guards
from dbtools.backends.postgresql.schema.types import NO_MODIFIER, DeclaredTypes, duration, read_types
from dbtools.backends.postgresql.schema.vocabulary import Vocabulary, read_vocabulary
from dbtools.backends.refusals import Cause
from dbtools.backends.run_sql import SqlExplanation, sql_refusal
from dbtools.backends.runs import SqlRun
from dbtools.errors import listing
from dbtools.schema.catalog import Column
from dbtools.statements.select import Output, QueryShape

T = TypeVar("T")
CONNECTIONS = 4
OF_ONE_CALLER = 2  #: statements at the same time; others wait
SLOW = 0.5  #: seconds; of callers with a slower statement, one statement runs at a time
SLOW_FOR = 60.0  #: seconds after such a statement
SQL_GRACE = 0.2  #: seconds in which the server should have stopped a statement after its deadline
LONGEST_STOP = 3600.0  #: seconds that a statement which cannot be interrupted keeps its connection
ATTEMPTS = 2  #: after a lost connection
MOST_ATTEMPTS = {errors.SchemaChanged: 2, Unsure: ANALYSES}
BYTES_AT_ONCE = 2 * 2**20  #: most bytes in one fetch
MOST_BYTES = 16 * 2**20  #: that the server sends in one call
MOST_COLUMNS = 400
KEPT = 16  #: vocabularies
GRAMMAR = PostgresqlGrammar()
#: One process, and not for long: other callers need the server as well.
SESSION_SETTINGS = (
    "set local lock_timeout = 2000",
    "set local idle_in_transaction_session_timeout = 20000",
    "set local max_parallel_workers_per_gather = 0",
    "set local jit = off",
    "set local row_security = on",
    "set local standard_conforming_strings = on",
)
TERMINATE = messages("select pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())::pg_catalog.text")
SETTING_MESSAGES = b"".join(map(messages, SESSION_SETTINGS))
#: The text of an interval is what PostgreSQL writes by default; the driver reads cells in binary form.
STYLED = messages("set local intervalstyle = postgres")


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


class PostgresqlSqlRunner:
    """The SqlRunner of PostgreSQL. Tests replace *guards* to try the other checks alone."""

    def __init__(self, url: str, guards: Guards | None = None) -> None:
        self.guards = guards or Guards()
        connect = partial(_connect, url)
        self.pool = Pool(connect, size=CONNECTIONS, is_usable=_is_usable, end=_close_connection)
        self._vocabularies: dict[object, Vocabulary] = {}
        self._types: dict[object, Any] = {}  #: rows of types
        self._stopping: set[asyncio.Future[None]] = set()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._slow_turn = asyncio.Semaphore(1)
        self._slow: dict[str, float] = {}  #: callers, and until when they count as slow

    async def run(self, run: SqlRun) -> ResultSet:
        """Return the rows of *run*, or raise a CallError."""
        return await self._attempt(run, _result)

    async def explain(self, run: SqlRun) -> SqlExplanation:
        """Return the statement that would run, and what the checks say; or raise a CallError."""
        return await self._attempt(run, _explanation)

    async def close(self) -> None:
        """Close every connection and process; later calls open new ones."""
        await self.guards.close()
        for stopping in tuple(self._stopping):
            stopping.cancel()
        await self.pool.dispose()

    async def _attempt(self, run: SqlRun, work: Callable[[ServerConnection, Confined], Awaitable[T]]) -> T:
        """Return the result of *work* on the statement of *run*, repeated after a loss or a change."""
        attempts, turn, began = 1, self._turn(run.caller), math.inf
        late = Cause.NAMES_UNREAD  #: why the time is over, once it is
        ends = asyncio.get_running_loop().time() + run.context.timeout
        guarded: Guarded | None = None
        try:
            async with asyncio.timeout(run.context.timeout + SQL_GRACE) as deadline:
                while True:
                    try:
                        vocabulary = await self._vocabulary(run)
                        guarded = guarded or await self.guards.check(run, vocabulary, ends)
                        statement, late = Confined(guarded, run, vocabulary), Cause.OVERLOADED
                        async with self._transaction(deadline, turn) as connection:
                            began, late = time.monotonic(), Cause.TIMED_OUT
                            # What C code keeps in the memory of its process outlives every transaction.
                            connection.is_spent = guarded.calls_others
                            await self._prepare(connection, statement)
                            return await work(connection, statement)
                    except DRIVER_ERRORS as exc:
                        if attempts >= ATTEMPTS or not is_lost(exc):
                            raise cause_of(exc).error() from exc
                        await self.pool.dispose()
                    except (errors.SchemaChanged, Unsure) as exc:
                        if attempts >= MOST_ATTEMPTS[type(exc)]:
                            raise errors.SchemaChanged from exc
                        guarded, late = None, Cause.NAMES_UNREAD
                        self._vocabularies.clear()
                    attempts += 1
        except TimeoutError as exc:
            raise late.error() from exc
        finally:
            if time.monotonic() - began > SLOW:
                self._slow[run.caller] = time.monotonic() + SLOW_FOR

    def _turn(self, caller: str) -> asyncio.Semaphore:
        """Return what *caller* acquires to run a statement: slow callers share one turn, which leaves the
        server's cores to others.
        """
        now = time.monotonic()
        self._slow = {each: ends for each, ends in self._slow.items() if ends > now}
        if caller in self._slow:
            return self._slow_turn
        return self._turns.setdefault(caller, asyncio.Semaphore(OF_ONE_CALLER))

    @asynccontextmanager
    async def _transaction(
        self, deadline: asyncio.Timeout, turn: asyncio.Semaphore
    ) -> AsyncIterator[ServerConnection]:
        """Acquire a connection in a *turn* of the caller, and roll back at the end.

        Some functions cannot be interrupted. Such a statement keeps both until it has ended.
        """
        await turn.acquire()
        stopping: asyncio.Future[None] | None = None
        try:
            async with self.pool.connection() as connection:
                connection.meter.room, is_over = MOST_BYTES, False
                try:
                    yield connection
                    is_over = not (connection.is_in_transaction() or connection.is_spent)
                except (*DRIVER_ERRORS, *DECODING_ERRORS) as exc:
                    if connection.meter.room < 0:
                        raise Cause.LARGE_ANSWER.error() from exc
                    if isinstance(exc, DECODING_ERRORS) or is_lost(exc):
                        connection.terminate()
                    raise
                finally:
                    if not (connection.is_closed() or is_over):
                        stopping = connection.stopping = asyncio.ensure_future(_roll_back(connection))
                        if not deadline.expired():
                            await finished(
                                asyncio.ensure_future(asyncio.wait([stopping], timeout=END_TIMEOUT))
                            )
        finally:
            if stopping is None or stopping.done():
                turn.release()
            else:
                self._stopping.add(stopping)
                stopping.add_done_callback(self._stopping.discard)
                stopping.add_done_callback(lambda _: turn.release())

    async def _prepare(self, connection: ServerConnection, statement: Confined) -> None:
        """Begin a transaction, and prepare *statement* in it."""
        context = statement.run.context
        begin = limited_begin(connection, context)
        settings = SETTING_MESSAGES if statement.is_computed else SETTING_MESSAGES + STYLED
        statement.begin = begin + settings
        if context.session:
            await begin_transaction(connection, context.session, begin, settings)
            begin = b""
        else:
            begin = begin_messages(connection, begin) + settings
        with statement.worded():
            await statement.check(connection, begin)
            statement.plan = await self._result_plan(connection, statement)
            await statement.audit(connection)

    async def _vocabulary(self, run: SqlRun) -> Vocabulary:
        """Return what may be named, read in a separate transaction, since it locks catalogs."""
        key = (run.context.stamp, run.catalog.search_path, run.functions)
        if key not in self._vocabularies:
            async with self.pool.connection() as connection, rolled_back(connection, "begin read only"):
                found = await read_vocabulary(connection, run.catalog.search_path, run.functions)
            if len(self._vocabularies) >= KEPT:
                self._vocabularies.clear()
                self._types.clear()
            self._vocabularies[key] = found
        return self._vocabularies[key]

    async def _result_plan(self, connection: ServerConnection, statement: Confined) -> Compiled:
        """Return the plan of *statement*, with the types of the server."""
        attributes = statement.prepared.get_attributes()
        if not attributes or len(attributes) > MOST_COLUMNS:
            raise sql_refusal(
                f"A result has from 1 to {MOST_COLUMNS} columns", "Name the columns that you need."
            )
        numbers = {(each.type.oid, NO_MODIFIER) for each in attributes}
        rows = await read_types(connection, numbers - self._types.keys())
        # Types of users may change.
        self._types |= {(row["number"], row["modifier"]): row for row in rows if row["native"]}
        types = DeclaredTypes([*self._types.values(), *rows])
        longest = statement.run.longest
        columns = (Column(name=each.name, type=types[each.type.oid, NO_MODIFIER].type) for each in attributes)
        return _limited_plan(statement, tuple(Output(column, longest) for column in columns))


async def _explanation(connection: ServerConnection, statement: Confined) -> SqlExplanation:
    labels = [statement.run.catalog.label(table) for table in statement.guarded.sources]
    reads = f"reads {listing(labels) or 'no table'}, and calls only functions that compute a value"
    return SqlExplanation(
        sql=statement.plan.sql,
        parameters=statement.values,
        verdicts=(
            f"It {reads}.",
            "PostgreSQL plans it without any other relation, in a read-only transaction.",
        ),
    )


async def _result(connection: ServerConnection, statement: Confined) -> ResultSet:
    """Return the rows of *statement*, at most one more than the limit."""
    run, plan = statement.run, statement.plan
    batch = max(1, BYTES_AT_ONCE // max(1, plan.most_bytes))
    with statement.worded():
        await statement.prepare(connection)
        prepared, values, before = (
            statement.prepared,
            statement.values,
            statement.confirm_messages(statement.begin),
        )
        if batch > run.limit:
            # A spent session is ended with the transaction: behind a pooler, only that is sure to be in it.
            end = b"" if connection.is_spent else ROLLBACK + CLEAN
            records = await connection.run(prepared, values, before, statement.confirmed + end)
            more = len(records) > run.limit
        else:
            await connection.send(before)
            records, more = await fetch_batches(prepared, values, run.limit, batch, run.most_bytes)
            await connection.send(statement.confirmed)
    return ResultSet(outputs=plan.outputs, rows=rows_of(records[: run.limit], plan), more=more)


@lru_cache(maxsize=1_000)  # the server cuts names after 63 bytes, so an entry has about 2 kB
def _cell(at: int, output: Output) -> tuple[str, ...]:
    """Return the SQL of column number *at*: its value, and its length if it may be cut."""
    cells = GRAMMAR.cell(sa.column(quoted_name(f"c{at}", quote=True)), output)
    return tuple(str(cell.compile(dialect=GRAMMAR.dialect)) for cell in cells)


def _limited_plan(statement: Confined, outputs: tuple[Output, ...]) -> Compiled:
    """Return a plan that cuts rows and cells of *statement* in the server."""
    read = [_cell(at, output) for at, output in enumerate(outputs)]
    select = ", ".join([cell for cell, *_ in read] + [other for _, *others in read for other in others])
    names = ", ".join(identifier(f"c{at}") for at in range(len(outputs)))
    sql = statement.select_sql(select, f" ({names}) limit {statement.run.limit + 1}")
    shape = QueryShape(name="run_sql", pieces=(sql,), outputs=outputs, types={}, casts={})
    return Compiled(shape=shape, sql=sql, one=GRAMMAR.driver_value, many=GRAMMAR.bound_list)


async def _connect(url: str) -> ServerConnection:
    """Return a connection with a meter, which reads intervals in any style."""
    connection = await open_connection(url)
    await connection.set_type_codec(
        "interval", schema="pg_catalog", format="tuple", encoder=tuple, decoder=duration
    )
    connection.meter = _Meter(connection.transport.inner)
    return connection


async def _roll_back(connection: ServerConnection) -> None:
    """Roll back once the server has stopped the statement, which may take long."""
    try:
        async with asyncio.timeout(LONGEST_STOP):
            await connection.send(messages("rollback") + (TERMINATE if connection.is_spent else CLEAN))
    except DRIVER_ERRORS:
        connection.terminate()


def _is_usable(connection: ServerConnection) -> bool:
    """Return whether another call may use *connection*."""
    is_stopping = connection.stopping is not None and not connection.stopping.done()
    is_open = not (connection.is_closed() or connection.is_in_transaction())
    return is_open and not (is_stopping or connection.is_spent)


def _close_connection(connection: ServerConnection) -> asyncio.Future[object] | None:
    """Close *connection*, if necessary after its statement has ended; the future is then done."""
    ended: asyncio.Future[Any] | None = connection.stopping
    if ended is None or ended.done():
        connection.terminate()
        return None
    ended.add_done_callback(lambda _: connection.terminate())
    return ended
