"""Which tools are listed: those of each table, or those for any. All can be called either way."""

from collections.abc import Iterator
from dataclasses import dataclass

from dbtools.catalog import Catalog, Table
from dbtools.results import Listing, Surface
from dbtools.tools.definition import Tool, Toolset, tokens_of, tool_content
from dbtools.tools.permitted_queries import NAMES, QueryTool


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What has tools of its own on the surface of a role."""

    tables: Surface  #: typed or generic
    queries: Surface = Surface.TYPED


#: Which tools for any table are listed where each table has its own.
BESIDE_TYPED = {"describe_tables", "aggregate_rows"}


def choose(listing: Listing, tools: Toolset) -> Chosen:
    """Return what *listing* wants of *tools*; tables and queries may each cost the whole budget."""
    tables = listing.surface
    if tables is Surface.AUTO:
        tables = _fitting(listing.budget, _typed_tables(tools))
    queries = _fitting(listing.budget, (tool for tool in tools.values() if _is_query(tool)))
    return Chosen(tables=tables, queries=queries)


def _fitting(budget: int, tools: Iterator[Tool]) -> Surface:
    for tool in tools:
        budget -= tokens_of(tool_content(tool.definition))
        if budget < 0:
            return Surface.GENERIC
    return Surface.TYPED


def listed(chosen: Chosen, tools: Toolset, pinned: frozenset[Table]) -> Iterator[Tool]:
    """Yield the *tools* that are listed on the *chosen* surface, with those of *pinned* tables."""
    for tool in tools.values():
        if _is_query(tool):
            shown = chosen.queries is Surface.TYPED
        elif tool.name in NAMES:
            shown = chosen.queries is Surface.GENERIC
        elif chosen.tables is Surface.TYPED:
            shown = tool.table is not None or tool.name in BESIDE_TYPED
        else:
            shown = tool.table is None or tool.table in pinned
        if shown:
            yield tool


def _is_query(tool: Tool) -> bool:
    return isinstance(tool, QueryTool)


def _typed_tables(tools: Toolset) -> Iterator[Tool]:
    return (tool for tool in tools.values() if tool.table is not None or tool.name in BESIDE_TYPED)


def pinned_tables(listing: Listing, catalog: Catalog) -> frozenset[Table]:
    """Return the tables that *listing* pins and that *catalog* has."""
    return frozenset(table for name in listing.pin for table in catalog.named(name))
