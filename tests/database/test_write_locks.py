"""Changes that meet locks, deadlocks, deadlines or cancellation change nothing, and report it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from threading import Event
from typing import Any

import anyio
import asyncpg
import pytest

from dbtools import errors
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop, open_bare
from tests.database.written_journal import AFTER, BEFORE, CALLS, DDL, journal, things, told, writing

LOCKS = {
    "sqlite": "begin immediate; update things set v = v",
    "postgresql": "begin; select from things where id = 1 for update; lock journal in share mode",
}
#: Triggers that never end, before a row gets this text.
ENDLESS = {
    "sqlite": """
    create trigger slow before update of v on things when new.v = 'new' begin
        insert into journal
        with recursive n (i) as (select 1 union all select i + 1 from n)
        select '!', count(*), '' from n;
    end;
    """,
    "postgresql": """
    create function take_for_ever() returns trigger language plpgsql as
        $$ begin perform pg_sleep(600); return new; end $$;
    create trigger slow before update on things for each row when (new.v = 'new')
        execute function take_for_ever();
    """,
}


@contextmanager
def _locked(shop: Shop) -> Iterator[None]:
    """Let another program lock the row, or the file."""
    with ExitStack() as stack:
        other = open_bare(shop.dialect, shop.url, shop.portal)
        stack.callback(other.close)
        other.execute(LOCKS[shop.dialect])
        yield
        other.execute("rollback")


def test_locked_row_is_busy_after_the_lock_timeout(serve: Serve, dialect: str) -> None:
    # The timeout is less than the lock timeout that sessions have by default.
    limits: dict[str, Any] = {"timeout": 4, "lock_timeout": 0.2}
    with serve(dialect, DDL[dialect]) as shop, writing(shop, **limits) as caller:
        for kind in CALLS:
            with _locked(shop):
                code, message = _refusal(caller, kind)
            stored = things(shop), journal(shop)
            free = told(caller, shop, kind)

            assert (code, stored) == ("busy", (BEFORE, [])), kind
            assert "Nothing was changed." in message
            assert (free.is_true(kind), free.code) == (True, "")


def _refusal(caller: Caller, kind: str) -> tuple[str, str]:
    tool, arguments, _ = CALLS[kind]
    with pytest.raises(errors.CallError) as caught:
        caller.call(tool, **arguments)
    return caught.value.code, str(caught.value)


def test_lock_that_outlasts_the_deadline_is_a_timeout(serve: Serve, dialect: str) -> None:
    with serve(dialect, DDL[dialect]) as shop:
        with writing(shop, lock_timeout=60, timeout=0.3) as caller, _locked(shop):
            code, message = _refusal(caller, "update")

        assert (code, things(shop)) == ("timeout", BEFORE)
        assert "Nothing was changed." in message


RUNNING = """
select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'
    and query !~ 'pg_stat_activity' and backend_type = 'client backend'
"""


def test_deadline_stops_the_change_in_the_database(serve: Serve, dialect: str) -> None:
    with serve(dialect, DDL[dialect] + ENDLESS[dialect]) as shop, writing(shop, timeout=3) as caller:
        code, message = _refusal(caller, "update")
        if dialect == "postgresql":
            assert shop.bare.rows(RUNNING) == [(0,)]
        # Of SQLite's one connection, the next change gets the thread.
        later = told(caller, shop, "delete")

    assert code == "timeout"
    assert "Nothing was changed." in message
    assert (later.code, later.is_true("delete")) == ("", True)


def test_cancelled_change_has_stopped_when_the_call_ends(serve: Serve, dialect: str) -> None:
    async def cancel() -> None:
        tool, arguments, _ = CALLS["update"]
        calling = asyncio.ensure_future(caller.toolbox.call(caller.identity, tool, arguments))
        with anyio.fail_after(30):
            while not await _is_changing(shop):
                await anyio.lowlevel.checkpoint()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling

    with serve(dialect, DDL[dialect] + ENDLESS[dialect]) as shop, writing(shop) as caller:
        caller.portal.call(cancel)
        stored = things(shop), journal(shop)
        later = told(caller, shop, "insert")

    assert stored == (BEFORE, [])
    assert (later.code, later.is_true("insert")) == ("", True)


def test_change_of_a_file_that_is_cancelled_during_commit_is_answered(serve: Serve) -> None:
    arrived, released = Event(), Event()

    def hold(sql: str) -> None:
        if sql.lower() == "commit":
            arrived.set()
            released.wait(30)

    async def cancel() -> object:
        writer: Any = await caller.database.writer()
        async with writer.pool.connection() as connection:
            connection.driver.set_trace_callback(hold)
        tool, arguments, _ = CALLS["update"]
        calling = asyncio.ensure_future(caller.toolbox.call(caller.identity, tool, arguments))
        await anyio.to_thread.run_sync(arrived.wait, 30)
        released.set()
        # The loop must not learn that the change is committed before the call is cancelled.
        while things(shop) == BEFORE:
            pass
        calling.cancel()
        return (await calling).structured["affected"]

    with serve("sqlite", DDL["sqlite"]) as shop, writing(shop) as caller:
        caller.call("insert_things", rows=[{"id": 9}], dry_run=True)
        affected = caller.portal.call(cancel)

        assert affected == 1
        assert (things(shop), journal(shop)) == (AFTER["update"], [CALLS["update"][2]])


async def _is_changing(shop: Shop) -> bool:
    """Return whether a change has begun: a lock is held."""
    if shop.dialect == "sqlite":
        try:
            await anyio.to_thread.run_sync(shop.bare.execute, "begin immediate")
        except sqlite3.OperationalError:
            return True
        await anyio.to_thread.run_sync(shop.bare.execute, "rollback")
        return False
    other = await asyncpg.connect(shop.url)
    try:
        return bool(await other.fetchval(RUNNING))
    finally:
        await other.close()


CROSSING = """
create table pairs (id integer primary key, other integer not null, v integer not null default 0);
insert into pairs values (1, 2), (2, 1);
create table tries (pair integer);
create sequence times;
create function cross_over() returns trigger language plpgsql as $$ begin
    perform nextval('times');
    perform pg_advisory_xact_lock_shared(7);
    update pairs set v = pairs.v + 100 where id = old.other and pg_trigger_depth() = 1;
    return new;
end $$;
create trigger crossing before update on pairs for each row when (pg_trigger_depth() = 0)
    execute function cross_over();
"""


def test_victim_of_a_deadlock_is_busy_and_is_not_repeated(serve: Serve) -> None:
    async def meet() -> list[str]:
        codes: list[str] = []

        async def change(number: int) -> None:
            try:
                await caller.toolbox.call(caller.identity, "update_pairs", {"id": number, "set": {"v": 1}})
                codes.append("")
            except errors.CallError as exc:
                codes.append(exc.code)

        async with _gate(shop) as (holder, watcher), anyio.create_task_group() as group:
            group.start_soon(change, 1)
            group.start_soon(change, 2)
            while (
                await watcher.fetchval(
                    "select count(*) from pg_locks where locktype = 'advisory' and not granted"
                )
                < 2
            ):
                await anyio.lowlevel.checkpoint()
            await holder.execute("select pg_advisory_unlock(7)")
        return codes

    with (
        serve("postgresql", CROSSING) as shop,
        writing(shop, lock_timeout=30, table="pairs") as caller,
    ):
        codes = shop.portal.call(meet)
        values = shop.bare.rows("select v from pairs order by v")
        times = shop.bare.rows("select last_value from times")

    assert sorted(codes) == ["", "busy"]
    assert values == [(1,), (100,)]
    assert times == [(2,)]


@asynccontextmanager
async def _gate(shop: Shop) -> AsyncIterator[tuple[asyncpg.Connection, asyncpg.Connection]]:
    """Hold the advisory lock 7, and give its connection and another one."""
    holder, watcher = await asyncpg.connect(shop.url), await asyncpg.connect(shop.url)
    try:
        await holder.execute("select pg_advisory_lock(7)")
        with anyio.fail_after(60):
            yield holder, watcher
    finally:
        await holder.close()
        await watcher.close()
