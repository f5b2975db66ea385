"""Refresh, list, call and read what is served. Requests in, answers from the current Snapshot out."""

import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import anyio

from dbtools import errors
from dbtools.answers.results import Answer, Media, ResultSet
from dbtools.configured.resolved import Resolved
from dbtools.policy.roles import Caller
from dbtools.schema.catalog import Catalog
from dbtools.service.execution import Execution
from dbtools.service.reloading import internal_error
from dbtools.service.snapshot import RoleSnapshot, Snapshot, changes_of, take_snapshot
from dbtools.service.transactions import Confirmation, Transactions
from dbtools.statements.select import Statement
from dbtools.tools import unknown_tool
from dbtools.tools.calls import AnswerT, Call, CatalogCall, ReadCall, SingleCall, SqlCall
from dbtools.tools.definition import ListChange, Tool, ToolDefinition
from dbtools.tools.resources import Completed, bind_completion, bind_resource
from dbtools.tools.writes.calls import ChangeCall

logger = logging.getLogger("dbtools")
EXPLANATION_TIMEOUT = 0.2  #: seconds to explain an empty answer
PAUSE = 0.1  #: seconds to wait before a call is repeated; longer each time while the schema keeps changing
COMPLETION = 1.0  #: seconds to look up keys, for a user who is typing
LARGE = 100_000  #: characters and bytes of a result that takes about a millisecond to render
MANY = 12_500  #: cells of a result that takes as long
NO_SNAPSHOT = Snapshot(catalog=Catalog(), views={})  #: before the first snapshot

#: Errors that do not depend on the schema.
FINAL = (errors.TimedOut, errors.Busy, errors.Denied, errors.DatabaseUnavailable)


CallT = TypeVar("CallT")
Resolve = Callable[[], Awaitable[Resolved]]  #: applies the settings to the database as it is now
#: Gets a snapshot, and the changes in it by role.
Listener = Callable[[Snapshot, Mapping[str, ListChange]], object]


class Toolbox:
    """The tools of a database, for each role."""

    def __init__(
        self,
        resolve: Resolve,
        execution: Execution,
        secret: str = "",
        vet: Callable[[Snapshot], None] | None = None,
    ) -> None:
        """*secret*: the key that seals confirmations. *vet* raises an error for what must not be served."""
        self._vet = vet or (lambda _: None)
        self._resolve = resolve
        self._execution = execution
        self._transactions = Transactions(execution, secret)
        self._refreshing = anyio.Lock()
        self._listeners: list[Listener] = []
        self.current: Snapshot | None = None  #: the snapshot, if there is one yet
        self.failure: errors.DbtoolsError | None = None  #: why the last refresh failed, if it did
        self._is_waiting = False  #: whether the first snapshot waits until the database can be reached

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call *listener* with each snapshot that replaces another one, and the changes in it.

        Return a function that unsubscribes it.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def refresh(self) -> Snapshot:
        """Read the catalog again and replace the snapshot; if that fails, the old one stays."""
        async with self._refreshing:
            return await self._refresh()

    async def _refresh(self) -> Snapshot:
        try:
            return await self._replace(self.current)
        except errors.DbtoolsError as exc:
            self.failure = exc
            self._is_waiting |= isinstance(exc, errors.DatabaseUnavailable) and exc.temporary
            raise
        except Exception as exc:
            # An edge: whatever is wrong, calls go on with the old snapshot.
            if self.current is None:
                raise
            before, self.failure = self.failure, errors.ConfigurationError(internal_error(exc))
            if str(before) != str(self.failure):
                logger.exception("internal error while changes are read")
            raise self.failure from exc

    async def _replace(self, before: Snapshot | None) -> Snapshot:
        """Replace the snapshot *before*; listeners hear of the first one if it comes late."""
        resolved = await self._resolve()
        if before is None and not self._is_waiting:
            first = take_snapshot(resolved)
            self._vet(first)
            self.current, self.failure = first, None
            return first
        if before is not None and resolved.unchecked:
            raise errors.DatabaseUnavailable(resolved.unchecked)
        # Meanwhile, calls use the old snapshot.
        after = await anyio.to_thread.run_sync(take_snapshot, resolved, before)
        self._vet(after)
        changes = await anyio.to_thread.run_sync(changes_of, before or NO_SNAPSHOT, after)
        self.current, self.failure, self._is_waiting = after, None, False
        for listener in tuple(self._listeners):
            listener(after, changes)
        return after

    async def snapshot(self) -> Snapshot:
        """Return the current snapshot, or take the first one.

        While the database cannot be reached, only `refresh` tries again: calls get the last error at once.
        """
        if self.current is None and not self._is_waiting:
            async with self._refreshing:
                if self.current is None:
                    return await self._initial_snapshot()
        return await self._initial_snapshot() if self.current is None else self.current

    async def _initial_snapshot(self) -> Snapshot:
        """Take the first snapshot, unless that has just failed."""
        if self._is_waiting and self.failure is not None:
            raise self.failure.with_traceback(None)
        return await self._refresh()

    async def view(self, role: str) -> RoleSnapshot:
        """Return what *role* sees now, or raise Denied if the role no longer exists."""
        return (self.current or await self.snapshot()).view(role)

    async def list(self, role: str) -> tuple[ToolDefinition, ...]:
        """Return the definitions of the tools that *role* may call, always in the same order."""
        return (await self.view(role)).definitions

    async def call(
        self,
        caller: Caller,
        name: str,
        arguments: Mapping[str, object],
        seen: RoleSnapshot | None = None,
        confirmation: Confirmation | None = None,
    ) -> Answer:
        """Return the answer of the tool *name*, or raise UnknownTool or a CallError.

        This is the way of every call. A view holds what was introspected, what its role sees of it, and the
        tools that are defined from that; here, arguments are bound, executed and rendered.

        *seen* is the view of the caller's role, if it has been looked up. *confirmation*: of an answer that
        is pending, if a person is asked.
        """

        def bind(view: RoleSnapshot) -> Call[Answer]:
            return _tool(view, name).bind(arguments)

        async def answer(call: Call[Answer], view: RoleSnapshot) -> Answer:
            match call:
                case CatalogCall() | ReadCall():
                    return await self._read(call, view, caller)
                case SqlCall():
                    rows = await self._execution.run_sql(call.statement, view, caller)
                    return await _render_rows(partial(call.answer, rows), rows)
                case ChangeCall():
                    # After the change, other rows may meet the conditions.
                    counts = await self._inquire(call.inquiries, view, caller, outdated=True)
                    counted = replace(call, counts=counts)
                    return await self._transactions.make(counted, name, arguments, view, caller, confirmation)
                case _:
                    raise TypeError(call)

        return await self._answer(caller, seen, bind, answer)

    async def read(self, caller: Caller, uri: str, seen: RoleSnapshot | None = None) -> Media:
        """Return the row or the cell that *uri* names, or raise UnknownResource or a CallError."""

        async def answer(call: CatalogCall[Media] | SingleCall[Media], view: RoleSnapshot) -> Media:
            return await self._read(call, view, caller)

        return await self._answer(caller, seen, lambda view: bind_resource(view.context, uri), answer)

    async def _answer(
        self,
        caller: Caller,
        seen: RoleSnapshot | None,
        bind: Callable[[RoleSnapshot], CallT],
        answer: Callable[[CallT, RoleSnapshot], Awaitable[AnswerT]],
    ) -> AnswerT:
        """Return the *answer* to the call that *bind* makes of *seen*, or of a later view.

        Any error may be due to a schema change: a tool or a column may be new, or may no longer exist.
        A change runs again only if it found that the schema had changed.
        """
        view = seen or await self.view(caller.role)
        began, pause = time.monotonic(), 0.0
        while True:
            is_change = False
            try:
                call = bind(view)
                is_change = isinstance(call, ChangeCall)
                return await answer(call, view)
            except FINAL:
                raise
            except errors.DbtoolsError as exc:
                if is_change and not isinstance(exc, errors.SchemaChanged):
                    raise
                later: Snapshot | None = None
                left = began + view.role.limits.timeout - time.monotonic()
                with anyio.move_on_after(left):
                    # A schema that changes all the time must not keep the server busy.
                    await anyio.sleep(pause)
                    later = await self._later_snapshot(view)
                if later is None:
                    raise
            view, pause = later.view(caller.role), min(pause + PAUSE, 1)

    async def _read(
        self,
        call: CatalogCall[AnswerT] | ReadCall[AnswerT],
        view: RoleSnapshot,
        caller: Caller,
        timeout: float = math.inf,
    ) -> AnswerT:
        """Return the answer of *call*, which changes nothing."""
        match call:
            case CatalogCall():
                further = await self._inquire(call.inquiries, view, caller, outdated=True)
                return call.answer(further)
            case ReadCall():
                rows = await self._execution.execute(call.statement, view, caller, timeout)
                further = await self._inquire(call.inquire(rows), view, caller, outdated=False)
                return await _render_rows(partial(call.render, rows, further), rows)

    async def _later_snapshot(self, seen: RoleSnapshot) -> Snapshot | None:
        """Return the snapshot of a schema that has changed since *seen*, or None if it has not."""
        if self._shows(seen) and await self._execution.is_current(seen.stamp):
            return None
        try:
            async with self._refreshing:
                return await self._refresh() if self._shows(seen) else self.current
        except errors.DbtoolsError:
            # The Watch reports the error.
            return None

    def _shows(self, view: RoleSnapshot) -> bool:
        return self.current is not None and self.current.views.get(view.role.name) is view

    async def _inquire(
        self, inquiries: Sequence[Statement], view: RoleSnapshot, caller: Caller, *, outdated: bool
    ) -> Sequence[ResultSet]:
        """Return the results of *inquiries* that arrive soon, since the call already has its answer.

        If that may be *outdated*, because no statement has checked the schema, raise SchemaChanged.
        """
        found: list[ResultSet] = []
        ends = time.monotonic() + EXPLANATION_TIMEOUT
        for statement in inquiries:
            left = max(ends - time.monotonic(), 0.01)
            try:
                found.append(await self._execution.execute(statement, view, caller, left))
            except errors.CallError as exc:
                if outdated and isinstance(exc, errors.SchemaChanged):
                    raise
                break
        return found

    async def complete(
        self,
        caller: Caller,
        template: str,
        name: str,
        value: str,
        given: Mapping[str, str],
        seen: RoleSnapshot | None = None,
    ) -> Completed:
        """Return values that begin with *value* for the variable *name* of the URIs of *template*.

        *given* has the values of the variables before it. Return none if the database does not answer soon.
        """

        def bind(view: RoleSnapshot) -> CatalogCall[Completed] | SingleCall[Completed]:
            return bind_completion(view.context, template, name, value, given)

        async def answer(
            call: CatalogCall[Completed] | SingleCall[Completed], view: RoleSnapshot
        ) -> Completed:
            return await self._read(call, view, caller, COMPLETION)

        try:
            return await self._answer(caller, seen, bind, answer)
        except errors.UnknownArgument:
            raise
        except errors.CallError:
            return Completed(values=())


def _tool(view: RoleSnapshot, name: str) -> Tool:
    tool = view.tools.get(name)
    if tool is None:
        raise unknown_tool(name, view.tools, [each.name for each in view.definitions])
    return tool


async def _render_rows(render: Callable[[], AnswerT], rows: ResultSet) -> AnswerT:
    """Return what *render* makes of *rows*: of many in a thread, so that other calls need not wait."""
    if len(rows.rows) * len(rows.outputs) > MANY or rows.is_longer(LARGE):
        return await anyio.to_thread.run_sync(render)
    return render()
