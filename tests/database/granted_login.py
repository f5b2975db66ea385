"""A login that the script of `dbtools grants` has created."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.database.postgresql_catalog import connected
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

DDL = """
create schema app;
create schema types;
create type types.mood as enum ('sad', 'ok');
create function types.is_seen(text) returns boolean language sql stable set search_path = pg_catalog
    as 'select $1 is not null';
create table regions (id integer primary key, name text not null, budget integer);
create table customers (
    id integer primary key, name text not null, email text, phone text, ssn text, tenant text,
    region_id integer references regions (id), mood types.mood
);
create table app.orders (
    id integer primary key, customer_id integer references customers (id), total integer, margin integer
);
create table secret (id integer primary key, value text);
create table permits (customer_id integer, who text, reason text);
create view big as select id, total from app.orders where total > 10;
insert into regions values (1, 'north', 5), (2, 'south', 6);
insert into customers values
    (1, 'Ann', 'ann@example.org', '1', 's1', 'a', 1, 'ok'),
    (2, 'Bob', 'bob@example.org', '2', 's2', 'b', 2, 'sad');
insert into app.orders values (1, 1, 10, 1), (2, 2, 20, 2), (3, 1, 30, 3);
insert into secret values (1, 'x');
insert into permits values (1, 'eve', 'why not');
"""
ROLES = """
[policy]
hash_key = "a key of more than sixteen characters"
[tables.secret]
description = "never shown"
[roles.support]
tables."*" = false
tables.secret = false
tables.regions = { columns = ["id", "name"] }
tables.orders = { exclude = ["margin"] }
tables.big = true
[roles.support.tables.customers]
exclude = ["ssn"]
where = \"\"\"tenant = :claims.tenant and exists (
    select 1 from permits p where p.customer_id = customers.id and p.who = :claims.who)\"\"\"
mask = { email = "hash", phone = "redact" }
[roles.boss]
tables."*" = true
tables.big = true
tables.secret = false
tables.permits = { where = "who <> 'nobody'" }
"""
SUPPORT = {
    "public.regions": {"id", "name"},
    "app.orders": {"id", "customer_id", "total"},
    "public.big": {"id", "total"},
    "public.customers": {"id", "name", "email", "tenant", "region_id", "mood"},
    "public.permits": {"customer_id", "who"},
}
SELECTABLE = """
select n.nspname || '.' || c.relname as place, a.attname as column
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
join pg_attribute as a on a.attrelid = c.oid
where c.relkind in ('r', 'p', 'v', 'm', 'f')
    and n.nspname !~ '^pg_|^information_schema$'
    and a.attnum > 0
    and has_schema_privilege(n.oid, 'usage')
    and has_column_privilege(c.oid, a.attnum, 'select')
"""
Places = dict[str, set[str]]


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A database, a configuration of it, and the name of a login that is dropped in the end."""

    server: PostgresqlServer
    url: str
    login: str
    path: Path

    def configured(self, roles: str, url: str = "") -> str:
        """Write a configuration with *roles* and return where."""
        self.path.write_text(f'[database]\nurl = "{url or self.url}"\n{roles}')
        return str(self.path)

    def script(self, roles: str, *names: str) -> str:
        """Return the script for the roles *names*, by default support."""
        words = [word for name in names or ("support",) for word in ("--role", name)]
        result = run("grants", self.configured(roles), *words, "--login", self.login)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def execute(self, statements: str) -> None:
        """Run *statements* as a superuser."""
        self.server.execute(statements, url=self.url)

    @property
    def own_url(self) -> str:
        """The URL with the login that the script makes."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=f"{self.login}@{parts.netloc.rpartition('@')[2]}").geturl()

    def selectable(self, *, after: str = "select") -> Places:
        """Return the columns that the login may select, once it has run *after*."""
        return self.server.portal.call(selectable, self.own_url, after)


async def selectable(url: str, after: str) -> Places:
    async with connected(url) as connection:
        await connection.execute(after)
        rows = await connection.fetch(SELECTABLE)
    places: Places = {}
    for row in rows:
        places.setdefault(row["place"], set()).add(row["column"])
    return places


@pytest.fixture
def shop(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shop]:
    for name in ("DBTOOLS_ROLE", "DBTOOLS_CLAIMS"):
        monkeypatch.delenv(name, raising=False)
    login = f"dbtools_test_{secrets.token_hex(8)}"
    with postgresql_database(f"{DDL} revoke create on schema public from public") as url:
        shop = Shop(server=postgresql_server, url=url, login=login, path=tmp_path / "shop.toml")
        try:
            yield shop
        finally:
            shop.execute(
                f"do $$ begin if exists (select from pg_roles where rolname = '{login}') then "
                f"drop owned by {login}; drop role {login}; end if; end $$"
            )


CLAIMS = ("--claim", "tenant=a", "--claim", "who=eve")


ONE_FILTER = """
[roles.support]
tables.regions = {{ columns = ["id"], where = {where} }}
"""
