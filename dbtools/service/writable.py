"""Check that roles can make their changes. A Resolved in; the same without what the login may not do, out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dbtools import errors
from dbtools.backends.port import Backend, Lacking
from dbtools.catalog import Location, Table
from dbtools.errors import listing
from dbtools.policy import Finding, Rule, Source
from dbtools.queries import Permitted
from dbtools.service.resolve import Resolved, ResolvedRole
from dbtools.settings.sections import Settings
from dbtools.writes import confirmed_tables

LACKING, NO_JOURNAL = "lacks_privilege", "no_journal"


async def able_to_write(resolved: Resolved, backend: Backend) -> Resolved:
    """Return *resolved* without the writes that the login lacks a privilege for."""
    queries = resolved.library.queries
    roles = [await _able(resolved.settings, each, backend, queries) for each in resolved.roles]
    return replace(resolved, roles=tuple(roles))


async def _able(
    settings: Settings, role: ResolvedRole, backend: Backend, queries: Sequence[Permitted]
) -> ResolvedRole:
    tables = [table for table in role.catalog.tables if table.writes is not None]
    changing = [each for each in queries if each.effects and role.served.may_call(each.name)]
    if not (tables or changing):
        return role
    session = {setting.name: setting.value for setting in role.served.session}
    lacking, journal = Lacking({}), None
    try:
        lacking = await backend.lacking(tables, session)
        found = tuple(_lacking(settings, role, tables, lacking.tables))
        journal = not lacking.journal
    except (errors.DatabaseUnavailable, errors.Refused) as exc:
        # A login that cannot be reached now may make the changes later.
        if isinstance(exc, errors.Refused) and not exc.passes:
            lacking = Lacking({table.location: exc.message for table in tables})
        message = f"The privileges of the login that changes rows cannot be checked: {exc}"
        found = (Finding(code=LACKING, message=message, source=settings.source("database", "write_url")),)
    lost = lacking.tables
    kept = (replace(each, writes=None) if each.location in lost else each for each in role.catalog.tables)
    able = replace(role, catalog=replace(role.catalog, tables=tuple(kept)), journal=journal)
    return replace(
        able, findings=(*role.findings, *found, *_without_journal(able, changing, lacking.journal))
    )


def _without_journal(role: ResolvedRole, queries: Sequence[Permitted], why: str) -> Iterator[Finding]:
    """Yield the finding that *role* confirms changes without a journal, perhaps by *queries*, and *why*."""
    confirmed = confirmed_tables(role.catalog)
    rule = role.served.rule_of(role.whole, confirmed[0]) if confirmed else None
    places = [(f"tables.{rule.pattern}.confirm", rule.source)] if rule is not None else []
    places += [(f"the query {each.name}", each.query.source) for each in queries if each.query.confirm]
    for where, source in places[:1] if why else ():
        problem = "confirmations are kept in the memory of one process only."
        message = f"role {role.served.name}, {where}: {problem} {why}"
        yield Finding(code=NO_JOURNAL, message=message, level="warning", source=source, role=role.served.name)


def _lacking(
    settings: Settings, role: ResolvedRole, tables: Sequence[Table], lacking: Mapping[Location, str]
) -> Iterator[Finding]:
    """Yield what the login lacks for the writes of *tables*, those of one rule together."""
    by_rule: dict[Source, list[tuple[Rule | None, Table]]] = {}
    for table in tables:
        rule = role.served.rule_of(role.whole, table)
        source = rule.source if rule is not None else settings.source("database", "writable")
        if table.location in lacking:
            by_rule.setdefault(source, []).append((rule, table))
    for source, found in by_rule.items():
        rule, first = found[0]
        labels = [role.catalog.label(table) for _, table in found]
        where = f"role {role.served.name}, tables.{rule.pattern}" if rule else "[database] writable"
        why = lacking[first.location] if len(found) == 1 else f"{labels[0]}: {lacking[first.location]}"
        level = "warning" if rule is not None and rule.is_pattern else "error"
        message = f"{where}: {listing(labels)} cannot be changed: {why}"
        yield Finding(code=LACKING, message=message, level=level, source=source, role=role.served.name)
