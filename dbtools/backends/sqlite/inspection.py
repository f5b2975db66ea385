"""What SQLite says of a query before it is ever called. A location and pieces of SQL in, an Inspected out.

The authorizer is told what is read while the query is explained where the grammar lets nothing but a SELECT
stand; a temporary view has the types. Both are done on a connection of their own, which ends with the answer;
the file is opened for reading only. Of a view that the query names only the view's own columns are told.
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
    Declared,
    Inspected,
    Read,
    check_names,
    passing_refusal,
    refusal,
)
from dbtools.backends.sqlite.files import Location, connect, is_locked, open_file, wants_recovery
from dbtools.backends.sqlite.guard import LOCK_TIMEOUT, authorize, explain, resolve_views, secure
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
NULL = "(null/* a parameter */)"  #: what stands for a parameter in the view
#: What SQLite says of a name that means nothing, or too much.
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
NO_COLUMNS = {"", "ROWID"}  #: names that stand for the row
NAMES: Mapping[str, str] = {"number": "real"}  #: of declared types, where they differ
PRAGMAS = "pragma_"  #: what the names of pragmas begin with that are read as tables
SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema"})
COMPOUNDS = {"union", "intersect", "except"}  #: whose columns have the types of their first part only
RENAMED = re.compile(r"(.*):\d+", re.DOTALL)  #: what SQLite makes of a name that is there already
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
    """A query in the pieces that the operator wrote, and as many as SQLite reads them."""

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
        """The words outside of quotes."""
        return words_in(self.text)

    @cached_property
    def names(self) -> frozenset[str]:
        """The words, and whatever is in quotes, all folded: what the query names is among them."""
        return names_in(self.text)

    def offset_of(self, message: str) -> int | None:
        """Return where what *message* names first stands, None where that does not show.

        SQLite knows the place (3.38), and the standard library's module does not tell it (Python 3.14).
        """
        if message == INCOMPLETE:
            return len(self.text)
        named = NAMED.fullmatch(message)
        # A name in quotes may have a dot.
        whole = self.places_of(message.partition(": ")[2])
        places = whole or (self.places_of(named[named.lastindex or 0]) if named else [])
        # A word may be right in one place and wrong in the next.
        return places[0] if len(places) == 1 or (places and named and named["name"]) else None

    def places_of(self, word: str) -> list[int]:
        """Return where *word* stands, in quotes or not."""
        return [each.offset for each in tokenize(self.text, lexis) if fold(each.value) == fold(word)]

    def alone(self) -> str:
        """Return the query with numbered parameters, as a call runs it."""
        numbers = self.numbers
        return "".join(
            f"?{numbers[each.name]}" if isinstance(each, Parameter) else with_names(each)
            for each in self.pieces
        )

    def shown(self) -> str:
        """Return a statement that can only be a SELECT, with numbered parameters."""
        return f"select * from ({self.alone()}\n)"

    def with_nulls(self) -> str:
        """Return the statement with nulls for parameters, as written: a column may be called by its text."""
        text = "".join(each if isinstance(each, str) else NULL for each in self.pieces)
        return f"select * from ({text}\n)"


def inspect_query(location: Location, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
    """Return what SQLite says of the query in *pieces*, or raise Refused where it does not only read."""
    arrays = {name for name, each in declared.items() if each.array}
    query = WrittenQuery(source=pieces, pieces=with_lists(pieces, arrays.__contains__, lexis, LIST_FORMS))
    _check_lists(query, arrays)
    with closing(connect(location, lock_timeout=LOCK_TIMEOUT)) as connection:
        secure(connection)
        connection.text_factory = lambda text: text.decode(errors="replace")
        seen = _explain(connection, query)
        # What follows is the temporary view alone, of a query that only reads.
        connection.set_authorizer(None)
        connection.executescript("pragma query_only = off; pragma temp_store = memory")
        _check_pragmas(connection, query, {fold(table) for table, _ in seen})
        strict = _is_strict(connection, query, {table for table, _ in seen})
        columns = tuple(_columns(connection, query, strict=strict))
        reads = frozenset(_reads(connection, query, seen))
    return Inspected(
        columns=columns,
        parameters={name: _parameter_type(declared.get(name, TEXT)) for name in query.numbers},
        casts={},
        reads=reads,
        functions=(),
    )


def _check_lists(query: WrittenQuery, arrays: Container[str]) -> None:
    """Raise Refused where a list stands in no form of lists, in no function of JSON, and is not a column."""
    texts = ["", *map(str, query.pieces), ""]
    for at, piece in enumerate(query.pieces):
        if not isinstance(piece, Parameter) or piece.name not in arrays:
            continue
        before = [token.word for token in code_of(texts[at], lexis)[-2:]]
        after = [token.word for token in code_of(texts[at + 2], lexis)[:1]]
        if after != ["as"] and not re.fullmatch(r"json\w* \(", " ".join(before)):
            forms = f"in ({piece}), not in ({piece}) or = any({piece})"
            offset = sum(len(str(each)) for each in query.source[:at])
            raise refusal(f"{piece} is a list, and stands alone: write {forms}.", offset=offset)


class Description:
    """Asks the SQLite file at *location* what operators' SQL means to it, on threads.

    Conditions are explained on one connection. One thread opens it, uses it and closes it, since a call that
    is cancelled goes on there.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._connection: sqlite3.Connection | None = None  #: of the thread

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the query in *pieces* is, asked on a connection of its own; or raise Refused."""
        return await self._ask(partial(inspect_query, self._location, pieces, declared))

    async def condition(self, table: Table, condition: Fragment) -> tuple[str, ...]:
        """Return no types, once SQLite has understood *condition*; or raise Refused."""
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
            connection = open_file(self._location, lock_timeout=LOCK_TIMEOUT)
            secure(connection)
            self._connection = connection
        sql = f"explain select 1 from {identifier(table.name)} where ({''.join(pieces)}\n)"
        try:
            self._connection.execute(sql, nulls).close()
        except sqlite3.Error as exc:
            if _is_passing(exc):
                raise
            raise Refused(explained(str(exc), condition.text)) from exc

    def close(self) -> None:
        """Have the thread close the connection and end, after all that it was asked before."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _explain(connection: sqlite3.Connection, query: WrittenQuery) -> set[tuple[str, str]]:
    try:
        return explain(connection, query.shown(), [None] * len(query.numbers), allow=authorize)
    except (sqlite3.Error, sqlite3.Warning) as exc:
        if _is_passing(exc):
            raise
        raise _refused(connection, query, exc) from exc


def _is_passing(error: Exception) -> bool:
    """Return whether *error* is of the file or of the moment, and not of the statement."""
    name = getattr(error, "sqlite_errorname", "") or ""
    passing = is_locked(error) or wants_recovery(error)
    return passing or name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN"))


def _refused(connection: sqlite3.Connection, query: WrittenQuery, error: Exception) -> Exception:
    """Return the error of a query that does not work, in the words for the query as it stands alone."""
    if _is_denied(error):
        return refusal(f"{error}.")
    try:
        connection.execute(f"explain {query.alone()}", [None] * len(query.numbers)).close()
    except (sqlite3.Error, sqlite3.Warning) as exc:
        message = str(exc).rstrip(".")
        problem = NOT_READING if _is_denied(exc) else explained(message, query.text)
        return refusal(problem, offset=query.offset_of(message))
    return refusal(NOT_READING)


def _is_denied(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH


def _check_pragmas(connection: sqlite3.Connection, query: WrittenQuery, tables: set[str]) -> None:
    """Raise Refused where a pragma is read as a table: it is run in the call alone, and denied there."""
    found = {name for name in tables if name.startswith(PRAGMAS)}
    for name in sorted(found - {fold(name) for name, _ in _relations(connection, found)}):
        raise refusal(f"{name} may not be read.", offset=next(iter(query.places_of(name)), None))


def _is_strict(connection: sqlite3.Connection, query: WrittenQuery, tables: set[str]) -> bool:
    """Return whether what has a type surely holds it: all is from STRICT tables, and handed through."""
    if query.words & COMPOUNDS:
        return False
    resolve_views(connection)
    names = {*map(fold, tables), *query.names}
    ((strict,),) = connection.execute(STRICT, (json.dumps([*names]),))
    return bool(strict)


def _columns(connection: sqlite3.Connection, query: WrittenQuery, *, strict: bool) -> Iterator[Column]:
    """Yield the columns with the types that SQLite hands through: an expression has none."""
    connection.execute(f"create temporary view {VIEW} as {query.with_nulls()}")
    rows = connection.execute(f"pragma temp.table_xinfo({VIEW})").fetchall()
    names = [name for _, name, *_ in rows]
    if any(NULL in name for name in names):
        raise refusal("A column that is computed from a parameter has no name.", hint="Name it with AS.")
    _check_names(names)
    for _, name, declared, *_ in rows:
        yield Column(name=name, type=column_type(declared, strict=strict))


def _check_names(names: Iterable[str]) -> None:
    """Raise Refused where names differ in their case alone: SQLite has then renamed all but the first."""
    folded = [fold(name) for name in names]
    pairs = ((name, RENAMED.fullmatch(name)) for name in folded)
    check_names(match[1] if match and match[1] in folded else name for name, match in pairs)


def _relations(connection: sqlite3.Connection, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the tables and views called one of *names*, which are folded, with their kinds."""
    return connection.execute(RELATIONS, (json.dumps([*names]),)).fetchall()


def _reads(
    connection: sqlite3.Connection, query: WrittenQuery, seen: Collection[tuple[str, str]]
) -> Iterator[Read]:
    """Yield what is read of the tables and views that the query may name itself.

    A view that it names is told in any case: SQLite does not tell of one of which no column is read.
    """
    relations = _relations(connection, query.names)
    relations += [(name, "table") for name in query.names & SCHEMA_TABLES]
    for name, kind in relations:
        columns = {column for table, column in seen if table == name}
        joined = bool(query.words & SILENT_JOINS)
        if joined and name not in SCHEMA_TABLES:
            shared = {column for (column,) in connection.execute(COLUMNS, (name,))}
            columns |= {each for each in shared if "natural" in query.words or fold(each) in query.names}
        if columns or joined or kind == "view":
            yield from (Read("", name, column) for column in columns - NO_COLUMNS or {""})


def _parameter_type(declared: Declared) -> ColumnType:
    """Return what introspection makes of a column that is declared so."""
    type = column_type(NAMES.get(declared.type, declared.type), strict=False)
    if not declared.array:
        return type
    return ColumnType(family=Family.ARRAY, name=f"{type.name}[]", element=type, large=True)
