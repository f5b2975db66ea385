"""The privileges that writes need, and which of them a login lacks. Tables in; names, or reasons, out."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from dbtools import errors
from dbtools.backends.port import NO_DBTOOLS_WRITE
from dbtools.backends.postgresql.connection.pipeline import rolled_back
from dbtools.backends.postgresql.queries.inspection import PostgresqlInspector
from dbtools.backends.postgresql.registry import PIN_READING, REGISTRY_TABLES, UNTRUSTED
from dbtools.backends.postgresql.schema.catalog_queries import SECURED, policies
from dbtools.backends.postgresql.schema.changes import BEGIN_POLL
from dbtools.backends.postgresql.schema.introspection import ROW_VERSION
from dbtools.backends.postgresql.schema.types import lexis
from dbtools.errors import listing
from dbtools.findings import Hindrance
from dbtools.policy.writes import CHANGES, MissingPrivileges, granted_changes
from dbtools.queries import Effect
from dbtools.schema.catalog import Location, RowFilter, Table
from dbtools.schema.sql import SqlError, code_of, words
from dbtools.values.cells import BLANK

#: The sequences behind the defaults of columns of the tables $2, in the schemas $1.
SEQUENCES = """
select n.nspname::text, c.relname::text, a.attname::text, m.nspname::text, s.relname::text,
    pg_catalog.has_sequence_privilege(s.oid, 'usage')
from pg_catalog.pg_depend as d
join pg_catalog.pg_attrdef as e on e.oid = d.objid
join pg_catalog.pg_attribute as a on a.attrelid = e.adrelid and a.attnum = e.adnum
join pg_catalog.pg_class as c on c.oid = e.adrelid
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
join pg_catalog.pg_class as s on s.oid = d.refobjid and s.relkind = 'S'
join pg_catalog.pg_namespace as m on m.oid = s.relnamespace
where d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass::pg_catalog.oid
    and d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
    and (n.nspname::text, c.relname::text) in (
        select *
        from rows from (
            pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])
        ) as w
    )
order by 1, 2, 3, 4, 5
"""
#: Which of the privileges $3 the login lacks, each on the column $4 of the table $2 in the schema $1.
LACKING = """
select w.schema, w.name, w.privilege, w.column
from rows from (
    pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
    pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[])
) as w (schema, name, privilege, "column")
left join pg_catalog.pg_namespace as n on n.nspname::text = w.schema
left join pg_catalog.pg_class as c on c.relnamespace = n.oid and c.relname::text = w.name
left join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attname::text = w.column
where pg_catalog.has_schema_privilege(n.oid, 'usage') is not true
    or case w.column
        when '' then pg_catalog.has_table_privilege(c.oid, w.privilege)
        else pg_catalog.has_column_privilege(c.oid, a.attnum, w.privilege)
    end is not true
"""
#: What may hinder writes to the tables $2 in the schemas $1: rules; triggers without a condition, with the
#: bodies of their functions; and that no policy of row-level security allows a change.
HINDRANCES = f"""
with wanted as (
    select n.nspname::text as schema, c.relname::text as name, c.*
    from rows from (
        pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[])
    ) as w (schema, name)
    join pg_catalog.pg_namespace as n on n.nspname::text = w.schema
    join pg_catalog.pg_class as c on c.relnamespace = n.oid and c.relname::text = w.name
)
select c.schema, c.name, v.change, 'policy' as kind, '' as hindrance, '' as body
from wanted as c
cross join lateral (
    values ('insert', {policies("a")}), ('update', {policies("w")}), ('delete', {policies("d")})
) as v (change, number)
where {SECURED} and v.number = 0
union all
select c.schema, c.name, case r.ev_type when '2' then 'update' when '3' then 'insert' else 'delete' end,
    case when r.is_instead then 'instead' else 'also' end, r.rulename::text, ''
from wanted as c
join pg_catalog.pg_rewrite as r
    on r.ev_class = c.oid and r.ev_type in ('2', '3', '4') and r.ev_enabled in ('O', 'A')
union all
select c.schema, c.name, v.change, case t.tgtype::pg_catalog.int4 & 3 when 3 then 'before row' else '' end,
    t.tgname::text, p.prosrc
from wanted as c
join pg_catalog.pg_trigger as t
    on t.tgrelid = c.oid and not t.tgisinternal and t.tgenabled in ('O', 'A') and t.tgqual is null
        and t.tgattr::pg_catalog.text = ''
join pg_catalog.pg_proc as p on p.oid = t.tgfoid
join pg_catalog.pg_language as l on l.oid = p.prolang and l.lanname = 'plpgsql'
cross join lateral (values ('insert', 4), ('delete', 8), ('update', 16)) as v (change, flag)
where t.tgtype::pg_catalog.int4 & v.flag <> 0
"""
BY_KIND: Mapping[str, Hindrance] = {
    "policy": Hindrance.UNPOLICED,
    "instead": Hindrance.REPLACED,
    "also": Hindrance.BESIDE,
}
QUIET = words("debug log info notice warning")  #: levels of RAISE that let the change go on
Given = Mapping[Location, Collection[str]]  #: the columns that new rows of a table are given
STANDBY = "the server is a standby, which accepts no changes."
GRANTING = "`dbtools grants` prints a script that grants it."


async def missing_privileges(
    inspector: PostgresqlInspector, tables: Sequence[Table], place: str
) -> MissingPrivileges:
    """Return what the login at *place* lacks for the writes of *tables*."""
    connection = inspector.connection
    if await connection.fetchval("select pg_catalog.pg_is_in_recovery()"):
        return MissingPrivileges({table.location: STANDBY for table in tables})
    # In a transaction, which has the role of the session.
    async with rolled_back(connection, BEGIN_POLL):
        parts = await _lacking_parts(connection, tables)
        hindered = await _hindrances(connection, tables)
    found = {location: f"{place} lacks {_privileges(each)}. {GRANTING}" for location, each in parts.items()}
    for table in tables:
        for condition in conditions_of(table) if table.location not in found else ():
            try:
                await inspector.condition(table, condition.condition)
            except errors.Refused as exc:
                if exc.temporary:
                    raise
                found[table.location] = f"{place}: {exc.message} {GRANTING}"
    return MissingPrivileges(found, await _lacking_journal(inspector, place), hindered)


async def _lacking_parts(
    connection: Any, tables: Sequence[Table]
) -> Mapping[Location, Mapping[str, Sequence[str]]]:
    """Return which privileges the login lacks for the writes of *tables*, with their columns."""
    needs = [(*table.location, *need) for table in tables for need in needs_of(table)]
    parts: defaultdict[Location, dict[str, list[str]]] = defaultdict(dict)
    listed = list(zip(*needs, strict=True)) or [(), (), (), ()]
    for schema, name, privilege, column in await connection.fetch(LACKING, *listed):
        parts[schema, name].setdefault(privilege, []).append(column)
    sequences = await sequences_of(connection, presets_of(tables))
    for (location, sequence), is_usable in sequences.items():
        if not is_usable:
            parts[location].setdefault("usage of sequences", []).append(".".join(sequence))
    return parts


async def _hindrances(connection: Any, tables: Sequence[Table]) -> Mapping[Location, Sequence[str]]:
    """Return which granted changes of *tables* will fail, whatever callers write."""
    found: dict[Location, dict[str, None]] = {table.location: {} for table in tables}
    by_place = {table.location: table for table in tables}
    rows = await connection.fetch(HINDRANCES, *(list(zip(*found, strict=True)) or [(), ()]))
    for change in CHANGES:
        for row in sorted(row for row in rows if row["change"] == change):
            schema, name, _, kind, label, body = row
            table, hindrance = by_place[schema, name], _hindrance(kind, body)
            granted = granted_changes(table)
            matters = change in granted
            if hindrance is Hindrance.BESIDE:
                matters = change != "delete" and table.writes is not None and bool(table.writes.conflict_keys)
            if hindrance is not None and matters:
                found[table.location][hindrance.format(change=change, name=label)] = None
    return {place: tuple(sentences) for place, sentences in found.items()}


def _hindrance(kind: str, body: str) -> Hindrance | None:
    """Return how a thing of this *kind* hinders every change; None if a trigger with this *body* may not."""
    if kind in BY_KIND:
        return BY_KIND[kind]
    try:
        first = [token.word for token in code_of(body, lexis)[:3]]
    except SqlError:
        return None
    if first[:2] == ["begin", "raise"] and QUIET.isdisjoint(first):
        return Hindrance.REFUSED
    return Hindrance.KEPT if first == ["begin", "return", "null"] and kind == "before row" else None


async def _lacking_journal(inspector: PostgresqlInspector, place: str) -> str:
    """Return why the login at *place* cannot use the journal, or nothing."""
    async with rolled_back(inspector.connection, f"begin read only; {PIN_READING}"):
        found = await inspector.connection.fetchrow(REGISTRY_TABLES, "dbtools_write")
    if found is None:
        return NO_DBTOOLS_WRITE
    # Other roles may have added triggers.
    if found["triggered"] or not (found["trusted"] and found["plain"]):
        return f"dbtools.dbtools_write is not used: {UNTRUSTED.format(found['owner'])}"
    usable = found["readable"] and found["writable"]
    return "" if usable else f"{place} lacks privileges on dbtools.dbtools_write. {GRANTING}"


def _privileges(parts: Mapping[str, Sequence[str]]) -> str:
    """Return *parts*, columns by privilege, as words."""
    return listing(
        f"{privilege} ({listing(sorted(columns))})" if any(columns) else privilege
        for privilege, columns in sorted(parts.items())
    )


def needs_of(table: Table) -> Iterator[tuple[str, str]]:
    """Yield the privileges that the writes of *table* need, each with its column, empty for all."""
    writes = table.writes
    if writes is None:
        return
    if writes.insert is not None:
        inserted = [*writes.insert, *(preset.column for preset in writes.insert_presets)]
        yield from (("insert", column.name) for column in inserted)
        yield from () if inserted else (("insert", ""),)
    if writes.update:
        updated = (*writes.update, *(preset.column for preset in writes.update_presets))
        yield from (("update", column.name) for column in updated)
    if writes.delete:
        yield "delete", ""
    read = dict.fromkeys((*read_columns(table), *(column.name for column in table.identity)))
    if writes.update or writes.delete:
        read[ROW_VERSION.name] = None
    yield from (("select", name) for name in read)


def conditions_of(table: Table) -> Sequence[RowFilter]:
    """Return the conditions that are evaluated when rows of *table* are read or changed."""
    checks = table.writes.checks if table.writes is not None else ()
    return [each for each in (table.filter, *checks) if each is not None]


def presets_of(tables: Iterable[Table]) -> Given:
    """Return the columns that dbtools sets in new rows of *tables*, besides those that callers may give."""
    writes = [(each.location, each.writes) for each in tables if each.writes]
    return {
        location: {preset.column.name for preset in each.insert_presets}
        for location, each in writes
        if each.insert is not None
    }


def inserted_by(effects: Iterable[Effect]) -> Given:
    """Return the columns that *effects* set in new rows."""
    given: defaultdict[Location, set[str]] = defaultdict(set)
    for each in effects:
        if each.kind == "insert":
            given[each.schema, each.table].add(each.column)
    return given


async def sequences_of(connection: Any, given: Given) -> Mapping[tuple[Location, Location], bool]:
    """Return the sequences that fill columns of new rows other than those *given*, each with its table.

    The values say whether the login may use them.
    """
    rows = await connection.fetch(SEQUENCES, *(list(zip(*given, strict=True)) or [(), ()]))
    return {
        ((schema, name), (sequence_schema, sequence)): is_usable
        for schema, name, column, sequence_schema, sequence, is_usable in rows
        if column not in given[schema, name]
    }


def read_columns(table: Table) -> Collection[str]:
    """Return the columns of *table* that statements read."""
    return [column.name for column in table.columns if column.type.mask not in BLANK]
