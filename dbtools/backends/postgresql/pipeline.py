"""Several statements in one round trip: messages in, written around those of asyncpg.

asyncpg (0.32) sends one statement at a time. It writes Bind, Execute and Sync of a prepared statement at
once, and reads whatever comes until the server is ready again. So statements without rows may run before and
behind it. After an error in any of them the server skips the rest, up to the Sync (PostgreSQL, "Pipelining").
A pipeline mode of asyncpg would let us drop this module.
"""

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg

if TYPE_CHECKING:
    DriverConnection = asyncpg.Connection[asyncpg.Record]
else:
    DriverConnection = asyncpg.Connection

#: The internal one is what a call meets on a connection that the server is ending at that moment.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
PATIENCE = 2.0  #: seconds that a connection has to become clean, or to close, before it is given up
#: What the server says of a session that is another one than was prepared, and how one is known.
ANOTHER = "dbtools_another_session"
SESSION = "pg_catalog.current_setting('lock_timeout'), pg_catalog.current_setting('search_path')"
BEGIN = "begin isolation level read committed read only"
SET = "select where pg_catalog.set_config($1, $2, true) is null"
SET_ALL = """
select pg_catalog.set_config(s.name, s.value, $3)
from unnest($1::pg_catalog.text[], $2::pg_catalog.text[]) as s (name, value)
"""
SYNC = b"S\0\0\0\4"
CONNECTING = ("create_connection", "create_unix_connection")  #: of an event loop
KEPT = 256  #: prepared statements of a connection
#: It says when the transaction began.
CARRIER = "select pg_catalog.transaction_timestamp()::pg_catalog.text"


def running(sql: str, *values: str) -> bytes:
    """Return the messages that run *sql* with *values* (Parse, Bind, Execute).

    The server keeps nothing of it: a function could prepare another statement under its name.
    """
    parse = _message(b"P", b"\0", sql.encode(), b"\0\0\0")
    # A text that is none in UTF-8 is for the server to refuse.
    texts = [each.encode(errors="surrogatepass") for each in values]
    written = (struct.pack("!i", len(each)) + each for each in texts)
    bind = _message(b"B", b"\0", b"\0", struct.pack("!hh", 0, len(texts)), *written, b"\0\0")
    return parse + bind + _message(b"E", b"\0", b"\0\0\0\0")


def _message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def assertion(condition: str, mark: str) -> str:
    """Return an SQL expression that fails unless *condition* holds, with *mark* in the message.

    No setting has a name like *mark*.
    """
    return f"""pg_catalog.current_setting(
    case
        when {condition}
        then 'lock_timeout'
        else '{mark}'
    end
)"""


def says(error: Exception, mark: str) -> bool:
    """Return whether *error* is what the server says where an assertion has failed with *mark*."""
    return isinstance(error, asyncpg.UndefinedObjectError) and mark in str(error.args[0])


def setting(values: Mapping[str, str]) -> bytes:
    """Return the messages that set *values* for a transaction."""
    return b"".join(running(SET, *each) for each in _with_role_last(values))


def _with_role_last(values: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return *values* in order: the role may not be allowed to set what the login may."""
    return sorted(values.items(), key=lambda each: each[0] == "role")


class Transport:
    """A transport that puts messages around those of the next statement."""

    def __init__(self, inner: asyncio.Transport) -> None:
        self.inner = inner
        self.around: tuple[bytes, bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        """Return what the transport itself has."""
        return getattr(self.inner, name)

    def write(self, data: bytes) -> None:
        """Write *data*: where messages are to go around it, it has to be those of a statement."""
        if self.around is not None:
            (before, behind), self.around = self.around, None
            messages = bytes(data)
            if not (messages.startswith(b"B") and messages.endswith(SYNC)):
                raise asyncpg.InternalClientError("asyncpg writes other messages than it did")
            data = b"".join((before, messages[: -len(SYNC)], behind, SYNC))
        self.inner.write(data)


class Loop:
    """The loop that runs, whose connections have such a transport: what asyncpg takes as its loop."""

    def __init__(self) -> None:
        self._inner = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        """Return what the loop itself has."""
        found = getattr(self._inner, name)
        return partial(_connect, found) if name in CONNECTING else found

    async def start_tls(self, transport: Transport, *what: Any, **how: Any) -> Transport:
        """Go on encrypted."""
        encrypted: Any = await self._inner.start_tls(transport.inner, *what, **how)
        return Transport(encrypted)


async def _connect(create: Any, factory: Callable[[], Any], *where: Any, **how: Any) -> Any:
    _, meeting = await create(lambda: Meeting(factory), *where, **how)
    return meeting.transport, meeting.protocol


class Meeting(asyncio.Protocol):
    """Gives the protocol of *factory* such a transport, and leaves."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.protocol = factory()

    def connection_made(self, transport: Any) -> None:
        """Have the protocol take over."""
        self.transport = Transport(transport)
        transport.set_protocol(self.protocol)
        self.protocol.connection_made(self.transport)


class Connection(DriverConnection):
    """A connection that runs a statement, and what belongs to it, in one round trip.

    Behind a pooler each transaction begins by setting what it needs: elsewhere *local* is empty.
    """

    def __init__(self, protocol: Any, transport: Transport, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self.transport = transport
        self.local: dict[str, str] = {}
        self.beginning = b""  #: the messages that begin a transaction
        self.marks = ""  #: by which its session is known
        self._carrier: Any = None
        self._statements: dict[Key, Kept] = {}  #: those used last at the end

    def pool(self, values: Mapping[str, str]) -> None:
        """Set *values* in each transaction from now on, as behind a pooler."""
        # asyncpg would set it off for a moment, and leave it so where a transaction has it off already.
        capabilities: Any = self._server_caps  # type: ignore[has-type]
        self._server_caps = capabilities._replace(jit=False)
        self.local = dict(values)

    async def set(self, values: Mapping[str, str], *, local: bool) -> None:
        """Set *values*, where it is *local* for the transaction."""
        names, texts = zip(*_with_role_last(values), strict=True)
        await self.fetch(SET_ALL, names, texts, local)

    async def keep_setting(self, values: Mapping[str, str]) -> None:
        """Have *values* be set for as long as the connection lasts."""
        if self.local:
            self.local |= values
        else:
            await self.set(values, local=False)

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        """Run *query*; one that begins a transaction sets all that holds in it."""
        if not (self.local and query[:5].lower() == "begin"):
            return await super().execute(query, *args, timeout=timeout)
        begin, _, rest = query.partition(";")
        status = await super().execute(begin, timeout=timeout)
        await self.set(self.local, local=True)
        # What the query itself sets comes later, and counts.
        return await super().execute(rest, timeout=timeout) if rest else status

    async def prepare(self, query: str, **options: Any) -> Any:
        """Prepare *query*; anew behind a pooler, which may keep that text from before a migration."""
        if not self.local:
            return await super().prepare(query, **options)
        query = f"{query}\n/* {secrets.token_hex(8)} */"
        if self.is_in_transaction():
            return await super().prepare(query, **options)
        async with rolled_back(self, "begin read only"):
            return await super().prepare(query, **options)

    def kept(self, key: "Key") -> "Kept | None":
        """Return the prepared statement of *key*, None where there is none yet."""
        kept = self._statements.pop(key, None)
        if kept is not None:
            self._statements[key] = kept
        return kept

    async def keep(self, key: "Key", guard: tuple[str, ...]) -> "Kept":
        """Prepare the statement of *key*, and keep it with its *guard*; one not used for long gives way."""
        kept = self._statements[key] = Kept(await self.prepare(key[0]), guard)
        if len(self._statements) > KEPT:
            self.forget(next(iter(self._statements)))
        return kept

    def forget(self, key: "Key") -> None:
        """Keep the statement of *key* no longer."""
        self._statements.pop(key, None)

    async def run(self, statement: Any, values: Any, before: bytes, behind: bytes) -> list[asyncpg.Record]:
        """Return the rows of *statement*; the messages *before* and *behind* it go in the same round trip."""
        self.transport.around = before, behind
        try:
            rows: list[asyncpg.Record] = await statement.fetch(*values)
            return rows
        finally:
            self.transport.around = None

    async def send(self, messages: bytes) -> str:
        """Run *messages* in one round trip, and return when the transaction began."""
        if self._carrier is None:
            self._carrier = await self.prepare(CARRIER)
        ((moment,),) = await self.run(self._carrier, (), messages, b"")
        return str(moment)


Key = tuple[str, str]  #: the SQL of a statement, and the stamp of the schema that it was prepared for


class Kept:
    """A prepared statement."""

    def __init__(self, statement: Any, guard: tuple[str, ...]) -> None:
        self.statement = statement
        self.guard = guard  #: the value that it is guarded by, after its own
        self.is_confirmed = False  #: whether its tables have been as of the schema since it was prepared


@asynccontextmanager
async def rolled_back(connection: Any, begin: str) -> AsyncIterator[None]:
    """Run what is within after the statements *begin*, and undo it."""
    try:
        await connection.execute(begin)
        yield
    finally:
        await roll_back(connection)


async def roll_back(connection: Any, check: bytes = b"") -> None:
    """Make *connection* clean within a bounded time, or end it: it never serves another call dirty.

    The messages *check* fail where it is not clean. A cancellation waits for all that: to end the connection
    would end what tells the server to stop its statement.
    """
    rolling, interruption = asyncio.ensure_future(_roll_back(connection, check)), None
    with anyio.CancelScope(shield=True):
        while not rolling.done():
            try:
                await asyncio.wait([rolling])
            except asyncio.CancelledError as exc:
                interruption = exc
    if interruption is not None:
        raise interruption


async def _roll_back(connection: Any, check: bytes) -> None:
    try:
        async with asyncio.timeout(PATIENCE):
            await connection.execute("rollback")
            if check:
                await connection.send(check)
    except DRIVER_ERRORS:
        connection.terminate()
