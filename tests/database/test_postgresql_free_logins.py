"""Which logins may have free SQL on PostgreSQL, and which functions it may call."""

from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql import Backend
from dbtools.catalog import Selection
from dbtools.policy import FunctionRules
from tests.database.postgresql_free_shop import FreeShop, open_free_shop
from tests.postgresql_server import PostgresqlServer, execute

LOGIN = "dbtools_free_tests"


@pytest.fixture(scope="module")
def shop(postgresql_server: PostgresqlServer, portal: BlockingPortal) -> Iterator[FreeShop]:
    """Give the shop with hidden rows, under a login that may do anything."""
    with open_free_shop(postgresql_server, portal, hidden=True) as shop:
        yield shop


@pytest.fixture
def poor(postgresql_server: PostgresqlServer, portal: BlockingPortal) -> Iterator[FreeShop]:
    """Give the shop under a login that may read what the role sees."""
    grants = f"""
    revoke create on schema public from public;
    drop role if exists {LOGIN};
    create role {LOGIN} login;
    grant usage on schema public to {LOGIN};
    grant select on regions, orders, logs, paid, "Odd Name" to {LOGIN};
    grant select (id, name, region, email, phone, mood, born, tags, profile) on customers to {LOGIN};
    """
    try:
        with open_free_shop(postgresql_server, portal, hidden=True, more=grants, login=LOGIN) as shop:
            yield shop
    finally:
        postgresql_server.execute(f"drop role if exists {LOGIN}", url=postgresql_server.url)


def test_login_that_may_only_read_is_offered_free_sql(poor: FreeShop) -> None:
    offer = poor.portal.call(_offer, poor.url.replace("//dbtools@", f"//{LOGIN}@"))

    assert offer.obstacle == ""
    assert offer.dialect.startswith("PostgreSQL 1")
    assert poor.rows("select name from customers order by id") == [("Ann",), ("Cid",), ("Eve",)]


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
def test_login_that_can_do_more_is_not_offered_free_sql(poor: FreeShop, grant: str, word: str) -> None:
    poor.portal.call(execute, poor.url, grant.replace("{}", LOGIN))
    try:
        offer = poor.portal.call(_offer, poor.url.replace("//dbtools@", f"//{LOGIN}@"))
    finally:
        poor.portal.call(execute, poor.url, f"alter table regions owner to dbtools; drop owned by {LOGIN}")

    assert word in offer.obstacle


def test_redefined_operator_is_an_obstacle(poor: FreeShop) -> None:
    redefined = """
    create function same(text, integer) returns boolean language sql stable as 'select true';
    create operator = (function = same, leftarg = text, rightarg = integer);
    """
    poor.portal.call(execute, poor.url, redefined)
    offer = poor.portal.call(_offer, poor.url.replace("//dbtools@", f"//{LOGIN}@"))

    assert "operator = calls the function public.same" in offer.obstacle
    assert poor.answer("select 1")[0] == "sql_refused"
    assert poor.answer("select 1", functions=FunctionRules(include=("public.same",)))[1] == ((1,),)


def test_redefined_cast_is_an_obstacle(poor: FreeShop) -> None:
    redefined = """
    create function whole(text) returns integer language sql stable as 'select 1';
    create cast (text as integer) with function whole(text) as implicit;
    """
    poor.portal.call(execute, poor.url, redefined)
    offer = poor.portal.call(_offer, poor.url.replace("//dbtools@", f"//{LOGIN}@"))

    assert "implicit cast from text to int4 calls the function public.whole" in offer.obstacle
    assert poor.answer("select 1")[0] == "sql_refused"


def test_cast_that_calls_a_function_is_refused(shop: FreeShop) -> None:
    for sql in ("select 'ok'::text::mood", "select cast('ok' as public.mood)", "select mood 'ok'"):
        assert "The type" in str(shop.answer(sql)[1])
    assert shop.rows("select mood from customers where mood = 'ok'") == [("ok",)]


def test_missing_claim_denies_the_call(shop: FreeShop) -> None:
    assert shop.answer("select * from customers", claims={})[0] == "denied"
    assert shop.rows("select count(*) from regions", claims={}) == [(2,)]


def test_functions_that_the_operator_names_may_be_called(shop: FreeShop) -> None:
    assert shop.rows("select leak_of('x')", functions=FunctionRules(include=("public.leak_*",))) == [
        ("CANARY",)
    ]
    assert (
        shop.answer("select leak()", functions=FunctionRules(include=("public.leak_*",)))[0] == "sql_refused"
    )


def test_functions_that_the_operator_excludes_are_unknown(shop: FreeShop) -> None:
    excluded = FunctionRules(include=("public.leak_*",), exclude=("leak_of", "md5", "pg_catalog.low*"))

    assert shop.rows("select upper('x')", functions=excluded) == [("X",)]
    for sql in ("select leak_of('x')", "select md5('x')", "select lower('x')", "select ('x'::text).lower"):
        assert shop.answer(sql, functions=excluded)[0] == "sql_refused"


def test_statement_runs_as_the_role_of_its_session(poor: FreeShop) -> None:
    reader = f"{LOGIN}_reader"
    made = f"""
    drop role if exists {reader};
    create role {reader};
    grant select on regions to {reader};
    revoke select on regions from {LOGIN};
    alter role {LOGIN} noinherit;
    grant {reader} to {LOGIN};
    """
    poor.portal.call(execute, poor.url, made)
    try:
        alone = poor.answer("select count(*) from regions")
        become = poor.rows("select count(*) from regions", session={"role": reader})
        offer = poor.portal.call(_offer, poor.url.replace("//dbtools@", f"//{LOGIN}@"))
    finally:
        poor.portal.call(execute, poor.url, f"drop owned by {reader}; drop role {reader}")

    assert alone[0] == "sql_refused"
    assert become == [(2,)]
    assert offer.obstacle == ""


def test_login_hides_what_it_may_not_read_without_any_guard(poor: FreeShop) -> None:
    denied = []
    for sql in ("select v from secrets", "select ssn from customers", "select * from vault.keys"):
        try:
            poor.portal.call(execute, poor.url.replace("//dbtools@", f"//{LOGIN}@"), sql)
        except asyncpg.InsufficientPrivilegeError:
            denied.append(sql)

    assert len(denied) == 3


async def _offer(url: str) -> Any:
    backend = Backend(url)
    try:
        return await backend.offer(await backend.introspect(Selection()))
    finally:
        await backend.close()
