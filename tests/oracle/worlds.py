"""Databases that change, or with slow statements, served by either server. Scenarios in, outcomes out."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from dbtools.answers.results import ResultSet
from dbtools.policy.roles import Caller, Role
from dbtools.schema.catalog import Catalog
from dbtools.service.serving import open_toolbox
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.toolbox import Toolbox
from dbtools.statements.select import Statement
from tests.oracle.exchanges import Side
from tests.oracle.live import PATIENCE
from tests.oracle.ours import open_our_side
from tests.oracle.sdk_server import open_sdk_side
from tests.protocol.conftest import settings_for
from tests.protocol.test_internal_errors import CATALOG, Steady
from tests.unit.shop import resolving

CHANGE = "alter table person add column age integer; create table pet (id integer primary key);"
Outcome = list[Any]


class Waits(Steady):
    """Runs each statement until it is released."""

    def __init__(self) -> None:
        self.began, self.released, self.ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.fate = ""  #: of the statement

    async def execute(
        self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
    ) -> ResultSet:
        """Return a row, or notice that the call was cancelled."""
        self.fate = "cancelled"
        self.began.set()
        try:
            await self.released.wait()
            self.fate = "finished"
        finally:
            self.ended.set()
        return ResultSet(outputs=statement.shape.outputs, rows=((1, "Ada"),))


@dataclass(kw_only=True)
class World:
    """What one side serves, and the means to change it."""

    side: Side
    toolbox: Toolbox
    path: Path  #: of the database file
    execution: Waits = field(default_factory=Waits)

    async def change(self, sql: str = CHANGE) -> None:
        """Change the database, and have the toolbox notice."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(sql)
        await self.toolbox.refresh()

    async def began(self) -> None:
        """Wait until the statement runs."""
        with anyio.fail_after(PATIENCE):
            await self.execution.began.wait()

    async def fate(self) -> str:
        """Return what has become of the statement."""
        with anyio.fail_after(PATIENCE):
            await self.execution.ended.wait()
        return self.execution.fate


Scenario = Callable[[World], Awaitable[Outcome]]
OpenSide = Callable[[Toolbox, str], AbstractAsyncContextManager[Side]]
Opened = Callable[[OpenSide, Path], AbstractAsyncContextManager[World]]


@asynccontextmanager
async def changing(open_side: OpenSide, path: Path) -> AsyncIterator[World]:
    """Serve a database that changes."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("create table person (id integer primary key, name text)")
    toolbox, database = open_toolbox(settings_for(path))
    await toolbox.snapshot()
    async with open_side(toolbox, "") as side:
        yield World(side=side, toolbox=toolbox, path=path)
    await database.close()


@asynccontextmanager
async def waiting(open_side: OpenSide, path: Path) -> AsyncIterator[World]:
    """Serve a database whose statements last."""

    async def introspect() -> Catalog:
        return CATALOG

    execution = Waits()
    toolbox = Toolbox(resolving(introspect, (Role(),)), execution)
    async with open_side(toolbox, "") as side:
        yield World(side=side, toolbox=toolbox, path=path, execution=execution)


async def play(opened: Opened, scenario: Scenario, folder: Path) -> Outcome:
    """Return what comes of *scenario* with the SDK and with us, each with its own database in *folder*."""
    outcomes: dict[OpenSide, Outcome] = {}

    async def run(open_side: OpenSide, path: Path) -> None:
        async with opened(open_side, path) as world:
            outcomes[open_side] = await scenario(world)

    async with anyio.create_task_group() as group:
        group.start_soon(run, open_sdk_side, folder / "sdk.db")
        group.start_soon(run, open_our_side, folder / "ours.db")
    return [outcomes[open_sdk_side], outcomes[open_our_side]]
