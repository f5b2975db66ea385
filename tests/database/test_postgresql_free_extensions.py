"""Ad-hoc SQL with extensions whose types and operators differ from those of the system."""

from collections.abc import Iterator

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.policy.roles import Grant, Role, Rule, restrict
from tests.database.postgresql_free_shop import SqlShop, open_free_shop
from tests.postgresql_server import PostgresqlServer

EXTENSIONS = ("citext", "hstore", "isn", "ltree", "pg_trgm")
DDL = """
create table people (id integer primary key, name citext, attrs hstore, path ltree, book isbn13);
insert into people values
    (1, 'Ann', 'a=>1,b=>2', 'top.a', '978-0-306-40615-7'), (2, 'ANN', 'b=>3', 'top.b', null);
"""
#: Statements, and their rows; None if they are refused.
ANSWERS = {
    "select count(*) from people where name = 'ann'": [(2,)],
    "select count(*) from people where name <> 'ann'": [(0,)],
    "select count(*) from people where name in ('aNN') and name like 'an%'": [(2,)],
    "select count(distinct name), nullif(max(name), 'ann') from people": [(1, None)],
    "select id from people where attrs @> 'a=>1'": [(1,)],
    "select attrs -> 'b' from people order by id": [("2",), ("3",)],
    "select id from people where path <@ 'top' and path ~ '*.b'": [(2,)],
    "select id from people where book = '0-306-40615-2'": [(1,)],
    "select id from people where name::text % 'Ann' order by id": [(1,), (2,)],
    "select 5 % 2": [(1,)],
    "select isn_weak(true)": [(True,)],
    "select isn_weak()": [(False,)],
    "select set_limit(0.1)": None,
}


@pytest.fixture(scope="module")
def shop(postgresql_server: PostgresqlServer, portal: BlockingPortal) -> Iterator[SqlShop]:
    available = "select name from pg_available_extensions"
    names = {
        row["name"] for row in postgresql_server.portal.call(postgresql_server.connection.fetch, available)
    }
    if missing := set(EXTENSIONS) - names:
        pytest.skip(f"the server has no {', '.join(sorted(missing))}")
    more = "".join(f"create extension {name};" for name in EXTENSIONS) + DDL
    with open_free_shop(postgresql_server, portal, hidden=True, more=more) as shop:
        yield shop


def test_types_of_extensions_compare_as_they_do_in_the_database(shop: SqlShop) -> None:
    seen = restrict(shop.whole, Role(rules=(Rule(pattern="people", grant=Grant()),)))

    answers = {sql: shop.answer(sql, catalog=seen) for sql in ANSWERS}

    found = {sql: None if each[0] == "sql_refused" else [*each[1]] for sql, each in answers.items()}  # type: ignore[misc]
    assert found == ANSWERS
