"""What views and inheriting tables of PostgreSQL read beneath their names. A connection in, Reads out.

The server keeps each view with its parsed query, which names the tables, columns and functions that it reads
directly; pg_depend would leave out the system's functions, of which some read whatever they are told.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from asyncpg import Record

from dbtools.backends.postgresql.acting import is_acting, is_describing
from dbtools.backends.postgresql.kept_queries import (
    CALLED,
    CHECKS,
    TREES,
    WHOLE_ROW,
    functions_of,
    reads_of,
    types_made_in,
)
from dbtools.catalog import Reads

Place = tuple[str, str, str]  #: schema, table and column
#: regproc, regprocedure, regoper, regoperator, regclass, regtype, regnamespace, regrole, regcollation, and
#: the types of their arrays.
NAMING_TYPES = {
    *(24, 2202, 2203, 2204, 2205, 2206, 4089, 4096, 4191),
    *(1008, 2207, 2208, 2209, 2210, 2211, 4090, 4097, 4192),
}
FIRST_OWN = 16384  #: the first number of what did not come with the server

#: The columns of the tables $1; those of a partition are columns of the table that it is part of.
COLUMNS = """
select
    c.oid as relation,
    n.nspname::text as schema,
    r.relname::text as name,
    a.attnum as number,
    a.attname::text as column
from pg_catalog.pg_class as c
join pg_catalog.pg_class as r
    on r.oid = case
        when c.relispartition then pg_catalog.pg_partition_root(c.oid)::pg_catalog.oid
        else c.oid
    end
join pg_catalog.pg_namespace as n on n.oid = r.relnamespace
left join pg_catalog.pg_attribute as a
    on a.attrelid = c.oid
    and a.attnum > 0
    and not a.attisdropped
where c.oid = any($1::pg_catalog.oid[])
"""

#: The tables that inherit from others, each with all of these.
ANCESTORS = """
with recursive ancestors (relation, ancestor) as (
    select i.inhrelid, i.inhparent
    from pg_catalog.pg_inherits as i
    join pg_catalog.pg_class as p on p.oid = i.inhparent
    where p.relkind in ('r', 'f')
    union
    select a.relation, i.inhparent
    from ancestors as a
    join pg_catalog.pg_inherits as i on i.inhrelid = a.ancestor
)
select *
from ancestors
"""

#: Those of the types $1 that are the rows of tables, of which they name the columns.
ROW_TYPES = """
select t.oid as number
from pg_catalog.pg_type as t
join pg_catalog.pg_class as c on c.oid = t.typrelid
where t.oid = any($1::pg_catalog.oid[])
    and c.relkind <> 'c'
"""


async def read_dependencies(connection: Any, views: Sequence[int]) -> Mapping[int, Reads]:
    """Return what *views* and tables that inherit read directly, by number."""
    version = connection.get_server_version().major
    trees: Sequence[Record] = await connection.fetch(TREES, views) if views else []
    read = {row["view"]: list(reads_of(row["tree"], version)) for row in trees}
    pairs = [(row["relation"], row["ancestor"]) for row in await connection.fetch(ANCESTORS)]
    tables = {table for each in read.values() for table, _ in each} | {
        table for pair in pairs for table in pair
    }
    names = _Names(await connection.fetch(COLUMNS, sorted(tables)) if tables else [])
    others = await _others(connection, {row["view"]: row["tree"] for row in trees})
    columns: defaultdict[int, set[Place]] = defaultdict(set)
    parents: defaultdict[int, set[Place]] = defaultdict(set)
    for view, places in read.items():
        columns[view].update(place for table, numbers in places for place in names.places(table, numbers))
    for child, ancestor in pairs:
        columns[ancestor].update(names.shared(child, ancestor))
        parents[child].update(names.shared(ancestor, child))
    return {
        number: Reads(
            columns=frozenset(columns[number]),
            parents=frozenset(parents[number]),
            others=others.get(number, ()),
        )
        for number in {*columns, *parents, *others}
    }


async def called_in(connection: Any, tree: str, types: Collection[int] = ()) -> set[int]:
    """Return the functions that the query of *tree* calls, those of the domains that it makes too.

    *types* are others of which it makes values.
    """
    called = functions_of(tree)
    made, seen = types_made_in(tree) | set(types), set[int]()
    while made:
        trees = [row["tree"] for row in await connection.fetch(CHECKS, sorted(made))]
        called = called.union(*map(functions_of, trees))
        seen |= made
        made = set[int]().union(*map(types_made_in, trees)) - seen
    return called


async def _others(connection: Any, trees: Mapping[int, str]) -> Mapping[int, tuple[str, ...]]:
    """Return the functions that the views of *trees* call and that may read more, in words, by view."""
    made = {view: types_made_in(tree) for view, tree in trees.items()}
    own = {type for types in made.values() for type in types if type >= FIRST_OWN}
    called = {
        view: await called_in(connection, tree) if made[view] & own else functions_of(tree)
        for view, tree in trees.items()
    }
    functions = sorted(set[int]().union(*called.values()))
    rows = await connection.fetch(CALLED, functions) if functions else []
    reading = {
        row["number"]: f"what the function {row['schema']}.{row['name']} reads, which is not known"
        for row in rows
        if row["reads"] or is_acting(row["name"]) or is_describing(row["name"])
    }
    found = {
        view: sorted({reading[each] for each in numbers & reading.keys()}) for view, numbers in called.items()
    }
    rows = await connection.fetch(ROW_TYPES, sorted(own)) if own else []
    naming = NAMING_TYPES | {row["number"] for row in rows}
    for view, types in made.items():
        if types & naming:
            found[view].append("names of objects")
    return {view: tuple(words) for view, words in found.items() if words}


class _Names:
    """The names of tables and columns by their numbers."""

    def __init__(self, rows: Iterable[Record]) -> None:
        self._tables: dict[int, tuple[str, str]] = {}
        self._columns: defaultdict[int, dict[int, str]] = defaultdict(dict)
        for row in rows:
            self._tables[row["relation"]] = (row["schema"], row["name"])
            if row["column"] is not None:
                self._columns[row["relation"]][row["number"]] = row["column"]

    def places(self, table: int, numbers: Iterable[int]) -> Iterator[Place]:
        """Yield the columns *numbers* of *table*, and its rows."""
        known = self._columns[table]
        yield (*self._tables[table], "")
        for number in known if WHOLE_ROW in numbers else numbers:
            # The system's own columns of a table tell nothing but of its rows.
            if number in known:
                yield (*self._tables[table], known[number])

    def shared(self, table: int, other: int) -> Iterator[Place]:
        """Yield the columns of *table* that *other* has as well, and its rows."""
        yield (*self._tables[table], "")
        others = set(self._columns[other].values())
        yield from ((*self._tables[table], name) for name in self._columns[table].values() if name in others)
