"""Check operators' SQL before it is served. A connection and pieces in, an Inspected out.

The server prepares the query where its grammar permits nothing but a SELECT. A parameter has its declared
type. A text or a claim may also have a type whose values are written as text, such as an enum: the server
infers it. Then the server makes a temporary view of the query, which is rolled back. Its catalog says which
columns are read, which functions are called, and the types with their lengths and domains. For a view that
the query names, only the view's own columns are listed.
"""

import re
import secrets
from bisect import bisect_right
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, count
from typing import Any

import asyncpg
from asyncpg import Record

from dbtools.backends.plans import identifier
from dbtools.backends.port import (
    NOT_READING,
    Declared,
    Inspected,
    check_names,
    refusal,
    temporary_refusal,
)
from dbtools.backends.postgresql.changes import TABLE_VERSIONS
from dbtools.backends.postgresql.connections import apply, is_lost, opened, prepare
from dbtools.backends.postgresql.dependencies import (
    CALLED,
    Parsed,
    has_side_effects,
    read_tree,
)
from dbtools.backends.postgresql.pipeline import end_prepare, rolled_back
from dbtools.backends.postgresql.types import (
    UNLIMITED,
    DeclaredTypes,
    TypeNumber,
    names_before,
    placeholder_hint,
    read_types,
    sql_name,
)
from dbtools.backends.postgresql.urls import SETTINGS
from dbtools.backends.query_syntax import TEXT, ListForms, Piece, WrittenQuery
from dbtools.catalog import Column, Table
from dbtools.sql import Fragment, Parameter
from dbtools.types import Family

LIST_FORMS = ListForms(among="= any(", not_among="<> all(", closing=")")
INSPECTED = "dbtools_inspected"  #: a temporary relation with a rule that is the query
OWN = f"'pg_temp.{INSPECTED}'::pg_catalog.regclass::pg_catalog.oid"
COLUMNS = f"""
select a.attname::text, a.atttypid, a.atttypmod
from pg_catalog.pg_attribute as a
where a.attrelid = {OWN} and a.attnum > 0
order by a.attnum
"""
TREE = f"""
select r.ev_class, r.ev_action::pg_catalog.text
from pg_catalog.pg_rewrite as r
where r.ev_class = {OWN}
"""
ESCAPED = re.compile(r'\b[uU]&"')  #: the beginning of a name with escapes
#: Generic plans take four times as long here as custom plans.
SETUP = (
    "set local statement_timeout = 2000; set local jit = off; set local plan_cache_mode = force_custom_plan"
)
#: Transactions of the login may be read-only by default.
WRITING = f"begin read write; {SETUP}"
READING = f"begin read only; {SETUP}"
#: SQLSTATE classes that concern the query, even if null parameters have caused the error.
CERTAIN = ("42", "0A", "25")
NOT_POPULATED = "55000"  #: the SQLSTATE of a materialized view without data, among others
LOCK_TIMEOUT = "500"  #: milliseconds; a migration that locks one table must not delay the others
#: The check of a row filter waits for a lock as long as a call does: without its filter, a table is withheld.
CHECK_FILTER = f"begin read only; set local lock_timeout = {SETTINGS['lock_timeout']}"
#: The families that a parameter declared as text may turn out to be.
AS_TEXT = {Family.TEXT, Family.ENUM, Family.INTERVAL, Family.OTHER}
UNANSWERED = "The queries cannot be checked against the database."

#: The grammar allows only a SELECT between them. The driver may have no codec for a column of the SELECT.
BEFORE, AFTER = "select 1 as one from (", "\n) as q limit 0"
BEFORE_COLUMNS = "select * from ("
NO_GRAMMAR = ("42601", "0A000")  #: SQLSTATEs of a syntax error and of a statement that is not allowed here
#: SQLSTATE classes of errors that are not about the query.
TEMPORARY = ("08", "40", "53", "55", "57", "58", "XX")

#: The SQL types of declared types, if their names differ.
CASTS: Mapping[str, str] = {
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
class PostgresqlQuery(WrittenQuery):
    """A query as the server prepares it, with numbered parameters and their casts."""

    casts: Mapping[str, str] = field(default_factory=dict)  #: the types that parameters are cast to
    before: str = BEFORE
    after: str = AFTER

    @cached_property
    def parameters(self) -> Mapping[str, Declared]:
        """The declared types of the parameters; claims are texts."""
        names = (piece.name for piece in self.pieces if isinstance(piece, Parameter))
        return {name: self.declared.get(name, TEXT) for name in names}

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
        return [(each.name, (each.type.oid, UNLIMITED)) for each in self.statement.get_attributes()]


@dataclass(frozen=True, kw_only=True)
class QueryReport:
    """What the server reports about a query."""

    columns: NamedTypes
    parsed: Parsed
    versions: tuple[str, ...]  #: of the tables that it reads


@asynccontextmanager
async def describe(
    url: str, session: Mapping[str, str], kind: "type[PostgresqlInspector] | None" = None
) -> AsyncIterator["PostgresqlInspector"]:
    """Open a connection to *url* with the settings *session*, and yield an Inspector that uses it."""
    async with opened(url, UNANSWERED) as connection:
        await connection.keep_setting({"lock_timeout": LOCK_TIMEOUT})
        # As for calls: names have the same meaning, and the driver has the same codecs.
        await prepare(connection)
        if session:
            await apply(connection, session)
        yield (kind or PostgresqlInspector)(connection)


class PostgresqlInspector:
    """Asks a server what operators' SQL means, on one connection."""

    allowed: Collection[str] = ()  #: functions that may be called although they do more than read

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._types: dict[TypeNumber, Record] = {}  #: the system types read so far: each takes a millisecond

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the server reports about the query in *pieces*, or raise Refused."""
        query = PostgresqlQuery.of(pieces, declared, LIST_FORMS)
        with refusing():
            prepared = await prepare_query(self.connection, query)
            view = f"create temporary view {INSPECTED} as select * from ({prepared.with_nulls}\n) as q"
            reported = await self.report(prepared, view) or await self._without_view(prepared)
            check_names(name for name, _ in reported.columns)
            await self._try(prepared)
            return await self.inspected(prepared, reported)

    async def condition(self, table: Table, condition: Fragment) -> tuple[str, ...]:
        """Return the types that the server infers for the parameters of *condition*."""
        numbers = count(1)
        written = condition.written(lambda _: f"${next(numbers)}")
        name = ".".join(identifier(part) for part in (table.schema, table.name) if part)
        sql = f"select 1 from {name} where ({written}\n)"
        with refusing(condition.text):
            async with rolled_back(self.connection, CHECK_FILTER):
                prepared = await self.connection.prepare(sql)
                # EXPLAIN checks privileges, and runs nothing.
                nulls = [None for _ in prepared.get_parameters()]
                # A new text each time: a cached statement may have the types from before a migration.
                await self.connection.fetch(f"explain {sql} /* {secrets.token_hex(8)} */", *nulls)
            return tuple(sql_name(each) for each in prepared.get_parameters())

    async def _try(self, prepared: PreparedQuery) -> None:
        """Start the query with nulls, which checks privileges, and stop before the first row."""
        nulls = [None for _ in prepared.statement.get_parameters()]
        try:
            async with rolled_back(self.connection, READING):
                await prepared.statement.fetch(*nulls)
        except asyncpg.PostgresError as exc:
            if (exc.sqlstate or "").startswith(CERTAIN):
                raise refused(exc, prepared.query) from exc
            if is_temporary(exc):
                raise

    async def report(self, prepared: PreparedQuery, *creating: str) -> QueryReport | None:
        """Return what the server reports after the statements *creating*, or None if it does not run them.

        Raise Refused if the query calls a function that does more than read.
        """
        await end_prepare(self.connection)
        try:
            async with rolled_back(self.connection, WRITING):
                versions = await self._locked(prepared.query)
                for each in creating:
                    # A prepared statement is a single one.
                    await self.connection.fetch(each)
                found = await self.connection.fetch(COLUMNS)
                relation, tree = await self.connection.fetchrow(TREE)
                parsed = await read_tree(self.connection, tree, relation)
        except asyncpg.PostgresError as exc:
            if is_temporary(exc):
                raise
            self._check_functions(prepared.query, await self._named_functions(prepared.query))
            return None
        self._check_functions(prepared.query, parsed.called)
        columns = [(name, (type, modifier)) for name, type, modifier in found]
        return QueryReport(columns=columns, parsed=parsed, versions=versions)

    async def _without_view(self, prepared: PreparedQuery) -> QueryReport:
        """Return what is known without a view: the types of columns, but not their lengths and domains."""
        query = replace(prepared.query, before=BEFORE_COLUMNS)
        async with rolled_back(self.connection, READING):
            statement = await _prepare(self.connection, query)
            versions = await self._locked(query)
        columns = replace(prepared, statement=statement).columns
        return QueryReport(columns=columns, parsed=Parsed(), versions=versions)

    async def _locked(self, query: PostgresqlQuery) -> tuple[str, ...]:
        """Return the versions of the tables that *query* reads; parsing it locks them until ROLLBACK."""
        await self.connection.prepare(query.sql)
        return tuple(row["version"] for row in await self.connection.fetch(TABLE_VERSIONS))

    async def _named_functions(self, query: PostgresqlQuery) -> Sequence[Record]:
        """Return the functions whose names *query* seems to call: the server could not parse it."""
        if ESCAPED.search(query.text):
            # Words in the text are not the names of the functions that it calls.
            raise refusal('Names in U&"…" are not supported.', hint='Write them in "…".')
        called = [name for name, _ in names_before("(", query.text)]
        found: Sequence[Record] = await self.connection.fetch(CALLED, [], called)
        return found

    def _check_functions(self, query: PostgresqlQuery, called: Iterable[Record]) -> None:
        """Raise Refused if one of the functions *called* does more than read."""
        for name in (
            row["name"] for row in called if has_side_effects(row) and row["name"] not in self.allowed
        ):
            calls = reversed([*names_before("(", query.text)])
            raise refusal(f"The query calls {name}, which does more than read.", offset=dict(calls).get(name))

    async def inspected(self, prepared: PreparedQuery, reported: QueryReport) -> Inspected:
        """Return *reported*, about the query *prepared*, with the types of its columns and parameters."""
        taken = {name: (type.oid, UNLIMITED) for name, type in prepared.types.items()}
        wanted = {*(number for _, number in reported.columns), *taken.values()}
        async with rolled_back(self.connection, READING):
            rows = await read_types(self.connection, wanted - self._types.keys())
        self._types.update({(row["number"], row["modifier"]): row for row in rows if row["native"]})
        types = DeclaredTypes([*self._types.values(), *rows])
        parameters = {name: types[number].type for name, number in taken.items()}
        for name, type in parameters.items():
            declared = prepared.query.declared.get(name)
            item = type.element if declared and declared.array else type
            if declared and declared.type == "text" and (item is None or item.family not in AS_TEXT):
                raise refusal(
                    f":{name} is declared {declared}, but its type in the database is {type.name}.",
                    hint=f"Declare it so, or write a cast, such as :{name}::text.",
                    offset=prepared.query.start_of([*map(str, prepared.query.source)].index(f":{name}")),
                )
        return Inspected(
            columns=tuple(Column(name=name, type=types[number].type) for name, number in reported.columns),
            parameters=parameters,
            casts={name: type.cast for name, type in parameters.items()},
            reads=reported.parsed.reads,
            functions=reported.parsed.functions,
            versions=reported.versions,
        )


def is_temporary(error: asyncpg.PostgresError) -> bool:
    """Return whether *error* is temporary or about the server, not about the statement."""
    return (error.sqlstate or "").startswith(TEMPORARY)


async def prepare_query(connection: Any, query: PostgresqlQuery) -> PreparedQuery:
    """Return *query* as the server has prepared it, or raise Refused."""
    casts = {
        name: f'"pg_catalog"."{CASTS.get(each.type, each.type)}"{"[]" if each.array else ""}'
        for name, each in query.parameters.items()
    }
    declared = {name: cast for name, cast in casts.items() if name in query.declared}
    certain = {name: cast for name, cast in declared.items() if query.declared[name].type != TEXT.type}
    # The server infers no type from `:p is null`. So texts are cast next, and claims last.
    for each in (certain, declared, casts):
        try:
            statement = await _prepare(connection, cast := replace(query, casts=each))
            types = dict(zip(cast.parameters, statement.get_parameters(), strict=True))
            return PreparedQuery(query=cast, statement=statement, types=types)
        except asyncpg.PostgresError as exc:
            if is_temporary(exc):
                raise
            problem = exc
    raise await _refused(connection, problem, replace(query, casts=casts)) from problem


async def _prepare(connection: Any, query: PostgresqlQuery) -> Any:
    """Prepare *query*, or raise Refused if the driver has no codec for a type."""
    try:
        return await connection.prepare(query.sql)
    except UNDECODABLE as exc:
        message = "The type of a parameter or a column is a row or a range."
        raise refusal(message, hint="Cast it from a text or to a text, as in :p::text::daterange.") from exc


async def _refused(connection: Any, error: asyncpg.PostgresError, query: PostgresqlQuery) -> Exception:
    """Return the error of a query that cannot be prepared, as the server words it for the bare query."""
    if error.sqlstate not in NO_GRAMMAR:
        return refused(error, query)
    alone = replace(query, casts={}, before="", after="")
    try:
        await connection.prepare(alone.sql)
    except asyncpg.PostgresError as exc:
        if exc.sqlstate in NO_GRAMMAR:
            return refused(exc, alone)
    return refusal(NOT_READING)


def refused(error: asyncpg.PostgresError, query: PostgresqlQuery) -> Exception:
    """Return *error* for operators, with the server's message and the offset in their text."""
    position = getattr(error, "position", None)
    offset = query.offset_at(int(position) - 1) if position else None
    note = placeholder_hint(error.sqlstate, query.text)
    hint = " ".join(filter(None, (getattr(error, "hint", None), note)))
    return refusal(f"{error.args[0]}.", hint=hint, offset=offset)


@contextmanager
def refusing(condition: str | None = None) -> Iterator[None]:
    """Raise Refused if the server rejects a *condition*, or a query that it has prepared."""
    try:
        yield
    except asyncpg.PostgresError as exc:
        if is_lost(exc):
            raise
        temporary = exc.sqlstate != NOT_POPULATED if condition is None else is_temporary(exc)
        hint = placeholder_hint(exc.sqlstate, condition or "")
        raise (temporary_refusal if temporary else refusal)(f"{exc.args[0]}. {hint}".rstrip()) from exc
