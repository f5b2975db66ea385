"""What goes around every call: it is admitted before, and written down after."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from dbtools import errors
from dbtools.cells import bytes_of
from dbtools.policy import Caller
from dbtools.records import AuditEntry, CallLog, CallLogs, Outcome
from dbtools.results import Answer, Media
from dbtools.server.limiter import Limiter
from dbtools.service.snapshot import View
from dbtools.service.toolbox import Toolbox
from dbtools.telemetry import REQUEST, new_request_id, note_call, request_id
from dbtools.tools.resources import Completed

OUTCOMES: Mapping[type[BaseException], Outcome] = {
    errors.Denied: Outcome.DENIED,
    errors.TooManyCalls: Outcome.DENIED,
    errors.TimedOut: Outcome.TIMEOUT,
}
UNKNOWN = "unknown"  #: what anybody may call whatever they like
INTERNAL = "internal"  #: the code of errors that are none of ours

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class IncomingCall:
    """One call as it came."""

    caller: Caller
    tool: str  #: or the method, of requests that call none
    arguments: Mapping[str, object]
    protocol: str | None = None  #: version
    client: str | None = None  #: name
    id: str = field(default_factory=new_request_id)  #: of letters, digits and `-_.:`


@dataclass(kw_only=True)
class Tally:
    """What became of a call, as far as it is known."""

    came: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.perf_counter)
    view: View | None = None  #: of the caller's role
    rows: int | None = None
    bytes: int | None = None
    truncated: bool | None = None
    outcome: Outcome = Outcome.OK
    code: str | None = None

    def answered(self, answer: Answer) -> None:
        """Take down the *answer*."""
        self.rows, self.truncated = answer.rows, answer.truncated
        self.bytes = bytes_of(answer.text) + sum(each.size for each in answer.media)

    def read(self, media: Media) -> None:
        """Take down what was read of one row."""
        self.rows, self.truncated, self.bytes = 1, False, len(media.content)

    def completed(self, found: Completed) -> None:
        """Take down how many values were offered."""
        self.rows, self.truncated = len(found.values), found.more
        self.bytes = sum(map(bytes_of, found.values))

    def failed(self, error: BaseException) -> None:
        """Take down the *error*."""
        if not isinstance(error, Exception):
            self.outcome = self.code = Outcome.CANCELLED
            return
        self.outcome = OUTCOMES.get(type(error), Outcome.ERROR)
        self.code = error.code if isinstance(error, errors.DbtoolsError) else INTERNAL


class Calls:
    """Admits calls, and writes down what became of them, refused ones too.

    Where the database is told the ids of requests, which are *named* then, they are written down as well.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        limiter: Limiter,
        log: CallLog | CallLogs | None,
        *,
        named: bool = False,
    ) -> None:
        self._toolbox = toolbox
        self._limiter = limiter
        self._log = log  #: None: nothing is written down
        self._named = named

    async def call(self, request: IncomingCall) -> Answer:
        """Return the answer of a tool, or raise what Toolbox.call does, or TooManyCalls."""
        make = partial(self._toolbox.call, request.caller, request.tool, request.arguments)
        return await self._made(request, make, Tally.answered)

    async def read(self, request: IncomingCall, uri: str) -> Media:
        """Return what is at *uri*, or raise what Toolbox.read does, or TooManyCalls."""
        return await self._made(request, partial(self._toolbox.read, request.caller, uri), Tally.read)

    async def complete(
        self, request: IncomingCall, template: str, name: str, value: str, given: Mapping[str, str]
    ) -> Completed:
        """Return what Toolbox.complete does, or raise TooManyCalls."""
        make = partial(self._toolbox.complete, request.caller, template, name, value, given)
        return await self._made(request, make, Tally.completed)

    def refuse(self, request: IncomingCall, code: str) -> None:
        """Write down a *request* that went no further."""
        REQUEST.set(request.id)
        self._write(request, Tally(outcome=Outcome.ERROR, code=code), 0.0)

    async def _made(
        self,
        request: IncomingCall,
        make: Callable[[View], Awaitable[T]],
        take_down: Callable[[Tally, T], None],
    ) -> T:
        """Return what *request* has *make* of a view once it is admitted; *take_down* what became of it."""
        REQUEST.set(request.id)
        tally = Tally()
        try:
            tally.view = await self._toolbox.view(request.caller.role)
            found = await self._admitted(request.caller, tally.view, make)
            take_down(tally, found)
        except BaseException as exc:
            tally.failed(exc)
            raise
        finally:
            self._tell(request, tally)
        return found

    async def _admitted(self, caller: Caller, view: View, make: Callable[[View], Awaitable[T]]) -> T:
        await self._limiter.admit(caller, view.role.limits)
        try:
            return await make(view)
        finally:
            self._limiter.leave(caller)

    def _tell(self, request: IncomingCall, tally: Tally) -> None:
        view, duration = tally.view, time.perf_counter() - tally.began
        of = {
            "tool": request.tool if view is not None and request.tool in view.tools else UNKNOWN,
            "role": request.caller.role if view is not None else UNKNOWN,
            "outcome": str(tally.outcome),
        }
        note_call(of, duration, tally.rows, tally.bytes)
        self._write(request, tally, duration)

    def _write(self, request: IncomingCall, tally: Tally, duration: float) -> None:
        if self._log is None:
            return
        entry = AuditEntry(
            time=tally.came,
            identity=request.caller.identity,
            role=request.caller.role,
            tool=request.tool,
            arguments=request.arguments,
            vocabulary=tally.view.setting.vocabulary if tally.view is not None else frozenset(),
            rows=tally.rows,
            bytes=tally.bytes,
            truncated=tally.truncated,
            duration=duration,
            outcome=tally.outcome,
            code=tally.code,
            protocol=request.protocol,
            client=request.client,
            request=request_id() if self._named else None,
        )
        self._log.record(entry)
