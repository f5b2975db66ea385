"""What an operator's SQL can betray or let through. A Fragment in; whether it may fail, and its claims, out.

A database evaluates a filter and a caller's conditions in any order. Where the filter can raise an error of a
row, the error would tell whether the caller's conditions hold for it. What is not known to be total here is
read behind an optimisation barrier, which costs the indexes of the caller's conditions.

Where values alone have types, one of another type than the author meant equals nothing, is less or greater
than everything, and makes true whatever is denied. So a claim needs a type, unless it can only find fewer
rows: where a condition of WHERE or of an inner join is `… = :claims.tenant`, also in a subquery of EXISTS or
IN that is such a condition itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from dbtools.sql import QUOTED, Fragment, Group, Kind, Lexis, Token, code_of, grouped, tokenize, words

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
END = Token(Kind.SEMICOLON, "", -1, -1)

CONDITIONS = words("where on")  #: clauses of a SELECT that are conditions
CLAUSES = CONDITIONS | words(
    "select from group having window order limit offset union intersect except values join using with"
)
ENDS = CLAUSES | words("and or")  #: of a condition
BEGINNINGS = CONDITIONS | {"and", "or", "(", ""}  #: what stands before one
TURNING = words("not except left right full outer between")  #: what makes of fewer rows more


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the names in a filter may mean, all in lower case."""

    columns: frozenset[str] = frozenset()  #: of any table, whose values raise no error when they are compared
    tables: frozenset[str] = frozenset()  #: of which reading a cell raises no error
    raising: frozenset[str] = frozenset()  #: columns, relations, functions and operators that may raise one


def is_total(condition: Fragment, lexis: Lexis, names: Names) -> bool:
    """Return whether *condition*, whose *names* are known, raises no error, whatever a row holds."""
    place = _Place(tokens=code_of(condition.text, lexis), lexis=lexis, names=names)
    return not any(place.raises(at) for at in range(len(place.tokens)))


@dataclass(frozen=True, kw_only=True)
class _Place:
    """The tokens of a condition, and what is known of them."""

    tokens: Sequence[Token]
    lexis: Lexis
    names: Names

    def raises(self, at: int) -> bool:
        """Return whether the token *at* this place may raise an error; what is not known may."""
        token, word = self.tokens[at], self._word(at)
        match token.kind:
            case Kind.NAME:
                return self._word(at + 1) == "(" or self._name_raises(at, token.value.lower())
            case Kind.WORD:
                return self._word_raises(at, word)
            case Kind.OPENING:
                scalar = self._word(at + 1) in QUERIES and self._word(at - 1) not in SUBQUERIES
                return word == "[" or (scalar and not self.lexis.lenient)
            case Kind.SIGN if word == "::":
                return self._at(at - 1).kind not in (Kind.TEXT, Kind.PARAMETER, Kind.NUMBER)
            case Kind.SIGN:
                return word not in ",." and self._operator_raises(at, word)
            case _:
                return False

    def _word_raises(self, at: int, word: str) -> bool:
        after = self._at(at + 1)
        if word in PATTERNED:
            goes_on = self._at(at + 2).kind in QUOTED
            return after.kind is not Kind.TEXT or goes_on or "\\" in after.text
        if word in COUNTED:
            return after.kind is not Kind.NUMBER
        if after.text == "(" and word not in KEYWORDS:
            is_total = word in self.lexis.total_functions and self._word(at - 1) != "."
            return word in self.names.raising or not is_total
        if word in KEYWORDS or word in NOW or self._word(at - 1) == "::":
            return word in self.names.raising
        return self._name_raises(at, word)

    def _name_raises(self, at: int, name: str) -> bool:
        """Return whether *name*, of a column or a table, may raise an error, or means what is not known."""
        before, after, names = self._word(at - 1), self._word(at + 1), self.names
        if name in names.raising:
            return True
        if after == ".":
            return False  # a schema or a table, whose column follows
        if before in RELATIONS or (before == "." and self._word(at - 3) in RELATIONS):
            return name not in names.tables
        # Beside columns, another name for the table that stands before it.
        beside = self._at(at - 1)
        is_named = beside.kind in (Kind.WORD, Kind.NAME) and beside.value.lower() in names.tables
        is_alias = before == "as" or is_named
        return name not in names.columns and not is_alias

    def _operator_raises(self, at: int, sign: str) -> bool:
        before, after = self._word(at - 1), self._word(at + 1)
        if sign in self.names.raising:
            return True
        if sign in self.lexis.total_operators or (sign == "*" and before in ("select", "(", ".")):
            return False
        if sign not in ("+", "-"):
            return True
        is_beginning = before in self.lexis.total_operators or before in ("(", ",") or before in KEYWORDS
        counted = self._at(at + 1).kind is Kind.NUMBER
        if is_beginning and counted:
            return False
        called = [self._word(each) for each in range(at - 3, at)]
        is_now = before in NOW or (called[1:] == ["(", ")"] and called[0] in NOW)
        return not (is_now and (after == "interval" or counted))

    def _at(self, at: int) -> Token:
        return self.tokens[at] if 0 <= at < len(self.tokens) else END

    def _word(self, at: int) -> str:
        return self._at(at).word


def uncertain_claims(fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* of which a value of another type may let rows in, each once."""
    found = grouped(tokenize(fragment.text, lexis), fragment.text).parameters()
    claims = (token.parameter.claim for group, at, token in found if not _only_narrows(group, at))
    yield from dict.fromkeys(claim for claim in claims if claim is not None)


def _only_narrows(group: Group, at: int) -> bool:
    """Return whether *at* this place of *group* a claim stands as in `x = :claim`, and finds fewer rows.

    That is the end of a condition of WHERE or ON, or of one that is all there is; the condition may stand in
    brackets, or in the subquery of an EXISTS or IN, that is itself such a condition.
    """
    narrows = group.before(at) in ("=", "==")
    while narrows and _ends_condition(group, at):
        if group.outer is None:
            return True
        narrows = _is_condition(group, group.outer)
        group, at = group.outer, group.place
    return False


def _ends_condition(group: Group, at: int) -> bool:
    """Return whether a condition of WHERE or ON ends *at* this place, and nothing there turns it round."""
    words = group.words
    if group.word == "case" or TURNING.intersection(words) or not ENDS.issuperset(words[at + 1 : at + 2]):
        return False
    clause = next((word for word in reversed(words[:at]) if word in CLAUSES), None)
    return clause in CONDITIONS if clause else CLAUSES.isdisjoint(words)


def _is_condition(inner: Group, group: Group) -> bool:
    """Return whether a condition of *group* ends with *inner*: with `(…)`, `exists (…)` or `x in (…)`."""
    before = group.before(inner.place)
    if inner.words[:1] != ["select"]:
        return before in BEGINNINGS
    shown = takewhile(lambda part: part.word != "from", inner.parts)
    # A function, such as count(*), makes a row of no rows.
    is_plain = not any(isinstance(part, Group) for part in shown)
    is_exists = before == "exists" and group.before(inner.place - 1) in BEGINNINGS
    return is_plain and (before == "in" or is_exists)
