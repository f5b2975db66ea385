"""The migrations of the registry: up, down and again, beside tables of others."""

import re
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

import anyio
import pytest
from alembic import command
from alembic.script import ScriptDirectory

from dbtools.alembic import upgrade
from dbtools.backends.records import REVISION
from dbtools.records.registry import read_entries
from tests.database.registries import (
    Place,
    PostgresqlDatabase,
    PostgresqlPlace,
    config_of,
    place as place,
    registry as registry,
)
from tests.database.shop import catalog_of
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run
from tests.unit.log_sinks import ENTRY


def test_upgrade_downgrade_and_upgrade_again_end_the_same(place: Place) -> None:
    config = config_of(place.url)

    command.upgrade(config, "registry@head")
    first = place.structure()
    command.downgrade(config, "registry@base")
    empty = place.structure()
    command.upgrade(config, "registry@head")

    assert place.structure() == first
    assert not [row for row in empty if re.search("dbtools_(query|call|write)", str(row))]
    assert place.rows("select version_num from dbtools_version") == [(REVISION,)]


def test_all_branches_go_down_to_the_base_and_up_again(place: Place) -> None:
    config = config_of(place.url)

    command.upgrade(config, "heads")
    first = place.structure()
    command.downgrade(config, "base")
    command.upgrade(config, "heads")

    assert place.structure() == first


def test_history_of_the_owner_stays_as_it_was(place: Place) -> None:
    upgrade(place.url)
    upgraded = place.rows("select version_num from alembic_version")
    command.downgrade(config_of(place.url), "registry@base")

    assert upgraded == place.rows("select version_num from alembic_version") == [("abc123",)]
    assert place.rows("select id, name from thing order by id") == [(1, "one"), (2, "two")]


def test_upgrade_may_be_repeated(registry: Place) -> None:
    before = registry.structure()

    upgrade(registry.url)

    assert registry.structure() == before


def test_release_needs_the_only_revision() -> None:
    scripts = ScriptDirectory.from_config(config_of("")).walk_revisions("base", "registry@head")

    assert [script.revision for script in scripts] == [REVISION]


def test_registry_of_the_sample_may_be_upgraded(place: Place) -> None:
    command.upgrade(config_of(place.url), "heads")

    upgrade(place.url)

    assert len(anyio.run(read_entries, place.url)) == 4


def test_search_path_that_leads_to_the_schema_puts_no_table_there(
    postgresql_database: PostgresqlDatabase,
) -> None:
    with postgresql_database("select") as url:
        own = PostgresqlPlace(url)
        own.rows("do $$ begin execute format('alter database %I set search_path = dbtools, public', "
                 "current_database()); end $$")  # fmt: skip
        command.upgrade(config_of(url), "heads")

        found = own.rows("select relname::text from pg_class where relnamespace = 'dbtools'::regnamespace "
                         "and relkind = 'r' order by 1")  # fmt: skip
        assert found == [("dbtools_call",), ("dbtools_query",), ("dbtools_write",)]


def test_table_of_calls_has_a_column_for_each_key_of_the_log(registry: Place) -> None:
    columns = registry.rows(f"select * from {registry.table.replace('query', 'call')}")
    names = [str(row) for row in registry.structure()]

    assert columns == []
    # The ID of a request is written only if the database gets it, and never to a registry.
    for key in set(ENTRY.content(arguments=False)) - {"request"}:
        assert any(key in name for name in names), key


def test_catalog_has_no_table_of_dbtools(registry: Place) -> None:
    async def names() -> Sequence[str]:
        return [table.name for table in (await catalog_of(registry.url)).tables]

    assert anyio.run(names) == ["thing"]


HOSTILE_VERSIONS = {
    "owner": "alter table public.dbtools_version owner to {evil}",
    "schema": "create schema dbtools authorization {evil}",
}


@pytest.mark.parametrize("ddl", HOSTILE_VERSIONS.values(), ids=HOSTILE_VERSIONS.keys())
def test_tables_of_another_owner_are_not_upgraded(
    ddl: str, postgresql_url: str, postgresql_server: PostgresqlServer
) -> None:
    evil = f"evil_{secrets.token_hex(4)}"
    postgresql_server.execute(f"create role {evil}", url=postgresql_server.url)
    try:
        made = "create table public.dbtools_version (version_num varchar(64) primary key)"
        postgresql_server.execute(f"{made}; {ddl.format(evil=evil)}", url=postgresql_url)
        login = f"login_{secrets.token_hex(4)}"
        owner = f"create role {login} login; grant create on database {_name(postgresql_url)} to {login}"
        granted = f"{owner}; grant all on schema public to {login}"
        postgresql_server.execute(granted, url=postgresql_url)
        url = urlsplit(postgresql_url)
        own = url._replace(netloc=f"{login}@{url.hostname}:{url.port}").geturl()
        result = run("registry", "upgrade", own)
        postgresql_server.execute(f"drop owned by {login}; drop role {login}", url=postgresql_url)
    finally:
        postgresql_server.execute(f"drop owned by {evil}; drop role {evil}", url=postgresql_url)

    assert result.exit_code == 2
    assert "an untrusted role owns" in result.stderr


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def test_version_table_of_another_owner_is_not_read(
    postgresql_url: str, postgresql_server: PostgresqlServer
) -> None:
    assert run("registry", "upgrade", postgresql_url).exit_code == 0
    evil = f"evil_{secrets.token_hex(4)}"
    ddl = f"""
    create role {evil};
    create schema {evil} authorization {evil};
    create table {evil}.dbtools_version (version_num varchar(64));
    insert into {evil}.dbtools_version values ('registry_9');
    alter table {evil}.dbtools_version owner to {evil};
    """
    postgresql_server.execute(ddl, url=postgresql_url)
    try:
        result = run("query", "list", postgresql_url)
    finally:
        postgresql_server.execute(f"drop owned by {evil}; drop role {evil}", url=postgresql_url)

    assert result.exit_code == 0
