"""Check operators' SQL before it is served. A connection and pieces in, an Inspected out.

The server prepares the query, and makes a temporary view of it, which is rolled back. Its catalog says which
columns are read, which functions are called, and the types with their lengths and domains. For a view that
the query names, only the view's own columns are listed.
"""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TypeVar

import asyncpg
from asyncpg import Record

from dbtools.backends.compiled import identifier
from dbtools.backends.port import Declared, Inspected, check_names, temporary_refusal
from dbtools.backends.postgresql.connection.connections import check_session, fixed_path, is_lost
from dbtools.backends.postgresql.connection.pipeline import ServerConnection, clean, rolled_back
from dbtools.backends.postgresql.connection.urls import SETTINGS
from dbtools.backends.postgresql.queries.preparing import (
    BEFORE_COLUMNS,
    NamedTypes,
    PostgresqlQuery,
    PreparedQuery,
    is_temporary,
    prepare_bare,
    prepare_query,
    query_error,
)
from dbtools.backends.postgresql.schema.changes import BEGIN_POLL, TABLE_VERSIONS, Control
from dbtools.backends.postgresql.schema.dependencies import (
    Parsed,
    called_by,
    has_side_effects,
    rule_dependencies,
)
from dbtools.backends.postgresql.schema.names import (
    SqlNames,
    check_named,
    check_used,
    search_path_of,
    suspects,
    version_of,
)
from dbtools.backends.postgresql.schema.types import (
    NO_MODIFIER,
    DeclaredTypes,
    TypeNumber,
    names_before,
    placeholder_hint,
    read_types,
    sql_name,
)
from dbtools.backends.query_syntax import ListForms, Piece
from dbtools.errors import Refused
from dbtools.schema.catalog import Column, RowFilter, Table
from dbtools.schema.sql import Fragment
from dbtools.values.types import Family

T = TypeVar("T")
TypeRows = dict[TypeNumber, Record]
LIST_FORMS = ListForms(among="= any(", not_among="<> all(", closing=")")
INSPECTED = "dbtools_inspected"  #: a temporary relation with a rule that is the query
OWN = f"'pg_temp.{INSPECTED}'::pg_catalog.regclass::pg_catalog.oid"
QUERY_COLUMNS = f"""
select a.attname::text, a.atttypid, a.atttypmod
from pg_catalog.pg_attribute as a
where a.attrelid = {OWN} and a.attnum > 0
order by a.attnum
"""
#: Generic plans take four times as long here as custom plans.
SETUP = (
    "set local statement_timeout = 2000; set local jit = off; set local plan_cache_mode = force_custom_plan"
)
#: Transactions of the login may be read-only by default.
WRITING = f"begin read write; {SETUP}"
BEGIN_INSPECTION = f"begin read only; {SETUP}"
#: SQLSTATE classes that concern the query, even if null parameters have caused the error.
CERTAIN = ("42", "0A", "25")
NOT_POPULATED = "55000"  #: the SQLSTATE of a materialized view without data, among others
INSPECTION_LOCK_TIMEOUT = "500"  #: milliseconds; a migration that locks one table must not delay the others
#: The check of a row filter waits for a lock as long as a call does: without its filter, a table is withheld.
CHECK_FILTER = f"begin read only; set local lock_timeout = {SETTINGS['lock_timeout']}"
#: The families that a parameter declared as text may turn out to be.
AS_TEXT = {Family.TEXT, Family.ENUM, Family.INTERVAL, Family.OTHER}
UNANSWERED = "The queries cannot be checked against the database."
ASKING = 600.0  #: seconds for one question; polls wait for it


@dataclass(frozen=True, kw_only=True)
class QueryReport:
    """What the server reports about a query."""

    columns: NamedTypes
    parsed: Parsed
    versions: tuple[str, ...]  #: of the tables that it reads


@asynccontextmanager
async def describe(
    control: Control, session: Mapping[str, str], kind: "type[PostgresqlInspector] | None" = None
) -> AsyncIterator["SharingInspector"]:
    """Yield an Inspector with the settings *session*, which uses the connection of *control*."""

    async def begin(connection: ServerConnection) -> tuple[str, tuple[str, ...]]:
        async with rolled_back(connection, "begin read only"):
            paths = await fixed_path(connection), await search_path_of(connection)
        await check_session(connection, session)
        return paths

    fixed, path = await control.answer(begin, UNANSWERED, ASKING)
    # As for calls: names have the same meaning.
    settings = {"lock_timeout": INSPECTION_LOCK_TIMEOUT, "search_path": fixed, **session}
    yield SharingInspector(control, settings, partial(kind or PostgresqlInspector, path=path, types={}))


class SharingInspector:
    """An Inspector that has the connection of *control* for one question after another.

    Each transaction of a question has the settings *settings*.
    """

    def __init__(
        self,
        control: Control,
        settings: Mapping[str, str],
        inspector: "Callable[[ServerConnection], PostgresqlInspector]",
    ) -> None:
        self._control, self._settings, self._inspector = control, settings, inspector

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the server reports about the query in *pieces*, or raise Refused."""
        return await self.ask(lambda inspector: inspector.query(pieces, declared))

    async def condition(self, table: Table, condition: Fragment) -> RowFilter:
        """Return the types that the server infers for the parameters, and the version of the names."""
        return await self.ask(lambda inspector: inspector.condition(table, condition))

    async def ask(self, question: "Callable[[PostgresqlInspector], Awaitable[T]]") -> T:
        """Return the answer to *question*, and undo what functions of users have done to the session."""

        async def read(connection: ServerConnection) -> T:
            connection.is_spent = True
            try:
                with connection.having(self._settings):
                    return await question(self._inspector(connection))
            finally:
                if not connection.is_pooled:
                    await clean(connection)

        return await self._control.answer(read, UNANSWERED, ASKING)


class PostgresqlInspector:
    """Asks a server what operators' SQL means, on a connection that has the settings of `describe`."""

    allowed: Collection[str] = ()  #: functions that may be called although they do more than read

    def __init__(self, connection: ServerConnection, path: tuple[str, ...], types: TypeRows) -> None:
        self.connection = connection
        self.path = path  #: the schemas of the search path
        self._types = types  #: the system types read so far: each takes a millisecond

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the server reports about the query in *pieces*, or raise Refused."""
        query = PostgresqlQuery.of(pieces, declared, LIST_FORMS)
        with refusing():
            version = await self.version_of(query.text)
            prepared = await prepare_query(self.connection, query)
            view = f"create temporary view {INSPECTED} as select * from ({prepared.with_nulls}\n) as q"
            reported = await self.report(prepared, view) or await self._without_view(prepared)
            check_names(name for name, _ in reported.columns)
            await self._try(prepared)
            return await self.inspection_of(prepared, reported, version)

    async def condition(self, table: Table, condition: Fragment) -> RowFilter:
        """Return the types that the server infers for the parameters, and the version of the names."""
        names, numbers = SqlNames.of(condition.text, self.path), count(1)
        written = condition.to_sql(lambda _: f"${next(numbers)}")
        name = ".".join(identifier(part) for part in (table.schema, table.name) if part)
        sql = f"select 1 from {name} where ({written}\n)"
        with refusing(condition.text):
            async with rolled_back(self.connection, CHECK_FILTER):
                version = await version_of(self.connection, names)
                # Before a function of users can run.
                found = await suspects(self.connection, names)
                prepared = await self.connection.prepare(sql)
                # EXPLAIN checks privileges, and runs nothing.
                nulls = [None for _ in prepared.get_parameters()]
                # Prepared each time: a cached statement may have the types from before a migration.
                explain = await self.connection.prepare(f"explain {sql}")
                await explain.fetch(*nulls)
            casts = tuple(sql_name(each) for each in prepared.get_parameters())
            if found:
                types = iter(casts)
                typed = condition.to_sql(lambda _: f"cast(null::pg_catalog.text as {next(types)})")
                view = f"create temporary view {INSPECTED} as select 1 as one from {name} where ({typed}\n)"
                await self._rolled_back(names, found, partial(self._create, found, view))
        return RowFilter(condition=condition, casts=casts, version=version)

    async def version_of(self, text: str) -> str:
        """Return the version of the names in *text*, to be read before the server parses it."""
        async with rolled_back(self.connection, BEGIN_POLL):
            return await version_of(self.connection, SqlNames.of(text, self.path))

    async def _rolled_back(
        self, names: SqlNames, found: Sequence[Record], create: Callable[[], Awaitable[T]]
    ) -> T | None:
        """Return what *create* returns, and roll back what it creates; None if the server does not create it.

        Then raise Refused if *names* may mean one of the objects *found*.
        """
        try:
            async with rolled_back(self.connection, WRITING):
                return await create()
        except asyncpg.PostgresError as exc:
            if is_temporary(exc):
                raise
            check_named(found, names)
            return None

    async def _create(self, found: Sequence[Record], *creating: str) -> int:
        """Return the number of the relation that the statements *creating* create.

        Raise Refused if it uses one of the objects *found*.
        """
        for each in creating:
            # A prepared statement is a single one.
            await (await self.connection.prepare(each)).fetch()
        relation: int = await self.connection.fetchval(f"select {OWN}")
        await check_used(self.connection, found, relation)
        return relation

    async def _try(self, prepared: PreparedQuery) -> None:
        """Start the query with nulls, which checks privileges, and stop before the first row."""
        nulls = [None for _ in prepared.statement.get_parameters()]
        try:
            async with rolled_back(self.connection, BEGIN_INSPECTION):
                await prepared.statement.fetch(*nulls)
        except asyncpg.PostgresError as exc:
            if (exc.sqlstate or "").startswith(CERTAIN):
                raise query_error(exc, prepared.query) from exc
            if is_temporary(exc):
                raise

    async def report(self, prepared: PreparedQuery, *creating: str) -> QueryReport | None:
        """Return what the server reports after the statements *creating*, or None if it does not run them.

        Raise Refused if the query calls a function that does more than read.
        """
        names = SqlNames.of(prepared.query.text, self.path)
        async with rolled_back(self.connection, BEGIN_POLL):
            found = await suspects(self.connection, names)
        create = partial(self._report_on, prepared.query, found, creating)
        report = await self._rolled_back(names, found, create)
        called = report.parsed.called if report else await self._named_functions(prepared.query)
        self._check_functions(prepared.query, called)
        return report

    async def _report_on(
        self, query: PostgresqlQuery, found: Sequence[Record], creating: Sequence[str]
    ) -> QueryReport:
        versions = await self._lock_tables(query)
        relation = await self._create(found, *creating)
        columns = await self.connection.fetch(QUERY_COLUMNS)
        return QueryReport(
            columns=[(name, (type, modifier)) for name, type, modifier in columns],
            parsed=await rule_dependencies(self.connection, relation, query.text),
            versions=versions,
        )

    async def _without_view(self, prepared: PreparedQuery) -> QueryReport:
        """Return what is known without a view: the types of columns, but not their lengths and domains."""
        query = replace(prepared.query, before=BEFORE_COLUMNS)
        async with rolled_back(self.connection, BEGIN_INSPECTION):
            statement = await prepare_bare(self.connection, query)
            versions = await self._lock_tables(query)
        columns = replace(prepared, statement=statement).columns
        return QueryReport(columns=columns, parsed=Parsed(), versions=versions)

    async def _lock_tables(self, query: PostgresqlQuery) -> tuple[str, ...]:
        """Return the versions of the tables that *query* reads; parsing it locks them until ROLLBACK."""
        await self.connection.prepare(query.sql)
        return tuple(row["version"] for row in await self.connection.fetch(TABLE_VERSIONS))

    async def _named_functions(self, query: PostgresqlQuery) -> Sequence[Record]:
        """Return the functions whose names *query* seems to call: the server could not parse it."""
        async with rolled_back(self.connection, BEGIN_POLL):
            return await called_by(self.connection, [], query.text)

    def _check_functions(self, query: PostgresqlQuery, called: Iterable[Record]) -> None:
        """Raise Refused if one of the functions *called* does more than read."""
        for name in (
            row["name"] for row in called if has_side_effects(row) and row["name"] not in self.allowed
        ):
            calls = reversed([*names_before("(", query.text)])
            raise Refused(f"The query calls {name}, which does more than read.", offset=dict(calls).get(name))

    async def inspection_of(self, prepared: PreparedQuery, reported: QueryReport, version: str) -> Inspected:
        """Return *reported*, about the query *prepared*, with the types of its columns and parameters.

        *version*: of the names in the query.
        """
        taken = {name: (type.oid, NO_MODIFIER) for name, type in prepared.types.items()}
        wanted = {*(number for _, number in reported.columns), *taken.values()}
        async with rolled_back(self.connection, BEGIN_INSPECTION):
            rows = await read_types(self.connection, wanted - self._types.keys())
        self._types.update({(row["number"], row["modifier"]): row for row in rows if row["native"]})
        types = DeclaredTypes([*self._types.values(), *rows])
        parameters = {name: types[number].type for name, number in taken.items()}
        for name, type in parameters.items():
            declared = prepared.query.declared.get(name)
            item = type.element if declared and declared.array else type
            if declared and declared.type == "text" and (item is None or item.family not in AS_TEXT):
                raise Refused(
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
            versions=(*reported.versions, version),
        )


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
        raise (temporary_refusal if temporary else Refused)(f"{exc.args[0]}. {hint}".rstrip()) from exc
