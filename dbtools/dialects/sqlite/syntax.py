"""How SQLite tells the words of SQL from what is quoted and what is commented out."""

from dbtools.parameters import Lexis, words

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
)
