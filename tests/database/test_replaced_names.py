"""What operators' SQL means does not change with objects that others create in the search path."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.errors import DbtoolsError
from tests.database.query_shop import QueryShop, open_query_shop
from tests.database.shop import open_bare
from tests.database.ways import PLAIN, WAYS, Way, keys_of
from tests.postgresql_server import PostgresqlServer
from tests.protocol.command_line import run

ServeRoles = Callable[..., AbstractContextManager[QueryShop]]

DDL = """
create schema app;
create schema late;
create domain region as varchar(10);
create type mood as enum ('good', 'bad');
create table public.orders (
    id integer primary key, region varchar(10), area region, code char(5), small int2, day date, mood mood,
    status varchar(10)
);
insert into public.orders
select g, r, r, r, g % 3, date '2026-01-01' + g % 3,
    case when g % 3 = 0 then 'good' else 'bad' end::mood, 'new'
from generate_series(1, 6) as g
cross join lateral (select case when g % 3 = 0 then 'north' else 'south' end) as x (r);
create table public.parts (id integer, region varchar(10), primary key (id, region))
    partition by list (region);
create table public.parts_north partition of public.parts for values in ('north');
create table public.parts_south partition of public.parts for values in ('south');
insert into public.parts select id, region from public.orders;
create materialized view public.sums as select id, region from public.orders;
create table late.visible (id integer);
insert into late.visible values (3), (6);
create function public.may_see(text) returns boolean language sql immutable
    set search_path = pg_catalog as $$ select $1 = 'north' $$;
create function public."Ä_ok"(text) returns boolean language sql immutable
    set search_path = pg_catalog as $$ select $1 = 'north' $$;
create table late."Ä" (id integer);
insert into late."Ä" values (3), (6);
create operator public.<-> (leftarg = integer, rightarg = integer, function = pg_catalog.int4mi);
alter extension plpgsql add operator public.<-> (integer, integer);
create function public.last() returns integer language sql as 'select 1';
"""
#: Drops what has been created since.
CLEANING = """
drop schema app cascade;
create schema app;
do $$
declare
    f regprocedure;
begin
    for f in select oid from pg_proc where oid > 'public.last()'::regprocedure loop
        execute format('drop function %s cascade', f);
    end loop;
end $$
"""
BOOLEAN = "language sql immutable as 'select true'"


def _operator(sign: str, left: str, right: str = "") -> str:
    return f"""
    create function public.always({left}, {right or left}) returns boolean {BOOLEAN};
    create operator public.{sign} (leftarg = {left}, rightarg = {right or left}, function = public.always)
    """


#: A table, a filter that shows two of six rows, and what makes it show all of them.
ATTACKS = {
    "=": ("orders", "region = :claims.region", _operator("=", "varchar")),
    "= with a text": ("orders", "region = :claims.region", _operator("=", "varchar", "text")),
    "= of a domain": ("orders", "area = :claims.region", _operator("=", "region", "text")),
    "= of padded texts": ("orders", "code = 'north'::text", _operator("=", "bpchar", "text")),
    "<>": ("orders", "region <> 'south'", _operator("<>", "varchar")),
    "not in": ("orders", "region not in ('south')", _operator("<>", "varchar")),
    "in": ("orders", "region in (:claims.region)", _operator("=", "varchar", "text")),
    "~~": ("orders", "region like 'nor%'", _operator("~~", "varchar", "text")),
    "<": ("orders", "region < 'o'", _operator("<", "varchar")),
    "between": ("orders", "region between 'm' and 'o'", _operator("<=", "varchar")),
    "is not distinct from": ("orders", "region is not distinct from 'north'", _operator("=", "varchar")),
    "nullif": ("orders", "nullif(region, 'north') is null", _operator("=", "varchar")),
    "case": ("orders", "case region when 'north' then true else false end", _operator("=", "varchar")),
    "an enum": ("orders", "mood = 'good'", _operator("=", "mood")),
    "a small integer": ("orders", "small < 1.0", _operator("<", "int2", "numeric")),
    "a row": ("orders", "(region, 1) = ('north', 1)", _operator("=", "varchar")),
    "any": ("orders", "region = any (array['north'::varchar])", _operator("=", "varchar")),
    "lower": (
        "orders",
        "lower(region) = :claims.region",
        "create function public.lower(varchar) returns text language sql immutable as $$ select 'north' $$",
    ),
    "own function": (
        "orders",
        "may_see(region)",
        f"create function public.may_see(varchar) returns boolean {BOOLEAN}",
    ),
    "table": (
        "orders",
        "id in (select id from visible)",
        "create table app.visible as select id from public.orders",
    ),
    "cast": (
        "orders",
        "mood::text = 'good'",
        """
        create function public.told(mood) returns text language sql immutable as $$ select 'good' $$;
        create cast (mood as text) with function public.told(mood) as implicit
        """,
    ),
    "cast with the name of a type": (
        "orders",
        "mood::text = 'good'",
        """
        create function public.mood(mood) returns text language sql immutable as $$ select 'good' $$;
        create cast (mood as text) with function public.mood(mood) as implicit
        """,
    ),
    "function beyond ASCII": (
        "orders",
        "Ä_ok(region)",
        f'create function public."Ä_ok"(varchar) returns boolean {BOOLEAN}',
    ),
    "table beyond ASCII": (
        "orders",
        "id in (select id from Ä)",
        'create table app."Ä" as select id from public.orders',
    ),
    **{
        f"table in {text}": (
            "orders",
            f"id in (select v.id from late.visible as v) or {text}::regclass <> 'late.visible'::regclass",
            "create table app.visible as select id from public.orders",
        )
        for text in ("'visible'", "'VISIBLE'", "' visible '", "E'visible'", "$$visible$$", "'vis'\n'ible'")
    },
    "partitions": ("parts", "region = :claims.region", _operator("=", "varchar")),
    "materialized view": ("sums", "region = :claims.region", _operator("=", "varchar")),
}


@contextmanager
def serving(
    url: str, portal: BlockingPortal, folder: Path, roles: Mapping[str, str], queries: Mapping[str, str]
) -> Iterator[QueryShop]:
    """Serve the database at *url* to *roles*, of which the rules are given."""
    rest = "".join(f"[roles.{name}]\n{rules}\n" for name, rules in roles.items())
    files = {f"{name}.sql": text for name, text in queries.items()}
    path = f"{url}?options=-csearch_path%3Dapp,late,public"
    with open_query_shop(path, folder, files, rest, portal) as shop:
        yield shop


@pytest.fixture
def serve_roles(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_server: PostgresqlServer,
    portal: BlockingPortal,
    tmp_path: Path,
) -> ServeRoles:
    """Return a factory: the rules of roles and queries in, a database out that is served by a Way."""

    @contextmanager
    def serve(roles: Mapping[str, str], way: Way = PLAIN, **queries: str) -> Iterator[QueryShop]:
        with (
            way.role(postgresql_server) as role,
            postgresql_database(DDL) as url,
            way.pooled(url, portal) as pooled,
        ):
            if grants := way.grants(role):
                postgresql_server.execute(grants.format(postgresql_server.user), url=url)
            keyed = {name: keys_of(role) + rules for name, rules in roles.items()}
            with serving(pooled, portal, tmp_path, keyed, queries) as shop:
                yield replace(shop, bare_url=url)

    return serve


def filtered(where: str, table: str = "orders") -> str:
    """Return the rules of a role that sees the rows of *table* that meet *where*."""
    return f"tables.{table} = {{ where = {json.dumps(where)} }}"


def shown(shop: QueryShop, tool: str, role: str) -> int | str:
    """Return how many rows *tool* shows the role, or the code of the refusal."""
    try:
        rows = shop.rows(tool, {}, role=role, region="north")
    except DbtoolsError as exc:
        return exc.code
    assert isinstance(rows, list)
    return len(rows)


def execute(shop: QueryShop, statements: str) -> None:
    """Run *statements*, and let the toolbox read the catalog again."""
    shop.bare.execute(statements)
    shop.refresh()


def _renew(shop: QueryShop) -> None:
    """Let the next call prepare its statement on a new connection."""
    runner: Any = shop.portal.call(shop.database.runner)
    shop.portal.call(runner.close)


@pytest.fixture(scope="module")
def database(postgresql_database: Callable[[str], AbstractContextManager[str]]) -> Iterator[str]:
    """Yield the URL of a database in which each attack is tried."""
    with postgresql_database(DDL) as url:
        yield url


@pytest.fixture
def attacked(database: str, postgresql_server: PostgresqlServer) -> Iterator[str]:
    """Yield it, and remove what the test has created."""
    yield database
    postgresql_server.execute(CLEANING, url=database)


@pytest.mark.parametrize(("table", "where", "attack"), ATTACKS.values(), ids=ATTACKS)
def test_filter_shows_no_more_after_a_name_in_it_is_replaced(
    attacked: str, portal: BlockingPortal, tmp_path: Path, table: str, where: str, attack: str
) -> None:
    with serving(attacked, portal, tmp_path, {"reader": filtered(where, table)}, {}) as shop:
        _replace(shop, table, attack)


@pytest.mark.slow
@pytest.mark.parametrize("way", [pytest.param(way, id=name, marks=way.marks) for name, way in WAYS.items()])
@pytest.mark.parametrize("name", ["= with a text", "lower", "cast"])
def test_filter_shows_no_more_as_another_role_or_behind_a_pooler(
    serve_roles: ServeRoles, name: str, way: Way
) -> None:
    table, where, attack = ATTACKS[name]
    with serve_roles({"reader": filtered(where, table)}, way) as shop:
        _replace(shop, table, attack)


def _replace(shop: QueryShop, table: str, attack: str) -> None:
    """Create the objects of *attack* while a filter is served, and assert that it shows no more."""
    tool = f"list_{table}"
    before = shown(shop, tool, "reader")
    shop.bare.execute(attack)
    during = shown(shop, tool, "reader")
    _renew(shop)
    renewed = shown(shop, tool, "reader")
    shop.refresh()
    after = shown(shop, tool, "reader")
    problems = [str(each) for each in shop.view("reader").problems]

    assert before == 2
    assert during == 2 or isinstance(during, str)
    assert isinstance(renewed, str)
    assert after == "unknown_tool"
    assert [each for each in problems if f"reader, tables.{table}.where" in each] != []


#: Filters that mean what they meant, although a name in them has been replaced elsewhere.
PLACED = {
    "an operator with its schema": "region operator(pg_catalog.=) :claims.region",
    "an operator of its own": "region operator(public.=) :claims.region",
    "a function with its schema": "pg_catalog.lower(region) operator(pg_catalog.=) 'north'",
    "a table with its schema": "id operator(pg_catalog.=) any (select v.id from late.visible as v)",
    "other types": "id = 3 or id = 6",
    "an operator of an extension": "id % 3 = 0 and (id <-> 1) < 9",
}
REPLACING = (
    "create function public.equal(varchar, text) returns boolean language sql set search_path = pg_catalog"
    " as 'select $1 ~~ $2'",
    "create operator public.= (leftarg = varchar, rightarg = text, function = public.equal)",
    "create function public.lower(varchar) returns text language sql immutable as $$ select 'north' $$",
    "create table app.visible as select id from public.orders",
)


def test_filter_is_served_if_its_names_cannot_mean_anything_else(serve_roles: ServeRoles) -> None:
    with serve_roles({f"r{at}": filtered(where) for at, where in enumerate(PLACED.values())}) as shop:
        shop.bare.execute(";".join(REPLACING))
        _renew(shop)
        shop.refresh()

        assert [shown(shop, "list_orders", f"r{at}") for at in range(len(PLACED))] == [2] * len(PLACED)


def test_overload_by_another_role_is_not_meant(
    serve_roles: ServeRoles, postgresql_login: Callable[..., AbstractContextManager[str]]
) -> None:
    overload = f"create function public.may_see(varchar) returns boolean {BOOLEAN}"
    with serve_roles({"reader": filtered("public.may_see(region)")}) as shop:
        assert shown(shop, "list_orders", "reader") == 2
        url = urlsplit(shop.database.url)._replace(query="").geturl()
        with postgresql_login(url, "grant create on schema public to {}") as login:
            bare = open_bare("postgresql", login, shop.portal)
            bare.execute(overload)
            bare.close()
            during = shown(shop, "list_orders", "reader")
            shop.refresh()
            after = shown(shop, "list_orders", "reader")

    assert during == 2 or isinstance(during, str)
    assert after == "unknown_tool"


#: What the owner of an extension, who is no superuser, adds to it.
MEMBERS = {
    "equals": ("region = :claims.region", ATTACKS["= with a text"][2], "operator public.=(varchar, text)"),
    "lower": ("lower(region) = :claims.region", ATTACKS["lower"][2], "function public.lower(varchar)"),
    "cast": (
        "own::text = 'good'",
        """create function public.told(own) returns text language sql immutable as $$ select 'good' $$;
        create cast (own as text) with function public.told(own) as implicit""",
        "cast (own as text)",
    ),
}


def test_owner_of_an_extension_adds_nothing_that_is_meant(
    serve_roles: ServeRoles, postgresql_login: Callable[..., AbstractContextManager[str]]
) -> None:
    more = """
    create type public.own as enum ('good', 'bad');
    alter table orders add column own public.own;
    update orders set own = mood::text::public.own;
    drop extension plpgsql;
    """
    grants = """
    grant create on schema public to {};
    alter type public.own owner to {}
    """
    with serve_roles({name: filtered(where) for name, (where, *_) in MEMBERS.items()}) as shop:
        execute(shop, more)
        url = urlsplit(shop.database.url)._replace(query="").geturl()
        database = urlsplit(url).path.removeprefix("/")
        granted = f"{grants}; grant create on database {database} to {{}}"
        with postgresql_login(url, granted) as login:
            bare = open_bare("postgresql", login, shop.portal)
            bare.execute("create extension plpgsql")
            for name, (_, attack, member) in MEMBERS.items():
                before = shown(shop, "list_orders", name)
                bare.execute(f"{attack}; alter extension plpgsql add {member}")
                during = shown(shop, "list_orders", name)
                shop.refresh()
                after = shown(shop, "list_orders", name)

                assert before == 2, name
                assert during == 2 or isinstance(during, str), name
                assert after == "unknown_tool", name
            bare.close()
            shop.bare.execute("drop extension plpgsql cascade; alter type public.own owner to current_user")


QUERIES = """-- name: mine
-- description: Orders of a region.
select id from orders where region = :claims.region

-- name: pay
-- description: Pay the orders of a region.
-- writes: 6
update orders set status = 'paid' where region = :claims.region returning id
"""


def test_query_is_withdrawn_and_check_permits_nothing_after_a_name_in_it_is_replaced(
    serve_roles: ServeRoles,
) -> None:
    rule = """tables.orders = { update = ["status"], check = "lower(status) in ('new', 'paid')" }"""
    change = {"id": 1, "set": {"status": "VOID"}}
    with serve_roles({"reader": 'queries = ["mine", "pay"]', "changer": rule}, both=QUERIES) as shop:
        before = [shown(shop, name, "reader") for name in ("mine", "pay")]
        denied = shop.refusal("update_orders", change, role="changer")
        shop.bare.execute(f"{ATTACKS['= with a text'][2]};{ATTACKS['lower'][2]}")
        during = [shown(shop, name, "reader") for name in ("mine", "pay")]
        _renew(shop)
        refused = shop.refusal("update_orders", change, role="changer")
        renewed = [shown(shop, name, "reader") for name in ("mine", "pay")]
        shop.refresh()
        after = [shown(shop, name, "reader") for name in ("mine", "pay")]
        unknown = shop.refusal("update_orders", change, role="changer")
        checked = run("check", str(shop.path))
        left = shop.bare.rows("select status from public.orders where id = 1")

    assert (before, after) == ([2, 2], ["unknown_tool"] * 2)
    assert [each for each in during if each != 2 and isinstance(each, int)] == []
    assert [each for each in renewed if isinstance(each, int)] == []
    assert denied.startswith("denied")
    assert refused.startswith(("denied", "schema_changed", "unknown"))
    assert unknown.startswith("unknown")
    assert (left, checked.exit_code) == ([("new",)], 1)
    for name in ("mine", "pay"):
        assert f"{name} is withdrawn: = is public.=" in checked.stdout
    assert "changer, tables.orders" in checked.stdout
