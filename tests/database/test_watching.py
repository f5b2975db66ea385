"""What a PostgreSQL database tells by itself of changes: by event triggers, and by migrations of Alembic."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import asyncpg
import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine

from dbtools.alembic import notify
from dbtools.dialects import dialect_of
from dbtools.dialects.postgresql.watching import listen
from dbtools.dialects.watched import Look
from dbtools.registry import add
from dbtools.registry.upgrading import upgrade
from tests.postgresql_server import PostgresqlServer
from tests.protocol.test_command_line import run

DDL = "create table customers (id integer primary key, name text); insert into customers values (1, 'Ada');"


@pytest.fixture
def url(postgresql_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """Give a database."""
    with postgresql_database(DDL) as url:
        yield url


class Ear:
    """Counts what is heard."""

    def __init__(self) -> None:
        self.number = 0
        self.look: Look | None = None

    def hear(self) -> None:
        """Count one."""
        self.number += 1

    async def heard(self) -> int:
        """Return how often it has heard something: what a server has to tell comes before its next answer."""
        assert self.look is not None
        await self.look()
        return self.number


@asynccontextmanager
async def _listening(url: str, watcher: str = "watcher") -> AsyncIterator[Ear]:
    ear = Ear()
    async with getattr(dialect_of(url), watcher)(url, ear.hear) as ear.look:
        yield ear


@pytest.mark.parametrize(
    ("sql", "number"),
    [
        pytest.param("alter table customers add column nick text", 1, id="a column"),
        pytest.param("begin; create table a (id integer); create table b (id integer); commit", 1, id="two"),
        pytest.param("drop table customers", 1, id="drop"),
        pytest.param("comment on table customers is 'Who buys'", 1, id="comment"),
        pytest.param("grant select on customers to public", 1, id="grant"),
        pytest.param("create policy own on customers using (true)", 1, id="policy"),
        pytest.param("begin; drop table customers; rollback", 0, id="rolled back"),
        pytest.param("create temporary table t (id integer); drop table t", 0, id="temporary"),
        pytest.param("insert into customers values (2, 'Bo')", 0, id="rows"),
        pytest.param("analyze", 0, id="analyze"),
        pytest.param("vacuum customers", 0, id="vacuum"),
    ],
)
async def test_event_triggers_tell_of_each_transaction_that_changes_the_schema(
    sql: str, number: int, url: str, postgresql_server: PostgresqlServer
) -> None:
    await dialect_of(url).install_watch(url)
    async with _listening(url) as ear:
        await anyio.to_thread.run_sync(lambda: postgresql_server.execute(sql, url=url))

        heard = await ear.heard()

    # One for each command of a transaction may be heard.
    assert min(heard, 1) == number


async def test_script_may_be_run_twice(url: str) -> None:
    for _ in range(2):
        await dialect_of(url).install_watch(url)


def test_watch_install_prints_a_script_and_runs_it(
    url: str, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    printed = run("watch", "install", url)
    applied = run("watch", "install", url, "--apply")
    lite = run("watch", "install", str(tmp_path / "shop.db"))

    assert (printed.exit_code, printed.stdout) == (0, dialect_of(url).WATCH_SCRIPT)
    assert (applied.exit_code, applied.stdout) == (0, "The database tells of changes from now on.\n")
    assert (lite.exit_code, lite.stdout) == (2, "")
    postgresql_server.execute(printed.stdout, url=url)


def test_watch_install_says_who_may(
    url: str, postgresql_login: Callable[[str, str], AbstractContextManager[str]]
) -> None:
    with postgresql_login(url, "grant create on schema public to {}") as login:
        refused = run("watch", "install", login, "--apply")

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "Only a superuser may create event triggers." in refused.stderr


async def test_migration_of_alembic_tells_in_its_own_transaction(url: str) -> None:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"))

    def migrate(connection: sa.Connection) -> None:
        context = MigrationContext.configure(connection)
        notify(context, SimpleNamespace(), set(), {})

    async with _listening(url) as ear:
        async with engine.connect() as connection:
            await connection.run_sync(migrate)
            silent = await ear.heard()
            await connection.commit()
        heard = await ear.heard()
    await engine.dispose()

    assert (silent, heard) == (0, 1)


def test_migration_of_another_database_tells_nobody() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        notify(ctx=MigrationContext.configure(connection), step=None, heads=set(), run_args={})

        assert not connection.in_transaction()
    nobody: Any = SimpleNamespace(dialect=SimpleNamespace(name="oracle"))
    notify(ctx=nobody, step=None, heads=set(), run_args={})
    engine.dispose()


class Deaf:
    """A connection to a server in recovery, where nobody may listen."""

    def add_termination_listener(self, _: object) -> None:
        """Take it."""

    async def add_listener(self, *_: object) -> None:
        """Refuse."""
        raise asyncpg.FeatureNotSupportedError("cannot execute LISTEN during recovery")


async def test_server_that_lets_nobody_listen_is_looked_at() -> None:
    await listen(Deaf(), lambda: None)


@pytest.mark.parametrize("again", ["create table new (id integer)", "drop table customers"])
async def test_look_tells_of_what_nobody_has_told(
    again: str, url: str, postgresql_server: PostgresqlServer
) -> None:
    async with dialect_of(url).watcher(url, lambda: None) as look:
        first = await look()
        await anyio.to_thread.run_sync(
            lambda: postgresql_server.execute("insert into customers values (2, 'Bo')", url=url)
        )
        same = await look()
        await anyio.to_thread.run_sync(lambda: postgresql_server.execute(again, url=url))
        other = await look()

    assert same == first
    assert other != first


async def test_change_of_the_registry_tells_every_server(url: str) -> None:
    await anyio.to_thread.run_sync(upgrade, url)
    async with _listening(url, "registry_watcher") as ear:
        before = await ear.heard()
        await add(url, {"one": "-- name: one\n-- description: One.\nselect 1 as one\n"})

        assert (before, await ear.heard()) == (0, 1)
