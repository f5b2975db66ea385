"""Tables whose foreign keys [tables] declares."""

from collections.abc import Mapping

from dbtools.findings import Finding
from dbtools.settings.sections import TableSection
from tests.database.query_shop import QueryShop

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


def sections(references: Mapping[str, Mapping[str, str]]) -> Mapping[str, TableSection]:
    """Return [tables] with *references*."""
    return {name: TableSection(references=dict(each)) for name, each in references.items()}


CONFIGURED = """
[tables.customers]
references = { region_id = "regions.id", region_code = "regions.code" }
"""


def problems_of(shop: QueryShop) -> list[Finding]:
    shop.refresh()
    return [each for each in shop.view().problems if each.code not in ("posture", "no_sql")]
