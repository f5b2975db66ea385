"""What permitted queries read, held against what may be seen. Queries and catalogs in, findings out."""

from collections.abc import Collection, Iterator, Sequence

from dbtools.catalog import UNTOLD, Catalog, Reads
from dbtools.errors import nearest
from dbtools.policy import Finding, label_of, restrict, series, uncovered
from dbtools.queries.permitted import Permitted
from dbtools.service.roles import Held
from dbtools.settings.sections import Settings
from dbtools.types import quoted


def role_findings(
    settings: Settings, queries: Sequence[Permitted], known: Collection[str], held: Held
) -> Iterator[Finding]:
    """Yield what is wrong with the queries of a role, of the names *known*, and what they uncover."""
    role = held.written
    unread = "" if settings.registry.url else "A registry counts only where [registry] url names it."
    for grant in role.queries or ():
        if not any(grant.means(name) for name in known):
            message = f"role {role.name}, queries: there is no query {quoted(grant.pattern)}. "
            hint = f"{nearest(grant.pattern, known)}{unread}"
            yield Finding(code="unknown_query", message=f"{message}{hint}".rstrip(), source=grant.source)
    seen = {(table.schema, table.name): table for table in restrict(held.catalog, held.served).tables}
    for permitted in queries if role.rules is not None else ():
        grants = [grant for grant in role.queries or () if grant.means(permitted.name)]
        if not grants or any(grant.accept_reads for grant in grants):
            continue
        shown = list(uncovered(_beneath(permitted), held.catalog, seen))
        if shown:
            meant = f'{{ name = "{permitted.name}", accept_reads = true }}'
            message = (
                f"role {role.name}, queries: {permitted.name} reads {series(shown)}. "
                f"Where that is meant: {meant}."
            )
            source = grants[0].source
            yield Finding(code="reads_hidden", message=message, level="warning", source=source)


def _beneath(permitted: Permitted) -> Reads:
    """Return what *permitted* reads, functions and what is not known of it as others."""
    if permitted.reads is None:
        return Reads(others=(UNTOLD,))
    return Reads(columns=frozenset(permitted.reads), others=tuple(_read_by_functions(permitted)))


def left_out(permitted: Permitted, catalog: Catalog) -> Iterator[str]:
    """Yield what *permitted* reads, or may read, beside the tables of *catalog*."""
    if permitted.reads is None:
        yield UNTOLD
        return
    yield from _read_by_functions(permitted)
    places = sorted({place[:2] for place in permitted.reads})
    yield from (label_of(catalog, place) for place in places if catalog.whole.table(*place) is None)


def reads_of(permitted: Permitted, catalog: Catalog) -> tuple[str, ...]:
    """Return what *permitted* reads: columns as table.column, and tables of which only rows are read."""
    if permitted.reads is None:
        return (UNTOLD,)
    places = sorted(permitted.reads)
    labels = {place: label_of(catalog, place) for place in {each[:2] for each in places}}
    named = (".".join(filter(None, (labels[schema, table], column))) for schema, table, column in places)
    return (*named, *_read_by_functions(permitted))


def _read_by_functions(permitted: Permitted) -> Iterator[str]:
    yield from (f"what the function {name} reads" for name in permitted.functions)
