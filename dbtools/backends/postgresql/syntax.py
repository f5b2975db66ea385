"""How PostgreSQL tells the words of SQL from what is quoted and what is commented out."""

from dbtools.sql import Kind, Lexis, tokenize, words

lexis = Lexis(
    nested_comments=True,
    dollar_quotes=True,
    escape_strings=True,
    brackets=False,
    backticks=False,
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
SIGNS = "+-*/<>=~!@#%^&|`?"
#: What stands before a value, so that `?` there is no operator between two.
BEFORE_VALUES = words(
    "( , = < > + - * / % where and or not on having between limit offset select distinct values like ilike "
    "in by then else when is"
) | {""}
AFTER_VALUES = {"", ")", ",", ";"}


def placeholder_in(sql: str) -> int | None:
    """Return where in *sql*, which the server refuses, `?` stands for a value, as other drivers have it."""
    tokens = [each for each in tokenize(sql, lexis) if each.kind not in (Kind.BLANK, Kind.COMMENT)]
    texts = ["", *(each.text.lower() for each in tokens), ""]
    for at, token in enumerate(tokens, 1):
        if token.text != "?" or sql[token.offset + 1 : token.offset + 2] in set(SIGNS):
            continue
        if texts[at - 1] in BEFORE_VALUES or texts[at + 1] in AFTER_VALUES:
            return token.offset
    return None
