"""The terminal that a command is run in: colours, width, interrupts, and progress of what takes long."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

SOON = 1.0  #: seconds after which progress is shown
WIDE = 1_000  #: columns of an output that is not a terminal

Report = Callable[[int, int, str], None]  #: how many of how many are done, and the name of the next


def width_of(stream: TextIO) -> int:
    """Return how many columns fit on a line of *stream*: programs, too, read lines that are not broken."""
    return shutil.get_terminal_size().columns if stream.isatty() else WIDE


def is_capable(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal on which the cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colours(stream: TextIO) -> bool:
    """Return whether *stream* is a terminal that shows colours, and nobody has asked for none."""
    return is_capable(stream) and not os.environ.get("NO_COLOR")


@contextmanager
def interruptible() -> Iterator[None]:
    """Let an interrupt raise KeyboardInterrupt meanwhile, so that what has begun is ended properly.

    Otherwise the handler of `__main__` ends the process at once.
    """
    before = signal.getsignal(signal.SIGINT)
    if before in (signal.default_int_handler, signal.SIG_IGN):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def waiting(title: str) -> Iterator[Report]:
    """Show a progress bar on stderr once something has taken a second, if stderr is a terminal."""
    if not is_capable(sys.stderr):
        yield lambda done, of, name: None
        return
    bar = _Bar(title)
    timer = Timer(SOON, bar.show)
    timer.daemon = True
    timer.start()
    try:
        yield bar.report
    finally:
        timer.cancel()
        timer.join()
        bar.hide()


class _Bar:
    """A progress bar that is not shown at first."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._done, self._of, self._name = 0, 0, ""
        self._progress: Progress | None = None

    def report(self, done: int, of: int, name: str) -> None:
        """Note that *done* of *of* are done, and that *name* is next."""
        self._done, self._of, self._name = done, of, name
        self._update()

    def show(self) -> None:
        """Begin to draw the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True, color_system="auto" if has_colours(sys.stderr) else None)
        text = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), text, BarColumn(), TimeElapsedColumn())
        progress = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        progress.add_task(self._title, total=None)
        progress.tasks[0].start_time = progress.get_time() - SOON
        self._progress = progress
        self._update()
        progress.start()

    def hide(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()

    def _update(self) -> None:
        from dbtools.cells import visible

        if self._progress is not None:
            name = f"{self._title} {visible(self._name)}".rstrip()
            self._progress.update(
                self._progress.task_ids[0], completed=self._done, total=self._of or None, description=name
            )
