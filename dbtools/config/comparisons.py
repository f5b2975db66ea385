"""What an operator's SQL does with claims whose type nobody knows. A Fragment in, names of claims out.

Where values alone have types, one of another type than the author meant equals nothing, and is less or
greater than everything. So it is told which claims are not only looked for, as `tenant = :claims.tenant`
does: of those another value may let rows in.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dbtools.parameters import Fragment, Kind, Lexis, Parameter, Token, tokenize

#: Signs and words of comparisons that hold for most values.
BY_SIZE = frozenset({"<", ">", "!", "between", "not"})
#: Those that hold for few.
EQUAL = frozenset({"=", "in", "is", "like", "glob"})
#: Words and signs between one condition, or one value, and the next.
BOUNDS = frozenset(
    {
        *("and", "or", "where", "on", "having", "when", "then", "else", "select", "distinct", "from", "by"),
        *("limit", "offset", "as", "join", "union", "intersect", "except", "all", "values", ","),
    }
)
SUBQUERIES = ("select", "with")


@dataclass(kw_only=True)
class _Group:
    """What stands in brackets, or between CASE and END."""

    parts: "list[Token | _Group]" = field(default_factory=list)


def uncertain_claims(fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* of which a value of another type may let rows in, each once."""
    tokens = list(_significant(tokenize(fragment.text, lexis)))
    by_size = any(_word(token) in BY_SIZE for token in tokens)
    claims: dict[str, None] = {}
    for path in _paths(_grouped(tokens), []):
        group, at = path[-1]
        part = group.parts[at]
        assert isinstance(part, Token)
        claim = Parameter(part.text[1:]).claim
        if claim is not None and not _is_looked_for(path, by_size=by_size):
            claims[claim] = None
    yield from claims


def _significant(tokens: Iterator[Token]) -> Iterator[Token]:
    """Yield *tokens* without blanks, comments, and the arrows that lead into JSON."""
    begun = False  #: whether the last was of an arrow, or may begin one
    for token in tokens:
        is_arrow = begun and token.text == ">"
        begun = is_arrow or token.text == "-"
        if token.kind not in (Kind.BLANK, Kind.COMMENT) and not is_arrow:
            yield token


def _word(part: "Token | _Group") -> str:
    return part.text.lower() if isinstance(part, Token) and part.kind is Kind.CODE else ""


def _grouped(tokens: Sequence[Token]) -> _Group:
    opened = [_Group()]
    for token in tokens:
        if token.kind is Kind.OPENING or _word(token) == "case":
            opened.append(_Group())
            opened[-2].parts.append(opened[-1])
        elif (token.kind is Kind.CLOSING or _word(token) == "end") and len(opened) > 1:
            opened.pop()
        else:
            opened[-1].parts.append(token)
    return opened[0]


def _paths(group: _Group, above: "list[tuple[_Group, int]]") -> "Iterator[list[tuple[_Group, int]]]":
    """Yield the way to each parameter: groups, the outermost first, and the place in each."""
    for at, part in enumerate(group.parts):
        path = [*above, (group, at)]
        if isinstance(part, _Group):
            yield from _paths(part, path)
        elif part.kind is Kind.PARAMETER:
            yield path


def _is_looked_for(path: "Sequence[tuple[_Group, int]]", *, by_size: bool) -> bool:
    """Return whether the parameter at the end of *path* is only compared in ways that hold for few values.

    One that is compared in no way that shows may be anywhere, where the SQL compares something *by_size*.
    """
    found = inner = False
    for group, at in reversed(path):
        words = _condition(group, at)
        negated = "not" in words or (not inner and bool(words & BY_SIZE))
        if negated or (found and not inner and words & EQUAL):
            return False
        found = found or bool(words & EQUAL)
        inner = found and (_is_subquery(group) or (inner and len(group.parts) == 1))
    return found or not by_size


def _is_subquery(group: _Group) -> bool:
    return bool(group.parts) and _word(group.parts[0]) in SUBQUERIES


def _condition(group: _Group, at: int) -> frozenset[str]:
    """Return the words and signs of *group* around the place *at*, as far as one condition goes."""
    words = [_word(part) for part in group.parts]
    start = next((number + 1 for number in range(at - 1, -1, -1) if words[number] in BOUNDS), 0)
    end = next((number for number in range(at, len(words)) if words[number] in BOUNDS), len(words))
    return frozenset(words[start:end])
