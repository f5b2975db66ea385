"""What dbtools keeps in a PostgreSQL database. A connection in, the registry out; a URL in, a store out.

PostgreSQL finds operators by name, and prefers an exact match in any schema of the search path to those of
the system. So each transaction here sets TRUSTED_PATH, and reads no table that an untrusted role could fill.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import asyncpg
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dbtools.backends.postgresql.connection.connections import connect
from dbtools.backends.postgresql.connection.pipeline import DRIVER_ERRORS
from dbtools.backends.records import NO_REGISTRY, QUERIES, REVISIONS, Purpose, Registry, registry_from
from dbtools.errors import DatabaseUnavailable

SCHEMA = "dbtools"  #: of the tables
#: Schemas in which no other role may create anything.
TRUSTED_PATH = "pg_catalog, pg_temp"
#: Sets TRUSTED_PATH for one transaction.
PIN = f"set local search_path = {TRUSTED_PATH}"
PIN_READING = f"{PIN}; set local statement_timeout = 5000"
SNAPSHOT = {"isolation": "repeatable_read", "readonly": True}  #: the transaction that reads the registry
#: Without the lock, two concurrent writers could use the same version.
LOCK = "lock table dbtools.dbtools_query in share row exclusive mode"
#: Notifies servers at COMMIT.
NOTIFY = "select pg_catalog.pg_notify('dbtools_schema', 'registry')"
#: The start of a statement. It trusts superusers, the owner of the database, and the roles whose privileges
#: the login has as their member; a superuser has the privileges of every role.
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

#: The condition that a column of the table c has a type that did not come with the server.
HAS_FOREIGN_TYPE = """
exists (
    select
    from pg_catalog.pg_attribute as a
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.atttypid >= '16384'
)"""

UNTRUSTED = (
    "its owner {} is neither the database's owner nor a role of the login, or its tables are not as dbtools "
    "created them."
)

#: The table $1 that dbtools keeps, and then the version tables of its owner; what the login may do with each,
#: and whether to trust it. Types, triggers and policies of other roles would run their code; the owner of a
#: schema may put another table there.
REGISTRY_TABLES = f"""{TRUSTED}
select
    c.relname::pg_catalog.text as name,
    pg_catalog.format('%I.%I', n.nspname, c.relname) as place,
    pg_catalog.has_schema_privilege(n.oid, 'usage')
    and pg_catalog.has_table_privilege(c.oid, 'select') as readable,
    pg_catalog.has_table_privilege(c.oid, 'insert')
    and pg_catalog.has_table_privilege(c.oid, 'update')
    and pg_catalog.has_table_privilege(c.oid, 'delete') as writable,
    exists (select from pg_catalog.pg_trigger as g where g.tgrelid = c.oid) as triggered,
    not c.relrowsecurity and not {HAS_FOREIGN_TYPE} as plain,
    c.relowner in (select t.role from trusted as t)
    and n.nspowner in (select t.role from trusted as t) as trusted,
    o.rolname::pg_catalog.text as owner
from pg_catalog.pg_class as r
join pg_catalog.pg_namespace as s on s.oid = r.relnamespace
join pg_catalog.pg_class as c
    on c.oid = r.oid or c.relkind = 'r' and c.relname = 'dbtools_version' and c.relowner = r.relowner
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
join pg_catalog.pg_roles as o on o.oid = c.relowner
where s.nspname = 'dbtools' and r.relname = $1 and r.relkind = 'r'
order by c.oid <> r.oid, 2
"""

T = TypeVar("T")


async def registry_of(connection: Any) -> Registry | None:
    """Return the registry in the database of *connection*, or None."""
    async with connection.transaction(**SNAPSHOT):
        await connection.execute(PIN_READING)
        try:
            tables = await _trusted_tables(connection, "dbtools_query")
        except DatabaseUnavailable as exc:
            return Registry(revisions=(), queries=(), problem=str(exc))
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
    """Return the table *name* of the registry and the version tables of its owner, if there is one.

    Raise DatabaseUnavailable if the login may not read it, or if it is not trusted.
    """
    tables: Sequence[asyncpg.Record] = await connection.fetch(REGISTRY_TABLES, name)
    if not tables:
        return ()
    kept = tables[0]
    if not kept["readable"]:
        raise DatabaseUnavailable("The login may not read the registry.")
    if not (kept["trusted"] and kept["plain"]):
        raise DatabaseUnavailable(f"The registry is not read: {UNTRUSTED.format(kept['owner'])}")
    return tables


class PostgresqlRecords:
    """The RecordStore in the database at *url*.

    Its event loop has its own thread, so that an interrupt reaches the caller at once and breaks no task.
    *timeout*: seconds that a step may take, where the server's own timeouts are too long.
    """

    DIALECT = "postgresql.asyncpg"
    SCHEMA = SCHEMA

    def __init__(self, url: str, timeout: float | None) -> None:
        self._url = url
        self._timeout = timeout
        self._portal: BlockingPortal | None = None
        self._resources = ExitStack()
        self._connection: Any = None

    def moment(self, text: str) -> datetime:
        """Return the time that *text* means."""
        return datetime.fromisoformat(text)

    @contextmanager
    def begin(self, purpose: Purpose) -> Iterator[None]:
        """Begin a transaction."""
        reads, changes = purpose is Purpose.READ_CALLS, purpose is Purpose.CHANGE_QUERIES
        try:
            if self._connection is None:
                self._connection = self._run(connect, self._url)
            transaction = self._connection.transaction(**(SNAPSHOT if reads else {}))
            self._run(transaction.start)
            self._run(self._connection.execute, PIN_READING if reads else PIN)
            if reads and not self._run(_trusted_tables, self._connection, "dbtools_call"):
                raise DatabaseUnavailable(NO_REGISTRY)
            if changes:
                self.fetch(LOCK, ())
            yield
            if changes:
                self.fetch(NOTIFY, ())
            self._run(transaction.commit)
        except BaseException as exc:
            # A rollback could take long.
            connection, self._connection = self._connection, None
            if connection is not None:
                self._loop().call(connection.terminate)
            if isinstance(exc, DRIVER_ERRORS):
                raise OSError(exc.args[0] if isinstance(exc, asyncpg.PostgresError) else str(exc)) from exc
            raise

    def fetch(self, sql: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        """Run *sql* and return its rows."""
        rows: Sequence[asyncpg.Record] = self._run(self._connection.fetch, sql, *values)
        return [tuple(row) for row in rows]

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run *sql* once for each of *rows*; NUL, which the server cannot store, is replaced."""
        self._run(
            self._connection.executemany, sql, [[_storable_value(each) for each in row] for row in rows]
        )

    def _run(self, step: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
        result: T = self._loop().call(self._run_within_timeout, step, *arguments)
        return result

    def _loop(self) -> BlockingPortal:
        if self._portal is None:
            self._portal = self._resources.enter_context(start_blocking_portal())
        return self._portal

    async def _run_within_timeout(self, step: Callable[..., Coroutine[Any, Any, T]], *arguments: object) -> T:
        async with asyncio.timeout(self._timeout):
            return await step(*arguments)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(TimeoutError, *DRIVER_ERRORS):
                self._run(partial(self._connection.close, timeout=2))
        if self._portal is not None:
            self._portal.call(self._portal.stop, True)  # cancels a step that an interrupt has left
        self._resources.close()
        self._connection = self._portal = None


def _storable_value(value: object) -> object:
    """Return *value* without NUL, as a character or as JSON writes it."""
    return value.replace("\0", "\ufffd").replace("\\u0000", "\\ufffd") if isinstance(value, str) else value
