"""`describe_tables` shows what a view computes, to roles that hide nothing."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from dbtools.policy.roles import Role, restrict
from dbtools.schema.catalog import Selection
from tests.database.role_callers import Grants, calling, calling_as
from tests.database.shop import Serve, Shop, catalog_of

DDL = """
create table customers (id integer primary key, name text, email text);
create table orders (id integer primary key, customer_id integer, total integer);
create view spent as
    select customer_id, sum(total) /* not CANARY */ as spent -- CANARY
    from orders group by customer_id;
create view nested as select customer_id from spent where spent > 10;
create view mailed as select id, email from customers;
"""


UNNEEDED = re.compile(r"\b(?:customers|orders|spent)\.|;$")


def _definitions(described: Mapping[str, Any]) -> dict[str, str | None]:
    tables = (each for each in described["tables"] if each["kind"] == "view")
    return {each["name"]: each.get("definition") for each in tables}


def test_definition_is_shown_in_full(shop: Shop) -> None:
    full = _definitions(shop.call("describe_tables", {"detail": "full"}).structured)
    summary = _definitions(shop.call("describe_tables", {}).structured)

    assert summary == {"mailed": None, "nested": None, "spent": None}
    # Up to version 15, PostgreSQL writes the tables of columns.
    assert {name: UNNEEDED.sub("", (text or "").lower()) for name, text in full.items()} == {
        "mailed": "select id, email from customers",
        "nested": "select customer_id from spent where spent > 10",
        "spent": "select customer_id, sum(total) as spent from orders group by customer_id",
    }


@pytest.mark.parametrize(
    ("grants", "shown"),
    [
        pytest.param({"*": True}, {"spent", "nested", "mailed"}, id="everything"),
        pytest.param({"*": True, "spent": True, "customers": False}, set(), id="something is hidden"),
        pytest.param({"spent": True, "orders": True}, set(), id="all that is read"),
    ],
)
def test_definition_is_shown_to_who_sees_all_of_it(grants: Grants, shown: set[str], shop: Shop) -> None:
    with calling_as(shop, grants) as caller:
        definitions = _definitions(caller.call("describe_tables", detail="full"))
        outcome = str(caller.outcome(calling("describe_tables", detail="full")))

    assert {name for name, text in definitions.items() if text} == shown
    assert "CANARY" not in outcome


def test_definition_names_no_table_that_is_left_out(shop: Shop) -> None:
    whole = shop.portal.call(catalog_of, shop.url, Selection(exclude=("orders",)))
    seen = restrict(whole, Role())

    assert {view.name for view in whole.tables if view.definition} == {"mailed", "nested", "spent"}
    assert {view.name for view in seen.tables if view.definition} == {"mailed", "nested"}


def test_migration_is_not_waited_for(serve: Serve) -> None:
    with serve("postgresql", DDL) as shop:
        shop.bare.execute("begin; lock table orders in access exclusive mode")
        locked = _definitions(shop.call("describe_tables", {"detail": "full"}).structured)
        shop.bare.execute("rollback; comment on view spent is 'sums'")
        shop.refresh()
        after = _definitions(shop.call("describe_tables", {"detail": "full"}).structured)

    assert set(locked.values()) == {None}
    assert None not in after.values()
