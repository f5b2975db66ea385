"""Which tools are listed: those of each table, or those for any. All can be called either way."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from dbtools.catalog import Catalog, Table
from dbtools.tools.definition import Tool, Toolset, tokens_of, tool_content


class Surface(StrEnum):
    """How tables are offered."""

    TYPED = "typed"  #: by two tools a table
    GENERIC = "generic"  #: by tools that take the table as an argument
    AUTO = "auto"  #: typed while the definitions fit the budget


@dataclass(frozen=True, kw_only=True)
class Listing:
    """How tools are listed."""

    surface: Surface = Surface.AUTO
    budget: int = 10_000  #: tokens of all definitions
    pin: tuple[str, ...] = ()  #: tables whose own tools are listed on either surface


#: Which tools for any table are listed where each table has its own.
BESIDE_TYPED = {"describe_tables", "aggregate_rows"}


def choose(listing: Listing, tools: Toolset) -> Surface:
    """Return the surface that *listing* wants of *tools*: typed or generic."""
    if listing.surface is not Surface.AUTO:
        return listing.surface
    left = listing.budget
    for tool in _typed(tools):
        left -= tokens_of(tool_content(tool.definition))
        if left < 0:
            return Surface.GENERIC
    return Surface.TYPED


def listed(surface: Surface, tools: Toolset, pinned: frozenset[Table]) -> Iterator[Tool]:
    """Yield the *tools* that are listed on *surface*, with those of *pinned* tables."""
    if surface is Surface.TYPED:
        yield from _typed(tools)
    else:
        yield from (tool for tool in tools.values() if tool.table is None or tool.table in pinned)


def _typed(tools: Toolset) -> Iterator[Tool]:
    return (tool for tool in tools.values() if tool.table is not None or tool.name in BESIDE_TYPED)


def pinned_tables(listing: Listing, catalog: Catalog) -> frozenset[Table]:
    """Return the tables that *listing* pins and that *catalog* has."""
    return frozenset(table for name in listing.pin for table in catalog.named(name))
