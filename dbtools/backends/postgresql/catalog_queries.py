"""What is asked of the system catalogs. Numbers of tables or types in, rows out.

Names are qualified throughout: what the search path finds first may be anybody's.
"""

from dbtools.backends.postgresql.changes import VERSION


def class_of(catalog: str) -> str:
    """Return the number of the system's *catalog* in SQL."""
    return f"'pg_catalog.{catalog}'::pg_catalog.regclass::pg_catalog.oid"


def of_extension(class_number: str, number: str) -> str:
    """Return the condition that the object *number* of a catalog came with an extension."""
    return f"""exists (
        select from pg_catalog.pg_depend as e
        where e.classid = {class_number} and e.objid = {number} and e.deptype = 'e'
    )"""


def with_parts(types: str) -> str:
    """Return the start of a statement about the numbers of *types*, which SQL selects, and of their parts."""
    return f"""with recursive types (oid) as (
    {types}
    union
    select p.oid
    from types as s
    join pg_catalog.pg_type as t on t.oid = s.oid
    left join pg_catalog.pg_range as r on r.rngtypid = t.oid
    left join pg_catalog.pg_attribute as a
        on a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
    cross join lateral pg_catalog.unnest(array[t.typbasetype, t.typelem, r.rngsubtype, a.atttypid]) as p (oid)
    where p.oid <> '0'
)"""


#: The planner takes these for long statements, and compiling them would take longer than running them.
SETTINGS = "set local jit = off"
SEARCH_PATH = "select pg_catalog.current_schemas(false)::text[]"
#: Before version 14, nought is also what an unknown number of rows looks like.
ROWS = """
    case
        when c.reltuples > '0'
            or c.relpages > 0
            or pg_catalog.current_setting('server_version_num')::pg_catalog.int4 >= 140000
        then nullif(c.reltuples, '-1')
    end"""

RELATIONS = f"""
select
    c.oid as number, n.nspname::text as schema, c.relname::text as name, c.relkind::text as kind,
    {ROWS}::pg_catalog.float8 as rows,
    c.relrowsecurity and pg_catalog.row_security_active(c.oid) as secured,
    coalesce(d.description, '') as comment,
    pg_catalog.has_schema_privilege(n.oid, 'usage') as reachable,
    pg_catalog.has_table_privilege(c.oid, 'select') as readable, c.relkind <> 'p'
    and exists (select from pg_catalog.pg_inherits as i where i.inhparent = c.oid) as inherited,
    exists (
        select from pg_catalog.pg_attribute as a where a.attrelid = c.oid and a.attgenerated = 'v'
    ) as computed,
    c.relrowsecurity as guarded,
    {VERSION} as version
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
left join pg_catalog.pg_description as d
    on d.objoid = c.oid and d.classoid = {class_of("pg_class")} and d.objsubid = 0
where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and not c.relispartition
    and not pg_catalog.starts_with(n.nspname::text, 'pg_')
    and n.nspname not in ('information_schema', 'dbtools')
    and c.relname not in ('alembic_version', 'dbtools_version', 'dbtools_query', 'dbtools_call')
    and not {of_extension(class_of("pg_class"), "c.oid")}
"""
#: The columns of the tables $1: of $2 among them only those are readable that have been granted. Their
#: collation, where it is not the default (100, or 0 of types that have none). A default names no column: it
#: is printed without its table, which is quicker and waits for no lock on it.
COLUMNS = f"""
select
    a.attrelid as relation, a.attnum as number, a.attname::text as name, a.atttypid as type,
    a.atttypmod as modifier, nullif(a.attcollation, '100') as collation, a.attnotnull as filled,
    a.attidentity <> '' or a.attgenerated <> '' as generated,
    case when a.attgenerated = '' then pg_catalog.pg_get_expr(e.adbin, 0) end as expression,
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
left join pg_catalog.pg_attrdef as e on e.adrelid = a.attrelid and e.adnum = a.attnum
left join pg_catalog.pg_description as d
    on d.objoid = a.attrelid and d.classoid = {class_of("pg_class")} and d.objsubid = a.attnum
where a.attrelid = any($1::pg_catalog.oid[])
    and a.attnum > 0 and not a.attisdropped
order by a.attrelid, a.attnum
"""
#: A primary key may be deferrable: what others have committed is unique all the same. An index that
#: tells texts apart which the column's own collation does not is no key.
KEYS = """
select i.indrelid as relation, i.indisprimary as main,
    (i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1] as columns
from pg_catalog.pg_index as i
where i.indrelid = any($1::pg_catalog.oid[])
    and i.indisunique and i.indisvalid and (i.indimmediate or i.indisprimary)
    and i.indpred is null and i.indexprs is null
    and not exists (
        select
        from pg_catalog.pg_attribute as a
        join pg_catalog.pg_collation as l on l.oid = a.attcollation
        where a.attrelid = i.indrelid
            and a.attnum = any(i.indkey::pg_catalog.int2[]) and not l.collisdeterministic
            and l.oid <> all(i.indcollation::pg_catalog.oid[])
    )
order by i.indrelid, i.indisprimary desc, i.indnkeyatts, columns
"""
#: A foreign key on periods, new in version 18, does not name one row. Where the column is missing
#: its name means the one of *older*.
CONSTRAINT = """(values (false)) as older (conperiod)
cross join lateral (
    select oid, conname, contype::text, conrelid, conkey, confrelid, confkey, conpfeqop, conparentid,
        connoinherit, convalidated, conperiod as periodic
    from pg_catalog.pg_constraint
) as k"""
#: Of NOT NULL only those that rows may break, also new in version 18.
CONSTRAINTS = f"""
select k.conrelid as relation, k.contype as kind, k.conkey as columns, k.confrelid as target,
    k.confkey as target_columns, k.conpfeqop as operators,
    case k.contype when 'c' then pg_catalog.pg_get_constraintdef(k.oid) end as expression
from {CONSTRAINT}
where k.conrelid = any($1::pg_catalog.oid[])
    and (
        k.contype = 'f' and k.conparentid = '0' and not k.periodic
        or k.contype = 'c' and k.convalidated and not k.connoinherit
        or k.contype = 'n' and not k.convalidated
    )
order by k.conrelid, k.conname
"""
#: Those of the operators $1 that "=" may stand for, in every session and without an error.
OPERATORS = """
with types (number, name) as (
    select
        t.oid,
        case n.nspname
            when 'pg_catalog' then 'pg_catalog.' || t.typname::pg_catalog.text
            else pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(t.typname)
        end
    from pg_catalog.pg_type as t
    join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
)
select o.oid as number, l.name as left_type, r.name as right_type
from pg_catalog.pg_operator as o
join pg_catalog.pg_proc as f on f.oid = o.oprcode::pg_catalog.oid
join types as l on l.number = o.oprleft
join types as r on r.number = o.oprright
where o.oid = any($1::pg_catalog.oid[])
    and o.oprname = '=' and pg_catalog.pg_operator_is_visible(o.oid)
    and pg_catalog.has_function_privilege(f.oid, 'execute') and f.provolatile = 'i'
"""
#: What may raise an error in a row filter: views and the like, and what did not come with the server or with
#: an extension.
RAISING = f"""
with own (class, number, name, namespace) as (
    select {class_of("pg_proc")}, p.oid, p.proname, p.pronamespace
    from pg_catalog.pg_proc as p
    union all
    select {class_of("pg_operator")}, o.oid, o.oprname, o.oprnamespace
    from pg_catalog.pg_operator as o
)
select distinct w.name::text as name
from own as w
join pg_catalog.pg_namespace as n on n.oid = w.namespace
where n.nspname not in ('pg_catalog', 'information_schema') and not {of_extension("w.class", "w.number")}
union
select c.relname::text
from pg_catalog.pg_class as c
where c.relkind in ('v', 'f')
    or c.oid in (select a.attrelid from pg_catalog.pg_attribute as a where a.attgenerated = 'v')
"""
#: Whether values are cast, without a word, by what did not come with the server or with an extension.
CASTING = f"""
select exists (
    select
    from pg_catalog.pg_cast as k
    where k.oid >= '16384' and k.castcontext = 'i' and not {of_extension(class_of("pg_cast"), "k.oid")}
)
"""
#: Whether a generated statement may run an operator, a cast, or a function by a name of the system's, that
#: did not come with the server or with an extension.
REPLACED = f"""
with own (class, number) as (
    select {class_of("pg_operator")}, o.oid
    from pg_catalog.pg_operator as o
    union all
    select {class_of("pg_cast")}, k.oid
    from pg_catalog.pg_cast as k
    union all
    select {class_of("pg_proc")}, p.oid
    from pg_catalog.pg_proc as p
    where p.proname in (
        select s.proname
        from pg_catalog.pg_proc as s
        where s.pronamespace = 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
    )
)
select exists (
    select
    from own as w
    where w.number >= '16384' and not {of_extension("w.class", "w.number")}
)
"""
#: The tables within the partitioned tables $1.
LEAVES = """
with recursive members (root, member) as (
    select i.inhparent, i.inhrelid
    from pg_catalog.pg_inherits as i
    where i.inhparent = any($1::pg_catalog.oid[])
    union all
    select m.root, i.inhrelid
    from members as m
    join pg_catalog.pg_inherits as i on i.inhparent = m.member
),
leaves as (
    select m.root, m.member
    from members as m
    join pg_catalog.pg_class as c on c.oid = m.member
    where c.relkind <> 'p'
)"""
#: The rows of partitioned tables: of those partitions of which it is known.
PARTITIONS = f"""{LEAVES}
select l.root as number, pg_catalog.sum({ROWS})::pg_catalog.float8 as rows
from leaves as l
join pg_catalog.pg_class as c on c.oid = l.member
group by l.root
"""
#: Partitions may have their columns in other places: the names say which of the table's they are.
SHARED_FOREIGN_KEYS = f"""{LEAVES},
referencing (root, member, columns, target, target_columns, operators) as (
    select
        l.root, l.member,
        array(
            select b.attnum
            from pg_catalog.unnest(k.conkey) with ordinality as u (number, place)
            join pg_catalog.pg_attribute as a on a.attrelid = k.conrelid and a.attnum = u.number
            join pg_catalog.pg_attribute as b on b.attrelid = l.root and b.attname = a.attname
            order by u.place
        ),
        k.confrelid, k.confkey, k.conpfeqop
    from leaves as l
    join {CONSTRAINT} on k.conrelid = l.member
    where k.contype = 'f' and not k.periodic
)
select r.root as relation, r.columns, r.target, r.target_columns, pg_catalog.min(r.operators) as operators
from referencing as r
group by r.root, r.columns, r.target, r.target_columns
having pg_catalog.count(distinct r.member) = (
    select pg_catalog.count(*)
    from leaves as l
    where l.root = r.root
)
"""
