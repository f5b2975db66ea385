"""Queries of the system catalogs, as SQL. OIDs of tables in, rows out.

All names are qualified, because other schemas may come first on the search path.
"""

from dbtools.backends.postgresql.schema.changes import VERSION
from dbtools.backends.postgresql.schema.dependencies import columns_read_by
from dbtools.backends.postgresql.schema.names import is_member, of_extension

PG_CLASS = "'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid"
#: The planner overestimates the cost of these statements: compiling them takes longer than running them.
NO_JIT = "set local jit = off"
SHORT_LOCK_TIMEOUT = "set local lock_timeout = '100ms'"
SEARCH_PATH = "select pg_catalog.current_schemas(false)::text[]"
#: The estimated number of rows of relation c. Before ANALYZE it is -1, or 0 before version 14.
ROW_ESTIMATE = """nullif(c.reltuples, case
        when pg_catalog.current_setting('server_version_num')::pg_catalog.int4 < 140000 then '0' else '-1'
    end::pg_catalog.float4)"""
#: Whether reading a row of relation c may raise an error: views, foreign tables, tables of which one may be a
#: part, and tables with virtual generated columns.
IS_COMPUTED = """(
    c.relkind in ('v', 'f')
    or c.relhassubclass and exists (
        select
        from pg_catalog.pg_inherits as i
        join pg_catalog.pg_class as f on f.oid = i.inhrelid and f.relkind = 'f'
    )
    or c.oid in (select a.attrelid from pg_catalog.pg_attribute as a where a.attgenerated = 'v')
)"""

#: Whether row-level security applies to the login in relation c.
SECURED = "(c.relrowsecurity and pg_catalog.row_security_active(c.oid))"


def policies(kind: str) -> str:
    """Return the number of policies of relation c that allow the login what has this *kind* in pg_policy."""
    return f"""(
        select pg_catalog.count(*)
        from pg_catalog.pg_policy as p
        where p.polrelid = c.oid and p.polpermissive and p.polcmd in ('{kind}', '*')
            and exists (
                select
                from pg_catalog.unnest(p.polroles) as r (number)
                where r.number = '0' or pg_catalog.pg_has_role(r.number, 'usage')
            )
    )"""


#: A partitioned table has the rows of its partitions.
RELATIONS = f"""
select
    c.oid as number, n.nspname::text as schema, c.relname::text as name, c.relkind::text as kind,
    coalesce(p.rows, {ROW_ESTIMATE})::pg_catalog.float8 as rows,
    case when {SECURED} then {policies("r")} end as policies,
    coalesce(d.description, '') as comment,
    pg_catalog.has_schema_privilege(n.oid, 'usage') as reachable,
    pg_catalog.has_table_privilege(c.oid, 'select') as readable, c.relkind <> 'p'
    and exists (select from pg_catalog.pg_inherits as i where i.inhparent = c.oid) as inherited,
    exists (select from pg_catalog.pg_inherits as i where i.inhrelid = c.oid) as inherits,
    {IS_COMPUTED} as computed,
    c.relispopulated as populated,
    {VERSION} as version
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
left join pg_catalog.pg_description as d
    on d.classoid = {PG_CLASS} and d.objoid = c.oid and d.objsubid = 0
left join (
    select pg_catalog.pg_partition_root(c.oid)::pg_catalog.oid as root, pg_catalog.sum({ROW_ESTIMATE}) as rows
    from pg_catalog.pg_class as c
    where c.relispartition and c.relkind in ('r', 'f')
    group by root
) as p on p.root = c.oid
where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and not c.relispartition
    and not pg_catalog.starts_with(n.nspname::text, 'pg_')
    and n.nspname not in ('information_schema', 'dbtools')
    and c.relname not in (
        'alembic_version', 'dbtools_version', 'dbtools_query', 'dbtools_call', 'dbtools_write'
    )
    and not {is_member("pg_class", "c")}
"""
#: The columns of the tables $1. Those of the tables $2 are readable only if they were granted separately. The
#: collation is null if it is the default (100). A default expression names no column, so it is printed
#: without its table: that is faster, and waits for no lock.
COLUMNS = f"""
select
    a.attrelid as relation, a.attnum as number, a.attname::text as name, a.atttypid as type,
    a.atttypmod as modifier, nullif(a.attcollation, '100') as collation, a.attnotnull as filled,
    a.attidentity <> '' or a.attgenerated <> '' as generated,
    case when a.attgenerated = '' then coalesce(pg_catalog.pg_get_expr(e.adbin, 0), t.typdefault) end
        as expression,
    array(
        select s.attname::text
        from pg_catalog.regexp_matches(e.adbin::pg_catalog.text, ':varattno (\\d+)', 'g') as v (numbers)
        join pg_catalog.pg_attribute as s
            on s.attrelid = a.attrelid and s.attnum = (v.numbers)[1]::pg_catalog.int2
        where a.attgenerated <> ''
    ) as sources,
    coalesce(d.description, '') as comment,
    a.attrelid <> all($2::pg_catalog.oid[])
    or pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'select') as readable
from pg_catalog.pg_attribute as a
join pg_catalog.pg_type as t on t.oid = a.atttypid
left join pg_catalog.pg_attrdef as e on e.adrelid = a.attrelid and e.adnum = a.attnum
left join pg_catalog.pg_description as d
    on d.classoid = {PG_CLASS} and d.objoid = a.attrelid and d.objsubid = a.attnum
where a.attrelid = any($1::pg_catalog.oid[])
    and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
"""
#: Expressions are printed with qualified names, so that they mean the same on any search path.
QUALIFIED = "set local search_path = pg_catalog"
#: What can be searched for words in the tables $1: columns of type tsvector, whose configuration is known if
#: they are generated, and expressions with an index. An indexed expression cannot fail, since
#: the index has every row. Partial indexes, those of parent tables, and users' functions are left out.
TEXT_INDEXES = f"""
select a.attrelid as relation, array[a.attname::text] as columns,
    pg_catalog.quote_ident(a.attname) as document, false as computed,
    coalesce(pg_catalog.pg_get_expr(e.adbin, e.adrelid), '') as definition
from pg_catalog.pg_attribute as a
left join pg_catalog.pg_attrdef as e
    on e.adrelid = a.attrelid and e.adnum = a.attnum and a.attgenerated <> ''
where a.attrelid = any($1::pg_catalog.oid[])
    and a.attnum > 0 and a.atttypid = 'pg_catalog.tsvector'::pg_catalog.regtype
union all
select i.indrelid,
    {columns_read_by("i.indexprs")}, x.definition, true, x.definition
from pg_catalog.pg_index as i
join pg_catalog.pg_class as c on c.oid = i.indexrelid
join pg_catalog.pg_am as m on m.oid = c.relam and m.amname = 'gin'
join pg_catalog.pg_class as t on t.oid = i.indrelid and (t.relkind = 'p' or not t.relhassubclass)
cross join lateral (select pg_catalog.pg_get_indexdef(i.indexrelid, 1, true) as definition) as x
where i.indrelid = any($1::pg_catalog.oid[])
    and i.indisvalid and i.indpred is null and i.indnatts = 1 and i.indexprs is not null
    and exists (
        select
        from pg_catalog.pg_opclass as o
        where o.oid = i.indclass[0] and o.opcintype = 'pg_catalog.tsvector'::pg_catalog.regtype
    )
    and not exists (
        select
        from pg_catalog.pg_depend as d
        where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = i.indexrelid
            and d.refclassid in (
                'pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass
            )
    )
"""
#: A deferrable primary key is included, since committed rows are unique. An index is left out if it
#: distinguishes texts that are equal by the collation of their column.
KEYS = """
select i.indrelid as relation, i.indisprimary as main, not i.indimmediate as deferrable,
    (i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1] as columns
from pg_catalog.pg_index as i
where i.indrelid = any($1::pg_catalog.oid[])
    and i.indisunique and i.indisvalid and (i.indimmediate or i.indisprimary)
    and i.indpred is null and i.indexprs is null
    and not exists (
        select 1
        from rows from (
            pg_catalog.unnest(i.indkey::pg_catalog.int2[]),
            pg_catalog.unnest(i.indcollation::pg_catalog.oid[])
        ) as u (number, used)
        join pg_catalog.pg_attribute as a on a.attrelid = i.indrelid and a.attnum = u.number
        join pg_catalog.pg_collation as l on l.oid = a.attcollation
        where u.used <> a.attcollation and not l.collisdeterministic
    )
order by i.indrelid, i.indisprimary desc, i.indnkeyatts, columns
"""
#: CHECK constraints, and the columns of a NOT NULL that is not valid for old rows (since version 18).
CHECKS = """
select k.conrelid as relation, case k.contype when 'n' then k.conkey[1] end as nullable,
    case k.contype when 'c' then pg_catalog.pg_get_constraintdef(k.oid) end as expression
from pg_catalog.pg_constraint as k
where k.conrelid = any($1::pg_catalog.oid[])
    and (k.contype = 'c' and k.convalidated and not k.connoinherit or k.contype = 'n' and not k.convalidated)
order by k.conrelid, k.conname
"""
#: The foreign keys of the tables $1, and those that all partitions of a table share, whose columns may have
#: other numbers. A foreign key that does not use "=" is left out, such as one on periods.
FOREIGN_KEYS = """
with keys as (
    select *
    from pg_catalog.pg_constraint as k
    where k.contype = 'f' and k.conpfeqop operator(pg_catalog.<@) array(
        select o.oid
        from pg_catalog.pg_operator as o
        where o.oprname = '=' and pg_catalog.pg_operator_is_visible(o.oid)
    )
),
leaves (root, relation) as (
    select pg_catalog.pg_partition_root(c.oid)::pg_catalog.oid, c.oid
    from pg_catalog.pg_class as c
    where c.relispartition and c.relkind in ('r', 'f')
),
shared (relation, leaf, columns, target, target_columns) as (
    select
        l.root, l.relation,
        array(
            select b.attnum
            from pg_catalog.unnest(k.conkey) with ordinality as u (number, place)
            join pg_catalog.pg_attribute as a on a.attrelid = k.conrelid and a.attnum = u.number
            join pg_catalog.pg_attribute as b on b.attrelid = l.root and b.attname = a.attname
            order by u.place
        ),
        k.confrelid, k.confkey
    from leaves as l
    join keys as k on k.conrelid = l.relation
    where l.root = any($1::pg_catalog.oid[])
)
select k.conrelid as relation, k.conkey as columns, k.confrelid as target, k.confkey as target_columns
from keys as k
where k.conrelid = any($1::pg_catalog.oid[]) and k.conparentid = '0'
union
select s.relation, s.columns, s.target, s.target_columns
from shared as s
group by s.relation, s.columns, s.target, s.target_columns
having pg_catalog.count(distinct s.leaf) = (
    select pg_catalog.count(*)
    from leaves as l
    where l.root = s.relation
)
order by columns
"""
#: The definitions of the views $1.
DEFINITIONS = """
select u.oid as number, pg_catalog.pg_get_viewdef(u.oid, true) as query
from pg_catalog.unnest($1::pg_catalog.oid[]) as u (oid)
"""
#: What may raise an error in a row filter: such relations, and functions and operators of users; all
#: operators if a user has created an implicit cast.
RAISING = f"""
select p.proname::text as name
from pg_catalog.pg_proc as p
where p.oid >= '16384' and not {of_extension("pg_proc", "p")}
union
select o.oprname::text
from pg_catalog.pg_operator as o
where o.oid >= '16384' and not {of_extension("pg_operator", "o")}
    or exists (
        select
        from pg_catalog.pg_cast as k
        where k.oid >= '16384' and k.castcontext = 'i' and not {of_extension("pg_cast", "k")}
    )
union
select c.relname::text
from pg_catalog.pg_class as c
where {IS_COMPUTED}
"""
#: Whether a generated statement may run an operator, a cast or a function that users have created. Only
#: functions with the name of a system function matter.
REPLACED = f"""
select exists (
    select
    from pg_catalog.pg_operator as o
    where o.oid >= '16384' and not {of_extension("pg_operator", "o")}
) or exists (
    select
    from pg_catalog.pg_cast as k
    where k.oid >= '16384' and not {of_extension("pg_cast", "k")}
) or exists (
    select
    from pg_catalog.pg_proc as p
    where p.oid >= '16384' and not {of_extension("pg_proc", "p")}
        and p.proname in (
            select s.proname
            from pg_catalog.pg_proc as s
            where s.pronamespace = 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
        )
)
"""
#: Whether relation c is a table of which only functions of the system run when it is planned or read.
#: Planning evaluates constants in the expressions of indexes, statistics and constraints. Only superusers
#: create operator classes. A change to a child does not let the server analyse again a prepared statement
#: that names its parent.
IS_PLAIN = f"""(
    c.relkind in ('r', 'm')
    and not c.relrowsecurity
    and not c.relhassubclass
    and not exists (
        select
        from pg_catalog.pg_attribute as a
        join pg_catalog.pg_type as t on t.oid = a.atttypid
        where a.attrelid = c.oid
            and a.attnum > 0
            and (a.attgenerated = 'v' or t.oid >= '16384' and t.typtype <> 'e')
    )
    and not exists (
        select
        from (
            select {PG_CLASS}, i.indexrelid from pg_catalog.pg_index as i where i.indrelid = c.oid
            union all
            select s.tableoid, s.oid from pg_catalog.pg_statistic_ext as s where s.stxrelid = c.oid
            union all
            select k.tableoid, k.oid from pg_catalog.pg_constraint as k where k.conrelid = c.oid
        ) as part (class, number)
        join pg_catalog.pg_depend as d on d.classid = part.class and d.objid = part.number
        where d.refobjid >= '16384'
            and d.refclassid in (
                'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid,
                'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid,
                'pg_catalog.pg_type'::pg_catalog.regclass::pg_catalog.oid
            )
    )
)"""
#: Whether all relations that the transaction has locked are plain, and no function of users replaces one of
#: the system.
ARE_PLAIN = f"""
select (not ({REPLACED}) and pg_catalog.bool_and({IS_PLAIN}))::pg_catalog.text
from pg_catalog.pg_class as c
where c.oid >= '16384'
    and c.relkind not in ('i', 't')
    and c.oid in (
        select l.relation
        from pg_catalog.pg_lock_status() as l
        where l.pid = pg_catalog.pg_backend_pid() and l.locktype = 'relation'
    )
"""
#: What the login can do beyond reading, in the whole database: facts, the names that they concern, and the
#: roles that have them. The roles of which the login is a member are included, since it can use SET ROLE.
#: Privileges are read from access control lists: has_table_privilege() would run for each role and table.
POSTURE = """
with identities as materialized (
    select r.*
    from pg_catalog.pg_roles as r
    where pg_catalog.pg_has_role(session_user, r.oid, 'member')
),
schemas as (
    select n.*
    from pg_catalog.pg_namespace as n
    where not pg_catalog.starts_with(n.nspname::text, 'pg_') and n.nspname <> 'information_schema'
),
relations as materialized (
    select c.oid, s.nspname::text || '.' || c.relname::text as name, c.relowner as owner, c.relacl as acl
    from pg_catalog.pg_class as c
    join schemas as s on s.oid = c.relnamespace
    where c.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
),
objects (fact, name, owner, acl) as (
    select 'write', r.name, r.owner, r.acl
    from relations as r
    union all
    select 'write', r.name, r.owner, a.attacl
    from relations as r
    join pg_catalog.pg_attribute as a on a.attrelid = r.oid
    where a.attacl is not null
    union all
    select 'create', s.nspname, null, coalesce(s.nspacl, pg_catalog.acldefault('n', s.nspowner))
    from schemas as s
    union all
    select 'create schemas', d.datname, null, coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))
    from pg_catalog.pg_database as d
    where d.datname = pg_catalog.current_database()
),
-- Of relations, only sequences have USAGE, and none has CREATE.
granted (fact, name, role) as (
    select o.fact, o.name, p.grantee
    from objects as o
    cross join lateral pg_catalog.aclexplode(o.acl) as p
    where p.grantee is distinct from o.owner
        and (
            p.privilege_type in ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'CREATE')
            or p.privilege_type = 'USAGE' and o.fact = 'write'
        )
    union all
    select 'own', r.name, r.owner
    from relations as r
),
facts (fact, name, role) as (
    select g.fact, g.name::text, coalesce(i.rolname::text, session_user::text)
    from granted as g
    left join identities as i on i.oid = g.role
    where g.role = '0' or i.oid is not null
    union all
    select a.key, i.rolname::text, i.rolname::text
    from identities as i
    cross join lateral pg_catalog.jsonb_each_text(pg_catalog.to_jsonb(i)) as a
    where a.value = 'true'
    union all
    select 'member', i.rolname::text, i.rolname::text
    from identities as i
    where i.rolname in (
        'pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program', 'pg_read_all_data',
        'pg_write_all_data', 'pg_signal_backend', 'pg_maintain', 'pg_create_subscription'
    )
)
select f.fact, pg_catalog.array_agg(distinct f.name) as names,
    pg_catalog.array_agg(distinct f.role) as roles, pg_catalog.bool_or(f.role = session_user::text) as own
from facts as f
group by f.fact
"""
