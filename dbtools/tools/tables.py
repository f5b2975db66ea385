"""The argument `table` of the tools for all tables: how it is advertised, and which table it means."""

from collections.abc import Mapping
from difflib import get_close_matches

from dbtools import errors
from dbtools.catalog import Catalog, Table
from dbtools.errors import listing, nearest
from dbtools.tools.arguments import DEFAULT_LIMIT, narrowed_schema
from dbtools.tools.definition import Setting
from dbtools.types import quoted

MOST_NAMES = 100  #: tables that a schema names


def table_of(catalog: Catalog, name: str, argument: str) -> Table:
    """Return the one table that *name* means, or raise UnknownTable with the candidates."""
    tables = catalog.named(name)
    if len(tables) == 1:
        return tables[0]
    if tables:
        raise errors.UnknownTable(
            f"{argument}: {quoted(name)} is the name of {len(tables)} tables.",
            hint=f"Name one of: {listing(catalog.label(table) for table in tables)}.",
        )
    labels = [catalog.label(table) for table in catalog.tables]
    near = catalog.named(_bare_name(catalog, name))
    if len(near) > 1:
        raise errors.UnknownTable(
            f"{argument}: there is no table {quoted(name)}.",
            hint=f"Did you mean one of: {listing(map(catalog.label, near))}?",
        )
    known = f"Tables: {listing(labels) or 'none'}."
    if len(labels) > MOST_NAMES:
        known = f"There are {len(labels):,} tables: list_tables finds them."
    raise errors.UnknownTable(
        f"{argument}: there is no table {quoted(name)}.", hint=f"{nearest(name, labels)}{known}"
    )


def _bare_name(catalog: Catalog, name: str) -> str:
    """Return the name without a schema that is most like *name*, or nothing."""
    names = {table.name.lower() for table in catalog.tables}
    return next(iter(get_close_matches(name.lower(), names, n=1, cutoff=0.8)), "")


def name_schema(setting: Setting) -> dict[str, object]:
    """Return the schema of a table's name: which there are, or how many and a digest of what they are."""
    labels = setting.labels
    if len(labels) <= MOST_NAMES:
        return {"type": "string", "enum": list(labels)} if labels else {"type": "string"}
    return {
        "type": "string",
        "description": f"one of {len(labels):,}, see list_tables (schema {setting.digest})",
    }


def table_schema(setting: Setting, schema: Mapping[str, object]) -> dict[str, object]:
    """Return *schema* with the tables of *setting* for its property `table`."""
    return narrowed_schema(schema, ("properties", "table"), name_schema(setting))


def limited_schema(setting: Setting, schema: Mapping[str, object]) -> dict[str, object]:
    """Return *schema* with the bounds of *setting* for its property `limit`."""
    most = setting.limits.max_rows
    limit = {"type": "integer", "minimum": 1, "maximum": most, "default": min(DEFAULT_LIMIT, most)}
    return narrowed_schema(schema, ("properties", "limit"), limit)
