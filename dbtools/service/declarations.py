"""What [tables] declares, in the catalog of a live database. Settings and a Catalog in, a Catalog out."""

from collections.abc import Iterator
from dataclasses import replace

from dbtools.catalog import Catalog, Table
from dbtools.errors import listing, nearest
from dbtools.policy import Finding, Source
from dbtools.settings.sections import Settings, TableSection
from dbtools.types import quoted
from dbtools.vetting import UNKNOWN_TABLE


def described(catalog: Catalog, settings: Settings) -> Catalog:
    """Return *catalog* with the descriptions in *settings*; unknown names describe nothing."""
    tables = {table.location: table for table in catalog.tables}
    for name, section in settings.tables.items():
        table = _meant(catalog, name)
        if table is not None and table.location in tables:
            tables[table.location] = _described(tables[table.location], section)
    return replace(catalog, tables=tuple(tables.values()))


def declaration_findings(catalog: Catalog, settings: Settings) -> Iterator[Finding]:
    """Yield findings about names in [tables] and [tools] pin that *catalog* does not have."""
    for name, section in settings.tables.items():
        table = _meant(catalog, name)
        if table is None:
            yield _unknown_table(catalog, name, "[tables]", settings.source("tables", name))
            continue
        for column in section.columns:
            if column not in table.column_by_name:
                known = table.column_by_name
                message = f"[tables.{name}.columns]: there is no column {quoted(column)}."
                hint = f"{nearest(column, known)}There are: {listing(known)}."
                source = settings.source("tables", name, "columns")
                yield Finding(code="unknown_column", message=f"{message} {hint}", source=source)
    for name in settings.tools.pin:
        if _meant(catalog, name) is None:
            yield _unknown_table(catalog, name, "[tools] pin", settings.source("tools", "pin"))


def _meant(catalog: Catalog, name: str) -> Table | None:
    """Return the one table that *name* refers to, readable or not."""
    found = catalog.whole.named(name)
    return found[0] if len(found) == 1 else None


def _unknown_table(catalog: Catalog, name: str, key: str, source: Source) -> Finding:
    whole = catalog.whole
    found = whole.named(name)
    labels = [whole.label(table) for table in found or whole.tables]
    problem = "means several tables" if found else "is not a table of the database"
    message = f"{key}: {quoted(name)} {problem}. {nearest(name, labels)}There are: {listing(labels)}."
    return Finding(code=UNKNOWN_TABLE, message=message, source=source)


def _described(table: Table, section: TableSection) -> Table:
    columns = (
        replace(column, comment=section.columns.get(column.name, column.comment)) for column in table.columns
    )
    return replace(table, comment=section.description or table.comment, columns=tuple(columns))
