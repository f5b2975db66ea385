"""Find what the names in operators' SQL may mean. SQL and a connection in; a version out, or a refusal.

PostgreSQL finds functions and operators by name in the whole search path, and prefers an exact match in any
schema to those of the system. So anyone who may create objects in one of these schemas could change what the
names in a row filter resolve to. A name stands for an object of the system or of an extension, for an object
that is written with its schema, or for the only object that has the name. Whatever else SQL uses is refused.
So is a function that resolves the names in its body in the same way, each time that it runs.

The version of SQL is a number of all objects of users that have one of its names. A statement whose version
has changed fails before its rows leave the server.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self
from urllib.parse import quote

from asyncpg import Record

from dbtools.backends.postgresql.connection.pipeline import rolled_back
from dbtools.backends.postgresql.schema.types import cut_name, lexis, name_of, string_of
from dbtools.backends.postgresql.schema.vocabulary import IMPLIED
from dbtools.errors import Refused
from dbtools.schema.sql import QUOTED, Token, TokenKind, code_of, words

COMPARISONS = words("= <> < <= > >=")
UNQUALIFIED = ("relation", "type", "collation", "configuration", "dictionary")  #: kinds without overloading


#: The prefix of the column that has the owner, by catalog.
OWNED = {
    "pg_class": "rel",
    "pg_collation": "coll",
    "pg_operator": "opr",
    "pg_proc": "pro",
    "pg_ts_config": "cfg",
    "pg_ts_dict": "dict",
    "pg_type": "typ",
}


def of_extension(catalog: str, row: str) -> str:
    """Return the condition that *row* of the system's *catalog* came with an extension.

    The owner of an extension, who need not be a superuser, may add own objects to it: only those of
    superusers count. A cast has no owner: who creates it owns one of its types.
    """
    superusers = "(select u.oid from pg_catalog.pg_roles as u where u.rolsuper)"
    if catalog == "pg_cast":
        owned = f"""not exists (
            select from pg_catalog.pg_type as o
            where o.oid in ({row}.castsource, {row}.casttarget) and o.typowner not in {superusers}
        )"""
    else:
        owned = f"{row}.{OWNED[catalog]}owner in {superusers}"
    return f"({is_member(catalog, row)} and {owned})"


def is_member(catalog: str, row: str) -> str:
    """Return the condition that *row* of the system's *catalog* belongs to an extension of any owner."""
    return f"""exists (
        select from pg_catalog.pg_depend as e
        where e.classid = 'pg_catalog.{catalog}'::pg_catalog.regclass::pg_catalog.oid
            and e.objid = {row}.oid and e.deptype = 'e'
    )"""


def _named_objects(kind: str, catalog: str, prefix: str, names: str, described: str, rest: str = "") -> str:
    """Return the SELECT of the users' objects in *catalog* that have one of *names*."""
    return f"""
select '{kind}' as kind, 'pg_catalog.{catalog}'::pg_catalog.regclass::pg_catalog.oid as class,
    x.oid as number, s.nspname::text as schema, x.{prefix}name::text as name,
    {described} as described, x.{prefix}owner as owner,
    exists (
        select
        from pg_catalog.{catalog} as y
        where y.{prefix}name = x.{prefix}name and y.oid <> x.oid
            and (y.oid < '16384' or {of_extension(catalog, "y")})
    ) as known
from pg_catalog.{catalog} as x
join schemas as s on s.oid = x.{prefix}namespace
where x.{prefix}name = any({names}::pg_catalog.name[]) and x.oid >= '16384'
    and not {of_extension(catalog, "x")}{rest}"""


SCHEMAS = """schemas as materialized (
    select n.oid, n.nspname
    from pg_catalog.pg_namespace as n
    where n.nspname = any($1::pg_catalog.name[])
)"""
NAMED_KINDS = (
    ("operator", "pg_operator", "opr", "$2", "x.oid::pg_catalog.regoperator::text"),
    ("function", "pg_proc", "pro", "$1", "x.oid::pg_catalog.regprocedure::text"),
    ("relation", "pg_class", "rel", "$1", "x.relname::text", " and x.relkind not in ('i', 'I')"),
    ("type", "pg_type", "typ", "$1", "x.typname::text", " and x.typrelid = '0'"),
    ("collation", "pg_collation", "coll", "$1", "x.collname::text"),
    ("configuration", "pg_ts_config", "cfg", "$1", "x.cfgname::text"),
    ("dictionary", "pg_ts_dict", "dict", "$1", "x.dictname::text"),
)
#: The objects of users that have one of the names $1 or are one of the operators $2, in schemas that are also
#: among the names; and all casts by functions of users.
NAMED = f"""
with {SCHEMAS},
named as (
{" union all ".join(_named_objects(*kind) for kind in NAMED_KINDS)}
    union all
    select 'cast', 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid, f.oid, s.nspname::text,
        f.proname::text, f.oid::pg_catalog.regprocedure::text, f.proowner,
        x.castsource < '16384' and x.casttarget < '16384' or exists (
            select
            from pg_catalog.pg_attribute as a
            where a.atttypid in (x.castsource, x.casttarget) and a.attname = any($1::pg_catalog.name[])
        )
    from pg_catalog.pg_cast as x
    join pg_catalog.pg_proc as f on f.oid = x.castfunc
    join pg_catalog.pg_namespace as s on s.oid = f.pronamespace
    where x.oid >= '16384' and not {of_extension("pg_cast", "x")}
)"""
NAMED_ROWS = f"{NAMED} select n.* from named as n order by n.kind, n.schema, n.described"
#: The version of the names.
NAMES_NUMBER = f"""{NAMED}
select pg_catalog.hashtextextended(
    coalesce(pg_catalog.string_agg(
        pg_catalog.concat_ws(' ', n.kind, n.number), ',' order by n.kind, n.number
    ), ''),
    '0'
)
from named as n"""
#: What depends on nothing but its own names: the objects that those in `used` call, functions and operators.
CALLS = """
    select d.refclassid, d.refobjid, false
    from used as u
    join pg_catalog.pg_depend as d on d.classid = u.class and d.objid = u.number
    where u.class in (
        'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid,
        'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid
    )"""
#: The functions that the SQL with the names $1 and operators $2 may call, also by way of others, and that
#: resolve the names in their bodies each time that they run. A body of BEGIN ATOMIC is not in prosrc.
BODIES = f"""
with recursive {SCHEMAS},
used (class, number, direct) as (
    select 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid, x.oid, true
    from pg_catalog.pg_proc as x
    join schemas as s on s.oid = x.pronamespace
    where x.oid >= '16384' and x.proname = any($1::pg_catalog.name[])
    union
    select 'pg_catalog.pg_operator'::pg_catalog.regclass::pg_catalog.oid, x.oid, true
    from pg_catalog.pg_operator as x
    join schemas as s on s.oid = x.oprnamespace
    where x.oid >= '16384' and x.oprname = any($2::pg_catalog.name[])
    union
    select 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid, x.castfunc, true
    from pg_catalog.pg_cast as x
    where x.castfunc >= '16384'
    union{CALLS}
)
select distinct 'body' as kind, u.class, u.number, f.proname::text as name,
    pg_catalog.concat(
        pg_catalog.quote_ident(n.nspname), '.', pg_catalog.quote_ident(f.proname),
        '(', pg_catalog.pg_get_function_identity_arguments(f.oid), ')'
    ) as described
from used as u
join pg_catalog.pg_proc as f
    on u.class = 'pg_catalog.pg_proc'::pg_catalog.regclass::pg_catalog.oid and f.oid = u.number
join pg_catalog.pg_namespace as n on n.oid = f.pronamespace
join pg_catalog.pg_language as l on l.oid = f.prolang
where f.oid >= '16384' and l.lanname not in ('c', 'internal') and f.prosrc <> ''
    and not exists (
        select
        from pg_catalog.unnest(f.proconfig) as c (setting)
        where pg_catalog.starts_with(c.setting, 'search_path=')
    )
order by 5
"""
SEARCH_PATH = """
select pg_catalog.current_schemas(false)::text[], pg_catalog.current_setting('search_path'),
    session_user::text
"""
SCHEMA_NAME = re.compile(r'"((?:[^"]|"")+)"|([^\s,"]+)')  #: in a search path
#: What the rule of the relation $1 uses, directly or by way of functions, besides what belongs to the system.
USED = f"""
with recursive used (class, number, direct) as (
    select d.refclassid, d.refobjid, true
    from pg_catalog.pg_rewrite as r
    join pg_catalog.pg_depend as d
        on d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid and d.objid = r.oid
    where r.ev_class = $1::pg_catalog.oid
    union{CALLS}
)
select u.class, u.number, pg_catalog.bool_or(u.direct) as direct from used as u group by 1, 2
"""
NAME_IN_TEXT = re.compile(r'"((?:[^"]|"")+)"|([^\s".,()\[\]]+)')  #: in a text


@dataclass(frozen=True, kw_only=True)
class SqlNames:
    """The names in SQL, as the server reads them."""

    words: frozenset[str]
    signs: frozenset[str]  #: of operators
    bare: frozenset[str]  #: those of both that are somewhere written without a schema
    placed: frozenset[tuple[str, str]]  #: schemas, or tables and aliases, each with the name after it
    path: tuple[str, ...]  #: the schemas of the search path

    @classmethod
    def of(cls, sql: str, path: tuple[str, ...]) -> Self:
        """Return the names in *sql*, and the schemas of *path*, in which the server looks for them."""
        tokens = code_of(sql, lexis)
        if any(_is_escaped(*each) for each in zip(tokens, tokens[1:], tokens[2:], strict=False)):
            # Words in the text are not the names that the server reads.
            raise Refused("U&'…' and U&\"…\" are not supported.", hint="Write the characters themselves.")
        found = _Found()
        for before, token in pairwise([Token(TokenKind.SIGN, "", 0, 0), *tokens]):
            found.add(token, before)
        return cls(
            words=frozenset((*found.words, *path)),
            signs=frozenset((*found.signs, *COMPARISONS)),
            bare=frozenset(found.bare),
            placed=frozenset(found.placed),
            path=path,
        )

    @property
    def lists(self) -> tuple[Sequence[str], Sequence[str]]:
        """The words and the operators, sorted."""
        return sorted(self.words), sorted(self.signs)

    def version(self, number: int) -> str:
        """Return the version of which *number* is the hash."""
        return " ".join((*map(_array, self.lists), str(number)))

    def are_placed(self, row: Record) -> bool:
        """Return whether the object *row* is always written with its schema."""
        return (row["schema"], row["name"]) in self.placed and row["name"] not in self.bare


@dataclass(kw_only=True)
class _Found:
    """The names found so far."""

    words: set[str] = field(default_factory=set)
    signs: set[str] = field(default_factory=set)
    bare: set[str] = field(default_factory=set)
    placed: set[tuple[str, str]] = field(default_factory=set)
    schema: str = ""  #: the name before a dot
    text: str = ""  #: the string before

    def add(self, token: Token, before: Token) -> None:
        """Add the names of *token*, which follows *before*."""
        is_placed = before.text == "."
        match token.kind:
            case TokenKind.WORD | TokenKind.NAME:
                for sign in IMPLIED.get(token.word, ()):
                    self.signs.add(sign)
                    self.bare.add(sign)
                if token.word:
                    # In an encoding of single bytes, the server folds all letters.
                    self._add_name(cut_name(token.word), is_placed)
                self._add_name(name_of(token), is_placed)
            case TokenKind.TEXT:
                # The server joins strings on several lines.
                self.text = (self.text if before.kind is TokenKind.TEXT else "") + string_of(token)
                self._add_text(self.text)
            case TokenKind.SIGN if token.text not in (".", ",", "::", ":="):
                sign = "<>" if token.text == "!=" else token.text
                self.signs.add(sign)
                self._place(sign, is_placed)

    def _add_text(self, text: str) -> None:
        """Add the names in *text*, which may be cast to a type whose values are names."""
        found = [*NAME_IN_TEXT.finditer(text)]
        names = [cut_name(each[1].replace('""', '"')) if each[1] else _folded_name(each[2]) for each in found]
        if all(text[here.end() : there.start()].strip() == "." for here, there in pairwise(found)):
            for at, name in enumerate(names):
                self._add_name(name, is_placed=at > 0)
        self.words.update(names)

    def _add_name(self, name: str, is_placed: bool) -> None:
        self.words.add(name)
        self._place(name, is_placed)
        self.schema = name

    def _place(self, name: str, is_placed: bool) -> None:
        if is_placed:
            self.placed.add((self.schema, name))
        else:
            self.bare.add(name)


def _is_escaped(first: Token, sign: Token, quote: Token) -> bool:
    """Return whether these tokens are a string or a name after U&."""
    is_one = first.end == sign.offset and sign.end == quote.offset
    return is_one and first.word == "u" and sign.text == "&" and quote.kind in QUOTED


def _folded_name(word: str) -> str:
    return name_of(Token(TokenKind.WORD, word, 0, 0))


def _array(texts: Sequence[str]) -> str:
    """Return *texts* as an array of the server, without blanks."""
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return quote("{" + ",".join(f'"{text}"' for text in quoted) + "}")


async def search_path_of(connection: Any) -> tuple[str, ...]:
    """Return the schemas on the search path of *connection*, also those that could be created later."""
    async with rolled_back(connection, "begin read only"):
        present, written, user = await connection.fetchrow(SEARCH_PATH)
    names = (quoted.replace('""', '"') or bare for quoted, bare in SCHEMA_NAME.findall(written))
    return tuple(dict.fromkeys((*present, *(user if name == "$user" else name for name in names))))


async def version_of(connection: Any, names: SqlNames) -> str:
    """Return the current version of *names*, to be read before the server parses the SQL that has them."""
    return names.version(await connection.fetchval(NAMES_NUMBER, *names.lists))


async def suspects(connection: Any, names: SqlNames) -> Sequence[Record]:
    """Return the objects that *names* must not mean: those of users with a namesake, and unfixed bodies."""
    groups: defaultdict[tuple[str, str], list[Record]] = defaultdict(list)
    for row in await connection.fetch(NAMED_ROWS, *names.lists):
        groups[row["kind"], row["name"]].append(row)
    replacing = [row for group in groups.values() for row in group if _may_replace(row, group, names)]
    return [*replacing, *await connection.fetch(BODIES, *names.lists)]


def _may_replace(row: Record, group: Sequence[Record], names: SqlNames) -> bool:
    """Return whether *row* may stand for something else; *group* has its name as well."""
    found = [each for each in group if each["schema"] in names.path]
    if row["kind"] == "cast":
        return not names.are_placed(row)
    if not names.are_placed(row):
        return len(found) > 1 or (row["known"] and row["kind"] not in UNQUALIFIED)
    # If all have one owner, no other role can add an overload there.
    return len({each["owner"] for each in group if each["schema"] == row["schema"]}) > 1


async def check_used(connection: Any, found: Iterable[Record], relation: int) -> None:
    """Raise Refused if the rule of *relation* uses one of the objects *found*."""
    used = {(row["class"], row["number"]): row["direct"] for row in await connection.fetch(USED, relation)}
    for row in found:
        is_direct = used.get((row["class"], row["number"]))
        if is_direct or (is_direct is not None and row["kind"] == "body"):
            raise Refused(_problem(row), hint=_remedy(row))


def check_named(found: Iterable[Record], names: SqlNames) -> None:
    """Raise Refused if one of *found* may be meant, as it is not known what the server makes of *names*."""
    for row in found:
        match row["kind"]:
            case "body":
                may_be = True
            case "cast":
                may_be = row["known"]
            case _:
                may_be = row["name"] in names.bare
        if may_be:
            raise Refused(
                f"{_problem(row, 'may be')} The login lacks TEMPORARY to find out.", hint=_remedy(row)
            )


def _problem(row: Record, verb: str = "is") -> str:
    name = row["name"]
    match row["kind"]:
        case "cast":
            return f"A cast here {verb} the function {row['described']}, which does not belong to PostgreSQL."
        case "body":
            return (
                f"The function {row['described']} {verb} called here, and resolves the names in its body "
                "by the search path."
            )
        case "operator" | "function":
            return f"{name} {verb} {row['schema']}.{row['described'].removeprefix(row['schema'] + '.')} here."
        case _:
            return (
                f"{name} {verb} {row['schema']}.{name} here, but other schemas of the search path have one."
            )


def _remedy(row: Record) -> str:
    match row["kind"]:
        case "cast":
            return "Call the function itself, with its schema, if you mean it."
        case "body":
            return (
                f"Run: alter function {row['described']} set search_path = pg_catalog, pg_temp. Other names "
                "in its body then need their schemas. Or give it a body of BEGIN ATOMIC."
            )
        case "operator":
            own, system = (f"operator({schema}.{row['name']})" for schema in (row["schema"], "pg_catalog"))
            return f"Write {own} if you mean it, or {system}."
        case _:
            return f"Write {row['schema']}.{row['name']} if you mean it."
