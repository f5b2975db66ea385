"""The names of tables in the names of tools and of relations."""

import hashlib
import re
from collections.abc import Iterable, Mapping

from dbtools.catalog import Catalog, Location, Table

LONGEST_NAME = 40
RESERVED = {"tables", "rows", "row"}  #: that tools for all tables are named after
LONGEST_PREFIX = len("list_")


def table_names(catalog: Catalog) -> Mapping[Location, str]:
    """Return for each table, by schema and name, the part T of its tools' names `list_T` and `get_T`.

    The first table of a name keeps it bare; one like it in another schema gets the schema's name behind,
    and whatever still collides or is too long a digest of the whole name.
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
    """Return *name* in lower case with `_` for every character but a-z, 0-9 and `_`."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())
