"""What a tool is: its definition, which callers list, and the two steps of a call to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from dbtools.catalog import Catalog, Table
from dbtools.policy import Limits
from dbtools.results import Answer, ResultSet, Style
from dbtools.statement import Statement
from dbtools.tools.naming import table_names

BYTES_PER_TOKEN = 4  #: of definitions


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool as `tools/list` shows it. All tools of this release only read."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, object]
    output_schema: Mapping[str, object]


def tool_content(definition: ToolDefinition) -> dict[str, object]:
    """Return *definition* as `tools/list` shows it (MCP 2026-07-28, server/tools)."""
    return {
        "name": definition.name,
        "title": definition.title,
        "description": definition.description,
        "inputSchema": definition.input_schema,
        "outputSchema": definition.output_schema,
        # What only reads is neither destructive nor has it to say whether it is idempotent.
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What every tool of one role is made from."""

    catalog: Catalog
    limits: Limits = field(default_factory=Limits)
    style: Style = field(default_factory=Style)

    def name(self, table: Table) -> str:
        """Return the part T of the names of *table*'s tools."""
        return self._names[(table.schema, table.name)]

    @cached_property
    def _names(self) -> Mapping[tuple[str, str], str]:
        return table_names(self.catalog)


class Call(Protocol):
    """A call whose arguments have been read."""

    @property
    def statement(self) -> Statement | None:
        """What to ask the database; None where the catalog has the answer."""

    def render(self, found: ResultSet) -> Answer:
        """Return the answer that the rows *found* make."""


class Tool(Protocol):
    """Something that a model can call."""

    @property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""

    def bind(self, arguments: Mapping[str, object]) -> Call:
        """Return the call that *arguments* mean, or raise a CallError."""


Toolset = Mapping[str, Tool]


ROWS_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "row_count": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "columns": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array"},
        "next_cursor": {"type": "string"},
        "note": {"type": "string"},
    },
    "required": ["row_count", "truncated", "columns", "rows"],
}
ROW_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"row": {"type": "object"}, "note": {"type": "string"}},
    "required": ["row"],
}
