"""Check a query before it is served. A connection and pieces of SQL in, an Inspected out.

SQLite explains the query, and reports to the authorizer what it reads; a temporary view shows the types. Both
use a separate read-only connection. If the query names a view, only the view's own columns are reported.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

from dbtools.backends.compiled import identifier
from dbtools.backends.port import (
    NOT_READING,
    ColumnPlace,
    Declared,
    Inspected,
    check_names,
    temporary_refusal,
)
from dbtools.backends.query_syntax import DECLARED_TEXT, ListForms, Piece, QueryText
from dbtools.backends.run_sql import READING
from dbtools.backends.sqlite.connection.events import Events, explain
from dbtools.backends.sqlite.connection.files import (
    BUSY,
    UNFINISHED,
    FileLocation,
    authorize,
    has_code,
    open_file,
    resolve_views,
    secure,
)
from dbtools.backends.sqlite.schema.syntax import (
    SILENT_JOINS,
    fold,
    lexis,
    message_with_hint,
    names_in,
    with_names,
    words_in,
)
from dbtools.backends.sqlite.schema.types import column_type
from dbtools.errors import Refused
from dbtools.schema.catalog import Column, RowFilter, Table
from dbtools.schema.sql import Fragment, Parameter, code_of, tokenize
from dbtools.values.types import ColumnType, Family

T = TypeVar("T")
NULL = "(null/* a parameter */)"  #: replaces a parameter in the view
#: The name or word that SQLite's message is about.
NAMED_IN_MESSAGE = re.compile(r'near "(.+)": syntax error|function (.+)\(\)|: (?:.*\.)?([^.]+)$')
INCOMPLETE = "incomplete input"
LIST_FORMS = ListForms(
    among="in (select value from json_each(",
    not_among="not in (select value from json_each(",
    closing="))",
)
#: Errors that are temporary or about the file, not about the statement.
TEMPORARY_CODES = (*BUSY, *UNFINISHED, "SQLITE_IOERR", "SQLITE_CANTOPEN")
CANNOT_INSPECT = "The database file is busy, or cannot be read."
INSPECTED = "dbtools_inspected"
NO_COLUMNS = {"", "ROWID"}  #: names for the row
TYPE_NAMES: Mapping[str, str] = {"number": "real"}  #: SQLite's names of declared types, if different
PRAGMAS = "pragma_"  #: the prefix of pragmas that are read as tables
SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema"})
COMPOUNDS = {"union", "intersect", "except"}  #: SQLite reports the types of their first part only
RENAMED = re.compile(r"(.*):\d+", re.DOTALL)  #: how SQLite renames a duplicate name
NAMED_RELATIONS = """
select name, type, strict
from pragma_table_list
where schema = 'main'
and lower(name) in (select value from json_each(?1))
"""
COLUMN_NAMES = """
select name
from pragma_table_xinfo(?1, 'main')
"""


class NamedTable(NamedTuple):
    """A table or a view that a query names or reads."""

    name: str
    kind: str
    strict: int


@dataclass(frozen=True, kw_only=True)
class SqliteQuery(QueryText):
    """A query as SQLite reads it, and the names in it."""

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The parameters by name, numbered from 1."""
        names = dict.fromkeys(piece.name for piece in self.pieces if isinstance(piece, Parameter))
        return {name: number for number, name in enumerate(names, 1)}

    @cached_property
    def words(self) -> frozenset[str]:
        """The unquoted words."""
        return words_in(self.text)

    @cached_property
    def names(self) -> frozenset[str]:
        """The words and quoted texts, folded: they include all names in the query."""
        return names_in(self.text)

    def offset_of(self, message: str) -> int | None:
        """Return the offset of what *message* names, None if it may be in several places.

        SQLite knows the offset (3.38), but the standard library does not expose it (Python 3.14).
        """
        if message == INCOMPLETE:
            return len(self.text)
        named = NAMED_IN_MESSAGE.search(message)
        # A quoted name may contain a dot.
        words = (message.partition(": ")[2], named[named.lastindex or 0] if named else "")
        places = next(filter(None, map(self.places_of, words)), [])
        # An unknown name is wrong wherever it stands, but a word may be right in another place.
        is_name = named is not None and named.lastindex == 3
        return places[0] if places and (is_name or len(places) == 1) else None

    def places_of(self, word: str) -> list[int]:
        """Return the offsets of *word*, quoted or not."""
        return [each.offset for each in tokenize(self.text, lexis) if fold(each.value) == fold(word)]

    def standalone_sql(self) -> str:
        """Return the query with numbered parameters, as a call runs it."""
        pieces = self.pieces
        return "".join(
            with_names(each) if isinstance(each, str) else f"?{self.numbers[each.name]}" for each in pieces
        )

    def with_nulls(self) -> str:
        """Return the query as written, with nulls for parameters: its text may name a column."""
        text = "".join(each if isinstance(each, str) else NULL for each in self.pieces)
        return f"select * from ({text}\n)"


def inspect_query(
    connection: sqlite3.Connection, pieces: Sequence[Piece], declared: Mapping[str, Declared]
) -> Inspected:
    """Return the query in *pieces* as SQLite understands it, or raise Refused if it does more than read."""
    query = written_query(pieces, declared)
    events = events_of(connection, query, authorize, NOT_READING)
    if code_of(query.text, lexis)[0].word not in READING:
        # In parentheses, BEGIN and VACUUM would be names of tables.
        raise Refused(NOT_READING)
    with unsecured(connection):
        return inspection_of(connection, query, events, query)


def written_query(pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> SqliteQuery:
    """Return the query in *pieces*, or raise Refused if a list is in the wrong place."""
    query = SqliteQuery.of(pieces, declared, LIST_FORMS)
    check_lists(query)
    return query


def open_for_inspection(location: FileLocation, *, mode: Literal["ro", "rw"] = "ro") -> sqlite3.Connection:
    """Open a connection for inspections, which cannot write, or raise sqlite3.Error."""
    connection = open_file(location, mode=mode)
    try:
        connection.executescript("pragma foreign_keys = on; pragma temp_store = memory")
        secure(connection)
    except BaseException:
        connection.close()
        raise
    connection.text_factory = lambda text: text.decode(errors="replace")
    return connection


@contextmanager
def unsecured(connection: sqlite3.Connection) -> Iterator[None]:
    """Let *connection* read what no call may, and create the temporary view INSPECTED; drop it in the end."""
    connection.set_authorizer(None)
    try:
        connection.execute("pragma query_only = off")
        yield
    finally:
        connection.execute(f"drop view if exists temp.{INSPECTED}")
        connection.execute("pragma query_only = on")
        connection.set_authorizer(authorize)


def events_of(
    connection: sqlite3.Connection, query: SqliteQuery, allow: Callable[..., int], otherwise: str
) -> Events:
    """Return what SQLite reports about *query*, or raise Refused; *otherwise*: why if *allow* denies it."""
    with refusing(query, otherwise):
        return explain(connection, query.standalone_sql(), [None] * len(query.numbers), allow=allow)


@contextmanager
def refusing(query: SqliteQuery, otherwise: str) -> Iterator[None]:
    """Raise Refused, with its place in *query*, for an error of SQLite that is not temporary."""
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as exc:
        if has_code(exc, TEMPORARY_CODES):
            raise
        message = str(exc).rstrip(".")
        problem = otherwise if has_code(exc, "SQLITE_AUTH") else message_with_hint(message, query.text)
        raise Refused(problem, offset=query.offset_of(message)) from exc


def inspection_of(
    connection: sqlite3.Connection, query: SqliteQuery, events: Events, shown: SqliteQuery | None
) -> Inspected:
    """Return *query*, which SQLite has explained with *events*, and which returns the rows of *shown*."""
    tables = {fold(table) for table, _ in events.reads}
    resolve_views(connection)
    relations = relations_of(connection, {*tables, *query.names})
    check_pragmas(query, tables - {fold(each.name) for each in relations})
    return Inspected(
        columns=tuple(columns_of(connection, shown, strict=is_strict(query, relations))) if shown else (),
        parameters={name: parameter_type(query.declared.get(name, DECLARED_TEXT)) for name in query.numbers},
        casts={},
        reads=frozenset(reads_of(connection, query, relations, events.reads)),
        functions=(),
    )


def check_lists(query: SqliteQuery) -> None:
    """Raise Refused for a list outside of the list syntax, JSON functions and columns."""
    texts = ["", *map(str, query.pieces), ""]
    for at, piece in enumerate(query.pieces):
        if not isinstance(piece, Parameter) or not query.is_list(piece.name):
            continue
        before = [token.word for token in code_of(texts[at], lexis)[-2:]]
        after = [token.word for token in code_of(texts[at + 2], lexis)[:1]]
        if after != ["as"] and not re.fullmatch(r"json\w* \(", " ".join(before)):
            forms = f"in ({piece}), not in ({piece}) or = any({piece})"
            raise Refused(f"{piece} is a list: write {forms}.", offset=query.start_of(at))


Inspect = Callable[[sqlite3.Connection, Sequence[Piece], Mapping[str, Declared]], Inspected]


class SqliteInspector:
    """Asks the SQLite file at *location* what operators' SQL means; *inspect* checks its queries.

    All share one connection. One thread opens, uses and closes it, because a cancelled call continues there.
    """

    def __init__(self, location: FileLocation, inspect: Inspect = inspect_query) -> None:
        self._location, self._inspect = location, inspect
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._connection: sqlite3.Connection | None = None  #: of the thread

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return the query in *pieces* as SQLite understands it, or raise Refused."""
        return await self._ask(lambda connection: self._inspect(connection, pieces, declared))

    async def condition(self, table: Table, condition: Fragment) -> RowFilter:
        """Return no types if *condition* is valid, or raise Refused."""
        await self._ask(lambda connection: explain_condition(connection, table, condition))
        return RowFilter(condition=condition)

    async def _ask(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._ask_database, ask)
        except sqlite3.Error as exc:
            raise temporary_refusal(CANNOT_INSPECT) from exc

    def _ask_database(self, ask: Callable[[sqlite3.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = open_for_inspection(self._location)
            return ask(self._connection)
        except sqlite3.Error:
            self._close()
            raise

    def close(self) -> None:
        """Let the thread finish its work, close the connection and end."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def explain_condition(connection: sqlite3.Connection, table: Table, condition: Fragment) -> None:
    """Raise Refused if *condition* on *table* is invalid."""
    pieces = ("?" if isinstance(each, Parameter) else with_names(each) for each in condition.pieces)
    nulls = [None for piece in condition.pieces if isinstance(piece, Parameter)]
    sql = f"explain select 1 from {identifier(table.name)} where ({''.join(pieces)}\n)"
    try:
        connection.execute(sql, nulls).close()
    except sqlite3.Error as exc:
        if has_code(exc, TEMPORARY_CODES):
            raise
        raise Refused(message_with_hint(str(exc), condition.text)) from exc


def check_pragmas(query: SqliteQuery, tables: Iterable[str]) -> None:
    """Raise Refused if a pragma is read as a table, which would run during the call and be denied."""
    for name in sorted(name for name in tables if name.startswith(PRAGMAS)):
        raise Refused(f"{name} may not be read.", offset=next(iter(query.places_of(name)), None))


def is_strict(query: SqliteQuery, relations: Collection[NamedTable]) -> bool:
    """Return whether columns with a type only hold it: all are from STRICT tables, unchanged."""
    return bool(relations) and not query.words & COMPOUNDS and all(each.strict for each in relations)


def columns_of(connection: sqlite3.Connection, query: SqliteQuery, *, strict: bool) -> Iterator[Column]:
    """Yield the columns, with types except for expressions."""
    with refusing(query, NOT_READING):
        connection.execute(f"create temporary view {INSPECTED} as {query.with_nulls()}")
    rows = connection.execute(f"pragma temp.table_xinfo({INSPECTED})").fetchall()
    names = [name for _, name, *_ in rows]
    if any(NULL in name for name in names):
        raise Refused("A column that is computed from a parameter has no name.", hint="Name it with AS.")
    folded = [fold(name) for name in names]
    # SQLite has renamed all but the first of names that differ only in case.
    pairs = ((name, RENAMED.fullmatch(name)) for name in folded)
    check_names(match[1] if match and match[1] in folded else name for name, match in pairs)
    for _, name, declared, *_ in rows:
        yield Column(name=name, type=column_type(declared, strict=strict))


def relations_of(connection: sqlite3.Connection, names: Iterable[str]) -> list[NamedTable]:
    """Return the tables and views with one of the folded *names*."""
    return [NamedTable(*row) for row in connection.execute(NAMED_RELATIONS, (json.dumps([*names]),))]


def reads_of(
    connection: sqlite3.Connection,
    query: SqliteQuery,
    relations: Iterable[NamedTable],
    seen: Collection[tuple[str, str]],
) -> Iterator[ColumnPlace]:
    """Yield what is read of those *relations* that the query may name.

    Always include a named view, because SQLite does not report a view of which no column is read.
    """
    joined = bool(query.words & SILENT_JOINS)
    kinds = {each.name: each.kind for each in relations if fold(each.name) in query.names}
    kinds |= dict.fromkeys(query.names & SCHEMA_TABLES, "table")
    for name, kind in kinds.items():
        columns = {column for table, column in seen if table == name}
        if joined and name not in SCHEMA_TABLES:
            shared = {column for (column,) in connection.execute(COLUMN_NAMES, (name,))}
            columns |= {each for each in shared if "natural" in query.words or fold(each) in query.names}
        if columns or joined or kind == "view":
            yield from (("", name, column) for column in columns - NO_COLUMNS or {""})


def parameter_type(declared: Declared) -> ColumnType:
    """Return the type of a column with the *declared* type."""
    type = column_type(TYPE_NAMES.get(declared.type, declared.type), strict=False)
    if not declared.array:
        return type
    return ColumnType(family=Family.ARRAY, name=f"{type.name}[]", element=type, large=True)
