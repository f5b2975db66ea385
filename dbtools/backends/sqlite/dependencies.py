"""What views and virtual tables of SQLite read beneath their names. Structures in, Reads out.

SQLite says itself what a view reads: it tells the authorizer while the view's SELECT is explained. This is
done on an empty database in memory, whose tables stand for the tables and views of the file. So each view is
explained by itself, however deeply views are nested, and no row is read.
"""

import sqlite3
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import closing

from dbtools.backends.plans import identifier
from dbtools.backends.sqlite.ddl import module_of
from dbtools.backends.sqlite.guard import explain
from dbtools.backends.sqlite.structure import HIDDEN, ColumnRow, Structure
from dbtools.backends.sqlite.syntax import SILENT_JOINS, fold, in_groups, lexis, names_in, words_in
from dbtools.catalog import UNTOLD, Reads, TableKind
from dbtools.sql import Group, SqlError, code_of, grouped, split, tokenize
from dbtools.types import quoted

#: Modules of virtual tables that keep their own rows, unless an argument names another table.
KEEPING = frozenset({"fts3", "fts4", "fts5", "rtree", "rtree_i32", "geopoly"})
INDEX_READERS = frozenset({"fts4aux", "fts5vocab"})  #: modules that show the words of a full-text table
#: Functions in FROM that read nothing but their arguments.
PURE = frozenset({"json_each", "json_tree", "jsonb_each", "jsonb_tree", "generate_series"})
UNKNOWN = Reads(others=(UNTOLD,))
ROWID = "ROWID"  #: what the authorizer calls a rowid
SYSTEM = ("sqlite_", "pragma_")  #: what the names of SQLite's own tables begin with
MODULES = "select name from pragma_module_list"
WARMING = "select 1 from json_each('[1]'), json_tree('[1]')"

Columns = Mapping[str, Sequence[ColumnRow]]  #: by table


def read_dependencies(structures: Mapping[str, Structure], columns: Columns) -> Mapping[str, Reads]:
    """Return what the views and virtual tables among *structures* read; *columns* are those of all tables."""
    views = [each for each in structures.values() if each.kind is TableKind.VIEW]
    virtual = [each for each in structures.values() if each.kind is TableKind.VIRTUAL]
    found = {each.name: _of_virtual(each, columns) for each in virtual}
    if views:
        with closing(sqlite3.connect(":memory:")) as connection:
            _create_stand_ins(connection, columns)
            modules = {fold(name) for (name,) in connection.execute(MODULES)}
            found |= {each.name: _of_view(connection, each, columns, modules) for each in views}
    return {name: reads for name, reads in found.items() if reads != Reads()}


def _create_stand_ins(connection: sqlite3.Connection, columns: Columns) -> None:
    """Create empty tables with the names and *columns* of a file's."""
    connection.execute(WARMING).fetchall()
    connection.execute("begin")
    for name, rows in columns.items():
        # SQLite keeps these names for itself.
        if rows and not fold(name).startswith("sqlite_"):
            names = ", ".join(identifier(row.name) for row in rows)
            connection.execute(f"create table {identifier(name)} ({names})")


def _of_view(
    connection: sqlite3.Connection, view: Structure, columns: Columns, modules: Container[str]
) -> Reads:
    """Return what *view* reads directly."""
    sql = view.sql
    select = next((sql[part.end :] for part in in_groups(sql).parts if part.word == "as"), "")
    try:
        seen = explain(connection, select, allow=lambda *_: sqlite3.SQLITE_OK)
    except (sqlite3.Error, sqlite3.Warning):
        # It may read what cannot stand here, such as sqlite_sequence.
        return UNKNOWN
    # To look for the words anywhere first costs next to nothing.
    if any(word in sql.lower() for word in SILENT_JOINS) and SILENT_JOINS & words_in(sql):
        seen |= set(_shared(sql, columns))
    matched = "match" in sql.lower()
    return Reads(columns=frozenset(_places(seen, columns, modules, matched=matched)))


def _shared(sql: str, columns: Columns) -> Iterator[tuple[str, str]]:
    """Yield the columns that USING and NATURAL in *sql* may compare, of all tables that it may name."""
    named = names_in(sql)
    for table in columns:
        if fold(table) in named:
            yield table, ""
            for row in columns[table]:
                if "natural" in named or fold(row.name) in named:
                    yield table, row.name


def _places(
    seen: Iterable[tuple[str, str]], columns: Columns, modules: Container[str], *, matched: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield the columns that are *seen*, of tables and of *modules*, in the terms of the catalog.

    *matched* says whether full-text tables may be searched.
    """
    for table, column in seen:
        rows = columns.get(table)
        if rows is None:
            # SQLite also reports what the query itself defines, such as common table expressions.
            own = fold(table) not in modules and not fold(table).startswith(SYSTEM)
            yield from () if own or fold(table) in PURE else [("", table, "")]
        elif column == ROWID:
            # Perhaps it is the primary key by another name.
            keys = [row.name for row in rows if row.primary and row.type.lower() == "integer"]
            yield ("", table, keys[0] if len(keys) == 1 else "")
        elif any(row.hidden == HIDDEN and (matched or row.name == column) for row in rows):
            # Functions and patterns of a full-text table can reveal any of its columns.
            yield from (("", table, row.name) for row in rows if row.hidden != HIDDEN)
        else:
            yield ("", table, column)


def _of_virtual(table: Structure, columns: Columns) -> Reads:
    """Return what a virtual *table* reads: nothing but its own rows, if its module keeps them."""
    sql = table.sql
    try:
        arguments, module = _arguments(sql), module_of(sql)
    except SqlError:
        return UNKNOWN
    if module in INDEX_READERS:
        # fts5vocab(TABLE, TYPE) or fts5vocab(SCHEMA, TABLE, TYPE); fts4aux has no TYPE.
        own = len(arguments) - (2 if module == "fts5vocab" else 1)
        return Reads(columns=frozenset(_all_of(arguments[own][0], columns)) if own >= 0 else frozenset())
    if module not in KEEPING:
        return Reads(others=(f"what the module {quoted(module)} reads, which is not known",))
    options = {fold(words[0]): words[2] for words in arguments if words[1:2] == ["="] and words[2:]}
    # FTS5 takes the beginning of an option's name for the option.
    content = next((options[name] for name in options if "content".startswith(name)), "")
    numbers = {fold(value) for name, value in options.items() if "content_rowid".startswith(name)}
    shown = {fold(row.name) for row in table.rows} | numbers | {""}
    shown |= {fold(row.name) for row in columns.get(_spelled(content, columns), ()) if row.primary}
    places = _all_of(content, columns) if content else ()
    return Reads(columns=frozenset(place for place in places if fold(place[2]) in shown))


def _arguments(sql: str) -> list[list[str]]:
    """Return the arguments of the module in *sql*, each as its words without quotes."""
    parts = grouped(tokenize(sql, lexis), sql).parts
    arguments = next((part.parts for part in parts if isinstance(part, Group)), [])
    texts = (sql[each[0].offset : each[-1].end] if each else "" for each in split(arguments, ","))
    return [[token.value for token in code_of(text, lexis)] for text in texts]


def _all_of(name: str, columns: Columns) -> Iterator[tuple[str, str, str]]:
    """Yield all columns of the table *name*, in any case of letters, and its rows."""
    table = _spelled(name, columns)
    yield ("", table, "")
    yield from (("", table, row.name) for row in columns.get(table, ()) if row.hidden != HIDDEN)


def _spelled(name: str, columns: Columns) -> str:
    """Return the table *name* as it is spelled in the file."""
    return next((each for each in columns if fold(each) == fold(name)), name)
