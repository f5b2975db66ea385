"""Define the tools of a role, one file for each kind, and choose those to list. ToolContext in, tools out."""

from collections.abc import Callable, Collection, Iterable, Iterator

from dbtools import errors
from dbtools.answers.styles import Listing, Surface
from dbtools.errors import alternatives, did_you_mean
from dbtools.policy.sensitive import words_of
from dbtools.schema.catalog import Catalog, Table
from dbtools.schema.paths import LONGEST_PATH
from dbtools.tools.aggregate_rows import AggregateRows
from dbtools.tools.definition import Tool, ToolContext, ToolGroup, Toolset, tokens_in
from dbtools.tools.describe_tables import DescribeTables
from dbtools.tools.get_row import GetRow
from dbtools.tools.list_rows import ListRows
from dbtools.tools.list_tables import ListTables
from dbtools.tools.queries import tool as permitted_queries
from dbtools.tools.run_sql import RunSql
from dbtools.tools.writes.changing import impossible_reason
from dbtools.tools.writes.insert_rows import InsertRows
from dbtools.tools.writes.keyed import DeleteRow, UpdateRow
from dbtools.values.types import quote

#: The kinds of tools, in the order of the list.
KINDS: tuple[Callable[[ToolContext], Iterator[Tool]], ...] = (
    permitted_queries.define,
    ListTables.define,
    DescribeTables.define,
    AggregateRows.define,
    RunSql.define,
    ListRows.define,
    GetRow.define,
    InsertRows.define,
    UpdateRow.define,
    DeleteRow.define,
)
MOST_TOOLS = 128  #: that OpenAI and Vertex accept
#: A tool that would run SQL has one of these words in its name.
SQL_WORDS = {"sql", "query", "queries", "select", "exec", "execute"}
#: What to use instead, if the role has these tools; their typed forms may be listed instead of them.
INSTEAD = {
    "list_rows": "list_… for rows",
    "aggregate_rows": "aggregate_rows for counts, sums and groups",
    "find_queries": "a saved query",
}


def define(context: ToolContext) -> Toolset:
    """Return all tools of *context* by name, listed or not."""
    # A role with queries and no tables needs no tools for tables.
    kinds = KINDS if context.catalog.tables or not context.queries else (permitted_queries.define,)
    return {tool.name: tool for kind in kinds for tool in kind(context)}


def choose(listing: Listing, tools: Toolset) -> frozenset[ToolGroup]:
    """Return the groups of *tools* whose typed tools are listed: one after the other, while they fit."""
    typed = {ToolGroup.TABLES, ToolGroup.WRITES} if listing.surface is Surface.TYPED else set()
    left, places = listing.budget, MOST_TOOLS - sum(map(_is_generic, tools.values()))
    for group in ToolGroup if listing.surface is Surface.AUTO else (ToolGroup.QUERIES,):
        own = [tool for tool in tools.values() if tool.group is group and not _is_generic(tool)]
        after = _remaining_tokens(left, own)
        if after >= 0 and len(own) <= places:
            typed.add(group)
            left, places = after, places - len(own)
    return frozenset(typed)


def _is_generic(tool: Tool) -> bool:
    return tool.surface is Surface.GENERIC


def _remaining_tokens(tokens: int, tools: Iterable[Tool]) -> int:
    """Return what is left of *tokens* if *tools* are listed; stop when nothing is left."""
    for tool in tools:
        if tokens >= 0:
            tokens -= tokens_in(len(tool.definition.json))
    return tokens


def listed_tools(
    listing: Listing, typed: frozenset[ToolGroup], tools: Toolset, catalog: Catalog
) -> Iterator[Tool]:
    """Yield the *tools* of *catalog* that are listed: those of *typed* groups and pins, else generic ones."""
    pinned = {table for name in listing.pin for table in catalog.find_tables(name)}
    for tool in tools.values():
        surface = Surface.TYPED if tool.group in typed else Surface.GENERIC
        if tool.surface in (None, surface) or tool.table in pinned:
            yield tool


def unknown_tool(name: str, tools: Toolset, listed: Collection[str]) -> errors.UnknownTool:
    """Return the error that no tool of *tools* has this *name*; hints name only those that are *listed*."""
    own = _table_of(name, tools)
    # A name that only begins with the wrong verb is nearer than one with another table.
    same = [each for each in listed if own is not None and tools[each].table is own]
    hint = f"Did you mean {alternatives(same)}? " if same else did_you_mean(name, listed)
    if tools and not SQL_WORDS.isdisjoint(words_of(name[:LONGEST_PATH])):
        instead = " or ".join(use for name, use in INSTEAD.items() if name in tools)
        hint = "Use run_sql. " if "run_sql" in tools else f"No tool runs SQL: use {instead}. "
    hint = f"{_impossible_reason(name, tools)} {hint}".strip()
    again = "The tools may have changed: list them again."
    return errors.UnknownTool(f"There is no tool {quote(name)}.", hint=hint or again)


def _impossible_reason(name: str, tools: Toolset) -> str:
    """Return why *tools* have none with this *name*, if its table does not allow what it would do."""
    change = name.partition("_")[0]
    listed = (tool.table for tool in tools.values() if tool.name.startswith(f"{ListRows.prefix}_"))
    tables = [table for table in listed if table is not None]
    if name not in (UpdateRow.general_name, DeleteRow.general_name, InsertRows.general_name):
        own = _table_of(name, tools)
        tables = [] if own is None else [own]
    return next((why for table in tables if (why := impossible_reason(table, change))), "")


def _table_of(name: str, tools: Toolset) -> Table | None:
    """Return the table of the typed tool *name*, which need not be one of *tools*."""
    own = tools.get(f"{ListRows.prefix}_{name.partition('_')[2]}")
    return None if own is None else own.table
