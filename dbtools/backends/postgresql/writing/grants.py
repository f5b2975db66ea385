"""Write the script for a login that can do what roles do. Roles and their catalog in, SQL for psql out.

Names may contain any character: statements quote them, and comments keep them on one line. The script is one
transaction, so it changes nothing if it fails.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from dbtools import errors
from dbtools.backends.compiled import identifier
from dbtools.backends.port import ColumnPlace
from dbtools.backends.postgresql.queries.inspection import PostgresqlInspector
from dbtools.backends.postgresql.queries.privileges import (
    conditions_of,
    inserted_by,
    needs_of,
    presets_of,
    read_columns,
    sequences_of,
)
from dbtools.backends.postgresql.registry import REGISTRY_TABLES, SCHEMA
from dbtools.backends.postgresql.schema.dependencies import reads_of
from dbtools.backends.postgresql.schema.types import NAME_BYTES, names_before
from dbtools.errors import listing
from dbtools.policy.roles import Role, restrict
from dbtools.queries import Permitted
from dbtools.schema.catalog import Catalog, Location, Table
from dbtools.schema.paths import Paths
from dbtools.values.types import quote

Need = tuple[Location, str, str]  #: a table, a privilege, and a column; empty: the rows, or all columns
WRITE_JOURNAL = (SCHEMA, "dbtools_write")  #: the journal of changes
SET_ROLE, NO_ROLE = "role", "none"  #: a setting, and its value for the login itself
NOTHING_MORE = "nosuperuser nocreatedb nocreaterole noreplication nobypassrls"

#: The views that check the privileges of the role that reads them.
INVOKERS = """
select c.oid as number, n.nspname::text as schema, c.relname::text as name,
    pg_catalog.pg_get_viewdef(c.oid) as query
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
cross join lateral pg_catalog.pg_options_to_table(c.reloptions) as o
where c.relkind = 'v' and o.option_name = 'security_invoker' and o.option_value::pg_catalog.bool
"""
#: The name of the database, and which of the schemas $1 it has.
SURROUNDINGS = """
select pg_catalog.current_database(), array(
    select n.nspname::text
    from pg_catalog.pg_namespace as n
    where n.nspname::text = any($1::pg_catalog.text[])
        and not pg_catalog.starts_with(n.nspname::text, 'pg_')
        and n.nspname <> 'information_schema'
    order by n.nspname
)
"""
GRANT_SCRIPT = """\
-- {purpose}
-- Run this with psql in the database {database},
-- as a role that may create roles and grant what is granted here.
-- Print and run it again when a role or a table changes.
begin;
set local search_path = pg_catalog;

{granted}

commit;

-- Left to you:
{left}
"""
LOGIN = """\
declare
    earlier text;
begin
    if not exists (select from pg_catalog.pg_roles where oid = {role}) then
        {create}
    elsif exists (
        select from pg_catalog.pg_roles as r where oid = {role} and (
            rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls
            or exists (select from pg_catalog.pg_shdepend where refobjid = r.oid and deptype = 'o')
        )
    ) then
        raise exception 'role % already exists, and owns something or can do more than read', {role};
    end if;
    -- Earlier grants.
    for earlier in
        select pg_catalog.format('all on table %s', d.objid::pg_catalog.regclass)
        from pg_catalog.pg_shdepend as d
        join pg_catalog.pg_database as b on b.oid = d.dbid and b.datname = pg_catalog.current_database()
        where d.refobjid = {role} and d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
        union
        select m.roleid::pg_catalog.regrole::text from pg_catalog.pg_auth_members as m where m.member = {role}
    loop
        execute pg_catalog.format('revoke %s from %s', earlier, {role});
    end loop;
end"""
READER = """\
begin
    if not exists (select from pg_catalog.pg_roles where oid = {role}) then
        {create}
    end if;
end"""


async def write_script(
    inspector: PostgresqlInspector,
    catalog: Catalog,
    roles: Sequence[Role],
    queries: Sequence[Permitted],
    login: str,
    writer: str | None,
) -> str:
    """Return the script for a *login* that reads what *roles* and their *queries* read.

    It also changes what they change, unless the login *writer* does.
    """
    for each in (login, writer or login):
        _check_name(each)
    set_role = _set_role(roles, login)
    seen = [(role, restrict(catalog, role)) for role in roles]
    shown = [each for _, each in seen]
    reading, changing = await _needs(inspector, catalog, shown, queries)
    whole = {
        table.location for role, each in seen for table in each.tables if _is_whole(catalog, role, table)
    }
    needed = {login: reading | changing}
    if writer and changing:
        # Both logins switch to this role, so it needs the privileges of both.
        needed = {login: reading | changing if set_role else reading, writer: changing}
    named = {*catalog.search_path, *_schema_names(shown)} - {SCHEMA}
    used = {schema for (schema, _), *_ in reading | changing}
    ((database, schemas),) = await inspector.connection.fetch(SURROUNDINGS, sorted(named | used))
    parts = []
    for name, needs in needed.items():
        places = named | {schema for (schema, _), *_ in needs}
        usage = [f"grant usage on schema {identifier(each)} to" for each in schemas if each in places]
        grants = _grants(catalog, needs, whole if name == login else ())
        parts += [_login_sql(name, database, catalog.search_path), _grants_sql(name, set_role, usage, grants)]
    left = _remaining_steps(list(needed), set_role, database, schemas, changing)
    return GRANT_SCRIPT.format(
        purpose=_purpose(roles, list(needed)),
        database=_one_line(quote(database)),
        granted="\n\n".join(parts),
        left="\n".join(f"-- - {_one_line(each)}" for each in left),
    )


def _check_name(login: str) -> None:
    """Raise ConfigurationError if *login* cannot be the name of a login."""
    if not login or "\0" in login or len(login.encode()) > NAME_BYTES:
        message = f"The name of a login has at most {NAME_BYTES} bytes."
        raise errors.ConfigurationError(message, hint="Choose another name with --login NAME.")


def _purpose(roles: Sequence[Role], logins: Sequence[str]) -> str:
    names = " and ".join(_one_line(quote(role.name)) for role in roles)
    what = f"what the role{'s' * (len(roles) > 1)} {names} of dbtools can do"
    first, *second = (_one_line(quote(each)) for each in logins)
    if second:
        return f"Two logins, {first} for url and {second[0]} for write_url, that can only do {what}."
    return f"A login that can only do {what}."


async def _needs(
    inspector: PostgresqlInspector, catalog: Catalog, shown: Sequence[Catalog], queries: Sequence[Permitted]
) -> tuple[set[Need], set[Need]]:
    """Return what the login that reads needs, and the one that changes rows.

    The first one also reads the types of what is changed.
    """
    reading, changing = set[Need](), set[Need]()
    for query in queries:
        read = {((schema, name), "select", column) for schema, name, column in query.reads or ()}
        effects = query.effects.changes if query.effects else ()
        made = {((each.schema, each.table), each.kind, each.column) for each in effects if each.named}
        (changing if query.effects else reading).update(read, made)
    for each in shown:
        chosen_by = _locations_of_conditions(each)
        for table in each.tables:
            conditions = await _reads_of_conditions(inspector, table)
            seen = {(table.location, "select", name) for name in ("", *read_columns(table))}
            made = {(table.location, privilege, name) for privilege, name in needs_of(table)}
            reading.update(seen, conditions, ((table.location, "select", name) for *_, name in made))
            if made or table.location in chosen_by:
                changing.update(made, conditions, seen if table.location in chosen_by else ())
    if changing:
        changing |= await _needs_of_changes(inspector.connection, shown, queries)
    rows = await inspector.connection.fetch(INVOKERS)
    rules = await reads_of(inspector.connection, {row["number"]: row["query"] for row in rows})
    beneath = {(row["schema"], row["name"]): rules[row["number"]] for row in rows}
    return _with_reads_of_views(reading, beneath), _with_reads_of_views(changing, beneath)


def _locations_of_conditions(shown: Catalog) -> Collection[Location]:
    """Return the tables that conditions on changed rows may read: all that foreign keys connect with them."""
    paths, found = Paths(shown), dict[Location, None]()
    left = [each for each in shown.tables if each.writes and (each.writes.update or each.writes.delete)]
    while left:
        table = left.pop()
        if table.location not in found:
            found[table.location] = None
            relations = (*paths.relations(table).values(), *paths.referrers(table).values())
            left += [each.target for each in relations]
    return found


def _set_role(roles: Sequence[Role], login: str) -> str | None:
    """Return the database role that *login* assumes for the statements of *roles*, if any."""
    named = set()
    for role in roles:
        settings = [each for each in role.session if each.name.lower() == SET_ROLE]
        if any(each.claim is not None for each in settings):
            message = f"role {role.name}: a claim names the role of the database, so its grants are unknown."
            raise errors.ConfigurationError(message, hint="Name one role in set_role.")
        named.add(next((each.value for each in settings if each.value not in (NO_ROLE, login)), None))
    if len(named) > 1:
        message = (
            f"Statements of {listing(role.name for role in roles)} run as different roles of the database."
        )
        raise errors.ConfigurationError(message, hint="Print a script for each role.")
    return named.pop()


async def _reads_of_conditions(inspector: PostgresqlInspector, table: Table) -> Collection[Need]:
    """Return what the filter and the check of *table* read, subqueries included."""
    reads: set[Need] = set()
    for each in conditions_of(table):
        nulls = (f"(null::{cast})" for cast in each.casts)
        pieces = each.condition.pieces
        condition = "".join(piece if isinstance(piece, str) else next(nulls) for piece in pieces)
        sql = f"select 1 as one from {_name(table.location)} where ({condition}\n)"
        found = await inspector.query([sql], {})
        if found.reads is None:
            message = (
                "dbtools finds what row filters read with temporary views, which this login may not create."
            )
            hint = "With --url, name a login that may: `grant temporary on database` permits it."
            raise errors.ConfigurationError(message, hint=hint)
        reads.update(((schema, name), "select", column) for schema, name, column in found.reads)
    return reads


async def _needs_of_changes(
    connection: Any, shown: Sequence[Catalog], queries: Sequence[Permitted]
) -> set[Need]:
    """Return what changes need besides tables: sequences, and the journal if there is one."""
    # One role or query may give the column that another one lets the sequence number.
    given = [presets_of(catalog.tables) for catalog in shown]
    given += [inserted_by(query.effects.changes) for query in queries if query.effects]
    needs = {
        (sequence, "usage", "") for each in given for _, sequence in await sequences_of(connection, each)
    }
    if await connection.fetch(REGISTRY_TABLES, WRITE_JOURNAL[1]):
        needs |= {(WRITE_JOURNAL, privilege, "") for privilege in ("select", "insert", "update", "delete")}
    return needs


def _with_reads_of_views(needs: set[Need], beneath: Mapping[Location, Collection[ColumnPlace]]) -> set[Need]:
    """Return *needs* with those of views that check the privileges of their reader, and read *beneath*."""
    found, left = set[Need](), needs
    while left:
        found |= left
        places = {place for location, *_ in left for place in beneath.get(location, ())}
        left = {((schema, name), "select", column) for schema, name, column in places} - found
    return found


def _schema_names(shown: Sequence[Catalog]) -> Iterator[str]:
    """Yield the names before a dot in the row filters and the types of tables, which may be schemas."""
    for table in (table for catalog in shown for table in catalog.tables):
        filters = [table.filter.condition.text] if table.filter is not None else []
        for sql in (*filters, *(column.type.cast for column in table.columns)):
            yield from (name for name, _ in names_before(".", sql))


def _is_whole(catalog: Catalog, role: Role, table: Table) -> bool:
    """Return whether *role* will also read columns that are added to *table* later."""
    whole = catalog.whole.table(*table.location)
    rule = role.rule_of(catalog, whole) if whole is not None else None
    if whole is None or rule is None or rule.grant is None:
        return role.rules is None
    return rule.grant.columns is None and {*read_columns(table)} == whole.column_by_name.keys()


def _grants(catalog: Catalog, needs: Collection[Need], whole: Collection[Location]) -> list[str]:
    """Return the beginnings of the statements that grant *needs*; the tables *whole* are read completely."""
    columns: defaultdict[tuple[Location, str], set[str]] = defaultdict(set)
    for location, privilege, column in needs:
        if not (location[0].startswith("pg_") or location[0] == "information_schema"):
            columns[location, privilege].add(column)
    grants = []
    for (location, privilege), names in sorted(columns.items(), key=itemgetter(0)):
        table, chosen = catalog.table(*location), ""
        is_whole = location in (*whole, WRITE_JOURNAL) if privilege == "select" else "" in names
        if not is_whole:
            order = {name: at for at, name in enumerate(table.column_by_name if table is not None else ())}
            listed = sorted(names - {""}, key=lambda each: (order.get(each, len(order)), each))
            # Counting rows also requires the privilege on one column.
            chosen = ", ".join(map(identifier, listed or [*order][:1]))
        if is_whole or chosen:
            of_columns = f" ({chosen})" if chosen else ""
            kind = "sequence" if privilege == "usage" else "table"
            grants.append(f"grant {privilege}{of_columns} on {kind} {_name(location)} to")
    return grants


def _login_sql(login: str, database: str, search_path: Sequence[str]) -> str:
    name, place = identifier(login), identifier(database)
    path = ", ".join(map(identifier, search_path)) or "''"
    return f"""\
-- The login, without a password. The script revokes earlier grants of an existing login. It fails if this
-- login owns something or can do more than read.
{_block(LOGIN, login, create=f"create role {name} login {NOTHING_MORE};")}
grant connect on database {place} to {name};
alter role {name} set default_transaction_read_only = on;
alter role {name} in database {place} set search_path = {path};"""


def _grants_sql(login: str, set_role: str | None, usage: Sequence[str], grants: Sequence[str]) -> str:
    name, reader = identifier(login), identifier(set_role or login)
    reads = [f"{grant} {reader};" for grant in (*usage, *grants)]
    if set_role is None:
        return "\n".join(
            ["-- Columns that are seen or hashed, and what row filters and queries read.", *reads]
        )
    create = "\n        ".join([f"create role {reader} nologin {NOTHING_MORE};", *reads])
    lookups = "\n".join(f"{grant} {name};" for grant in usage)
    return f"""\
-- The login looks up the names in row filters.
{lookups}
-- For each statement, it switches to this role (set_role). An existing role keeps its grants.
{_block(READER, set_role, create=create)}
alter role {name} noinherit;
grant {reader} to {name};"""


def _remaining_steps(
    logins: Sequence[str],
    set_role: str | None,
    database: str,
    schemas: Sequence[str],
    changing: Collection[Need],
) -> Iterator[str]:
    """Yield what the operator must do."""
    login, reader = identifier(logins[0]), identifier(set_role or logins[0])
    yield from (f"A password: \\password {identifier(each)}" for each in logins)
    yield f"A bound for temporary files, as a superuser: alter role {login} set temp_file_limit = '1GB';"
    for place in (
        f"temporary on database {identifier(database)}",
        *(f"create on schema {identifier(each)}" for each in schemas),
    ):
        yield f"Unless others need it: revoke {place} from public;"
    yield f"Row-level security: on tables that have it, {reader} sees no row without a policy for it."
    yield "`dbtools check` with the URL of the login says what it still lacks."
    if changing:
        yield "Triggers run with the privileges of the login, unless their functions are `security definer`."
    if changing and (WRITE_JOURNAL, "insert", "") not in changing:
        yield (
            "Without the table dbtools_write, each server keeps confirmations in memory, and changes take no "
            "idempotency key. `dbtools registry upgrade URL` creates it; then print and run this again."
        )


def _block(template: str, role: str, *, create: str) -> str:
    """Return the DO statement of *template*, in a dollar quote that does not occur in it."""
    name = identifier(role).replace("'", "''")
    body, quotes = template.format(role=f"pg_catalog.to_regrole('{name}')", create=create), "$dbtools$"
    while quotes in body:
        quotes = f"{quotes[:-1]}_$"
    return f"do {quotes}\n{body}\n{quotes};"


def _name(location: Location) -> str:
    return ".".join(map(identifier, location))


def _one_line(text: str) -> str:
    """Return *text* without line ends, which would end a comment: psql would run the rest as a statement."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text)
