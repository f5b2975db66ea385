"""Check a configuration. Settings and a live or migrated database in, findings out."""

import platform
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import dbtools
from dbtools import errors
from dbtools.backends import open_backend, read_registry
from dbtools.backends.port import Backend
from dbtools.configured.permitted import Library
from dbtools.configured.query_sources import UNREAD, registry_url
from dbtools.configured.resolve import resolve, with_write_privileges
from dbtools.configured.resolved import Resolved, ResolvedRole
from dbtools.configured.roles import roles_of
from dbtools.errors import did_you_mean, listing
from dbtools.findings import Finding, Kind, finding
from dbtools.policy.roles import Caller, Role
from dbtools.queries import Effects, Permitted
from dbtools.schema.catalog import Catalog, Location, Selection, Table
from dbtools.service.lenses import unread_findings
from dbtools.service.serving import open_database, open_toolbox, snapshot_of
from dbtools.service.snapshot import RoleSnapshot, Snapshot, take_snapshot
from dbtools.service.toolbox import Toolbox
from dbtools.settings.sections import Settings
from dbtools.tools.definition import ToolDefinition, compare
from dbtools.values.types import quote

SHORTEST_KEY = 16  #: characters of a secret
MANY_TOKENS = 20_000  #: of definitions, which a model reads before it calls anything
UNREPORTED = "what the database does not report"  #: that a query reads
VERBS = {"insert": "inserts into", "update": "updates", "delete": "deletes from"}


@dataclass(frozen=True, kw_only=True)
class RoleChange:
    """How the tools of a role change: their names, in the order of the list."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    broken: tuple[str, ...]  #: queries that do not work on the migrated database


@dataclass(frozen=True, kw_only=True)
class QueryFacts:
    """What a query reads and changes, as the database reports it."""

    reads: tuple[str, ...]  #: columns as table.column, or table alone for its rows
    changes: tuple[str, ...]  #: as in "updates tickets (status)"
    unseen: Mapping[str, tuple[str, ...]]  #: what it reads although roles that may call it do not see it


@dataclass(frozen=True, kw_only=True)
class Review:
    """All findings, errors first, and what else should be known."""

    findings: tuple[Finding, ...]
    queries: Mapping[str, QueryFacts]
    views: Mapping[str, tuple[str, ...]]  #: by role: those that its patterns do not grant
    changes: Mapping[str, RoleChange] | None = None  #: by role, if a migrated database was compared


async def check(settings: Settings, beside: Sequence[Finding] = ()) -> Review:
    """Return the findings about *settings* and their database, together with those in *beside*."""
    backend = open_database(settings)
    try:
        resolved = await resolve(settings, await backend.introspect(settings.selection()), backend)
        resolved = await with_write_privileges(resolved, backend)
        unread = [each for role in resolved.roles async for each in unread_findings(settings, role, backend)]
        return _review_settings(resolved, (*beside, *unread, *_excesses(take_snapshot(resolved))))
    finally:
        await backend.close()


async def check_against(settings: Settings, url: str, beside: Sequence[Finding] = ()) -> Review:
    """Return the findings about *settings* and the migrated database at *url*, and how tools change there."""
    before = await snapshot_of(settings)
    migrated = await _migrated_settings(settings, url)
    backend = open_database(migrated)
    try:
        resolved = await resolve(migrated, await backend.introspect(migrated.selection()), backend)
    finally:
        await backend.close()
    # What the login of a migration may do is not what that of a server may.
    journals = {name: view.context.journal for name, view in before.views.items()}
    roles = (replace(each, journal=journals[each.served.name]) for each in resolved.roles)
    resolved = replace(resolved, roles=tuple(roles))
    after = take_snapshot(resolved, before)
    changes = {role: _role_change(before.views[role], view) for role, view in after.views.items()}
    return replace(_review_settings(resolved, beside), changes=changes)


def _excesses(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield findings about roles with more tools than some clients accept."""
    source = snapshot.settings.source("tools", "style")
    for name, view in snapshot.views.items():
        if view.excess:
            yield finding(Kind.MANY_TOOLS, source, role=name, excess=view.excess)


def _review_settings(resolved: Resolved, beside: Sequence[Finding]) -> Review:
    settings, catalog, library = resolved.settings, resolved.catalog, resolved.library
    findings = [*resolved.findings]
    if 0 < len(settings.policy.hash_key) < SHORTEST_KEY:
        source = settings.source("policy", "hash_key")
        findings.append(finding(Kind.WEAK_HASH_KEY, source, least=SHORTEST_KEY))
    findings += library.findings
    findings += _description_findings(library.queries)
    for role in resolved.roles:
        findings += role.findings
        findings += _of_role(role, library.queries)
        findings += _of_queries(settings, library, role.written)
    # A rule that several roles inherit is reported once.
    in_order = tuple(sorted(dict.fromkeys((*findings, *beside)), key=lambda each: (each.level, *each.place)))
    return Review(
        findings=in_order,
        queries={each.name: _facts_of(each, resolved) for each in library.queries},
        views={
            role.served.name: tuple(map(catalog.whole.label, role.views))
            for role in resolved.roles
            if role.views
        },
    )


def _description_findings(queries: Sequence[Permitted]) -> Iterator[Finding]:
    """Yield findings about queries without a description, by which a model chooses them."""
    for permitted in queries:
        if not permitted.query.description:
            yield finding(Kind.NO_DESCRIPTION, permitted.query.source, query=permitted.name)


def _of_role(resolved: ResolvedRole, queries: Sequence[Permitted]) -> Iterator[Finding]:
    """Yield findings about valid parts of a role that are probably not intended."""
    role, served = resolved.written, resolved.served
    if not resolved.catalog.tables and not any(served.may_call(each.name) for each in queries):
        yield finding(Kind.SEES_NOTHING, role.source, role=role.name)
    for table in resolved.catalog.tables:
        whole = resolved.whole.table(*table.location)
        rule = role.rule_of(resolved.whole, whole) if whole else None
        if whole and rule and whole.keys and not table.keys:
            places = {"role": role.name, "pattern": rule.pattern, "table": table.name}
            yield finding(Kind.HIDDEN_KEY, rule.source, **places)


def _of_queries(settings: Settings, library: Library, role: Role) -> Iterator[Finding]:
    """Yield findings about queries that *role* names and *library* does not have."""
    unread = "" if settings.registry.url else UNREAD
    for grant in role.queries or ():
        if not any(grant.means(name) for name in library.known):
            query, meant = quote(grant.pattern), did_you_mean(grant.pattern, library.known)
            places = {"role": role.name, "query": query, "nearest": meant, "unread": unread}
            yield finding(Kind.UNKNOWN_QUERY, grant.source, **places)


def _facts_of(permitted: Permitted, resolved: Resolved) -> QueryFacts:
    """Return what *permitted* reads and changes, in words."""
    whole, unseen = resolved.catalog.whole, {}
    for role in resolved.roles:
        is_narrowed = role.written.rules is not None or resolved.settings.selection() != Selection()
        if is_narrowed and role.served.may_call(permitted.name):
            unseen[role.served.name] = tuple(_unseen_reads(permitted, role))
    places = sorted(permitted.reads or ())
    labels = {place: _label_of(whole, place) for place in {each[:2] for each in places}}
    named = (".".join(filter(None, (labels[schema, table], column))) for schema, table, column in places)
    others = (f"what the function {name} reads" for name in permitted.functions)
    return QueryFacts(
        reads=(UNREPORTED,) if permitted.reads is None else (*named, *others),
        changes=tuple(_changed_by(permitted, whole)),
        unseen={name: what for name, what in unseen.items() if what},
    )


def _label_of(whole: Catalog, place: Location) -> str:
    """Return the label of the table at *place*, or its qualified name if it is not in *whole*."""
    table = whole.table(*place)
    return whole.label(table) if table is not None else ".".join(filter(None, place))


def _changed_by(permitted: Permitted, whole: Catalog) -> Iterator[str]:
    """Describe what *permitted* may change, as in "updates tickets (status)"."""
    effects = permitted.effects or Effects()
    columns: dict[tuple[str, Location], list[str]] = {}
    for each in sorted(effects.changes, key=lambda each: (not each.named, each)):
        columns.setdefault((each.kind, each[1:3]), []).append(each.column)
    for (kind, place), named in columns.items():
        shown = f" ({listing(named)})" if all(named) and kind == "update" else ""
        yield f"{VERBS[kind]} {_label_of(whole, place)}{shown}"
    called = (*permitted.functions, *effects.functions) if permitted.effects else ()
    yield from (f"calls the function {name}, which may change more" for name in dict.fromkeys(called))


def _unseen_reads(permitted: Permitted, role: ResolvedRole) -> Iterator[str]:
    """Describe what *permitted* reads although *role* does not see it whole."""
    seen = {table.location: table for table in role.catalog.tables}
    places: dict[Location, list[str]] = {}
    for schema, name, column in sorted(permitted.reads or ()):
        places.setdefault((schema, name), []).append(column)
    if hidden := [_label_of(role.whole, place) for place in places if place not in seen]:
        yield f"{', '.join(hidden)}, which the role does not see"
    for place in [each for each in places if each in seen]:
        yield from _hidden_in(seen[place], places[place], _label_of(role.whole, place))


def _hidden_in(table: Table, columns: Sequence[str], label: str) -> Iterator[str]:
    """Describe which of *columns* are hidden or masked in *table*, as a role sees it, and if rows are."""
    known = table.column_by_name
    hidden = [each for each in columns if each and each not in known]
    masked = [each for each in columns if each in known and known[each].type.mask is not None]
    if hidden:
        yield f"{', '.join(hidden)} of {label}, which the role does not see"
    if masked:
        yield f"{', '.join(masked)} of {label}, masked for the role"
    if table.filter is not None:
        yield f"{label}, of which the role sees some rows"


async def _migrated_settings(settings: Settings, url: str) -> Settings:
    """Return *settings* for the migrated database at *url*, with the queries that are served now."""
    registry = registry_url(settings)
    if registry and not settings.registry.url:
        try:
            found = await read_registry(registry)
            registry = registry if found and not found.problem else ""
        except errors.DatabaseUnavailable:
            registry = ""  # a server would start without it, too
    # The login of a migration may do more than that of a server.
    migrated = settings.with_value("database", "url", url).with_value("server", "strict", False)
    return migrated.with_value("registry", "url", registry)


def _role_change(before: RoleSnapshot, later: RoleSnapshot) -> RoleChange:
    """Return the change of what can be called, listed or not."""
    change = compare(*(_definitions(view) for view in (before, later)))
    old, new = ({query.name for query in view.context.queries} for view in (before, later))
    return RoleChange(
        added=change.added,
        changed=change.changed,
        removed=tuple(name for name in change.removed if name not in old),
        broken=tuple(sorted(old - new)),
    )


def _definitions(view: RoleSnapshot) -> list[ToolDefinition]:
    """Return the definitions of the tools of *view*; generic ones only if they are listed."""
    listed = {each.name for each in view.definitions} | {each.name for each in view.context.queries}
    tools = view.tools.values()
    return [tool.definition for tool in tools if tool.table is not None or tool.name in listed]


async def grants_of(
    settings: Settings, names: Collection[str], login: str
) -> tuple[str, tuple[Finding, ...]]:
    """Return the script for a *login* that does what the roles *names* do, and what is wrong with them.

    Roles are validated against all that the login of [database] url sees, since their own grants do not exist
    yet. That it can do more is no problem. With [database] write_url, another login makes the changes.
    """
    # The login that changes rows may not exist yet, either.
    backend = open_backend(settings.database.url)
    try:
        return await _grants_of(settings, backend, names, login)
    finally:
        await backend.close()


async def _grants_of(
    settings: Settings, backend: Backend, names: Collection[str], login: str
) -> tuple[str, tuple[Finding, ...]]:
    written = [each for each in roles_of(settings, backend.facts.lexis) if each.name in names]
    alone = [replace(each, session=(), sql=False) for each in written]
    resolved = await resolve(settings, await backend.introspect(settings.selection()), backend, roles=alone)
    roles = zip(resolved.roles, written, strict=True)
    served = [replace(each.served, session=role.session) for each, role in roles]
    queries = [each for each in resolved.library.queries if any(role.may_call(each.name) for role in served)]
    findings = dict.fromkeys(finding for each in resolved.roles for finding in each.findings)
    writer = f"{login}_writer" if settings.database.write_url not in ("", backend.url) else None
    script = await backend.grants(resolved.catalog, served, queries, login, writer)
    return script, (*findings, *_unreported_findings(queries))


def _unreported_findings(queries: Sequence[Permitted]) -> Iterator[Finding]:
    """Yield findings about *queries* whose reads the database does not report."""
    for query in queries:
        whats = [f"the function {name}" for name in query.functions]
        for what in whats if query.reads is not None else ["it", *whats]:
            yield finding(Kind.UNKNOWN_READS, query=query.name, what=what)


async def examine(settings: Settings) -> tuple[Finding, ...]:
    """Return the finding of each step from the connection to a call, or raise DatabaseUnavailable."""
    toolbox, backend = open_toolbox(settings)
    try:
        connection = await findings_of_connection(backend)
        snapshot = await toolbox.snapshot()
        login = [] if snapshot.catalog.posture else [finding(Kind.ONLY_READS)]
        return (
            finding(Kind.VERSIONS, dbtools=dbtools.__version__, python=platform.python_version()),
            *connection,
            *login,
            finding(Kind.SCHEMA, size=_size(snapshot.catalog)),
            *(_cost(name, view) for name, view in snapshot.views.items()),
            *_changes(snapshot),
            await _call(toolbox, snapshot),
        )
    finally:
        await backend.close()


async def findings_of_connection(backend: Backend) -> list[Finding]:
    """Return where the database is, and whether it refuses writes."""
    began = time.monotonic()
    probe = await (await backend.runner()).probe()
    took = _milliseconds_since(began)
    answers = finding(Kind.CONNECTION, server=probe.version, place=backend.place, time=took)
    return [answers, finding(Kind.READ_ONLY if probe.refuses_writes else Kind.NOT_READ_ONLY)]


def _milliseconds_since(began: float) -> str:
    return f"{(time.monotonic() - began) * 1000:.0f} ms"


def _size(catalog: Catalog) -> str:
    tables, columns = len(catalog.tables), sum(len(table.columns) for table in catalog.tables)
    return f"{tables} table{'s' if tables != 1 else ''} with {columns} column{'s' if columns != 1 else ''}"


def _cost(name: str, view: RoleSnapshot) -> Finding:
    tokens = sum(view.costs)
    kind = Kind.COST if tokens <= MANY_TOKENS else Kind.HIGH_COST
    return finding(kind, role=name, size=_size(view.catalog), count=len(view.definitions), tokens=tokens)


def _changes(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield which tables each role may change, and by which queries."""
    for name, view in snapshot.views.items():
        changed = [view.catalog.label(table) for table in view.catalog.tables if table.writes is not None]
        changed += [f"rows by the query {each.name}" for each in view.context.queries if each.effects]
        if changed:
            yield finding(Kind.CHANGES, role=name, tables=listing(changed))


async def _call(toolbox: Toolbox, snapshot: Snapshot) -> Finding:
    """Call list_rows once, on a table without a row filter if possible."""
    seen = [(name, view, table) for name, view in snapshot.views.items() for table in view.catalog.tables]
    if not seen:
        return finding(Kind.NO_CALL)
    name, view, table = min(seen, key=lambda each: (each[2].filter is not None, not each[2].keys))
    began = time.monotonic()
    try:
        arguments = {"table": view.catalog.unique_name(table), "limit": 1}
        await toolbox.call(Caller(role=name), "list_rows", arguments)
    except errors.Denied:
        return finding(Kind.CALL_NEEDS_CLAIMS, role=name, table=table.name)
    except errors.CallError as exc:
        return finding(Kind.CALL_FAILS, role=name, table=table.name, problem=exc)
    took = _milliseconds_since(began)
    return finding(Kind.CALL_ANSWERS, role=name, table=table.name, time=took)
