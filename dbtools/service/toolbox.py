"""What is served: the current Snapshot, and the verbs on it: refresh, list, call and read."""

import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

import anyio

from dbtools import errors
from dbtools.policy import Caller
from dbtools.results import Answer, Media, ResultSet
from dbtools.service.resolve import Resolved
from dbtools.service.snapshot import Snapshot, View, changes_of, take_snapshot
from dbtools.statement import Statement
from dbtools.tools import unknown_tool
from dbtools.tools.definition import Change, Tool, ToolDefinition
from dbtools.tools.resources import Completed, bind_completion, bind_resource

PATIENCE = 0.2  #: seconds in which an empty answer may be explained
PAUSE = 0.1  #: seconds, longer each time, before a call that meets one change after the other is made again
COMPLETION = 1.0  #: seconds to look up keys, for a user who is typing
LARGE = 100_000  #: characters and bytes of a result, which take a millisecond or so to be rendered
MANY = 12_500  #: cells of a result, which take as long
NOTHING = ResultSet(outputs=(), rows=())

T = TypeVar("T")

#: What is the same on any schema.
FINAL = (errors.TimedOut, errors.Busy, errors.Denied, errors.DatabaseUnavailable)


class Executes(Protocol):
    """What runs statements: `execution.Execution`, or a stand-in for it."""

    async def execute(self, statement: Statement, view: View, caller: Caller, timeout: float) -> ResultSet:
        """Return the rows of *statement* of the tools of *view*, or raise a CallError.

        It is SchemaChanged where the view is out of date. *timeout*: seconds, where the others are too many.
        """

    async def confirm(self, stamp: str) -> None:
        """Raise SchemaChanged where each call looks whether the schema is as of *stamp*, and it is not."""

    async def is_current(self, stamp: str) -> bool:
        """Return whether the schema is as of *stamp*."""


Resolve = Callable[[], Awaitable[Resolved]]  #: what settings mean to the database now
Listener = Callable[[Snapshot, Mapping[str, Change]], object]  #: of a snapshot, and by role what is new in it


class Toolbox:
    """The tools of a database, for each role."""

    def __init__(self, resolve: Resolve, execution: Executes) -> None:
        self._resolve = resolve
        self._execution = execution
        self._refreshing = anyio.Lock()
        self._listeners: list[Listener] = []
        self.current: Snapshot | None = None  #: the snapshot, if there is one yet

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Have *listener* called with each snapshot that replaces another one, and the changes in it.

        Return what ends that.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def refresh(self) -> Snapshot:
        """Read the catalog again and replace the snapshot; where that fails the old one stays."""
        async with self._refreshing:
            return await self._refresh()

    async def _refresh(self) -> Snapshot:
        before, resolved = self.current, await self._resolve()
        if before is None:
            self.current = take_snapshot(resolved)
            return self.current
        if resolved.unchecked:
            raise errors.DatabaseUnavailable(resolved.unchecked)
        # Calls go on meanwhile, on the old one.
        after = await anyio.to_thread.run_sync(take_snapshot, resolved, before)
        changes = await anyio.to_thread.run_sync(changes_of, before, after)
        self.current = after
        for listener in tuple(self._listeners):
            listener(after, changes)
        return after

    async def snapshot(self) -> Snapshot:
        """Return the current snapshot, or take the first one."""
        if self.current is None:
            async with self._refreshing:
                if self.current is None:
                    return await self._refresh()
        return self.current

    async def view(self, role: str) -> View:
        """Return what *role* sees now, or raise Denied where there is no such role any more."""
        return (self.current or await self.snapshot()).view(role)

    async def list(self, role: str) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the tools that *role* may call, always in the same order."""
        return (await self.view(role)).definitions

    async def call(
        self, caller: Caller, name: str, arguments: Mapping[str, object], seen: View | None = None
    ) -> Answer:
        """Return the answer of the tool *name*, or raise UnknownTool or a CallError.

        Here and below *seen* is what the caller's role sees, where that has been looked up.
        """

        async def answer(view: View) -> Answer:
            call = _tool(view, name).bind(arguments)
            found = await self._execute(call.statement, view, caller)
            inquiries = call.inquire(found)
            stored = await self._inquire(inquiries, view, caller) if inquiries else ()
            if _is_large(found):
                return await anyio.to_thread.run_sync(call.render, found, stored)
            return call.render(found, stored)

        return await self._answered(caller, answer, seen)

    async def _answered(self, caller: Caller, answer: Callable[[View], Awaitable[T]], seen: View | None) -> T:
        """Return what *answer* makes of *seen*, or of a later view if the schema has changed.

        Any error may be due to that: a tool or a column may be new, or gone.
        """
        view = seen or await self.view(caller.role)
        began, pause = time.monotonic(), 0.0
        while True:
            try:
                return await answer(view)
            except FINAL:
                raise
            except errors.DbtoolsError:
                later: Snapshot | None = None
                left = began + view.role.limits.timeout - time.monotonic()
                with anyio.move_on_after(left):
                    # A schema that changes all the time must not keep the server busy.
                    await anyio.sleep(pause)
                    later = await self._later(view)
                if later is None:
                    raise
            view, pause = later.view(caller.role), min(pause + PAUSE, 1)

    async def _later(self, seen: View) -> Snapshot | None:
        """Return the snapshot of a schema that has changed since *seen*, or None if it has not."""
        if self._shows(seen) and await self._execution.is_current(seen.stamp):
            return None
        try:
            async with self._refreshing:
                return await self._refresh() if self._shows(seen) else self.current
        except errors.DbtoolsError:
            # The Watch reports why.
            return None

    def _shows(self, view: View) -> bool:
        return self.current is not None and self.current.views.get(view.role.name) is view

    async def _execute(
        self, statement: Statement | None, view: View, caller: Caller, timeout: float = math.inf
    ) -> ResultSet:
        """Return the rows of *statement*, or none if the catalog has the answer and is up to date."""
        if statement is not None:
            return await self._execution.execute(statement, view, caller, timeout)
        await self._execution.confirm(view.stamp)
        return NOTHING

    async def _inquire(
        self, inquiries: Sequence[Statement], view: View, caller: Caller
    ) -> Sequence[ResultSet]:
        """Return the results of *inquiries* that arrive soon: the call has its answer already."""
        found: list[ResultSet] = []
        ends = time.monotonic() + PATIENCE
        for statement in inquiries:
            left = max(ends - time.monotonic(), 0.01)
            try:
                found.append(await self._execute(statement, view, caller, left))
            except errors.CallError:
                break
        return found

    async def read(self, caller: Caller, uri: str, seen: View | None = None) -> Media:
        """Return the row or the cell that *uri* names, or raise UnknownResource or a CallError."""

        async def answer(view: View) -> Media:
            call = bind_resource(view.setting, uri)
            found = await self._execute(call.statement, view, caller)
            if _is_large(found):
                return await anyio.to_thread.run_sync(call.render, found)
            return call.render(found)

        return await self._answered(caller, answer, seen)

    async def complete(
        self,
        caller: Caller,
        template: str,
        name: str,
        value: str,
        given: Mapping[str, str],
        seen: View | None = None,
    ) -> Completed:
        """Return values that begin with *value* for the variable *name* of the addresses of *template*.

        *given* are the variables before it. Return none if the database does not answer soon.
        """

        async def answer(view: View) -> Completed:
            call = bind_completion(view.setting, template, name, value, given)
            if call.statement is None:
                return call.render(NOTHING)
            return call.render(await self._execute(call.statement, view, caller, COMPLETION))

        try:
            return await self._answered(caller, answer, seen)
        except errors.UnknownArgument:
            raise
        except errors.CallError:
            return Completed(values=())


def _is_large(found: ResultSet) -> bool:
    """Return whether to render *found* on a thread, so that other callers need not wait."""
    return len(found.rows) * len(found.outputs) > MANY or found.is_longer(LARGE)


def _tool(view: View, name: str) -> Tool:
    tool = view.tools.get(name)
    if tool is None:
        raise unknown_tool(name, view.tools)
    return tool
