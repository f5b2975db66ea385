"""Prepare a query to learn the types of its parameters. Pieces in, a prepared statement and types out.

A parameter has its declared type. A text or a claim may also have a type whose values are written as text,
such as an enum: the server infers it. Nothing is run.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import asyncpg

from dbtools.backends.plans import Piece
from dbtools.backends.port import NOT_READING, Declared, refusal
from dbtools.backends.postgresql.syntax import placeholder_hint
from dbtools.backends.postgresql.types import sql_name
from dbtools.sql import Parameter

BEFORE, AFTER = "select * from (", "\n) as q limit 0"  #: the grammar allows only a SELECT between them
BLIND = "select 1 as one from ("  #: if the driver has no codec for a column
NO_GRAMMAR = ("42601", "0A000")  #: SQLSTATEs of a syntax error and of a statement that is not allowed here
PASSING = ("08", "40", "53", "55", "57", "58", "XX")  #: SQLSTATE classes that do not concern the query

#: The SQL types of declared types.
CASTS: Mapping[str, str] = {
    "integer": "int8",
    "number": "float8",
    "decimal": "numeric",
    "text": "text",
    "boolean": "bool",
    "date": "date",
    "time": "time",
    "timestamp": "timestamptz",
    "uuid": "uuid",
    "json": "jsonb",
}
UNDECODABLE = (asyncpg.UnsupportedClientFeatureError, asyncpg.InternalClientError)
TEXT = Declared(type="text", array=False)


def is_passing(error: asyncpg.PostgresError) -> bool:
    """Return whether *error* concerns the server or the moment, and not the statement."""
    return (error.sqlstate or "").startswith(PASSING)


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query in pieces, as the operator wrote it and as PostgreSQL reads it."""

    source: Sequence[Piece]
    pieces: Sequence[Piece]
    declared: Mapping[str, Declared]
    casts: Mapping[str, str] = field(default_factory=dict)  #: the types that parameters are cast to
    before: str = BEFORE
    after: str = AFTER

    @cached_property
    def parameters(self) -> Mapping[str, Declared]:
        """The declared types of the parameters; claims are texts."""
        names = (piece.name for piece in self.pieces if isinstance(piece, Parameter))
        return {name: self.declared.get(name, TEXT) for name in names}

    def offset_of(self, name: str) -> int:
        """Return the offset of the first parameter *name* in the operator's text."""
        return self.start_of(next(at for at, piece in enumerate(self.source) if str(piece) == f":{name}"))

    def start_of(self, at: int) -> int:
        """Return the offset of piece number *at*."""
        return sum(len(str(piece)) for piece in self.source[:at])

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

    def with_nulls(self, casts: Mapping[str, str]) -> str:
        """Return the bare query, with nulls of the types *casts* as parameters."""
        nulls = {name: f"(null::{cast})" for name, cast in casts.items()}
        return "".join(each if isinstance(each, str) else nulls[each.name] for each in self.pieces)


@dataclass(frozen=True, kw_only=True)
class PreparedQuery:
    """A query that the server has prepared."""

    query: Query
    statement: Any  #: of asyncpg; returns no rows
    types: Mapping[str, asyncpg.Type]  #: of the parameters
    casts: Mapping[str, str]  #: the SQL names of these types

    @property
    def columns(self) -> Sequence[asyncpg.Attribute] | None:
        """The columns, or None if the driver has no codec for one."""
        return None if self.query.before == BLIND else self.statement.get_attributes()


async def prepare_query(connection: Any, query: Query) -> PreparedQuery:
    """Return *query* as the server has prepared it, or raise Refused.

    The driver has no codec for a row or a range of types that it reads as text: such columns are left out.
    """
    for each in (query, replace(query, before=BLIND)):
        with suppress(*UNDECODABLE):
            return await _prepare_query(connection, each)
    raise refusal(
        "The type of a parameter is a row or a range.", hint="Cast it from a text, as in :p::text::daterange."
    )


async def _prepare_query(connection: Any, query: Query) -> PreparedQuery:
    casts = {
        name: f'"pg_catalog"."{CASTS[each.type]}"{"[]" if each.array else ""}'
        for name, each in query.parameters.items()
    }
    declared = {name: cast for name, cast in casts.items() if name in query.declared}
    certain = {name: cast for name, cast in declared.items() if query.declared[name].type != TEXT.type}
    # The server infers no type from `:p is null`. Then texts are cast too, and claims last.
    for each in (certain, declared, casts):
        try:
            return await _prepare(connection, replace(query, casts=each))
        except asyncpg.PostgresError as exc:
            if is_passing(exc):
                raise
            problem = exc
    raise await _refused(connection, problem, replace(query, casts=casts)) from problem


async def _prepare(connection: Any, query: Query) -> PreparedQuery:
    statement = await connection.prepare(query.sql)
    types = dict(zip(query.parameters, statement.get_parameters(), strict=True))
    casts = {name: sql_name(type) for name, type in types.items()}
    return PreparedQuery(query=query, statement=statement, types=types, casts=casts)


async def _refused(connection: Any, error: asyncpg.PostgresError, query: Query) -> Exception:
    """Return the error of a query that cannot be prepared, with the message for the bare query."""
    if error.sqlstate not in NO_GRAMMAR:
        return refused(error, query)
    alone = replace(query, casts={}, before="", after="")
    try:
        await connection.prepare(alone.sql)
    except asyncpg.PostgresError as exc:
        if exc.sqlstate in NO_GRAMMAR:
            return refused(exc, alone)
    return refusal(NOT_READING)


def refused(error: asyncpg.PostgresError, query: Query) -> Exception:
    """Return *error* for operators, with the server's message and the offset in their text."""
    position = getattr(error, "position", None)
    offset = query.offset_at(int(position) - 1) if position else None
    note = placeholder_hint(error.sqlstate, "".join(map(str, query.source)))
    hint = " ".join(filter(None, (getattr(error, "hint", None), note)))
    return refusal(f"{error.args[0]}.", hint=hint, offset=offset)
