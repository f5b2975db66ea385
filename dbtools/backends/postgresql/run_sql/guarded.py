"""What the guard of ad-hoc SQL is given and returns: values that its process and the server exchange."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Any

from dbtools.backends.postgresql.schema.vocabulary import FOREIGN, Vocabulary
from dbtools.schema.catalog import Catalog, Location, Table


class LexemeKind(StrEnum):
    """The kind of a lexeme."""

    KEYWORD = "keyword"
    NAME = "name"
    STRING = "string"
    NUMBER = "number"
    SIGN = "sign"
    TYPE = "type"  #: of a cast, or a collation
    LABEL = "label"  #: the name of an argument, or of a field in `extract`


#: What PHRASES writes for them.
PHRASE_MARKS: Mapping[LexemeKind, str] = {
    LexemeKind.NAME: '"',
    LexemeKind.STRING: "'",
    LexemeKind.NUMBER: "0",
}


@dataclass(slots=True)
class Lexeme:
    """A keyword, a quoted name, a value or a sign."""

    kind: LexemeKind
    text: str  #: as it is spelled
    offset: int  #: in the caller's SQL
    value: str = ""  #: of a name or a string
    replacement: str | None = None  #: what runs instead of the text

    @property
    def word(self) -> str:
        """The keyword or sign; a mark for other kinds."""
        return PHRASE_MARKS.get(self.kind, self.text)

    @property
    def written(self) -> str:
        """What runs."""
        return (self.text if self.replacement is None else self.replacement) + " "


def habit(lexemes: Sequence[Lexeme], at: int) -> str:
    """Return what to write instead of lexeme number *at*, or of one beside it, if that is known."""
    names = [lexeme.value or lexeme.text for lexeme in lexemes[max(0, at - 1) : at + 2]]
    return next((FOREIGN[name] for name in names if name in FOREIGN), "")


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a role's ad-hoc SQL may name."""

    catalog: Catalog  #: what the role sees
    whole: frozenset[Location]  #: the tables among them that it sees without a lens
    vocabulary: Vocabulary


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A statement that the guard permits."""

    sql: str
    sources: Mapping[Table, str]  #: the tables that it reads, and what it reads them from
    lexemes: Sequence[Lexeme]
    calls_others: bool  #: whether it calls a function that is not a part of the system

    def lexeme_at(self, position: int) -> int | None:
        """Return the number of the lexeme at *position* of the SQL, from 0; beyond its end, the last one."""
        ends = list(accumulate(len(lexeme.written) for lexeme in self.lexemes))
        return min(bisect_right(ends, position), len(ends) - 1) if position >= 0 else None

    def answer(self) -> Mapping[str, object]:
        """Return the statement as the answer of a process."""
        return {
            "sql": self.sql,
            "sources": [(*table.location, name) for table, name in self.sources.items()],
            "lexemes": [(e.kind, e.text, e.offset, e.value, e.replacement) for e in self.lexemes],
            "calls_others": self.calls_others,
        }


def guarded_of(answer: Mapping[str, Any], catalog: Catalog) -> Guarded:
    """Return the statement in the *answer* of a process, over tables of *catalog*."""
    tables = ((catalog.table(schema, name), source) for schema, name, source in answer["sources"])
    return Guarded(
        sql=answer["sql"],
        sources={table: source for table, source in tables if table is not None},
        lexemes=[Lexeme(LexemeKind(kind), *rest) for kind, *rest in answer["lexemes"]],
        calls_others=answer["calls_others"],
    )
