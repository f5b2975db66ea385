"""Check what an operator wrote: rules and row filters in, findings out; and columns that look like secrets.

A database evaluates a row filter and a caller's conditions in any order. If the filter can raise an error
about a row, the error reveals whether the caller's conditions hold for that row. So a filter that is not
known to be total is evaluated behind an optimisation barrier, and the caller's conditions use no indexes.

In a database where only values have types, a value of an unexpected type equals nothing, and is less or
greater than everything. So a claim needs a declared type, unless it ends a condition `… = :claims.tenant`
that is not negated: there, another type only finds fewer rows.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import dropwhile, pairwise

from dbtools.catalog import Catalog, Column, Location, Table
from dbtools.cells import BLANK
from dbtools.errors import listing, nearest
from dbtools.policy import Finding, Restriction, Role, Rule
from dbtools.sql import Fragment, Group, Lexis, Part, Token, TokenKind, code_of, grouped, split, words
from dbtools.types import NUMERIC, TEMPORAL, Family, quoted
from dbtools.writes import Problem, revealing_masks

UNKNOWN_TABLE = "unknown_table"
AMBIGUOUS = "ambiguous_table"
Found = tuple[str, str]  #: the code of a finding, and its message

CONSTANTS = (TokenKind.TEXT, TokenKind.PARAMETER, TokenKind.NUMBER)
KEYWORD_CONSTANTS = words("null true false")
PATTERN_MATCHES = words("like ilike glob")

#: What may follow a condition that ends in a claim.
ENDS = words(
    "and or from group having window order limit offset union intersect where join inner cross on returning"
) | {""}
COMPARISONS = words("= == <> != < <= > >=")
EQUALITY = words("= == <> !=")
UNSPLIT = words("between case")  #: an `and` after these does not join two conditions
TURNING = words("not except left right full outer between case")  #: may turn fewer rows into more rows

#: The names of columns that look like secrets, their words in lower case and joined by "_".
SECRET = re.compile(
    r"""
    password|passwd|passphrase|passcode|secret(?!ar)|credential|api_?key          # anywhere
    |(token|psk)s?(_|$)                                                           # where a word ends
    |^hash(es)?$                                                                  # alone
    |(?:^|_)(pass|pwd|pw|salt|pin|otp|totp|cvv|cvc|jwt|ssn|social_security_number)s?(?:_|$)
    |(private|priv|access|encryption|signing|ssh)_?keys?(_|$)
    """,
    re.VERBOSE,
)
#: What a name ends in that says something about a secret, or refers to one.
ABOUT_SECRET = re.compile(
    r"_(id|type|kind|name|algorithm|state|status|scope|count|length|version|format|method|policy|issuer|label"
    r"|at|on|date|limit|expires|expiry)$"
)
#: Those that are secrets as numbers as well.
SECRET_NUMBER = re.compile(
    r"(?:^|_)(ssn|cvv|cvc|pin|otp|totp|pass(word|wd|code|phrase)|pwd|social_security_number)(?:_(code|number|no))?$"
)
PUBLIC = (*TEMPORAL, Family.BOOLEAN, Family.INTERVAL, Family.ENUM)  #: families of facts about a secret
DECIMAL = re.compile(r"\d+(\.\d+)?", re.ASCII)
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


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


@dataclass(frozen=True, kw_only=True)
class KnownNames:
    """What the names in a filter may mean, all in lower case."""

    columns: frozenset[str] = frozenset()  #: of any table, whose comparison raises no error
    tables: frozenset[str] = frozenset()  #: whose cells can be read without an error
    raising: frozenset[str] = frozenset()  #: columns, relations, functions and operators that may raise one


def is_total(condition: Fragment, lexis: Lexis, names: KnownNames) -> bool:
    """Return whether *condition*, whose *names* are known, raises no error for any row.

    That is certain of the forms below: comparisons, in, is null, like, and exists, joined by and, or and not.
    """
    whole = grouped(code_of(condition.text, lexis), condition.text)
    tokens = [part for group in whole.groups() for part in group.parts if isinstance(part, Token)]
    named = {
        each.word or each.value.lower() for each in tokens if each.is_name or each.kind is TokenKind.SIGN
    }
    return named.isdisjoint(names.raising) and _is_condition(whole.parts, names)


def _is_condition(parts: Sequence[Part], names: KnownNames) -> bool:
    # The `and` of a between splits it into two parts, both of which are checked.
    each = (one for alternative in split(parts, "or") for one in split(alternative, "and"))
    return all(_is_comparison([part for part in one if part.word != "not"], names) for one in each)


def _is_comparison(parts: Sequence[Part], names: KnownNames) -> bool:
    match parts:
        case [Group(word="(", parts=inner)]:
            return _is_condition(inner, names)
        case [Token(word="exists"), Group(word="(", parts=inner)]:
            return _is_query(inner, names)
        case [*operand, Token(word="in"), Group(word="(", parts=inner)]:
            return _is_operand(operand, names) and (_are_operands(inner, names) or _is_query(inner, names))
        case [*operand, Token(word="is"), Token(word="null" | "true" | "false")]:
            return _is_operand(operand, names)
        case [*operand, Token(word=word), Token(kind=TokenKind.TEXT, text=text)] if word in PATTERN_MATCHES:
            return _is_operand(operand, names) and "\\" not in text
        case _:
            sign = next((at for at, part in enumerate(parts) if part.word in {*COMPARISONS, "between"}), None)
            operands = [parts] if sign is None else [parts[:sign], parts[sign + 1 :]]
            return all(_is_operand(each, names) for each in operands)


def _are_operands(parts: Sequence[Part], names: KnownNames) -> bool:
    return all(_is_operand(each, names) for each in split(parts, ","))


def _is_operand(parts: Sequence[Part], names: KnownNames) -> bool:
    match parts:
        case [Token(kind=kind)] if kind in CONSTANTS:
            return True
        case [Token(word="-"), Token(kind=TokenKind.NUMBER)]:
            return True
        case [Token(word=word)] if word in KEYWORD_CONSTANTS:
            return True
        case [Token() as column] | [Token(), Token(word="."), Token() as column]:
            return column.is_name and column.value.lower() in names.columns
        case _:
            return False


def _is_query(parts: Sequence[Part], names: KnownNames) -> bool:
    """Return whether *parts* select columns and constants of tables, in any number of rows."""
    clauses, *filters = split(parts, "where")
    match split(clauses, "from"):
        case [[Token(word="select"), *outputs], sources] if len(filters) < 2:
            joined = [split(source, "on") for source in split(sources, "join")]
            conditions = [*filters, *(each for _, *rest in joined for each in rest)]
            return (
                # A natural join, which has no condition, compares columns that are not named.
                [len(each) for each in joined] == [1, *[2] * (len(joined) - 1)]
                and all(_is_table(table, names) for table, *_ in joined)
                and all(_is_condition(each, names) for each in conditions)
                and ([each.word for each in outputs] == ["*"] or _are_operands(outputs, names))
            )
        case _:
            return False


def _is_table(parts: Sequence[Part], names: KnownNames) -> bool:
    match [part for part in parts if part.word != "as"]:
        case [Token(), Token(word="."), Token() as table, *aliases] | [Token() as table, *aliases]:
            known_as = [table, *aliases][-1]
            # The name of a table means its whole row where no column has the name.
            is_column = isinstance(known_as, Token) and known_as.value.lower() in names.columns
            is_known = table.is_name and table.value.lower() in names.tables
            return len(aliases) < 2 and is_known and not is_column
        case _:
            return False


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
        table.location: [column.name for column in table.columns if is_secret(column)]
        for table in catalog.tables
    }
    return {location: names for location, names in found.items() if names}


def is_secret(column: Column) -> bool:
    """Return whether the words and the type of *column* suggest a secret: then no value of it is quoted."""
    name = "_".join(words_of(column.name))
    family = column.type.family
    if family in NUMERIC:
        return bool(SECRET_NUMBER.search(name))
    return family not in PUBLIC and bool(SECRET.search(name)) and not ABOUT_SECRET.search(name)


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of *name* in lower case: `passwordHash` has two, and so has `password_hash`."""
    return tuple(word.lower() for word in WORD.findall(name))


def vain(condition: Fragment, lexis: Lexis) -> str:
    """Return why *condition* is true of no row, whatever it has; empty if that is not certain."""
    return _vain(grouped(code_of(condition.text, lexis), condition.text).parts)


def _vain(parts: Sequence[Part]) -> str:
    if not UNSPLIT.isdisjoint(part.word for part in parts):
        return ""
    reasons = [next(filter(None, map(_vain_part, split(each, "and"))), "") for each in split(parts, "or")]
    return reasons[0] if all(reasons) else ""


def _vain_part(parts: Sequence[Part]) -> str:
    match parts:
        case [Group(word="(", parts=inner)]:
            return _vain(inner)
        case [Token(word="false" | "0" | "null")]:
            return "it is false for every row"
        case [*before, Token(word=word), Token(word="null")] if before and word in COMPARISONS:
            # Such as `a is b = null`, which is another comparison.
            if any(part.word == "is" for part in before):
                return ""
            return "nothing equals null, or differs from it: write is null, or is not null"
        case [Token() as left, Token(word=word), Token() as right] if (
            word in EQUALITY and left.kind == right.kind
        ):
            if _differ(left, right) is (word in ("=", "==")):
                return "it is false for every row"
    return ""


def _differ(left: Token, right: Token) -> bool | None:
    """Return whether two constants of one kind are different values; None if that is not certain."""
    if left.kind is TokenKind.NUMBER and DECIMAL.fullmatch(left.text) and DECIMAL.fullmatch(right.text):
        return Decimal(left.text) != Decimal(right.text)
    return left.value != right.value if left.kind is TokenKind.TEXT else None


def listed_json(condition: Fragment, lexis: Lexis, claims: Collection[str]) -> Iterator[str]:
    """Yield those of *claims*, whose type is json, that *condition* compares as a whole in `in (…)`."""
    whole = grouped(code_of(condition.text, lexis), condition.text)
    pairs = (pair for group in whole.groups() for pair in pairwise(group.parts))
    lists = (after for before, after in pairs if before.word == "in" and isinstance(after, Group))
    values = [each[0] for group in lists for each in split(group.parts, ",") if len(each) == 1]
    for value in values:
        if isinstance(value, Token) and value.kind is TokenKind.PARAMETER:
            yield from {value.parameter.claim or ""} & {*claims}
