"""The permitted queries of a configuration: files and a registry in, queries that the database knows out."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dbtools import errors
from dbtools.catalog import Catalog, Column
from dbtools.column_types import quoted
from dbtools.config.claims import declared_casts, untyped_beside
from dbtools.config.registered import registered_in
from dbtools.config.roles import Held
from dbtools.config.sections import Settings
from dbtools.database import Database
from dbtools.dialects import dialect_of
from dbtools.dialects.inspected import Declared, Inspect, Inspected
from dbtools.errors import listing, nearest
from dbtools.parameters import Fragment, Lexis
from dbtools.policy import Finding, Source, restrict
from dbtools.queries import Query, read_queries
from dbtools.queries.permitted import Permitted
from dbtools.tools import Setting, define
from dbtools.tools.permitted_queries import NAMES


@dataclass(frozen=True, kw_only=True)
class Library:
    """The queries that can be called, and what is wrong with the others."""

    queries: tuple[Permitted, ...] = ()
    findings: tuple[Finding, ...] = ()
    known: tuple[str, ...] = ()  #: names of all, those that are withdrawn too


def queries_in(settings: Settings) -> tuple[tuple[Query, ...], tuple[Finding, ...]]:
    """Return the queries in the folder of *settings*, by name, and what is wrong with its files."""
    if not settings.queries.directory:
        return (), ()
    folder = Path(settings.queries.directory)
    if not folder.is_dir():
        message = f"[queries] directory: there is no folder {quoted(str(folder), 200)}."
        source = settings.source("queries", "directory")
        return (), (Finding(code="no_queries", message=message, source=source),)
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*.sql"))}
    return read_files(paths, dialect_of(settings.database.url).lexis)


def read_files(paths: Mapping[str, Path], lexis: Lexis) -> tuple[tuple[Query, ...], tuple[Finding, ...]]:
    """Return the queries in *paths*, which are shown as their keys, by name; and what is wrong with these."""
    queries: dict[str, Query] = {}
    findings: list[Finding] = []
    for name, path in paths.items():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            message = "the file cannot be read as text in UTF-8."
            findings.append(Finding(code="bad_query", message=message, source=Source(file=name, line=1)))
            continue
        found, problems = read_queries(text, name, lexis)
        findings += problems
        for query in found:
            if query.name in queries:
                findings.append(_twice(query, queries[query.name]))
            queries.setdefault(query.name, query)
    return tuple(queries[name] for name in sorted(queries)), tuple(findings)


def _twice(query: Query, other: Query) -> Finding:
    message = f"query {query.name}: there is one of this name at {str(other.source).rstrip(': ')}."
    return Finding(code="bad_query", message=message, source=query.source)


async def library_of(settings: Settings, catalog: Catalog, database: Database) -> Library:
    """Return the queries of *settings* that *database* understands; the others are withdrawn, and told."""
    written, problems = queries_in(settings)
    kept, others = await registered_in(settings, {query.name: query for query in written})
    queries = sorted((*written, *kept), key=lambda query: query.name)
    library = await held_against(settings, catalog, database, queries)
    findings = sorted((*problems, *others, *library.findings), key=_place)
    return replace(library, findings=tuple(findings))


async def held_against(
    settings: Settings, catalog: Catalog, database: Database, queries: Sequence[Query]
) -> Library:
    """Return those of *queries* that *database* understands, and why it does not the others.

    Whatever the tools of *catalog* are called, no query is.
    """
    if not queries:
        return Library()
    findings: list[Finding] = []
    permitted: list[Permitted] = []
    taken = {*define(Setting(catalog=catalog)), *NAMES}
    async with database.inspector() as inspect:
        for query in queries:
            if query.name in taken:
                message = f"query {query.name}: a tool has this name already."
                findings.append(Finding(code="bad_query", message=message, source=query.source))
                continue
            try:
                permitted.append(await _permitted(settings, query, inspect))
            except errors.Refused as exc:
                message = f"query {query.name} is withdrawn: {exc}"
                findings.append(Finding(code="withdrawn", message=message, source=query.source))
    known = tuple(query.name for query in queries)
    return Library(queries=tuple(permitted), findings=tuple(findings), known=known)


def _place(finding: Finding) -> tuple[str, int]:
    return finding.source.file, finding.source.line or 0


async def _permitted(settings: Settings, query: Query, inspect: Inspect) -> Permitted:
    """Return *query* with what the database says of its variants, or raise Refused."""
    declared = {each.name: Declared(type=str(each.type), array=each.array) for each in query.parameters}
    variants = [query.body.written(present) for present in query.body.variants()]
    found: list[Inspected] = []
    for variant in variants:
        names = {parameter.name for parameter in variant.parameters}
        known = {name: each for name, each in declared.items() if name in names}
        found.append(await inspect(variant.pieces, known))
    _check_columns(found)
    types = {name: type for each in found for name, type in each.parameters.items()}
    casts = {name: cast for each in found for name, cast in each.casts.items()}
    if not casts:
        # Of a database whose values alone have types, as of all others that have nothing to cast.
        _check_claims(settings, variants[0])
        claims = [parameter for parameter in variants[0].parameters if parameter.claim is not None]
        for parameter in claims:
            cast = declared_casts(settings, replace(variants[0], pieces=(parameter,)))[0]
            casts |= {parameter.name: cast} if cast else {}
    reads = [each.reads for each in found]
    return Permitted(
        query=query,
        columns=_columns(found),
        types=types,
        casts=casts,
        exact=all(each.exact for each in found),
        reads=None if None in reads else frozenset(read for each in reads for read in each or ()),
    )


def _check_claims(settings: Settings, variant: Fragment) -> None:
    """Raise Refused where a claim without a type is compared by size: another value would let all rows in."""
    lexis = dialect_of(settings.database.url).lexis
    for claim in untyped_beside(settings, variant, lexis):
        raise errors.Refused(
            f"It compares the claim {claim} by size, and the database gives it no type.",
            hint=f'Declare it under [policy.claims], such as {claim} = "integer".',
        )


def _check_columns(found: Sequence[Inspected]) -> None:
    """Raise Refused where a clause changes the columns."""
    shown = [[(column.name, column.type.name) for column in each.columns] for each in found]
    for columns in shown[1:]:
        if columns != shown[0]:
            raise errors.Refused("Its columns are not the same with all of its clauses and with none.")


def _columns(found: Sequence[Inspected]) -> tuple[Column, ...]:
    """Return the columns, nullable where they are in any variant."""
    return tuple(
        replace(columns[0], nullable=any(column.nullable for column in columns))
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


def role_findings(library: Library, known: Collection[str], held: Held) -> Iterator[Finding]:
    """Yield what is wrong with the queries that a role may call, of those *known*, and what they uncover."""
    role = held.written
    for grant in role.queries or ():
        if not any(grant.means(name) for name in known):
            message = f"role {role.name}, queries: there is no query {quoted(grant.pattern)}. "
            hint = nearest(grant.pattern, known)
            yield Finding(code="unknown_query", message=f"{message}{hint}".rstrip(), source=grant.source)
    seen = restrict(held.catalog, held.served)
    for permitted in library.queries if role.rules is not None else ():
        grants = [grant for grant in role.queries or () if grant.means(permitted.name)]
        if not grants or any(grant.accept_reads for grant in grants):
            continue
        uncovered = list(_uncovered(permitted, held.catalog, seen))
        if uncovered:
            meant = f'{{ name = "{permitted.name}", accept_reads = true }}'
            message = (
                f"role {role.name}, queries: {permitted.name} reads {listing(uncovered)}. "
                f"Where that is meant: {meant}."
            )
            source = grants[0].source
            yield Finding(code="reads_hidden", message=message, level="warning", source=source)


def _uncovered(permitted: Permitted, whole: Catalog, seen: Catalog) -> Iterator[str]:
    """Yield what *permitted* reads and the role, which sees only *seen*, does not see as it is."""
    if permitted.reads is None:
        yield "what the database does not tell"
        return
    places: dict[tuple[str, str], list[str]] = {}
    for schema, name, column in sorted(permitted.reads):
        places.setdefault((schema, name), []).append(column)
    for place, columns in places.items():
        table = seen.table(*place)
        label = _label(whole, place)
        if table is None:
            yield f"{label}, which the role does not see"
            continue
        hidden = [each for each in columns if each and each not in table.column_by_name]
        masked = [
            each
            for each in columns
            if each in table.column_by_name and table.column_by_name[each].type.mask is not None
        ]
        if hidden:
            yield f"{', '.join(hidden)} of {label}, which the role does not see"
        if masked:
            yield f"{', '.join(masked)} of {label}, masked for the role"
        if table.filter is not None:
            yield f"{label}, of which the role sees some rows"


def reads_of(permitted: Permitted, catalog: Catalog) -> tuple[str, ...]:
    """Return what *permitted* reads: columns as table.column, and tables of which only rows are read."""
    if permitted.reads is None:
        return ("what the database does not tell",)
    places = sorted(permitted.reads)
    labels = {place: _label(catalog, place) for place in {each[:2] for each in places}}
    return tuple(".".join(filter(None, (labels[schema, table], column))) for schema, table, column in places)


def _label(catalog: Catalog, place: tuple[str, str]) -> str:
    table = catalog.whole.table(*place)
    return catalog.whole.label(table) if table is not None else ".".join(filter(None, place))
