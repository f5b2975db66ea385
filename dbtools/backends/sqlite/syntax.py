"""How SQLite tells the words of SQL from what is quoted and what is commented out."""

from dbtools.sql import Kind, Lexis, Token, tokenize, unquoted, words

lexis = Lexis(
    nested_comments=False,
    dollar_quotes=False,
    escape_strings=False,
    brackets=True,
    backticks=True,
    line_ends="\n",
    native_marks="?@$#:",
    lenient=True,
    total_functions=words(
        "cast coalesce count date datetime ifnull iif instr julianday length likelihood likely lower ltrim "
        "max min nullif round rtrim sign strftime substr substring time trim typeof unicode unixepoch "
        "unlikely upper"
    ),
    total_operators=words("= == <> != < <= > >= + - * / % & | << >> ~"),
)


def with_names(sql: str) -> str:
    """Return *sql*, a piece of what an operator wrote, with backticks for double quotes.

    SQLite takes a name in double quotes that means nothing for a text (sqlite.org/quirks.html, 8), so that a
    condition on a column that is gone would be true of every row. In backticks it is a name or an error.
    """
    written = ""
    for token in tokenize(sql, lexis):
        text = f"`{bare(token).replace('`', '``')}`" if _is_name(token) else token.text
        # Two names without a blank between them would be one.
        written += f" {text}" if written.endswith("`") and text.startswith("`") else text
    return written


def explained(message: str, sql: str) -> str:
    """Return what SQLite says of an operator's *sql*, and what to write where a text was meant."""
    name = misnamed(message, sql)
    if name is None:
        return f"{message}."
    text = bare(name).replace("'", "''")
    return f"{message}. A name stands in double quotes; text stands in single quotes: '{text}'."


def misnamed(message: str, sql: str) -> Token | None:
    """Return the name in double quotes in *sql* of which SQLite's *message* says that it means nothing."""
    names = (token for token in tokenize(sql, lexis) if _is_name(token))
    return next((name for name in names if message == f"no such column: {bare(name)}"), None)


def bare(token: Token) -> str:
    """Return the text of *token* without its quotes, if it has any."""
    return unquoted(token.text) if token.kind is Kind.QUOTED else token.text


def _is_name(token: Token) -> bool:
    return token.kind is Kind.QUOTED and token.text.startswith('"')
