"""What a login and a configuration allow besides reading: run_sql, changes, and findings about both."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from dbtools import errors
from dbtools.backends.port import Backend
from dbtools.backends.run_sql import SqlOffer
from dbtools.configured.resolved import ResolvedRole
from dbtools.errors import listing
from dbtools.findings import Finding, Kind, Level, Source, finding
from dbtools.policy.roles import Role, Rule
from dbtools.policy.writes import MissingPrivileges, confirmed_tables, without_writes
from dbtools.queries import Permitted
from dbtools.schema.catalog import Catalog, Location, Table
from dbtools.settings.sections import Settings

READER_HINT = "`dbtools grants` prints the SQL for a login that can only read."
WRITES = "Callers may change rows: `dbtools grants` prints a second login for that, for [database] write_url."


async def offered_server(
    settings: Settings,
    role: Role,
    seen: Catalog,
    whole: Catalog,
    backend: Backend,
    offers: dict[Hashable, SqlOffer],
) -> tuple[str, tuple[Finding, ...]]:
    """Return the server whose SQL *role*, which sees *seen* of *whole*, may run, or why it may run none.

    *offers* has the offers to other roles; the one to *role* is added.
    """
    if not role.sql or not seen.tables:
        return "", ()
    asked = (whole.search_path, whole.posture, role.functions)
    if asked not in offers:
        offers[asked] = await backend.offer(whole, role.functions)
    offer = offers[asked]
    if not offer.obstacle:
        return offer.server, ()
    source, where = settings.source("roles", role.name, "sql"), f"role {role.name}, sql"
    if not settings.roles:
        source, where = settings.source("tools", "sql"), "[tools] sql"
    level = Level.WARNING if not settings.roles and settings.tools.sql == "auto" else Level.ERROR
    kind = Kind.NO_SQL_FOR_LOGIN if offer.obstacle in whole.posture else Kind.NO_SQL
    places = {"where": where, "obstacle": offer.obstacle, "remedy": READER_HINT, "role": role.name}
    return "", (finding(kind, source, level, **places),)


def posture_findings(settings: Settings, catalog: Catalog, *, writes: bool) -> tuple[Finding, ...]:
    """Return what the login can do beyond reading: errors if [server] strict forbids it."""
    level = Level.ERROR if settings.server.strict else Level.WARNING
    source = settings.source("database")
    hint = remedy(settings, writes=writes)
    return tuple(finding(Kind.POSTURE, source, level, fact=fact, remedy=hint) for fact in catalog.posture)


def remedy(settings: Settings, *, writes: bool) -> str:
    """Return what to do about a login that can do more than read; *writes*: whether callers may, too."""
    return WRITES if writes and not settings.database.write_url else READER_HINT


def writable_findings(settings: Settings) -> Iterator[Finding]:
    """Yield a finding about what [database] writable does, or that it has no effect."""
    if not settings.database.writable:
        return
    kind = Kind.IDLE_WRITABLE if settings.roles else Kind.EVERYTHING_WRITABLE
    yield finding(kind, settings.source("database", "writable"))


def row_security_findings(settings: Settings, roles: Sequence[tuple[Role, Catalog]]) -> Iterator[Finding]:
    """Yield the tables of *roles* whose rows policies of the database hide from the login.

    A role that sets a database role or settings probably relies on its policies.
    """
    applies: dict[str, None] = {}
    blind: dict[str, None] = {}
    for role, catalog in roles:
        for table in catalog.tables:
            if table.policies == 0:
                blind[catalog.label(table)] = None
            elif table.policies is not None and not role.session:
                applies[catalog.label(table)] = None
    for kind, names in ((Kind.ROW_SECURITY, applies), (Kind.NO_POLICY, blind)):
        if names:
            yield finding(kind, settings.source("database", "url"), tables=listing(names))


def hindrance_findings(
    settings: Settings, catalog: Catalog, hindered: Mapping[Location, Sequence[str]]
) -> Iterator[Finding]:
    """Yield which changes to tables in *catalog* will fail, whatever callers write."""
    source = settings.source("database", "url")
    for table in catalog.tables:
        for why in hindered.get(table.location, ()):
            yield finding(Kind.HINDERED, source, table=catalog.label(table), why=why)


def sql_findings(settings: Settings) -> Iterator[Finding]:
    """Yield a finding if [tools] sql has no effect, or withholds run_sql from roles with a grant of it."""
    granted = [name for name, role in settings.roles.items() if role.sql]
    source = settings.source("tools", "sql")
    if settings.roles and settings.tools.sql is True:
        yield finding(Kind.IDLE_SQL, source)
    elif granted and settings.tools.sql is False:
        yield finding(Kind.NO_ROLE_HAS_SQL, source, roles=listing(granted))


async def role_with_privileges(
    settings: Settings, role: ResolvedRole, backend: Backend, queries: Sequence[Permitted]
) -> ResolvedRole:
    """Return *role* without the writes that the login lacks a privilege for."""
    tables = [table for table in role.catalog.tables if table.writes is not None]
    changing = [each for each in queries if each.effects and role.served.may_call(each.name)]
    if not (tables or changing):
        return role
    session = {setting.name: setting.value for setting in role.served.session}
    lacking, journal = MissingPrivileges({}), None
    try:
        lacking = await backend.missing_privileges(tables, session)
        found = (
            *_privilege_findings(settings, role, tables, lacking.tables),
            *hindrance_findings(settings, role.catalog, lacking.hindered),
        )
        journal = not lacking.journal
    except (errors.DatabaseUnavailable, errors.Refused) as exc:
        # A login that cannot be reached now may make the changes later.
        if isinstance(exc, errors.Refused) and not exc.temporary:
            lacking = MissingPrivileges({table.location: exc.message for table in tables})
        source = settings.source("database", "write_url")
        found = (finding(Kind.PRIVILEGES_UNCHECKED, source, problem=exc),)
    lost = lacking.tables
    kept = (without_writes(each) if each.location in lost else each for each in role.catalog.tables)
    able = replace(role, catalog=replace(role.catalog, tables=tuple(kept)), journal=journal)
    return replace(
        able, findings=(*role.findings, *found, *_without_journal(able, changing, lacking.journal))
    )


def _without_journal(role: ResolvedRole, queries: Sequence[Permitted], why: str) -> Iterator[Finding]:
    """Yield the finding that *role* confirms changes without a journal, perhaps by *queries*, and *why*."""
    name, confirmed = role.served.name, confirmed_tables(role.catalog)
    rule = role.served.rule_of(role.whole, confirmed[0]) if confirmed else None
    query = next((each.query for each in queries if each.query.confirm), None)
    if not why:
        return
    if rule is not None:
        yield finding(Kind.NO_JOURNAL, rule.source, role=name, pattern=rule.pattern, why=why)
    elif query is not None:
        yield finding(Kind.NO_JOURNAL_OF_QUERY, query.source, role=name, query=query.name, why=why)


def _privilege_findings(
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
        why = lacking[first.location] if len(found) == 1 else f"{labels[0]}: {lacking[first.location]}"
        places = {"role": role.served.name, "tables": listing(labels), "why": why}
        if rule is None:
            yield finding(Kind.LACKS_PRIVILEGE_FOR_ALL, source, **places)
        else:
            level = Level.WARNING if rule.is_pattern else Level.ERROR
            yield finding(Kind.LACKS_PRIVILEGE, source, level, pattern=rule.pattern, **places)
