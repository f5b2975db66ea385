"""What a configuration says of tables that the database does not say. Catalog in, Catalog out."""

from collections.abc import Mapping
from dataclasses import replace

from dbtools import errors
from dbtools.catalog import Catalog, Column, Table
from dbtools.column_types import quoted
from dbtools.config.sections import Settings, TableSection
from dbtools.errors import listing, nearest


def described(catalog: Catalog, settings: Settings) -> Catalog:
    """Return *catalog* as *settings* describe it, or raise ConfigurationError on unknown names."""
    tables = {(table.schema, table.name): table for table in catalog.tables}
    for name, section in settings.tables.items():
        table = _the_table(catalog, name, f"{settings.source('tables', name)}[tables]")
        place = (table.schema, table.name)
        if place in tables:
            columns = settings.source("tables", name, "columns")
            known = table.column_by_name
            _check_columns(section, known, f"{columns}[tables.{table.name}.columns]")
            tables[place] = _described(tables[place], section)
    for name in settings.tools.pin:
        _the_table(catalog, name, f"{settings.source('tools', 'pin')}[tools] pin")
    return replace(catalog, tables=tuple(tables.values()))


def _the_table(catalog: Catalog, name: str, key: str) -> Table:
    """Return the one table that *name* under *key* means, readable or not; or raise ConfigurationError."""
    catalog = catalog.whole
    found = catalog.named(name)
    if len(found) != 1:
        labels = [catalog.label(table) for table in found or catalog.tables]
        problem = "means several tables" if found else "is no table of the database"
        raise errors.ConfigurationError(
            f"{key}: {quoted(name)} {problem}.",
            hint=f"{nearest(name, labels)}There are: {listing(labels)}.",
        )
    return found[0]


def _check_columns(section: TableSection, known: Mapping[str, Column], key: str) -> None:
    for name in section.columns:
        if name not in known:
            raise errors.ConfigurationError(
                f"{key}: there is no column {quoted(name)}.",
                hint=f"{nearest(name, known)}There are: {listing(known)}.",
            )


def _described(table: Table, section: TableSection) -> Table:
    columns = tuple(_commented(column, section.columns.get(column.name)) for column in table.columns)
    return replace(table, comment=section.description or table.comment, columns=columns)


def _commented(column: Column, comment: str | None) -> Column:
    return column if comment is None else replace(column, comment=comment)
