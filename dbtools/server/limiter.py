"""How much is served at the same time and within a minute, in total and to one caller."""

import logging
import time
from collections import deque
from collections.abc import Hashable
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from dbtools import errors
from dbtools.policy import Caller, Limits

if TYPE_CHECKING:
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import RateLimiter

SHARE = 4  #: a known caller takes at most a quarter of all slots
MINUTE = 60.0  #: seconds
Key = tuple[str, str]  #: role and identity
MEMORY = ("", "memory", "memory://")
MOST = 1_000_000  #: calls a minute, where it is only tried whether they can be counted
CONNECTIONS = 8  #: to a storage
NAMESPACE = "dbtools"  #: of the counters in a storage that others use as well
STORAGE_TIMEOUT = 2.0  #: seconds that a storage has to answer
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
    """Counts the requests, streams and sessions of each caller, and calls by role and identity.

    Calls a minute are counted in a moving window at *storage*, which several servers may share; a server
    that counts in its own memory counts for one of *share*.
    """

    def __init__(
        self,
        storage: str = "",
        *,
        calls_per_minute: int | None = None,
        share: int = 1,
        requests: int | None = None,
        streams: int | None = None,
        sessions: int | None = None,
    ) -> None:
        self.requests = Slots(requests)
        self.streams = Slots(streams)
        self.sessions = Slots(sessions)
        self._calls = Slots()
        self._per_minute = calls_per_minute  #: where the limits of a role say nothing
        in_memory = storage in MEMORY
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
        try:
            await self._count(key, max(1, most // self._share))
        except BaseException:
            self._calls.release(key)
            raise

    def leave(self, caller: Caller) -> None:
        """Release the slot of a call."""
        self._calls.release((caller.role, caller.identity or ""))

    async def _count(self, key: Key, most: int) -> None:
        """Count one more call of *key*, or raise TooManyCalls where there were *most* within a minute."""
        windows = self._windows
        seconds = windows.hit(key, most) if isinstance(windows, Windows) else await windows.hit(key, most)
        if seconds is not None:
            raise errors.TooManyCalls(
                f"The rate limit is reached: {most} calls a minute.",
                hint=f"Retry in {max(1, ceil(seconds))} seconds.",
            )

    async def check(self) -> None:
        """Raise ConfigurationError where calls cannot be counted at the storage."""
        try:
            await self._count(("", ""), MOST)
        except errors.Busy as exc:
            cause = exc.__cause__ or exc
            raise errors.ConfigurationError(
                f"[limits] storage: calls cannot be counted there: {_reason(cause)}."
            ) from exc

    def close(self) -> None:
        """Close the connections to the storage."""
        if isinstance(self._windows, SharedWindows):
            self._windows.close()


class Windows:
    """Moving windows of a minute in memory, one a key: the moments of the calls in them.

    The library `limits` has such windows as well, with a hop to a thread for each call, and time that grows
    with the number of calls.
    """

    def __init__(self) -> None:
        self._moments: dict[Hashable, deque[float]] = {}
        self._swept = monotonic()

    def hit(self, key: Hashable, most: int) -> float | None:
        """Count one more call of *key*; or return the seconds to wait, where there were *most*."""
        now = monotonic()
        self._sweep(now)
        moments = self._moments.setdefault(key, deque())
        while moments and moments[0] <= now - MINUTE:
            moments.popleft()
        if len(moments) >= most:
            return moments[len(moments) - most] + MINUTE - now
        moments.append(now)
        return None

    def _sweep(self, now: float) -> None:
        """Forget, once a minute, who has not called in the last one."""
        if now - self._swept < MINUTE:
            return
        self._swept = now
        gone = [key for key, moments in self._moments.items() if moments[-1] <= now - MINUTE]
        for key in gone:
            del self._moments[key]


class SharedWindows:
    """The windows of several servers, in Redis."""

    def __init__(self, storage: str) -> None:
        self._storage = storage
        self._limiter: RateLimiter | None = None
        self._connections: Any = None
        self._opening = anyio.Lock()
        self._is_failing = False

    async def hit(self, key: Key, most: int) -> float | None:
        """Count as `Windows.hit` does, or raise Busy; ConfigurationError where nothing can be counted."""
        async with self._opening:
            if self._limiter is None:
                await anyio.to_thread.run_sync(self._import)
        from limits import RateLimitItemPerMinute
        from limits.errors import StorageError

        limiter = self._limiter
        assert limiter is not None
        rate = RateLimitItemPerMinute(most, namespace=NAMESPACE)
        try:
            with anyio.fail_after(STORAGE_TIMEOUT):
                hit = await limiter.hit(rate, *(quote(part, safe="") for part in key))
                self._is_failing = False
                if hit:
                    return None
                window = await limiter.get_window_stats(rate, *(quote(part, safe="") for part in key))
        except (StorageError, OSError, TimeoutError) as exc:
            if not self._is_failing:
                logger.error("calls cannot be counted: %s; those with a rate limit are refused", _reason(exc))
            self._is_failing = True
            # Never without its limit: who may call how often is not known now.
            raise errors.Busy("Calls cannot be counted at the moment.", hint="Retry in 5 seconds.") from exc
        return window.reset_time - time.time()

    def _import(self) -> None:
        storage = self._redis()
        from limits.aio.strategies import MovingWindowRateLimiter

        self._limiter = MovingWindowRateLimiter(storage)

    def _redis(self) -> "RedisStorage":
        try:
            from coredis import BlockingConnectionPool
            from limits.aio.storage import RedisStorage
            from limits.errors import ConfigurationError
        except ImportError as exc:
            raise errors.ConfigurationError(
                "[limits] storage: calls cannot be counted there.",
                hint="Install the extra `redis` of dbtools-mcp.",
            ) from exc
        try:
            pool = BlockingConnectionPool.from_url(self._storage, max_connections=CONNECTIONS)
            # The pool knows where; limits itself reads no address without a port.
            options: dict[str, Any] = {"connection_pool": pool}
            storage = RedisStorage("async+redis://pool:0", wrap_exceptions=True, **options)
        except (ConfigurationError, ValueError) as exc:
            # Not the address itself: it may hold a password.
            raise errors.ConfigurationError(
                "[limits] storage: calls cannot be counted there.", hint="It must be redis://HOST:PORT."
            ) from exc
        self._connections = pool
        return storage

    def close(self) -> None:
        """Close the connections."""
        if self._connections is not None:
            self._connections.disconnect()


def _reason(error: BaseException) -> str:
    """Return what kind of error it was, in no words of the storage: they may hold its address."""
    cause = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
    return type(cause).__name__
