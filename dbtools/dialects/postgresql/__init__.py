"""PostgreSQL: reads the catalog of a database through asyncpg."""

import asyncpg

from dbtools import errors
from dbtools.catalog import Catalog, Selection
from dbtools.dialects.postgresql.introspection import check_version, read_catalog
from dbtools.dialects.postgresql.location import connect
from dbtools.parameters import Lexis

__all__ = ["introspect", "lexis"]

lexis = Lexis(
    nested_comments=True,
    dollar_quotes=True,
    escape_strings=True,
    brackets=False,
    backticks=False,
    line_ends="\n\r",
    native_marks="$",
)


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
