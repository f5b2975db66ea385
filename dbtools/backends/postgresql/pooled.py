"""A connection through a pooler, such as PgBouncer, which lends a server's connection for a transaction each.

Nothing that is set stays, or it stays for others: so each transaction begins by setting what it needs. What
is prepared the pooler must keep by itself.
"""

import hashlib
import secrets
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeGuard

import asyncpg

from dbtools.backends.postgresql.transactions import rolled_back
from dbtools.errors import DatabaseUnavailable

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

LOSES_STATEMENTS = (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError)
#: What asyncpg raises where bytes are of another type than it takes them for.
UNREADABLE = (AssertionError, BufferError, LookupError, TypeError, ValueError, struct.error)


class PooledConnection(Connection):
    """A connection of which each transaction begins with settings of its own."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        # asyncpg would set it off for a moment, and leave it so where a transaction has it off already.
        capabilities: Any = self._server_caps  # type: ignore[has-type]
        self._server_caps = capabilities._replace(jit=False)
        self.settings: dict[str, str] = {}  #: the values as SQL
        self.session: Mapping[str, str] = {}  #: of a role: the values

    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str:
        """Run *query*; one that begins a transaction sets all that holds in it."""
        if query[:5].lower() == "begin":
            begin, _, rest = query.partition(";")
            # What the query itself sets comes later, and counts.
            query = "; ".join(filter(None, (begin, self._preamble(), rest.strip(" ;"))))
        return await super().execute(query, *args, timeout=timeout)

    async def prepare(self, query: str, **options: Any) -> Any:
        """Prepare *query* anew: a pooler may have one of the same text for a schema that was another."""
        query = f"{query}\n/* {secrets.token_hex(8)} */"
        if self.is_in_transaction():
            return await super().prepare(query, **options)
        async with rolled_back(self, "begin read only"):
            return await super().prepare(query, **options)

    def _preamble(self) -> str:
        settings = [f"set local {name} = {value}" for name, value in self.settings.items()]
        # The role comes last: it may not be allowed to set what the login may.
        session = sorted(self.session.items(), key=lambda each: each[0] == "role")
        told = [
            f"select pg_catalog.set_config({literal(name)}, {literal(value)}, true)"
            for name, value in session
        ]
        return "; ".join((*settings, *told))


def is_pooled(connection: Any) -> TypeGuard[PooledConnection]:
    """Return whether *connection* is such; asyncpg has `isinstance` take each connection for any class."""
    return type(connection) is PooledConnection


async def keep_setting(connection: Any, name: str, value: str) -> None:
    """Have the setting *name* be *value*, as SQL, for as long as *connection* lasts."""
    if is_pooled(connection):
        connection.settings[name] = value
    else:
        await connection.execute(f"set {name} = {value}")


def dated(connection: Any, sql: str, stamp: str) -> str:
    """Return *sql* as the pooler behind *connection* has it for no schema but that of *stamp*, if one is."""
    if not is_pooled(connection):
        return sql
    return f"{sql}\n/* {hashlib.sha256(stamp.encode()).hexdigest()[:16]} */"


@contextmanager
def reading(connection: Any) -> Iterator[None]:
    """Raise OutdatedSchemaCacheError where *connection* cannot read the rows, and end it.

    asyncpg knows the types of a statement's columns from one connection of the server's. After a migration
    the pooler may have prepared it on another one, with others.
    """
    try:
        yield
    except UNREADABLE as exc:
        if not is_pooled(connection):
            raise
        connection.terminate()
        raise asyncpg.OutdatedSchemaCacheError("the columns are of other types by now") from exc


def pooler_fault(error: BaseException) -> DatabaseUnavailable | None:
    """Return what to tell the operator where *error* is of a pooler that keeps no prepared statements."""
    if not isinstance(error, LOSES_STATEMENTS):
        return None
    return DatabaseUnavailable(
        "A pooler in front of the database keeps no prepared statements.",
        hint="PgBouncer does from 1.21 on, with max_prepared_statements, or with pool_mode = session.",
    )


def literal(text: str) -> str:
    """Return *text* as a constant of SQL, which means the same under each setting."""
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"
