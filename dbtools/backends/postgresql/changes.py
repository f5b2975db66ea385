"""How a change of a PostgreSQL schema is noticed: by a text that tells states of it apart, or by NOTIFY.

The fingerprint of a schema is made of catalogs that every login may read. It changes with each change that a
tool could show, also with grants and policies; not with rows, statistics and VACUUM. A different text means
that the schema may be another one; the same text that it is not. It is looked at now and then, which needs
no privilege. A migration can announce a change by NOTIFY in its own transaction, through an event trigger or
a hook of Alembic.

The version of a table says which table it is, how it is called, and its columns. A statement locks the
tables that it reads until its transaction ends. Where these are then still as they were when the tools were
made, its rows are of these tables and types, whatever has been changed before or after.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from typing import Any, TypeVar

import asyncpg

from dbtools.backends.port import Heard, Look, Subject
from dbtools.backends.postgresql.connections import answering, connect, end, opened
from dbtools.backends.postgresql.pipeline import DRIVER_ERRORS, assertion, rolled_back, running
from dbtools.backends.postgresql.registry import registry_of
from dbtools.errors import DatabaseUnavailable, DbtoolsError

T = TypeVar("T")
Ask = Callable[[Any], Awaitable[T]]  #: asks a connection

CHANNEL = "dbtools_schema"
INTERVAL = 2.0  #: seconds between two looks
PATIENCE = 10.0  #: seconds that one look may take
NO_LOOK = "The database does not answer whether it has changed."
#: Compiling takes longer than looking. Nothing is set for longer: a pooler lends the connection to others.
BEGIN = "begin read only; set local jit = off"

#: What is temporary is nobody else's.
PERMANENT = "not in (select p.oid from passing as p)"
#: Of roles, those that the login is a member of, or may become.
CONCERNED = "pg_catalog.pg_has_role(x.{}, 'member')"
NOT_SYSTEM = "not pg_catalog.starts_with({}.nspname::pg_catalog.text, 'pg_')"
#: Rows x of the catalogs, which count by their transactions: no VACUUM changes these.
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
#: Rows of catalogs that hold statistics or secrets as well, which count by these columns.
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
NUMBERS = [
    *(f"select {XMIN.format('x')} from pg_catalog.{rows}" for rows in WRITTEN),
    *(f"select {HASH.format(columns)} from pg_catalog.{rows}" for columns, rows in HASHED),
]
FINGERPRINT = f"""
with passing as materialized (select c.oid from pg_catalog.pg_class as c where c.relpersistence = 't'),
written (number) as ({" union all ".join(NUMBERS)})
select pg_catalog.concat_ws(' ', pg_catalog.count(*), pg_catalog.sum(w.number))
from written as w
"""

#: A number of the relation c: of its names, of whether others inherit it and policies guard it, and of the
#: transactions that wrote its columns and the query of a view.
NUMBER = f"""pg_catalog.hashtextextended(
    pg_catalog.concat_ws(
        '.',
        c.relnamespace::pg_catalog.regnamespace::pg_catalog.text, c.relname, c.relhassubclass,
        c.relrowsecurity,
        (select sum({XMIN.format("r")}) from pg_catalog.pg_rewrite as r where r.ev_class = c.oid)
    ),
    (
        select coalesce(pg_catalog.sum({XMIN.format("a")}), '0')::pg_catalog.int8
        from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid and a.attnum > 0
    )
)"""
#: The version of the relation c.
VERSION = f"pg_catalog.concat_ws(' ', c.oid, {NUMBER})"
SEPARATOR = ", "
#: What the server says where a table has not its version any more.
CHANGED = "dbtools_changed"
IS_CONFIRMED = f"""(
    select {NUMBER}
    from pg_catalog.pg_class as c
    where c.oid = $1::pg_catalog.oid
) = $2::pg_catalog.int8"""
#: Fails unless the number of the relation $1 is still $2; it has no rows.
CONFIRMATION = f"select where {assertion(IS_CONFIRMED, CHANGED)} is null"
#: The versions of what the transaction has locked: what its statements read, and not the system's own.
LOCKED = f"""
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

#: What a migration says in its own transaction, so that it is heard when that is committed, and only then.
ANNOUNCEMENT = "select pg_catalog.pg_notify('dbtools_schema', 'migration')"

SCRIPT = r"""-- Tells dbtools of each change of the schema, at its COMMIT.
-- Only a superuser may create event triggers.
-- To take it away:
--     drop event trigger if exists dbtools_changed;
--     drop event trigger if exists dbtools_dropped;
--     drop function if exists public.dbtools_notify_schema();
begin;

drop event trigger if exists dbtools_changed;
drop event trigger if exists dbtools_dropped;
-- Somebody else's function would stay theirs to change, and would run as whoever migrates.
drop function if exists public.dbtools_notify_schema();

create function public.dbtools_notify_schema()
returns event_trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    -- What is temporary concerns nobody else.
    if tg_event = 'sql_drop' then
        if not exists (select from pg_event_trigger_dropped_objects() as d where not d.is_temporary) then
            return;
        end if;
    elsif not exists (
        select
        from pg_event_trigger_ddl_commands() as c
        where coalesce(c.schema_name, '') not like 'pg\_temp%'
    ) then
        return;
    end if;
    perform pg_notify('dbtools_schema', tg_tag);
end
$$;

create event trigger dbtools_changed on ddl_command_end execute function public.dbtools_notify_schema();
create event trigger dbtools_dropped on sql_drop execute function public.dbtools_notify_schema();

commit;
"""


async def fingerprint(connection: Any) -> str:
    """Return the text of the schema that *connection* sees."""
    return str(await connection.fetchval(FINGERPRINT))


async def versions_locked(connection: Any) -> tuple[str, ...]:
    """Return the versions of the tables that the transaction of *connection* has read."""
    return tuple(row["version"] for row in await connection.fetch(LOCKED))


def together(versions: Iterable[str]) -> str:
    """Return the version of a view: its own among *versions*, and those of the views beneath it."""
    return SEPARATOR.join(versions)


@lru_cache(maxsize=1_000)
def confirmation(versions: tuple[str, ...]) -> bytes:
    """Return the messages that fail unless each table is still as of *versions*."""
    single = dict.fromkeys(each for version in versions for each in version.split(SEPARATOR))
    return b"".join(running(CONFIRMATION, *each.split()) for each in single)


class Control:
    """Keeps one connection, on which the server reads the catalog three times as fast as on a new one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._ears: list[Heard] = []
        self._asking = asyncio.Lock()

    @asynccontextmanager
    async def watch(self, heard: Heard, ask: Ask[Hashable]) -> AsyncIterator[Look]:
        """Lend what looks by *ask*; a notification, and a lost connection, are *heard*."""
        self._ears.append(heard)
        try:
            await self.answer(_nothing, NO_LOOK, PATIENCE)
            yield partial(self.answer, ask, NO_LOOK, PATIENCE)
        finally:
            self._ears.remove(heard)
            if not (self._ears or self._asking.locked()):
                await self.close()

    async def answer(self, ask: Ask[T], failing: str, patience: float) -> T:
        """Return what *ask* answers within *patience* seconds, once nobody else is asking.

        Raise DatabaseUnavailable, which says *failing*, where the server does not answer.
        """
        async with self._asking:
            with answering(failing):
                async with asyncio.timeout(patience):
                    if self._connection is not None:
                        with suppress(*DRIVER_ERRORS):
                            return await self._asked(ask)
                    return await self._asked(ask)

    async def _asked(self, ask: Ask[T]) -> T:
        try:
            if self._connection is None:
                self._connection = await connect(self._url)
                await listen(self._connection, self._hear)
            return await ask(self._connection)
        except DbtoolsError:
            raise
        except BaseException:
            # Cancelled, it may be in the middle of something.
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.terminate()
            raise

    def _hear(self) -> None:
        for heard in self._ears:
            heard()

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await end(connection)


async def listen(connection: Any, heard: Heard) -> None:
    """Have *heard* called when the database tells of a change, where it can, and when the connection ends."""
    connection.add_termination_listener(lambda _: heard())
    if connection.local:
        # It would listen on a connection that is soon another's.
        return
    # A server in recovery lets nobody listen: the looks remain.
    with suppress(asyncpg.PostgresError):
        await connection.add_listener(CHANNEL, lambda *_: heard())


async def _nothing(_: Any) -> None:
    """Ask nothing: there is a connection, which listens, and that is all."""


async def _schema(connection: Any) -> str:
    async with rolled_back(connection, BEGIN):
        return await fingerprint(connection)


async def _registry(connection: Any) -> Hashable:
    try:
        return await registry_of(connection)
    except DatabaseUnavailable as exc:
        # It is there, and not for this login, or not to be trusted: that may change as well.
        return str(exc)


#: How each subject is looked at.
LOOKS: Mapping[Subject, Ask[Hashable]] = {Subject.SCHEMA: _schema, Subject.REGISTRY: _registry}


async def install_watch(url: str) -> None:
    """Run the script in the database at *url*, or raise DatabaseUnavailable."""
    async with opened(url, "The event triggers cannot be created.") as connection:
        try:
            await connection.execute(SCRIPT)
        except asyncpg.InsufficientPrivilegeError as exc:
            raise DatabaseUnavailable(
                "Only a superuser may create event triggers.",
                hint="Without them changes are seen by looking; `dbtools.alembic.notify` needs no privilege.",
            ) from exc
