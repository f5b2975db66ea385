"""Measure contenders in turns, since a machine's speed changes under them, and show what came of it."""

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    floor_is: str  #: what stands at the bottom of it
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
    if unit == "calls/s":
        return f"{value:,.0f}/s"
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


async def medians(contenders: Mapping[str, Work], *, rounds: int, calls: int) -> dict[str, float]:
    """Return the seconds that a call of each of *contenders* takes: the median of the rounds."""
    times = await _rounds(contenders, rounds=rounds, calls=calls)
    return {name: statistics.median(each) for name, each in times.items()}


async def bests(contenders: Mapping[str, Work], *, rounds: int) -> dict[str, float]:
    """Return the seconds of each of *contenders* in its best round of one call."""
    times = await _rounds(contenders, rounds=rounds, calls=1)
    return {name: min(each) for name, each in times.items()}


async def _rounds(contenders: Mapping[str, Work], *, rounds: int, calls: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for work in contenders.values():
        await work()
    for _ in range(rounds):
        for name, work in contenders.items():
            times[name].append(await _seconds(work, calls))
    return times


async def _seconds(work: Work, calls: int) -> float:
    gc.collect()
    start = time.perf_counter()
    for _ in range(calls):
        await work()
    return (time.perf_counter() - start) / calls
