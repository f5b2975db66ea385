"""The settings that are in force while their files change. Settings in, the newest that can be used out."""

import os
import time
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from dbtools import errors
from dbtools.policy import Finding, Source
from dbtools.service.queries import Written, queries_in, query_files
from dbtools.service.resolve import Kept
from dbtools.settings.files import load
from dbtools.settings.positions import file_error
from dbtools.settings.roles import role_names
from dbtools.settings.sections import Settings
from dbtools.sql import Lexis

#: What a running server does not change: keys, and whole sections.
FIXED = ("database.url", "database.description", "limits.storage", "registry.url", "log", "server")
BAD = "bad_configuration"  #: the code of what keeps files from coming into force
SETTLED = 1  #: seconds in which nobody has written


class Current:
    """The settings of a configuration and its queries, read again when their files have changed.

    Files that are being written are left until nobody has written to them for a while: half of one may allow
    more than the whole. What cannot be used takes nothing down: what was there before stays in force, and
    that is found.
    """

    def __init__(self, settings: Settings, lexis: Lexis, role: str | None = None) -> None:
        self.settings = settings
        self.findings: tuple[Finding, ...] = ()
        self.written = Written()
        self._problems: tuple[Finding, ...] = ()  #: of the file, until it is another
        self.kept: Kept | None = None  #: of what they meant to the database the last time
        self._lexis = lexis
        self.role = role  #: without which a configuration is of no use; None: any is
        self._first = settings
        self.stamp_of_read: Stamp = ()  #: what `stamp` was when they were read; none before that
        self._candidate: Stamp = ()
        self._since = 0.0

    def stamp(self) -> "Stamp":
        """Return what differs when the file, or one in the folder of queries, has changed for good."""
        now = _stamp(self.settings)
        return now if self._is_settled(now) else self.stamp_of_read

    def read(self) -> None:
        """Read the files again where they have changed."""
        now, before = _stamp(self.settings), self.stamp_of_read
        if before and (now == before or not self._is_settled(now)):
            return
        # A worker may begin long after the settings were read.
        is_same = now[0] == before[0] if before else _is_still(self.settings)
        settings, problems = (self.settings, self._problems) if is_same else self._loaded()
        stamp = _stamp(settings)
        beside: tuple[Finding, ...] = ()
        try:
            written = queries_in(settings, self._lexis)
        except errors.ConfigurationError as exc:
            if settings is not self.settings:
                problems = (_kept(exc),)
            elif before:
                beside = (_kept(exc),)
            else:
                raise
            written = self.written if before else queries_in(self.settings, self._lexis)
            settings, stamp = self.settings, _stamp(self.settings)
        if before and (_stamp(settings) != stamp or stamp[0] != now[0]):
            return  # somebody writes at this moment
        self.settings, self.findings, self.written = settings, (*problems, *beside), written
        self._problems, self.stamp_of_read = problems, stamp

    @property
    def is_refused(self) -> bool:
        """Whether the files cannot be used as they are, and what was there before is in force."""
        return any(each.code == BAD for each in self.findings)

    def _loaded(self) -> tuple[Settings, tuple[Finding, ...]]:
        """Return what the file says now, or the settings in force and why it cannot be used."""
        try:
            later = load(Path(self.settings.origin.path), self.settings.origin.file)
            self._check(later)
        except errors.ConfigurationError as exc:
            return self.settings, (_kept(exc),)
        return _fixed(self._first, later)

    def _check(self, later: Settings) -> None:
        """Raise ConfigurationError where *later* cannot take the place of what is in force."""
        roles = role_names(later)
        if self.role is not None and self.role not in roles:
            raise file_error(later.source("roles"), f"There is no role {self.role} any more.")
        if self.role is None and self.settings.auth and not later.auth:
            # A server of all roles asks who calls: half of a file, or a slip, would let in everybody.
            raise file_error(
                later.source("auth"),
                "[auth] is gone or empty, so that nobody would be asked who they are.",
                hint="A server that is to serve everybody has to be started anew.",
            )

    def _is_settled(self, stamp: "Stamp") -> bool:
        """Return whether nobody has written to the files of *stamp* for a while."""
        if stamp != self._candidate:
            self._candidate, self._since = stamp, time.monotonic()
        files = {path: found.written for path, found in stamp if found}
        is_old = bool(files) and max(files.values()) <= time.time_ns() - SETTLED * 1_000_000_000
        # What is gone may be about to come back, as where one file is put in the place of another.
        is_whole = all(path in files for path, found in self.stamp_of_read if found)
        return (is_old and is_whole) or time.monotonic() - self._since >= SETTLED


def _kept(problem: errors.ConfigurationError) -> Finding:
    """Return what is found where files have a *problem*."""
    source = problem.place if isinstance(problem.place, Source) else Source()
    message = f"{problem.message} {problem.hint}".rstrip()
    return Finding(code=BAD, message=f"{message} What was there before stays in force.", source=source)


def _fixed(first: Settings, later: Settings) -> tuple[Settings, tuple[Finding, ...]]:
    """Return *later* with what a running server does not change as in *first*, and what that is."""
    findings: list[Finding] = []
    for name in FIXED:
        old, new = map(attrgetter(name), (first, later))
        if old == new:
            continue
        section, _, key = name.partition(".")
        message = f"{f'[{section}] {key}'.rstrip()}: this is in force after the next start."
        source = later.source(*name.split("."))
        findings.append(Finding(code="next_start", message=message, level="warning", source=source))
        later = later.having(section, key, old) if key else later.model_copy(update={section: old})
    return later, tuple(findings)


def _is_still(settings: Settings) -> bool:
    """Return whether the file of *settings* has the text that they were read from."""
    path = settings.origin.path
    try:
        return not path or Path(path).read_text("utf-8") == settings.origin.text
    except (OSError, UnicodeDecodeError):
        return False


class FileStamp(NamedTuple):
    """What differs when another text is in a file."""

    number: int
    written: int  #: nanoseconds
    size: int


Stamp = tuple[tuple[str, FileStamp | None], ...]  #: by path; that of the configuration itself is first


def _stamp(settings: Settings) -> Stamp:
    """Return what differs when the file of *settings* has changed, or one in the folder of their queries."""
    return ("", _file_stamp(settings.origin.path)), *_folder_stamp(settings.queries.directory)


def _file_stamp(path: str) -> FileStamp | None:
    """Return the stamp of the file at *path*, nothing where none is."""
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return found and FileStamp(number=found.st_ino, written=found.st_mtime_ns, size=found.st_size)


def _folder_stamp(folder: str) -> Stamp:
    """Return what differs when there are other queries in *folder*, in files below it too."""
    try:
        files = query_files(Path(folder)) if folder else ()
    except errors.ConfigurationError as exc:
        return ((str(exc), None),)
    return tuple((str(path), _file_stamp(str(path))) for path in files)
