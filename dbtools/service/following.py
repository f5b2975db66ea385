"""Notices that something has changed of what is served, and has the toolbox refresh.

Each of these is looked at from time to time, and compared with what the snapshot was made from; some tell by
themselves as well. What is noticed during a refresh leads to another one. A refresh that fails leaves all as
it is, and is tried again; that is told once.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import anyio

from dbtools import errors
from dbtools.backends.port import Look
from dbtools.policy import Finding
from dbtools.service.snapshot import Snapshot
from dbtools.service.toolbox import Toolbox
from dbtools.tools.definition import Change

SHARE = 100  #: looks that take long are followed by pauses so many times as long
MOST = 3  #: intervals that a pause takes at the most, however slow a database is to answer
SAMPLES = 3  #: looks of which the quickest counts: a busy machine makes any look long
PATIENCE = (1.0, 2.0, 5.0, 10.0, 30.0)  #: seconds before what failed is tried again, each time longer


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Something that may change, by the name of its stamp in a snapshot."""

    name: str
    #: Lends what looks at it; is given what to call when it tells by itself.
    open: Callable[[Callable[[], None]], AbstractAsyncContextManager[Look]]
    interval: float  #: seconds between two looks


class Watch:
    """Looks at what is observed while a toolbox is served."""

    def __init__(
        self,
        toolbox: Toolbox,
        observed: Sequence[Observed],
        *,
        tell: Callable[[str | Finding], None],
        mended: Callable[[str], None],
    ) -> None:
        self._toolbox = toolbox
        self._observed = observed
        self._tell = tell  #: an operator what is wrong
        self._mended = mended  #: and what is so no more
        self._told: dict[str, str] = {}  #: what is wrong now, by what it is about
        self._due = anyio.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        snapshot = await self._toolbox.snapshot()
        self._problems = _problems(snapshot)
        unsubscribe = self._toolbox.subscribe(self._note)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._refresh)
                self._toolbox.watched(self._ask)
                for each in self._observed:
                    group.start_soon(self._watch, each)
        finally:
            self._toolbox.watched(None)
            unsubscribe()

    def _ask(self) -> None:
        self._due.set()

    def _note(self, snapshot: Snapshot, _: Mapping[str, Change]) -> None:
        """Tell what is wrong in *snapshot* and was not before; what is mended, where nothing is."""
        before, self._problems = self._problems, _problems(snapshot)
        for each in self._problems:
            if each not in before:
                self._tell(each)
        if set(self._problems) < set(before):
            for each in before:
                if each not in self._problems:
                    self._mended(f"No longer so: {each}")

    async def _refresh(self) -> None:
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            try:
                await self._toolbox.refresh()
            except errors.DbtoolsError as exc:
                self._complain("refresh", f"What has changed cannot be read, and all stays as it was: {exc}")
            else:
                self._settle("refresh", "What has changed is read again, and in force.")

    async def _watch(self, observed: Observed) -> None:
        """Look at *observed* for ever, opening it again where that fails."""
        failures = 0
        while True:
            nudge = _Nudge()

            try:
                async with observed.open(nudge.hear) as look:
                    await self._look(observed, look, nudge)
            except errors.DbtoolsError as exc:
                self._complain(observed.name, f"{observed.name}: changes are not seen for now: {exc}")
            await anyio.sleep(PATIENCE[min(failures, len(PATIENCE) - 1)])
            failures = 0 if nudge.looked else failures + 1

    async def _look(self, observed: Observed, look: Look, nudge: "_Nudge") -> None:
        """Look again and again, until that fails; have a refresh made where the snapshot is out of date."""
        asked: object = None
        waits, times = 0.0, 0
        spent: deque[float] = deque(maxlen=SAMPLES)
        while True:
            began = anyio.current_time()
            stamp = await look()
            ended = anyio.current_time()
            spent.append(ended - began)
            nudge.looked = True
            self._settle(observed.name, f"{observed.name}: changes are seen again.")
            current = (await self._toolbox.snapshot()).stamps.get(observed.name)
            # A refresh for the same stamp is on its way, or has failed and is tried again later.
            if stamp != current and (stamp != asked or ended > waits):
                times = times + 1 if stamp == asked else 0
                asked, waits = stamp, ended + PATIENCE[min(times, len(PATIENCE) - 1)]
                self._due.set()
            pause = min(SHARE * min(spent), MOST * observed.interval) if len(spent) == SAMPLES else 0.0
            with anyio.move_on_after(max(observed.interval, pause)):
                await nudge.event.wait()
            nudge.event = anyio.Event()

    def _complain(self, about: str, problem: str) -> None:
        """Tell *problem*, unless it is what has been told before."""
        if self._told.get(about) != problem:
            self._told[about] = problem
            self._tell(problem)

    def _settle(self, about: str, news: str) -> None:
        """Tell the *news*, where something was wrong."""
        if self._told.pop(about, None) is not None:
            self._mended(news)


class _Nudge:
    """What what is observed and tells by itself does to its looks."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.looked = False

    def hear(self) -> None:
        """Have the next look come at once: whoever tells may be anybody, and the look decides."""
        self.event.set()


def _problems(snapshot: Snapshot) -> tuple[str | Finding, ...]:
    return tuple(dict.fromkeys(each for view in snapshot.views.values() for each in view.problems))
