"""What is asked of the system catalogs to write the grants of a login."""

#: The relations with the numbers $1, or with the schemas $2 and the names $3.
RELATIONS = """
select
    c.oid as number,
    n.nspname::text as schema,
    c.relname::text as name,
    c.relkind::text as kind,
    c.relrowsecurity as row_security,
    c.relkind = 'v' and exists (
        select
        from pg_catalog.pg_options_to_table(c.reloptions) as o
        where o.option_name = 'security_invoker'
            and o.option_value::pg_catalog.bool
    ) as invoker,
    array(
        select a.attname::text
        from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid
            and a.attnum <> 0
            and not a.attisdropped
        order by a.attnum
    ) as names,
    array(
        select a.attnum
        from pg_catalog.pg_attribute as a
        where a.attrelid = c.oid
            and a.attnum <> 0
            and not a.attisdropped
        order by a.attnum
    ) as columns
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where (
        c.oid = any($1::pg_catalog.oid[])
        or (n.nspname::text, c.relname::text) in (
            select *
            from rows from (
                pg_catalog.unnest($2::pg_catalog.text[]),
                pg_catalog.unnest($3::pg_catalog.text[])
            )
        )
    )
    and not pg_catalog.starts_with(n.nspname::text, 'pg_')
    and n.nspname <> 'information_schema'
order by n.nspname, c.relname
"""

#: What the queries of the views $1 name beside tables: only what is not the system's own is kept of it.
OBJECTS = """
select distinct
    n.nspname::text as schema,
    case
        when f.oid is not null and not pg_catalog.has_function_privilege('public', f.oid, 'execute')
        then pg_catalog.format(
            '%I.%I(%s)', m.nspname, f.proname, pg_catalog.pg_get_function_identity_arguments(f.oid)
        )
    end as closed_function
from pg_catalog.pg_rewrite as r
join pg_catalog.pg_depend as d
    on d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid
    and d.objid = r.oid
left join pg_catalog.pg_operator as o
    on d.refclassid = 'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid
    and o.oid = d.refobjid
left join pg_catalog.pg_proc as f
    on d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid
    and f.oid = d.refobjid
    or f.oid = o.oprcode::pg_catalog.oid
left join pg_catalog.pg_namespace as m on m.oid = f.pronamespace
left join pg_catalog.pg_type as t
    on d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid
    and t.oid = d.refobjid
left join pg_catalog.pg_collation as l
    on d.refclassid = 'pg_catalog.pg_collation'::pg_catalog.regclass::pg_catalog.oid
    and l.oid = d.refobjid
join pg_catalog.pg_namespace as n
    on n.oid = coalesce(o.oprnamespace, f.pronamespace, t.typnamespace, l.collnamespace)
where r.ev_class = any($1::pg_catalog.oid[])
    and not pg_catalog.starts_with(n.nspname::text, 'pg_')
"""

#: The schemas of the types of the columns $2 of the tables $1, and of all that these types are made of.
SCHEMAS_OF_TYPES = """
with recursive wanted (type) as (
    select a.atttypid
    from rows from (
        pg_catalog.unnest($1::pg_catalog.oid[]),
        pg_catalog.unnest($2::pg_catalog.int2[])
    ) as u (relation, number)
    join pg_catalog.pg_attribute as a
        on a.attrelid = u.relation
        and a.attnum = u.number
    union
    select part.type
    from wanted as w
    join pg_catalog.pg_type as t on t.oid = w.type
    left join pg_catalog.pg_range as r on r.rngtypid = t.oid
    cross join lateral (
        values (t.typbasetype), (t.typelem), (r.rngsubtype)
        union all
        select a.atttypid
        from pg_catalog.pg_attribute as a
        where t.typtype = 'c'
            and a.attrelid = t.typrelid
            and a.attnum > 0
            and not a.attisdropped
    ) as part (type)
    where part.type <> '0'
)
select distinct n.nspname::text as schema
from wanted as w
join pg_catalog.pg_type as t on t.oid = w.type
join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
where not pg_catalog.starts_with(n.nspname::text, 'pg_')
    and n.nspname <> 'information_schema'
"""

#: Of a search path only what a new login would not have by itself.
SURROUNDINGS = """
select
    pg_catalog.current_database()::text as database,
    (
        select
            case
                when s.source in ('user', 'database user', 'client', 'session')
                    or session_user = any(pg_catalog.current_schemas(false))
                then pg_catalog.current_schemas(false)::text[]
            end
        from pg_catalog.pg_settings as s
        where s.name = 'search_path'
    ) as search_path
"""

#: What the login $1 has been granted before: tables, and roles without a schema.
EARLIER = """
with login as (
    select r.oid
    from pg_catalog.pg_roles as r
    where r.rolname = $1
)
select distinct
    n.nspname::text as schema,
    c.relname::text as name
from login as g
cross join pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and c.relowner <> g.oid
    and (
        exists (
            select
            from pg_catalog.aclexplode(c.relacl) as p
            where p.grantee = g.oid
        )
        or exists (
            select
            from pg_catalog.pg_attribute as a
            cross join lateral pg_catalog.aclexplode(a.attacl) as p
            where a.attrelid = c.oid
                and p.grantee = g.oid
        )
    )
union all
select
    null,
    r.rolname::text
from login as g
join pg_catalog.pg_auth_members as m on m.member = g.oid
join pg_catalog.pg_roles as r on r.oid = m.roleid
order by 1, 2
"""

#: What everybody may do beyond connecting and reading the system's catalogs: privilege, kind, and names.
PUBLIC = """
select
    pg_catalog.lower(p.privilege_type) as privilege,
    'database' as kind,
    null::text as schema,
    d.datname::text as name
from pg_catalog.pg_database as d
cross join lateral pg_catalog.aclexplode(
    coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))
) as p
where d.datname = pg_catalog.current_database()
    and p.grantee = '0'
    and p.privilege_type <> 'CONNECT'
union all
select 'create', 'schema', null, n.nspname::text
from pg_catalog.pg_namespace as n
cross join lateral pg_catalog.aclexplode(n.nspacl) as p
where p.grantee = '0'
    and p.privilege_type = 'CREATE'
    and not pg_catalog.starts_with(n.nspname::text, 'pg_')
union all
select distinct 'all', 'table', n.nspname::text, c.relname::text
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and not pg_catalog.starts_with(n.nspname::text, 'pg_')
    and n.nspname <> 'information_schema'
    and (
        exists (
            select
            from pg_catalog.aclexplode(c.relacl) as p
            where p.grantee = '0'
        )
        or exists (
            select
            from pg_catalog.pg_attribute as a
            cross join lateral pg_catalog.aclexplode(a.attacl) as p
            where a.attrelid = c.oid
                and p.grantee = '0'
        )
    )
order by 2, 3, 4, 1
"""

#: Whether there is a role with the name $1.
IS_KNOWN = "select exists (select from pg_catalog.pg_roles where rolname = $1::pg_catalog.text)"
