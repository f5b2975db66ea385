"""Parameters that rows would be sorted or grouped by. The SQL of a query in, what is wrong with it out.

A parameter is a value and never the name of a column, so that all rows have the same there.
"""

from collections.abc import Iterator, Sequence

from dbtools.queries.bodies import all_tokens
from dbtools.sql import Kind, Lexis, Token

IDLE = {
    "order": "sorts no row",
    "group": "groups no row by a column",
    "partition": "puts all rows into one partition",
}
#: What a term of such a list may be followed by.
ENDS = {
    *("", ",", ")", "asc", "desc", "nulls", "using", "limit", "offset", "fetch", "for", "union", "intersect"),
    *("except", "having", "window", "order", "rows", "range", "groups"),
}
#: What a comma before may belong to instead.
CLAUSES = {"select", "from", "where", "having", "limit", "offset", "values", "on", "window", "distinct"}


def idle_terms(sql: str, lexis: Lexis) -> Iterator[tuple[int, str]]:
    """Yield where in *sql*, which `read_body` takes, a parameter is a whole term of ORDER BY or the like."""
    tokens = [each for each in all_tokens(sql, lexis) if each.kind not in (Kind.BLANK, Kind.COMMENT)]
    for at, token in enumerate(tokens):
        if token.kind is not Kind.PARAMETER:
            continue
        first, last = _whole(tokens, at)
        word = _list_of(tokens, first - 1)
        if word and _word(tokens, last + 1) in ENDS:
            case = f"{word} by case {token.text} when 'name' then name when … end"
            problem = f"{word} by {token.text} {IDLE[word]}: it is a value, not the name of a column"
            yield token.offset, f"{problem}. Write {case}"


def _word(tokens: Sequence[Token], at: int) -> str:
    """Return the word or sign at the place *at*, nothing outside of the statement."""
    is_inside = 0 <= at < len(tokens) and tokens[at].kind is not Kind.SEMICOLON
    return tokens[at].text.lower() if is_inside else ""


def _whole(tokens: Sequence[Token], at: int) -> tuple[int, int]:
    """Return where the parameter at *at* begins and ends, with brackets, casts and collations around it."""
    first = last = at
    while True:
        before, after = _word(tokens, first - 1), _word(tokens, last + 1)
        if after in ("::", "collate"):
            last += 2
        elif last > at and after in ("(", "["):
            last = _closing(tokens, last + 1)  # of the type of a cast
        elif before == "(" and after == ")" and _word(tokens, first - 2) in ("by", ",", "("):
            first, last = first - 1, last + 1
        elif before == "(" and after == "as" and _word(tokens, first - 2) == "cast":
            first, last = first - 2, _closing(tokens, first - 1)
        else:
            return first, last


def _closing(tokens: Sequence[Token], opening: int) -> int:
    """Return where the bracket that is open at *opening* ends."""
    depth = 0
    for at in range(opening, len(tokens)):
        depth += {Kind.OPENING: 1, Kind.CLOSING: -1}.get(tokens[at].kind, 0)
        if depth == 0:
            return at
    return len(tokens)


def _list_of(tokens: Sequence[Token], at: int) -> str:
    """Return the word before BY of the list of terms in which the place *at* is BY or a comma, or nothing."""
    if _word(tokens, at) not in ("by", ","):
        return ""
    depth = 0
    for number in range(at, 0, -1):
        depth += {Kind.OPENING: -1, Kind.CLOSING: 1}.get(tokens[number].kind, 0)
        word = _word(tokens, number)
        if depth < 0 or (depth == 0 and word in CLAUSES):
            return ""
        if depth == 0 and word == "by":
            before = _word(tokens, number - 1)
            return before if before in IDLE else ""
    return ""
