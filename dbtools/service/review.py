"""What `dbtools check` finds: the configuration held against the live database."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dbtools.backends.port import Backend
from dbtools.catalog import Catalog, Table
from dbtools.errors import listing
from dbtools.policy import Finding, Role, restrict
from dbtools.queries.permitted import Permitted
from dbtools.service.descriptions import description_findings
from dbtools.service.library import held_with_queries, library_of, query_findings
from dbtools.service.login import posture_findings
from dbtools.service.reads import reads_of, role_findings
from dbtools.service.roles import Held, roles_of, token_findings
from dbtools.settings.sections import Settings

SHORTEST_KEY = 16  #: characters of a secret
Progress = Callable[[int, int, str], None]  #: how many of how many roles are done, and the next


@dataclass(frozen=True, kw_only=True)
class Review:
    """What is wrong, errors first; and what queries read, which an operator should know."""

    findings: tuple[Finding, ...]
    reads: Mapping[str, tuple[str, ...]]  #: by query: columns as table.column, or table alone for its rows


async def review(
    settings: Settings,
    catalog: Catalog,
    backend: Backend,
    progress: Progress,
    beside: Sequence[Finding] = (),
) -> Review:
    """Return all that is wrong with *settings* for a *database* that holds *catalog*, and *beside* it."""
    source = settings.source("database")
    findings = [
        Finding(code="catalog", message=warning, level="warning", source=source)
        for warning in catalog.warnings
    ]
    findings += description_findings(catalog, settings)
    findings += posture_findings(settings, catalog)
    if 0 < len(settings.policy.hash_key) < SHORTEST_KEY:
        message = f"[policy] hash_key: with less than {SHORTEST_KEY} characters it can be guessed."
        source = settings.source("policy", "hash_key")
        findings.append(Finding(code="weak_hash_key", message=message, level="warning", source=source))
    library = await library_of(settings, catalog, backend)
    findings += query_findings(library)
    roles = roles_of(settings, backend.facts.lexis)
    findings += token_findings(settings)
    for done, role in enumerate(roles):
        progress(done, len(roles), role.name)
        found = await held_with_queries(settings, role, catalog, backend, library.queries)
        findings += found.findings
        findings += _of_role(found, library.queries)
        findings += role_findings(settings, library.queries, library.known, found)
    # A rule that several roles inherit is wrong once.
    told = tuple(sorted(dict.fromkeys((*findings, *beside)), key=lambda each: each.level))
    return Review(findings=told, reads={each.name: reads_of(each, catalog) for each in library.queries})


def _of_role(held: Held, queries: Sequence[Permitted]) -> Iterator[Finding]:
    """Yield what is not wrong by itself, and yet hardly meant, of a role that may be granted *queries*."""
    role, catalog = held.written, held.catalog
    yield from _idle_masks(role)
    seen = restrict(catalog, held.served)
    if not seen.tables and not any(held.served.may_call(each.name) for each in queries):
        message = f"role {role.name}: it sees no table."
        yield Finding(code="sees_nothing", message=message, level="warning", source=role.source)
    for table in seen.tables:
        whole = catalog.table(table.schema, table.name)
        rule = role.rule_of(catalog, whole) if whole else None
        if whole is None or rule is None:
            continue
        message = _of_keys(whole, table)
        if message:
            told = f"role {role.name}, tables.{rule.pattern}: {message}"
            yield Finding(code="hidden_key", message=told, level="warning", source=rule.source)


def _of_keys(whole: Table, seen: Table) -> str:
    """Return what follows where a key of *whole* is not seen as it is, or nothing."""
    if len(seen.keys) == len(whole.keys):
        return ""
    if not seen.keys:
        return f"no key of {seen.name} is seen unmasked: no get_T, and pages are counted off."
    lost = next(key for key in whole.keys if key not in seen.keys)
    return (
        f"the key {', '.join(lost.columns)} of {seen.name} is not seen unmasked; "
        f"get_T takes {', '.join(seen.keys[0].columns)}."
    )


def _idle_masks(role: Role) -> Iterator[Finding]:
    for rule in role.rules or ():
        grant = rule.grant
        if grant is None:
            continue
        unseen = [
            name
            for name in grant.masks
            if name in grant.exclude or (grant.columns is not None and name not in grant.columns)
        ]
        if unseen:
            message = (
                f"role {role.name}, tables.{rule.pattern}.mask: {listing(unseen)} is not seen, "
                "so there is nothing to mask."
            )
            yield Finding(code="idle_mask", message=message, level="warning", source=rule.source)
