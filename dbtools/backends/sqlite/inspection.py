"""Check a query before it is served. A location and pieces of SQL in, an Inspected out.

SQLite explains the query as a subquery, where only a SELECT is valid, and reports to the authorizer what it
reads; a temporary view shows the types. Both use a separate read-only connection. If the query names a view,
only the view's own columns are reported.
"""

import asyncio
import json
import re
import sqlite3
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeVar

from dbtools.backends.plans import ListForms, identifier, with_lists
from dbtools.backends.port import (
    NOT_READING,
    ColumnPlace,
    Declared,
    Inspected,
    check_names,
    passing_refusal,
    refusal,
)
from dbtools.backends.sqlite.files import (
    Location,
    authorize,
    connect,
    explain,
    is_locked,
    open_file,
    resolve_views,
    secure,
    wants_recovery,
)
from dbtools.backends.sqlite.syntax import (
    SILENT_JOINS,
    Piece,
    explained,
    fold,
    lexis,
    names_in,
    with_names,
    words_in,
)
from dbtools.backends.sqlite.types import column_type
from dbtools.catalog import Column, Table
from dbtools.errors import Refused
from dbtools.sql import Fragment, Parameter, code_of, tokenize
from dbtools.types import ColumnType, Family

T = TypeVar("T")
NULL = "(null/* a parameter */)"  #: replaces a parameter in the view
#: SQLite's messages about unknown, ambiguous or misplaced names.
NAMED = re.compile(
    r"(?:no such (?:table|column|function|window|collation sequence)|ambiguous column name): "
    r"(?:.*\.)?(?P<name>[^.]+)"
    r'|near "(?P<word>.+)": syntax error'
    r"|(?:wrong number of arguments to|misuse of aggregate) function (?P<function>.+)\(\)"
)
INCOMPLETE = "incomplete input"
LIST_FORMS = ListForms(
    among="in (select value from json_each(",
    not_among="not in (select value from json_each(",
    closing="))",
)
UNREADABLE = "The database file is busy, or cannot be read."
VIEW = "dbtools_inspected"
NO_COLUMNS = {"", "ROWID"}  #: names for the row
NAMES: Mapping[str, str] = {"number": "real"}  #: SQLite's names of declared types, if different
PRAGMAS = "pragma_"  #: the prefix of pragmas that are read as tables
SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema"})
COMPOUNDS = {"union", "intersect", "except"}  #: SQLite reports the types of their first part only
RENAMED = re.compile(r"(.*):\d+", re.DOTALL)  #: how SQLite renames a duplicate name
TEXT = Declared(type="text", array=False)
RELATIONS = """
select name, type
from main.sqlite_schema
where type in ('table', 'view')
and lower(name) in (select value from json_each(?1))
"""
STRICT = """
select min(strict)
from pragma_table_list
where schema = 'main'
and lower(name) in (select value from json_each(?1))
"""
COLUMNS = """
select name
from pragma_table_xinfo(?1, 'main')
"""


@dataclass(frozen=True, kw_only=True)
class WrittenQuery:
    """A query in the pieces that the operator wrote, and as SQLite reads them."""

    source: Sequence[Piece]
    pieces: Sequence[Piece]

    @cached_property
    def text(self) -> str:
        """The SQL as the operator wrote it."""
        return "".join(map(str, self.source))

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
        """Return the offset of what *message* names, None if that is ambiguous.

        SQLite knows the offset (3.38), but the standard library does not expose it (Python 3.14).
        """
        if message == INCOMPLETE:
            return len(self.text)
        named = NAMED.fullmatch(message)
        # A quoted name may contain a dot.
        whole = self.places_of(message.partition(": ")[2])
        places = whole or (self.places_of(named[named.lastindex or 0]) if named else [])
        # A word may be right in one place and wrong in another.
        return places[0] if len(places) == 1 or (places and named and named["name"]) else None

    def places_of(self, word: str) -> list[int]:
        """Return the offsets of *word*, quoted or not."""
        return [each.offset for each in tokenize(self.text, lexis) if fold(each.value) == fold(word)]

    def alone(self) -> str:
        """Return the query with numbered parameters, as a call runs it."""
        pieces = self.pieces
        return "".join(
            with_names(each) if isinstance(each, str) else f"?{self.numbers[each.name]}" for each in pieces
        )

    def with_nulls(self) -> str:
        """Return the query as written, with nulls for parameters: its text may name a column."""
        text = "".join(each if isinstance(each, str) else NULL for each in self.pieces)
        return f"select * from ({text}\n)"


def inspect_query(location: Location, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
    """Return the query in *pieces* as SQLite understands it, or raise Refused if it does more than read."""
    arrays = {name for name, each in declared.items() if each.array}
    query = WrittenQuery(source=pieces, pieces=with_lists(pieces, arrays.__contains__, LIST_FORMS))
    check_lists(query, arrays)
    with closing(connect(location)) as connection:
        secure(connection)
        connection.text_factory = lambda text: text.decode(errors="replace")
        seen = _explain(connection, query)
        # From here on, only the temporary view is created, of a query that only reads.
        allow_views(connection)
        check_pragmas(connection, query, {fold(table) for table, _ in seen})
        strict = is_strict(connection, query, {table for table, _ in seen})
        columns = tuple(columns_of(connection, query, strict=strict))
        reads = frozenset(reads_of(connection, query, seen))
    return Inspected(
        columns=columns,
        parameters={name: parameter_type(declared.get(name, TEXT)) for name in query.numbers},
        casts={},
        reads=reads,
        functions=(),
    )


def check_lists(query: WrittenQuery, arrays: Container[str]) -> None:
    """Raise Refused for a list outside of the list syntax, JSON functions and columns."""
    texts = ["", *map(str, query.pieces), ""]
    for at, piece in enumerate(query.pieces):
        if not isinstance(piece, Parameter) or piece.name not in arrays:
            continue
        before = [token.word for token in code_of(texts[at], lexis)[-2:]]
        after = [token.word for token in code_of(texts[at + 2], lexis)[:1]]
        if after != ["as"] and not re.fullmatch(r"json\w* \(", " ".join(before)):
            forms = f"in ({piece}), not in ({piece}) or = any({piece})"
            offset = sum(len(str(each)) for each in query.source[:at])
            raise refusal(f"{piece} is a list: write {forms}.", offset=offset)


class Description:
    """Asks the SQLite file at *location* what operators' SQL means.

    Conditions are explained on one connection. One thread opens, uses and closes it, because a cancelled call
    continues there.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._connection: sqlite3.Connection | None = None  #: of the thread

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return the query in *pieces* as SQLite understands it, or raise Refused."""
        return await self._ask(partial(inspect_query, self._location, pieces, declared))

    async def condition(self, table: Table, condition: Fragment) -> tuple[str, ...]:
        """Return no types if *condition* is valid, or raise Refused."""
        await self._ask(partial(self._explain, table, condition))
        return ()

    async def _ask(self, ask: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, ask)
        except sqlite3.Error as exc:
            raise passing_refusal(UNREADABLE) from exc

    def _explain(self, table: Table, condition: Fragment) -> None:
        pieces = ("?" if isinstance(each, Parameter) else with_names(each) for each in condition.pieces)
        nulls = [None for piece in condition.pieces if isinstance(piece, Parameter)]
        if self._connection is None:
            connection = open_file(self._location)
            secure(connection)
            self._connection = connection
        sql = f"explain select 1 from {identifier(table.name)} where ({''.join(pieces)}\n)"
        try:
            self._connection.execute(sql, nulls).close()
        except sqlite3.Error as exc:
            if is_passing(exc):
                raise
            raise Refused(explained(str(exc), condition.text)) from exc

    def close(self) -> None:
        """Let the thread finish its work, close the connection and end."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _explain(connection: sqlite3.Connection, query: WrittenQuery) -> set[tuple[str, str]]:
    try:
        # A subquery can only be a SELECT.
        sql = f"select * from ({query.alone()}\n)"
        return explain(connection, sql, [None] * len(query.numbers), allow=authorize)
    except (sqlite3.Error, sqlite3.Warning) as exc:
        if is_passing(exc):
            raise
        raise _refused(connection, query, exc) from exc


def allow_views(connection: sqlite3.Connection) -> None:
    """Allow temporary views on *connection*, which could not write."""
    connection.set_authorizer(None)
    connection.executescript("pragma query_only = off; pragma temp_store = memory")


def is_passing(error: Exception) -> bool:
    """Return whether *error* is temporary or about the file, not the statement."""
    name = getattr(error, "sqlite_errorname", "") or ""
    passing = is_locked(error) or wants_recovery(error)
    return passing or name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN"))


def _refused(connection: sqlite3.Connection, query: WrittenQuery, error: Exception) -> Exception:
    """Return the error of an invalid query, with SQLite's message for the query without its wrapper."""
    if is_denied(error):
        return refusal(f"{error}.")
    try:
        connection.execute(f"explain {query.alone()}", [None] * len(query.numbers)).close()
    except (sqlite3.Error, sqlite3.Warning) as exc:
        message = str(exc).rstrip(".")
        problem = NOT_READING if is_denied(exc) else explained(message, query.text)
        return refusal(problem, offset=query.offset_of(message))
    return refusal(NOT_READING)


def is_denied(error: Exception) -> bool:
    """Return whether the authorizer has denied the statement."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH


def check_pragmas(connection: sqlite3.Connection, query: WrittenQuery, tables: set[str]) -> None:
    """Raise Refused if a pragma is read as a table, which would run during the call and be denied."""
    found = {name for name in tables if name.startswith(PRAGMAS)}
    for name in sorted(found - {fold(name) for name, _ in relations_of(connection, found)}):
        raise refusal(f"{name} may not be read.", offset=next(iter(query.places_of(name)), None))


def is_strict(connection: sqlite3.Connection, query: WrittenQuery, tables: set[str]) -> bool:
    """Return whether columns with a type only hold it: all are from STRICT tables, unchanged."""
    if query.words & COMPOUNDS:
        return False
    resolve_views(connection)
    names = {*map(fold, tables), *query.names}
    ((strict,),) = connection.execute(STRICT, (json.dumps([*names]),))
    return bool(strict)


def columns_of(connection: sqlite3.Connection, query: WrittenQuery, *, strict: bool) -> Iterator[Column]:
    """Yield the columns, with types except for expressions."""
    connection.execute(f"create temporary view {VIEW} as {query.with_nulls()}")
    rows = connection.execute(f"pragma temp.table_xinfo({VIEW})").fetchall()
    names = [name for _, name, *_ in rows]
    if any(NULL in name for name in names):
        raise refusal("A column that is computed from a parameter has no name.", hint="Name it with AS.")
    folded = [fold(name) for name in names]
    # SQLite has renamed all but the first of names that differ only in case.
    pairs = ((name, RENAMED.fullmatch(name)) for name in folded)
    check_names(match[1] if match and match[1] in folded else name for name, match in pairs)
    for _, name, declared, *_ in rows:
        yield Column(name=name, type=column_type(declared, strict=strict))


def relations_of(connection: sqlite3.Connection, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the tables and views with one of the folded *names*, with their kinds."""
    return connection.execute(RELATIONS, (json.dumps([*names]),)).fetchall()


def reads_of(
    connection: sqlite3.Connection, query: WrittenQuery, seen: Collection[tuple[str, str]]
) -> Iterator[ColumnPlace]:
    """Yield what is read of the tables and views that the query may name.

    Always include a named view, because SQLite does not report a view of which no column is read.
    """
    relations = relations_of(connection, query.names)
    relations += [(name, "table") for name in query.names & SCHEMA_TABLES]
    for name, kind in relations:
        columns = {column for table, column in seen if table == name}
        joined = bool(query.words & SILENT_JOINS)
        if joined and name not in SCHEMA_TABLES:
            shared = {column for (column,) in connection.execute(COLUMNS, (name,))}
            columns |= {each for each in shared if "natural" in query.words or fold(each) in query.names}
        if columns or joined or kind == "view":
            yield from (("", name, column) for column in columns - NO_COLUMNS or {""})


def parameter_type(declared: Declared) -> ColumnType:
    """Return the type of a column with the *declared* type."""
    type = column_type(NAMES.get(declared.type, declared.type), strict=False)
    if not declared.array:
        return type
    return ColumnType(family=Family.ARRAY, name=f"{type.name}[]", element=type, large=True)
