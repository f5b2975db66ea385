"""What has a PostgreSQL server tell of each change of the schema: a script, which needs a superuser."""

import asyncpg

from dbtools.backends.postgresql.location import connect
from dbtools.backends.postgresql.transactions import DRIVER_ERRORS
from dbtools.errors import DatabaseUnavailable

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


async def install_watch(url: str) -> None:
    """Run the script in the database at *url*, or raise DatabaseUnavailable."""
    connection = await connect(url)
    try:
        await connection.execute(SCRIPT)
    except asyncpg.InsufficientPrivilegeError as exc:
        raise DatabaseUnavailable(
            "Only a superuser may create event triggers.",
            hint="Without them changes are seen by looking; `dbtools.alembic.notify` needs no privilege.",
        ) from exc
    except DRIVER_ERRORS as exc:
        raise DatabaseUnavailable("The event triggers cannot be created.") from exc
    finally:
        await connection.close(timeout=5)
