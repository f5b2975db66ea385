"""The format of answers, and which tools are listed: settings that all roles share."""

from dataclasses import dataclass
from enum import StrEnum


class Text(StrEnum):
    """The format of the text channel."""

    JSON = "json"
    CSV = "csv"


class Surface(StrEnum):
    """Which tools are listed for tables."""

    TYPED = "typed"  #: two tools for each table
    GENERIC = "generic"  #: tools that take the table as an argument
    AUTO = "auto"  #: typed if the definitions fit the budget


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Which tools are listed."""

    surface: Surface = Surface.AUTO
    budget: int = 10_000  #: tokens of all definitions
    pin: tuple[str, ...] = ()  #: tables whose typed tools are always listed
