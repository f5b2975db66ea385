"""What dbtools keeps in a PostgreSQL database. A connection in, the registry out; a URL in, a store out.

An operator is found by its name, and one that fits exactly wins over the system's own, in whichever schema of
the search path it is. So each transaction here sets PATH, and no table is read that somebody else could fill.
"""

import asyncio
import time
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

import asyncpg

from dbtools.backends.postgresql.connections import connect
from dbtools.backends.postgresql.pipeline import DRIVER_ERRORS
from dbtools.backends.records import NO_REGISTRY, QUERIES, REVISIONS, Purpose, Registry, registry_from
from dbtools.errors import DatabaseUnavailable

#: Where nobody else may create anything.
PATH = "pg_catalog, pg_temp"
#: For one transaction.
PIN = f"set local search_path = {PATH}"
PIN_READING = f"{PIN}; set local statement_timeout = 5000"
SNAPSHOT = {"isolation": "repeatable_read", "readonly": True}  #: of what is read
#: Two that save at once would take the same version.
LOCK = "lock table dbtools.dbtools_query in share row exclusive mode"
#: Servers hear of it when it is committed.
TELL = "select pg_catalog.pg_notify('dbtools_schema', 'registry')"
#: The start of a statement. Trusted are superusers, the database's owner, and the roles whose privileges the
#: login has as a member of them: a superuser has those of every role.
TRUSTED = """
with recursive memberships (role) as (
    select r.oid
    from pg_catalog.pg_roles as r
    where r.rolname = session_user
    union
    select m.roleid
    from memberships as b
    join pg_catalog.pg_auth_members as m on m.member = b.role
),
trusted (role) as (
    select r.oid
    from pg_catalog.pg_roles as r
    join pg_catalog.pg_database as d on d.datname = pg_catalog.current_database()
    where r.rolsuper
        or r.oid = d.datdba
        or r.rolname = 'pg_database_owner'
        or r.oid in (select b.role from memberships as b)
        and pg_catalog.pg_has_role(session_user, r.oid, 'usage')
)"""

#: The condition that one of the columns of the table c has a type that is not the system's.
HAS_FOREIGN_TYPE = """
exists (
    select
    from pg_catalog.pg_attribute as a
    join pg_catalog.pg_type as t on t.oid = a.atttypid
    join pg_catalog.pg_namespace as s on s.oid = t.typnamespace
    where a.attrelid = c.oid
        and a.attnum > 0
        and not a.attisdropped
        and s.nspname <> 'pg_catalog'
)"""

#: The tables, and whether the login may read them. The version tables have the owner of the queries. Types
#: and policies of somebody else's would run their code; the owner of a schema may put another table there.
TABLES = f"""{TRUSTED},
registry as (
    select c.oid, c.relowner
    from pg_catalog.pg_class as c
    join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where c.relkind = 'r'
        and n.nspname = 'dbtools'
        and c.relname = $1
)
select
    c.relname::pg_catalog.text as name,
    pg_catalog.format('%I.%I', n.nspname, c.relname) as place,
    pg_catalog.has_schema_privilege(n.oid, 'usage')
    and pg_catalog.has_table_privilege(c.oid, 'select') as readable,
    not c.relrowsecurity
    and not {HAS_FOREIGN_TYPE} as plain,
    c.relowner in (select t.role from trusted as t)
    and n.nspowner in (select t.role from trusted as t) as trusted,
    o.rolname::pg_catalog.text as owner
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
join pg_catalog.pg_roles as o on o.oid = c.relowner
join registry as r on r.oid = c.oid or r.relowner = c.relowner
where c.oid = r.oid
    or c.relkind = 'r' and c.relname = 'dbtools_version'
order by 1, 2
"""

T = TypeVar("T")


async def registry_of(connection: Any) -> Registry | None:
    """Return what the registry holds in the database of *connection*, None where there is none."""
    async with connection.transaction(**SNAPSHOT):
        await connection.execute(PIN_READING)
        tables = await _trusted_tables(connection, "dbtools_query")
        if not tables:
            return None
        revisions = [
            revision
            for table in tables
            if table["name"] == "dbtools_version"
            and all(table[fact] for fact in ("readable", "plain", "trusted"))
            for revision in await connection.fetch(REVISIONS.format(table["place"]))
        ]
        return registry_from(revisions, await connection.fetch(QUERIES.format("dbtools.dbtools_query")))


async def _trusted_tables(connection: Any, name: str) -> Sequence[asyncpg.Record]:
    """Return the table *name* of the registry with the version tables of its owner, nothing where none is.

    Raise DatabaseUnavailable where the login may not read it, or must not.
    """
    tables: Sequence[asyncpg.Record] = await connection.fetch(TABLES, name)
    kept = next((table for table in tables if table["name"] == name), None)
    if kept is None:
        return ()
    if not kept["readable"]:
        raise DatabaseUnavailable("The login may not read the registry.")
    if not (kept["trusted"] and kept["plain"]):
        raise DatabaseUnavailable(
            f"The registry is {kept['owner']}'s, who is neither the database's owner nor a role of the "
            "login, or it is not as dbtools made it: it is not read."
        )
    return tables


class PostgresqlRecords:
    """The RecordStore in the database at *url*, with a loop of its own.

    *patience*: seconds that a transaction may take, where the server's own timeouts are too long.
    """

    DIALECT = "postgresql.asyncpg"
    SCHEMA = "dbtools"

    def __init__(self, url: str, patience: float | None) -> None:
        self._url = url
        self._patience = patience
        self._ends: float | None = None  #: of `time.monotonic()`, for the transaction
        self._runner: asyncio.Runner | None = None
        self._connection: Any = None

    def moment(self, text: str) -> datetime:
        """Return the time that *text* means."""
        return datetime.fromisoformat(text)

    @contextmanager
    def begin(self, purpose: Purpose) -> Iterator[None]:
        """Begin a transaction."""
        reads, changes = purpose is Purpose.READ_CALLS, purpose is Purpose.CHANGE_QUERIES
        self._ends = self._patience and time.monotonic() + self._patience
        try:
            if self._connection is None:
                self._connection = self._run(connect(self._url))
            transaction = self._connection.transaction(**(SNAPSHOT if reads else {}))
            self._run(transaction.start())
            self._run(self._connection.execute(PIN_READING if reads else PIN))
            if reads and not self._run(_trusted_tables(self._connection, "dbtools_call")):
                raise DatabaseUnavailable(NO_REGISTRY)
            if changes:
                self.fetch(LOCK, ())
            yield
            if changes:
                self.fetch(TELL, ())
            self._run(transaction.commit())
        except BaseException as exc:
            # To undo what it is in the middle of may take long.
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.terminate()
            if isinstance(exc, DRIVER_ERRORS):
                raise OSError(exc.args[0] if isinstance(exc, asyncpg.PostgresError) else str(exc)) from exc
            raise

    def fetch(self, sql: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        """Run *sql* and return its rows."""
        rows: Sequence[asyncpg.Record] = self._run(self._connection.fetch(sql, *values))
        return [tuple(row) for row in rows]

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run *sql* once for each of *rows*, in which texts hold no character that the server cannot."""
        self._run(self._connection.executemany(sql, [[_storable(each) for each in row] for row in rows]))

    def _run(self, step: Coroutine[Any, Any, T]) -> T:
        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(asyncio.wait_for(step, self._ends and self._ends - time.monotonic()))

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection, self._ends = self._connection, None, None
        if connection is not None:
            with suppress(TimeoutError, *DRIVER_ERRORS):
                self._run(connection.close(timeout=2))
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.close()


def _storable(value: object) -> object:
    """Return *value* without NUL, as a character or as JSON writes it."""
    return value.replace("\0", "\ufffd").replace("\\u0000", "\\ufffd") if isinstance(value, str) else value
