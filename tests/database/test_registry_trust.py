"""Objects of other users are neither read as a registry, nor run when a registry is upgraded."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest
import sqlalchemy as sa

from dbtools import errors
from dbtools.alembic import upgrade
from dbtools.backends.postgresql.reading.runner import open_engine
from dbtools.records.registry import add, read_entries
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

REGISTRY = """
create table secret (s text);
insert into secret values ('sekret');
create schema dbtools;
create table dbtools.dbtools_query (
  name text, version integer, text text, enabled boolean, changed_at timestamptz
);
insert into dbtools.dbtools_query
values ('evil', 1, '-- name: evil' || chr(10) || 'select s from secret', true, now());
"""
#: What counts, also where it is undone.
PWN = """
create sequence public.pwned;
grant all on sequence public.pwned to public;
create function public.pwn() returns integer language sql as 'select nextval(''public.pwned'')::integer';
create function public.pwn(text) returns text language sql immutable
as 'select case when public.pwn() > 0 then $1 end';
create domain public.pwning as varchar(32) check (public.pwn(value) is not null);
"""
VERSIONS = "create table public.dbtools_version (version_num varchar(32) not null primary key)"
CODE = {
    "check": "alter table {} add check (public.pwn(version_num) is not null)",
    "xml": "alter table {} add check (query_to_xml('select public.pwn()', true, true, '') is not null)",
    "default": "alter table {} add more integer default public.pwn()",
    "generated": "alter table {} add more text generated always as (public.pwn(version_num)) stored",
    "expression": "create index on {} (public.pwn(version_num))",
    "predicate": "create index on {} (version_num) where public.pwn(version_num) is not null",
    "domain": "alter table {} alter version_num type public.pwning",
    "policy": "alter table {} enable row level security",
    "child": "create table public.child () inherits ({})",
}
Roles = Callable[..., AbstractContextManager[tuple[str, ...]]]


@pytest.fixture
def roles(postgresql_url: str, postgresql_server: PostgresqlServer) -> Roles:
    """Return a factory: attributes of roles in, their names out."""

    @contextmanager
    def roles(*attributes: str) -> Iterator[tuple[str, ...]]:
        names = tuple(f"dbtools_test_{secrets.token_hex(4)}" for _ in attributes)
        for name, each in zip(names, attributes, strict=True):
            postgresql_server.execute(f"create role {name} {each}", url=postgresql_server.url)
        try:
            yield names
        finally:
            gone = "reassign owned by {0} to current_user; drop owned by {0}; drop role {0}"
            postgresql_server.execute("; ".join(map(gone.format, names)), url=postgresql_url)

    return roles


def _as(url: str, login: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{login}@{parts.netloc.rpartition('@')[2]}").geturl()


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _value(url: str, query: str) -> object:
    async def value() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return anyio.run(value)


@pytest.mark.parametrize("whose", ["table dbtools.dbtools_query", "schema dbtools"])
def test_registry_of_a_stranger_is_not_read_by_a_superuser(
    whose: str, postgresql_url: str, postgresql_server: PostgresqlServer, roles: Roles
) -> None:
    with roles("nologin") as (evil,):
        postgresql_server.execute(f"{REGISTRY}; alter {whose} owner to {evil}", url=postgresql_url)
        called = run("call", postgresql_url, "evil")
        with pytest.raises(errors.DatabaseUnavailable, match="The registry is not read"):
            anyio.run(read_entries, postgresql_url)

    assert called.exit_code == 2
    assert "sekret" not in called.stdout


def test_call_log_of_a_stranger_is_not_read_by_a_superuser(
    postgresql_url: str, postgresql_server: PostgresqlServer, roles: Roles, tmp_path: Path
) -> None:
    path = tmp_path / "dbtools.toml"
    url = f'url = "{postgresql_url}"\n'
    path.write_text(f"[database]\n{url}[registry]\n{url}[log]\nregistry = true\n")
    assert run("registry", "upgrade", postgresql_url).exit_code == 0
    with roles("nologin") as (evil,):
        postgresql_server.execute(f"alter table dbtools.dbtools_call owner to {evil}", url=postgresql_url)
        result = run("log", str(path))

    assert (result.exit_code, result.stdout) == (2, "")
    assert "The registry is not read" in result.stderr


def test_registry_of_a_role_is_read_by_its_members_and_of_the_owner_by_all(
    postgresql_url: str, postgresql_server: PostgresqlServer, roles: Roles
) -> None:
    with roles("nologin", "nologin", "login superuser", "login superuser") as (team, inner, member, other):
        joined = f"grant {team} to {inner}; grant {inner} to {member}"
        postgresql_server.execute(
            f"{REGISTRY}; {joined}; alter schema dbtools owner to {team}; "
            f"alter table dbtools.dbtools_query owner to {team}",
            url=postgresql_url,
        )
        mine = anyio.run(read_entries, _as(postgresql_url, member))
        with pytest.raises(errors.DatabaseUnavailable, match="The registry is not read"):
            anyio.run(read_entries, _as(postgresql_url, other))
        name = _name(postgresql_url)
        postgresql_server.execute(f"alter database {name} owner to {team}", url=postgresql_url)
        owners = anyio.run(read_entries, _as(postgresql_url, other))
        postgresql_server.execute(f"alter database {name} owner to current_user", url=postgresql_url)

    assert owners == mine
    assert list(mine) == ["evil"]


def test_member_that_does_not_inherit_does_not_trust(
    postgresql_url: str, postgresql_server: PostgresqlServer, roles: Roles
) -> None:
    with roles("nologin", "login noinherit") as (evil, login):
        owned = f"alter table dbtools.dbtools_query owner to {evil}"
        granted = (
            f"grant usage on schema dbtools to {login}; grant select on dbtools.dbtools_query to {login}"
        )
        postgresql_server.execute(
            f"{REGISTRY}; grant {evil} to {login}; {owned}; {granted}", url=postgresql_url
        )
        with pytest.raises(errors.DatabaseUnavailable, match="The registry is not read"):
            anyio.run(read_entries, _as(postgresql_url, login))


@pytest.mark.parametrize("ddl", CODE.values(), ids=CODE.keys())
@pytest.mark.parametrize("owns", [False, True], ids=["stranger", "owner"])
def test_upgrade_by_a_superuser_runs_no_code_of_others(
    ddl: str, owns: bool, postgresql_url: str, postgresql_server: PostgresqlServer, roles: Roles
) -> None:
    with roles("nologin") as (evil,):
        name = _name(postgresql_url)
        owned = f"alter table public.dbtools_version owner to {evil}"
        made = f"{PWN}; {VERSIONS}; {ddl.format('public.dbtools_version')}; {owned}"
        postgresql_server.execute(made, url=postgresql_url)
        if owns:
            postgresql_server.execute(f"alter database {name} owner to {evil}", url=postgresql_url)
        result = run("registry", "upgrade", postgresql_url)
        ran = _value(postgresql_url, "select is_called from public.pwned")
        postgresql_server.execute(f"alter database {name} owner to current_user", url=postgresql_url)

    assert result.exit_code == 2
    assert ("code that would run" if owns else "an untrusted role owns") in result.stderr
    assert ran is False


CALLS = "create table dbtools.dbtools_call (id integer)"


@pytest.mark.parametrize(
    "ddl",
    [
        pytest.param(f"{CALLS}; alter table dbtools.dbtools_call add check (public.pwn() > 0)", id="check"),
        pytest.param("create view dbtools.dbtools_call as select public.pwn()", id="view"),
        pytest.param("create table dbtools.notes (id integer default public.pwn())", id="default"),
    ],
)
def test_code_of_the_owner_in_the_schema_is_not_met_by_a_superuser(
    ddl: str, postgresql_url: str, postgresql_server: PostgresqlServer, roles: Roles
) -> None:
    with roles("login") as (owner,):
        name = _name(postgresql_url)
        postgresql_server.execute(f"alter database {name} owner to {owner}; {PWN}", url=postgresql_url)
        postgresql_server.execute(f"create schema dbtools; {ddl}", url=_as(postgresql_url, owner))
        result = run("registry", "upgrade", postgresql_url)
        postgresql_server.execute(f"alter database {name} owner to current_user", url=postgresql_url)

    assert result.exit_code == 2
    assert "code that would run" in result.stderr


def test_registry_that_the_owner_has_upgraded_may_be_upgraded_by_a_superuser(
    postgresql_url: str, postgresql_server: PostgresqlServer, roles: Roles
) -> None:
    with roles("login") as (owner,):
        name = _name(postgresql_url)
        postgresql_server.execute(f"alter database {name} owner to {owner}", url=postgresql_url)
        upgrade(_as(postgresql_url, owner))
        upgrade(postgresql_url)
        anyio.run(add, postgresql_url, {"one": "-- name: one\nselect 1 as one"})
        entries = anyio.run(read_entries, _as(postgresql_url, owner))
        postgresql_server.execute(f"alter database {name} owner to current_user", url=postgresql_url)

    assert list(entries) == ["one"]


async def test_statements_of_an_upgrade_end_in_time(postgresql_url: str) -> None:
    engine = open_engine(postgresql_url)
    shown = "select current_setting('statement_timeout'), current_setting('lock_timeout')"

    async with engine.connect() as connection:
        timeouts = (await connection.execute(sa.text(shown))).one()
    await engine.dispose()

    assert tuple(timeouts) == ("1min", "5003ms")
