"""What tells of a database, again and again, how it is now."""

from collections.abc import Hashable
from typing import Protocol


class Look(Protocol):
    """Looks once."""

    async def __call__(self) -> Hashable:
        """Return what differs when something has changed, or raise DatabaseUnavailable."""
