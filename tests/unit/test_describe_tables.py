"""`describe_tables`: which tables are meant, and how much is said of each."""

import json

import pytest
from jsonschema import Draft202012Validator

from dbtools.catalog import Catalog, Key
from dbtools.column_types import Family
from dbtools.errors import UnknownTable
from dbtools.policy import Limits
from dbtools.results import Answer
from dbtools.tools import Setting, define
from dbtools.tools.describe_tables import DESCRIPTION_SCHEMA, table_of
from tests.unit.shop import ID, ORDER_LINE, PRODUCT, SALE, SHOP, answer, column, table, tools

PRICED = table(
    ID,
    column("price", Family.DECIMAL, minimum="> 0", maximum="100", default="19.90", comment="in\neuros"),
    column("total", Family.DECIMAL, generated=True, nullable=False),
    column("color", choices=("red", "green")),
    column("code", nullable=False),
    name="priced",
    keys=(Key(columns=("id",), primary=True), Key(columns=("code", "total"))),
    comment="What is\tsold",
    row_estimate=0,
)
TOOLS = tools(PRODUCT, ORDER_LINE, SALE, PRICED)


def _described(arguments: dict[str, object]) -> Answer:
    described = answer(TOOLS, "describe_tables", arguments)
    Draft202012Validator(DESCRIPTION_SCHEMA).validate(described.structured)
    return described


def test_names_are_all_that_is_said_where_no_more_is_wanted() -> None:
    assert _described({"detail": "names"}) == Answer(
        structured={
            "table_count": 4,
            "truncated": False,
            "tables": [{"name": "product"}, {"name": "order line"}, {"name": "sale"}, {"name": "priced"}],
        },
        text='{"table_count":4,"truncated":false,"tables":'
        '[{"name":"product"},{"name":"order line"},{"name":"sale"},{"name":"priced"}]}',
        rows=4,
    )


def test_summary_lists_columns_and_relations() -> None:
    assert _described({"tables": ["order line", "sale"]}).structured["tables"] == [
        {
            "name": "order line",
            "kind": "table",
            "columns": ["order_id bigint key", "product_id bigint key → product.id", "quantity bigint"],
        },
        {"name": "sale", "kind": "table", "columns": ["day date", "total numeric(10,2)"]},
    ]


def test_full_description_says_everything() -> None:
    assert _described({"tables": ["priced"], "detail": "full"}).structured["tables"] == [
        {
            "name": "priced",
            "kind": "table",
            "comment": "What is sold",
            "row_estimate": 0,
            "columns": [
                {"name": "id", "type": "bigint", "nullable": False},
                {
                    "name": "price",
                    "type": "numeric(10,2)",
                    "nullable": True,
                    "minimum": "> 0",
                    "maximum": "100",
                    "default": "19.90",
                    "comment": "in euros",
                },
                {"name": "total", "type": "numeric(10,2)", "nullable": False, "generated": True},
                {"name": "color", "type": "text", "nullable": True, "values": ["red", "green"]},
                {"name": "code", "type": "text", "nullable": False},
            ],
            "key": ["id"],
            "unique": [["code", "total"]],
        }
    ]


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        pytest.param([], ["product", "order line", "sale", "priced"], id="all"),
        pytest.param(["sale", "product"], ["sale", "product"], id="in the order asked for"),
        pytest.param(["sale", "sale"], ["sale"], id="twice"),
        pytest.param(["SALE"], ["sale"], id="case"),
    ],
)
def test_tables_are_those_that_are_named(asked: list[str], names: list[str]) -> None:
    described = _described({"tables": asked, "detail": "names"})

    assert described.structured["tables"] == [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("sales", ["'sales'", "Did you mean sale?", "product"], id="unknown"),
        pytest.param("", ["''", "product"], id="empty"),
        pytest.param("twin", ["'twin'", "x.twin", "y.twin"], id="in several schemas"),
    ],
)
def test_table_that_is_unknown_or_ambiguous_is_answered_with_candidates(name: str, says: list[str]) -> None:
    twins = [table(ID, schema=schema, name="twin") for schema in ("x", "y")]
    catalog = Catalog(tables=(*SHOP.tables, *twins))

    with pytest.raises(UnknownTable) as raised:
        table_of(catalog, name, "tables[0]")
    assert [said for said in ("tables[0]", *says) if said not in str(raised.value)] == []


def test_table_is_found_by_its_label() -> None:
    twins = tuple(table(ID, schema=schema, name="twin") for schema in ("x", "y"))

    assert table_of(Catalog(tables=twins), "y.twin", "tables[0]") is twins[1]


def test_nothing_is_known_of_an_empty_database() -> None:
    toolset = define(Setting(catalog=Catalog()))

    assert answer(toolset, "describe_tables", {}).structured == {
        "table_count": 0,
        "truncated": False,
        "tables": [],
    }
    with pytest.raises(UnknownTable):
        toolset["describe_tables"].bind({"tables": ["x"]})


def test_descriptions_beyond_the_cap_are_left_out() -> None:
    limits = Limits(max_tokens=500)
    toolset = tools(
        *(table(ID, name=f"table {number}", comment="x" * 90) for number in range(50)), limits=limits
    )

    described = answer(toolset, "describe_tables", {})
    structured = described.structured
    Draft202012Validator(DESCRIPTION_SCHEMA).validate(structured)

    assert 1 < described.rows < 50
    assert structured["table_count"] == 50
    assert structured["truncated"] is described.truncated is True
    assert "note" in structured
    assert len(described.text) <= limits.max_bytes
    assert json.loads(described.text) == structured
