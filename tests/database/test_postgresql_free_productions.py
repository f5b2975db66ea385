"""Reading a caller's SQL takes a bounded time, whatever it nests or repeats, and never the server's own."""

import asyncio
import resource
import time
from collections.abc import Iterator, Sequence, Set as AbstractSet
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import asyncpg
import psutil  # type: ignore[import-untyped]
import pytest

from dbtools.backends.postgresql.run_sql.guarding import Guards
from dbtools.backends.postgresql.schema.vocabulary import Vocabulary, read_vocabulary
from dbtools.backends.runs import SqlRun
from dbtools.backends.sqlite.run_sql.refusals import checked_sql
from dbtools.backends.sqlite.schema.syntax import names_in
from dbtools.errors import CallError, SqlRefused
from dbtools.policy.roles import FunctionRules
from dbtools.tools.run_sql import LONGEST_SQL
from tests.database.postgresql_free_shop import SqlShop, shop as shop

TIMEOUT = 0.5  #: seconds
MOST_CPU = 5.0  #: seconds of a process for one text, and of its successor to start
MOST_OWN_CPU = 0.5  #: seconds of the server for one text
ENDLESS = 60.0  #: seconds that no check may take
FOLDER = Path(__file__).parent
#: Productions of values, of what follows FROM, and of statements, in which {} stands for such a thing.
VALUES, SOURCES, STATEMENTS = (
    section.split("\n")
    for section in (FOLDER / "postgresql_free_productions.txt").read_text().strip().split("\n\n")
)


def nested(production: str, core: str, times: int) -> str:
    """Return *production* in itself so many *times*, with *core* in the innermost one."""
    before, _, after = production.partition("{}")
    return before * times + core + after.replace("{}", core) * times


def small(production: str, frame: str, core: str) -> Iterator[str]:
    """Yield statements that nest *production* in itself, and repeat it, for what takes exponential time."""
    yield frame.format(nested(production, core, 35))
    yield frame.format(", ".join([production.replace("{}", core)] * 300))


def large(production: str, frame: str, core: str) -> Iterator[str]:
    """Yield the same as often as a text has room, for what takes quadratic time."""
    yield frame.format(nested(production, core, 1_000))
    yield frame.format(", ".join([production.replace("{}", core)] * (LONGEST_SQL // len(production))))


CASES = {
    **dict.fromkeys(VALUES, ("select {}", "x")),
    **dict.fromkeys(SOURCES, ("select 1 from {}", "a")),
    **dict.fromkeys(STATEMENTS, ("{}", "select 1")),
}


@pytest.fixture(scope="module")
def vocabulary(shop: SqlShop) -> Vocabulary:

    async def read() -> Vocabulary:
        connection = await asyncpg.connect(shop.url)
        try:
            return await read_vocabulary(connection, shop.catalog.search_path, FunctionRules())
        finally:
            await connection.close()

    return shop.portal.call(read)


def _cpu_of_processes() -> float:
    """Return the seconds that the processes of this one have used, whether they have ended or not."""
    while True:
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = ended.ru_utime + ended.ru_stime
        for process in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used += float(times.user + times.system)
        if resource.getrusage(resource.RUSAGE_CHILDREN) == ended:
            return used


async def _check(guards: Guards, run: SqlRun, vocabulary: Vocabulary, timeout: float = TIMEOUT) -> str:
    """Check *run*, and return how that ended."""
    ends = asyncio.get_running_loop().time() + timeout
    try:
        await guards.check(run, vocabulary, ends)
    except CallError as exc:
        return exc.code
    return "permitted"


class Measured(NamedTuple):
    """What the checks of some productions took: those that took too long, with the seconds, and all ends."""

    slow: Sequence[tuple[str, float]]  #: in the processes
    late: Sequence[tuple[str, float]]  #: in the server
    ends: AbstractSet[str]


def measured(family: Sequence[str], run: SqlRun, vocabulary: Vocabulary) -> Measured:
    """Check the productions of *family* as *run* is checked, in a process that has no other children."""
    slow, late, ends = [], [], set()

    async def check_all() -> None:
        guards = Guards()
        await _check(guards, run._replace(sql="select 1"), vocabulary)
        for number, production in enumerate(family):
            case = (production, *CASES[production])
            # Most large ones are refused before they are parsed.
            for sql in (*small(*case), *(large(*case) if number % 4 == 0 else ())):
                own, used = time.process_time(), _cpu_of_processes()
                ends.add(await _check(guards, run._replace(sql=sql), vocabulary))
                own, used = time.process_time() - own, _cpu_of_processes() - used
                slow.extend([(production, used)] if used > MOST_CPU else [])
                late.extend([(production, own)] if own > MOST_OWN_CPU else [])
        await guards.close()

    asyncio.run(check_all())
    return Measured(slow, late, ends)


@pytest.mark.parametrize("family", [VALUES, SOURCES, STATEMENTS], ids=["values", "sources", "statements"])
def test_every_production_is_read_in_bounded_time(
    shop: SqlShop, vocabulary: Vocabulary, family: list[str]
) -> None:
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        found = process.submit(measured, family, shop.request(""), vocabulary).result()

    assert (found.slow, found.late) == ([], [])
    assert {"permitted", "sql_refused"} <= found.ends <= {"permitted", "sql_refused", "timeout"}


def test_statement_of_another_caller_is_checked_beside_a_bad_one(
    shop: SqlShop, vocabulary: Vocabulary
) -> None:
    bad = f"select 1 from a {'join a ' * 40}"

    async def beside() -> tuple[str, list[str]]:
        guards = Guards()
        before = psutil.Process().children()
        loop = asyncio.get_running_loop()
        run = shop.request(bad, caller="bad")
        checks = [
            asyncio.ensure_future(guards.check(run, vocabulary, loop.time() + ENDLESS)) for _ in range(9)
        ]
        other = await _check(guards, shop.request("select 1", caller="other"), vocabulary, ENDLESS)
        processes = psutil.Process().children()
        for each in checks:
            each.cancel()
        found = await asyncio.gather(*checks, return_exceptions=True)
        await guards.close()
        assert not [each for each in processes if each not in before and each.is_running()]
        return other, [type(each).__name__ for each in found]

    other, found = shop.portal.call(beside)

    assert other == "permitted"
    assert found == ["CancelledError"] * 9


def test_sqlite_reads_names_in_linear_time() -> None:
    slow = []
    for production, (frame, core) in CASES.items():
        for sql in large(production, frame, core):
            began = time.process_time()
            with suppress(SqlRefused):
                names_in(checked_sql(sql))
            took = time.process_time() - began
            slow.extend([(production, took)] if took > 2 * MOST_OWN_CPU else [])

    assert slow == []
