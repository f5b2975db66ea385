"""dbtools' own statements never use operators that another user has created in the search path."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from dbtools.alembic import upgrade
from dbtools.backends import open_backend, read_registry
from dbtools.backends.postgresql.reading.runner import open_engine
from dbtools.records.registry import add, change, read_entries
from dbtools.schema.catalog import Catalog
from tests.database.shop import catalog_of
from tests.protocol.command_line import run

REPOSITORY = Path(__file__).parents[2]
DDL = """
create type mood as enum ('sad', 'ok');
create domain short as varchar(5) check (length(value) > 1);
create table region (id integer primary key, name text not null unique);
create table person (
    id integer generated always as identity primary key,
    name text collate "C" default 'nobody',
    feeling mood default 'ok' check (feeling in ('sad', 'ok')),
    nick short,
    tags text[],
    region_id integer references region (id),
    twice integer generated always as (1 + 1) stored
);
comment on table person is 'People';
comment on column person.name is 'Whom one calls';
create index on person ((upper(nick::text)));
create table part (id integer, kind text, primary key (id, kind)) partition by list (kind);
create table part_a partition of part for values in ('a');
create table note (part integer, kind text, foreign key (part, kind) references part);
create view people as select id, name from person where id > 0;
create function mine(integer) returns boolean language sql stable set search_path = pg_catalog
    as 'select true';
"""
#: One for each pair of types that the system has none of that name for. No role may run their functions:
#: a statement fails before its first row.
OPERATORS = """
do $$
declare
    pair record;
begin
    for pair in
        with types (name) as (
            select *
            from pg_catalog.unnest(array[
                'bool', '"char"', 'name', 'int2', 'int4', 'int8', 'text', 'varchar', 'oid', 'xid',
                'regclass', 'regnamespace', 'regtype', 'regproc', 'regrole', 'float4', 'float8', 'numeric',
                'oid[]', 'int2[]', 'name[]', 'text[]', '"char"[]', 'int2vector', 'oidvector', 'timestamptz',
                'jsonb'
            ])
        )
        select l.name as l, r.name as r, row_number() over () as number
        from types as l
        cross join types as r
    loop
        execute pg_catalog.format(
            'create function public.evil_%s(%s, %s) returns %s language plpgsql as %L',
            pair.number, pair.l, pair.r, 'bool', 'begin raise exception ''hijacked''; end'
        );
        execute pg_catalog.format(
            'revoke execute on function public.evil_%s from public', pair.number
        );
    end loop;
    for pair in
        select
            p.proname,
            pg_catalog.format_type(p.proargtypes[0], null) as l,
            pg_catalog.format_type(p.proargtypes[1], null) as r,
            o.name as operator
        from pg_catalog.pg_proc as p
        cross join pg_catalog.unnest('{=,<>,<,<=,>,>=,||,+,-,~,~~}'::text[]) as o (name)
        where p.proname like 'evil%'
            and not exists (
                select
                from pg_catalog.pg_operator as e
                where e.oprname = o.name
                    and e.oprleft = p.proargtypes[0]
                    and e.oprright = p.proargtypes[1]
            )
    loop
        execute pg_catalog.format(
            'create operator public.%s (leftarg = %s, rightarg = %s, function = public.%I)',
            pair.operator, pair.l, pair.r, pair.proname
        );
    end loop;
end
$$;
"""
GRANTS = """
grant create on schema public to {};
grant usage on type mood to {};
grant select on all tables in schema public to {};
do $$
begin
    execute pg_catalog.format('grant create on database %I to {}', pg_catalog.current_database());
end
$$
"""
ONE = "-- name: one\n-- description: One.\nselect 1 as one\n"
REGION = '{"column": "region.name", "op": "eq", "value": "north"}'
Login = Callable[..., AbstractContextManager[str]]
PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]


@pytest.fixture
def hostile(postgresql_database: PostgresqlDatabase, postgresql_login: Login) -> Iterator[str]:
    """Yield the URL of a database with such operators, for a login that may not run them."""
    with postgresql_database(DDL + OPERATORS) as url, postgresql_login(url, GRANTS) as login:
        yield login


@pytest.fixture
def peaceful(postgresql_database: PostgresqlDatabase, postgresql_login: Login) -> Iterator[str]:
    with postgresql_database(DDL) as url, postgresql_login(url, GRANTS) as login:
        yield login


def _config(url: str) -> Config:
    config = Config(REPOSITORY / "alembic.ini")
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def _rows(url: str, query: str) -> Sequence[tuple[object, ...]]:
    async def rows() -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(url)
        try:
            return [tuple(record) for record in await connection.fetch(query)]
        finally:
            await connection.close()

    return anyio.run(rows)


async def _catalog(url: str) -> Catalog:
    return await catalog_of(url)


def test_operators_would_run_in_a_statement_that_fits_them(hostile: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="evil"):
        _rows(hostile, "select from pg_class where relnamespace <> 'public'::regnamespace")


def test_registry_is_made_and_changed_without_them(hostile: str) -> None:
    upgrade(hostile)
    upgrade(hostile)
    for text in (ONE, ONE.replace("One.", "1.")):
        anyio.run(add, hostile, {"one": text, "two": text.replace("one", "two")})
    anyio.run(change, hostile, "one", "disable")
    anyio.run(change, hostile, "one", "enable")
    anyio.run(change, hostile, "two", "remove")

    entries = anyio.run(read_entries, hostile)
    assert [(name, each.current.version) for name, each in entries.items()] == [("one", 2)]
    command.downgrade(_config(hostile), "registry@base")
    assert anyio.run(read_registry, hostile) is None


def test_catalog_is_read_without_them(hostile: str, peaceful: str) -> None:
    found, expected = anyio.run(_catalog, hostile), anyio.run(_catalog, peaceful)

    assert found.tables == expected.tables
    assert len(found.tables) == 5
    assert len(found.posture) == len(expected.posture) > 0


def test_changes_are_seen_without_them(hostile: str) -> None:
    async def looks() -> bool:
        backend = open_backend(hostile)
        try:
            same = await backend.stamp() == await backend.stamp()
            return same and await backend.registry() is None
        finally:
            await backend.close()

    assert anyio.run(looks)


def test_commands_work_without_them(hostile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.sql").write_text(ONE + ONE.replace("one", "two").replace("1 as", "count(*) from people --"))
    role = '[roles.reader]\ntables."*" = true\ntables.person = { where = "name <> \'x\' and mine(id)" }\n'
    Path("dbtools.toml").write_text(f'[database]\nurl = "{hostile}"\n{role}')
    upgrade(hostile)

    results = [
        run("query", "add", hostile, "one.sql"),
        run("query", "list", hostile),
        run("check", hostile),
        run("call", hostile, "one"),
        run("call", hostile, "list_region"),
        run("call", hostile, "list_person", f"where=[{REGION}]"),
        run("check", "dbtools.toml"),
        run("grants", "dbtools.toml", "--role", "reader", "--login", "reading"),
    ]

    assert [(each.exit_code, each.stderr, each.stdout) for each in results if each.exit_code] == []


def test_sample_goes_to_the_own_schema_and_the_history_stays_where_it_was(
    postgresql_database: PostgresqlDatabase,
) -> None:
    with postgresql_database("create schema own; create schema later") as url:
        name = urlsplit(url).path.removeprefix("/")
        _rows(url, f"alter database {name} set search_path = own, public")
        upgrade(url)
        _rows(url, f"alter database {name} set search_path = later, own, public")
        command.upgrade(_config(url), "heads")

        places = _rows(
            url,
            """
            select c.relname::text, n.nspname::text
            from pg_class as c
            join pg_namespace as n on n.oid = c.relnamespace
            where c.relname in ('dbtools_version', 'customers', 'product_reviews', 'dbtools_query')
            order by 1
            """,
        )

    assert places == [
        ("customers", "later"),
        ("dbtools_query", "dbtools"),
        ("dbtools_version", "own"),
        ("product_reviews", "later"),
    ]


async def test_connection_of_the_caller_gets_its_search_path_back(postgresql_url: str) -> None:
    config = _config(postgresql_url)
    engine = open_engine(postgresql_url)
    shown = sa.text("select current_setting('search_path')")

    def migrate(connection: sa.Connection) -> None:
        config.attributes["connection"] = connection
        command.upgrade(config, "registry@head")

    async with engine.begin() as connection:
        await connection.execute(sa.text("set search_path = public, information_schema"))
        await connection.run_sync(migrate)
        path = (await connection.execute(shown)).scalar_one()
    await engine.dispose()

    assert path == "public, information_schema"
    assert await read_entries(postgresql_url) == {}
