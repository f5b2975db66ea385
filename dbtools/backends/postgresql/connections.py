"""Connections to PostgreSQL: how they are opened and ended, and what is set on them. A URL in.

A pooler, such as PgBouncer, lends a server's connection for a transaction each. Nothing that is set stays, or
it stays for others: so each transaction begins by setting what it needs. The pooler itself must keep prepared
statements.

What is set of a caller, a role and settings that policies may read, is a second wall behind row filters, not
a first one: whoever could run SQL of their own could set both back.
"""

import asyncio
import hashlib
import secrets
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import lru_cache
from typing import Any, TypeGuard

import anyio
import asyncpg

from dbtools.backends.postgresql.faults import unavailable
from dbtools.backends.postgresql.pipeline import Connection, Loop, assertion
from dbtools.backends.postgresql.urls import SETTINGS, Destination, destination
from dbtools.errors import ConfigurationError, DatabaseUnavailable, Refused

OLDEST = 13  #: the first version that is supported
PATIENCE = 2.0  #: seconds that a connection has to become clean, or to close, before it is given up
#: What dbtools itself relies on, beside what it sets for each connection.
RESERVED = {
    *SETTINGS,
    "client_encoding",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "search_path",  # the conditions of rules were understood with the login's
    "session_authorization",
    "statement_timeout",
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
}
#: As it was at the connect: "$user" in it would follow the role that a statement runs as, and with it the
#: meaning of names in the conditions of rules.
PATH = """
select coalesce(
    pg_catalog.string_agg(pg_catalog.quote_ident(s.name::text), ', ' order by s.place), '""'
)
from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality as s (name, place)
"""
#: How the texts that the server writes are read: as they are, since the driver's own types lose some.
DECODERS: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("date", "time", "timetz", "interval", "numeric", "uuid", "inet"), str),
    "float4": float,  # read as four bytes, 0.1 would be shown as 0.10000000149011612
    # As RFC 3339 writes them; the session is in UTC.
    "timestamp": lambda text: text.replace(" ", "T", 1),
    "timestamptz": lambda text: text.replace(" ", "T", 1).replace("+00", "Z", 1),
}
#: Settings that a pooler takes, or passes on.
PASSED_ON = ("application_name", "options")
#: The names that the system has for them, if it has them.
TCP_OPTIONS: Mapping[str, str] = {
    "keepalives_idle": "TCP_KEEPIDLE",
    "keepalives_interval": "TCP_KEEPINTVL",
    "keepalives_count": "TCP_KEEPCNT",
    "tcp_user_timeout": "TCP_USER_TIMEOUT",
}
#: What no pooler passes on by itself, as the server writes it.
ARRIVED = "select pg_catalog.current_setting('lock_timeout')"

#: What the server says of a session that is another one than was prepared.
ANOTHER = "dbtools_another_session"
BEGIN = "begin isolation level read committed read only"
SESSION = "pg_catalog.current_setting('lock_timeout'), pg_catalog.current_setting('search_path')"
SAME = f"pg_catalog.concat_ws(' ', {SESSION}) = $1::pg_catalog.text"
#: Fails in another session. Its SELECT takes a snapshot: the transaction cannot be made one that writes.
SAME_SESSION = f"select where {assertion(SAME, ANOTHER)} is null"
SET = "select where pg_catalog.set_config($1, $2, true) is null"
UNPREPARED = "not exists (select from pg_catalog.pg_prepared_statements as s where s.from_sql)"
#: Fails where a function has prepared a statement, which it may have put in the place of one of ours: that
#: would serve the next caller, without the filters of a role.
UNTOUCHED = f"select where {assertion(UNPREPARED, ANOTHER)} is null"

#: What the server says where anything may have happened to what a statement names since it was confirmed.
UNSURE = "dbtools_unsure"
#: 'now' is a constant: when the transaction began in which the statement was last analysed.
UNCHANGED = f"pg_catalog.concat_ws(' ', {SESSION}, 'now'::pg_catalog.timestamptz) = ${{}}::pg_catalog.text"
#: A statement that fails before it reads anything, unless the session is known and nothing has happened. The
#: server analyses a prepared statement again after each change of what it names (PREPARE, Notes).
GUARDED = f"""select * from ({{}}
) as q
where {assertion(UNCHANGED, UNSURE)} is not null"""

#: The internal one is what a call meets on a connection that the server is ending at that moment.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
LOSES_STATEMENTS = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
#: What asyncpg raises where bytes are of another type than it takes them for.
UNREADABLE = (AssertionError, BufferError, LookupError, TypeError, ValueError, struct.error)


@asynccontextmanager
async def opened(url: str, failing: str) -> AsyncIterator[Connection]:
    """Lend a connection to *url*, or raise DatabaseUnavailable; *failing* is what an error means."""
    connection = await connect(url)
    try:
        with answering(failing):
            yield connection
    finally:
        await end(connection)


@contextmanager
def answering(failing: str) -> Iterator[None]:
    """Raise DatabaseUnavailable, which says *failing*, where the server does not answer."""
    try:
        yield
    except LOSES_STATEMENTS as exc:
        raise DatabaseUnavailable(
            "A pooler in front of the database keeps no prepared statements.",
            hint="PgBouncer does from 1.21 on, with max_prepared_statements, or with pool_mode = session.",
        ) from exc
    except DRIVER_ERRORS as exc:
        raise DatabaseUnavailable(failing) from exc


async def connect(url: str) -> Connection:
    """Open a connection to *url*, or raise DatabaseUnavailable with what can be done."""
    target = destination(url)
    try:
        connection = await _connect(target)
    except (*DRIVER_ERRORS, ValueError) as exc:
        raise unavailable(exc, target) from exc
    _keep_alive(connection, target.parameters)
    _fit_types(connection)
    try:
        check_version(connection)
    except ConfigurationError:
        connection.terminate()
        raise
    return connection


async def end(connection: Any) -> None:
    """Close *connection* within a bounded time."""
    with anyio.CancelScope(shield=True), suppress(*DRIVER_ERRORS):
        await connection.close(timeout=PATIENCE)


async def _connect(target: Destination) -> Connection:
    """Open a connection with SETTINGS; a pooler refuses them, or takes them and does nothing."""
    options: Any = {**target.arguments(), "statement_cache_size": 256, "loop": Loop()}
    with suppress(asyncpg.ProtocolViolationError):
        connection: Connection = await asyncpg.connect(
            server_settings=dict(target.settings), connection_class=Connection, **options
        )
        try:
            if await connection.fetchval(ARRIVED) == f"{SETTINGS['lock_timeout']}ms":
                return connection
        except BaseException:
            connection.terminate()
            raise
        await end(connection)
    known = {name: target.settings[name] for name in PASSED_ON if name in target.settings}
    pooled: PooledConnection = await asyncpg.connect(
        server_settings=known, connection_class=PooledConnection, **options
    )
    pooled.settings |= {each: value for each, value in target.settings.items() if each not in PASSED_ON}
    pooled.settings |= {each: target.settings[each] for each in SETTINGS}
    return pooled


def _keep_alive(connection: Connection, options: Mapping[str, str]) -> None:
    """Have the system notice where the other end of *connection* is gone, as libpq does and *options* say."""
    peer = connection.transport.get_extra_info("socket")
    if peer.family not in (socket.AF_INET, socket.AF_INET6):
        return
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, int(options.get("keepalives", 1)))
    for name, option in TCP_OPTIONS.items():
        value = int(options.get(name, 0))
        if value > 0 and hasattr(socket, option):
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _fit_types(connection: Any) -> None:
    """Have the driver ask for unknown types with what fits exactly, so that nothing else on the path does.

    Until asyncpg, 0.32 for now, does so itself.
    """
    query = getattr(connection, "_intro_query", "")
    fitting = query.replace("!= 0", "!= '0'").replace("array_agg(", "pg_catalog.array_agg(")
    connection._intro_query = fitting


def check_version(connection: Any) -> None:
    """Raise ConfigurationError if the server is too old, or not PostgreSQL."""
    told = connection.get_settings()  # what the server said when the connection began
    if getattr(told, "crdb_version", None) or "-YB-" in getattr(told, "server_version", ""):
        message = "This server is none of PostgreSQL's: its catalog does not tell what has changed (xmin)."
        raise ConfigurationError(message)
    version = connection.get_server_version().major
    if version < OLDEST:
        raise ConfigurationError(f"PostgreSQL {OLDEST} or later is needed, this is {version}.")


def is_lost(error: Exception) -> bool:
    """Return whether the server or the network ended the connection."""
    if isinstance(error, asyncpg.PostgresError):
        state = error.sqlstate or ""
        return state.startswith("08") or state in ("57P01", "57P02", "57P05", "25P03")
    return isinstance(error, ConnectionError | asyncpg.InterfaceError | asyncpg.InternalClientError)


@asynccontextmanager
async def rolled_back(connection: Any, begin: str) -> AsyncIterator[None]:
    """Run what is within after the statements *begin*, and undo it."""
    try:
        await connection.execute(begin)
        yield
    finally:
        await roll_back(connection)


async def roll_back(connection: Any) -> None:
    """Make *connection* clean within a bounded time, or end it: it never serves another call dirty."""
    with anyio.CancelScope(shield=True), suppress(*DRIVER_ERRORS):
        try:
            async with asyncio.timeout(PATIENCE):
                await connection.execute("rollback")
        except BaseException:
            # Cancelled, it would have the role and the settings of this caller for the next one.
            connection.terminate()
            raise


class PooledConnection(Connection):
    """A connection that sets what it needs at the start of each transaction."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        # asyncpg would set it off for a moment, and leave it so where a transaction has it off already.
        capabilities: Any = self._server_caps  # type: ignore[has-type]
        self._server_caps = capabilities._replace(jit=False)
        self.settings: dict[str, str] = {}
        self.session: Mapping[str, str] = {}  #: of a role

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        """Run *query*; one that begins a transaction sets all that holds in it."""
        if query[:5].lower() == "begin":
            begin, _, rest = query.partition(";")
            # What the query itself sets comes later, and counts.
            setting = setting_all({**self.settings, **self.session}, local=True)
            query = "; ".join(filter(None, (begin, setting, rest.strip(" ;"))))
        return await super().execute(query, *args, timeout=timeout)

    async def prepare(self, query: str, **options: Any) -> Any:
        """Prepare *query* anew: a pooler may keep a statement of the same text from before a migration."""
        query = f"{query}\n/* {secrets.token_hex(8)} */"
        if self.is_in_transaction():
            return await super().prepare(query, **options)
        async with rolled_back(self, "begin read only"):
            return await super().prepare(query, **options)


def is_pooled(connection: Any) -> TypeGuard[PooledConnection]:
    """Return whether *connection* is such; asyncpg has `isinstance` take each connection for any class."""
    return type(connection) is PooledConnection


async def keep_setting(connection: Any, name: str, value: str) -> None:
    """Have the setting *name* be *value* for as long as *connection* lasts."""
    if is_pooled(connection):
        connection.settings[name] = value
    else:
        await connection.execute(setting_all({name: value}, local=False))


async def prepare(connection: Connection) -> None:
    """Make *connection* one on which names and values mean what they mean in every call."""
    if is_pooled(connection):
        async with rolled_back(connection, "begin read only"):
            path = await connection.fetchval(PATH)
    else:
        path = await connection.fetchval(PATH)
    await keep_setting(connection, "search_path", path)
    connection.marks = f"{SETTINGS['lock_timeout']}ms {path}"
    for name, decoder in DECODERS.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", format="text", encoder=str, decoder=decoder
        )


async def apply(connection: Any, session: Mapping[str, str]) -> None:
    """Set *session* on *connection*, or raise Refused."""
    with applying(session):
        if not is_pooled(connection):
            await connection.execute(setting_all(session, local=False))
            return
        async with rolled_back(connection, "begin read only"):
            await connection.execute(setting_all(session, local=True))
        connection.session = dict(session)


@contextmanager
def applying(session: Mapping[str, str]) -> Iterator[None]:
    """Raise Refused where the server does not take *session*, or dbtools does not."""
    reserved = sorted(RESERVED.intersection(map(str.lower, session)))
    if reserved:
        raise Refused(f"dbtools sets {reserved[0]} itself.")
    try:
        yield
    except asyncpg.PostgresError as exc:
        if (exc.sqlstate or "").startswith(("08", "57")) or is_another(exc):
            raise
        raise Refused(f"{exc.args[0]}.") from exc


def says(error: Exception, mark: str) -> bool:
    """Return whether *error* is what the server says where a check has failed with *mark*."""
    return isinstance(error, asyncpg.UndefinedObjectError) and mark in str(error.args[0])


def is_another(error: Exception) -> bool:
    """Return whether what is behind the connection is another session than was prepared."""
    return says(error, ANOTHER) or isinstance(error, LOSES_STATEMENTS)


def with_role_last(session: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """Return *session* in order: the role may not be allowed to set what the login may."""
    return sorted(session.items(), key=lambda each: each[0] == "role")


def dated(connection: Any, sql: str, stamp: str) -> str:
    """Return *sql* as the pooler behind *connection* has it for no schema but that of *stamp*, if one is."""
    if not is_pooled(connection):
        return sql
    return f"{sql}\n/* {hashlib.sha256(stamp.encode()).hexdigest()[:16]} */"


@lru_cache(maxsize=1_000)
def guarded(sql: str, place: int) -> str:
    """Return *sql* as GUARDED by the parameter with the number *place*."""
    return GUARDED.format(sql, place)


def setting_all(session: Mapping[str, str], *, local: bool) -> str:
    """Return the statement that sets *session*, for a transaction where it is *local*."""
    pairs = ((sql_text(name), sql_text(value)) for name, value in with_role_last(session))
    calls = (f"pg_catalog.set_config({name}, {value}, {str(local).lower()})" for name, value in pairs)
    return f"select {', '.join(calls)}"


def sql_text(value: str) -> str:
    """Return *value* as a literal, whatever the settings are."""
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"
