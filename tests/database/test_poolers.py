"""Behind a pooler that neither passes settings on nor keeps them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from dbtools.alembic import upgrade
from dbtools.backends.postgresql.connection.connections import connect, end, prepare
from dbtools.backends.postgresql.connection.pipeline import rolled_back
from dbtools.backends.postgresql.schema.changes import Control
from dbtools.errors import DatabaseUnavailable
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, Settings, load
from tests.database.pgbouncer import SHARED, needs_pgbouncer, pgbouncer
from tests.database.poolers import proxy, swapping_proxy
from tests.database.shop import pool_of
from tests.postgresql_server import PostgresqlServer

DDL = """
create table stays (id integer primary key, span interval, since timestamptz, bytes bytea, size text);
insert into stays values (1, '1 day 2 hours', '2024-03-05 12:00:00+01', '\\x00ff', '7');
"""
QUERY = "-- name: spans\n-- description: Spans.\nselect span, size from stays"
ROW = [1, "P1DT2H", "2024-03-05T11:00:00Z", "AP8=", "7"]
SETTINGS = (
    "select current_setting(n) from unnest(array['lock_timeout', 'search_path', 'intervalstyle', 'jit']) as n"
)
NOTHING_SET = ["0", '"$user", public', "postgres", "on"]
WIDENED = "alter table stays alter id type bigint"
RETYPED = "alter table stays alter size type integer using size::integer"


@pytest.fixture
def url(postgresql_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    with postgresql_database(DDL) as url:
        yield url


async def _answers(url: str, folder: Path) -> tuple[Any, Any, Any]:
    """Return what a table and a query answer over *url*, and what is set on a connection afterwards."""
    (folder / "spans.sql").write_text(QUERY)
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n[queries]\ndirectory = "."\n')
    toolbox, backend = open_toolbox(load(path))
    try:
        rows = (await toolbox.call(Caller(), "list_stays", {})).structured["rows"]
        spans = (await toolbox.call(Caller(), "spans", {})).structured["rows"]
        async with (await pool_of(backend)).connection() as connection:
            kept = [value for (value,) in await connection.fetch(SETTINGS)]
    finally:
        await backend.close()
    return rows, spans, kept


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses settings", "ignores settings"])
async def test_each_transaction_sets_what_it_needs_and_leaves_nothing(
    refuses: bool, url: str, tmp_path: Path
) -> None:
    async with proxy(url, refuses=refuses) as pooled:
        assert await _answers(pooled, tmp_path) == ([ROW], [["P1DT2H", "7"]], NOTHING_SET)


@pytest.mark.parametrize("refuses", [True, False], ids=["refuses settings", "ignores settings"])
async def test_settings_of_the_url_hold_in_each_transaction(refuses: bool, url: str) -> None:
    query = "schema=pg_catalog&options=-c%20work_mem%3D123kB&application_name=it%27s"
    async with proxy(url, refuses=refuses) as pooled:
        connection: Any = await connect(f"{pooled}?{query}")
        await prepare(connection)
        async with rolled_back(connection, "begin read only"):
            kept = [
                await connection.fetchval(f"show {name}")
                for name in ("search_path", "work_mem", "application_name", "lock_timeout")
            ]
        after = await connection.fetchval("show work_mem")
        await end(connection)

    assert kept == ["pg_catalog, pg_temp", "123kB", "it's", "5003ms"]
    assert after != "123kB"


async def test_pooler_that_rejects_what_is_meant_for_a_proxy_is_named(url: str) -> None:
    async with proxy(url, refuses=True) as pooled:
        with pytest.raises(DatabaseUnavailable, match="a pooler in front of it, rejected"):
            await connect(f"{pooled}?options=endpoint%3Dx")


async def test_rows_that_cannot_be_read_since_a_migration_are_read_again(
    url: str, postgresql_server: PostgresqlServer
) -> None:
    async with swapping_proxy(url, replays=True, refuses=True) as pooler:
        toolbox, backend = open_toolbox(Settings(database=DatabaseSection(url=pooler.url)))
        try:
            before = (await toolbox.call(Caller(), "list_stays", {})).structured["rows"]
            await anyio.to_thread.run_sync(lambda: postgresql_server.execute(WIDENED, url=url))
            # The other session sends eight bytes, where the driver expects four.
            pooler.is_due = True
            after = (await toolbox.call(Caller(), "list_stays", {})).structured["rows"]
        finally:
            await backend.close()

    assert (before, after, pooler.is_due) == ([ROW], [ROW], False)


@needs_pgbouncer
async def test_failed_upgrade_leaves_nothing_set(url: str) -> None:
    async with pgbouncer(url, **SHARED) as pooled:
        connection = await asyncpg.connect(pooled)
        await connection.execute("create schema dbtools; create table dbtools.dbtools_query (id integer)")
        with pytest.raises(Exception, match="exists"):
            await anyio.to_thread.run_sync(upgrade, pooled)
        kept = [value for (value,) in await connection.fetch(SETTINGS)]
        await connection.close()

    assert kept == NOTHING_SET


async def test_what_is_set_once_holds_where_no_pooler_is(url: str, tmp_path: Path) -> None:
    rows, spans, kept = await _answers(url, tmp_path)

    assert (rows, spans) == ([ROW], [["P1DT2H", "7"]])
    assert kept == ["5003ms", "public", "iso_8601", "on"]


@needs_pgbouncer
async def test_pooler_that_lends_connections_for_transactions(
    url: str, tmp_path: Path, postgresql_server: PostgresqlServer
) -> None:
    async with pgbouncer(url) as pooled:
        before = await _answers(pooled, tmp_path)
        await anyio.to_thread.run_sync(lambda: postgresql_server.execute(RETYPED, url=url))
        after = await _answers(pooled, tmp_path)

    assert before == ([ROW], [["P1DT2H", "7"]], NOTHING_SET)
    assert after == ([[*ROW[:4], 7]], [["P1DT2H", 7]], NOTHING_SET)


@pytest.mark.parametrize(
    "error", [asyncpg.InvalidSQLStatementNameError("gone"), asyncpg.DuplicatePreparedStatementError("there")]
)
async def test_pooler_that_keeps_no_statements_is_reported(error: Exception, url: str) -> None:
    async def ask(_: object) -> None:
        raise error

    control = Control(url)
    try:
        with pytest.raises(DatabaseUnavailable, match="keeps no prepared statements"):
            await control.answer(ask, "The catalog cannot be read.", 5)
    finally:
        await control.close()
