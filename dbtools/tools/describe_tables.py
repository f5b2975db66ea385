"""The tool `describe_tables`: tables, columns, types, keys, relations, comments and row estimates."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools.catalog import Column, Table
from dbtools.cells import size
from dbtools.paths import spelled
from dbtools.results import Answer, Budget, Reserve
from dbtools.tools.arguments import Arguments, Array, read
from dbtools.tools.definition import (
    MOST_NAMES,
    STRING,
    TABLES,
    Setting,
    SingleCall,
    Tool,
    ToolDefinition,
    content_schema,
)
from dbtools.tools.wording import (
    cleaned,
    column_parts,
    relation_targets,
    searches_line,
    shown_default,
    without_empty,
)

LONGEST_COMMENT = 500
MOST_TABLES = 200  #: that are named in one call


class Detail(StrEnum):
    """How much is said of each table."""

    NAMES = "names"
    SUMMARY = "summary"
    FULL = "full"


class DescribeArguments(Arguments):
    """Arguments of `describe_tables`."""

    tables: Annotated[tuple[str, ...], Field(max_length=MOST_TABLES), Array] = Field(
        default=(), description="default all"
    )
    detail: Detail = Detail.SUMMARY


DESCRIPTION_SCHEMA = content_schema(TABLES, note=STRING)


class DescribeTables(Tool):
    """`describe_tables` for one catalog."""

    name = "describe_tables"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        description = (
            "Describe tables and views: columns, types, keys, comments, relations, which are the steps of "
            "paths such as customer.country, and referenced_by, the relations of count(orders), some and "
            f"none. detail: names, summary, or full with defaults and bounds. Reads no rows. (Schema "
            f"{self.setting.digest}.)"
        )
        return self.defined(description, DescribeArguments, DESCRIPTION_SCHEMA)

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Return the call that describes the tables that *arguments* name, or all."""
        asked = read(DescribeArguments, arguments)
        every = self.setting.catalog.tables
        tables = [self.setting.table(name, f"tables[{at}]") for at, name in enumerate(asked.tables)]
        # Of very many tables names are enough, unless the caller asks for details.
        if not tables and "detail" not in asked.model_fields_set and len(every) > MOST_NAMES:
            return SingleCall(answer=lambda _: self._answer(every[:MOST_NAMES], Detail.NAMES, of=len(every)))
        named = tuple(dict.fromkeys(tables)) or every
        return SingleCall(answer=lambda _: self._answer(named, asked.detail, of=len(named)))

    def _answer(self, tables: Sequence[Table], detail: Detail, *, of: int) -> Answer:
        """Return the descriptions of *tables*, as many as fit; there are as many as *of*."""
        budget = self.setting.budgets[Reserve.NOTE]
        described = budget.entries(
            (_described(self.setting, table, detail) for table in tables),
            lambda description: _shortened(description, budget),
        )
        truncated = len(described) < of
        content: dict[str, object] = {"table_count": of, "truncated": truncated, "tables": described}
        how = "find tables with list_tables and name them"
        how = "name tables, or ask for less detail" if len(tables) == of else how
        note = f"{len(described):,} of {of:,} tables: {how}." if truncated else ""
        return budget.answer(content, rows=len(described), truncated=truncated, note=note)


def _shortened(description: dict[str, object], budget: Budget) -> dict[str, object]:
    """Return *description* with as many of its columns as fit, and how many it has."""
    columns = description.get("columns")
    if not isinstance(columns, list):
        return description
    head: dict[str, object] = {
        name: description[name] for name in ("name", "schema", "kind") if name in description
    }
    head["column_count"] = len(columns)
    most = budget.fitting((size(each) + 1 for each in columns), size(head | {"columns": []}))
    return head | {"columns": columns[:most]}


def _described(setting: Setting, table: Table, detail: Detail) -> dict[str, object]:
    catalog = setting.catalog
    head = {"name": catalog.label(table)} | without_empty(schema=catalog.spans_schemas and table.schema)
    if detail is Detail.NAMES:
        return head
    head |= {"kind": str(table.kind)} | without_empty(
        comment=cleaned(table.comment, LONGEST_COMMENT),
        row_estimate=table.row_estimate,
        full_text=searches_line(table),
    )
    relations = {
        spelled(each.name): catalog.label(each.target) for each in setting.paths.relations(table).values()
    }
    referrers = setting.paths.referrers(table)
    referred = {
        name: f"{catalog.label(each.table)}.{', '.join(each.foreign_key.columns)}"
        for name, each in referrers.items()
    }
    if detail is Detail.SUMMARY:
        columns = column_parts(catalog, table)
        return head | {"columns": columns} | without_empty(relations=relations, referenced_by=list(referrers))
    return (
        head
        | {"columns": [_full(column) for column in table.columns]}
        | without_empty(
            key=[name for key in table.keys[:1] if key.primary for name in key.columns],
            unique=[list(key.columns) for key in table.keys if not key.primary],
            references=relation_targets(catalog, table),
            relations=relations,
            referenced_by=referred,
        )
    )


def _full(column: Column) -> dict[str, object]:
    return {"name": column.name, "type": column.type.name, "nullable": column.nullable} | without_empty(
        values=list(column.choices or column.type.labels),
        minimum=column.minimum,
        maximum=column.maximum,
        default=shown_default(column.default),
        generated=column.generated,
        comment=cleaned(column.comment, LONGEST_COMMENT),
    )
