"""What goes around every call: it is admitted before, and written down after."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, TypeVar

from dbtools import errors
from dbtools.cells import bytes_of
from dbtools.policy import Caller
from dbtools.records import AuditEntry, CallLog, CallLogs, Outcome
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
UNKNOWN = "unknown"  #: what anybody may call whatever they like
INTERNAL = "internal"  #: the code of errors that are none of ours

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


class Size(NamedTuple):
    """How much a call has answered, as far as it is known."""

    rows: int | None = None
    truncated: bool | None = None
    bytes: int | None = None


NOTHING = Size()


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
        self._is_measured = is_measured()

    async def call(self, request: IncomingCall) -> Answer:
        """Return the answer of a tool, or raise what Toolbox.call does, or TooManyCalls."""
        make = partial(self._toolbox.call, request.caller, request.tool, request.arguments)
        return await self._made(request, make, _size_of_answer)

    async def read(self, request: IncomingCall, uri: str) -> Media:
        """Return what is at *uri*, or raise what Toolbox.read does, or TooManyCalls."""
        return await self._made(request, partial(self._toolbox.read, request.caller, uri), _size_of_media)

    async def complete(
        self, request: IncomingCall, template: str, name: str, value: str, given: Mapping[str, str]
    ) -> Completed:
        """Return what Toolbox.complete does, or raise TooManyCalls."""
        make = partial(self._toolbox.complete, request.caller, template, name, value, given)
        return await self._made(request, make, _size_of_values)

    def refuse(self, request: IncomingCall, code: str) -> None:
        """Write down a *request* that went no further."""
        REQUEST.set(request.id)
        self._write(request, datetime.now(UTC), 0.0, None, NOTHING, Outcome.ERROR, code)

    async def _made(
        self,
        request: IncomingCall,
        make: Callable[[View], Awaitable[T]],
        size_of: Callable[[T], Size],
    ) -> T:
        """Return what *request* has *make* of a view once it is admitted; write down what became of it."""
        REQUEST.set(request.id)
        came, began = datetime.now(UTC), time.perf_counter()
        view, size, outcome, code = None, NOTHING, Outcome.OK, None
        try:
            view = await self._toolbox.view(request.caller.role)
            await self._limiter.admit(request.caller, view.role.limits)
            try:
                found = await make(view)
            finally:
                self._limiter.leave(request.caller)
            size = size_of(found)
        except BaseException as exc:
            outcome, code = _failure(exc)
            raise
        finally:
            duration = time.perf_counter() - began
            if self._is_measured:
                self._note(request, duration, view, size, outcome)
            self._write(request, came, duration, view, size, outcome, code)
        return found

    def _note(
        self, request: IncomingCall, duration: float, view: View | None, size: Size, outcome: Outcome
    ) -> None:
        of = {
            "tool": request.tool if view is not None and request.tool in view.tools else UNKNOWN,
            "role": request.caller.role if view is not None else UNKNOWN,
            "outcome": str(outcome),
        }
        note_call(of, duration, size.rows, size.bytes)

    def _write(
        self,
        request: IncomingCall,
        came: datetime,
        duration: float,
        view: View | None,
        size: Size,
        outcome: Outcome,
        code: str | None,
    ) -> None:
        if self._log is None:
            return
        entry = AuditEntry(
            time=came,
            identity=request.caller.identity,
            role=request.caller.role,
            tool=request.tool,
            arguments=request.arguments,
            vocabulary=view.vocabulary if view is not None else frozenset(),
            rows=size.rows,
            bytes=size.bytes,
            truncated=size.truncated,
            duration=duration,
            outcome=outcome,
            code=code,
            protocol=request.protocol,
            client=request.client,
            request=request_id() if self._named else None,
        )
        self._log.record(entry)


def _size_of_answer(answer: Answer) -> Size:
    size = bytes_of(answer.text) + sum([each.size for each in answer.media])
    return Size(answer.rows, answer.truncated, size)


def _size_of_media(media: Media) -> Size:
    return Size(1, False, len(media.content))


def _size_of_values(found: Completed) -> Size:
    return Size(len(found.values), found.more, sum(map(bytes_of, found.values)))


def _failure(error: BaseException) -> tuple[Outcome, str]:
    """Return how a call ended that *error* has ended, and its code."""
    if not isinstance(error, Exception):
        return Outcome.CANCELLED, Outcome.CANCELLED
    code = error.code if isinstance(error, errors.DbtoolsError) else INTERNAL
    return OUTCOMES.get(type(error), Outcome.ERROR), code
