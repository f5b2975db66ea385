"""Find what queries, views and inherited tables read and call. A connection or a tree in, Reads out.

The server stores each view with its parsed query: a tree that names the tables, columns and functions that it
uses directly. pg_depend omits system functions, some of which read what their arguments name.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from asyncpg import Record

from dbtools.backends.port import ColumnPlace
from dbtools.backends.postgresql.catalog_queries import of_extension
from dbtools.catalog import Reads
from dbtools.queries import Effect
from dbtools.sql import words

#: regproc, regprocedure, regoper, regoperator, regclass, regtype, regnamespace, regrole, regcollation, and
#: the types of their arrays.
NAMING_TYPES = {
    *(24, 2202, 2203, 2204, 2205, 2206, 4089, 4096, 4191),
    *(1008, 2207, 2208, 2209, 2210, 2211, 4090, 4097, 4192),
}
FIRST_OWN = 16384  #: the first OID of objects that users create
WHOLE_ROW = 0  #: the number that stands for all columns
BIT_OF_WHOLE_ROW = 7
#: The tables in a tree, with the privileges that it needs, and the columns that it selects, inserts and
#: updates; since version 16 they are in a separate list.
TABLES = re.compile(
    r":relid (\d+) (?:(?!:relid ).)*?:requiredPerms (\d+) :checkAsUser \d+ :selectedCols \(b([ \d]*)\) "
    r":insertedCols \(b([ \d]*)\) :updatedCols \(b([ \d]*)\)",
    re.DOTALL,
)
PRIVILEGES = {"select": 2, "insert": 1, "update": 4, "delete": 8}  #: their bits
FUNCTIONS = re.compile(r"\{\w+ (?::opno \d+ )?:(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
#: Expressions that create values of a type, which checks its constraints; reading a column or field does not.
COERCED = re.compile(r"(?P<field>:fieldnum \d+ )?:(?:resulttype|consttype) (?P<type>\d+)")
#: The types of the columns of functions in FROM.
MADE = re.compile(r":(?:funccoltypes|coltypes) \(o ([\d ]+)\)")

#: The volatile system functions that a query may call. All others may write, or affect more than their
#: own statement: a read-only transaction stops few of them.
HARMLESS = words(
    "array_sample array_shuffle clock_timestamp currval gen_random_uuid lastval pg_*_size pg_blocking_pids "
    "pg_current_wal_* pg_is_* pg_last_* pg_partition_* pg_sleep* pg_stat_get_* pg_xact_* random* timeofday "
    "txid_status uuidv*"
)
#: More functions, of the system and of extensions, that no query may call. User-defined functions of the
#: same names are allowed.
WITH_SIDE_EFFECTS = words(
    # Transaction IDs, which otherwise only writes consume; and statistics.
    "txid_current pg_current_xact_id pg_stat_statements_reset "
    # Files and caches of the server, and large objects.
    "pg_file_* pg_logdir_ls pg_prewarm autoprewarm_* pg_buffercache_evict* pg_truncate_visibility_map "
    "heap_force_* lo_* "
    # Other servers.
    "dblink* postgres_fdw_disconnect* "
    # Functions that run SQL texts, which may read anything.
    "*_to_xml* xpath_table ts_stat ts_rewrite crosstab* connectby"
)
#: System functions that describe objects by name or OID, or return their sizes: a view that calls them shows
#: more than the columns that it reads.
DESCRIBING = words(
    "pg_stat_get_* pg_*_size pg_prepared_statement pg_cursor pg_typeof pg_has_role pg_filenode_relation "
    "pg_listening_channels format_type acldefault json*_populate_record* pg_relation_* pg_table_* "
    "*_description pg_get_* pg_describe_object pg_identify_object* pg_sequence_* pg_partition_* "
    "pg_*_is_visible pg_index*_has_property to_reg* reg*out reg*in has_*_privilege currval lastval "
    "row_security_active pg_show_all_settings aclexplode"
)
#: The trees of the queries of the views $1, as the server keeps them.
TREES = """
select r.ev_class as view, r.ev_action::pg_catalog.text as tree
from pg_catalog.pg_rewrite as r
where r.ev_class = any($1::pg_catalog.oid[]) and r.ev_type = '1'
"""
#: The functions $1, and those with the names $2: whether they may read tables, whether they came with the
#: system or with an extension, and whether they are volatile system functions.
CALLED = f"""
select f.oid as number, n.nspname::text as schema, f.proname::text as name,
    f.oid >= '16384' and not (e.known and f.provolatile = 'i') as reads,
    f.oid < '16384' or e.known as known, f.oid < '16384' and f.provolatile = 'v' as volatile
from pg_catalog.pg_proc as f
join pg_catalog.pg_namespace as n on n.oid = f.pronamespace
cross join lateral (select {of_extension("pg_proc", "f.oid")} as known) as e
where f.oid = any($1::pg_catalog.oid[]) or f.proname = any($2::pg_catalog.name[])
order by n.nspname, f.proname
"""
#: The trees of the CHECK constraints of the domains that the types $1 are, or are made of.
CHECKS = """
with recursive made (type, part) as (
    select u.oid, u.oid
    from pg_catalog.unnest($1::pg_catalog.oid[]) as u (oid)
    union
    select m.type, p.oid
    from made as m
    join pg_catalog.pg_type as t on t.oid = m.part
    left join pg_catalog.pg_attribute as a on a.attrelid = t.typrelid and a.attnum > 0
    cross join lateral pg_catalog.unnest(array[t.typbasetype, t.typelem, a.atttypid]) as p (oid)
)
select m.type, k.conbin::pg_catalog.text as tree
from made as m
join pg_catalog.pg_constraint as k on k.contypid = m.part
where m.part <> '0' and k.contype = 'c'
"""
#: The columns of the tables $1; a partition has the name of its root table.
COLUMNS = """
select c.oid as relation, n.nspname::text as schema, r.relname::text as name, a.attnum as number,
    a.attname::text as column
from pg_catalog.pg_class as c
join pg_catalog.pg_class as r
    on r.oid = coalesce(pg_catalog.pg_partition_root(c.oid)::pg_catalog.oid, c.oid)
join pg_catalog.pg_namespace as n on n.oid = r.relnamespace
left join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where c.oid = any($1::pg_catalog.oid[])
"""
#: The tables that inherit from others, each with all of its ancestors.
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

TableUse = tuple[int, str, Sequence[int]]  #: a table, a privilege on it, and the numbers of columns


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What the server's tree of a query shows."""

    reads: frozenset[ColumnPlace] | None = None  #: None: unknown
    called: Sequence[Record] = ()  #: functions
    changes: Sequence[Effect] = ()

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that may read tables."""
        return tuple(dict.fromkeys(f"{row['schema']}.{row['name']}" for row in self.called if row["reads"]))


async def read_tree(connection: Any, tree: str, own: int = 0) -> Parsed:
    """Return what *tree* shows, except for the table *own*."""
    used = [each for each in uses_of(tree) if each[0] != own]
    rows = by_relation(await connection.fetch(COLUMNS, [table for table, *_ in used]))
    places = [
        (privilege, place)
        for table, privilege, numbers in used
        for place in places_of(rows[table], numbers) or {location_of(rows[table])}
    ]
    return Parsed(
        reads=frozenset(place for privilege, place in places if privilege == "select"),
        called=(await called_by(connection, {0: tree}))[0],
        changes=[Effect(privilege, *place) for privilege, place in places if privilege != "select"],
    )


async def read_dependencies(connection: Any, views: Sequence[int]) -> Mapping[int, Reads]:
    """Return what *views* and inherited tables read directly, by number."""
    trees = {row["view"]: row["tree"] for row in await connection.fetch(TREES, views)}
    read = {
        view: [(table, numbers) for table, privilege, numbers in uses_of(tree) if privilege == "select"]
        for view, tree in trees.items()
    }
    pairs = [tuple(row) for row in await connection.fetch(ANCESTORS)]
    tables = {table for each in read.values() for table, _ in each}.union(*pairs)
    rows = by_relation(await connection.fetch(COLUMNS, sorted(tables)))
    columns: defaultdict[int, set[ColumnPlace]] = defaultdict(set)
    parents: defaultdict[int, set[ColumnPlace]] = defaultdict(set)
    for view, places in read.items():
        for table, numbers in places:
            columns[view] |= {location_of(rows[table]), *places_of(rows[table], numbers)}
    for child, ancestor in pairs:
        parents[child] |= {location_of(rows[ancestor]), *places_of(rows[ancestor])}
        schema, name, _ = location_of(rows[child])
        columns[ancestor] |= {(schema, name, column) for *_, column in parents[child]}
    called = await called_by(connection, trees)
    others = {view: tuple(_others(tree, called[view])) for view, tree in trees.items()}
    return {
        each: Reads(
            columns=frozenset(columns[each]), parents=frozenset(parents[each]), others=others.get(each, ())
        )
        for each in {*columns, *parents, *others}
    }


def _others(tree: str, called: Iterable[Record]) -> Iterator[str]:
    """Yield what a view of *tree* may read besides tables, in words; *called* are its functions."""
    for row in called:
        if row["reads"] or has_side_effects(row) or _is_among(row["name"], DESCRIBING):
            yield f"what the function {row['schema']}.{row['name']} reads, which is not known"
    if types_made_in(tree) & NAMING_TYPES:
        yield "names of objects"


async def called_by(connection: Any, trees: Mapping[int, str]) -> Mapping[int, Sequence[Record]]:
    """Return the functions that *trees* call, also in CHECK constraints of domains."""
    made = {key: types_made_in(tree) for key, tree in trees.items()}
    own = {type for each in made.values() for type in each if type >= FIRST_OWN}
    checks: defaultdict[int, set[int]] = defaultdict(set)
    for row in await connection.fetch(CHECKS, sorted(own)) if own else ():
        checks[row["type"]] |= functions_of(row["tree"])
    called = {
        key: functions_of(tree).union(*(checks[type] for type in made[key] & checks.keys()))
        for key, tree in trees.items()
    }
    rows = await connection.fetch(CALLED, sorted(set[int]().union(*called.values())), []) if called else ()
    return {key: [row for row in rows if row["number"] in numbers] for key, numbers in called.items()}


def by_relation(rows: Iterable[Record]) -> Mapping[int, Sequence[Record]]:
    """Return *rows* grouped by the number of their relation."""
    found: defaultdict[int, list[Record]] = defaultdict(list)
    for row in rows:
        found[row["relation"]].append(row)
    return found


def places_of(rows: Sequence[Record], numbers: Collection[int] = (WHOLE_ROW,)) -> set[ColumnPlace]:
    """Return the columns *numbers* of the table with *rows*, without system columns, which only name rows."""
    wanted = (row for row in rows if WHOLE_ROW in numbers or row["number"] in numbers)
    return {(row["schema"], row["name"], row["column"]) for row in wanted if row["column"] is not None}


def location_of(rows: Sequence[Record]) -> ColumnPlace:
    """Return the place that stands for the rows of the table with *rows*."""
    return (rows[0]["schema"], rows[0]["name"], "")


def has_side_effects(function: Record) -> bool:
    """Return whether *function*, of the system or of an extension, may do more than read."""
    name = function["name"]
    return (function["volatile"] and not _is_among(name, HARMLESS)) or (
        function["known"] and _is_among(name, WITH_SIDE_EFFECTS)
    )


def _is_among(name: str, functions: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in functions)


def uses_of(tree: str) -> Iterator[TableUse]:
    """Yield the tables that *tree* reads and changes."""
    for relation, privileges, *listed in TABLES.findall(tree):
        columns = ([int(bit) - BIT_OF_WHOLE_ROW for bit in each.split()] for each in listed)
        numbers = dict(zip(("select", "insert", "update"), columns, strict=True))
        for privilege, bit in PRIVILEGES.items():
            if int(privileges) & bit:
                yield int(relation), privilege, numbers.get(privilege, ())


def functions_of(tree: str) -> set[int]:
    """Return the functions that *tree* calls, including those of operators."""
    return {int(number) for number in FUNCTIONS.findall(tree)}


def types_made_in(tree: str) -> set[int]:
    """Return the types of which *tree* creates values."""
    listed = (number for numbers in MADE.findall(tree) for number in numbers.split())
    coerced = (type for field, type in COERCED.findall(tree) if not field)
    return {int(number) for number in (*coerced, *listed)}
