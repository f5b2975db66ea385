"""The tools that a catalog makes: one file a kind, and KINDS."""

from collections.abc import Callable, Iterator

from dbtools.tools import (
    aggregate_rows,
    describe_tables,
    get_row,
    list_rows,
    list_tables,
    permitted_queries,
)
from dbtools.tools.changes import Change, change_of
from dbtools.tools.definition import Call, Setting, Tool, ToolDefinition, Toolset, tool_content
from dbtools.tools.surface import Chosen, choose, listed

__all__ = [
    "KINDS",
    "Call",
    "Change",
    "Chosen",
    "Setting",
    "Tool",
    "ToolDefinition",
    "Toolset",
    "change_of",
    "choose",
    "define",
    "listed",
    "tool_content",
]

#: In the order in which they are listed.
KINDS: tuple[Callable[[Setting], Iterator[Tool]], ...] = (
    permitted_queries.define,
    list_tables.define,
    describe_tables.define,
    list_rows.define_for_any,
    get_row.define_for_any,
    aggregate_rows.define,
    list_rows.define,
    get_row.define,
)


def define(setting: Setting) -> Toolset:
    """Return all tools of *setting* by name, listed or not: those for any table first."""
    # Whoever has queries and no table would pay for tools that find nothing.
    kinds = KINDS if setting.catalog.tables or not setting.queries else (permitted_queries.define,)
    tools = [tool for kind in kinds for tool in kind(setting)]
    return {tool.name: tool for tool in tools}
