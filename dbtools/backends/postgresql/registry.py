"""The registry in a PostgreSQL database. A URL in, what it holds out; or changes in, written at once."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple

import asyncpg

from dbtools.backends.postgresql.location import connect
from dbtools.backends.postgresql.trust import HAS_FOREIGN_TYPE, PIN, TRUSTED
from dbtools.backends.registered import (
    Change,
    Disable,
    Enable,
    Registered,
    Registry,
    Remove,
    Save,
)
from dbtools.errors import DatabaseUnavailable

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
PATIENCE = f"{PIN}; set local statement_timeout = 5000"
REVISIONS = """
select version_num::pg_catalog.text
from {}
where pg_catalog.starts_with(version_num::pg_catalog.text, 'registry_')
order by 1
"""
QUERIES = """
select
    coalesce(name, '') as name,
    coalesce(version, 0) as version,
    coalesce(pg_catalog.left(text, 1000000), '') as text,
    coalesce(enabled, false) as enabled,
    pg_catalog.to_char(changed_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as changed_at
from dbtools.dbtools_query
order by name collate "C", version desc
"""
SAVE = """
insert into dbtools.dbtools_query (name, version, text, enabled, changed_at)
select $1::pg_catalog.text, coalesce(pg_catalog.max(version), 0) + 1, $2, true, pg_catalog.now()
from dbtools.dbtools_query
where name = $1
"""
PRUNE = """
delete from dbtools.dbtools_query
where name = $1
and version not in (
    select version
    from dbtools.dbtools_query
    where name = $1
    order by version desc
    limit 2
)
"""
REMOVE = "delete from dbtools.dbtools_query where name = $1"
SWITCH = """
update dbtools.dbtools_query
set enabled = {}, changed_at = pg_catalog.now()
where name = $1
and version = (select pg_catalog.max(version) from dbtools.dbtools_query where name = $1)
"""
#: Two that save at once would take the same version.
LOCK = "lock table dbtools.dbtools_query in share row exclusive mode"
#: Servers hear of it when it is committed.
TELL = "select pg_catalog.pg_notify('dbtools_schema', 'registry')"
#: Each takes the first values of its change.
STATEMENTS: Mapping[type[Change], Sequence[tuple[str, int]]] = {
    Save: ((SAVE, 2), (PRUNE, 1)),
    Remove: ((REMOVE, 1),),
    Enable: ((SWITCH.format("true"), 1),),
    Disable: ((SWITCH.format("false"), 1),),
}


async def read_registry(url: str) -> Registry | None:
    """Return what the registry in the database at *url* holds, None where there is none."""
    async with _connection(url, "The registry cannot be read") as connection:
        return await registry_of(connection)


async def registry_of(connection: "asyncpg.Connection[asyncpg.Record]") -> Registry | None:
    """Return what the registry holds in the database of *connection*, None where there is none."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(PATIENCE)
        tables = await trusted_tables(connection, "dbtools_query")
        if not tables:
            return None
        revisions = [
            revision
            for table in tables
            if table["name"] == "dbtools_version"
            and all(table[fact] for fact in ("readable", "plain", "trusted"))
            for (revision,) in await connection.fetch(REVISIONS.format(table["place"]))
        ]
        queries = [Registered(**record) for record in await connection.fetch(QUERIES)]
        return Registry(revisions=tuple(revisions), queries=tuple(queries))


async def trusted_tables(
    connection: "asyncpg.Connection[asyncpg.Record]", name: str
) -> Sequence[asyncpg.Record]:
    """Return the table *name* of the registry with the version tables of its owner, nothing where none is.

    Raise DatabaseUnavailable where the login may not read it, or must not.
    """
    tables = await connection.fetch(TABLES, name)
    kept = [table for table in tables if table["name"] == name]
    if not kept:
        return ()
    if not kept[0]["readable"]:
        raise DatabaseUnavailable("The login may not read the registry.")
    if not (kept[0]["trusted"] and kept[0]["plain"]):
        owner = kept[0]["owner"]
        raise DatabaseUnavailable(
            f"The registry is {owner}'s, who is neither the database's owner nor a role of the login, "
            "or it is not as dbtools made it: it is not read."
        )
    return tables


async def change_registry(url: str, changes: Sequence[Change]) -> None:
    """Make all *changes* in the registry in the database at *url*, or none."""
    async with _connection(url, "The registry cannot be written") as connection, connection.transaction():
        await connection.execute(PIN)
        await connection.execute(LOCK)
        for change in changes:
            for statement, number in STATEMENTS[type(change)]:
                await connection.execute(statement, *astuple(change)[:number])
        await connection.execute(TELL)


@asynccontextmanager
async def _connection(url: str, failing: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    """Lend a connection; *failing* is what an error means."""
    connection = await connect(url)
    try:
        yield connection
    except asyncpg.PostgresError as exc:
        raise DatabaseUnavailable(f"{failing}: {exc.args[0]}.") from exc
    except (OSError, asyncpg.InterfaceError) as exc:
        raise DatabaseUnavailable(f"{failing}.") from exc
    finally:
        await connection.close(timeout=5)
