"""Validate permitted queries against a database. Queries in; Permitted and findings out."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from dbtools import errors
from dbtools.backends.port import NOT_READING, Backend, Declared, Facts, Inspected, Inspector
from dbtools.backends.runs import NO_SESSION
from dbtools.configured.claims import declared_cast, untyped_claims
from dbtools.configured.query_sources import LoadedQueries, queries_in, read_files, registered_in
from dbtools.findings import Finding, FindingCode, Kind, Unusable, finding, withdrawn
from dbtools.policy.roles import QueryGrant, Role
from dbtools.queries import Effect, Effects, Permitted, Query, texts_of
from dbtools.queries.headers import values_in
from dbtools.schema.catalog import Catalog, Column
from dbtools.schema.sql import CLAIMS, Parameter
from dbtools.settings.sections import Settings
from dbtools.tools import define
from dbtools.tools.definition import ToolContext
from dbtools.tools.queries.tool import NAMES
from dbtools.values.types import ColumnType


class Inspectors(AsyncExitStack):
    """The Inspectors of a database for operators' SQL, each opened at its first use."""

    def __init__(self, backend: Backend, session: Mapping[str, str] = NO_SESSION) -> None:
        super().__init__()
        self.backend = backend
        self._session = session
        self._reading: Inspector | None = None
        self._changing: Inspector | None = None

    async def reading_inspector(self) -> Inspector:
        """Return the Inspector for conditions and for queries that only read."""
        if self._reading is None:
            self._reading = await self.enter_async_context(self.backend.describe(self._session))
        return self._reading

    async def of(self, query: Query) -> Inspector:
        """Return the Inspector for *query*, or raise Unusable if its login is unreachable."""
        if query.writes is None:
            return await self.reading_inspector()
        if self._changing is None:
            try:
                opened = self.backend.describe_changes(self._session)
                self._changing = await self.enter_async_context(opened)
            except errors.Refused as exc:
                raise Unusable(Kind.QUERY_REFUSED, query.source, problem=exc) from exc
            except errors.DatabaseUnavailable as exc:
                raise Unusable(Kind.QUERY_UNREACHABLE, query.source, problem=exc) from exc
        return self._changing


@dataclass(frozen=True, kw_only=True)
class Library:
    """The valid queries, and findings about the others."""

    queries: tuple[Permitted, ...] = ()
    findings: tuple[Finding, ...] = ()
    known: tuple[str, ...] = ()  #: names of all, including withdrawn ones
    registry: Hashable = None  #: the content of the registry


async def library_of(
    settings: Settings,
    catalog: Catalog,
    inspectors: Inspectors,
    *,
    written: LoadedQueries | None = None,
) -> Library:
    """Return the queries of *settings* that the database accepts, from files and the registry.

    *written*: the queries in files, if they have been read already.
    """
    written = queries_in(settings, inspectors.backend.facts.lexis) if written is None else written
    kept = await registered_in(settings, written.sources, inspectors.backend)
    queries = sorted((*written.queries, *kept.queries), key=lambda query: query.name)
    allowed = [query for query in queries if query.writes is None or may_change(settings)]
    library = await validated_queries(settings, catalog, inspectors, allowed)
    refused = [
        finding(Kind.NOT_WRITABLE, query.source, subject=query.name)
        for query in queries
        if query not in allowed
    ]
    findings = sorted(
        (*written.findings, *kept.findings, *library.findings, *refused), key=lambda each: each.place
    )
    return replace(library, findings=tuple(findings), registry=kept.stamp)


def may_change(settings: Settings) -> bool:
    """Return whether *settings* let callers run queries that write, if a role is granted some."""
    return bool(settings.roles) or settings.database.writable


async def validated_queries(
    settings: Settings, catalog: Catalog, inspectors: Inspectors, queries: Sequence[Query]
) -> Library:
    """Return those of *queries* that the database accepts, and findings about the others.

    A query must not have the name of a tool of *catalog*.
    """
    if not queries:
        return Library()
    findings: list[Finding] = []
    permitted: list[Permitted] = []
    taken = {*define(ToolContext(catalog=catalog)), *NAMES}
    for query in queries:
        if query.name in taken:
            findings.append(finding(Kind.NAME_OF_TOOL, query.source, subject=query.name))
            continue
        try:
            inspector = await inspectors.of(query)
            permitted.append(await _permitted_query(settings, query, inspectors.backend.facts, inspector))
        except Unusable as exc:
            findings.append(withdrawn(exc.finding, query.name, exc.finding.source))
    known = tuple(query.name for query in queries)
    return Library(queries=tuple(permitted), findings=tuple(findings), known=known)


async def _permitted_query(settings: Settings, query: Query, facts: Facts, inspector: Inspector) -> Permitted:
    """Return *query* with what the database reports about its variants, or raise Unusable."""
    found = [await inspect_variant(query, present, inspector) for present in query.body.variants()]
    shown = [[(column.name, column.type.name) for column in each.columns] for each in found]
    if any(columns != shown[0] for columns in shown[1:]):
        raise Unusable(Kind.COLUMNS_DEPEND, query.sql_source)
    if query.confirm and not found[0].columns:
        raise Unusable(Kind.CONFIRM_WITHOUT_RETURNING, query.source)
    types = {name: type for each in found for name, type in each.parameters.items()}
    _check_values(query, types)
    casts = {name: cast for each in found for name, cast in each.casts.items()}
    reads = [each.reads for each in found]
    return Permitted(
        query=query,
        columns=_columns(found),
        types=types,
        casts={**casts, **_claim_casts(settings, query, facts)},
        reads=None if None in reads else frozenset(read for each in reads for read in each or ()),
        versions=tuple(dict.fromkeys(version for each in found for version in each.versions)),
        functions=tuple(dict.fromkeys(name for each in found for name in each.functions)),
        effects=_effects([each.effects for each in found if each.effects is not None]),
    )


def _effects(found: Sequence[Effects]) -> Effects | None:
    """Return what all variants of a query may change."""
    if not found:
        return None
    return Effects(
        target=found[0].target,
        changes=frozenset[Effect]().union(*(each.changes for each in found)),
        functions=tuple(dict.fromkeys(name for each in found for name in each.functions)),
    )


async def inspect_variant(query: Query, present: Collection[str], inspector: Inspector) -> Inspected:
    """Return what the database reports about the variant of *query* for *present*, or raise Unusable."""
    declared = {each.name: Declared(type=each.type.name, array=each.array) for each in query.parameters}
    try:
        return await inspector.query(query.body.variant(present).pieces, declared)
    except errors.Refused as exc:
        kind = Kind.QUERY_UNCHECKED if exc.temporary else Kind.QUERY_REFUSED
        if exc.message == NOT_READING and query.writes is None:
            kind = Kind.QUERY_CHANGES_ROWS
        raise Unusable(kind, query.source_of(present, exc.offset), problem=exc) from exc


def _check_values(query: Query, types: Mapping[str, ColumnType]) -> None:
    """Raise Unusable if *query* declares a value that its type does not have."""
    for parameter in query.parameters:
        type = types[parameter.name]
        for keyword, text in values_in(parameter):
            try:
                (type.element or type).decode(text)
            except errors.BadValue as exc:
                raise Unusable(
                    Kind.VALUE_OF_OTHER_TYPE,
                    parameter.source,
                    parameter=parameter.name,
                    keyword=keyword,
                    type=type.name,
                    problem=exc,
                ) from exc


def _claim_casts(settings: Settings, query: Query, facts: Facts) -> Mapping[str, str]:
    """Return the casts of the claims of *query* by parameter, unless the database gives them types."""
    if facts.claim_casts is None:
        return {}
    fixed = query.body.variant(())  # no clause has a claim
    for claim in untyped_claims(settings, fixed, facts.lexis):
        place = query.source_of((), fixed.offset_of(Parameter(f"{CLAIMS}.{claim}")))
        raise Unusable(Kind.UNTYPED_CLAIM_OF_QUERY, place, claim=claim)
    claims = (each for each in fixed.parameters if each.claim is not None)
    return {each.name: declared_cast(settings, each.claim, facts.claim_casts) for each in claims}


def _columns(found: Sequence[Inspected]) -> tuple[Column, ...]:
    """Return the columns of all variants; a column is lenient if it is in any variant."""
    return tuple(
        next((column for column in columns if column.type.lenient), columns[0])
        for columns in zip(*(each.columns for each in found), strict=True)
    )


async def working_queries(
    role: Role, inspectors: Inspectors, queries: Sequence[Permitted]
) -> tuple[tuple[QueryGrant, ...] | None, tuple[Finding, ...]]:
    """Return the grants of *role* for *queries* that work in its session, and findings about the others."""
    if not role.queries:
        return role.queries, ()
    findings: list[Finding] = []
    working: list[QueryGrant] = []
    for permitted in queries:
        grant = next((each for each in role.queries if each.means(permitted.name)), None)
        if grant is None:
            continue
        try:
            for present in permitted.query.body.variants():
                await inspect_variant(permitted.query, present, await inspectors.of(permitted.query))
        except Unusable as exc:
            findings.append(withdrawn(exc.finding, permitted.name, grant.source, role.name))
            if exc.finding.code is not FindingCode.UNCHECKED:
                continue
        working.append(replace(grant, pattern=permitted.name))
    return tuple(working), tuple(findings)


async def candidates(
    settings: Settings, backend: Backend, files: Sequence[Path]
) -> tuple[Mapping[str, str], tuple[Finding, ...]]:
    """Return the texts of the queries in *files*, by name, or no texts and findings if any is invalid.

    The live database validates each query. Each text could be a separate file.
    """
    catalog = await backend.introspect(settings.selection())
    written = read_files({str(path): path for path in files}, backend.facts.lexis)
    async with Inspectors(backend) as inspectors:
        library = await validated_queries(settings, catalog, inspectors, written.queries)
    findings = (*written.findings, *library.findings)
    found = (texts_of(path.read_text("utf-8"), str(path)) for path in (() if findings else files))
    return {name: text for texts in found for name, text in texts.items()}, findings
