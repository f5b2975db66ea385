"""Whose tables dbtools touches: SQL that tells whom the login trusts, and which tables would run code.

An operator is found by its name, and one that fits exactly wins over the system's own, in whichever schema of
the search path it is. So what is here runs, and what goes with it, where PATH is the search path.
"""

#: Where nobody else may create anything.
PATH = "pg_catalog, pg_temp"
#: For one transaction.
PIN = f"set local search_path = {PATH}"

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

#: What a migration meets and must not: tables of strangers, and code in those of others than the login and
#: superusers. The version tables are those in `:schemas`. The expressions are the registry's own.
STRANGE = f"""{TRUSTED},
met as (
    select
        c.oid,
        c.relowner as owner,
        pg_catalog.format('%I.%I', n.nspname, c.relname) as place,
        c.relname in ('dbtools_query', 'dbtools_call', 'dbtools_version') and c.relkind <> 'r'
        or c.relkind in ('r', 'p', 'f')
        and (c.relhasrules or c.relhastriggers or c.relrowsecurity or c.relhassubclass) as acting,
        {HAS_FOREIGN_TYPE} as foreign,
        (o.rolname = session_user or o.rolsuper) and c.relname <> 'dbtools_version' as own
    from pg_catalog.pg_class as c
    join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    join pg_catalog.pg_roles as o on o.oid = c.relowner
    where c.relkind in ('r', 'p', 'v', 'm', 'f')
        and (
            n.nspname = 'dbtools'
            or c.relname = 'dbtools_version'
            and n.nspname = any(cast(:schemas as pg_catalog.name[]))
        )
),
expressions (relation, text) as (
    select k.conrelid, pg_catalog.pg_get_expr(k.conbin, k.conrelid)
    from pg_catalog.pg_constraint as k
    where k.contype = 'c'
    union all
    select d.adrelid, pg_catalog.pg_get_expr(d.adbin, d.adrelid)
    from pg_catalog.pg_attrdef as d
    union all
    select i.indrelid, ''
    from pg_catalog.pg_index as i
    where i.indexprs is not null
        or i.indpred is not null
)
select 'the schema dbtools is somebody else''s'
from pg_catalog.pg_namespace as n
where n.nspname = 'dbtools'
    and n.nspowner not in (select t.role from trusted as t)
union all
select pg_catalog.concat(m.place, ' is somebody else''s')
from met as m
where m.owner not in (select t.role from trusted as t)
union all
select pg_catalog.concat(m.place, ' has triggers, checks, defaults or other code that would run')
from met as m
where not m.own
    and (
        m.acting
        or m.foreign
        or exists (
            select
            from expressions as e
            where e.relation = m.oid
                and e.text not in ('(version >= 1)', 'true')
        )
    )
"""
