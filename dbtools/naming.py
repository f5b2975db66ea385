"""The names of tables within the names of tools and relations."""

import hashlib
import re
from collections.abc import Iterable, Mapping

from dbtools.catalog import Catalog, Location, Table

LONGEST_NAME = 40
RESERVED = {"tables", "rows", "row"}  #: in the names of generic tools
LONGEST_PREFIX = len("list_")


def table_names(catalog: Catalog) -> Mapping[Location, str]:
    """Return the T of `list_T` and `get_T` for each table, by schema and name.

    The first table with a name has it unchanged, another one with its schema appended. A name that still
    collides, or is too long, ends in a digest.
    """
    names: dict[Location, str] = {}
    taken: set[str] = set()
    for table in catalog.tables:
        name = next(each for each in _candidates(catalog, table) if each not in taken)
        taken.add(name)
        names[table.location] = name
    return names


def _candidates(catalog: Catalog, table: Table) -> Iterable[str]:
    bare = normalised(table.name)
    mark = hashlib.sha256(catalog.qualified(table).encode()).hexdigest()
    longest = LONGEST_NAME - LONGEST_PREFIX
    if bare.strip("_") and len(bare) <= longest and bare not in RESERVED:
        yield bare
        if table.schema and len(in_schema := f"{bare}_{normalised(table.schema)}") <= longest:
            yield in_schema
    for digits in range(6, len(mark)):
        yield f"{bare[: longest - 1 - digits].rstrip('_')}_{mark[:digits]}".lstrip("_")


def normalised(name: str) -> str:
    """Return *name* in lower case, with `_` for every character except a-z, 0-9 and `_`."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())
