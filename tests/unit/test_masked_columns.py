"""A masked column is a text without any other fact; rows that may not be aggregated are only listed."""

import pytest

from dbtools import errors
from dbtools.expressions.terms import Function
from dbtools.policy.roles import Grant
from dbtools.schema.catalog import Catalog, Column
from dbtools.tools import define
from dbtools.tools.definition import ToolContext
from dbtools.values.types import Family, Mask
from tests.calls import statement_of
from tests.unit.granted import granted_to, the
from tests.unit.shop import ID, PRODUCT, SHOP, column, select_of, table

MASKED = Grant(masks={"price": Mask.PARTIAL, "color": Mask.NULL, "size": Mask.HASH, "added_on": Mask.REDACT})
LENS = granted_to(SHOP, **{"product": MASKED, "order line": Grant(), "sale": Grant(aggregate=False)})


@pytest.mark.parametrize("name", ["price", "color", "size", "added_on"])
def test_masked_column_is_a_nullable_text_without_any_other_fact(name: str) -> None:
    sold = table(
        ID,
        column(
            name,
            Family.INTEGER,
            nullable=False,
            default="7",
            generated=True,
            choices=("7", "8"),
            minimum="7",
            maximum="8",
            comment="seven",
        ),
    )
    seen = the("product", Grant(masks={name: MASKED.masks[name]}), Catalog(tables=(sold,)))

    (masked,) = (each for each in seen.columns if each.name == name)
    assert masked == Column(name=name, type=masked.type, nullable=True, comment="seven")
    assert (masked.type.family, masked.type.operators) == (Family.TEXT, ())
    assert masked.type.mask is MASKED.masks[name]


@pytest.mark.parametrize(
    "masks", [{"id": Mask.HASH}, {each.name: Mask.NULL for each in PRODUCT.columns}], ids=["key", "all"]
)
def test_masked_column_is_in_no_order_and_so_in_no_cursor(masks: dict[str, Mask]) -> None:
    tools = define(ToolContext(catalog=granted_to(SHOP, product=Grant(masks=masks))))
    statement = statement_of(tools["list_product"].bind({}))

    assert "get_product" not in tools
    assert [step.term.name for step in select_of(statement).order if step.term.type.mask is not None] == []


PRICE = "product.price"
COUNT: dict[str, object] = {"measures": [{"function": "count"}]}


def test_table_that_may_not_be_aggregated_is_listed_only() -> None:
    tools = define(ToolContext(catalog=LENS))

    with pytest.raises(errors.Denied):
        tools["aggregate_rows"].bind({"table": "sale", **COUNT})
    assert statement_of(tools["list_sale"].bind({})).limit > 0
    assert statement_of(tools["aggregate_rows"].bind({"table": "product", **COUNT})).limit > 0


@pytest.mark.parametrize(
    "arguments",
    [
        *({"measures": [{"function": each, "column": PRICE}]} for each in Function),
        pytest.param({"group_by": [PRICE]}, id="group"),
        pytest.param({"group_by": [f"{PRICE}:month"]}, id="bucket"),
        pytest.param({"where": [{"column": PRICE, "value": "1"}]}, id="condition"),
        pytest.param({"where": [{"column": PRICE, "op": "is_null", "value": "false"}]}, id="null"),
    ],
)
def test_rows_that_may_not_be_aggregated_are_not_counted_along_a_path(arguments: dict[str, object]) -> None:
    """Where each order line has one product, and each product one line, they would be counted."""
    catalog = granted_to(SHOP, **{"order line": Grant(), "product": Grant(aggregate=False)})
    tool = define(ToolContext(catalog=catalog))["aggregate_rows"]

    with pytest.raises(errors.Denied):
        tool.bind({"table": "order line", **COUNT, **arguments})
