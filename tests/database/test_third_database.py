"""A third database is served through the port alone, without a change to the package."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.mysql import dialect as backtick_dialect

from dbtools.backends import BACKENDS
from dbtools.backends.compile.selects import compile_select
from dbtools.backends.compile.sources import Element, dialect_with_places
from dbtools.backends.port import temporary_refusal
from dbtools.errors import CallError, DatabaseUnavailable
from dbtools.policy.roles import Caller
from dbtools.schema.catalog import Column, Table
from dbtools.schema.sql import Fragment
from dbtools.service.checking import check
from dbtools.service.explanation import explain
from dbtools.service.serving import open_toolbox
from dbtools.settings import load
from dbtools.statements.select import Order, Output, Select
from tests.database.duckdb_backend import DuckdbInspector, Grammar, type_of

DDL = """
create table region (id integer primary key, name varchar not null);
create table sale (
    id integer primary key,
    region_id integer not null references region (id),
    amount decimal(10, 2) not null,
    sold date,
    email varchar,
    margin double
);
comment on table sale is 'What was sold';
insert into region values (1, 'north'), (2, 'south');
insert into sale values
    (1, 1, 10.50, '2024-01-05', 'ann@example.com', 1.5),
    (2, 1, 20.25, '2024-01-20', 'bob@example.com', 2.5),
    (3, 2, 5.00, '2024-02-01', null, 3.5),
    (4, 2, 1.25, null, 'cem@example.com', 4.5);
"""
ROLES = """
[policy]
claims = { region = "integer" }
[roles.all]
tables."*" = true
queries = ["*"]
[roles.some]
tables.sale = { exclude = ["margin"], where = "region_id = :claims.region", mask = { email = "partial" } }
"""
QUERY = """
-- name: sales_of
-- description: Sales of some regions.
-- param regions: integer[]  Their numbers.
select id, amount from sale where region_id in (:regions) order by id
"""
ALL, NORTH = Caller(role="all"), Caller(role="some", claims={"region": 1})


class Third:
    """The third database, served."""

    def __init__(self, path: Path) -> None:
        self.settings = load(path)
        self.toolbox, self.backend = open_toolbox(self.settings)

    async def call(self, tool: str, caller: Caller = ALL, **arguments: object) -> Mapping[str, Any]:
        """Return the answer of *tool*."""
        return (await self.toolbox.call(caller, tool, arguments)).structured

    async def rows(self, tool: str, caller: Caller = ALL, **arguments: object) -> object:
        """Return the rows of the answer of *tool*."""
        return (await self.call(tool, caller, **arguments))["rows"]

    async def refusal(self, tool: str, caller: Caller, **arguments: object) -> str:
        """Return the code with which *tool* refuses."""
        with pytest.raises(CallError) as caught:
            await self.call(tool, caller, **arguments)
        return caught.value.code


@asynccontextmanager
async def serve(folder: Path, roles: str = ROLES) -> AsyncIterator[Third]:
    """Serve the third database from *folder*."""
    with duckdb.connect(str(folder / "third.db")) as connection:
        connection.execute(DDL)
    (folder / "queries").mkdir()
    (folder / "queries" / "sales_of.sql").write_text(QUERY)
    head = f'[database]\nurl = "duckdb://{folder / "third.db"}"\n[queries]\ndirectory = "queries"\n'
    (folder / "dbtools.toml").write_text(head + roles)
    third = Third(folder / "dbtools.toml")
    try:
        yield third
    finally:
        await third.backend.close()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the third database: one entry."""
    assert isinstance(BACKENDS, dict)
    monkeypatch.setitem(BACKENDS, "duckdb", "tests.database.duckdb_backend")


async def test_schema_becomes_tools(tmp_path: Path) -> None:
    async with serve(tmp_path) as third:
        names = [each.name for each in await third.toolbox.list("all")]
        (sale,) = (await third.call("describe_tables", tables=["sale"], detail="full"))["tables"]

    assert {"list_sale", "get_sale", "list_region", "aggregate_rows", "sales_of"} <= set(names)
    assert sale["comment"] == "What was sold"
    assert sale["key"] == ["id"]


async def test_rows_are_listed_by_conditions_paths_and_pages(tmp_path: Path) -> None:
    async with serve(tmp_path) as third:
        where = [
            {"column": "region.name", "value": "north"},
            {"column": "email", "op": "contains", "value": "BOB"},
        ]
        found = await third.rows("list_sale", where=where, columns=["id", "amount", "region.name"])
        some = await third.rows(
            "list_sale", where=[{"column": "id", "op": "in", "values": ["1", "4"]}], columns=["id"]
        )
        first = await third.call("list_sale", columns=["id", "sold"], order_by=["sold desc"], limit=2)
        second = await third.rows(
            "list_sale", columns=["id", "sold"], order_by=["sold desc"], limit=2, cursor=first["next_cursor"]
        )
        one = await third.call("get_sale", id=3)

    assert found == [[2, "20.25", "north"]]
    assert some == [[1], [4]]
    assert first["rows"] == [[3, "2024-02-01"], [2, "2024-01-20"]]
    assert second == [[1, "2024-01-05"], [4, None]]
    assert one["row"]["amount"] == "5.00"


async def test_rows_are_aggregated_by_paths_and_buckets(tmp_path: Path) -> None:
    async with serve(tmp_path) as third:
        found = await third.rows(
            "aggregate_rows",
            table="sale",
            group_by=["region.name", "sold:month"],
            measures=[{"function": "sum", "column": "amount", "name": "revenue"}, {"function": "count"}],
            order_by=["revenue desc"],
        )
        kept = await third.rows(
            "aggregate_rows",
            table="sale",
            group_by=["region_id"],
            measures=[{"function": "count"}, {"function": "max", "column": "margin"}],
            having=[{"column": "max_margin", "op": "gt", "value": "3"}],
        )

    assert found == [
        ["north", "2024-01", "30.75", 2],
        ["south", "2024-02", "5.00", 1],
        ["south", None, "1.25", 1],
    ]
    assert kept == [[2, 2, 4.5]]


async def test_policy_hides_filters_and_masks(tmp_path: Path) -> None:
    async with serve(tmp_path) as third:
        shown = await third.rows("list_sale", NORTH, columns=["id", "email"])
        counted = await third.rows("aggregate_rows", NORTH, table="sale", measures=[{"function": "count"}])
        hidden = await third.refusal("list_sale", NORTH, columns=["margin"])
        absent = await third.refusal("list_rows", NORTH, table="region")
        denied = await third.refusal("list_sale", Caller(role="some"))
        why = await explain(third.toolbox, third.backend, NORTH, "list_sale", {"limit": 1})

    assert shown == [[1, "a…@example.com"], [2, "b…@example.com"]]
    assert counted == [[2]]
    assert (hidden, absent, denied) == ("unknown_column", "unknown_table", "denied")
    assert why.sql is not None
    assert "region_id = " in why.sql


async def test_claim_without_a_type_is_refused_where_the_database_gives_it_none(tmp_path: Path) -> None:
    role = '[roles.some]\ntables.sale = { where = "amount < :claims.most" }\n'
    async with serve(tmp_path, role) as third:
        review = await check(third.settings)

    assert "untyped_claim" in [each.code for each in review.findings]


async def test_permitted_query_takes_a_list(tmp_path: Path) -> None:
    async with serve(tmp_path) as third:
        found = await third.rows("sales_of", regions=["2"])
        none = await third.rows("sales_of", regions=[])

    assert found == [[3, "5.00"], [4, "1.25"]]
    assert none == []


class Backticks(Grammar):
    """The Grammar of a database that quotes names differently, and whose order has no "nulls last"."""

    dialect: sa.Dialect = dialect_with_places(backtick_dialect())

    def nulls_last(self, ordered: sa.UnaryExpression[Any]) -> Element:
        """Leave *ordered* as it is."""
        return ordered


def test_database_says_how_names_are_quoted_and_where_nulls_are_ordered() -> None:
    column = Column(name="a`b", type=type_of("INTEGER"))
    shape = Select(
        table=Table(name="t", columns=(column,)), outputs=(Output(term=column),), order=(Order(term=column),)
    )

    standard, other = (compile_select(shape, each).sql.replace("\n", "") for each in (Grammar(), Backticks()))

    assert standard.startswith('SELECT t."a`b" AS c0 FROM "t" AS t ORDER BY t."a`b" ASC NULLS LAST  LIMIT ')
    assert other.startswith("SELECT t.`a``b` AS c0 FROM `t` AS t ORDER BY t.`a``b` ASC  LIMIT ")


async def test_filter_that_cannot_be_checked_for_a_moment_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy(self: DuckdbInspector, table: Table, condition: Fragment) -> tuple[str, ...]:
        raise temporary_refusal("The table is locked.")

    async with serve(tmp_path) as third:
        before = await third.rows("list_sale", NORTH, columns=["id"])
        monkeypatch.setattr(DuckdbInspector, "condition", busy)
        with pytest.raises(DatabaseUnavailable, match="The table is locked"):
            await third.toolbox.refresh()
        after = await third.rows("list_sale", NORTH, columns=["id"])
        first = open_toolbox(third.settings)
        unchecked = await first[0].snapshot()
        await first[1].close()

    assert before == after == [[1], [2]]
    assert unchecked.views["some"].catalog.tables == ()
    assert unchecked.stamps["database"] == "unchecked"
