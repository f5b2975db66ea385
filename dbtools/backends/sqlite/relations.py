"""Read the structure, foreign keys and dependencies of relations. A connection in, parts of Tables out.

SQLite reports what a view reads to the authorizer while it explains the view's SELECT. This happens in an
empty database in memory, where tables replace the tables and views of the file. So each view is explained
separately, even if views are nested, and no row is read.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from dbtools.backends.plans import identifier
from dbtools.backends.port import ColumnPlace
from dbtools.backends.sqlite.files import explain
from dbtools.backends.sqlite.syntax import (
    BINARY,
    SILENT_JOINS,
    Definition,
    fold,
    in_groups,
    module_of,
    names_in,
    read_definition,
    words_in,
)
from dbtools.catalog import UNREPORTED, Column, ForeignKey, Reads, Table, TableKind, TextIndex
from dbtools.types import NUMERIC, quoted

#: The values of `hidden`: a column of a virtual table, and columns generated when read or when written.
HIDDEN, VIRTUAL, STORED = 1, 2, 3
FOREIGN_KEYS = """
select s.name, f.id, f."table", f."from", f."to"
from main.sqlite_schema as s
join pragma_foreign_key_list(s.name, 'main') as f
where s.type = 'table'
and instr(lower(s.sql), 'references')
order by s.name, f.id desc, f.seq
"""
#: Modules of virtual tables that store their own rows, unless an argument names another table.
KEEPING = frozenset({"fts3", "fts4", "fts5", "rtree", "rtree_i32", "geopoly"})
INDEX_READERS = frozenset({"fts4aux", "fts5vocab"})  #: modules that show the words of a full-text table
#: Table-valued functions that read only their arguments.
PURE = frozenset({"json_each", "json_tree", "jsonb_each", "jsonb_tree", "generate_series"})
UNKNOWN = Reads(others=(UNREPORTED,))
ROWID = "ROWID"  #: the rowid, to the authorizer
SYSTEM = ("sqlite_", "pragma_")  #: prefixes of SQLite's own tables
MODULES = "select name from pragma_module_list"
WARMING = "select 1 from json_each('[1]'), json_tree('[1]')"


class ColumnRow(NamedTuple):
    """A column in SQLite's catalog."""

    table: str
    name: str
    type: str
    not_null: int
    default: str | None
    primary: int  #: its position in the primary key, from 1
    hidden: int  #: HIDDEN, VIRTUAL, STORED, or 0


ColumnsByTable = Mapping[str, Sequence[ColumnRow]]


class Index(NamedTuple):
    """A unique index."""

    origin: str  #: PRIMARY KEY (pk), UNIQUE (u) or CREATE INDEX (c)
    partial: bool
    columns: tuple[str | None, ...]  #: None for an expression
    collations: tuple[str, ...]  #: of the columns in the index, folded


@dataclass(frozen=True, kw_only=True)
class Structure:
    """A table or a view in SQLite's catalog, with its columns and unique indexes."""

    name: str
    kind: TableKind
    has_rowid: bool
    strict: bool
    sql: str
    rows: Sequence[ColumnRow]
    indexes: Sequence[Index]

    @cached_property
    def definition(self) -> Definition:
        """The parsed CREATE statement."""
        return read_definition(self.sql)

    @cached_property
    def rowid(self) -> str | None:
        """The column that is an alias of the rowid: an INTEGER PRIMARY KEY without an index."""
        primary = [row for row in self.rows if row.primary]
        if self.kind is not TableKind.TABLE or not self.has_rowid or len(primary) != 1:
            return None
        if primary[0].type.lower() != "integer" or any(index.origin == "pk" for index in self.indexes):
            return None
        return primary[0].name

    @cached_property
    def unique(self) -> tuple[frozenset[str | None], ...]:
        """The columns of each unique index over all rows, possibly with nulls; None is an expression."""
        found = [frozenset(index.columns) for index in self.exact if not index.partial]
        return tuple(found) if self.rowid is None else (frozenset({self.rowid}), *found)

    @cached_property
    def exact(self) -> Sequence[Index]:
        """The indexes that compare texts no more strictly than the collations of their columns."""
        return [
            index
            for index in self.indexes
            if all(
                name is None or self.collation(name) in (BINARY, used)
                for name, used in zip(index.columns, index.collations, strict=True)
            )
        ]

    def collation(self, column: str) -> str:
        """Return the collation of *column*, folded."""
        collations = self.definition.collations
        return collations.get(fold(column), BINARY) if collations else BINARY


def read_foreign_keys(
    connection: sqlite3.Connection, tables: Mapping[str, Table], structures: Mapping[str, Structure]
) -> dict[str, tuple[ForeignKey, ...]]:
    """Return the foreign keys between *tables*, by table."""
    targets = {fold(name): table for name, table in tables.items() if table.kind is TableKind.TABLE}
    keys: dict[str, dict[ForeignKey, None]] = defaultdict(dict)
    for (table, _, target), rows in groupby(connection.execute(FOREIGN_KEYS), key=lambda row: row[:3]):
        found = targets.get(fold(target))
        if table not in tables or found is None:
            continue
        pairs = [row[3:] for row in rows]
        key = _foreign_key(pairs, tables[table], found, structures[found.name])
        if key is not None:
            keys[table][key] = None
    return {table: tuple(each) for table, each in keys.items()}


def _foreign_key(
    pairs: Sequence[tuple[str, str | None]], table: Table, target: Table, there: Structure
) -> ForeignKey | None:
    """Return the foreign key of *pairs* of columns of *table* and *target*, None if a column is missing."""
    names = {fold(column.name): column.name for column in target.columns}
    exact = [names.get(fold(name)) for _, name in pairs if name is not None]
    if not exact and any(key.primary for key in target.keys):
        exact = [column.name for column in target.key_columns]
    target_columns = tuple([name for name in exact if name is not None])
    if len(target_columns) != len(pairs):
        return None
    columns = tuple([name for name, _ in pairs])
    # The rowid is unique, and compares as a number with anything.
    joinable = target_columns == (there.rowid,) or (
        any(unique.issubset(target_columns) for unique in there.unique)
        and all(
            are_alike(target.column_by_name[name], table.column_by_name[given])
            for given, name in zip(columns, target_columns, strict=True)
        )
    )
    return ForeignKey(
        columns=columns,
        target_schema="",
        target=target.name,
        target_columns=target_columns,
        joinable=joinable,
    )


def are_alike(target: Column, source: Column) -> bool:
    """Return whether `target = source` matches at most the one row that a foreign key means.

    A number would convert the target's texts to numbers: both '1' and '01' would equal 1.
    """
    return target.type.family in NUMERIC or source.type.family is target.type.family


def read_dependencies(structures: Mapping[str, Structure], columns: ColumnsByTable) -> Mapping[str, Reads]:
    """Return what the views and virtual tables of *structures* read; *columns* has those of all tables."""
    views = [each for each in structures.values() if each.kind is TableKind.VIEW]
    virtual = [each for each in structures.values() if each.kind is TableKind.VIRTUAL]
    found = {each.name: _of_virtual(each, columns) for each in virtual}
    if views:
        with closing(sqlite3.connect(":memory:")) as connection:
            _create_stand_ins(connection, columns)
            modules = {fold(name) for (name,) in connection.execute(MODULES)}
            found |= {each.name: _of_view(connection, each, columns, modules) for each in views}
    return {name: reads for name, reads in found.items() if reads != Reads()}


def _create_stand_ins(connection: sqlite3.Connection, columns: ColumnsByTable) -> None:
    """Create empty tables with the *columns* of the file's tables and views."""
    connection.execute(WARMING).fetchall()
    connection.execute("begin")
    for name, rows in columns.items():
        # SQLite reserves these names.
        if rows and not fold(name).startswith("sqlite_"):
            names = ", ".join(identifier(row.name) for row in rows)
            connection.execute(f"create table {identifier(name)} ({names})")


def _of_view(
    connection: sqlite3.Connection, view: Structure, columns: ColumnsByTable, modules: Container[str]
) -> Reads:
    """Return what *view* reads directly."""
    sql = view.sql
    select = next((sql[part.end :] for part in in_groups(sql).parts if part.word == "as"), "")
    try:
        seen = explain(connection, select, allow=lambda *_: sqlite3.SQLITE_OK).reads
    except (sqlite3.Error, sqlite3.Warning):
        # The view may read a table without a stand-in, such as sqlite_sequence.
        return UNKNOWN
    # Searching for the words first avoids most tokenizing.
    if any(word in sql.lower() for word in SILENT_JOINS) and SILENT_JOINS & words_in(sql):
        seen |= set(_shared(sql, columns))
    matched = "match" in sql.lower()
    return Reads(columns=frozenset(_places(seen, columns, modules, matched=matched)))


def _shared(sql: str, columns: ColumnsByTable) -> Iterator[tuple[str, str]]:
    """Yield the columns that USING and NATURAL may compare, for all tables that *sql* may name."""
    named = names_in(sql)
    for table in columns:
        if fold(table) in named:
            yield table, ""
            for row in columns[table]:
                if "natural" in named or fold(row.name) in named:
                    yield table, row.name


def _places(
    seen: Iterable[tuple[str, str]], columns: ColumnsByTable, modules: Container[str], *, matched: bool
) -> Iterator[ColumnPlace]:
    """Yield the *seen* columns of tables and *modules* as places in the catalog.

    *matched* says whether the view may search full-text tables.
    """
    for table, column in seen:
        rows = columns.get(table)
        if rows is None:
            # SQLite also reports common table expressions.
            own = fold(table) not in modules and not fold(table).startswith(SYSTEM)
            yield from () if own or fold(table) in PURE else [("", table, "")]
        elif column == ROWID:
            # The rowid may be an alias of the primary key.
            keys = [row.name for row in rows if row.primary and row.type.lower() == "integer"]
            yield ("", table, keys[0] if len(keys) == 1 else "")
        elif any(row.hidden == HIDDEN and (matched or row.name == column) for row in rows):
            # Full-text functions and patterns can reveal any column of the table.
            yield from (("", table, row.name) for row in rows if row.hidden != HIDDEN)
        else:
            yield ("", table, column)


def _of_virtual(table: Structure, columns: ColumnsByTable) -> Reads:
    """Return what a virtual *table* reads besides its own rows."""
    module = module_of(table.sql)
    if module.name in INDEX_READERS:
        # fts5vocab(TABLE, TYPE) or fts5vocab(SCHEMA, TABLE, TYPE); fts4aux has no TYPE.
        names = [word for words in module.arguments for word in words[:1]]
        names = names[: -1 if module.name == "fts5vocab" else None]
        return Reads(columns=frozenset(_all_of(names[-1], columns)) if names else frozenset())
    if module.name not in KEEPING:
        return Reads(others=(f"what the module {quoted(module.name)} reads, which is not known",))
    content, key = module.option("content"), module.option("content_rowid")
    if not content:
        return Reads()
    shown = {fold(row.name) for row in table.rows} | {fold(content), fold(key)}
    return Reads(columns=frozenset(_all_of(content, columns, shown)))


def read_text_indexes(
    virtual: Mapping[str, str], structures: Mapping[str, Structure], columns: ColumnsByTable
) -> Mapping[str, Mapping[str, TextIndex]]:
    """Return the full-text indexes of *structures*, by table and column.

    *virtual* has the SQL of each virtual table. A full-text table is an index of itself, or of another table.
    """
    found: dict[str, dict[str, TextIndex]] = defaultdict(dict)
    by_name = {fold(name): structure for name, structure in structures.items()}
    for name, module in ((name, module_of(sql)) for name, sql in virtual.items()):
        # Without its details, an index finds no phrases.
        if module.name != "fts5" or fold(module.option("detail") or "full") != "full":
            continue
        left_out = {fold(words[0]) for words in module.arguments if "unindexed" in map(fold, words[1:])}
        names = {fold(row.name) for row in columns.get(name, ()) if row.hidden != HIDDEN} - left_out
        for table, key in ((name, ""), (module.option("content"), module.option("content_rowid"))):
            if (structure := by_name.get(fold(table))) is not None:
                found[structure.name] |= _indexes_of(structure, name, names, key or "rowid")
    return found


def _indexes_of(table: Structure, index: str, names: Set[str], key: str) -> dict[str, TextIndex]:
    """Return the columns *names* of *table* with the full-text table *index*, whose rowid is *key* here."""
    columns = {fold(row.name): row.name for row in table.rows if row.hidden != HIDDEN}
    number = columns.get(fold(key), "rowid" if table.has_rowid and table.kind is not TableKind.VIEW else "")
    shared = number != "rowid" and frozenset({number}) not in table.unique
    weighs = frozenset(columns.get(folded, folded) for folded in names)
    return {
        name: TextIndex(
            reads=frozenset({name}), document=identifier(number), source=index, weighs=weighs, shared=shared
        )
        for folded, name in columns.items()
        if number and folded in names
    }


def _all_of(name: str, columns: ColumnsByTable, shown: Container[str] | None = None) -> Iterator[ColumnPlace]:
    """Yield the rows, the keys and the columns of the table *name*, only those *shown* if given."""
    table = next((each for each in columns if fold(each) == fold(name)), name)
    yield ("", table, "")
    for row in columns.get(table, ()):
        if row.hidden != HIDDEN and (row.primary or shown is None or fold(row.name) in shown):
            yield ("", table, row.name)
