"""Tables, partitions, views and estimates of PostgreSQL."""

from types import SimpleNamespace
from typing import cast

import anyio
import asyncpg
import pytest

from dbtools import errors
from dbtools.backends.postgresql.connection.connections import check_version
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Key, Selection, Table, TableKind
from tests.database.postgresql_catalog import (
    DATE,
    INTEGER,
    NO_MORE,
    catalog_of,
    connected,
    foreign_key,
    table_of,
)
from tests.database.postgresql_readers import ALL_KINDS, catalog_of_role, columns_of, reader as reader


async def test_tables_of_every_kind_are_found_in_order(postgresql_url: str) -> None:
    catalog = await catalog_of(postgresql_url, ALL_KINDS)

    assert [(table.schema, table.name, table.kind) for table in catalog.tables] == [
        ("public", "Zebra", TableKind.TABLE),
        ("public", "apple", TableKind.TABLE),
        ("public", "foreign", TableKind.FOREIGN),
        ("public", "materialized", TableKind.MATERIALIZED_VIEW),
        ("public", "parted", TableKind.PARTITIONED),
        ("public", "view", TableKind.VIEW),
        ("A", "apple", TableKind.TABLE),
        ("zoo", "apple", TableKind.TABLE),
    ]


@pytest.mark.parametrize(
    ("search_path", "default_schema"),
    [
        pytest.param("zoo, public", "zoo", id="first-of-the-path"),
        pytest.param("nowhere", "public", id="none"),
    ],
)
async def test_default_schema_is_the_first_of_the_search_path(
    postgresql_url: str, search_path: str, default_schema: str
) -> None:
    catalog = await catalog_of(postgresql_url, f"{ALL_KINDS} set search_path = {search_path}")

    assert (catalog.default_schema, catalog.tables[0].schema) == (default_schema, default_schema)


async def test_tables_of_the_system_and_internal_ones_are_hidden(postgresql_url: str) -> None:
    ddl = """
    create schema dbtools;
    create schema app;
    set search_path = dbtools, public;
    create table dbtools.call (id integer);
    create table public.alembic_version (id integer);
    create table app.alembic_version (id integer);
    create table public.dbtools_version (id integer);
    create table public.dbtools_query (id integer);
    create table public.dbtools_call (id integer);
    create table public.dbtools_write (id integer);
    create table public.of_extension (id integer);
    alter extension plpgsql add table of_extension;
    create temporary table brief (id integer);
    create table public.shown (id integer);
    """

    catalog = await catalog_of(postgresql_url, ddl)

    assert (columns_of(catalog), catalog.default_schema) == ({"public.shown": ["id"]}, "public")


@pytest.mark.parametrize(
    ("selection", "names"),
    [
        pytest.param(Selection(schemas=("A", "zoo")), ["A.apple", "zoo.apple"], id="schemas"),
        pytest.param(
            Selection(include=("public.*e*",), exclude=("*er*", "apple")),
            ["public.Zebra", "public.foreign", "public.parted", "public.view"],
            id="patterns",
        ),
        pytest.param(Selection(schemas=("pg_catalog",)), [], id="system"),
    ],
)
async def test_only_wanted_tables_are_read(
    postgresql_url: str, selection: Selection, names: list[str]
) -> None:
    catalog = await catalog_of(postgresql_url, ALL_KINDS, selection)

    assert [catalog.full_name(table) for table in catalog.tables] == names


NAMES = (
    *("two words", 'quo"te', "apo'strophe", "sla/sh", "back\\slash", "do.t", "Ünïcode", "日本", "🦊", "1st"),
    *("select", "UPPER", "new\nline", "per%cent", "$1", ":name", "a" * 63, "é" * 31),
)


async def test_names_are_read_exactly(postgresql_url: str) -> None:
    def quoted(name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    columns = ", ".join(f"{quoted(name)} integer not null check ({quoted(name)} < 3)" for name in NAMES)
    tables = "".join(
        f"create schema {name}; create table {name}.{name} ({columns},"
        f" primary key ({name}), foreign key ({name}) references {name}.{name});"
        for name in map(quoted, NAMES)
    )

    catalog = await catalog_of(postgresql_url, tables)

    read = tuple(Column(name=name, type=INTEGER, nullable=False, maximum="2") for name in NAMES)
    assert catalog.tables == tuple(
        Table(
            name=name,
            schema=name,
            columns=read,
            keys=(Key(columns=(name,), primary=True),),
            foreign_keys=(
                ForeignKey(columns=(name,), target_schema=name, target=name, target_columns=(name,)),
            ),
        )
        for name in sorted(NAMES)
    )


async def test_table_without_columns_is_left_out(postgresql_url: str) -> None:
    catalog = await catalog_of(postgresql_url, "create table empty ()")

    assert (catalog, catalog.warnings) == (Catalog(default_schema="public"), ())


async def test_estimate_is_of_the_last_analysis(postgresql_url: str) -> None:
    ddl = """
    create table counted as select * from generate_series(1, 12) as id;
    create table never (id integer);
    create view view as select * from counted;
    create materialized view stored as select * from counted;
    analyze counted, stored;
    """

    catalog = await catalog_of(postgresql_url, ddl)

    assert [(table.name, table.row_estimate) for table in catalog.tables] == [
        ("counted", 12),
        ("never", None),
        ("stored", 12),
        ("view", None),
    ]


async def test_estimate_counts_no_row_that_row_level_security_hides(postgresql_url: str, reader: str) -> None:
    ddl = """
    create table kept as select * from generate_series(1, 12) as id;
    create table secured (id integer, tenant text) partition by list (tenant);
    create table secured_a partition of secured for values in ('a');
    insert into secured select id, 'a' from generate_series(1, 12) as id;
    alter table secured enable row level security;
    create policy one on secured using (id = 1);
    analyze;
    """
    owned = await catalog_of(postgresql_url, ddl)
    seen = await catalog_of_role(postgresql_url, reader, f"grant select on kept, secured to {reader}")

    assert [(each.name, each.row_estimate) for each in owned.tables] == [("kept", 12), ("secured", 12)]
    assert [(each.name, each.row_estimate) for each in seen.tables] == [("kept", 12), ("secured", None)]


PARTITIONED = """
create table customer (id integer primary key);
create table product (id integer primary key);
create table staff (id integer primary key);
create table sale (
    id integer,
    day date,
    customer integer references customer,
    product integer,
    staff integer,
    primary key (day, id)
) partition by range (day);
create table sale_2023 partition of sale for values from ('2023-01-01') to ('2024-01-01');
create table sale_2024 (
    product integer, day date not null, staff integer, customer integer, id integer not null
) partition by range (id);
create table sale_2024_low partition of sale_2024 for values from (0) to (10);
create table sale_2024_high partition of sale_2024 for values from (10) to (20);
alter table sale attach partition sale_2024 for values from ('2024-01-01') to ('2025-01-01');
alter table sale_2023 add foreign key (product) references product;
alter table sale_2023 add foreign key (staff) references staff;
alter table sale_2024_low add foreign key (product) references product;
alter table sale_2024_low add foreign key (staff) references staff;
alter table sale_2024_high add foreign key (product) references product;
insert into sale select i, '2023-05-05' from generate_series(1, 5) as i;
insert into sale select i, '2024-05-05' from generate_series(1, 12) as i;
create table refund (sale integer, day date, foreign key (day, sale) references sale);
analyze sale_2023, sale_2024_low, sale_2024_high;
"""


async def test_partitioned_table_stands_for_its_partitions(postgresql_url: str) -> None:
    catalog = await catalog_of(
        postgresql_url, PARTITIONED, Selection(include=("sale*", "customer", "product"))
    )

    assert [table.name for table in catalog.tables] == ["customer", "product", "sale"]
    assert catalog.tables[2] == Table(
        name="sale",
        schema="public",
        kind=TableKind.PARTITIONED,
        columns=(
            Column(name="id", type=INTEGER, nullable=False),
            Column(name="day", type=DATE, nullable=False),
            Column(name="customer", type=INTEGER),
            Column(name="product", type=INTEGER),
            Column(name="staff", type=INTEGER),
        ),
        keys=(Key(columns=("day", "id"), primary=True),),
        foreign_keys=(foreign_key("customer", "customer", "id"), foreign_key("product", "product", "id")),
        row_estimate=17,
    )


async def test_foreign_key_to_a_partitioned_table_is_one(postgresql_url: str) -> None:
    table = await table_of(postgresql_url, PARTITIONED, "refund")

    assert table.foreign_keys == (foreign_key("day sale", "sale", "day id"),)


async def test_partitioned_table_without_partitions_has_its_own_foreign_keys(postgresql_url: str) -> None:
    ddl = """
    create table customer (id integer primary key);
    create table sale (customer integer references customer) partition by list (customer);
    """

    table = await table_of(postgresql_url, ddl, "sale")

    assert (table.foreign_keys, table.row_estimate) == ((foreign_key("customer", "customer", "id"),), None)


async def test_locked_table_is_read_without_waiting(postgresql_url: str) -> None:
    ddl = "create table t (a integer default 3, b integer generated always as (a + 1) stored)"
    async with connected(postgresql_url) as other:
        await other.execute(ddl)
        async with other.transaction():
            await other.execute("lock table t in access exclusive mode")
            with anyio.fail_after(30):
                table = await table_of(postgresql_url, NO_MORE, "t")

    assert table.columns == (
        Column(name="a", type=INTEGER, default="3"),
        Column(name="b", type=INTEGER, generated=True),
    )


async def test_two_readings_of_one_schema_are_equal(postgresql_url: str) -> None:
    first = await catalog_of(postgresql_url, PARTITIONED + ALL_KINDS)

    assert await catalog_of(postgresql_url, NO_MORE) == first


class Greeting:
    """A stub of a connection, with the parameters that a server reports."""

    def __init__(self, major: int, **told: str) -> None:
        self._major = major
        self._told = told

    def get_server_version(self) -> asyncpg.ServerVersion:
        """Return the version."""
        return asyncpg.ServerVersion(self._major, 0, 22, "final", 0)

    def get_settings(self) -> SimpleNamespace:
        """Return the other parameters."""
        return SimpleNamespace(**self._told)


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (Greeting(12, server_version="12.22"), "PostgreSQL 13 or later is needed, this is 12"),
        (Greeting(13, server_version="13.0.0", crdb_version="v25.2"), "is not PostgreSQL"),
        (Greeting(15, server_version="15.12-YB-2025.1.0.0-b0"), "is not PostgreSQL"),
    ],
)
def test_server_that_cannot_be_read_is_refused(greeting: Greeting, said: str) -> None:
    connection = cast("asyncpg.Connection[asyncpg.Record]", greeting)

    with pytest.raises(errors.ConfigurationError, match=said):
        check_version(connection)


async def test_server_of_the_tests_is_accepted(postgresql_url: str) -> None:
    async with connected(postgresql_url) as connection:
        check_version(connection)
