"""Limit and record calls. A call in; its answer out, within the limits and with a line in the audit log."""

import logging
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from math import ceil
from typing import Any, TypeVar
from urllib.parse import quote

import anyio

from dbtools import errors
from dbtools.answers.results import Answer, Media
from dbtools.policy.roles import Caller, Limits
from dbtools.records import AuditEntry, AuditLog, Outcome
from dbtools.server.messages import Json
from dbtools.service.snapshot import RoleSnapshot
from dbtools.service.toolbox import Toolbox
from dbtools.settings.sections import ServerSection
from dbtools.telemetry import REQUEST, is_measured, new_request_id, note_call, request_id
from dbtools.tools.queries.tool import RunQuery
from dbtools.tools.resources import Completed
from dbtools.values.cells import bytes_of

OUTCOMES: Mapping[type[BaseException], Outcome] = {
    errors.Denied: Outcome.DENIED,
    errors.TooManyCalls: Outcome.DENIED,
    errors.TimedOut: Outcome.TIMEOUT,
}
UNKNOWN = "unknown"  #: in metrics: callers choose names freely
DECLINED = "declined"  #: the confirmation of a change that a person has declined
INTERNAL = "internal"  #: the code for unexpected errors
MALFORMED = "malformed"  #: the code for calls with invalid parameters
SHARE = 4  #: a caller with an identity gets at most a quarter of all slots
MINUTE = 60.0  #: seconds
CALLS_PER_MINUTE = 600  #: default rate limit of a caller over HTTP
CallerKey = tuple[str, str]  #: role and identity
CONNECTIONS = 8  #: maximum number of connections to Redis
NAMESPACE = "dbtools"  #: prefix of the keys in Redis
STORAGE_TIMEOUT = 2.0  #: seconds to wait for Redis
STORAGE_FAILS = "[limits] storage: calls cannot be counted there"

T = TypeVar("T", Answer, Media, Completed)
logger = logging.getLogger("dbtools")


class Limiter:
    """Limits requests, streams and sessions as *section* says, and the calls of each role and identity.

    Calls are counted in Redis for several servers, or in memory for one of *share* workers.
    """

    def __init__(
        self, storage: str = "memory", section: ServerSection | None = None, *, share: int = 1
    ) -> None:
        self._per_minute = CALLS_PER_MINUTE if section else None  #: unless the limits of a role override it
        section = section or ServerSection()
        self.requests = Slots(section.max_requests)
        self.streams = Slots(section.max_streams)
        self.sessions = Slots(section.max_sessions)
        self._running: Counter[CallerKey] = Counter()
        in_memory = storage == "memory"
        self._share = share if in_memory else 1
        self._windows: MovingWindows | RedisWindows = MovingWindows() if in_memory else RedisWindows(storage)

    def begin(self, caller: Caller, limits: Limits) -> None:
        """Start a call of *caller*, or raise TooManyCalls if too many are running."""
        key, most = _key(caller), limits.concurrent_calls
        if most is not None and self._running[key] >= most:
            running = "1 call is" if most == 1 else f"{most} calls are"
            raise errors.TooManyCalls(
                f"The concurrency limit is reached: {running} running already.",
                hint=f"Retry when one of them has ended, within {limits.timeout:g} seconds.",
            )
        self._running[key] += 1

    def end(self, caller: Caller) -> None:
        """End a call of *caller*."""
        _decrement(self._running, _key(caller))

    async def count(self, caller: Caller, limits: Limits) -> None:
        """Apply the rate limit to a call of *caller*: raise TooManyCalls with the seconds to wait."""
        per_minute = limits.calls_per_minute or self._per_minute
        if per_minute is None:
            return
        most = max(1, per_minute // self._share)
        seconds = await self._windows.hit(_key(caller), most)
        if seconds is not None:
            raise errors.TooManyCalls(
                f"The rate limit is reached: {most} calls a minute.",
                hint=f"Retry in {max(1, ceil(seconds))} seconds.",
            )

    async def check(self) -> None:
        """Raise ConfigurationError if the storage is not available."""
        try:
            await self._windows.hit(("", ""), 1_000_000)
        except errors.Busy as exc:
            raise errors.ConfigurationError(f"{STORAGE_FAILS}: {_reason(exc.__cause__ or exc)}.") from exc

    def close(self) -> None:
        """Close the connections to Redis."""
        if isinstance(self._windows, RedisWindows):
            self._windows.pool.disconnect()


class Calls:
    """Applies the limits to calls and records every call in the audit log, including rejected ones.

    If *named*, the database gets request IDs, so the audit log includes them.
    """

    def __init__(self, toolbox: Toolbox, limiter: Limiter, log: AuditLog, *, named: bool = False) -> None:
        self._toolbox = toolbox
        self._limiter = limiter
        self._log = log
        self._named = named
        self._is_measured = is_measured()

    async def call(self, caller: Caller, tool: str, arguments: Json, client: str | None = None) -> Answer:
        """Return the answer of a tool; raise TooManyCalls or what `Toolbox.call` raises."""
        entry = self.entry(caller, tool, arguments, client=client)
        return await self.make(caller, entry, partial(self._toolbox.call, caller, tool, arguments))

    async def make(
        self, caller: Caller, entry: AuditEntry, call: Callable[[RoleSnapshot], Awaitable[T]]
    ) -> T:
        """Apply the limits, return what *call* returns for the view of *caller*, and record it as *entry*."""
        view, began = None, time.perf_counter()
        try:
            view = await self._toolbox.view(caller.role)
            context = view.context
            # Computed when the entry is written: with many tables it would delay other calls.
            entry.vocabulary = lambda: context.vocabulary
            self._limiter.begin(caller, view.role.limits)
            try:
                await self._limiter.count(caller, view.role.limits)
                found = await call(view)
            finally:
                self._limiter.end(caller)
            _measure(entry, found)
        except BaseException as exc:
            entry.outcome, entry.code = _failure(exc)
            if entry.changed is None:
                entry.dry_run = _asked_dry_run(entry, view)
            if isinstance(exc, errors.NotConfirmed) and exc.declined:
                entry.confirmed = DECLINED
            elif not isinstance(exc, errors.UnknownOutcome):
                entry.confirmed = None
            raise
        finally:
            entry.duration = time.perf_counter() - began
            if self._is_measured:
                _record_metrics(entry, view)
            self._log.record(entry)
        return found

    async def refuse(self, caller: Caller, entry: AuditEntry) -> None:
        """Count a malformed call and record it as *entry*; raise TooManyCalls as for any other call."""
        entry.outcome, entry.code = Outcome.ERROR, MALFORMED
        try:
            view = await self._toolbox.view(caller.role)
            await self._limiter.count(caller, view.role.limits)
        except BaseException as exc:
            entry.outcome, entry.code = _failure(exc)
            raise
        finally:
            self._log.record(entry)

    def entry(
        self, caller: Caller, tool: str, given: Json, version: str | None = None, client: str | None = None
    ) -> AuditEntry:
        """Return the audit entry of a call that starts; *tool* is the method if no tool is called."""
        if not REQUEST.get():
            REQUEST.set(new_request_id())
        return AuditEntry(
            time=datetime.now(UTC),
            identity=caller.identity,
            role=caller.role,
            tool=tool,
            arguments=given,
            protocol=version,
            client=client,
            request=request_id() if self._named else None,
        )


def _record_metrics(entry: AuditEntry, view: RoleSnapshot | None) -> None:
    of = {
        "tool": entry.tool if view is not None and entry.tool in view.tools else UNKNOWN,
        "role": entry.role if view is not None else UNKNOWN,
        "outcome": str(entry.outcome),
    }
    note_call(of, entry.duration, entry.rows, entry.bytes)


def _measure(entry: AuditEntry, found: Answer | Media | Completed) -> None:
    match found:
        case Answer():
            entry.rows, entry.truncated = found.rows, found.truncated
            entry.bytes = bytes_of(found.text) + sum([each.size for each in found.media])
            entry.confirmed = None
            if (changed := found.changed) is not None:
                entry.changed, entry.dry_run, entry.confirmed = changed, changed.dry_run, changed.confirmed
        case Media():
            entry.rows, entry.truncated, entry.bytes = 1, False, len(found.content)
        case Completed():
            entry.rows, entry.truncated = len(found.values), found.more
            entry.bytes = sum(map(bytes_of, found.values))


def _asked_dry_run(entry: AuditEntry, view: RoleSnapshot | None) -> bool | None:
    """Return whether a failed call was to be a dry run, None if it was to change nothing."""
    tool = view.tools.get(entry.tool) if view is not None else None
    given: object = entry.arguments
    if isinstance(tool, RunQuery):
        tool, given = tool.tools.get(str(entry.arguments.get("query"))), entry.arguments.get("arguments")
    if tool is None or tool.definition.annotations["readOnlyHint"]:
        return None
    return isinstance(given, Mapping) and str(given.get("dry_run")).lower() == "true"


def _failure(error: BaseException) -> tuple[Outcome, str]:
    if not isinstance(error, Exception):
        return Outcome.CANCELLED, Outcome.CANCELLED
    code = error.code if isinstance(error, errors.DbtoolsError) else INTERNAL
    return OUTCOMES.get(type(error), Outcome.ERROR), code


class Slots:
    """A concurrency limit. A caller with an identity gets at most a quarter of the slots."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._taken: Counter[str | None] = Counter()  #: by identity

    def acquire(self, identity: str | None) -> bool:
        """Acquire a slot; return whether one was free."""
        own = self._most if identity is None else max(1, self._most // SHARE)
        if self._taken.total() >= self._most or self._taken[identity] >= own:
            return False
        self._taken[identity] += 1
        return True

    def release(self, identity: str | None) -> None:
        """Release a slot."""
        _decrement(self._taken, identity)


def _key(caller: Caller) -> CallerKey:
    return caller.role, caller.identity or ""


def _decrement(counter: Counter[Any], key: object) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


class MovingWindows:
    """Counts calls of the last minute in memory, by key.

    The memory storage of the package `limits` uses a thread for each call, and slows down with their number.
    """

    def __init__(self) -> None:
        self._moments: dict[CallerKey, deque[float]] = {}
        self._swept = time.monotonic()

    async def hit(self, key: CallerKey, most: int) -> float | None:
        """Count a call of *key*, or return the seconds to wait if there were *most* already."""
        now = time.monotonic()
        if now - self._swept >= MINUTE:
            self._swept = now
            self._moments = {each: kept for each, kept in self._moments.items() if kept[-1] > now - MINUTE}
        moments = self._moments.setdefault(key, deque())
        while moments and moments[0] <= now - MINUTE:
            moments.popleft()
        if len(moments) >= most:
            return moments[len(moments) - most] + MINUTE - now
        moments.append(now)
        return None


class RedisWindows:
    """Counts calls of the last minute in Redis at *storage*, shared by several servers."""

    def __init__(self, storage: str) -> None:
        try:
            from coredis import BlockingConnectionPool
            from limits.aio.storage import RedisStorage
            from limits.aio.strategies import MovingWindowRateLimiter

            self.pool = BlockingConnectionPool.from_url(storage, max_connections=CONNECTIONS)
        except (ImportError, ValueError) as exc:
            # The message omits the address, which may contain a password.
            missing = "Install the extra `redis` of dbtools-mcp."
            hint = missing if isinstance(exc, ImportError) else "It must be redis://HOST:PORT."
            raise errors.ConfigurationError(f"{STORAGE_FAILS}.", hint=hint) from exc
        # The pool has the address; `limits` only requires that its URL has a port.
        options: dict[str, Any] = {"connection_pool": self.pool}
        self._limiter = MovingWindowRateLimiter(
            RedisStorage("async+redis://pool:0", wrap_exceptions=True, **options)
        )
        self._is_failing = False

    async def hit(self, key: CallerKey, most: int) -> float | None:
        """Do the same as `MovingWindows.hit`, or raise Busy."""
        from limits import RateLimitItemPerMinute
        from limits.errors import StorageError

        rate = RateLimitItemPerMinute(most, namespace=NAMESPACE)
        names = [quote(part, safe="") for part in key]
        try:
            with anyio.fail_after(STORAGE_TIMEOUT):
                hit = await self._limiter.hit(rate, *names)
                window = None if hit else await self._limiter.get_window_stats(rate, *names)
        except (StorageError, OSError, TimeoutError) as exc:
            if not self._is_failing:
                logger.error("calls cannot be counted: %s; rate-limited calls are rejected", _reason(exc))
            self._is_failing = True
            # Fail closed: a call that cannot be counted is rejected.
            raise errors.Busy("Calls cannot be counted at the moment.", hint="Retry in 5 seconds.") from exc
        self._is_failing = False
        return window and window.reset_time - time.time()


def _reason(error: BaseException) -> str:
    """Return the type of *error*: its text may contain the address of Redis."""
    cause = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
    return type(cause).__name__
