"""Follow the files of a configuration. Settings in; the newest valid settings out."""

import logging
import time
from operator import attrgetter
from pathlib import Path

from dbtools import errors
from dbtools.configured.query_sources import LoadedQueries, queries_in, query_files
from dbtools.configured.roles import role_names
from dbtools.findings import Finding, FindingCode, Kind, Source, finding
from dbtools.schema.sql import Lexis
from dbtools.settings.files import load
from dbtools.settings.sections import Settings
from dbtools.settings.toml_file import FileStamp, file_error, stamp_of

#: Keys and whole sections that a running server does not change.
FIXED = (
    *("database.url", "database.write_url", "database.lock_timeout", "database.writable"),
    *("database.description", "limits.storage", "registry.url", "log", "server"),
)
logger = logging.getLogger("dbtools")
SETTLED = 1.0  #: seconds since the last change to a file
Stamp = tuple[tuple[str, FileStamp | None], ...]  #: by path; the first is the configuration


class CurrentSettings:
    """The settings of a configuration and its queries, read again when their files have changed.

    A file that changed a moment ago is read later, because half of a file may allow more than the whole file.
    Files that cannot be used are reported, and the previous settings stay in force.
    """

    def __init__(self, settings: Settings, lexis: Lexis, role: str | None = None) -> None:
        self.settings = settings
        self.loaded_queries = LoadedQueries()
        self.findings: tuple[Finding, ...] = ()
        self.role = role  #: the only one to serve; None: all
        self.stamp_of_read: Stamp = ()  #: `stamp` when the files were read; empty before
        self._lexis = lexis
        self._first = settings
        self._loaded = settings

    def stamp(self) -> Stamp:
        """Return a value that differs after a change to the file or to a query file, once it has settled."""
        now = _stamp(self.settings)
        return now if _is_settled(now) else self.stamp_of_read

    def read(self) -> None:
        """Read the files again if they have changed; raise ConfigurationError if queries are too many."""
        before, now = self.stamp_of_read, _stamp(self.settings)
        if before and (now == before or not _is_settled(now)):
            return
        try:
            settings, findings = self._later_settings(now)
            stamp = _stamp(settings)
            written = queries_in(settings, self._lexis)
        except errors.ConfigurationError as exc:
            settings, findings = self.settings, _refusal_findings(exc)
            stamp, written = now, queries_in(settings, self._lexis)
        except Exception as exc:
            # An edge: whatever a file holds, calls and later migrations go on under the previous one.
            if not before:
                raise
            logger.exception("internal error while the configuration is read")
            settings, findings = self.settings, _refusal_findings(exc)
            stamp, written = now, self.loaded_queries
        if before and (_stamp(settings) != stamp or stamp[0] != now[0] or not _is_settled(stamp)):
            return  # files are changing right now
        self.settings, self.findings = settings, findings
        self.loaded_queries, self.stamp_of_read = written, stamp

    @property
    def is_refused(self) -> bool:
        """Whether the files cannot be used, so the previous ones are in force."""
        return any(each.code is FindingCode.BAD_CONFIGURATION for each in self.findings)

    def _later_settings(self, now: Stamp) -> tuple[Settings, tuple[Finding, ...]]:
        """Return the settings in the file, and findings about values that need a restart."""
        origin = self._loaded.origin
        later = self._loaded if now[0][1] == origin.stamp else load(Path(origin.path), origin.file)
        roles = role_names(later)
        if self.role is not None and self.role not in roles:
            raise file_error(later.source("roles"), f"The role {self.role} no longer exists.")
        if self.role is None and self.settings.auth and not later.auth:
            # Half of a file, or a typo, must not remove authentication.
            raise file_error(
                later.source("auth"),
                "[auth] is missing or empty, so anyone could call without authentication.",
                hint="To serve callers without authentication, restart the server.",
            )
        self._loaded = later
        return _with_fixed_settings(self._first, later)


def internal_error(problem: Exception) -> str:
    """Return a sentence that names the class of *problem* alone: its text may quote secrets."""
    return f"Internal error: {type(problem).__name__}. The server's log shows where."


def _refusal_findings(problem: Exception) -> tuple[Finding, ...]:
    if not isinstance(problem, errors.ConfigurationError):
        return (_kept_finding(internal_error(problem), Source()),)
    return tuple(
        _kept_finding(
            f"{each.message} {each.hint}".rstrip(), each.place if isinstance(each.place, Source) else Source()
        )
        for each in problem.mistakes
    )


def _kept_finding(problem: str, source: Source) -> Finding:
    return finding(Kind.BAD_CONFIGURATION, source, problem=problem)


def _with_fixed_settings(first: Settings, later: Settings) -> tuple[Settings, tuple[Finding, ...]]:
    """Return *later* with the values of *first* that need a restart, and findings about these."""
    findings: list[Finding] = []
    for name in FIXED:
        old, new = map(attrgetter(name), (first, later))
        if old == new:
            continue
        section, _, key = name.partition(".")
        source = later.source(*name.split("."))
        findings.append(finding(Kind.NEXT_START, source, key=f"[{section}] {key}".rstrip()))
        later = later.with_value(section, key, old) if key else later.model_copy(update={section: old})
    return later, tuple(findings)


def _stamp(settings: Settings) -> Stamp:
    """Return the stamps of the file of *settings* and of its query files."""
    folder = settings.queries.directory
    try:
        paths = list(map(str, query_files(Path(folder)))) if folder else []
    except errors.ConfigurationError:
        paths = [folder]
    return tuple((path, stamp_of(path)) for path in (settings.origin.path, *paths))


def _is_settled(stamp: Stamp) -> bool:
    now = time.time_ns()
    return all(abs(now - found.written) >= SETTLED * 1e9 for _, found in stamp if found)
