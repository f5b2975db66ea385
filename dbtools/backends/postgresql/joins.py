"""Tell along which of PostgreSQL's foreign keys rows can be joined. Rows of system catalogs in, Joins out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import asyncpg
from asyncpg import Record

from dbtools.backends.postgresql import catalog_queries
from dbtools.catalog import Column

#: Types of a target and its source between which "=" is made for others, and yet is that of a foreign key.
ALIKE = {
    (f"pg_catalog.{target}", f"pg_catalog.{source}")
    for target, source in (
        ("text", "varchar"),
        ("varchar", "text"),
        ("text", "bpchar"),
        ("bpchar", "varchar"),
        ("numeric", "int2"),
        ("numeric", "int4"),
        ("numeric", "int8"),
    )
}
DEFAULT = 0  #: the collation of columns without one that is worth a mention


@dataclass(frozen=True, kw_only=True)
class Joins:
    """What tells whether `target = source` holds for one row, and for that of the foreign key."""

    operators: Mapping[int, tuple[str, str]]  #: that "=" may stand for, and the types they are made for
    collations: Mapping[tuple[int, int], int]  #: by table and column, where they are not the default
    keys: Mapping[int, Sequence[Sequence[int]]]  #: by table, their columns

    def admit(self, row: Record, sources: Iterable[Column], targets: Iterable[Column]) -> bool:
        """Return whether rows can be joined along the foreign key *row* from *sources* to *targets*."""
        if not self._name_one_row(row["target"], row["target_columns"]):
            return False
        if self.collations and self._collations(row["target"], row["target_columns"]) != self._collations(
            row["relation"], row["columns"]
        ):
            return False
        pairs = zip(row["operators"], targets, sources, strict=True)
        return all(
            self._is_plain(operator, target.type.cast, source.type.cast) for operator, target, source in pairs
        )

    def _name_one_row(self, table: int, columns: Sequence[int]) -> bool:
        keys = self.keys.get(table, ())
        return columns in keys or any(set(columns).issuperset(key) for key in keys)

    def _is_plain(self, operator: int, target: str, source: str) -> bool:
        types = self.operators.get(operator)
        return types is not None and (
            target == source or types == (target, source) or (target, source) in ALIKE
        )

    def _collations(self, table: int, columns: Iterable[int]) -> list[int]:
        return [self.collations.get((table, column), DEFAULT) for column in columns]


async def read_joins(
    connection: "asyncpg.Connection[Record]",
    foreign_keys: Iterable[Record],
    columns: Iterable[Record],
    keys: Iterable[Record],
) -> Joins:
    """Return what there is to know of *foreign_keys*, where *keys* are those of all rows of a table."""
    numbers = sorted({number for row in foreign_keys for number in row["operators"]})
    operators = await connection.fetch(catalog_queries.OPERATORS, numbers)
    columns_of_keys: defaultdict[int, list[Sequence[int]]] = defaultdict(list)
    for row in keys:
        columns_of_keys[row["relation"]].append(row["columns"])
    return Joins(
        operators={row["number"]: (row["left_type"], row["right_type"]) for row in operators},
        collations={
            (row["relation"], row["number"]): collation for row in columns if (collation := row["collation"])
        },
        keys=columns_of_keys,
    )
