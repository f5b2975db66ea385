"""Logins of PostgreSQL that may select some tables, and the catalogs that they read."""

import secrets
from collections.abc import AsyncIterator

import pytest

from dbtools.backends.postgresql.schema.introspection import read_catalog
from dbtools.schema.catalog import Catalog
from tests.database.postgresql_catalog import EVERYTHING, connected


@pytest.fixture
async def reader(postgresql_url: str) -> AsyncIterator[str]:
    """Yield a role that may do nothing, in the test's own database."""
    name = f"reader_{secrets.token_hex(8)}"
    async with connected(postgresql_url) as connection:
        await connection.execute(f"create role {name}")
        yield name
        await connection.execute(f"drop owned by {name}; drop role {name}")


async def catalog_of_role(url: str, role: str, ddl: str) -> Catalog:
    async with connected(url) as connection:
        await connection.execute(ddl)
        await connection.execute(f"set role {role}")
        return await read_catalog(connection, EVERYTHING)


def columns_of(catalog: Catalog) -> dict[str, list[str]]:
    return {catalog.full_name(table): [column.name for column in table.columns] for table in catalog.tables}


ALL_KINDS = """
create table "Zebra" (id integer);
create table apple (id integer);
create view view as select 1 as id;
create materialized view "materialized" as select 1 as id;
create table parted (id integer) partition by list (id);
create table part partition of parted for values in (1);
create foreign data wrapper nothing;
create server nowhere foreign data wrapper nothing;
create foreign table "foreign" (id integer) server nowhere;
create sequence sequence;
create type composite as (id integer);
create schema "A";
create table "A".apple (id integer);
create schema zoo;
create table zoo.apple (id integer);
"""
