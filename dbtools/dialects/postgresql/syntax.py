"""How PostgreSQL tells the words of SQL from what is quoted and what is commented out."""

from dbtools.parameters import Lexis

lexis = Lexis(
    nested_comments=True,
    dollar_quotes=True,
    escape_strings=True,
    brackets=False,
    backticks=False,
    line_ends="\n\r",
    native_marks="$",
)
