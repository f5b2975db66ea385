"""Define the tools of a role, one file for each kind, and choose those to list. ToolContext in, tools out."""

from collections.abc import Callable, Iterable, Iterator

from dbtools import errors
from dbtools.catalog import Catalog
from dbtools.errors import nearest
from dbtools.styles import Listing, Surface
from dbtools.tools import permitted_queries
from dbtools.tools.aggregate_rows import AggregateRows
from dbtools.tools.definition import Tool, ToolContext, ToolGroup, Toolset, tokens_in
from dbtools.tools.describe_tables import DescribeTables
from dbtools.tools.get_row import GetRow
from dbtools.tools.insert_rows import InsertRows
from dbtools.tools.keyed_changes import DeleteRow, UpdateRow
from dbtools.tools.list_rows import ListRows
from dbtools.tools.list_tables import ListTables
from dbtools.tools.run_sql import RunSql
from dbtools.types import quoted
from dbtools.vetting import words_of

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
    left = listing.budget
    for group in ToolGroup if listing.surface is Surface.AUTO else (ToolGroup.QUERIES,):
        after = _left(left, (tool for tool in tools.values() if tool.group is group))
        if after >= 0:
            typed.add(group)
            left = after
    return frozenset(typed)


def _left(tokens: int, tools: Iterable[Tool]) -> int:
    """Return what is left of *tokens* if the typed ones of *tools* are listed; stop when nothing is left."""
    for tool in tools:
        if tool.surface is not Surface.GENERIC and tokens >= 0:
            tokens -= tokens_in(len(tool.definition.json))
    return tokens


def listed(listing: Listing, typed: frozenset[ToolGroup], tools: Toolset, catalog: Catalog) -> Iterator[Tool]:
    """Yield the *tools* of *catalog* that are listed: those of *typed* groups and pins, else generic ones."""
    pinned = {table for name in listing.pin for table in catalog.named(name)}
    for tool in tools.values():
        surface = Surface.TYPED if tool.group in typed else Surface.GENERIC
        if tool.surface in (None, surface) or tool.table in pinned:
            yield tool


def unknown_tool(name: str, tools: Toolset, listed: Iterable[str]) -> errors.UnknownTool:
    """Return the error that no tool of *tools* has this *name*; hints name only those that are *listed*."""
    hint = nearest(name, listed)
    if tools and not SQL_WORDS.isdisjoint(words_of(name)):
        instead = " or ".join(use for name, use in INSTEAD.items() if name in tools)
        hint = "Use run_sql. " if "run_sql" in tools else f"No tool runs SQL: use {instead}. "
    again = "The tools may have changed: list them again."
    return errors.UnknownTool(f"There is no tool {quoted(name)}.", hint=hint.rstrip() or again)
