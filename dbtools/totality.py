"""Whether a row filter can raise an error. An operator's condition in, yes or no out.

A database evaluates a filter and a caller's conditions in any order. Where the filter can raise an error of a
row, the error would tell whether the caller's conditions hold for it. What is not known to be total here is
read behind an optimisation barrier, which costs the indexes of the caller's conditions.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from dbtools.parameters import Fragment, Kind, Lexis, Token, tokenize, unquoted, words

#: Words that may stand before a parenthesis without being a function.
KEYWORDS = words(
    "all and any as between by case distinct else escape exists from in is join not on or select some then "
    "union values when where"
)
PATTERNED = words("like ilike glob")  #: a constant has to follow, in which nothing is escaped
COUNTED = words("limit offset fetch")  #: a number has to follow
PARTIAL = words("match regexp similar zone")
NOW = words("now current_date current_timestamp localtimestamp")
QUERIES = words("select values table with")  #: beginnings of subqueries
SUBQUERIES = words("in exists any all some from join")  #: what may stand before any subquery
NAME_QUOTES = ('"', "`", "[")
CONSTANTS = (Kind.PARAMETER, Kind.QUOTED)
ESCAPE = re.compile(r"'[^']'")
SIGN = re.compile(r"[-+*/<>=~!@#%^&|?]")
PECULIAR = re.compile(r"[~!@#%^&|?]")
END = Token(kind=Kind.BLANK, text="", offset=-1)


def is_total(condition: Fragment, lexis: Lexis, raising: Collection[str] = ()) -> bool:
    """Return whether *condition* raises no error, whatever a row holds.

    *raising* are names, in lower case, of columns, relations, functions and operators that may raise one.
    """
    skipped = (Kind.BLANK, Kind.COMMENT, Kind.SEMICOLON)
    tokens = [each for each in tokenize(condition.text, lexis) if each.kind not in skipped]
    place = _Place(tokens=list(_with_operators(tokens)), lexis=lexis, raising=raising)
    return not any(place.raises(at) for at in range(len(place.tokens)))


def _with_operators(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield *tokens*, the signs of one operator as one token."""
    operator: Token | None = None
    for token in tokens:
        if operator is not None and _goes_on(operator, token):
            operator = replace(operator, text=operator.text + token.text)
            continue
        if operator is not None:
            yield operator
        operator = token if _is_sign(token) else None
        if operator is None:
            yield token
    if operator is not None:
        yield operator


def _goes_on(operator: Token, token: Token) -> bool:
    """Return whether *token* is one more sign of *operator*; a + or - at its end is only that of some."""
    adjacent = operator.offset + len(operator.text) == token.offset
    return (
        adjacent
        and _is_sign(token)
        and (token.text not in "+-" or PECULIAR.search(operator.text) is not None)
    )


def _is_sign(token: Token) -> bool:
    return token.kind is Kind.CODE and SIGN.fullmatch(token.text) is not None


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The tokens of a condition, and what is known of them."""

    tokens: Sequence[Token]
    lexis: Lexis
    raising: Collection[str]

    def raises(self, at: int) -> bool:
        """Return whether the token *at* this place may raise an error."""
        token = self.tokens[at]
        match token.kind:
            case Kind.QUOTED:
                is_name = token.text.startswith(NAME_QUOTES)
                return self._text(at + 1) == "(" or (is_name and unquoted(token.text).lower() in self.raising)
            case Kind.OPENING:
                subquery = self._text(at + 1) in QUERIES and self._text(at - 1) not in SUBQUERIES
                return subquery and not self.lexis.lenient
            case Kind.CODE if token.text == "::":
                return not (self._at(at - 1).kind in CONSTANTS or self._text(at - 1).isdigit())
            case Kind.CODE if token.text[0].isalpha() or token.text[0] == "_":
                return self._word_raises(at)
            case Kind.CODE:
                return not token.text.isdigit() and token.text not in ",." and self._operator_raises(at)
            case _:
                return False

    def _word_raises(self, at: int) -> bool:
        word, after = self._text(at), self._at(at + 1)
        if word in self.raising or word in PARTIAL:
            return True
        if word in PATTERNED:
            goes_on = self._at(at + 2).kind is Kind.QUOTED
            return after.kind is not Kind.QUOTED or goes_on or "\\" in after.text
        if word == "escape":
            return ESCAPE.fullmatch(after.text) is None
        if word in COUNTED:
            return not after.text.isdigit()
        return after.text == "(" and word not in KEYWORDS and not self._is_total_function(at)

    def _is_total_function(self, at: int) -> bool:
        if self._text(at) == "current_setting" and self._at(at + 2).kind not in CONSTANTS:
            return False
        return self._text(at) in self.lexis.total_functions and self._text(at - 1) != "."

    def _operator_raises(self, at: int) -> bool:
        sign, before, after = self._text(at), self._text(at - 1), self._text(at + 1)
        if sign in self.raising:
            return True
        if sign in self.lexis.total_operators or (sign == "*" and before in ("select", "(", ".")):
            return False
        if sign not in ("+", "-"):
            return True
        if after.isdigit() and (
            before in self.lexis.total_operators or before in ("(", ",") or before in KEYWORDS
        ):
            return False
        called = [self._text(each) for each in range(at - 3, at)]
        is_now = before in NOW or (called[1:] == ["(", ")"] and called[0] in NOW)
        return not (is_now and (after == "interval" or after.isdigit()))

    def _at(self, at: int) -> Token:
        return self.tokens[at] if 0 <= at < len(self.tokens) else END

    def _text(self, at: int) -> str:
        return self._at(at).text.lower()
