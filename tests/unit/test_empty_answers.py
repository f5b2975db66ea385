"""Empty answers are explained by what the database stores."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from dbtools import errors
from dbtools.answers.results import ResultSet
from dbtools.policy.roles import Caller
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.toolbox import EXPLANATION_TIMEOUT, Toolbox
from dbtools.statements.select import Statement
from tests.unit.shop import resolving
from tests.unit.stub_database import LARGE, ROLES, Database, Unchanging


@dataclass
class Scripted(Unchanging):
    """Stands in for the execution: gives one result or error after the other, and remembers the timeouts."""

    results: list[Sequence[tuple[object, ...]] | errors.CallError]
    timeouts: list[float] = field(default_factory=list)

    async def execute(
        self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
    ) -> ResultSet:
        result = self.results[len(self.timeouts)]
        self.timeouts.append(timeout)
        if isinstance(result, errors.CallError):
            raise result
        return ResultSet(outputs=statement.shape.outputs, rows=tuple(result))

    async def is_current(self, stamp: str) -> bool:
        return True


ROW = [(1,)]  #: the table has one
BLUE_HAMMER: dict[str, object] = {
    "where": [{"column": "name", "value": "hammr"}, {"column": "size", "value": "small"}]
}


async def _note(execution: Scripted, arguments: dict[str, object]) -> object:
    database = Database([LARGE])
    toolbox = Toolbox(resolving(database.introspect, ROLES), execution)
    answer = await toolbox.call(Caller(), "list_product", arguments)
    return answer.structured.get("note")


async def test_empty_answer_is_explained_by_what_is_stored() -> None:
    execution = Scripted([[], ROW, [("hammer",)], [("small",), ("large",)]])

    assert await _note(execution, BLUE_HAMMER) == "name has only these values: 'hammer'."
    assert len(execution.timeouts) == 4


async def test_answer_with_rows_is_not_looked_into() -> None:
    execution = Scripted([[(1, "hammr", None, None, "small", None, None, None, None, None)]])

    assert await _note(execution, BLUE_HAMMER) is None
    assert len(execution.timeouts) == 1


@pytest.mark.parametrize("error", [errors.TimedOut(), errors.Busy(), errors.Unreadable()], ids=str)
async def test_explanation_that_fails_leaves_the_answer_as_it_is(error: errors.CallError) -> None:
    at_once, later = Scripted([[], error]), Scripted([[], ROW, [("hammer",)], error])

    assert await _note(at_once, BLUE_HAMMER) is None
    assert await _note(later, BLUE_HAMMER) == "name has only these values: 'hammer'."
    assert (len(at_once.timeouts), len(later.timeouts)) == (2, 4)


async def test_inquiries_share_a_moment() -> None:
    execution = Scripted([[], ROW, [("hammer",)], [("small",)]])

    await _note(execution, BLUE_HAMMER)

    call, row, first, second = execution.timeouts
    assert call == math.inf
    assert second <= first <= row <= EXPLANATION_TIMEOUT == 0.2


async def test_bug_in_an_explanation_is_not_swallowed() -> None:
    class Broken(Scripted):
        async def execute(
            self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
        ) -> ResultSet:
            if self.timeouts:
                raise ZeroDivisionError
            return await super().execute(statement, view, caller, timeout)

    with pytest.raises(ZeroDivisionError):
        await _note(Broken([[]]), BLUE_HAMMER)
