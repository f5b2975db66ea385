"""What tells one state of a PostgreSQL schema from another. A connection in, a text out.

Every login may read the catalogs that it is made of. It changes with each change that a tool could show, also
with grants and policies; not with rows, statistics and VACUUM. A different text means that the schema may be
another one; the same text that it is not.
"""

from typing import Any
from weakref import WeakKeyDictionary

#: Rows of the catalogs by their transactions, which no VACUUM changes; of relations, what is no statistic.
#: What is temporary is nobody else's; of roles, those that the login is a member of, or may become.
FINGERPRINT = """
with recursive entered (oid) as (
    select r.oid
    from pg_catalog.pg_roles as r
    where r.rolname = current_user
    union
    select m.roleid
    from pg_catalog.pg_auth_members as m
    join entered as e on e.oid = m.member
),
passing as materialized (
    select c.oid
    from pg_catalog.pg_class as c
    where c.relpersistence = 't'
),
written (catalog, rows, sum) as (
    select
        'class',
        count(*),
        sum(
            pg_catalog.hashtextextended(
                pg_catalog.concat_ws(
                    ' ',
                    c.oid,
                    c.relname,
                    c.relnamespace,
                    c.relkind,
                    c.relowner,
                    c.relrowsecurity,
                    c.relforcerowsecurity,
                    c.relispartition,
                    c.relispopulated,
                    c.reloptions,
                    c.relacl
                ),
                '0'
            )::pg_catalog.numeric
        )
    from pg_catalog.pg_class as c
    where c.oid >= '16384'
        and c.relkind in ('r', 'v', 'm', 'p', 'f')
        and c.relpersistence <> 't'
    union all
    select 'attribute', count(*), sum(a.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_attribute as a
    where a.attrelid >= '16384'
        and a.attnum > 0
        and a.attrelid not in (select p.oid from passing as p)
    union all
    select 'attrdef', count(*), sum(d.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_attrdef as d
    where d.adrelid not in (select p.oid from passing as p)
    union all
    select 'constraint', count(*), sum(k.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_constraint as k
    where k.oid >= '16384'
        and k.conrelid not in (select p.oid from passing as p)
    union all
    select 'index', count(*), sum(i.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_index as i
    where i.indexrelid >= '16384'
        and i.indisunique
        and i.indrelid not in (select p.oid from passing as p)
    union all
    select 'inherits', count(*), sum(h.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_inherits as h
    union all
    select 'rewrite', count(*), sum(r.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_rewrite as r
    where r.oid >= '16384'
        and r.ev_class not in (select p.oid from passing as p)
    union all
    select 'description', count(*), sum(d.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_description as d
    where d.objoid >= '16384'
    union all
    select 'type', count(*), sum(t.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_type as t
    join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
    where t.oid >= '16384'
        and not pg_catalog.starts_with(n.nspname::pg_catalog.text, 'pg_')
    union all
    select 'enum', count(*), sum(e.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_enum as e
    union all
    select 'proc', count(*), sum(f.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_proc as f
    where f.oid >= '16384'
    union all
    select 'policy', count(*), sum(y.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_policy as y
    union all
    select 'namespace', count(*), sum(n.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_namespace as n
    where not pg_catalog.starts_with(n.nspname::pg_catalog.text, 'pg_')
    union all
    select
        'role',
        count(*),
        sum(
            pg_catalog.hashtextextended(
                pg_catalog.concat_ws(' ', r.oid, r.rolname, r.rolsuper, r.rolinherit, r.rolbypassrls), '0'
            )::pg_catalog.numeric
        )
    from pg_catalog.pg_roles as r
    where r.oid in (select e.oid from entered as e)
        or pg_catalog.current_setting('is_superuser')::pg_catalog.bool
    union all
    select 'member', count(*), sum(m.xmin::pg_catalog.text::pg_catalog.int8)
    from pg_catalog.pg_auth_members as m
    where m.member in (select e.oid from entered as e)
        or pg_catalog.current_setting('is_superuser')::pg_catalog.bool
)
select pg_catalog.string_agg(pg_catalog.concat_ws(':', w.catalog, w.rows, w.sum), ' ' order by w.catalog)
from written as w
"""
#: Which transactions have ended: while it is the same, no other one has written anything.
#: On a standby it does not tell, and each moment is another one.
ENDED = """
select case
    when pg_catalog.pg_is_in_recovery()
    then pg_catalog.clock_timestamp()::pg_catalog.text
    else pg_catalog.pg_current_snapshot()::pg_catalog.text
end
"""


#: What connections have seen last: when, and the text.
SEEN: "WeakKeyDictionary[Any, tuple[str, str]]" = WeakKeyDictionary()


async def fingerprint(connection: Any) -> str:
    """Return the text of the schema that *connection* sees; in no time where nobody has written since."""
    ended = str(await connection.fetchval(ENDED))
    seen = SEEN.get(connection)
    if seen is None or seen[0] != ended:
        seen = ended, str(await connection.fetchval(FINGERPRINT))
        SEEN[connection] = seen
    return seen[1]
