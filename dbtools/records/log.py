"""The audit log. Entries in; lines out to stderr, a file or a registry. No call waits for them.

A few entries are encoded together. Encoding each one after its call takes twice as long, since the call has
evicted the code from the processor's caches; a thread that encodes many would slow down the event loop.
"""

import atexit
import logging
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from io import BufferedReader, FileIO
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import Protocol

from dbtools.errors import ConfigurationError
from dbtools.records.entries import AuditEntry
from dbtools.settings.sections import Settings
from dbtools.values.cells import json_of
from dbtools.values.types import quote

WINDOW = 0.2  #: seconds during which entries are collected
CLOSE_TIMEOUT = 3.0  #: seconds that `close` waits for a sink
MAX_WAITING_LINES = 10_000  #: that wait for a failing or blocked sink
TOGETHER = 16  #: entries that are encoded together
ATOMIC_BYTES = 4096  #: bytes that a pipe accepts atomically
STDERR = 2
logger = logging.getLogger("dbtools")


class Sink(Protocol):
    """A destination of lines, used by one thread."""

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines*, removing them from the left; raise OSError with the unwritten ones left."""

    def close(self) -> None:
        """Close what is open, until the next write."""


def open_log(settings: Settings, *, stderr: bool = True) -> "AuditLog":
    """Return the audit log of *settings*, which goes to *stderr* if no file is named.

    Raise ConfigurationError if the file cannot be written.
    """
    sinks: list[Sink] = [] if settings.log.file or not stderr else [FileSink(STDERR)]
    if settings.log.file:
        file = FileSink(Path(settings.log.file))
        file.check()
        sinks.append(file)
    if settings.log.registry:
        # It imports SQLAlchemy.
        sinks.append(import_module("dbtools.records.registry").RegistrySink(settings.registry.url))
    return AuditLog(sinks, arguments=settings.log.arguments, changes=settings.log.changes)


class AuditLog:
    """Writes each call to several sinks, with the values of its *arguments* and *changes* or without."""

    def __init__(self, sinks: Sequence[Sink], *, arguments: bool, changes: bool = False) -> None:
        content = partial(AuditEntry.content, arguments=arguments, changes=changes)
        self._queues = [_Queue(sink, content) for sink in sinks]

    def record(self, entry: AuditEntry) -> None:
        """Queue *entry* for writing."""
        for queue in self._queues:
            queue.put(entry)

    def close(self) -> None:
        """Wait until all entries are written, but at most CLOSE_TIMEOUT seconds for each sink."""
        for queue in self._queues:
            queue.close()


class _Queue:
    """Entries that wait for a sink, and the daemon thread that writes them.

    If the sink fails, lines wait for the next attempt. Beyond a bound, new entries are dropped and counted.
    """

    def __init__(self, sink: Sink, content: Callable[[AuditEntry], Mapping[str, object]]) -> None:
        self._sink = sink
        self._content = content
        self._lock = threading.Lock()  #: guards the entries and the lines
        self._entries: list[AuditEntry] = []
        self._lines: list[bytes] = []
        self._writing: deque[bytes] = deque()  #: of the thread
        self._wake = threading.Event()
        self._closing = threading.Event()  #: asks the thread to close the sink
        self._closed = threading.Event()
        self._dropped = 0
        self._failing = False
        threading.Thread(target=self._run, name="audit log", daemon=True).start()
        atexit.register(self.close)

    def put(self, entry: AuditEntry) -> None:
        """Queue *entry*."""
        with self._lock:
            if len(self._lines) + len(self._writing) < MAX_WAITING_LINES:
                self._entries.append(entry)
            else:
                self._dropped += 1
            if len(self._entries) >= TOGETHER:
                self._encode()
            if not self._wake.is_set():
                self._wake.set()

    def close(self) -> None:
        """Wait until all entries are written, at most CLOSE_TIMEOUT seconds; an entry reopens the sink."""
        self._closed.clear()
        self._closing.set()
        self._wake.set()
        self._closed.wait(CLOSE_TIMEOUT)

    def _encode(self) -> None:
        entries, self._entries = self._entries, []
        for entry in entries:
            try:
                self._lines.append(json_of(self._content(entry)).encode() + b"\n")
            except (TypeError, ValueError, RecursionError):
                self._dropped += 1
                logger.exception("A call of %.200r cannot be encoded for the audit log", entry.tool)

    def _run(self) -> None:
        """Wait for an entry, and write it with those that soon follow."""
        while True:
            self._wake.wait()
            closing = self._closing.wait(WINDOW)
            with self._lock:
                self._wake.clear()
                self._encode()
                self._writing += self._lines
                self._lines.clear()
            try:
                if self._writing:
                    self._sink.write(self._writing)
            except OSError as exc:
                self._note_failure(str(exc).rstrip("."), closing=closing)
            else:
                self._note_success()
            if closing:
                self._sink.close()
                self._closing.clear()
                self._closed.set()

    def _note_failure(self, problem: str, *, closing: bool) -> None:
        if not self._failing:
            logger.error("The audit log cannot be written: %s. Calls are kept for the next attempt.", problem)
        self._failing = True
        if closing:
            missing = len(self._writing) + self._dropped
            logger.error("The audit log could not be written. Missing calls: %d.", missing)

    def _note_success(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if self._failing or dropped:
            logger.warning("The audit log is written again. Missing calls: %d.", dropped)
        self._failing = False


class FileSink:
    """Appends to stderr or to a file, and opens a new file after a rename, as by logrotate."""

    def __init__(self, place: Path | int) -> None:
        self._place = place
        self._file: FileIO | None = None

    def check(self) -> None:
        """Open and close the file, or raise ConfigurationError."""
        try:
            self._current_file()
            self.close()
        except (OSError, ValueError) as exc:
            problem = exc.strerror if isinstance(exc, OSError) else "no file can have this name"
            name = quote(str(self._place), 200)
            raise ConfigurationError(f"[log] file: {name}: {problem}.") from exc

    def write(self, lines: deque[bytes]) -> None:
        """Append *lines*, in pieces, since other processes may append too."""
        file = self._current_file()
        while lines:
            whole = sum(1 for _ in takewhile(ATOMIC_BYTES.__ge__, accumulate(map(len, lines))))
            written = file.write(b"".join(islice(lines, whole or 1)))
            if written is None:
                # Another process that shares stderr made it non-blocking.
                select.select([], [file], [])
            _remove_written(lines, written or 0)

    def _current_file(self) -> FileIO:
        if not isinstance(self._place, Path):
            return FileIO(self._place, "a", closefd=False)
        if self._file is not None and not _is_at(self._file, self._place):
            self.close()
        if self._file is None:
            self._file = FileIO(self._place, "a+", opener=partial(os.open, mode=0o600))
            if os.fstat(self._file.fileno()).st_size:
                self._file.seek(-1, os.SEEK_END)
                if self._file.read(1) != b"\n":
                    # A process was killed while it wrote a line.
                    self._file.write(b"\n")
        return self._file

    def close(self) -> None:
        """Close the file, until the next write."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _remove_written(lines: deque[bytes], written: int) -> None:
    while written > 0:
        line = lines.popleft()
        if len(line) > written:
            lines.appendleft(line[written:])
        written -= len(line)


def follow_file(path: Path) -> Generator[bytes | None, None, None]:
    """Yield each complete line of the file at *path*, and None each time that the end is reached.

    After a rename, as by logrotate, continue with the new file.
    """
    file: BufferedReader | None = None
    try:
        while True:
            file = file or _open(path)
            # Check this before reading, since lines may be added until the rename.
            is_current = file is None or _is_at(file, path)
            if file is not None:
                yield from _lines(file)
            if is_current:
                yield None
            elif file is not None:
                file.close()
                file = None
    finally:
        if file is not None:
            file.close()


def _open(path: Path) -> BufferedReader | None:
    name = quote(str(path), 200)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigurationError(f"The audit log {name} is not a regular file.")
        return open(path, "rb")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigurationError(f"The audit log {name}: {exc.strerror}.") from exc


def _lines(file: BufferedReader) -> Iterator[bytes]:
    """Yield the lines added to *file*, from the start if it was emptied."""
    if os.fstat(file.fileno()).st_size < file.tell():
        file.seek(0)
    while line := file.readline():
        if not line.endswith(b"\n"):
            file.seek(-len(line), os.SEEK_CUR)
            return
        yield line.rstrip(b"\r\n")


def _is_at(file: FileIO | BufferedReader, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
