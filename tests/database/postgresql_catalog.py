"""Catalogs of PostgreSQL databases for tests. DDL in, a Catalog out; and the types that most tests meet."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg

from dbtools.backends.postgresql.schema.introspection import read_catalog
from dbtools.schema.catalog import Catalog, ForeignKey, Selection, Table
from dbtools.values.types import ColumnType, Family

EVERYTHING = Selection()
NO_MORE = "select"  #: DDL that changes nothing

INTEGER = ColumnType(
    family=Family.INTEGER, name="integer", cast="pg_catalog.int4", minimum=-(2**31), maximum=2**31 - 1
)
BIGINT = ColumnType(
    family=Family.INTEGER, name="bigint", cast="pg_catalog.int8", minimum=-(2**63), maximum=2**63 - 1
)
TEXT = ColumnType(family=Family.TEXT, name="text", cast="pg_catalog.text", large=True)
DATE = ColumnType(family=Family.DATE, name="date", cast="pg_catalog.date", infinite=True)


def array(name: str, cast: str, element: ColumnType) -> ColumnType:
    """Return the type of arrays of *element*."""
    return ColumnType(family=Family.ARRAY, name=name, cast=cast, element=element, large=True)


def incomparable(type: ColumnType) -> ColumnType:
    """Return *type* without equality and order."""
    return replace(type, equatable=False, ordered=False)


def foreign_key(columns: str, target: str, target_columns: str, schema: str = "public") -> ForeignKey:
    """Return a foreign key between columns with spaces between their names."""
    return ForeignKey(
        columns=tuple(columns.split()),
        target_schema=schema,
        target=target,
        target_columns=tuple(target_columns.split()),
    )


@asynccontextmanager
async def connected(url: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Yield a connection to *url*, and close it."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def catalog_of(url: str, ddl: str, selection: Selection = EVERYTHING) -> Catalog:
    """Run *ddl* and return the catalog."""
    async with connected(url) as connection:
        await connection.execute(ddl)
        return await read_catalog(connection, selection)


async def table_of(url: str, ddl: str, name: str) -> Table:
    """Run *ddl* and return the table *name* of the catalog."""
    return next(table for table in (await catalog_of(url, ddl)).tables if table.name == name)
