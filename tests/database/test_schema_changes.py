"""Calls on a schema that has changed without a notification answer from the new schema alone."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql.connection.connections import connect
from dbtools.backends.postgresql.queries import inspection
from dbtools.backends.postgresql.schema.changes import Control, fingerprint
from dbtools.errors import Refused
from dbtools.policy.roles import Caller
from tests.database.query_shop import QueryShop, ServeQueries, open_query_shop
from tests.database.shop import Serve, Shop
from tests.postgresql_server import PostgresqlServer

DDL = """
create table things (id integer primary key, size text, day date);
insert into things values (1, '7', '2020-01-01');
create table others (id integer primary key, size integer, day date);
insert into others values (2, 8, '2020-01-02');
"""
#: A column of another type.
TYPE = {
    "sqlite": """
    create table new (id integer primary key, size integer, day date);
    insert into new select * from things; drop table things; alter table new rename to things
    """,
    "postgresql": "alter table things alter size type integer using size::integer",
}
#: A table in the place of another.
NAMES = """
alter table things rename to passing;
alter table others rename to things;
alter table passing rename to others
"""
#: A column in the place of another.
COLUMNS = """
alter table things rename size to passing;
alter table things rename day to size;
alter table things rename passing to day
"""
CALLS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "list": ("list_things", {"columns": ["size"]}),
    "get": ("get_row", {"table": "things", "key": {"id": 1}, "columns": ["size"]}),
    "aggregate": ("aggregate_rows", {"table": "things", "measures": [{"function": "max", "column": "size"}]}),
    "generic": ("list_rows", {"table": "things", "columns": ["size"]}),
}


@pytest.fixture
def shop(dialect: str, serve: Serve) -> Iterator[Shop]:
    """Yield a served database whose snapshot has been taken."""
    with serve(dialect, DDL, fresh=True) as shop:
        shop.refresh()
        yield shop


def _cell(shop: Shop, call: str) -> object:
    """Return the only cell that is answered."""
    tool, arguments = CALLS[call]
    answer = shop.call(tool, arguments).structured
    found = answer.get("row") or answer["rows"]
    while isinstance(found, dict | list):
        (found,) = found.values() if isinstance(found, dict) else found
    return found


@pytest.mark.parametrize("call", CALLS)
def test_column_of_another_type_is_answered_as_that(call: str, shop: Shop) -> None:
    before = [_cell(shop, call) for _ in range(2)]
    shop.bare.execute(TYPE[shop.dialect])

    assert (before, _cell(shop, call)) == (["7", "7"], 7)


@pytest.mark.parametrize("call", CALLS)
def test_column_in_the_place_of_another_is_answered_as_that(call: str, shop: Shop) -> None:
    before = [_cell(shop, call) for _ in range(2)]
    shop.bare.execute(COLUMNS)

    assert (before, _cell(shop, call)) == (["7", "7"], "2020-01-01")


@pytest.mark.parametrize("call", [each for each in CALLS if each != "get"])
def test_table_in_the_place_of_another_is_answered_as_that(call: str, shop: Shop) -> None:
    before = [_cell(shop, call) for _ in range(2)]
    shop.bare.execute(NAMES)

    assert (before, _cell(shop, call)) == (["7", "7"], 8)


def test_page_after_a_change_is_of_the_new_schema(shop: Shop) -> None:
    shop.bare.execute("insert into things values (3, '9', null)")
    first = shop.page("things", columns=["size"], limit=1)
    shop.bare.execute(TYPE[shop.dialect])

    second = shop.page("things", columns=["size"], limit=1, cursor=first["next_cursor"])

    assert (first["rows"], second["rows"]) == ([["7"]], [[9]])


def test_schema_in_the_place_of_another_is_answered_as_that(serve: Serve) -> None:
    ddl = f"{DDL} create schema next; create table next.things (id integer primary key, size integer);"
    with serve("postgresql", f"{ddl} insert into next.things values (1, 8)", fresh=True) as shop:
        before = [_cell(shop, "list") for _ in range(2)]
        shop.bare.execute("alter schema public rename to old; alter schema next rename to public")

        assert (before, _cell(shop, "list")) == (["7", "7"], 8)


QUERY = "-- name: sizes\n-- description: Sizes.\nselect size from things order by id"


@pytest.fixture
def queries(dialect: str, serve_queries: ServeQueries) -> Iterator[QueryShop]:
    with serve_queries(dialect, DDL, {"sizes.sql": QUERY}) as shop:
        shop.refresh()
        yield shop


@pytest.mark.parametrize(("change", "size"), [(TYPE, 7), (NAMES, 8), (COLUMNS, "2020-01-01")])
def test_query_answers_of_the_new_schema(
    change: str | dict[str, str], size: object, dialect: str, queries: QueryShop
) -> None:
    queries.bare.execute(change if isinstance(change, str) else change[dialect])

    assert queries.rows("sizes") == [[size]]


def test_query_of_a_login_that_may_make_no_view_answers_of_the_new_schema(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    portal: BlockingPortal,
    tmp_path: Path,
) -> None:
    with postgresql_database(DDL) as url:
        closed = f"revoke temporary on database {url.rpartition('/')[2]} from public"
        with (
            postgresql_login(url, f"{closed}; grant select on things to {{}}") as login,
            open_query_shop(login, tmp_path, {"sizes.sql": QUERY}, "", portal) as shop,
        ):
            shop.refresh()
            postgresql_server.execute(TYPE["postgresql"], url=url)

            assert shop.rows("sizes") == [[7]]


def test_query_is_withdrawn_since_another_schema_has_a_table_of_the_same_name(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    portal: BlockingPortal,
    tmp_path: Path,
) -> None:
    with postgresql_database(DDL) as url:
        path = f"alter database {url.rpartition('/')[2]} set search_path = app, public"
        postgresql_server.execute(path, url=url)
        with open_query_shop(url, tmp_path, {"sizes.sql": QUERY}, "", portal) as shop:
            before = shop.rows("sizes")
            shop.bare.execute("create schema app; create table app.things (id integer, size integer)")
            shop.bare.execute("insert into app.things values (1, 8)")
            runner: Any = portal.call(shop.database.runner)
            portal.call(runner.close)
            # A new connection finds the other table.
            after = shop.refusal("sizes")

    assert before == [["7"]]
    assert after.startswith("unknown_tool")


def test_filter_follows_the_type_of_what_its_claim_is_compared_with(
    dialect: str, serve_queries: ServeQueries
) -> None:
    rest = (
        '[roles.some]\ntables.things = { where = "size = :claims.size" }\n[policy.claims]\nsize = "integer"\n'
    )
    with serve_queries(dialect, DDL, {}, rest) as shop:
        before = shop.rows("list_things", {"columns": ["id"]}, role="some", size=7)
        shop.bare.execute(TYPE[dialect])
        shop.refresh()
        after = shop.rows("list_things", {"columns": ["id"]}, role="some", size=7)

    assert (before, after) == ([[1]], [[1]])


#: A view whose rows are computed once the lock 7 is free.
GATED = """
create function gated() returns text language plpgsql as $$ begin
    perform pg_advisory_xact_lock_shared(7);
    {}
end $$;
create view gated as select id, gated() as size from things;
"""
WAITS = "select exists (select from pg_locks where relation = 'things'::regclass and not granted)"
AT_THE_GATE = "select max(pid) from pg_locks where locktype = 'advisory' and not granted"


async def _arrival(connection: Any) -> int:
    """Return the process that waits for the lock 7, once there is one."""
    with anyio.fail_after(60):
        while (pid := await connection.fetchval(AT_THE_GATE)) is None:
            await anyio.lowlevel.checkpoint()
    return int(pid)


@contextmanager
def _gate(shop: Shop) -> Iterator[tuple[Any, Any]]:
    """Yield two connections, of which the first one holds the lock 7."""
    gate, rival = (shop.portal.call(asyncpg.connect, shop.url) for _ in range(2))
    shop.portal.call(gate.execute, "select pg_advisory_lock(7)")
    try:
        yield gate, rival
    finally:
        shop.portal.call(gate.close)
        shop.portal.call(rival.close)


def test_statement_that_is_stopped_to_end_a_deadlock_is_run_again(serve: Serve) -> None:
    async def meet() -> Any:
        calling = asyncio.ensure_future(shop.toolbox.call(Caller(), "list_gated", {}))
        await _arrival(gate)
        await rival.execute("set deadlock_timeout = '60s'; begin; lock table others")
        locking = asyncio.ensure_future(rival.execute("lock table things"))
        while not await gate.fetchval(WAITS):
            await anyio.lowlevel.checkpoint()
        await gate.execute("select pg_advisory_unlock(7)")
        # Only when the call has lost, since it reads things.
        await locking
        await rival.execute("rollback")
        return (await calling).structured["rows"]

    reading = GATED.format("return (select others.size from others);")
    with serve("postgresql", DDL + reading, fresh=True) as shop, _gate(shop) as (gate, rival):
        shop.refresh()

        assert shop.portal.call(meet) == [[1, "8"]]


def test_error_after_a_lost_connection_ends_the_call(serve: Serve) -> None:
    async def lose() -> None:
        calling = asyncio.ensure_future(shop.toolbox.call(Caller(), "list_gated", {}))
        await rival.execute(f"select pg_terminate_backend({await _arrival(rival)})")
        while not await rival.fetchval(f"select ({AT_THE_GATE}) is null"):
            await anyio.lowlevel.checkpoint()
        await _arrival(rival)
        await gate.execute("select pg_advisory_unlock(7)")
        # A third attempt would wait again.
        await gate.execute("select pg_advisory_lock(7)")
        with pytest.raises(Refused, match="lacks the resources"):
            await calling

    failing = GATED.format("raise exception using errcode = 'disk_full';")
    with serve("postgresql", DDL + failing, fresh=True) as shop, _gate(shop) as (gate, rival):
        shop.refresh()
        shop.portal.call(lose)


def test_file_that_is_overwritten_shows_nothing_that_is_hidden(
    sqlite_database: Callable[[str], Path], serve_queries: ServeQueries
) -> None:
    shown = "create table a (v text); insert into a values ('seen');"
    hidden = "create table b (v text); insert into b values ('hidden');"
    other = sqlite_database(f"{hidden} {shown} update a set v = 'new';")
    rest = "[roles.some]\ntables.a = true\n"
    with serve_queries("sqlite", f"{shown} {hidden}", {}, rest) as shop:
        before = shop.rows("list_a", {}, role="some")
        place = Path(shop.database.url.removeprefix("sqlite:///"))
        with place.open("r+b") as file:
            file.write(other.read_bytes())
        after = shop.rows("list_a", {}, role="some")

    assert (before, after) == ([["seen"]], [["new"]])


async def test_migration_that_comes_while_a_query_is_inspected_makes_its_versions_old(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
) -> None:
    class Migrated(inspection.PostgresqlInspector):
        async def report(self, prepared: Any, *creating: str) -> Any:
            found = await super().report(prepared, *creating)
            other = await asyncpg.connect(url)
            await other.execute(TYPE["postgresql"])
            await other.close()
            return found

    query = ("select size from things",)
    with postgresql_database(DDL) as url:
        control = Control(url)
        async with inspection.describe(control, {}) as inspector:
            before = await inspector.query(query, {})
        async with inspection.describe(control, {}, Migrated) as inspector:
            during = await inspector.query(query, {})
        await control.close()

    assert during == before


async def test_memberships_of_a_superuser_are_all_found(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[[str, str], AbstractContextManager[str]],
) -> None:
    with (
        postgresql_database(DDL) as url,
        postgresql_login(url, "create role {}_staff; alter role {} superuser") as login,
    ):
        name = urlsplit(login).username
        connection = await connect(login)
        before = await fingerprint(connection)
        await connection.execute(f"grant {name}_staff to {name}")
        after = await fingerprint(connection)
        await connection.execute(f"drop role {name}_staff")
        await connection.close()

    assert after != before
