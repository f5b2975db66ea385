"""Check a query that changes rows before it is served. A connection and pieces in, an Inspected out.

The server prepares the query and explains it in a read-only transaction, with nulls as parameters: neither
runs it. The plan names the tables that it changes, those beneath views included, and explaining checks the
privileges. A rule of a temporary table, which is rolled back, holds the parsed query: it shows the columns
that are read and changed, and the functions that are called. The catalog says which foreign keys and triggers
change more.
"""

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import asyncpg

from dbtools.backends.changing_queries import AFTER_CHANGE, CHANGE, main_of, within_with
from dbtools.backends.plans import Piece, with_lists
from dbtools.backends.port import NOT_CHANGING, ColumnPlace, Declared, Inspected, check_names, refusal
from dbtools.backends.postgresql.changes import LOCKED
from dbtools.backends.postgresql.dependencies import (
    BIT_OF_WHOLE_ROW,
    COLUMNS,
    TREES,
    acts,
    by_relation,
    called_by,
    location_of,
    places_of,
    reads_of,
)
from dbtools.backends.postgresql.inspection import (
    LIST_FORMS,
    READING,
    UNDECODABLE,
    WRITING,
    Description,
    PreparedQuery,
    Query,
    check_functions,
    is_passing,
    prepare_once,
    refusing,
)
from dbtools.backends.postgresql.pipeline import end_prepare, rolled_back
from dbtools.backends.postgresql.privileges import GRANTING, STANDBY, sequences_behind
from dbtools.backends.postgresql.types import UNLIMITED, lexis
from dbtools.queries import Effect, Effects

RULE = "dbtools_inspected"
#: The tables in a tree, with the privileges that are needed, and the columns that are inserted and updated.
TOUCHED = re.compile(
    r":relid (\d+) (?:(?!:relid ).)*?:requiredPerms (\d+) :checkAsUser \d+ :selectedCols \(b[ \d]*\) "
    r":insertedCols \(b([ \d]*)\) :updatedCols \(b([ \d]*)\)",
    re.DOTALL,
)
PRIVILEGES = {"insert": 1, "update": 4, "delete": 8}  #: their bits
#: What the changes $3 of the columns $4 (empty: all) of the tables $2 in the schemas $1 lead to: themselves,
#: and those of foreign keys; each with the functions of triggers that they fire.
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
NUMBERING = "nextval"  #: the function of the system that may act here: rows need numbers


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What the server shows of a parsed query."""

    reads: frozenset[ColumnPlace] | None = None  #: None: unknown
    functions: tuple[str, ...] = ()
    changes: Sequence[Effect] = field(default=())


class ChangeDescription(Description):
    """Asks a server what queries that change rows mean, on a connection of the login that writes."""

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return what the server reports about the query in *pieces*, or raise Refused."""
        arrays = {name for name, each in declared.items() if each.array}
        written = with_lists(pieces, arrays.__contains__, LIST_FORMS)
        query = Query(source=tuple(pieces), pieces=written, declared=declared, before="", after="")
        with refusing():
            if await self.connection.fetchval("select pg_catalog.pg_is_in_recovery()"):
                raise refusal(STANDBY.capitalize())
            main = main_of(written, lexis)
            prepared = await _prepared(self.connection, query)
            nested = replace(prepared, query=replace(prepared.query, pieces=within_with(written, main)))
            whole = f"{nested.with_nulls}{AFTER_CHANGE}select 1"
            explained, versions = await self._explain(whole)
            parsed = await self._parsed(prepared, whole) or await self._unparsed(prepared, explained)
            effects = await self._effects(parsed.changes, explained)
            async with rolled_back(self.connection, READING):
                columns = [(each.name, (each.type.oid, UNLIMITED)) for each in prepared.columns or ()]
                inspected = await self.inspected(prepared, columns)
        return replace(
            inspected, reads=parsed.reads, functions=parsed.functions, versions=versions, effects=effects
        )

    async def _explain(self, sql: str) -> tuple[Sequence[Effect], tuple[str, ...]]:
        """Return the changes in the plan of *sql*, the query's own first, and the versions of its tables."""
        try:
            async with rolled_back(self.connection, READING):
                # A new text each time: a cached statement may have the types from before a migration.
                explain = f"explain (verbose, format json) {sql} /* {secrets.token_hex(8)} */"
                ((found,),) = await self.connection.fetch(explain)
                versions = tuple(row["version"] for row in await self.connection.fetch(LOCKED))
        except asyncpg.InvalidCachedStatementError:
            raise
        except asyncpg.PostgresError as exc:
            if is_passing(exc):
                raise
            hint = GRANTING if exc.sqlstate == "42501" else ""
            raise refusal(f"{exc.args[0]}.", hint=hint) from exc
        changes = sorted(_changes_in(json.loads(found)[0]["Plan"]), key=lambda each: not each[0])
        if not changes or not changes[0][0]:
            raise refusal(NOT_CHANGING)
        return [effect for _, effect in changes], versions

    async def _parsed(self, prepared: PreparedQuery, sql: str) -> Parsed | None:
        """Return what a rule with *sql* shows; None if the server does not create one."""
        await end_prepare(self.connection)
        try:
            async with rolled_back(self.connection, WRITING):
                await self.connection.execute(f"create temporary table {RULE} ()")
                # A prepared statement is a single one.
                await self.connection.fetch(f"create rule {RULE} as on insert to {RULE} do instead {sql}")
                own = await self.connection.fetchval(
                    "select $1::pg_catalog.text::pg_catalog.regclass::pg_catalog.oid", f"pg_temp.{RULE}"
                )
                return await self._of_tree(prepared, own)
        except asyncpg.PostgresError as exc:
            if is_passing(exc):
                raise
            return None

    async def _of_tree(self, prepared: PreparedQuery, own: int) -> Parsed:
        """Return what the tree of the rule of the table *own* shows."""
        tree = await self.connection.fetchval(TREES.replace("'1'", "'3'"), [own], column=1)
        called = (await called_by(self.connection, {0: tree}))[0]
        _check_called(prepared, called)
        read = [(table, numbers) for table, numbers in reads_of(tree) if table != own]
        changed = [each for each in _changed_in(tree) if each[0] != own]
        relations = [table for table, *_ in (*read, *changed)]
        tables = by_relation(await self.connection.fetch(COLUMNS, relations))
        places = (places_of(tables[each], numbers) or {location_of(tables[each])} for each, numbers in read)
        return Parsed(
            reads=frozenset[ColumnPlace]().union(*places),
            functions=tuple(
                dict.fromkeys(f"{row['schema']}.{row['name']}" for row in called if row["reads"])
            ),
            changes=[
                Effect(kind, *place)
                for table, kind, numbers in changed
                for place in (numbers and places_of(tables[table], numbers)) or {location_of(tables[table])}
            ],
        )

    async def _unparsed(self, prepared: PreparedQuery, explained: Sequence[Effect]) -> Parsed:
        """Return what is known without a rule: the tables that are changed."""
        _check_called(prepared, await self.named_functions(prepared.query))
        return Parsed(changes=explained)

    async def _effects(self, changes: Sequence[Effect], explained: Sequence[Effect]) -> Effects:
        """Return *changes* with those *explained* that are beneath views, and what they lead to."""
        known = {each[:3] for each in changes}
        beneath = [each._replace(named=False) for each in explained if each[:3] not in known]
        direct = [*changes, *beneath]
        listed = [(each.schema, each.table, each.kind, each.column) for each in direct]
        for sequence, is_usable in await sequences_behind(self, changes):
            if not is_usable:
                raise refusal(f"The login lacks usage of the sequence {'.'.join(sequence)}.", hint=GRANTING)
        rows = await self.connection.fetch(CONSEQUENCES, *map(list, zip(*listed, strict=True)))
        found = {Effect(row["kind"], row["schema"], row["name"], row["column"], False) for row in rows}
        own = {each._replace(named=False) for each in direct}
        functions = sorted({name for row in rows for name in row["functions"]})
        return Effects(
            target=explained[0][1:3], changes=frozenset((*direct, *(found - own))), functions=tuple(functions)
        )


async def _prepared(connection: Any, query: Query) -> PreparedQuery:
    try:
        prepared = await prepare_once(connection, query)
    except UNDECODABLE as exc:
        problem = "The type of a parameter or a column is a row or a range."
        raise refusal(problem, hint="Cast it from a text or to a text.") from exc
    if prepared.columns:
        check_names(each.name for each in prepared.columns)
    return prepared


def _check_called(prepared: PreparedQuery, called: Sequence[Any]) -> None:
    """Raise Refused if one of the functions *called* does more than read and number rows."""
    acting = [row for row in called if row["name"] != NUMBERING or not acts(row)]
    check_functions(prepared.query, acting)


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


def _changed_in(tree: str) -> Iterator[tuple[int, str, Sequence[int]]]:
    """Yield the tables that a query with *tree* changes, with the kind of change and the columns."""
    for relation, privileges, *columns in TOUCHED.findall(tree):
        inserted, updated = ([int(bit) - BIT_OF_WHOLE_ROW for bit in each.split()] for each in columns)
        numbers = {"insert": inserted, "update": updated}
        for kind, bit in PRIVILEGES.items():
            if int(privileges) & bit:
                yield int(relation), kind, numbers.get(kind, ())
