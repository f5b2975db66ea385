"""The tools that a catalog makes, one file a kind, and KINDS; and which of them are listed."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from dbtools import errors
from dbtools.catalog import Catalog, Table
from dbtools.errors import nearest
from dbtools.results import Listing, Surface
from dbtools.tools import get_row, list_rows, permitted_queries
from dbtools.tools.aggregate_rows import AggregateRows
from dbtools.tools.definition import Setting, Tool, Toolset, tokens_in
from dbtools.tools.describe_tables import DescribeTables
from dbtools.tools.get_row import GetRowOfAny
from dbtools.tools.list_rows import ListRowsOfAny
from dbtools.tools.list_tables import ListTables
from dbtools.types import quoted
from dbtools.vetting import words_of

#: In the order in which they are listed.
KINDS: tuple[Callable[[Setting], Iterator[Tool]], ...] = (
    permitted_queries.define,
    ListTables.define,
    DescribeTables.define,
    ListRowsOfAny.define,
    GetRowOfAny.define,
    AggregateRows.define,
    list_rows.define,
    get_row.define,
)
#: Which tools for any table are listed where each table has its own.
BESIDE_TYPED = {"describe_tables", "aggregate_rows"}

#: Of which one is in the name of a tool that would run SQL.
SQL_WORDS = {"sql", "query", "queries", "select", "exec", "execute"}
FEW = 3  #: tools that are named as examples


def define(setting: Setting) -> Toolset:
    """Return all tools of *setting* by name, listed or not: those for any table first."""
    # Whoever has queries and no table would pay for tools that find nothing.
    kinds = KINDS if setting.catalog.tables or not setting.queries else (permitted_queries.define,)
    tools = [tool for kind in kinds for tool in kind(setting)]
    return {tool.name: tool for tool in tools}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """What has tools of its own on the surface of a role. All can be called either way."""

    tables: Surface  #: typed or generic
    queries: Surface = Surface.TYPED


def choose(listing: Listing, tools: Toolset) -> Chosen:
    """Return what *listing* wants of *tools*; tables and queries may each cost the whole budget."""
    tables = listing.surface
    if tables is Surface.AUTO:
        tables = _surface_of(listing.budget, filter(_is_typed, tools.values()))
    return Chosen(tables=tables, queries=_surface_of(listing.budget, filter(_is_query, tools.values())))


def _surface_of(tokens: int, tools: Iterator[Tool]) -> Surface:
    for tool in tools:
        tokens -= tokens_in(len(tool.definition.json))
        if tokens < 0:
            return Surface.GENERIC
    return Surface.TYPED


def listed(chosen: Chosen, tools: Toolset, pinned: frozenset[Table]) -> Iterator[Tool]:
    """Yield the *tools* that are listed on the *chosen* surface, with those of *pinned* tables."""
    for tool in tools.values():
        if _is_query(tool):
            shown = chosen.queries is Surface.TYPED
        elif tool.name in permitted_queries.NAMES:
            shown = chosen.queries is Surface.GENERIC
        elif chosen.tables is Surface.TYPED:
            shown = _is_typed(tool)
        else:
            shown = tool.table is None or tool.table in pinned
        if shown:
            yield tool


def unknown_tool(name: str, tools: Toolset, shown: Collection[str]) -> errors.UnknownTool:
    """Return the complaint that no tool of *tools*, of which some are *shown*, has this *name*."""
    wants_sql = not SQL_WORDS.isdisjoint(words_of(name))
    instead = f"No tool runs SQL: use {'; '.join(_instead(tools, shown))}. " if wants_sql and tools else ""
    return errors.UnknownTool(
        f"There is no tool {quoted(name)}.",
        hint=f"{instead or nearest(name, tools)}The tools may have changed: list them again.",
    )


def _instead(tools: Toolset, shown: Collection[str]) -> Iterator[str]:
    """Yield what *tools* do in place of SQL, by the names that are *shown*."""
    rows = [name for name in shown if name.startswith("list_") and tools[name].table is not None]
    queries = [name for name in shown if _is_query(tools[name])]
    if rows or "list_rows" in tools:
        yield f"{_few(rows) or 'list_rows'} for rows"
    if "aggregate_rows" in tools:
        yield "aggregate_rows for counts, sums and groups"
    if queries or "find_queries" in tools:
        yield f"{_few(queries) or 'find_queries'} for permitted queries"


def _few(names: Sequence[str]) -> str:
    return ", ".join([*names[:FEW], *(["…"] if len(names) > FEW else [])])


def _is_query(tool: Tool) -> bool:
    return isinstance(tool, permitted_queries.QueryTool)


def _is_typed(tool: Tool) -> bool:
    return tool.table is not None or tool.name in BESIDE_TYPED


def pinned_tables(listing: Listing, catalog: Catalog) -> frozenset[Table]:
    """Return the tables that *listing* pins and that *catalog* has."""
    return frozenset(table for name in listing.pin for table in catalog.named(name))
