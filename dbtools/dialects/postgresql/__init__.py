"""PostgreSQL: reads the catalog of a database through asyncpg."""

import asyncpg

from dbtools import errors
from dbtools.catalog import Catalog, Selection
from dbtools.dialects.postgresql.introspection import check_version, read_catalog
from dbtools.dialects.postgresql.location import connect

__all__ = ["introspect"]


async def introspect(url: str, selection: Selection) -> Catalog:
    """Return what the login of *url* may read of its database."""
    connection = await connect(url)
    try:
        check_version(connection)
        return await read_catalog(connection, selection)
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as exc:
        raise errors.DatabaseUnavailable("The catalog of the database cannot be read.") from exc
    finally:
        await connection.close(timeout=5)
