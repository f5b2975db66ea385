"""Servers that are killed during a change: the database is intact, and the next server works."""

import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, closing
from pathlib import Path

import anyio
import asyncpg
import pytest

from dbtools.alembic import upgrade
from tests.database.cutting_proxy import Cutting, cutting_proxy, is_commit, numbered
from tests.database.written_journal import AFTER, BEFORE, CALLS, DDL
from tests.processes import forked
from tests.protocol.client import ProcessClient, spawn

PATIENCE = 60  #: seconds
MOST_REQUESTS = 20
WARM = {"id": 77, "set": {"v": "warm"}}  #: changes nothing: there is no such row
PostgresqlDatabase = Callable[[str], AbstractContextManager[str]]
Stored = tuple[list[tuple[object, ...]], list[tuple[object, ...]]]
DONE: Stored = (AFTER["update"], [CALLS["update"][2]])
UNDONE: Stored = (BEFORE, [])


def _configured(folder: Path, url: str, write_url: str) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(
        f'[database]\nurl = "{url}"\nwrite_url = "{write_url}"\nwritable = true\n'
        f'lock_timeout = "{PATIENCE}s"\n[limits]\ntimeout = "{PATIENCE}s"\n[log]\nfile = "calls.jsonl"\n'
    )
    return path


@asynccontextmanager
async def _server(path: Path) -> AsyncIterator[ProcessClient]:
    async with spawn(path, path.parent) as client:
        await client.open()
        yield client
        if client.process.returncode is None:
            await _kill(client)


async def _kill(client: ProcessClient) -> None:
    """Kill the server, and wait until its output ends."""
    client.process.kill()
    await client.rest()


async def _stored(connection: "asyncpg.Connection[asyncpg.Record]") -> Stored:
    things = await connection.fetch("select id, v from things order by id")
    journal = await connection.fetch("select what, id, v from journal")
    return [tuple(row) for row in things], [tuple(row) for row in journal]


OTHERS = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


async def _killed_at(
    is_due: Callable[[bytes], bool], path: Path, proxy: Cutting, arguments: Mapping[str, object]
) -> bool:
    """Kill a server when its change makes the request that *is_due*; return False if it answers before."""
    killed = anyio.Event()
    async with _server(path) as client:
        await client.call("update_things", WARM)
        proxy.at(is_due, None)
        id = await client.start_call("update_things", arguments)
        async with anyio.create_task_group() as group:

            async def answered() -> None:
                try:
                    await client.answer(id)
                    group.cancel_scope.cancel()
                except EOFError:
                    killed.set()

            group.start_soon(answered)
            await proxy.met.wait()
            client.process.kill()
            await killed.wait()
        # A request may also arrive just after the answer: held for ever, it would keep its connection.
        proxy.released.set()
    return killed.is_set()


async def test_change_of_a_server_that_is_killed_is_made_once_by_the_next_one_with_its_key(
    tmp_path: Path, postgresql_database: PostgresqlDatabase
) -> None:
    left: list[Stored] = []
    with postgresql_database(DDL["postgresql"]) as url, anyio.fail_after(5 * PATIENCE):
        await anyio.to_thread.run_sync(upgrade, url)
        async with cutting_proxy(url) as proxy:
            path = _configured(tmp_path, url, proxy.url)
            other = await asyncpg.connect(url)
            dues = [*map(numbered, range(0, MOST_REQUESTS, 3)), is_commit]
            for number, is_due in enumerate(dues):
                keyed = {**CALLS["update"][1], "idempotency_key": f"{number}"}
                if await _killed_at(is_due, path, proxy, keyed):
                    while await other.fetchval(OTHERS):
                        await anyio.lowlevel.checkpoint()
                    left.append(await _stored(other))
                    proxy.at(lambda _: False, None)
                    async with _server(path) as client:
                        again = (await client.call("update_things", keyed))["structuredContent"]
                    assert again["affected"] == 1
                assert await _stored(other) == DONE
                assert await other.fetchval("select count(*) from dbtools.dbtools_write") == number + 1
                await other.execute("update things set v = 'one' where id = 1; delete from journal")
            await other.close()

    # COMMIT, which has arrived, is the last one.
    assert [each for each in left if each not in (UNDONE, DONE)] == []
    assert (left[0], left[-1]) == (UNDONE, DONE)
    assert len(left) >= 4


async def test_cancelled_call_that_was_committed_is_logged_as_done(
    tmp_path: Path, postgresql_database: PostgresqlDatabase
) -> None:
    with postgresql_database(DDL["postgresql"]) as url, anyio.fail_after(PATIENCE):
        async with cutting_proxy(url) as proxy, _server(_configured(tmp_path, url, proxy.url)) as client:
            proxy.at(is_commit, None)
            id = await client.start_call("update_things", CALLS["update"][1])
            await proxy.met.wait()
            await client.cancel(id)
            # When the server answers this call, it has read the cancellation before it.
            await client.call("list_things")
            proxy.released.set()
            await client.call("update_things", WARM)
            other = await asyncpg.connect(url)
            stored = await _stored(other)
            await other.close()
            client.hang_up()
            await client.status()

    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    logged = [(line["outcome"], line["code"]) for line in lines if line["tool"] == "update_things"]
    assert stored == DONE
    assert logged == [("ok", None), ("error", "no_row")]


#: A trigger that fills more pages than SQLite keeps in memory, and then never ends.
SPILLING = """
create trigger spilling after update of v on things when new.v = 'new' begin
    insert into journal
    with recursive n (i) as (select 1 union all select i + 1 from n where i < 100000)
    select '!', i, hex(randomblob(100)) from n;
    insert into journal
    with recursive n (i) as (select 1 union all select i + 1 from n)
    select '!', count(*), '' from n;
end;
"""


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=0)


async def _spilled(path: Path) -> None:
    """Wait until half of a change is on the disk."""
    files = [path, path.with_name(f"{path.name}-wal")]
    while sum(each.stat().st_size for each in files if each.exists()) < 5_000_000:
        await anyio.lowlevel.checkpoint()


async def _waiting_for_readers(path: Path) -> None:
    """Wait until a COMMIT blocks new readers."""
    while True:
        try:
            with closing(_connected(path)) as connection:
                connection.execute("select * from things").fetchall()
        except sqlite3.OperationalError:
            return
        await anyio.sleep(0.01)


async def _at_once(path: Path) -> None:
    """Wait for nothing."""


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for statement in sys.argv[2].split(";"):
    connection.execute(statement).fetchone()
print("held", flush=True)
sys.stdin.read()
"""


@asynccontextmanager
async def _holding(path: Path, lock: str) -> AsyncIterator[None]:
    """Hold *lock* in a separate process: a lock does not block the process that holds it."""
    command = [sys.executable, "-c", HOLD, str(path), lock]
    async with await anyio.open_process(command) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdout.receive()
        yield
        await process.stdin.aclose()


#: By step: the journal mode, a trigger or a lock that stops the change there, and what waits until it does.
STEPS: dict[str, tuple[str, str, str, Callable[[Path], Awaitable[None]]]] = {
    "before BEGIN": ("delete", "", "begin immediate", _at_once),
    "during a step": ("delete", SPILLING, "", _spilled),
    "during a step, with WAL": ("wal", SPILLING, "", _spilled),
    "at COMMIT": ("delete", "", "begin; select * from things", _waiting_for_readers),
}


@pytest.mark.parametrize("step", STEPS)
async def test_file_of_a_killed_server_is_recovered_by_the_next_one(
    step: str, tmp_path: Path, sqlite_database: Callable[[str], Path]
) -> None:
    keys = {"idempotency_key": "k"}
    mode, trigger, lock, arrived = STEPS[step]
    file = sqlite_database(f"pragma journal_mode = {mode};{DDL['sqlite']}{trigger}")
    await anyio.to_thread.run_sync(upgrade, f"sqlite:///{file}")
    path = _configured(tmp_path, f"sqlite:///{file}", f"sqlite:///{file}")
    with anyio.fail_after(2 * PATIENCE):
        async with _server(path) as client:
            await client.call("update_things", WARM)
            async with _holding(file, lock):
                await client.start_call("update_things", {**CALLS["update"][1], **keys})
                await arrived(file)
                await _kill(client)
        async with _server(path) as client:
            listed = await client.call("list_things")
            # The key is free: the first call changed nothing.
            changed = await client.call("update_things", {"id": 2, "set": {"v": "fine"}, **keys})

    assert listed["structuredContent"]["rows"] == [list(row) for row in BEFORE]
    assert changed["structuredContent"]["affected"] == 1
    # The server's output ends before its locks do, so this waits for them.
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert connection.execute("select * from journal").fetchall() == [("=", 2, "fine")]


async def test_file_is_not_recovered_for_a_server_that_only_reads(
    tmp_path: Path, sqlite_database: Callable[[str], Path]
) -> None:
    file = sqlite_database(f"{DDL['sqlite']}{SPILLING}")
    path = _configured(tmp_path, f"sqlite:///{file}", f"sqlite:///{file}")
    async with _server(path) as client:
        await client.call("update_things", WARM)
        await client.start_call("update_things", CALLS["update"][1])
        with anyio.fail_after(PATIENCE):
            await _spilled(file)
        await _kill(client)
    before = file.read_bytes()
    command = [*forked(), "call", str(file), "list_things"]
    called = await anyio.run_process(command, check=False)

    assert called.returncode == 2
    assert b"must be recovered" in called.stderr
    assert file.read_bytes() == before
