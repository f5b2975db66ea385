"""A database of 1,512 tables in 27 schemas is described and read with few tools and few tokens."""

from collections.abc import Iterator

import pytest

from dbtools.errors import UnknownTable
from dbtools.tools.definition import ToolGroup, tokens_of, tool_content
from tests.database.shop import ROLE, Serve, Shop, Shops

SCHEMAS = [f"area_{number:02}" for number in range(27)]
SHARED = ["customers", "orders", "invoices", *(f"shared_{number:02}" for number in range(22))]
TABLES = 56  #: of each schema, the shared names among them
pytestmark = pytest.mark.parametrize("dialect", ["postgresql"])


def _ddl() -> str:
    columns = "(id bigint primary key, name text, amount numeric(12,2), made_at timestamptz)"
    parts: list[str] = []
    for schema in SCHEMAS:
        own = [f"{schema}_report_{number:02}" for number in range(TABLES - len(SHARED))]
        parts.append(f"create schema {schema};")
        parts += [f"create table {schema}.{name} {columns};" for name in (*SHARED, *own)]
    parts.append("comment on table area_07.area_07_report_05 is 'What the auditors of Lisbon want to see';")
    parts.append("insert into area_03.orders values (1, 'first', 12.50, '2024-03-05');")
    return "\n".join(parts)


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    with serve("postgresql", _ddl()) as shop:
        yield lambda _: shop


def test_few_tools_are_listed_and_cost_few_tokens(shop: Shop) -> None:
    view = shop.portal.call(shop.toolbox.view, ROLE)

    assert len(view.catalog.tables) == 27 * 56
    assert ToolGroup.TABLES not in view.typed
    assert len(view.definitions) == 5
    assert sum(tokens_of(tool_content(each)) for each in view.definitions) < 2_000


@pytest.mark.parametrize(
    ("search", "first"),
    [
        ("orders area_03", "area_03.orders"),
        ("area_03.orders", "area_03.orders"),
        ("lisbon", "area_07_report_05"),
        ("auditors report", "area_07_report_05"),
    ],
)
def test_table_is_found_among_all(search: str, first: str, shop: Shop) -> None:
    found = shop.call("list_tables", {"search": search, "limit": 3}).structured

    tables = found["tables"]
    assert isinstance(tables, list)
    assert tables[0]["name"] == first


def test_name_of_many_tables_is_answered_with_all_of_them(shop: Shop) -> None:
    with pytest.raises(UnknownTable) as raised:
        shop.call("list_rows", {"table": "orders"})

    assert all(f"{schema}.orders" in raised.value.hint for schema in SCHEMAS)


def test_table_of_a_schema_is_described_read_and_summed_up(shop: Shop) -> None:
    described = shop.call("describe_tables", {"tables": ["area_03.orders"]}).structured
    listed = shop.call("list_rows", {"table": "area_03.orders", "columns": ["name"]}).structured
    got = shop.call(
        "get_row", {"table": "area_03.orders", "key": {"id": 1}, "columns": ["amount"]}
    ).structured
    summed = shop.call(
        "aggregate_rows",
        {
            "table": "area_03.orders",
            "group_by": ["made_at:month"],
            "measures": [{"function": "sum", "column": "amount"}],
        },
    ).structured

    assert isinstance(described["tables"], list)
    assert described["tables"][0]["columns"][0] == "id bigint key"
    assert listed["rows"] == [["first"]]
    assert got["row"] == {"amount": "12.50"}
    assert summed["rows"] == [["2024-03", "12.50"]]


def test_tool_of_one_table_can_be_called_though_it_is_not_listed(shop: Shop) -> None:
    (name,) = [
        name
        for name, tool in shop.portal.call(shop.toolbox.view, ROLE).tools.items()
        if tool.table
        and (tool.table.schema, tool.table.name) == ("area_03", "orders")
        and name.startswith("get")
    ]

    assert shop.call(name, {"id": 1}).structured["row"] == {
        "id": 1,
        "name": "first",
        "amount": "12.50",
        "made_at": "2024-03-05T00:00:00Z",
    }


def test_all_tables_come_page_by_page(shop: Shop) -> None:
    names: list[str] = []
    arguments: dict[str, object] = {"limit": 200}
    while True:
        page = shop.call("list_tables", arguments).structured
        assert isinstance(page["tables"], list)
        names += [each["name"] for each in page["tables"]]
        if not page["truncated"]:
            break
        arguments["cursor"] = page["next_cursor"]

    assert len(names) == len(set(names)) == 27 * 56
