"""What is kept for later calls, bounded by its size. Keys in, what was computed or prepared for them out.

Callers choose what is computed, so a number of entries bounds nothing: one may be a thousand times as large
as another.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from functools import wraps
from threading import Lock
from typing import Generic, TypeVar

from dbtools.backends.compiled import Compiled, CompiledWrite
from dbtools.statements.select import QueryShape, Select, Shape
from dbtools.statements.write import Write

PLANS = 1_000  #: compiled shapes that are kept
MOST_SQL = 4_000_000  #: characters of their SQL: with its shape, a plan takes about five bytes for each
RESULTS = 1_000  #: of one function that are kept
MOST_RESULTS = 2_000_000  #: their characters or bytes; the arguments are about as large
LARGE_SHAPE = 60  #: terms; more take some milliseconds to compile

KeyT = TypeVar("KeyT", bound=Hashable)
KeptT = TypeVar("KeptT")
WrittenT = TypeVar("WrittenT", str, bytes)
ShapeT = TypeVar("ShapeT", bound=Shape | Write)
PlanT = TypeVar("PlanT", bound=Compiled | CompiledWrite)


class BoundedCache(Generic[KeyT, KeptT]):
    """The values that were used last: at most *count*, whose sizes add up to *most* at most."""

    def __init__(self, *, count: int, most: int) -> None:
        self._count, self._most = count, most
        self._entries: OrderedDict[KeyT, tuple[KeptT, int]] = OrderedDict()
        self._changing = Lock()  # several threads may use a cache
        self.size = 0

    def __iter__(self) -> Iterator[KeyT]:
        """Yield the keys, the least recently used one first."""
        return iter(self._entries)

    def get(self, key: KeyT) -> KeptT | None:
        """Return what is kept for *key*, None if nothing is."""
        found = self._entries.get(key)
        if found is None:
            return None
        with suppress(KeyError):  # another thread has forgotten it
            self._entries.move_to_end(key)
        return found[0]

    def keep(self, key: KeyT, value: KeptT, size: int) -> None:
        """Keep *value*, unless it is larger than *most*; forget the least recently used ones."""
        with self._changing:
            self._drop(key)
            self._entries[key] = value, size
            self.size += size
            while self.size > self._most or len(self._entries) > self._count:
                self._drop(next(iter(self._entries)))

    def forget(self, key: KeyT) -> None:
        """Forget what is kept for *key*."""
        with self._changing:
            self._drop(key)

    def _drop(self, key: KeyT) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            self.size -= entry[1]


def bounded_cache(function: Callable[[KeyT], WrittenT]) -> Callable[[KeyT], WrittenT]:
    """Cache the texts or bytes that *function* returns, by their length."""
    cache = BoundedCache[KeyT, WrittenT](count=RESULTS, most=MOST_RESULTS)

    @wraps(function)
    def cached_result(key: KeyT) -> WrittenT:
        if (kept := cache.get(key)) is not None:
            return kept
        result = function(key)
        cache.keep(key, result, len(result))
        return result

    return cached_result


class CompiledCache(Generic[ShapeT, PlanT]):
    """The plans of shapes that were used last: at most PLANS, with at most *most* characters of SQL.

    Large shapes are compiled in a thread, so that other calls need not wait.
    """

    def __init__(self, compile: Callable[[ShapeT], PlanT], *, most: int = MOST_SQL) -> None:
        self._compile = compile
        self._kept = BoundedCache[ShapeT, PlanT](count=PLANS, most=most)

    @property
    def length(self) -> int:
        """The characters of the SQL that is kept."""
        return self._kept.size

    async def plan(self, shape: ShapeT) -> PlanT:
        """Return the plan of *shape*, which is compiled at its first use."""
        if (kept := self._kept.get(shape)) is not None:
            return kept
        if terms_in(shape) > LARGE_SHAPE:
            plan = await asyncio.to_thread(self._compile, shape)
        else:
            plan = self._compile(shape)
        # Meanwhile, another call may have compiled the same shape.
        self._kept.keep(shape, plan, plan.length)
        return plan


def terms_in(shape: Shape | Write) -> int:
    """Return the number of terms that must be compiled for *shape*."""
    match shape:
        case Select():
            return len(shape.parts)
        case Write():
            chosen = len(shape.chosen.parts) if shape.chosen is not None else 0
            return len(shape.columns) + len(shape.outputs) + chosen
        case QueryShape():
            return len(shape.outputs)
