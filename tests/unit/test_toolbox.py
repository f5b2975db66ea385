"""The toolbox: one snapshot at a time, and calls that go through it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import anyio
import pytest

from dbtools import errors
from dbtools.catalog import Catalog
from dbtools.policy import Limits, Role
from dbtools.results import Media, ResultSet, Style
from dbtools.statement import Statement
from dbtools.toolbox import Toolbox, take_snapshot
from tests.unit.shop import ORDER_LINE, PRODUCT, SALE

SMALL = Catalog(tables=(SALE,))
LARGE = Catalog(tables=(SALE, ORDER_LINE, PRODUCT))
ROLES = (Role(limits=Limits(max_rows=5)), Role(name="other"))


@dataclass
class Executed:
    """Stands in for the execution: answers with rows, and remembers what it was asked."""

    rows: Sequence[tuple[object, ...]] = ()
    more: bool = False
    error: errors.DbtoolsError | None = None
    asked: list[tuple[Statement, Limits]] = field(default_factory=list)

    async def execute(self, statement: Statement, limits: Limits) -> ResultSet:
        """Answer with the rows."""
        self.asked.append((statement, limits))
        if self.error:
            raise self.error
        return ResultSet(outputs=statement.shape.outputs, rows=tuple(self.rows), more=self.more)


@dataclass
class Database:
    """Stands in for introspection: gives one catalog after the other, or the error in its place."""

    catalogs: list[Catalog | errors.DbtoolsError]
    read: int = 0

    async def introspect(self) -> Catalog:
        """Return the next catalog, and at last the same again."""
        await anyio.lowlevel.checkpoint()
        found = self.catalogs[min(self.read, len(self.catalogs) - 1)]
        self.read += 1
        if isinstance(found, errors.DbtoolsError):
            raise found
        return found


def _toolbox(*catalogs: Catalog | errors.DbtoolsError, execution: Executed | None = None) -> Toolbox:
    database = Database([*catalogs])
    return Toolbox(database.introspect, execution or Executed(), roles=ROLES, style=Style())


async def test_first_snapshot_is_taken_once_for_all_who_wait() -> None:
    database = Database([SMALL, LARGE])
    toolbox = Toolbox(database.introspect, Executed(), roles=ROLES, style=Style())

    with anyio.fail_after(5):
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
    assert names == ["describe_tables", "list_sale"]
    assert [each.name for each in await toolbox.list("default")] == [
        "describe_tables",
        "list_sale",
        "list_order_line",
        "list_product",
        "get_order_line",
        "get_product",
    ]


async def test_old_snapshot_stays_where_a_refresh_fails() -> None:
    toolbox = _toolbox(SMALL, errors.DatabaseUnavailable(), LARGE)
    before = await toolbox.snapshot()

    with pytest.raises(errors.DatabaseUnavailable):
        await toolbox.refresh()
    assert (await toolbox.snapshot()) is before
    assert (await toolbox.refresh()).catalog == LARGE


async def test_failed_first_snapshot_is_tried_again() -> None:
    toolbox = _toolbox(errors.DatabaseUnavailable(), SMALL)

    with pytest.raises(errors.DatabaseUnavailable):
        await toolbox.list("default")
    assert len(await toolbox.list("default")) == 2


async def test_every_role_has_its_own_limits() -> None:
    execution = Executed(rows=[("2024-03-05", "1.10")])
    toolbox = _toolbox(SMALL, execution=execution)

    for role in ("default", "other"):
        await toolbox.call(role, "list_sale", {})

    assert [(statement.limit, limits) for statement, limits in execution.asked] == [
        (5, Limits(max_rows=5)),
        (50, Limits()),
    ]


async def test_call_is_bound_executed_and_rendered() -> None:
    execution = Executed(rows=[("2024-03-05", "1.10")], more=True)
    toolbox = _toolbox(SMALL, execution=execution)

    answer = await toolbox.call("default", "list_sale", {"limit": 1})

    assert answer.structured["rows"] == [["2024-03-05", "1.10"]]
    assert answer.truncated
    assert [statement.limit for statement, _ in execution.asked] == [1]


async def test_description_needs_no_database() -> None:
    execution = Executed(error=errors.DatabaseUnavailable())
    toolbox = _toolbox(SMALL, execution=execution)

    answer = await toolbox.call("default", "describe_tables", {"detail": "names"})

    assert answer.structured["tables"] == [{"name": "sale"}]
    assert execution.asked == []


async def test_bad_argument_does_not_reach_the_database() -> None:
    execution = Executed()
    toolbox = _toolbox(SMALL, execution=execution)

    with pytest.raises(errors.BadArgument):
        await toolbox.call("default", "list_sale", {"limit": 0})
    assert execution.asked == []


async def test_refusal_of_the_database_is_passed_on() -> None:
    toolbox = _toolbox(SMALL, execution=Executed(error=errors.TimedOut()))

    with pytest.raises(errors.TimedOut):
        await toolbox.call("default", "list_sale", {})


@pytest.mark.parametrize("name", ["list_sales", "", "LIST_SALE", "get_sale", "\x1b" * 9])
async def test_unknown_tool_is_named_with_the_nearest(name: str) -> None:
    toolbox = _toolbox(SMALL)

    with pytest.raises(errors.UnknownTool) as raised:
        await toolbox.call("default", name, {})
    assert str(raised.value).isprintable()
    assert ("list_sale" in raised.value.hint) is ("sale" in name.lower())


async def test_tool_that_a_migration_took_away_is_unknown_afterwards() -> None:
    toolbox = _toolbox(LARGE, SMALL)

    await toolbox.call("default", "list_product", {})
    await toolbox.refresh()

    with pytest.raises(errors.UnknownTool):
        await toolbox.call("default", "list_product", {})


async def test_resource_is_read_through_the_same_view() -> None:
    execution = Executed(rows=[("whole",)])
    toolbox = _toolbox(LARGE, execution=execution)
    uri = "dbtools://cell/product/1/name"

    assert await toolbox.read("default", uri) == Media(uri=uri, type="text/plain", content=b"whole")
    with pytest.raises(errors.UnknownResource):
        await toolbox.read("default", "dbtools://cell/nothing/1/name")
    assert len(execution.asked) == 1


def test_definitions_differ_only_where_the_schema_does() -> None:
    first, second = (take_snapshot(SMALL, ROLES, Style()) for _ in range(2))
    commented = Catalog(tables=(replace(SALE, comment="what was sold"),))
    third = take_snapshot(commented, ROLES, Style())

    assert first.views["default"].definitions == second.views["default"].definitions
    assert first.views["default"].definitions != third.views["default"].definitions
