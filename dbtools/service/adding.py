"""Files of queries for a registry: paths in, texts that the database understands and findings out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dbtools.backends.port import Backend
from dbtools.catalog import Catalog
from dbtools.policy import Finding
from dbtools.queries import texts_of
from dbtools.service.library import held_against, read_files
from dbtools.settings.sections import Settings


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Queries that may go into a registry, and what is wrong with the others."""

    texts: Mapping[str, str]  #: by name, each as a file of its own
    findings: tuple[Finding, ...]


async def candidates(
    settings: Settings, catalog: Catalog, backend: Backend, files: Sequence[Path]
) -> Candidates:
    """Return the queries in *files*, held against the live *database*, which has *catalog*."""
    lexis = backend.facts.lexis
    written = read_files({str(path): path for path in files}, lexis)
    library = await held_against(settings, catalog, backend, written.queries)
    names = {query.name for query in library.queries}
    texts: dict[str, str] = {}
    for path in files if names else ():
        found = texts_of(path.read_text(encoding="utf-8"), str(path), lexis)
        texts |= {name: text for name, text in found.items() if name in names}
    return Candidates(texts=texts, findings=(*written.findings, *library.findings))
