"""Apply a configuration to a live database. Settings and a backend in, a Resolved out.

Serving, `check`, `explain` and `grants` all start from it. What is invalid is withheld and reported.
The package says which module has which stage.
"""

import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

import anyio

from dbtools import errors
from dbtools.backends.port import Backend
from dbtools.backends.run_sql import SqlOffer
from dbtools.configured.declarations import secret_findings, with_declarations
from dbtools.configured.filters import with_typed_filters
from dbtools.configured.permitted import Inspectors, library_of, working_queries
from dbtools.configured.privileges import (
    offered_server,
    posture_findings,
    role_with_privileges,
    row_security_findings,
    sql_findings,
    writable_findings,
)
from dbtools.configured.query_sources import LoadedQueries
from dbtools.configured.resolved import Resolved, ResolvedRole
from dbtools.configured.roles import roles_of, token_findings
from dbtools.configured.rules import with_valid_rules, withheld_findings
from dbtools.errors import listing
from dbtools.findings import Finding, Kind, finding
from dbtools.policy.roles import Role, restriction_of
from dbtools.queries import Permitted
from dbtools.schema.catalog import Catalog
from dbtools.settings.sections import Settings


async def resolve(
    settings: Settings,
    catalog: Catalog,
    backend: Backend,
    *,
    roles: Sequence[Role] | None = None,
    written: LoadedQueries | None = None,
) -> Resolved:
    """Return what *settings* serve of the database behind *backend*, which has *catalog*.

    *roles*: by default all; *written*: the queries in files, if they have been read already.
    """
    roles = roles_of(settings, backend.facts.lexis) if roles is None else roles
    catalog, declared_findings = with_declarations(catalog, settings, backend.facts.alike)
    offers: dict[Hashable, SqlOffer] = {}
    async with Inspectors(backend) as inspectors:
        library = await library_of(settings, catalog, inspectors, written=written)
        resolved = [await _role(settings, role, catalog, inspectors, library.queries) for role in roles]
        resolved = [await _with_sql(settings, each, backend, offers) for each in resolved]
    views = [(each.served, each.catalog) for each in resolved]
    writes = any(role.may_write for role in roles) or any(each.effects for each in library.queries)
    return Resolved(
        catalog=catalog,
        roles=tuple(resolved),
        library=library,
        findings=(
            *_catalog_findings(settings, catalog),
            *declared_findings,
            *token_findings(settings),
            *posture_findings(settings, catalog, writes=writes),
            *writable_findings(settings),
            *sql_findings(settings),
            *secret_findings([catalog for _, catalog in views]),
            *row_security_findings(settings, views),
        ),
        settings=settings,
    )


async def with_write_privileges(resolved: Resolved, backend: Backend) -> Resolved:
    """Return *resolved* without the writes that the login lacks a privilege for."""
    queries = resolved.library.queries
    roles = [await role_with_privileges(resolved.settings, each, backend, queries) for each in resolved.roles]
    return replace(resolved, roles=tuple(roles))


async def _role(
    settings: Settings,
    role: Role,
    catalog: Catalog,
    inspectors: Inspectors,
    queries: Sequence[Permitted],
) -> ResolvedRole:
    """Return *role* validated against the database, without what is invalid."""
    if not role.session:
        return await _validate_role(settings, role, catalog, inspectors)
    backend = inspectors.backend
    # The values of claims are not known yet, but the database can check that the settings exist.
    session = {setting.name: setting.value for setting in role.session}
    try:
        found = await backend.introspect(settings.selection(), session)
        seen, _ = with_declarations(found, settings, backend.facts.alike)
    except errors.Refused as exc:
        source = role.session[-1].source
        refused = finding(Kind.BAD_ROLE_SESSION, source, role=role.name, problem=exc.message)
        blind = replace(role, rules=(), queries=())
        return seen_by(blind, catalog, written=role, findings=(*role.problems, refused))
    async with Inspectors(backend, session) as inspectors:
        resolved = await _validate_role(settings, role, seen, inspectors)
        grants, findings = await working_queries(resolved.served, inspectors, queries)
        served = replace(resolved.served, queries=grants)
        return replace(resolved, served=served, findings=(*resolved.findings, *findings))


async def _validate_role(
    settings: Settings, role: Role, whole: Catalog, inspectors: Inspectors
) -> ResolvedRole:
    """Return what *role* sees of *whole* by those of its rules that are valid."""
    valid, rule_findings = with_valid_rules(whole, role)
    served, filter_findings = await with_typed_filters(settings, valid, whole, inspectors)
    findings = (*role.problems, *rule_findings, *filter_findings)
    return await anyio.to_thread.run_sync(lambda: seen_by(served, whole, written=role, findings=findings))


def seen_by(
    role: Role, whole: Catalog, *, written: Role | None = None, findings: Sequence[Finding] = ()
) -> ResolvedRole:
    """Return what *role* sees of *whole*, with *findings* and those about what is withheld."""
    seen = restriction_of(whole, role)
    found = (*findings, *withheld_findings(whole, role, seen))
    return ResolvedRole(
        written=role if written is None else written,
        served=role,
        whole=whole,
        catalog=seen.catalog,
        views=seen.views,
        findings=tuple(replace(each, role=role.name) for each in found),
    )


async def _with_sql(
    settings: Settings, role: ResolvedRole, backend: Backend, offers: dict[Hashable, SqlOffer]
) -> ResolvedRole:
    """Return *role* with the server whose SQL it may run, or why it may run none."""
    server, findings = await offered_server(settings, role.served, role.catalog, role.whole, backend, offers)
    return replace(role, server=server, findings=(*role.findings, *findings))


def _catalog_findings(settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    """Yield the warnings of *catalog*, and which tables it lacks because the login may not select them."""
    for problem in catalog.warnings:
        key = re.match(r"\[database\] (\w+):", problem)
        source = settings.source("database", *([key[1]] if key else []))
        yield finding(Kind.CATALOG_WARNING, source, problem=problem)
    places = [place for place in sorted(catalog.unreadable) if catalog.table(*place) is None]
    # With roles, such tables are reported with the rules that name them.
    if places and not settings.roles:
        tables = listing([f"{schema}.{name}" for schema, name in places])
        yield finding(Kind.NOT_SELECTABLE, settings.source("database"), tables=tables)
