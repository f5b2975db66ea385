"""Changes during a migration of their table happen once, or not at all."""

import asyncio
from collections.abc import Iterator, Mapping

import anyio
import anyio.lowlevel
import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.errors import DbtoolsError
from tests.database.cutting_proxy import Cutting, is_commit, numbered, proxy_of_shop as proxy_of_shop
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop
from tests.database.written_journal import AFTER, BEFORE, CALLS, DDL, journal, things, told, writing

WRITERS, ROUNDS = 8, 5
#: Eight migrations, after which the table is as before.
MIGRATIONS = {
    "sqlite": (
        "alter table things add column w text",
        "alter table things rename column w to x",
        "alter table things drop column x",
        "alter table things rename to moved",
        "alter table moved rename to things",
        "create index by_v on things (v)",
        "alter table things rename column v to u",
        "drop index by_v; alter table things rename column u to v",
    ),
    "postgresql": (
        "alter table things add column w text",
        "alter table things rename column w to x",
        "alter table things drop column x",
        "alter table things rename to moved",
        "alter table moved rename to things",
        "alter table things alter v type varchar(100)",
        "alter table things alter v type text",
        "alter table things rename v to u; alter table things rename u to v",
    ),
}
#: How a call ends while the table or a column has another name, or changes again and again.
PASSING = {"schema_changed", "unknown_tool", "unknown_argument", "unknown_column", "unknown_table", "busy"}


async def _write_under_migrations(
    caller: Caller, shop: Shop, more: Mapping[str, str]
) -> tuple[set[int], dict[int, str]]:
    """Return the rows whose insertion succeeded, and the codes of those that failed."""
    inserted, failed, ended = set[int](), dict[int, str](), asyncio.Event()

    async def write(first: int) -> None:
        id = first
        while not ended.is_set():
            try:
                row = {"id": id, "v": "new"}
                await caller.toolbox.call(caller.identity, "insert_things", {"rows": [row], **more})
                inserted.add(id)
            except DbtoolsError as exc:
                failed[id] = exc.code
            id += WRITERS

    async with anyio.create_task_group() as group:
        for number in range(WRITERS):
            group.start_soon(write, 100 + number)
        for _ in range(ROUNDS):
            for migration in MIGRATIONS[shop.dialect]:
                before = len(inserted) + len(failed)
                await _migrate(shop, migration)
                # Each migration meets calls.
                while len(inserted) + len(failed) < before + WRITERS:
                    await anyio.lowlevel.checkpoint()
        ended.set()
    return inserted, failed


async def _migrate(shop: Shop, migration: str) -> None:
    if shop.dialect == "sqlite":
        await anyio.to_thread.run_sync(shop.bare.execute, f"begin immediate; {migration}; commit")
        return
    connection = await asyncpg.connect(shop.url)
    await connection.execute(migration)
    await connection.close()


@pytest.mark.parametrize("more", [{}, {"on_conflict": "update"}], ids=["insert", "upsert"])
def test_each_change_under_forty_migrations_happens_once_or_not_at_all(
    more: Mapping[str, str], serve: Serve, dialect: str
) -> None:
    with serve(dialect, DDL[dialect], fresh=True) as shop, writing(shop, lock_timeout=10) as caller:
        if dialect == "sqlite":
            shop.bare.execute("pragma busy_timeout = 60000")
        caller.call("list_things")
        inserted, failed = caller.portal.call(_write_under_migrations, caller, shop, more)
        stored = {id for id, _ in things(shop)} - {1, 2, 3}
        done = shop.bare.rows("select id from journal order by id")
        shop.refresh()
        last = told(caller, shop, "update")

    assert stored == inserted
    assert done == [(id,) for id in sorted(inserted)]
    assert set(failed.values()) <= PASSING
    assert len(inserted) >= WRITERS
    assert last.code == ""


@pytest.fixture
def shop(serve: Serve) -> Iterator[Shop]:
    with serve("postgresql", DDL["postgresql"], fresh=True) as shop:
        yield shop


async def _during(caller: Caller, proxy: Cutting, url: str, migration: str) -> str:
    """Run *migration* when the proxy meets its request; return the code of the call, and of the migration."""
    tool, arguments, _ = CALLS["update"]
    codes = ["", ""]

    async def call() -> None:
        try:
            await caller.toolbox.call(caller.identity, tool, arguments)
        except DbtoolsError as exc:
            codes[0] = exc.code

    connection = await asyncpg.connect(url, server_settings={"lock_timeout": "100"})
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await proxy.met.wait()
            try:
                await connection.execute(migration)
            except asyncpg.LockNotAvailableError:
                codes[1] = "locked"
            proxy.released.set()
    await connection.close()
    return " ".join(codes)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param("alter table things rename v to u", id="migration"),
        pytest.param("update things set v = 'other' where id = 1", id="update"),
    ],
)
def test_row_and_table_cannot_change_between_reading_the_row_and_changing_it(
    other: str, shop: Shop, portal: BlockingPortal, proxy: Cutting
) -> None:
    with writing(shop, write_url=proxy.url) as caller:
        told(caller, shop, "update")
        found = []
        # BEGIN, the changes so far, the row before, the change, the row after and so on to COMMIT.
        for is_due in (numbered(3), numbered(4), is_commit):
            proxy.at(is_due, None)
            found.append(portal.call(_during, caller, proxy, shop.url, other))
            shop.bare.execute("update things set v = 'one' where id = 1; delete from journal")

    assert found == [" locked"] * 3


@pytest.mark.parametrize(
    "migration",
    [
        pytest.param("alter table things add column w text", id="column"),
        pytest.param("alter table things alter v type varchar(50)", id="type"),
        pytest.param("alter table things alter id type bigint", id="type of the key"),
    ],
)
def test_change_that_finds_another_schema_is_bound_again_and_made_once(
    migration: str, shop: Shop, portal: BlockingPortal, proxy: Cutting
) -> None:
    with writing(shop, write_url=proxy.url) as caller:
        told(caller, shop, "update")
        proxy.at(numbered(0), None)
        found = portal.call(_during, caller, proxy, shop.url, migration)

        assert found == " "
        assert [row[:2] for row in things(shop)] == AFTER["update"]
        assert journal(shop) == [CALLS["update"][2]]


def test_table_that_was_swapped_is_the_one_that_is_changed(serve: Serve, dialect: str) -> None:
    with serve(dialect, DDL[dialect], fresh=True) as shop, writing(shop) as caller:
        told(caller, shop, "update")
        shop.bare.execute(
            "alter table things rename to old;"
            "create table things (id integer primary key, w integer, v text);"
            "insert into things select id, 7, v from old"
        )
        answer = caller.call("update_things", id=1, set={"v": "new"})
        old = shop.bare.rows("select id, v from old order by id")

        assert answer["rows"] == [[1, 7, "new"]]
        assert things(shop) == AFTER["update"]
        assert (old, journal(shop)) == (BEFORE, [])


def test_first_change_after_a_migration_that_reads_have_met_succeeds(serve: Serve, dialect: str) -> None:
    with serve(dialect, DDL[dialect], fresh=True) as shop, writing(shop) as caller:
        told(caller, shop, "update")
        shop.bare.execute("alter table things add column w text")
        caller.call("list_things")
        answer = caller.call("update_things", id=1, set={"w": "new"})

        assert answer["rows"] == [[1, "one", "new"]]
