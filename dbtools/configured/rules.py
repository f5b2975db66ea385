"""Validate the rules of a role against a catalog. A Role in; its valid rules, and findings, out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dbtools.catalog import Catalog, Table
from dbtools.cells import BLANK
from dbtools.errors import listing, nearest
from dbtools.policy import Finding, Restriction, Role, Rule
from dbtools.types import quoted
from dbtools.writes import Problem, revealing_masks

UNKNOWN_TABLE = "unknown_table"
AMBIGUOUS = "ambiguous_table"
Found = tuple[str, str]  #: the code of a finding, and its message


def vetted(catalog: Catalog, role: Role) -> tuple[Role, tuple[Finding, ...]]:
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
        findings += (_finding(code, role, rule, message) for code, message in problems)
        doubts = () if problems else _doubts(catalog, role, rule, tables)
        findings += (_finding(code, role, rule, message, level="warning") for code, message in doubts)
        misses |= rule.narrows and any(code == UNKNOWN_TABLE for code, _ in problems)
        rules.append(replace(rule, grant=None) if problems else rule)
    if misses:
        rules = [replace(rule, grant=None) if rule.is_pattern else rule for rule in rules]
    return (role if role.rules is None else replace(role, rules=tuple(rules))), tuple(findings)


def _problems(catalog: Catalog, role: Role, rule: Rule, tables: Sequence[Table]) -> Iterator[Found]:
    """Yield the unknown and ambiguous names of *rule*, which refers to *tables*."""
    whole = catalog.whole
    if not tables and rule.pattern != "*":
        meant = nearest(rule.pattern, map(whole.label, whole.tables))
        closes = rule.narrows and any(each.is_pattern for each in role.rules or ())
        until = "Until this is fixed, the patterns of this role grant nothing." if closes else ""
        yield UNKNOWN_TABLE, f"unknown table. {meant}{until}".rstrip()
    # A table may have the text of a pattern as its name.
    namesakes = [table for table in tables if rule.pattern in whole.names_of(table)]
    if len(namesakes) > 1:
        unique = listing(map(whole.unique_name, namesakes))
        yield AMBIGUOUS, f"more than one table has this name. Write one of {unique}."
    names = {name for table in namesakes for name in whole.names_of(table)} - {rule.pattern}
    rivals = dict.fromkeys(f"tables.{each.pattern}" for each in role.rules or () if each.pattern in names)
    if rivals:
        yield AMBIGUOUS, f"this names the same table as {listing(rivals)}. Keep one."
    if rule.grant is not None and tables:
        named = (*(rule.grant.columns or ()), *rule.grant.exclude, *rule.grant.masks)
        yield from (("unknown_column", message) for message in _unknown_columns(whole, tables, named))


def _unknown_columns(whole: Catalog, tables: Sequence[Table], named: Sequence[str]) -> Iterator[str]:
    """Yield a message for each column in *named* that the *tables* lack, or spell in another case."""
    known = list(dict.fromkeys(name for table in tables for name in table.column_by_name))
    folded = {name.lower(): name for name in named}
    for table in tables if len(tables) > 1 else ():
        for column in table.column_by_name:
            name = folded.get(column.lower(), column)
            if name not in table.column_by_name:
                yield f"{quoted(name)} is written {quoted(column)} in {whole.label(table)}."
    for name in named:
        # Not every table that a pattern matches needs the column.
        if name not in known:
            one = len(tables) == 1
            has = f"{whole.label(tables[0])} has no column" if one else "no table there has a column"
            yield f"{has} {quoted(name)}. {nearest(name, known)}Columns: {listing(known)}."


def _doubts(catalog: Catalog, role: Role, rule: Rule, tables: Sequence[Table]) -> Iterator[Found]:
    """Yield the respects in which *rule*, which is valid and refers to *tables*, has no effect."""
    denies = rule.is_pattern and rule.narrows and (rule.pattern, rule.grant) != ("*", None)
    for table in tables:
        label, decides = catalog.whole.label(table), role.rule_of(catalog, table)
        if decides == rule and (unread := _unread(catalog, rule, table)):
            yield "unreadable", f"the login may not select {unread} {label}."
        elif decides not in (None, rule) and decides.is_pattern and denies:
            first = f"the pattern tables.{decides.pattern}, which goes first,"
            yield "overridden", f"{first} decides on {label}."


def _unread(catalog: Catalog, rule: Rule, table: Table) -> str:
    """Return the columns of *table* that *rule* grants by name, but the login may not select."""
    hidden, grant = catalog.unreadable.get(table.location, ()), rule.grant
    if grant is None or (grant.columns is None and rule.is_pattern):
        return ""
    if catalog.table(*table.location) is None:
        return "from" if hidden and not rule.is_pattern else ""
    granted = set(hidden if grant.columns is None else grant.columns) - set(grant.exclude)
    names = [name for name in hidden if name in granted and grant.masks.get(name) not in BLANK]
    return f"{listing(names)} of" if names else ""


def withheld_findings(catalog: Catalog, role: Role, restriction: Restriction) -> Iterator[Finding]:
    """Yield the columns and writes that *restriction* of *catalog* withholds from *role*, and why."""
    whole = catalog.whole
    for table, rule, column in restriction.columns:
        message = (
            f"the generated column {column} of {whole.label(table)} is withheld, since it is computed from a "
            "hidden or masked column. If that is intended, name it in columns."
        )
        yield _finding("reads_hidden", role, rule, message, level="warning")
    yield from _withheld_writes(whole, role, restriction)
    for each in restriction.catalog.tables:
        deciding = role.rule_of(whole, whole.table(*each.location) or each)
        if deciding is not None:
            found = (f"{whole.label(each)}: {problem}" for problem in revealing_masks(each))
            yield from (_finding("revealing_mask", role, deciding, one, level="warning") for one in found)


def _withheld_writes(whole: Catalog, role: Role, restriction: Restriction) -> Iterator[Finding]:
    """Yield the writes that *restriction* withholds, those that a rule withholds for one reason together."""
    labels: dict[tuple[int, Problem], list[str]] = {}
    for table, rule, problem in restriction.writes:
        labels.setdefault((id(rule), problem), []).append(whole.label(table))
    rules = {id(rule): rule for _, rule, _ in restriction.writes}
    for (number, (change, why)), named in labels.items():
        rule, tables = rules[number], listing(named)
        what = f"{change} is withheld in {tables}" if change else f"{tables} cannot be changed"
        level, end = "warning" if rule.is_pattern else "error", "" if why.endswith((".", "?")) else "."
        found = _finding("bad_writes", role, rule, f"{what}: {why}{end}", level=level)
        yield replace(found, subject="" if rule.is_pattern else named[0])


def _finding(code: str, role: Role, rule: Rule, message: str, *, level: str = "error") -> Finding:
    message = f"role {role.name}, tables.{rule.pattern}: {message}"
    return Finding(code=code, message=message, level=level, source=rule.source)
