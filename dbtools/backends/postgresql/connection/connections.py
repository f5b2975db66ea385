"""Connect to PostgreSQL. A URL in; a connection with its settings, or the reason why it fails, out.

A pooler, such as PgBouncer, provides a connection for one transaction. Settings would get lost, or leak to
other clients, so each transaction begins with its settings. The pooler must support prepared statements.

The session settings of a caller (its role, and the settings that policies read) are a second defence besides
row filters: anyone who could run SQL could reset them.
"""

import errno
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import anyio
import asyncpg

from dbtools.backends.postgresql.connection.pipeline import (
    DRIVER_ERRORS,
    END_TIMEOUT,
    Loop,
    ServerConnection,
    is_failure_of,
    messages,
    rolled_back,
    setting,
)
from dbtools.backends.postgresql.connection.urls import SETTINGS, Destination, destination
from dbtools.errors import ConfigurationError, DatabaseUnavailable, Refused
from dbtools.schema.sql import words

OLDEST = 13  #: the first supported version
#: Settings that dbtools relies on; row filters were checked with the search path of the login.
RESERVED_SETTINGS = {
    *SETTINGS,
    *words(
        "client_encoding default_transaction_isolation default_transaction_read_only search_path "
        "session_authorization statement_timeout transaction_deferrable transaction_isolation "
        "transaction_read_only"
    ),
}
#: The search path with fixed names: with "$user", names in row filters would depend on the role. The system's
#: own names come first, as they do unless a path says otherwise.
SESSION_PATH = """
select coalesce(
    pg_catalog.string_agg(
        pg_catalog.quote_ident(s.name::text), ', ' order by s.name <> 'pg_catalog', s.place
    ), '""'
)
from pg_catalog.unnest(pg_catalog.current_schemas(false)) with ordinality as s (name, place)
"""
#: How to decode the server's texts of types for which the driver's own codecs lose information.
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
BEGIN_READ = "begin isolation level read committed read only"
#: What identifies a session, and the mark of an assertion that fails in another session.
SESSION_VALUES = "pg_catalog.current_setting('lock_timeout'), pg_catalog.current_setting('search_path')"
ANOTHER = "dbtools_another_session"

ENDED = ("08", "57P01", "57P02", "57P05", "25P03")  #: SQLSTATEs of errors that end a connection
LOST_STATEMENTS = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
#: What asyncpg raises if a value has another type than it expects.
DECODING_ERRORS = (AssertionError, BufferError, LookupError, TypeError, ValueError, struct.error)

#: asyncpg's message if the server rejects TLS. It connects without TLS if the URL allows that.
NO_TLS = "rejected SSL upgrade"
NO_SERVER = (
    "The server closed the connection, or is not a PostgreSQL server.",
    "It may be stopping. If not, check host and port: PostgreSQL usually listens on 5432.",
)
#: Why a connection cannot be opened, and the remedy, by the names in `_causes`. The server's own message is
#: not passed on: it may quote secrets, in any language.
FAULTS: Mapping[str, tuple[str, str]] = {
    "no password": (
        "The server asks for a password, and none was given, or a wrong one in a password file.",
        "Set PGPASSWORD, or write postgresql://USER:PASSWORD@HOST/DATABASE.",
    ),
    "28P01": (
        "The server refused the password.",
        "Check user and password. In a URL, percent-encode all but letters and digits (@ is %40).",
    ),
    "28000 ClientAuthentication disable": (
        "The server's pg_hba.conf does not allow {user} to connect to {database} from here without TLS.",
        "Require TLS: sslmode=require.",
    ),
    "28000 ClientAuthentication": (
        "The server's pg_hba.conf does not allow {user} to connect to {database} from here.",
        "It may require a client certificate: sslcert=FILE and sslkey=FILE. "
        "Or add this line at the server: host {database} {user} ADDRESS scram-sha-256.",
    ),
    "28000 InitializeSessionUserId": (
        "The server has no user {user} with the right to log in.",
        'Check the name, or, as an administrator: create role "{user}" login;',
    ),
    "28000": (
        "The server refused the login.",
        "Its pg_hba.conf asks for a method, such as peer or cert, that does not accept {user}.",
    ),
    "3D000": (
        "The server has no database {database}.",
        "Check the name after the last slash of the URL; `psql --list` shows all databases.",
    ),
    "42501 CheckMyDatabase": (
        "{user} has no right to connect to this database.",
        'As its owner: grant connect on database "{database}" to "{user}";',
    ),
    **dict.fromkeys(("22", "42"), ("The server rejected a setting from the URL.", "Check its options.")),
    "53300": (
        "The server, the database or the user has no connection left.",
        "Close some, or raise max_connections, or the CONNECTION LIMIT of {user}.",
    ),
    "57": (
        "The server is starting up or shutting down, or is a standby that accepts no connections.",
        "Try again in a moment. A standby accepts them with hot_standby = on.",
    ),
    "08P01": (
        "The server, or a pooler in front of it, rejected the login or a setting from the URL.",
        "Check user, password and options; its log says more.",
    ),
    "PostgresError": (
        "The server refused the connection, with SQLSTATE {state}.",
        "Its log has the reason.",
    ),
    "SSLCertVerificationError": (
        "The server's certificate cannot be verified: {certificate}.",
        "Connect by a name in the certificate, or, without comparing names, with sslmode=verify-ca. "
        "Name the authority's certificate: sslrootcert=FILE, or sslrootcert=system for a public one.",
    ),
    "SSLError": (
        "TLS failed: this port expects something else, or a certificate or key is not in PEM format.",
        "Check the port, sslrootcert, sslcrl, sslcert, sslkey, sslpassword and ssl_min_protocol_version.",
    ),
    "no TLS": (
        "The server does not support TLS, which sslmode={mode} requires.",
        "Set ssl = on at the server, or, in a trusted network, sslmode=prefer.",
    ),
    "gaierror": ("The host name {host} cannot be resolved (DNS).", "Check its spelling and the network."),
    "ConnectionRefusedError": (
        "The server cannot be reached: nothing listens on this port.",
        "Is PostgreSQL running, are host and port right?",
    ),
    "TimeoutError": (
        "The server did not answer within {timeout:g} seconds.",
        "Check host, port and firewall; connect_timeout=SECONDS in the URL allows more time.",
    ),
    "FileNotFoundError": (
        "The server cannot be reached: there is no socket in this folder.",
        "Is it running on this machine?",
    ),
    "TargetServerAttributeNotMatched": (
        "No host matches target_session_attrs={attrs}.",
        "Name more hosts, or remove it.",
    ),
    **dict.fromkeys(("08", "ConnectionError", "InternalClientError"), NO_SERVER),
    "InterfaceError": (
        "asyncpg, the driver, rejects this URL or the server's authentication method.",
        "It supports scram-sha-256, md5 and certificates. Check the URL, and the PG… variables.",
    ),
    "Exception": ("The server cannot be reached.", "Is it running, are host, port and network right?"),
}
#: The faults that may pass by themselves: the server is down, starting or busy, or the network is.
TEMPORARY_FAULTS = (
    *("57", "53300", "gaierror", "ConnectionRefusedError", "TimeoutError", "FileNotFoundError"),
    *("ConnectionError", "Exception"),
)


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
        is_temporary = isinstance(exc, OSError) or is_lost(exc)
        raise DatabaseUnavailable(failing, temporary=is_temporary) from exc


async def connect(url: str) -> ServerConnection:
    """Open a connection to *url*, or raise DatabaseUnavailable with a remedy."""
    target = destination(url)
    try:
        connection = await _connect(target)
    except (*DRIVER_ERRORS, ValueError) as exc:
        raise _connection_error(exc, target) from exc
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
    """Close *connection* within END_TIMEOUT."""
    with anyio.CancelScope(shield=True), suppress(*DRIVER_ERRORS):
        await connection.close(timeout=END_TIMEOUT)


async def _connect(target: Destination) -> ServerConnection:
    """Connect with the settings of *target*, which a pooler rejects or ignores."""
    loop = Loop()
    try:
        return await _connect_in(loop, target)
    except BaseException:
        loop.abort()
        raise


async def _connect_in(loop: Loop, target: Destination) -> ServerConnection:
    options: Any = {
        **target.arguments(),
        "connection_class": ServerConnection,
        "statement_cache_size": 256,  # texts of this package only: callers' are prepared, not cached here
        "loop": loop,
    }
    with suppress(asyncpg.ProtocolViolationError):
        connection: ServerConnection = await asyncpg.connect(server_settings=dict(target.settings), **options)
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


def _connection_error(exc: Exception, target: Destination) -> DatabaseUnavailable:
    """Return the error for operators: why *target* cannot be reached."""
    facts = {
        "user": target.user,
        "database": target.database,
        "host": ", ".join(host for host, _ in target.addresses),
        "mode": target.mode,
        "timeout": target.timeout,
        "attrs": target.parameters.get("target_session_attrs"),
        "state": getattr(exc, "sqlstate", None),
        "certificate": getattr(exc, "verify_message", "").rstrip("."),
    }
    fault = next(cause for cause in _causes(exc, target) if cause in FAULTS)
    problem, remedy = (each.format(**facts) for each in FAULTS[fault])
    message = f"{target.place}: {problem}"
    return DatabaseUnavailable(message, hint=remedy, temporary=fault in TEMPORARY_FAULTS)


def _causes(exc: Exception, target: Destination) -> Iterator[str]:
    """Yield names of the cause of *exc*, the most specific one first: codes, and types of errors."""
    if state := getattr(exc, "sqlstate", None):
        # Where the SQLSTATE is ambiguous, the server's function that raised the error decides.
        named = f"{state} {getattr(exc, 'server_source_function', None)}"
        if state == "28P01" and "password" not in target.parameters:
            yield "no password"
        yield from (f"{named} {target.mode}", named, state, state[:2], "PostgresError")
    if NO_TLS in str(exc) and target.mode not in ("allow", "prefer"):
        yield "no TLS"
    if f"[Errno {errno.ECONNREFUSED}]" in str(exc):
        # asyncio merges the errors of several addresses into one.
        yield "ConnectionRefusedError"
    yield from (kind.__name__ for kind in type(exc).__mro__)


def check_version(connection: Any) -> None:
    """Raise ConfigurationError if the server is not PostgreSQL, or too old."""
    reported = connection.get_settings()  # by the server, when the connection began
    if getattr(reported, "crdb_version", None) or "-YB-" in getattr(reported, "server_version", ""):
        message = "This server is not PostgreSQL: its catalog does not say what has changed (xmin)."
        raise ConfigurationError(message)
    version = connection.get_server_version().major
    if version < OLDEST:
        raise ConfigurationError(f"PostgreSQL {OLDEST} or later is needed, this is {version}.")


async def prepare(connection: ServerConnection) -> None:
    """Fix the meaning of names and values on *connection*, the same for every call."""
    async with rolled_back(connection, "begin read only"):
        connection.path = await fixed_path(connection)
    await connection.keep_setting({"search_path": connection.path})
    connection.marks = f"{SETTINGS['lock_timeout']}ms {connection.path}"
    connection.begin = messages(BEGIN_READ) + connection.settings
    await decode(connection)


async def fixed_path(connection: ServerConnection) -> str:
    """Return the search path of *connection*, with fixed names.

    Temporary tables of other clients of a pooler come last: they come first unless a path says otherwise.
    """
    path = str(await connection.fetchval(SESSION_PATH))
    return f"{path}, pg_temp" if connection.is_pooled else path


async def decode(connection: ServerConnection) -> None:
    """Let *connection* decode values as calls do; this asks the server nothing."""
    for name, decoder in DECODERS.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", format="text", encoder=str, decoder=decoder
        )


async def check_session(connection: ServerConnection, session: Mapping[str, str]) -> None:
    """Raise Refused if the server of *connection* does not accept the settings *session*."""
    if not session:
        return
    reserved = sorted(RESERVED_SETTINGS.intersection(map(str.lower, session)))
    if reserved:
        raise Refused(f"dbtools sets {reserved[0]} itself.")
    try:
        async with rolled_back(connection, "begin read only"):
            await connection.send(setting(session))
    except asyncpg.PostgresError as exc:
        if not is_of_settings(exc):
            raise
        raise Refused(f"{exc.args[0]}.") from exc


def is_of_settings(error: asyncpg.PostgresError) -> bool:
    """Return whether *error* means that the server rejects the settings of a session."""
    return not ((error.sqlstate or "").startswith(("08", "57")) or is_lost(error))


def is_lost(error: Exception) -> bool:
    """Return whether *error* means that the connection has ended, or is another session."""
    if isinstance(error, asyncpg.PostgresError):
        is_another = is_failure_of(error, ANOTHER) or isinstance(error, LOST_STATEMENTS)
        return is_another or (error.sqlstate or "").startswith(ENDED)
    return isinstance(error, ConnectionError | asyncpg.InterfaceError | asyncpg.InternalClientError)
