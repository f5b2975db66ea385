"""Worker processes of ad-hoc SQL: limited, killed at deadlines, replaced, and separate from each other."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import anyio
import psutil  # type: ignore[import-untyped]
import pytest

from dbtools import errors
from dbtools.backends import answering, processes
from dbtools.backends.processes import LOST, Worker, WorkerPool
from dbtools.backends.runs import RunContext, SqlRun
from dbtools.backends.sqlite.run_sql import runner as free
from dbtools.backends.sqlite.schema.syntax import names_in
from dbtools.policy.roles import Caller
from dbtools.settings.sections import RoleLimitsSection, RoleSection
from tests.conftest import Clock
from tests.database.free_serving import Roles, path as path, serving

ENDLESS = "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t"
MIB = 2**20


def memory() -> int:
    """Return the bytes that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


HEAVY: Mapping[str, str] = {
    "long text": "select length(printf('%.900000000c', 'x'))",
    "long blob": "select zeroblob(900000000)",
    "doubling": "with recursive t(s) as (select 'x' union all select s || s from t)"
    " select max(length(s)) from t",
    "quadratic search": "select instr(a, b)"
    " from (select hex(zeroblob(4000000)) as a, hex(zeroblob(400000)) || '1' as b)",
    "quadratic replace": "select length(replace(hex(zeroblob(2000000)), '00', hex(zeroblob(2000))))",
    "recursion": ENDLESS,
    "recursion that is kept": "with recursive t(n) as (select 1 union select n + 1 from t)"
    " select n from t order by n desc",
    "cross join": f"select count(*) from {', '.join(f'item i{n}' for n in range(30))}",
    "large sort": "with recursive t(n) as (select 1 union all select n + 1 from t where n < 3e6)"
    " select hex(zeroblob(200)) || n as s from t order by s desc",
    "large group": "with recursive t(n) as (select 1 union all select n + 1 from t where n < 3e6)"
    " select json_group_array(n || 'x') from t",
    "pattern": "select hex(zeroblob(1000000)) like '%0%0%0%0%0%0%0%0%0%0%0%0%0%0%1'",
    "wide row": f"select {', '.join(['hex(zeroblob(1000000))'] * 500)}",
    "wide row of long characters": "with a as (select replace(hex(zeroblob(1000)), '0', '😀') as s)"
    f" select {', '.join(['a.*'] * 1900)} from a",
    "long names": f'with a as (select 1 as "{"n" * 9000}") select {", ".join(["a.*"] * 1900)} from a where 0',
    "deep expression": f"select {'(' * 5000}1{')' * 5000}",
    "many terms": f"select {' + '.join(['1'] * 4000)}",
    "deep json": "select json(printf('%.100000c', '['))",
}  # fmt: skip


def beside_hasty(timeout: float) -> Roles:
    """Return the usual role, and the role `hasty` whose calls have *timeout* seconds."""
    role = RoleSection(tables={"item": True}, sql=True)
    hasty = role.model_copy(update={"limits": RoleLimitsSection(timeout=timeout)})
    return {"default": role, "hasty": hasty}


@pytest.mark.parametrize("sql", HEAVY.values(), ids=HEAVY)
async def test_heavy_statements_end_and_do_not_use_memory_of_the_server(path: Path, sql: str) -> None:
    async with serving(path, roles=beside_hasty(1)) as shop:
        await shop.ask("select 1")
        before = memory()
        with anyio.fail_after(60):
            try:
                answer = str(await shop.ask(sql, "hasty"))
            except errors.CallError as exc:
                answer = exc.code
            again = await shop.ask("select count(*) from item")

        assert answer in ("timeout", "sql_refused", "bad_argument") or len(answer) < 70_000
        assert memory() - before < 50 * MIB
        assert again == [[3]]


async def test_million_rows_are_counted_and_cut(path: Path) -> None:
    numbers = "with recursive t(n) as (select 1 union all select n + 1 from t where n < 1000000)"
    async with serving(path, timeout=60) as shop:
        counted = await shop.ask(f"{numbers} select count(*), sum(n) from t")
        answer = await shop.toolbox.call(
            Caller(), "run_sql", {"sql": f"{numbers} select n from t", "limit": 7}
        )
        most = await shop.toolbox.call(
            Caller(), "run_sql", {"sql": f"{numbers} select n from t", "limit": 200}
        )

    assert counted == [[1_000_000, 500_000_500_000]]
    assert (answer.rows, answer.truncated) == (7, True)
    assert answer.structured["note"] == "More rows: raise limit, add conditions, or aggregate."
    assert most.structured["note"] == "More rows: add offset 200 to the SQL, add conditions, or aggregate."


async def test_rows_are_cut_to_the_tokens_of_the_role(path: Path) -> None:
    sql = (
        "with recursive t(n) as (select 1 union all select n + 1 from t) select n, hex(zeroblob(700)) from t"
    )
    async with serving(path) as shop:
        answer = await shop.toolbox.call(Caller(), "run_sql", {"sql": sql, "limit": 200})

    assert len(answer.json) <= 60_000
    assert 0 < answer.rows < 200
    assert answer.structured["note"] == "Cut at max_tokens: select fewer columns, or aggregate."


async def test_long_cells_are_cut_before_they_leave_the_worker(path: Path) -> None:
    async with serving(path) as shop:
        ((text, blob),) = await shop.ask("select hex(zeroblob(5000000)), zeroblob(3000000)")

    assert str(text).endswith("… [10,000,000 characters]")
    assert blob == "[3,000,000 bytes, application/octet-stream]"


async def test_deadline_ends_the_process(path: Path) -> None:
    async with serving(path, roles=beside_hasty(0.5)) as shop:
        await shop.ask("select 1")
        worker = shop.worker
        with pytest.raises(errors.TimedOut, match="its timeout"), anyio.fail_after(30):
            await shop.ask(ENDLESS, "hasty")

        assert await worker.process.wait() < 0


async def test_other_callers_are_served_while_one_statement_runs(path: Path) -> None:
    async with serving(path) as shop, anyio.create_task_group() as group:
        group.start_soon(shop.ask, ENDLESS)
        await anyio.lowlevel.checkpoint()
        with anyio.fail_after(20):
            others = [
                await shop.toolbox.call(Caller(identity=f"c{n}"), "run_sql", {"sql": f"select {n}"})
                for n in range(5)
            ]
            listed = await shop.toolbox.call(Caller(identity="d"), "list_item", {})
        group.cancel_scope.cancel()

    assert [each.structured["rows"] for each in others] == [[[n]] for n in range(5)]
    assert listed.rows == 3


async def test_one_caller_cannot_take_all_workers(path: Path) -> None:
    async with serving(path) as shop, anyio.create_task_group() as group:
        for _ in range(processes.WORKERS * 3):
            group.start_soon(shop.ask, ENDLESS)
        while len(shop.processes()) < processes.MOST_OF_CALLER:
            await anyio.lowlevel.checkpoint()
        with anyio.fail_after(20):
            answer = await shop.toolbox.call(Caller(identity="other"), "run_sql", {"sql": "select 1"})
        group.cancel_scope.cancel()

    assert answer.rows == 1


async def test_waiting_for_a_worker_counts_towards_the_deadline(path: Path) -> None:
    async with serving(path, timeout=0.2) as shop, AsyncExitStack() as stack:
        for _ in range(processes.WORKERS):
            await stack.enter_async_context(shop.runner.workers.pool.connection())
        with anyio.fail_after(30), pytest.raises(errors.Busy):
            await shop.ask("select 1")


async def test_cancelled_call_ends_the_process_and_the_next_one_works(path: Path) -> None:
    async with serving(path, timeout=60) as shop:
        await shop.ask("select 1")
        worker = shop.worker
        asked = asyncio.ensure_future(shop.ask(ENDLESS))
        while shop.runner.workers.pool.warmest is worker:
            await anyio.lowlevel.checkpoint()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

        assert await worker.process.wait() < 0
        assert await shop.ask("select 2") == [[2]]


async def test_call_that_is_cancelled_while_its_worker_starts_leaves_no_process(path: Path) -> None:
    before = psutil.Process().children()
    async with serving(path) as shop:
        starting = asyncio.ensure_future(Worker.start(free.WORKER))
        await anyio.lowlevel.checkpoint()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

        assert psutil.Process().children() == before
        assert await shop.ask("select 2") == [[2]]


async def test_killed_worker_is_replaced(path: Path) -> None:
    async with serving(path) as shop:
        await shop.ask("select 1")
        worker = shop.worker
        worker.process.kill()
        await worker.process.wait()

        assert await shop.ask("select 2") == [[2]]
        assert shop.worker is not worker


async def test_worker_that_dies_twice_is_a_refusal(path: Path) -> None:
    async with serving(path) as shop, anyio.create_task_group() as group:
        killed: set[int] = set()

        async def kill() -> None:
            while True:
                for process in shop.processes():
                    # It may have ended since it was listed: then it has been killed before.
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                        killed.add(process.pid)
                await anyio.lowlevel.checkpoint()

        group.start_soon(kill)
        with pytest.raises(errors.SqlRefused, match="too much memory"):
            await shop.ask(ENDLESS)
        group.cancel_scope.cancel()

    assert len(killed) == free.ATTEMPTS
    async with serving(path) as shop:
        assert await shop.ask("select 2") == [[2]]


@pytest.mark.parametrize("program", ["/nowhere/python", shutil.which("false")])
async def test_worker_that_cannot_start_says_what_to_use_instead(
    path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    async with serving(path) as shop:
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(errors.Busy, match="Use the other tools"):
            await shop.ask("select 1")
        monkeypatch.undo()

        assert await shop.ask("select 2") == [[2]]


async def test_worker_of_a_large_server_is_kept(path: Path) -> None:
    """Linux counts what the server has held as the memory of a process that it starts."""
    held = bytearray(os.urandom(1) * (200 * MIB))
    async with serving(path) as shop:
        await shop.ask("select 1")
        before = shop.worker
        await shop.ask("select 2")

        assert len(held) > answering.RETIRES
        assert shop.worker is before


async def test_process_ends_with_the_server(path: Path) -> None:
    async with serving(path) as shop:
        await shop.ask("select 1")
        worker = shop.worker

    assert await worker.process.wait() is not None


async def test_process_inherits_no_environment_and_no_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBTOOLS_SECRET", "hidden")
    opened = os.open(path, os.O_RDONLY)
    os.set_inheritable(opened, True)
    async with serving(path) as shop:
        await shop.ask("select 1")
        process = f"/proc/{shop.worker.process.pid}"
        environment = await anyio.Path(process, "environ").read_bytes()
        files = [os.readlink(f"{process}/fd/{each}") for each in os.listdir(f"{process}/fd")]
    os.close(opened)

    assert b"DBTOOLS" not in environment
    assert {each.partition(":")[0] for each in files} <= {"pipe", "/dev/null", str(path)}
    assert sum(str(path) == each for each in files) == 1


async def test_workers_of_an_orphan_end_by_themselves(path: Path, clock: Clock) -> None:
    async with serving(path, roles=beside_hasty(0.2)) as shop:
        await shop.ask("select 1")
        await shop.ask("select 1", "hasty")  # so that the process knows what this role sees
        worker = shop.worker
        asked = asyncio.ensure_future(shop.ask(ENDLESS, "hasty"))
        while shop.runner.workers.pool.warmest is worker:
            await anyio.lowlevel.checkpoint()
        # The server does not end it for a long time.
        clock.advance(-600)

        assert await worker.process.wait() == -14
        # It would try again with another process.
        asked.cancel()
        await asyncio.wait([asked])


async def ask_odd(pool: WorkerPool, kind: str, **other: object) -> Mapping[str, object]:
    """Return the answer of *pool* to a request of this *kind*."""

    async def specify() -> str:
        return "known"

    ends = asyncio.get_running_loop().time() + 20
    return await pool.ask({"kind": kind, **other}, specify, caller="tests", ends=ends)


@pytest.mark.parametrize("kind", ["no JSON", "long"])
async def test_answer_that_cannot_be_read_ends_the_process(kind: str) -> None:
    pool = WorkerPool("tests.database.odd_answers")
    lost = await ask_odd(pool, kind, length=processes.LARGEST_ANSWER + 1)
    after = await ask_odd(pool, "plain")
    await pool.close()

    assert lost == LOST
    assert "timeout" in after


async def test_second_request_gets_the_time_that_is_left() -> None:
    pool = WorkerPool("tests.database.odd_answers")
    answer = await ask_odd(pool, "slow", seconds=1.5)
    await pool.close()

    assert 0 < float(str(answer["timeout"])) <= 18.5


@pytest.mark.parametrize("ending", ["", " from nowhere"], ids=["explained", "refused"])
async def test_long_statement_is_not_read_on_the_event_loop(path: Path, ending: str) -> None:
    sql = f"select {'+'.join(['id'] * 6_000)} from item{ending}"
    began = time.thread_time()
    names_in(sql)
    reading = time.thread_time() - began
    async with serving(path) as shop:
        await shop.ask("select 1")
        view = await shop.toolbox.view("default")
        run = SqlRun(
            sql=sql,
            catalog=view.whole,
            whole=view.whole,
            claims={},
            caller="tests",
            limit=1,
            longest=100,
            most_bytes=1_000,
            context=RunContext(timeout=20.0, stamp=view.stamp),
        )
        used = []
        for _ in range(3):
            began = time.thread_time()
            with suppress(errors.SqlRefused):
                await shop.runner.explain(run)
            used.append(time.thread_time() - began)

    assert min(used) < reading
