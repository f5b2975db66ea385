"""Read the structure, the foreign keys and the indexes of relations. A connection in, parts of Tables out."""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from typing import NamedTuple

from dbtools.backends.compiled import identifier
from dbtools.backends.sqlite.schema.syntax import (
    BINARY,
    Definition,
    fold,
    module_of,
    names_in,
    read_definition,
    read_tokens,
)
from dbtools.schema.catalog import (
    Catalog,
    Column,
    ForeignKey,
    Location,
    Table,
    TableKind,
    TextIndex,
)
from dbtools.values.types import NUMERIC, Family, quote

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
SYSTEM_PREFIXES = ("sqlite_", "pragma_")  #: prefixes of SQLite's own tables


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
    sql: str = ""  #: the CREATE INDEX statement of a partial index


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


def may_refer(target: Column, source: Column) -> bool:
    """Return whether a configuration may let *source* refer to *target*: declared types must agree."""
    agree = {source.type.family, target.type.family} <= {*NUMERIC, Family.ANY}
    return are_alike(target, source) and (agree or source.type.family is target.type.family)


def is_derived(structure: Structure, reads: Sequence[Location]) -> bool:
    """Return whether *structure*, which *reads* others, may show their rows, as views do."""
    if structure.kind is not TableKind.VIRTUAL:
        return structure.kind is TableKind.VIEW
    return module_of(structure.sql).name not in KEEPING or bool(reads)


def read_by(view: Structure, names: Mapping[str, str]) -> tuple[Location, ...]:
    """Return the tables and views that *view* names; *names* has all of the file by their folded names."""
    match view.kind:
        case TableKind.VIEW:
            named = sorted(names_in(view.sql) - {fold(view.name)})
        case TableKind.VIRTUAL:
            named = sorted({fold(word) for words in module_of(view.sql).arguments for word in words})
        case _:
            named = []
    return tuple(
        ("", names.get(each, each)) for each in named if each in names or each.startswith(SYSTEM_PREFIXES)
    )


def bound_to_main(catalog: Catalog) -> Mapping[Location, str]:
    """Return the views of *catalog* that name the schema of a table, or read such a view, and why.

    SQLite cannot open them in a file that is attached under another name.
    """
    views = [table for table in catalog.tables if table.kind is TableKind.VIEW]
    named = {view.location: "it writes main. before a name" for view in views if _names_main(view.definition)}
    beneath = (
        (view, [each for each in catalog.underlying_tables(view) if each.location in named]) for view in views
    )
    return named and {
        **{view.location: f"it reads {quote(read[0].name)}" for view, read in beneath if read},
        **named,
    }


def _names_main(sql: str) -> bool:
    names = [fold(token.value) for token in read_tokens(sql)] if "main" in fold(sql) else []
    return ("main", ".") in pairwise(names)


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
