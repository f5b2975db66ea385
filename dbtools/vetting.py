"""Check what an operator wrote: rules and row filters in, findings out; and columns that look like secrets.

A database evaluates a row filter and a caller's conditions in any order. If the filter can raise an error
about a row, the error reveals whether the caller's conditions hold for that row. So a filter that is not
known to be total is evaluated behind an optimisation barrier, and the caller's conditions use no indexes.

In a database where only values have types, a value of an unexpected type equals nothing, and is less or
greater than everything. So a claim needs a declared type, unless it ends a condition `… = :claims.tenant`
that is not negated: there, another type only finds fewer rows.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile

from dbtools.catalog import Catalog, Column, Location, Table
from dbtools.cells import BLANK
from dbtools.errors import listing, nearest
from dbtools.policy import Finding, Restriction, Role, Rule, series
from dbtools.sql import QUOTED, Fragment, Lexis, Token, TokenKind, code_of, words
from dbtools.types import NUMERIC, TEMPORAL, Family, quoted
from dbtools.writes import Problem

UNKNOWN_TABLE = "unknown_table"
AMBIGUOUS = "ambiguous_table"
Found = tuple[str, str]  #: the code of a finding, and its message
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")  #: of TOML

#: Words that raise no error, and are not functions before a parenthesis.
KEYWORDS = words(
    "all and any as asc between by case current_date current_timestamp desc distinct else end except exists "
    "false first from full group having ilike in inner intersect interval is isnull join last lateral left "
    "like limit localtimestamp not notnull null nulls offset on or order outer right select some then true "
    "union unknown using values when where with"
)
PATTERNED = words("like ilike glob")  #: a constant without escapes must follow
COUNTED = words("limit offset")  #: a number must follow
NOW = ("now ( )", "current_date", "current_timestamp", "localtimestamp")
QUERIES = words("select values table with")  #: beginnings of subqueries
SUBQUERIES = words("in exists any all some")  #: what may precede any subquery
RELATIONS = words("from join")  #: a table must follow
NAMES = (TokenKind.WORD, TokenKind.NAME)
CONSTANTS = (TokenKind.TEXT, TokenKind.PARAMETER, TokenKind.NUMBER)
NOTHING = Token(TokenKind.SEMICOLON, "", -1, -1)

#: What may follow a condition that ends in a claim.
ENDS = words("and or from group having window order limit offset union intersect where join") | {""}
TURNING = words("not except left right full outer between case")  #: may turn fewer rows into more rows

#: The names of columns that look like secrets, their words in lower case and joined by "_".
SECRET = re.compile(
    r"""
    password|passwd|passphrase|passcode|secret(?!ar)|credential|api_?key          # anywhere
    |(token|hash|psk)(s|es)?(_|$)                                                 # where a word ends
    |(?:^|_)(pass|pwd|salt|pin|otp|totp|cvv|cvc|jwt|ssn|social_security_number)s?(?:_|$)
    |(private|priv|access|encryption|signing|ssh)_?keys?(_|$)
    """,
    re.VERBOSE,
)
#: Those that are secrets as numbers as well.
SECRET_NUMBER = re.compile(r"(?:^|_)(ssn|cvv|cvc|pin|social_security_number)(?:_|$)")
PUBLIC = (*NUMERIC, *TEMPORAL, Family.BOOLEAN, Family.INTERVAL)  #: families of facts about a secret
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def withheld_findings(catalog: Catalog, role: Role, restriction: Restriction) -> Iterator[Finding]:
    """Yield the views, columns and writes that *restriction* of *catalog* withholds from *role*, and why."""
    whole = catalog.whole
    for view, rule, reasons in restriction.views:
        name = whole.unique_name(view)
        key = name if BARE_KEY.fullmatch(name) else json.dumps(name)
        message = (
            f"{name} is withheld, since it reads {series(reasons)}. "
            f"If that is intended: tables.{key} = {{ accept_reads = true }}."
        )
        level = "warning" if rule.is_pattern else "error"
        yield replace(_finding("reads_hidden", role, rule, message, level=level), subject=name)
    for table, rule, column in restriction.columns:
        message = (
            f"the generated column {column} of {whole.label(table)} is withheld, since it is computed from a "
            "hidden or masked column. If that is intended, name it in columns."
        )
        yield _finding("reads_hidden", role, rule, message, level="warning")
    yield from _withheld_writes(whole, role, restriction)


def _withheld_writes(whole: Catalog, role: Role, restriction: Restriction) -> Iterator[Finding]:
    """Yield the writes that *restriction* withholds, those that a rule withholds for one reason together."""
    labels: dict[tuple[int, Problem], list[str]] = {}
    views = {view.location for view, *_ in restriction.views}
    for table, rule, problem in restriction.writes:
        if table.location in views:
            continue
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
        if rule.grant is not None and rule.is_pattern:
            # A pattern would also accept views that are created later.
            rule = replace(rule, grant=replace(rule.grant, accept_reads=False))
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
    if rule.grant is not None and rule.grant.accept_reads and rule.is_pattern:
        yield "idle_rule", "accept_reads has an effect only in a rule that names one view."
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


@dataclass(frozen=True, kw_only=True)
class KnownNames:
    """What the names in a filter may mean, all in lower case."""

    columns: frozenset[str] = frozenset()  #: of any table, whose comparison raises no error
    tables: frozenset[str] = frozenset()  #: whose cells can be read without an error
    raising: frozenset[str] = frozenset()  #: columns, relations, functions and operators that may raise one


def is_total(condition: Fragment, lexis: Lexis, names: KnownNames) -> bool:
    """Return whether *condition*, whose *names* are known, raises no error for any row."""
    tokens = [*[NOTHING] * 3, *code_of(condition.text, lexis), *[NOTHING] * 2]
    return not any(_raises(tokens[at - 3 : at + 3], lexis, names) for at in range(3, len(tokens) - 2))


def _raises(around: list[Token], lexis: Lexis, names: KnownNames) -> bool:
    """Return whether the fourth token of *around* may raise an error; an unknown one may."""
    *_, before, token, after, behind = around
    word = token.word
    if (word or token.value.lower()) in names.raising and token.kind in (*NAMES, TokenKind.SIGN):
        return True
    match token.kind:
        case TokenKind.WORD if word in PATTERNED:
            return after.kind is not TokenKind.TEXT or behind.kind in QUOTED or "\\" in after.text
        case TokenKind.WORD if word in COUNTED:
            return after.kind is not TokenKind.NUMBER
        case TokenKind.WORD if word in KEYWORDS or before.text == "::":
            return False
        case TokenKind.WORD | TokenKind.NAME if after.text == "(":
            return word not in lexis.total_functions or before.text == "."
        case TokenKind.WORD | TokenKind.NAME:
            return after.text != "." and not _is_known(around, names)
        case TokenKind.OPENING:
            scalar = after.word in QUERIES and before.word not in SUBQUERIES
            return word == "[" or (scalar and not lexis.lenient)
        case TokenKind.SIGN:
            return not _is_plain(around, lexis)
        case _:
            return False


def _is_known(around: list[Token], names: KnownNames) -> bool:
    """Return whether the fourth token names a column or a table, or is an alias."""
    first, _, before, token, *_ = around
    name = token.value.lower()
    if before.word in RELATIONS or (before.text == "." and first.word in RELATIONS):
        return name in names.tables
    is_alias = before.word == "as" or (before.kind in NAMES and before.value.lower() in names.tables)
    return name in names.columns or is_alias


def _is_plain(around: list[Token], lexis: Lexis) -> bool:
    """Return whether the fourth token is a total operator, at least in this place."""
    *earlier, token, after, _ = around
    before = earlier[-1].word
    if token.text == "::":
        return earlier[-1].kind in CONSTANTS
    if token.text in lexis.total_operators or token.text in ",.":
        return True
    if token.text == "*":
        return before in ("select", "(", ".")
    if token.text not in ("+", "-"):
        return False
    counted = after.kind is TokenKind.NUMBER
    is_beginning = before in lexis.total_operators or before in ("(", ",") or before in KEYWORDS
    is_now = " ".join(each.word for each in earlier).endswith(NOW)
    return (is_beginning and counted and not is_now) or (is_now and (counted or after.word == "interval"))


def uncertain_claims(fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* that may let rows in if their value has another type, each once."""
    tokens = code_of(fragment.text, lexis)
    words = [token.word for token in tokens]
    turned = not TURNING.isdisjoint(words) or any(map(_computes, tokens, tokens[1:]))
    claims: dict[str, None] = {}
    for at, token in enumerate(tokens):
        claim = token.parameter.claim if token.kind is TokenKind.PARAMETER else None
        after = next(dropwhile(")".__eq__, words[at + 1 :]), "")
        if claim and (turned or words[at - 1 : at] not in (["="], ["=="]) or after not in ENDS):
            claims[claim] = None
    yield from claims


def _computes(token: Token, after: Token) -> bool:
    """Return whether *token* computes with a condition in brackets, or with an EXISTS."""
    return token.kind is TokenKind.SIGN and token.text not in ",." and after.word in ("(", "exists")


def secret_columns(catalog: Catalog) -> Mapping[Location, Sequence[str]]:
    """Return the names of columns whose words and types suggest secrets, by table."""
    found = {
        table.location: [column.name for column in table.columns if _is_secret(column)]
        for table in catalog.tables
    }
    return {location: names for location, names in found.items() if names}


def _is_secret(column: Column) -> bool:
    name = "_".join(words_of(column.name))
    return bool(SECRET_NUMBER.search(name) if column.type.family in PUBLIC else SECRET.search(name))


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of *name* in lower case: `passwordHash` has two, and so has `password_hash`."""
    return tuple(word.lower() for word in WORD.findall(name))
