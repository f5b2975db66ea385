"""What dbtools itself keeps in a database: permitted queries, each in two versions, and the call log.

`upgrading`, which makes and changes its tables, is imported by itself: that takes long.
"""

from dbtools.registry.entries import (
    LATEST,
    Entry,
    add,
    disable,
    enable,
    entry_of,
    find_entries,
    read_entries,
    remove,
)

__all__ = [
    "LATEST",
    "Entry",
    "add",
    "disable",
    "enable",
    "entry_of",
    "find_entries",
    "read_entries",
    "remove",
]
