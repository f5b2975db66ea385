"""What the server takes the parameters of a query for. Pieces in; a prepared statement and types out.

Where the server finds no type in the place of a parameter, it has the one it has in other places, or else the
one that is declared. Nothing is run.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, product
from typing import Any

import asyncpg

from dbtools.backends.plans import Piece
from dbtools.backends.port import NOT_READING, Declared, refusal
from dbtools.backends.postgresql.syntax import MISWRITTEN, NO_PARAMETER, placeholder_in
from dbtools.backends.postgresql.types import sql_name
from dbtools.sql import Parameter

BEFORE, AFTER = "select * from (", "\n) as q limit 0"  #: what grammar allows between them only reads
BLIND = "select 1 as one from ("  #: where the driver has no codec for a column
NO_GRAMMAR = ("42601", "0A000")  #: the states of what is no statement, or not in such a place
AMBIGUOUS = "42P08"  #: the state of a parameter without context
#: The states of what may be well with the parameters' types: operators and functions that are not unique,
#: types that differ, none to be found.
UNTYPED = ("42725", "42804", "42883", "42P18", "42P38", "42846", AMBIGUOUS)
PASSING = ("08", "40", "53", "55", "57", "58", "XX")  #: classes of errors that say nothing of the query

#: What a parameter is taken for where its place does not tell; another, where the first does not fit.
TYPES: Mapping[str, tuple[str, ...]] = {
    "integer": ("int8", "int4"),
    "number": ("float8", "numeric"),
    "decimal": ("numeric",),
    "text": ("text",),
    "boolean": ("bool",),
    "date": ("date",),
    "time": ("time",),
    "timestamp": ("timestamptz", "timestamp"),
    "uuid": ("uuid",),
    "json": ("jsonb", "json"),
}
UNDECODABLE = (asyncpg.UnsupportedClientFeatureError, asyncpg.InternalClientError)
TEXT = Declared(type="text", array=False)
TEXTS = ('"pg_catalog"."text"', '"pg_catalog"."text"[]')


def casts_of(declared: Declared) -> tuple[str, ...]:
    """Return the SQL types that may stand for *declared*, the best first."""
    suffix = "[]" if declared.array else ""
    return tuple(f'"pg_catalog"."{name}"{suffix}' for name in TYPES[declared.type])


def is_passing(error: asyncpg.PostgresError) -> bool:
    """Return whether *error* is of the server or of the moment, and not of the statement."""
    return (error.sqlstate or "").startswith(PASSING)


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query in the pieces that the operator wrote, and as many as this database reads them."""

    source: Sequence[Piece]
    pieces: Sequence[Piece]
    declared: Mapping[str, Declared]
    before: str = BEFORE

    @cached_property
    def parameters(self) -> Mapping[str, Declared]:
        """The parameters by name, each with what it is declared; claims are texts."""
        names = (piece.name for piece in self.pieces if isinstance(piece, Parameter))
        return {name: self.declared.get(name, TEXT) for name in names}

    def offset_of(self, name: str) -> int:
        """Return where the operator first wrote the parameter *name*."""
        return self.start_of(next(at for at, piece in enumerate(self.source) if str(piece) == f":{name}"))

    def start_of(self, at: int) -> int:
        """Return the offset of the piece with the number *at*."""
        return sum(len(str(piece)) for piece in self.source[:at])

    def cast(self, casts: Mapping[str, str], loose: Sequence[int] = ()) -> "Written":
        """Return the statement with numbered parameters, cast to their *casts*, and nulls where *loose*."""
        numbers: dict[str, int] = {}
        texts = []
        for at, piece in enumerate(self.pieces):
            if isinstance(piece, str):
                texts.append(piece)
            elif at in loose:
                texts.append("(null)")
            else:
                mark = f"${numbers.setdefault(piece.name, len(numbers) + 1)}"
                texts.append(f"({mark}::{casts[piece.name]})" if piece.name in casts else mark)
        return Written(query=self, texts=texts, before=self.before, after=AFTER, names=tuple(numbers))

    def with_nulls(self, casts: Mapping[str, str]) -> str:
        """Return the query alone, with nulls of the types *casts* for its parameters."""
        nulls = {name: f"(null::{cast})" for name, cast in casts.items()}
        return "".join(each if isinstance(each, str) else nulls[each.name] for each in self.pieces)


@dataclass(frozen=True, kw_only=True)
class Written:
    """One way to write a query, and where its pieces stand in it."""

    query: Query
    texts: Sequence[str]
    before: str
    after: str
    names: tuple[str, ...]  #: of the parameters by their numbers, from 1

    @cached_property
    def sql(self) -> str:
        """The statement."""
        return f"{self.before}{''.join(self.texts)}{self.after}"

    def piece_at(self, position: int) -> int:
        """Return the number of the piece that stands at *position*."""
        starts = list(accumulate(map(len, self.texts), initial=len(self.before)))
        return min(max(bisect_right(starts, position) - 1, 0), len(self.texts) - 1)

    def offset_at(self, position: int) -> int:
        """Return the offset in the operator's text of what stands at *position*, or is nearest to it."""
        at = self.piece_at(position)
        within = position - len(self.before) - sum(map(len, self.texts[:at]))
        piece = self.query.source[at]
        return self.query.start_of(at) + (min(max(within, 0), len(piece)) if isinstance(piece, str) else 0)


@dataclass(frozen=True, kw_only=True)
class PreparedQuery:
    """A query as the server understands it."""

    query: Query
    statement: Any  #: of asyncpg: the query, that shows no rows
    types: Mapping[str, asyncpg.Type]  #: of the parameters
    casts: Mapping[str, str]  #: their names in SQL

    @property
    def columns(self) -> Sequence[asyncpg.Attribute] | None:
        """The columns; None where the driver cannot tell them."""
        return None if self.query.before == BLIND else self.statement.get_attributes()


async def prepare_query(connection: Any, query: Query) -> PreparedQuery:
    """Return *query* with every parameter cast to the type it has, or raise Refused.

    Of a row or a range whose parts the driver is to hand on as texts it has no codec: then it is not shown.
    """
    try:
        return await _prepare_query(connection, query)
    except UNDECODABLE as exc:
        if query.before == BLIND:
            message = "A parameter is taken for a row or a range."
            raise refusal(message, hint="Cast it from a text, as in :p::text::daterange.") from exc
    return await prepare_query(connection, replace(query, before=BLIND))


async def _prepare_query(connection: Any, query: Query) -> PreparedQuery:
    first = await _first(connection, query)
    declared = {name: casts_of(each)[0] for name, each in query.parameters.items()}
    if not declared:
        return first
    found = declared | dict(first.casts)
    # A text is also what the server says where it knows nothing: there the declared type may fit as well.
    fitting = found | {name: declared[name] for name, cast in found.items() if cast in TEXTS}
    problems = []
    for casts in (fitting, found, declared):
        tried = await _prepare(connection, query.cast(casts))
        if isinstance(tried, PreparedQuery):
            return tried
        problems.append(tried)
    raise refused(problems[1], query.cast(found)) from problems[1]


async def _first(connection: Any, query: Query) -> PreparedQuery:
    """Return what the server makes of *query* as written, else with declared types; or raise Refused."""
    loose: list[int] = []
    while True:
        written = query.cast({}, loose)
        tried = await _prepare(connection, written)
        if isinstance(tried, PreparedQuery):
            return tried
        untold = _untold(tried, written)
        if untold is None or untold in loose:
            break
        loose.append(untold)
    for casts in _castings(query.parameters) if tried.sqlstate in UNTYPED else ():
        found = await _prepare(connection, query.cast(casts, loose))
        if isinstance(found, PreparedQuery):
            return found
    raise await _refused(connection, tried, written) from tried


def _untold(error: asyncpg.PostgresError, written: Written) -> int | None:
    """Return the number of the piece whose place tells no type for its parameter, if *error* is of that."""
    position = _position(error)
    if error.sqlstate != AMBIGUOUS or position is None:
        return None
    at = written.piece_at(position)
    return None if isinstance(written.query.pieces[at], str) else at


def _castings(parameters: Mapping[str, Declared]) -> Iterator[Mapping[str, str]]:
    """Yield casts to declared types, of fewest parameters first."""
    # What is declared a text may well be something else, such as an enum.
    certain = [name for name, each in parameters.items() if each.type != TEXT.type]
    for names, choice in product((certain, list(parameters)), (0, -1)):
        if names:
            yield {name: casts_of(parameters[name])[choice] for name in names}


async def _refused(connection: Any, error: asyncpg.PostgresError, written: Written) -> Exception:
    """Return the error of a query that does not work, in the words for the query as it stands alone."""
    if error.sqlstate not in NO_GRAMMAR:
        return refused(error, written)
    alone = replace(written.query.cast({}), before="", after="")
    try:
        await connection.prepare(alone.sql)
    except asyncpg.PostgresError as exc:
        if exc.sqlstate in NO_GRAMMAR:
            return refused(exc, alone)
    return refusal(NOT_READING)


async def _prepare(connection: Any, written: Written) -> PreparedQuery | asyncpg.PostgresError:
    """Return what the server makes of *written*, or its error where that is of the statement."""
    try:
        statement = await connection.prepare(written.sql)
    except asyncpg.PostgresError as exc:
        if is_passing(exc):
            raise
        return exc
    types = dict(zip(written.names, statement.get_parameters(), strict=True))
    casts = {name: sql_name(type) for name, type in types.items()}
    return PreparedQuery(query=written.query, statement=statement, types=types, casts=casts)


def refused(error: asyncpg.PostgresError, written: Written) -> Exception:
    """Return *error* in the server's own words, which are for operators, with its place in their text."""
    placeholder = placeholder_in("".join(map(str, written.query.source)))
    if error.sqlstate in MISWRITTEN and placeholder is not None:
        return refusal(f"{NO_PARAMETER}.", offset=placeholder)
    position = _position(error)
    offset = None if position is None else written.offset_at(position)
    hint = getattr(error, "hint", None) or ""
    return refusal(f"{error.args[0]}.", hint=hint, offset=offset)


def _position(error: asyncpg.PostgresError) -> int | None:
    """Return how many characters are before the place that *error* is about."""
    position = getattr(error, "position", None)
    return int(position) - 1 if position else None
