"""Calls on an outdated snapshot wait for the new one within their timeout, and never end its refresh."""

from dataclasses import dataclass, field, replace

import anyio
import pytest

from dbtools import errors
from dbtools.answers.results import Answer, ResultSet
from dbtools.policy.roles import Caller, Limits, Role
from dbtools.schema.catalog import Catalog
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.toolbox import Toolbox
from dbtools.statements.select import Statement
from tests.unit.shop import SALE, resolving
from tests.unit.stub_database import Unchanging

HASTY, PATIENT = (
    Role(name="hasty", limits=Limits(timeout=0.01)),
    Role(name="patient", limits=Limits(timeout=60)),
)
FIRST = Catalog(tables=(SALE,), stamp="1")


@dataclass
class Changed(Unchanging):
    """A database that has changed since its first reading; each later one waits to be let go on."""

    read: int = 0
    go_on: anyio.Event = field(default_factory=anyio.Event)
    answered: list[str] = field(default_factory=list)  #: the stamps of statements

    async def introspect(self) -> Catalog:
        """Return a catalog with the number of the reading as its stamp."""
        self.read += 1
        found = replace(FIRST, stamp=str(self.read))
        if self.read > 1:
            await self.go_on.wait()
        return found

    async def execute(
        self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
    ) -> ResultSet:
        """Answer with a row, on whatever is not as of the first reading."""
        if view.stamp == FIRST.stamp:
            raise errors.SchemaChanged
        self.answered.append(view.stamp)
        return ResultSet(outputs=statement.shape.outputs, rows=(("2024-03-05", "1.10"),))

    async def is_current(self, stamp: str) -> bool:
        return stamp != FIRST.stamp


@pytest.fixture
async def changed() -> Changed:
    return Changed()


@pytest.fixture
async def toolbox(changed: Changed) -> Toolbox:
    toolbox = Toolbox(resolving(changed.introspect, (HASTY, PATIENT)), changed)
    await toolbox.snapshot()
    return toolbox


async def _call(toolbox: Toolbox, role: Role) -> Answer:
    return await toolbox.call(Caller(role=role.name), "list_sale", {})


async def test_calls_wait_for_the_refresh_of_another_no_longer_than_they_may(
    changed: Changed, toolbox: Toolbox
) -> None:
    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(toolbox.refresh)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(errors.SchemaChanged):
                await _call(toolbox, HASTY)
            group.start_soon(_call, toolbox, PATIENT)
            await anyio.wait_all_tasks_blocked()
            before = [*changed.answered]
            changed.go_on.set()

    assert (before, changed.answered) == ([], ["2"])
    assert changed.read == 2


async def test_call_that_refreshes_by_itself_waits_no_longer_and_another_one_does_it(
    changed: Changed, toolbox: Toolbox
) -> None:
    with anyio.fail_after(30):
        with pytest.raises(errors.SchemaChanged):
            await _call(toolbox, HASTY)
        changed.go_on.set()
        await _call(toolbox, PATIENT)

    assert changed.answered == ["3"]
