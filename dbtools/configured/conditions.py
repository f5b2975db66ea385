"""Judge the text of a row filter: whether it raises no error for any row, and whether no row can pass it.

A database evaluates a row filter and a caller's conditions in any order. If the filter can raise an error
about a row, the error reveals whether the caller's conditions hold for that row. So a filter that is not
known to be total is evaluated behind an optimisation barrier, and the caller's conditions use no indexes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from dbtools.findings import Kind
from dbtools.schema.sql import Fragment, Group, Lexis, Part, Token, TokenKind, code_of, nest, split, words

CONSTANTS = (TokenKind.TEXT, TokenKind.PARAMETER, TokenKind.NUMBER)
KEYWORD_CONSTANTS = words("null true false")
PATTERN_MATCHES = words("like ilike glob")

COMPARISONS = words("= == <> != < <= > >=")
EQUALITY = words("= == <> !=")
UNSPLIT = words("between case")  #: an `and` after these does not join two conditions
DECIMAL = re.compile(r"\d+(\.\d+)?", re.ASCII)


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
    whole = nest(code_of(condition.text, lexis), condition.text)
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


def why_no_row_passes(condition: Fragment, lexis: Lexis) -> Kind | None:
    """Return why *condition* is true of no row, whatever it has; None if that is not certain."""
    return _vain(nest(code_of(condition.text, lexis), condition.text).parts)


def _vain(parts: Sequence[Part]) -> Kind | None:
    if not UNSPLIT.isdisjoint(part.word for part in parts):
        return None
    reasons = [next(filter(None, map(_vain_part, split(each, "and"))), None) for each in split(parts, "or")]
    return reasons[0] if all(reasons) else None


def _vain_part(parts: Sequence[Part]) -> Kind | None:
    match parts:
        case [Group(word="(", parts=inner)]:
            return _vain(inner)
        case [Token(word="false" | "0" | "null")]:
            return Kind.FALSE_FILTER
        case [*before, Token(word=word), Token(word="null")] if before and word in COMPARISONS:
            # Such as `a is b = null`, which is another comparison.
            if any(part.word == "is" for part in before):
                return None
            return Kind.NULL_FILTER
        case [Token() as left, Token(word=word), Token() as right] if (
            word in EQUALITY and left.kind == right.kind
        ):
            if _differ(left, right) is (word in ("=", "==")):
                return Kind.FALSE_FILTER
    return None


def _differ(left: Token, right: Token) -> bool | None:
    """Return whether two constants of one kind are different values; None if that is not certain."""
    if left.kind is TokenKind.NUMBER and DECIMAL.fullmatch(left.text) and DECIMAL.fullmatch(right.text):
        return Decimal(left.text) != Decimal(right.text)
    return left.value != right.value if left.kind is TokenKind.TEXT else None
