"""The settings that are in force while their files change. Settings in, the newest that can be used out."""

import os
from collections.abc import Hashable, Sequence
from pathlib import Path

from dbtools import errors
from dbtools.config.files import load
from dbtools.config.sections import Settings
from dbtools.policy import Finding

#: What a running server does not change, by section and key; None: the whole section.
FIXED = (("database", "url"), ("limits", "storage"), ("registry", "url"), ("log", None), ("server", None))


class Current:
    """The settings of a configuration, read again when its file has changed.

    One that cannot be used takes nothing down: what was there before stays in force, and that is found.
    """

    def __init__(self, settings: Settings, role: str | None = None) -> None:
        self.settings = settings
        self.findings: tuple[Finding, ...] = ()
        self._role = role  #: without which a configuration is of no use; None: any is
        self._first = settings
        self._read = _file_stamp(settings.path)

    def stamp(self) -> Hashable:
        """Return what differs when the file, or one in the folder of queries, has changed."""
        return _file_stamp(self.settings.path), _folder_stamp(self.settings.queries.directory)

    def stamp_of_read(self) -> Hashable:
        """Return the same of the settings that are in force: what was there when they were read."""
        return self._read, _folder_stamp(self.settings.queries.directory)

    def read(self) -> None:
        """Read the file again where it has changed."""
        path = self.settings.path
        stamp = _file_stamp(path)
        if stamp == self._read:
            return
        self._read = stamp
        try:
            settings = load(Path(path))
            if self._role is not None and settings.roles and self._role not in settings.roles:
                problem = f"There is no role {self._role} any more."
                raise errors.ConfigurationError(f"{settings.file}: {problem}")
        except errors.ConfigurationError as exc:
            message = f"{exc} What was there before stays in force."
            self.findings = (Finding(code="bad_configuration", message=message),)
            return
        self.settings, self.findings = _fixed(self._first, settings)


def _fixed(first: Settings, later: Settings) -> tuple[Settings, tuple[Finding, ...]]:
    """Return *later* with what a running server does not change as in *first*, and what that is."""
    findings: list[Finding] = []
    for name, key in FIXED:
        old, new = getattr(first, name), getattr(later, name)
        if key is not None:
            old, new = getattr(old, key), getattr(new, key)
        if old == new:
            continue
        place = f"[{name}] {key}" if key else f"[{name}]"
        source = later.source(*filter(None, (name, key)))
        message = f"{place}: this is in force after the next start."
        findings.append(Finding(code="next_start", message=message, level="warning", source=source))
        kept = getattr(later, name).model_copy(update={key: old}) if key else old
        later = later.model_copy(update={name: kept})
    return later, tuple(findings)


def _file_stamp(path: str) -> Hashable:
    """Return what differs when another text is at *path*, nothing where no file is."""
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return found and (found.st_ino, found.st_mtime_ns, found.st_size)


def _folder_stamp(folder: str) -> Hashable:
    """Return what differs when there are other queries in *folder*, in files below it too."""
    if not folder:
        return None
    return tuple((str(path), _file_stamp(str(path))) for path in query_files(Path(folder)))


def query_files(folder: Path) -> Sequence[Path]:
    """Return the files of queries in *folder* and below it; those whose names end in .SQL are such, too."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() == ".sql")
