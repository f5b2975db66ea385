"""Let the server prepare operators' queries. A connection and a query in; what the server understands out.

The server prepares a query where its grammar permits nothing but a SELECT. A parameter has its declared
type. A text or a claim may also have a type whose values are written as text, such as an enum: the server
infers it.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import asyncpg

from dbtools.backends.port import NOT_READING, Declared
from dbtools.backends.postgresql.schema.types import NO_MODIFIER, TypeNumber, placeholder_hint, sql_name
from dbtools.backends.query_syntax import DECLARED_TEXT, QueryText
from dbtools.errors import Refused
from dbtools.schema.sql import Parameter

#: The grammar allows only a SELECT between them. The driver may have no codec for a column of the SELECT.
BEFORE, AFTER = "select 1 as one from (", "\n) as q limit 0"
BEFORE_COLUMNS = "select * from ("
NO_GRAMMAR = ("42601", "0A000")  #: SQLSTATEs of a syntax error and of a statement that is not allowed here
#: SQLSTATE classes of errors that are not about the query.
TEMPORARY_CLASSES = ("08", "40", "53", "55", "57", "58", "XX")

#: The SQL types of declared types, if their names differ.
SQL_TYPES: Mapping[str, str] = {
    "integer": "int8",
    "number": "float8",
    "decimal": "numeric",
    "boolean": "bool",
    "timestamp": "timestamptz",
    "json": "jsonb",
}
UNDECODABLE = (asyncpg.UnsupportedClientFeatureError, asyncpg.InternalClientError)
NamedTypes = Sequence[tuple[str, TypeNumber]]  #: names and types


@dataclass(frozen=True, kw_only=True)
class PostgresqlQuery(QueryText):
    """A query as the server prepares it, with numbered parameters and their casts."""

    casts: Mapping[str, str] = field(default_factory=dict)  #: the types that parameters are cast to
    before: str = BEFORE
    after: str = AFTER

    @cached_property
    def parameters(self) -> Mapping[str, Declared]:
        """The declared types of the parameters; claims are texts."""
        names = (piece.name for piece in self.pieces if isinstance(piece, Parameter))
        return {name: self.declared.get(name, DECLARED_TEXT) for name in names}

    @cached_property
    def texts(self) -> Sequence[str]:
        """The pieces with numbered parameters and their casts."""
        marks = {
            name: f"(${number}::{self.casts[name]})" if name in self.casts else f"${number}"
            for number, name in enumerate(self.parameters, 1)
        }
        return [piece if isinstance(piece, str) else marks[piece.name] for piece in self.pieces]

    @property
    def sql(self) -> str:
        """The statement."""
        return f"{self.before}{''.join(self.texts)}{self.after}"

    def offset_at(self, position: int) -> int:
        """Return the offset in the operator's text that is nearest to *position* in the statement."""
        starts = list(accumulate(map(len, self.texts), initial=len(self.before)))
        at = min(max(bisect_right(starts, position) - 1, 0), len(self.texts) - 1)
        piece = self.source[at]
        within = min(max(position - starts[at], 0), len(piece)) if isinstance(piece, str) else 0
        return self.start_of(at) + within


@dataclass(frozen=True, kw_only=True)
class PreparedQuery:
    """A query that the server has prepared."""

    query: PostgresqlQuery
    statement: Any  #: of asyncpg; returns no rows
    types: Mapping[str, asyncpg.Type]  #: of the parameters

    @property
    def with_nulls(self) -> str:
        """The bare query, with typed nulls as parameters."""
        nulls = {name: f"(null::{sql_name(type)})" for name, type in self.types.items()}
        return "".join(each if isinstance(each, str) else nulls[each.name] for each in self.query.pieces)

    @property
    def columns(self) -> NamedTypes:
        """The names and types of the columns, without lengths and domains."""
        return [(each.name, (each.type.oid, NO_MODIFIER)) for each in self.statement.get_attributes()]


def is_temporary(error: asyncpg.PostgresError) -> bool:
    """Return whether *error* is temporary or about the server, not about the statement."""
    return (error.sqlstate or "").startswith(TEMPORARY_CLASSES)


async def prepare_query(connection: Any, query: PostgresqlQuery) -> PreparedQuery:
    """Return *query* as the server has prepared it, or raise Refused."""
    casts = {
        name: f'"pg_catalog"."{SQL_TYPES.get(each.type, each.type)}"{"[]" if each.array else ""}'
        for name, each in query.parameters.items()
    }
    declared = {name: cast for name, cast in casts.items() if name in query.declared}
    certain = {
        name: cast for name, cast in declared.items() if query.declared[name].type != DECLARED_TEXT.type
    }
    # The server infers no type from `:p is null`. So texts are cast next, and claims last.
    for each in (certain, declared, casts):
        try:
            statement = await prepare_bare(connection, cast := replace(query, casts=each))
            types = dict(zip(cast.parameters, statement.get_parameters(), strict=True))
            return PreparedQuery(query=cast, statement=statement, types=types)
        except asyncpg.PostgresError as exc:
            if is_temporary(exc):
                raise
            problem = exc
    raise await _preparation_error(connection, problem, replace(query, casts=casts)) from problem


async def prepare_bare(connection: Any, query: PostgresqlQuery) -> Any:
    """Prepare *query*, or raise Refused if the driver has no codec for a type."""
    try:
        return await connection.prepare(query.sql)
    except UNDECODABLE as exc:
        message = "The type of a parameter or a column is a row or a range."
        raise Refused(message, hint="Cast it from a text or to a text, as in :p::text::daterange.") from exc


async def _preparation_error(
    connection: Any, error: asyncpg.PostgresError, query: PostgresqlQuery
) -> Exception:
    """Return the error of a query that cannot be prepared, as the server words it for the bare query."""
    if error.sqlstate not in NO_GRAMMAR:
        return query_error(error, query)
    alone = replace(query, casts={}, before="", after="")
    try:
        await connection.prepare(alone.sql)
    except asyncpg.PostgresError as exc:
        if exc.sqlstate in NO_GRAMMAR:
            return query_error(exc, alone)
    return Refused(NOT_READING)


def query_error(error: asyncpg.PostgresError, query: PostgresqlQuery) -> Exception:
    """Return *error* for operators, with the server's message and the offset in their text."""
    position = getattr(error, "position", None)
    offset = query.offset_at(int(position) - 1) if position else None
    note = placeholder_hint(error.sqlstate, query.text)
    hint = " ".join(filter(None, (getattr(error, "hint", None), note)))
    return Refused(f"{error.args[0]}.", hint=hint, offset=offset)
