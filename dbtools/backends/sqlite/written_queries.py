"""A query as its operator wrote it and as SQLite reads it. Pieces in; statements, words and places out."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from dbtools.backends.sqlite.ddl import fold
from dbtools.backends.sqlite.syntax import bare, lexis, misnamed, with_names
from dbtools.sql import Kind, Parameter, Token, tokenize

NULL = re.compile(r"\(null/\*:([^*]+)\*/\)")  #: what stands for a parameter in the view
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
        """The words outside of quotes, folded."""
        return words_in(self.text)

    @cached_property
    def names(self) -> frozenset[str]:
        """The words, and whatever is in quotes, all folded: what the query names is among them."""
        return names_in(self.text)

    @cached_property
    def own(self) -> frozenset[str]:
        """The names that it gives to its own subqueries before them, folded."""
        code = code_in(self.text)
        named: set[str] = set()
        opened: list[str] = []  #: what stands before each bracket that is open
        before = ""  #: what stands before the token, or before the brackets that it follows
        for token, following in pairwise(code):
            if token.kind is Kind.OPENING:
                opened.append(before)
            elif token.kind is Kind.CLOSING and opened:
                before = opened.pop()
            elif token.text.lower() == "as" and following.text.lower() in ("(", "not", "materialized"):
                named.add(before)
            else:
                before = fold(bare(token))
        return frozenset(named)

    def offset_of(self, message: str) -> int | None:
        """Return where what *message* names first stands, None where that does not show.

        SQLite knows the place (3.38), and the standard library's module does not tell it (Python 3.14).
        """
        if message == INCOMPLETE:
            return len(self.text)
        if name := misnamed(message, self.text):
            return name.offset
        named = NAMED.fullmatch(message)
        if named is None:
            return None
        places = self.places_of(named["name"] or named["word"] or named["function"])
        # A word may be right in one place and wrong in the next.
        return places[0] if len(places) == 1 or (places and named["name"]) else None

    def places_of(self, word: str) -> list[int]:
        """Return where *word* stands, in quotes or not."""
        tokens = tokenize(self.text, lexis)
        return [token.offset for token in tokens if fold(bare(token)) == fold(word)]

    def place_of(self, name: str) -> int | None:
        """Return where the parameter *name* stands, None where it stands in several places."""
        places = [token.offset for token in tokenize(self.text, lexis) if token.text == f":{name}"]
        return places[0] if len(places) == 1 else None

    def alone(self) -> str:
        """Return the query with numbered parameters, as a call runs it."""
        return self._written(lambda name: f"?{self.numbers[name]}", with_names)

    def shown(self) -> str:
        """Return a statement that can only be a SELECT, with numbered parameters."""
        return f"select * from ({self.alone()}\n)"

    def with_nulls(self) -> str:
        """Return the statement with nulls for parameters, as written: a column may be called by its text."""
        return f"select * from ({self._written(lambda name: f'(null/*:{name}*/)', str)}\n)"

    def _written(self, place: Callable[[str], str], text: Callable[[str], str]) -> str:
        return "".join(text(each) if isinstance(each, str) else place(each.name) for each in self.pieces)


def words_in(sql: str) -> frozenset[str]:
    """Return the words of *sql* outside of quotes, folded."""
    return frozenset(fold(each.text) for each in tokenize(sql, lexis) if each.kind is Kind.CODE)


def code_in(sql: str) -> list[Token]:
    """Return the tokens of *sql* but for blanks and comments."""
    return [token for token in tokenize(sql, lexis) if token.kind not in (Kind.BLANK, Kind.COMMENT)]


def names_in(sql: str) -> frozenset[str]:
    """Return the words of *sql* and whatever is in quotes, all folded."""
    quotes = (each for each in tokenize(sql, lexis) if each.kind is Kind.QUOTED)
    return words_in(sql) | {fold(bare(each)) for each in quotes}
