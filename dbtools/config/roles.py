"""The roles that a configuration describes: sections in, Roles out, held against the database."""

from collections.abc import Iterator
from dataclasses import replace

from dbtools import errors
from dbtools.catalog import Catalog, RowFilter
from dbtools.column_types import Mask, quoted
from dbtools.config.sections import GrantSection, Settings
from dbtools.database import Database
from dbtools.dialects import dialect_of
from dbtools.errors import listing, nearest
from dbtools.parameters import SqlError, scan
from dbtools.policy import Finding, Grant, Limits, Role, Rule, vetted


def roles_of(settings: Settings) -> tuple[Role, ...]:
    """Return the roles that are configured, or the one that sees everything; or raise ConfigurationError."""
    limits = Limits(**settings.limits.model_dump())
    if not settings.roles:
        return (Role(limits=limits),)
    return tuple(_role(settings, name, limits) for name in settings.roles)


def _role(settings: Settings, name: str, limits: Limits) -> Role:
    wanted = settings.roles[name].limits.model_dump(exclude_none=True)
    # A role may set lower limits, never higher ones.
    lowered = {key: min(value, getattr(limits, key)) for key, value in wanted.items()}
    lineage = dict.fromkeys(_lineage(settings, name, ()))
    rules = tuple(rule for each in lineage for rule in _rules(settings, each))
    source = settings.source("roles", name)
    return Role(name=name, limits=replace(limits, **lowered), rules=rules, source=source)


def _lineage(settings: Settings, name: str, above: tuple[str, ...]) -> Iterator[str]:
    """Yield the role *name* and those that it inherits from, the nearest first."""
    if name in above:
        raise errors.ConfigurationError(
            f"{settings.file}: roles.{above[-1]}.inherits: {quoted(name)} inherits from itself."
        )
    if name not in settings.roles:
        raise errors.ConfigurationError(
            f"{settings.file}: roles.{above[-1]}.inherits: there is no role {quoted(name)}.",
            hint=f"{nearest(name, settings.roles)}Roles: {listing(settings.roles)}.",
        )
    yield name
    for parent in settings.roles[name].inherits:
        yield from _lineage(settings, parent, (*above, name))


def _rules(settings: Settings, role: str) -> Iterator[Rule]:
    for pattern, wanted in settings.roles[role].tables.items():
        source = settings.source("roles", role, "tables", pattern)
        yield Rule(
            pattern=pattern, grant=_grant(settings, wanted, f"roles.{role}.tables.{pattern}"), source=source
        )


def _grant(settings: Settings, wanted: bool | GrantSection, key: str) -> Grant | None:
    if isinstance(wanted, bool):
        return Grant() if wanted else None
    if Mask.HASH in wanted.mask.values() and not settings.policy.hash_key:
        raise errors.ConfigurationError(f"{settings.file}: {key}.mask: hash needs [policy] hash_key.")
    return Grant(
        columns=wanted.columns,
        exclude=wanted.exclude,
        filter=None if wanted.where is None else _filter(settings, wanted.where, f"{key}.where"),
        masks=wanted.mask,
        aggregate=wanted.aggregate,
    )


def _filter(settings: Settings, where: str, key: str) -> RowFilter:
    try:
        condition = scan(where, dialect_of(settings.database.url).lexis)
    except SqlError as exc:
        raise errors.ConfigurationError(f"{settings.file}: {key}: {exc}.") from exc
    others = [parameter for parameter in condition.parameters if parameter.claim is None]
    if others or condition.empty or condition.ending:
        problem = (
            f"{others[0]} is no claim: write :claims.{others[0].name}" if others else "wants a condition"
        )
        raise errors.ConfigurationError(f"{settings.file}: {key}: {problem}.")
    return RowFilter(condition=condition)


async def settled(role: Role, catalog: Catalog, database: Database) -> tuple[Role, tuple[Finding, ...]]:
    """Return *role* as it can be served, and what is wrong with it: what cannot be meant is withheld."""
    role, findings = vetted(catalog, role)
    rules: list[Rule] = []
    for rule in role.rules or ():
        rule, found = await _with_filter(role, rule, catalog, database)
        rules.append(rule)
        findings += found
    return (role if role.rules is None else replace(role, rules=tuple(rules))), findings


async def _with_filter(
    role: Role, rule: Rule, catalog: Catalog, database: Database
) -> tuple[Rule, tuple[Finding, ...]]:
    """Return *rule* with the types that the database gives its filter's claims, if it understands it."""
    grant = rule.grant
    if grant is None or grant.filter is None:
        return rule, ()
    tables = [table for table in catalog.tables if role.rule_of(catalog, table) == rule]
    if not tables:
        return rule, ()
    casts: set[tuple[str, ...]] = set()
    for table in tables:
        try:
            casts.add(await database.casts(table, grant.filter.condition))
        except errors.Refused as exc:
            message = f"role {role.name}, tables.{rule.pattern}.where: {exc.message}"
            finding = Finding(code="bad_filter", message=message, source=rule.source)
            return replace(rule, grant=None), (finding,)
    if len(casts) > 1:
        message = (
            f"role {role.name}, tables.{rule.pattern}.where: its claims have another type in each table."
        )
        return replace(rule, grant=None), (Finding(code="bad_filter", message=message, source=rule.source),)
    filter = replace(grant.filter, casts=casts.pop())
    return replace(rule, grant=replace(grant, filter=filter)), ()
