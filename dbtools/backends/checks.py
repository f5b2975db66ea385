"""Read CHECK constraints of well-known shapes. SQL text in, the values that it allows a column out.

Total and cautious: what is not wholly understood is not reported, so that nothing false is.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

LONGEST = 20_000  #: characters of a constraint that is read
DEEPEST = 30  #: nested parentheses

#: Characters of identifiers, which take all beyond ASCII, as databases do. They are written as what they are
#: not: a class that runs up to U+10FFFF takes 10 ms to compile.
HEAD = r"[^\x00-@\[-^`{-\x7f]"
TAIL = r"[^\x00-\#%-/:-@\[-^`{-\x7f]"
DOTTED = r"[^\x00-\#%-\-/:-@\[-^`{-\x7f]"
TOKEN = re.compile(
    rf"""
    (?P<space>[ \t\r\n\f]+ | --[^\n]* | /\*.*?(?:\*/|\Z))
    | (?P<escaped>[eE]'(?:[^'\\]|''|\\.)*')
    | (?P<string>'(?:[^']|'')*')
    | (?P<array>[aA][rR][rR][aA][yY][ \t\r\n]*\[)
    | (?P<suffix>\[\])
    | (?P<quoted>"(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\])
    | (?P<number>(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?!{DOTTED}))
    | (?P<word>{HEAD}{TAIL}*)
    | (?P<mark>::|<=|>=|==|<>|!=|[\x00-\x08\x0e-\x1b!\#%&()*+,\-/:;<=>?@\[\\\]^{{|}}~\x7f])
    | (?P<odd>[0-9.]{DOTTED}*|.)
    """,
    re.VERBOSE | re.DOTALL,
)
OPENING = {"(", "["}
CLOSING = {")", "]"}

#: Words that stand for a value or begin an expression, and so name no column.
NO_COLUMNS = frozenset(
    {
        *("any", "array", "between", "case", "cast", "check", "current_date", "current_time"),
        *("current_timestamp", "current_user", "else", "end", "exists", "false", "in", "is", "localtime"),
        *("localtimestamp", "not", "null", "or", "and", "raise", "row", "select", "session_user", "then"),
        *("true", "user", "when"),
    }
)
FLIPPED = {"=": "=", "==": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
TEXTS = frozenset({"text", "character varying", "varchar"})
INTEGERS = frozenset({"smallint", "integer", "bigint"})
NUMBERS = frozenset({"numeric", "real", "double precision"})
TEMPORAL = frozenset(
    {
        *("date", "timestamp without time zone", "timestamp with time zone"),
        *("time without time zone", "time with time zone"),
    }
)
INTEGER = re.compile(r"-?\d+", re.ASCII)
NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
#: A choice is shown as the database writes the value: 1.50 and 1e2 may be written otherwise.
CHOSEN_NUMBER = re.compile(r"-?[1-9]\d{0,14}|0|-?(?:0|[1-9]\d{0,9})\.\d{0,3}[1-9]", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Check:
    """What a constraint allows one column to hold, beside null."""

    column: str
    choices: tuple[str, ...] = ()
    minimum: str | None = None  #: the literal as text
    maximum: str | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False


class _Token(NamedTuple):
    kind: str
    text: str  #: of names and strings, without their quotes


class _Literal(NamedTuple):
    text: str
    is_number: bool


_Tokens = Sequence[_Token]


@lru_cache(maxsize=1024)  # many tables have the same
def read_checks(expression: str) -> tuple[Check, ...]:
    """Return what the constraint *expression*, with or without the word CHECK, says of columns."""
    if len(expression) > LONGEST:
        return ()
    tokens = _tokens(expression)
    if any(token.kind == "odd" for token in tokens) or not _is_balanced(tokens):
        return ()
    if tokens and _is_word(tokens[0], "check"):
        # What follows the parentheses, such as NOT VALID, says that some rows need not comply.
        tokens = tokens[1:] if _is_enclosed(tokens[1:]) else []
    return _conditions(tokens)


def _tokens(text: str) -> list[_Token]:
    return [
        _Token(str(match.lastgroup), _unquoted(str(match.lastgroup), match[0]))
        for match in TOKEN.finditer(text)
        if match.lastgroup != "space"
    ]


def _unquoted(kind: str, text: str) -> str:
    match kind:
        case "string":
            return text[1:-1].replace("''", "'")
        case "quoted":
            quote = text[-1]
            return text[1:-1] if quote == "]" else text[1:-1].replace(quote * 2, quote)
        case "array":
            return "["
        case _:
            return text


def _is_balanced(tokens: _Tokens) -> bool:
    depth = 0
    for token in tokens:
        depth += _step(token)
        if not 0 <= depth <= DEEPEST:
            return False
    return depth == 0


def _step(token: _Token) -> int:
    """Return how much deeper *token* leads: an expression between CASE and END is nested as well."""
    if token.kind == "array" or _is_word(token, "case"):
        return 1
    if _is_word(token, "end"):
        return -1
    if token.kind != "mark":
        return 0
    return (token.text in OPENING) - (token.text in CLOSING)


def _is_word(token: _Token, *words: str) -> bool:
    return token.kind == "word" and token.text.lower() in words


def _is_mark(token: _Token, *marks: str) -> bool:
    return token.kind == "mark" and token.text in marks


def _bare(tokens: _Tokens) -> _Tokens:
    while _is_enclosed(tokens):
        tokens = tokens[1:-1]
    return tokens


def _is_enclosed(tokens: _Tokens) -> bool:
    """Return whether one pair of parentheses holds all *tokens*."""
    if len(tokens) < 2 or not _is_mark(tokens[0], "("):
        return False
    depth = 0
    for index, token in enumerate(tokens):
        depth += _step(token)
        if depth == 0:
            return index == len(tokens) - 1
    return False


def _split(tokens: _Tokens, kind: str, separator: str) -> list[_Tokens]:
    """Return the parts of *tokens* between outermost *separators*, but not between BETWEEN and its AND."""
    parts: list[_Tokens] = []
    depth = start = ranges = 0
    for index, token in enumerate(tokens):
        depth += _step(token)
        if depth:
            continue
        if _is_word(token, "between"):
            ranges += 1
        if token.kind != kind or token.text.lower() != separator:
            continue
        if separator == "and" and ranges:
            ranges -= 1
            continue
        parts.append(tokens[start:index])
        start = index + 1
    return [*parts, tokens[start:]]


def _conditions(tokens: _Tokens) -> tuple[Check, ...]:
    tokens = _bare(tokens)
    alternatives = _split(tokens, "word", "or")
    if len(alternatives) > 1:
        return _alternatives(alternatives)
    parts = _split(tokens, "word", "and")
    if len(parts) > 1:
        return tuple(check for part in parts for check in _conditions(part))
    check = _condition(tokens)
    return (check,) if check else ()


def _alternatives(alternatives: Iterable[_Tokens]) -> tuple[Check, ...]:
    """Read `x is null or …` and `x = 'a' or x = 'b'`."""
    named = [(_null_column(_bare(each)), each) for each in alternatives]
    nullable = {name for name, _ in named if name is not None}
    rest = [each for name, each in named if name is None]
    if len(nullable) > 1 or not rest:
        return ()
    checks = _conditions(rest[0]) if len(rest) == 1 else _union(rest)
    return tuple(check for check in checks if not nullable or check.column in nullable)


def _union(alternatives: Iterable[_Tokens]) -> tuple[Check, ...]:
    checks = [_choice(each) for each in alternatives]
    found = [check for check in checks if check is not None]
    if len(found) < len(checks) or len({check.column for check in found}) > 1:
        return ()
    choices = dict.fromkeys(choice for check in found for choice in check.choices)
    return (Check(column=found[0].column, choices=tuple(choices)),)


def _choice(tokens: _Tokens) -> Check | None:
    tokens = _bare(tokens)
    nested = len(_split(tokens, "word", "or")) > 1
    check = next(iter(_conditions(tokens)), None) if nested else _condition(tokens)
    return check if check and check.choices else None


def _null_column(tokens: _Tokens) -> str | None:
    if len(tokens) > 2 and _is_word(tokens[-2], "is") and _is_word(tokens[-1], "null"):
        return _column(tokens[:-2])
    return None


def _condition(tokens: _Tokens) -> Check | None:
    """Read one comparison of a column with literals."""
    at = next((index for index, token in enumerate(tokens) if _compares(token)), None)
    if at is None:
        return None
    left, right = tokens[:at], tokens[at + 1 :]
    if _is_word(tokens[at], "in"):
        return _chosen(left, _list(right))
    if _is_word(tokens[at], "between"):
        return _range(left, right)
    return _comparison(left, tokens[at].text, right)


def _compares(token: _Token) -> bool:
    return _is_mark(token, *FLIPPED) or _is_word(token, "in", "between")


def _comparison(left: _Tokens, operator: str, right: _Tokens) -> Check | None:
    if _column_or_text(left) is None:
        left, operator, right = right, FLIPPED[operator], left
    if operator in ("=", "=="):
        literal = _literal(right)
        return _chosen(left, _array(right) if literal is None else [literal])
    column, bound = _column(left), _literal(right)
    if column is None or bound is None:
        return None
    exclusive = operator in ("<", ">")
    if operator in (">", ">="):
        return Check(column=column, minimum=bound.text, exclusive_minimum=exclusive)
    return Check(column=column, maximum=bound.text, exclusive_maximum=exclusive)


def _chosen(left: _Tokens, literals: Iterable[_Literal | None]) -> Check | None:
    column = _column_or_text(left)
    found = list(literals)
    known = [literal for literal in found if literal is not None and _is_choice(literal)]
    if column is None or not known or len(known) < len(found):
        return None
    return Check(column=column, choices=tuple(dict.fromkeys(literal.text for literal in known)))


def _is_choice(literal: _Literal) -> bool:
    return not literal.is_number or bool(CHOSEN_NUMBER.fullmatch(literal.text))


def _range(left: _Tokens, right: _Tokens) -> Check | None:
    ends = _split(right, "word", "and")
    if len(ends) != 2:
        return None
    column, least, most = _column(left), _literal(ends[0]), _literal(ends[1])
    if column is None or least is None or most is None:
        return None
    return Check(column=column, minimum=least.text, maximum=most.text)


def _column(tokens: _Tokens) -> str | None:
    tokens = _bare(tokens)
    if len(tokens) != 1 or tokens[0].kind not in ("word", "quoted"):
        return None
    return None if _is_word(tokens[0], *NO_COLUMNS) else tokens[0].text


def _column_or_text(tokens: _Tokens) -> str | None:
    """Return the column that *tokens* name; where texts are equal, a cast to text changes nothing."""
    plain, cast = _uncast(_bare(tokens))
    return _column(plain) if cast is None or cast in TEXTS else None


def _uncast(tokens: _Tokens) -> tuple[_Tokens, str | None]:
    """Return what stands before an outer `::`, and the name of the type after it."""
    plain, *casts = _split(tokens, "mark", "::")
    if not casts:
        return plain, None
    # Two casts, or one with a length: an unknown type.
    words = [token.text if token.kind in ("word", "suffix") else "?" for cast in casts for token in cast]
    return plain, " ".join(words).replace(" []", "[]")


def _literal(tokens: _Tokens) -> _Literal | None:
    tokens = _bare(tokens)
    plain, cast = _uncast(tokens)
    literal = _constant(plain)
    if literal is None or cast is None:
        return literal
    return _as_type(literal, cast)


def _constant(tokens: _Tokens) -> _Literal | None:
    tokens = _bare(tokens)
    sign = ""
    if len(tokens) == 2 and _is_mark(tokens[0], "-") and tokens[1].kind == "number":
        sign, tokens = "-", tokens[1:]
    if len(tokens) != 1:
        return None
    match tokens[0]:
        case _Token("number", text):
            return _Literal(sign + text, True)
        case _Token("string", text):
            return _Literal(text, False)
        case _Token("escaped", text):
            return _unescaped(text)
        case _:
            return None


def _unescaped(text: str) -> _Literal | None:
    inner = text[2:-1]
    if re.search(r"\\[^\\']", re.sub(r"\\\\", "", inner)):
        return None
    return _Literal(re.sub(r"\\(.)|''", lambda match: match[1] or "'", inner), False)


def _as_type(literal: _Literal, cast: str) -> _Literal | None:
    """Return *literal* as the type *cast*, if it is certain to be the same value."""
    if cast in TEXTS or cast in TEMPORAL:
        return None if literal.is_number else literal
    pattern = INTEGER if cast in INTEGERS else NUMBER if cast in NUMBERS else None
    if pattern is None or not pattern.fullmatch(literal.text):
        return None
    return _Literal(literal.text, True)


def _list(tokens: _Tokens) -> list[_Literal | None]:
    if not _is_enclosed(tokens):
        return []
    return [_literal(each) for each in _split(tokens[1:-1], "mark", ",")]


def _array(tokens: _Tokens) -> list[_Literal | None]:
    """Read `any (array[…])`, the array cast or not."""
    if not tokens or not _is_word(tokens[0], "any") or not _is_enclosed(tokens[1:]):
        return []
    array, cast = _uncast(_bare(tokens[1:]))
    array = _bare(array)
    if cast is not None and cast.removesuffix("[]") not in TEXTS:
        return []
    if len(array) < 3 or array[0].kind != "array" or not _is_mark(array[-1], "]"):
        return []
    return [_literal(each) for each in _split(array[1:-1], "mark", ",")]
