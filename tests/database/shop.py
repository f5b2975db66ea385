"""A served database, and a direct connection to it. DDL in, answers and rows out."""

import re
import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Protocol

import asyncpg
from anyio.from_thread import BlockingPortal

from dbtools.answers.results import Answer, Media
from dbtools.backends import open_backend
from dbtools.backends.pool import Pool
from dbtools.backends.port import Backend
from dbtools.policy.roles import Caller
from dbtools.schema.catalog import Catalog, Selection
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings

ROLE = "default"
MOST_PAGES = 1_000
#: As the server's own, so that both write a value alike.
SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}

DIALECTS = ("sqlite", "postgresql")

Row = tuple[Any, ...]


class Bare(Protocol):
    """A connection that may do everything. Values stand in SQL as ? or, on PostgreSQL, as $1."""

    def execute(self, sql: str, *values: object) -> None:
        """Run *sql*; without values it may be several statements."""

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of *sql*."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, kw_only=True)
class BareSqlite:
    """A connection to a file."""

    connection: sqlite3.Connection

    def execute(self, sql: str, *values: object) -> None:
        """Run *sql*."""
        if ";" in sql and not values:
            self.connection.executescript(sql)
        else:
            self.connection.execute(sql, values)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of *sql*."""
        return self.connection.execute(sql, values).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


@dataclass(frozen=True, kw_only=True)
class BarePostgresql:
    """A connection to a server, on the loop of *portal*."""

    connection: "asyncpg.Connection[asyncpg.Record]"
    portal: BlockingPortal

    def execute(self, sql: str, *values: object) -> None:
        """Run *sql*."""
        self.portal.call(self.connection.execute, sql, *values)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of *sql*."""
        return [tuple(record) for record in self.portal.call(self.connection.fetch, sql, *values)]

    def close(self) -> None:
        """Close the connection."""
        self.portal.call(self.connection.close)


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A served database."""

    dialect: str
    url: str
    toolbox: Toolbox
    database: Backend
    portal: BlockingPortal
    stack: ExitStack  #: closes what has been opened
    toolboxes: dict[str, tuple[Toolbox, Backend]]  #: that callers with roles share

    @cached_property
    def bare(self) -> Bare:
        """A direct connection, opened when it is first asked for, outside of the portal."""
        bare = open_bare(self.dialect, self.url, self.portal)
        self.stack.callback(bare.close)
        return bare

    def call(self, tool: str, arguments: Mapping[str, object]) -> Answer:
        """Return the answer of *tool*."""
        return self.portal.call(self.toolbox.call, Caller(), tool, arguments)

    def page(self, table: str, **arguments: object) -> Mapping[str, object]:
        """Return one page of *table*, whose name needs no normalising."""
        return self.call(f"list_{table}", arguments).structured

    def get(self, table: str, **key: object) -> Mapping[str, object]:
        """Return the row of *table* with *key*."""
        row = self.call(f"get_{table}", key).structured["row"]
        assert isinstance(row, dict)
        return row

    def rows(self, table: str, **arguments: object) -> list[list[object]]:
        """Return the rows of one page of *table*."""
        return rows_of(self.page(table, **arguments))

    def read(self, uri: str) -> Media:
        """Return what is at *uri*."""
        return self.portal.call(self.toolbox.read, Caller(), uri)

    def refresh(self) -> None:
        """Let the toolbox read the catalog again."""
        self.portal.call(self.toolbox.refresh)

    def pages(
        self, tool: str, limits: Sequence[int], arguments: Mapping[str, object]
    ) -> Iterator[Mapping[str, object]]:
        """Yield the pages of *tool* to the end, with one of *limits* after the other and over again."""
        cursor: dict[str, object] = {}
        for number in range(MOST_PAGES):
            limit = limits[number % len(limits)]
            page = self.call(tool, {**arguments, "limit": limit, **cursor}).structured
            yield page
            if "next_cursor" not in page:
                return
            cursor = {"cursor": page["next_cursor"]}
        raise AssertionError("the pages have no end")

    def insert(self, table: str, rows: Sequence[Sequence[object]], *, casts: Sequence[str] = ()) -> None:
        """Put *rows* into *table*; on PostgreSQL each value is a text that is cast to one of *casts*."""
        for row in rows:
            self.bare.execute(f'insert into "{table}" values ({self.places(row, casts)})', *row)

    def places(self, row: Sequence[object], casts: Sequence[str] = ()) -> str:
        """Return the places of the values of *row* in SQL."""
        if self.dialect == "sqlite":
            return ", ".join("?" for _ in row)
        casts = casts or [""] * len(row)
        pairs = enumerate(zip(row, casts, strict=True), 1)
        return ", ".join(f"${at}::text::{cast}" if cast else f"${at}" for at, (_, cast) in pairs)


async def pool_of(database: Backend) -> Pool:
    """Return the connections that calls on *database* run on, which are for no one else."""
    runner: Any = await database.runner()
    pool: Pool = runner.pool
    return pool


def rows_of(page: Mapping[str, object]) -> list[list[object]]:
    """Return the rows of *page*."""
    rows = page["rows"]
    assert isinstance(rows, list)
    return rows


def quote(name: str) -> str:
    """Return *name* as an identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return *text* as a string in SQL."""
    return "'" + re.sub("'", "''", text) + "'"


def same(value: object) -> object:
    """Return *value* so that -0.0 and 0.0 differ, and 1 and true."""
    match value:
        case bool():
            return ("bool", value)
        case float():
            return struct.pack(">d", value)
        case list():
            return [same(each) for each in value]
        case dict():
            return {name: same(each) for name, each in value.items()}
        case _:
            return value


@contextmanager
def open_shop(
    dialect: str, url: str, portal: BlockingPortal, limits: LimitsSection | None = None
) -> Iterator[Shop]:
    """Serve the database at *url* under *limits*, and close everything in the end."""
    settings = Settings(database=DatabaseSection(url=url), limits=limits or LimitsSection())
    with ExitStack() as stack:
        toolbox, database = open_toolbox(settings)
        stack.callback(portal.call, database.close)
        toolboxes: dict[str, tuple[Toolbox, Backend]] = {}
        stack.callback(lambda: [portal.call(each.close) for _, each in toolboxes.values()])
        yield Shop(
            dialect=dialect,
            url=url,
            toolbox=toolbox,
            database=database,
            portal=portal,
            stack=stack,
            toolboxes=toolboxes,
        )


async def catalog_of(url: str, selection: Selection | None = None) -> Catalog:
    """Return what the login of *url* sees of its database."""
    database = open_backend(url)
    try:
        return await database.introspect(selection or Selection())
    finally:
        await database.close()


def open_bare(dialect: str, url: str, portal: BlockingPortal) -> Bare:
    """Open a connection to *url* behind the server's back."""
    if dialect == "sqlite":
        path = Path(url.removeprefix("sqlite:///").partition("?")[0])
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        connection.execute("pragma synchronous = off")
        return BareSqlite(connection=connection)

    async def connect() -> "asyncpg.Connection[asyncpg.Record]":
        return await asyncpg.connect(url, server_settings=SESSION)

    return BarePostgresql(connection=portal.call(connect), portal=portal)


#: A dialect, DDL and limits in; a served database out.
Serve = Callable[..., AbstractContextManager[Shop]]
#: A dialect in, its database out, the same for all tests of a module.
Shops = Callable[[str], Shop]


@contextmanager
def open_shops(serve: Serve, ddl: Mapping[str, str], **limits: LimitsSection) -> Iterator[Shops]:
    """Yield the database of each dialect with its *ddl*, opened when it is first asked for."""
    with ExitStack() as stack:
        yield cache(lambda dialect: stack.enter_context(serve(dialect, ddl[dialect], fresh=True, **limits)))
