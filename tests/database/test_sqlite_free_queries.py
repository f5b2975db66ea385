"""Queries of analysts have the same answers as plain SQL on a database with only what the role sees."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dbtools import errors
from dbtools.values.cells import json_of, json_value
from tests.database.free_clinic import POOR, RICH
from tests.database.role_callers import NORTH, Caller, calling_as
from tests.database.shop import Serve

QUESTIONS = (Path(__file__).parent / "free_questions.sql").read_text(encoding="utf-8").split("----\n")[1:]
#: What the role sees of customers, as a table.
SEEN = """
    create table seen as
        select id, name, region, iif(email is null, null, substr(email, 1, 1) || '…@example.org') as email,
            '***' as phone, null as remark, amount
        from customers;
    drop table customers;
    alter table seen rename to customers;
"""


@pytest.fixture(scope="module")
def caller(serve: Serve) -> Iterator[Caller]:
    with serve("sqlite", RICH.ddl) as shop, calling_as(shop, RICH.grants, NORTH, sql=True) as caller:
        yield caller


@pytest.fixture(scope="module")
def plain_sql() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(POOR.ddl + SEEN)
        yield connection


def test_there_are_enough_questions() -> None:
    assert len(set(QUESTIONS)) >= 100


@pytest.mark.parametrize("sql", QUESTIONS)
def test_question_has_the_answer_of_plain_sql(
    caller: Caller, plain_sql: sqlite3.Connection, sql: str
) -> None:
    answer = caller.call("run_sql", sql=sql, limit=200)

    cursor = plain_sql.execute(sql)
    assert answer["rows"] == [[json_value(cell) for cell in row] for row in cursor.fetchall()], json_of(
        answer
    )
    assert len(answer["columns"]) == len(cursor.description)  # type: ignore[arg-type]
    assert answer["truncated"] is False


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("select * from order", "Syntax error near 'order'"),
        ("select * from ordrs", "There is no table 'ordrs' (position 15). Did you mean orders?"),
        ("select totl from orders", "There is no column 'totl' (position 8). Did you mean total?"),
        ("select o.nothere from orders o", "There is no column 'o.nothere' (position 10)."),
        ("select id from orders, customers", "The column 'id' is in several tables"),
        (
            "select jsn('a')",
            "The function 'jsn' does not exist or is not permitted (position 8). Did you mean",
        ),
        ("select version()", "The function 'version' does not exist or is not permitted (position 8). Only"),
        ("select date_trunc('month', placed) from orders", "Write strftime('%Y-%m-01', x) for months, "),
        ("select to_char(placed, 'YYYY-MM') from orders", "Write strftime('%Y-%m', x)."),
        ("select charindex('a', note) from orders", "Write instr(text, part), and substr."),
        ("select nvl(note, '') from orders", "Write ifnull(a, b)."),
        ("select convert(int, total) from orders", "Write cast(x as integer)."),
        ("select stddev(total) from orders", "Only functions that compute a value from their arguments"),
        ("with year(y) as (values ('a')) select y, nope from year", "There is no column 'nope'"),
        ("with a(x) as not materialized (select 1) select x, len(x) from a", "Write length(x)."),
        ("with a(x) as materialized (select 1) select x x x from a", "Is a word or a comma missing?"),
        ("select interval interval interval from orders", "Is a word or a comma missing?"),
        ("select count(*) from orders join customers using (nope)", "USING is not in both tables. Write ON."),
        ("select * from orders where note regexp 'a'", "Write like or glob."),
        ('select * from orders where status = "paid"', "Write text in single quotes."),
        ("delete from orders", "This is not a SELECT (position 1). run_sql only reads"),
        ("select 1; select 2", "There are several statements (position 9). Make one call for each."),
        ("pragma table_info(orders)", "describe_tables lists tables and columns."),
        ("attach 'x' as y", "This is not a SELECT (position 1). run_sql only reads"),
        ("explain select 1", "This is not a SELECT (position 1). run_sql only reads"),
        (
            "select * from orders where id = :id",
            "Parameters are not supported (position 33). Write the value.",
        ),
        ("select * from orders where id = ?", "Parameters are not supported (position 33)."),
        ("select $1", "Parameters are not supported (position 8). Write the value."),
        ("select o.total from orders x", "There is no column 'o.total' (position 10). Qualify it with"),
        ("select string_agg(note, ',') from orders", "Write group_concat(x, ', ')."),
        ("select extract(year from placed) from orders", "'extract' does not exist or is not permitted"),
        ("select datediff(day, placed, placed) from orders", "Write julianday(later) - julianday(earlier)."),
        ("select now() - interval '1 day'", "Write datetime('now')"),
        ("select placed > interval '1 day' from orders", "Write date(x, '+1 day')"),
        ("select median(total) from orders", "Write min(x) where p >= 0.5, from a subquery with cume_dist()"),
        ("select top 5 id from orders", "Write limit 5 at the end."),
        ("select id from orders offset 5", "Write limit 5 offset 10."),
        ("select total::int from orders", "Write cast(x as integer), not x::integer; date(x)"),
        ("select * from customers where name ilike 'a'", "near 'ilike' (position 36). Write like"),
        ("select left(name, 2) from customers", "Write substr(x, 1, 2)"),
        ("select * from orders pivot (sum(total) for status in ('a'))", "Write sum(iif(…, x, 0)) for each"),
        ("select id, row_number() over () as n from orders where n = 1", "and its condition outside."),
        ("select date '2024-01-01'", "There is no column 'date' (position 8). Write date('2024-12-31')"),
        ("select * from sqlite_schema", "describe_tables lists tables and columns."),
        ("select * from information_schema.tables", "There is no table 'information_schema.tables'"),
        (
            "select name, from customers",
            "Syntax error near 'from' (position 14). Is a word or a comma missing?",
        ),
        ("with orders as (select 1) select * from main.orders", "Write just orders."),
        ("select sum(sum(total)) from orders", "An aggregate function is not permitted here."),
        ("select id from orders where row_number() over () = 1", "A window function is not permitted here."),
        ("select abs(-9223372036854775807 - 1)", "A computed integer exceeds 64 bits."),
        ("select json('x')", "A JSON function got a text that is not JSON."),
        ("select json_extract('{}', 'x')", "A JSON path is not valid."),
        ("select * from (select 1", "( is not closed (position 15)."),
        ("select 1 from", "The statement is not complete."),
        ("select 'a", "' is not closed (position 8)."),
        (
            "select 1 union select 1, 2",
            "Parts have different numbers of columns.",
        ),
        ("select lower()", "Wrong number of arguments for the function 'lower'."),
        ("select * from orders(1)", "There is no table function 'orders'"),
        ("select * from customers where customers match 'a'", "There is no column 'customers'"),
        ("select * from docs where docs match '\"'", "The search after MATCH is not valid."),
    ],
)
def test_refusal_names_the_rule_and_what_to_write_instead(caller: Caller, sql: str, says: str) -> None:
    with pytest.raises(errors.SqlRefused) as refused:
        caller.call("run_sql", sql=sql)

    assert says in str(refused.value)
