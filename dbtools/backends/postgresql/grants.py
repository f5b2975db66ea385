"""Write the script for a login that can do what roles do. Roles and their catalog in, SQL for psql out.

Names may contain any character: statements quote them, and comments keep them on one line. The script is one
transaction, so it changes nothing if it fails.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter

from dbtools import errors
from dbtools.backends.plans import identifier
from dbtools.backends.port import ColumnPlace
from dbtools.backends.postgresql.inspection import Description
from dbtools.backends.postgresql.introspection import PLACE, ROW_VERSION
from dbtools.backends.postgresql.privileges import (
    conditions_of,
    needs_of,
    read_columns,
    sequences_behind,
    sequences_of,
)
from dbtools.backends.postgresql.types import names_before
from dbtools.catalog import Catalog, Location, Table
from dbtools.errors import listing
from dbtools.paths import Paths
from dbtools.policy import Role, restrict
from dbtools.queries import Effect, Permitted
from dbtools.sql import Fragment
from dbtools.types import quoted

SYSTEM = tuple(column.name for column in (*PLACE, ROW_VERSION))
SET_ROLE, NO_ROLE = "role", "none"  #: a setting, and its value for the login itself
LONGEST_NAME = 63  #: bytes; the server cuts longer names
NOTHING_MORE = "nosuperuser nocreatedb nocreaterole noreplication nobypassrls"

#: The views that check the privileges of the role that reads them.
INVOKERS = """
select n.nspname::text, c.relname::text
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
        and n.nspname not in ('information_schema', 'dbtools')
    order by n.nspname
)
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
        where d.refobjid = {role} and d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
        union
        select m.roleid::pg_catalog.regrole::text from pg_catalog.pg_auth_members as m where m.member = {role}
    loop
        execute pg_catalog.format('revoke %s from %s', earlier, {role});
    end loop;
end"""
TRIGGERS = (
    "\n-- - Triggers run with the privileges of the login, unless their functions are `security definer`."
)
NO_JOURNAL = (
    "\n-- - Without the table dbtools_write, each server keeps confirmations and idempotency keys in memory."
    "\n--   `dbtools registry upgrade URL` creates it; then print and run this again."
)
JOURNAL = """
select exists (
    select
    from pg_catalog.pg_class as c
    join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
    where n.nspname = 'dbtools' and c.relname = 'dbtools_write'
)
"""
JOURNAL_GRANTS = (
    "grant usage on schema dbtools to",
    "grant select, insert, update, delete on table dbtools.dbtools_write to",
)
READER = """\
begin
    if not exists (select from pg_catalog.pg_roles where oid = {role}) then
        {create}
    end if;
end"""


async def write_script(
    description: Description,
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
    tables = [(role, table) for role, shown in seen for table in shown.tables]
    chosen_by = {location for _, shown in seen for location in _locations_of_conditions(shown)}
    changes = [[each for each in query.effects.changes if each.named] for query in queries if query.effects]
    read, changed = await _places(description, catalog, tables, queries, chosen_by)
    read |= set() if writer else changed
    written = {each.schema for of_query in changes for each in of_query}
    named = {*catalog.search_path, *written, *(place[0] for place in read | changed), *_schemas_named(tables)}
    ((database, schemas),) = await description.connection.fetch(SURROUNDINGS, sorted(named))
    reading = _grants(
        catalog, read, {table.location for each, table in tables if _is_whole(catalog, each, table)}
    )
    writing = await _write_grants(description, [table for _, table in tables], changes)
    # The role that both logins become has the grants of both.
    grants = {login: reading if writer and not set_role else [*reading, *writing]}
    if writer and writing:
        grants[writer] = [*_grants(catalog, changed, ()), *writing]
    granted = "\n\n".join(
        f"{_creating(name, database, catalog.search_path)}\n\n{_granting(name, set_role, schemas, each)}"
        for name, each in grants.items()
    )
    return f"""\
-- {_purpose(roles, grants, bool(writing))}
-- Run this with psql in the database {_one_line(quoted(database))},
-- as a role that may create roles and grant what is granted here.
-- Print and run it again when a role or a table changes.
begin;
set local search_path = pg_catalog;

{granted}

commit;

{_left(list(grants), set_role, database, schemas)}{_left_to_writer(writing)}
"""


def _check_name(login: str) -> None:
    """Raise ConfigurationError if *login* cannot be the name of a login."""
    if not login or "\0" in login or len(login.encode()) > LONGEST_NAME:
        message = f"The name of a login has at most {LONGEST_NAME} bytes."
        raise errors.ConfigurationError(message, hint="Choose another name with --login NAME.")


def _purpose(roles: Sequence[Role], logins: Collection[str], writes: bool) -> str:
    names = _one_line(" and ".join(quoted(role.name) for role in roles))
    of = f"what the role{'s' * (len(roles) > 1)} {names} of dbtools can"
    if len(logins) > 1:
        first, second = map(_one_line, map(quoted, logins))
        return f"Two logins, {first} for url and {second} for write_url, that can do only {of} do."
    does = f"read{' and change' * writes}"
    return f"A login that can {does} only {of} {does}."


async def _places(
    description: Description,
    catalog: Catalog,
    tables: Sequence[tuple[Role, Table]],
    queries: Sequence[Permitted],
    chosen_by: Collection[Location],
) -> tuple[set[ColumnPlace], set[ColumnPlace]]:
    """Return what is read, the types of what is written included, and what writes read.

    *chosen_by*: the tables that the conditions of writes may read.
    """
    read, changed = (
        {place for query in queries if bool(query.effects) == writes for place in query.reads or ()}
        for writes in (False, True)
    )
    for _, table in tables:
        of_conditions = await _reads_of_conditions(description, table)
        needs = [*needs_of(table)]
        names = ("", *read_columns(table), *(name for _, name in needs))
        read.update(of_conditions, ((*table.location, name) for name in names))
        selected = [(*table.location, name) for privilege, name in needs if privilege == "select"]
        if table.location in chosen_by:
            selected += [(*table.location, name) for name in read_columns(table)]
        changed.update(selected, of_conditions if selected else ())
    invokers = {(schema, name) for schema, name in await description.connection.fetch(INVOKERS)}
    for places in (read, changed):
        _add_reads_of_views(catalog, places, invokers)
        places -= {each for each in places if each[0].startswith("pg_") or each[0] == "information_schema"}
    return read, changed


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


async def _reads_of_conditions(description: Description, table: Table) -> Collection[ColumnPlace]:
    """Return what the filter and the check of *table* read, subqueries included."""
    reads: set[ColumnPlace] = set()
    for each in conditions_of(table):
        nulls = iter([f"(null::{cast})" for cast in each.casts])
        sql = f"select 1 as one from {_name(table.location)} where ({_filled(each.condition, nulls)}\n)"
        found = await description.query([sql], {})
        if found.reads is None:
            message = (
                "dbtools finds what row filters read with temporary views, which this login may not create."
            )
            hint = "With --url, name a login that may: `grant temporary on database` permits it."
            raise errors.ConfigurationError(message, hint=hint)
        reads |= found.reads
    return reads


def _filled(condition: Fragment, values: Iterator[str]) -> str:
    return condition.written(lambda _: next(values))


def _add_reads_of_views(catalog: Catalog, read: set[ColumnPlace], views: set[Location]) -> None:
    """Add to *read* what the *views* in it read: these views check the privileges of their reader."""
    while True:
        tables = [catalog.table(*location) for location in {place[:2] for place in read} & views]
        more = {place for table in tables if table and table.reads for place in table.reads.columns} - read
        if not more:
            return
        read |= more


def _schemas_named(tables: Iterable[tuple[Role, Table]]) -> Iterator[str]:
    """Yield the names before a dot in the row filters and the types of *tables*, which may be schemas."""
    for _, table in tables:
        filters = [table.filter.condition.text] if table.filter is not None else []
        for sql in (*filters, *(column.type.cast for column in table.columns)):
            yield from (name for name, _ in names_before(".", sql))


def _is_whole(catalog: Catalog, role: Role, table: Table) -> bool:
    """Return whether *role* will also read columns that are added to *table* later."""
    whole = catalog.table(*table.location)
    rule = role.rule_of(catalog, whole) if whole is not None else None
    if whole is None or rule is None or rule.grant is None:
        return role.rules is None
    return rule.grant.columns is None and {*read_columns(table)} == whole.column_by_name.keys()


def _grants(catalog: Catalog, read: Collection[ColumnPlace], whole: Collection[Location]) -> Sequence[str]:
    """Return the beginnings of the statements that grant what is *read*."""
    columns: defaultdict[Location, set[str]] = defaultdict(set)
    for schema, name, column in read:
        columns[schema, name].update({column} - {""})
    grants = []
    for location, names in sorted(columns.items()):
        table = catalog.table(*location)
        known = list(table.column_by_name) if table is not None else sorted(names)
        # Counting rows also requires the privilege on one column.
        listed = [each for each in (*known, *SYSTEM) if each in names] or known[:1]
        if listed:
            chosen = "" if location in whole else f" ({', '.join(map(identifier, listed))})"
            grants.append(f"grant select{chosen} on table {_name(location)} to")
    return grants


async def _write_grants(
    description: Description, tables: Sequence[Table], changes: Sequence[Sequence[Effect]]
) -> Sequence[str]:
    """Return the starts of the statements that grant the writes of *tables*, and the *changes* of queries."""
    columns: defaultdict[tuple[Location, str], set[str]] = defaultdict(set)
    for table in tables:
        for privilege, name in needs_of(table):
            columns[table.location, privilege].add(name)
    for each in chain.from_iterable(changes):
        columns[(each.schema, each.table), each.kind].add(each.column)
    grants = []
    for (location, privilege), names in sorted(columns.items(), key=itemgetter(0)):
        chosen = "" if "" in names else f" ({', '.join(map(identifier, sorted(names)))})"
        if privilege != "select":
            grants.append(f"grant {privilege}{chosen} on table {_name(location)} to")
    numbering = {sequence for _, sequence, _ in await sequences_of(description, tables)}
    # One query may give the column that another one lets the sequence number.
    for of_query in changes:
        numbering |= {sequence for sequence, _ in await sequences_behind(description, of_query)}
    journal = JOURNAL_GRANTS if grants and await description.connection.fetchval(JOURNAL) else ()
    return [*grants, *(f"grant usage on sequence {_name(each)} to" for each in sorted(numbering)), *journal]


def _creating(login: str, database: str, search_path: Sequence[str]) -> str:
    name, place = identifier(login), identifier(database)
    path = ", ".join(map(identifier, search_path)) or "''"
    return f"""\
-- The login, without a password. The script revokes earlier grants of an existing login. It fails if this
-- login owns something or can do more than read.
{_block(LOGIN, login, create=f"create role {name} login {NOTHING_MORE};")}
grant connect on database {place} to {name};
alter role {name} set default_transaction_read_only = on;
alter role {name} in database {place} set search_path = {path};"""


def _granting(login: str, set_role: str | None, schemas: Sequence[str], grants: Sequence[str]) -> str:
    name, reader = identifier(login), identifier(set_role or login)
    usage = [f"grant usage on schema {identifier(each)} to" for each in schemas]
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


def _left(logins: Sequence[str], set_role: str | None, database: str, schemas: Sequence[str]) -> str:
    """Return comments on what the operator must do."""
    public = [f"revoke temporary on database {identifier(database)} from public;"]
    public += [f"revoke create on schema {identifier(each)} from public;" for each in schemas]
    revokes = "\n".join(f"--     {_one_line(each)}" for each in public)
    passwords = "\n".join(f"-- - A password: \\password {_one_line(identifier(each))}" for each in logins)
    reader, login = (_one_line(identifier(each)) for each in (set_role or logins[0], logins[0]))
    return f"""\
-- Left to you:
{passwords}
-- - A bound for temporary files, as a superuser: alter role {login} set temp_file_limit = '1GB';
-- - Every login has these privileges, including this one. Unless others need them:
{revokes}
-- - Row-level security: on tables that have it, {reader} sees no row without a policy for it.
-- - `dbtools check` with the URL of the login says what it still lacks."""


def _left_to_writer(grants: Sequence[str]) -> str:
    """Return further comments if there are *grants* for writes."""
    return f"{TRIGGERS}{'' if JOURNAL_GRANTS[0] in grants else NO_JOURNAL}" if grants else ""


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
