"""What PostgreSQL says of a query before it is ever called. A connection and pieces in, an Inspected out.

The server parses the query where its grammar lets nothing but a SELECT stand, and keeps a temporary view of
it that is rolled back: with the view it keeps which columns are read, which functions are called, and the
types with their lengths and domains. Of a view that the query names only the view's own columns are told.
"""

import re
import secrets
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import asyncpg
from asyncpg import Record

from dbtools.backends.plans import ListForms, Piece, identifier, with_lists
from dbtools.backends.port import (
    Declared,
    Describe,
    Inspected,
    Read,
    check_names,
    passing_refusal,
    refusal,
)
from dbtools.backends.postgresql.changes import versions_locked
from dbtools.backends.postgresql.connections import apply, is_lost, opened, prepare
from dbtools.backends.postgresql.dependencies import (
    ACTING,
    CALLED,
    KEPT,
    READ_COLUMNS,
    Names,
    called_in,
    is_among,
    origins_of,
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
from dbtools.backends.postgresql.syntax import calls_in, lexis, placeholder_hint
from dbtools.backends.postgresql.types import UNLIMITED, DeclaredTypes, TypeNumber, read_types, sql_name
from dbtools.backends.postgresql.urls import SETTINGS
from dbtools.catalog import Column, Table
from dbtools.errors import Refused
from dbtools.sql import Fragment
from dbtools.types import ColumnType, Family

#: What connections have read of the system's own types, which stay as they are: it takes a millisecond each.
KNOWN: WeakKeyDictionary[Any, dict[TypeNumber, Record]] = WeakKeyDictionary()

LIST_FORMS = ListForms(among="= any(", not_among="<> all(", closing=")")
VIEW = "dbtools_inspected"
ESCAPED = re.compile(r'\b[uU]&"')  #: the beginning of a name with escapes
#: The plans that a server keeps for any values take it four times as long here as plans of its own for each.
PATIENCE = (
    "set local statement_timeout = 2000; set local jit = off; set local plan_cache_mode = force_custom_plan"
)
#: A login may have been told to read only.
WRITING = f"begin read write; {PATIENCE}"
READING = f"begin read only; {PATIENCE}"
#: Types that no column of a view can have.
PSEUDO = {"record", "record[]", "_record", "void", "cstring", "anyarray", "unknown", "trigger"}
#: The classes of errors that an execution with nulls for parameters shows of the query, not of the nulls.
CERTAIN = ("42", "0A", "25")
UNFILLED = "55000"  #: the state of a materialized view that has never been refreshed, above all
#: A migration that holds a table holds up all that is served, and not for long.
IMPATIENCE = {"lock_timeout": "500"}  #: milliseconds
#: A row filter is waited for as long as a call waits: without it a table is withheld.
PATIENT = f"begin read only; set local lock_timeout = {SETTINGS['lock_timeout']}"
UNANSWERED = "The queries cannot be held against the database."
DUPLICATE = "42701"  #: the state of a view with two columns by one name

#: The families of what may stand in the place of a text.
WRITTEN_AS_TEXTS = {Family.TEXT, Family.ENUM, Family.INTERVAL, Family.OTHER}


class Description:
    """Asks a server what operators' SQL means to it, all on one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the query in *pieces* is, or raise Refused."""
        try:
            return await inspect_query(self._connection, pieces, declared)
        except asyncpg.PostgresError as exc:
            if is_lost(exc):
                raise
            refuse = refusal if exc.sqlstate == UNFILLED else passing_refusal
            raise refuse(f"{exc.args[0]}.") from exc

    async def condition(self, table: Table, condition: Fragment) -> tuple[str, ...]:
        """Return what the server takes each parameter of *condition* for."""
        numbers = count(1)
        written = condition.written(lambda _: f"${next(numbers)}")
        name = ".".join(identifier(part) for part in (table.schema, table.name) if part)
        try:
            return await self._casts(f"select 1 from {name} where ({written}\n)")
        except asyncpg.PostgresError as exc:
            if is_lost(exc):
                raise
            if is_passing(exc):
                raise passing_refusal(f"{exc.args[0]}.") from exc
            note = placeholder_hint(exc.sqlstate, condition.text)
            raise Refused(f"{exc.args[0]}. {note}".rstrip()) from exc

    async def _casts(self, sql: str) -> tuple[str, ...]:
        async with rolled_back(self._connection, PATIENT):
            prepared = await self._connection.prepare(sql)
            # Only what is about to run looks at privileges, and nothing is run.
            nulls = [None for _ in prepared.get_parameters()]
            # Anew each time: of a statement that is kept the types may be those before a migration.
            await self._connection.fetch(f"explain {sql} /* {secrets.token_hex(8)} */", *nulls)
        return tuple(sql_name(each) for each in prepared.get_parameters())


@asynccontextmanager
async def describe(url: str, session: Mapping[str, str]) -> AsyncIterator[Describe]:
    """Lend what asks the server at *url*, on a connection that has the settings *session*."""
    async with opened(url, UNANSWERED) as connection:
        await connection.keep_setting(IMPATIENCE)
        # Names mean the same in a call, and what the driver has no codec for is the same.
        await prepare(connection)
        if session:
            await apply(connection, session)
        yield Description(connection)


async def inspect_query(
    connection: Any, pieces: Sequence[Piece], declared: Mapping[str, Declared]
) -> Inspected:
    """Return what the server says of the query in *pieces*, or raise Refused where it does not only read."""
    arrays = {name for name, each in declared.items() if each.array}
    query = Query(
        source=tuple(pieces),
        pieces=with_lists(pieces, arrays.__contains__, lexis, LIST_FORMS),
        declared=declared,
    )
    prepared = await prepare_query(connection, query)
    if prepared.columns is not None:
        check_names(each.name for each in prepared.columns)
    inspection = _Inspection(connection=connection, prepared=prepared)
    inspected = await inspection.of_view() or await inspection.without_view()
    return replace(inspected, versions=await _try(connection, prepared))


async def _try(connection: Any, prepared: PreparedQuery) -> tuple[str, ...]:
    """Begin the query with nulls, which looks at privileges and locks, and end it before the first row.

    Return the versions of the tables that it reads.
    """
    nulls = [None for _ in prepared.statement.get_parameters()]
    versions: tuple[str, ...] = ()
    try:
        async with rolled_back(connection, READING):
            # To begin it may fail on the nulls; to understand it is enough for the locks.
            await connection.prepare(prepared.statement.get_query())
            versions = await versions_locked(connection)
            await prepared.statement.fetch(*nulls)
    except asyncpg.InvalidCachedStatementError:
        raise  # a migration has come between
    except asyncpg.PostgresError as exc:
        if (exc.sqlstate or "").startswith(CERTAIN):
            raise refused(exc, prepared.query) from exc
        if is_passing(exc):
            raise
    return versions


@dataclass(frozen=True, kw_only=True)
class _Inspection:
    """The questions about one query."""

    connection: Any
    prepared: PreparedQuery

    async def of_view(self) -> Inspected | None:
        """Return what a temporary view of the query tells; None where the login may not have one."""
        # asyncpg (0.32) leaves what has prepared a statement open, and only the beginning of a transaction
        # can make it one that writes.
        await self.connection.execute("select")
        try:
            async with rolled_back(self.connection, WRITING):
                await self.connection.execute(self._view())
                kept = await self.connection.fetchrow(KEPT, VIEW)
                return None if kept is None else await self._told(kept)
        except asyncpg.PostgresError as exc:
            if is_passing(exc):
                raise
            if exc.sqlstate == DUPLICATE:
                raise refusal(f"{exc.args[0]}.", hint="Name each with AS.") from exc
            return None

    async def without_view(self) -> Inspected:
        """Return what can be told without: the types, but not their lengths and domains."""
        columns = self.prepared.columns
        if columns is None:
            message = "The type of a column cannot be told."
            raise refusal(message, hint="Show rows and ranges as texts, such as to_json(a) or a::text.")
        if ESCAPED.search("".join(each for each in self.prepared.query.source if isinstance(each, str))):
            # Its words are not those that are called.
            raise refusal('Names in U&"…" are not looked into.', hint='Write them in "…".')
        for name, offset in self._calls():
            if is_among(name, ACTING):
                raise _acts(name, offset)
        async with rolled_back(self.connection, READING):
            return await self._inspected([(each.name, (each.type.oid, UNLIMITED)) for each in columns])

    def _view(self) -> str:
        query = self.prepared.query.with_nulls(self.prepared.casts)
        columns = self.prepared.columns
        if columns is None:
            return f"create temporary view {VIEW} as select * from ({query}\n) as q"
        names = [f"c{at}" for at in range(len(columns))]
        listed = ", ".join(names)
        shown = ", ".join(
            f"{name} is null" if _is_pseudo(each.type) else name
            for name, each in zip(names, columns, strict=True)
        )
        return f"create temporary view {VIEW} ({listed}) as select {shown} from ({query}\n) as q ({listed})"

    async def _told(self, kept: Record) -> Inspected:
        """Return what the view *kept* tells."""
        tree = kept["tree"]
        functions = await self._functions(tree)
        read = list(reads_of(tree, self.connection.get_server_version().major))
        rows = await self.connection.fetch(READ_COLUMNS, [relation for relation, _ in read])
        names = Names(rows)
        filled = {(row["relation"], row["number"]) for row in rows if row["filled"]}
        inspected = await self._inspected(self._columns(kept))
        origins = enumerate(origins_of(tree, len(inspected.columns)))
        certain = {at for at, origin in origins if origin in filled}
        columns = (replace(each, nullable=at not in certain) for at, each in enumerate(inspected.columns))
        reads = (
            Read(*names.tables[relation], column)
            for relation, numbers in read
            for column in names.columns(relation, numbers) or ("",)
        )
        return replace(inspected, columns=tuple(columns), reads=frozenset(reads), functions=functions)

    def _columns(self, kept: Record) -> Sequence[tuple[str, TypeNumber]]:
        """Return the names and types of the columns: not from the view where it has others."""
        numbers = list(zip(kept["types"], kept["modifiers"], strict=True))
        columns = self.prepared.columns
        if columns is None:
            return list(zip(kept["names"], numbers, strict=True))
        return [
            (each.name, (each.type.oid, UNLIMITED) if _is_pseudo(each.type) else number)
            for each, number in zip(columns, numbers, strict=True)
        ]

    async def _functions(self, tree: str) -> tuple[str, ...]:
        """Return the functions that the query calls and that are not the system's, or raise Refused."""
        types = [type.oid for type in self.prepared.types.values()]
        rows = await self.connection.fetch(CALLED, sorted(await called_in(self.connection, tree, types)))
        for row in rows:
            if row["known"] and is_among(row["name"], ACTING):
                places = (offset for name, offset in self._calls() if name == row["name"])
                raise _acts(row["name"], next(places, None))
        names = (f"{row['schema']}.{row['name']}" for row in rows if row["reads"])
        return tuple(dict.fromkeys(names))

    def _calls(self) -> Iterator[tuple[str, int]]:
        return calls_in("".join(map(str, self.prepared.query.source)))

    async def _types(self, numbers: Iterable[TypeNumber]) -> DeclaredTypes:
        known = KNOWN.setdefault(self.connection, {})
        rows = await read_types(self.connection, set(numbers) - known.keys())
        known.update({(row["number"], row["modifier"]): row for row in rows if row["native"]})
        return DeclaredTypes([*known.values(), *rows])

    async def _inspected(self, columns: Sequence[tuple[str, TypeNumber]]) -> Inspected:
        taken = {name: (type.oid, UNLIMITED) for name, type in self.prepared.types.items()}
        types = await self._types([*(number for _, number in columns), *taken.values()])
        parameters = {name: types[number].type for name, number in taken.items()}
        for name, type in parameters.items():
            self._check(name, type)
        return Inspected(
            columns=tuple(Column(name=name, type=types[number].type) for name, number in columns),
            parameters=parameters,
            casts={name: type.cast for name, type in parameters.items()},
            reads=None,
            functions=(),
        )

    def _check(self, name: str, type: ColumnType) -> None:
        """Raise Refused where the parameter *name* is declared a text, and its *type* is something else."""
        declared = self.prepared.query.declared.get(name)
        if declared is None or declared.type != "text":
            return
        item = type.element if declared.array else type
        if item is None or item.family not in WRITTEN_AS_TEXTS:
            raise refusal(
                f":{name} is declared {declared}, and the database takes it for {type.name}.",
                hint=f"Declare it so, or write a cast, such as :{name}::text.",
                offset=self.prepared.query.offset_of(name),
            )


def _is_pseudo(type: asyncpg.Type) -> bool:
    return type.schema == "pg_catalog" and type.name in PSEUDO


def _acts(name: str, offset: int | None) -> Exception:
    return refusal(f"The query calls {name}, which does more than read.", offset=offset)
