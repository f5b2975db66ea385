"""Permitted queries for tests, and their tools."""

import re
from collections.abc import Mapping

from dbtools.backends.sqlite.schema import syntax as sqlite
from dbtools.queries import Permitted, read_queries
from dbtools.schema.catalog import Column
from dbtools.statements.select import Statement
from dbtools.tools.definition import ToolContext
from dbtools.tools.queries.tool import QueryTool
from dbtools.values.types import ColumnType, Family
from tests import calls
from tests.unit.shop import TYPES, column, context

#: What a database without surprises takes a parameter for.
FAMILIES: Mapping[str, Family] = {
    "integer": Family.INTEGER,
    "number": Family.NUMBER,
    "decimal": Family.DECIMAL,
    "text": Family.TEXT,
    "boolean": Family.BOOLEAN,
    "date": Family.DATE,
    "time": Family.TIME,
    "timestamp": Family.TIMESTAMPTZ,
    "uuid": Family.UUID,
    "json": Family.JSON,
}
EXACT = {name: TYPES[family] for name, family in FAMILIES.items()}


def permitted_query(
    *parameters: str,
    name: str = "q",
    header: str = "",
    types: Mapping[str, ColumnType] = EXACT,
    columns: tuple[Column, ...] = (column("id", Family.INTEGER),),
) -> Permitted:
    """Return a query with *parameters*, each `NAME: TYPE …`, of which the database has these *types*."""
    text = f"-- name: {name}\n{header}" + "".join(f"-- param {each}\n" for each in parameters)
    places = (
        f"/*? :{name} ?*/" if type.startswith("[]?") else f":{name}"
        for name, type in (re.findall(r"^(\w+): \w+(\S*)", each)[0] for each in parameters)
    )
    (query,), findings = read_queries(f"{text}select 1 {' '.join(places)}", "q.sql", sqlite.lexis)
    assert findings == ()
    return Permitted(
        query=query,
        columns=columns,
        types={
            each.name: ColumnType(
                family=Family.ARRAY, name=f"{each.type.name}[]", element=types[each.type.name]
            )
            if each.array
            else types[each.type.name]
            for each in query.parameters
        },
    )


def tool_of(permitted: Permitted, **more: object) -> QueryTool:
    return QueryTool(context=ToolContext(catalog=context().catalog, **more), permitted=permitted)  # type: ignore[arg-type]


def statement_of(of: Permitted | QueryTool, arguments: Mapping[str, object]) -> Statement:
    """Return what the tool *of* a query asks of the database for *arguments*."""
    tool = of if isinstance(of, QueryTool) else tool_of(of)
    return calls.statement_of(tool.bind(arguments))
