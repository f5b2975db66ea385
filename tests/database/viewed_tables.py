"""Tables, views over them, and what callers see of both."""

from collections.abc import Iterator, Mapping

import pytest

from tests.database.role_callers import UNCHECKED
from tests.database.shop import Serve, Shops, open_shops

TABLES = """
    create table regions (region text primary key, title text);
    insert into regions values ('north', 'North'), ('south', 'South');
    create table customers (id integer primary key, name text, email text, region text);
    insert into customers values
        (1, 'Ann', 'ann@example.org', 'north'), (2, 'Bob', 'bob@example.org', 'south');
    create table orders (id integer primary key, customer_id integer, total integer);
    insert into orders values (1, 1, 10), (2, 2, 20);
"""
VIEWS: Mapping[str, str] = {
    "plain": "select id, name, email from customers",
    "counted": "select count(*) as n from customers",
    "nested": "select name from plain",
    "totals": "select sum(total) as total from orders",
    "of_totals": "select total from totals",
    "alone": "select 1 as one",
}
#: Others that show rows of other tables.
DERIVED: Mapping[str, tuple[str, ...]] = {
    "sqlite": ("found", "found_words", "found_older", "found_short", "found_quoted", "found_last"),
    "postgresql": ("copied", "northern", "southern", "places"),
}
VIRTUAL = """
    create virtual table found using fts5(name, email, content='customers', content_rowid='id');
    insert into found(found) values ('rebuild');
    create virtual table found_words using fts5vocab('found', 'row');
    create virtual table found_older using fts4(name, content="customers");
    create virtual table found_short using fts5(name, con=customers, content_r=id);
    create virtual table found_quoted using "fts5"(name, c = "customers");
    create virtual table found_last using fts4(content='', content='customers', name);
    create virtual table notes using fts5(body);
    create virtual table "using" using fts5(body);
"""
OTHERS = """
    create materialized view copied as select name from customers;
    create table places (id integer primary key, region text);
    create table northern () inherits (places);
    create table southern () inherits (places);
    create table notes (region text, value integer) partition by list (region);
    create table notes_north partition of notes for values in ('north');
    create table "using" (id integer);
"""


def ddl(dialect: str) -> str:
    """Return the DDL of *dialect*."""
    views = "".join(f"create view {name} as {sql};" for name, sql in VIEWS.items())
    return f"{TABLES}{VIRTUAL if dialect == 'sqlite' else OTHERS}{views}"


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, {dialect: ddl(dialect) for dialect in UNCHECKED}) as shops:
        yield shops
