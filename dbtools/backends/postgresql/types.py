"""The types of PostgreSQL's columns, and its lexical rules. OIDs of types in, declared types out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import asyncpg
from asyncpg import Record

from dbtools.backends.checks import Check, read_checks
from dbtools.backends.plans import identifier
from dbtools.sql import Lexis, TokenKind, code_of, words
from dbtools.types import ColumnType, Family

#: The quotes, the comments, and what never raises an error.
lexis = Lexis(
    name_quotes='"',
    nested_comments=True,
    dollar_quotes=True,
    escape_strings=True,
    line_ends="\n\r",
    native_marks="$",
    lenient=False,
    total_functions=words(
        "btrim char_length coalesce count greatest least left lower ltrim max min now nullif "
        "right rtrim starts_with strpos upper"
    ),
    total_operators=words("= <> != < <= > >= -> ->> #> #>> @> <@ ? ?| ?&"),
)
NAME_BYTES = 63  #: of a name; the server cuts longer ones
MISWRITTEN = ("42601", "42883")  #: the states of a syntax error, and of an unknown operator
LONGEST_SMALL = 400  #: characters: a shorter cell is never cut
HEADER = 4  #: the number that a modifier adds to a length or a precision
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
SMALL = {"inet", "cidr"}  #: types of variable length whose values are short

TypeNumber = tuple[int, int]  #: the OID of a type, and its modifier

#: The parts of the type t with its modifier: the base of a domain, the items of an array, the bounds of a
#: range, or the fields of a row.
PARTS = """(
    select t.typbasetype as type, t.typtypmod as modifier, 0 as place, null as name
    where t.typtype = 'd'
    union all
    select i.oid, t.modifier, 0, null
    from pg_catalog.pg_type as i
    where i.oid = t.typelem and i.typarray = t.oid
    union all
    select r.rngsubtype, -1, 0, null
    from pg_catalog.pg_range as r
    where r.rngtypid = t.oid
    union all
    select a.atttypid, a.atttypmod, a.attnum, a.attname::text
    from pg_catalog.pg_attribute as a
    where t.typtype = 'c' and a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
)"""
#: The types $1 with the modifiers $2, and all of their parts.
TYPES = f"""
with recursive wanted (type, modifier) as (
    select *
    from rows from (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.int4[]))
    union
    select p.type, p.modifier
    from (
        select w.modifier, t.*
        from wanted as w
        join pg_catalog.pg_type as t on t.oid = w.type
    ) as t
    cross join lateral {PARTS} as p
),
-- The planner takes them for more than there are types, and would compute what follows for every type.
found as materialized (
    select w.modifier, t.*, n.nspname
    from wanted as w
    join pg_catalog.pg_type as t on t.oid = w.type
    join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
)
select
    t.oid as number, t.modifier, pg_catalog.format_type(t.oid, t.modifier) as name,
    t.typname::text as own_name, t.nspname = 'pg_catalog' as native,
    -- After a dot no word is a keyword: the system's own names need no quotes.
    case t.nspname
        when 'pg_catalog' then 'pg_catalog.' || t.typname::text
        else pg_catalog.quote_ident(t.nspname) || '.' || pg_catalog.quote_ident(t.typname)
    end as cast,
    pg_catalog.has_schema_privilege(t.typnamespace, 'usage') as reachable,
    t.typtype::text as kind, t.typlen as length, t.typnotnull as filled, q.equatable, q.ordered,
    array(
        select e.enumlabel::text
        from pg_catalog.pg_enum as e
        where e.enumtypid = t.oid
        order by e.enumsortorder
    ) as labels,
    array(
        select coalesce(pg_catalog.pg_get_constraintdef(k.oid), '')
        from pg_catalog.pg_constraint as k
        where k.contypid = t.oid and k.contype = 'c' and k.convalidated
        order by k.conname
    ) as checks,
    array(select (p.type::pg_catalog.int8, p.modifier, p.name) from {PARTS} as p order by p.place) as parts
from found as t
-- A type without operators uses those of the type to which it is cast implicitly.
cross join lateral (
    select pg_catalog.count(*) > 0 as equatable,
        coalesce(pg_catalog.bool_or(m.amname = 'btree'), false) as ordered
    from pg_catalog.pg_opclass as l
    join pg_catalog.pg_am as m on m.oid = l.opcmethod and m.amname in ('btree', 'hash')
    join pg_catalog.pg_operator as o
        on o.oprname = '=' and o.oprleft = l.opcintype and o.oprright = l.opcintype
    where l.opcdefault
        and pg_catalog.pg_operator_is_visible(o.oid)
        and (
            l.opcintype = t.oid
            or l.opcintype in (
                select b.casttarget
                from pg_catalog.pg_cast as b
                where b.castsource = t.oid and b.castmethod = 'b' and b.castcontext = 'i'
            )
        )
) as q
"""


@dataclass(frozen=True, kw_only=True)
class DeclaredType:
    """The type of a column, and the constraints of its domains."""

    type: ColumnType
    checks: tuple[Check, ...] = ()  #: of the domains
    filled: bool = False  #: whether a domain forbids nulls


class DeclaredTypes:
    """The types of a catalog by their numbers, each created when it is first used."""

    def __init__(self, rows: Iterable[Record]) -> None:
        self._rows: Mapping[TypeNumber, Record] = {(row["number"], row["modifier"]): row for row in rows}
        self._made: dict[TypeNumber, DeclaredType] = {}

    def __getitem__(self, number: TypeNumber) -> DeclaredType:
        """Return the type of *number*."""
        found = self._made.get(number)
        if found is None:
            found = self._made[number] = self._make(self._rows[number])
        return found

    def _make(self, row: Record) -> DeclaredType:
        parts = [self[type, modifier] for type, modifier, _ in row["parts"]]
        if row["kind"] == "d":
            return _domain(row, parts[0])
        made = self._undomained(row, [part.type for part in parts])
        return DeclaredType(type=made if row["reachable"] else replace(made, equatable=False, ordered=False))

    def _undomained(self, row: Record, parts: Sequence[ColumnType]) -> ColumnType:
        named = ColumnType(family=Family.OTHER, name=row["name"], cast=row["cast"])
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
                names = (name for *_, name in row["parts"])
                return replace(made, family=Family.OBJECT, fields=tuple(zip(names, parts, strict=True)))
            case "r" | "m":
                return replace(named, large=not parts or parts[0].large)
            case _ if parts:
                ((type, modifier, _),) = row["parts"]
                item = self._rows[type, modifier]["cast"]
                return replace(made, family=Family.ARRAY, cast=f"{item}[]", element=parts[0])
            case _:
                return _scalar(row)


def _domain(row: Record, base: DeclaredType) -> DeclaredType:
    # The operators of enums do not accept a domain over an enum; those of other types do.
    comparable = base.type.family is not Family.ENUM
    checks = (check for text in row["checks"] for check in read_checks(text, lexis))
    return DeclaredType(
        type=replace(
            base.type,
            name=row["name"],
            equatable=base.type.equatable and comparable,
            ordered=base.type.ordered and comparable,
        ),
        checks=(*(check for check in checks if check.column == "VALUE"), *base.checks),
        filled=row["filled"] or base.filled,
    )


async def read_types(connection: Any, numbers: Iterable[TypeNumber]) -> Sequence[Record]:
    """Return the rows of the types *numbers*, and of all of their parts."""
    wanted = sorted(numbers)
    types, modifiers = [type for type, _ in wanted], [modifier for _, modifier in wanted]
    rows: Sequence[Record] = await connection.fetch(TYPES, types, modifiers) if wanted else ()
    return rows


def sql_name(type: asyncpg.Type) -> str:
    """Return the name of *type* in SQL: the driver writes arrays as int4[], not as _int4."""
    is_array = type.kind == "array" and type.name.endswith("[]")
    name = f"{identifier(type.name.removesuffix('[]'))}[]" if is_array else identifier(type.name)
    return f"{identifier(type.schema)}.{name}"


def _scalar(row: Record) -> ColumnType:
    # Decoding the name of an object or a role fails if it does not exist, which would reveal existing names;
    # comparing single bytes fails if the planner has statistics about them.
    name = row["own_name"] if row["native"] else ""
    names_objects = name.startswith("reg") or name == "aclitem"
    families = NATIVE if row["native"] else EXTENSIONS
    family = families.get(row["own_name"], Family.OTHER)
    half = 2 ** (8 * row["length"] - 1) if family is Family.INTEGER else None
    return ColumnType(
        family=family,
        name=row["name"],
        cast=row["cast"],
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
    text, digits = modifier - HEADER, (modifier - HEADER) >> 16
    most = {"varchar": text, "bpchar": text, "numeric": digits, "bit": modifier, "varbit": modifier}.get(name)
    if most is not None and modifier != UNLIMITED:
        return bool(most > LONGEST_SMALL)
    return bool(row["length"] < 0) and name not in SMALL


def placeholder_hint(state: str | None, sql: str) -> str:
    """Return a hint if *sql*, refused with *state*, has a `?`, which other drivers use for parameters."""
    signs = (token.text for token in code_of(sql, lexis) if token.kind is TokenKind.SIGN)
    marks = (sign for sign in signs if sign.endswith("?"))
    return "? is not a parameter: write :name." if state in MISWRITTEN and any(marks) else ""


def names_before(sign: str, sql: str) -> Iterator[tuple[str, int]]:
    """Yield the names in *sql* that *sign* follows, as the server reads them, and their offsets."""
    for token, mark in pairwise(code_of(sql, lexis)):
        if mark.text == sign and token.kind in (TokenKind.WORD, TokenKind.NAME):
            yield token.word or token.value, token.offset
