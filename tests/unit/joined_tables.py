"""Tables whose foreign keys make paths."""

from collections.abc import Sequence
from typing import Any

from dbtools.catalog import Catalog, ForeignKey, Table
from dbtools.paths import Paths
from tests.unit.shop import ID, column, table

SIDES = ("buyer", "seller")


def reference(*columns: str, to: str, by: Sequence[str] = ("id",), **more: Any) -> ForeignKey:
    return ForeignKey(columns=columns, target_schema="", target=to, target_columns=tuple(by), **more)


def row(name: str, *columns: str, to: Sequence[ForeignKey] = ()) -> Table:
    """Return a table with an id, and with texts as its other *columns*."""
    return table(ID, *map(column, columns), name=name, foreign_keys=tuple(to))


def relations_of(of: Table, *others: Table) -> dict[str, str]:
    """Return the targets of the relations of the table *of* by their names."""
    paths = Paths(Catalog(tables=(of, *others)))
    return {name: relation.target.name for name, relation in paths.relations(of).items()}
