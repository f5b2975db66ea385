"""What a database holds, as settings describe it. A backend in, a catalog and findings out."""

from collections.abc import Iterator
from dataclasses import replace

from dbtools import errors
from dbtools.backends.port import Backend
from dbtools.catalog import Catalog, Table
from dbtools.errors import listing, nearest
from dbtools.policy import Finding, Source
from dbtools.settings.sections import Settings, TableSection
from dbtools.types import quoted
from dbtools.vetting import UNKNOWN_TABLE

HINT = "`dbtools grants` prints a login that can only read."


async def read_catalog(settings: Settings, backend: Backend) -> Catalog:
    """Return what *database* holds, with the descriptions that *settings* add to it."""
    catalog = described(await backend.introspect(settings.selection()), settings)
    if settings.roles:
        # What they name and the login may not select is told with the rules that name it.
        return catalog
    places = [place for place in sorted(catalog.unreadable) if catalog.table(*place) is None]
    if not places:
        return catalog
    message = f"The login may not select from {listing([f'{schema}.{name}' for schema, name in places])}."
    return replace(catalog, warnings=(message, *catalog.warnings))


def described(catalog: Catalog, settings: Settings) -> Catalog:
    """Return *catalog* as *settings* describe it; a name that is not there, or no more, describes nothing."""
    tables = {(table.schema, table.name): table for table in catalog.tables}
    for name, section in settings.tables.items():
        table = _meant(catalog, name)
        place = (table.schema, table.name) if table is not None else None
        if place in tables:
            tables[place] = _described(tables[place], section)
    return replace(catalog, tables=tuple(tables.values()))


def description_findings(catalog: Catalog, settings: Settings) -> Iterator[Finding]:
    """Yield what [tables] and [tools] pin name and *catalog* does not have."""
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
    """Return the one table that *name* means, readable or not."""
    found = catalog.whole.named(name)
    return found[0] if len(found) == 1 else None


def _unknown_table(catalog: Catalog, name: str, key: str, source: Source) -> Finding:
    whole = catalog.whole
    found = whole.named(name)
    labels = [whole.label(table) for table in found or whole.tables]
    problem = "means several tables" if found else "is no table of the database"
    message = f"{key}: {quoted(name)} {problem}. {nearest(name, labels)}There are: {listing(labels)}."
    return Finding(code=UNKNOWN_TABLE, message=message, source=source)


def _described(table: Table, section: TableSection) -> Table:
    columns = (
        replace(column, comment=section.columns.get(column.name, column.comment)) for column in table.columns
    )
    return replace(table, comment=section.description or table.comment, columns=tuple(columns))


def posture_findings(settings: Settings, catalog: Catalog) -> tuple[Finding, ...]:
    """Return what the login can do beyond reading: errors where [server] strict forbids it."""
    level = "error" if settings.server.strict else "warning"
    source = settings.source("database")
    return tuple(
        Finding(code="posture", message=f"{fact} {HINT}", level=level, source=source)
        for fact in catalog.posture
    )


def check_strictness(settings: Settings, catalog: Catalog) -> None:
    """Raise ConfigurationError where [server] strict forbids what the login can do."""
    if settings.server.strict and catalog.posture:
        raise errors.ConfigurationError(
            " ".join(catalog.posture), hint=f"{HINT} [server] strict = false serves with this one."
        )
