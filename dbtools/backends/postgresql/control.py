"""How a PostgreSQL database is followed: one connection that reads, listens and looks. A URL in, values out.

A migration can announce a change by NOTIFY in its own transaction, through an event trigger or a hook of
Alembic. Changes that nobody announces are found by looking, which needs no privilege.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import asyncpg

from dbtools.backends.port import Heard, Look, Subject
from dbtools.backends.postgresql.connections import (
    DRIVER_ERRORS,
    answering,
    connect,
    end,
    is_pooled,
    opened,
    rolled_back,
)
from dbtools.backends.postgresql.registry import registry_of
from dbtools.backends.postgresql.versions import Ask, fingerprint, newest
from dbtools.errors import DatabaseUnavailable, DbtoolsError

T = TypeVar("T")

CHANNEL = "dbtools_schema"
INTERVAL = 2.0  #: seconds between two looks
PATIENCE = 10.0  #: seconds that one look may take
NO_LOOK = "The database does not answer whether it has changed."
#: Compiling takes longer than looking. Nothing is set for longer: a pooler lends the connection to others.
BEGIN = "begin read only; set local jit = off"

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


class Control:
    """Keeps one connection, on which the server reads the catalog three times as fast as on a new one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Any = None
        self._listens = False  #: whether the connection has been told to
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
                self._connection, self._listens = await connect(self._url), False
            if self._ears and not self._listens:
                await listen(self._connection, self._hear)
                self._listens = True
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
    if is_pooled(connection):
        # It would listen on a connection that is soon another's.
        return
    # A server in recovery lets nobody listen: the looks remain.
    with suppress(asyncpg.PostgresError):
        await connection.add_listener(CHANNEL, lambda *_: heard())


async def _nothing(_: Any) -> None:
    """Ask nothing: there is a connection, which listens, and that is all."""


async def look_at_schema(connection: Any) -> str:
    """Return the stamp of the schema."""
    async with rolled_back(connection, BEGIN):
        return await fingerprint(connection)


async def look_at_registry(connection: Any) -> Hashable:
    """Return what the registry holds, which is read where anybody has written anything."""
    return await newest(connection, _registry)


async def _registry(connection: Any) -> Hashable:
    try:
        return await registry_of(connection)
    except DatabaseUnavailable as exc:
        # It is there, and not for this login, or not to be trusted: that may change as well.
        return str(exc)


#: How each subject is looked at.
LOOKS: Mapping[Subject, Ask[Hashable]] = {
    Subject.SCHEMA: look_at_schema,
    Subject.REGISTRY: look_at_registry,
}


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
