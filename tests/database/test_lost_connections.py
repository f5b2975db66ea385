"""Connections that are lost, busy or out of date: calls use other connections, or report it."""

import asyncio
from contextlib import AsyncExitStack, ExitStack

import anyio
import asyncpg
import pytest

from dbtools.backends.postgresql.schema.types import lexis
from dbtools.errors import DatabaseUnavailable
from dbtools.policy.roles import Caller
from dbtools.schema.sql import scan
from tests.database.cutting_proxy import Cut, cutting_proxy
from tests.database.shop import Serve, Shop, open_bare, open_shop, pool_of
from tests.database.slow_tables import CONNECTIONS, DDL, code_of, shops as shops

END_ALL = """
select pg_terminate_backend(pid) from pg_stat_activity
where application_name = 'dbtools' and datname = current_database()
"""


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_connections_that_the_server_has_closed_are_replaced(dialect: str, serve: Serve) -> None:
    with serve(dialect, DDL, fresh=True) as shop:
        _use_every_connection(shop)
        shop.bare.execute(END_ALL)

        answers = [shop.rows("t") for _ in range(CONNECTIONS[dialect] + 1)]

    assert [len(rows) for rows in answers] == [2] * len(answers)


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_conditions_are_inspected_after_the_server_has_closed_the_connection(
    dialect: str, serve: Serve
) -> None:
    async def casts() -> tuple[str, ...]:
        table = next(each for each in (await shop.toolbox.snapshot()).catalog.tables if each.name == "t")
        async with shop.database.describe() as inspector:
            return (await inspector.condition(table, scan("id = :claims.id", lexis))).casts

    with serve(dialect, DDL, fresh=True) as shop:
        before = shop.portal.call(casts)
        shop.bare.execute(END_ALL)
        after = shop.portal.call(casts)

    assert before == after
    assert len(before) == 1


def _use_every_connection(shop: Shop) -> None:
    """Run the same call on every connection of the pool."""

    async def use() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(4 * CONNECTIONS[shop.dialect]):
                group.start_soon(shop.toolbox.call, Caller(), "list_t", {})

    shop.portal.call(use)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param("alter table t add column w int", "", id="column added"),
        pytest.param("alter table t rename column v to w", "", id="column renamed"),
        pytest.param("drop view divided; drop table t", "unknown_tool", id="table gone"),
        pytest.param("create index i on t (v)", "", id="index added"),
    ],
)
def test_schema_change_causes_no_unexpected_error(change: str, code: str, dialect: str, serve: Serve) -> None:
    with serve(dialect, DDL, fresh=True) as shop:
        _use_every_connection(shop)
        if dialect == "sqlite" and "rename" in change:
            change = "drop view divided; " + change
        shop.bare.execute(change)

        codes = {code_of(lambda: shop.page("t")) for _ in range(CONNECTIONS[dialect] + 1)}

    assert codes == {code}


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_changed_type_is_noticed_on_every_connection(dialect: str, serve: Serve) -> None:
    with serve(
        dialect, "create table t (id int primary key, v int); insert into t values (1, 2)", fresh=True
    ) as shop:
        _use_every_connection(shop)
        shop.bare.execute("alter table t alter column v type text")

        answers = [shop.rows("t") for _ in range(CONNECTIONS[dialect] + 1)]

    assert answers == [[[1, "2"]]] * len(answers)


def test_locked_database_is_busy(dialect: str, serve: Serve) -> None:
    lock = {"sqlite": "begin exclusive", "postgresql": "begin; lock table t in access exclusive mode"}
    with serve(dialect, DDL, fresh=True) as shop, ExitStack() as stack:
        shop.rows("t")
        writer = open_bare(dialect, shop.url, shop.portal)
        stack.callback(writer.close)
        writer.execute(lock[dialect])

        code = code_of(lambda: shop.page("t"))
        writer.execute("rollback")

        assert code == "busy"
        assert len(shop.rows("t")) == 2


def test_calls_without_a_free_connection_are_refused(dialect: str, serve: Serve) -> None:
    with serve(dialect, DDL, fresh=True) as shop:

        async def call_while_all_are_in_use() -> None:
            pool = await pool_of(shop.database)
            async with AsyncExitStack() as stack:
                for _ in range(CONNECTIONS[dialect]):
                    await stack.enter_async_context(pool.connection())
                await shop.toolbox.call(Caller(), "list_t", {})

        shop.refresh()
        code = code_of(lambda: shop.portal.call(call_while_all_are_in_use))

        assert code == "busy"
        assert len(shop.rows("t")) == 2


COUNTS = """
select count(*), count(*) filter (where wait_event_type = 'Lock')
from pg_stat_activity
where application_name = 'dbtools' and datname = current_database()
"""
PATIENCE = 20  #: seconds


def test_process_has_no_more_connections_than_documented(serve: Serve) -> None:
    most = CONNECTIONS["postgresql"]
    with serve("postgresql", DDL, fresh=True) as shop:

        async def call_at_once() -> tuple[int, list[int]]:
            lock, watcher = await asyncpg.connect(shop.url), await asyncpg.connect(shop.url)
            found: list[int] = []

            async def call() -> None:
                found.append((await shop.toolbox.call(Caller(), "list_t", {})).rows)

            async with (
                asyncio.timeout(PATIENCE),
                asyncio.TaskGroup() as group,
                lock.transaction(),
            ):
                await lock.execute("lock table t in access exclusive mode")
                for _ in range(3 * most):
                    group.create_task(call())
                waiting = 0
                while waiting < most:
                    await shop.database.stamp()
                    ((count, waiting),) = await watcher.fetch(COUNTS)
            await lock.close()
            await watcher.close()
            return count, found

        shop.refresh()
        count, found = shop.portal.call(call_at_once)

    assert count == most + 1  # the other one reads the catalog and listens
    assert found == [2] * 3 * most


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_connection_in_use_while_the_pool_reopens_is_closed_afterwards(dialect: str, serve: Serve) -> None:
    with serve(dialect, DDL, fresh=True) as shop:

        async def use_while_reopening() -> object:
            pool = await pool_of(shop.database)
            async with pool.connection() as connection:
                await pool.dispose()
            async with pool.connection() as other:
                assert other is not connection
            return connection

        shop.rows("t")
        connection = shop.portal.call(use_while_reopening)

        assert isinstance(connection, asyncpg.Connection)
        assert connection.is_closed()
        assert len(shop.rows("t")) == 2


@pytest.mark.parametrize("repeats", [False, True], ids=["once", "always"])
def test_connection_that_is_lost_while_it_is_prepared_is_opened_again(repeats: bool, serve: Serve) -> None:
    """SQLAlchemy would replace the driver's error, by which dbtools knows that the connection is lost."""
    with ExitStack() as stack:
        shop = stack.enter_context(serve("postgresql", DDL, fresh=True))
        proxies = shop.portal.wrap_async_context_manager(cutting_proxy(shop.url))
        proxy = stack.enter_context(proxies)
        through = stack.enter_context(open_shop("postgresql", proxy.url, shop.portal))
        through.refresh()
        proxy.at(lambda request: b"current_schemas(false)" in request, Cut.DURING)
        proxy.repeats = repeats
        if repeats:
            with pytest.raises(DatabaseUnavailable):
                through.call("get_t", {"id": 1})
        else:
            assert through.call("get_t", {"id": 1}).structured == {"row": {"id": 1, "v": "one"}}

        assert proxy.met.is_set()
