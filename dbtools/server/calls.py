"""Every call passes here: the limits admit it, and the audit log records it."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from dbtools import errors
from dbtools.cells import bytes_of
from dbtools.policy import Caller
from dbtools.records import AuditEntry, AuditLog, Outcome
from dbtools.results import Answer, Media
from dbtools.server.limiter import Limiter
from dbtools.service.snapshot import View
from dbtools.service.toolbox import Toolbox
from dbtools.telemetry import REQUEST, is_measured, new_request_id, note_call, request_id
from dbtools.tools.resources import Completed

OUTCOMES: Mapping[type[BaseException], Outcome] = {
    errors.Denied: Outcome.DENIED,
    errors.TooManyCalls: Outcome.DENIED,
    errors.TimedOut: Outcome.TIMEOUT,
}
UNKNOWN = "unknown"  #: in metrics: callers choose names freely
INTERNAL = "internal"  #: the code of unexpected errors

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class IncomingCall:
    """One call as it came."""

    caller: Caller
    tool: str  #: or the method, of requests that call none
    arguments: Mapping[str, object]
    protocol: str | None = None  #: version
    client: str | None = None  #: name
    id: str = field(default_factory=new_request_id)  #: of letters, digits and `-_.:`


class Calls:
    """Admits calls and records all of them in the audit log, including refused ones.

    *named*: the database gets the IDs of requests, so the audit log has them, too.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        limiter: Limiter,
        log: AuditLog | None,
        *,
        named: bool = False,
    ) -> None:
        self._toolbox = toolbox
        self._limiter = limiter
        self._log = log  #: None: no audit log
        self._named = named
        self._is_measured = is_measured()

    async def call(self, request: IncomingCall) -> Answer:
        """Return the answer of a tool, or raise what Toolbox.call does, or TooManyCalls."""
        make = partial(self._toolbox.call, request.caller, request.tool, request.arguments)
        return await self._made(request, make, _answered)

    async def read(self, request: IncomingCall, uri: str) -> Media:
        """Return what is at *uri*, or raise what Toolbox.read does, or TooManyCalls."""
        return await self._made(request, partial(self._toolbox.read, request.caller, uri), _read)

    async def complete(
        self, request: IncomingCall, template: str, name: str, value: str, given: Mapping[str, str]
    ) -> Completed:
        """Return what Toolbox.complete does, or raise TooManyCalls."""
        make = partial(self._toolbox.complete, request.caller, template, name, value, given)
        return await self._made(request, make, _completed)

    def refuse(self, request: IncomingCall, code: str) -> None:
        """Record a *request* that was malformed."""
        REQUEST.set(request.id)
        entry = self._entry(request)
        entry.outcome, entry.code = Outcome.ERROR, code
        if self._log is not None:
            self._log.record(entry)

    async def _made(
        self,
        request: IncomingCall,
        make: Callable[[View], Awaitable[T]],
        take_down: Callable[[AuditEntry, T], None],
    ) -> T:
        """Admit *request*, return what *make* returns for the view, and record the call with *take_down*."""
        REQUEST.set(request.id)
        entry, view, began = self._entry(request), None, time.perf_counter()
        try:
            view = await self._toolbox.view(request.caller.role)
            if self._log is not None:
                entry.vocabulary = view.setting.vocabulary
            await self._limiter.admit(request.caller, view.role.limits)
            try:
                found = await make(view)
            finally:
                self._limiter.leave(request.caller)
            take_down(entry, found)
        except BaseException as exc:
            entry.outcome, entry.code = _failure(exc)
            raise
        finally:
            entry.duration = time.perf_counter() - began
            if self._is_measured:
                _note(entry, view)
            if self._log is not None:
                self._log.record(entry)
        return found

    def _entry(self, request: IncomingCall) -> AuditEntry:
        return AuditEntry(
            time=datetime.now(UTC),
            identity=request.caller.identity,
            role=request.caller.role,
            tool=request.tool,
            arguments=request.arguments,
            protocol=request.protocol,
            client=request.client,
            request=request_id() if self._named else None,
        )


def _note(entry: AuditEntry, view: View | None) -> None:
    of = {
        "tool": entry.tool if view is not None and entry.tool in view.tools else UNKNOWN,
        "role": entry.role if view is not None else UNKNOWN,
        "outcome": str(entry.outcome),
    }
    note_call(of, entry.duration, entry.rows, entry.bytes)


def _answered(entry: AuditEntry, answer: Answer) -> None:
    entry.rows, entry.truncated = answer.rows, answer.truncated
    entry.bytes = bytes_of(answer.text) + sum([each.size for each in answer.media])


def _read(entry: AuditEntry, media: Media) -> None:
    entry.rows, entry.truncated, entry.bytes = 1, False, len(media.content)


def _completed(entry: AuditEntry, found: Completed) -> None:
    entry.rows, entry.truncated = len(found.values), found.more
    entry.bytes = sum(map(bytes_of, found.values))


def _failure(error: BaseException) -> tuple[Outcome, str]:
    """Return how a call ended that *error* has ended, and its code."""
    if not isinstance(error, Exception):
        return Outcome.CANCELLED, Outcome.CANCELLED
    code = error.code if isinstance(error, errors.DbtoolsError) else INTERNAL
    return OUTCOMES.get(type(error), Outcome.ERROR), code
