"""How PostgreSQL tells the words of SQL from what is quoted and what is commented out."""

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
        "btrim char_length coalesce count current_setting greatest least left lower ltrim max min now nullif "
        "right rtrim starts_with strpos upper"
    ),
    total_operators=words("= <> != < <= > >= -> ->> #> #>> @> <@ ? ?| ?&"),
)

MISWRITTEN = ("42601", "42883")  #: the states of what is no SQL, and of an operator that there is not
NO_PARAMETER = "? is no parameter here, only :name is"
#: What stands before a value, so that `?` there is no operator between two.
BEFORE_VALUES = words(
    "( , where and or not on having between limit offset select distinct values like ilike in by then else "
    "when is"
) | {""}
ENDS_BEFORE_VALUES = tuple("=<>+-*/%")  #: of operators
AFTER_VALUES = {"", ")", ",", ";"}


def placeholder_in(sql: str) -> int | None:
    """Return where in *sql*, which the server refuses, `?` stands for a value, as other drivers have it."""
    tokens = code_of(sql, lexis)
    words = ["", *(each.text.lower() for each in tokens), ""]
    for at, token in enumerate(tokens, 1):
        if token.kind is not Kind.SIGN or not token.text.endswith("?"):
            continue
        # Without a blank it is read as the end of the operator before it.
        before = token.text[-2:-1] or words[at - 1]
        is_first = before in BEFORE_VALUES or before.endswith(ENDS_BEFORE_VALUES)
        if is_first or words[at + 1] in AFTER_VALUES:
            return token.end - 1
    return None


def calls_in(sql: str) -> Iterator[tuple[str, int]]:
    """Yield the names in *sql* that a parenthesis follows, as the server reads them, and where they stand."""
    for token, mark in pairwise(code_of(sql, lexis)):
        if mark.text == "(" and token.kind in (Kind.WORD, Kind.NAME):
            yield token.word or token.value, token.offset
