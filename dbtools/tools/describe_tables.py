"""The tool `describe_tables`: tables, columns, types, keys, relations, comments and row estimates."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Annotated

from pydantic import Field

from dbtools.answers.results import Answer, Budget, Reserve, ResultSet
from dbtools.policy.sensitive import is_secret
from dbtools.schema.catalog import Column, Location, Table, TableKind, Writes
from dbtools.schema.paths import path_part
from dbtools.statements.select import Output, Select, Statement
from dbtools.tools.arguments import Arguments, Array, read
from dbtools.tools.calls import CatalogCall
from dbtools.tools.definition import (
    MOST_NAMES,
    TABLES,
    Tool,
    ToolContext,
    ToolDefinition,
    content_schema,
)
from dbtools.tools.wording import (
    column_parts,
    nonempty_parts,
    relation_targets,
    searches_line,
    shown_default,
    tidy,
)
from dbtools.values.cells import Cut, encoder, json_of, size
from dbtools.values.types import STRING, Family

LONGEST_COMMENT = 500
LONGEST_DEFINITION = 2_000
MOST_TABLES = 200  #: names in one call
MOST_ROWS = 10_000  #: rows of a table whose values are read
MOST_DESCRIBED = 40  #: columns whose values are read in one call
MOST_STORED = 8  #: values that are shown of a column
FREQUENT = 4  #: each value must occur so often on average
LONGEST_STORED = 20  #: characters of such a value


class Detail(StrEnum):
    """How much is shown of each table."""

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
            "Describe tables and views: columns, types, keys, comments; relations, the steps of paths such "
            "as customer.country; referenced_by, the related rows for count(orders), some and none. "
            "detail full adds defaults, bounds and views' SQL. "
            f"(Schema {self.context.digest}.)"
        )
        return self.definition_of(description, DescribeArguments, DESCRIPTION_SCHEMA)

    def bind(self, arguments: Mapping[str, object]) -> CatalogCall[Answer]:
        """Return the call that describes the tables that *arguments* name, or all."""
        asked = read(DescribeArguments, arguments)
        every = self.context.catalog.tables
        tables = [self.context.table(name, f"tables[{at}]") for at, name in enumerate(asked.tables)]
        # For very many tables, names are enough unless the caller asks for details.
        if not tables and "detail" not in asked.model_fields_set and len(every) > MOST_NAMES:
            first = every[:MOST_NAMES]
            description = Description(context=self.context, tables=first, detail=Detail.NAMES, of=len(every))
        else:
            named = tuple(dict.fromkeys(tables)) or every
            description = Description(context=self.context, tables=named, detail=asked.detail, of=len(named))
        return CatalogCall(inquiries=description.inquiries, answer=description.answer)


@dataclass(frozen=True, kw_only=True)
class Description:
    """A description of tables, with the values of text columns that have few different ones."""

    context: ToolContext
    tables: Sequence[Table]
    detail: Detail
    of: int  #: number of tables that the caller asked for

    @cached_property
    def _columns(self) -> Sequence[tuple[Table, Column]]:
        tables = () if self.detail is Detail.NAMES else self.tables
        pairs = ((table, column) for table in tables for column in _sampled_columns(table))
        return tuple(islice(pairs, MOST_DESCRIBED))

    @property
    def inquiries(self) -> Sequence[Statement]:
        """The statements that read the values."""
        shapes = (
            Select(table=table, outputs=(Output(term=column, cut=LONGEST_STORED),), groups=(column,))
            for table, column in self._columns
        )
        return [Statement(shape=shape, limit=MOST_STORED + 1) for shape in shapes]

    def answer(self, results: Sequence[ResultSet]) -> Answer:
        """Return the descriptions, as many as fit, with the values in *results*."""
        stored: dict[Location, dict[str, list[object]]] = {table.location: {} for table in self.tables}
        for (table, column), values in zip(self._columns, results, strict=False):
            stored[table.location][column.name] = _values(table, column, values)
        budget, tables, of = self.context.budgets[Reserve.NOTE], self.tables, self.of
        described = budget.entries(
            (_describe_table(self.context, table, self.detail, stored[table.location]) for table in tables),
            lambda description: _shorten_description(description, budget),
        )
        truncated = len(described) < of
        content: dict[str, object] = {"table_count": of, "truncated": truncated, "tables": described}
        how = "find tables with list_tables and name them"
        how = "name tables, or ask for less detail" if len(tables) == of else how
        note = f"{len(described):,} of {of:,} tables: {how}." if truncated else ""
        return budget.answer(content, rows=len(described), truncated=truncated, note=note)


def _sampled_columns(table: Table) -> Iterator[Column]:
    """Yield the text columns of *table* whose values are read: none if rows may be hidden, or are many.

    Only a role that sees and may count all rows has an estimate of their number.
    """
    if table.computed or not 0 < (table.row_estimate or 0) <= MOST_ROWS:
        return
    keys = table.unique.union(*(key.columns for key in table.foreign_keys))
    for column in table.columns:
        readable = column.type.family in (Family.TEXT, Family.ANY) and column.type.mask is None
        readable = readable and not is_secret(column)
        if readable and column.type.equatable and not column.choices and column.name not in keys:
            yield column


def _values(table: Table, column: Column, found: ResultSet) -> list[object]:
    """Return the values in *found*, or none if they are many, long or rare."""
    cells = [cell for (cell,) in found.rows if cell is not None]
    few = len(cells) <= MOST_STORED and len(cells) * FREQUENT <= (table.row_estimate or 0)
    # Columns with a short declared length are read whole.
    long = any(isinstance(cell, Cut) or len(str(cell)) > LONGEST_STORED for cell in cells)
    if found.more or long or not few:
        return []
    return sorted(map(encoder(column.type), cells), key=json_of)


def _shorten_description(description: dict[str, object], budget: Budget) -> dict[str, object]:
    """Return *description* with as many of its columns as fit, and how many it has."""
    columns = description.get("columns")
    if not isinstance(columns, list):
        return description
    head: dict[str, object] = {
        name: description[name] for name in ("name", "schema", "kind") if name in description
    }
    head["column_count"] = len(columns)
    most = budget.fitting_count((size(each) + 1 for each in columns), size(head | {"columns": []}))
    return head | {"columns": columns[:most]}


def _describe_table(
    context: ToolContext, table: Table, detail: Detail, stored: Mapping[str, list[object]]
) -> dict[str, object]:
    catalog = context.catalog
    head = {"name": catalog.label(table)} | nonempty_parts(schema=catalog.spans_schemas and table.schema)
    if detail is Detail.NAMES:
        return head
    head |= {"kind": str(table.kind)} | nonempty_parts(
        comment=tidy(table.comment, LONGEST_COMMENT),
        row_estimate=table.row_estimate,
        full_text=searches_line(table),
        changes=_changes(table, table.writes) if table.writes is not None else _withheld_part(table),
    )
    relations = {
        path_part(each.name): catalog.label(each.target) for each in context.paths.relations(table).values()
    }
    referrers = context.paths.referrers(table)
    referred = {
        name: f"{catalog.label(each.target)}.{', '.join(each.foreign_key.columns)}"
        for name, each in referrers.items()
    }
    if detail is Detail.SUMMARY:
        shown = {name: " | ".join(map(json_of, values)) for name, values in stored.items()}
        columns = column_parts(catalog, table, shown)
        return (
            head | {"columns": columns} | nonempty_parts(relations=relations, referenced_by=list(referrers))
        )
    return (
        head
        | {"columns": [_column_details(column, stored.get(column.name, [])) for column in table.columns]}
        | nonempty_parts(
            key=[name for key in table.keys[:1] if key.primary for name in key.columns],
            unique=[list(key.columns) for key in table.keys if not key.primary],
            references=relation_targets(catalog, table),
            relations=relations,
            referenced_by=referred,
            definition=tidy(table.definition, LONGEST_DEFINITION),
        )
    )


def _changes(table: Table, writes: Writes) -> dict[str, object]:
    """Return what the role may change of *table*: the columns of new rows, and those that it may set."""
    every = [column.name for column in table.columns if not column.generated]
    changes: dict[str, object] = {}
    for name, columns in (("insert", writes.insert), ("update", writes.update or None)):
        if columns is not None:
            names = [column.name for column in columns]
            changes[name] = "all columns" if names == every else names
    required = [column.name for column in writes.insert or () if column.required]
    keys = [[column.name for column in key] for key in writes.conflict_keys]
    primary = [list(key.columns) for key in table.keys if key.primary]
    others = [] if keys == primary else keys
    conditions = {
        ", ".join(column.name for column in key): tidy(one.condition, LONGEST_DEFINITION)
        for key, one in writes.partial_keys.items()
        if one.predicate
    }
    changes |= nonempty_parts(
        required=required, conflict_keys=others, key_conditions=conditions, delete=writes.delete
    )
    return changes | _withheld_part(table)


def _withheld_part(table: Table) -> dict[str, object]:
    """Return which changes are granted, but not possible; that a view allows none goes without saying."""
    return nonempty_parts(withheld=dict(table.withheld) if table.kind is TableKind.TABLE else {})


def _column_details(column: Column, stored: list[object]) -> dict[str, object]:
    return {"name": column.name, "type": column.type.name, "nullable": column.nullable} | nonempty_parts(
        values=list(column.choices or column.type.labels),
        stored_values=stored,
        minimum=column.minimum,
        maximum=column.maximum,
        default=shown_default(column.default),
        generated=column.generated,
        comment=tidy(column.comment, LONGEST_COMMENT),
    )
