"""Connections to PostgreSQL: how they are opened and ended, and what is set on them. A URL in.

A pooler, such as PgBouncer, lends a server's connection for a transaction each. Nothing that is set stays, or
it stays for others: so each transaction begins by setting what it needs. The pooler itself must keep prepared
statements.

What is set of a caller, a role and settings that policies may read, is a second wall behind row filters, not
a first one: whoever could run SQL of their own could set both back.
"""

import asyncio
import hashlib
import os
import re
import secrets
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeGuard
from urllib.parse import unquote, urlsplit, urlunsplit

import anyio
import asyncpg

from dbtools.errors import ConfigurationError, DatabaseUnavailable, Refused

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

OLDEST = 13  #: the first version that is supported
CONNECT_TIMEOUT = 10.0  #: seconds
PATIENCE = 2.0  #: seconds that a connection has to become clean, or to close, before it is given up
SETTINGS = {
    "application_name": "dbtools",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",  # the conditions of operators are read so
    "lock_timeout": "5003",  # shows whether settings arrive: nobody else sets it so
    "idle_in_transaction_session_timeout": "60000",
}
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
#: The role comes last: it may not be allowed to set what the login may.
SET = """
select pg_catalog.set_config(s.name, s.value, $3)
from (
    select *
    from rows from (
        pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])
    ) as u (name, value)
    order by u.name = 'role'
    offset 0
) as s
"""
#: As it was at the connect: "$user" in it would follow the role that a statement runs as, and with it the
#: meaning of names in the conditions of rules.
PATH = """
select coalesce(
    pg_catalog.string_agg(pg_catalog.quote_ident(s.name::text), ', ' order by s.place),
    pg_catalog.quote_literal('')
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
#: What the driver reads from the environment where the URL does not say it.
VARIABLES = (
    *("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGDATABASE", "PGSERVICE", "PGSERVICEFILE"),
    *("PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLCRL", "PGTARGETSESSIONATTRS"),
)
#: What no pooler passes on by itself, as the server writes it.
ARRIVED = "select pg_catalog.current_setting('lock_timeout')"

#: The internal one is what a call meets on a connection that the server is ending at that moment.
DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
LOSES_STATEMENTS = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
#: What keeps a connection from being opened, in words for operators: the first that fits.
UNREACHED: Sequence[tuple[type[Exception], str]] = (
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "The database refused the login: user or password is wrong.",
    ),
    (asyncpg.InvalidCatalogNameError, "The server has no database of this name."),
    (asyncpg.TooManyConnectionsError, "The server has no connection free."),
    (asyncpg.CannotConnectNowError, "The server is starting or stopping."),
    (TimeoutError, f"The server did not answer within {CONNECT_TIMEOUT:g} seconds."),
    (OSError, "The server cannot be reached: is it running, are host and port right?"),
    (Exception, "The server cannot be reached with this URL."),
)
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
    try:
        connection = await _connect(url)
    except (*DRIVER_ERRORS, ValueError) as exc:
        raise unavailable(exc) from exc
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


def dsn_of(url: str) -> str:
    """Return *url* without the name of a driver, or raise ConfigurationError."""
    dsn = re.sub(r"^[a-zA-Z]+(\+\w+)?://", "postgresql://", url)
    try:
        port = urlsplit(dsn).port
    except ValueError as exc:
        raise ConfigurationError("The port in the database's URL is no number.") from exc
    if port is not None and port <= 0:
        raise ConfigurationError("The port in the database's URL is no port.")
    return dsn


def without_password(url: str) -> tuple[str, Mapping[str, str]]:
    """Return *url* without its password, and the variables that libpq reads: PGPASSWORD among them."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    options = [each for each in parts.query.split("&") if each and not each.startswith("password=")]
    given = [
        unquote(each[len("password=") :]) for each in parts.query.split("&") if each.startswith("password=")
    ]
    known = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}
    secrets_of = [unquote(password)] if password else given
    shared = urlunsplit(parts._replace(netloc=f"{user}{at}{host}", query="&".join(options)))
    return shared, {**known, **({"PGPASSWORD": secrets_of[-1]} if secrets_of else {})}


async def _connect(url: str) -> Connection:
    """Open a connection with SETTINGS; a pooler refuses them, or takes them and does nothing."""
    options: Any = {"timeout": CONNECT_TIMEOUT, "statement_cache_size": 256}
    with suppress(asyncpg.ProtocolViolationError):
        connection: Connection = await asyncpg.connect(dsn_of(url), server_settings=SETTINGS, **options)
        try:
            if await connection.fetchval(ARRIVED) == f"{SETTINGS['lock_timeout']}ms":
                return connection
        except BaseException:
            connection.terminate()
            raise
        await end(connection)
    known = {"application_name": SETTINGS["application_name"]}
    pooled: PooledConnection = await asyncpg.connect(
        dsn_of(url), server_settings=known, connection_class=PooledConnection, **options
    )
    pooled.settings |= {name: f"'{value}'" for name, value in SETTINGS.items()}
    return pooled


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


def unavailable(exc: Exception) -> DatabaseUnavailable:
    """Return what keeps the database from being reached, without the server's words."""
    message = next(message for kind, message in UNREACHED if isinstance(exc, kind))
    passes = isinstance(exc, asyncpg.CannotConnectNowError)
    return DatabaseUnavailable(message, hint="Try again in a moment." if passes else "")


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
        self.settings: dict[str, str] = {}  #: the values as SQL
        self.session: Mapping[str, str] = {}  #: of a role: the values

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        """Run *query*; one that begins a transaction sets all that holds in it."""
        if query[:5].lower() == "begin":
            begin, _, rest = query.partition(";")
            # What the query itself sets comes later, and counts.
            query = "; ".join(filter(None, (begin, self._preamble(), rest.strip(" ;"))))
        return await super().execute(query, *args, timeout=timeout)

    async def prepare(self, query: str, **options: Any) -> Any:
        """Prepare *query* anew: a pooler may keep a statement of the same text from before a migration."""
        query = f"{query}\n/* {secrets.token_hex(8)} */"
        if self.is_in_transaction():
            return await super().prepare(query, **options)
        async with rolled_back(self, "begin read only"):
            return await super().prepare(query, **options)

    def _preamble(self) -> str:
        settings = [f"set local {name} = {value}" for name, value in self.settings.items()]
        # The role comes last: it may not be allowed to set what the login may.
        session = sorted(self.session.items(), key=lambda each: each[0] == "role")
        return "; ".join((*settings, *(f"select {set_local(*each)}" for each in session)))


def is_pooled(connection: Any) -> TypeGuard[PooledConnection]:
    """Return whether *connection* is such; asyncpg has `isinstance` take each connection for any class."""
    return type(connection) is PooledConnection


async def keep_setting(connection: Any, name: str, value: str) -> None:
    """Have the setting *name* be *value*, as SQL, for as long as *connection* lasts."""
    if is_pooled(connection):
        connection.settings[name] = value
    else:
        await connection.execute(f"set {name} = {value}")


async def prepare(connection: Any) -> None:
    """Make *connection* one on which names and values mean what they mean in every call."""
    await keep_setting(connection, "search_path", await connection.fetchval(PATH))
    for name, decoder in DECODERS.items():
        await connection.set_type_codec(
            name, schema="pg_catalog", format="text", encoder=str, decoder=decoder
        )


async def apply(connection: Any, session: Mapping[str, str], *, local: bool) -> None:
    """Set *session* on *connection*, for its transaction alone where it is *local*; or raise Refused."""
    reserved = sorted(RESERVED.intersection(map(str.lower, session)))
    if reserved:
        raise Refused(f"dbtools sets {reserved[0]} itself.")
    try:
        if local or not is_pooled(connection):
            await connection.fetch(SET, list(session), list(session.values()), local)
        else:
            async with rolled_back(connection, "begin read only"):
                await connection.fetch(SET, list(session), list(session.values()), True)
            connection.session = dict(session)
    except asyncpg.PostgresError as exc:
        if (exc.sqlstate or "").startswith(("08", "57")):
            raise
        raise Refused(f"{exc.args[0]}.") from exc


def dated(connection: Any, sql: str, stamp: str) -> str:
    """Return *sql* as the pooler behind *connection* has it for no schema but that of *stamp*, if one is."""
    if not is_pooled(connection):
        return sql
    return f"{sql}\n/* {hashlib.sha256(stamp.encode()).hexdigest()[:16]} */"


@contextmanager
def reading(connection: Any) -> Iterator[None]:
    """Raise OutdatedSchemaCacheError where *connection* cannot read the rows, and end it.

    asyncpg knows the types of a statement's columns from one connection of the server's. After a migration
    the pooler may have prepared it on another one, with others.
    """
    try:
        yield
    except UNREADABLE as exc:
        if not is_pooled(connection):
            raise
        connection.terminate()
        raise asyncpg.OutdatedSchemaCacheError("the columns are of other types by now") from exc


def set_local(name: str, value: str) -> str:
    """Return the call that sets *name* to *value* for a transaction, whatever the settings are."""
    escaped = [text.replace("\\", "\\\\").replace("'", "''") for text in (name, value)]
    return f"pg_catalog.set_config(E'{escaped[0]}', E'{escaped[1]}', true)"
