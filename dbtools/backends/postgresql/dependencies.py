"""What queries, views and inherited tables of PostgreSQL read and call. A connection, or a tree, in.

The server keeps each view with its parsed query, a tree that names the tables, columns and functions that it
uses directly. pg_depend leaves out the system's functions, of which some read whatever they are given.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from asyncpg import Record

from dbtools.backends.postgresql.catalog_queries import class_of, of_extension
from dbtools.catalog import Reads
from dbtools.sql import words

Place = tuple[str, str, str]  #: schema, table and column
#: regproc, regprocedure, regoper, regoperator, regclass, regtype, regnamespace, regrole, regcollation, and
#: the types of their arrays.
NAMING_TYPES = {
    *(24, 2202, 2203, 2204, 2205, 2206, 4089, 4096, 4191),
    *(1008, 2207, 2208, 2209, 2210, 2211, 4090, 4097, 4192),
}
FIRST_OWN = 16384  #: the first number of what did not come with the server
SELECT = 2  #: the bit of the privilege
WHOLE_ROW = 0  #: the number that stands for all columns
BIT_OF_WHOLE_ROW = 7
#: The tables that a tree reads, with privileges and columns; from version 16 on they stand in a list apart.
READS = re.compile(
    r":relid (\d+) (?:(?!:relid ).)*?:requiredPerms (\d+) :checkAsUser \d+ :selectedCols \(b([ \d]*)\)",
    re.DOTALL,
)
FUNCTIONS = re.compile(r"\{\w+ (?::opno \d+ )?:(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)")
#: What makes values of a type, and so checks its constraints: a column or a field that is read does not.
COERCED = re.compile(r"(?P<field>:fieldnum \d+ )?:(?:resulttype|consttype) (?P<type>\d+)")
#: The types of the columns of functions in FROM.
MADE = re.compile(r":(?:funccoltypes|coltypes) \(o ([\d ]+)\)")
ORIGINS = re.compile(
    r":resno \d+ :resname (?:\\.|\S)+ :ressortgroupref \d+ :resorigtbl (\d+) :resorigcol (-?\d+)"
    r" :resjunk false",
    re.DOTALL,
)
#: An outer join, or grouping by more than one set: either makes nulls of what has none.
MAKES_NULLS = re.compile(r":jointype [^0]|:groupingSets [^<]")

#: Functions that write, or act on more than their own statement: a permitted query calls none of them. They
#: are known by name, in the system's schema or in an extension. A read-only transaction stops few of them.
#: What a user has written under the same name is the user's own business.
ACTING = words(
    # Sequences.
    "nextval setval "
    # A number of a transaction, which writing alone takes.
    "txid_current pg_current_xact_id "
    # Large objects, which are written outside of any privilege on tables.
    "lo_* loread lowrite "
    # Locks that outlive the transaction, and messages to others.
    "pg_advisory_* pg_try_advisory_* pg_notify pg_logical_emit_message "
    # The session: its settings, and with them who it is.
    "set_config setseed pg_export_snapshot "
    # Other sessions, and the server.
    "pg_cancel_backend pg_terminate_backend pg_reload_conf pg_rotate_logfile* pg_log_* pg_promote "
    "pg_switch_wal pg_create_restore_point pg_backup_* pg_start_backup pg_stop_backup "
    "pg_wal_replay_pause pg_wal_replay_resume pg_stat_reset* pg_stat_statements_reset "
    "pg_stat_force_next_flush pg_clear_*_stats pg_restore_*_stats pg_import_system_collations "
    "pg_extension_config_dump pg_nextoid pg_stop_making_pinned_objects binary_upgrade_* "
    "brin_summarize_* brin_desummarize_* gin_clean_pending_list pg_prewarm autoprewarm_* "
    "pg_buffercache_evict* pg_truncate_visibility_map heap_force_* "
    # Replication.
    "pg_create_*_slot pg_copy_*_slot pg_drop_replication_slot pg_replication_slot_advance "
    "pg_sync_replication_slots pg_logical_slot_* pg_replication_origin_* "
    # Files of the server.
    "pg_read_file* pg_read_binary_file* pg_stat_file pg_ls_* pg_file_* pg_logdir_ls "
    # Other servers.
    "dblink* postgres_fdw_disconnect* "
    # SQL in a text, of which nobody knows what it reads.
    "query_to_xml* table_to_xml* schema_to_xml* database_to_xml* cursor_to_xml* xpath_table ts_stat "
    "ts_rewrite crosstab* connectby"
)
#: System functions that describe objects by name or number, or say how much is in them: what a view shows
#: by them is not among the columns that it reads.
DESCRIBING = words(
    "pg_stat_get_* pg_database_size pg_indexes_size pg_table_size pg_tablespace_size "
    "pg_total_relation_size pg_prepared_statement pg_cursor pg_typeof pg_lock_status pg_has_role "
    "pg_current_logfile pg_hba_file_rules pg_ident_file_mappings pg_filenode_relation "
    "pg_listening_channels format_type acldefault json*_populate_record* pg_relation_* pg_table_* "
    "*_description pg_get_* pg_describe_object pg_identify_object* pg_sequence_* pg_partition_* "
    "pg_*_is_visible pg_index*_has_property to_reg* reg*out reg*in has_*_privilege currval lastval "
    "row_security_active pg_show_all_settings pg_show_all_file_settings aclexplode"
)
#: The trees of the queries of the views $1, as the server keeps them.
TREES = """
select r.ev_class as view, r.ev_action::pg_catalog.text as tree
from pg_catalog.pg_rewrite as r
where r.ev_class = any($1::pg_catalog.oid[]) and r.ev_type = '1'
"""
#: The functions $1, whether they came with the system or with an extension, and whether they may read tables.
CALLED = f"""
select f.oid as number, n.nspname::text as schema, f.proname::text as name,
    n.nspname not in ('pg_catalog', 'information_schema') and not (e.known and f.provolatile = 'i') as reads,
    n.nspname = 'pg_catalog' or e.known as known
from pg_catalog.pg_proc as f
join pg_catalog.pg_namespace as n on n.oid = f.pronamespace
cross join lateral (select {of_extension(class_of("pg_proc"), "f.oid")} as known) as e
where f.oid = any($1::pg_catalog.oid[])
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
#: The columns of the tables $1, by the names of the tables that partitions belong to; and whether each surely
#: has no nulls, which the columns of those that inherit a table may have.
COLUMNS = """
select c.oid as relation, n.nspname::text as schema, r.relname::text as name, a.attnum as number,
    a.attname::text as column,
    a.attnotnull and (c.relkind = 'p' or c.relkind = 'r' and not c.relhassubclass)
    and not exists (
        select
        from pg_catalog.pg_constraint as k
        where k.conrelid = c.oid and k.contype = 'n' and a.attnum = any(k.conkey) and not k.convalidated
    ) as filled
from pg_catalog.pg_class as c
join pg_catalog.pg_class as r
    on r.oid = coalesce(pg_catalog.pg_partition_root(c.oid)::pg_catalog.oid, c.oid)
join pg_catalog.pg_namespace as n on n.oid = r.relnamespace
left join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
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


async def read_dependencies(connection: Any, views: Sequence[int]) -> Mapping[int, Reads]:
    """Return what *views* and inherited tables read directly, by number."""
    trees = {row["view"]: row["tree"] for row in await connection.fetch(TREES, views)}
    read = {view: list(reads_of(tree)) for view, tree in trees.items()}
    pairs = [tuple(row) for row in await connection.fetch(ANCESTORS)]
    tables = {table for each in read.values() for table, _ in each}.union(*pairs)
    names = Names(await connection.fetch(COLUMNS, sorted(tables)))
    columns: defaultdict[int, set[Place]] = defaultdict(set)
    parents: defaultdict[int, set[Place]] = defaultdict(set)
    for view, places in read.items():
        for table, numbers in places:
            columns[view].update(names.places(table, names.columns(table, numbers)))
    for child, ancestor in pairs:
        columns[ancestor].update(names.shared(child, ancestor))
        parents[child].update(names.shared(ancestor, child))
    called = await called_by(connection, trees)
    others = {view: tuple(_others(tree, called[view])) for view, tree in trees.items()}
    return {
        each: Reads(
            columns=frozenset(columns[each]), parents=frozenset(parents[each]), others=others.get(each, ())
        )
        for each in {*columns, *parents, *others}
    }


def _others(tree: str, called: Iterable[Record]) -> Iterator[str]:
    """Yield, in words, what a view of *tree*, with the functions that it calls, may read besides tables."""
    for row in called:
        if row["reads"] or is_among(row["name"], ACTING | DESCRIBING):
            yield f"what the function {row['schema']}.{row['name']} reads, which is not known"
    if types_made_in(tree) & NAMING_TYPES:
        yield "names of objects"


async def called_by(
    connection: Any, trees: Mapping[int, str], types: Collection[int] = ()
) -> Mapping[int, Sequence[Record]]:
    """Return the functions that *trees* call, and the domains of which they make values; or of *types*."""
    made = {key: types_made_in(tree).union(types) for key, tree in trees.items()}
    own = {type for each in made.values() for type in each if type >= FIRST_OWN}
    checks: defaultdict[int, set[int]] = defaultdict(set)
    for row in await connection.fetch(CHECKS, sorted(own)) if own else ():
        checks[row["type"]] |= functions_of(row["tree"])
    called = {
        key: functions_of(tree).union(*(checks[type] for type in made[key] & checks.keys()))
        for key, tree in trees.items()
    }
    rows = await connection.fetch(CALLED, sorted(set[int]().union(*called.values()))) if called else ()
    return {key: [row for row in rows if row["number"] in numbers] for key, numbers in called.items()}


class Names:
    """The names of tables and columns by their numbers, from the rows of COLUMNS."""

    def __init__(self, rows: Iterable[Record]) -> None:
        self.tables: dict[int, tuple[str, str]] = {}
        self._columns: defaultdict[int, dict[int, str]] = defaultdict(dict)
        for row in rows:
            self.tables[row["relation"]] = (row["schema"], row["name"])
            if row["column"] is not None:
                self._columns[row["relation"]][row["number"]] = row["column"]

    def columns(self, table: int, numbers: Collection[int] = (WHOLE_ROW,)) -> list[str]:
        """Return the columns *numbers* of *table*, without system columns, which only identify rows."""
        known = self._columns[table]
        return [known[number] for number in (known if WHOLE_ROW in numbers else numbers) if number in known]

    def places(self, table: int, columns: Iterable[str]) -> Iterator[Place]:
        """Yield *columns* of *table*, and its rows."""
        return ((*self.tables[table], column) for column in ("", *columns))

    def shared(self, table: int, other: int) -> Iterator[Place]:
        """Yield the columns of *table* that *other* has as well, and its rows."""
        others = set(self.columns(other))
        return self.places(table, (each for each in self.columns(table) if each in others))


def is_among(name: str, functions: Collection[str]) -> bool:
    """Return whether *name* is that of one of *functions*, which are patterns."""
    return any(fnmatchcase(name, pattern) for pattern in functions)


def reads_of(tree: str) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the tables that a reader must be allowed to select from, each with the numbers of columns."""
    for relation, privileges, columns in READS.findall(tree):
        if int(privileges) & SELECT:
            yield int(relation), [int(bit) - BIT_OF_WHOLE_ROW for bit in columns.split()]


def functions_of(tree: str) -> set[int]:
    """Return the functions that are called, those of operators too."""
    return {int(number) for number in FUNCTIONS.findall(tree)}


def types_made_in(tree: str) -> set[int]:
    """Return the types of which values are made."""
    listed = (number for numbers in MADE.findall(tree) for number in numbers.split())
    coerced = (type for field, type in COERCED.findall(tree) if not field)
    return {int(number) for number in (*coerced, *listed)}


def origins_of(tree: str, width: int) -> list[tuple[int, int]]:
    """Return, of each of the *width* columns of the result, the table and the column whose cells it shows.

    The table is 0 where a column shows none, or where a join may have put nulls between.
    """
    if MAKES_NULLS.search(tree):
        return [(0, 0)] * width
    # The list of the query itself comes after those of all that is in it.
    return [(int(table), int(column)) for table, column in ORIGINS.findall(tree)[-width:]]
