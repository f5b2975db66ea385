"""Notice changes to a PostgreSQL schema. A connection in; fingerprints, versions and notifications out.

The fingerprint of a schema comes from catalogs that every login may read. It changes with everything that a
tool could show, including grants and policies, but not with rows, statistics and VACUUM. Polling it needs
no privilege. A migration can also announce a change by NOTIFY, through an event trigger or a hook of
Alembic.

The version of a table stands for its identity, name and columns. A statement locks the tables that it reads
until its transaction ends. If they then have the versions of the snapshot, its rows come from these tables
and have these types, whatever changes before or after.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import unquote

import asyncpg

from dbtools.backends.caches import bounded_cache
from dbtools.backends.pool import IDLE
from dbtools.backends.port import OnChange
from dbtools.backends.postgresql.connection.connections import answering, connect, decode, end
from dbtools.backends.postgresql.connection.pipeline import DRIVER_ERRORS, assertion, messages, rolled_back
from dbtools.backends.postgresql.schema.names import NAMES_NUMBER
from dbtools.errors import DatabaseUnavailable, Refused

T = TypeVar("T")
Read = Callable[[Any], Awaitable[T]]  #: reads something on a connection

CHANNEL = "dbtools_schema"
INTERVAL = 2.0  #: seconds between two polls
POLL_TIMEOUT = 10.0  #: seconds that a poll may take
UNANSWERED = "The database does not answer whether its schema has changed."
#: JIT compilation would take longer than the poll. It is off for the transaction only, because of poolers.
BEGIN_POLL = "begin read only; set local jit = off"

#: Temporary relations belong to one session.
PERMANENT = "not in (select r.oid from temporary_relations as r)"
#: Selects the roles of which the login is a member.
CONCERNED = "pg_catalog.pg_has_role(x.{}, 'member')"
NOT_SYSTEM = "not pg_catalog.starts_with({}.nspname::pg_catalog.text, 'pg_')"
#: Catalog rows x whose changes show in xmin, which VACUUM keeps.
WRITTEN = (
    f"pg_attribute as x where x.attrelid >= '16384' and x.attnum > 0 and x.attrelid {PERMANENT}",
    f"pg_attrdef as x where x.adrelid {PERMANENT}",
    f"pg_constraint as x where x.oid >= '16384' and x.conrelid {PERMANENT}",
    f"pg_index as x where x.indexrelid >= '16384' and x.indisunique and x.indrelid {PERMANENT}",
    "pg_inherits as x",
    f"pg_rewrite as x where x.oid >= '16384' and x.ev_class {PERMANENT}",
    "pg_description as x where x.objoid >= '16384'",
    f"""pg_type as x
    join pg_catalog.pg_namespace as n on n.oid = x.typnamespace
    where x.oid >= '16384' and {NOT_SYSTEM.format("n")}""",
    "pg_enum as x",
    *(f"pg_{name} as x where x.oid >= '16384'" for name in ("proc", "operator", "cast")),
    "pg_policy as x",
    f"pg_namespace as x where {NOT_SYSTEM.format('x')}",
    f"pg_auth_members as x where {CONCERNED.format('member')}",
)
#: Catalog rows x that also hold statistics or secrets: only these columns are hashed.
HASHED = (
    (
        "x.oid, x.relname, x.relnamespace, x.relkind, x.relowner, x.relrowsecurity, x.relforcerowsecurity, "
        "x.relispartition, x.relispopulated, x.reloptions, x.relacl",
        "pg_class as x where x.oid >= '16384' and x.relkind in ('r', 'v', 'm', 'p', 'f') "
        "and x.relpersistence <> 't'",
    ),
    (
        "x.oid, x.rolname, x.rolsuper, x.rolinherit, x.rolbypassrls",
        f"pg_roles as x where {CONCERNED.format('oid')}",
    ),
)
XMIN = "{}.xmin::pg_catalog.text::pg_catalog.int8"
HASH = "pg_catalog.hashtextextended(pg_catalog.concat_ws(' ', {}), '0')"
NUMBER_PARTS = [
    *(f"select {XMIN.format('x')} from pg_catalog.{rows}" for rows in WRITTEN),
    *(f"select {HASH.format(columns)} from pg_catalog.{rows}" for columns, rows in HASHED),
]
FINGERPRINT = f"""
with temporary_relations as materialized (
    select c.oid
    from pg_catalog.pg_class as c
    where c.relpersistence = 't'
),
written (number) as ({" union all ".join(NUMBER_PARTS)})
select pg_catalog.concat_ws(' ', pg_catalog.count(*), pg_catalog.sum(w.number))
from written as w
"""

#: A number for the names of relation c, its columns, its query if it is a view, and whether it has children
#: or row-level security.
TABLE_NUMBER = f"""pg_catalog.hashtextextended(
    pg_catalog.concat_ws(
        '.',
        c.relnamespace::pg_catalog.regnamespace::pg_catalog.text, c.relname, c.relhassubclass,
        c.relrowsecurity,
        (select pg_catalog.sum({XMIN.format("r")}) from pg_catalog.pg_rewrite as r where r.ev_class = c.oid)
    ),
    (
        select coalesce(pg_catalog.sum({XMIN.format("a")}), '0')::pg_catalog.int8
        from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid and a.attnum > 0
    )
)"""
#: The version of the relation c.
VERSION = f"pg_catalog.concat_ws(' ', c.oid, {TABLE_NUMBER})"
SEPARATOR = ", "
NAMED_VALUES = 3  #: in the version of names; the version of a table has two
#: The mark of an assertion that a table does not have its version.
CHANGED = "dbtools_changed"
IS_CONFIRMED = f"""(
    select {TABLE_NUMBER}
    from pg_catalog.pg_class as c
    where c.oid = $1::pg_catalog.oid
) = $2::pg_catalog.int8"""
#: Fails unless relation $1 has number $2; has no rows.
CONFIRMATION = f"select where {assertion(IS_CONFIRMED, CHANGED)} is null"
SAME_NAMES = f"({NAMES_NUMBER}) = $3::pg_catalog.int8"
#: Fails unless the names $1 and $2 of an operator's SQL have number $3; has no rows.
NAMES_CONFIRMATION = f"select where {assertion(SAME_NAMES, CHANGED)} is null"
#: The versions of the relations that the transaction has locked, which are those that its statements read.
TABLE_VERSIONS = f"""
select {VERSION} as version
from pg_catalog.pg_class as c
where c.oid >= '16384'
    and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and c.oid in (
        select l.relation
        from pg_catalog.pg_locks as l
        where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation'
    )
order by c.oid
"""

#: Run by a migration in its own transaction, so that the notification arrives with the commit.
ANNOUNCEMENT = "select pg_catalog.pg_notify('dbtools_schema', 'migration')"

TRIGGER_SCRIPT = r"""-- Notifies dbtools of each schema change, at its COMMIT.
-- Only a superuser may create event triggers.
-- To remove it:
--     drop event trigger if exists dbtools_changed;
--     drop event trigger if exists dbtools_dropped;
--     drop function if exists public.dbtools_notify_schema();
begin;

drop event trigger if exists dbtools_changed;
drop event trigger if exists dbtools_dropped;
-- The owner of an existing function could change it, and it would run with the privileges of a migration.
drop function if exists public.dbtools_notify_schema();

create function public.dbtools_notify_schema()
returns event_trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    -- Temporary objects do not concern other sessions.
    if (case tg_event
        when 'sql_drop'
        then exists (select from pg_event_trigger_dropped_objects() as d where not d.is_temporary)
        else exists (
            select
            from pg_event_trigger_ddl_commands() as c
            where coalesce(c.schema_name, '') not like 'pg\_temp%'
        )
    end) then
        perform pg_notify('dbtools_schema', tg_tag);
    end if;
end
$$;

create event trigger dbtools_changed on ddl_command_end execute function public.dbtools_notify_schema();
create event trigger dbtools_dropped on sql_drop execute function public.dbtools_notify_schema();

commit;
"""


async def fingerprint(connection: Any) -> str:
    """Return the fingerprint of the schema that *connection* sees."""
    return str(await connection.fetchval(FINGERPRINT))


def view_version(versions: Iterable[str]) -> str:
    """Return the version of a view from the *versions* of itself and of the views that it reads."""
    return SEPARATOR.join(versions)


@bounded_cache
def confirmation(versions: tuple[str, ...]) -> bytes:
    """Return messages that fail unless all tables, and names in operators' SQL, have their *versions*."""
    single = dict.fromkeys(each for version in versions for each in version.split(SEPARATOR))
    return b"".join(_confirm_messages(each.split()) for each in single)


def are_named(versions: Iterable[str]) -> bool:
    """Return whether one of *versions* is that of names in operators' SQL."""
    return any(len(version.split()) == NAMED_VALUES for version in versions if SEPARATOR not in version)


def _confirm_messages(values: Sequence[str]) -> bytes:
    if len(values) == NAMED_VALUES:
        return messages(NAMES_CONFIRMATION, *map(unquote, values))
    return messages(CONFIRMATION, *values)


async def read_stamp(connection: Any) -> str:
    """Return the fingerprint, in a transaction without JIT compilation."""
    async with rolled_back(connection, BEGIN_POLL):
        return await fingerprint(connection)


class Control:
    """The connection of a login that everything but calls shares: it costs more than what is read on it.

    One reader after another has it. Each leaves the session as it was.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._listeners: list[OnChange] = []
        self._reading = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None  #: closes it once it is idle

    @asynccontextmanager
    async def watch(self, on_change: OnChange) -> AsyncIterator[None]:
        """Call *on_change* on each notification, and when the connection is lost; a read opens another."""
        self._listeners.append(on_change)
        try:
            yield
        finally:
            self._listeners.remove(on_change)
            if not (self._listeners or self._reading.locked()):
                await self.close()

    async def answer(self, read: Read[T], failing: str, timeout: float) -> T:
        """Return the result of *read* within *timeout* seconds, after other reads have ended.

        Raise DatabaseUnavailable with the message *failing* if the server does not answer.
        """
        async with self._reading:
            with answering(failing):
                async with asyncio.timeout(timeout):
                    if self._connection is not None:
                        with suppress(*DRIVER_ERRORS):
                            return await self._answer(read)
                    return await self._answer(read)

    async def _answer(self, read: Read[T]) -> T:
        try:
            if self._connection is None:
                self._connection = await connect(self._url)
                await decode(self._connection)
                await listen(self._connection, self._notify)
            return await read(self._connection)
        except Refused:
            raise
        except BaseException:
            # A cancelled statement may still be running.
            self._terminate()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(IDLE, self._close_idle)

    async def renew(self) -> None:
        """Close the connection if its session may remember how things were before a change."""
        async with self._reading:
            if self._connection is not None and self._connection.is_spent:
                await self.close()

    def _close_idle(self) -> None:
        """Close the connection, which has been idle for IDLE."""
        if not (self._listeners or self._reading.locked()):
            self._terminate()

    def _terminate(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()

    def _notify(self) -> None:
        for on_change in self._listeners:
            on_change()

    async def close(self) -> None:
        """Close the connection, if it is open."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await end(connection)


async def listen(connection: Any, on_change: OnChange) -> None:
    """Call *on_change* when the database announces a change, and when the connection ends."""
    connection.add_termination_listener(lambda _: on_change())
    if connection.local:
        # The pooler soon gives the connection to other clients.
        return
    # A server in recovery rejects LISTEN: polls remain.
    with suppress(asyncpg.PostgresError):
        await connection.add_listener(CHANNEL, lambda *_: on_change())


async def install_watch(connection: Any) -> None:
    """Run the script on *connection*, or raise DatabaseUnavailable."""
    try:
        await connection.execute(TRIGGER_SCRIPT)
    except asyncpg.InsufficientPrivilegeError as exc:
        raise DatabaseUnavailable(
            "Only a superuser may create event triggers.",
            hint="Without them, dbtools polls; `dbtools.alembic.notify` needs no privilege.",
        ) from exc
