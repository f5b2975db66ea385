"""The permitted queries of a configuration: files and a registry in, queries that the database knows out."""

import os
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dbtools import errors
from dbtools.backends.port import Backend, Declared, Describe, Facts, Inspected
from dbtools.catalog import Catalog, Column, Selection
from dbtools.errors import listing
from dbtools.policy import Finding, QueryGrant, Role, Source
from dbtools.queries import Query, read_queries, sources_of
from dbtools.queries.declarations import values_in
from dbtools.queries.permitted import Permitted
from dbtools.service.reads import left_out
from dbtools.service.registered import registered_in
from dbtools.service.roles import Held, held, tried
from dbtools.settings.claims import declared_casts, untyped
from dbtools.settings.sections import Settings, file_error
from dbtools.sql import CLAIMS, Lexis, Parameter
from dbtools.tools import Setting, define
from dbtools.tools.permitted_queries import NAMES
from dbtools.types import ColumnType, quoted

WITHDRAWN = "withdrawn"  #: the code of a query that does not work
MOST_FILES = 10_000  #: in the folder of queries and below it: a server looks through all of them each second
UNCHECKED = "unchecked"  #: of one that cannot be looked at now, and may work in a moment


@dataclass(frozen=True, kw_only=True)
class Library:
    """The queries that can be called, and what is wrong with the others."""

    queries: tuple[Permitted, ...] = ()
    findings: tuple[Finding, ...] = ()
    known: tuple[str, ...] = ()  #: names of all, those that are withdrawn too
    registry: Hashable = None  #: what the registry held


@dataclass(frozen=True, kw_only=True)
class Written:
    """What files of queries have."""

    queries: tuple[Query, ...] = ()
    findings: tuple[Finding, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)  #: by name, of those that cannot be used too


def queries_in(settings: Settings, lexis: Lexis) -> Written:
    """Return the queries in the folder of *settings*, by name, and what is wrong with its files.

    Raise ConfigurationError where there is too much in it.
    """
    if not settings.queries.directory:
        return Written()
    folder = Path(settings.queries.directory)
    if not os.path.isdir(folder):
        message = f"[queries] directory: there is no folder {quoted(str(folder), 200)}."
        source = settings.source("queries", "directory")
        return Written(findings=(Finding(code="no_queries", message=message, source=source),))
    try:
        files = query_files(folder)
    except errors.ConfigurationError as exc:
        raise file_error(settings.source("queries", "directory"), f"[queries] directory: {exc}") from exc
    shown = settings.shown(folder)
    paths = {(shown / path.relative_to(folder)).as_posix(): path for path in files}
    return read_files(paths, lexis)


def query_files(folder: Path) -> Sequence[Path]:
    """Return the files of queries in *folder* and below it; those whose names end in .SQL are such, too.

    Raise ConfigurationError where there is too much to look through.
    """
    found: list[Path] = []
    count = 0
    for parent, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > MOST_FILES:
            raise errors.ConfigurationError(f"more than {MOST_FILES} files and folders are in it.")
        found += [Path(parent, name) for name in files]
    # Path.is_file raises an error where a folder may not be entered (Python 3.11).
    return sorted(path for path in found if path.suffix.lower() == ".sql" and os.path.isfile(path))


def read_files(paths: Mapping[str, Path], lexis: Lexis) -> Written:
    """Return the queries in *paths*, which are shown as their keys, by name; and what is wrong with these."""
    queries: dict[str, Query] = {}
    findings: list[Finding] = []
    sources: dict[str, Source] = {}
    for name, path in paths.items():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            message = "the file cannot be read as text in UTF-8."
            source = Source(file=name, line=1)
            findings.append(Finding(code="bad_query", message=message, source=source))
            sources.setdefault(path.stem, source)
            continue
        found, problems = read_queries(text, name, lexis)
        findings += problems
        sources = {**sources_of(text, name, lexis), **sources}
        for query in found:
            if query.name in queries:
                findings.append(_twice(query, queries[query.name]))
            queries.setdefault(query.name, query)
    return Written(
        queries=tuple(queries[name] for name in sorted(queries)), findings=tuple(findings), sources=sources
    )


def _twice(query: Query, other: Query) -> Finding:
    message = f"query {query.name}: there is one of this name at {str(other.source).rstrip(': ')}."
    return Finding(code="bad_query", message=message, source=query.source, subject=query.name)


async def library_of(
    settings: Settings,
    catalog: Catalog,
    backend: Backend,
    *,
    written: Written | None = None,
    before: Library | None = None,
) -> Library:
    """Return the queries of *settings* that *database* understands; the others are withdrawn, and told.

    Those that are *written* in files, where they have been read; those that cannot be looked at now are as
    they were *before*.
    """
    written = queries_in(settings, backend.facts.lexis) if written is None else written
    kept = await registered_in(settings, written.sources, backend)
    queries = sorted((*written.queries, *kept.queries), key=lambda query: query.name)
    library = await held_against(settings, catalog, backend, queries, before)
    trusted = {query.name for query in (*written.queries, *(kept.queries if settings.registry.url else ()))}
    served, left = _without_left_out(settings, catalog, library, trusted)
    findings = sorted((*written.findings, *kept.findings, *library.findings, *left), key=_place)
    return replace(library, queries=served, findings=tuple(findings), registry=kept.stamp)


def _without_left_out(
    settings: Settings, catalog: Catalog, library: Library, trusted: Collection[str]
) -> tuple[tuple[Permitted, ...], tuple[Finding, ...]]:
    """Return the queries that may be served where [database] leaves tables out and there are no roles.

    Whoever writes to a registry that nobody has named may not read these: only what is *trusted* may.
    """
    if settings.roles or settings.selection() == Selection():
        return library.queries, ()
    served: list[Permitted] = []
    findings: list[Finding] = []
    for permitted in library.queries:
        reads = list(left_out(permitted, catalog))
        problem = f"{listing(reads)}, and [database] leaves tables out"
        if reads and permitted.name not in trusted:
            message = (
                f"query {permitted.name} is withdrawn: It reads {problem}. [registry] url trusts a registry."
            )
            source, name = permitted.query.source, permitted.name
            findings.append(Finding(code=WITHDRAWN, message=message, source=source, subject=name))
            continue
        if reads:
            message = f"query {permitted.name} reads {problem}."
            source = permitted.query.source
            findings.append(Finding(code="reads_hidden", message=message, level="warning", source=source))
        served.append(permitted)
    return tuple(served), tuple(findings)


async def held_against(
    settings: Settings,
    catalog: Catalog,
    backend: Backend,
    queries: Sequence[Query],
    before: Library | None = None,
) -> Library:
    """Return those of *queries* that *database* understands, and why it does not the others.

    Whatever the tools of *catalog* are called, no query is.
    """
    if not queries:
        return Library()
    findings: list[Finding] = []
    permitted: list[Permitted] = []
    taken = {*define(Setting(catalog=catalog)), *NAMES}
    kept = before.queries if before is not None else ()
    async with backend.describe() as describe:
        for query in queries:
            if query.name in taken:
                message = f"query {query.name}: a tool has this name already."
                source, name = query.source, query.name
                findings.append(Finding(code="bad_query", message=message, source=source, subject=name))
                continue
            try:
                permitted.append(await _permitted(settings, query, backend, describe))
            except _Withdrawn as exc:
                message = f"query {query.name} is withdrawn: {exc}"
                source, name = exc.source, query.name
                findings.append(Finding(code=exc.code, message=message, source=source, subject=name))
                permitted += [each for each in kept if each.query == query and exc.code == UNCHECKED]
    known = tuple(query.name for query in queries)
    return Library(queries=tuple(permitted), findings=tuple(findings), known=known)


def _place(finding: Finding) -> tuple[str, int]:
    return finding.source.file, finding.source.line or 0


class _Withdrawn(Exception):
    """A query cannot be served, and where in its file that shows."""

    def __init__(self, problem: object, source: Source) -> None:
        super().__init__(str(problem))
        self.source = source
        self.code = UNCHECKED if isinstance(problem, errors.Refused) and problem.passes else WITHDRAWN


async def _permitted(settings: Settings, query: Query, backend: Backend, describe: Describe) -> Permitted:
    """Return *query* with what the database says of its variants, or raise _Withdrawn."""
    found = [await _inspected(query, present, describe) for present in query.body.variants()]
    shown = [[(column.name, column.type.name) for column in each.columns] for each in found]
    if any(columns != shown[0] for columns in shown[1:]):
        problem = "Its columns are not the same with all of its clauses and with none."
        raise _Withdrawn(problem, query.sql_source)
    types = {name: type for each in found for name, type in each.parameters.items()}
    _check_values(query, types)
    casts = {name: cast for each in found for name, cast in each.casts.items()}
    reads = [each.reads for each in found]
    return Permitted(
        query=query,
        columns=_columns(found),
        types=types,
        # Of a database whose values alone have types, as of all others that have nothing to cast.
        casts=casts if backend.facts.claim_casts is None else _declared(settings, query, backend.facts),
        reads=None if None in reads else frozenset(read for each in reads for read in each or ()),
        versions=tuple(dict.fromkeys(version for each in found for version in each.versions)),
        functions=tuple(dict.fromkeys(name for each in found for name in each.functions)),
    )


async def _inspected(query: Query, present: Collection[str], describe: Describe) -> Inspected:
    """Return what the database says of the variant of *query* for *present*, or raise _Withdrawn."""
    variant = query.body.written(present)
    names = {parameter.name for parameter in variant.parameters}
    declared = {
        each.name: Declared(type=str(each.type), array=each.array)
        for each in query.parameters
        if each.name in names
    }
    try:
        return await describe.query(variant.pieces, declared)
    except errors.Refused as exc:
        raise _Withdrawn(exc, query.source_of(present, exc.offset)) from exc


def _check_values(query: Query, types: Mapping[str, ColumnType]) -> None:
    """Raise _Withdrawn where *query* declares a value that the type in *types* does not have."""
    for parameter in query.parameters:
        type = types[parameter.name]
        for keyword, text in values_in(parameter):
            try:
                (type.element or type).decode(text)
            except errors.BadValue as exc:
                problem = (
                    f"param {parameter.name}: {keyword}: The database takes it for {type.name}, and {exc}"
                )
                raise _Withdrawn(problem, parameter.source) from exc


def _declared(settings: Settings, query: Query, facts: Facts) -> Mapping[str, str]:
    """Return the casts of the claims of *query*, by parameter, that the configuration gives a type.

    Raise _Withdrawn where one without a type is compared so that another value may let rows in.
    """
    fixed = query.body.written(())  # no clause has a claim
    for claim in untyped(settings, fixed, facts.lexis):
        problem = (
            f"A value of another type for the claim {claim} may let rows in, and the database gives it no "
            f'type. Declare it under [policy.claims], such as {claim} = "integer".'
        )
        place = query.source_of((), fixed.offset_of(Parameter(f"{CLAIMS}.{claim}")))
        raise _Withdrawn(problem, place)
    claims = [each for each in fixed.parameters if each.claim is not None]
    casts = (
        declared_casts(settings, replace(fixed, pieces=(claim,)), facts.claim_casts or {})[0]
        for claim in claims
    )
    return {claim.name: cast for claim, cast in zip(claims, casts, strict=True) if cast}


def _columns(found: Sequence[Inspected]) -> tuple[Column, ...]:
    """Return the columns, nullable where they are in any variant, and lenient likewise."""
    return tuple(
        replace(
            next((column for column in columns if column.type.lenient), columns[0]),
            nullable=any(column.nullable for column in columns),
        )
        for columns in zip(*(each.columns for each in found), strict=True)
    )


def query_findings(library: Library) -> Iterator[Finding]:
    """Yield what is wrong with the queries, and what a model would miss of them."""
    yield from library.findings
    for permitted in library.queries:
        if not permitted.query.description:
            message = f"query {permitted.name}: it has no description, by which a model would choose it."
            yield Finding(
                code="no_description", message=message, level="warning", source=permitted.query.source
            )


async def held_with_queries(
    settings: Settings, role: Role, catalog: Catalog, backend: Backend, queries: Sequence[Permitted]
) -> Held:
    """Return *role* held against *database*, with those of *queries* that work in its session."""
    found = await held(settings, role, catalog, backend)
    granted = found.served.queries
    if not role.session or not granted:
        return found
    findings: list[Finding] = []
    working: list[QueryGrant] = []
    async with backend.describe(tried(role)) as describe:
        for permitted in queries:
            grant = next((each for each in granted if each.means(permitted.name)), None)
            if grant is None:
                continue
            try:
                for present in permitted.query.body.variants():
                    await _inspected(permitted.query, present, describe)
            except _Withdrawn as exc:
                message = f"role {role.name}, queries: {permitted.name} is withdrawn: {exc}"
                source, name = grant.source, permitted.name
                findings.append(
                    Finding(code=exc.code, message=message, source=source, role=role.name, subject=name)
                )
                if exc.code == WITHDRAWN:
                    continue
            working.append(replace(grant, pattern=permitted.name))
    served = replace(found.served, queries=tuple(working))
    return replace(found, served=served, findings=(*found.findings, *findings))
