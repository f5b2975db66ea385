"""What an operator's SQL may betray or let through. A Fragment in; whether it may fail, and its claims, out.

A database evaluates a filter and a caller's conditions in any order. If the filter can raise an error about a
row, the error reveals whether the caller's conditions hold for it. A filter that is not known to be total is
read behind an optimisation barrier, which costs the indexes of the caller's conditions.

Where only values have types, a value of another type than the author meant equals nothing, and is less or
greater than everything. So a claim needs a declared type, unless it ends a condition `… = :claims.tenant`
that nothing around it negates: then another type finds fewer rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile

from dbtools.sql import QUOTED, Fragment, Kind, Lexis, Token, code_of, words

#: Words that raise nothing by themselves; those that may stand before a parenthesis are no functions.
KEYWORDS = words(
    "all and any as asc between by case current_date current_timestamp desc distinct else end except exists "
    "false first from full group having ilike in inner intersect interval is isnull join last lateral left "
    "like limit localtimestamp not notnull null nulls offset on or order outer right select some then true "
    "union unknown using values when where with"
)
PATTERNED = words("like ilike glob")  #: a constant has to follow, in which nothing is escaped
COUNTED = words("limit offset")  #: a number has to follow
NOW = ("now ( )", "current_date", "current_timestamp", "localtimestamp")
QUERIES = words("select values table with")  #: beginnings of subqueries
SUBQUERIES = words("in exists any all some")  #: what may stand before any subquery
RELATIONS = words("from join")  #: a table has to follow
NAMES = (Kind.WORD, Kind.NAME)
CONSTANTS = (Kind.TEXT, Kind.PARAMETER, Kind.NUMBER)
NOTHING = Token(Kind.SEMICOLON, "", -1, -1)

#: What may follow a condition that a claim ends.
ENDS = words("and or from group having window order limit offset union intersect where join") | {""}
TURNING = words("not except left right full outer between case")  #: what makes more rows of fewer


@dataclass(frozen=True, kw_only=True)
class Names:
    """What the names in a filter may mean, all in lower case."""

    columns: frozenset[str] = frozenset()  #: of any table, whose values raise no error when they are compared
    tables: frozenset[str] = frozenset()  #: of which reading a cell raises no error
    raising: frozenset[str] = frozenset()  #: columns, relations, functions and operators that may raise one


def is_total(condition: Fragment, lexis: Lexis, names: Names) -> bool:
    """Return whether *condition*, whose *names* are known, raises no error, whatever a row holds."""
    tokens = [*[NOTHING] * 3, *code_of(condition.text, lexis), *[NOTHING] * 2]
    return not any(_raises(tokens[at - 3 : at + 3], lexis, names) for at in range(3, len(tokens) - 2))


def _raises(around: list[Token], lexis: Lexis, names: Names) -> bool:
    """Return whether the fourth of the tokens *around* it may raise an error; what is not known may."""
    *_, before, token, after, behind = around
    word = token.word
    if (word or token.value.lower()) in names.raising and token.kind in (*NAMES, Kind.SIGN):
        return True
    match token.kind:
        case Kind.WORD if word in PATTERNED:
            return after.kind is not Kind.TEXT or behind.kind in QUOTED or "\\" in after.text
        case Kind.WORD if word in COUNTED:
            return after.kind is not Kind.NUMBER
        case Kind.WORD if word in KEYWORDS or before.text == "::":
            return False
        case Kind.WORD | Kind.NAME if after.text == "(":
            return word not in lexis.total_functions or before.text == "."
        case Kind.WORD | Kind.NAME:
            return after.text != "." and not _is_known(around, names)
        case Kind.OPENING:
            scalar = after.word in QUERIES and before.word not in SUBQUERIES
            return word == "[" or (scalar and not lexis.lenient)
        case Kind.SIGN:
            return not _is_plain(around, lexis)
        case _:
            return False


def _is_known(around: list[Token], names: Names) -> bool:
    """Return whether the fourth of the tokens names a column or a table, or is an alias."""
    first, _, before, token, *_ = around
    name = token.value.lower()
    if before.word in RELATIONS or (before.text == "." and first.word in RELATIONS):
        return name in names.tables
    is_alias = before.word == "as" or (before.kind in NAMES and before.value.lower() in names.tables)
    return name in names.columns or is_alias


def _is_plain(around: list[Token], lexis: Lexis) -> bool:
    """Return whether the fourth of the tokens is a total operator, or is one as it stands here."""
    *earlier, token, after, _ = around
    before = earlier[-1].word
    if token.text == "::":
        return earlier[-1].kind in CONSTANTS
    if token.text in lexis.total_operators or token.text in ",.":
        return True
    if token.text == "*":
        return before in ("select", "(", ".")
    if token.text not in ("+", "-"):
        return False
    counted = after.kind is Kind.NUMBER
    is_beginning = before in lexis.total_operators or before in ("(", ",") or before in KEYWORDS
    is_now = " ".join(each.word for each in earlier).endswith(NOW)
    return (is_beginning and counted and not is_now) or (is_now and (counted or after.word == "interval"))


def uncertain_claims(fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* of which a value of another type may let rows in, each once."""
    tokens = code_of(fragment.text, lexis)
    words = [token.word for token in tokens]
    turned = not TURNING.isdisjoint(words) or any(map(_computes, tokens, tokens[1:]))
    claims: dict[str, None] = {}
    for at, token in enumerate(tokens):
        claim = token.parameter.claim if token.kind is Kind.PARAMETER else None
        after = next(dropwhile(")".__eq__, words[at + 1 :]), "")
        if claim and (turned or words[at - 1 : at] not in (["="], ["=="]) or after not in ENDS):
            claims[claim] = None
    yield from claims


def _computes(token: Token, after: Token) -> bool:
    """Return whether something is computed of a condition in brackets, or of an EXISTS."""
    return token.kind is Kind.SIGN and token.text not in ",." and after.word in ("(", "exists")
