"""A login reads what it may select, and calls no functions of other users."""

import pytest

from dbtools.schema.catalog import Column, Key
from dbtools.values.types import ColumnType, Family
from tests.database.postgresql_catalog import NO_MORE, catalog_of, foreign_key, incomparable
from tests.database.postgresql_readers import ALL_KINDS, catalog_of_role, columns_of, reader as reader

PRIVATE = """
create schema app;
create table app.person (id integer primary key, name text not null unique, salary integer);
create table app.secret (id integer primary key);
create table app.badge (person integer references app.person, secret integer references app.secret);
"""
OPEN = "grant usage on schema app to {}"


@pytest.mark.parametrize(
    ("grants", "columns"),
    [
        pytest.param("grant select on all tables in schema app to {}", {}, id="schema-is-closed"),
        pytest.param(OPEN, {}, id="tables-are-closed"),
        pytest.param(f"{OPEN}; grant select on app.secret to {{}}", {"app.secret": ["id"]}, id="table"),
        pytest.param(
            f"{OPEN}; grant select (name, id) on app.person to {{}}",
            {"app.person": ["id", "name"]},
            id="columns",
        ),
        pytest.param(f"{OPEN}; grant insert, update, delete on app.person to {{}}", {}, id="others"),
    ],
)
async def test_only_what_the_login_may_select_is_read(
    postgresql_url: str, reader: str, grants: str, columns: dict[str, list[str]]
) -> None:
    ddl = PRIVATE + grants.replace("{}", reader)

    catalog = await catalog_of_role(postgresql_url, reader, ddl)

    assert columns_of(catalog) == columns


async def test_keys_with_a_closed_column_are_left_out(postgresql_url: str, reader: str) -> None:
    grants = f"""
    grant usage on schema app to {reader};
    grant select (name) on app.person to {reader};
    grant select on app.secret, app.badge to {reader};
    """

    catalog = await catalog_of_role(postgresql_url, reader, PRIVATE + grants)

    assert [(table.name, table.keys, table.foreign_keys) for table in catalog.tables] == [
        ("badge", (), (foreign_key("secret", "secret", "id", "app"),)),
        ("person", (Key(columns=("name",)),), ()),
        ("secret", (Key(columns=("id",), primary=True),), ()),
    ]


async def test_type_of_a_closed_schema_is_not_compared(postgresql_url: str, reader: str) -> None:
    ddl = f"""
    create schema app;
    create type app.mood as enum ('sad', 'ok');
    create table t (mood app.mood);
    grant select on t to {reader};
    """
    mood = ColumnType(family=Family.ENUM, name="app.mood", cast="app.mood", labels=("sad", "ok"))

    catalog = await catalog_of_role(postgresql_url, reader, ddl)

    assert catalog.tables[0].columns == (Column(name="mood", type=incomparable(mood)),)


async def test_names_of_what_the_login_may_not_select_are_known(postgresql_url: str, reader: str) -> None:
    grants = f"grant usage on schema app to {reader}; grant select on app.badge to {reader}"
    part = f"create table part (id integer, pay integer); grant select (id) on part to {reader}"
    ddl = f"{PRIVATE} {grants}; {part}"
    everything = await catalog_of(postgresql_url, ddl)
    columns = columns_of(everything)

    catalog = await catalog_of_role(postgresql_url, reader, NO_MORE)

    assert everything.unreadable == {}
    assert {f"{schema}.{name}": list(names) for (schema, name), names in catalog.unreadable.items()} == {
        "app.person": columns["app.person"],
        "app.secret": columns["app.secret"],
        "public.part": ["pay"],
    }
    assert {**columns_of(catalog.whole)} == columns


async def test_nothing_can_be_read_of_a_schema_that_is_out_of_reach(postgresql_url: str, reader: str) -> None:
    ddl = f"{PRIVATE} grant select on all tables in schema app to {reader}"
    columns = columns_of(await catalog_of(postgresql_url, ddl))

    catalog = await catalog_of_role(postgresql_url, reader, NO_MORE)

    assert columns_of(catalog.whole) == columns
    assert catalog.tables == ()


async def test_functions_and_operators_of_others_are_not_called(postgresql_url: str) -> None:
    trap = "language plpgsql as $$ begin raise exception 'caught'; end $$"
    ddl = f"""
    {ALL_KINDS}
    create function public.quote_ident(name) returns text {trap};
    create function public.has_table_privilege(oid, varchar) returns boolean {trap};
    create function public.starts_with(name, text) returns boolean {trap};
    create function public.trap(real, integer) returns boolean {trap};
    create operator public.> (leftarg = real, rightarg = integer, function = public.trap);
    set search_path = public, pg_catalog;
    """

    catalog = await catalog_of(postgresql_url, ddl)

    assert len(catalog.tables) == 8
