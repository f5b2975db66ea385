"""Count the rows that a transaction changes, by table. What the server has counted in, differences out."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from dbtools.catalog import Location

#: What the transaction has done so far, by table; partitions count for their table.
TOUCHED = """
select n.nspname::text, c.relname::text, c.relkind = 'p',
    pg_catalog.sum(s.n_tup_ins)::int8, pg_catalog.sum(s.n_tup_upd)::int8, pg_catalog.sum(s.n_tup_del)::int8
from pg_catalog.pg_stat_xact_user_tables as s
join pg_catalog.pg_class as c on c.oid = coalesce(pg_catalog.pg_partition_root(s.relid), s.relid)
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where s.n_tup_ins + s.n_tup_upd + s.n_tup_del > 0
group by 1, 2, 3
"""


class Touched(NamedTuple):
    """How many rows of a table have been changed."""

    has_partitions: bool
    inserted: int
    updated: int
    deleted: int

    def since(self, earlier: "Touched") -> int:
        """Return how many rows have been changed since *earlier*."""
        inserted, deleted = self.inserted - earlier.inserted, self.deleted - earlier.deleted
        # A row that moves to another partition is deleted from one and inserted into the other.
        moved = min(inserted, deleted) if self.has_partitions else 0
        return inserted + deleted - moved + self.updated - earlier.updated


UNTOUCHED = Touched(has_partitions=False, inserted=0, updated=0, deleted=0)


def changed_elsewhere(
    earlier: Mapping[Location, Touched], later: Mapping[Location, Touched], target: Location, affected: int
) -> Iterator[tuple[frozenset[Location], int]]:
    """Yield the tables with rows that have changed, besides those *affected* in *target*."""
    for place, found in later.items():
        number = found.since(earlier.get(place, UNTOUCHED)) - (affected if place == target else 0)
        if number > 0:
            yield frozenset({place}), number
