"""Entries in as they come, batches of lines out to stderr, a file or a registry: nothing waits for them.

Entries are made lines a few at a time: one after each call costs twice as much, since the call has pushed
the code out of the processor's caches. More that wait would keep the collector of garbage busy, and a thread
that encodes many contends with the event loop.
"""

import atexit
import logging
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Protocol

from dbtools.cells import json_of
from dbtools.errors import ConfigurationError
from dbtools.records.entries import AuditEntry
from dbtools.types import quoted

if sys.platform != "win32":
    import fcntl

WINDOW = 0.2  #: seconds in which calls are gathered
PATIENCE = 3.0  #: seconds that the end waits for a sink
MOST_LINES = 10_000  #: that wait for a sink which fails or is stuck
MOST_ENTRIES = 16  #: that wait to be made lines
PIECE = 4096  #: bytes that a pipe takes at once, among those of others
OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
logger = logging.getLogger("dbtools")


class Sink(Protocol):
    """Where lines go."""

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines* and take each from the left; what is left after an OSError is not written."""

    def close(self) -> None:
        """Close what is open, until something is written again."""


class CallLog:
    """Writes down each call, with the values of its arguments or without.

    A daemon thread does so, from the first call until the log is closed. Where a sink fails, lines are kept
    for the next attempt; when they get too many the oldest are dropped, and counted in what is said of it.
    """

    def __init__(self, sink: Sink, *, arguments: bool) -> None:
        self._sink = sink
        self._arguments = arguments
        self._changed = threading.Condition()  #: guards all that follows but the lines
        self._entries: list[AuditEntry] = []  #: after those that are recorded
        self._recorded: deque[bytes] = deque()
        self._running = False
        self._closing = False
        self._dropped = 0
        self._lines: deque[bytes] = deque()  #: that the thread writes
        self._failing = False

    def record(self, entry: AuditEntry) -> None:
        """Have *entry* written soon; after a close as well, by a thread that begins anew."""
        with self._changed:
            if len(self._recorded) >= MOST_LINES:
                self._dropped += 1
                return
            is_first = not self._waiting
            self._entries.append(entry)
            if len(self._entries) == MOST_ENTRIES:
                self._recorded += self._encoded()
            if is_first or not self._running:
                self._wake()

    @property
    def _waiting(self) -> bool:
        """Whether anything waits for the thread."""
        return bool(self._entries or self._recorded)

    def _encoded(self) -> list[bytes]:
        """Take the entries and return them as lines."""
        entries, self._entries = self._entries, []
        return [json_of(each.content(arguments=self._arguments)).encode() + b"\n" for each in entries]

    def close(self) -> None:
        """Return when all that was recorded is written, or when the sink has had its time."""
        atexit.unregister(self.close)
        with self._changed:
            if self._closing or not (self._running or self._waiting or self._lines):
                return
            self._closing = True
            self._wake()
            self._changed.wait_for(lambda: not self._closing, PATIENCE)

    def _wake(self) -> None:
        """Have the thread look, or begin one."""
        self._changed.notify_all()
        if self._running:
            return
        try:
            threading.Thread(target=self._run, name="call log", daemon=True).start()
        except RuntimeError as exc:
            # No more threads: what is recorded waits for the next call.
            logger.error("The call log cannot be written: %s.", exc)
            return
        self._running = True
        # A process that ends without a close ends with one.
        atexit.register(self.close)

    def _run(self) -> None:
        """Write what is recorded, until all is written at a close."""
        try:
            while self._write_batch():
                pass
        except BaseException:
            # The next call begins another thread.
            self._running = False
            raise

    def _write_batch(self) -> bool:
        """Wait for a call, write it with those that soon follow, and return whether more is to be written."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            self._changed.wait_for(lambda: self._closing, WINDOW)
            closing = self._closing
            self._lines += [*self._recorded, *self._encoded()]
            self._recorded.clear()
        if self._lines:
            self._write(last=closing)
        if not closing:
            return True
        # On the thread that has used it.
        self._sink.close()
        with self._changed:
            self._closing = False
            self._running = self._waiting
            self._changed.notify_all()
            return self._running

    def _write(self, *, last: bool) -> None:
        try:
            self._sink.write(self._lines)
        except OSError as exc:
            if not self._failing:
                problem = str(exc).rstrip(".")
                logger.error(
                    "The call log cannot be written: %s. Calls are kept for the next attempt.", problem
                )
            self._failing = True
            with self._changed:
                while len(self._lines) > MOST_LINES:
                    self._lines.popleft()
                    self._dropped += 1
            if last:
                logger.error("%d calls are missing from the call log.", len(self._lines) + self._dropped)
            return
        if self._failing or self._dropped:
            logger.warning("The call log is written again; %d calls are missing from it.", self._dropped)
        with self._changed:
            self._failing, self._dropped = False, 0


class CallLogs:
    """Several logs as one: each call goes to all of them, and what keeps one from writing keeps no other."""

    def __init__(self, logs: Sequence[CallLog]) -> None:
        self._logs = logs

    def record(self, entry: AuditEntry) -> None:
        """Have *entry* written soon."""
        for log in self._logs:
            log.record(entry)

    def close(self) -> None:
        """Return when all that was recorded is written, or when the sinks have had their time."""
        for log in self._logs:
            log.close()


class StderrSink:
    """Writes to stderr, in pieces that a pipe takes whole: other processes may write there as well."""

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines*."""
        while lines:
            piece = b"".join(islice(lines, _fitting(lines, PIECE)))
            try:
                _take(lines, os.write(2, piece))
            except BlockingIOError:
                # Whoever shares our stderr wants it so.
                select.select([], [2], [])

    def close(self) -> None:
        """Do nothing: stderr belongs to the process."""


def open_registry_sink(url: str) -> Sink:
    """Return what writes to the registry in the database at *url*; it imports SQLAlchemy."""
    sink: Sink = import_module("dbtools.records.registry").RegistrySink(url)
    return sink


def _fitting(lines: deque[bytes], room: int) -> int:
    """Return how many of *lines* fit into *room* bytes, at least one."""
    length = 0
    for count, line in enumerate(lines):
        length += len(line)
        if count and length > room:
            return count
    return len(lines)


def _take(lines: deque[bytes], written: int) -> None:
    """Take as many bytes as were *written* from *lines*."""
    while written > 0:
        line = lines.popleft()
        if len(line) > written:
            lines.appendleft(line[written:])
        written -= len(line)


class FileSink:
    """Appends to a file that other processes may append to as well, and begins another when it is full.

    FILE becomes FILE.1, FILE.1 becomes FILE.2, as many as are kept; where none is, the file is emptied.
    """

    def __init__(self, path: Path, *, max_bytes: int, keep: int) -> None:
        self._path = real_path(path)
        self._max_bytes = max_bytes
        self._keep = keep
        self._file = -1
        self._rotates = True

    def check(self) -> None:
        """Open the file, or raise ConfigurationError."""
        try:
            self._open()
        except OSError as exc:
            raise ConfigurationError(f"[log] file: {quoted(self._path, 200)}: {exc.strerror}.") from exc

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines*."""
        while lines:
            with self._locked():
                self._write_some(lines)

    def _write_some(self, lines: deque[bytes]) -> None:
        """Write as many of *lines* as the file may still hold, all or none, or begin another file."""
        size = os.fstat(self._file).st_size
        room = self._max_bytes - size if self._rotates else sys.maxsize
        if size and len(lines[0]) > room:
            self._rotate()
            return
        count = _fitting(lines, room)
        # Whoever was killed in the middle of a line must not spoil this one.
        torn = size and self._last_byte(size) != b"\n"
        left = (b"\n" if torn else b"") + b"".join(islice(lines, count))
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, size)
            raise
        for _ in range(count):
            lines.popleft()

    def _last_byte(self, size: int) -> bytes:
        os.lseek(self._file, size - 1, os.SEEK_SET)
        return os.read(self._file, 1)

    def _rotate(self) -> None:
        try:
            if not self._keep:
                os.ftruncate(self._file, 0)
                return
            for number in range(self._keep - 1, 0, -1):
                with suppress(FileNotFoundError):
                    os.replace(f"{self._path}.{number}", f"{self._path}.{number + 1}")
            os.replace(self._path, f"{self._path}.1")
        except OSError as exc:
            logger.error("The call log cannot be rotated: %s. It grows.", exc)
            self._rotates = False

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file that is at the path now."""
        while True:
            self._open()
            _flock(self._file, "LOCK_EX")
            if identity_of(self._file) == identity_of(self._path):
                break
            self.close()
        try:
            yield
        finally:
            _flock(self._file, "LOCK_UN")

    def _open(self) -> None:
        if self._file < 0:
            self._file = os.open(self._path, OPEN, 0o600)

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def real_path(path: Path) -> str:
    """Return the path of the file that *path* leads to: where that is a link, it is not what is renamed."""
    try:
        return os.path.realpath(path)
    except ValueError as exc:
        raise ConfigurationError(f"[log] file: no file is called {quoted(str(path), 200)}.") from exc


def identity_of(file: int | str) -> tuple[int, int] | None:
    """Return by what *file* is known, whatever its name; None where there is none."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _flock(file: int, operation: str) -> None:
    """Lock *file* against other processes, or unlock it."""
    if sys.platform != "win32":
        # Not every file system has locks; a line that is appended at once is whole all the same.
        with suppress(OSError):
            fcntl.flock(file, getattr(fcntl, operation))
