"""What a query reads: tables, columns and functions, through views and under odd names."""

from typing import Any
from urllib.parse import urlsplit

import pytest

from dbtools.errors import Refused
from tests.database.inspecting import (
    describing,
    inspected,
    postgresql as postgresql,
    reads,
    shown,
    sqlite as sqlite,
    url as url,
)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param("select name from people where boss = 1", {"people.name", "people.boss"}, id="columns"),
        pytest.param("select count(*) as n from people", {"people."}, id="rows alone"),
        pytest.param(
            "select a.name as n from adults a where id = 1", {"adults.name", "adults.id"}, id="view"
        ),
        pytest.param(
            "with p as (select name from people) select count(*) as n from p", {"people.name"}, id="CTE"
        ),
        pytest.param(
            "select o.total from orders o join people p using (id)",
            {"orders.total", "orders.id", "people.id"},
            id="USING",
        ),
        pytest.param(
            "select 1 as x from (select 'guess' as name) g join people using (name)",
            {"people.name"},
            id="oracle",
        ),
        pytest.param(
            "select 1 as x from (select 'guess' as name) g join adults using (name)",
            {"adults.name"},
            id="oracle through a view",
        ),
        pytest.param("select 1 as x where exists (select 1 from orders)", {"orders."}, id="exists"),
        pytest.param("select 1 as x", set(), id="nothing"),
        pytest.param(
            "select total from orders where id in (select id from orders where at is null)"
            " union select id from adults",
            {"orders.total", "orders.id", "orders.at", "adults.id"},
            id="everywhere",
        ),
    ],
)
async def test_what_is_read(url: str, dialect: str, sql: str, expected: set[str]) -> None:
    found = await inspected(url, sql)

    schema = "public" if dialect == "postgresql" else ""
    assert reads(found) == {f"{schema}.{each}" for each in expected}


async def test_cte_that_is_named_like_a_view_reads_its_tables(postgresql: str, sqlite: str) -> None:
    sql = "with adults as (select name from people) select * from adults"

    exact, more = await inspected(postgresql, sql), await inspected(sqlite, sql)

    assert reads(exact) == {"public.people.name"}
    assert reads(more) == {".people.name", ".adults."}


async def test_sqlite_tells_more_of_a_table_that_is_named_beside_its_view(sqlite: str) -> None:
    found = await inspected(sqlite, "select total from orders union select total from totals")

    assert reads(found) == {".orders.total", ".orders.person", ".totals.total"}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        pytest.param("select 1 as x from adults", {"adults."}, id="rows alone"),
        pytest.param("select count(*) as n from main.Totals", {"totals."}, id="count"),
        pytest.param("select 1 as x where exists (select 1 from adults)", {"adults."}, id="exists"),
        pytest.param("select count(*) as n from some", {"some."}, id="no column below"),
        pytest.param('select 1 as x from "some more"', {"some more."}, id="view of a view"),
        pytest.param("select o.id from orders o, adults", {"orders.id", "adults."}, id="joined"),
        pytest.param(
            "select p.name, (select count(*) from adults) as n from people p",
            {"people.id", "people.name", "people.born", "adults."},
            id="beside its table",
        ),
    ],
)
async def test_view_whose_rows_alone_are_read_is_found_on_sqlite(
    sqlite: str, sql: str, expected: set[str]
) -> None:
    found = await inspected(sqlite, sql)

    assert reads(found) == {f".{each}" for each in expected}


async def test_natural_join_reads_what_both_sides_have(url: str, dialect: str) -> None:
    found = await inspected(url, "select 1 as x from (select 'guess' as name) g natural join people")

    schema = "public" if dialect == "postgresql" else ""
    assert found.reads is not None
    assert (schema, "people", "name") in found.reads


async def test_whole_row_reads_every_column(postgresql: str) -> None:
    found = await inspected(postgresql, "select to_json(o) as o from orders o")

    assert reads(found) == {f"public.orders.{name}" for name in ("id", "person", "total", "at")}


async def test_odd_names_are_read(url: str, dialect: str) -> None:
    table = '"Odd schema"."Odd ""table"' if dialect == "postgresql" else '"Odd ""table"'

    found = await inspected(url, f'select "select" as a from {table} where "Odd column" = :n', n="integer")

    schema = "Odd schema" if dialect == "postgresql" else ""
    names = ("select", "Odd column")
    assert found.reads == frozenset((schema, 'Odd "table', name) for name in names)


async def test_names_in_another_case_are_the_same_to_sqlite_alone(postgresql: str, sqlite: str) -> None:
    sql = 'select 1 as a, 2 as "A"'

    found = await inspected(postgresql, sql)

    assert list(shown(found)) == ["a", "A"]
    with pytest.raises(Refused):
        await inspected(sqlite, sql)


async def test_functions_of_users_are_listed(postgresql: str) -> None:
    found = await inspected(
        postgresql, "select app.touch(total) as a, app.nextval(1) as b, abs(1) as c from orders"
    )

    assert found.functions == ("app.nextval", "app.touch")


async def test_names_mean_to_a_role_what_they_mean_in_its_calls(
    postgresql: str, postgresql_login: Any
) -> None:
    schema = (
        "create schema authorization {}; create table {}.orders (own text);"
        " alter table {}.orders owner to {}; grant select on orders to {}"
    )
    with postgresql_login(postgresql, schema) as login:
        session = {"role": str(urlsplit(login).username)}
        async with describing(postgresql, session) as inspector:
            found = await inspector.query(["select id from orders"], {})

    assert list(shown(found)) == ["id"]
