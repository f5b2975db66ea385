"""Read CHECK constraints of common forms. SQL text in, the values that a column may have out.

A condition that is not fully understood is ignored, so that a schema never excludes a valid value.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from dbtools.schema.sql import Group, Lexis, Part, SqlError, Token, TokenKind, code_of, nest, split, words
from dbtools.values.types import Family

LONGEST_CHECK = 20_000  #: characters; longer constraints are ignored
MOST_BRACKETS = 100  #: constraints with more are ignored

#: Words that are values or begin an expression, and so are not columns.
NO_COLUMNS = words(
    "any array between case cast check current_date current_time current_timestamp current_user else end "
    "exists false in is localtime localtimestamp not null or and raise row select session_user then true "
    "user when"
)
FLIPPED = {"=": "=", "==": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
COMPARISON_WORDS = frozenset({*FLIPPED, "in", "between"})
TEXT_TYPES = frozenset({"text", "character varying", "varchar"})
INTEGER_TEXT = re.compile(r"-?\d+", re.ASCII)
WHOLE_NUMBER = re.compile(r"-?\d{1,18}", re.ASCII)  #: a number beside which there are others of 64 bits
NUMBER_TEXT = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?", re.ASCII)
ZONES = ("with time zone", "without time zone")
#: By type: the numbers that a cast to it does not change. None: casts of texts change nothing.
EXACT_CASTS: Mapping[str, re.Pattern[str] | None] = {
    **dict.fromkeys(("smallint", "integer", "bigint"), INTEGER_TEXT),
    **dict.fromkeys(("numeric", "real", "double precision"), NUMBER_TEXT),
    **dict.fromkeys(
        (*TEXT_TYPES, "date", *(f"{name} {zone}" for name in ("time", "timestamp") for zone in ZONES))
    ),
}
NEVER = re.compile("(?!)")
#: A choice must be written as the database shows it, which may differ for 1.50 and 1e2.
CHOSEN_NUMBER = re.compile(r"-?[1-9]\d{0,14}|0|-?(?:0|[1-9]\d{0,9})\.\d{0,3}[1-9]", re.ASCII)


class Check(NamedTuple):
    """A condition that every value of one column meets, besides null."""

    column: str
    operator: str  #: "=" for one of the literals, or "<", "<=", ">", ">=" with a single one
    literals: tuple[str, ...]


def limits_of(checks: Iterable[Check], family: Family) -> dict[str, Any]:
    """Return the fields of a Column that has *checks*: of several limits, the first, if not the narrowest."""
    limits: dict[str, Any] = {}
    for _, operator, literals in checks:
        if operator == "=":
            limits.setdefault("choices", literals)
        else:
            end = "minimum" if operator.startswith(">") else "maximum"
            limits.setdefault(end, _limit_text(literals[0], operator, family))
    return limits


def _limit_text(literal: str, operator: str, family: Family) -> str:
    if operator.endswith("="):
        return literal
    if family is Family.INTEGER and WHOLE_NUMBER.fullmatch(literal):
        return str(int(literal) + (1 if operator == ">" else -1))
    return f"{operator} {literal}"


class _Literal(NamedTuple):
    text: str
    is_number: bool


_Parts = Sequence[Part]


@lru_cache(maxsize=1024)  # many tables have the same constraints
def read_checks(expression: str, lexis: Lexis) -> tuple[Check, ...]:
    """Return the checks in the constraint *expression*, with or without the word CHECK."""
    if len(expression) > LONGEST_CHECK or expression.count("(") > MOST_BRACKETS:
        return ()
    try:
        parts: _Parts = nest(code_of(expression, lexis), expression).parts
    except SqlError:
        return ()
    if parts and parts[0].word == "check":
        # NOT VALID and similar words after the parentheses mean that some rows may not comply.
        parts = _content_of(parts[1:]) or []
    return tuple(_conditions(parts))


def _content_of(parts: _Parts) -> _Parts | None:
    """Return the content of a pair of parentheses, None if *parts* are anything else."""
    group = parts[0] if len(parts) == 1 else None
    return group.parts if isinstance(group, Group) and group.word == "(" else None


def _without_brackets(parts: _Parts) -> _Parts:
    while (inside := _content_of(parts)) is not None:
        parts = inside
    return parts


def _conditions(parts: _Parts) -> Iterator[Check]:
    parts = _without_brackets(parts)
    alternatives, conditions = split(parts, "or"), _conjuncts(parts)
    if any(part.word == "case" for part in parts):
        return
    if len(alternatives) > 1:
        yield from _unless_null(alternatives)
    elif len(conditions) > 1:
        for each in conditions:
            yield from _conditions(each)
    else:
        yield from _comparison(parts)


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


def _unless_null(alternatives: Sequence[_Parts]) -> Iterator[Check]:
    """Read `x is null or …`."""
    for nulls, others in (alternatives, reversed(alternatives)) if len(alternatives) == 2 else ():
        match _without_brackets(nulls):
            case [*left, Token(word="is"), Token(word="null")] if (column := _column(left)) is not None:
                yield from (check for check in _conditions(others) if check.column == column)


def _comparison(parts: _Parts) -> Iterator[Check]:
    """Read one comparison of a column with literals."""
    at = next((at for at, part in enumerate(parts) if part.word in COMPARISON_WORDS), None)
    if at is None:
        return
    left, operator, right = parts[:at], parts[at].word, parts[at + 1 :]
    if operator in FLIPPED and _column(left, TEXT_TYPES) is None:
        left, operator, right = right, FLIPPED[operator], left
    match operator:
        case "in":
            yield from _choice_checks(left, split(_content_of(right) or (), ","))
        case "=" | "==":
            yield from _choice_checks(left, _array(right) if right and right[0].word == "any" else [right])
        case "between":
            yield from _bound_checks(left, (">=", "<="), split(right, "and"))
        case _:
            yield from _bound_checks(left, (operator,), [right])


def _choice_checks(left: _Parts, values: Iterable[_Parts]) -> Iterator[Check]:
    # For equality, a cast to text changes nothing.
    column, literals = _column(left, TEXT_TYPES), [_literal(each) for each in values]
    known = [
        each.text for each in literals if each and (not each.is_number or CHOSEN_NUMBER.fullmatch(each.text))
    ]
    if column is not None and known and len(known) == len(literals):
        yield Check(column, "=", tuple(dict.fromkeys(known)))


def _bound_checks(left: _Parts, operators: Sequence[str], values: Sequence[_Parts]) -> Iterator[Check]:
    column, texts = _column(left), [literal.text for each in values if (literal := _literal(each))]
    if column is not None and len(texts) == len(operators):
        for operator, text in zip(operators, texts, strict=True):
            yield Check(column, operator, (text,))


def _column(parts: _Parts, casts: Collection[str] = ()) -> str | None:
    """Return the column that *parts* name, possibly cast to one of *casts*."""
    match _operand(parts):
        case [Token(TokenKind.WORD | TokenKind.NAME) as token], cast if token.word not in NO_COLUMNS:
            return token.value if cast is None or cast in casts else None
        case _:
            return None


def _operand(parts: _Parts) -> tuple[_Parts, str | None]:
    """Return the operand before an outer `::`, and the type after it."""
    plain, *casts = split(_without_brackets(parts), "::")
    # Two casts, or a length, make an unknown type.
    return _without_brackets(plain), " ".join(part.word for cast in casts for part in cast) if casts else None


def _literal(parts: _Parts) -> _Literal | None:
    match _operand(parts):
        case [Token(TokenKind.NUMBER, text)], cast if NUMBER_TEXT.fullmatch(text):
            literal = _Literal(text, True)
        case [Token(TokenKind.SIGN, "-"), Token(TokenKind.NUMBER, text)], cast if NUMBER_TEXT.fullmatch(text):
            literal = _Literal(f"-{text}", True)
        case [Token(TokenKind.TEXT, text) as token], cast if text[0] == "'":
            literal = _Literal(token.value, False)
        case _:
            return None
    if cast is None:
        return literal
    # A cast that might change the literal, or that is unknown, makes it unknown.
    numbers = EXACT_CASTS.get(cast, NEVER)
    if numbers is None:
        return None if literal.is_number else literal
    return _Literal(literal.text, True) if numbers.fullmatch(literal.text) else None


def _array(parts: _Parts) -> list[list[Part]]:
    """Return the items of `any (array[…])`, with or without a cast to text."""
    match _operand(_content_of(parts[1:]) or ()):
        case [Token(TokenKind.WORD) as word, Group(word="[") as items], cast if word.word == "array":
            return split(items.parts, ",") if cast is None or cast.removesuffix(" [") in TEXT_TYPES else []
        case _:
            return []
