"""Where a PostgreSQL database is: the URL as asyncpg wants it, and what keeps it from being reached."""

import asyncio
import re
from typing import Any
from urllib.parse import urlsplit

import asyncpg

from dbtools import errors
from dbtools.backends.postgresql.pooled import PooledConnection

CONNECT_TIMEOUT = 10.0  #: seconds
SETTINGS = {
    "application_name": "dbtools",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",  # the conditions of operators are read so
    "lock_timeout": "5003",  # by which it is seen whether settings arrive: nobody else sets it so
    "idle_in_transaction_session_timeout": "60000",
}
#: What no pooler passes on by itself, as the server writes it.
ARRIVED = "select pg_catalog.current_setting('lock_timeout')"


def dsn_of(url: str) -> str:
    """Return *url* without the name of a driver, or raise ConfigurationError."""
    dsn = re.sub(r"^[a-zA-Z]+(\+\w+)?://", "postgresql://", url)
    try:
        parts = urlsplit(dsn)
        valid = parts.port is None or parts.port > 0
    except ValueError as exc:
        raise errors.ConfigurationError("The port in the database's URL is no number.") from exc
    if not valid:
        raise errors.ConfigurationError("The port in the database's URL is no port.")
    return dsn


async def connect(url: str) -> "asyncpg.Connection[asyncpg.Record]":
    """Open a connection to *url*, or raise DatabaseUnavailable with what can be done."""
    try:
        connection = await _connect(url)
    except (
        TimeoutError,
        OSError,
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        ValueError,
    ) as exc:
        raise unavailable(exc) from exc
    _fit_types(connection)
    return connection


async def _connect(url: str) -> "asyncpg.Connection[asyncpg.Record]":
    """Open a connection with SETTINGS; a pooler refuses them, or takes them and does nothing."""
    options: Any = {"timeout": CONNECT_TIMEOUT, "statement_cache_size": 256}
    try:
        connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(
            dsn_of(url), server_settings=SETTINGS, **options
        )
    except asyncpg.ProtocolViolationError:
        pass
    else:
        try:
            if await connection.fetchval(ARRIVED) == f"{SETTINGS['lock_timeout']}ms":
                return connection
        except BaseException:
            connection.terminate()
            raise
        await connection.close(timeout=CONNECT_TIMEOUT)
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


def unavailable(exc: Exception) -> errors.DatabaseUnavailable:
    """Return what keeps the database from being reached, without the server's words."""
    match exc:
        case asyncpg.InvalidPasswordError() | asyncpg.InvalidAuthorizationSpecificationError():
            return errors.DatabaseUnavailable("The database refused the login: user or password is wrong.")
        case asyncpg.InvalidCatalogNameError():
            return errors.DatabaseUnavailable("The server has no database of this name.")
        case asyncpg.TooManyConnectionsError():
            return errors.DatabaseUnavailable("The server has no connection free.")
        case asyncpg.CannotConnectNowError():
            return errors.DatabaseUnavailable(
                "The server is starting or stopping.", hint="Try again in a moment."
            )
        case asyncio.TimeoutError():
            return errors.DatabaseUnavailable(
                f"The server did not answer within {CONNECT_TIMEOUT:g} seconds."
            )
        case OSError():
            return errors.DatabaseUnavailable(
                "The server cannot be reached: is it running, are host and port right?"
            )
        case _:
            return errors.DatabaseUnavailable("The server cannot be reached with this URL.")
