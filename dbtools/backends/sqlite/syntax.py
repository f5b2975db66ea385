"""How SQLite reads SQL, and a query that an operator wrote. Pieces in; names, statements and places out."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from dbtools.backends.plans import identifier
from dbtools.sql import (
    WORD,
    Group,
    Kind,
    Lexis,
    Parameter,
    SqlError,
    Token,
    code_of,
    grouped,
    tokenize,
    words,
)

lexis = Lexis(
    name_quotes='"`[',
    nested_comments=False,
    dollar_quotes=False,
    escape_strings=False,
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
ASCII_LOWER = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
NULL = "(null/* a parameter */)"  #: what stands for a parameter in the view
#: What SQLite says of a name that means nothing, or too much.
NAMED = re.compile(
    r"(?:no such (?:table|column|function|window|collation sequence)|ambiguous column name): "
    r"(?:.*\.)?(?P<name>[^.]+)"
    r'|near "(?P<word>.+)": syntax error'
    r"|(?:wrong number of arguments to|misuse of aggregate) function (?P<function>.+)\(\)"
)
INCOMPLETE = "incomplete input"
#: Tables that are joined so are read without a word to the authorizer (3.40).
SILENT_JOINS = frozenset({"using", "natural"})

Piece = str | Parameter


def fold(name: str) -> str:
    """Return *name* in lower case as SQLite compares names: only the letters of ASCII."""
    return name.lower() if name.isascii() else name.translate(ASCII_LOWER)


def readable(sql: str, word: str = WORD) -> list[Token]:
    """Return the tokens of *sql* up to where it cannot be read: SQLite keeps a comment that is not closed."""
    tokens: list[Token] = []
    with suppress(SqlError):
        tokens.extend(tokenize(sql, lexis, word))
    return tokens


def in_groups(sql: str) -> Group:
    """Return *sql* as groups, up to where it cannot be read; as none where brackets do not pair.

    SQLite itself refuses such SQL.
    """
    try:
        return grouped(readable(sql), sql)
    except SqlError:
        return Group("", 0)


def words_in(sql: str) -> frozenset[str]:
    """Return the words and signs of *sql* outside of quotes, folded."""
    return frozenset(fold(token.word) for token in code_of(sql, lexis))


def names_in(sql: str) -> frozenset[str]:
    """Return the words of *sql* and whatever is in quotes, all folded."""
    return frozenset(fold(token.value) for token in code_of(sql, lexis))


def with_names(sql: str) -> str:
    """Return *sql*, a piece of what an operator wrote, with backticks for double quotes.

    SQLite takes a name in double quotes that means nothing for a text (sqlite.org/quirks.html, 8), so that a
    condition on a column that is gone would be true of every row. In backticks it is a name or an error.
    """
    written, end = "", 0
    for token in tokenize(sql, lexis):
        text = f"`{token.value.replace('`', '``')}`" if _is_double_quoted(token) else token.text
        # Two names without a blank between them would be one.
        joint = " " if written.endswith("`") and text.startswith("`") else ""
        written += (sql[end : token.offset] or joint) + text
        end = token.end
    return written + sql[end:]


def explained(message: str, sql: str) -> str:
    """Return what SQLite says of an operator's *sql*, and what to write where a text was meant."""
    name = message.removeprefix("no such column: ")
    if identifier(name) not in sql:
        return f"{message}."
    text = name.replace("'", "''")
    return f"{message}. A name stands in double quotes; text stands in single quotes: '{text}'."


def _is_double_quoted(token: Token) -> bool:
    return token.kind is Kind.NAME and token.text.startswith('"')


@dataclass(frozen=True, kw_only=True)
class WrittenQuery:
    """A query in the pieces that the operator wrote, and as many as SQLite reads them."""

    source: Sequence[Piece]
    pieces: Sequence[Piece]

    @cached_property
    def text(self) -> str:
        """The SQL as the operator wrote it."""
        return "".join(map(str, self.source))

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The parameters by name, numbered from 1."""
        names = dict.fromkeys(piece.name for piece in self.pieces if isinstance(piece, Parameter))
        return {name: number for number, name in enumerate(names, 1)}

    @cached_property
    def words(self) -> frozenset[str]:
        """The words outside of quotes."""
        return words_in(self.text)

    @cached_property
    def names(self) -> frozenset[str]:
        """The words, and whatever is in quotes, all folded: what the query names is among them."""
        return names_in(self.text)

    def offset_of(self, message: str) -> int | None:
        """Return where what *message* names first stands, None where that does not show.

        SQLite knows the place (3.38), and the standard library's module does not tell it (Python 3.14).
        """
        if message == INCOMPLETE:
            return len(self.text)
        named = NAMED.fullmatch(message)
        # A name in quotes may have a dot.
        whole = self.places_of(message.partition(": ")[2])
        places = whole or (self.places_of(named[named.lastindex or 0]) if named else [])
        # A word may be right in one place and wrong in the next.
        return places[0] if len(places) == 1 or (places and named and named["name"]) else None

    def places_of(self, word: str) -> list[int]:
        """Return where *word* stands, in quotes or not."""
        return [each.offset for each in tokenize(self.text, lexis) if fold(each.value) == fold(word)]

    def alone(self) -> str:
        """Return the query with numbered parameters, as a call runs it."""
        numbers = self.numbers
        return "".join(
            f"?{numbers[each.name]}" if isinstance(each, Parameter) else with_names(each)
            for each in self.pieces
        )

    def shown(self) -> str:
        """Return a statement that can only be a SELECT, with numbered parameters."""
        return f"select * from ({self.alone()}\n)"

    def with_nulls(self) -> str:
        """Return the statement with nulls for parameters, as written: a column may be called by its text."""
        text = "".join(each if isinstance(each, str) else NULL for each in self.pieces)
        return f"select * from ({text}\n)"
