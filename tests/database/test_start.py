"""How often a start opens the database, and what the reads that share a connection leave to each other."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest

from dbtools.backends import open_backend
from dbtools.backends.pool import IDLE
from dbtools.backends.postgresql.schema.changes import fingerprint
from dbtools.errors import Refused
from dbtools.schema.catalog import Selection, Table, Writes
from dbtools.schema.sql import scan
from dbtools.service.serving import open_toolbox
from dbtools.settings import load
from tests.conftest import Clock, OpenDatabase
from tests.database.poolers import proxy

PATIENCE = 20  #: seconds
DDL = """
create table things (id integer primary key, region varchar not null, size integer);
insert into things values (1, 'north', 5), (2, 'south', 6);
create table other (id integer primary key, region varchar not null);
insert into other values (1, 'north');
"""
FILTER = 'where = "region = :claims.region"'
CLAIMS = '[policy.claims]\nregion = "text"\n'
FILTERS = f"[roles.some]\ntables.things = {{ {FILTER} }}\ntables.other = {{ {FILTER} }}\n{CLAIMS}"
WRITERS = f"""
[roles.one]
tables.things = {{ {FILTER}, update = true }}
[roles.two]
tables.other = {{ {FILTER}, insert = true }}
{CLAIMS}"""
QUERIES = {
    f"{name}.sql": f"-- name: {name}\n-- description: Things.\n-- param region: text\n{sql}"
    for name, sql in {
        "sizes": "select id, size from things where region = :region",
        "number": "select count(*) as n from other where region = :region",
        "pairs": "select t.id from things as t join other as o on o.id = t.id where o.region = :region",
    }.items()
}
CHANGES = (
    "-- name: grow\n-- writes: 1\n-- param id: integer\nupdate things set size = size + 1 where id = :id"
)


#: An index whose planning takes a lock and prepares a statement under the name of one of the driver's.
PLANNED = """
create table things (id integer primary key, v varchar not null);
create function act() returns void language plpgsql as $$
begin
    if current_setting('lock_timeout') <> '0' then
        perform pg_advisory_lock(5);
        if not exists (select from pg_prepared_statements as p where p.from_sql) then
            execute (
                select string_agg(format('deallocate %I; prepare %1$I as select 1', p.name), ';')
                from pg_prepared_statements as p
            );
        end if;
    end if;
end
$$;
create function planted() returns integer language plpgsql immutable as $$
begin
    perform public.act();
    return 1;
end
$$;
create index on things (v) where planted() = 1;
"""


class Openings:
    """The databases that this process opens: files, and ports of servers."""

    def __init__(self) -> None:
        self.heard: list[str] | None = None
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: Sequence[Any]) -> None:
        if self.heard is None:
            return
        if event == "sqlite3.connect" and arguments[0] != ":memory:":
            self.heard.append(str(arguments[0]))
        elif event == "socket.connect":
            self.heard.append(str(arguments[1]))

    @contextmanager
    def counted(self) -> Iterator[list[str]]:
        """Yield what is opened meanwhile."""
        heard: list[str] = []
        self.heard = heard
        try:
            yield heard
        finally:
            self.heard = None


@pytest.fixture(scope="session")
def openings() -> Openings:
    """Return what counts; an audit hook stays for as long as the process."""
    return Openings()


async def _findings(path: Path) -> tuple[str, ...]:
    """Start with the configuration in *path*, and return all problems but those of the login."""
    toolbox, backend = open_toolbox(load(path))
    try:
        snapshot = await toolbox.snapshot()
        await backend.stamp()
    finally:
        await backend.close()
    found = (str(each) for view in snapshot.views.values() for each in view.problems)
    return tuple(each for each in found if not any(one in each for one in snapshot.catalog.posture))


def _written(folder: Path, url: str, rest: str, queries: Mapping[str, str]) -> Path:
    """Return the path of a configuration."""
    for name, text in queries.items():
        (folder / name).write_text(text)
    directory = '[queries]\ndirectory = "."\n' if queries else ""
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n{directory}{rest}')
    return path


@pytest.mark.parametrize(
    ("rest", "queries", "number"),
    [
        pytest.param("", {}, {"sqlite": 3, "postgresql": 1}, id="nothing"),
        pytest.param(FILTERS, {}, {"sqlite": 3, "postgresql": 1}, id="row filters"),
        pytest.param("[tools]\nsql = true\n", QUERIES, {"sqlite": 4, "postgresql": 1}, id="queries and SQL"),
        pytest.param(WRITERS, {}, {"sqlite": 5, "postgresql": 1}, id="two roles that write"),
        pytest.param(
            WRITERS, {**QUERIES, "grow.sql": CHANGES}, {"sqlite": 6, "postgresql": 1}, id="changing queries"
        ),
    ],
)
async def test_start_and_the_first_poll_open_the_database_that_often(
    rest: str,
    queries: Mapping[str, str],
    number: Mapping[str, int],
    dialect: str,
    open_database: OpenDatabase,
    openings: Openings,
    tmp_path: Path,
) -> None:
    with open_database(dialect, DDL) as url:
        path = _written(tmp_path, url, rest, queries)
        with openings.counted() as opened:
            findings = await _findings(path)

    assert findings == ()
    assert len(opened) == number[dialect], opened


PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]
PostgresqlLogin = Callable[[str, str], AbstractContextManager[str]]
GRANT = "grant select, update, insert on all tables in schema public to {}"
THINGS = Table(name="things", schema="public", columns=())
KINDS = {("public", "kinds", name) for name in ("id", "kind")}
OTHERS = """
select count(*) from pg_stat_activity
where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""
HELD = "select count(*) from pg_locks where locktype = 'advisory'"
WAITING = """
select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
"""


@pytest.fixture
def url(postgresql_database: PostgresqlDatabase) -> Iterator[str]:
    with postgresql_database(DDL) as url:
        yield url


@pytest.fixture
def role(url: str, postgresql_login: PostgresqlLogin) -> Iterator[str]:
    """Yield a role that may read one column, and change nothing."""
    with postgresql_login(url, "grant select (id) on things to {}") as login:
        yield str(urlsplit(login).username)


async def test_start_opens_one_connection_for_each_login(
    url: str, postgresql_login: PostgresqlLogin, openings: Openings, tmp_path: Path
) -> None:
    with postgresql_login(url, GRANT) as writer:
        path = _written(tmp_path, url, WRITERS, {**QUERIES, "grow.sql": CHANGES})
        path.write_text(path.read_text().replace("[database]", f'[database]\nwrite_url = "{writer}"'))
        with openings.counted() as opened:
            findings = await _findings(path)

    assert findings == ()
    assert len(opened) == 2


async def test_start_needs_no_other_connection_for_roles_of_the_database(
    url: str, role: str, openings: Openings, tmp_path: Path
) -> None:
    session = f'[roles.{{}}]\nset_role = "{role}"\ntables.things = {{{{ columns = ["id"] }}}}\n'
    path = _written(tmp_path, url, session.format("one") + session.format("two"), {})
    with openings.counted() as opened:
        findings = await _findings(path)

    assert findings == ()
    assert len(opened) == 1


async def test_settings_of_a_role_end_with_its_reads(url: str, role: str) -> None:
    backend = open_backend(url)
    condition = scan("size > :claims.least", backend.facts.lexis)
    try:
        before = await backend.introspect(Selection())
        narrow = await backend.introspect(Selection(), {"role": role})
        async with backend.describe({"role": role}) as inspector, backend.describe() as other:
            with pytest.raises(Refused, match="permission denied"):
                await inspector.condition(THINGS, condition)
            understood = await other.condition(THINGS, condition)
        after = await backend.introspect(Selection())
    finally:
        await backend.close()

    assert [column.name for table in narrow.tables for column in table.columns] == ["id"]
    assert understood.casts == ('"pg_catalog"."int4"',)
    assert after == before


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses settings", "ignores settings"])
async def test_role_without_privileges_lacks_them_behind_a_pooler_too(
    refuses: bool, url: str, role: str
) -> None:
    table = await _writable(url)
    found = []
    async with proxy(url, refuses=refuses) as pooled:
        for each in (url, pooled):
            backend = open_backend(each)
            found.append((await backend.missing_privileges([table], {"role": role})).tables.keys())
            await backend.close()

    assert found == [{table.location}, {table.location}]


async def _writable(url: str) -> Table:
    """Return the table of things, whose rows may be deleted."""
    backend = open_backend(url)
    table = (await backend.introspect(Selection())).table("public", "things")
    await backend.close()
    assert table is not None
    return replace(table, writes=Writes(delete=True))


async def test_function_that_runs_while_a_filter_is_checked_leaves_nothing(
    postgresql_database: PostgresqlDatabase,
) -> None:
    with postgresql_database(PLANNED) as url:
        backend = open_backend(url)
        await backend.introspect(Selection())
        async with backend.describe() as inspector:
            condition = scan("v = :claims.v", backend.facts.lexis)
            found = [await inspector.condition(THINGS, condition) for _ in range(3)]
        stamp = await backend.stamp()
        other = await asyncpg.connect(url)
        held = await other.fetchval(HELD)
        fresh = await fingerprint(other)
        await other.close()
        await backend.close()

    assert found == [found[0]] * 3
    assert held == 0
    assert stamp == fresh


async def test_question_that_is_cancelled_is_stopped_in_the_database(url: str) -> None:
    backend, other, locking = open_backend(url), await asyncpg.connect(url), await asyncpg.connect(url)
    before = await backend.stamp()
    async with locking.transaction():
        await locking.execute("lock table things in access exclusive mode")
        async with backend.describe() as inspector, anyio.create_task_group() as group:
            group.start_soon(inspector.condition, THINGS, scan("size = 1", backend.facts.lexis))
            with anyio.fail_after(PATIENCE):
                while not await other.fetchval(WAITING):
                    await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        left = await other.fetchval(WAITING)
    after = await backend.stamp()
    await other.close()
    await locking.close()
    await backend.close()

    assert left == 0
    assert after == before


async def test_type_that_is_renamed_is_known_at_the_next_refresh(url: str, tmp_path: Path) -> None:
    query = "-- name: kinds\n-- param kind: text\nselect id from kinds where kind = :kind"
    other = await asyncpg.connect(url)
    await other.execute("create type kind as enum ('a'); create table kinds (id int primary key, kind kind)")
    toolbox, backend = open_toolbox(load(_written(tmp_path, url, "", {"kinds.sql": query})))
    await toolbox.snapshot()
    await other.execute("alter type kind rename to sort")
    views = (await toolbox.refresh()).views.values()
    await other.close()
    await backend.close()

    assert [each.reads for view in views for each in view.context.queries] == [KINDS]


async def test_connection_that_is_idle_for_long_is_closed_unless_a_server_listens(
    url: str, clock: Clock
) -> None:
    other = await asyncpg.connect(url)
    for listens, number in ((True, 1), (False, 0)):
        backend = open_backend(url)
        async with backend.listen(lambda: None) if listens else nullcontext():
            await backend.stamp()
            clock.advance(IDLE + 1)
            await anyio.lowlevel.checkpoint()
            with anyio.fail_after(PATIENCE):
                while await other.fetchval(OTHERS) != number:
                    await anyio.lowlevel.checkpoint()
        await backend.close()
    await other.close()
