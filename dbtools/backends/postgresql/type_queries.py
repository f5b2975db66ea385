"""What is asked of the system catalogs of types. Numbers of types in, rows out."""

#: The types $1 with the modifiers $2, and all that they are made of.
TYPES = """
with recursive wanted (type, modifier) as (
    select *
    from rows from (
        pg_catalog.unnest($1::pg_catalog.oid[]),
        pg_catalog.unnest($2::pg_catalog.int4[])
    )
    union
    select part.type, part.modifier
    from wanted as w
    join pg_catalog.pg_type as t on t.oid = w.type
    left join pg_catalog.pg_type as i
        on i.oid = t.typelem
        and i.typarray = t.oid
    left join pg_catalog.pg_range as r on r.rngtypid = t.oid
    cross join lateral (
        select t.typbasetype, t.typtypmod
        where t.typtype = 'd'
        union all
        select i.oid, w.modifier
        where i.oid is not null
        union all
        select r.rngsubtype, -1
        where r.rngsubtype is not null
        union all
        select a.atttypid, a.atttypmod
        from pg_catalog.pg_attribute as a
        where t.typtype = 'c'
            and a.attrelid = t.typrelid
            and a.attnum > 0
            and not a.attisdropped
    ) as part (type, modifier)
),
-- Of few types the planner would compute it for each anew.
comparable (type, equatable, ordered) as materialized (
    select
        l.opcintype,
        pg_catalog.bool_or(m.amname = 'hash' or o.amopstrategy = 3),
        pg_catalog.bool_or(m.amname = 'btree' and o.amopstrategy = 1)
    from pg_catalog.pg_opclass as l
    join pg_catalog.pg_am as m on m.oid = l.opcmethod
    join pg_catalog.pg_amop as o
        on o.amopfamily = l.opcfamily
        and o.amoplefttype = l.opcintype
        and o.amoprighttype = l.opcintype
    where l.opcdefault
        and (m.amname, o.amopstrategy) in (('btree', 1), ('btree', 3), ('hash', 1))
        and pg_catalog.pg_operator_is_visible(o.amopopr)
    group by l.opcintype
),
-- The planner takes them for more than there are types, and would compute what follows for every type.
found as materialized (
    select
        w.type as number,
        w.modifier,
        t.typname,
        n.oid as namespace,
        n.nspname,
        t.typtype,
        t.typrelid,
        t.typlen as length,
        t.typnotnull as filled,
        t.typbasetype as base,
        t.typtypmod as base_modifier,
        i.oid as element,
        r.rngsubtype as subtype
    from wanted as w
    join pg_catalog.pg_type as t on t.oid = w.type
    join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
    left join pg_catalog.pg_type as i
        on i.oid = t.typelem
        and i.typarray = t.oid
    left join pg_catalog.pg_range as r on r.rngtypid = t.oid
)
select
    t.number,
    t.modifier,
    pg_catalog.format_type(t.number, t.modifier) as name,
    t.typname::text as own_name,
    t.nspname = 'pg_catalog' as native,
    pg_catalog.quote_ident(t.nspname) || '.' || pg_catalog.quote_ident(t.typname) as quoted_name,
    pg_catalog.has_schema_privilege(t.namespace, 'usage') as reachable,
    t.typtype::text as kind,
    t.length,
    t.filled,
    t.base,
    t.base_modifier,
    t.element,
    t.subtype,
    q.equatable,
    q.ordered,
    array(
        select e.enumlabel::text
        from pg_catalog.pg_enum as e
        where e.enumtypid = t.number
        order by e.enumsortorder
    ) as labels,
    array(
        select coalesce(pg_catalog.pg_get_constraintdef(k.oid), '')
        from pg_catalog.pg_constraint as k
        where k.contypid = t.number
            and k.contype = 'c'
            and k.convalidated
        order by k.conname
    ) as checks,
    f.names as field_names,
    f.types as field_types,
    f.modifiers as field_modifiers
from found as t
-- A type without operators of its own takes those of the type that it is read as.
cross join lateral (
    select
        coalesce(pg_catalog.bool_or(c.equatable), false) as equatable,
        coalesce(pg_catalog.bool_or(c.ordered), false) as ordered
    from comparable as c
    where c.type = t.number
        or c.type in (
            select b.casttarget
            from pg_catalog.pg_cast as b
            where b.castsource = t.number
                and b.castmethod = 'b'
                and b.castcontext = 'i'
        )
) as q
cross join lateral (
    select
        pg_catalog.array_agg(a.attname::text order by a.attnum) as names,
        pg_catalog.array_agg(a.atttypid order by a.attnum) as types,
        pg_catalog.array_agg(a.atttypmod order by a.attnum) as modifiers
    from pg_catalog.pg_attribute as a
    where t.typtype = 'c'
        and a.attrelid = t.typrelid
        and a.attnum > 0
        and not a.attisdropped
) as f
"""
