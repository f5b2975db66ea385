"""A small shop, as values, for tests of the pure wing."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from dbtools.answers.results import Answer
from dbtools.answers.styles import Listing, Text
from dbtools.backends.compiled import Compiled
from dbtools.configured.resolve import seen_by
from dbtools.configured.resolved import Resolved
from dbtools.expressions.parser import Expressions
from dbtools.findings import Kind, finding
from dbtools.policy.roles import Limits, Role
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Key, Table
from dbtools.schema.paths import Names, Paths
from dbtools.service.toolbox import Resolve
from dbtools.settings import Settings, ToolsSection
from dbtools.statements.select import Select, Shape, Statement
from dbtools.tools import define
from dbtools.tools.definition import ToolContext, Toolset
from dbtools.values.types import ColumnType, Family
from tests.calls import answered

LABELS = ("small", "large")

#: One type of each family, as a database without surprises declares it.
TYPES: Mapping[Family, ColumnType] = {
    Family.INTEGER: ColumnType(family=Family.INTEGER, name="bigint", minimum=-(2**63), maximum=2**63 - 1),
    Family.NUMBER: ColumnType(family=Family.NUMBER, name="double"),
    Family.DECIMAL: ColumnType(family=Family.DECIMAL, name="numeric(10,2)"),
    Family.BOOLEAN: ColumnType(family=Family.BOOLEAN, name="boolean"),
    Family.TEXT: ColumnType(family=Family.TEXT, name="text", large=True),
    Family.ENUM: ColumnType(family=Family.ENUM, name="size", labels=LABELS),
    Family.DATE: ColumnType(family=Family.DATE, name="date"),
    Family.TIME: ColumnType(family=Family.TIME, name="time"),
    Family.TIMESTAMP: ColumnType(family=Family.TIMESTAMP, name="timestamp"),
    Family.TIMESTAMPTZ: ColumnType(family=Family.TIMESTAMPTZ, name="timestamptz"),
    Family.INTERVAL: ColumnType(family=Family.INTERVAL, name="interval"),
    Family.UUID: ColumnType(family=Family.UUID, name="uuid"),
    Family.JSON: ColumnType(family=Family.JSON, name="json", equatable=False, ordered=False, large=True),
    Family.BYTES: ColumnType(family=Family.BYTES, name="bytes", large=True),
    Family.ARRAY: ColumnType(
        family=Family.ARRAY,
        name="numeric[]",
        element=ColumnType(family=Family.DECIMAL, name="numeric"),
        large=True,
    ),
    Family.OBJECT: ColumnType(
        family=Family.OBJECT,
        name="address",
        fields=(
            ("street", ColumnType(family=Family.TEXT, name="text")),
            ("rent", ColumnType(family=Family.DECIMAL, name="numeric")),
        ),
        large=True,
    ),
    Family.OTHER: ColumnType(family=Family.OTHER, name="inet"),
    Family.ANY: ColumnType(family=Family.ANY, name="any", lenient=True, large=True),
}

LISTING = Listing()


def column(name: str, family: Family = Family.TEXT, /, **more: Any) -> Column:
    """Return a column of the usual type of *family*, unless *more* says otherwise."""
    return Column(**{"name": name, "type": TYPES[family], **more})


def table(*columns: Column, name: str = "product", key: Sequence[str] = ("id",), **more: Any) -> Table:
    """Return a table of *columns* whose primary key is *key*."""
    keys = (Key(columns=tuple(key), primary=True),) if key else ()
    return Table(**{"name": name, "columns": columns, "keys": keys, **more})


ID = column("id", Family.INTEGER, nullable=False)
PRODUCT = table(
    ID,
    column("name", nullable=False, comment="as printed on the label"),
    column("price", Family.DECIMAL),
    column("color", choices=("red", "green")),
    column("size", Family.ENUM),
    column("sold", Family.BOOLEAN),
    column("added_on", Family.DATE),
    column("tags", Family.ARRAY),
    column("details", Family.JSON),
    column("photo", Family.BYTES),
    comment="What the shop sells",
    row_estimate=1_200,
)
ORDER_LINE = table(
    column("order_id", Family.INTEGER, nullable=False),
    column("product_id", Family.INTEGER, nullable=False),
    column("quantity", Family.INTEGER),
    name="order line",
    key=("order_id", "product_id"),
    foreign_keys=(
        ForeignKey(columns=("product_id",), target_schema="", target="product", target_columns=("id",)),
    ),
)
SALE = table(column("day", Family.DATE), column("total", Family.DECIMAL), name="sale", key=())
ANYTHING = table(ID, *(column(str(family), family) for family in Family), name="anything")

SHOP = Catalog(tables=(PRODUCT, ORDER_LINE, SALE, ANYTHING))


def terms(of: Table, *others: Table) -> Expressions:
    return Expressions(names=names(of, *others))


def names(of: Table, *others: Table) -> Names:
    """Return what may be named of the table *of* in a database that has it and *others*."""
    return Names(table=of, paths=Paths(Catalog(tables=(of, *others))))


def context(*tables: Table, limits: Limits | None = None, text: Text = Text.JSON) -> ToolContext:
    """Return the context of a database of *tables*; of the shop, if none are named."""
    catalog = Catalog(tables=tables) if tables else SHOP
    return ToolContext(catalog=catalog, limits=limits or Limits(), text=text)


def tools(*tables: Table, limits: Limits | None = None, text: Text = Text.JSON) -> Toolset:
    """Return the tools of a database of *tables*; of the shop, if none are named."""
    return define(context(*tables, limits=limits, text=text))


def answer(
    toolset: Toolset, name: str, arguments: Mapping[str, object], *rows: Sequence[object], more: bool = False
) -> Answer:
    """Return the answer of the tool *name* where the database answers with *rows*."""
    return answered(toolset[name].bind(arguments), *rows, more=more)


def select_of(statement: Statement) -> Select:
    """Return the shape of *statement*, which reads a table."""
    assert isinstance(statement.shape, Select)
    return statement.shape


def resolved(catalog: Catalog, roles: Sequence[Role] = (Role(),), listing: Listing = LISTING) -> Resolved:
    """Return what *roles* see of *catalog*, without a database that could object."""
    seen = tuple(seen_by(role, catalog) for role in roles)
    tools = ToolsSection(style=listing.surface, budget=listing.budget, pin=listing.pin)
    settings = Settings(tools=tools)
    findings = tuple(finding(Kind.CATALOG_WARNING, problem=each) for each in catalog.warnings)
    return Resolved(catalog=catalog, roles=seen, settings=settings, findings=findings)


def resolving(
    introspect: Callable[[], Awaitable[Catalog]],
    roles: Sequence[Role] = (Role(),),
    listing: Listing = LISTING,
) -> Resolve:
    """Return what a toolbox asks for all that it serves: what *roles* see of what *introspect* returns."""

    async def resolve() -> Resolved:
        return resolved(await introspect(), roles, listing)

    return resolve


def plan_of(shape: Shape, sql: str = "", **constants: int) -> Compiled:
    """Return *sql* as the plan of *shape*, with *constants* for its parameters."""
    return Compiled(
        shape=shape,
        sql=sql,
        parameters=tuple(constants),
        types={},
        lists=frozenset(),
        constants=constants,
        claims={},
        one=lambda value, type: value,
        many=lambda values, type: values,
    )
