"""Toolbox: one snapshot for all, calls bound, executed and rendered."""

import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import pytest

from dbtools import errors
from dbtools.answers.results import Media, ResultSet
from dbtools.answers.styles import Listing, Surface
from dbtools.policy.roles import Caller
from dbtools.schema.catalog import Catalog
from dbtools.schema.uris import CELL_TEMPLATE
from dbtools.service.snapshot import RoleSnapshot, take_snapshot
from dbtools.service.toolbox import COMPLETION, Toolbox
from dbtools.statements.select import Statement
from dbtools.tools.definition import ToolGroup
from dbtools.tools.resources import Completed
from tests.unit.shop import SALE, resolved, resolving
from tests.unit.stub_database import LARGE, ROLES, Database, Unchanging

SMALL = Catalog(tables=(SALE,))


@dataclass
class Executed(Unchanging):
    """Stands in for the execution: answers with rows, and remembers what it was asked."""

    rows: Sequence[tuple[object, ...]] = ()
    more: bool = False
    error: errors.DbtoolsError | None = None
    asked: list[Statement] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    async def execute(
        self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
    ) -> ResultSet:
        self.asked.append(statement)
        self.timeouts.append(timeout)
        if self.error:
            raise self.error
        return ResultSet(outputs=statement.shape.outputs, rows=tuple(self.rows), more=self.more)

    async def is_current(self, stamp: str) -> bool:
        return True


def _toolbox(*catalogs: Catalog | errors.DbtoolsError, execution: Executed | None = None) -> Toolbox:
    database = Database([*catalogs])
    return Toolbox(resolving(database.introspect, ROLES), execution or Executed())


async def test_first_snapshot_is_taken_once_for_all_who_wait() -> None:
    database = Database([SMALL, LARGE])
    toolbox = Toolbox(resolving(database.introspect, ROLES), Executed())

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(toolbox.snapshot)

    assert database.read == 1
    assert (await toolbox.snapshot()).catalog == SMALL


async def test_refresh_replaces_the_snapshot_whole() -> None:
    toolbox = _toolbox(SMALL, LARGE)
    before = await toolbox.snapshot()
    names = [each.name for each in await toolbox.list("default")]

    after = await toolbox.refresh()

    assert (await toolbox.snapshot()) is after
    assert (before.catalog, after.catalog) == (SMALL, LARGE)
    assert names == ["describe_tables", "aggregate_rows", "list_sale"]
    assert [each.name for each in await toolbox.list("default")] == [
        *("describe_tables", "aggregate_rows", "list_sale", "list_order_line", "list_product"),
        *("get_order_line", "get_product"),
    ]


async def test_failed_snapshot_changes_nothing_and_is_tried_again() -> None:
    away = errors.DatabaseUnavailable()
    toolbox = _toolbox(away, SMALL, away, LARGE)

    with pytest.raises(errors.DatabaseUnavailable):
        await toolbox.list("default")
    assert len(await toolbox.list("default")) == 3
    before = await toolbox.snapshot()
    with pytest.raises(errors.DatabaseUnavailable):
        await toolbox.refresh()
    assert (await toolbox.snapshot()) is before
    assert (await toolbox.refresh()).catalog == LARGE


async def test_every_role_has_its_own_limits() -> None:
    execution = Executed(rows=[("2024-03-05", "1.10")])
    toolbox = _toolbox(SMALL, execution=execution)

    for role in ("default", "other"):
        await toolbox.call(Caller(role=role), "list_sale", {})

    assert [statement.limit for statement in execution.asked] == [5, 50]


async def test_what_is_told_of_the_catalog_needs_no_database() -> None:
    execution = Executed(error=errors.DatabaseUnavailable())
    toolbox = _toolbox(LARGE, execution=execution)

    answer = await toolbox.call(Caller(), "describe_tables", {"detail": "names"})
    completed = await toolbox.complete(Caller(), CELL_TEMPLATE, "table", "p", {})

    assert answer.structured["tables"] == [{"name": name} for name in ("sale", "order line", "product")]
    assert completed == Completed(values=("product",))
    assert execution.asked == []


@pytest.mark.parametrize("name", ["list_sales", "", "LIST_SALE", "get_sale", "\x1b" * 9])
async def test_unknown_tool_is_named_with_the_nearest(name: str) -> None:
    toolbox = _toolbox(SMALL)

    with pytest.raises(errors.UnknownTool) as raised:
        await toolbox.call(Caller(), name, {})
    assert str(raised.value).isprintable()
    assert ("list_sale" in raised.value.hint) is ("sale" in name.lower())


@pytest.mark.parametrize(
    "name", ["run_sql", "execute_sql", "query", "sql", "ExecuteQuery", "raw-sql", "runSQL"]
)
async def test_tool_for_sql_is_unknown_and_answered_with_what_there_is(name: str) -> None:
    with pytest.raises(errors.UnknownTool) as raised:
        await _toolbox(LARGE).call(Caller(), name, {"sql": "select 1"})

    instead = "No tool runs SQL: use list_… for rows or aggregate_rows for counts, sums and groups."
    assert instead in raised.value.hint


async def test_resource_is_read_through_the_same_view() -> None:
    execution = Executed(rows=[("whole",)])
    toolbox = _toolbox(LARGE, execution=execution)
    uri = "dbtools://cell/product/1/name"

    assert await toolbox.read(Caller(), uri) == Media(uri=uri, type="text/plain", content=b"whole")
    with pytest.raises(errors.UnknownResource):
        await toolbox.read(Caller(), "dbtools://cell/nothing/1/name")
    assert len(execution.asked) == 1


def test_definitions_differ_only_where_the_schema_does() -> None:
    first, second = (take_snapshot(resolved(SMALL, ROLES)) for _ in range(2))
    commented = Catalog(tables=(replace(SALE, comment="what was sold"),))
    third = take_snapshot(resolved(commented, ROLES))

    assert first.views["default"].definitions == second.views["default"].definitions
    assert first.views["default"].definitions != third.views["default"].definitions


async def test_completion_reads_keys_in_a_moment() -> None:
    execution = Executed(rows=[(1,), (12,)], more=True)
    toolbox = _toolbox(LARGE, execution=execution)

    found = await toolbox.complete(Caller(), CELL_TEMPLATE, "key", "1", {"table": "product"})
    [statement] = execution.asked

    assert found == Completed(values=("1", "12"), more=True)
    assert (dict(statement.values), *execution.timeouts) == ({"start": "1"}, COMPLETION)


async def test_completion_that_fails_has_no_values_but_an_unknown_variable_is_refused() -> None:
    for error in (errors.TimedOut(), errors.Busy(), errors.DatabaseUnavailable()):
        toolbox = _toolbox(LARGE, execution=Executed(error=error))
        found = await toolbox.complete(Caller(), CELL_TEMPLATE, "key", "1", {"table": "product"})
        assert found == Completed(values=())
    with pytest.raises(errors.UnknownArgument):
        await _toolbox(LARGE).complete(Caller(), CELL_TEMPLATE, "tabel", "", {})


async def _surfaces(listing: Listing, *catalogs: Catalog) -> list[tuple[bool, int]]:
    """Return whether tables have their own tools, and how many are listed, in each snapshot."""
    toolbox = Toolbox(resolving(Database([*catalogs]).introspect, ROLES, listing), Executed())
    found: list[tuple[bool, int]] = []
    for _ in catalogs:
        view = (await toolbox.refresh()).views["default"]
        found.append((ToolGroup.TABLES in view.typed, len(view.definitions)))
    return found


async def test_surface_is_chosen_at_the_start_and_kept() -> None:
    """Three tables have seven tools each, and one has three; five tools take any table."""
    listing, pinned = Listing(budget=1_400), Listing(surface=Surface.GENERIC, pin=("product",))

    assert await _surfaces(listing, SMALL, LARGE) == [(True, 3), (True, 7)]
    assert await _surfaces(listing, LARGE, SMALL) == [(False, 5), (False, 5)]
    assert await _surfaces(pinned, SMALL, LARGE) == [(False, 5), (False, 7)]


async def test_surface_that_was_never_chosen_is_chosen_when_there_is_a_catalog() -> None:
    listing = Listing(budget=1_400)
    database = Database([errors.DatabaseUnavailable(), LARGE])
    toolbox = Toolbox(resolving(database.introspect, ROLES, listing), Executed())

    with pytest.raises(errors.DatabaseUnavailable):
        await toolbox.refresh()

    assert ToolGroup.TABLES not in (await toolbox.view("default")).typed


@pytest.mark.parametrize("surface", [Surface.TYPED, Surface.GENERIC])
async def test_tool_is_called_whether_listed_or_not(surface: Surface) -> None:
    execution = Executed(rows=[("2024-03-05", "1.10")])
    listing = Listing(surface=surface)
    toolbox = Toolbox(resolving(Database([SMALL]).introspect, ROLES, listing), execution)

    answers = [
        await toolbox.call(Caller(), "list_sale", {}),
        await toolbox.call(Caller(), "list_rows", {"table": "sale"}),
    ]

    assert answers[0] == answers[1]
    assert execution.asked[0] == execution.asked[1]


ASKS: tuple[Callable[[Toolbox], Coroutine[Any, Any, object]], ...] = (
    lambda toolbox: toolbox.call(Caller(), "list_sale", {"columns": ["day"]}),
    lambda toolbox: toolbox.call(Caller(), "get_order_line", {"order_id": "3", "product_id": "7"}),
    lambda toolbox: toolbox.read(Caller(), "dbtools://row/order%20line/3,7"),
    lambda toolbox: toolbox.read(Caller(), "dbtools://cell/order%20line/3,7/quantity"),
)


Row = tuple[object, ...]
LARGE_RESULTS: tuple[Callable[[Row], tuple[Row, ...]], ...] = (
    lambda row: ((*row, "x" * 1_000_000),),
    lambda row: (row, *[(1,) * len(row)] * 13_000),
)


@pytest.mark.parametrize("rows_after", LARGE_RESULTS, ids=["long", "many"])
@pytest.mark.parametrize("ask", ASKS, ids=["list", "get", "row", "cell"])
async def test_others_are_answered_while_a_large_result_is_rendered(
    ask: Callable[[Toolbox], Coroutine[Any, Any, object]], rows_after: Callable[[Row], tuple[Row, ...]]
) -> None:
    answered = threading.Event()
    waited = []

    class Cell:
        """A cell that waits until another call has been answered."""

        def __str__(self) -> str:
            waited.append(answered.wait(5))
            return "7"

    class Large(Executed):
        async def execute(
            self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
        ) -> ResultSet:
            outputs = statement.shape.outputs
            return ResultSet(outputs=outputs, rows=rows_after(tuple(Cell() for _ in outputs)))

    toolbox = _toolbox(LARGE, execution=Large())
    await toolbox.snapshot()

    async with anyio.create_task_group() as group:
        group.start_soon(ask, toolbox)
        group.start_soon(anyio.to_thread.run_sync, answered.set)

    assert set(waited) == {True}
