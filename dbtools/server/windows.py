"""How often each caller has called within the last minute, as one process knows it."""

from collections import deque
from collections.abc import Hashable
from time import monotonic

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
