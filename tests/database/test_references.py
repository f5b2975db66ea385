"""A foreign key that [tables] declares works like one of the database, under the same policy."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.database.query_shop import ServeQueries
from tests.database.referring_tables import CONFIGURED, DDL, TABLES, problems_of, sections
from tests.database.role_callers import Grants, calling, calling_as, listing_tools
from tests.database.shop import DIALECTS, Serve, Shops, open_shops
from tests.database.twins import Side, open_twins

DECLARED = TABLES.format(
    region="references regions (id)", code="references regions (code)", customer="references customers (id)"
)
REFERENCES = {
    "customers": {"region_id": "regions.id", "region_code": "regions.code"},
    "orders": {"customer_id": "customers.id"},
}
OF_VIEW = {"totals": {"customer_id": "customers.id"}}
CALLS: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("describe_tables", {"detail": "summary"}),
    ("describe_tables", {"detail": "full"}),
    (
        "list_orders",
        {"columns": ["id", "customer.name", "customer.region.name", "customer.region_code.area"]},
    ),
    ("list_orders", {"where": [{"column": "customer.region.name", "value": "North"}]}),
    ("list_orders", {"order_by": ["customer.region.area desc", "id"], "limit": 2}),
    (
        "list_regions",
        {"columns": ["name", "count(customers_by_region_id)", "max(customers_by_region_code.name)"]},
    ),
    ("list_regions", {"where": [{"none": "customers_by_region_id"}]}),
    ("get_orders", {"id": 1}),
    ("get_row", {"table": "orders", "key": {"id": 4}, "columns": ["customer.name"]}),
    (
        "aggregate_rows",
        {"table": "orders", "group_by": ["customer.region.name"], "measures": [{"function": "count"}]},
    ),
    ("list_orders", {"columns": ["customer.nothing"]}),
    ("list_orders", {"where": [{"some": "customers"}]}),
)


@pytest.fixture(scope="module")
def declaring(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, dict.fromkeys(DIALECTS, DECLARED)) as shops:
        yield shops


def test_reference_is_as_a_declared_key(shops: Shops, declaring: Shops, dialect: str) -> None:
    with (
        calling_as(shops(dialect), {"*": True}, tables=sections(REFERENCES)) as one,
        calling_as(declaring(dialect), {"*": True}) as other,
    ):
        assert one.problems() == other.problems() == ()
        listed = [re.sub("chema [0-9a-f]{12}", "", str(each.outcome(listing_tools))) for each in (one, other)]
        assert listed[0] == listed[1]
        for tool, arguments in CALLS:
            ask = calling(tool, **arguments)
            assert one.outcome(ask) == other.outcome(ask), (tool, arguments)
        assert one.rows("list_orders", columns=["customer.region_code.area"]) == [[10], [10], [None], [None]]


def test_view_refers_to_a_table(shops: Shops, dialect: str) -> None:
    with calling_as(shops(dialect), {"*": True}, tables=sections(REFERENCES | OF_VIEW)) as caller:
        rows = caller.rows(
            "list_totals", columns=["customer.name", "customer.region.name", "total"], order_by=["total"]
        )
        related = caller.rows(
            "list_customers", columns=["id", "max(totals.total)"], where=[{"some": "totals"}]
        )

    assert rows == [["Ada", "North", 30], ["Bea", "South", 40], [None, None, 80]]
    assert related == [[1, 30], [2, 40]]


def test_row_that_refers_to_nothing_reads_as_null(serve: Serve, dialect: str) -> None:
    ddl = f"{DDL} insert into orders values (5, 99, 1);"
    with serve(dialect, ddl) as shop, calling_as(shop, {"*": True}, tables=sections(REFERENCES)) as caller:
        null = {"column": "customer.id", "op": "is_null", "value": "true"}

        assert caller.rows("list_orders", columns=["id", "customer.name"], where=[null]) == [
            [4, None],
            [5, None],
        ]


#: What a role with these grants sees is the same in both databases.
GRANTS: Grants = {
    "regions": GrantSection(
        columns=("id", "name", "code"), where="name = :claims.region", mask={"code": Mask.HASH}
    ),
    "customers": GrantSection(exclude=("region_code",), where="id < 10"),
    "orders": GrantSection(where="total < 1000"),
    "totals": GrantSection(where="total < 1000"),
}
#: Two visible rows refer to hidden ones, or to none.
REFERRING = """
update customers set region_id = 4 where id = 2;
update orders set customer_id = 12 where id = 4;
"""
HIDDEN = """
insert into regions values (4, 'CANARY', 'CANARY', 99);
insert into customers values (11, 'CANARY', 1, 'n'), (12, 'CANARY', 4, 'CANARY');
insert into orders values (11, 11, 9999), (12, 1, 9999), (13, 12, 9999), (14, 77, 9999);
"""
#: Its rule accepts what the view reads, so it reads no hidden row.
VIEW = """
drop view totals;
create view totals as select customer_id, count(*) as orders, sum(total) as total
    from orders where total < 1000 group by customer_id;
"""


def _probes() -> Iterator[tuple[str, Mapping[str, object]]]:
    columns = ("customer.name", "customer.region.name", "customer.region.code", "customer.region.area")
    for table in ("orders", "totals"):
        for column in (*columns, "customer.region_code.name", "customer.region_code"):
            yield "list_rows", {"table": table, "columns": ["customer_id", column]}
            yield "list_rows", {"table": table, "order_by": [column], "limit": 2}
            yield "list_rows", {"table": table, "where": [{"column": column, "value": "CANARY"}]}
            yield (
                "list_rows",
                {"table": table, "where": [{"column": column, "op": "is_null", "value": "true"}]},
            )
            measures = [{"function": "count_distinct", "column": column}]
            yield "aggregate_rows", {"table": table, "group_by": [column], "measures": measures}
    for relation in ("customers", "customers_by_region_id", "customers_by_region_code"):
        for condition in ({"some": relation}, {"none": relation}):
            yield "list_rows", {"table": "regions", "where": [condition]}
        yield "list_rows", {"table": "regions", "columns": ["id", f"count({relation})"]}
    for expression in ("count(orders)", "sum(orders.total)", "max(totals.total)", "count(totals)"):
        yield "list_rows", {"table": "customers", "columns": ["id", expression], "order_by": [expression]}
    yield "describe_tables", {"detail": "full"}


def test_hidden_rows_and_columns_change_nothing_along_a_reference(serve: Serve, dialect: str) -> None:
    tables = sections(REFERENCES | OF_VIEW)
    poor = Side(ddl=DDL + VIEW + REFERRING, grants=GRANTS, tables=tables)
    rich = replace(poor, ddl=poor.ddl + HIDDEN)
    with open_twins(serve, dialect, rich, poor, {"region": "North"}) as twins:
        twins.outcome(listing_tools)
        for tool, arguments in _probes():
            twins.outcome(calling(tool, **arguments))


@pytest.mark.parametrize(
    "grants",
    [
        {"customers": GrantSection(exclude=("region_id",)), "regions": True},
        {"customers": GrantSection(mask={"region_id": Mask.HASH}), "regions": True},
        {"customers": True, "regions": GrantSection(exclude=("id",))},
        {"customers": True, "regions": GrantSection(mask={"id": Mask.NULL})},
        {"customers": True},
    ],
)
def test_reference_over_what_is_not_seen_is_no_path(grants: Grants, shop: Any) -> None:
    with calling_as(shop, grants, tables=sections(REFERENCES)) as caller:
        described = caller.call("describe_tables", tables=["customers"])["tables"]

    assert isinstance(described, list)
    assert "region" not in described[0].get("relations", {})
    assert not any("region_id" in each and "→" in each for each in described[0]["columns"])


@pytest.mark.parametrize("target", ["regions.id", "customers.id"])
def test_declared_key_takes_precedence(target: str, declaring: Shops, dialect: str) -> None:
    with calling_as(
        declaring(dialect), {"*": True}, tables=sections({"customers": {"region_id": target}})
    ) as caller:
        (problem,) = caller.problems()
        described = caller.call("describe_tables", tables=["customers"])["tables"]

    assert "warning" in problem
    assert "the database declares" in problem
    assert isinstance(described, list)
    assert described[0]["relations"]["region"] == "regions"


def test_role_of_the_database_that_may_not_read_the_target_has_no_path(
    serve_queries: ServeQueries, postgresql_server: Any
) -> None:
    name = "dbtools_test_references"
    roles = f'[roles.default]\nset_role = "{name}"\ntables."*" = true\n[roles.all]\ntables."*" = true\n'
    try:
        with serve_queries("postgresql", DDL, {}, f"{CONFIGURED}{roles}") as shop:
            shop.bare.execute(f"create role {name}; grant select on customers to {name}")
            refused = shop.refusal("list_customers", {"columns": ["region.name"]})
            rows = shop.rows("list_customers", {"columns": ["region.name"], "limit": 1}, role="all")
            problems = problems_of(shop)
            shop.bare.execute(f"drop owned by {name}")
    finally:
        postgresql_server.execute(f"drop role if exists {name}", url=postgresql_server.url)

    assert (refused.partition(":")[0], rows, problems) == ("unknown_column", [["North"]], [])
