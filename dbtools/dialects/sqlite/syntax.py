"""How SQLite tells the words of SQL from what is quoted and what is commented out."""

from dbtools.parameters import Lexis

lexis = Lexis(
    nested_comments=False,
    dollar_quotes=False,
    escape_strings=False,
    brackets=True,
    backticks=True,
    line_ends="\n",
    native_marks="?@$#:",
)
