"""How PostgreSQL tells the words of SQL from what is quoted and what is commented out."""

from dbtools.parameters import Lexis, words

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
        "position right rtrim starts_with strpos trim upper"
    ),
    total_operators=words("= <> != < <= > >= -> ->> #> #>> @> <@ ? ?| ?&"),
)
