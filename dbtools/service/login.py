"""What the login of the database can do, held against what it is for. Settings and a Catalog in."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from dbtools import errors
from dbtools.backends.port import Backend
from dbtools.catalog import Catalog
from dbtools.errors import listing
from dbtools.policy import Finding
from dbtools.queries.permitted import Permitted
from dbtools.service.library import library_of
from dbtools.service.roles import held, roles_of
from dbtools.settings.sections import Settings

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
    settings: Settings, catalog: Catalog, backend: Backend, names: Collection[str], login: str
) -> tuple[str, tuple[Finding, ...]]:
    """Return the script for a *login* that reads what the roles *names* read, and what is wrong with them.

    They are held against all that this login sees: what a role may see by itself is still to be granted.
    """
    written = [each for each in roles_of(settings, backend.facts.lexis) if each.name in names]
    found = [await held(settings, replace(each, session=()), catalog, backend) for each in written]
    served = [replace(each.served, session=role.session) for each, role in zip(found, written, strict=True)]
    library = await library_of(settings, catalog, backend)
    queries = [query for query in library.queries if any(role.may_call(query.name) for role in served)]
    reads = {read for query in queries for read in query.reads or ()}
    findings = dict.fromkeys(finding for each in found for finding in each.findings)
    script = await backend.grants(catalog, served, reads, login)
    return script, (*findings, *_untold(queries))


def _untold(queries: Sequence[Permitted]) -> Iterator[Finding]:
    """Yield where the database does not tell what *queries* read."""
    for query in queries:
        whats = [f"the function {name}" for name in query.functions]
        for what in whats if query.reads is not None else ["it", *whats]:
            message = f"query {query.name}: what {what} reads is not told."
            yield Finding(code="unknown_reads", message=message, level="warning")
