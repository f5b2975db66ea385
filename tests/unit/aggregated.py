"""Tables for tests of `aggregate_rows`."""

from collections.abc import Mapping

from dbtools.catalog import ForeignKey
from dbtools.types import Family
from tests.unit.shop import ID, column, table, tools

COUNTRY = table(ID, column("name"), column("founded", Family.DATE), name="country")
SALE = table(
    ID,
    column("country_id", Family.INTEGER),
    column("day", Family.DATE),
    column("at", Family.TIMESTAMPTZ),
    column("shop"),
    column("total", Family.DECIMAL),
    column("note", Family.JSON),
    column("a:b", Family.DATE),
    name="sale",
    foreign_keys=(
        ForeignKey(columns=("country_id",), target_schema="", target="country", target_columns=("id",)),
    ),
)
TOOLS = tools(SALE, COUNTRY)
COUNT: Mapping[str, object] = {"function": "count"}
SUM: Mapping[str, object] = {"function": "sum", "column": "total"}
