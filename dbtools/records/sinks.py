"""Where lines of the call log go: to stderr, or to a file that is rotated, whoever else writes there."""

import errno
import logging
import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Protocol

import orjson

from dbtools.backends import CallWriter
from dbtools.errors import ConfigurationError
from dbtools.types import quoted

if sys.platform != "win32":
    import fcntl

LOCK_PATIENCE = 2.0  #: seconds that a file may be locked by another process
RETRY = 0.005  #: seconds until a lock is tried again
CALLS_AT_ONCE = 500  #: that a registry takes
PIECE = 4096  #: bytes that a pipe takes at once, among those of others
OPEN = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0)
logger = logging.getLogger("dbtools")


class Sink(Protocol):
    """Where lines go."""

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines* and take each from the left; what is left after an OSError is not written."""

    def close(self) -> None:
        """Close what is open, until something is written again."""


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


class RegistrySink:
    """Writes to a registry."""

    def __init__(self, writer: CallWriter) -> None:
        self._writer = writer

    def write(self, lines: deque[bytes]) -> None:
        """Write *lines*."""
        while lines:
            calls = [orjson.loads(line) for line in islice(lines, CALLS_AT_ONCE)]
            self._writer.write(calls)
            for _ in calls:
                lines.popleft()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


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
            if self._file < 0:
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
            if self._file < 0:
                self._open()
            _lock(self._file)
            if _identity(self._file) == _identity(self._path):
                break
            self._close()
        try:
            yield
        finally:
            _unlock(self._file)

    def _open(self) -> None:
        self._file = os.open(self._path, OPEN, 0o600)

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file >= 0:
            self._close()

    def _close(self) -> None:
        os.close(self._file)
        self._file = -1


def real_path(path: Path) -> str:
    """Return the path of the file that *path* leads to: where that is a link, it is not what is renamed."""
    try:
        return os.path.realpath(path)
    except ValueError as exc:
        raise ConfigurationError(f"[log] file: no file is called {quoted(str(path), 200)}.") from exc


def _identity(file: int | str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _lock(file: int) -> None:
    """Lock *file* against other processes, or raise OSError where one of them does not let go of it."""
    if sys.platform == "win32":
        return
    ends = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            if time.monotonic() > ends:
                raise OSError(errno.EAGAIN, "another process has locked the file") from exc
            time.sleep(RETRY)
        except OSError:
            # Not every file system has locks; a line that is appended at once is whole all the same.
            return
        else:
            return


def _unlock(file: int) -> None:
    if sys.platform != "win32":
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
