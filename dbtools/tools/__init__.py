"""The tools that a catalog makes: one file a kind, and KINDS."""

from collections.abc import Callable, Iterator

from dbtools.tools import describe_tables, get_row, list_rows
from dbtools.tools.definition import Call, Setting, Tool, ToolDefinition, Toolset, tool_content

__all__ = ["KINDS", "Call", "Setting", "Tool", "ToolDefinition", "Toolset", "define", "tool_content"]

KINDS: tuple[Callable[[Setting], Iterator[Tool]], ...] = (
    describe_tables.define,
    list_rows.define,
    get_row.define,
)


def define(setting: Setting) -> Toolset:
    """Return the tools of *setting* by name: those of all tables first, then table by table."""
    tools = [tool for kind in KINDS for tool in kind(setting)]
    return {tool.definition.name: tool for tool in tools}
