"""Read CHECK constraints of common forms. SQL text in, the values that a column may have out.

A condition that is not fully understood is ignored, so that a schema never excludes a valid value.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from dbtools.sql import Group, Kind, Lexis, Part, SqlError, Token, code_of, grouped, split, words
from dbtools.types import Family

LONGEST = 20_000  #: characters; longer constraints are ignored
DEEPEST = 30  #: nested brackets

#: Words that are values or begin an expression, and so are not columns.
NO_COLUMNS = words(
    "any array between case cast check current_date current_time current_timestamp current_user else end "
    "exists false in is localtime localtimestamp not null or and raise row select session_user then true "
    "user when"
)
FLIPPED = {"=": "=", "==": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
COMPARING = frozenset({*FLIPPED, "in", "between"})
TEXTS = frozenset({"text", "character varying", "varchar"})
INTEGER = re.compile(r"-?\d+", re.ASCII)
WHOLE = re.compile(r"-?\d{1,18}", re.ASCII)  #: a number beside which there are others of 64 bits
NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
ZONES = ("with time zone", "without time zone")
#: By type: the numbers that a cast to it does not change. None: casts of texts change nothing.
CASTS: Mapping[str, re.Pattern[str] | None] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), INTEGER),
    **dict.fromkeys(("numeric", "real", "double precision"), NUMBER),
    **dict.fromkeys(
        (*TEXTS, "date", *(f"{name} {zone}" for name in ("time", "timestamp") for zone in ZONES))
    ),
}
NEVER = re.compile("(?!)")
PLAIN_NUMBER = re.compile(r"(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?![A-Za-z0-9_.$])")
#: A choice must be written as the database shows it, which may differ for 1.50 and 1e2.
CHOSEN_NUMBER = re.compile(r"-?[1-9]\d{0,14}|0|-?(?:0|[1-9]\d{0,9})\.\d{0,3}[1-9]", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Check:
    """The values that a constraint allows one column, besides null."""

    column: str
    choices: tuple[str, ...] = ()
    minimum: str | None = None  #: the literal as text
    maximum: str | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False


class Limits(NamedTuple):
    """The values that a column may have, besides null."""

    choices: tuple[str, ...] = ()
    minimum: str | None = None
    maximum: str | None = None


def limits_of(
    checks: Iterable[Check],
    family: Family,
    *,
    may_be_choice: Callable[[str], bool] = lambda _: True,
    may_be_bound: Callable[[str], bool] = lambda _: True,
) -> Limits:
    """Return the limits in *checks*: of several, the first one, which need not be the narrowest."""
    limits = Limits()
    for check in checks:
        if not limits.choices and all(map(may_be_choice, check.choices)):
            limits = limits._replace(choices=check.choices)
        if limits.minimum is None and check.minimum is not None and may_be_bound(check.minimum):
            limits = limits._replace(minimum=_bound(check.minimum, ">" * check.exclusive_minimum, family))
        if limits.maximum is None and check.maximum is not None and may_be_bound(check.maximum):
            limits = limits._replace(maximum=_bound(check.maximum, "<" * check.exclusive_maximum, family))
    return limits


def _bound(literal: str, sign: str, family: Family) -> str:
    if sign and family is Family.INTEGER and WHOLE.fullmatch(literal):
        return str(int(literal) + (1 if sign == ">" else -1))
    return f"{sign} {literal}" if sign else literal


class _Literal(NamedTuple):
    text: str
    is_number: bool


_Parts = Sequence[Part]


@lru_cache(maxsize=1024)  # many tables have the same constraints
def read_checks(expression: str, lexis: Lexis) -> tuple[Check, ...]:
    """Return the checks in the constraint *expression*, with or without the word CHECK."""
    if len(expression) > LONGEST:
        return ()
    try:
        tokens = code_of(expression, lexis)
        parts: _Parts = grouped(tokens, expression).parts
    except SqlError:
        return ()
    if _is_odd(tokens, expression):
        return ()
    if parts and parts[0].word == "check":
        # NOT VALID and similar words after the parentheses mean that some rows may not comply.
        parts = _inside(parts[1:]) or []
    return _conditions(parts)


def _is_odd(tokens: Sequence[Token], expression: str) -> bool:
    """Return whether *tokens* are nested too deeply, or contain CASE or an unusual number or name."""
    depths = accumulate((each.kind is Kind.OPENING) - (each.kind is Kind.CLOSING) for each in tokens)
    numbers = (token.offset for token in tokens if token.kind is Kind.NUMBER)
    return (
        max(depths, default=0) > DEEPEST
        or any(token.word in (".", "case") for token in tokens)
        or not all(PLAIN_NUMBER.match(expression, offset) for offset in numbers)
    )


def _inside(parts: _Parts) -> _Parts | None:
    """Return the content of a pair of parentheses, None if *parts* are anything else."""
    group = parts[0] if len(parts) == 1 else None
    return group.parts if isinstance(group, Group) and group.word == "(" else None


def _bare(parts: _Parts) -> _Parts:
    while (inside := _inside(parts)) is not None:
        parts = inside
    return parts


def _conditions(parts: _Parts) -> tuple[Check, ...]:
    parts = _bare(parts)
    alternatives = split(parts, "or")
    if len(alternatives) > 1:
        return _unless_null(alternatives)
    conditions = _conjuncts(parts)
    if len(conditions) > 1:
        return tuple(check for each in conditions for check in _conditions(each))
    check = _condition(parts)
    return (check,) if check else ()


def _conjuncts(parts: _Parts) -> list[list[Part]]:
    """Return the conditions that AND joins; the AND of a BETWEEN joins none."""
    conditions: list[list[Part]] = [[]]
    ranges = 0
    for part in parts:
        if part.word == "and" and not ranges:
            conditions.append([])
            continue
        ranges += (part.word == "between") - (part.word == "and")
        conditions[-1].append(part)
    return conditions


def _unless_null(alternatives: Sequence[_Parts]) -> tuple[Check, ...]:
    """Read `x is null or …`."""
    for nulls, others in (alternatives, reversed(alternatives)) if len(alternatives) == 2 else ():
        match _bare(nulls):
            case [*left, Token(word="is"), Token(word="null")] if (column := _column(left)) is not None:
                return tuple(check for check in _conditions(others) if check.column == column)
    return ()


def _condition(parts: _Parts) -> Check | None:
    """Read one comparison of a column with literals."""
    at = next((at for at, part in enumerate(parts) if part.word in COMPARING), None)
    if at is None:
        return None
    left, operator, right = parts[:at], parts[at].word, parts[at + 1 :]
    if operator in FLIPPED and _column(left, TEXTS) is None:
        left, operator, right = right, FLIPPED[operator], left
    if operator == "in":
        return _chosen(left, split(_inside(right) or (), ","))
    if operator in ("=", "=="):
        return _chosen(left, _array(right) if right and right[0].word == "any" else [right])
    return _bounded(left, operator, split(right, "and"))


def _chosen(left: _Parts, values: Iterable[_Parts]) -> Check | None:
    # For equality, a cast to text changes nothing.
    column, literals = _column(left, TEXTS), [_literal(each) for each in values]
    known = [
        each.text for each in literals if each and (not each.is_number or CHOSEN_NUMBER.fullmatch(each.text))
    ]
    if column is None or not known or len(known) < len(literals):
        return None
    return Check(column=column, choices=tuple(dict.fromkeys(known)))


def _bounded(left: _Parts, operator: str, values: Sequence[_Parts]) -> Check | None:
    column, literals = _column(left), [_literal(each) for each in values]
    if column is None:
        return None
    match operator, [each and each.text for each in literals]:
        case "between", [str(least), str(most)]:
            return Check(column=column, minimum=least, maximum=most)
        case ((">" | ">="), [str(least)]):
            return Check(column=column, minimum=least, exclusive_minimum=operator == ">")
        case (("<" | "<="), [str(most)]):
            return Check(column=column, maximum=most, exclusive_maximum=operator == "<")
        case _:
            return None


def _column(parts: _Parts, casts: Collection[str] = ()) -> str | None:
    """Return the column that *parts* name, possibly cast to one of *casts*."""
    match _operand(parts):
        case [Token(Kind.WORD | Kind.NAME) as token], cast if token.word not in NO_COLUMNS:
            return token.value if cast is None or cast in casts else None
        case _:
            return None


def _operand(parts: _Parts) -> tuple[_Parts, str | None]:
    """Return the operand before an outer `::`, and the type after it."""
    plain, *casts = split(_bare(parts), "::")
    words: list[str] = []
    for part in (part for cast in casts for part in cast):
        match part:
            case Token(Kind.WORD):
                words.append(part.word)
            case Group(word="[", parts=[]):
                words.append("[]")
            case _:  # two casts, or a length, make an unknown type
                words.append("?")
    return _bare(plain), " ".join(words).replace(" []", "[]") if casts else None


def _literal(parts: _Parts) -> _Literal | None:
    match _operand(parts):
        case [Token(Kind.NUMBER, text)], cast:
            literal = _Literal(text, True)
        case [Token(Kind.SIGN, "-"), Token(Kind.NUMBER, text)], cast:
            literal = _Literal(f"-{text}", True)
        case [Token(Kind.TEXT, text) as token], cast if text[0] == "'":
            literal = _Literal(token.value, False)
        case _:
            return None
    if cast is None:
        return literal
    # A cast that might change the literal, or that is unknown, makes it unknown.
    numbers = CASTS.get(cast, NEVER)
    if numbers is None:
        return None if literal.is_number else literal
    return _Literal(literal.text, True) if numbers.fullmatch(literal.text) else None


def _array(parts: _Parts) -> list[list[Part]]:
    """Return the items of `any (array[…])`, with or without a cast to text."""
    match _operand(_inside(parts[1:]) or ()):
        case [Token(Kind.WORD) as word, Group(word="[") as items], cast if word.word == "array":
            return split(items.parts, ",") if cast is None or cast.removesuffix("[]") in TEXTS else []
        case _:
            return []
