"""The error messages of a statement that fails, with a stub of the database."""

from collections.abc import Mapping
from typing import cast

import pytest

from dbtools.answers.results import ResultSet
from dbtools.backends.compiled import Compiled
from dbtools.backends.port import Backend
from dbtools.backends.runs import Run
from dbtools.errors import BadValue, Busy, CallError, OutOfRange, SchemaChanged, TimedOut, Unreadable
from dbtools.policy.roles import Caller, Limits, Role
from dbtools.schema.catalog import Catalog
from dbtools.schema.sql import Parameter
from dbtools.service.execution import Execution
from dbtools.service.snapshot import RoleSnapshot, take_snapshot
from dbtools.statements.select import Output, QueryShape, Select, Shape, Statement, argument
from dbtools.values.types import Family
from tests.unit.shop import PRODUCT, TYPES, plan_of, resolved


def _view(role: Role) -> RoleSnapshot:
    return take_snapshot(resolved(Catalog(tables=(PRODUCT,)), (role,))).views[role.name]


class Failing:
    """Stands in for a backend and its runner: each statement ends in an error."""

    def __init__(self, error: CallError) -> None:
        self._error = error
        self.timeouts: list[float] = []

    async def runner(self) -> "Failing":
        return self

    def compile(self, shape: Shape) -> Compiled:
        """Return the plan of *shape*, whose SQL does not matter."""
        return plan_of(shape)

    async def run(self, run: Run) -> ResultSet:
        self.timeouts.append(run.context.timeout)
        raise self._error


PLAIN: tuple[str | Parameter, ...] = ("select 1",)
CLAIMED = ("select ", Parameter("claims.rep"))
UNREADABLE = "unreadable: The database cannot compute this query."
BAD_VALUES = "bad_value: The database cannot compute this query with these values. Arguments: a (bigint)."
CHANGED = "schema_changed: What the query reads has changed or no longer exists. List the tools again."


def _of_query(pieces: tuple[str | Parameter, ...], values: Mapping[str, object]) -> Statement:
    types = {"a": TYPES[Family.INTEGER], "b": TYPES[Family.TEXT], "claims.rep": TYPES[Family.TEXT]}
    shape = QueryShape(name="q", pieces=pieces, outputs=(), types=types, casts={})
    return Statement(shape=shape, values={argument(name): value for name, value in values.items()}, limit=1)


async def _told(statement: Statement, failing: Failing) -> str:
    with pytest.raises(CallError) as caught:
        await Execution(cast(Backend, failing)).execute(statement, _view(Role()), Caller(), 10)
    return f"{caught.value.code}: {caught.value}"


@pytest.mark.parametrize(
    ("error", "pieces", "values", "told"),
    [
        pytest.param(Unreadable(), PLAIN, {"a": 1}, UNREADABLE, id="unreadable"),
        pytest.param(Unreadable("This view."), CLAIMED, {}, UNREADABLE, id="of a view"),
        pytest.param(BadValue("A view."), PLAIN, {}, UNREADABLE, id="no arguments"),
        pytest.param(BadValue("A view."), PLAIN, {"a": None}, UNREADABLE, id="nothing given"),
        pytest.param(BadValue("A view."), PLAIN, {"a": 0, "b": None}, BAD_VALUES, id="one given"),
        (*(BadValue("A view."), CLAIMED, {"a": 0}), f"{BAD_VALUES} Or a claim of the caller is invalid."),
        (*(BadValue("A view."), CLAIMED, {"a": None}), "denied: The caller may not read this."),
        pytest.param(SchemaChanged(), PLAIN, {"a": 1}, CHANGED, id="changed"),
        pytest.param(
            *(OutOfRange(), PLAIN, {"a": 1}),
            "out_of_range: A computed number, such as a sum, exceeds the range of its type.",
            id="out of range",
        ),
        pytest.param(Busy("Later."), PLAIN, {"a": 1}, "busy: Later.", id="busy"),
    ],
)
async def test_failure_of_a_query_has_a_fitting_message(
    error: CallError, pieces: tuple[str | Parameter, ...], values: Mapping[str, object], told: str
) -> None:
    assert await _told(_of_query(pieces, values), Failing(error)) == told


async def test_change_found_by_a_fetch_has_a_fitting_message() -> None:
    of_table = Statement(shape=Select(table=PRODUCT, outputs=(Output(term=PRODUCT.columns[0]),)), limit=1)
    changed = Failing(SchemaChanged())

    assert await _told(_of_query(PLAIN, {}), changed) == CHANGED
    assert await _told(of_table, changed) == (
        "schema_changed: The table or view, or one that it reads, has changed or no longer exists. "
        "List the tools again."
    )


async def test_failure_of_a_table_has_a_fitting_message() -> None:
    of_table = Statement(shape=Select(table=PRODUCT, outputs=(Output(term=PRODUCT.columns[0]),)), limit=1)

    assert await _told(of_table, Failing(BadValue("A view."))) == (
        "unreadable: A row of this table or view cannot be computed."
    )


@pytest.mark.parametrize("timeouts", [(1, 2, 3), (2, 1, 3), (2, 3, 1)], ids=["statement", "role", "caller"])
async def test_statement_has_the_least_of_its_timeouts(timeouts: tuple[float, float, float]) -> None:
    of_statement, of_role, of_caller = timeouts
    shape = Select(table=PRODUCT, outputs=(Output(term=PRODUCT.columns[0]),))
    slow, view = Failing(TimedOut()), _view(Role(limits=Limits(timeout=of_role)))

    with pytest.raises(TimedOut) as caught:
        await Execution(cast(Backend, slow)).execute(
            Statement(shape=shape, limit=1, timeout=of_statement), view, Caller(), of_caller
        )

    assert slow.timeouts == [1]
    assert caught.value.message == "The call reached its timeout of 1 seconds and was stopped."
