"""Check the rules of a role. A catalog and a role in; findings, and the role without what is wrong, out."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from dbtools.catalog import Catalog, Table
from dbtools.errors import listing, nearest
from dbtools.policy import BLANK, Finding, Lens, Role, Rule, series
from dbtools.types import quoted

UNKNOWN_TABLE = "unknown_table"
AMBIGUOUS = "ambiguous_table"
Found = tuple[str, str]  #: the code of a finding, and its message
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
    for rule in role.rules or ():
        tables = [table for table in catalog.whole.tables if rule.precision(catalog, table) is not None]
        problems = dict.fromkeys(_problems(catalog, role, rule, tables))
        findings += (_finding(code, role, rule, message) for code, message in problems)
        doubts = () if problems else _doubts(catalog, role, rule, tables)
        findings += (_finding(code, role, rule, message, level="warning") for code, message in doubts)
        misses |= rule.narrows and any(code == UNKNOWN_TABLE for code, _ in problems)
        if rule.grant is not None and rule.is_pattern:
            # Views that come later would be accepted unseen.
            rule = replace(rule, grant=replace(rule.grant, accept_reads=False))
        rules.append(replace(rule, grant=None) if problems else rule)
    if misses:
        rules = [replace(rule, grant=None) if rule.is_pattern else rule for rule in rules]
    return (role if role.rules is None else replace(role, rules=tuple(rules))), tuple(findings)


def _problems(catalog: Catalog, role: Role, rule: Rule, tables: Sequence[Table]) -> Iterator[Found]:
    """Yield what is wrong with *rule*, which refers to *tables*: to none, or to what others name as well."""
    whole = catalog.whole
    if not tables and rule.pattern != "*":
        meant = nearest(rule.pattern, map(whole.label, whole.tables))
        yield UNKNOWN_TABLE, f"there is no such table. {meant}".rstrip()
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
    """Yield which of the columns *named* the *tables* do not have, or have in another case of letters."""
    known = list(dict.fromkeys(name for table in tables for name in table.column_by_name))
    folded = {name.lower(): name for name in named}
    for table in tables if len(tables) > 1 else ():
        for column in table.column_by_name:
            name = folded.get(column.lower(), column)
            if name not in table.column_by_name:
                yield f"{quoted(name)} is written {quoted(column)} in {whole.label(table)}."
    for name in named:
        # Of a pattern's tables not every one need have it.
        if name not in known:
            one = len(tables) == 1
            has = f"{whole.label(tables[0])} has no column" if one else "no table that it means has a column"
            yield f"{has} {quoted(name)}. {nearest(name, known)}Columns: {listing(known)}."


def _doubts(catalog: Catalog, role: Role, rule: Rule, tables: Sequence[Table]) -> Iterator[Found]:
    """Yield what *rule*, which refers to *tables*, does not do though it is in order."""
    if rule.grant is not None and rule.grant.accept_reads and rule.is_pattern:
        yield "idle_rule", "accept_reads counts in the rule of one view only."
    denies = rule.is_pattern and rule.narrows and (rule.pattern, rule.grant) != ("*", None)
    for table in tables:
        label, decides = catalog.whole.label(table), role.rule_of(catalog, table)
        if decides == rule and (unread := _unread(catalog, rule, table)):
            yield "unreadable", f"the login may not select {unread} {label}."
        elif decides not in (None, rule) and decides.is_pattern and denies:
            first = f"the pattern tables.{decides.pattern}, which goes first,"
            yield "overridden", f"{first} decides on {label}."


def _unread(catalog: Catalog, rule: Rule, table: Table) -> str:
    """Return what *rule* grants of *table* by name and the login may not select: patterns grant the rest."""
    hidden, grant = catalog.unreadable.get(table.location, ()), rule.grant
    if grant is None or (grant.columns is None and rule.is_pattern):
        return ""
    if catalog.table(*table.location) is None:
        return "from" if hidden and not rule.is_pattern else ""
    granted = set(hidden if grant.columns is None else grant.columns) - set(grant.exclude)
    names = [name for name in hidden if name in granted and grant.masks.get(name) not in BLANK]
    return f"{listing(names)} of" if names else ""
