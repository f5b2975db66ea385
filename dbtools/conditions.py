"""What an operator's SQL can betray or let through. A Fragment in; whether it may fail, and its claims, out.

A database evaluates a filter and a caller's conditions in any order. Where the filter can raise an error of a
row, the error would tell whether the caller's conditions hold for it. What is not known to be total here is
read behind an optimisation barrier, which costs the indexes of the caller's conditions.

Where values alone have types, one of another type than the author meant equals nothing, is less or greater
than everything, and makes true whatever is denied. So a claim needs a type, unless another value can only
find fewer rows: where it is one side of an equality that is a whole condition of WHERE or of an inner join,
as in `tenant = :claims.tenant`, also in a subquery of EXISTS or IN that is such a condition itself.
"""

from collections.abc import Iterable, Iterator, Sequence
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
TURNING = words("not except left right full outer between")  #: what makes of fewer rows more
#: What compares, so that a whole condition is more than one equality.
COMPARING = words("is in like glob match regexp isnull notnull exists not")
ARROWS = ("->", "->>")  #: that lead into JSON


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
            case Kind.OPENING if word == "[":
                return self._word(at - 1) == "array"
            case Kind.OPENING:
                scalar = self._word(at + 1) in QUERIES and self._word(at - 1) not in SUBQUERIES
                return scalar and not self.lexis.lenient
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
            return word in self.names.raising or not self._is_total_function(at, word)
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

    def _is_total_function(self, at: int, word: str) -> bool:
        if word == "current_setting":
            # Without its second argument it fails where the setting is unknown.
            rest = [self._word(at + 3), self._word(at + 4)]
            return self._at(at + 2).kind is Kind.TEXT and rest == [",", "true"]
        return word in self.lexis.total_functions and self._word(at - 1) != "."

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
    """Return whether another value at the place *at* of *group* can only find fewer rows."""
    if group.outer and _is_list(group):
        # One of several that are looked for.
        group, at = group.outer, group.place
        before, after = _around(group, at)
        is_whole = not after and _looks_up(before)
    else:
        is_whole = _is_equality(group, at)
    while is_whole and _is_condition(group, at):
        if group.outer is None:
            return True
        inner, group, at = group, group.outer, group.place
        is_whole = _is_bracketed(inner, group, at)
    return False


def _is_list(group: Group) -> bool:
    """Return whether *group* is a list of values, each of one token."""
    words = group.words
    is_flat = all(isinstance(part, Token) for part in group.parts)
    return is_flat and words[1::2] == [","] * (len(words) // 2) and "," not in words[::2]


def _compares(words: Iterable[str]) -> bool:
    return any(word in COMPARING or (word not in ARROWS and set(word) & set("=<>!")) for word in words)


def _around(group: Group, at: int) -> tuple[list[str], list[str]]:
    """Return the words before and after the place *at* of *group* in its condition, the nearest first."""
    words = group.words
    before = takewhile(lambda word: word not in ENDS, reversed(words[:at]))
    after = takewhile(lambda word: word not in ENDS, words[at + 1 :])
    return list(before), list(after)


def _is_equality(group: Group, at: int) -> bool:
    """Return whether the condition is `x = :claim` or `:claim = x`, or with == or IS."""
    before, after = _around(group, at)
    sign, *operand = before or after or [""]
    is_one_sided = not (before and after)
    return is_one_sided and sign in ("=", "==", "is") and bool(operand) and not _compares(operand)


def _looks_up(before: list[str]) -> bool:
    """Return whether the words *before* brackets, the nearest first, are `x in`: nothing more is compared."""
    return len(before) > 1 and before[0] == "in" and not _compares(before[1:])


def _is_condition(group: Group, at: int) -> bool:
    """Return whether what is at the place *at* of *group* is among the conditions of WHERE or ON.

    Or of a condition that stands alone, as that of a row filter; and nothing there makes of fewer rows more.
    """
    words = group.words
    if group.word == "case" or TURNING.intersection(words):
        return False
    clause = next((words[number] for number in range(at - 1, -1, -1) if words[number] in CLAUSES), None)
    return clause in CONDITIONS if clause is not None else not CLAUSES.intersection(words)


def _is_bracketed(inner: Group, group: Group, at: int) -> bool:
    """Return whether *inner*, at the place *at* of *group*, is a whole condition: `(…)`, EXISTS or IN."""
    before, after = _around(group, at)
    if after or inner.word == "case":
        return False
    if inner.words[:1] != ["select"]:
        return not before and "," not in inner.words
    if before != ["exists"] and not _looks_up(before):
        return False
    # A function, such as count(*), makes a row of no rows.
    shown = inner.parts[: inner.words.index("from")] if "from" in inner.words else inner.parts
    return not any(isinstance(part, Group) for part in shown)
