"""The tool `describe_tables`: tables, columns, types, keys, relations, comments and row estimates."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools.catalog import Column, Table
from dbtools.cells import size
from dbtools.paths import spelled
from dbtools.results import Answer, ResultSet, write
from dbtools.tools.arguments import Arguments, Array, narrowed_schema, read, schema_of
from dbtools.tools.definition import Setting, Settled, ToolDefinition
from dbtools.tools.tables import MOST_NAMES, name_schema, table_of
from dbtools.tools.wording import cleaned, column_parts, relation_targets, shown_default

LONGEST_COMMENT = 500
MOST_TABLES = 200  #: that are named in one call
ROOM_FOR_NOTE = 300  #: bytes


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


DESCRIPTION_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "table_count": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "tables": {"type": "array", "items": {"type": "object"}},
        "note": {"type": "string"},
    },
    "required": ["table_count", "truncated", "tables"],
}


@dataclass(frozen=True, kw_only=True)
class DescribeTables:
    """`describe_tables` for one catalog."""

    setting: Setting
    name: str = "describe_tables"
    table: None = None

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        schema = schema_of(DescribeArguments)
        return ToolDefinition(
            name=self.name,
            title="Describe tables",
            description=(
                "Describe tables and views: columns, types, keys, comments, and relations, whose names are "
                "the steps of paths such as customer.country. detail: names, summary, or full with "
                f"defaults, bounds and what refers to a table. Reads no rows. (Schema {self.setting.digest}.)"
            ),
            input_schema=narrowed_schema(
                schema, ("properties", "tables", "items"), name_schema(self.setting)
            ),
            output_schema=DESCRIPTION_SCHEMA,
        )

    def bind(self, arguments: Mapping[str, object]) -> "DescribeCall":
        """Return the call that describes the tables that *arguments* name, or all."""
        asked = read(DescribeArguments, arguments)
        catalog = self.setting.catalog
        tables = [table_of(catalog, name, f"tables[{at}]") for at, name in enumerate(asked.tables)]
        # Of very many tables names are enough, unless somebody asks for all of their columns.
        many = not tables and "detail" not in asked.model_fields_set and len(catalog.tables) > MOST_NAMES
        return DescribeCall(
            setting=self.setting,
            tables=tuple(dict.fromkeys(tables)) or catalog.tables[: MOST_NAMES if many else None],
            detail=Detail.NAMES if many else asked.detail,
            table_count=len(catalog.tables) if many else 0,
        )


@dataclass(frozen=True, kw_only=True)
class DescribeCall(Settled):
    """A call of `describe_tables` whose arguments have been read."""

    setting: Setting
    tables: tuple[Table, ...]
    detail: Detail
    table_count: int = 0  #: of all tables, where only some are described
    statement: None = None

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the descriptions, as many as fit."""
        described: list[object] = []
        room = self.setting.limits.max_bytes - ROOM_FOR_NOTE
        for table in self.tables:
            description = _described(self.setting, table, self.detail)
            if size(description) > room and not described:
                described.append(_shortened(description, room))
                break
            room -= size(description) + 1
            if room < 0:
                break
            described.append(description)
        count = max(len(self.tables), self.table_count)
        truncated = len(described) < count or room < 0
        structured: dict[str, object] = {"table_count": count, "truncated": truncated, "tables": described}
        if truncated:
            how = (
                "find tables with list_tables and name them"
                if self.table_count
                else "name tables, or ask for less detail"
            )
            structured["note"] = f"{len(described):,} of {count:,} tables: {how}."
        value, text = write(structured, None, self.setting.style)
        return Answer(structured=value, text=text, rows=len(described), truncated=truncated)


def _shortened(description: dict[str, object], room: int) -> dict[str, object]:
    """Return *description* with as many of its columns as fit into *room* bytes, and how many it has."""
    columns = description.get("columns")
    if not isinstance(columns, list):
        return description
    head = {name: value for name, value in description.items() if name in ("name", "kind", "columns")}
    most = bisect_right(
        range(len(columns)), room, key=lambda count: size({**head, "columns": columns[:count]})
    )
    return {**head, "columns": columns[: max(most - 1, 0)], "column_count": len(columns)}


def _described(setting: Setting, table: Table, detail: Detail) -> dict[str, object]:
    catalog = setting.catalog
    label = catalog.label(table)
    match detail:
        case Detail.NAMES:
            return {"name": label}
        case Detail.SUMMARY:
            return (
                _head(table, label) | {"columns": column_parts(catalog, table)} | _relations(setting, table)
            )
        case Detail.FULL:
            columns = {"columns": [_full(column) for column in table.columns]}
            references = relation_targets(catalog, table)
            related = {"references": references} if references else {}
            return (
                _head(table, label)
                | columns
                | (_keys(table) | related | _relations(setting, table) | _incoming(setting, table))
            )


def _head(table: Table, label: str) -> dict[str, object]:
    optional = {
        "comment": cleaned(table.comment, LONGEST_COMMENT),
        "row_estimate": table.row_estimate,
    }
    return {"name": label, "kind": str(table.kind)} | {
        name: value for name, value in optional.items() if value not in ("", None)
    }


def _full(column: Column) -> dict[str, object]:
    optional: dict[str, object] = {
        "values": list(column.choices or column.type.labels),
        "minimum": column.minimum,
        "maximum": column.maximum,
        "default": shown_default(column.default),
        "generated": column.generated,
        "comment": cleaned(column.comment, LONGEST_COMMENT),
    }
    return {"name": column.name, "type": column.type.name, "nullable": column.nullable} | {
        name: value for name, value in optional.items() if value not in ([], None, "", False)
    }


def _keys(table: Table) -> dict[str, object]:
    if not table.keys:
        return {}
    keys: dict[str, object] = {"unique": [list(key.columns) for key in table.keys if not key.primary]}
    primary = table.keys[0]
    return ({"key": list(primary.columns)} if primary.primary else {}) | (keys if keys["unique"] else {})


def _relations(setting: Setting, table: Table) -> dict[str, object]:
    """Return the steps of paths that begin at *table*, with the tables that they lead to."""
    relations = setting.paths.relations(table)
    targets = {spelled(each.name): setting.catalog.label(each.target) for each in relations.values()}
    return {"relations": targets} if targets else {}


def _incoming(setting: Setting, table: Table) -> dict[str, object]:
    """Return the columns of other tables that refer to *table*."""
    found = [
        f"{setting.catalog.label(source)}.{', '.join(key.columns)}"
        for source, key in setting.catalog.references(table)
    ]
    return {"referenced_by": found} if found else {}


def define(setting: Setting) -> Iterator[DescribeTables]:
    """Yield the one `describe_tables`."""
    yield DescribeTables(setting=setting)
