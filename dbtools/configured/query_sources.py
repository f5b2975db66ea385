"""Load the permitted queries in files and the registry. Texts in; queries and findings out."""

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from dbtools import errors
from dbtools.backends import read_registry
from dbtools.backends.port import Backend
from dbtools.backends.records import Registry, RegistryEntry
from dbtools.findings import Finding, Kind, Level, Source, finding
from dbtools.queries import Query, read_queries, sources_of
from dbtools.schema.catalog import Selection
from dbtools.schema.sql import Lexis
from dbtools.settings.sections import Settings
from dbtools.settings.toml_file import file_error
from dbtools.values.types import quote

MOST_FILES = 10_000  #: in the folder of queries and below it: a server checks all of them each second
UNREAD = "With roles or a selection of tables, only a registry that [registry] url names is read."
FOLDER = "registry"  #: what findings name instead of a folder
REGISTRY_TIMEOUT = 3.0  #: seconds that a refresh waits for the registry


@dataclass(frozen=True, kw_only=True)
class LoadedQueries:
    """The queries in files, or in a registry."""

    queries: tuple[Query, ...] = ()
    findings: tuple[Finding, ...] = ()
    sources: Mapping[str, Source] = field(default_factory=dict)  #: by name, including unusable queries
    stamp: Hashable = None  #: of the content of a registry


def queries_in(settings: Settings, lexis: Lexis) -> LoadedQueries:
    """Return the queries in the folder of *settings*, by name, and findings about its files.

    Raise ConfigurationError if there are too many files.
    """
    if not settings.queries.directory:
        return LoadedQueries()
    folder = Path(settings.queries.directory)
    if not os.path.isdir(folder):
        source, hint = settings.source("queries", "directory"), errors.nearest_path(folder)
        missing = finding(Kind.NO_FOLDER, source, folder=quote(str(folder), 200), nearest=hint)
        return LoadedQueries(findings=(missing,))
    try:
        files = query_files(folder)
    except errors.ConfigurationError as exc:
        raise file_error(settings.source("queries", "directory"), f"[queries] directory: {exc}") from exc
    shown = settings.shown_path(folder)
    paths = {(shown / path.relative_to(folder)).as_posix(): path for path in files}
    return read_files(paths, lexis)


def query_files(folder: Path) -> Sequence[Path]:
    """Return the files in *folder* and below it that end in .sql or .SQL.

    Raise ConfigurationError if there are too many files.
    """
    found: list[Path] = []
    count = 0
    for parent, folders, files in os.walk(folder):
        count += len(folders) + len(files)
        if count > MOST_FILES:
            raise errors.ConfigurationError(f"more than {MOST_FILES} files and folders are in it.")
        found += [Path(parent, name) for name in files]
    # Path.is_file raises an error if a folder may not be entered (Python 3.11).
    return sorted(path for path in found if path.suffix.lower() == ".sql" and os.path.isfile(path))


def read_files(paths: Mapping[str, Path], lexis: Lexis) -> LoadedQueries:
    """Return the queries in *paths* by name, and findings, which name each file by its key in *paths*."""
    queries: dict[str, Query] = {}
    findings: list[Finding] = []
    sources: dict[str, Source] = {}
    for name, path in paths.items():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            source = Source(file=name, line=1)
            findings.append(finding(Kind.NOT_UTF8, source))
            sources.setdefault(path.stem, source)
            continue
        found, problems = read_queries(text, name, lexis)
        findings += problems
        sources = {**sources_of(text, name), **sources}
        for query in found:
            first = queries.setdefault(query.name, query)
            if first is not query:
                place = str(first.source).rstrip(": ")
                findings.append(finding(Kind.USED_NAME, query.source, subject=query.name, place=place))
    in_order = tuple(queries[name] for name in sorted(queries))
    return LoadedQueries(queries=in_order, findings=tuple(findings), sources=sources)


def registry_url(settings: Settings) -> str:
    """Return the URL of the registry to serve, or an empty text.

    Anyone who can write to a registry defines tools. So if roles or [database] restrict callers, the
    configuration must name the registry.
    """
    is_narrowed = settings.roles or settings.selection() != Selection()
    return settings.registry.url or ("" if is_narrowed else settings.database.url)


async def registered_in(settings: Settings, files: Mapping[str, Source], backend: Backend) -> LoadedQueries:
    """Return the enabled queries in the registry of *settings* whose names are not in *files*.

    A file takes precedence even if its query is invalid. A registry that cannot be read is a finding.
    """
    url, lexis = registry_url(settings), backend.facts.lexis
    registry: Registry | None = None
    try:
        registry = await _read(url, backend) if url else None
        if registry is None and settings.registry.url:
            message = "The database has no registry. `dbtools registry upgrade URL` creates one."
            raise errors.ConfigurationError(message)
        entries = registry.entries() if registry else {}
    except errors.DbtoolsError as exc:
        return LoadedQueries(findings=(_unread(settings, exc),), stamp=registry or str(exc))
    enabled = [entry for entry in entries.values() if entry.current.enabled]
    covered = [entry.current.name for entry in enabled if entry.current.name in files]
    found = [query_of(entry, lexis) for entry in enabled if entry.current.name not in files]
    return LoadedQueries(
        queries=tuple(query for queries, _ in found for query in queries),
        findings=(
            *(_covered_finding(name, files[name]) for name in covered),
            *(problem for _, problems in found for problem in problems),
        ),
        stamp=registry,
    )


async def _read(url: str, backend: Backend) -> Registry | None:
    if url == backend.url:
        # The backend's own time limit begins after other reads on the same connection.
        return await backend.registry()
    try:
        with anyio.fail_after(REGISTRY_TIMEOUT):
            return await read_registry(url)
    except TimeoutError as exc:
        problem = f"The registry does not answer within {REGISTRY_TIMEOUT:g} seconds."
        raise errors.DatabaseUnavailable(problem) from exc


def _unread(settings: Settings, problem: errors.DbtoolsError) -> Finding:
    if settings.registry.url:
        return finding(Kind.UNREAD_REGISTRY, settings.source("registry", "url"), problem=problem)
    level = Level.WARNING if isinstance(problem, errors.DatabaseUnavailable) else Level.ERROR
    return finding(Kind.UNREAD_OWN_REGISTRY, settings.source("database"), level, problem=problem)


def _covered_finding(name: str, other: Source) -> Finding:
    place = str(other).rstrip(": ")
    return finding(Kind.COVERED, Source(file=f"{FOLDER}/{name}", line=1), subject=name, place=place)


def query_of(entry: RegistryEntry, lexis: Lexis) -> tuple[tuple[Query, ...], tuple[Finding, ...]]:
    """Return the query in the current version of *entry*, or findings about it."""
    name, file = entry.current.name, f"{FOLDER}/{entry.current.name}"
    found, problems = read_queries(entry.current.text, file, lexis)
    if not problems and [query.name for query in found] != [name]:
        problems = (finding(Kind.OTHER_QUERIES, Source(file=file, line=1), name=quote(name)),)
    return (() if problems else found), problems
