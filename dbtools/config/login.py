"""What the login of the database can do, held against what it is for. Settings and a Catalog in."""

from dataclasses import replace

from dbtools import errors
from dbtools.catalog import Catalog
from dbtools.config.queries import library_of
from dbtools.config.roles import held, roles_of
from dbtools.config.sections import Settings
from dbtools.database import Database
from dbtools.errors import listing
from dbtools.policy import Finding

HINT = "`dbtools grants` prints a login that can only read."


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


def unreadable_tables(catalog: Catalog) -> tuple[str, ...]:
    """Return a warning of the tables of which the login may select nothing, where there are any."""
    places = [place for place in sorted(catalog.unreadable) if catalog.table(*place) is None]
    names = [f"{schema}.{name}" for schema, name in places]
    return (f"The login may not select from {listing(names)}.",) if names else ()


async def grants_of(
    settings: Settings, catalog: Catalog, database: Database, role: str, login: str
) -> tuple[str, tuple[Finding, ...]]:
    """Return the script for a *login* that reads what *role* reads, and what is wrong with the role.

    It is held against all that this login sees: what the role may see by itself is still to be granted.
    """
    written = next(each for each in roles_of(settings) if each.name == role)
    found = await held(settings, replace(written, session=()), catalog, database)
    served = replace(found.served, session=written.session)
    library = await library_of(settings, catalog, database)
    queries = [query for query in library.queries if served.may_call(query.name)]
    reads = {read for query in queries for read in query.reads or ()}
    untold = [
        Finding(
            code="unknown_reads", message=f"query {query.name}: what it reads is not told.", level="warning"
        )
        for query in queries
        if query.reads is None
    ]
    untold += [
        Finding(
            code="unknown_reads",
            message=f"query {query.name}: what the function {name} reads is not told.",
            level="warning",
        )
        for query in queries
        for name in query.functions
    ]
    return await database.grants(catalog, served, reads, login), (*found.findings, *untold)
