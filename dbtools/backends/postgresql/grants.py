"""The least login that roles need. Roles and the catalog they are of in, an SQL script for psql out.

What row filters read is asked of the server: it parses a view of each, in a transaction that is rolled back,
and keeps with the view which columns whoever selects from it must be allowed to read.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import asyncpg
from asyncpg import Record

from dbtools import errors
from dbtools.backends.plans import identifier
from dbtools.backends.port import Reads
from dbtools.backends.postgresql.catalog_queries import class_of, with_parts
from dbtools.backends.postgresql.dependencies import NOT_TEMPORARY, TREES, WHOLE_ROW, reads_of
from dbtools.backends.postgresql.grant_script import Script, qualified
from dbtools.backends.postgresql.pipeline import DriverConnection, rolled_back
from dbtools.catalog import Catalog, Column, RowFilter, Table
from dbtools.errors import listing
from dbtools.policy import BLANK, Role, restrict

SET_ROLE, NO_ROLE = "role", "none"  #: a setting, and its value for the login itself
LONGEST_NAME = 63  #: bytes; the server cuts what is longer

#: The relations with the numbers $1, or with the schemas $2 and the names $3.
RELATIONS = """
select
    c.oid as number, n.nspname::text as schema, c.relname::text as name, c.relkind::text as kind,
    c.relrowsecurity as row_security,
    c.relkind = 'v' and exists (
        select
        from pg_catalog.pg_options_to_table(c.reloptions) as o
        where o.option_name = 'security_invoker' and o.option_value::pg_catalog.bool
    ) as invoker,
    coalesce(a.names, '{}') as names, coalesce(a.numbers, '{}') as columns
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
cross join lateral (
    select pg_catalog.array_agg(a.attname::text order by a.attnum) as names,
        pg_catalog.array_agg(a.attnum order by a.attnum) as numbers
    from pg_catalog.pg_attribute as a
    where a.attrelid = c.oid and a.attnum <> 0 and not a.attisdropped
) as a
where (
        c.oid = any($1::pg_catalog.oid[])
        or (n.nspname::text, c.relname::text) in (
            select *
            from rows from (
                pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::pg_catalog.text[])
            )
        )
    )
    and not pg_catalog.starts_with(n.nspname::text, 'pg_') and n.nspname <> 'information_schema'
order by n.nspname, c.relname
"""
#: What the queries of the views $1 name beside tables: only what is not the system's own is kept of it.
OBJECTS = f"""
select distinct
    n.nspname::text as schema,
    case
        when f.oid is not null and not pg_catalog.has_function_privilege('public', f.oid, 'execute')
        then pg_catalog.format(
            '%I.%I(%s)', m.nspname, f.proname, pg_catalog.pg_get_function_identity_arguments(f.oid)
        )
    end as closed_function
from pg_catalog.pg_rewrite as r
join pg_catalog.pg_depend as d on d.classid = {class_of("pg_rewrite")} and d.objid = r.oid
left join pg_catalog.pg_operator as o on d.refclassid = {class_of("pg_operator")} and o.oid = d.refobjid
left join pg_catalog.pg_proc as f
    on d.refclassid = {class_of("pg_proc")} and f.oid = d.refobjid or f.oid = o.oprcode::pg_catalog.oid
left join pg_catalog.pg_namespace as m on m.oid = f.pronamespace
left join pg_catalog.pg_type as t on d.refclassid = {class_of("pg_type")} and t.oid = d.refobjid
left join pg_catalog.pg_collation as l on d.refclassid = {class_of("pg_collation")} and l.oid = d.refobjid
join pg_catalog.pg_namespace as n
    on n.oid = coalesce(o.oprnamespace, f.pronamespace, t.typnamespace, l.collnamespace)
where r.ev_class = any($1::pg_catalog.oid[]) and not pg_catalog.starts_with(n.nspname::text, 'pg_')
"""
#: The schemas of the types of the columns $2 of the tables $1, and of all that these types are made of.
READ_TYPES = """select a.atttypid
    from rows from (
        pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.int2[])
    ) as u (relation, number)
    join pg_catalog.pg_attribute as a on a.attrelid = u.relation and a.attnum = u.number"""
SCHEMAS_OF_TYPES = f"""
{with_parts(READ_TYPES)}
select distinct n.nspname::text as schema
from types as s
join pg_catalog.pg_type as t on t.oid = s.oid
join pg_catalog.pg_namespace as n on n.oid = t.typnamespace
where not pg_catalog.starts_with(n.nspname::text, 'pg_') and n.nspname <> 'information_schema'
"""
#: Of a search path only what a new login would not have by itself; whether there is a role with the name $1.
SURROUNDINGS = """
select pg_catalog.current_database()::text as database,
    case
        when s.source in ('user', 'database user', 'client', 'session')
            or session_user = any(pg_catalog.current_schemas(false))
        then pg_catalog.current_schemas(false)::text[]
    end as search_path,
    exists (select from pg_catalog.pg_roles as r where r.rolname = $1::pg_catalog.text) as is_known
from pg_catalog.pg_settings as s
where s.name = 'search_path'
"""
#: Whether somebody has been granted the table c, or a column of it.
GRANTED = """(
    exists (select from pg_catalog.aclexplode(c.relacl) as p where p.grantee = {0})
    or exists (
        select
        from pg_catalog.pg_attribute as a
        cross join lateral pg_catalog.aclexplode(a.attacl) as p
        where a.attrelid = c.oid and p.grantee = {0}
    )
)"""
#: What the login $1 has been granted before: tables, and roles without a schema.
EARLIER = f"""
with login as (select r.oid from pg_catalog.pg_roles as r where r.rolname = $1)
select distinct n.nspname::text as schema, c.relname::text as name
from login as g
cross join pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and c.relowner <> g.oid and {GRANTED.format("g.oid")}
union all
select null, r.rolname::text
from login as g
join pg_catalog.pg_auth_members as m on m.member = g.oid
join pg_catalog.pg_roles as r on r.oid = m.roleid
order by 1, 2
"""
#: What everybody may do beyond connecting and reading the system's catalogs: privilege, kind, and names.
PUBLIC = f"""
select pg_catalog.lower(p.privilege_type) as privilege, 'database' as kind, null::text as schema,
    d.datname::text as name
from pg_catalog.pg_database as d
cross join lateral pg_catalog.aclexplode(coalesce(d.datacl, pg_catalog.acldefault('d', d.datdba))) as p
where d.datname = pg_catalog.current_database() and p.grantee = '0' and p.privilege_type <> 'CONNECT'
union all
select 'create', 'schema', null, n.nspname::text
from pg_catalog.pg_namespace as n
cross join lateral pg_catalog.aclexplode(n.nspacl) as p
where p.grantee = '0' and p.privilege_type = 'CREATE' and not pg_catalog.starts_with(n.nspname::text, 'pg_')
union all
select distinct 'all', 'table', n.nspname::text, c.relname::text
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and not pg_catalog.starts_with(n.nspname::text, 'pg_') and n.nspname <> 'information_schema'
    and {GRANTED.format("'0'")}
order by 2, 3, 4, 1
"""
#: The number of the temporary view of a row filter.
FILTER = "select 'pg_temp.dbtools_filter'::pg_catalog.regclass::pg_catalog.oid"


async def write_script(
    connection: DriverConnection, catalog: Catalog, roles: Sequence[Role], reads: Reads, login: str
) -> str:
    """Return the script for a *login* that reads what *roles* and their queries read."""
    if not login or "\0" in login or len(login.encode()) > LONGEST_NAME:
        message = f"The name of a login has at most {LONGEST_NAME} bytes."
        raise errors.ConfigurationError(message, hint="--login NAME gives it one.")
    # The views of row filters are written, which the login may have been told not to do.
    async with rolled_back(connection, "begin read write; set local jit = off"):
        reading = _Reading(connection=connection)
        relations = await _read(reading, catalog, roles, reads)
    set_role = _set_role(roles, login)
    ((database, path, is_known),) = await connection.fetch(SURROUNDINGS, set_role)
    return Script(
        roles=tuple(role.name for role in roles),
        login=login,
        set_role=set_role,
        is_known=is_known,
        version=connection.get_server_version().major,
        database=database,
        search_path=None if path is None else tuple(path),
        grants=tuple(map(reading.grant, relations)),
        schemas=tuple(sorted({*(row["schema"] for row in relations), *reading.schemas})),
        functions=tuple(sorted(reading.functions)),
        guarded=[row for row in relations if row["row_security"]],
        foreign=[row for row in relations if row["kind"] == "f"],
        earlier=await connection.fetch(EARLIER, login),
        public=await connection.fetch(PUBLIC),
    ).text()


def _set_role(roles: Sequence[Role], login: str) -> str | None:
    """Return the role of the database that *login* becomes for the statements of *roles*, if any."""
    named = set()
    for role in roles:
        settings = [each for each in role.session if each.name.lower() == SET_ROLE]
        if any(each.claim is not None for each in settings):
            message = (
                f"role {role.name}: a claim names the role of the database, so its grants cannot be told."
            )
            raise errors.ConfigurationError(message, hint="set_role names one.")
        named.add(next((each.value for each in settings if each.value not in (NO_ROLE, login)), None))
    if len(named) > 1:
        message = (
            f"Statements of {listing(role.name for role in roles)} run as different roles of the database."
        )
        raise errors.ConfigurationError(message, hint="Write a script for each.")
    return named.pop()


async def _read(
    reading: "_Reading", catalog: Catalog, roles: Sequence[Role], queries: Reads
) -> Sequence[Record]:
    """Add what *roles* and *queries* read of *catalog*, and return all relations that are read."""
    seen = [(role, table) for role in roles for table in restrict(catalog, role).tables]
    places = {(table.schema, table.name) for _, table in seen} | {place[:2] for place in queries}
    schemas, names = [schema for schema, _ in places], [name for _, name in places]
    rows = await reading.connection.fetch(RELATIONS, [], schemas, names)
    found = {(row["schema"], row["name"]): row for row in rows}
    for role, table in seen:
        row = found.get((table.schema, table.name))
        if row is None:
            continue
        reading.add(row, [column.name for column in _read_columns(table)])
        if _is_read_whole(catalog, role, table):
            reading.whole.add(row["number"])
        if table.filter is not None:
            await reading.add_filter(table, table.filter)
    for schema, name, column in queries:
        if (schema, name) in found:
            reading.add(found[schema, name], [column])
    return await reading.relations()


def _read_columns(table: Table) -> Sequence[Column]:
    return [column for column in table.columns if column.type.mask not in BLANK]


def _is_read_whole(catalog: Catalog, role: Role, table: Table) -> bool:
    """Return whether a column that *table* gets later will be read as well."""
    whole = catalog.table(table.schema, table.name)
    rule = role.rule_of(catalog, whole) if whole is not None else None
    if rule is None or rule.grant is None:
        return role.rules is None
    names = {column.name for column in _read_columns(table)}
    everything = whole is not None and names.issuperset(whole.column_by_name)
    return rule.grant.columns is None and not rule.grant.exclude and everything


@dataclass(kw_only=True)
class _Reading:
    """What is read, by the numbers of relations and columns, and what else that needs."""

    connection: DriverConnection
    columns: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    whole: set[int] = field(default_factory=set)  #: relations that are read whole, later columns too
    schemas: set[str] = field(default_factory=set)  #: of types, functions and operators
    functions: set[str] = field(default_factory=set)  #: that not everybody may execute

    def add(self, relation: Record, columns: Iterable[str]) -> None:
        """Add *columns* of *relation*, as far as it has them."""
        numbers = dict(zip(relation["names"], relation["columns"], strict=True))
        self.columns[relation["number"]].update(numbers[each] for each in columns if each in numbers)

    async def add_filter(self, table: Table, filter: RowFilter) -> None:
        """Add what *filter* reads, subqueries included."""
        casts = iter(filter.casts)
        condition = filter.condition.written(lambda _: f"(null::{next(casts)})")
        name = f"{identifier(table.schema)}.{identifier(table.name)}"
        view = f"select 1 as one from {name} where ({condition}\n)"
        try:
            await self.connection.execute(f"create or replace temporary view dbtools_filter as {view}")
        except asyncpg.PostgresError as exc:
            if exc.sqlstate not in NOT_TEMPORARY:
                raise
            raise errors.ConfigurationError(
                "What row filters read is told by temporary views, and this login may not create them.",
                hint="Name a URL with a login that may: `grant temporary on database` lets one.",
            ) from exc
        await self._add_views([await self.connection.fetchval(FILTER)])

    async def _add_views(self, views: Sequence[int]) -> None:
        """Add what somebody must be allowed to read for the queries of *views* to run."""
        version = self.connection.get_server_version().major
        for row in await self.connection.fetch(TREES, views):
            for relation, columns in reads_of(row["tree"], version):
                self.columns[relation].update(columns)
        for row in await self.connection.fetch(OBJECTS, views):
            self.schemas.add(row["schema"])
            self.functions.update({row["closed_function"]} - {None})

    async def relations(self) -> Sequence[Record]:
        """Return all relations that are read, and add their types.

        Views that ask what their reader may do need what they read themselves.
        """
        known: set[int] = set()
        while True:
            rows = await self.connection.fetch(RELATIONS, list(self.columns), [], [])
            views = [row["number"] for row in rows if row["invoker"] and row["number"] not in known]
            if not views:
                break
            known.update(views)
            await self._add_views(views)
        pairs = [(relation, column) for relation, columns in self.columns.items() for column in columns]
        relations, columns = [each for each, _ in pairs], [each for _, each in pairs]
        types = await self.connection.fetch(SCHEMAS_OF_TYPES, relations, columns)
        self.schemas.update(row["schema"] for row in types)
        return rows

    def grant(self, row: Record) -> str:
        """Return the statement that grants what is read of the relation *row*, but for whom."""
        wanted = self.columns[row["number"]]
        names: Mapping[int, str] = dict(zip(row["columns"], row["names"], strict=True))
        # Where rows are only counted, one column must be open all the same.
        first = [each for each in names if each > 0][:1]
        columns = ", ".join(identifier(names[each]) for each in names if each in (wanted or first))
        is_whole = row["number"] in self.whole or WHOLE_ROW in wanted
        return f"grant select{'' if is_whole else f' ({columns})'} on table {qualified(row)}"
