"""Catalogs of SQLite files: DDL in, tables out."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from dbtools.backends.sqlite.schema.introspection import read_catalog
from dbtools.backends.sqlite.schema.types import column_type
from dbtools.schema.catalog import Catalog, Selection, Table

INTEGER = column_type("integer", strict=False)
TEXT = column_type("text", strict=False)
ANY = column_type("", strict=False)


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def read(connection: sqlite3.Connection, ddl: str, selection: Selection | None = None) -> Catalog:
    connection.executescript(ddl)
    return read_catalog(connection, selection or Selection())


def read_table(connection: sqlite3.Connection, ddl: str, name: str = "t") -> Table:
    return {table.name: table for table in read(connection, ddl).tables}[name]


def names(catalog: Catalog) -> list[str]:
    return [table.name for table in catalog.tables]
