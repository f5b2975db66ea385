"""Registries in either database: a place in, its tables made and changed."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Protocol

import anyio
import asyncpg
import pytest
from alembic.config import Config

from dbtools.alembic import upgrade

DDL = """
create table thing (id integer primary key, name text);
insert into thing values (1, 'one'), (2, 'two');
create table alembic_version (version_num varchar(32) primary key);
insert into alembic_version values ('abc123');
"""
REPOSITORY = Path(__file__).parents[2]
PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]


def config_of(url: str) -> Config:
    """Return how Alembic migrates the database at *url*."""
    config = Config(REPOSITORY / "alembic.ini")
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


class Place(Protocol):
    """A database, by its URL and by SQL."""

    url: str
    table: str  #: of the queries

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of *sql*, which may also change something."""

    def structure(self) -> list[tuple[object, ...]]:
        """Return all tables, columns and indexes."""


class SqlitePlace:
    """A file."""

    table = "dbtools_query"

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of *sql*."""
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(sql).fetchall()

    def structure(self) -> list[tuple[object, ...]]:
        """Return the text of all that there is."""
        return self.rows("select type, name, sql from sqlite_schema order by name")


class PostgresqlPlace:
    """A database of a server."""

    table = "dbtools.dbtools_query"

    def __init__(self, url: str) -> None:
        self.url = url

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of *sql*."""
        return anyio.run(self._rows, sql)

    async def _rows(self, sql: str) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(record) for record in await connection.fetch(sql)]
        finally:
            await connection.close()

    def structure(self) -> list[tuple[object, ...]]:
        """Return all columns, indexes and schemas."""
        return self.rows(
            """
            select nspname::text, relname::text, attname::text, atttypid::regtype::text, attnotnull
            from pg_namespace
            left join pg_class on relnamespace = pg_namespace.oid
            left join pg_attribute on attrelid = pg_class.oid and attnum > 0
            where nspname in ('public', 'dbtools')
            order by 1, 2, 3
            """
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def place(
    request: pytest.FixtureRequest,
    sqlite_database: Callable[[str], Path],
    postgresql_database: PostgresqlDatabase,
) -> Iterator[Place]:
    """Return a database of each dialect, with tables and Alembic migrations of its owner."""
    if request.param == "sqlite":
        yield SqlitePlace(sqlite_database(DDL))
    else:
        with postgresql_database(DDL) as url:
            yield PostgresqlPlace(url)


@pytest.fixture
def registry(place: Place) -> Place:
    upgrade(place.url)
    return place
