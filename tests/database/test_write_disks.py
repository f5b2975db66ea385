"""Changes while the disk is full or the server stops: nothing is half done, and nothing happens twice."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools import errors
from tests.database.cutting_proxy import cutting_proxy, is_commit
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop, open_shop
from tests.database.written_journal import BEFORE, CALLS, DDL, journal, restore, things, told, writing
from tests.postgresql_server import LOGIN, Cluster, open_cluster
from tests.processes import FRESH
from tests.protocol.client import spawn

LARGE = "x" * 2_000
SEGMENT = 16 * 2**20  #: bytes of a segment of the log: a server that cannot write one stops
#: A trigger that writes 30 MB for a row with this text.
GREEDY = """
create function grow() returns trigger language plpgsql as $$ begin
    insert into journal select '!', i, repeat(md5(i::text), 30) from generate_series(1, 30000) as i;
    return null;
end $$;
create trigger growing after update on things for each row when (new.v = 'new') execute function grow();
"""


@contextmanager
def _limited(pid: int, size: int) -> Iterator[None]:
    """Let the process *pid*, 0 for this one, and those that it starts write no file beyond *size* bytes."""
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))
    yield
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


async def _driver(caller: Caller) -> Any:
    """Return the driver's connection that changes a file."""
    writer: Any = await caller.database.writer()
    async with writer.pool.connection() as connection:
        return connection.driver


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_full_file_is_left_as_it_was(mode: str, serve: Serve) -> None:
    rows = [{"id": 10 + each, "v": LARGE} for each in range(50)]
    with serve("sqlite", f"pragma journal_mode = {mode};{DDL['sqlite']}") as shop, writing(shop) as caller:
        told(caller, shop, "update")
        driver = caller.portal.call(_driver, caller)
        driver.set_authorizer(None)
        driver.execute("pragma max_page_count = 20").fetchall()
        with pytest.raises(errors.Refused, match=r"is full.*Nothing was changed"):
            caller.call("insert_things", rows=rows)
        stored = things(shop), journal(shop)
        driver.execute("pragma max_page_count = 100000").fetchall()
        later = told(caller, shop, "insert")

    assert stored == (BEFORE, [])
    assert (later.code, later.is_true("insert")) == ("", True)


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_commit_that_cannot_be_written_is_rolled_back(
    mode: str, tmp_path: Path, sqlite_database: Callable[[str], Path]
) -> None:
    file = sqlite_database(f"pragma journal_mode = {mode};{DDL['sqlite']}")
    rows = [{"id": 10 + each, "v": LARGE} for each in range(50)]
    async with spawn(file, tmp_path, options=["--write"], program=FRESH) as client:
        await client.open()
        await client.call("update_things", {"id": 1, "set": {"v": "one"}})
        sizes = [each.stat().st_size for each in file.parent.iterdir() if each.suffix != ".db-shm"]
        with _limited(client.process.pid, max(*sizes, 40_000)):
            refused = await client.call("insert_things", {"rows": rows})
            listed = await client.call("list_things")
        later = await client.call("insert_things", {"rows": rows})

    assert refused["isError"]
    assert "Nothing was changed." in str(refused["content"])
    assert listed["structuredContent"]["rows"] == [list(row) for row in BEFORE]
    assert later["structuredContent"]["affected"] == len(rows)


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Cluster, int]]:
    """Yield a server that may be stopped, and its port."""
    with open_cluster() as cluster:
        with _limited(0, SEGMENT):
            port = cluster.start("autovacuum=off")
        try:
            yield cluster, port
        finally:
            cluster.stop()


@pytest.fixture
def stopped(cluster: tuple[Cluster, int], portal: BlockingPortal) -> Iterator[Shop]:
    """Yield the database of the server that may be stopped."""
    url = f"postgresql://{LOGIN}@127.0.0.1:{cluster[1]}/postgres"
    with open_shop("postgresql", url, portal) as shop:
        shop.bare.execute("drop schema public cascade; create schema public;" + DDL["postgresql"])
        shop.bare.execute("checkpoint")
        yield shop


def _stop(cluster: tuple[Cluster, int]) -> None:
    cluster[0].stop()


def _start(cluster: tuple[Cluster, int]) -> None:
    with _limited(0, SEGMENT):
        cluster[0].start_at(cluster[1])


@contextmanager
def _looking(shop: Shop) -> Iterator[Shop]:
    """Yield the database with a new connection behind the server's back."""
    with open_shop("postgresql", shop.url, shop.portal) as again:
        yield again


def test_change_that_does_not_fit_on_the_disk_is_rolled_back(stopped: Shop) -> None:
    stopped.bare.execute(GREEDY)
    with writing(stopped) as caller:
        told(caller, stopped, "delete")
        with pytest.raises(errors.Refused, match="Nothing was changed"):
            caller.call("update_things", id=1, set={"v": "new"})
        stored = things(stopped), journal(stopped)
        later = told(caller, stopped, "delete")

    assert stored == (BEFORE, [])
    assert (later.code, later.is_true("delete")) == ("", True)


def test_change_after_a_restart_of_the_server_is_made_once(
    stopped: Shop, cluster: tuple[Cluster, int]
) -> None:
    with writing(stopped) as caller:
        told(caller, stopped, "update")
        stopped.bare.execute("checkpoint")
        _stop(cluster)
        with pytest.raises(errors.DatabaseUnavailable, match="Nothing was changed"):
            caller.call("update_things", id=1, set={"v": "new"})
        _start(cluster)
        with _looking(stopped) as shop:
            before = things(shop), journal(shop)
            after = told(caller, shop, "update")

    assert before == (BEFORE, [])
    assert (after.code, after.is_true("update")) == ("", True)


WAITING = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
GATED = """
create function wait() returns trigger language plpgsql as
    $$ begin perform pg_advisory_xact_lock_shared(7); return null; end $$;
create trigger waiting after update on things for each row execute function wait();
select pg_advisory_lock(7);
"""


async def _change(caller: Caller, codes: list[str]) -> None:
    """Update a row; *codes* gets the code and the message of an error."""
    tool, arguments, _ = CALLS["update"]
    try:
        await caller.toolbox.call(caller.identity, tool, arguments)
    except errors.CallError as exc:
        codes.append(f"{exc.code}: {exc}")


def test_change_during_which_the_server_stops_is_not_made(
    stopped: Shop, cluster: tuple[Cluster, int]
) -> None:
    async def stop_during_a_call() -> str:
        codes: list[str] = []
        watcher = await asyncpg.connect(stopped.url)
        async with anyio.create_task_group() as group:
            group.start_soon(_change, caller, codes)
            while not await watcher.fetchval(WAITING):
                await anyio.lowlevel.checkpoint()
            await anyio.to_thread.run_sync(_stop, cluster)
        return codes[0]

    with writing(stopped) as caller:
        told(caller, stopped, "insert")
        stopped.bare.execute(GATED)
        stopped.bare.execute("checkpoint")
        said = caller.portal.call(stop_during_a_call)
        _start(cluster)
        with _looking(stopped) as shop:
            before = things(shop), journal(shop)
            after = told(caller, shop, "update")

    assert said.startswith("database_unavailable: ")
    assert "Nothing was changed." in said
    assert before == (BEFORE, [])
    assert (after.code, after.is_true("update")) == ("", True)


def test_outcome_of_a_change_whose_commit_meets_a_restart_is_told_as_far_as_it_is_known(
    stopped: Shop, cluster: tuple[Cluster, int]
) -> None:
    async def restart_at_commit() -> str:
        proxy.at(is_commit, None)
        codes: list[str] = []
        async with anyio.create_task_group() as group:
            group.start_soon(_change, caller, codes)
            await proxy.met.wait()
            await anyio.to_thread.run_sync(_stop, cluster)
            await anyio.to_thread.run_sync(_start, cluster)
            proxy.released.set()
        return codes[0]

    restore(stopped)
    stopped.bare.execute("checkpoint")
    proxies = stopped.portal.wrap_async_context_manager(cutting_proxy(stopped.url))
    with proxies as proxy, writing(stopped, write_url=proxy.url) as caller:
        code = stopped.portal.call(restart_at_commit)
    with _looking(stopped) as shop:
        stored = things(shop), journal(shop)

    assert code.partition(":")[0] in ("database_unavailable", "unknown_outcome")
    assert stored == (BEFORE, [])
