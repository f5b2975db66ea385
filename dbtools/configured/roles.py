"""Read the roles and the types of claims in a configuration. Settings in, Roles as written out."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dbtools.catalog import RowFilter
from dbtools.configured.claims import listed_json
from dbtools.configured.conditions import vain
from dbtools.errors import listing, nearest
from dbtools.policy import (
    SET_ROLE,
    Finding,
    FunctionRules,
    Grant,
    Limits,
    QueryGrant,
    Role,
    Rule,
    SessionSetting,
    Source,
)
from dbtools.settings.sections import GrantSection, Settings
from dbtools.settings.toml_file import file_error
from dbtools.sql import Lexis, SqlError, scan
from dbtools.types import Mask, quoted
from dbtools.writes import WriteGrant, claim_in

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
            message = f"role {name}, limits.{key}: [limits] allows at most {most:g}."
            problems.append(Finding(code="higher_limit", message=message, level="warning", source=source))
    role = Role(
        name=name,
        limits=replace(limits, **lowered),
        rules=(),
        queries=(),
        bounds=bounds,
        source=settings.source("roles", name),
    )
    try:
        lineage = tuple(reversed(_traced(settings, name, (), ())))
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


class Unusable(Exception):
    """Something in the configuration is invalid; its finding says why."""

    def __init__(self, code: str, message: str, source: Source) -> None:
        super().__init__(message)
        self.finding = Finding(code=code, message=message, source=source)


def _traced(settings: Settings, name: str, above: tuple[str, ...], found: tuple[str, ...]) -> tuple[str, ...]:
    """Return *found* and the role *name*, each once, after the roles that it inherits from."""
    problem = ""
    if name in above:
        problem = f"{quoted(name)} inherits from itself."
    elif name not in settings.roles:
        known = f"{nearest(name, settings.roles)}Roles: {listing(settings.roles)}."
        problem = f"there is no role {quoted(name)}. {known}"
    elif len(above) > DEEPEST:
        problem = f"more than {DEEPEST} roles inherit from each other."
    if problem:
        source = settings.source("roles", above[-1], "inherits")
        raise Unusable("unknown_role", f"role {above[-1]}, inherits: {problem}", source)
    # In reverse order, so that after reversing, a role comes after all roles that inherit from it.
    for parent in reversed(settings.roles[name].inherits):
        if parent not in found:
            found = _traced(settings, parent, (*above, name), found)
    return (*found, name)


def _rule(settings: Settings, role: str, pattern: str, lexis: Lexis) -> tuple[Rule, tuple[Finding, ...]]:
    source = settings.source("roles", role, "tables", pattern)
    rule = Rule(pattern=pattern, grant=None, source=source)
    wanted = settings.roles[role].tables[pattern]
    if isinstance(wanted, bool):
        return replace(rule, grant=Grant() if wanted else None), ()
    where = f"role {role}, tables.{pattern}"
    try:
        grant = _grant(settings, wanted, where, source, lexis)
    except Unusable as exc:
        return rule, (exc.finding,)
    after, check = (grant.writes.after, grant.writes.check) if grant.writes else (None, None)
    # With `after`, a role may insert rows without seeing any.
    filters = {"where": None if after else grant.filter, "check": check, "after": after}
    found = (
        Finding(code="vain_filter", message=f"{where}.{key}: {problem}.", level="warning", source=source)
        for key, filter in filters.items()
        for problem in (_doubts(settings, filter, lexis) if filter else ())
    )
    return replace(rule, grant=grant), tuple(found)


def _doubts(settings: Settings, filter: RowFilter, lexis: Lexis) -> Iterator[str]:
    """Yield why *filter* may not let rows through as intended."""
    if why := vain(filter.condition, lexis):
        yield f"no row passes: {why}"
    claims = [name for name, type in settings.policy.claims.items() if type == "json"]
    for claim in listed_json(filter.condition, lexis, claims):
        yield (
            f"the claim {claim} has the type json, and a list in JSON equals no value of a column: take its "
            "values out with a function for JSON"
        )


def _grant(settings: Settings, wanted: GrantSection, where: str, source: Source, lexis: Lexis) -> Grant:
    if Mask.HASH in wanted.mask.values() and not settings.policy.hash_key:
        raise Unusable("no_hash_key", f"{where}.mask: hash needs [policy] hash_key.", source)
    return Grant(
        columns=wanted.columns,
        exclude=wanted.exclude,
        filter=_filter(wanted.where, f"{where}.where", source, lexis),
        masks=wanted.mask,
        aggregate=wanted.aggregate,
        writes=_writes(wanted, where, source, lexis),
    )


def _writes(wanted: GrantSection, where: str, source: Source, lexis: Lexis) -> WriteGrant | None:
    options = ("check", "after", "preset", "preset_update", "max_affected", "confirm")
    idle = [key for key in options if not wanted.granted and key in wanted.model_fields_set]
    if idle:
        problem = f"{where}.{idle[0]}: nothing may be changed: grant insert, update or delete."
        raise Unusable("bad_writes", problem, source)
    if not wanted.granted:
        return None
    if wanted.after is not None and wanted.where is None:
        problem = f"{where}.after: it replaces where after a change, and there is no where."
        raise Unusable("bad_writes", problem, source)
    return WriteGrant(
        insert=wanted.insert,
        update=wanted.update,
        delete=wanted.delete,
        check=_filter(wanted.check, f"{where}.check", source, lexis),
        after=_filter(wanted.after, f"{where}.after", source, lexis),
        preset=wanted.preset,
        preset_update=wanted.preset_update,
        max_affected=wanted.max_affected,
        confirm=wanted.confirm,
    )


def _filter(where: str | None, place: str, source: Source, lexis: Lexis) -> RowFilter | None:
    if where is None:
        return None
    try:
        condition = scan(where, lexis)
    except SqlError as exc:
        raise Unusable("bad_filter", f"{place}: {exc}.", source) from exc
    for other in condition.parameters:
        if other.claim is None:
            # After `:claim` comes the name of the claim, if that was meant.
            name = FIELD.match(where.partition(str(other))[2])
            problem = f"{other} is not a claim: write :claims.{name[1] if name else other.name}"
            raise Unusable("bad_filter", f"{place}: {problem}.", source)
    if condition.empty or condition.ending:
        raise Unusable("bad_filter", f"{place}: must be a condition.", source)
    return RowFilter(condition=condition)


def _session(settings: Settings, role: str) -> Iterator[SessionSetting]:
    """Yield the settings of the database session of *role*."""
    section = settings.roles[role]
    for name, value in section.settings.items():
        source = settings.source("roles", role, "settings", name)
        try:
            claim = claim_in(value)
            if name.lower() == SET_ROLE:
                raise ValueError("write set_role instead")
            if claim is not None and "." not in name:
                raise ValueError("only a setting with a dot in its name, such as app.user, may have a claim")
        except ValueError as exc:
            raise Unusable("bad_session", f"role {role}, settings.{name}: {exc}.", source) from exc
        yield SessionSetting(name=name, value="" if claim else value, claim=claim, source=source)
    if section.set_role is not None:
        source = settings.source("roles", role, "set_role")
        yield SessionSetting(name=SET_ROLE, value=section.set_role, source=source)


def token_findings(settings: Settings) -> Iterator[Finding]:
    """Yield findings about tokens without a role: their callers are refused."""
    roles = role_names(settings)
    for token in settings.auth.tokens:
        if token.role not in roles:
            message = f"[auth] tokens: there is no role {token.role}. Roles: {listing(roles)}."
            yield Finding(code="unknown_role", message=message, source=settings.source("auth", "tokens"))
