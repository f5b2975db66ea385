"""Lists that are one parameter each. Pieces of SQL in, as many pieces out, as one database reads them.

An operator writes `in (:ids)`, `not in (:ids)`, `= any(:ids)` or `<> all(:ids)` on any database. No value is
one of an empty list: the first and the third are then never true, the others always.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dbtools.sql import Kind, Lexis, Parameter, Token, tokenize

Piece = str | Parameter

#: What is written before the parenthesis, from right to left, and whether the value may not be in the list.
OPENINGS: tuple[tuple[tuple[str, ...], bool], ...] = (
    (("in", "not"), True),
    (("in",), False),
    (("any", "="), False),
    (("all", ">", "<"), True),
    (("all", "=", "!"), True),
)
SIGNS = set("+-*/<>=~!@#%^&|`?")  #: one of them before makes another operator of the first sign


@dataclass(frozen=True, kw_only=True)
class ListForms:
    """How a database writes that a value is, or is not, one of a list that is one parameter."""

    among: str
    not_among: str
    closing: str


def with_lists(
    pieces: Sequence[Piece], is_list: Callable[[str], bool], lexis: Lexis, forms: ListForms
) -> tuple[Piece, ...]:
    """Return *pieces* with the list parameters among them as *forms* has them; elsewhere they stay."""
    written = list(pieces)
    for at in range(1, len(pieces) - 1):
        piece = pieces[at]
        if not isinstance(piece, Parameter) or not is_list(piece.name):
            continue
        before, after = written[at - 1], written[at + 1]
        if not isinstance(before, str) or not isinstance(after, str):
            continue
        opened, closed = _opened(before, lexis, forms), _closed(after, lexis, forms)
        if opened is not None and closed is not None:
            written[at - 1], written[at + 1] = opened, closed
    return tuple(written)


def _opened(text: str, lexis: Lexis, forms: ListForms) -> str | None:
    """Return *text* with the words and the parenthesis at its end in another form, None if there are none."""
    tokens = list(tokenize(text, lexis))
    code = [token for token in tokens if token.kind not in (Kind.BLANK, Kind.COMMENT)]
    if len(code) < 2 or code[-1].text != "(":
        return None
    for words, negated in OPENINGS:
        first = _first_of(words, code[:-1])
        if first is not None:
            form = forms.not_among if negated else forms.among
            return text[: first.offset] + form + text[code[-1].offset + 1 :]
    return None


def _first_of(words: Sequence[str], code: Sequence[Token]) -> Token | None:
    """Return the token that begins *words*, which are written from right to left, at the end of *code*."""
    if [token.text.lower() for token in reversed(code[-len(words) :])] != list(words):
        return None
    first = code[-len(words)]
    before = code[-len(words) - 1] if len(code) > len(words) else None
    if first.text in SIGNS and before is not None and before.text in SIGNS:
        return None
    return first


def _closed(text: str, lexis: Lexis, forms: ListForms) -> str | None:
    """Return *text* with the parenthesis that it begins with in another form, None if it begins with none."""
    for token in tokenize(text, lexis):
        if token.kind in (Kind.BLANK, Kind.COMMENT):
            continue
        return text[: token.offset] + forms.closing + text[token.offset + 1 :] if token.text == ")" else None
    return None
