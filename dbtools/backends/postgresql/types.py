"""What the types of columns mean. Numbers of types in, declared types out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import asyncpg
from asyncpg import Record

from dbtools.backends.checks import Check, read_checks
from dbtools.backends.plans import identifier
from dbtools.backends.postgresql.syntax import lexis
from dbtools.types import ColumnType, Family

LONGEST_SMALL = 400  #: characters of a cell that is never cut
DEEPEST = 16  #: types inside one another; what lies deeper is read as a text
HEADER = 4  #: by which the modifier of a length or of a precision is greater
UNLIMITED = -1  #: the modifier of a type without one

NATIVE: Mapping[str, Family] = {
    **dict.fromkeys(("int2", "int4", "int8"), Family.INTEGER),
    **dict.fromkeys(("float4", "float8"), Family.NUMBER),
    **dict.fromkeys(("text", "varchar", "bpchar", "name"), Family.TEXT),
    **dict.fromkeys(("json", "jsonb"), Family.JSON),
    "numeric": Family.DECIMAL,
    "bool": Family.BOOLEAN,
    "date": Family.DATE,
    "time": Family.TIME,
    "timestamp": Family.TIMESTAMP,
    "timestamptz": Family.TIMESTAMPTZ,
    "interval": Family.INTERVAL,
    "uuid": Family.UUID,
    "bytea": Family.BYTES,
}
EXTENSIONS: Mapping[str, Family] = {"citext": Family.TEXT}
INFINITE = {
    *(Family.NUMBER, Family.DECIMAL, Family.DATE, Family.TIMESTAMP, Family.TIMESTAMPTZ),
    Family.INTERVAL,  # from version 17; before, the server refuses such a value itself
}
SMALL = {"inet", "cidr"}  #: of variable length, and yet short

TypeNumber = tuple[int, int]  #: of a type and of its modifier

#: The types $1 with the modifiers $2, and all that they are made of.
TYPES = """
with recursive wanted (type, modifier) as (
    select *
    from rows from (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.int4[]))
    union
    select part.type, part.modifier
    from wanted as w
    join pg_catalog.pg_type as t on t.oid = w.type
    left join pg_catalog.pg_type as i on i.oid = t.typelem and i.typarray = t.oid
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
        where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
    ) as part (type, modifier)
),
-- Of few types the planner would compute it for each anew.
comparable (type, equatable, ordered) as materialized (
    select l.opcintype, pg_catalog.bool_or(m.amname = 'hash' or o.amopstrategy = 3),
        pg_catalog.bool_or(m.amname = 'btree' and o.amopstrategy = 1)
    from pg_catalog.pg_opclass as l
    join pg_catalog.pg_am as m on m.oid = l.opcmethod
    join pg_catalog.pg_amop as o
        on o.amopfamily = l.opcfamily
        and o.amoplefttype = l.opcintype and o.amoprighttype = l.opcintype
    where l.opcdefault
        and (m.amname, o.amopstrategy) in (('btree', 1), ('btree', 3), ('hash', 1))
        and pg_catalog.pg_operator_is_visible(o.amopopr)
    group by l.opcintype
),
-- The planner takes them for more than there are types, and would compute what follows for every type.
found as materialized (
    select w.type as number, w.modifier, t.typname, n.oid as namespace, n.nspname, t.typtype, t.typrelid,
        t.typlen as length, t.typnotnull as filled, t.typbasetype as base, t.typtypmod as base_modifier,
        i.oid as element, r.rngsubtype as subtype
    from wanted as w
    join pg_catalog.pg_type as t on t.oid = w.type
    join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
    left join pg_catalog.pg_type as i on i.oid = t.typelem and i.typarray = t.oid
    left join pg_catalog.pg_range as r on r.rngtypid = t.oid
)
select
    t.number, t.modifier, pg_catalog.format_type(t.number, t.modifier) as name, t.typname::text as own_name,
    t.nspname = 'pg_catalog' as native,
    pg_catalog.quote_ident(t.nspname) || '.' || pg_catalog.quote_ident(t.typname) as quoted_name,
    pg_catalog.has_schema_privilege(t.namespace, 'usage') as reachable,
    t.typtype::text as kind, t.length, t.filled, t.base, t.base_modifier, t.element, t.subtype, q.equatable,
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
        where k.contypid = t.number and k.contype = 'c' and k.convalidated
        order by k.conname
    ) as checks,
    f.names as field_names, f.types as field_types, f.modifiers as field_modifiers
from found as t
-- A type without operators of its own takes those of the type that it is read as.
cross join lateral (
    select coalesce(pg_catalog.bool_or(c.equatable), false) as equatable,
        coalesce(pg_catalog.bool_or(c.ordered), false) as ordered
    from comparable as c
    where c.type = t.number
        or c.type in (
            select b.casttarget
            from pg_catalog.pg_cast as b
            where b.castsource = t.number and b.castmethod = 'b' and b.castcontext = 'i'
        )
) as q
cross join lateral (
    select pg_catalog.array_agg(a.attname::text order by a.attnum) as names,
        pg_catalog.array_agg(a.atttypid order by a.attnum) as types,
        pg_catalog.array_agg(a.atttypmod order by a.attnum) as modifiers
    from pg_catalog.pg_attribute as a
    where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
) as f
"""


@dataclass(frozen=True, kw_only=True)
class DeclaredType:
    """The type of a column, and what the domains it is made of demand."""

    type: ColumnType
    checks: tuple[Check, ...] = ()  #: of the domains
    filled: bool = False  #: whether a domain forbids nulls
    base: str  #: the name of the type below all domains, without a length


class DeclaredTypes:
    """The types of a catalog by their numbers, each made when it is first asked for."""

    def __init__(self, rows: Iterable[Record]) -> None:
        self._rows: Mapping[TypeNumber, Record] = {(row["number"], row["modifier"]): row for row in rows}
        self._made: dict[tuple[TypeNumber, int], DeclaredType] = {}

    def __getitem__(self, number: TypeNumber) -> DeclaredType:
        """Return the type of *number*."""
        return self._declared(number, 0)

    def _declared(self, number: TypeNumber, depth: int) -> DeclaredType:
        found = self._made.get((number, depth))
        if found is None:
            found = self._made[number, depth] = self._make(self._rows[number], depth)
        return found

    def _make(self, row: Record, depth: int) -> DeclaredType:
        if depth == DEEPEST:
            opaque = ColumnType(family=Family.OTHER, name=row["name"], cast=_own_name(row), large=True)
            return DeclaredType(type=replace(opaque, equatable=False, ordered=False), base=row["name"])
        parts = [self._declared(number, depth + 1) for number in _parts(row)]
        if row["kind"] == "d":
            return _domain(row, parts[0])
        made = self._undomained(row, [part.type for part in parts])
        if not row["reachable"]:
            made = replace(made, equatable=False, ordered=False)
        return DeclaredType(type=made, base=row["name"].partition("(")[0])

    def _undomained(self, row: Record, parts: Sequence[ColumnType]) -> ColumnType:
        named = ColumnType(family=Family.OTHER, name=row["name"], cast=_own_name(row))
        made = replace(
            named,
            large=True,
            equatable=all(part.equatable for part in parts),
            ordered=all(part.ordered for part in parts),
        )
        match row["kind"]:
            case "e":
                return replace(named, family=Family.ENUM, labels=tuple(row["labels"]))
            case "c":
                fields = tuple(zip(row["field_names"] or (), parts, strict=True))
                return replace(made, family=Family.OBJECT, fields=fields)
            case "r" | "m":
                return replace(named, large=not parts or parts[0].large)
            case _ if row["element"] is not None:
                element = _own_name(self._rows[row["element"], row["modifier"]])
                return replace(made, family=Family.ARRAY, cast=f"{element}[]", element=parts[0])
            case _:
                return _scalar(row)


def _parts(row: Record) -> Sequence[TypeNumber]:
    """Return the types that the type of *row* is made of."""
    if row["kind"] == "d":
        return [(row["base"], row["base_modifier"])]
    if row["element"] is not None:
        return [(row["element"], row["modifier"])]
    if row["subtype"] is not None:
        return [(row["subtype"], UNLIMITED)]
    return list(zip(row["field_types"] or (), row["field_modifiers"] or (), strict=True))


def _domain(row: Record, base: DeclaredType) -> DeclaredType:
    # The operators of enums do not take a domain for its enum, as all others do.
    comparable = base.type.family is not Family.ENUM
    return DeclaredType(
        type=replace(
            base.type,
            name=row["name"],
            equatable=base.type.equatable and comparable,
            ordered=base.type.ordered and comparable,
        ),
        checks=(*_checks(row["checks"], base.base), *base.checks),
        filled=row["filled"] or base.filled,
        base=base.base,
    )


async def read_types(connection: Any, numbers: Iterable[TypeNumber]) -> Sequence[Record]:
    """Return the rows of the types *numbers*, and of all that they are made of."""
    wanted = sorted(numbers)
    types, modifiers = [type for type, _ in wanted], [modifier for _, modifier in wanted]
    rows: Sequence[Record] = await connection.fetch(TYPES, types, modifiers) if wanted else ()
    return rows


def sql_name(type: asyncpg.Type) -> str:
    """Return the name of *type* in SQL: the driver writes arrays as int4[], not as _int4."""
    is_array = type.kind == "array" and type.name.endswith("[]")
    name = f"{identifier(type.name.removesuffix('[]'))}[]" if is_array else identifier(type.name)
    return f"{identifier(type.schema)}.{name}"


def _checks(expressions: Iterable[str], base: str) -> Iterator[Check]:
    for expression in expressions:
        # The value of a domain over a domain is written with a cast that changes nothing.
        uncast = expression.replace(f"(VALUE)::{base}", "VALUE")
        yield from (check for check in read_checks(uncast, lexis) if check.column == "VALUE")


def _own_name(row: Record) -> str:
    """Return the name that means this type on every search path."""
    # After a dot no word is a keyword: the system's own names need no quotes.
    return f"pg_catalog.{row['own_name']}" if row["native"] else str(row["quoted_name"])


def _scalar(row: Record) -> ColumnType:
    # Reading the name of an object or a role that does not exist fails, and so tells which ones do; comparing
    # single bytes fails where the planner has statistics of them.
    name = row["own_name"] if row["native"] else ""
    names_objects = name.startswith("reg") or name == "aclitem"
    families = NATIVE if row["native"] else EXTENSIONS
    family = families.get(row["own_name"], Family.OTHER)
    half = 2 ** (8 * row["length"] - 1) if family is Family.INTEGER else None
    return ColumnType(
        family=family,
        name=row["name"],
        cast=_own_name(row),
        minimum=None if half is None else -half,
        maximum=None if half is None else half - 1,
        infinite=family in INFINITE,
        equatable=row["equatable"] and not names_objects,
        ordered=row["ordered"] and name != "char" and not names_objects,
        large=_is_large(row),
    )


def _is_large(row: Record) -> bool:
    """Return whether the text of a cell may be longer than LONGEST_SMALL."""
    name, modifier = row["own_name"] if row["native"] else "", row["modifier"]
    match name:
        case "varchar" | "bpchar" if modifier != UNLIMITED:
            most = modifier - HEADER
        case "numeric" if modifier != UNLIMITED:
            most = (modifier - HEADER) >> 16
        case "bit" | "varbit" if modifier != UNLIMITED:
            most = modifier
        case _:
            return bool(row["length"] < 0) and name not in SMALL
    return bool(most > LONGEST_SMALL)
