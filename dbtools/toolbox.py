"""What is served: the current Snapshot, and the verbs on it: refresh, list, call and read."""

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Protocol, TypeVar

import anyio

from dbtools import errors
from dbtools.catalog import Catalog
from dbtools.column_types import quoted
from dbtools.errors import nearest
from dbtools.policy import Caller, Limits, Role, restrict
from dbtools.queries.permitted import Permitted
from dbtools.results import Answer, Media, ResultSet, Style
from dbtools.statement import Statement
from dbtools.tools import (
    Change,
    Chosen,
    Listing,
    Setting,
    Surface,
    Tool,
    ToolDefinition,
    Toolset,
    change_of,
    choose,
    define,
    listed,
    tool_content,
)
from dbtools.tools.completion import Completed, bind_completion
from dbtools.tools.definition import tokens_of
from dbtools.tools.read_resource import bind_resource
from dbtools.tools.schema_resources import Resource, define_resources, updated_resources
from dbtools.tools.surface import pinned_tables

PATIENCE = 0.2  #: seconds in which an empty answer may be explained
COMPLETION = 1.0  #: seconds in which keys may be looked up while somebody types
NOTHING = ResultSet(outputs=(), rows=())
DATABASE = "database"  #: the name of the stamp of the schema

T = TypeVar("T")

#: What is the same on any schema.
FINAL = (errors.TimedOut, errors.Busy, errors.Denied, errors.DatabaseUnavailable)


class Executes(Protocol):
    """What runs statements: `execution.Execution`, or a stand-in for it."""

    async def execute(self, statement: Statement, limits: Limits) -> ResultSet:
        """Return the rows of *statement*, or raise a CallError: SchemaChanged where it is out of date."""

    async def confirm(self, stamp: str) -> None:
        """Raise SchemaChanged where each call looks whether the schema is as of *stamp*, and it is not."""

    async def is_current(self, stamp: str) -> bool:
        """Return whether the schema is as of *stamp*."""


@dataclass(frozen=True, kw_only=True)
class View:
    """What one role sees of a snapshot."""

    role: Role
    setting: Setting
    chosen: Chosen
    warnings: tuple[str, ...]  #: what the operator should know, and no caller
    tools: Toolset = field(repr=False)  #: all that can be called
    definitions: tuple[ToolDefinition, ...] = field(repr=False)  #: of those that are listed
    resources: tuple[Resource, ...] = field(default=(), repr=False)  #: that are listed

    @property
    def cost_of_tables(self) -> int:
        """How many tokens the definitions of tables take that are listed."""
        queries = {query.name for query in self.setting.queries}
        shown = (each for each in self.definitions if each.name not in queries)
        return sum(tokens_of(tool_content(each)) for each in shown)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The names of the tables, columns, relations, queries and their arguments that the role sees."""
        names: set[str] = set()
        for query in self.setting.queries:
            names.update((query.name, *(parameter.name for parameter in query.parameters)))
        for table in self.catalog.tables:
            names.update((table.schema, table.name, *table.column_by_name))
            names.update(self.setting.paths.relations(table))
        return frozenset(names)

    @property
    def surface(self) -> Surface:
        """How tables are listed."""
        return self.chosen.tables

    @property
    def catalog(self) -> Catalog:
        """The part of the catalog that the role sees."""
        return self.setting.catalog


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One moment of the database: replaced whole, never changed."""

    catalog: Catalog = field(repr=False)
    views: Mapping[str, View]  #: by the name of the role
    stamps: Mapping[str, Hashable] = field(default_factory=dict)  #: of all that it was made from, by name

    def view(self, role: str) -> View:
        """Return what *role* sees, or raise Denied where there is no such role any more."""
        view = self.views.get(role)
        if view is None:
            raise errors.Denied
        return view


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How every role is served: how answers are written, and how tools are listed."""

    style: Style = field(default_factory=Style)
    listing: Listing = field(default_factory=Listing)


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The roles as they can be served, and what is wrong with them."""

    roles: Sequence[Role]
    catalogs: Mapping[str, Catalog] = field(default_factory=dict)  #: of roles whose login sees another one
    queries: tuple[Permitted, ...] = ()  #: that roles may be granted
    problems: tuple[str, ...] = ()
    manner: Manner | None = None  #: None: that of the toolbox
    stamps: Mapping[str, Hashable] = field(default_factory=dict)  #: of what they were made from


Settle = Callable[[Catalog], Awaitable[Settled]]  #: of a catalog


def take_snapshot(
    catalog: Catalog, settled: Settled, manner: Manner, before: Snapshot | None = None
) -> Snapshot:
    """Return the snapshot in which each role sees its part of *catalog*.

    A role that was in the snapshot *before* keeps its surface: clients would lose all tools at once.
    """
    manner = settled.manner or manner
    surfaces = {name: view.chosen for name, view in before.views.items()} if before else {}
    warnings = (*catalog.warnings, *settled.problems)
    views: dict[str, View] = {}
    for role in settled.roles:
        seen = restrict(settled.catalogs.get(role.name, catalog), role)
        queries = tuple(each for each in settled.queries if role.may_call(each.name))
        setting = Setting(catalog=seen, limits=role.limits, style=manner.style, queries=queries)
        views[role.name] = _view(setting, role, manner, surfaces.get(role.name), warnings)
    return Snapshot(catalog=catalog, views=views, stamps={DATABASE: catalog.stamp, **settled.stamps})


def changes_of(before: Snapshot, after: Snapshot) -> Mapping[str, Change]:
    """Return how the lists of *after* differ from those *before*, by role: of those where any does."""
    changes = {
        name: replace(
            change_of(before.views[name].definitions, view.definitions),
            resources=before.views[name].resources != view.resources,
            updated=tuple(updated_resources(before.views[name].setting, view.setting)),
        )
        for name, view in after.views.items()
        if name in before.views
    }
    return {name: change for name, change in changes.items() if change}


def _view(
    setting: Setting, role: Role, manner: Manner, chosen: Chosen | None, warnings: tuple[str, ...]
) -> View:
    tools = define(setting)
    chosen = chosen or choose(manner.listing, tools)
    shown = listed(chosen, tools, pinned_tables(manner.listing, setting.catalog))
    definitions = tuple(tool.definition for tool in shown)
    return View(
        role=role,
        setting=setting,
        chosen=chosen,
        warnings=warnings,
        tools=tools,
        definitions=definitions,
        resources=tuple(define_resources(setting)),
    )


Listener = Callable[[Snapshot, Mapping[str, Change]], object]  #: of a snapshot, and by role what is new in it


class Toolbox:
    """The tools of a database, for each role."""

    def __init__(
        self,
        introspect: Callable[[], Awaitable[Catalog]],
        execution: Executes,
        *,
        roles: Settle | Sequence[Role],
        manner: Manner,
        before: Snapshot | None = None,
    ) -> None:
        self._introspect = introspect
        self._execution = execution
        self._roles = roles
        self._manner = manner
        self._refreshing = anyio.Lock()
        self._listeners: list[Listener] = []
        self._snapshot: Snapshot | None = None
        self._before = before  #: whose surfaces the first one keeps

    def subscribe(self, listener: Listener) -> None:
        """Have *listener* called with each snapshot that replaces another one, and the changes in it."""
        self._listeners.append(listener)

    async def refresh(self) -> Snapshot:
        """Read the catalog again and replace the snapshot; where that fails the old one stays."""
        async with self._refreshing:
            return await self._refresh()

    async def _refresh(self) -> Snapshot:
        before = self._snapshot
        catalog = await self._introspect()
        roles = self._roles
        settled = await roles(catalog) if callable(roles) else Settled(roles=roles)
        make = partial(take_snapshot, catalog, settled, self._manner, before or self._before)
        if before is None:
            self._snapshot = make()
            return self._snapshot
        # Calls go on meanwhile, on the old one.
        after = await anyio.to_thread.run_sync(make)
        changes = await anyio.to_thread.run_sync(changes_of, before, after)
        self._snapshot = after
        for listener in self._listeners:
            listener(after, changes)
        return after

    async def snapshot(self) -> Snapshot:
        """Return the current snapshot, taking the first one if there is none yet."""
        if self._snapshot is None:
            async with self._refreshing:
                if self._snapshot is None:
                    return await self._refresh()
        return self._snapshot

    async def view(self, role: str) -> View:
        """Return what *role* sees now, or raise Denied where there is no such role any more."""
        return (await self.snapshot()).view(role)

    async def list(self, role: str) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the tools that *role* may call, always in the same order."""
        return (await self.view(role)).definitions

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, object]) -> Answer:
        """Return the answer of the tool *name*, or raise UnknownTool or a CallError."""

        async def answer(snapshot: Snapshot) -> Answer:
            view = snapshot.view(caller.role)
            call = _tool(view, name).bind(arguments)
            if call.statement is None:
                await self._execution.confirm(snapshot.catalog.stamp)
                return call.render(NOTHING)
            found = await self._execute(call.statement, snapshot, caller)
            return call.render(found, await self._inquire(call.inquire(found), snapshot, caller))

        return await self._answered(caller, answer)

    async def _answered(self, caller: Caller, answer: Callable[[Snapshot], Awaitable[T]]) -> T:
        """Return what *answer* makes of the snapshot, and of the next where the schema has changed meanwhile.

        Whatever goes wrong may be so because of that: a tool or a column that is new, or gone.
        """
        snapshot = await self.snapshot()
        ends = anyio.current_time() + _patience(snapshot, caller)
        while True:
            try:
                return await answer(snapshot)
            except FINAL:
                raise
            except errors.DbtoolsError:
                later = await self._later(snapshot) if anyio.current_time() < ends else None
                if later is None:
                    raise
                snapshot = later

    async def _later(self, seen: Snapshot) -> Snapshot | None:
        """Return the snapshot of a schema that has changed since *seen*, None where it has not."""
        if self._snapshot is seen and await self._execution.is_current(seen.catalog.stamp):
            return None
        try:
            async with self._refreshing:
                return await self._refresh() if self._snapshot is seen else self._snapshot
        except errors.DbtoolsError:
            # Whoever watches tells why.
            return None

    async def _execute(
        self, statement: Statement, snapshot: Snapshot, caller: Caller, *, timeout: float | None = None
    ) -> ResultSet:
        """Run *statement* under the limits of the caller's role, of which *timeout* may be lower."""
        role = snapshot.view(caller.role).role
        statement = replace(
            statement, claims=caller.claims, session=role.session, stamp=snapshot.catalog.stamp
        )
        limits = role.limits
        lowest = min(each for each in (timeout, statement.timeout, limits.timeout) if each is not None)
        if lowest != limits.timeout:
            limits = replace(limits, timeout=lowest)
        return await self._execution.execute(statement, limits)

    async def _inquire(
        self, inquiries: Sequence[Statement], snapshot: Snapshot, caller: Caller
    ) -> Sequence[ResultSet]:
        """Return the results of *inquiries*, as many as are there soon: the call has its answer already."""
        found: list[ResultSet] = []
        ends = anyio.current_time() + PATIENCE
        for statement in inquiries:
            left = max(ends - anyio.current_time(), 0.01)
            try:
                found.append(await self._execute(statement, snapshot, caller, timeout=left))
            except errors.CallError:
                break
        return found

    async def read(self, caller: Caller, uri: str) -> Media:
        """Return the row or the cell that *uri* names, or raise UnknownResource or a CallError."""

        async def answer(snapshot: Snapshot) -> Media:
            call = bind_resource(snapshot.view(caller.role).setting, uri)
            if call.statement is None:
                await self._execution.confirm(snapshot.catalog.stamp)
                return call.render(NOTHING)
            return call.render(await self._execute(call.statement, snapshot, caller))

        return await self._answered(caller, answer)

    async def complete(
        self,
        caller: Caller,
        template: str,
        name: str,
        value: str,
        given: Mapping[str, str],
    ) -> Completed:
        """Return values that begin with *value* for the variable *name* of the addresses of *template*.

        *given* are the variables before it; where the database does not answer soon there are none.
        """

        async def answer(snapshot: Snapshot) -> Completed:
            call = bind_completion(snapshot.view(caller.role).setting, template, name, value, given)
            if call.statement is None:
                return call.render(NOTHING)
            return call.render(await self._execute(call.statement, snapshot, caller, timeout=COMPLETION))

        try:
            return await self._answered(caller, answer)
        except errors.UnknownArgument:
            raise
        except errors.CallError:
            return Completed(values=())


def _patience(snapshot: Snapshot, caller: Caller) -> float:
    """Return for how many seconds a call follows a schema that keeps changing."""
    view = snapshot.views.get(caller.role)
    return view.role.limits.timeout if view is not None else 0.0


def _tool(view: View, name: str) -> Tool:
    tool = view.tools.get(name)
    if tool is None:
        raise errors.UnknownTool(
            f"There is no tool {quoted(name)}.",
            hint=f"{nearest(name, view.tools)}The tools may have changed: list them again.",
        )
    return tool
