"""Whether a row filter can raise an error. An operator's condition in, yes or no out.

A database evaluates a filter and a caller's conditions in any order. Where the filter can raise an error of a
row, the error would tell whether the caller's conditions hold for it. What is not known to be total here is
read behind an optimisation barrier, which costs the indexes of the caller's conditions.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from dbtools.sql import Fragment, Kind, Lexis, Token, tokenize, unquoted, words

#: Words that raise nothing by themselves; those that may stand before a parenthesis are no functions.
KEYWORDS = words(
    "all and any as asc between by case desc distinct else end except exists false first from full group "
    "having ilike in inner intersect interval is isnull join last lateral left like limit not notnull null "
    "nulls offset on or order outer right select some then true union unknown using values when where with"
)
PATTERNED = words("like ilike glob")  #: a constant has to follow, in which nothing is escaped
COUNTED = words("limit offset")  #: a number has to follow
NOW = words("now current_date current_timestamp localtimestamp")
QUERIES = words("select values table with")  #: beginnings of subqueries
SUBQUERIES = words("in exists any all some")  #: what may stand before any subquery
RELATIONS = ("from", "join")  #: a table has to follow
NAME_QUOTES = ('"', "`", "[")
SIGN = re.compile(r"[-+*/<>=~!@#%^&|?]")
PECULIAR = re.compile(r"[~!@#%^&|?]")
NUMBER = re.compile(r"[0-9]+")
END = Token(kind=Kind.BLANK, text="", offset=-1)


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the names in a filter may mean, all in lower case."""

    columns: frozenset[str] = frozenset()  #: of any table, whose values raise no error when they are compared
    tables: frozenset[str] = frozenset()  #: of which reading a cell raises no error
    raising: frozenset[str] = frozenset()  #: columns, relations, functions and operators that may raise one


def is_total(condition: Fragment, lexis: Lexis, names: Names) -> bool:
    """Return whether *condition*, whose *names* are known, raises no error, whatever a row holds."""
    skipped = (Kind.BLANK, Kind.COMMENT, Kind.SEMICOLON)
    tokens = [each for each in tokenize(condition.text, lexis) if each.kind not in skipped]
    place = _Place(tokens=list(_with_operators(tokens)), lexis=lexis, names=names)
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
    may_end_so = token.text not in "+-" or PECULIAR.search(operator.text) is not None
    return adjacent and _is_sign(token) and may_end_so


def _is_sign(token: Token) -> bool:
    return token.kind is Kind.CODE and SIGN.fullmatch(token.text) is not None


def _is_name(token: Token) -> bool:
    return token.kind is Kind.QUOTED and token.text.startswith(NAME_QUOTES)


def _is_text(token: Token) -> bool:
    return token.kind is Kind.QUOTED and not _is_name(token)


def _is_number(token: Token) -> bool:
    return NUMBER.fullmatch(token.text) is not None


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The tokens of a condition, and what is known of them."""

    tokens: Sequence[Token]
    lexis: Lexis
    names: Names

    def raises(self, at: int) -> bool:
        """Return whether the token *at* this place may raise an error; what is not known may."""
        token, text = self.tokens[at], self._text(at)
        match token.kind:
            case Kind.QUOTED if _is_name(token):
                return self._text(at + 1) == "(" or self._name_raises(at, unquoted(token.text).lower())
            case Kind.QUOTED | Kind.PARAMETER:
                return False
            case Kind.OPENING if text == "[":
                return self._text(at - 1) == "array"
            case Kind.OPENING:
                scalar = self._text(at + 1) in QUERIES and self._text(at - 1) not in SUBQUERIES
                return scalar and not self.lexis.lenient
            case Kind.CODE if text == "::":
                before = self._at(at - 1)
                return not (_is_text(before) or before.kind is Kind.PARAMETER or _is_number(before))
            case Kind.CODE if text[0].isalpha() or text[0] == "_":
                return self._word_raises(at, text)
            case Kind.CODE:
                return not _is_number(token) and text not in ",." and self._operator_raises(at, text)
            case _:
                return False

    def _word_raises(self, at: int, word: str) -> bool:
        after = self._at(at + 1)
        if word in PATTERNED:
            goes_on = self._at(at + 2).kind is Kind.QUOTED
            return not _is_text(after) or goes_on or "\\" in after.text
        if word in COUNTED:
            return not _is_number(after)
        if after.text == "(" and word not in KEYWORDS:
            return word in self.names.raising or not self._is_total_function(at, word)
        if word in KEYWORDS or word in NOW or self._text(at - 1) == "::":
            return word in self.names.raising
        return self._name_raises(at, word)

    def _name_raises(self, at: int, name: str) -> bool:
        """Return whether *name*, of a column or a table, may raise an error, or means what is not known."""
        before, after, names = self._text(at - 1), self._text(at + 1), self.names
        if name in names.raising:
            return True
        if after == ".":
            return False  # a schema or a table, whose column follows
        if before in RELATIONS or (before == "." and self._text(at - 3) in RELATIONS):
            return name not in names.tables
        # Beside columns, another name for the table that stands before it.
        is_alias = before == "as" or (
            self._at(at - 1).kind is not Kind.OPENING and self._bare(at - 1) in names.tables
        )
        return name not in names.columns and not is_alias

    def _is_total_function(self, at: int, word: str) -> bool:
        if word == "current_setting":
            # Without its second argument it fails where the setting is unknown.
            return _is_text(self._at(at + 2)) and (self._text(at + 3), self._text(at + 4)) == (",", "true")
        return word in self.lexis.total_functions and self._text(at - 1) != "."

    def _operator_raises(self, at: int, sign: str) -> bool:
        before, after = self._text(at - 1), self._text(at + 1)
        if sign in self.names.raising:
            return True
        if sign in self.lexis.total_operators or (sign == "*" and before in ("select", "(", ".")):
            return False
        if sign not in ("+", "-"):
            return True
        is_beginning = before in self.lexis.total_operators or before in ("(", ",") or before in KEYWORDS
        counted = _is_number(self._at(at + 1))
        if is_beginning and counted:
            return False
        called = [self._text(each) for each in range(at - 3, at)]
        is_now = before in NOW or (called[1:] == ["(", ")"] and called[0] in NOW)
        return not (is_now and (after == "interval" or counted))

    def _at(self, at: int) -> Token:
        return self.tokens[at] if 0 <= at < len(self.tokens) else END

    def _text(self, at: int) -> str:
        return self._at(at).text.lower()

    def _bare(self, at: int) -> str:
        token = self._at(at)
        return unquoted(token.text).lower() if _is_name(token) else token.text.lower()
