"""Masks, refusals and explanations of ad-hoc SQL on PostgreSQL."""

import pytest

from dbtools.errors import SqlRefused
from dbtools.values.cells import mask_cell
from dbtools.values.types import Mask
from tests.database.postgresql_free_shop import SqlShop, shop as shop
from tests.postgresql_server import execute


@pytest.mark.parametrize(
    "cell",
    [
        "ann@example.org",
        "a@b.co",
        "not an address",
        "",
        "x",
        "@example.org",
        "a b@example.org",
        '"a b"@example.org',
        "a@b",
        "a@-b.org",
        "a@b-.org",
        "a@example.org ",
        "a@@example.org",
        "a" * 64 + "@example.org",
        "a" * 65 + "@example.org",
        "a@" + "b" * 63 + ".org",
        "a@" + "b" * 64 + ".org",
        "a@" + ".".join(["b" * 60] * 4) + ".org",
        "a@" + ".".join(["b" * 60] * 5) + ".org",
        "x" * 400,
        "line\nbreak@example.org",
        "a@example.org\n",
    ],
)
def test_partial_mask_is_that_of_every_tool(shop: SqlShop, cell: str) -> None:
    quoted = cell.replace("'", "''")
    shop.portal.call(execute, shop.url, f"update customers set email = '{quoted}' where id = 5")

    assert shop.rows("select email from customers where id = 5") == [(mask_cell(cell, Mask.PARTIAL, b""),)]


REFUSALS = """
select nam from customers -> no column 'nam' (position 8). Did you mean name?
select x.id from customers c -> no table or alias 'x.id' (position 8)
select * from custmers -> no table 'custmers' (position 15). Did you mean customers?
select uper('a') -> 'uper' does not exist or is not permitted (position 8). Did you mean upper
select version() -> 'version' does not exist or is not permitted (position 8). Only functions
select minus(2, 1) -> 'minus' does not exist or is not permitted (position 8). Did you mean min
select 1 / 0 -> Division by zero
select name, count(*) from customers -> 'name' is not grouped, or is an aggregate where none may be
select sum(sum(total)) from orders -> 'sum' is not grouped, or is an aggregate where none may be
select upper(distinct name) from customers -> 'upper' cannot be called like this (position 8). DISTINCT and
select count(*) from orders join customers using (nope) -> after USING is not in both tables. Write ON.
select cast(id as text) from orders where text = 'a' -> There is no column 'text' (position 43). describe
select pg_typeof(1) -> is not permitted (position 8). Only functions
select 'x'::int -> cannot be cast to the type needed (position 8). Write numbers without
select id from customers where length(name) > 'a' -> Write numbers without quotes
select id from customers where mood = 'XX' -> (position 39). mood is one of sad, ok, happy.
select id from orders where ordered_on > 'soon' -> A text is not a date or time (position 42)
select make_date(2024, 2, 30) -> A date or time is out of range. Is there such a day in that month?
select date '2024-02-30' -> A date or time is out of range
select interval 'x' day -> This is not an interval
select upper(1, 2) -> No function or operator 'upper' takes
select id from orders o join paid p on true -> The column 'id' is in several tables
select (select id from orders) -> more than one row
select from -> Syntax error near
drop table x -> This is not a SELECT (position 1). run_sql only reads
table customers -> write one statement that begins with select
(table customers) -> This is not a SELECT (position 2)
select 'open -> is not closed
select 'x'::regclass -> The type 'regclass' does not exist or is not permitted
select 1 from orders where row_number() over () = 1 -> window function is not permitted here
select * from pg_class -> There is no table 'pg_class' (position 15)
select :x -> Parameters are not supported (position 8). Write the value
select $1 -> Parameters are not supported (position 8). Write the value
select id from orders where id = ? -> Syntax error near '?' (position 34). Parameters are not supported
select ifnull(total, 0) from orders -> is not permitted (position 8). Write coalesce(
select sysdate() -> Write now()
select len(name) from customers -> Write length(x)
select count_if(total > 2) from orders -> Only functions that compute a value from their arguments
select year(ordered_on) from orders -> Write extract(year from x)
select `id` from orders -> The operator ` is not permitted (position 8). Write names in double quotes
select id from orders where id == 1 -> Write =
select name from customers where name regexp 'a' -> Write ~ for a regular expression
select month(ordered_on) from orders -> Write extract(month from x)
select curdate() -> Write current_date
select date('now', '-1 month') -> Write x + interval '1 day'
select percentile_cont(total, 0.5) from orders -> Write percentile_cont(0.5) within group
select cast(1 as string) -> Write text
select name from customers where name = 'a' collate nocase -> Write collate "C"
select [id] from orders -> Write names in double quotes
select id from orders group by all -> Syntax error near 'all'
select status, count(*) c from orders group by status having c > 0 -> An alias of SELECT works only
select top 5 id from orders -> Syntax error near '5' (position 12). Write limit 5 at the end
select id from orders limit 5, 10 -> Write limit 10 offset 5
select id from orders where id in (select 1, 2) -> Select one column in the subquery
select now() - interval 1 day -> Write x + interval '1 day'
select id from orders for update -> run_sql only reads
select total * 2 as t from orders where t > 2 -> There is no column 't' (position 41). An alias of SELECT
select total as t from orders order by t + 1 -> There is no column 't' (position 40). An alias of SELECT
select totl from orders order by totl -> no column 'totl' (position 8). Did you mean total?
select o.total from orders x -> There is no table or alias 'o.total' (position 8)
select 1 from orders where count(*) > 1 -> belong in HAVING
select id from orders offset -1 -> LIMIT or OFFSET is negative
select 99999999999 * 99999999999 -> A number is out of range
select * from db.public.customers -> Write just customers
select * from "Customers" -> Write just customers
select tsrange('2024-01-01', '2024-02-01') -> Cast it to text, or select its parts
select current_user -> no column 'current_user' (position 8)
select * from customers tablesample system (10) -> TABLESAMPLE is not permitted for 'customers'
with x as (select 1) delete from orders -> run_sql only reads
with x as (delete from orders returning *) select * from x -> run_sql only reads
select xmlelement(name a, 'b') -> xmlelement is not supported (position 8)
select ctid from orders -> The system column ctid is not permitted (position 8)
"""


@pytest.mark.parametrize(("sql", "message"), [each.split(" -> ") for each in REFUSALS.strip().split("\n")])
def test_refusal_states_the_rule(shop: SqlShop, sql: str, message: str) -> None:
    with pytest.raises(SqlRefused) as refused:
        shop.run(sql)

    assert message in str(refused.value)


def test_explanation_shows_what_runs(shop: SqlShop) -> None:
    found = shop.portal.call(shop.runner.explain, shop.request("select name from customers"))

    assert '"public"."customers"' in found.sql
    assert "OFFSET 0" in found.sql
    assert found.parameters == ("north",)
    assert len(found.verdicts) == 2
