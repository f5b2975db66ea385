"""SQLite: reads the catalog of a file through the standard library's driver."""

import asyncio
from contextlib import closing

from dbtools.catalog import Catalog, Selection
from dbtools.dialects.sqlite.introspection import read_catalog
from dbtools.dialects.sqlite.location import connect, location_of
from dbtools.parameters import Lexis

__all__ = ["introspect", "lexis"]

lexis = Lexis(
    nested_comments=False,
    dollar_quotes=False,
    escape_strings=False,
    brackets=True,
    backticks=True,
    line_ends="\n",
    native_marks="?@$#:",
)


async def introspect(url: str, selection: Selection) -> Catalog:
    """Return what the database file at *url* holds."""
    return await asyncio.to_thread(_introspect, url, selection)


def _introspect(url: str, selection: Selection) -> Catalog:
    with closing(connect(location_of(url))) as connection:
        return read_catalog(connection, selection)
