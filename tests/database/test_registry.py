"""The registry: its tables go up and down, and what is kept in them is served where it is trusted."""

import secrets
import socket
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import fields
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from dbtools import errors
from dbtools.alembic import upgrade
from dbtools.backends import read_registry
from dbtools.backends.records import LATEST
from dbtools.records import AuditEntry
from dbtools.records.registry import (
    add,
    change,
    entry_of,
    read_entries,
)
from dbtools.service.serving import open_toolbox
from dbtools.settings import Settings, load, settings_of
from tests.database.shop import catalog_of
from tests.postgresql_server import PostgresqlServer
from tests.protocol.test_command_line import run

REPOSITORY = Path(__file__).parents[2]
DDL = """
create table thing (id integer primary key, name text);
insert into thing values (1, 'one'), (2, 'two');
create table alembic_version (version_num varchar(32) primary key);
insert into alembic_version values ('abc123');
"""
THINGS = "-- name: things\n-- description: All things.\nselect id, name from thing order by id\n"
NAMES = "-- name: names\n-- description: Names.\nselect name from thing\n"
BROKEN = "-- name: broken\n-- description: Broken.\nselect nothing from thing\n"
PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]


class Place(Protocol):
    """A database, by its URL and by SQL."""

    url: str
    table: str  #: of the queries

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of *sql*, which may also change something."""

    def structure(self) -> list[tuple[object, ...]]:
        """Return all tables, columns and indexes."""


class SqlitePlace:
    """A file."""

    table = "dbtools_query"

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of *sql*."""
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(sql).fetchall()

    def structure(self) -> list[tuple[object, ...]]:
        """Return the text of all that there is."""
        return self.rows("select type, name, sql from sqlite_schema order by name")


class PostgresqlPlace:
    """A database of a server."""

    table = "dbtools.dbtools_query"

    def __init__(self, url: str) -> None:
        self.url = url

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        """Return the rows of *sql*."""
        return anyio.run(self._rows, sql)

    async def _rows(self, sql: str) -> list[tuple[object, ...]]:
        connection = await asyncpg.connect(self.url)
        try:
            return [tuple(record) for record in await connection.fetch(sql)]
        finally:
            await connection.close()

    def structure(self) -> list[tuple[object, ...]]:
        """Return all columns, indexes and schemas."""
        return self.rows(
            """
            select nspname::text, relname::text, attname::text, atttypid::regtype::text, attnotnull
            from pg_namespace
            left join pg_class on relnamespace = pg_namespace.oid
            left join pg_attribute on attrelid = pg_class.oid and attnum > 0
            where nspname in ('public', 'dbtools')
            order by 1, 2, 3
            """
        )


@pytest.fixture(params=["sqlite", "postgresql"])
def place(
    request: pytest.FixtureRequest,
    sqlite_database: Callable[[str], Path],
    postgresql_database: PostgresqlDatabase,
) -> Iterator[Place]:
    """Give a database with tables of its owner's, who has migrations of their own, on each dialect."""
    if request.param == "sqlite":
        yield SqlitePlace(sqlite_database(DDL))
    else:
        with postgresql_database(DDL) as url:
            yield PostgresqlPlace(url)


@pytest.fixture
def registry(place: Place) -> Place:
    """Give the same with an empty registry."""
    upgrade(place.url)
    return place


def _config(url: str) -> Config:
    config = Config(REPOSITORY / "alembic.ini")
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config


def test_upgrade_downgrade_and_upgrade_again_end_the_same(place: Place) -> None:
    config = _config(place.url)

    command.upgrade(config, "registry@head")
    first = place.structure()
    command.downgrade(config, "registry@base")
    empty = place.structure()
    command.upgrade(config, "registry@head")

    assert place.structure() == first
    assert not [row for row in empty if "dbtools_query" in str(row) or "dbtools_call" in str(row)]
    assert place.rows("select version_num from dbtools_version") == [(LATEST,)]


def test_all_branches_go_down_to_the_base_and_up_again(place: Place) -> None:
    config = _config(place.url)

    command.upgrade(config, "heads")
    first = place.structure()
    command.downgrade(config, "base")
    command.upgrade(config, "heads")

    assert place.structure() == first


def test_history_of_the_owner_stays_as_it_was(place: Place) -> None:
    upgrade(place.url)
    upgraded = place.rows("select version_num from alembic_version")
    command.downgrade(_config(place.url), "registry@base")

    assert upgraded == place.rows("select version_num from alembic_version") == [("abc123",)]
    assert place.rows("select id, name from thing order by id") == [(1, "one"), (2, "two")]


def test_upgrade_may_be_repeated(registry: Place) -> None:
    before = registry.structure()

    upgrade(registry.url)

    assert registry.structure() == before


def test_release_knows_the_latest_revision() -> None:
    heads = ScriptDirectory.from_config(_config("")).get_revisions("registry@head")

    assert [script.revision for script in heads] == [LATEST]


def test_registry_of_the_sample_may_be_upgraded(place: Place) -> None:
    command.upgrade(_config(place.url), "heads")

    upgrade(place.url)

    assert len(anyio.run(read_entries, place.url)) == 4


def test_search_path_that_leads_to_the_schema_puts_no_table_there(
    postgresql_database: PostgresqlDatabase,
) -> None:
    with postgresql_database("select") as url:
        own = PostgresqlPlace(url)
        own.rows("do $$ begin execute format('alter database %I set search_path = dbtools, public', "
                 "current_database()); end $$")  # fmt: skip
        command.upgrade(_config(url), "heads")

        found = own.rows("select relname::text from pg_class where relnamespace = 'dbtools'::regnamespace "
                         "and relkind = 'r' order by 1")  # fmt: skip
        assert found == [("dbtools_call",), ("dbtools_query",)]


def test_table_of_calls_has_a_column_for_each_key_of_the_log(registry: Place) -> None:
    columns = registry.rows(f"select * from {registry.table.replace('query', 'call')}")
    names = [str(row) for row in registry.structure()]

    assert columns == []
    # The id of a request is written only where the database is told it, and to no registry.
    for key in {each.name for each in fields(AuditEntry)} - {"vocabulary", "request"}:
        assert any(key in name for name in names), key


def test_catalog_has_no_table_of_dbtools(registry: Place) -> None:
    async def names() -> Sequence[str]:
        return [table.name for table in (await catalog_of(registry.url)).tables]

    assert anyio.run(names) == ["thing"]


def test_database_without_a_registry_has_none(place: Place) -> None:
    assert anyio.run(read_registry, place.url) is None
    with pytest.raises(errors.ConfigurationError, match="registry upgrade"):
        anyio.run(read_entries, place.url)


def test_version_before_is_kept_and_older_ones_go(registry: Place) -> None:
    texts = [THINGS.replace("All", each) for each in ("First", "Second", "Third")]
    for text in texts:
        anyio.run(add, registry.url, {"things": text})

    entry = anyio.run(entry_of, registry.url, "things")

    assert (entry.current.version, entry.current.text, entry.current.enabled) == (3, texts[2], True)
    assert entry.previous is not None
    assert (entry.previous.version, entry.previous.text) == (2, texts[1])
    assert registry.rows(f"select count(*) from {registry.table}") == [(2,)]


def test_same_text_is_no_new_version_and_is_enabled_again(registry: Place) -> None:
    for text in (THINGS.replace("All", "First"), THINGS, THINGS):
        anyio.run(add, registry.url, {"things": text})
    same = anyio.run(entry_of, registry.url, "things")
    anyio.run(change, registry.url, "things", "disable")
    disabled = anyio.run(entry_of, registry.url, "things")
    anyio.run(add, registry.url, {"things": THINGS})
    again = anyio.run(entry_of, registry.url, "things")

    assert (same.current.version, same.current.enabled) == (2, True)
    assert (disabled.current.version, disabled.current.enabled) == (2, False)
    assert (again.current.version, again.current.text, again.current.enabled) == (2, THINGS, True)
    assert again.previous is not None
    assert (again.previous.version, again.previous.text) == (1, THINGS.replace("All", "First"))


def test_disabled_one_is_not_served_until_it_is_enabled(registry: Place, tmp_path: Path) -> None:
    settings = settings_of(registry.url)
    anyio.run(add, registry.url, {"things": THINGS, "names": NAMES})

    anyio.run(change, registry.url, "names", "disable")
    without = _served(settings)
    anyio.run(change, registry.url, "names", "enable")

    assert without == (["things"], [])
    assert _served(settings) == (["names", "things"], [])


def _served(settings: Settings) -> tuple[list[str], list[str]]:
    """Return the names of the queries that are served, and what the operator is told."""

    async def view() -> tuple[list[str], list[str]]:
        toolbox, database = open_toolbox(settings)
        snapshot = await toolbox.snapshot()
        await database.close()
        found = next(iter(snapshot.views.values()))
        told = [each for each in found.warnings if "`dbtools grants`" not in each]
        return [query.name for query in found.setting.queries], told

    return anyio.run(view)


def test_removed_one_is_gone_with_its_versions(registry: Place) -> None:
    anyio.run(add, registry.url, {"things": THINGS})
    anyio.run(add, registry.url, {"things": THINGS.replace("All", "The")})

    anyio.run(change, registry.url, "things", "remove")

    assert registry.rows(f"select count(*) from {registry.table}") == [(0,)]
    for verb in ("remove", "enable", "disable"):
        with pytest.raises(errors.ConfigurationError, match="no query 'things'"):
            anyio.run(change, registry.url, "things", verb)


def test_registry_of_a_later_release_is_refused(registry: Place, tmp_path: Path) -> None:
    registry.rows("insert into dbtools_version values ('registry_0999')")

    with pytest.raises(errors.ConfigurationError, match="newer version, 'registry_0999'"):
        anyio.run(read_entries, registry.url)
    with pytest.raises(errors.ConfigurationError, match="cannot be upgraded"):
        upgrade(registry.url)
    queries, told = _served(settings_of(registry.url))
    assert queries == []
    assert "error: registry: The registry is of a newer version" in told[0]


def test_broken_query_is_withdrawn_with_its_place_and_the_rest_is_served(
    registry: Place, tmp_path: Path
) -> None:
    anyio.run(add, registry.url, {"things": THINGS, "broken": BROKEN, "headless": "-- title x\nselect 1"})

    queries, told = _served(settings_of(registry.url))

    assert queries == ["things"]
    assert [each.partition(": ")[0] for each in told] == [
        "registry/broken:3",
        "registry/headless:1",
    ]
    assert "query broken is withdrawn" in told[0]


def test_text_of_another_name_is_not_served(registry: Place, tmp_path: Path) -> None:
    anyio.run(add, registry.url, {"secret": THINGS})

    queries, told = _served(settings_of(registry.url))

    assert queries == []
    assert told == [
        "registry/secret:1: error: query 'secret': the registry has other queries under this name."
    ]


def _configured(folder: Path, text: str) -> Settings:
    (folder / "dbtools.toml").write_text(text)
    return load(folder / "dbtools.toml")


def test_files_win_over_the_registry(registry: Place, tmp_path: Path) -> None:
    anyio.run(add, registry.url, {"things": THINGS, "names": NAMES})
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "things.sql").write_text("select 1 as one")
    text = f'[database]\nurl = "{registry.url}"\n[queries]\ndirectory = "queries"\n'

    queries, told = _served(_configured(tmp_path, text))

    assert queries == ["names", "things"]
    problem = "it is not served: the name is already used at queries/things.sql:1."
    assert told == [f"registry/things:1: warning: query things: {problem}"]


def test_file_that_cannot_be_used_still_wins(registry: Place, tmp_path: Path) -> None:
    anyio.run(add, registry.url, {"things": THINGS, "names": NAMES})
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "things.sql").write_text("-- bogus: x\nselect 1 as one")
    (tmp_path / "queries" / "names.sql").write_bytes(b"select '\xe9' as e")
    text = f'[database]\nurl = "{registry.url}"\n[queries]\ndirectory = "queries"\n'

    queries, told = _served(_configured(tmp_path, text))

    assert queries == []
    assert [each.partition(": ")[0] for each in told] == [
        *("queries/names.sql:1", "queries/things.sql:1", "registry/names:1", "registry/things:1"),
    ]


ROLE = '[roles.reader]\ntables."*" = true\nqueries = ["*"]\n'


def test_registry_that_is_not_named_is_not_trusted_where_there_are_roles(
    registry: Place, tmp_path: Path
) -> None:
    anyio.run(add, registry.url, {"things": THINGS})
    database = f'[database]\nurl = "{registry.url}"\n'

    found = _served(_configured(tmp_path, database + ROLE))
    named = _served(_configured(tmp_path, f'{database}[registry]\nurl = "{registry.url}"\n{ROLE}'))

    assert found == ([], [])
    assert named == (["things"], [])


def test_registry_that_is_not_named_does_not_count_where_tables_are_left_out(
    registry: Place, tmp_path: Path
) -> None:
    anyio.run(add, registry.url, {"things": THINGS})
    database = f'[database]\nurl = "{registry.url}"\nexclude = ["thing"]\n'

    found = _served(_configured(tmp_path, database))
    named = _served(_configured(tmp_path, f'{database}[registry]\nurl = "{registry.url}"\n'))

    assert found == ([], [])
    assert named == (["things"], [])


def test_registry_may_be_in_another_database(place: Place, tmp_path: Path) -> None:
    upgrade(f"sqlite:///{tmp_path / 'registry.db'}")
    anyio.run(add, f"sqlite:///{tmp_path / 'registry.db'}", {"things": THINGS})

    found = _served(
        _configured(tmp_path, f'[database]\nurl = "{place.url}"\n[registry]\nurl = "registry.db"\n')
    )

    assert found == (["things"], [])


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("missing.db", "does not exist", id="missing"),
        pytest.param("postgresql://somebody:sekret@127.0.0.1:1/shop", "cannot be reached", id="unreachable"),
    ],
)
def test_registry_that_cannot_be_reached_keeps_nothing_else_from_being_served(
    place: Place, tmp_path: Path, url: str, said: str
) -> None:
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / "things.sql").write_text(THINGS)
    text = f'[database]\nurl = "{place.url}"\n[queries]\ndirectory = "queries"\n[registry]\nurl = "{url}"\n'

    queries, told = _served(_configured(tmp_path, text))

    assert queries == ["things"]
    assert len(told) == 1
    assert told[0].startswith("dbtools.toml:6: error: [registry] url: ")
    assert said in told[0]


def test_registry_that_does_not_answer_holds_nothing_up_for_long(place: Place, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://somebody@127.0.0.1:{silent.getsockname()[1]}/shop"
        text = f'[database]\nurl = "{place.url}"\n[registry]\nurl = "{url}"\n'
        _, told = _served(_configured(tmp_path, text))

    problem = "[registry] url: The registry does not answer within 3 seconds."
    assert told == [f"dbtools.toml:4: error: {problem}"]


def test_named_database_without_a_registry_is_told_of(place: Place, tmp_path: Path) -> None:
    text = f'[database]\nurl = "{place.url}"\n[registry]\nurl = "{place.url}"\n'

    queries, told = _served(_configured(tmp_path, text))

    assert queries == []
    assert told[0].startswith("dbtools.toml:4: error: [registry] url: The database has no registry.")


def test_login_that_may_not_read_the_registry_is_served_without_it(
    postgresql_database: PostgresqlDatabase,
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
    tmp_path: Path,
) -> None:
    with (
        postgresql_database(DDL) as url,
        postgresql_login(url, "grant select on all tables in schema public to {}") as reader,
    ):
        upgrade(url)
        anyio.run(add, url, {"things": THINGS})
        queries, told = _served(settings_of(reader))
        with pytest.raises(errors.DatabaseUnavailable, match="may not read the registry"):
            anyio.run(add, reader, {"things": THINGS})

        assert queries == []
    assert "warning: registry: The login may not read the registry." in told


def test_file_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    upgrade(f"sqlite:///{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(
            "create trigger t before insert on dbtools_query begin select raise(abort, 'no'); end"
        )

    with pytest.raises(errors.DatabaseUnavailable, match="cannot be written"):
        anyio.run(add, f"sqlite:///{path}", {"things": THINGS})


HOSTILE_VERSIONS = {
    "owner": "alter table public.dbtools_version owner to {evil}",
    "schema": "create schema dbtools authorization {evil}",
}


@pytest.mark.parametrize("ddl", HOSTILE_VERSIONS.values(), ids=HOSTILE_VERSIONS.keys())
def test_tables_of_somebody_else_are_not_upgraded(
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
    assert "somebody else's" in result.stderr


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def test_version_table_of_somebody_else_is_not_read(
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
