"""What dbtools itself keeps in a database: permitted queries, each in two versions, and the call log.

`upgrading`, which makes and changes its tables, is imported by itself: that takes long.
"""

from dbtools.dialects.registered import Registry
from dbtools.registry.entries import (
    LATEST,
    Entry,
    add,
    disable,
    enable,
    entries_of,
    entry_of,
    find_entries,
    find_registry,
    read_entries,
    remove,
)

__all__ = [
    "LATEST",
    "Entry",
    "Registry",
    "add",
    "disable",
    "enable",
    "entries_of",
    "entry_of",
    "find_entries",
    "find_registry",
    "read_entries",
    "remove",
]
