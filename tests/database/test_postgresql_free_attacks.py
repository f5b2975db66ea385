"""No ad-hoc SQL on PostgreSQL shows hidden data, even under a login with all privileges.

Each attack has the same answer, or the same refusal, on a database that has nothing to hide.
"""

from itertools import cycle, islice
from pathlib import Path

import asyncpg
from anyio.from_thread import BlockingPortal

from dbtools.backends.postgresql.run_sql.guard import guard
from dbtools.backends.postgresql.run_sql.guarded import guarded_of
from dbtools.backends.postgresql.run_sql.guarding import scope_of
from dbtools.backends.postgresql.run_sql.lens import lenses
from dbtools.backends.postgresql.schema.vocabulary import read_vocabulary
from dbtools.errors import SqlRefused
from dbtools.policy.roles import FunctionRules
from tests.database.postgresql_free_shop import SqlShop, open_free_shop, shop as shop, twin as twin
from tests.database.twins import assert_shows_nothing, has_canary
from tests.postgresql_server import PostgresqlServer

#: What stands for a hidden table.
HIDDEN = (
    "secrets",
    "vault.keys",
    "vault.customers",
    "public.secrets",
    '"secrets"',
    "peek",
    "kept",
    "pg_class",
    "pg_catalog.pg_proc",
    "information_schema.tables",
    "pg_stat_user_tables",
    "pg_settings",
    "customers_pkey",
    "counter",
    "logs_2024",
    "shop.public.secrets",
    "pg_temp.secrets",
    "pg_authid",
)
#: Where a table can stand.
PLACES = (
    "select * from {}",
    "select x.* from {} as x",
    "select * from only {}",
    "select * from customers c, {} s",
    "select * from customers c join {} s on true",
    "select count(*) from customers c left join {} s on s.id = c.id",
    "select count(*) from (select 'CANARY' as v) a join {} using (v)",
    "select count(*) from (select 'CANARY' as v) a natural join {} b",
    "select v from (select 'x' as v) a full join {} b using (v)",
    "select (select v from {} limit 1)",
    "select id from customers where exists (select 1 from {})",
    "select id from customers where name in (select v from {})",
    "select id from customers where (id, name) in (select id, v from {})",
    "select id from customers where name = any (select v from {})",
    "select row(1, (select v from {} limit 1))",
    "select array(select v from {})",
    "select id from customers order by (select v from {} limit 1)",
    "select id from customers limit (select count(*) from {})",
    "select id from customers offset (select count(*) from {})",
    "select count(*) from customers group by (select v from {} limit 1)",
    "select count(*) from customers having (select v from {} limit 1) is not null",
    "select sum(id) over (partition by (select v from {} limit 1)) from customers",
    "select count(*) filter (where exists (select 1 from {})) from customers",
    "select string_agg(name, (select v from {} limit 1)) from customers",
    "select percentile_cont(0.5) within group (order by (select count(*) from {})) from customers",
    "select case when exists (select 1 from {}) then 1 end",
    "select coalesce((select v from {} limit 1), 'x')",
    "with x as (select * from {}) select * from x",
    "with x as materialized (select * from {}) select count(*) from x",
    "with customers as (select * from {}) select * from customers",
    "with recursive x as (select v from {} union all select v from x where false) select * from x",
    "with secrets as (select 1 as v) select * from secrets, (with y as (select * from {}) select * from y) z",
    "select 1 union all select id from {}",
    "select 1 except select id from {}",
    "select 1 intersect select id from {}",
    "select * from customers c, lateral (select * from {} s where s.id = c.id) x",
    "select * from customers c left join lateral (select v from {}) x on true",
    "values ((select v from {} limit 1))",
    "select * from (values ((select v from {} limit 1))) as v(x)",
    "select * from generate_series(1, (select count(*) from {}))",
    "select * from rows from (generate_series(1, (select count(*)::int from {}))) as g(x)",
    "select (array[1])[(select count(*) from {})]",
    "select cast((select v from {} limit 1) as text)",
    "select (select v from {} limit 1)::int",
    "select 1 from customers tablesample bernoulli ((select count(*) from {}))",
    "select extract(year from (select now() from {} limit 1))",
    "select substring((select v from {} limit 1) from 1 for 3)",
    "select 'x' like (select v from {} limit 1) escape '!'",
    "select json_agg(s) from {} s",
    "select s from {} s",
    "select to_jsonb(s.*) from {} s",
    "select distinct on ((select v from {} limit 1)) id from customers",
    "table {}",
    "select * from (table {}) x",
)
#: Statements that name what is hidden, or do more than read, in other ways.
OTHERS = (Path(__file__).parent / "postgresql_free_attacks.sql").read_text().strip().split("\n")
NAMES = cycle(HIDDEN)
ATTACKS = (
    *(place.format(table) for place in PLACES for table in ("secrets", *islice(NAMES, 4))),
    *OTHERS,
)


def test_attack_shows_nothing_and_is_answered_as_if_nothing_were_hidden(shop: SqlShop, twin: SqlShop) -> None:
    for attack in ATTACKS:
        assert_shows_nothing(shop.answer(attack), twin.answer(attack), attack)


def test_statistics_of_hidden_rows_raise_no_error(
    postgresql_server: PostgresqlServer, portal: BlockingPortal
) -> None:
    many = """
    insert into customers (id, name, region)
    select g, 'CANARY Bob', 'south' from generate_series(100, 300) as g;
    analyze;
    """
    with open_free_shop(postgresql_server, portal, hidden=True, more=many) as shop:
        # The pattern is wrong only for a text that it fits so far.
        for operator in ("like", "not like", "ilike", "not ilike"):
            rows = shop.rows(rf"select id from customers where name {operator} '%CANARY B\' order by 1")
            assert rows in ([], [(1,), (3,), (5,)])


def test_cell_that_names_a_table_tells_nothing_of_others(
    postgresql_server: PostgresqlServer, portal: BlockingPortal
) -> None:
    more = """
    create domain place as regclass;
    alter table logs add column source regclass default 'logs',
        add column sources regclass[] default '{logs}',
        add column place place default 'logs';
    """
    with open_free_shop(postgresql_server, portal, hidden=True, more=more) as shop:
        for column, value in (("source", "{}"), ("sources", "{{{}}}"), ("place", "{}")):
            known, unknown = (
                shop.answer(f"select count(*) from logs where {column} in ('{value.format(name)}', 'x')")
                for name in ("secrets", "nothing")
            )

            assert known == unknown
            assert known[1] == ((0,),)
        assert set(shop.rows("select source, sources, place from logs")) == {("logs", "{logs}", "logs")}


def test_guard_alone_shows_nothing(shop: SqlShop) -> None:
    shown = shop.portal.call(_guarded_answers, shop)

    assert shown == []


async def _guarded_answers(shop: SqlShop) -> list[tuple[str, str]]:
    """Return the attacks that show something hidden if the server runs whatever the guard permits."""
    shown = []
    connection = await asyncpg.connect(shop.url)
    vocabulary = await read_vocabulary(connection, shop.catalog.search_path, FunctionRules())
    scope = scope_of(shop.catalog, shop.whole, vocabulary)
    for attack in ATTACKS:
        try:
            guarded = guarded_of(guard(attack, scope).answer(), shop.catalog)
            seen, claims = lenses(guarded.sources, shop.whole)
            values = [shop.claims[claim] for claim in claims]
            async with connection.transaction(readonly=True):
                answer = str(await connection.fetch(f"{seen}select * from (\n{guarded.sql}\n) as q", *values))
        except SqlRefused:
            continue
        except asyncpg.PostgresError as exc:
            # The runner shows none of this; but it must not quote hidden rows.
            answer = str(exc)
        if has_canary((answer,), attack):
            shown.append((attack, answer))
    await connection.close()
    return shown
