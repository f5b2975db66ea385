"""Find which tables and columns SQL changes. SQL in, Changes out.

PostgreSQL keeps which columns a rule names, but not which of them it changes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise, takewhile

from dbtools.backends.port import ColumnPlace
from dbtools.backends.postgresql.schema.dependencies import whole_rows
from dbtools.backends.postgresql.schema.types import lexis, name_of
from dbtools.backends.query_syntax import VERBS
from dbtools.queries import Effect
from dbtools.schema.catalog import Location
from dbtools.schema.sql import Group, Part, Token, code_of, nest, split, words

BEFORE_TARGET = ("into", "from", "only")
UNNAMED = words("* natural constraint")  #: by which SQL reads columns that it does not name
AFTER_SET = ("from", "where", "returning")
QUERY_WORDS = ("select", "with", "values", "table")  #: the first words of queries


@dataclass(frozen=True)
class Change:
    """What a statement, which may be a common table expression, changes."""

    kind: str  #: insert, update or delete
    target: str  #: its table, as written
    columns: Sequence[str]  #: empty: all
    place: Location | None = None  #: of the target; None: not known so far

    @property
    def effects(self) -> Iterator[Effect]:
        """The effects of the change."""
        if self.place is not None:
            schema, table = self.place
            yield from (Effect(self.kind, schema, table, column) for column in self.columns or ("",))


def changes_in(sql: str) -> Iterator[Change]:
    """Yield the changes of *sql*."""
    for group in nest(code_of(sql, lexis), sql).groups():
        for at, part in enumerate(group.parts):
            # A statement begins its group, or follows the common table expressions of WITH.
            if part.word in VERBS and (at == 0 or isinstance(group.parts[at - 1], Group)):
                yield from _changes(part.word, group.parts[at + 1 :])
                break


def _changes(kind: str, parts: Sequence[Part]) -> Iterator[Change]:
    rest = [*dropwhile(lambda part: part.word in BEFORE_TARGET, parts)]
    end = 1
    while end + 1 < len(rest) and rest[end].word == ".":
        end += 2
    target = "".join(part.text for part in rest[:end] if isinstance(part, Token))
    after = rest[end + 2 :] if [part.word for part in rest[end : end + 1]] == ["as"] else rest[end:]
    if kind != "update":
        listed: Sequence[Part] = after[0].parts if after and isinstance(after[0], Group) else []
        is_query = bool(listed) and (isinstance(listed[0], Group) or listed[0].word in QUERY_WORDS)
        yield Change(kind, target, () if kind == "delete" or is_query else _firsts(listed))
    assigned = [part for _, part in takewhile(lambda pair: not _ends_set(*pair), _after_set(after))]
    if kind != "delete" and assigned:
        yield Change("update", target, _firsts(assigned))


def _after_set(parts: Sequence[Part]) -> Iterator[tuple[Part, Part]]:
    """Return the parts after SET, each after the one before it."""
    return pairwise(dropwhile(lambda part: part.word != "set", parts))


def _ends_set(before: Part, part: Part) -> bool:
    return part.word in AFTER_SET and before.word != "distinct"


def _firsts(parts: Sequence[Part]) -> Sequence[str]:
    """Return the names that begin the items of *parts*, in a list or of assignments."""
    found: list[str] = []
    for first in (item[0] for item in split(parts, ",") if item):
        if isinstance(first, Group):
            found += _firsts(first.parts)
        elif first.is_name:
            found.append(name_of(first))
    return found


def reads_besides_changes(
    reads: frozenset[ColumnPlace], changes: Sequence[Change], sql: str
) -> frozenset[ColumnPlace]:
    """Return *reads* without what *sql* names only to change it."""
    tokens = code_of(sql, lexis)
    targets = {change.place for change in changes if change.place is not None}
    if UNNAMED & {token.word for token in tokens} or whole_rows(sql) & {name for _, name in targets}:
        return reads
    named = Counter(name_of(token) for token in tokens if token.is_name)
    named.subtract(column for change in changes for column in change.columns)
    named.subtract(name for _, name in targets)
    return frozenset(place for place in reads if place[:2] not in targets or named[place[2] or place[1]] > 0)
