"""The syntax of permitted queries on any database. Pieces of SQL in; pieces, or the change in them, out.

A list is one parameter: an operator writes `in (:ids)`, `not in (:ids)`, `= any(:ids)` or `<> all(:ids)` on
any database. For an empty list, `in` and `any` are false, and the others are true.

A change is an INSERT, UPDATE or DELETE, which may follow a WITH. Where the database permits that, it moves
into the WITH, as one more common table expression whose rows can be read, cut and counted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

from dbtools.backends.port import NOT_CHANGING, Declared
from dbtools.errors import Refused
from dbtools.schema.sql import Lexis, Parameter, Token, TokenKind, code_of

Piece = str | Parameter
DECLARED_TEXT = Declared(type="text", array=False)  #: of claims, until the database says more
GAP = r"(?:\s|/\*.*?\*/|--[^\n]*\n)"
#: The text before and after a parameter that is a list.
OPENING = re.compile(
    rf"(?:\b(?P<not_in>not{GAP}+)?in|(?<![-+*/<>=~!@#%^&|`?])=\s*any|(?P<not_any><>|!=)\s*all)"
    rf"{GAP}*\((?P<blanks>\s*)$",
    re.IGNORECASE | re.DOTALL,
)
CLOSING = re.compile(rf"{GAP}*\)", re.DOTALL)
CHANGE = "dbtools_change"  #: the name of the common table expression
AFTER_CHANGE = "\n)\n"
NUMBERED = (
    "\nreturning 1 as one"  #: the end of a change that returns nothing, so that its rows can be counted
)
VERBS = ("insert", "update", "delete")
OTHER_VERBS = ("select", "values", "table", "merge", "replace")
FOLLOWED_BY = {"insert": "into", "delete": "from"}
READS_ONLY = "Without -- writes, a query only reads."


@dataclass(frozen=True, kw_only=True)
class ListForms:
    """The SQL of a database that tests whether a value is in a list parameter."""

    among: str
    not_among: str
    closing: str


def with_lists(
    pieces: Sequence[Piece], is_list: Callable[[str], bool], forms: ListForms
) -> tuple[Piece, ...]:
    """Return *pieces* with the list parameters in the syntax of *forms*."""
    written = list(pieces)
    for at, piece in enumerate(pieces[1:-1], 1):
        if isinstance(piece, Parameter) and is_list(piece.name):
            before, after = str(written[at - 1]), str(written[at + 1])
            opening, closing = OPENING.search(before), CLOSING.match(after)
            if opening and closing:
                is_negated = opening["not_in"] or opening["not_any"]
                form = forms.not_among if is_negated else forms.among
                written[at - 1] = before[: opening.start()] + form + opening["blanks"]
                written[at + 1] = closing[0][:-1] + forms.closing + after[closing.end() :]
    return tuple(written)


@dataclass(frozen=True, kw_only=True)
class QueryText:
    """A query in the pieces that the operator wrote, and in those that the database reads."""

    source: Sequence[Piece]
    pieces: Sequence[Piece]
    declared: Mapping[str, Declared]

    @classmethod
    def of(cls, source: Sequence[Piece], declared: Mapping[str, Declared], forms: ListForms) -> Self:
        """Return the query in the pieces *source*, with lists in the syntax of *forms*."""
        query = cls(source=source, pieces=source, declared=declared)
        return replace(query, pieces=with_lists(source, query.is_list, forms))

    @cached_property
    def text(self) -> str:
        """The SQL as the operator wrote it."""
        return "".join(map(str, self.source))

    def is_list(self, name: str) -> bool:
        """Return whether the parameter *name* is a list."""
        return name in self.declared and self.declared[name].array

    def start_of(self, at: int) -> int:
        """Return the offset of piece number *at* in the text."""
        return sum(len(str(piece)) for piece in self.source[:at])


class Main(NamedTuple):
    """The change in a query, by its tokens outside of parentheses."""

    tokens: Sequence[Token]  #: from its verb on
    follows: bool  #: whether a WITH precedes it

    @property
    def verb(self) -> str:
        """What it does: insert, update or delete."""
        return self.tokens[0].word

    @property
    def offset(self) -> int:
        """Where it begins."""
        return self.tokens[0].offset

    @property
    def returning(self) -> int | None:
        """Where the list after RETURNING begins, None if there is none."""
        return next((token.end for token in self.tokens if token.word == "returning"), None)


def main_of(pieces: Sequence[Piece], lexis: Lexis) -> Main:
    """Return the change in *pieces*, or raise Refused if there is none."""
    outside: list[Token] = []
    depth = 0
    for token in code_of("".join(map(str, pieces)), lexis):
        depth -= token.kind is TokenKind.CLOSING
        if depth == 0:
            outside.append(token)
        depth += token.kind is TokenKind.OPENING
    follows = bool(outside) and outside[0].word == "with"
    verbs = (at for at, token in enumerate(outside) if token.word in (*VERBS, *OTHER_VERBS))
    at = next(verbs, 0) if follows else 0
    if not outside or outside[at].word not in VERBS:
        raise Refused(NOT_CHANGING, hint=READS_ONLY, offset=outside[at].offset if outside else 0)
    return Main(outside[at:], follows)


def within_with(pieces: Sequence[Piece], main: Main) -> Sequence[Piece]:
    """Return as many pieces as *pieces*, with *main* as a common table expression that AFTER_CHANGE ends."""
    written, offset = list(pieces), main.offset
    for at, piece in enumerate(written):
        text = str(piece)
        if isinstance(piece, str) and offset < len(text):
            joint = ", " if main.follows else "with "
            written[at] = f"{text[:offset]}{joint}{CHANGE} as ({text[offset:]}"
            break
        offset -= len(text)
    return written
