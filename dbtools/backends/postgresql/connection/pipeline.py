"""Run several statements in one round trip, by adding messages to those of asyncpg. Statements in, rows out.

asyncpg (0.32) sends one statement at a time: it writes Bind, Execute and Sync of a prepared statement, and
reads until the server is ready again. So statements without rows can run before and after it. After an error
in one of them, the server skips the rest up to the Sync (PostgreSQL, "Pipelining"). A pipeline mode of
asyncpg would let us drop the transport and the loop.
"""

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg

from dbtools.backends.caches import BoundedCache

if TYPE_CHECKING:
    DriverConnection = asyncpg.Connection[asyncpg.Record]
else:
    DriverConnection = asyncpg.Connection

#: InternalClientError occurs while the server closes the connection.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
END_TIMEOUT = 2.0  #: seconds to roll back or close a connection before it is terminated
CONNECTING = ("create_connection", "create_unix_connection")  #: methods of an event loop
STATEMENTS = 256  #: prepared statements per connection
MOST_PREPARED = 250_000  #: characters of their SQL; the server takes about 90 bytes for each
SYNC = b"S\0\0\0\4"
#: Returns the start of the transaction.
CARRIER = "select pg_catalog.transaction_timestamp()::pg_catalog.text"
SET = "select where pg_catalog.set_config($1, $2, true) is null"
KEEP = "select where pg_catalog.set_config($1, $2, false) is null"
UNPREPARED = "not exists (select from pg_catalog.pg_prepared_statements as s where s.from_sql)"
#: Releases the advisory locks that a function has taken.
UNLOCKING = "pg_catalog.pg_advisory_unlock_all()::pg_catalog.text is null"
#: Releases them after a transaction, and terminates the session if a function has prepared a statement, which
#: could replace one of dbtools.
CLEANING = f"""select
where case
        when {UNPREPARED}
        then {UNLOCKING}
        else not pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())
    end"""


def messages(sql: str, *values: str) -> bytes:
    """Return the messages that run *sql* with *values* (Parse, Bind, Execute).

    The statement has no name, so a function cannot replace it by another prepared statement.
    """
    # The server rejects text that is not valid UTF-8.
    texts = [each.encode(errors="surrogatepass") for each in values]
    written = (struct.pack("!i", len(each)) + each for each in texts)
    bind = _message(b"B", b"\0", b"\0", struct.pack("!hh", 0, len(texts)), *written, b"\0\0")
    return parse_message(sql) + bind + _message(b"E", b"\0", b"\0\0\0\0")


def parse_message(sql: str) -> bytes:
    """Return the message that lets the server parse *sql* without running it."""
    return _message(b"P", b"\0", sql.encode(), b"\0\0\0")


def _message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


CLEAN = messages(CLEANING)
#: Undoes what other clients of a pooler have set in a session, until the transaction is rolled back.
RESET = b"".join(map(messages, ("reset session authorization", "reset role", "reset all")))


def setting(values: Mapping[str, str], sql: str = SET) -> bytes:
    """Return the messages that set *values*, for the transaction unless *sql* is KEEP."""
    # The role comes last, since it may not be allowed to set what the login may.
    return b"".join(
        messages(sql, *each) for each in sorted(values.items(), key=lambda each: each[0] == "role")
    )


def assertion(condition: str, mark: str) -> str:
    """Return an SQL expression that fails unless *condition* holds, with *mark* in the message.

    There is no setting named *mark*.
    """
    return f"""pg_catalog.current_setting(
    case
        when {condition}
        then 'lock_timeout'
        else '{mark}'
    end
)"""


def is_failure_of(error: Exception, mark: str) -> bool:
    """Return whether *error* comes from a failed assertion with *mark*."""
    return isinstance(error, asyncpg.UndefinedObjectError) and mark in str(error.args[0])


class Transport:
    """A transport that can add messages before and after those of the next statement."""

    def __init__(self, inner: asyncio.Transport) -> None:
        self.inner = inner
        self.around: tuple[bytes, bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the inner transport."""
        return getattr(self.inner, name)

    def write(self, data: bytes) -> None:
        """Write *data*, which must be a statement's if there are messages to add."""
        if self.around is not None:
            (before, after), self.around = self.around, None
            statement = bytes(data)
            if not (statement.startswith(b"B") and statement.endswith(SYNC)):
                raise asyncpg.InternalClientError("asyncpg writes other messages than it did")
            data = b"".join((before, statement[: -len(SYNC)], after, SYNC))
        self.inner.write(data)


class Loop:
    """The running event loop for asyncpg, with a Transport for each connection."""

    def __init__(self) -> None:
        self._inner = asyncio.get_running_loop()
        self._opened: list[asyncio.Transport] = []

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the inner loop."""
        found = getattr(self._inner, name)
        return partial(self._connect, found) if name in CONNECTING else found

    def abort(self) -> None:
        """Close all connections at once: to end TLS in due form takes a round trip."""
        for transport in self._opened:
            transport.abort()

    async def start_tls(self, transport: Transport, *arguments: Any, **options: Any) -> Transport:
        """Return an encrypted transport."""
        encrypted: Any = await self._inner.start_tls(transport.inner, *arguments, **options)
        return Transport(encrypted)

    async def _connect(self, create: Any, factory: Callable[[], Any], *rest: Any, **options: Any) -> Any:
        inner, wrapping = await create(lambda: _Wrapping(factory()), *rest, **options)
        self._opened.append(inner)
        return wrapping.transport, wrapping.protocol


class _Wrapping(asyncio.Protocol):
    """Passes a wrapped transport to *protocol*, which then takes over."""

    def __init__(self, protocol: Any) -> None:
        self.protocol = protocol

    def connection_made(self, transport: Any) -> None:
        """Wrap *transport*."""
        self.transport = Transport(transport)
        transport.set_protocol(self.protocol)
        self.protocol.connection_made(self.transport)


StatementKey = tuple[str, str]  #: the SQL of a statement, and the stamp of the schema


class Prepared:
    """A prepared statement."""

    def __init__(self, statement: Any, guard: tuple[str, ...]) -> None:
        self.statement = statement
        self.guard = guard  #: the last argument, for the guard
        #: Whether all that it names was as dbtools has checked it, after the server had analysed it.
        self.is_confirmed = not guard
        self.end = b""  #: the messages that end its transaction, once it has run; only with a guard


class ServerConnection(DriverConnection):
    """A connection that keeps prepared statements, and runs one together with other statements."""

    def __init__(self, protocol: Any, transport: Transport, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self.transport = transport
        self.is_pooled = False
        #: Settings of each transaction: behind a pooler, and for what shares the connection with other reads.
        self.local: dict[str, str] = {}
        self.begin = b""  #: the messages that begin a transaction
        self.process = ""  #: of the server in this transaction, behind a pooler only
        self.path = ""  #: the search path, with fixed names
        self.marks = ""  #: the settings that identify the session
        self.meter: Any = None  #: of what the server sends, for callers' SQL only
        self.stopping: asyncio.Future[None] | None = None  #: the end of a caller's SQL after its call
        self.is_spent = False  #: whether its session must end, since nothing undoes what was done in it
        self._carrier: Any = None
        self._statements = BoundedCache[StatementKey, Prepared](count=STATEMENTS, most=MOST_PREPARED)

    def be_pooled(self, settings: Mapping[str, str]) -> None:
        """Set *settings* in each transaction from now on, as a pooler requires."""
        # asyncpg would turn JIT off for a moment, and leave it off if the transaction turned it off.
        capabilities: Any = self._server_caps  # type: ignore[has-type]
        self._server_caps = capabilities._replace(jit=False)
        self.is_pooled, self.local = True, {"client_encoding": "UTF8", **settings}

    async def keep_setting(self, values: Mapping[str, str]) -> None:
        """Set *values* for as long as the connection is open."""
        if self.is_pooled:
            self.local |= values
        else:
            await self.send(setting(values, KEEP))

    @property
    def settings(self) -> bytes:
        """The messages that set what each transaction needs, after its BEGIN."""
        return (RESET if self.is_pooled else b"") + setting(self.local)

    @contextmanager
    def having(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Set *settings* in each transaction that begins within the context."""
        before, self.local = self.local, {**self.local, **settings}
        try:
            yield
        finally:
            self.local = before

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        """Run *query*; apply the settings of a transaction if it begins one.

        Behind a pooler, undo what functions have done to the session with the ROLLBACK: what comes later may
        run in another session.
        """
        if self.is_pooled and self.is_spent and query == "rollback":
            return await self.send(messages(query) + CLEAN)
        if not (self.local and query[:5].lower() == "begin"):
            return await super().execute(query, *args, timeout=timeout)
        begin, *rest = filter(str.strip, query.split(";"))
        # The query's own settings come last, so they take effect.
        settings = self.settings + b"".join(map(messages, rest))
        if self._carrier is None:
            # It is prepared in the transaction.
            await super().execute(begin, timeout=timeout)
        else:
            settings = messages(begin) + settings
        return await self.send(settings)

    async def prepare(self, query: str, **options: Any) -> Any:
        """Prepare *query*, with a unique text behind a pooler, which may keep plans of an older schema."""
        if self.is_pooled:
            query = f"{query}\n/* {secrets.token_hex(8)} */"
        if not self.local or self.is_closed() or self.is_in_transaction():
            return await super().prepare(query, **options)
        async with rolled_back(self, "begin read only"):
            return await super().prepare(query, **options)

    def prepared_statement(self, key: StatementKey) -> Prepared | None:
        """Return the prepared statement for *key*, or None if there is none that has been confirmed."""
        found = self._statements.get(key)
        return found if found is not None and found.is_confirmed else None

    async def prepare_key(self, key: StatementKey, guard: tuple[str, ...]) -> Prepared:
        """Prepare the statement for *key* with *guard*, and forget the least recently used ones."""
        prepared = Prepared(await self.prepare(key[0]), guard)
        self._statements.keep(key, prepared, len(key[0]))
        return prepared

    def forget(self, key: StatementKey) -> None:
        """Forget the prepared statement for *key*."""
        self._statements.forget(key)

    async def run(self, statement: Any, values: Any, before: bytes, after: bytes) -> list[asyncpg.Record]:
        """Return the rows of *statement*, sent with the messages *before* and *after* it."""
        self.transport.around = before, after
        try:
            rows: list[asyncpg.Record] = await statement.fetch(*values)
            return rows
        finally:
            self.transport.around = None

    async def run_each(
        self, statement: Any, runs: Sequence[tuple[object, ...]], before: bytes
    ) -> list[asyncpg.Record]:
        """Return the rows of *statement* with each of *runs* as its values, after the messages *before*."""
        if len(runs) == 1:
            return await self.run(statement, runs[0], before, b"")
        if before:
            await self.send(before)
        rows: list[asyncpg.Record] = await statement.fetchmany(runs)
        return rows

    async def send(self, statements: bytes) -> str:
        """Run the messages *statements* in one round trip, and return the start of the transaction."""
        *_, moment = await self.carried_texts(statements)
        return moment

    async def texts(self, statements: bytes) -> list[str]:
        """Return the rows of *statements*, messages sent in one round trip; each row is one text."""
        *texts, _ = await self.carried_texts(statements)
        return texts

    async def carried_texts(self, statements: bytes) -> list[str]:
        """Return the rows of *statements*, as `texts` does, and the start of the transaction."""
        if self._carrier is None:
            self._carrier = await self.prepare(CARRIER)
        # asyncpg reads every row up to the end as one of the carrier's, which is a text.
        return [str(text) for (text,) in await self.run(self._carrier, (), statements, b"")]


@asynccontextmanager
async def rolled_back(connection: Any, begin: str) -> AsyncIterator[None]:
    """Execute *begin*, and roll back at the end."""
    try:
        await connection.execute(begin)
        yield
    finally:
        await roll_back(connection)


async def end_prepare(connection: Any) -> None:
    """End the transaction that asyncpg (0.32) leaves open after it has prepared a statement.

    A transaction can only become one that writes at its beginning.
    """
    await connection.execute("select")


async def roll_back(connection: Any, after: bytes = b"") -> None:
    """Roll back and run the messages *after*, or terminate *connection* if that fails or takes too long.

    A cancellation waits until this has ended: terminating the connection earlier would also stop asyncpg from
    cancelling its statement in the database.
    """
    # In one round trip, so that a pooler runs both on the same connection.
    await finished(asyncio.ensure_future(_end(connection, messages("rollback") + after if after else b"")))


async def clean(connection: Any) -> None:
    """Undo what functions of users have left in the session, or terminate *connection*."""
    await finished(asyncio.ensure_future(_end(connection, CLEAN)))


async def finished(work: asyncio.Future[Any]) -> None:
    """Wait until *work* has ended, and raise a cancellation only then."""
    interruption = None
    with anyio.CancelScope(shield=True):
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as exc:
                interruption = exc
    if interruption is not None:
        raise interruption


async def _end(connection: Any, statements: bytes) -> None:
    try:
        async with asyncio.timeout(END_TIMEOUT):
            await (connection.send(statements) if statements else connection.execute("rollback"))
    except DRIVER_ERRORS:
        connection.terminate()
