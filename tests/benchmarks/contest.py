"""Measure several servers in turns, since the speed of the machine changes, and print the results."""

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Work = Callable[[], Awaitable[object]]
WIDTHS = (42, 11, 11, 11, 7)
HEADINGS = ("measured", "database", "dbtools", "floor", "ratio", "the floor")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What one contest gave."""

    measured: str
    dialect: str
    ours: float  #: seconds, or bytes
    floor: float
    floor_is: str
    unit: str = "s"

    @property
    def ratio(self) -> float:
        """Return how many times the floor ours is."""
        return self.ours / self.floor

    def cells(self) -> tuple[str, ...]:
        """Return the figure as a line of the table."""
        ours, floor = (shown(value, self.unit) for value in (self.ours, self.floor))
        return (self.measured, self.dialect, ours, floor, f"{self.ratio:.2f}", self.floor_is)


def shown(value: float, unit: str) -> str:
    """Return *value* as people read it."""
    if unit == "bytes":
        return f"{value / 2**20:.1f} MiB"
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.2f} ms" if value < 0.1 else f"{value:.3f} s"


def table(figures: Sequence[Figure]) -> list[str]:
    """Return *figures* as the lines of a table."""
    rows = [HEADINGS, *(figure.cells() for figure in figures)]
    return [_line(row) for row in rows]


def _line(cells: Sequence[str]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, WIDTHS, strict=False)]
    return "  ".join([*padded, *cells[len(WIDTHS) :]])


@dataclass(frozen=True, kw_only=True)
class Times:
    """The seconds that a call of each contender took."""

    ours: float
    floor: float

    def __truediv__(self, calls: int) -> "Times":
        """Return the times of one call where each has been *calls* at once."""
        return Times(ours=self.ours / calls, floor=self.floor / calls)

    def figure(self, measured: str, dialect: str, *, floor_is: str) -> Figure:
        """Return the times under the names of what was *measured* and of what the floor is."""
        return Figure(measured=measured, dialect=dialect, ours=self.ours, floor=self.floor, floor_is=floor_is)


async def medians(*, ours: Work, floor: Work, rounds: int, calls: int) -> Times:
    """Return what a call of each took in the middle one of the *rounds*."""
    times = await _rounds(ours, floor, rounds=rounds, calls=calls)
    return Times(ours=statistics.median(times[0]), floor=statistics.median(times[1]))


async def bests(*, ours: Work, floor: Work, rounds: int) -> Times:
    """Return what a call of each took in its best one of the *rounds*."""
    times = await _rounds(ours, floor, rounds=rounds, calls=1)
    return Times(ours=min(times[0]), floor=min(times[1]))


async def _rounds(*contenders: Work, rounds: int, calls: int) -> list[list[float]]:
    times: list[list[float]] = [[] for _ in contenders]
    for work in contenders:
        await work()
    for _ in range(rounds):
        for work, seconds in zip(contenders, times, strict=True):
            seconds.append(await _seconds(work, calls))
    return times


async def _seconds(work: Work, calls: int) -> float:
    gc.collect()
    start = time.perf_counter()
    for _ in range(calls):
        await work()
    return (time.perf_counter() - start) / calls
