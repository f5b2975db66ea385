"""Connections to PostgreSQL: how they are opened and ended, and what is set on them. A URL in.

A pooler, such as PgBouncer, lends a server's connection for a transaction each. Nothing that is set stays, or
it stays for others: so each transaction begins by setting what it needs. The pooler itself must keep prepared
statements.

What is set of a caller, a role and settings that policies may read, is a second wall behind row filters, not
a first one: whoever could run SQL of their own could set both back.
"""

import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import asyncpg

from dbtools.backends.postgresql.faults import unavailable
from dbtools.backends.postgresql.pipeline import (
    ANOTHER,
    BEGIN,
    DRIVER_ERRORS,
    PATIENCE,
    Connection,
    Loop,
    rolled_back,
    running,
    says,
    setting,
)
from dbtools.backends.postgresql.urls import SETTINGS, Destination, destination
from dbtools.errors import ConfigurationError, DatabaseUnavailable, Refused

OLDEST = 13  #: the first version that is supported
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
#: What no pooler passes on by itself, as the server writes it.
ARRIVED = "select pg_catalog.current_setting('lock_timeout')"

ENDED = ("08", "57P01", "57P02", "57P05", "25P03")  #: states of an error that ends a connection
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
    try:
        check_version(connection)
    except ConfigurationError:
        connection.terminate()
        raise
    # The driver is to ask for unknown types with what fits exactly, so that nothing else on the path does,
    # until asyncpg, 0.32 for now, does so itself.
    query = getattr(connection, "_intro_query", "")
    fitting = query.replace("!= 0", "!= '0'").replace("array_agg(", "pg_catalog.array_agg(")
    connection._intro_query = fitting  # type: ignore[attr-defined]
    return connection


async def end(connection: Any) -> None:
    """Close *connection* within a bounded time."""
    with anyio.CancelScope(shield=True), suppress(*DRIVER_ERRORS):
        await connection.close(timeout=PATIENCE)


async def _connect(target: Destination) -> Connection:
    """Open a connection with SETTINGS; a pooler refuses them, or takes them and does nothing."""
    options: Any = {
        **target.arguments(),
        "connection_class": Connection,
        "statement_cache_size": 256,
        "loop": Loop(),
    }
    with suppress(asyncpg.ProtocolViolationError):
        connection: Connection = await asyncpg.connect(server_settings=dict(target.settings), **options)
        try:
            if await connection.fetchval(ARRIVED) == f"{SETTINGS['lock_timeout']}ms":
                return connection
        except BaseException:
            connection.terminate()
            raise
        await end(connection)
    known = {name: target.settings[name] for name in PASSED_ON if name in target.settings}
    connection = await asyncpg.connect(server_settings=known, **options)
    connection.pool({name: value for name, value in target.settings.items() if name != "options"})
    return connection


def check_version(connection: Any) -> None:
    """Raise ConfigurationError if the server is too old, or not PostgreSQL."""
    told = connection.get_settings()  # what the server said when the connection began
    if getattr(told, "crdb_version", None) or "-YB-" in getattr(told, "server_version", ""):
        message = "This server is none of PostgreSQL's: its catalog does not tell what has changed (xmin)."
        raise ConfigurationError(message)
    version = connection.get_server_version().major
    if version < OLDEST:
        raise ConfigurationError(f"PostgreSQL {OLDEST} or later is needed, this is {version}.")


async def prepare(connection: Connection) -> None:
    """Make *connection* one on which names and values mean what they mean in every call."""
    async with rolled_back(connection, "begin read only"):
        path = await connection.fetchval(PATH)
    await connection.keep_setting({"search_path": path})
    connection.marks = f"{SETTINGS['lock_timeout']}ms {path}"
    connection.beginning = running(BEGIN) + setting(connection.local)
    for name, decoder in DECODERS.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", format="text", encoder=str, decoder=decoder
        )


async def apply(connection: Connection, session: Mapping[str, str]) -> None:
    """Set *session* on *connection*, or raise Refused."""
    check_session(session)
    try:
        async with rolled_back(connection, "begin read only"):
            await connection.set(session, local=True)
    except asyncpg.PostgresError as exc:
        if not is_of_session(exc):
            raise
        raise Refused(f"{exc.args[0]}.") from exc
    await connection.keep_setting(session)


def check_session(session: Mapping[str, str]) -> None:
    """Raise Refused where *session* sets what dbtools sets itself."""
    reserved = sorted(RESERVED.intersection(map(str.lower, session)))
    if reserved:
        raise Refused(f"dbtools sets {reserved[0]} itself.")


def is_of_session(error: asyncpg.PostgresError) -> bool:
    """Return whether *error* says that the server does not take a role's settings."""
    return not ((error.sqlstate or "").startswith(("08", "57")) or is_lost(error))


def is_lost(error: Exception) -> bool:
    """Return whether the connection has ended, or what is behind it is another session than was prepared."""
    if isinstance(error, asyncpg.PostgresError):
        is_another = says(error, ANOTHER) or isinstance(error, LOSES_STATEMENTS)
        return is_another or (error.sqlstate or "").startswith(ENDED)
    return isinstance(error, ConnectionError | asyncpg.InterfaceError | asyncpg.InternalClientError)
