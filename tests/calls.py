"""Calls as tests look at them: what they read, and how they answer."""

from collections.abc import Sequence

from dbtools.answers.results import ResultSet
from dbtools.statements.select import Statement
from dbtools.tools.calls import AnswerT, Call, CatalogCall, ReadCall


def read_call(call: Call[AnswerT]) -> ReadCall[AnswerT]:
    """Return *call*, which reads rows."""
    assert isinstance(call, ReadCall)
    return call


def statement_of(call: Call[object]) -> Statement:
    """Return the statement of *call*, which reads rows."""
    return read_call(call).statement


def answered(call: Call[AnswerT], *rows: Sequence[object], more: bool = False) -> AnswerT:
    """Return the answer of *call* where the database answers with *rows*."""
    catalog: CatalogCall[AnswerT] | None = call if isinstance(call, CatalogCall) else None
    if catalog is not None:
        return catalog.answer(())
    read = read_call(call)
    return read.render(result(read, *rows, more=more))


def result(call: Call[object], *rows: Sequence[object], more: bool = False) -> ResultSet:
    """Return *rows* as what the database answers to *call*."""
    outputs = statement_of(call).shape.outputs
    return ResultSet(outputs=outputs, rows=tuple(map(tuple, rows)), more=more)
