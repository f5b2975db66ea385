"""Ad-hoc SQL on PostgreSQL without its guard, and during failures."""

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql.run_sql.guarded import Guarded
from dbtools.backends.postgresql.run_sql.guarding import Guards
from dbtools.backends.postgresql.run_sql.parsing import lexemes_of
from dbtools.backends.postgresql.run_sql.runner import SLOW_FOR, PostgresqlSqlRunner
from dbtools.errors import Busy, CallError, Denied, SchemaChanged, SqlRefused, TimedOut
from dbtools.values.cells import Cut
from tests.conftest import Clock
from tests.database.poolers import proxy
from tests.database.postgresql_free_shop import SqlShop, open_free_shop, read_shop, shop as shop
from tests.postgresql_server import PostgresqlServer, execute

OTHERS = (
    "select v from secrets",
    "select count(*) from customers c, secrets s",
    "select (select v from vault.keys)",
    "select * from peek",
    "select * from pg_catalog.pg_authid",
    "select relname from pg_class",
    "with x as (select * from secrets) select 1",
    "select 1 where exists (table secrets)",
    "select * from information_schema.tables",
    "select 1 from logs_2024",
)
ACTIVE = "select count(*) from pg_stat_activity where application_name = $1 and state = 'active'"


def _run_unguarded(shop: SqlShop, sql: str) -> None:
    """Run *sql*, which may read the odd table, as it is written."""
    odd = next(table for table in shop.catalog.tables if table.name == "Odd Name")
    guarded = Guarded(
        sql=sql,
        sources={odd: '"public"."Odd Name"'},
        lexemes=lexemes_of("select 1"),
        calls_others=False,
    )

    class Overlooking(Guards):
        async def check(self, *_: object) -> Guarded:
            return guarded

    runner = PostgresqlSqlRunner(shop.url, Overlooking())
    try:
        shop.portal.call(runner.run, shop.request(sql))
    finally:
        shop.portal.call(runner.close)


def test_timeout_while_names_are_read_is_not_blamed_on_other_statements(
    shop: SqlShop, postgresql_server: PostgresqlServer, portal: BlockingPortal
) -> None:
    holding = portal.call(asyncpg.connect, shop.url)
    runner = PostgresqlSqlRunner(shop.url)
    try:
        portal.call(holding.execute, "begin; lock table pg_catalog.pg_collation in access exclusive mode")
        with pytest.raises(TimedOut, match="while the names in the database were read"):
            portal.call(runner.run, shop.request("select 1", timeout=0.5))
    finally:
        portal.call(holding.close)
        portal.call(runner.close)


@pytest.mark.parametrize("sql", OTHERS)
def test_server_names_relations_that_the_guard_overlooked(shop: SqlShop, sql: str) -> None:
    with pytest.raises(SqlRefused, match="more than the tables"):
        _run_unguarded(shop, sql)


def test_plan_names_functions_that_the_guard_overlooked(shop: SqlShop) -> None:
    with pytest.raises(SqlRefused, match="more than the tables"):
        _run_unguarded(shop, "select * from leak_rows()")
    with pytest.raises(SqlRefused, match="scans a function"):
        _run_unguarded(shop, "select * from pg_stat_get_activity(null)")


@pytest.mark.parametrize(
    "sql",
    [
        "select nextval('counter')",
        "select setval('counter', 5)",
        'with x as (delete from "Odd Name" returning *) select * from x',
        'select * from "Odd Name" for update',
    ],
)
def test_session_refuses_to_write(shop: SqlShop, sql: str) -> None:
    with pytest.raises(CallError):
        _run_unguarded(shop, sql)


def test_guarded_statement_has_one_select_only(shop: SqlShop) -> None:
    for sql in ("commit", "set role none", "select 1; select 2", "lock table orders", "listen x"):
        with pytest.raises(CallError):
            _run_unguarded(shop, sql)


ENDLESS = (
    "select count(*) from generate_series(1, 100000) a, generate_series(1, 100000) b",
    "with recursive n(i) as (select 1 union all select i + 1 from n) select max(i) from n",
    "select count(*) from orders a, orders b, orders c, orders d, orders e, orders f",
    "select length(string_agg(repeat('x', 1000), '')) from generate_series(1, 10000000)",
    "select repeat(repeat(repeat('x', 10000), 10000), 9)",
    "select max(length(repeat(a::text, 100000))) from generate_series(1, 1000000) as a",
)


@pytest.mark.parametrize("sql", ENDLESS)
def test_endless_statement_is_stopped_in_the_database(shop: SqlShop, sql: str) -> None:
    with pytest.raises((TimedOut, CallError)):
        shop.run(sql, timeout=0.5, application="endless")

    assert shop.portal.call(_until_idle, shop.url, "endless") == 0
    assert shop.rows("select 1") == [(1,)]


@pytest.mark.parametrize(
    ("seconds", "running", "others"),
    [pytest.param(0, 1, Busy, id="slow"), pytest.param(SLOW_FOR, 3, TimedOut, id="no longer slow")],
)
def test_callers_of_slow_statements_share_one_turn(
    shop: SqlShop, clock: Clock, seconds: float, running: int, others: type[CallError]
) -> None:
    async def slow(running: int) -> Counter[type[object]]:
        """Let three callers run a statement, until their time is over when so many are *running*."""
        runs = (shop.request(ENDLESS[0], caller=f"{seconds} {each}", application="slow") for each in "abc")
        tasks = [asyncio.ensure_future(shop.runner.run(run)) for run in runs]
        await _until(connection, "slow", lambda active: active == running)
        quick = await shop.runner.run(shop.request("select 1", caller=f"quick {seconds}"))
        assert quick.rows == ((1,),)
        clock.advance(60)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert await _until(connection, "slow", lambda active: active == 0) == 0
        return Counter(type(each) for each in found)

    async def share() -> None:
        assert await slow(3) == {TimedOut: 3}
        clock.advance(seconds)
        assert await slow(running) == Counter([TimedOut, others, others])

    connection = shop.portal.call(asyncpg.connect, shop.url)
    shop.portal.call(share)
    shop.portal.call(connection.close)


#: The server does not check within the function whether to stop.
STUCK = "select strpos(repeat('a', 200000), 'b' || repeat('a', 100000))"


def test_statements_that_the_server_cannot_stop_keep_their_place(shop: SqlShop) -> None:
    async def stuck() -> tuple[int, int]:
        run = shop.request(STUCK, timeout=2.0, caller="stuck", application="stuck")
        connection = await asyncpg.connect(shop.url)
        tasks = [asyncio.ensure_future(shop.runner.run(run)) for _ in range(4)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(each) for each in found] == [TimedOut, TimedOut, Busy, Busy]
        meanwhile = await connection.fetchval(ACTIVE, "stuck")
        other = await shop.runner.run(shop.request("select 1", caller="other"))
        assert other.rows == ((1,),)
        # It may take long on a busy machine.
        later = [await _until(connection, "stuck", lambda active: active == 0) for _ in range(6)]
        await connection.close()
        return meanwhile, later[-1]

    assert shop.portal.call(stuck) == (2, 0)
    assert shop.rows("select 1", caller="stuck") == [(1,)]


def test_slow_statements_of_one_caller_leave_room_for_others(shop: SqlShop) -> None:
    async def beside() -> Any:
        slow = [shop.runner.run(shop.request(ENDLESS[0], timeout=60.0, caller="slow")) for _ in range(8)]
        tasks = [asyncio.ensure_future(each) for each in slow]
        connection = await asyncpg.connect(shop.url)
        await asyncio.sleep(0)
        found = await shop.runner.run(shop.request("select count(*) from regions", caller="other"))
        done = [task.done() for task in tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await connection.close()
        return found.rows, any(done)

    assert shop.portal.call(beside) == (((2,),), False)


def test_cancelled_statement_is_stopped_in_the_database(shop: SqlShop) -> None:
    async def cancelled() -> None:
        run = shop.request(ENDLESS[0], application="cancelled")
        task = asyncio.ensure_future(shop.runner.run(run))
        connection = await asyncpg.connect(shop.url)
        await _until(connection, "cancelled", lambda active: active > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await connection.fetchval(ACTIVE, "cancelled") == 0
        await connection.close()

    shop.portal.call(cancelled)


def test_large_results_are_cut_while_they_are_read(shop: SqlShop) -> None:
    shop.rows("select 1")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cells = shop.rows("select repeat('x', 100000000), array_agg(g) from generate_series(1, 300000) as g")
    found = shop.run("select repeat(g::text, 100000) from generate_series(1, 1000000) as g", limit=1000)
    wide = ", ".join(f"repeat('y', 400) as c{number}" for number in range(300))
    rows = shop.run(f"select {wide} from generate_series(1, 1000)", limit=1000)
    with pytest.raises(CallError, match="too much"):
        shop.run("select (repeat('x', 100000000) || g)::int from generate_series(1, 2) as g")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    assert cells == [(Cut(start="x" * 500, length=100000000), cells[0][1])]
    assert len(str(cells[0][1])) < 600
    assert found.more
    assert len(rows.rows) < 1000
    assert rows.more
    assert grown < 50 * 1024


def test_statement_takes_seven_round_trips(shop: SqlShop) -> None:
    async def counted() -> int:
        await shop.runner.run(shop.request("select c.name, o.id from customers c, orders o"))
        transport, sent = shop.runner.pool.warmest.transport, 0

        class Counting:
            def __getattr__(self, name: str) -> Any:
                return getattr(inner, name)

            def write(self, sent_now: bytes) -> None:
                nonlocal sent
                sent += 1
                inner.write(sent_now)

        inner, transport.inner = transport.inner, Counting()
        await shop.runner.run(shop.request("select o.id, c.name from customers c, orders o"))
        transport.inner = inner
        return sent

    assert shop.portal.call(counted) == 7


@pytest.mark.parametrize("claim", [None, ["north", "south"]])
def test_claim_that_is_missing_or_a_list_denies_the_call(shop: SqlShop, claim: object) -> None:
    with pytest.raises(Denied):
        shop.run("select name from customers", claims={"region": claim})


def test_rows_beyond_the_limit_are_more(shop: SqlShop) -> None:
    exact = shop.run("select id from orders order by id", limit=40)
    fewer = shop.run("select id from orders order by id", limit=39)

    assert (len(exact.rows), exact.more) == (40, False)
    assert (len(fewer.rows), fewer.more) == (39, True)


def test_lost_connections_are_replaced(shop: SqlShop) -> None:
    shop.rows("select 1", application="lost")
    ended = (
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
        "and datname = current_database()"
    )
    shop.portal.call(execute, shop.url, ended)

    assert shop.rows("select count(*) from regions") == [(2,)]


@pytest.mark.parametrize("refuses", [True, False])
def test_pooler_that_passes_no_settings_on_changes_no_answer(shop: SqlShop, refuses: bool) -> None:
    async def through() -> list[Any]:
        async with proxy(shop.url, refuses=refuses) as url:
            runner = PostgresqlSqlRunner(url)
            sqls = (
                "select name, born from customers order by id",
                "select interval '1 day 2 hours'",
                "select 1",
            )
            found = [(await runner.run(shop.request(sql))).rows for sql in sqls * 2]
            await runner.close()
            return found

    rows = ((("Ann", "1990-05-01"), ("Cid", "1985-11-30"), ("Eve", None)), (("P1DT2H",),), ((1,),))
    assert shop.portal.call(through) == [*rows, *rows]


def test_changed_table_is_noticed(postgresql_server: PostgresqlServer, portal: BlockingPortal) -> None:
    with open_free_shop(postgresql_server, portal, hidden=True) as shop:
        assert shop.rows("select count(*) from regions") == [(2,)]
        portal.call(execute, shop.url, "alter table regions rename to r2; create table regions (v text)")
        with pytest.raises(CallError) as refused:
            shop.run("select * from regions")
        portal.call(execute, shop.url, 'alter table "Odd Name" add column hidden text default 1')
        with pytest.raises(SchemaChanged):
            shop.run('select * from "Odd Name"')
        later = portal.call(read_shop, shop.url, portal)
        found = later.rows('select * from "Odd Name" order by 1')
        portal.call(later.runner.close)

    assert refused.value.code in ("schema_changed", "sql_refused")
    assert found == [(1, "one", "1"), (2, "two", "1")]


def test_migrations_in_the_middle_fail_no_call_for_another_reason(
    postgresql_server: PostgresqlServer, portal: BlockingPortal
) -> None:
    with open_free_shop(postgresql_server, portal, hidden=True) as shop:

        async def migrated() -> set[str]:
            codes = set()
            connection = await asyncpg.connect(shop.url)
            for number in range(12):
                run = shop.runner.run(shop.request('select * from "Odd Name" order by 1'))
                task = asyncio.ensure_future(run)
                await asyncio.sleep(0.001 * number)
                await connection.execute(f'alter table "Odd Name" add column c{number} text')
                await connection.execute(f'alter table "Odd Name" drop column c{number}')
                try:
                    rows = (await task).rows
                    assert rows == ((1, "one"), (2, "two"))
                except CallError as exc:
                    codes.add(exc.code)
            await connection.close()
            return codes

        assert portal.call(migrated) <= {"schema_changed"}


async def _until_idle(url: str, application: str) -> int:
    """Return how many statements of *application* are active once the server had time to stop them."""
    connection = await asyncpg.connect(url)
    try:
        return await _until(connection, application, lambda active: active == 0)
    finally:
        await connection.close()


async def _until(connection: Any, application: str, done: Callable[[int], bool]) -> int:
    for _ in range(500):
        active = int(await connection.fetchval(ACTIVE, application))
        if done(active):
            break
        await asyncio.sleep(0.02)
    return active
