"""Ask a database about the row filters and checks of a role. A Role in; its valid rules, with types, out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dbtools import errors
from dbtools.backends.port import Facts
from dbtools.configured.claims import declared_cast, untyped_claims
from dbtools.configured.conditions import KnownNames, is_total
from dbtools.configured.permitted import Inspectors
from dbtools.findings import Finding, Kind, Unusable
from dbtools.policy.roles import Role, Rule
from dbtools.schema.catalog import Catalog, RowFilter, Table
from dbtools.schema.sql import Fragment, Parameter
from dbtools.settings.sections import Settings
from dbtools.values.types import Family


async def with_typed_filters(
    settings: Settings, role: Role, whole: Catalog, inspectors: Inspectors
) -> tuple[Role, tuple[Finding, ...]]:
    """Return *role* with the types of the claims in its filters, and findings about those that are invalid.

    Without a valid filter, a rule grants nothing; without a valid check, no changes.
    """
    findings: list[Finding] = []
    filters = _Filters(settings=settings, role=role, catalog=whole, inspectors=inspectors)
    rules: list[Rule] = []
    ruled = [(table, role.rule_of(whole, table)) for table in whole.tables]
    for rule in role.rules or ():
        grant, tables = rule.grant, [table for table, applied in ruled if applied == rule]
        writes, changed = grant.writes if grant else None, [table for table in tables if table.identity]
        try:
            if grant and grant.filter and tables:
                grant = replace(grant, filter=await filters.with_types(rule, "where", grant.filter, tables))
        except Unusable as exc:
            grant, writes = None, None
            findings.append(exc.finding)
        try:
            if writes and writes.check and changed:
                check = await filters.with_types(rule, "check", writes.check, changed)
                writes = replace(writes, check=check)
            if writes and writes.after and changed:
                after = await filters.with_types(rule, "after", writes.after, changed)
                writes = replace(writes, after=after)
        except Unusable as exc:
            writes = None
            findings.append(exc.finding)
        rules.append(replace(rule, grant=grant and replace(grant, writes=writes)))
    typed = role if role.rules is None else replace(role, rules=tuple(rules))
    return typed, tuple(findings)


@dataclass(frozen=True, kw_only=True)
class _Filters:
    """Checks the row filters of one role against the database."""

    settings: Settings
    role: Role
    catalog: Catalog
    inspectors: Inspectors

    async def with_types(self, rule: Rule, key: str, filter: RowFilter, tables: Sequence[Table]) -> RowFilter:
        """Return *filter*, the *key* of *rule* for *tables*, with the types of its claims.

        Raise Unusable if the database does not accept it.
        """
        facts, condition = self.inspectors.backend.facts, filter.condition
        place = {"role": self.role.name, "pattern": rule.pattern, "key": key}
        found: list[RowFilter] = []
        inspector = await self.inspectors.reading_inspector()
        for table in tables:
            try:
                found.append(await inspector.condition(table, condition))
            except errors.Refused as exc:
                kind = Kind.UNCHECKED_FILTER if exc.temporary else Kind.REFUSED_FILTER
                raise Unusable(
                    kind, rule.source, **place, table=self.catalog.label(table), problem=exc
                ) from exc
        if len({each.casts for each in found}) > 1:
            raise Unusable(Kind.CLAIMS_DIFFER, rule.source, **place)
        known = found[0].casts
        if facts.claim_casts is not None:
            for claim in untyped_claims(self.settings, condition, facts.lexis):
                raise Unusable(Kind.UNTYPED_CLAIM, rule.source, **place, claim=claim)
            claims = (each.claim for each in condition.pieces if isinstance(each, Parameter))
            known = tuple(declared_cast(self.settings, claim, facts.claim_casts) for claim in claims)
        total = is_total(condition, facts.lexis, self._names(condition, facts))
        # Of several versions of the names, the oldest one was read before each table was checked.
        return replace(found[0], casts=known, total=total)

    @cached_property
    def _columns(self) -> Mapping[str, set[tuple[Family, bool]]]:
        """The families of columns by name, each with whether its values can be compared."""
        columns: dict[str, set[tuple[Family, bool]]] = {}
        for table in self.catalog.tables:
            for column in table.columns:
                found = columns.setdefault(column.name.lower(), set())
                found.add((column.type.family, column.type.comparable))
        return columns

    def _names(self, condition: Fragment, facts: Facts) -> KnownNames:
        raising = set(self.catalog.raising)
        if not facts.lexis.lenient:
            text = condition.text.lower()
            named = [(name, *each) for name, found in self._columns.items() if name in text for each in found]
            families = {family for _, family, _ in named}
            # The database casts one of two types to the other, which may be too small for the value.
            large = {family for family, others in facts.implicit_casts.items() if families & others}
            raising |= {name for name, family, comparable in named if family in large or not comparable}
        return KnownNames(
            columns=frozenset(self._columns),
            tables=frozenset(table.name.lower() for table in self.catalog.tables),
            raising=frozenset(raising),
        )
