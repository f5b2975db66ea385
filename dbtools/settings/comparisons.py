"""What an operator's SQL does with claims whose type nobody knows. A Fragment in, names of claims out.

Where values alone have types, one of another type than the author meant equals nothing, is less or greater
than everything, and makes true whatever is denied. So a claim needs a type, unless another value can only
find fewer rows: where it is one side of an equality that is a whole condition of WHERE or of an inner join,
as in `tenant = :claims.tenant`, also in a subquery of EXISTS or IN that is such a condition itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dbtools.sql import Fragment, Kind, Lexis, Parameter, Token, tokenize

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
COMPARING = frozenset(
    {"=", "<", ">", "!", "is", "in", "like", "glob", "match", "regexp", "isnull", "notnull", "exists", "not"}
)


@dataclass(kw_only=True)
class _Group:
    """What stands in brackets, or between CASE and END."""

    parts: "list[Token | _Group]" = field(default_factory=list)
    is_case: bool = False

    @property
    def words(self) -> list[str]:
        """The words and signs, nothing for all else."""
        return [_word(part) for part in self.parts]


_Path = Sequence[tuple[_Group, int]]  #: groups, the outermost first, and the place in each


def uncertain_claims(fragment: Fragment, lexis: Lexis) -> Iterator[str]:
    """Yield the claims of *fragment* of which a value of another type may let rows in, each once."""
    claims: dict[str, None] = {}
    for path in _paths(_grouped(_significant(tokenize(fragment.text, lexis))), ()):
        group, at = path[-1]
        part = group.parts[at]
        assert isinstance(part, Token)
        claim = Parameter(part.text[1:]).claim
        if claim is not None and not _only_narrows(path):
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


def _grouped(tokens: Iterator[Token]) -> _Group:
    opened = [_Group()]
    for token in tokens:
        is_case = _word(token) == "case"
        if token.kind is Kind.OPENING or is_case:
            opened.append(_Group(is_case=is_case))
            opened[-2].parts.append(opened[-1])
        elif (token.kind is Kind.CLOSING or _word(token) == "end") and len(opened) > 1:
            opened.pop()
        else:
            opened[-1].parts.append(token)
    return opened[0]


def _paths(group: _Group, above: _Path) -> Iterator[_Path]:
    """Yield the way to each parameter."""
    for at, part in enumerate(group.parts):
        path = (*above, (group, at))
        if isinstance(part, _Group):
            yield from _paths(part, path)
        elif part.kind is Kind.PARAMETER:
            yield path


def _only_narrows(path: _Path) -> bool:
    """Return whether another value for the parameter at the end of *path* can only find fewer rows."""
    *outer, (group, at) = path
    if outer and _is_list(group):
        # One of several that are looked for.
        *outer, (group, at) = outer
        is_whole = _is_looked_up(group, at)
    else:
        is_whole = _is_equality(group, at)
    while is_whole and _is_condition(group, at):
        if not outer:
            return True
        inner = group
        *outer, (group, at) = outer
        is_whole = _is_bracketed(inner, group, at)
    return False


def _is_list(group: _Group) -> bool:
    """Return whether *group* is a list of values, each of one token."""
    shown = [part.text if isinstance(part, Token) else "(" for part in group.parts]
    return shown[1::2] == [","] * (len(shown) // 2) and not {"(", ","}.intersection(shown[::2])


def _condition(group: _Group, at: int) -> tuple[int, int]:
    """Return where in *group* the condition around the place *at* begins and ends."""
    ends = JUNCTIONS | CLAUSES
    words = group.words
    start = next((number + 1 for number in range(at - 1, -1, -1) if words[number] in ends), 0)
    end = next((number for number in range(at + 1, len(words)) if words[number] in ends), len(words))
    return start, end


def _is_equality(group: _Group, at: int) -> bool:
    """Return whether the condition is `x = :claim` or `:claim = x`, or with == or IS."""
    start, end = _condition(group, at)
    before, after = group.words[start:at], group.words[at + 1 : end]
    if before and after:
        return False
    sign, operand = (before[::-1], []) if before else (after, [])
    for length, signs in ((2, ["=", "="]), (1, ["="]), (1, ["is"])):
        if sign[:length] == signs:
            operand = sign[length:]
            break
    return bool(operand) and not COMPARING.intersection(operand)


def _is_looked_up(group: _Group, at: int) -> bool:
    """Return whether the condition is `x in (…)`, and the brackets are at the place *at*."""
    start, end = _condition(group, at)
    words = group.words[start:end]
    return (
        at == end - 1 and words[-2:-1] == ["in"] and not COMPARING.intersection(words[:-2]) and at > start + 1
    )


def _is_condition(group: _Group, at: int) -> bool:
    """Return whether what is at the place *at* of *group* is among the conditions of WHERE or ON.

    Or of a condition that stands alone, as that of a row filter; and nothing there makes of fewer rows more.
    """
    words = group.words
    if group.is_case or TURNING.intersection(words):
        return False
    clause = next((words[number] for number in range(at - 1, -1, -1) if words[number] in CLAUSES), None)
    return clause in CONDITIONS if clause is not None else not CLAUSES.intersection(words)


def _is_bracketed(inner: _Group, group: _Group, at: int) -> bool:
    """Return whether *inner*, at the place *at* of *group*, is a whole condition: `(…)`, EXISTS or IN."""
    start, end = _condition(group, at)
    words = group.words[start:end]
    if at != end - 1 or inner.is_case:
        return False
    if inner.words[:1] != ["select"]:
        return at == start and "," not in inner.words
    if words[:-1] != ["exists"] and not (
        words[-2:-1] == ["in"] and len(words) > 2 and not COMPARING.intersection(words[:-2])
    ):
        return False
    # A function, such as count(*), makes a row of no rows.
    shown = inner.parts[: inner.words.index("from")] if "from" in inner.words else inner.parts
    return not any(isinstance(part, _Group) for part in shown)
