"""What SQLite tells of one relation, before it becomes a Table. Rows of pragmas in, questions answered."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from dbtools.backends.sqlite.ddl import BINARY, Definition, fold
from dbtools.catalog import TableKind

#: Kinds of a column that `hidden` tells: of a virtual table, and generated when read or when written.
HIDDEN, VIRTUAL, STORED = 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A table or a view as the list of them tells it."""

    name: str
    kind: TableKind
    has_rowid: bool
    strict: bool
    sql: str


class ColumnRow(NamedTuple):
    """A column as SQLite tells it."""

    table: str
    name: str
    type: str
    not_null: int
    default: str | None
    primary: int  #: its place in the primary key, from 1
    hidden: int  #: HIDDEN, VIRTUAL, STORED, or 0


@dataclass(frozen=True, kw_only=True)
class Index:
    """A unique index."""

    origin: str  #: of PRIMARY KEY (pk), UNIQUE (u) or CREATE INDEX (c)
    partial: bool
    columns: tuple[str | None, ...]  #: None for an expression
    collations: tuple[str, ...]  #: by which it compares their texts, folded


@dataclass(frozen=True, kw_only=True)
class Structure:
    """A relation with its columns and its unique indexes."""

    relation: Relation
    rows: Sequence[ColumnRow]
    indexes: Sequence[Index]
    definition: Definition

    @cached_property
    def rowid(self) -> str | None:
        """The column that is another name of the rowid: an INTEGER PRIMARY KEY that has no index."""
        primary = [row for row in self.rows if row.primary]
        if self.relation.kind is not TableKind.TABLE or not self.relation.has_rowid or len(primary) != 1:
            return None
        if primary[0].type.lower() != "integer" or any(index.origin == "pk" for index in self.indexes):
            return None
        return primary[0].name

    @cached_property
    def unique(self) -> tuple[frozenset[str | None], ...]:
        """The columns of each index, which may hold nulls and whose own collations tell all others apart.

        None stands for an expression, so that such an index is never one of columns alone.
        """
        found = [
            frozenset(index.columns)
            for index in self.indexes
            if not index.partial and index.collations == self._own(index)
        ]
        return tuple(found) if self.rowid is None else (frozenset({self.rowid}), *found)

    def type(self, column: str) -> str:
        """Return the type of *column* as declared."""
        return next(row.type for row in self.rows if row.name == column)

    def is_finer(self, index: Index) -> bool:
        """Return whether *index* tells texts apart which the own collation of a column does not."""
        if not self.definition.collations:
            return False
        pairs = zip(self._own(index), index.collations, strict=True)
        return any(own not in (BINARY, used) for own, used in pairs)

    def collation(self, column: str) -> str:
        """Return the collation of *column*, folded."""
        collations = self.definition.collations
        return collations.get(fold(column), BINARY) if collations else BINARY

    def _own(self, index: Index) -> tuple[str, ...]:
        if not self.definition.collations:
            return (BINARY,) * len(index.columns)
        return tuple(BINARY if name is None else self.collation(name) for name in index.columns)
