"""Text in double quotes in operators' SQL is always a name, on every database."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.sqlite.connection.files import secure
from dbtools.backends.sqlite.schema.syntax import with_names
from tests.database.query_shop import QueryShop, ServeQueries
from tests.database.shop import Serve, quote

DDL = """
create table customers (id integer primary key, hidden integer not null, "Unit price" integer, region text);
insert into customers values (1, 0, 10, 'north'), (2, 1, 20, 'south'), (3, 0, 30, 'north');
create table orders (id integer primary key, customer_id integer);
insert into orders values (1, 1), (2, 2);
"""
ROLES = """
[roles.default]
queries = ["*"]
tables.orders = true
tables.customers = { where = '"hidden" <> 1' }
"""
LINE = 9  #: of the filter in the configuration
SHOWN = '-- name: shown\nselect id\nfrom customers\nwhere\n  "hidden" <> 1\norder by id'
CHANGES = {
    "renamed": "alter table customers rename column hidden to secret",
    "dropped": "alter table customers drop column hidden",
}


def _reasons(shop: QueryShop) -> list[str]:
    """Return what is wrong, but for what the login of the tests can do."""
    return [each for each in map(str, shop.view().problems) if ": error: " in each]


@pytest.mark.parametrize("name", ['"hidden"', "hidden"])
@pytest.mark.parametrize("change", CHANGES)
def test_filter_whose_column_is_gone_withdraws_its_table(
    change: str, name: str, dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(dialect, DDL, {}, ROLES.replace('"hidden"', name)) as shop:
        before = shop.rows("list_customers", {"columns": ["id"]})
        shop.bare.execute(CHANGES[change])
        stale = shop.refusal("list_customers", {"columns": ["id"]})
        shop.refresh()
        gone, reasons = shop.refusal("list_customers", {"columns": ["id"]}), _reasons(shop)
        kept = shop.rows("list_orders")

    assert before == [[1], [3]]
    assert stale == gone
    assert gone.startswith("unknown_tool")
    assert [f"dbtools.toml:{LINE}: error: " in each and "hidden" in each for each in reasons] == [True]
    assert kept == [[1, 1], [2, 2]]


def test_filter_with_a_misspelt_quoted_column_denies_its_table(
    dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(dialect, DDL, {}, ROLES.replace('"hidden"', '"hiden"')) as shop:
        names, reasons = shop.listed(), _reasons(shop)
        refusal = shop.refusal("list_rows", {"table": "customers"})

    assert [name for name in names if "customers" in name] == []
    assert refusal.startswith("unknown_table")
    assert [f"dbtools.toml:{LINE}: error: " in each and "hiden" in each for each in reasons] == [True]


@pytest.mark.parametrize("change", CHANGES)
def test_query_whose_quoted_column_is_gone_is_withdrawn(
    change: str, dialect: str, serve_queries: ServeQueries
) -> None:
    with serve_queries(dialect, DDL, {"shop.sql": SHOWN}) as shop:
        before = shop.rows("shown")
        shop.bare.execute(CHANGES[change])
        stale = shop.refusal("shown")
        shop.refresh()
        gone, reasons = shop.refusal("shown"), _reasons(shop)

    assert before == [[1], [3]]
    assert stale == gone
    assert [each.startswith("queries/shop.sql:5: error: query shown is withdrawn: ") for each in reasons] == [
        True
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "select id from customers where region in (\"north\", 'south')",
        'select id from customers where region like "n%"',
        'select id from customers order by "regoin"',
        'select id, "no such name" from customers',
        "select id from customers where json_extract('{}', \"$.a\") is null",
        'select count(*) from customers group by "regoin"',
        'select id from customers where region = "true"',
        'select max(id) over (order by "regoin") from customers',
        'values ("north")',
        'select id from customers limit "10"',
        'select id from customers where region in (/* "in" */"north")',
    ],
)
def test_text_in_double_quotes_is_refused_on_its_line(sql: str, serve_queries: ServeQueries) -> None:
    text = next(part for part in sql.split('"')[1::2] if part != "in")
    lines = sql.replace(" where", "\n where")
    line = 2 + lines.partition(f'"{text}"')[0].count("\n")
    with serve_queries("sqlite", DDL, {"shop.sql": f"-- name: odd\n{lines}"}) as shop:
        reasons = _reasons(shop)

    assert reasons == [
        f"queries/shop.sql:{line}: error: query odd is withdrawn: no such column: {text}. "
        f"Double quotes are for names; write a text in single quotes: '{text}'."
    ]


#: In every place where a name may stand, with the columns as they are called.
PLACES = '''
select "id" from "customers"
select "c"."id", c."Unit price" from "customers" as "c"
select "main"."customers"."id" from "main"."customers"
select "id" as "the ""id""", "region" "the region" from customers order by "the ""id""" desc
select "Unit price" * 2, "id"+1 from customers
select ("Unit price") from customers
with "w w" ("k k") as (select 1) select "k k" from "w w"
with recursive "n"("i") as (values (1) union all select "i" + 1 from "n" where "i" < 3) select * from "n"
select "region" from customers order by "region" collate "nocase", "id"
select "lower"("region") as "low" from customers group by "low" having "low" <> 'x'
select cast("id" as "text") as "t", cast("id" as "double" precision) as "d" from customers
select sum("id") over "w x" as "s" from customers window "w x" as (partition by "region" order by "id")
select "value" from "json_each"('[1]')
select "json_each"."value" from json_each('[1]')
select 60/"id" from customers
select "id"from"customers"where"id"in(1)and"region"='north'
select "id"`a`, [region]"b", `id`as"c" from customers
select "customers".* from customers
select "rowid" as "number" from customers
select exists (select 1 from "orders" as "o" where "o"."customer_id" = "customers"."id") from customers
select "id" from customers join (select "customer_id" as "id" from orders) using ("id")
select * from customers natural join (select "customer_id" as "id" from orders)
select count(*) filter (where "hidden") as "n" from customers
select "id" from customers union select "customer_id" as "id" from orders order by "id"
select case "hidden" when 1 then '"id"' else "region" end as "x""y" from customers
select '"gone"' as [a "b" c], "odd`name" from (select 1 as "odd`name")
select "id" from customers where "region" = 'north' and "hidden" not in (select "hidden" from orders where 0)
select "b`" as "``", "c]" from (select 2 as "b`", 3 as "c]")
select "lit" from "spoken"
select "body" from "notes" where "notes" match 'one' order by "bm25"("notes")
'''
COMMENTED = 'select 60/ /* "of" */ "id" -- "of"\nfrom customers'
#: The view and the index are the database's own: what they take for texts, they still do.
OWN = """
create view spoken as select id, "a text" as lit from customers where region in ("north", "west");
create index northern on customers (hidden) where region = "north";
create virtual table notes using fts5 (body);
insert into notes values ('one'), ('two');
"""


@pytest.fixture(scope="module")
def file(sqlite_database: Callable[[str], Path]) -> Path:
    """Return a file with views and an index."""
    return sqlite_database(DDL + OWN)


@pytest.mark.parametrize("sql", [*PLACES.strip().splitlines(), COMMENTED])
def test_name_in_double_quotes_may_stand_wherever_a_name_may(
    sql: str, file: Path, serve_queries: ServeQueries
) -> None:
    with closing(sqlite3.connect(file)) as connection:
        cursor = connection.execute(sql)
        rows, columns = cursor.fetchall(), [name for name, *_ in cursor.description]

    with serve_queries("sqlite", DDL + OWN, {"shop.sql": f"-- name: odd\n{sql}"}) as shop:
        found = shop.call("odd").structured

    assert found["columns"] == columns
    assert found["rows"] == [list(row) for row in rows]


def test_view_that_takes_names_for_texts_is_served_whenever_it_was_made(serve: Serve) -> None:
    spoken = 'create view {} as select id, "a text" as lit from customers where region in ("north", "west")'
    with serve("sqlite", DDL, fresh=True) as shop:
        before = shop.rows("customers", columns=["id"])
        shop.bare.execute(spoken.format("spoken"))
        shop.refresh()
        found = shop.rows("spoken")
        shop.bare.execute("drop view spoken")
        shop.refresh()
        after = shop.rows("customers", columns=["id"])

    assert found == [[1, "a text"], [3, "a text"]]
    assert before == after == [[1], [2], [3]]


def test_filter_that_reads_a_view_made_since_is_understood(serve_queries: ServeQueries) -> None:
    roles = "[roles.default]\ntables.customers = { where = 'id in (select \"id\" from spoken)' }\n"
    with serve_queries("sqlite", DDL + OWN, {}, roles) as shop:
        before = shop.rows("list_customers", {"columns": ["id"]})
        shop.bare.execute("drop view spoken; create view spoken as select 2 as id where \"x\" = 'x'")
        shop.refresh()
        after = shop.rows("list_customers", {"columns": ["id"]})

    assert before == [[1], [3]]
    assert after == [[2]]


@pytest.fixture(scope="module")
def odd_columns() -> Iterator[sqlite3.Connection]:
    """Yield a connection to a database in memory."""
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


@given(name=st.text(st.sampled_from("ab`\"'[] .;?$:%-/*\n"), min_size=1, max_size=8))
def test_name_of_any_characters_is_the_same_name(name: str, odd_columns: sqlite3.Connection) -> None:
    sql = (
        f"select {quote(name)}, q.{quote(name)} as {quote(name + 'x')} from (select 1 as {quote(name)}) as q"
    )

    cursor = odd_columns.execute(with_names(sql))

    assert [column for column, *_ in cursor.description] == [name, f"{name}x"]
    assert cursor.fetchall() == [(1, 1)]


@given(name=st.text(st.sampled_from("ab`\"'[] .;?$:%-/*\n"), max_size=8))
def test_name_of_any_characters_is_never_a_text(name: str, odd_columns: sqlite3.Connection) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such column"):
        odd_columns.execute(with_names(f"select {quote(name)}"))


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.12 can switch texts in double quotes off")
@pytest.mark.parametrize(("ddl", "is_text"), [(DDL, False), (DDL + OWN, True)], ids=["none", "a view"])
def test_texts_in_double_quotes_are_off_where_no_view_needs_them(
    ddl: str, is_text: bool, sqlite_database: Callable[[str], Path]
) -> None:
    with closing(sqlite3.connect(sqlite_database(ddl))) as connection:
        secure(connection)
        try:
            found = connection.execute('select "gone"').fetchone()
        except sqlite3.OperationalError:
            found = None

    assert found == (("gone",) if is_text else None)
