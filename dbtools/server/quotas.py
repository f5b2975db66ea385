"""How many calls a caller may make: per minute, counted in memory or in Redis, and at the same time."""

import logging
import time
from math import ceil
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio

from dbtools import errors
from dbtools.policy import Caller, Limits

if TYPE_CHECKING:
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import RateLimiter

from collections import deque
from collections.abc import Hashable
from time import monotonic

Key = tuple[str, str]  #: role and identity
MEMORY = ("", "memory", "memory://")
MOST = 1_000_000  #: calls a minute, of what only tries whether they can be counted
CONNECTIONS = 8  #: to a storage
NAMESPACE = "dbtools"  #: of the counters in a storage that others use as well
logger = logging.getLogger("dbtools")
PATIENCE = 2.0  #: seconds that a storage has to answer


class Quotas:
    """Counts the calls of each role and identity.

    Calls a minute are counted in a moving window at *storage*, which several servers may share; calls at the
    same time are those of this server, of which *at_once* run in all, whatever has become of the connections
    that they came by.
    """

    def __init__(
        self,
        storage: str = "",
        *,
        calls_per_minute: int | None = None,
        share: int = 1,
        at_once: int | None = None,
    ) -> None:
        self._storage = storage
        self._most = calls_per_minute  #: where the limits say nothing
        self._share = share if storage in MEMORY else 1  #: how many servers count by themselves
        self._windows = Windows() if storage in MEMORY else None
        self._limiter: RateLimiter | None = None
        self._connections: Any = None
        self._failing = False
        self._at_once = at_once
        self._opening = anyio.Lock()
        self._running: dict[Key, int] = {}
        self._all = 0  #: that run

    async def admit(self, caller: Caller, limits: Limits) -> None:
        """Take a place for one call of *caller*, or raise TooManyCalls with the seconds to wait."""
        if self._at_once is not None and self._all >= self._at_once:
            raise errors.TooManyCalls("The server is busy with other calls. Retry in 1 second.")
        key = _key(caller)
        most, own = limits.concurrent_calls, self._running.get(key, 0)
        if most is not None and own >= most:
            raise errors.TooManyCalls(
                f"{_counted(most)} running already, which is the most at the same time.",
                hint=f"Retry when one of them has ended: within {limits.timeout:g} seconds.",
            )
        self._all += 1
        self._running[key] = own + 1
        most = limits.calls_per_minute or self._most
        try:
            if most is not None:
                await self._count(key, max(1, most // self._share))
        except BaseException:
            self.leave(caller)
            raise

    def leave(self, caller: Caller) -> None:
        """Give the place back."""
        key = _key(caller)
        self._all -= 1
        self._running[key] -= 1
        if not self._running[key]:
            del self._running[key]

    async def _count(self, key: Key, most: int) -> None:
        """Count one more call of *key*, or raise TooManyCalls where there have been *most* in a minute."""
        seconds = self._windows.hit(key, most) if self._windows else await self._count_together(key, most)
        if seconds is not None:
            raise errors.TooManyCalls(
                f"The rate limit is reached: {most} calls a minute.",
                hint=f"Retry in {max(1, ceil(seconds))} seconds.",
            )

    async def open(self) -> None:
        """Make ready to count with others, which takes long to import; or raise ConfigurationError."""
        async with self._opening:
            if self._limiter is None:
                await anyio.to_thread.run_sync(self._import)

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
                "[limits] storage: calls cannot be counted there.", hint="It wants redis://HOST:PORT."
            ) from exc
        self._connections = pool
        return storage

    async def check(self) -> None:
        """Raise ConfigurationError where calls cannot be counted at the storage."""
        if self._windows is not None:
            return
        try:
            await self._count(("", ""), MOST)
        except errors.Busy as exc:
            cause = exc.__cause__ or exc
            raise errors.ConfigurationError(
                f"[limits] storage: calls cannot be counted there: {_reason(cause)}."
            ) from exc

    def close(self) -> None:
        """Close the connections to the storage."""
        if self._connections is not None:
            self._connections.disconnect()

    async def _count_together(self, key: Key, most: int) -> float | None:
        """Count as `Windows.hit` does, together with others; or raise Busy."""
        if self._limiter is None:
            await self.open()
        from limits import RateLimitItemPerMinute
        from limits.errors import StorageError

        limiter = self._limiter
        assert limiter is not None
        rate = RateLimitItemPerMinute(most, namespace=NAMESPACE)
        try:
            with anyio.fail_after(PATIENCE):
                hit = await limiter.hit(rate, *(quote(part, safe="") for part in key))
                self._failing = False
                if hit:
                    return None
                window = await limiter.get_window_stats(rate, *(quote(part, safe="") for part in key))
        except (StorageError, OSError, TimeoutError) as exc:
            if not self._failing:
                logger.error("calls cannot be counted: %s; those with a rate limit are refused", _reason(exc))
            self._failing = True
            # Never without its limit: who may call how often is not known now.
            raise errors.Busy("Calls cannot be counted at the moment.", hint="Retry in 5 seconds.") from exc
        return window.reset_time - time.time()


def _key(caller: Caller) -> Key:
    return caller.role, caller.identity or ""


def _reason(error: BaseException) -> str:
    """Return what kind of error it was, in no words of the storage: they may hold its address."""
    cause = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
    return type(cause).__name__


def _counted(calls: int) -> str:
    return "1 call is" if calls == 1 else f"{calls} calls are"


MINUTE = 60.0  #: seconds


class Windows:
    """Moving windows of a minute, one a key: the moments of the calls in them.

    The library `limits` has such in memory as well, with a hop to a thread for each call, and time that grows
    with the number of calls.
    """

    def __init__(self) -> None:
        self._moments: dict[Hashable, deque[float]] = {}
        self._swept = monotonic()

    def hit(self, key: Hashable, most: int) -> float | None:
        """Count one more call of *key*; or return the seconds to wait, where there have been *most*."""
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
