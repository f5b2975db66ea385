"""Which logins may have ad-hoc SQL on PostgreSQL, and which functions it may call."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql import Backend
from dbtools.backends.postgresql.run_sql.runner import PostgresqlSqlRunner
from dbtools.errors import SqlRefused
from dbtools.policy.roles import FunctionRules
from dbtools.schema.catalog import Selection
from tests.database.postgresql_free_shop import SqlShop, open_free_shop, read_shop, shop as shop
from tests.postgresql_server import PostgresqlServer, execute

READS = """
grant usage on schema public to {};
grant select on regions, orders, logs, paid, "Odd Name" to {};
grant select (id, name, region, email, phone, mood, born, tags, profile) on customers to {};
"""
Login = Callable[..., AbstractContextManager[str]]


@pytest.fixture(scope="module")
def url(postgresql_server: PostgresqlServer, portal: BlockingPortal) -> Iterator[str]:
    """Yield the URL of a database whose privileges change."""
    with open_free_shop(postgresql_server, portal, hidden=True) as shop:
        yield shop.url


@contextmanager
def served(url: str, login: str, portal: BlockingPortal) -> Iterator[SqlShop]:
    """Yield the database at *url* under the URL *login*."""
    shop = portal.call(read_shop, url, portal)
    poor = replace(shop, runner=PostgresqlSqlRunner(login))
    yield poor
    for each in (shop, poor):
        portal.call(each.runner.close)


def test_login_that_may_only_read_is_offered_free_sql(
    url: str, portal: BlockingPortal, postgresql_login: Login
) -> None:
    with postgresql_login(url, READS) as login, served(url, login, portal) as poor:
        offer = portal.call(_offer, login)

        assert offer.obstacle == ""
        assert offer.server.startswith("PostgreSQL 1")
        assert poor.rows("select name from customers order by id") == [("Ann",), ("Cid",), ("Eve",)]
        # It may read no more without any guard.
        for sql in ("select v from secrets", "select ssn from customers", "select * from vault.keys"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                portal.call(execute, login, sql)


@pytest.mark.parametrize(
    ("grant", "word"),
    [
        pytest.param("alter role {} superuser", "superuser", id="superuser"),
        pytest.param("alter role {} bypassrls", "row-level", id="bypassrls"),
        pytest.param("alter role {} createrole", "create roles", id="createrole"),
        pytest.param("grant insert on orders to {}", "write", id="insert"),
        pytest.param("grant update (name) on customers to {}", "write", id="update"),
        pytest.param("grant usage on sequence counter to {}", "write", id="sequence"),
        pytest.param("grant create on schema public to {}", "create", id="create"),
        pytest.param("alter table regions owner to {}", "owns", id="owner"),
        pytest.param("grant pg_read_server_files to {}", "member", id="member"),
        pytest.param("alter role {} noinherit; grant pg_write_server_files to {}", "member", id="noinherit"),
    ],
)
def test_login_that_can_do_more_is_not_offered_free_sql(
    url: str, portal: BlockingPortal, postgresql_login: Login, grant: str, word: str
) -> None:
    with postgresql_login(url, f"{READS}{grant}") as login:
        offer = portal.call(_offer, login)
        portal.call(execute, url, "alter table regions owner to current_user")

    assert word in offer.obstacle


@pytest.mark.parametrize(
    ("redefined", "obstacle", "function"),
    [
        pytest.param(
            """
            create function same(text, integer) returns boolean language sql stable as 'select true';
            create operator = (function = same, leftarg = text, rightarg = integer);
            """,
            "operator = calls the function public.same",
            "public.same",
            id="operator",
        ),
        pytest.param(
            """
            create function whole(text) returns integer language sql stable as 'select 1';
            create cast (text as integer) with function whole(text) as implicit;
            """,
            "implicit cast from text to int4 calls the function public.whole",
            "public.whole",
            id="cast",
        ),
    ],
)
def test_redefined_operator_or_cast_is_an_obstacle(
    postgresql_server: PostgresqlServer,
    portal: BlockingPortal,
    postgresql_login: Login,
    redefined: str,
    obstacle: str,
    function: str,
) -> None:
    with (
        open_free_shop(postgresql_server, portal, hidden=True, more=redefined) as shop,
        postgresql_login(shop.url, READS) as login,
    ):
        assert obstacle in portal.call(_offer, login).obstacle
        assert shop.answer("select 1")[0] == "sql_refused"
        assert shop.answer("select 1", functions=FunctionRules(include=(function,)))[1] == ((1,),)


def test_cast_that_calls_a_function_is_refused(shop: SqlShop) -> None:
    for sql in ("select 'ok'::text::mood", "select cast('ok' as public.mood)", "select mood 'ok'"):
        assert "The type" in str(shop.answer(sql)[1])
    assert shop.rows("select mood from customers where mood = 'ok'") == [("ok",)]


def test_missing_claim_denies_the_call(shop: SqlShop) -> None:
    assert shop.answer("select * from customers", claims={})[0] == "denied"
    assert shop.rows("select count(*) from regions", claims={}) == [(2,)]


def test_functions_that_the_operator_names_may_be_called(shop: SqlShop) -> None:
    assert shop.rows("select leak_of('x')", functions=FunctionRules(include=("public.leak_*",))) == [
        ("CANARY",)
    ]
    assert (
        shop.answer("select leak()", functions=FunctionRules(include=("public.leak_*",)))[0] == "sql_refused"
    )


def test_functions_that_the_operator_excludes_are_unknown(shop: SqlShop) -> None:
    excluded = FunctionRules(include=("public.leak_*",), exclude=("leak_of", "md5", "pg_catalog.low*"))

    assert shop.rows("select upper('x')", functions=excluded) == [("X",)]
    for sql in ("select leak_of('x')", "select md5('x')", "select lower('x')", "select ('x'::text).lower"):
        assert shop.answer(sql, functions=excluded)[0] == "sql_refused"


OF_EXTENSION = """
create schema tools;
create function tools.louder(text) returns text language internal immutable strict as 'upper';
create function tools.read_text(cstring) returns text language internal immutable strict as 'textin';
create function tools.written(text) returns cstring language internal immutable strict as 'textout';
create function tools.support(internal) returns internal
    language internal immutable strict as 'textlike_support';
alter extension plpgsql add function tools.louder(text);
alter extension plpgsql add function tools.read_text(cstring);
alter extension plpgsql add function tools.written(text);
alter extension plpgsql add function tools.support(internal);
"""


def test_functions_of_extensions_are_permitted_without_pointers_and_end_the_session(
    postgresql_server: PostgresqlServer, portal: BlockingPortal
) -> None:
    async def run_one(shop: SqlShop, sql: str) -> tuple[bool, bool]:
        await shop.runner.run(shop.request("select 1"))
        before = shop.runner.pool.warmest
        pid = before.get_server_pid()
        with suppress(SqlRefused):
            await shop.runner.run(shop.request(sql))
        await shop.runner.run(shop.request("select 1"))
        watching = await asyncpg.connect(shop.url)
        alive = await watching.fetchval("select count(*) from pg_stat_activity where pid = $1", pid)
        await watching.close()
        return shop.runner.pool.warmest is before, alive == 1

    with open_free_shop(postgresql_server, portal, hidden=True, more=OF_EXTENSION) as shop:
        assert shop.rows("select tools.louder('x')") == [("X",)]
        for call in ("read_text('x')", "written('x')", "support(null)"):
            answer = shop.answer(f"select tools.{call}")
            assert "does not exist or is not permitted" in str(answer[1])
        for sql, stays in (
            ("select upper('x')", True),
            ("select tools.louder('x')", False),
            ("select tools.louder(1 / 0 || '')", False),
        ):
            assert portal.call(run_one, shop, sql) == (stays, stays)


def test_statement_runs_as_the_role_of_its_session(
    url: str, portal: BlockingPortal, postgresql_login: Login
) -> None:
    with (
        postgresql_login(url, "grant select on regions to {}") as other,
        postgresql_login(url, READS) as login,
    ):
        name, reader = (str(urlsplit(each).username) for each in (login, other))
        changed = (
            f"alter role {name} noinherit; grant {reader} to {name}; revoke select on regions from {name}"
        )
        portal.call(execute, url, changed)
        with served(url, login, portal) as poor:
            alone = poor.answer("select count(*) from regions")
            become = poor.rows("select count(*) from regions", session={"role": reader})
        offer = portal.call(_offer, login)

    assert alone[0] == "sql_refused"
    assert become == [(2,)]
    assert offer.obstacle == ""


async def _offer(url: str) -> Any:
    backend = Backend(url)
    try:
        return await backend.offer(await backend.introspect(Selection()))
    finally:
        await backend.close()
