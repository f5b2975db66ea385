"""The lexical rules of PostgreSQL: what is quoted, what is a comment, and what raises no error."""

from collections.abc import Iterator
from itertools import pairwise

from dbtools.sql import Kind, Lexis, code_of, words

lexis = Lexis(
    name_quotes='"',
    nested_comments=True,
    dollar_quotes=True,
    escape_strings=True,
    line_ends="\n\r",
    native_marks="$",
    lenient=False,
    total_functions=words(
        "btrim char_length coalesce count greatest least left lower ltrim max min now nullif "
        "right rtrim starts_with strpos upper"
    ),
    total_operators=words("= <> != < <= > >= -> ->> #> #>> @> <@ ? ?| ?&"),
)

MISWRITTEN = ("42601", "42883")  #: the states of a syntax error, and of an unknown operator


def placeholder_hint(state: str | None, sql: str) -> str:
    """Return a hint if *sql*, refused with *state*, has a `?`, which other drivers take for a parameter."""
    marks = (token for token in code_of(sql, lexis) if token.kind is Kind.SIGN and token.text.endswith("?"))
    return "? is no parameter here, only :name is." if state in MISWRITTEN and any(marks) else ""


def names_before(sign: str, sql: str) -> Iterator[tuple[str, int]]:
    """Yield the names in *sql* that *sign* follows, as the server reads them, and their offsets."""
    for token, mark in pairwise(code_of(sql, lexis)):
        if mark.text == sign and token.kind in (Kind.WORD, Kind.NAME):
            yield token.word or token.value, token.offset
