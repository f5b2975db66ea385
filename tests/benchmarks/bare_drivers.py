"""The baseline: the drivers alone, without a pool, a transaction, a limit or a check."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

import aiosqlite
import asyncpg


class Bare(Protocol):
    """An open connection of a driver."""

    async def fetch(self, sql: str, *values: object) -> Iterable[Iterable[object]]:
        """Return the rows of *sql*, in which each `?` stands for one of *values*."""


class BareSqlite:
    """aiosqlite."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def fetch(self, sql: str, *values: object) -> Iterable[Iterable[object]]:
        """Return the rows of *sql*."""
        return await self._connection.execute_fetchall(sql, values)


class BarePostgresql:
    """asyncpg."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection

    async def fetch(self, sql: str, *values: object) -> Iterable[Iterable[object]]:
        """Return the rows of *sql*."""
        first, *others = sql.split("?")
        numbered = first + "".join(f"${at}{piece}" for at, piece in enumerate(others, start=1))
        return await self._connection.fetch(numbered, *values)


@asynccontextmanager
async def open_bare(url: str) -> AsyncIterator[Bare]:
    """Open the database at *url* with its driver alone."""
    if url.startswith("sqlite:"):
        async with aiosqlite.connect(urlsplit(url).path[1:]) as file:
            yield BareSqlite(file)
        return
    connection = await asyncpg.connect(url)
    try:
        yield BarePostgresql(connection)
    finally:
        await connection.close()
