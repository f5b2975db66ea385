"""PostgreSQL: reads the catalog of a database through asyncpg."""

from collections.abc import Mapping, Sequence

import asyncpg

from dbtools import errors
from dbtools.backends.inspected import Reads
from dbtools.backends.postgresql.grants import write_script
from dbtools.backends.postgresql.inspection import inspector
from dbtools.backends.postgresql.introspection import check_version, read_catalog
from dbtools.backends.postgresql.location import connect, dsn_of
from dbtools.backends.postgresql.reading import Reader
from dbtools.backends.postgresql.registry import change_registry, read_registry
from dbtools.backends.postgresql.session import apply
from dbtools.backends.postgresql.syntax import lexis
from dbtools.backends.postgresql.triggers import ANNOUNCEMENT, SCRIPT as WATCH_SCRIPT, install_watch
from dbtools.backends.postgresql.watching import INTERVAL, registry_watcher, watcher
from dbtools.catalog import Catalog, Selection
from dbtools.policy import Role

__all__ = [
    "ANNOUNCEMENT",
    "INTERVAL",
    "NAMES_CONNECTIONS",
    "WATCH_SCRIPT",
    "Reader",
    "change_registry",
    "check_url",
    "grants",
    "inspector",
    "install_watch",
    "introspect",
    "lexis",
    "read_registry",
    "registry_watcher",
    "watcher",
]

NAMES_CONNECTIONS = True


def check_url(url: str) -> None:
    """Raise ConfigurationError where the port in *url* is none."""
    dsn_of(url)


async def introspect(url: str, selection: Selection, session: Mapping[str, str]) -> Catalog:
    """Return what the login of *url* may read of its database when it has the settings *session*."""
    connection = await connect(url)
    try:
        check_version(connection)
        if session:
            await apply(connection, session, local=False)
        return await read_catalog(connection, selection)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
        raise errors.DatabaseUnavailable("The catalog of the database cannot be read.") from exc
    finally:
        await connection.close(timeout=5)


async def grants(url: str, catalog: Catalog, roles: Sequence[Role], reads: Reads, login: str) -> str:
    """Return the script for a *login* that reads what *roles* and their queries read of *catalog*."""
    connection = await connect(url)
    try:
        check_version(connection)
        return await write_script(connection, catalog, roles, reads, login)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
        raise errors.DatabaseUnavailable("The catalog of the database cannot be read.") from exc
    finally:
        await connection.close(timeout=5)
