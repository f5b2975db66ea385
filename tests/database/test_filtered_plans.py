"""Reads of filtered tables use their indexes."""

from collections.abc import Iterator, Mapping

import pytest

from dbtools.backends.sqlite.connection.functions import install
from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.calls import statement_of
from tests.database.role_callers import COUNT, KEYED, ROLE, Caller, Grants, calling_as
from tests.database.shop import BareSqlite, Serve, Shop, Shops, open_shops

MANY = 20_000
INDEXED = """
    create table owners (id integer primary key, tenant integer not null, code text not null unique);
    create table things (
        id integer primary key, tenant integer not null, owner_id integer references owners(id), name text
    );
    insert into owners
        with recursive n(i) as (select 1 union all select i + 1 from n where i < {many})
        select i, i % 10, 'o' || i from n;
    insert into things
        with recursive n(i) as (select 1 union all select i + 1 from n where i < {many})
        select i, i % 10, i, 'thing ' || i from n;
    create index things_by_name on things (name);
    create index things_by_owner on things (owner_id);
    create table tenants (id integer primary key, open integer);
    insert into tenants values (1, 1), (2, 0);
    analyze;
"""
TENANT = "tenant = :claims.tenant"
OPEN = "exists (select 1 from tenants n where n.id = tenant and n.open = 1)"


@pytest.fixture(scope="module")
def indexed(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, dict.fromkeys(KEYED, INDEXED.format(many=MANY))) as shops:
        yield shops


def _plan(shop: Shop, caller: Caller, tool: str, arguments: Mapping[str, object]) -> str:
    """Return how the database runs the statement of a call."""
    view = caller.portal.call(caller.toolbox.view, ROLE)
    statement = statement_of(view.tools[tool].bind(arguments))
    assert statement is not None
    plan = caller.portal.call(caller.database.runner).compile(statement.shape)
    if isinstance(shop.bare, BareSqlite):
        install(shop.bare.connection)
        found = shop.bare.rows(f"explain query plan {plan.sql}", *(1 for _ in plan.parameters))
        return "\n".join(str(row[-1]) for row in found)
    values = {**statement.values, **{name: caller.claims[claim] for name, claim in plan.claims.items()}}
    written = plan.bind_values(values, statement.limit)
    return "\n".join(str(row[0]) for row in shop.bare.rows(f"explain {plan.sql}", *written))


PATH: Mapping[str, object] = {"where": [{"column": "id", "value": "41"}], "columns": ["id", "owner.code"]}
GROUPED: Mapping[str, object] = {
    "table": "things",
    "where": [{"column": "id", "value": "41"}],
    "group_by": ["owner.code"],
    "measures": COUNT,
}


@pytest.mark.parametrize("where", [TENANT, OPEN, f"{TENANT} -- comment", "tenant = 1 or tenant = 2"])
@pytest.mark.parametrize("mask", [None, Mask.NULL, Mask.HASH])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("get_things", {"id": 41}, id="get"),
        pytest.param("list_things", {"where": [{"column": "name", "value": "thing 41"}]}, id="lookup"),
        pytest.param("list_things", {"where": [{"column": "id", "op": "lt", "value": "9"}]}, id="range"),
        pytest.param("list_rows", {"table": "things", **PATH}, id="path"),
        pytest.param("aggregate_rows", GROUPED, id="groups along a path"),
    ],
)
def test_filtered_tables_keep_their_indexes(
    tool: str, arguments: Mapping[str, object], mask: Mask | None, where: str, indexed: Shops, dialect: str
) -> None:
    shop = indexed(dialect)
    masks = {} if mask is None else {"owner_id" if tool != "list_rows" else "tenant": mask}
    if tool == "aggregate_rows":
        masks = {} if mask is None else {"tenant": mask}
    grants: Grants = {"things": GrantSection(where=where, mask=masks), "owners": GrantSection(where=where)}
    with calling_as(shop, grants, {"tenant": 1}) as caller:
        plan = _plan(shop, caller, tool, arguments)
        answer = caller.call(tool, **arguments)

    assert "41" in str(answer) or "tenant" in str(answer)
    for table in ("things", "owners"):
        for scan in (f"SCAN {table}", f"Seq Scan on {table}", "MATERIALIZE", "CO-ROUTINE", "AUTOMATIC"):
            assert scan not in plan, plan


@pytest.mark.parametrize("where", [None, TENANT])
@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"columns": ["id", "count(things)"]}, id="count"),
        pytest.param({"columns": ["id", "sum(things.id + 1)"]}, id="sum that may overflow"),
        pytest.param({"order_by": ["max(things.name) desc"]}, id="order"),
        pytest.param({"where": [{"some": "things"}]}, id="some"),
        pytest.param(
            {"where": [{"none": "things", "where": [{"column": "name", "op": "ne", "value": "x"}]}]},
            id="none",
        ),
    ],
)
def test_related_rows_are_found_by_the_index_of_their_key(
    asked: dict[str, list[object]], where: str | None, indexed: Shops, dialect: str
) -> None:
    shop = indexed(dialect)
    few = {"column": "id", "op": "lte", "value": "21"}
    arguments = {**asked, "where": [few, *asked.get("where", ())]}
    grants: Grants = {name: GrantSection(where=where) if where else True for name in ("things", "owners")}
    with calling_as(shop, grants, {"tenant": 1}) as caller:
        plan = _plan(shop, caller, "list_owners", arguments)

    assert "things_by_owner" in plan, plan
    for scan in ("SCAN things", "Seq Scan on things", "MATERIALIZE", "AUTOMATIC"):
        assert scan not in plan, plan
