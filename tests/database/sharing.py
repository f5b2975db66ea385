"""Databases that the tests of a module share: what a test has changed in their rows is put back."""

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from io import BytesIO
from typing import Protocol

import asyncpg
from anyio.from_thread import BlockingPortal

from tests.database.shop import Bare, BarePostgresql, BareSqlite, Shop, quote

TABLES = """
select nspname, relname, array(
    select attname::text from pg_attribute
    where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = ''
)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
"""
SEQUENCES = """
select format('%I.%I', schemaname, sequencename), coalesce(last_value, start_value), last_value is not null
from pg_sequences
"""
#: The catalogs in which a change leaves a row that another transaction has written.
CATALOGS = (
    *("attrdef", "attribute", "cast", "class", "collation", "constraint", "default_acl"),
    *("description", "enum", "event_trigger", "extension", "foreign_table", "index", "namespace", "operator"),
    *("policy", "proc", "rewrite", "statistic_ext", "trigger", "type"),
)
SCHEMA = " union all ".join(
    f"select '{each}', count(*), sum(xmin::text::bigint) from pg_{each}" for each in CATALOGS
)
#: Changes with every transaction that has written.
MOMENT = "select pg_snapshot_xmax(pg_current_snapshot())::text"


class Shelf:
    """Served databases that tests use one after the other."""

    def __init__(self) -> None:
        self._lent: dict[object, Loan] = {}

    @contextmanager
    def lend(self, key: object, opening: AbstractContextManager[Shop]) -> Iterator[Shop]:
        """Yield the database of *key*, with the rows that it had when *opening* made it.

        While a test has it, another one is given to those who ask.
        """
        found = self._lent.get(key)
        if found is not None and found.is_taken:
            with opening as shop:
                yield shop
            return
        if found is None:
            found = self._lent[key] = Loan(opening)
        found.is_taken = True
        try:
            yield found.shop
            found.is_taken = False
        finally:
            if found.is_taken or not found.rows.restore():
                del self._lent[key]
                found.close()

    def clear(self) -> None:
        """Close all databases."""
        for each in self._lent.values():
            each.close()
        self._lent.clear()


class Loan:
    """A database that is open, and its rows as they were in the beginning."""

    def __init__(self, opening: AbstractContextManager[Shop]) -> None:
        self.is_taken = False
        with ExitStack() as stack:
            self.shop = stack.enter_context(opening)
            self.rows = rows_in(self.shop.bare)
            self._stack = stack.pop_all()

    def close(self) -> None:
        """Close the database."""
        self._stack.close()


class Rows(Protocol):
    """The rows of a database as they were in the beginning."""

    def restore(self) -> bool:
        """Put them back, and return True; return False if more than rows has changed."""


def rows_in(bare: Bare) -> Rows:
    """Remember the rows of a database."""
    if isinstance(bare, BareSqlite):
        return SqliteRows(bare.connection)
    assert isinstance(bare, BarePostgresql)
    return PostgresqlRows(bare.connection, bare.portal)


class SqliteRows:
    """The rows of a file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._copy = sqlite3.connect(":memory:", check_same_thread=False)
        connection.backup(self._copy)
        self._schema, self._moment = self._schema_now(), self._moment_now()

    def restore(self) -> bool:
        """Put them back, and return True; return False if more than rows has changed."""
        connection = self._connection
        connection.rollback()
        if self._schema_now() != self._schema:
            return False
        if self._moment_now() != self._moment:
            self._copy.backup(connection)
            # The backup has counted it up, as if the schema had changed.
            connection.execute(f"pragma schema_version = {self._schema}")
            self._moment = self._moment_now()
        return True

    def _schema_now(self) -> int:
        (version,) = self._connection.execute("pragma schema_version").fetchone()
        return int(version)

    def _moment_now(self) -> tuple[int, int]:
        (changes_of_others,) = self._connection.execute("pragma data_version").fetchone()
        return int(changes_of_others), self._connection.total_changes


class PostgresqlRows:
    """The rows of a database of a server."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", portal: BlockingPortal) -> None:
        self._connection, self._portal = connection, portal
        portal.call(self._read)

    def restore(self) -> bool:
        """Put them back, and return True; return False if more than rows has changed."""
        return self._portal.call(self._restore)

    async def _read(self) -> None:
        connection, self._rows = self._connection, []
        for schema, name, columns in await connection.fetch(TABLES):
            rows = BytesIO()
            if columns:
                await connection.copy_from_table(
                    name, schema_name=schema, columns=columns, output=rows, format="binary"
                )
            self._rows.append((schema, name, columns, rows.getvalue()))
        self._sequences = await connection.fetch(SEQUENCES)
        self._schema, self._moment = await connection.fetch(SCHEMA), await connection.fetchval(MOMENT)

    async def _restore(self) -> bool:
        connection = self._connection
        await connection.reset()
        if await connection.fetchval(MOMENT) == self._moment:
            return True
        if await connection.fetch(SCHEMA) != self._schema:
            return False
        async with connection.transaction():
            # Without triggers and foreign keys.
            await connection.execute("set local session_replication_role = replica")
            for schema, name, columns, rows in self._rows:
                # Unlike TRUNCATE, this does not change the catalog.
                await connection.execute(f"delete from only {quote(schema)}.{quote(name)}")
                if columns:
                    await connection.copy_to_table(
                        name, schema_name=schema, columns=columns, source=BytesIO(rows), format="binary"
                    )
            await connection.executemany("select setval($1, $2, $3)", map(tuple, self._sequences))
        self._moment = await connection.fetchval(MOMENT)
        return True
