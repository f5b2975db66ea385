"""Tables, views over them, and what callers see of both."""

from collections.abc import Iterator, Mapping

import pytest

from tests.database.conftest import Serve, Shops, open_shops
from tests.database.role_callers import UNCHECKED

TABLES = """
    create table regions (region text primary key, title text);
    insert into regions values ('north', 'North'), ('south', 'South');
    create table customers (id integer primary key, name text, email text, region text);
    insert into customers values
        (1, 'Ann', 'ann@example.org', 'north'), (2, 'Bob', 'bob@example.org', 'south');
    create table orders (id integer primary key, customer_id integer, total integer);
    insert into orders values (1, 1, 10), (2, 2, 20);
"""
#: By name: views that read rows or columns of customers.
VIEWS: Mapping[str, str] = {
    "plain": "select id, name, email from customers",
    "counted": "select count(*) as n from customers",
    "nested": "select name from plain",
    "nested_deeply": "select name from nested",
    "joined": "select o.id, c.name from orders o left join customers c on c.id = o.customer_id",
    "joined_using": "select g.title, c.id from regions g join customers c using (region)",
    "joined_naturally": "select title from regions natural join customers",
    "within": "select id from orders where customer_id in (select c.id from customers c)",
    "existing": "select id from orders o where exists (select 1 from customers c where c.id = o.customer_id)",
    "in_the_list": "select id, (select max(email) from customers) as best from orders",
    "united": "select title from regions union all select name from customers",
    "common": "with regions as (select name from customers) select name from regions",
    "named_alike": "with orders as (select email as total from customers) select total from orders",
    "recursively": (
        "with recursive n (i, e) as (select 1, 'a' union all select i + 1, c.email from n join customers c "
        "on c.id = i) select count(*) as total from n"
    ),
    "windowed": "select id, row_number() over (order by email) as place from customers",
}
#: Views that read nothing of customers.
SAFE: Mapping[str, str] = {
    "totals": "select sum(total) as total from orders",
    "titles": "select region, title from regions",
    "own_name": "with customers as (select id from orders) select id from customers",
    "alone": "select 1 as one",
    "nested_totals": "select total from totals",
    "common_count": "with n as (select id from orders) select count(*) as total from n",
    "recursive": (
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 9) "
        "select count(*) as total from n"
    ),
}
OF_SQLITE: Mapping[str, str] = {
    "by_rowid": "select rowid as number from customers",
    "of_the_schema": "select sql from sqlite_schema",
    "of_a_pragma": "select name from pragma_table_info('customers')",
    "found_text": "select name from found where found match 'ann'",
}
OF_POSTGRESQL: Mapping[str, str] = {
    "whole_row": "select c from customers as c",
    "by_system_column": "select ctid::text as place from customers",
    "of_any_sql": "select query_to_xml('select email from customers', true, false, '')::text as answer",
    "by_a_function": "select email_of(1) as email",
    "by_an_operator": "select id from orders where id ==> 1",
    "by_a_domain": "select id::text::guarded as id from orders",
    "of_the_catalog": "select relname::text from pg_catalog.pg_class",
    "of_a_size": "select pg_total_relation_size('customers') as size",
    "of_statistics": "select pg_stat_get_live_tuples('customers'::regclass) as rows",
    "of_a_name": "select to_regclass('customers')::text as name",
    "of_a_constant": "select 'customers'::regclass as name",
    "of_an_array": "select ('{customers}'::regclass[])::text as names",
    "of_a_populated_row": "select json_populate_record(null::customers, '{}')::text as row",
    "of_statements": "select statement from pg_prepared_statement()",
}
VIRTUAL = """
    create virtual table found using fts5(name, email, content='customers', content_rowid='id');
    insert into found(found) values ('rebuild');
    create virtual table found_words using fts5vocab('found', 'row');
    create virtual table found_older using fts4(name, content="customers");
    create virtual table found_short using fts5(name, con=customers, content_r=id);
    create virtual table found_quoted using "fts5"(name, c = "customers");
    create virtual table notes using fts5(body);
    create virtual table "using" using fts5(body);
"""
OTHERS = """
    create function email_of(integer) returns text language sql stable
        as 'select email from customers where id = $1';
    create function sees(integer, integer) returns boolean language sql stable
        as 'select exists (select from customers where id = $1)';
    create operator ==> (leftarg = integer, rightarg = integer, function = sees);
    create function is_mail(text) returns boolean language sql stable
        as 'select not exists (select from customers where email = $1)';
    create domain guarded as text check (is_mail(value));
    create materialized view copied as select name from customers;
    create materialized view copied_totals as select total from orders;
    create table parts (region text, value integer) partition by list (region);
    create table parts_north partition of parts for values in ('north');
    insert into parts values ('north', 1);
"""
OWN: Mapping[str, Mapping[str, str]] = {"sqlite": OF_SQLITE, "postgresql": OF_POSTGRESQL}


def ddl(dialect: str) -> str:
    views = "".join(
        f"create view {name} as {sql};" for name, sql in {**VIEWS, **SAFE, **OWN[dialect]}.items()
    )
    if dialect == "sqlite":
        return f"{TABLES}{VIRTUAL}{views}"
    return f"{TABLES}{OTHERS}{views}create view of_a_partition as select value from parts_north;"


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give databases with views of every sort."""
    with open_shops(serve, {dialect: ddl(dialect) for dialect in UNCHECKED}) as shops:
        yield shops
