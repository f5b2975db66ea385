"""A foreign key that [tables] declares is followed like one of the database, and obeys the same lens."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dbtools.errors import UnknownColumn
from dbtools.policy import Finding
from dbtools.settings.sections import GrantSection, TableSection
from dbtools.types import Mask
from tests.conftest import OpenDatabase
from tests.database.conftest import DIALECTS, Serve, Shops, open_shops
from tests.database.query_shop import QueryShop, ServeQueries
from tests.database.test_policies import Grants, calling, calling_as, listing_tools
from tests.protocol.test_command_line import run

TABLES = """
create table regions (id integer primary key, name text, code text unique, area integer);
create table customers (
    id integer primary key, name text, region_id integer {region}, region_code text {code}
);
create table orders (id integer primary key, customer_id integer {customer}, total integer);
insert into regions values (1, 'North', 'n', 10), (2, 'South', null, 20), (3, 'West', 'w', 30);
insert into customers values (1, 'Ada', 1, 'n'), (2, 'Bea', 2, null), (3, 'Cid', null, 'w');
insert into orders values (1, 1, 10), (2, 1, 20), (3, 2, 40), (4, null, 80);
create view totals as
    select customer_id, count(*) as orders, sum(total) as total from orders group by customer_id;
"""
DDL = TABLES.format(region="", code="", customer="")
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


def sections(references: Mapping[str, Mapping[str, str]]) -> Mapping[str, TableSection]:
    """Return [tables] with *references*."""
    return {name: TableSection(references=dict(each)) for name, each in references.items()}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give the databases that declare no foreign key."""
    with open_shops(serve, dict.fromkeys(DIALECTS, DDL)) as shops:
        yield shops


@pytest.fixture(scope="module")
def declaring(serve: Serve) -> Iterator[Shops]:
    """Give the databases that declare them."""
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
    with (
        serve(dialect, ddl) as shop,
        calling_as(shop, {"*": True}, tables=sections(REFERENCES)) as caller,
    ):
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
    "totals": GrantSection(accept_reads=True, where="total < 1000"),
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
    with (
        serve(dialect, DDL + VIEW + REFERRING + HIDDEN) as rich,
        serve(dialect, DDL + VIEW + REFERRING) as poor,
        calling_as(rich, GRANTS, {"region": "North"}, tables=tables) as one,
        calling_as(poor, GRANTS, {"region": "North"}, tables=tables) as other,
    ):
        assert one.outcome(listing_tools) == other.outcome(listing_tools)
        for tool, arguments in _probes():
            ask = calling(tool, **arguments)
            assert one.outcome(ask) == other.outcome(ask), (tool, arguments)


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


WRONG = """
[tables.customers.references]
regionid = "regions.id"
region_code = "region.id"
name = "regions.ident"
region_id = "regions.name"
id = "regions.code"
[tables.orders]
references = { customer_id = "customers", total = "customers.id" }
[tables.order]
references = { id = "regions.id" }
"""


def test_wrong_reference_is_reported_with_its_line(
    open_database: OpenDatabase, dialect: str, tmp_path: Path
) -> None:
    with open_database(dialect, DDL) as url:
        (tmp_path / "dbtools.toml").write_text(f'[database]\nurl = "{url}"{WRONG}')
        checked = run("check", str(tmp_path / "dbtools.toml"), "--json")

    findings = json.loads(checked.stdout)["findings"]
    found = [(each["line"], each["code"], each["message"]) for each in findings if each["code"] != "posture"]
    assert checked.exit_code == 1
    assert [(line, code) for line, code, _ in found] == [
        (4, "unknown_column"),
        (5, "unknown_table"),
        (6, "unknown_column"),
        (7, "bad_reference"),
        (8, "bad_reference"),
        (10, "bad_reference"),
        (11, "unknown_table"),
    ]
    assert "Did you mean region_id" in found[0][2]
    assert "Did you mean regions?" in found[1][2]
    assert "not a primary or unique key" in found[3][2]
    assert "differ in type" in found[4][2]
    assert '"table.column"' in found[5][2]


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


#: Without the key, there may be two regions of one id.
MIGRATED = {
    "sqlite": """
        create table new (id integer, name text, code text unique, area integer);
        insert into new select * from regions; insert into new select id, 'Twin', null, 0 from regions;
        drop table regions; alter table new rename to regions
    """,
    "postgresql": """
        alter table regions drop constraint regions_pkey;
        insert into regions select id, 'Twin', null, 0 from regions
    """,
}
RESTORED = {
    "sqlite": "delete from regions where name = 'Twin'; create unique index restored on regions (id)",
    "postgresql": "delete from regions where name = 'Twin'; create unique index restored on regions (id)",
}
CONFIGURED = """
[tables.customers]
references = { region_id = "regions.id", region_code = "regions.code" }
"""


def _problems(shop: QueryShop) -> list[Finding]:
    shop.refresh()
    return [each for each in shop.view().problems if isinstance(each, Finding) and each.code != "posture"]


def test_reference_that_a_migration_breaks_is_dropped_until_it_is_valid_again(
    serve_queries: ServeQueries, dialect: str
) -> None:
    asked = {"columns": ["region_code.area", "region.name"], "order_by": ["id"]}
    with serve_queries(dialect, DDL, {}, CONFIGURED) as shop:
        before = _problems(shop), shop.rows("list_customers", asked)
        shop.bare.execute(MIGRATED[dialect])
        (finding,) = _problems(shop)
        refused = shop.refusal("list_customers", asked)
        kept = shop.rows("list_customers", {**asked, "columns": ["region_code.area"]})
        shop.bare.execute(RESTORED[dialect])
        after = _problems(shop), shop.rows("list_customers", asked)

    assert before == after == ([], [[10, "North"], [None, "South"], [30, None]])
    assert (finding.code, finding.source.line) == ("bad_reference", 7)
    assert refused.startswith("unknown_column")
    assert kept == [[10], [None], [30]]


def test_check_against_a_migrated_database_reports_a_reference(
    open_database: OpenDatabase, dialect: str, tmp_path: Path
) -> None:
    with open_database(dialect, DDL) as url, open_database(dialect, DDL + MIGRATED[dialect]) as migrated:
        path = tmp_path / "dbtools.toml"
        path.write_text(f'[database]\nurl = "{url}"{CONFIGURED}[tools]\nstyle = "typed"\n')
        now = json.loads(run("check", str(path), "--json").stdout)["findings"]
        then = json.loads(run("check", str(path), "--against", migrated, "--json").stdout)

    assert [each["code"] for each in now if each["code"] != "posture"] == []
    assert [(each["code"], each["line"]) for each in then["findings"] if each["code"] != "posture"] == [
        ("bad_reference", 4)
    ]
    assert "list_customers" in then["changes"]["default"]["changed"]


SCHEMAS = """
create schema sales; create schema hr;
create table sales.regions (id integer primary key); create table hr.regions (id integer primary key);
create table hr.people (id integer primary key, region_id integer);
create table sales.notes (id integer primary key, word text collate "C", "odd.name" integer unique);
create table words (word text primary key, number integer);
insert into hr.regions values (1); insert into hr.people values (1, 1), (2, 2);
"""


def _of_people(text: str) -> Mapping[str, TableSection]:
    return sections({"hr.people": {"region_id": text}})


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        pytest.param(_of_people("regions.id"), "means several tables", id="namesakes"),
        pytest.param(
            sections({"notes": {"word": "words.word"}}), "differ in type or collation", id="collation"
        ),
    ],
)
def test_reference_that_means_nothing_certain_is_refused(
    tables: Mapping[str, TableSection], problem: str, serve: Serve
) -> None:
    with serve("postgresql", SCHEMAS) as shop, calling_as(shop, {"*": True}, tables=tables) as caller:
        (found,) = caller.problems()

        assert problem in found


def test_reference_names_a_schema_and_a_quoted_column(serve: Serve) -> None:
    tables = {**_of_people("hr.regions.id"), **sections({"words": {"number": 'sales.notes."odd.name"'}})}
    with serve("postgresql", SCHEMAS) as shop, calling_as(shop, {"*": True}, tables=tables) as caller:
        assert caller.problems() == ()
        assert caller.rows("list_people", columns=["id", "region.id"]) == [[1, 1], [2, None]]
        assert caller.rows("list_words", columns=["number.id"]) == []


@contextmanager
def _inherited(serve: Serve) -> Iterator[Any]:
    ddl = """
    create table parents (id integer primary key); create table children () inherits (parents);
    create table notes (id integer primary key, parent_id integer);
    insert into parents values (1); insert into children values (1); insert into notes values (1, 1);
    """
    with serve("postgresql", ddl) as shop:
        yield shop


def test_table_that_others_inherit_has_no_key_to_refer_to(serve: Serve) -> None:
    with (
        _inherited(serve) as shop,
        calling_as(shop, {"*": True}, tables=sections({"notes": {"parent_id": "parents.id"}})) as caller,
    ):
        (problem,) = caller.problems()

    assert "not a primary or unique key" in problem


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
            problems = _problems(shop)
            shop.bare.execute(f"drop owned by {name}")
    finally:
        postgresql_server.execute(f"drop role if exists {name}", url=postgresql_server.url)

    assert (refused.partition(":")[0], rows, problems) == ("unknown_column", [["North"]], [])


PARTITIONED = """
create table regions (id integer primary key, name text);
create table sales (id integer, day integer, region_id integer, other_id integer) partition by range (day);
create table low partition of sales for values from (0) to (10);
alter table low add foreign key (region_id) references regions, add foreign key (other_id) references regions;
create table high (other_id integer, region_id integer references regions, day integer not null, id integer);
alter table sales attach partition high for values from (10) to (20);
create table top partition of sales for values from (20) to (30) partition by list (id);
create table top_one partition of top for values in (3);
alter table top_one add foreign key (region_id) references regions;
insert into regions values (1, 'North'), (2, 'South');
insert into sales values (1, 5, 1, 1), (2, 15, 2, 1), (3, 25, 1, 2);
"""


def test_partitioned_table_has_the_keys_that_all_its_partitions_share(serve: Serve) -> None:
    asked = {"columns": ["region.name"], "order_by": ["id"]}
    with serve("postgresql", PARTITIONED) as shop:
        rows = shop.rows("sales", **asked)
        related = shop.rows("regions", columns=["count(sales)"], order_by=["id"])
        with pytest.raises(UnknownColumn):
            shop.rows("sales", columns=["other.name"])
        with calling_as(shop, {"*": True}, tables=sections({"sales": {"other_id": "regions.id"}})) as caller:
            others = caller.rows("list_sales", columns=["other.name", "region.name"], order_by=["id"])

    assert rows == [["North"], ["South"], ["North"]]
    assert related == [[2], [1]]
    assert others == [["North", "North"], ["North", "South"], ["South", "North"]]
