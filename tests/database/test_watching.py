"""How PostgreSQL notifies dbtools of changes: by event triggers, by Alembic migrations, or through polls."""

import json
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine

from dbtools.alembic import notify, upgrade
from dbtools.backends import open_backend
from dbtools.backends.postgresql.schema.changes import listen
from dbtools.records.registry import add
from dbtools.schema.catalog import Selection
from dbtools.service.serving import Observed, Poll, Served, Watch, open_served
from dbtools.service.snapshot import DATABASE, Snapshot
from dbtools.settings import Settings
from tests.database.postgresql_catalog import connected
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

STORM = "select pg_notify('dbtools_schema', n::text) from generate_series(1, 500) as n"
DDL = "create table customers (id integer primary key, name text); insert into customers values (1, 'Ada');"


@pytest.fixture
def url(postgresql_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with postgresql_database(DDL) as url:
        yield url


class Ear:
    """Counts what is heard, and polls by *poll*."""

    def __init__(self, poll: Poll) -> None:
        self.poll = poll
        self.number = 0

    def hear(self) -> None:
        """Count one."""
        self.number += 1

    async def heard(self) -> int:
        """Return how often it has heard something: what a server has to tell comes before its next answer."""
        await self.poll()
        return self.number


@asynccontextmanager
async def _listening(url: str, *, registry: bool = False) -> AsyncIterator[Ear]:
    backend = open_backend(url)
    ear = Ear(backend.registry if registry else backend.stamp)
    async with backend.listen(ear.hear):
        await ear.poll()
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
    await open_backend(url).install_watch()
    async with _listening(url) as ear:
        await anyio.to_thread.run_sync(lambda: postgresql_server.execute(sql, url=url))

        heard = await ear.heard()

    # One for each command of a transaction may be heard.
    assert min(heard, 1) == number


async def test_script_may_be_run_twice(url: str) -> None:
    for _ in range(2):
        await open_backend(url).install_watch()


def test_watch_install_prints_a_script_and_runs_it(
    url: str, postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    printed = run("watch", "install", url)
    applied = run("watch", "install", url, "--apply")
    lite = run("watch", "install", str(tmp_path / "shop.db"))
    as_json = [run("watch", "install", url, *words, "--json") for words in ((), ("--apply",))]

    assert (printed.exit_code, printed.stdout) == (0, open_backend(url).facts.watch_script)
    assert (applied.exit_code, applied.stdout) == (
        0,
        "The database now notifies dbtools of schema changes.\n",
    )
    assert (lite.exit_code, lite.stdout) == (2, "")
    assert [json.loads(each.stdout) for each in as_json] == [
        {"applied": False, "sql": printed.stdout},
        {"applied": True, "sql": printed.stdout},
    ]
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


def test_migration_of_another_database_notifies_no_server() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        notify(ctx=MigrationContext.configure(connection), step=None, heads=set(), run_args={})

        assert not connection.in_transaction()
    nobody: Any = SimpleNamespace(dialect=SimpleNamespace(name="oracle"))
    notify(ctx=nobody, step=None, heads=set(), run_args={})
    engine.dispose()


class Deaf:
    """A stub of a connection to a server in recovery, which does not support LISTEN."""

    local: Mapping[str, str] = {}

    def add_termination_listener(self, _: object) -> None:
        """Take it."""

    async def add_listener(self, *_: object) -> None:
        """Refuse."""
        raise asyncpg.FeatureNotSupportedError("cannot execute LISTEN during recovery")


async def test_server_that_refuses_to_listen_is_polled() -> None:
    await listen(Deaf(), lambda: None)


@pytest.mark.parametrize("again", ["create table new (id integer)", "drop table customers"])
async def test_poll_finds_a_change_without_a_notification(
    again: str, url: str, postgresql_server: PostgresqlServer
) -> None:
    backend = open_backend(url)
    async with backend.listen(lambda: None):
        first = await backend.stamp()
        await anyio.to_thread.run_sync(
            lambda: postgresql_server.execute("insert into customers values (2, 'Bo')", url=url)
        )
        same = await backend.stamp()
        await anyio.to_thread.run_sync(lambda: postgresql_server.execute(again, url=url))
        other = await backend.stamp()

    assert same == first
    assert other != first


async def test_change_of_the_registry_tells_every_server(url: str) -> None:
    await anyio.to_thread.run_sync(upgrade, url)
    async with _listening(url, registry=True) as ear:
        before = await ear.heard()
        await add(url, {"one": "-- name: one\n-- description: One.\nselect 1 as one\n"})

        assert (before, await ear.heard()) == (0, 1)


CONNECTIONS = """
    select pid
    from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""


async def _connections(url: str) -> list[int]:
    async with connected(url) as connection:
        return [pid for (pid,) in await connection.fetch(CONNECTIONS)]


async def test_one_connection_reads_listens_and_polls(url: str) -> None:
    backend = open_backend(url)
    async with backend.listen(lambda: None), backend.listen(lambda: None):
        await backend.introspect(Selection())
        await backend.stamp()
        await backend.registry()
        followed = await _connections(url)

    assert len(followed) == 1


async def test_lost_connection_is_heard_and_another_one_listens(
    url: str, postgresql_server: PostgresqlServer
) -> None:
    heard = [anyio.Event(), anyio.Event()]
    backend = open_backend(url)
    async with backend.listen(lambda: heard[0].set()), backend.listen(lambda: heard[1].set()):
        before = await backend.stamp(), await backend.registry()
        (lost,) = await _connections(url)
        for sql in (f"select pg_terminate_backend({lost})", "notify dbtools_schema"):
            heard[:] = [anyio.Event(), anyio.Event()]
            await anyio.to_thread.run_sync(partial(postgresql_server.execute, sql, url=url))
            with anyio.fail_after(20):
                await heard[0].wait()
                await heard[1].wait()
            after = await backend.stamp(), await backend.registry()

            assert after == before
            assert lost not in await _connections(url)


@pytest.fixture
async def served(url: str) -> AsyncIterator[Served]:
    served = open_served(Settings.model_validate({"database": {"url": url}}))
    yield served
    await served.backend.close()


async def test_storm_of_notifications_leads_to_polls_alone(
    served: Served, url: str, postgresql_server: PostgresqlServer
) -> None:
    polled, changed = anyio.Semaphore(0), anyio.Event()
    refreshed: list[Snapshot] = []

    async def counted() -> Hashable:
        found = await served.backend.stamp()
        polled.release()
        return found

    def note(snapshot: Snapshot, _: object) -> None:
        refreshed.append(snapshot)
        changed.set()

    served.toolbox.subscribe(note)
    observed = Observed(name=DATABASE, poll=counted, listen=served.backend.listen, interval=600)
    async with anyio.create_task_group() as group:
        group.start_soon(Watch(served.toolbox, [observed], warn=print, resolved=print).run)
        with anyio.fail_after(20):
            await polled.acquire()
            for sql in (*[STORM] * 5, "comment on table customers is 'Who buys'; notify dbtools_schema"):
                await anyio.to_thread.run_sync(partial(postgresql_server.execute, sql, url=url))
                await polled.acquire()
            await changed.wait()
        group.cancel_scope.cancel()

    assert [each.catalog.tables[0].comment for each in refreshed] == ["Who buys"]


@pytest.fixture
def logins(
    url: str, postgresql_login: Callable[[str, str], AbstractContextManager[str]]
) -> Iterator[Mapping[str, str]]:
    """Yield the URLs of two roles, of one that is a member of the first, and of another one."""
    with ExitStack() as stack:
        urls = {
            each: stack.enter_context(postgresql_login(url, "select")) for each in ("staff", "board", "bo")
        }
        grant = f"grant {_name(urls['staff'])} to {{}}"
        yield {**urls, "ada": stack.enter_context(postgresql_login(url, grant))}


def _name(url: str) -> str:
    return str(urlsplit(url).username)


@dataclass(frozen=True, kw_only=True)
class Hand:
    """Changes a database with a view and some rows, and has a login look at it."""

    url: str
    server: PostgresqlServer
    logins: Mapping[str, str]

    def execute(self, sql: str) -> None:
        """Run *sql*, in which roles are named in braces."""
        names = {each: _name(login) for each, login in self.logins.items()}
        self.server.execute(sql.format(**names), url=self.url)

    async def fingerprints(self, sql: str) -> tuple[Hashable, Hashable]:
        """Return what ada sees before and after *sql*, on connections that remember nothing."""
        first = await self._fingerprint()
        await anyio.to_thread.run_sync(self.execute, sql)
        return first, await self._fingerprint()

    async def _fingerprint(self) -> Hashable:
        ada = self.logins["ada"]
        backend = open_backend(ada)
        try:
            return await backend.stamp()
        finally:
            await backend.close()


@pytest.fixture
def hand(url: str, postgresql_server: PostgresqlServer, logins: Mapping[str, str]) -> Hand:
    """Return a hand, where there is something to vacuum."""
    hand = Hand(url=url, server=postgresql_server, logins=logins)
    hand.execute("create table passing (a integer, b integer)")
    hand.execute("create view names as select name from customers; drop table passing")
    hand.execute("insert into customers select n, 'Bo' from generate_series(2, 999) as n")
    return hand


@pytest.mark.parametrize(
    ("sql", "since"),
    [
        pytest.param("grant {board} to {ada}", 13, id="membership"),
        pytest.param("grant {board} to {staff}", 13, id="membership of a role that it is a member of"),
        pytest.param("revoke {staff} from {ada}", 13, id="end of a membership"),
        pytest.param("grant {staff} to {ada} with admin option", 13, id="administration"),
        pytest.param("grant {staff} to {ada} with inherit false", 16, id="inheritance"),
        pytest.param("alter view names set (security_barrier = true)", 13, id="barrier"),
        pytest.param("alter view names set (security_invoker = true)", 15, id="invoker"),
    ],
)
async def test_fingerprint_changes_with_memberships_and_options_of_views(
    sql: str, since: int, hand: Hand
) -> None:
    if hand.server.version < since:
        pytest.skip(f"of PostgreSQL {since}")
    before, after = await hand.fingerprints(sql)

    assert after != before


@pytest.mark.parametrize(
    "sql",
    [
        "analyze",
        "vacuum",
        "vacuum (freeze, analyze)",
        "vacuum full customers",
        "vacuum full pg_catalog.pg_attribute",
        "grant {board} to {bo}",
    ],
)
async def test_fingerprint_stays_with_what_changes_no_schema(sql: str, hand: Hand) -> None:
    before, after = await hand.fingerprints(sql)

    assert after == before
