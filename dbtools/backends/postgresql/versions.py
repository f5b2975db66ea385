"""What tells one state of a table from another: which table it is, how it is called, and its columns.

A statement locks the tables that it reads until its transaction ends. Where these are then still as they were
when the tools were made, its rows are of these tables and types, whatever has been changed before or after.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: A number of the relation c in the schema n: of its names, and of the transactions that wrote its columns.
NUMBER = """
pg_catalog.hashtextextended(pg_catalog.concat_ws('.', n.nspname, c.relname), '0')::pg_catalog.numeric
+ (
    select pg_catalog.sum(a.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_attribute as a
    where a.attrelid = c.oid
        and a.attnum > 0
)
+ c.relhassubclass::pg_catalog.int4::pg_catalog.numeric
"""
#: Of a view also of the transaction that wrote its query.
OF_VIEW = f"""{NUMBER}
+ (
    select coalesce(pg_catalog.sum(r.xmin::pg_catalog.text::pg_catalog.int8), '0')
    from pg_catalog.pg_rewrite as r
    where r.ev_class = c.oid
        and r.ev_type = '1'
)
"""
#: Of a table with partitions or heirs also of the transactions that made these so.
OF_PARENT = f"""{NUMBER}
+ (
    with recursive heirs (relation, written) as (
        select i.inhrelid, i.xmin
        from pg_catalog.pg_inherits as i
        where i.inhparent = c.oid
        union
        select i.inhrelid, i.xmin
        from heirs as h
        join pg_catalog.pg_inherits as i on i.inhparent = h.relation
    )
    select coalesce(pg_catalog.sum(h.written::pg_catalog.text::pg_catalog.int8), '0')
    from heirs as h
)
"""
#: By the kind of a version, which costs a call no more than it must.
NUMBERS = {"table": NUMBER, "view": OF_VIEW, "parent": OF_PARENT}
SEPARATOR = ", "
TABLES = """
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
"""
VERSION = f"""case
    when c.relkind = 'v' then pg_catalog.concat_ws(' ', 'view', c.oid, {OF_VIEW})
    when c.relhassubclass then pg_catalog.concat_ws(' ', 'parent', c.oid, {OF_PARENT})
    else pg_catalog.concat_ws(' ', 'table', c.oid, {NUMBER})
end"""
#: Of the tables $1.
VERSIONS = f"select c.oid as number, {VERSION} as version {TABLES} where c.oid = any($1::pg_catalog.oid[])"
#: Of what the transaction has locked: what its statements read, and not the system's own.
LOCKED = f"""
select {VERSION} as version
{TABLES}
where c.oid >= '16384'
    and c.relkind in ('r', 'p', 'v', 'm', 'f')
    and c.oid in (
        select l.relation
        from pg_catalog.pg_locks as l
        where l.pid = pg_catalog.pg_backend_pid()
            and l.locktype = 'relation'
    )
order by c.oid
"""


async def versions_of(connection: Any, numbers: Sequence[int]) -> Mapping[int, str]:
    """Return the versions of the tables *numbers*, by number."""
    rows = await connection.fetch(VERSIONS, numbers)
    return {row["number"]: row["version"] for row in rows}


async def versions_locked(connection: Any) -> tuple[str, ...]:
    """Return the versions of the tables that the transaction of *connection* has read."""
    return tuple(row["version"] for row in await connection.fetch(LOCKED))


def together(versions: Iterable[str]) -> str:
    """Return the version of a view: its own among *versions*, and those of the views beneath it."""
    return SEPARATOR.join(versions)


def confirmation(versions: Iterable[str]) -> str:
    """Return a statement that divides by zero unless each table is still as of *versions*."""
    single = dict.fromkeys(each for version in versions for each in version.split(SEPARATOR))
    terms = (
        f"(select {NUMBERS[kind]} {TABLES} where c.oid = '{int(oid)}') is not distinct from '{int(number)}'"
        for kind, oid, number in (each.split() for each in single)
    )
    return f"select 1 / ({' and '.join(terms)})::pg_catalog.int4"
