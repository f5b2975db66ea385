"""Several statements in one round trip: messages in, written around those of asyncpg.

asyncpg (0.32) sends one statement at a time. It writes Bind, Execute and Sync of a prepared statement at
once, and reads whatever comes until the server is ready again. So statements without rows may run before and
behind it. After an error in any of them the server skips the rest, up to the Sync (PostgreSQL, "Pipelining").
A pipeline mode of asyncpg would let us drop this module.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import asyncpg

if TYPE_CHECKING:
    DriverConnection = asyncpg.Connection[asyncpg.Record]
else:
    DriverConnection = asyncpg.Connection

SYNC = b"S\0\0\0\4"
KEPT = 256  #: prepared statements of a connection
#: It says when the transaction began.
CARRIER = "select pg_catalog.transaction_timestamp()::pg_catalog.text"


def running(sql: str, *values: str) -> bytes:
    """Return the messages that run *sql* with *values* (Parse, Bind, Execute).

    The server keeps nothing of it: a function could prepare another statement under its name.
    """
    parse = _message(b"P", b"\0", _text(sql), b"\0\0")
    # A text that is none in UTF-8 is for the server to refuse.
    texts = [each.encode(errors="surrogatepass") for each in values]
    written = (struct.pack("!i", len(each)) + each for each in texts)
    bind = _message(b"B", b"\0", b"\0", struct.pack("!hh", 0, len(texts)), *written, b"\0\0")
    return parse + bind + _message(b"E", b"\0", b"\0\0\0\0")


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


def _message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


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
        return getattr(self._inner, name)

    async def create_connection(self, factory: Callable[[], Any], *where: Any, **how: Any) -> Any:
        """Connect over TCP."""
        _, meeting = await self._inner.create_connection(lambda: Meeting(factory), *where, **how)
        return meeting.transport, meeting.protocol

    async def create_unix_connection(self, factory: Callable[[], Any], *where: Any, **how: Any) -> Any:
        """Connect to a socket of this machine."""
        _, meeting = await self._inner.create_unix_connection(lambda: Meeting(factory), *where, **how)
        return meeting.transport, meeting.protocol

    async def start_tls(self, transport: Transport, *what: Any, **how: Any) -> Transport:
        """Go on encrypted."""
        encrypted: Any = await self._inner.start_tls(transport.inner, *what, **how)
        return Transport(encrypted)


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
    """A connection that runs a statement, and what belongs to it, in one round trip."""

    def __init__(self, protocol: Any, transport: Transport, *rest: Any) -> None:
        super().__init__(protocol, transport, *rest)
        self.transport = transport
        self.marks = ""  #: by which its session is known
        self._carrier: Any = None
        self._statements: dict[str, Kept] = {}  #: by their SQL, those used last at the end

    def kept(self, sql: str) -> "Kept | None":
        """Return the prepared statement of *sql*, None where there is none yet."""
        kept = self._statements.pop(sql, None)
        if kept is not None:
            self._statements[sql] = kept
        return kept

    async def keep(self, sql: str, guard: tuple[str, ...]) -> "Kept":
        """Prepare *sql*, and keep it with its *guard* in the place of one not used for long."""
        kept = self._statements[sql] = Kept(await self.prepare(sql), guard)
        if len(self._statements) > KEPT:
            self.forget(next(iter(self._statements)))
        return kept

    def forget(self, sql: str) -> None:
        """Keep the statement of *sql* no longer."""
        del self._statements[sql]

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


class Kept:
    """A prepared statement."""

    def __init__(self, statement: Any, guard: tuple[str, ...]) -> None:
        self.statement = statement
        self.guard = guard  #: the value that it is guarded by, after its own
        self.versions: tuple[str, ...] | None = None  #: of its tables, since it was confirmed
