"""The script of a login that can read what roles read. Roles and their catalog in, SQL for psql out.

People who create tables choose their names: statements quote them, and comments keep them on one line. The
script is one transaction, so a script that fails changes nothing.
"""

import re
import textwrap
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dbtools import errors
from dbtools.backends.plans import identifier
from dbtools.backends.port import Reads
from dbtools.backends.postgresql.inspection import Description
from dbtools.backends.postgresql.syntax import names_before
from dbtools.catalog import Catalog, Location, Table
from dbtools.errors import listing
from dbtools.policy import BLANK, Role, restrict
from dbtools.types import ColumnType, quoted

SET_ROLE, NO_ROLE = "role", "none"  #: a setting, and its value for the login itself
LONGEST_NAME = 63  #: bytes; the server cuts what is longer
WIDTH = 100  #: characters of a comment
NOTHING_MORE = "nosuperuser nocreatedb nocreaterole noreplication nobypassrls"

#: The views that check the privileges of their reader, and the relations with row security.
SPECIAL = """
select n.nspname::text as schema, c.relname::text as name, c.relkind = 'v' as invoker
from pg_catalog.pg_class as c
join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
where c.relrowsecurity
    or c.relkind = 'v' and exists (
        select
        from pg_catalog.pg_options_to_table(c.reloptions) as o
        where o.option_name = 'security_invoker' and o.option_value::pg_catalog.bool
    )
order by n.nspname, c.relname
"""
SCHEMAS = """
select n.nspname::text as name
from pg_catalog.pg_namespace as n
where n.nspname::text = any($1::pg_catalog.text[])
order by n.nspname
"""
LOGIN = """\
declare
    earlier text;
begin
    if not exists (select from pg_catalog.pg_roles where oid = {role}) then
        {create};
    elsif exists (
        select from pg_catalog.pg_roles as r where oid = {role} and (
            rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls
            or exists (select from pg_catalog.pg_shdepend where refobjid = r.oid and deptype = 'o')
        )
    ) then
        raise exception 'role % already exists, and owns something or can do more than read', {role};
    end if;
    -- What it was granted before.
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
READER = """\
begin
    if not exists (select from pg_catalog.pg_roles where oid = {role}) then
        {create}
    end if;
end"""


async def write_script(
    description: Description, catalog: Catalog, roles: Sequence[Role], reads: Reads, login: str
) -> str:
    """Return the script for a *login* that reads what *roles* and their queries read."""
    if not login or "\0" in login or len(login.encode()) > LONGEST_NAME:
        message = f"The name of a login has at most {LONGEST_NAME} bytes."
        raise errors.ConfigurationError(message, hint="--login NAME gives it one.")
    set_role = _set_role(roles, login)
    tables = [(role, table) for role in roles for table in restrict(catalog, role).tables]
    read = {*reads}
    for _, table in tables:
        read.update((*table.location, column) for column in ("", *_columns(table)))
        read.update(await _reads_of_filter(description, table))
    connection = description.connection
    special = await connection.fetch(SPECIAL)
    _add_reads_of_views(catalog, read, {(row["schema"], row["name"]) for row in special if row["invoker"]})
    named = {*catalog.search_path, *(schema for schema, *_ in read), *_schemas_named(tables)}
    schemas = await connection.fetch(SCHEMAS, [each for each in named if not _is_system(each)])
    locations = {(schema, name) for schema, name, _ in read if not _is_system(schema)}
    secured = [(row["schema"], row["name"]) for row in special if not row["invoker"]]
    return _Script(
        roles=tuple(role.name for role in roles),
        login=login,
        set_role=set_role,
        database=await connection.fetchval("select pg_catalog.current_database()"),
        search_path=catalog.search_path,
        schemas=tuple(row["name"] for row in schemas),
        grants=_grants(
            catalog, read, {table.location for role, table in tables if _is_whole(catalog, role, table)}
        ),
        secured=[each for each in secured if each in locations],
    ).text()


def _set_role(roles: Sequence[Role], login: str) -> str | None:
    """Return the role of the database that *login* becomes for the statements of *roles*, if any."""
    named = set()
    for role in roles:
        settings = [each for each in role.session if each.name.lower() == SET_ROLE]
        if any(each.claim is not None for each in settings):
            message = f"role {role.name}: a claim names the role of the database, so its grants are unknown."
            raise errors.ConfigurationError(message, hint="set_role names one.")
        named.add(next((each.value for each in settings if each.value not in (NO_ROLE, login)), None))
    if len(named) > 1:
        message = (
            f"Statements of {listing(role.name for role in roles)} run as different roles of the database."
        )
        raise errors.ConfigurationError(message, hint="Write a script for each.")
    return named.pop()


def _columns(table: Table) -> Collection[str]:
    """Return the columns of *table* that statements read."""
    return [column.name for column in table.columns if column.type.mask not in BLANK]


async def _reads_of_filter(description: Description, table: Table) -> Reads:
    """Return what the filter of *table* reads, subqueries included."""
    if table.filter is None:
        return set()
    start = f"select 1 as one from {_name(table.location)} where ("
    found = await description.query([start, *table.filter.condition.pieces, "\n)"], {})
    if found.reads is None:
        raise errors.ConfigurationError(
            "dbtools finds what row filters read with temporary views, and this login may not create them.",
            hint="--url names the database by a login that may: `grant temporary on database` permits it.",
        )
    return found.reads


def _add_reads_of_views(catalog: Catalog, read: set[tuple[str, str, str]], views: set[Location]) -> None:
    """Add to *read* what those *views* among it read, which check the privileges of their reader."""
    while True:
        tables = [catalog.table(*location) for location in {place[:2] for place in read} & views]
        more = {place for table in tables if table and table.reads for place in table.reads.columns} - read
        if not more:
            return
        read |= more


def _schemas_named(tables: Iterable[tuple[Role, Table]]) -> Iterator[str]:
    """Yield the names that qualify others in the row filters and in the types of *tables*."""
    for _, table in tables:
        if table.filter is not None:
            yield from (name for name, _ in names_before(".", table.filter.condition.text))
        for column in table.columns:
            yield from (name for cast in _casts(column.type) for name, _ in names_before(".", cast))


def _casts(type: ColumnType) -> Iterator[str]:
    yield type.cast
    for part in (*filter(None, [type.element]), *(field for _, field in type.fields)):
        yield from _casts(part)


def _is_system(schema: str) -> bool:
    return schema.startswith("pg_") or schema == "information_schema"


def _is_whole(catalog: Catalog, role: Role, table: Table) -> bool:
    """Return whether *role* will read a column that *table* gets later as well."""
    whole = catalog.table(*table.location)
    rule = role.rule_of(catalog, whole) if whole is not None else None
    if whole is None or rule is None or rule.grant is None:
        return role.rules is None
    return rule.grant.columns is None and {*_columns(table)} == whole.column_by_name.keys()


def _grants(catalog: Catalog, read: Reads, whole: Collection[Location]) -> Sequence[str]:
    """Return the starts of the statements that grant what is *read*."""
    columns: defaultdict[Location, set[str]] = defaultdict(set)
    for schema, name, column in read:
        columns[schema, name].update({column} - {""})
    grants = []
    for location, names in sorted(columns.items()):
        table = catalog.table(*location)
        known = list(table.column_by_name) if table is not None else sorted(names)
        # Where rows are only counted, one column must be open all the same.
        listed = [each for each in known if each in names] or known[:1]
        if listed and not _is_system(location[0]):
            chosen = "" if location in whole else f" ({', '.join(map(identifier, listed))})"
            grants.append(f"grant select{chosen} on table {_name(location)}")
    return grants


@dataclass(frozen=True, kw_only=True)
class _Script:
    """What the script is made of."""

    roles: tuple[str, ...]  #: of the configuration
    login: str
    set_role: str | None  #: of the database, which the login becomes for each statement
    database: str
    search_path: tuple[str, ...]
    schemas: tuple[str, ...]
    grants: Sequence[str]  #: of what is read, without their grantee
    secured: Sequence[Location]  #: relations with row security

    def text(self) -> str:
        names = " and ".join(map(quoted, self.roles))
        named = f"the role {names}" if len(self.roles) == 1 else f"each of the roles {names}"
        opening = (
            f"A login that reads what {named} of dbtools reads, and no more. Run it with psql in the "
            f"database {quoted(self.database)}, as a role that may create roles and grant what is granted "
            "here. Print and run it again when the role or a table changes."
        )
        sections = (
            [*_comment(opening), "begin;"],
            self._login(),
            self._reading(),
            ["commit;"],
            [*_comment("Left to you:"), *self._left()],
        )
        return "\n\n".join("\n".join(section) for section in sections) + "\n"

    def _login(self) -> Sequence[str]:
        login, database = identifier(self.login), identifier(self.database)
        path = ", ".join(map(identifier, self.search_path)) or "''"
        reason = (
            "The login, without a password. One of this name that owns something, or is a superuser or the "
            "like, is refused. What it was granted before is revoked."
        )
        return [
            *_comment(reason),
            _block(LOGIN, login, create=f"create role {login} login {NOTHING_MORE}"),
            f"grant connect on database {database} to {login};",
            f"alter role {login} set default_transaction_read_only = on;",
            f"alter role {login} in database {database} set search_path = {path};",
        ]

    def _reading(self) -> Sequence[str]:
        login = identifier(self.login)
        reason = _comment("What is read: columns that are seen or hashed, and what row filters read.")
        if self.set_role is None:
            return [*reason, *self._usage(login), *(f"{grant} to {login};" for grant in self.grants)]
        reader = identifier(self.set_role)
        create = f"create role {reader} nologin {NOTHING_MORE};"
        grants = [create, *self._usage(reader), *(f"{grant} to {reader};" for grant in self.grants)]
        return [
            *_comment("The login looks up the names in row filters."),
            *self._usage(login),
            *_comment(
                "For each statement it becomes this role (set_role), which keeps its grants if it exists."
            ),
            _block(READER, reader, create="\n        ".join(grants)),
            f"alter role {login} noinherit;",
            f"grant {reader} to {login};",
        ]

    def _usage(self, grantee: str) -> Sequence[str]:
        return [f"grant usage on schema {identifier(each)} to {grantee};" for each in self.schemas]

    def _left(self) -> Iterator[str]:
        """Yield what is left to the operator: none of it is run."""
        yield from _item(f"A password: \\password {identifier(self.login)}")
        public = [f"revoke temporary on database {identifier(self.database)} from public;"]
        public += [f"revoke create on schema {identifier(each)} from public;" for each in self.schemas]
        yield from _item("What everybody may do, this login may too. Unless others need it:", public)
        if self.secured:
            sees = f"without a policy for {identifier(self.set_role or self.login)} it sees no row of"
            yield from _item(f"Row security: {sees} {', '.join(map(_name, self.secured))}.")
        yield from _item("`dbtools check` with the URL of the login says what it still lacks.")


def _block(template: str, role: str, *, create: str) -> str:
    """Return the statement that runs *template*, in quotes that it does not hold itself."""
    body, quotes = (
        template.format(role=f"pg_catalog.to_regrole({_literal(role)})", create=create),
        "$dbtools$",
    )
    while quotes in body:
        quotes = f"{quotes[:-1]}_$"
    return f"do {quotes}\n{body}\n{quotes};"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(location: Location) -> str:
    return ".".join(map(identifier, location))


def _comment(text: str) -> list[str]:
    return [f"-- {line}" for line in textwrap.wrap(_one_line(text), WIDTH)]


def _item(text: str, statements: Iterable[str] = ()) -> list[str]:
    first, *others = textwrap.wrap(_one_line(text), WIDTH)
    rest = (f"--     {_one_line(each)}" for each in statements)
    return [f"-- - {first}", *(f"--   {line}" for line in others), *rest]


def _one_line(text: str) -> str:
    """Return *text* without what could end a comment: psql would run the rest of a name as a statement."""
    return re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text)
