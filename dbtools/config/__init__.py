"""`dbtools.toml` and the environment into frozen settings; every complaint names the file and the line."""

from dataclasses import replace

from dbtools.catalog import Catalog
from dbtools.config.adding import candidates
from dbtools.config.claims import typed_claims
from dbtools.config.descriptions import described
from dbtools.config.files import is_file, load, settings_of
from dbtools.config.login import check_strictness, grants_of, posture_findings, unreadable_tables
from dbtools.config.queries import held_with_queries, library_of
from dbtools.config.registered import query_of
from dbtools.config.review import Review, review
from dbtools.config.roles import roles_of
from dbtools.config.sections import (
    DatabaseSection,
    LimitsSection,
    LogSection,
    RegistrySection,
    ResultsSection,
    Settings,
    TableSection,
    ToolsSection,
)
from dbtools.database import Database
from dbtools.execution import Execution
from dbtools.toolbox import Settled, Toolbox

__all__ = [
    "DatabaseSection",
    "LimitsSection",
    "LogSection",
    "RegistrySection",
    "ResultsSection",
    "Review",
    "Settings",
    "TableSection",
    "ToolsSection",
    "candidates",
    "described",
    "grants_of",
    "is_file",
    "load",
    "open_toolbox",
    "query_of",
    "read_catalog",
    "review",
    "roles_of",
    "settings_of",
    "typed_claims",
]


async def read_catalog(settings: Settings, database: Database) -> Catalog:
    """Return what *database* holds, with the descriptions that *settings* add to it."""
    catalog = described(await database.introspect(settings.selection()), settings)
    if settings.roles:
        # What they name and the login may not select is told with the rules that name it.
        return catalog
    return replace(catalog, warnings=(*unreadable_tables(catalog), *catalog.warnings))


def open_toolbox(settings: Settings, only: str | None = None) -> tuple[Toolbox, Database]:
    """Return the toolbox that *settings* describe, and the database behind it, which is to be closed.

    It is for all roles, or for the role *only*.
    """
    database = Database(settings.database.url)

    async def introspect() -> Catalog:
        catalog = await read_catalog(settings, database)
        check_strictness(settings, catalog)
        return catalog

    async def settle(catalog: Catalog) -> Settled:
        wanted = (role for role in roles_of(settings) if only in (None, role.name))
        library = await library_of(settings, catalog, database)
        found = [
            await held_with_queries(settings, role, catalog, database, library.queries) for role in wanted
        ]
        findings = [*(finding for each in found for finding in each.findings), *library.findings]
        return Settled(
            roles=[each.served for each in found],
            catalogs={each.served.name: each.catalog for each in found},
            queries=library.queries,
            problems=tuple(map(str, (*posture_findings(settings, catalog), *findings))),
        )

    execution = Execution(database, hash_key=settings.policy.hash_key.encode())
    return Toolbox(introspect, execution, roles=settle, manner=settings.manner()), database
