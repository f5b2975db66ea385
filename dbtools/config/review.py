"""What `dbtools check` finds: the configuration held against the live database."""

from collections.abc import Callable, Iterator

from dbtools.catalog import Catalog
from dbtools.config.login import posture_findings
from dbtools.config.roles import Held, held, roles_of
from dbtools.config.sections import Settings
from dbtools.database import Database
from dbtools.errors import listing
from dbtools.policy import Finding, Role, restrict

Progress = Callable[[int, int, str], None]  #: how many of how many roles are done, and the next


async def review(
    settings: Settings, catalog: Catalog, database: Database, progress: Progress
) -> tuple[Finding, ...]:
    """Return all that is wrong with *settings* for a *database* that holds *catalog*, errors first."""
    source = settings.source("database")
    findings = [
        Finding(code="catalog", message=warning, level="warning", source=source)
        for warning in catalog.warnings
    ]
    findings += posture_findings(settings, catalog)
    roles = roles_of(settings)
    for done, role in enumerate(roles):
        progress(done, len(roles), role.name)
        found = await held(settings, role, catalog, database)
        findings += found.findings
        findings += _of_role(found)
    # A rule that several roles inherit is wrong once.
    return tuple(sorted(dict.fromkeys(findings), key=lambda each: each.level))


def _of_role(held: Held) -> Iterator[Finding]:
    """Yield what is not wrong by itself, and yet hardly meant."""
    role, catalog = held.written, held.catalog
    yield from _idle_masks(role)
    seen = restrict(catalog, held.served)
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


def _idle_masks(role: Role) -> Iterator[Finding]:
    for rule in role.rules or ():
        grant = rule.grant
        if grant is None:
            continue
        unseen = [
            name
            for name in grant.masks
            if name in grant.exclude or (grant.columns is not None and name not in grant.columns)
        ]
        if unseen:
            message = (
                f"role {role.name}, tables.{rule.pattern}.mask: {listing(unseen)} is not seen, "
                "so there is nothing to mask."
            )
            yield Finding(code="idle_mask", message=message, level="warning", source=rule.source)
