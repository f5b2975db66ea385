"""What is served: the current Snapshot, and the verbs on it: refresh, list, call and read."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio

from dbtools import errors
from dbtools.catalog import Catalog
from dbtools.column_types import quoted
from dbtools.errors import nearest
from dbtools.policy import Limits, Role, restrict
from dbtools.results import Answer, Media, ResultSet, Style
from dbtools.statement import Statement
from dbtools.tools import Setting, Tool, ToolDefinition, Toolset, define
from dbtools.tools.read_resource import bind_resource

NOTHING = ResultSet(outputs=(), rows=())


class Executes(Protocol):
    """What runs statements: `execution.Execution`, or a stand-in for it."""

    async def execute(self, statement: Statement, limits: Limits) -> ResultSet:
        """Return the rows of *statement*, or raise a CallError."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What one role sees of a snapshot."""

    role: Role
    catalog: Catalog
    tools: Toolset
    definitions: tuple[ToolDefinition, ...]


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One moment of the database: replaced whole, never changed."""

    catalog: Catalog
    views: Mapping[str, View]  #: by the name of the role


def take_snapshot(catalog: Catalog, roles: Sequence[Role], style: Style) -> Snapshot:
    """Return the snapshot in which each of *roles* sees its part of *catalog*."""
    return Snapshot(catalog=catalog, views={role.name: _view(catalog, role, style) for role in roles})


def _view(catalog: Catalog, role: Role, style: Style) -> View:
    seen = restrict(catalog, role)
    tools = define(Setting(catalog=seen, limits=role.limits, style=style))
    definitions = tuple(tool.definition for tool in tools.values())
    return View(role=role, catalog=seen, tools=tools, definitions=definitions)


class Toolbox:
    """The tools of a database, for each role."""

    def __init__(
        self,
        introspect: Callable[[], Awaitable[Catalog]],
        execution: Executes,
        *,
        roles: Sequence[Role],
        style: Style,
    ) -> None:
        self._introspect = introspect
        self._execution = execution
        self._roles = roles
        self._style = style
        self._refreshing = anyio.Lock()
        self._snapshot: Snapshot | None = None

    async def refresh(self) -> Snapshot:
        """Read the catalog again and replace the snapshot; where that fails the old one stays."""
        async with self._refreshing:
            return await self._refresh()

    async def _refresh(self) -> Snapshot:
        catalog = await self._introspect()
        self._snapshot = take_snapshot(catalog, self._roles, self._style)
        return self._snapshot

    async def snapshot(self) -> Snapshot:
        """Return the current snapshot, taking the first one if there is none yet."""
        if self._snapshot is None:
            async with self._refreshing:
                if self._snapshot is None:
                    return await self._refresh()
        return self._snapshot

    async def view(self, role: str) -> View:
        """Return what *role* sees now."""
        return (await self.snapshot()).views[role]

    async def list(self, role: str) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the tools that *role* may call, always in the same order."""
        return (await self.view(role)).definitions

    async def call(self, role: str, name: str, arguments: Mapping[str, object]) -> Answer:
        """Return the answer of the tool *name*, or raise UnknownTool or a CallError."""
        view = await self.view(role)
        call = _tool(view, name).bind(arguments)
        if call.statement is None:
            return call.render(NOTHING)
        found = await self._execution.execute(call.statement, view.role.limits)
        return call.render(found)

    async def read(self, role: str, uri: str) -> Media:
        """Return the row or the cell that *uri* names, or raise UnknownResource or a CallError."""
        view = await self.view(role)
        call = bind_resource(view.catalog, view.tools, uri)
        found = await self._execution.execute(call.statement, view.role.limits)
        return call.render(found)


def _tool(view: View, name: str) -> Tool:
    tool = view.tools.get(name)
    if tool is None:
        raise errors.UnknownTool(
            f"There is no tool {quoted(name)}.",
            hint=f"{nearest(name, view.tools)}The tools may have changed: list them again.",
        )
    return tool
