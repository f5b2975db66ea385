"""What an operator's SQL does with claims whose type nobody knows. A Fragment in, names of claims out.

Where values alone have types, one of another type than the author meant equals nothing, is less or greater
than everything, and makes true whatever is denied. So a claim needs a type, unless another value can only
find fewer rows: where it is one side of an equality that is a whole condition of WHERE or of an inner join,
as in `tenant = :claims.tenant`, also in a subquery of EXISTS or IN that is such a condition itself.
"""

from collections.abc import Iterable, Iterator

from dbtools.sql import Fragment, Group, Lexis, Token, grouped, tokenize

JUNCTIONS = frozenset({"and", "or"})
#: What begins a clause of a SELECT: of these, conditions follow the first two.
CONDITIONS = frozenset({"where", "on"})
CLAUSES = CONDITIONS | {
    *("select", "from", "group", "having", "window", "order", "limit", "offset", "union", "intersect"),
    *("except", "values", "join", "using", "with"),
}
#: What makes of fewer rows more.
TURNING = frozenset({"not", "except", "left", "right", "full", "outer", "between"})
#: What compares, so that a whole condition is more than one equality.
COMPARING = frozenset({"is", "in", "like", "glob", "match", "regexp", "isnull", "notnull", "exists", "not"})
ARROWS = ("->", "->>")  #: that lead into JSON


def uncertain_claims(fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* of which a value of another type may let rows in, each once."""
    claims: dict[str, None] = {}
    for group, at, token in grouped(tokenize(fragment.text, lexis), fragment.text).parameters():
        claim = token.parameter.claim
        if claim is not None and not _only_narrows(group, at):
            claims[claim] = None
    yield from claims


def _only_narrows(group: Group, at: int) -> bool:
    """Return whether another value at the place *at* of *group* can only find fewer rows."""
    if group.outer and _is_list(group):
        # One of several that are looked for.
        group, at = group.outer, group.place
        is_whole = _is_looked_up(group, at)
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


def _condition(group: Group, at: int) -> tuple[int, int]:
    """Return where in *group* the condition around the place *at* begins and ends."""
    ends = JUNCTIONS | CLAUSES
    words = group.words
    start = next((number + 1 for number in range(at - 1, -1, -1) if words[number] in ends), 0)
    end = next((number for number in range(at + 1, len(words)) if words[number] in ends), len(words))
    return start, end


def _is_equality(group: Group, at: int) -> bool:
    """Return whether the condition is `x = :claim` or `:claim = x`, or with == or IS."""
    start, end = _condition(group, at)
    before, after = group.words[start:at], group.words[at + 1 : end]
    if before and after:
        return False
    sign, *operand = before[::-1] or after or [""]
    return sign in ("=", "==", "is") and bool(operand) and not _compares(operand)


def _is_looked_up(group: Group, at: int) -> bool:
    """Return whether the condition is `x in (…)`, and the brackets are at the place *at*."""
    start, end = _condition(group, at)
    words = group.words[start:end]
    return at == end - 1 and _looks_up(words)


def _looks_up(words: list[str]) -> bool:
    """Return whether *words* are `x in (`, and nothing more is compared."""
    return len(words) > 2 and words[-2] == "in" and not _compares(words[:-2])


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
    start, end = _condition(group, at)
    words = group.words[start:end]
    if at != end - 1 or inner.word == "case":
        return False
    if inner.words[:1] != ["select"]:
        return at == start and "," not in inner.words
    if words[:-1] != ["exists"] and not _looks_up(words):
        return False
    # A function, such as count(*), makes a row of no rows.
    shown = inner.parts[: inner.words.index("from")] if "from" in inner.words else inner.parts
    return not any(isinstance(part, Group) for part in shown)
