"""What `dbtools check` finds: the configuration held against the live database."""

from collections.abc import Iterator

from dbtools.catalog import Catalog
from dbtools.config.roles import roles_of, settled
from dbtools.config.sections import Settings
from dbtools.database import Database
from dbtools.policy import Finding, Role, restrict


async def review(settings: Settings, catalog: Catalog, database: Database) -> tuple[Finding, ...]:
    """Return all that is wrong with *settings* for a *database* that holds *catalog*, errors first."""
    source = settings.source("database")
    findings = [
        Finding(code="catalog", message=warning, level="warning", source=source)
        for warning in catalog.warnings
    ]
    for role in roles_of(settings):
        served, found = await settled(role, catalog, database)
        findings += found
        findings += _of_role(catalog, role, served)
    return tuple(sorted(findings, key=lambda each: each.level))


def _of_role(catalog: Catalog, role: Role, served: Role) -> Iterator[Finding]:
    """Yield what is not wrong by itself, and yet hardly meant."""
    seen = restrict(catalog, served)
    if not seen.tables:
        message = f"role {role.name}: it sees no table."
        yield Finding(code="sees_nothing", message=message, level="warning", source=role.source)
    for table in seen.tables:
        whole = catalog.table(table.schema, table.name)
        if whole is not None and whole.keys and not table.keys:
            label = seen.label(table)
            message = (
                f"role {role.name}: no key of {label} is seen unmasked: no get_T, and pages are counted off."
            )
            rule = role.rule_of(catalog, whole)
            source = rule.source if rule else role.source
            yield Finding(code="hidden_key", message=message, level="warning", source=source)
