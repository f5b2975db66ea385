"""What a caller's own SQL means does not change with objects that others create in the search path.

Their functions would run as dbtools' login, which may read the hidden table.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql.run_sql.guard import PRECEDING
from dbtools.errors import DbtoolsError
from tests.database.query_shop import QueryShop, open_query_shop
from tests.database.shop import open_bare
from tests.postgresql_server import PostgresqlServer

DDL = """
create schema app;
create domain area as varchar(10);
create type mood as enum ('good', 'bad');
create table public.secrets (id integer primary key, v text);
insert into public.secrets values (1, 'CANARY');
create table public.orders (
    id integer primary key, region varchar(10), area area, code char(5), small int2, day date, mood mood,
    tags varchar(10)[]
);
insert into public.orders
select g, r, r, r, g % 3, date '2026-01-01' + g % 3, case when g % 3 = 0 then 'good' else 'bad' end::mood,
    array[r]
from generate_series(1, 6) as g
cross join lateral (select case when g % 3 = 0 then 'north' else 'south' end) as x (r);
create table public.parts (id integer, region varchar(10), primary key (id, region))
    partition by list (region);
create table public.parts_north partition of public.parts for values in ('north');
create table public.parts_south partition of public.parts for values in ('south');
insert into public.parts select id, region from public.orders;
create materialized view public.sums as select id, region from public.orders;
create table public.regions (region varchar(10) primary key, lead text);
insert into public.regions values ('north', 'Ann'), ('south', 'Bob');
"""
GRANTS = """
grant usage on schema public, app to {};
grant select on all tables in schema public to {};
alter default privileges grant select on tables to public;
"""
CLEANING = """
drop schema app cascade;
create schema app;
grant usage on schema app to public;
do $$
declare
    f oid;
begin
    -- Aggregates before their functions.
    for f in
        select p.oid from pg_proc p where p.pronamespace = 'public'::regnamespace order by p.prokind = 'f'
    loop
        execute format('drop routine if exists %s cascade', f::regprocedure);
    end loop;
end $$
"""
ROLE = """
[roles.reader]
sql = true
tables.orders = { where = "region operator(pg_catalog.=) :claims.region" }
tables.parts = { where = "region operator(pg_catalog.=) :claims.region" }
tables.sums = true
tables.regions = true
"""
LEAKING = """language plpgsql stable as $$
    begin return {} from public.secrets limit 1; end $$"""
SHOWN, NAMED = LEAKING.format("true"), LEAKING.format("v")


def _operator(sign: str, left: str, right: str = "", result: str = "boolean") -> str:
    right = right or left
    body = SHOWN if result == "boolean" else NAMED
    return f"""
    create function public.shown({left}, {right}) returns {result} {body};
    create operator public.{sign} (leftarg = {left}, rightarg = {right}, function = public.shown)
    """


def _function(name: str, *types: str) -> str:
    return f"create function public.{name}({', '.join(types)}) returns text {NAMED}"


def _cast(source: str, target: str, context: str) -> str:
    return f"""
    create function public.cast_to({source}) returns {target} {LEAKING.format(f"'good'::{target}")};
    create cast ({source} as {target}) with function public.cast_to({source}) {context}
    """


#: The attacker's objects, and a statement that PostgreSQL would let use them.
ATTACKS = {
    "=": (_operator("=", "varchar"), "select id from orders where region = 'south'::varchar"),
    "= with a text": (_operator("=", "varchar", "text"), "select id from orders where region = 'x'::text"),
    "= of a domain": (_operator("=", "area", "text"), "select id from orders where area = 'x'::text"),
    "= of padded texts": (_operator("=", "bpchar", "text"), "select id from orders where code = 'x'::text"),
    "<>": (_operator("<>", "varchar"), "select id from orders where region <> 'north'::varchar"),
    "<": (_operator("<", "varchar"), "select id from orders where region < 'a'::varchar"),
    ">= of integers": (_operator(">=", "int2", "numeric"), "select id from orders where small >= 7.0"),
    "like": (_operator("~~", "varchar", "text"), "select id from orders where region like 'x'::text"),
    "not like": (
        _operator("!~~", "varchar", "text"),
        "select id from orders where region not like 'n%'::text",
    ),
    "ilike": (_operator("~~*", "varchar", "text"), "select id from orders where region ilike 'x'::text"),
    "similar": (_operator("~", "varchar", "text"), "select id from orders where region similar to 'x'::text"),
    "~": (_operator("~", "varchar", "text"), "select id from orders where region ~ 'x'::text"),
    "||": (_operator("||", "varchar", result="text"), "select region || region from orders"),
    **{
        f"{sign} of a number": (
            _operator(sign, "int2", "numeric", "text"),
            f"select (small {sign} 1.0)::text from orders",
        )
        for sign in sorted(PRECEDING)
    },
    "->": (_operator("->", "varchar", "text", "text"), "select region -> 'x'::text from orders"),
    "in": (_operator("=", "varchar"), "select id from orders where region in ('x'::varchar)"),
    "not in": (_operator("<>", "varchar"), "select id from orders where region not in ('north'::varchar)"),
    "between": (
        _operator("<=", "varchar"),
        "select id from orders where region between 'x'::varchar and 'y'",
    ),
    "case": (_operator("=", "varchar"), "select case region when 'x'::varchar then 1 else 2 end from orders"),
    "nullif": (_operator("=", "varchar"), "select nullif(region, 'x'::varchar) from orders"),
    "distinct from": (
        _operator("=", "varchar"),
        "select id from orders where region is not distinct from 'x'::varchar",
    ),
    "using": (_operator("=", "varchar"), "select id, lead from orders join regions using (region)"),
    "natural join": (_operator("=", "varchar"), "select lead from orders natural join regions"),
    "any": (_operator("=", "varchar"), "select id from orders where 'x'::varchar = any (tags)"),
    "a row": (_operator("=", "varchar"), "select id from orders where (region, id) = ('x'::varchar, 1)"),
    "a subquery": (
        _operator("=", "varchar"),
        "select id from orders where region in (select region from regions where lead = 'x')",
    ),
    "an enum": (_operator("=", "mood"), "select id from orders where mood = 'bad'"),
    "partitions": (_operator("=", "varchar"), "select id from parts where region = 'x'::varchar"),
    "materialized view": (_operator("=", "varchar"), "select id from sums where region = 'x'::varchar"),
    "lower": (_function("lower", "varchar"), "select lower(region) from orders"),
    "max": (_function("length", "varchar"), "select max(length(region)) from orders"),
    "function of a column": (_function("lower", "orders"), "select orders.lower from orders"),
    "to_char": (_function("to_char", "date", "varchar"), "select to_char(day, region) from orders"),
    "generate_series": (
        f"create function public.generate_series(int2, int2) returns text {NAMED}",
        "select g from orders, generate_series(small, small) as g",
    ),
    "aggregate": (
        f"create function public.kept(text, varchar) returns text {NAMED};"
        "create aggregate public.min(varchar) (sfunc = public.kept, stype = text)",
        "select min(region) from orders",
    ),
    "table": ("create table app.regions as select v as lead from public.secrets", "select lead from regions"),
    "view": ("create view app.sums as select id, v from public.secrets", "select * from sums"),
    "type": (
        f"create function public.is_word(text) returns boolean {SHOWN};"
        "create domain app.mood as text check (public.is_word(value))",
        "select 'good'::mood",
    ),
    "cast": (_cast("mood", "text", ""), "select mood::text from orders"),
    "implicit cast": (_cast("mood", "text", "as implicit"), "select id from orders where mood = 'x'::text"),
    "implicit cast of an argument": (_cast("mood", "text", "as implicit"), "select upper(mood) from orders"),
    "implicit cast of a row": (
        "create function public.cast_to(public.regions) returns text " + NAMED + ";"
        "create cast (public.regions as text) with function public.cast_to(public.regions) as implicit",
        "select upper(regions) from regions",
    ),
    "cast from text": (
        _cast("text", "mood", "as implicit"),
        "select id from orders where mood = lower('GOOD')",
    ),
    "cast to JSON": (
        f"create function public.cast_to(mood) returns json {LEAKING.format('pg_catalog.to_json(v)')};"
        "create cast (mood as json) with function public.cast_to(mood)",
        "select to_json(mood), json_build_object('m', mood), row_to_json(orders) from orders",
    ),
    "cast to JSON in an array": (
        f"create function public.cast_to(mood) returns json {LEAKING.format('pg_catalog.to_json(v)')};"
        "create cast (mood as json) with function public.cast_to(mood)",
        "select array_to_json(array_agg(mood)), jsonb_agg(mood), json_object_agg(id, mood) from orders",
    ),
    "cell that is a row": (
        f"create function public.cast_to(mood) returns json {LEAKING.format('pg_catalog.to_json(v)')};"
        "create cast (mood as json) with function public.cast_to(mood)",
        "select array_agg(mood) from orders",
    ),
    "cell": (_cast("mood", "text", ""), "select mood from orders"),
}


@pytest.fixture(scope="module")
def shop(
    postgresql_database: Callable[[str], AbstractContextManager[str]],
    postgresql_login: Callable[..., AbstractContextManager[str]],
    portal: BlockingPortal,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[QueryShop]:
    """Yield a database that is served through a login that can only read."""
    folder = tmp_path_factory.mktemp("replaced")
    with postgresql_database(DDL) as url, postgresql_login(url, GRANTS) as login:
        path = f"{login}?options=-csearch_path%3Dapp,public"
        with open_query_shop(path, folder, {}, ROLE, portal) as shop:
            yield replace(shop, bare_url=url)


@pytest.fixture
def clean(shop: QueryShop) -> Iterator[QueryShop]:
    """Yield the database, and remove what a test has created."""
    shop.refresh()
    yield shop
    shop.bare.execute(CLEANING)


def _answer(shop: QueryShop, sql: str) -> object:
    """Return the rows of *sql*, or the code of its refusal."""
    try:
        return shop.rows("run_sql", {"sql": sql}, role="reader", region="north")
    except DbtoolsError as exc:
        return "CANARY" if "CANARY" in str(exc) else exc.code


@pytest.mark.parametrize(("attack", "sql"), ATTACKS.values(), ids=ATTACKS)
def test_statement_shows_no_more_after_a_name_in_it_is_replaced(
    clean: QueryShop, attack: str, sql: str
) -> None:
    rows = "select id, region from orders"
    # A statement that finds a change lets the toolbox read the catalog again.
    before = [_answer(clean, each) for each in (sql, rows)]
    clean.bare.execute(attack)
    during = [_answer(clean, each) for each in (sql, rows)]
    clean.refresh()
    after = [_answer(clean, each) for each in (sql, rows)]

    refused = ("schema_changed", "sql_refused", "unknown_tool")
    assert before[1] == [[3, "north"], [6, "north"]]
    for found in (during, after):
        assert [each for each in zip(before, found, strict=True) if each[1] not in (each[0], *refused)] == []


def test_function_that_the_owner_of_an_extension_adds_is_not_permitted(
    clean: QueryShop,
    postgresql_server: PostgresqlServer,
    postgresql_login: Callable[..., AbstractContextManager[str]],
) -> None:
    database = str(clean.bare.rows("select current_database()::text")[0][0])
    url = postgresql_server.url_of(database)
    grants = f"grant create on schema public to {{}}; grant create on database {database} to {{}}"
    clean.bare.execute("drop extension plpgsql cascade")
    with postgresql_login(url, grants) as login:
        bare = open_bare("postgresql", login, clean.portal)
        bare.execute("create extension plpgsql")
        bare.execute(
            "create function public.mine(integer) returns text language sql immutable as $$ select 'x' $$;"
            "alter extension plpgsql add function public.mine(integer)"
        )
        bare.close()
        answer = _answer(clean, "select mine(1)")
        clean.bare.execute("drop extension plpgsql cascade")

    clean.bare.execute("create extension plpgsql")
    assert answer == "sql_refused"
