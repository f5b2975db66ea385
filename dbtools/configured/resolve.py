"""Apply a configuration to a live database. Settings and a backend in, a Resolved out.

Serving, `check`, `explain` and `grants` all start from it. What is invalid is withheld and reported.
"""

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import anyio

from dbtools import errors
from dbtools.backends.free import FreeOffer
from dbtools.backends.port import Backend, Facts
from dbtools.catalog import Catalog, Location, RowFilter, Table
from dbtools.configured.declarations import declared, secret_findings
from dbtools.configured.permitted import (
    UNCHECKED,
    UNREACHABLE,
    Inspectors,
    Library,
    inspected,
    library_of,
)
from dbtools.configured.privileges import (
    hindrance_findings,
    offered,
    posture_findings,
    row_security_findings,
    sql_findings,
    writable_findings,
)
from dbtools.configured.query_sources import NO_REGISTRY, LoadedQueries
from dbtools.configured.roles import Unusable, declared_cast, roles_of, token_findings, untyped
from dbtools.errors import listing
from dbtools.policy import Finding, QueryGrant, Role, Rule, Source, restriction_of
from dbtools.queries import Permitted
from dbtools.settings.sections import Settings
from dbtools.sql import Fragment, Parameter
from dbtools.types import Family
from dbtools.vetting import KnownNames, is_total, vetted, withheld_findings
from dbtools.writes import Lacking, confirmed_tables, unable

BAD_FILTER = "bad_filter"
LACKING, NO_JOURNAL = "lacks_privilege", "no_journal"
UNREAD = (NO_REGISTRY, "error")  #: code and level of a registry that cannot be read


@dataclass(frozen=True, kw_only=True)
class ResolvedRole:
    """A role as configured, and the valid part of it that is served."""

    written: Role
    served: Role  #: without what is invalid
    whole: Catalog = field(repr=False)  #: what the database lets the role see
    catalog: Catalog = field(repr=False)  #: the part of it that the role is granted
    views: tuple[Table, ...] = field(default=(), repr=False)  #: that its patterns do not grant
    journal: bool | None = False  #: whether its writes can use the journal; None: not known so far
    findings: tuple[Finding, ...] = ()
    dialect: str = ""  #: of the SQL that callers may run; empty: they may not


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Everything that is served, and what is wrong with it."""

    catalog: Catalog = field(repr=False)
    roles: tuple[ResolvedRole, ...]
    library: Library = field(default_factory=Library)
    findings: tuple[Finding, ...] = ()  #: about neither a role nor a query
    settings: Settings = field(default_factory=Settings, repr=False)
    stamps: Mapping[str, Hashable] = field(default_factory=dict)  #: of its sources, by name

    @property
    def unchecked(self) -> str:
        """Why something cannot be checked at this moment, or nothing."""
        return next((each.message for each in self.problems if each.code == UNCHECKED), "")

    @property
    def is_complete(self) -> bool:
        """Whether everything could be checked."""
        return all(each.code not in (UNCHECKED, UNREACHABLE) for each in self.problems)

    @property
    def missing(self) -> tuple[str, ...]:
        """Why queries may be missing, if the registry cannot be read."""
        return tuple(str(each) for each in self.library.findings if (each.code, each.level) == UNREAD)

    @cached_property
    def problems(self) -> tuple[Finding, ...]:
        """All that was found."""
        of_roles = (finding for role in self.roles for finding in role.findings)
        return (*self.findings, *of_roles, *self.library.findings)


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
    catalog, declared_findings = declared(catalog, settings, backend.facts.alike)
    resolved: list[ResolvedRole] = []
    offers: dict[Hashable, FreeOffer] = {}
    async with Inspectors(backend) as inspectors:
        library = await library_of(settings, catalog, inspectors, written=written)
        for role in roles:
            found = await _role(settings, role, catalog, inspectors, library.queries)
            seen, whole = found.catalog, found.whole
            dialect, findings = await offered(settings, found.served, seen, whole, backend, offers)
            resolved.append(replace(found, dialect=dialect, findings=(*found.findings, *findings)))
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


def _catalog_findings(settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    """Yield the warnings of *catalog*, and which tables it lacks because the login may not select them."""
    for warning in catalog.warnings:
        key = re.match(r"\[database\] (\w+):", warning)
        source = settings.source("database", *([key[1]] if key else []))
        yield Finding(code="catalog", message=warning, level="warning", source=source)
    places = [place for place in sorted(catalog.unreadable) if catalog.table(*place) is None]
    # With roles, such tables are reported with the rules that name them.
    if places and not settings.roles:
        message = f"The login may not select from {listing([f'{schema}.{name}' for schema, name in places])}."
        yield Finding(code="catalog", message=message, level="warning", source=settings.source("database"))


async def _role(
    settings: Settings,
    role: Role,
    catalog: Catalog,
    inspectors: Inspectors,
    queries: Sequence[Permitted],
) -> ResolvedRole:
    """Return *role* validated against the database, without what is invalid."""
    if not role.session:
        return await _validated(settings, role, catalog, inspectors)
    backend = inspectors.backend
    # The values of claims are not known yet, but the database can check that the settings exist.
    session = {setting.name: setting.value for setting in role.session}
    try:
        found = await backend.introspect(settings.selection(), session)
        seen, _ = declared(found, settings, backend.facts.alike)
    except errors.Refused as exc:
        message = f"role {role.name}, set_role and settings: {exc.message}"
        finding = Finding(code="bad_session", message=message, source=role.session[-1].source)
        blind = replace(role, rules=(), queries=())
        return seen_by(blind, catalog, written=role, findings=(*role.problems, finding))
    async with Inspectors(backend, session) as inspectors:
        resolved = await _validated(settings, role, seen, inspectors)
        return await _with_working_queries(resolved, inspectors, queries)


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


async def _validated(settings: Settings, role: Role, whole: Catalog, inspectors: Inspectors) -> ResolvedRole:
    served, findings = vetted(whole, role)
    findings = (*role.problems, *findings)
    filters = _Filters(settings=settings, role=served, catalog=whole, inspectors=inspectors)
    rules: list[Rule] = []
    ruled = [(table, served.rule_of(whole, table)) for table in whole.tables]
    for rule in served.rules or ():
        grant, tables = rule.grant, [table for table, applied in ruled if applied == rule]
        writes, changed = grant.writes if grant else None, [table for table in tables if table.identity]
        try:
            if grant and grant.filter and tables:
                grant = replace(grant, filter=await filters.typed(rule, "where", grant.filter, tables))
        except Unusable as exc:
            grant, writes, findings = None, None, (*findings, exc.finding)
        try:
            if writes and writes.check and changed:
                check = await filters.typed(rule, "check", writes.check, changed)
                writes = replace(writes, check=check)
            if writes and writes.after and changed:
                after = await filters.typed(rule, "after", writes.after, changed)
                writes = replace(writes, after=after)
        except Unusable as exc:
            writes, findings = None, (*findings, exc.finding)
        rules.append(replace(rule, grant=grant and replace(grant, writes=writes)))
    if served.rules is not None:
        served = replace(served, rules=tuple(rules))
    return await anyio.to_thread.run_sync(lambda: seen_by(served, whole, written=role, findings=findings))


@dataclass(frozen=True, kw_only=True)
class _Filters:
    """Checks the row filters of one role against the database."""

    settings: Settings
    role: Role
    catalog: Catalog
    inspectors: Inspectors

    async def typed(self, rule: Rule, key: str, filter: RowFilter, tables: Sequence[Table]) -> RowFilter:
        """Return *filter*, the *key* of *rule* for *tables*, with the types of its claims.

        Raise Unusable if the database does not accept it.
        """
        facts, condition = self.inspectors.backend.facts, filter.condition
        where = f"role {self.role.name}, tables.{rule.pattern}.{key}"
        found: list[RowFilter] = []
        inspector = await self.inspectors.reading()
        for table in tables:
            try:
                found.append(await inspector.condition(table, condition))
            except errors.Refused as exc:
                code = UNCHECKED if exc.temporary else BAD_FILTER
                message = f"{where}, of {self.catalog.label(table)}: {exc}"
                raise Unusable(code, message, rule.source) from exc
        if len({each.casts for each in found}) > 1:
            message = f"{where}: its claims have different types in its tables."
            raise Unusable(BAD_FILTER, message, rule.source)
        known = found[0].casts
        if facts.claim_casts is not None:
            for problem in untyped(self.settings, condition, facts.lexis).values():
                raise Unusable("untyped_claim", f"{where}: {problem}", rule.source)
            claims = (each.claim for each in condition.pieces if isinstance(each, Parameter))
            known = tuple(declared_cast(self.settings, claim, facts.claim_casts) for claim in claims)
        total = is_total(condition, facts.lexis, self._names(condition, facts))
        # Of several versions of the names, the oldest one was read before each table was checked.
        return replace(found[0], casts=known, total=total)

    @cached_property
    def _columns(self) -> Mapping[str, set[tuple[Family, bool]]]:
        """The families of columns by name, each with whether its values can be compared."""
        columns: dict[str, set[tuple[Family, bool]]] = {}
        for table in self.catalog.tables:
            for column in table.columns:
                found = columns.setdefault(column.name.lower(), set())
                found.add((column.type.family, column.type.comparable))
        return columns

    def _names(self, condition: Fragment, facts: Facts) -> KnownNames:
        raising = set(self.catalog.raising)
        if not facts.lexis.lenient:
            text = condition.text.lower()
            named = [(name, *each) for name, found in self._columns.items() if name in text for each in found]
            families = {family for _, family, _ in named}
            # The database casts one of two types to the other, which may be too small for the value.
            large = {family for family, others in facts.implicit_casts.items() if families & others}
            raising |= {name for name, family, comparable in named if family in large or not comparable}
        return KnownNames(
            columns=frozenset(self._columns),
            tables=frozenset(table.name.lower() for table in self.catalog.tables),
            raising=frozenset(raising),
        )


async def _with_working_queries(
    resolved: ResolvedRole, inspectors: Inspectors, queries: Sequence[Permitted]
) -> ResolvedRole:
    """Return *resolved* with those granted *queries* that work in its session."""
    granted = resolved.served.queries
    if not granted:
        return resolved
    findings: list[Finding] = []
    working: list[QueryGrant] = []
    for permitted in queries:
        grant = next((each for each in granted if each.means(permitted.name)), None)
        if grant is None:
            continue
        try:
            for present in permitted.query.body.variants():
                await inspected(permitted.query, present, await inspectors.of(permitted.query))
        except Unusable as exc:
            role, name = resolved.served.name, permitted.name
            message = f"role {role}, queries: {name} is withdrawn: {exc}"
            found = replace(exc.finding, message=message, source=grant.source, role=role, subject=name)
            findings.append(found)
            if found.code != UNCHECKED:
                continue
        working.append(replace(grant, pattern=permitted.name))
    served = replace(resolved.served, queries=tuple(working))
    return replace(resolved, served=served, findings=(*resolved.findings, *findings))


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
        found = (
            *_lacking(settings, role, tables, lacking.tables),
            *hindrance_findings(settings, role.catalog, lacking.hindered),
        )
        journal = not lacking.journal
    except (errors.DatabaseUnavailable, errors.Refused) as exc:
        # A login that cannot be reached now may make the changes later.
        if isinstance(exc, errors.Refused) and not exc.temporary:
            lacking = Lacking({table.location: exc.message for table in tables})
        message = f"The privileges of the login that changes rows cannot be checked: {exc}"
        found = (Finding(code=LACKING, message=message, source=settings.source("database", "write_url")),)
    lost = lacking.tables
    kept = (unable(each) if each.location in lost else each for each in role.catalog.tables)
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
