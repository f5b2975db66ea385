"""The tool `describe_tables`: tables, columns, types, keys, relations, comments and row estimates."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Catalog, Column, Table
from dbtools.cells import size
from dbtools.column_types import quoted
from dbtools.errors import listing, nearest
from dbtools.results import Answer, ResultSet, write
from dbtools.tools.arguments import Arguments, Array, read, schema_of
from dbtools.tools.definition import Setting, ToolDefinition
from dbtools.tools.wording import cleaned, column_parts, relation_targets

LONGEST_COMMENT = 500
ROOM_FOR_NOTE = 300  #: bytes


class Detail(StrEnum):
    """How much is said of each table."""

    NAMES = "names"
    SUMMARY = "summary"
    FULL = "full"


class DescribeArguments(Arguments):
    """Arguments of `describe_tables`."""

    tables: Annotated[tuple[str, ...], Array] = Field(default=(), description="default all")
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
    definition: ToolDefinition

    def bind(self, arguments: Mapping[str, object]) -> "DescribeCall":
        """Return the call that describes the tables that *arguments* name, or all."""
        asked = read(DescribeArguments, arguments)
        catalog = self.setting.catalog
        tables = [table_of(catalog, name, f"tables[{at}]") for at, name in enumerate(asked.tables)]
        return DescribeCall(
            setting=self.setting,
            tables=tuple(dict.fromkeys(tables)) or catalog.tables,
            detail=asked.detail,
        )


def table_of(catalog: Catalog, name: str, argument: str) -> Table:
    """Return the one table that *name* means, or raise UnknownTable with the candidates."""
    tables = catalog.named(name)
    if len(tables) == 1:
        return tables[0]
    if tables:
        raise errors.UnknownTable(
            f"{argument}: {quoted(name)} is the name of {len(tables)} tables.",
            hint=f"Name one of: {listing(catalog.label(table) for table in tables)}.",
        )
    labels = [catalog.label(table) for table in catalog.tables]
    raise errors.UnknownTable(
        f"{argument}: there is no table {quoted(name)}.",
        hint=f"{nearest(name, labels)}Tables: {listing(labels) or 'none'}.",
    )


@dataclass(frozen=True, kw_only=True)
class DescribeCall:
    """A call of `describe_tables` whose arguments have been read."""

    setting: Setting
    tables: tuple[Table, ...]
    detail: Detail
    statement: None = None

    def render(self, found: ResultSet) -> Answer:
        """Return the descriptions, as many as fit."""
        described: list[object] = []
        room = self.setting.limits.max_bytes - ROOM_FOR_NOTE
        for table in self.tables:
            description = _described(self.setting.catalog, table, self.detail)
            if size(description) > room and not described:
                described.append(_shortened(description, room))
                break
            room -= size(description) + 1
            if room < 0:
                break
            described.append(description)
        truncated = len(described) < len(self.tables) or room < 0
        structured: dict[str, object] = {
            "table_count": len(self.tables),
            "truncated": truncated,
            "tables": described,
        }
        if truncated:
            structured["note"] = (
                f"{len(described)} of {len(self.tables)} tables: name tables, or ask for less detail."
            )
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


def _described(catalog: Catalog, table: Table, detail: Detail) -> dict[str, object]:
    label = catalog.label(table)
    match detail:
        case Detail.NAMES:
            return {"name": label}
        case Detail.SUMMARY:
            return _head(table, label) | {"columns": column_parts(catalog, table)}
        case Detail.FULL:
            return (
                _head(table, label)
                | {"columns": [_full(column) for column in table.columns]}
                | (_keys(table) | _relations(catalog, table))
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
        "default": cleaned(column.default or "", 100),
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


def _relations(catalog: Catalog, table: Table) -> dict[str, object]:
    targets = relation_targets(catalog, table)
    return {"references": targets} if targets else {}


def define(setting: Setting) -> Iterator[DescribeTables]:
    """Yield the one `describe_tables`."""
    schema = schema_of(DescribeArguments)
    yield DescribeTables(
        setting=setting,
        definition=ToolDefinition(
            name="describe_tables",
            title="Describe tables",
            description=(
                "Describe tables and views: columns, types, keys, relations, comments. "
                "detail: names, summary, or full with defaults, bounds and comments. Reads no rows."
            ),
            input_schema=schema,
            output_schema=DESCRIPTION_SCHEMA,
        ),
    )
