"""What PostgreSQL says of a query before it is ever called. A connection and pieces in, an Inspected out.

The server parses the query where its grammar permits nothing but a SELECT, and keeps a temporary view of it
that is rolled back. With the view it keeps which columns are read, which functions are called, and the types
with their lengths and domains. Of a view that the query names, only the view's own columns are listed.
"""

import re
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import asyncpg
from asyncpg import Record

from dbtools.backends.plans import ListForms, Piece, identifier, with_lists
from dbtools.backends.port import Declared, Inspected, Read, check_names, passing_refusal, refusal
from dbtools.backends.postgresql.changes import versions_locked
from dbtools.backends.postgresql.connections import apply, is_lost, opened, prepare
from dbtools.backends.postgresql.dependencies import (
    CALLED,
    COLUMNS,
    TREES,
    acts,
    by_relation,
    called_by,
    location_of,
    origins_of,
    places_of,
    reads_of,
)
from dbtools.backends.postgresql.pipeline import rolled_back
from dbtools.backends.postgresql.prepared_queries import (
    PreparedQuery,
    Query,
    is_passing,
    prepare_query,
    refused,
)
from dbtools.backends.postgresql.syntax import lexis, names_before, placeholder_hint
from dbtools.backends.postgresql.types import UNLIMITED, DeclaredTypes, TypeNumber, read_types, sql_name
from dbtools.backends.postgresql.urls import SETTINGS
from dbtools.catalog import Column, Table
from dbtools.sql import Fragment
from dbtools.types import ColumnType, Family

LIST_FORMS = ListForms(among="= any(", not_among="<> all(", closing=")")
VIEW = "dbtools_inspected"
VIEW_COLUMNS = """
select c.oid as view, a.attname::text as name, a.atttypid as type, a.atttypmod as modifier
from pg_catalog.pg_class as c
join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attnum > 0
where c.relnamespace = pg_catalog.pg_my_temp_schema() and c.relname = $1::pg_catalog.text
order by a.attnum
"""
ESCAPED = re.compile(r'\b[uU]&"')  #: the beginning of a name with escapes
#: Generic plans take four times as long here as custom plans.
SETUP = (
    "set local statement_timeout = 2000; set local jit = off; set local plan_cache_mode = force_custom_plan"
)
#: A login may be read-only by default.
WRITING = f"begin read write; {SETUP}"
READING = f"begin read only; {SETUP}"
#: The classes of errors that an execution with nulls for parameters shows of the query, not of the nulls.
CERTAIN = ("42", "0A", "25")
UNFILLED = "55000"  #: the state of a materialized view that has never been refreshed, above all
DUPLICATE = "42701"  #: the state of a view with two columns by one name
LOCK_TIMEOUT = "500"  #: milliseconds: while a migration locks a table, the rest must be served
#: A row filter waits as long as a call: without it a table is withheld.
PATIENT = f"begin read only; set local lock_timeout = {SETTINGS['lock_timeout']}"
UNANSWERED = "The queries cannot be checked against the database."

#: The families that a parameter declared as text may turn out to be.
WRITTEN_AS_TEXTS = {Family.TEXT, Family.ENUM, Family.INTERVAL, Family.OTHER}


@asynccontextmanager
async def describe(url: str, session: Mapping[str, str]) -> AsyncIterator["Description"]:
    """Open a connection to *url* with the settings *session*, and yield what asks the server on it."""
    async with opened(url, UNANSWERED) as connection:
        await connection.keep_setting({"lock_timeout": LOCK_TIMEOUT})
        # Names mean the same in a call, and what the driver has no codec for is the same.
        await prepare(connection)
        if session:
            await apply(connection, session)
        yield Description(connection)


class Description:
    """Asks a server what operators' SQL means to it, all on one connection."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self._types: dict[TypeNumber, Record] = {}  #: the system's own, of which each takes a millisecond

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the query in *pieces* is, or raise Refused."""
        arrays = {name for name, each in declared.items() if each.array}
        written = with_lists(pieces, arrays.__contains__, lexis, LIST_FORMS)
        query = Query(source=tuple(pieces), pieces=written, declared=declared)
        with _refusing():
            prepared = await prepare_query(self.connection, query)
            if prepared.columns is not None:
                check_names(each.name for each in prepared.columns)
            inspected = await self._of_view(prepared) or await self._without_view(prepared)
            return replace(inspected, versions=await self._try(prepared))

    async def condition(self, table: Table, condition: Fragment) -> tuple[str, ...]:
        """Return the types that the server gives the parameters of *condition*."""
        numbers = count(1)
        written = condition.written(lambda _: f"${next(numbers)}")
        name = ".".join(identifier(part) for part in (table.schema, table.name) if part)
        sql = f"select 1 from {name} where ({written}\n)"
        with _refusing(condition.text):
            async with rolled_back(self.connection, PATIENT):
                prepared = await self.connection.prepare(sql)
                # Only what is about to run checks privileges, and nothing is run.
                nulls = [None for _ in prepared.get_parameters()]
                # A new text each time: a cached statement may have the types from before a migration.
                await self.connection.fetch(f"explain {sql} /* {secrets.token_hex(8)} */", *nulls)
            return tuple(sql_name(each) for each in prepared.get_parameters())

    async def _try(self, prepared: PreparedQuery) -> tuple[str, ...]:
        """Begin the query with nulls, which checks privileges and locks, and end it before the first row.

        Return the versions of the tables that it reads.
        """
        nulls = [None for _ in prepared.statement.get_parameters()]
        versions: tuple[str, ...] = ()
        try:
            async with rolled_back(self.connection, READING):
                # It may fail on the nulls; parsing it takes the locks.
                await self.connection.prepare(prepared.statement.get_query())
                versions = await versions_locked(self.connection)
                await prepared.statement.fetch(*nulls)
        except asyncpg.InvalidCachedStatementError:
            raise  # a migration has come between
        except asyncpg.PostgresError as exc:
            if (exc.sqlstate or "").startswith(CERTAIN):
                raise refused(exc, prepared.query) from exc
            if is_passing(exc):
                raise
        return versions

    async def _of_view(self, prepared: PreparedQuery) -> Inspected | None:
        """Return what a temporary view of the query shows; None if the server does not create one."""
        # asyncpg (0.32) leaves what has prepared a statement open, and only the beginning of a transaction
        # can make it one that writes.
        await self.connection.execute("select")
        sql = prepared.query.with_nulls(prepared.casts)
        try:
            async with rolled_back(self.connection, WRITING):
                await self.connection.execute(f"create temporary view {VIEW} as select * from ({sql}\n) as q")
                return await self._shown(prepared, await self.connection.fetch(VIEW_COLUMNS, VIEW))
        except asyncpg.PostgresError as exc:
            if is_passing(exc):
                raise
            if exc.sqlstate == DUPLICATE:
                raise refusal(f"{exc.args[0]}.", hint="Name each with AS.") from exc
            return None

    async def _without_view(self, prepared: PreparedQuery) -> Inspected:
        """Return what is known without one: the types, but not their lengths and domains."""
        if prepared.columns is None:
            message = "The type of a column is unknown."
            raise refusal(message, hint="Show rows and ranges as texts, such as to_json(a) or a::text.")
        text = "".join(map(str, prepared.query.source))
        if ESCAPED.search(text):
            # Its words are not those that are called.
            raise refusal('Names in U&"…" are not supported.', hint='Write them in "…".')
        called = [name for name, _ in names_before("(", text)]
        _check_functions(prepared.query, await self.connection.fetch(CALLED, [], called))
        async with rolled_back(self.connection, READING):
            columns = [(each.name, (each.type.oid, UNLIMITED)) for each in prepared.columns]
            return await self._inspected(prepared, columns)

    async def _shown(self, prepared: PreparedQuery, columns: Sequence[Record]) -> Inspected:
        """Return what the view with *columns* shows."""
        ((_, tree),) = await self.connection.fetch(TREES, [columns[0]["view"]])
        called = (await called_by(self.connection, {0: tree}))[0]
        _check_functions(prepared.query, called)
        read = list(reads_of(tree))
        rows = await self.connection.fetch(COLUMNS, [relation for relation, _ in read])
        tables = by_relation(rows)
        filled = {(row["relation"], row["number"]) for row in rows if row["filled"]}
        typed = [(each["name"], (each["type"], each["modifier"])) for each in columns]
        inspected = await self._inspected(prepared, typed)
        origins = zip(inspected.columns, origins_of(tree, len(columns)), strict=True)
        functions = (f"{row['schema']}.{row['name']}" for row in called if row["reads"])
        reads = (
            Read(*place)
            for table, numbers in read
            for place in places_of(tables[table], numbers) or {location_of(tables[table])}
        )
        return replace(
            inspected,
            columns=tuple(replace(column, nullable=origin not in filled) for column, origin in origins),
            reads=frozenset(reads),
            functions=tuple(dict.fromkeys(functions)),
        )

    async def _inspected(
        self, prepared: PreparedQuery, columns: Sequence[tuple[str, TypeNumber]]
    ) -> Inspected:
        taken = {name: (type.oid, UNLIMITED) for name, type in prepared.types.items()}
        wanted = {*(number for _, number in columns), *taken.values()}
        rows = await read_types(self.connection, wanted - self._types.keys())
        self._types.update({(row["number"], row["modifier"]): row for row in rows if row["native"]})
        types = DeclaredTypes([*self._types.values(), *rows])
        parameters = {name: types[number].type for name, number in taken.items()}
        for name, type in parameters.items():
            _check(prepared.query, name, type)
        return Inspected(
            columns=tuple(Column(name=name, type=types[number].type) for name, number in columns),
            parameters=parameters,
            casts={name: type.cast for name, type in parameters.items()},
            reads=None,
            functions=(),
        )


@contextmanager
def _refusing(condition: str | None = None) -> Iterator[None]:
    """Raise Refused where the server refuses a *condition*, or what comes after a query has been prepared."""
    try:
        yield
    except asyncpg.PostgresError as exc:
        if is_lost(exc):
            raise
        passes = exc.sqlstate != UNFILLED if condition is None else is_passing(exc)
        hint = placeholder_hint(exc.sqlstate, condition or "")
        raise (passing_refusal if passes else refusal)(f"{exc.args[0]}. {hint}".rstrip()) from exc


def _check(query: Query, name: str, type: ColumnType) -> None:
    """Raise Refused where *query* declares the parameter *name* a text, and its *type* is something else."""
    declared = query.declared.get(name)
    if declared is None or declared.type != "text":
        return
    item = type.element if declared.array else type
    if item is None or item.family not in WRITTEN_AS_TEXTS:
        raise refusal(
            f":{name} is declared {declared}, and the database takes it for {type.name}.",
            hint=f"Declare it so, or write a cast, such as :{name}::text.",
            offset=query.offset_of(name),
        )


def _check_functions(query: Query, called: Iterable[Record]) -> None:
    """Raise Refused where one of the functions that are *called* does more than read."""
    for name in (row["name"] for row in called if acts(row)):
        calls = reversed([*names_before("(", "".join(map(str, query.source)))])
        raise refusal(f"The query calls {name}, which does more than read.", offset=dict(calls).get(name))
