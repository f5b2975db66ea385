"""What SQLite tells of relations, before they become Tables. Rows of pragmas in, keys and ForeignKeys out."""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from dbtools.backends.sqlite.ddl import BINARY, Definition, read_definition
from dbtools.backends.sqlite.syntax import fold
from dbtools.backends.sqlite.types import Affinity, affinity
from dbtools.catalog import ForeignKey, Table, TableKind

#: Kinds of a column that `hidden` tells: of a virtual table, and generated when read or when written.
HIDDEN, VIRTUAL, STORED = 1, 2, 3

FOREIGN_KEYS = """
select s.name, f.id, f."table", f."from", f."to"
from main.sqlite_schema as s
join pragma_foreign_key_list(s.name, 'main') as f
where s.type = 'table'
and instr(lower(s.sql), 'references')
order by s.name, f.id desc, f.seq
"""
#: Those of SQLite itself: an application's are unknown here, and comparing by them would fail.
COLLATIONS = {BINARY, "nocase", "rtrim"}


class ColumnRow(NamedTuple):
    """A column as SQLite tells it."""

    table: str
    name: str
    type: str
    not_null: int
    default: str | None
    primary: int  #: its place in the primary key, from 1
    hidden: int  #: HIDDEN, VIRTUAL, STORED, or 0


class Index(NamedTuple):
    """A unique index."""

    origin: str  #: of PRIMARY KEY (pk), UNIQUE (u) or CREATE INDEX (c)
    partial: bool
    columns: tuple[str | None, ...]  #: None for an expression
    collations: tuple[str, ...]  #: by which it compares their texts, folded


@dataclass(frozen=True, kw_only=True)
class Structure:
    """A table or a view as SQLite tells it, with its columns and its unique indexes."""

    name: str
    kind: TableKind
    has_rowid: bool
    strict: bool
    sql: str
    rows: Sequence[ColumnRow]
    indexes: Sequence[Index]

    @cached_property
    def definition(self) -> Definition:
        """What the text of its CREATE statement tells."""
        return read_definition(self.sql)

    @cached_property
    def rowid(self) -> str | None:
        """The column that is another name of the rowid: an INTEGER PRIMARY KEY that has no index."""
        primary = [row for row in self.rows if row.primary]
        if self.kind is not TableKind.TABLE or not self.has_rowid or len(primary) != 1:
            return None
        if primary[0].type.lower() != "integer" or any(index.origin == "pk" for index in self.indexes):
            return None
        return primary[0].name

    @cached_property
    def unique(self) -> tuple[frozenset[str | None], ...]:
        """The columns of each index over all rows, which may hold nulls; None is an expression."""
        found = [frozenset(index.columns) for index in self.exact if not index.partial]
        return tuple(found) if self.rowid is None else (frozenset({self.rowid}), *found)

    @cached_property
    def exact(self) -> Sequence[Index]:
        """The indexes but those that tell texts apart which the collation of a column takes for equal."""
        return [index for index in self.indexes if not self._is_finer(index)]

    def affinity(self, column: str) -> Affinity:
        """Return the affinity of *column*, by its type as declared."""
        declared = next(row.type for row in self.rows if row.name == column)
        return affinity(declared, strict=self.strict)

    def _is_finer(self, index: Index) -> bool:
        """Return whether *index* tells texts apart which the own collation of a column does not."""
        own = [BINARY if name is None else self.collation(name) for name in index.columns]
        return any(own not in (BINARY, used) for own, used in zip(own, index.collations, strict=True))

    def collation(self, column: str) -> str:
        """Return the collation of *column*, folded."""
        collations = self.definition.collations
        return collations.get(fold(column), BINARY) if collations else BINARY


def read_foreign_keys(
    connection: sqlite3.Connection, tables: Mapping[str, Table], structures: Mapping[str, Structure]
) -> dict[str, tuple[ForeignKey, ...]]:
    """Return the foreign keys from each of *tables* to another, or to itself."""
    targets = {fold(name): table for name, table in tables.items() if table.kind is TableKind.TABLE}
    keys: dict[str, dict[ForeignKey, None]] = defaultdict(dict)
    for (table, _, target), rows in groupby(connection.execute(FOREIGN_KEYS), key=lambda row: row[:3]):
        found = targets.get(fold(target))
        if table not in tables or found is None:
            continue
        pairs = [row[3:] for row in rows]
        key = _foreign_key(pairs, found, structures[table], structures[found.name])
        if key is not None:
            keys[table][key] = None
    return {table: tuple(each) for table, each in keys.items()}


def _foreign_key(
    pairs: Sequence[tuple[str, str | None]], target: Table, here: Structure, there: Structure
) -> ForeignKey | None:
    """Return the key of *pairs* of columns, here and there, if there are such columns in *target*."""
    exact = [_exact_name(target, name) for _, name in pairs if name is not None]
    if not exact and target.primary_key and target.primary_key.primary:
        exact = [*target.primary_key.columns]
    target_columns = tuple([name for name in exact if name is not None])
    if len(target_columns) != len(pairs):
        return None
    columns = tuple([name for name, _ in pairs])
    return ForeignKey(
        columns=columns,
        target_schema="",
        target=target.name,
        target_columns=target_columns,
        joinable=_is_joinable(here, columns, there, target_columns),
    )


def _exact_name(table: Table, name: str) -> str | None:
    if name in table.column_by_name:
        return name
    return next((column.name for column in table.columns if fold(column.name) == fold(name)), None)


def _is_joinable(
    here: Structure, columns: Sequence[str], there: Structure, target_columns: Sequence[str]
) -> bool:
    """Return whether `there = here` is true of one row at most, and means what the foreign key does."""
    if not {*map(here.collation, columns), *map(there.collation, target_columns)} <= COLLATIONS:
        return False
    # The rowid is unique, and compares with anything as a number does.
    if target_columns == (there.rowid,):
        return True
    if not any(unique.issubset(target_columns) for unique in there.unique):
        return False
    pairs = zip(columns, target_columns, strict=True)
    return all(_compares_alike(here.affinity(given), there.affinity(target)) for given, target in pairs)


def _compares_alike(given: Affinity, target: Affinity) -> bool:
    """Return whether `target = source` compares as a foreign key does: by the affinity of the target.

    A number as the source would make numbers of the target's texts: both '1' and '01' would equal it. A text
    as the target would make no texts of the source's numbers, as a foreign key does.
    """
    return target is Affinity.NUMERIC or given in (Affinity.TEXT, target)
