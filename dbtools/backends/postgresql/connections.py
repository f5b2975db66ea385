"""Connections to PostgreSQL: opening and closing them, and the settings of a session. A URL in.

A pooler, such as PgBouncer, provides a connection for one transaction. Settings would not stay, or
stay for others, so each transaction begins with its own. The pooler itself must keep prepared statements.

The settings of a caller, a role and settings that policies read, are a second wall behind row filters: anyone
who could run SQL could reset both.
"""

import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import anyio
import asyncpg

from dbtools.backends.postgresql.faults import unavailable
from dbtools.backends.postgresql.pipeline import (
    DRIVER_ERRORS,
    PATIENCE,
    Connection,
    Loop,
    is_failure_of,
    messages,
    rolled_back,
    setting,
)
from dbtools.backends.postgresql.urls import SETTINGS, Destination, destination
from dbtools.errors import ConfigurationError, DatabaseUnavailable, Refused
from dbtools.sql import words

OLDEST = 13  #: the first supported version
#: Settings that dbtools relies on; row filters were checked with the search path of the login.
RESERVED = {
    *SETTINGS,
    *words(
        "client_encoding default_transaction_isolation default_transaction_read_only search_path "
        "session_authorization statement_timeout transaction_deferrable transaction_isolation "
        "transaction_read_only"
    ),
}
#: The search path with fixed names: "$user" would follow the role of a statement, and change the meaning of
#: names in row filters.
PATH = """
select coalesce(
    pg_catalog.string_agg(pg_catalog.quote_ident(s.name::text), ', ' order by s.place), '""'
)
from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality as s (name, place)
"""
#: How to read the server's texts, where the driver's own types lose something.
DECODERS: Mapping[str, Callable[[str], object]] = {
    **dict.fromkeys(("date", "time", "timetz", "interval", "numeric", "uuid", "inet"), str),
    "float4": float,  # from four bytes, 0.1 would become 0.10000000149011612
    # As in RFC 3339; the session is in UTC.
    "timestamp": lambda text: text.replace(" ", "T", 1),
    "timestamptz": lambda text: text.replace(" ", "T", 1).replace("+00", "Z", 1),
}
#: Settings that a pooler accepts or passes on.
PASSED_ON = ("application_name", "options")
#: A setting that no pooler passes on, as the server writes it.
ARRIVED = "select pg_catalog.current_setting('lock_timeout')"
BEGIN = "begin isolation level read committed read only"
#: What identifies a session, and the mark of an assertion that this is another one.
SESSION = "pg_catalog.current_setting('lock_timeout'), pg_catalog.current_setting('search_path')"
ANOTHER = "dbtools_another_session"

ENDED = ("08", "57P01", "57P02", "57P05", "25P03")  #: SQLSTATEs of errors that end a connection
LOST_STATEMENTS = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
#: What asyncpg raises for bytes of another type than it expects.
UNREADABLE = (AssertionError, BufferError, LookupError, TypeError, ValueError, struct.error)


@asynccontextmanager
async def opened(url: str, failing: str) -> AsyncIterator[Connection]:
    """Open a connection to *url*, or raise DatabaseUnavailable; *failing* is the message of later errors."""
    connection = await connect(url)
    try:
        with answering(failing):
            yield connection
    finally:
        await end(connection)


@contextmanager
def answering(failing: str) -> Iterator[None]:
    """Raise DatabaseUnavailable with the message *failing* if the server does not answer."""
    try:
        yield
    except LOST_STATEMENTS as exc:
        raise DatabaseUnavailable(
            "A pooler in front of the database keeps no prepared statements.",
            hint="PgBouncer does from 1.21 on, with max_prepared_statements, or with pool_mode = session.",
        ) from exc
    except DRIVER_ERRORS as exc:
        raise DatabaseUnavailable(failing) from exc


async def connect(url: str) -> Connection:
    """Open a connection to *url*, or raise DatabaseUnavailable with a remedy."""
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
    # asyncpg (0.32) reads unknown types with operators and functions that others may replace.
    query = getattr(connection, "_intro_query", "")
    exact = query.replace("!= 0", "!= '0'").replace("array_agg(", "pg_catalog.array_agg(")
    connection._intro_query = exact  # type: ignore[attr-defined]
    return connection


async def end(connection: Any) -> None:
    """Close *connection* within PATIENCE."""
    with anyio.CancelScope(shield=True), suppress(*DRIVER_ERRORS):
        await connection.close(timeout=PATIENCE)


async def _connect(target: Destination) -> Connection:
    """Connect with the settings of *target*, which a pooler rejects or ignores."""
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
    connection.be_pooled({name: value for name, value in target.settings.items() if name != "options"})
    return connection


def check_version(connection: Any) -> None:
    """Raise ConfigurationError if the server is not PostgreSQL, or too old."""
    reported = connection.get_settings()  # by the server, when the connection began
    if getattr(reported, "crdb_version", None) or "-YB-" in getattr(reported, "server_version", ""):
        message = "This server is not PostgreSQL: its catalog does not say what has changed (xmin)."
        raise ConfigurationError(message)
    version = connection.get_server_version().major
    if version < OLDEST:
        raise ConfigurationError(f"PostgreSQL {OLDEST} or later is needed, this is {version}.")


async def prepare(connection: Connection) -> None:
    """Fix the meaning of names and values on *connection*, the same for every call."""
    async with rolled_back(connection, "begin read only"):
        path = await connection.fetchval(PATH)
    await connection.keep_setting({"search_path": path})
    connection.marks = f"{SETTINGS['lock_timeout']}ms {path}"
    connection.begin = messages(BEGIN) + setting(connection.local)
    for name, decoder in DECODERS.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", format="text", encoder=str, decoder=decoder
        )


async def apply(connection: Connection, session: Mapping[str, str]) -> None:
    """Apply the settings *session* to *connection*, or raise Refused."""
    reserved = sorted(RESERVED.intersection(map(str.lower, session)))
    if reserved:
        raise Refused(f"dbtools sets {reserved[0]} itself.")
    try:
        async with rolled_back(connection, "begin read only"):
            await connection.set(session, local=True)
    except asyncpg.PostgresError as exc:
        if not is_of_settings(exc):
            raise
        raise Refused(f"{exc.args[0]}.") from exc
    await connection.keep_setting(session)


def is_of_settings(error: asyncpg.PostgresError) -> bool:
    """Return whether *error* means that the server rejects the settings of a session."""
    return not ((error.sqlstate or "").startswith(("08", "57")) or is_lost(error))


def is_lost(error: Exception) -> bool:
    """Return whether *error* means that the connection has ended, or that it leads to another session now."""
    if isinstance(error, asyncpg.PostgresError):
        is_another = is_failure_of(error, ANOTHER) or isinstance(error, LOST_STATEMENTS)
        return is_another or (error.sqlstate or "").startswith(ENDED)
    return isinstance(error, ConnectionError | asyncpg.InterfaceError | asyncpg.InternalClientError)
