"""Find what queries and views read and call. A connection and the rule of a view in, a Parsed out.

The server keeps which columns and functions of users a rule depends on. It keeps neither functions of the
system nor that a table is read as whole rows, so these are sought among the names in the SQL.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from asyncpg import Record

from dbtools.backends.port import ColumnPlace
from dbtools.backends.postgresql.schema.names import of_extension
from dbtools.backends.postgresql.schema.types import lexis, name_of, names_before
from dbtools.schema.sql import Token, code_of, nest, words

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
#: Selects from d, what the rules r of the relations $1 depend on besides these relations.
DEPENDENCIES = """
    from pg_catalog.pg_rewrite as r
    join pg_catalog.pg_depend as d
        on d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass::pg_catalog.oid and d.objid = r.oid
    where r.ev_class = any($1::pg_catalog.oid[]) and d.refobjid <> r.ev_class
        and d.refclassid = 'pg_catalog.{}'::pg_catalog.regclass::pg_catalog.oid"""
#: The tables and views that the rules of the relations $1 name. A partition has the name of its root table.
READ_RELATIONS = f"""
select distinct d.relation, n.nspname::text as schema, c.relname::text as name, o.relname::text as written,
    d.number
from (select r.ev_class as relation, d.refobjid as number {DEPENDENCIES.format("pg_class")}) as d
join pg_catalog.pg_class as o on o.oid = d.number
join pg_catalog.pg_class as c on c.oid = coalesce(pg_catalog.pg_partition_root(o.oid)::pg_catalog.oid, o.oid)
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
"""
#: The same with all of their columns, and whether a rule names the column.
READ_COLUMNS = f"""
select t.*, a.attname::text as column, a.attnum in (
    select d.refobjsubid
    {DEPENDENCIES.format("pg_class")} and r.ev_class = t.relation and d.refobjid = t.number
) as named
from ({READ_RELATIONS}) as t
left join pg_catalog.pg_attribute as a on a.attrelid = t.number and a.attnum > 0 and not a.attisdropped
"""
#: The tables that inherit from the tables $1, which show their rows as well.
CHILDREN = """
select i.inhparent as relation, n.nspname::text as schema, c.relname::text as name
from pg_catalog.pg_inherits as i
join pg_catalog.pg_class as c on c.oid = i.inhrelid and not c.relispartition
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where i.inhparent = any($1::pg_catalog.oid[])
"""
#: The functions that the rules of the relations $1 call, and those of the system and of extensions with the
#: names $2: whether they may read tables, whether they came with the system or with an extension, and whether
#: they are volatile system functions.
CALLED = f"""
select f.oid as number, n.nspname::text as schema, f.proname::text as name,
    f.oid >= '16384' and not (e.known and f.provolatile = 'i') as reads,
    f.oid < '16384' or e.known as known, f.oid < '16384' and f.provolatile = 'v' as volatile
from pg_catalog.pg_proc as f
join pg_catalog.pg_namespace as n on n.oid = f.pronamespace
cross join lateral (select {of_extension("pg_proc", "f")} as known) as e
where (f.proname = any($2::pg_catalog.name[]) and (f.oid < '16384' or e.known)) or f.oid in (
    select d.refobjid {DEPENDENCIES.format("pg_proc")}
    union
    select o.oprcode::pg_catalog.oid
    from pg_catalog.pg_operator as o
    where o.oid in (select d.refobjid {DEPENDENCIES.format("pg_operator")})
)
order by n.nspname, f.proname
"""
#: The words after which tables are named, and those that end this.
TABLE_WORDS = words("from join into update only lateral using")
CLAUSE_WORDS = words(
    "on where group having order limit offset fetch for window union intersect except select set "
    "values returning"
)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What the server knows of a query."""

    reads: frozenset[ColumnPlace] | None = None  #: None: unknown
    called: Sequence[Record] = ()  #: functions

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the functions that may read tables."""
        return tuple(dict.fromkeys(f"{row['schema']}.{row['name']}" for row in self.called if row["reads"]))


async def rule_dependencies(connection: Any, relation: int, sql: str) -> Parsed:
    """Return what the rule of *relation*, which is the query *sql*, reads and calls."""
    reads = await reads_of(connection, {relation: sql})
    return Parsed(reads=reads[relation], called=await called_by(connection, [relation], sql))


async def called_by(connection: Any, relations: Sequence[int], sql: str) -> Sequence[Record]:
    """Return the functions that *sql*, which is the rule of *relations*, calls."""
    names = [name for name, _ in names_before("(", sql)]
    found: Sequence[Record] = await connection.fetch(CALLED, relations, names)
    # A function of a user is meant rather than its namesake.
    own = {row["name"] for row in found if not row["known"]}
    return [row for row in found if not row["known"] or row["name"] not in own]


async def reads_of(connection: Any, rules: Mapping[int, str]) -> Mapping[int, frozenset[ColumnPlace]]:
    """Return the columns that *rules* read directly, given as SQL by the numbers of their relations."""
    rows: defaultdict[int, list[Record]] = defaultdict(list)
    for row in await connection.fetch(READ_COLUMNS, list(rules)):
        rows[row["relation"]].append(row)
    return {view: frozenset(_places(rows[view], sql)) for view, sql in rules.items()}


def _places(rows: Sequence[Record], sql: str) -> Iterator[ColumnPlace]:
    """Yield the columns in *rows* that *sql* reads, or the place of a table of which it reads no column."""
    whole = whole_rows(sql)
    found: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        is_read = row["column"] is not None and (row["named"] or row["written"] in whole)
        found[row["schema"], row["name"]] += [row["column"]] if is_read else []
    for place, columns in found.items():
        yield from ((*place, column) for column in columns or [""])


def whole_rows(sql: str) -> Set[str]:
    """Return the tables of *sql* whose name or alias stands where a value does, as in `to_jsonb(t)`."""
    aliases: dict[str, str] = {}
    values: set[str] = set()
    for group in nest(code_of(sql, lexis), sql).groups():
        clause = table = ""
        around = ["", *group.words, "", ""]
        for part, before, after, behind in zip(group.parts, around, around[2:], around[3:], strict=False):
            if part.word in TABLE_WORDS | CLAUSE_WORDS and before != "distinct":
                clause, table = part.word, ""
            elif part.word in ("as", ",") or not isinstance(part, Token) or not part.is_name:
                table = "" if part.word == "," else table
            elif clause not in TABLE_WORDS:
                # `t.*` is all of t as well.
                is_alone = after not in (".", "(") or (after, behind) == (".", "*")
                if is_alone and before not in (".", "as", "::"):
                    values.add(name_of(part))
            elif table and before != ".":
                aliases[name_of(part)] = table
            else:
                table = name_of(part)
    return {aliases.get(name, name) for name in values}


def has_side_effects(function: Record) -> bool:
    """Return whether *function*, of the system or of an extension, may do more than read."""
    name = function["name"]
    return (function["volatile"] and not _is_among(name, HARMLESS)) or (
        function["known"] and _is_among(name, WITH_SIDE_EFFECTS)
    )


def _is_among(name: str, functions: Collection[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in functions)


def columns_read_by(tree: str) -> str:
    """Return SQL for the names of the columns that *tree*, an expression of the index i, reads."""
    return f"""array(
        select a.attname::text
        from pg_catalog.pg_attribute as a
        where a.attrelid = i.indrelid and a.attnum > 0 and not a.attisdropped and a.attnum in (
            select case v.numbers[1] when '0' then a.attnum else v.numbers[1]::pg_catalog.int2 end
            from pg_catalog.regexp_matches({tree}::pg_catalog.text, ':varattno (\\d+)', 'g')
                as v (numbers)
        )
    )"""
