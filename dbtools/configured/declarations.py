"""Add what [tables] declares to the catalog of a database. A Catalog in; a Catalog and findings out.

What looks like a secret and is not declared is masked.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

from dbtools.errors import did_you_mean, listing
from dbtools.findings import Finding, Kind, Source, finding
from dbtools.policy.sensitive import is_secret
from dbtools.schema.catalog import UNKNOWN_TYPE, Catalog, Column, ForeignKey, Location, Table
from dbtools.settings.sections import Settings, TableSection
from dbtools.values.cells import REDACTED
from dbtools.values.types import quote

#: A table as in [tables.T], and a column, in double quotes if it contains a dot.
REFERENCE = re.compile(r'(.+)\.(?:"((?:[^"]|"")+)"|([^."]+))', re.DOTALL)
Alike = Callable[[Column, Column], bool]  #: `Facts.alike`


def with_declarations(
    catalog: Catalog, settings: Settings, alike: Alike
) -> tuple[Catalog, tuple[Finding, ...]]:
    """Return *catalog* with what [tables] declares, and findings about what does not fit the database."""
    tables = {table.location: table for table in catalog.tables}
    findings: list[Finding] = []
    named: dict[Location, Collection[str]] = {}
    for name, section in settings.tables.items():
        table = _find_table(catalog, name)
        if table is None:
            findings.append(_unknown_table(catalog, name, "[tables]", settings.source("tables", name)))
            continue
        named[table.location] = section.columns
        source = settings.source("tables", name, "columns")
        unknown = (column for column in section.columns if column not in table.column_by_name)
        findings += [_unknown_column(table, each, f"[tables.{name}.columns]", source) for each in unknown]
        found = [_reference(catalog, settings, name, table, each, alike) for each in section.references]
        findings += [each for each in found if isinstance(each, Finding)]
        if table.location in tables:
            keys = [each for each in found if isinstance(each, ForeignKey)]
            tables[table.location] = _with_descriptions(tables[table.location], section, keys)
    tables = {
        location: _without_secrets(table, named.get(location, ())) for location, table in tables.items()
    }
    for name in settings.tools.pin:
        if _find_table(catalog, name) is None:
            findings.append(_unknown_table(catalog, name, "[tools] pin", settings.source("tools", "pin")))
    return replace(catalog, tables=tuple(tables.values())), tuple(findings)


def _find_table(catalog: Catalog, name: str) -> Table | None:
    """Return the one table that *name* refers to, readable or not."""
    found = catalog.whole.find_tables(name)
    return found[0] if len(found) == 1 else None


def _unknown_table(catalog: Catalog, name: str, key: str, source: Source) -> Finding:
    whole = catalog.whole
    found = whole.find_tables(name)
    labels = [whole.label(table) for table in found or whole.tables]
    kind = Kind.AMBIGUOUS_NAME if found else Kind.UNKNOWN_NAME
    tables, meant = listing(labels), did_you_mean(name, labels)
    return finding(kind, source, key=key, name=quote(name), tables=tables, nearest=meant)


def _unknown_column(table: Table, column: str, key: str, source: Source) -> Finding:
    known = table.column_by_name
    return finding(
        Kind.UNKNOWN_DECLARED,
        source,
        key=key,
        table=table.name,
        column=quote(column),
        nearest=did_you_mean(column, known),
        columns=listing(known),
    )


def _with_descriptions(table: Table, section: TableSection, keys: Sequence[ForeignKey]) -> Table:
    columns = (
        replace(column, comment=section.columns.get(column.name, column.comment)) for column in table.columns
    )
    taken = {each.columns for each in table.foreign_keys}
    return replace(
        table,
        comment=section.description or table.comment,
        columns=tuple(columns),
        foreign_keys=(*table.foreign_keys, *(each for each in keys if each.columns not in taken)),
    )


def _without_secrets(table: Table, named: Collection[str]) -> Table:
    """Return *table* without values of columns that look like secrets; mark those that are not *named*."""
    if not any(map(is_secret, table.columns)):
        return table
    columns = (
        replace(each, choices=(), default=each.default and REDACTED, sensitive=each.name not in named)
        if is_secret(each)
        else each
        for each in table.columns
    )
    return replace(table, columns=tuple(columns))


def _reference(
    catalog: Catalog, settings: Settings, name: str, table: Table, column: str, alike: Alike
) -> ForeignKey | Finding | None:
    """Return the foreign key of *column* that [tables.*name*] declares, or what is wrong with it.

    Return None if the login may not read one of its columns.
    """
    text = settings.tables[name].references[column]
    key = f"[tables.{name}.references] {column}"
    source = settings.source("tables", name, "references", column)
    parts = REFERENCE.fullmatch(text)
    if parts is None:
        return finding(Kind.REFERENCE_UNREADABLE, source, key=key, text=quote(text))
    end, target = parts[3] or parts[2].replace('""', '"'), _find_table(catalog, parts[1])
    if target is None:
        return _unknown_table(catalog, parts[1], key, source)
    for of, each in ((table, column), (target, end)):
        if each not in of.column_by_name:
            return _unknown_column(of, each, key, source)
    here, there = table.column_by_name[column], target.column_by_name[end]
    if UNKNOWN_TYPE in (here.type, there.type):
        return None
    if any(each.declared and each.columns == (column,) for each in table.foreign_keys):
        return finding(Kind.REFERENCE_DECLARED, source, key=key)
    if end not in target.unique:
        return finding(Kind.REFERENCE_NOT_UNIQUE, source, key=key, text=text)
    if not alike(there, here):
        types = {"here": here.type.name, "there": there.type.name}
        return finding(Kind.REFERENCE_NOT_ALIKE, source, key=key, text=text, **types)
    schema, other = target.location
    return ForeignKey(
        columns=(column,), target_schema=schema, target=other, target_columns=(end,), declared=False
    )


def secret_findings(catalogs: Sequence[Catalog]) -> Iterator[Finding]:
    """Yield what *catalogs* mask because it looks like a secret."""
    named = dict.fromkeys(
        f"{catalog.label(table)}.{column.name}"
        for catalog in catalogs
        for table in catalog.tables
        for column in _masked_secrets(table)
    )
    if named:
        yield finding(Kind.MASKED_SECRETS, columns=listing(named))


def _masked_secrets(table: Table) -> Sequence[Column]:
    """Return the columns of *table* that are masked because they look like secrets."""
    return [column for column in table.columns if column.sensitive and column.type.mask is not None]
