"""Check the rules of a role. A catalog and a role in; findings, and the role without what is wrong, out."""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dbtools.catalog import Catalog, Table
from dbtools.errors import listing, nearest
from dbtools.policy import BLANK, Finding, Grant, Lens, Role, Rule, series
from dbtools.types import quoted

UNKNOWN_TABLE = "unknown_table"
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  #: of TOML


def withheld_findings(catalog: Catalog, role: Role, lens: Lens) -> Iterator[Finding]:
    """Yield the views and generated columns that *lens*, over *catalog*, withholds from *role*, and why."""
    whole = catalog.whole
    for view, rule, reasons in lens.views:
        name = whole.unique_name(view)
        key = name if BARE_KEY.fullmatch(name) else json.dumps(name)
        message = (
            f"{name} is withheld, since it reads {series(reasons)}. "
            f"If that is intended: tables.{key} = {{ accept_reads = true }}."
        )
        level = "warning" if rule.is_pattern else "error"
        yield replace(_finding("reads_hidden", role, rule, message, level=level), subject=name)
    for table, rule, column in lens.columns:
        message = (
            f"the generated column {column} of {whole.label(table)} is withheld, since it is computed from a "
            "column that the role does not see as it is. If that is intended, name it in columns."
        )
        yield _finding("reads_hidden", role, rule, message, level="warning")


def _finding(code: str, role: Role, rule: Rule, message: str, *, level: str = "error") -> Finding:
    message = f"role {role.name}, tables.{rule.pattern}: {message}"
    return Finding(code=code, message=message, level=level, source=rule.source)


def vetted(catalog: Catalog, role: Role) -> tuple[Role, tuple[Finding, ...]]:
    """Return *role* without the rules that cannot be meant, and what is wrong with them.

    A table whose rule names what does not exist is withheld: it may be the name of a column to be hidden. So
    is a table whose rule is ambiguous. Where a rule that denies or narrows refers to no table, those that
    patterns grant are withheld: one of them may be meant.
    """
    findings: list[Finding] = []
    rules: list[Rule] = []
    misses = False
    rivals = _rivals(catalog, role)
    for rule in role.rules or ():
        problems = [*_problems(catalog, role, rule), *rivals.get(rule.pattern, ())]
        findings += problems or [*_unread(catalog, role, rule), *_overridden(catalog, role, rule)]
        if rule.grant is not None and rule.grant.accept_reads and rule.is_pattern:
            # Views that come later would be accepted unseen.
            message = "accept_reads counts in the rule of one view only."
            findings.append(_finding("idle_rule", role, rule, message, level="warning"))
            rule = replace(rule, grant=replace(rule.grant, accept_reads=False))
        misses |= rule.narrows and any(each.code == UNKNOWN_TABLE for each in problems)
        rules.append(replace(rule, grant=None) if problems else rule)
    if misses:
        rules = [replace(rule, grant=None) if rule.is_pattern else rule for rule in rules]
    return (role if role.rules is None else replace(role, rules=tuple(rules))), tuple(findings)


def _rivals(catalog: Catalog, role: Role) -> Mapping[str, Sequence[Finding]]:
    """Return the rules that name a table which another rule of *role* names differently, by pattern."""
    whole = catalog.whole
    findings: defaultdict[str, list[Finding]] = defaultdict(list)
    named = {rule.pattern: rule for rule in reversed(role.rules or ())}
    for table in whole.tables:
        rules = [named[name] for name in dict.fromkeys(whole.names_of(table)) if name in named]
        for rule in rules if len(rules) > 1 else ():
            others = listing(f"tables.{each.pattern}" for each in rules if each is not rule)
            message = f"this names the same table as {others}. Keep one."
            findings[rule.pattern].append(_finding("ambiguous_table", role, rule, message))
    return findings


def _overridden(catalog: Catalog, role: Role, rule: Rule) -> Iterator[Finding]:
    """Yield the tables that *rule*, a pattern, denies or narrows and that a longer pattern decides on."""
    is_default = rule.pattern == "*" and rule.grant is None
    if not rule.is_pattern or not rule.narrows or is_default:
        return
    for table in catalog.whole.tables:
        if rule.precision(catalog, table) is None:
            continue
        decides = role.rule_of(catalog, table)
        if decides is None or decides == rule or not decides.is_pattern:
            continue
        label = catalog.whole.label(table)
        message = f"the pattern tables.{decides.pattern}, which goes first, decides on {label}."
        yield _finding("overridden", role, rule, message, level="warning")


def _problems(catalog: Catalog, role: Role, rule: Rule) -> Iterator[Finding]:
    """Yield what is wrong with *rule*: it means no table, or names columns that its tables do not have."""
    whole = catalog.whole
    tables = [table for table in whole.tables if rule.precision(catalog, table) is not None]
    if not tables and rule.pattern != "*":
        meant = nearest(rule.pattern, map(whole.label, whole.tables))
        yield _finding(UNKNOWN_TABLE, role, rule, f"there is no such table. {meant}".rstrip())
    # A table may have the text of a pattern as its name.
    namesakes = [table for table in tables if rule.pattern in whole.names_of(table)]
    if len(namesakes) > 1:
        unique = listing(map(whole.unique_name, namesakes))
        message = f"more than one table has this name. Write one of {unique}."
        yield _finding("ambiguous_table", role, rule, message)
    if rule.grant is None:
        return
    named = (*(rule.grant.columns or ()), *rule.grant.exclude, *rule.grant.masks)
    for message in _twins(whole, tables, named):
        yield _finding("unknown_column", role, rule, message)
    for name in dict.fromkeys(named) if tables else ():
        # Of a pattern's tables not every one need have it.
        if not any(name in table.column_by_name for table in tables):
            known = list(dict.fromkeys(each for table in tables for each in table.column_by_name))
            one = len(tables) == 1
            has = f"{whole.label(tables[0])} has no column" if one else "no table that it means has a column"
            message = f"{has} {quoted(name)}. {nearest(name, known)}Columns: {listing(known)}."
            yield _finding("unknown_column", role, rule, message)


def _twins(catalog: Catalog, tables: Sequence[Table], named: Sequence[str]) -> Iterator[str]:
    """Yield that columns differ from a name only in the case of letters: they may well be meant."""
    folded = {name.lower(): name for name in named}
    for table in tables:
        for column in table.column_by_name:
            name = folded.get(column.lower(), column)
            if name != column and name not in table.column_by_name and len(tables) > 1:
                yield f"{quoted(name)} is written {quoted(column)} in {catalog.label(table)}."


def _unread(catalog: Catalog, role: Role, rule: Rule) -> Iterator[Finding]:
    """Yield what *rule* grants by name and the login may not select: a pattern grants what can be read."""
    for table in catalog.whole.tables:
        hidden = catalog.unreadable.get(table.location, ())
        if not hidden or rule.grant is None or role.rule_of(catalog, table) != rule:
            continue
        if catalog.table(*table.location) is None:
            what = "" if rule.is_pattern else "from"
        else:
            names = [name for name in hidden if _means_to_show(rule, rule.grant, name)]
            what = f"{listing(names)} of" if names else ""
        if what:
            message = f"the login may not select {what} {catalog.whole.label(table)}."
            yield _finding("unreadable", role, rule, message, level="warning")


def _means_to_show(rule: Rule, grant: Grant, column: str) -> bool:
    """Return whether *rule*, with its *grant*, grants cells of *column* by its name or the table's alone."""
    granted = not rule.is_pattern if grant.columns is None else column in grant.columns
    return granted and column not in grant.exclude and grant.masks.get(column) not in BLANK
