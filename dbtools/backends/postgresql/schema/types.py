"""The types of PostgreSQL's columns, and its lexical rules. OIDs of types in, declared types out."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dbtools.backends.checks import Check, read_checks
from dbtools.backends.compiled import identifier
from dbtools.schema.sql import Lexis, Token, TokenKind, code_of
from dbtools.values.types import ColumnType, Family

if TYPE_CHECKING:
    import asyncpg
    from asyncpg import Record

#: The quotes and the comments.
lexis = Lexis(
    name_quotes='"',
    nested_comments=True,
    dollar_quotes=True,
    escape_strings=True,
    line_ends="\n\r",
    native_marks="$",
    lenient=False,
)
NAME_BYTES = 63  #: of a name; the server cuts longer ones
#: What is not itself in a string E'…': an escape, a quote, and the space before its part on another line.
ESCAPE = re.compile(
    r"\\([0-7]{1,3}|x[\da-fA-F]{1,2}|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}"
    r"|u[\da-fA-F]{4}|U00(?:0[\da-fA-F]|10)[\da-fA-F]{4}|.)"
    r"|''|'(?:\s|--[^\n\r]*[\n\r])+'",
    re.DOTALL | re.ASCII,
)
CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}  #: the letters after a backslash
MISWRITTEN = ("42601", "42883")  #: the states of a syntax error, and of an unknown operator
LONGEST_SMALL = 400  #: characters: a shorter cell is never cut
HEADER = 4  #: the number that a modifier adds to a length or a precision
NO_MODIFIER = -1  #: the modifier of a type without one

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

#: Infinite intervals, as months, days and microseconds.
INFINITIES = {
    (2**31 - 1, 2**31 - 1, 2**63 - 1): "infinity",
    (-(2**31), -(2**31), -(2**63)): "-infinity",
}
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
-- A collation that knows the case of all letters, if that of the database knows only ASCII's.
folding as materialized (
    select 'pg_catalog.' || pg_catalog.quote_ident(l.collname) as name
    from pg_catalog.pg_collation as l
    join pg_catalog.pg_database as d on d.datname = pg_catalog.current_database()
    cross join lateral (
        select pg_catalog.chr(case pg_catalog.getdatabaseencoding() when 'UTF8' then 201 else 65 end)
            as letter
    ) as c
    where l.collnamespace = 'pg_catalog'::pg_catalog.regnamespace::pg_catalog.oid
        and l.collname in ('pg_c_utf8', 'und-x-icu', 'C.utf8')
        and l.collencoding in (-1, d.encoding)
        and pg_catalog.lower(c.letter) = c.letter
    order by pg_catalog.array_position(array['pg_c_utf8', 'und-x-icu', 'C.utf8'], l.collname::text)
    limit 1
),
-- The planner takes them for more than there are types, and would compute what follows for every type.
found as materialized (
    select w.modifier, t.*, n.nspname
    from wanted as w
    join pg_catalog.pg_type as t on t.oid = w.type
    join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
)
select
    t.oid as number, t.modifier, (select f.name from folding as f) as folding,
    pg_catalog.format_type(t.oid, t.modifier) as name,
    t.typname::text as own_name, t.nspname = 'pg_catalog' as native,
    -- After a dot no word is a keyword: the system's own names need no quotes.
    case t.nspname
        when 'pg_catalog' then 'pg_catalog.' || t.typname::text
        else pg_catalog.quote_ident(t.nspname) || '.' || pg_catalog.quote_ident(t.typname)
    end as cast,
    pg_catalog.has_schema_privilege(t.typnamespace, 'usage') as reachable,
    t.typtype::text as kind, t.typlen as length, t.typnotnull as filled, q.equatable, q.ordered,
    q.operator_schema,
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
        coalesce(pg_catalog.bool_or(m.amname = 'btree'), false) as ordered,
        -- Only a superuser may create an operator class.
        coalesce(pg_catalog.min(nullif(s.nspname::text, 'pg_catalog')), '') as operator_schema
    from pg_catalog.pg_opclass as l
    join pg_catalog.pg_am as m on m.oid = l.opcmethod and m.amname in ('btree', 'hash')
    join pg_catalog.pg_operator as o
        on o.oprname = '=' and o.oprleft = l.opcintype and o.oprright = l.opcintype
    join pg_catalog.pg_amop as p
        on p.amopfamily = l.opcfamily and p.amopopr = o.oid
    join pg_catalog.pg_namespace as s on s.oid = o.oprnamespace
    where l.opcdefault
        and pg_catalog.has_schema_privilege(s.oid, 'usage')
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

    def __init__(self, rows: "Iterable[Record]") -> None:
        self._rows: Mapping[TypeNumber, Record] = {(row["number"], row["modifier"]): row for row in rows}
        self._made: dict[TypeNumber, DeclaredType] = {}

    def __getitem__(self, number: TypeNumber) -> DeclaredType:
        """Return the type of *number*."""
        found = self._made.get(number)
        if found is None:
            found = self._made[number] = self._make(self._rows[number])
        return found

    def _make(self, row: "Record") -> DeclaredType:
        parts = [self[type, modifier] for type, modifier, _ in row["parts"]]
        if row["kind"] == "d":
            return _domain(row, parts[0])
        made = self._base_type(row, [part.type for part in parts])
        made = replace(made, folding=row["folding"] or "")
        return DeclaredType(type=made if row["reachable"] else replace(made, equatable=False, ordered=False))

    def _base_type(self, row: "Record", parts: Sequence[ColumnType]) -> ColumnType:
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
                return _scalar_type(row)


def _domain(row: "Record", base: DeclaredType) -> DeclaredType:
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


async def read_types(connection: Any, numbers: Iterable[TypeNumber]) -> "Sequence[Record]":
    """Return the rows of the types *numbers*, and of all of their parts."""
    wanted = sorted(numbers)
    types, modifiers = [type for type, _ in wanted], [modifier for _, modifier in wanted]
    rows: Sequence[Record] = await connection.fetch(TYPES, types, modifiers) if wanted else ()
    return rows


def sql_name(type: "asyncpg.Type") -> str:
    """Return the name of *type* in SQL: the driver writes arrays as int4[], not as _int4."""
    is_array = type.kind == "array" and type.name.endswith("[]")
    name = f"{identifier(type.name.removesuffix('[]'))}[]" if is_array else identifier(type.name)
    return f"{identifier(type.schema)}.{name}"


def _scalar_type(row: "Record") -> ColumnType:
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
        operator_schema=row["operator_schema"],
        infinite=family in INFINITE,
        equatable=row["equatable"] and not names_objects,
        ordered=row["ordered"] and name != "char" and not names_objects,
        large=_is_large(row),
    )


def _is_large(row: "Record") -> bool:
    """Return whether the text of a cell may be longer than LONGEST_SMALL."""
    name, modifier = row["own_name"] if row["native"] else "", row["modifier"]
    text, digits = modifier - HEADER, (modifier - HEADER) >> 16
    most = {"varchar": text, "bpchar": text, "numeric": digits, "bit": modifier, "varbit": modifier}.get(name)
    if most is not None and modifier != NO_MODIFIER:
        return bool(most > LONGEST_SMALL)
    return bool(row["length"] < 0) and name not in SMALL


def duration(interval: tuple[int, int, int]) -> str:
    """Return *interval*, in months, days and microseconds, in ISO 8601 as PostgreSQL writes it."""
    months, days, microseconds = interval
    if interval in INFINITIES:
        return INFINITIES[interval]
    sign, years = (-1 if microseconds < 0 else 1), int(months / 12)
    minutes, rest = divmod(abs(microseconds), 60_000_000)
    dates = ((years, "Y"), (months - 12 * years, "M"), (days, "D"))
    times = ((sign * (minutes // 60), "H"), (sign * (minutes % 60), "M"))
    day, time = ("".join(f"{number}{unit}" for number, unit in each if number) for each in (dates, times))
    if rest:
        seconds = f"{rest // 1_000_000}.{rest % 1_000_000:06}".rstrip("0").removesuffix(".")
        time += f"{'-' if sign < 0 else ''}{seconds}S"
    return f"P{day}{'T' if time else ''}{time}" if day or time else "PT0S"


def placeholder_hint(state: str | None, sql: str) -> str:
    """Return a hint if *sql*, refused with *state*, has a `?`, which other drivers use for parameters."""
    signs = (token.text for token in code_of(sql, lexis) if token.kind is TokenKind.SIGN)
    marks = (sign for sign in signs if sign.endswith("?"))
    return "? is not a parameter: write :name." if state in MISWRITTEN and any(marks) else ""


def cut_name(name: str) -> str:
    """Return *name* as the server cuts it."""
    return name.encode()[:NAME_BYTES].decode(errors="ignore")


def name_of(token: Token) -> str:
    """Return the name that *token* is to the server, which folds ASCII letters only."""
    if token.kind is TokenKind.NAME:
        return cut_name(token.value)
    return cut_name("".join(c.lower() if c.isascii() else c for c in token.text))


def string_of(token: Token) -> str:
    """Return the value of a string in any of its forms."""
    text = token.text
    if text[0] == "'":
        return token.value
    if text[0] == "$":
        mark = text.index("$", 1) + 1
        return text[mark:-mark]
    # The server rejects bytes that are not UTF-8.
    return b"".join(_unescape(text[2:-1])).decode(errors="replace")


def _unescape(content: str) -> Iterator[bytes]:
    """Yield the *content* of a string E'…' without escapes."""
    end = 0
    for found in ESCAPE.finditer(content):
        yield content[end : found.start()].encode(errors="surrogatepass")
        code, end = found[1], found.end()
        if code is None:
            yield b"'" if found[0] == "''" else b""
        elif code[0] in "01234567":
            yield bytes([int(code, 8) & 255])
        elif len(code) == 1:
            yield CONTROLS.get(code, code).encode(errors="surrogatepass")
        elif code[0] == "x":
            yield bytes([int(code[1:], 16)])
        elif code[0] == "U":
            yield chr(int(code[1:], 16)).encode(errors="surrogatepass")
        else:
            yield bytes.fromhex(code[1:].replace("\\u", "")).decode("utf-16-be", "replace").encode()
    yield content[end:].encode(errors="surrogatepass")


def names_before(sign: str, sql: str) -> Iterator[tuple[str, int]]:
    """Yield the names in *sql* that *sign* follows, as the server reads them, and their offsets."""
    for token, mark in pairwise(code_of(sql, lexis)):
        if mark.text == sign and token.is_name:
            yield name_of(token), token.offset
