"""Check a query that changes rows before it is served. A connection and pieces in, an Inspected out.

The server prepares the query and explains it in a read-only transaction, with nulls as parameters: neither
runs it. The plan names the tables that it changes, also through views, and explaining checks the privileges.
The SQL names the columns that are changed. A rule of a temporary table, which is rolled back, depends on the
columns that are read or changed, and on the functions that are called. The catalog says which foreign keys
and triggers change more.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import asyncpg

from dbtools.backends.port import NOT_CHANGING, Declared, Inspected, check_names
from dbtools.backends.postgresql.connection.pipeline import rolled_back
from dbtools.backends.postgresql.queries.changed_columns import Change, changes_in, reads_besides_changes
from dbtools.backends.postgresql.queries.inspection import (
    BEGIN_INSPECTION,
    INSPECTED,
    LIST_FORMS,
    PostgresqlInspector,
    QueryReport,
    refusing,
)
from dbtools.backends.postgresql.queries.preparing import PostgresqlQuery, is_temporary, prepare_query
from dbtools.backends.postgresql.queries.privileges import GRANTING, STANDBY, inserted_by, sequences_of
from dbtools.backends.postgresql.schema.changes import BEGIN_POLL, TABLE_VERSIONS
from dbtools.backends.postgresql.schema.dependencies import Parsed
from dbtools.backends.postgresql.schema.types import lexis
from dbtools.backends.query_syntax import AFTER_CHANGE, CHANGE, Piece, main_of, within_with
from dbtools.errors import Refused
from dbtools.queries import Effect, Effects

#: The changes $3 to the columns $4 (empty: all) of the tables $2 in the schemas $1, and those that foreign
#: keys make in consequence; each with the functions of the triggers that it fires.
CONSEQUENCES = """
with recursive touched (relation, kind, number) as (
    select c.oid, w.kind, a.attnum
    from rows from (
        pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]),
        pg_catalog.unnest($3::pg_catalog.text[]), pg_catalog.unnest($4::pg_catalog.text[])
    ) as w (schema, name, kind, "column")
    join pg_catalog.pg_namespace as n on n.nspname::text = w.schema
    join pg_catalog.pg_class as c on c.relnamespace = n.oid and c.relname::text = w.name
    left join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attname::text = w.column
    union
    select k.conrelid, e.kind, u.number
    from touched as t
    join pg_catalog.pg_constraint as k on k.confrelid = t.relation and k.contype = 'f'
    cross join lateral (
        select case when t.kind = 'delete' and k.confdeltype = 'c' then 'delete' else 'update' end as kind
    ) as e
    cross join lateral pg_catalog.unnest(
        case e.kind when 'delete' then array[null]::pg_catalog.int2[] else k.conkey end
    ) as u (number)
    where case t.kind
        when 'delete' then k.confdeltype in ('c', 'n', 'd')
        when 'update' then
            k.confupdtype in ('c', 'n', 'd') and (t.number is null or t.number = any(k.confkey))
    end
)
select t.kind, n.nspname::text as schema, c.relname::text as name, coalesce(a.attname::text, '') as column,
    array(
        select pg_catalog.concat_ws('.', m.nspname, f.proname)
        from pg_catalog.pg_trigger as g
        join pg_catalog.pg_proc as f on f.oid = g.tgfoid
        join pg_catalog.pg_namespace as m on m.oid = f.pronamespace
        where g.tgrelid = c.oid and not g.tgisinternal and g.tgenabled <> 'D'
            and g.tgtype & case t.kind when 'insert' then 4 when 'delete' then 8 else 16 end <> 0
    ) as functions
from touched as t
join pg_catalog.pg_class as c on c.oid = t.relation
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
left join pg_catalog.pg_attribute as a on a.attrelid = c.oid and a.attnum = t.number
"""


#: The schema and the name of the table that is written $1.
TARGET = """
select n.nspname::text, c.relname::text
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.oid = pg_catalog.to_regclass($1)
"""


class PostgresqlChangeInspector(PostgresqlInspector):
    """Asks a server what queries that change rows mean, on a connection of the login that writes."""

    allowed = ("nextval",)  #: it numbers new rows

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the server reports about the query in *pieces*, or raise Refused."""
        query = replace(PostgresqlQuery.of(pieces, declared, LIST_FORMS), before="", after="")
        with refusing():
            if await self.connection.fetchval("select pg_catalog.pg_is_in_recovery()"):
                raise Refused(STANDBY.capitalize())
            version = await self.version_of(query.text)
            main = main_of(query.pieces, lexis)
            prepared = await prepare_query(self.connection, query)
            if prepared.columns:
                check_names(name for name, _ in prepared.columns)
            nested = replace(prepared.query, pieces=within_with(query.pieces, main))
            whole = f"{replace(prepared, query=nested).with_nulls}{AFTER_CHANGE}select 1"
            explained, versions = await self._explain(whole)
            rule = f"create rule {INSPECTED} as on insert to {INSPECTED} do instead {whole}"
            ruled = await self.report(prepared, f"create temporary table {INSPECTED} ()", rule)
            async with rolled_back(self.connection, BEGIN_POLL):
                changes = [await self._with_place(each) for each in changes_in(query.text)]
            parsed = ruled.parsed if ruled else Parsed()
            if parsed.reads is not None:
                parsed = replace(parsed, reads=reads_besides_changes(parsed.reads, changes, query.text))
            reported = QueryReport(columns=prepared.columns, parsed=parsed, versions=versions)
            effects = await self._effects([effect for each in changes for effect in each.effects], explained)
            return replace(await self.inspection_of(prepared, reported, version), effects=effects)

    async def _with_place(self, change: Change) -> Change:
        """Return *change* with the place of its target, if the server knows it."""
        row = await self.connection.fetchrow(TARGET, change.target)
        return change if row is None else replace(change, place=tuple(row))

    async def _explain(self, sql: str) -> tuple[Sequence[Effect], tuple[str, ...]]:
        """Return the changes in the plan of *sql*, the query's own first, and the versions of its tables."""
        try:
            async with rolled_back(self.connection, BEGIN_INSPECTION):
                # Prepared each time: a cached statement may have the types from before a migration.
                explain = await self.connection.prepare(f"explain (verbose, format json) {sql}")
                ((found,),) = await explain.fetch()
                versions = tuple(row["version"] for row in await self.connection.fetch(TABLE_VERSIONS))
        except asyncpg.InvalidCachedStatementError:
            raise
        except asyncpg.PostgresError as exc:
            if is_temporary(exc):
                raise
            hint = GRANTING if exc.sqlstate == "42501" else ""
            raise Refused(f"{exc.args[0]}.", hint=hint) from exc
        changes = sorted(_changes_in(json.loads(found)[0]["Plan"]), key=lambda each: not each[0])
        if not changes or not changes[0][0]:
            raise Refused(NOT_CHANGING)
        return [effect for _, effect in changes], versions

    async def _effects(self, changes: Sequence[Effect], explained: Sequence[Effect]) -> Effects:
        """Return *changes*, those *explained* that are made through views, and the consequences of both."""
        known = {each[:3] for each in changes}
        beneath = [each._replace(named=False) for each in explained if each[:3] not in known]
        direct = [*changes, *beneath]
        listed = [(each.schema, each.table, each.kind, each.column) for each in direct]
        async with rolled_back(self.connection, BEGIN_POLL):
            sequences = await sequences_of(self.connection, inserted_by(changes))
            rows = await self.connection.fetch(CONSEQUENCES, *map(list, zip(*listed, strict=True)))
        for (_, sequence), is_usable in sequences.items():
            if not is_usable:
                raise Refused(f"The login lacks usage of the sequence {'.'.join(sequence)}.", hint=GRANTING)
        found = {Effect(row["kind"], row["schema"], row["name"], row["column"], False) for row in rows}
        own = {each._replace(named=False) for each in direct}
        functions = sorted({name for row in rows for name in row["functions"]})
        return Effects(
            target=explained[0][1:3], changes=frozenset((*direct, *(found - own))), functions=tuple(functions)
        )


def _changes_in(plan: Mapping[str, Any]) -> Iterator[tuple[bool, Effect]]:
    """Yield the changes in *plan*, each with whether it is that of the query itself."""
    if plan["Node Type"] == "ModifyTable" and "Relation Name" in plan:
        is_own = plan.get("Subplan Name") == f"CTE {CHANGE}"
        place = plan.get("Schema", ""), plan["Relation Name"]
        yield is_own, Effect(plan["Operation"].lower(), *place)
        if plan.get("Conflict Resolution") == "UPDATE":
            yield False, Effect("update", *place)
    for each in plan.get("Plans", ()):
        yield from _changes_in(each)
