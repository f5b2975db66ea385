"""What a tool is: its definition, which callers list, and the two steps of a call to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from dbtools.catalog import Catalog, Table
from dbtools.cells import dump
from dbtools.paging import digest
from dbtools.paths import Names, Paths
from dbtools.policy import Limits
from dbtools.queries import Permitted
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


def tokens_of(content: object) -> int:
    """Return about how many tokens *content* costs a model: bytes of its JSON / 4."""
    return -(-len(dump(content)[1].encode()) // BYTES_PER_TOKEN)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What every tool of one role is made from."""

    catalog: Catalog = field(repr=False)  #: asyncio writes the results of its tasks out
    limits: Limits = field(default_factory=Limits)
    style: Style = field(default_factory=Style)
    queries: tuple[Permitted, ...] = field(default=(), repr=False)  #: that the role may call

    def name(self, table: Table) -> str:
        """Return the part T of the names of *table*'s tools."""
        return self._names[(table.schema, table.name)]

    def names(self, table: Table, *, near: bool = False) -> Names:
        """Return what may be named of *table*; *near* is for tools that take only what they list."""
        return Names(table=table, paths=self.paths, near=near)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of all tables, each the shortest that means only this one."""
        return tuple(map(self.catalog.label, self.catalog.tables))

    @cached_property
    def digest(self) -> str:
        """A short name of all that is told of the tables, by which a definition changes when they do."""
        return digest(*(_told(table) for table in self.catalog.tables))

    @cached_property
    def paths(self) -> Paths:
        """The paths between the tables."""
        return Paths(self.catalog)

    @cached_property
    def _names(self) -> Mapping[tuple[str, str], str]:
        return table_names(self.catalog)


def _told(table: Table) -> object:
    columns = [
        (each.name, each.type.name, each.nullable, each.default, each.generated, each.comment)
        for each in table.columns
    ]
    values = [(each.choices, each.type.labels, each.minimum, each.maximum) for each in table.columns]
    # A dataclass is written with all of its fields.
    return (
        table.schema,
        table.name,
        table.kind,
        table.comment,
        columns,
        values,
        table.keys,
        table.foreign_keys,
    )


class Call(Protocol):
    """A call whose arguments have been read."""

    @property
    def statement(self) -> Statement | None:
        """What to ask the database; None where the catalog has the answer."""

    def inquire(self, found: ResultSet) -> Sequence[Statement]:
        """Return what else to ask, where *found* wants an explanation."""

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the answer that the rows *found* make; *further* is what the inquiries brought."""


class Settled:
    """A call that is answered by its one statement."""

    def inquire(self, found: ResultSet) -> Sequence[Statement]:
        """Return nothing."""
        return ()


class Tool(Protocol):
    """Something that a model can call."""

    @property
    def name(self) -> str:
        """The name by which it is called."""

    @property
    def table(self) -> Table | None:
        """The table that it is for; None where it is for any."""

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
        "columns": {"type": "array"},
        "rows": {"type": "array"},
        "next_cursor": {"type": "string"},
    },
    "required": ["row_count", "truncated", "columns", "rows"],
}
ROW_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"row": {"type": "object"}, "note": {"type": "string"}},
    "required": ["row"],
}
