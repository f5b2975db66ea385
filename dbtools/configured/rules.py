"""Validate the rules of a role against a catalog. A Role in; its valid rules, and findings, out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dbtools.errors import did_you_mean, listing
from dbtools.findings import Finding, FindingCode, Kind, Level, finding
from dbtools.policy.roles import WHOLE_GRANT, Restriction, Role, Rule
from dbtools.policy.writes import Problem, revealing_masks
from dbtools.schema.catalog import Catalog, Table
from dbtools.values.cells import BLANK
from dbtools.values.types import quote


def with_valid_rules(catalog: Catalog, role: Role) -> tuple[Role, tuple[Finding, ...]]:
    """Return *role* without its invalid rules, and findings about them.

    A table is withheld if its rule is ambiguous, or names a column that does not exist: the author may have
    wanted to hide a column. If a rule that denies or narrows refers to no table, all tables that patterns
    grant are withheld: the author may have meant one of them.
    """
    findings: list[Finding] = []
    rules: list[Rule] = []
    misses = False
    for rule in role.rules or ():
        tables = [table for table in catalog.whole.tables if rule.precision(catalog, table) is not None]
        problems = dict.fromkeys(_problems(catalog, role, rule, tables))
        findings += problems or _doubts(catalog, role, rule, tables)
        misses |= rule.narrows and any(each.code is FindingCode.UNKNOWN_TABLE for each in problems)
        rules.append(replace(rule, grant=None) if problems else rule)
    if misses:
        rules = [replace(rule, grant=None) if rule.is_pattern else rule for rule in rules]
    return (role if role.rules is None else replace(role, rules=tuple(rules))), tuple(findings)


def _problems(catalog: Catalog, role: Role, rule: Rule, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield the unknown and ambiguous names of *rule*, which refers to *tables*."""
    whole = catalog.whole
    if not tables and rule.pattern != "*":
        meant = did_you_mean(rule.pattern, map(whole.label, whole.tables))
        closes = rule.narrows and any(each.is_pattern for each in role.rules or ())
        yield _finding(Kind.UNKNOWN_TABLE_CLOSES if closes else Kind.UNKNOWN_TABLE, role, rule, nearest=meant)
    # A table may have the text of a pattern as its name.
    namesakes = [table for table in tables if rule.pattern in whole.names_of(table)]
    if len(namesakes) > 1:
        yield _finding(Kind.NAMESAKES, role, rule, names=listing(map(whole.unique_name, namesakes)))
    names = {name for table in namesakes for name in whole.names_of(table)} - {rule.pattern}
    rivals = dict.fromkeys(f"tables.{each.pattern}" for each in role.rules or () if each.pattern in names)
    if rivals:
        yield _finding(Kind.RIVAL_RULES, role, rule, others=listing(rivals))
    if rule.grant is not None and tables:
        yield from _unknown_columns(whole, role, rule, tables)


def _unknown_columns(whole: Catalog, role: Role, rule: Rule, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield a finding for each column in *rule* that the *tables* lack, or spell in another case."""
    grant = rule.grant or WHOLE_GRANT
    named = (*(grant.columns or ()), *grant.exclude, *grant.masks)
    known = list(dict.fromkeys(name for table in tables for name in table.column_by_name))
    folded = {name.lower(): name for name in named}
    for table in tables if len(tables) > 1 else ():
        for column in table.column_by_name:
            name = folded.get(column.lower(), column)
            if name not in table.column_by_name:
                places = {"column": quote(name), "spelling": quote(column), "table": whole.label(table)}
                yield _finding(Kind.OTHER_CASE, role, rule, **places)
    for name in named:
        # Not every table that a pattern matches needs the column.
        if name not in known:
            kind = Kind.UNKNOWN_COLUMN if len(tables) == 1 else Kind.UNKNOWN_TO_ALL
            label, column = whole.label(tables[0]), quote(name)
            meant, columns = did_you_mean(name, known), listing(known)
            yield _finding(kind, role, rule, table=label, column=column, nearest=meant, columns=columns)


def _doubts(catalog: Catalog, role: Role, rule: Rule, tables: Sequence[Table]) -> Iterator[Finding]:
    """Yield the respects in which *rule*, which is valid and refers to *tables*, has no effect."""
    denies = rule.is_pattern and rule.narrows and (rule.pattern, rule.grant) != ("*", None)
    for table in tables:
        label, decides = catalog.whole.label(table), role.rule_of(catalog, table)
        if decides == rule and (unread := _unread(catalog, rule, table)):
            is_hidden = catalog.table(*table.location) is None
            kind = Kind.UNREADABLE_TABLE if is_hidden else Kind.UNREADABLE_COLUMNS
            yield _finding(kind, role, rule, columns=listing(unread), table=label)
        elif decides not in (None, rule) and decides.is_pattern and denies:
            yield _finding(Kind.OVERRIDDEN, role, rule, other=decides.pattern, table=label)


def _unread(catalog: Catalog, rule: Rule, table: Table) -> Sequence[str]:
    """Return the columns of *table* that *rule* grants by name, but the login may not select."""
    hidden, grant = catalog.unreadable.get(table.location, ()), rule.grant
    if grant is None or (grant.columns is None and rule.is_pattern):
        return ()
    if catalog.table(*table.location) is None:
        return () if rule.is_pattern else hidden
    granted = set(hidden if grant.columns is None else grant.columns) - set(grant.exclude)
    return [name for name in hidden if name in granted and grant.masks.get(name) not in BLANK]


def withheld_findings(catalog: Catalog, role: Role, restriction: Restriction) -> Iterator[Finding]:
    """Yield the columns and writes that *restriction* of *catalog* withholds from *role*, and why."""
    whole = catalog.whole
    for table, rule, column in restriction.columns:
        yield _finding(Kind.READS_HIDDEN, role, rule, column=column, table=whole.label(table))
    yield from _withheld_writes(whole, role, restriction)
    for each in restriction.catalog.tables:
        deciding = role.rule_of(whole, whole.table(*each.location) or each)
        if deciding is not None:
            label = whole.label(each)
            for kind, column in revealing_masks(each):
                yield _finding(kind, role, deciding, table=label, column=column)


def _withheld_writes(whole: Catalog, role: Role, restriction: Restriction) -> Iterator[Finding]:
    """Yield the writes that *restriction* withholds, those that a rule withholds for one reason together."""
    labels: dict[tuple[int, Problem], list[str]] = {}
    for table, rule, problem in restriction.writes:
        labels.setdefault((id(rule), problem), []).append(whole.label(table))
    rules = {id(rule): rule for _, rule, _ in restriction.writes}
    for (number, (change, why)), named in labels.items():
        rule, tables = rules[number], listing(named)
        yield _finding(
            Kind.CHANGE_WITHHELD if change else Kind.CHANGES_WITHHELD,
            role,
            rule,
            Level.WARNING if rule.is_pattern else Level.ERROR,
            change=change,
            tables=tables,
            why=why if why.endswith((".", "?")) else f"{why}.",
            subject="" if rule.is_pattern else named[0],
        )


def _finding(kind: Kind, role: Role, rule: Rule, level: Level = Level.ERROR, /, **places: object) -> Finding:
    """Return the finding of *kind* about *rule*, which *role* has."""
    return finding(kind, rule.source, level, role=role.name, pattern=rule.pattern, **places)
