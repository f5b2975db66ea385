"""A call log in files in, its calls out, the oldest first: those that are there, and those that come."""

import os
import stat
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import BinaryIO, NamedTuple

import orjson

from dbtools.errors import ConfigurationError
from dbtools.records.writing import identity_of, real_path
from dbtools.types import quoted


class Stored(NamedTuple):
    """A call as it is stored."""

    line: bytes  #: without its end
    call: dict[str, object]


class FileReader:
    """Reads the file at a path, and as many older ones as are kept beside it.

    Files are known by what they are and not by their names, which change while they are read. A last line
    without its end is not complete yet; complete lines that hold no call are skipped and counted.
    """

    def __init__(self, path: Path, keep: int) -> None:
        self.skipped = 0
        self._path = real_path(path)
        self._keep = keep

    def follow(self) -> Generator[Stored | None, None, None]:
        """Yield the calls that are there and those that come, and None whenever there is nothing more yet."""
        current: BinaryIO | None = None
        waiting: list[BinaryIO] = []
        try:
            while True:
                waiting = waiting or self._open_since(current)
                if current is not None:
                    # Once more: it may have been written until it was found that another was begun.
                    yield from self._calls(current)
                if not waiting:
                    yield None
                    continue
                if current is not None:
                    self.skipped += bool(current.read(1))
                    current.close()
                current = waiting.pop(0)
                yield from self._calls(current)
        finally:
            for file in [*waiting, *([current] if current else [])]:
                file.close()

    def _open_since(self, current: BinaryIO | None) -> list[BinaryIO]:
        """Return the files that were begun after *current*, the oldest first."""
        files: dict[object, BinaryIO] = {}
        for name in (self._path, *(f"{self._path}.{number}" for number in range(1, self._keep + 1))):
            file = _open(name)
            if file is None:
                continue
            if current and identity_of(file.fileno()) == identity_of(current.fileno()):
                file.close()
                break
            # One that was renamed meanwhile is met again, under its next name.
            if files.setdefault(identity_of(file.fileno()), file) is not file:
                file.close()
        else:
            if current:
                return _written_since(current, files.values())
        return [*reversed(files.values())]

    def _calls(self, file: BinaryIO) -> Generator[Stored, None, None]:
        """Yield the calls that have been added to *file*."""
        if os.fstat(file.fileno()).st_size < file.tell():
            file.seek(0)
        while line := file.readline():
            if not line.endswith(b"\n"):
                file.seek(-len(line), os.SEEK_CUR)
                return
            call = _call(line)
            if call is None:
                self.skipped += 1
            else:
                yield Stored(line.rstrip(b"\r\n"), call)


def _call(line: bytes) -> dict[str, object] | None:
    try:
        call = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return call if isinstance(call, dict) else None


def _open(path: str) -> BinaryIO | None:
    """Return the file at *path*, or None where there is none yet."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigurationError(f"The call log {quoted(path, 200)} is no regular file.")
        return open(path, "rb")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise ConfigurationError(f"The call log {quoted(path, 200)}: {exc.strerror}.") from exc


def _written_since(current: BinaryIO, files: Iterable[BinaryIO]) -> list[BinaryIO]:
    """Return those of *files*, newest first, that are newer than *current*, which is gone; oldest first."""
    newer: list[BinaryIO] = []
    for file in files:
        if os.fstat(file.fileno()).st_mtime_ns >= os.fstat(current.fileno()).st_mtime_ns:
            newer.insert(0, file)
        else:
            file.close()
    return newer
