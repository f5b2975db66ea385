"""The kinds of calls: arguments that a tool has read in, what is run and how it is answered out.

`service/toolbox.py` tells them apart. The fourth kind is the ChangeCall, in `writes/calls.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from dbtools.answers.results import Answer, ResultSet
from dbtools.statements.select import SqlStatement, Statement

AnswerT = TypeVar("AnswerT", covariant=True)


class Call(Generic[AnswerT]):
    """A call with validated arguments: one of the kinds below, or a ChangeCall."""


@dataclass(frozen=True, kw_only=True)
class CatalogCall(Call[AnswerT]):
    """A call that the catalog answers."""

    answer: Callable[[Sequence[ResultSet]], AnswerT]  #: takes the results of the inquiries, or of the first
    inquiries: Sequence[Statement] = ()  #: what the answer tells besides, if their results arrive soon


@dataclass(frozen=True, kw_only=True)
class ReadCall(Call[AnswerT]):
    """A call that reads rows with one statement."""

    statement: Statement

    def inquire(self, rows: ResultSet) -> Sequence[Statement]:
        """Return more statements, whose results explain *rows*."""
        return ()

    def render(self, rows: ResultSet, further: Sequence[ResultSet] = ()) -> AnswerT:
        """Render *rows*; *further* are the results of the inquiries, or of the first."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SingleCall(ReadCall[AnswerT]):
    """A call that reads rows, and needs no inquiries."""

    answer: Callable[[ResultSet], AnswerT]

    def render(self, rows: ResultSet, further: Sequence[ResultSet] = ()) -> AnswerT:
        """Return the answer."""
        return self.answer(rows)


@dataclass(frozen=True, kw_only=True)
class SqlCall(Call[Answer]):
    """A call that runs SQL that its caller wrote."""

    statement: SqlStatement
    answer: Callable[[ResultSet], Answer]
