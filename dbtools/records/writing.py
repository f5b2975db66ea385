"""Calls in as they come, batches of lines out to a sink: the event loop that records waits for nothing.

A call is made a line at once: as objects, calls that wait keep the collector of garbage busy, and a thread
that encodes them contends with the event loop; either costs more than the encoding.
"""

import atexit
import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

from dbtools.cells import dump
from dbtools.records.calls import Entry
from dbtools.records.sinks import Sink

WINDOW = 0.2  #: seconds in which calls are gathered
PATIENCE = 3.0  #: seconds that the end waits for a sink
MOST_LINES = 10_000  #: that wait for a sink which fails or is stuck
logger = logging.getLogger("dbtools")


class CallLog:
    """Writes down each call, with the values of its arguments or without.

    A daemon thread does so, from the first call until the log is closed. Where a sink fails, lines are kept
    for the next attempt; when they get too many the oldest are dropped, and counted in what is said of it.
    """

    def __init__(self, sink: Sink, *, arguments: bool) -> None:
        self._sink = sink
        self._arguments = arguments
        self._queue: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        self._lines: deque[bytes] = deque()
        self._hurry = threading.Event()
        self._lock = threading.Lock()
        self._running = False
        self._closing: threading.Event | None = None
        self._failing = False
        self._dropped = 0

    def record(self, entry: Entry) -> None:
        """Have *entry* written soon; after a close as well, by a thread that begins anew."""
        if self._queue.qsize() >= MOST_LINES:
            self._drop(1)
            return
        self._queue.put(dump(entry.content(arguments=self._arguments))[1].encode() + b"\n")
        if not self._running:
            self._start()

    def close(self) -> None:
        """Return when all that was recorded is written, or when the sink has had its time."""
        atexit.unregister(self.close)
        stuck = self._closing is not None and not self._closing.is_set()
        if stuck or not (self._running or self._lines or self._queue.qsize()):
            return
        self._closing = threading.Event()
        self._queue.put(self._closing)
        self._hurry.set()
        self._start()
        self._closing.wait(PATIENCE)

    def _start(self) -> None:
        with self._lock:
            if self._running:
                return
            self._running = True
        try:
            threading.Thread(target=self._run, name="call log", daemon=True).start()
        except RuntimeError as exc:
            # No more threads: what is recorded waits for the next call.
            self._running = False
            logger.error("The call log cannot be written: %s.", exc)
            return
        # A process that ends without a close ends with one.
        atexit.register(self.close)

    def _run(self) -> None:
        """Write what is recorded, until all is written at a close."""
        try:
            while True:
                closings = self._write_batch()
                if closings:
                    # On the thread that has used it.
                    self._sink.close()
                ends = bool(closings) and self._ends()
                for closing in closings:
                    closing.set()
                if ends:
                    return
        except BaseException:
            # The next call begins another thread.
            self._running = False
            raise

    def _ends(self) -> bool:
        """Return whether nothing came meanwhile; whoever records from now on begins another thread."""
        with self._lock:
            self._running = False
            self._running = not self._queue.empty()
            return not self._running

    def _write_batch(self) -> list[threading.Event]:
        """Wait for a call, write it with those that soon follow, and return the closes that wait for it."""
        first = self._queue.get()
        if isinstance(first, bytes):
            self._hurry.wait(WINDOW)
        self._hurry.clear()
        closings: list[threading.Event] = []
        for each in self._waiting(first):
            if isinstance(each, bytes):
                self._lines.append(each)
            else:
                closings.append(each)
        if self._lines:
            self._write(last=bool(closings))
        return closings

    def _waiting(self, first: bytes | threading.Event) -> Iterator[bytes | threading.Event]:
        yield first
        for _ in range(MOST_LINES):
            try:
                yield self._queue.get_nowait()
            except Empty:
                return

    def _write(self, *, last: bool) -> None:
        try:
            self._sink.write(self._lines)
        except OSError as exc:
            if not self._failing:
                logger.error("The call log cannot be written: %s. Calls are kept for the next attempt.", exc)
            self._failing = True
            for _ in range(len(self._lines) - MOST_LINES):
                self._lines.popleft()
                self._drop(1)
            if last:
                logger.error("%d calls are missing from the call log.", len(self._lines) + self._dropped)
            return
        if self._failing or self._dropped:
            logger.warning("The call log is written again; %d calls are missing from it.", self._dropped)
        with self._lock:
            self._failing, self._dropped = False, 0

    def _drop(self, count: int) -> None:
        with self._lock:
            self._dropped += count


class CallLogs:
    """Several logs as one: each call goes to all of them, and what keeps one from writing keeps no other."""

    def __init__(self, logs: Sequence[CallLog]) -> None:
        self._logs = logs

    def record(self, entry: Entry) -> None:
        """Have *entry* written soon."""
        for log in self._logs:
            log.record(entry)

    def close(self) -> None:
        """Return when all that was recorded is written, or when the sinks have had their time."""
        for log in self._logs:
            log.close()
