"""Read the conditions of partial unique indexes. A connection in; conditions whose names are fixed out.

PostgreSQL prints names of the system without their schema, so they may mean something else on the search path
of another session. Here each operator, function and type gets its schema. A condition that has anything else,
such as a collation or a function of users, gets no SQL.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import asyncpg
from asyncpg import Record

from dbtools.backends.postgresql.schema.catalog_queries import SHORT_LOCK_TIMEOUT
from dbtools.backends.postgresql.schema.dependencies import columns_read_by
from dbtools.backends.postgresql.schema.types import lexis
from dbtools.schema.sql import Token, TokenKind, code_of, words

#: The partial unique indexes over columns of the tables $1. `plain`: whether their conditions use only
#: functions and operators of the system.
PARTIAL_KEYS = f"""
select i.indrelid as relation, (i.indkey::pg_catalog.int2[])[0:i.indnkeyatts - 1] as columns,
    pg_catalog.pg_get_expr(i.indpred, i.indrelid, true) as shown,
    pg_catalog.pg_get_expr(i.indpred, i.indrelid) as condition,
    {columns_read_by("i.indpred")} as reads,
    array(
        select p.proname::text
        from pg_catalog.regexp_matches(i.indpred::pg_catalog.text, ':funcid (\\d+)', 'g') as v (numbers)
        join pg_catalog.pg_proc as p on p.oid = v.numbers[1]::pg_catalog.oid
    ) as functions,
    not exists (
        select
        from pg_catalog.pg_depend as d
        where d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.objid = i.indexrelid
            and d.refclassid in (
                'pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass
            )
    ) as plain
from pg_catalog.pg_index as i
where i.indrelid = any($1::pg_catalog.oid[])
    and i.indisunique and i.indisvalid and i.indimmediate and i.indpred is not null and i.indexprs is null
    and not exists (
        select
        from rows from (
            pg_catalog.unnest(i.indkey::pg_catalog.int2[]),
            pg_catalog.unnest(i.indcollation::pg_catalog.oid[])
        ) as u (number, used)
        join pg_catalog.pg_attribute as a on a.attrelid = i.indrelid and a.attnum = u.number
        join pg_catalog.pg_collation as l on l.oid = a.attcollation
        where u.used <> a.attcollation and not l.collisdeterministic
    )
order by i.indrelid, i.indexrelid
"""
SYSTEM = "pg_catalog"
#: Words that are syntax, whatever the search path is.
SYNTAX = words("and or not is null true false unknown any all array coalesce")
#: The first words of types that the grammar knows, which take no schema, and the words that follow them.
TYPE_WORDS = words(
    "bigint bit boolean character double integer interval numeric real smallint time timestamp"
)
IN_TYPES = words("varying precision with without time zone")
NO_TOKEN = Token(TokenKind.SEMICOLON, "", -1, -1)


class ConditionNames(NamedTuple):
    """What the names in a condition may be."""

    columns: frozenset[str]
    functions: frozenset[str]


async def read_partial_keys(connection: Any, relations: Collection[int]) -> Sequence[Record]:
    """Return the partial unique indexes of *relations*, or none while a migration locks one of them.

    The search path must be that of the system.
    """
    try:
        async with connection.transaction():
            await connection.execute(SHORT_LOCK_TIMEOUT)
            rows: Sequence[Record] = await connection.fetch(PARTIAL_KEYS, list(relations))
            return rows
    except asyncpg.PostgresError:
        return ()


def predicate_of(row: Record) -> str:
    """Return the condition of *row* with the schema of each name, empty if that cannot be written."""
    if not row["plain"]:
        return ""
    tokens = [*[NO_TOKEN] * 3, *code_of(row["condition"], lexis), NO_TOKEN]
    names = ConditionNames(columns=frozenset(row["reads"]), functions=frozenset(row["functions"]))
    try:
        return " ".join(_qualified_token(tokens[at - 3 : at + 2], names) for at in range(3, len(tokens) - 1))
    except ValueError:
        return ""


def _qualified_token(around: Sequence[Token], names: ConditionNames) -> str:
    """Return the fourth token of *around* with its schema, or raise ValueError."""
    first, second, before, token, _ = around
    match token.kind:
        case TokenKind.OPENING | TokenKind.CLOSING | TokenKind.NUMBER:
            return token.text
        # What a backslash means depends on a setting.
        case TokenKind.TEXT if token.text.startswith("'") and "\\" not in token.text:
            return token.text
        case TokenKind.SIGN if token.text in (",", "::") or (token.text == "." and second.text == "::"):
            return token.text
        case TokenKind.SIGN if token.text != ".":
            return f"OPERATOR({SYSTEM}.{token.text})"
    if token.is_name and before.text == "." and first.text == "::":
        return token.text
    if token.is_name and before.text != ".":
        return _written_name(around, names)
    raise ValueError(token.text)


def _written_name(around: Sequence[Token], names: ConditionNames) -> str:
    """Return the fourth token of *around*, which is a name, with its schema, or raise ValueError."""
    *_, before, token, after = around
    is_of_type = token.word in IN_TYPES and before.word in TYPE_WORDS | IN_TYPES
    if before.text == "::":
        return token.text if after.text == "." or token.word in TYPE_WORDS else f"{SYSTEM}.{token.text}"
    if token.word in SYNTAX or is_of_type:
        return token.text
    if after.text == "(" and token.value in names.functions:
        return f"{SYSTEM}.{token.text}"
    if after.text != "(" and token.value in names.columns:
        return token.text
    raise ValueError(token.text)
