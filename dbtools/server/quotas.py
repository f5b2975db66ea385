"""How many calls a caller may make: per minute, counted in memory or in Redis, and at the same time."""

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from typing import TYPE_CHECKING, Any

import anyio

from dbtools import errors
from dbtools.policy import Caller, Limits

if TYPE_CHECKING:
    from limits.aio.strategies import RateLimiter

Key = tuple[str, str]  #: role and identity
MEMORY = "memory://"
CONNECTIONS = 8  #: to a storage
NAMESPACE = "dbtools"  #: of the counters in a storage that others use as well
PATIENCE = 2.0  #: seconds that a storage has to answer


class Quotas:
    """Counts the calls of each role and identity.

    Calls a minute are counted in a moving window at *storage*, which several servers may share; calls at the
    same time are those of this server.
    """

    def __init__(self, storage: str = "") -> None:
        self._storage = storage or MEMORY
        self._limiter: RateLimiter | None = None
        self._connections: Any = None
        self._opening = anyio.Lock()
        self._running: Counter[Key] = Counter()

    @asynccontextmanager
    async def admitted(self, caller: Caller, limits: Limits) -> AsyncIterator[None]:
        """Hold a place for one call of *caller*, or raise TooManyCalls with the seconds to wait."""
        key = (caller.role, caller.identity or "")
        most = limits.concurrent_calls
        if most is not None and self._running[key] >= most:
            raise errors.TooManyCalls(
                f"{_counted(most)} running already, which is the most at the same time.",
                hint=f"Retry when one of them has ended: within {limits.timeout:g} seconds.",
            )
        self._running[key] += 1
        try:
            if limits.calls_per_minute is not None:
                await self._count(key, limits.calls_per_minute)
            yield
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]

    async def open(self) -> None:
        """Make ready to count, which takes long to import; raise ConfigurationError where that cannot be."""
        async with self._opening:
            if self._limiter is None:
                await anyio.to_thread.run_sync(self._import)

    def _import(self) -> None:
        from limits.aio.strategies import MovingWindowRateLimiter
        from limits.errors import ConfigurationError
        from limits.storage import storage_from_string

        options: dict[str, Any] = {}
        try:
            if self._storage != MEMORY:
                from coredis import BlockingConnectionPool

                self._connections = BlockingConnectionPool.from_url(
                    self._storage, max_connections=CONNECTIONS
                )
                options = {"connection_pool": self._connections}
            storage = storage_from_string(f"async+{self._storage}", wrap_exceptions=True, **options)
        except (ConfigurationError, ImportError, ValueError) as exc:
            # Not the address itself: it may hold a password.
            raise errors.ConfigurationError(
                "[limits] storage: calls cannot be counted there.",
                hint="It wants redis://HOST:PORT, and dbtools[redis] installed.",
            ) from exc
        self._limiter = MovingWindowRateLimiter(storage)

    def close(self) -> None:
        """Close the connections to the storage."""
        if self._connections is not None:
            self._connections.disconnect()

    async def _count(self, key: Key, most: int) -> None:
        """Count one more call of *key*, or raise TooManyCalls where there have been *most* in a minute."""
        from limits import RateLimitItemPerMinute
        from limits.errors import StorageError

        if self._limiter is None:
            await self.open()
        limiter = self._limiter
        assert limiter is not None
        rate = RateLimitItemPerMinute(most, namespace=NAMESPACE)
        try:
            with anyio.fail_after(PATIENCE):
                if await limiter.hit(rate, *key):
                    return
                window = await limiter.get_window_stats(rate, *key)
        except (StorageError, OSError, TimeoutError) as exc:
            # Never without its limit: who may call how often is not known now.
            raise errors.Busy("Calls cannot be counted at the moment.", hint="Retry in 5 seconds.") from exc
        raise errors.TooManyCalls(
            f"The rate limit is reached: {most} calls a minute.",
            hint=f"Retry in {_seconds_until(window.reset_time)} seconds.",
        )


def _counted(calls: int) -> str:
    return "1 call is" if calls == 1 else f"{calls} calls are"


def _seconds_until(moment: float) -> int:
    return max(1, ceil(moment - time.time()))
