"""How much is served at once and within a minute, in total and to one caller."""

import logging
import time
from collections import deque
from collections.abc import Hashable
from math import ceil
from time import monotonic
from typing import Any
from urllib.parse import quote

import anyio

from dbtools import errors
from dbtools.policy import Caller, Limits
from dbtools.settings.sections import ServerSection

SHARE = 4  #: a caller with an identity gets at most a quarter of all slots
MINUTE = 60.0  #: seconds
CALLS_PER_MINUTE = 600  #: of one caller over HTTP, if the configuration does not say
Key = tuple[str, str]  #: role and identity
CONNECTIONS = 8  #: to Redis
NAMESPACE = "dbtools"  #: of our keys in a Redis that others use as well
STORAGE_TIMEOUT = 2.0  #: seconds that Redis has to answer
UNCOUNTED = "[limits] storage: calls cannot be counted there"
logger = logging.getLogger("dbtools")


class Slots:
    """A number of slots, of which one caller gets only some."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most  #: None: any number
        self._taken = 0
        self._by_caller: dict[Hashable, int] = {}

    def acquire(self, caller: Hashable, own: int | None = None) -> bool:
        """Acquire a slot for *caller*, who gets at most *own*; return whether there was one."""
        mine = self._by_caller.get(caller, 0)
        if (self.most is not None and self._taken >= self.most) or (own is not None and mine >= own):
            return False
        self._taken += 1
        self._by_caller[caller] = mine + 1
        return True

    def acquire_share(self, identity: str | None) -> bool:
        """Acquire a slot; a caller with an *identity* gets a quarter of them, so that others have some."""
        own = None if identity is None or self.most is None else max(1, self.most // SHARE)
        return self.acquire(identity, own)

    def release(self, caller: Hashable) -> None:
        """Release a slot."""
        self._taken -= 1
        self._by_caller[caller] -= 1
        if not self._by_caller[caller]:
            del self._by_caller[caller]


class Limiter:
    """Counts requests, streams and sessions as *section* bounds them, and calls by role and identity.

    Calls a minute are counted in Redis for several servers, or in memory for one of *share* workers.
    """

    def __init__(
        self, storage: str = "memory", section: ServerSection | None = None, *, share: int = 1
    ) -> None:
        self.requests = Slots(section.max_requests if section else None)
        self.streams = Slots(section.max_streams if section else None)
        self.sessions = Slots(section.max_sessions if section else None)
        self._calls = Slots()
        self._per_minute = CALLS_PER_MINUTE if section else None  #: unless the limits of a role say more
        in_memory = storage == "memory"
        self._share = share if in_memory else 1
        self._windows: Windows | SharedWindows = Windows() if in_memory else SharedWindows(storage)

    async def admit(self, caller: Caller, limits: Limits) -> None:
        """Acquire a slot for one call of *caller*, or raise TooManyCalls with the seconds to wait."""
        key, most = (caller.role, caller.identity or ""), limits.concurrent_calls
        if not self._calls.acquire(key, most):
            running = "1 call is" if most == 1 else f"{most} calls are"
            raise errors.TooManyCalls(
                f"{running} running already, which is the most at the same time.",
                hint=f"Retry when one of them has ended: within {limits.timeout:g} seconds.",
            )
        most = limits.calls_per_minute or self._per_minute
        if most is None:
            return
        most = max(1, most // self._share)
        try:
            seconds = await self._windows.hit(key, most)
        except BaseException:
            self._calls.release(key)
            raise
        if seconds is not None:
            self._calls.release(key)
            raise errors.TooManyCalls(
                f"The rate limit is reached: {most} calls a minute.",
                hint=f"Retry in {max(1, ceil(seconds))} seconds.",
            )

    def leave(self, caller: Caller) -> None:
        """Release the slot of a call."""
        self._calls.release((caller.role, caller.identity or ""))

    async def check(self) -> None:
        """Raise ConfigurationError if calls cannot be counted."""
        try:
            await self._windows.hit(("", ""), 1_000_000)
        except errors.Busy as exc:
            raise errors.ConfigurationError(f"{UNCOUNTED}: {_reason(exc.__cause__ or exc)}.") from exc

    def close(self) -> None:
        """Close the connections to Redis."""
        if isinstance(self._windows, SharedWindows):
            self._windows.close()


class Windows:
    """Moving windows of a minute in memory: the moments of calls by key.

    Those of `limits` take a hop to a thread for each call, and time that grows with the number of calls.
    """

    def __init__(self) -> None:
        self._moments: dict[Key, deque[float]] = {}
        self._swept = monotonic()

    async def hit(self, key: Key, most: int) -> float | None:
        """Count one more call of *key*; or return the seconds to wait, if there were *most*."""
        now = monotonic()
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


class SharedWindows:
    """The same in Redis, for several servers; ConfigurationError is raised if *storage* cannot be one."""

    def __init__(self, storage: str) -> None:
        try:
            from coredis import BlockingConnectionPool
            from limits.aio.storage import RedisStorage
            from limits.aio.strategies import MovingWindowRateLimiter

            self._pool = BlockingConnectionPool.from_url(storage, max_connections=CONNECTIONS)
        except (ImportError, ValueError) as exc:
            # Not the address itself: it may hold a password.
            missing = "Install the extra `redis` of dbtools-mcp."
            hint = missing if isinstance(exc, ImportError) else "It must be redis://HOST:PORT."
            raise errors.ConfigurationError(f"{UNCOUNTED}.", hint=hint) from exc
        # The pool has the address; limits itself reads none without a port.
        options: dict[str, Any] = {"connection_pool": self._pool}
        self._limiter = MovingWindowRateLimiter(
            RedisStorage("async+redis://pool:0", wrap_exceptions=True, **options)
        )
        self._is_failing = False

    async def hit(self, key: Key, most: int) -> float | None:
        """Count as `Windows.hit` does, or raise Busy."""
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
                logger.error("calls cannot be counted: %s; those with a rate limit are refused", _reason(exc))
            self._is_failing = True
            # A call that cannot be counted is never admitted.
            raise errors.Busy("Calls cannot be counted at the moment.", hint="Retry in 5 seconds.") from exc
        self._is_failing = False
        return window and window.reset_time - time.time()

    def close(self) -> None:
        """Close the connections."""
        self._pool.disconnect()


def _reason(error: BaseException) -> str:
    """Return the kind of *error* without its text, which may hold the address of Redis."""
    cause = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
    return type(cause).__name__
