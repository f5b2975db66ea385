"""Read the roles and the types of claims in a configuration. Settings in, Roles as written out."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from dbtools.configured.claims import listed_json
from dbtools.configured.conditions import why_no_row_passes
from dbtools.errors import did_you_mean, listing
from dbtools.findings import Finding, Kind, Source, Unusable, finding
from dbtools.policy.roles import (
    SET_ROLE,
    FunctionRules,
    Grant,
    Limits,
    QueryGrant,
    Role,
    Rule,
    SessionSetting,
)
from dbtools.policy.writes import WriteGrant, claim_in
from dbtools.schema.catalog import RowFilter
from dbtools.schema.sql import Lexis, SqlError, scan
from dbtools.settings.sections import GrantSection, Settings
from dbtools.settings.toml_file import file_error
from dbtools.values.types import Mask, quote

FIELD = re.compile(r"\.(\w+)")
DEEPEST = 50  #: roles that inherit from each other


def role_names(settings: Settings) -> tuple[str, ...]:
    """Return the names of the configured roles, or of the one role that sees everything."""
    if "roles" in settings.model_fields_set and not settings.roles:
        raise file_error(
            settings.source("roles"),
            "[roles] defines no role, so no caller can see anything.",
            hint="Without [roles], one role sees everything.",
        )
    return tuple(settings.roles) or (Role.name,)


def roles_of(settings: Settings, lexis: Lexis) -> tuple[Role, ...]:
    """Return the configured roles, or the one role that sees everything.

    What is invalid is withheld, and listed among the problems of its role.
    """
    limits = Limits(**{name: value for name, value in settings.limits if name != "storage"})
    names, functions = role_names(settings), settings.functions
    if not settings.roles:
        everything = Role(
            limits=limits,
            bounds=_bounds(settings),
            writable=settings.database.writable,
            sql=settings.tools.sql is not False,
            functions=FunctionRules(include=functions.include, exclude=functions.exclude),
        )
        return (everything,)
    return tuple(_role(settings, name, limits, lexis) for name in names)


def _role(settings: Settings, name: str, limits: Limits, lexis: Lexis) -> Role:
    lowered: dict[str, Any] = {}
    problems: list[Finding] = []
    bounds = _bounds(settings)
    for key, wanted in settings.roles[name].limits.model_dump(exclude_none=True).items():
        most, source = getattr(limits, key), settings.source("roles", name, "limits", key)
        # A role may set lower limits, never higher ones.
        if most is None or wanted <= most:
            lowered[key], bounds[key] = wanted, source
        else:
            problems.append(finding(Kind.HIGHER_LIMIT, source, role=name, key=key, most=most))
    role = Role(
        name=name,
        limits=replace(limits, **lowered),
        rules=(),
        queries=(),
        bounds=bounds,
        source=settings.source("roles", name),
    )
    try:
        lineage = tuple(reversed(_inheritance(settings, name, (), ())))
        session = {one.name: one for each in reversed(lineage) for one in _session(settings, each)}
    except Unusable as exc:
        # The rest of what it inherits may deny access: so it sees nothing.
        return replace(role, problems=(*problems, exc.finding))
    included = tuple(each for name in lineage for each in settings.roles[name].functions)
    rules: list[Rule] = []
    for each in lineage:
        for pattern in settings.roles[each].tables:
            rule, found = _rule(settings, each, pattern, lexis)
            rules.append(rule)
            problems += found
    return replace(
        role,
        rules=tuple(rules),
        queries=tuple(grant for each in lineage for grant in _query_grants(settings, each)),
        session=tuple(session.values()),
        functions=FunctionRules(include=included, exclude=settings.functions.exclude),
        sql=settings.tools.sql is not False and any(settings.roles[each].sql for each in lineage),
        problems=tuple(problems),
    )


def _bounds(settings: Settings) -> dict[str, Source]:
    return {key: settings.source("limits", key) for key in settings.limits.model_fields_set}


def _query_grants(settings: Settings, role: str) -> Iterator[QueryGrant]:
    source = settings.source("roles", role, "queries")
    yield from (QueryGrant(pattern=each, source=source) for each in settings.roles[role].queries)


def _inheritance(
    settings: Settings, name: str, above: tuple[str, ...], found: tuple[str, ...]
) -> tuple[str, ...]:
    """Return *found* and the role *name*, each once, after the roles that it inherits from."""

    def problem(kind: Kind, **places: object) -> Unusable:
        heir = above[-1]
        return Unusable(kind, settings.source("roles", heir, "inherits"), role=heir, **places)

    if name in above:
        raise problem(Kind.INHERITS_ITSELF, other=quote(name))
    if name not in settings.roles:
        meant, roles = did_you_mean(name, settings.roles), listing(settings.roles)
        raise problem(Kind.INHERITS_UNKNOWN, other=quote(name), nearest=meant, roles=roles)
    if len(above) > DEEPEST:
        raise problem(Kind.INHERITS_TOO_DEEP, most=DEEPEST)
    # In reverse order, so that after reversing, a role comes after all roles that inherit from it.
    for parent in reversed(settings.roles[name].inherits):
        if parent not in found:
            found = _inheritance(settings, parent, (*above, name), found)
    return (*found, name)


def _rule(settings: Settings, role: str, pattern: str, lexis: Lexis) -> tuple[Rule, tuple[Finding, ...]]:
    source = settings.source("roles", role, "tables", pattern)
    rule = Rule(pattern=pattern, grant=None, source=source)
    wanted = settings.roles[role].tables[pattern]
    if isinstance(wanted, bool):
        return replace(rule, grant=Grant() if wanted else None), ()
    try:
        grant = _grant(settings, wanted, _Place(role, pattern, source), lexis)
    except Unusable as exc:
        return rule, (exc.finding,)
    after, check = (grant.writes.after, grant.writes.check) if grant.writes else (None, None)
    # With `after`, a role may insert rows without seeing any.
    filters = {"where": None if after else grant.filter, "check": check, "after": after}
    doubts = (
        finding(kind, source, role=role, pattern=pattern, key=key, claim=claim)
        for key, filter in filters.items()
        for kind, claim in (_doubts(settings, filter, lexis) if filter else ())
    )
    return replace(rule, grant=grant), tuple(doubts)


def _doubts(settings: Settings, filter: RowFilter, lexis: Lexis) -> Iterator[tuple[Kind, str]]:
    """Yield why *filter* may not let rows through as intended, with the claim that this is about, if any."""
    if kind := why_no_row_passes(filter.condition, lexis):
        yield kind, ""
    claims = [name for name, type in settings.policy.claims.items() if type == "json"]
    yield from ((Kind.LISTED_JSON, claim) for claim in listed_json(filter.condition, lexis, claims))


class _Place(NamedTuple):
    """Where a grant is written."""

    role: str
    pattern: str
    source: Source

    def problem(self, kind: Kind, **places: object) -> Unusable:
        """Return the error that the grant cannot be used, for a *kind* with these *places*."""
        return Unusable(kind, self.source, role=self.role, pattern=self.pattern, **places)


def _grant(settings: Settings, wanted: GrantSection, place: _Place, lexis: Lexis) -> Grant:
    if Mask.HASH in wanted.mask.values() and not settings.policy.hash_key:
        raise place.problem(Kind.NO_HASH_KEY)
    return Grant(
        columns=wanted.columns,
        exclude=wanted.exclude,
        filter=_filter(wanted.where, "where", place, lexis),
        masks=wanted.mask,
        aggregate=wanted.aggregate,
        writes=_writes(wanted, place, lexis),
    )


def _writes(wanted: GrantSection, place: _Place, lexis: Lexis) -> WriteGrant | None:
    options = ("check", "after", "preset", "preset_update", "max_affected", "confirm")
    idle = [key for key in options if not wanted.granted and key in wanted.model_fields_set]
    if idle:
        raise place.problem(Kind.NO_CHANGE_GRANTED, key=idle[0])
    if not wanted.granted:
        return None
    if wanted.after is not None and wanted.where is None:
        raise place.problem(Kind.AFTER_WITHOUT_WHERE)
    return WriteGrant(
        insert=wanted.insert,
        update=wanted.update,
        delete=wanted.delete,
        check=_filter(wanted.check, "check", place, lexis),
        after=_filter(wanted.after, "after", place, lexis),
        preset=wanted.preset,
        preset_update=wanted.preset_update,
        max_affected=wanted.max_affected,
        confirm=wanted.confirm,
    )


def _filter(where: str | None, key: str, place: _Place, lexis: Lexis) -> RowFilter | None:
    if where is None:
        return None
    try:
        condition = scan(where, lexis)
    except SqlError as exc:
        raise place.problem(Kind.UNSCANNED_FILTER, key=key, problem=exc) from exc
    for other in condition.parameters:
        if other.claim is None:
            # After `:claim` comes the name of the claim, if that was meant.
            name = FIELD.match(where.partition(str(other))[2])
            meant = name[1] if name else other.name
            raise place.problem(Kind.NOT_A_CLAIM, key=key, parameter=other, name=meant)
    if condition.empty or condition.ending:
        raise place.problem(Kind.NOT_A_CONDITION, key=key)
    return RowFilter(condition=condition)


def _session(settings: Settings, role: str) -> Iterator[SessionSetting]:
    """Yield the settings of the database session of *role*."""
    section = settings.roles[role]
    for name, value in section.settings.items():
        source = settings.source("roles", role, "settings", name)
        try:
            claim = claim_in(value)
        except ValueError as exc:
            raise Unusable(Kind.BAD_SETTING, source, role=role, name=name, problem=exc) from exc
        if name.lower() == SET_ROLE:
            raise Unusable(Kind.SET_ROLE_AS_SETTING, source, role=role, name=name)
        if claim is not None and "." not in name:
            raise Unusable(Kind.SETTING_WITH_CLAIM, source, role=role, name=name)
        yield SessionSetting(name=name, value="" if claim else value, claim=claim, source=source)
    if section.set_role is not None:
        source = settings.source("roles", role, "set_role")
        yield SessionSetting(name=SET_ROLE, value=section.set_role, source=source)


def token_findings(settings: Settings) -> Iterator[Finding]:
    """Yield findings about tokens without a role: their callers are refused."""
    roles = role_names(settings)
    for token in settings.auth.tokens:
        if token.role not in roles:
            source = settings.source("auth", "tokens")
            yield finding(Kind.TOKEN_ROLE, source, token_role=token.role, roles=listing(roles))
