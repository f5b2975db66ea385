"""The tables that dbtools keeps in a database. Rows of a registry in, values out; and RecordStore."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum, auto
from itertools import groupby
from typing import Any, Protocol

from dbtools import errors
from dbtools.values.types import quote

REVISION = "registry_0001"  #: of the tables that this release reads and writes, as named in `migrations`
#: What to do with the tables of another one.
OTHER_REVISION = (
    "Use the version of dbtools that created it. If its content is not needed, drop the tables "
    "dbtools_query, dbtools_call, dbtools_write and dbtools_version, and run `dbtools registry upgrade URL`."
)
NO_REGISTRY = "The database has no registry."
#: SQL for every database, because a server reads the registry before it imports SQLAlchemy. Texts are cut to
#: bound memory.
REVISIONS = "select cast(version_num as text) from {}"
QUERIES = """
select
    coalesce(cast(name as text), ''),
    coalesce(cast(version as integer), 0),
    coalesce(substr(cast(text as text), 1, 4194304), ''),
    coalesce(enabled, false),
    cast(changed_at as text)
from {}
"""


@dataclass(frozen=True, kw_only=True)
class QueryVersion:
    """One version of a permitted query in a registry."""

    name: str
    version: int
    text: str  #: the whole query, as in a .sql file
    enabled: bool
    changed_at: str  #: RFC 3339, UTC


@dataclass(frozen=True, kw_only=True)
class RegistryEntry:
    """One query of a registry."""

    current: QueryVersion
    previous: QueryVersion | None  #: the previous version; None for a new query


@dataclass(frozen=True, kw_only=True)
class Registry:
    """The content of a registry at one moment."""

    revisions: tuple[str, ...]  #: of its tables; empty if unknown
    queries: tuple[QueryVersion, ...]  #: by name, the latest version first
    problem: str = ""  #: why it cannot be read

    def entries(self) -> Mapping[str, RegistryEntry]:
        """Return the queries by name, or raise DbtoolsError if they cannot be read.

        Raise ConfigurationError if another release created the registry.
        """
        if self.problem:
            raise errors.DatabaseUnavailable(self.problem)
        others = sorted({*self.revisions} - {REVISION})
        if others:
            raise errors.ConfigurationError(
                f"The registry has version {quote(others[-1])}: this dbtools needs {REVISION}.",
                hint=OTHER_REVISION,
            )
        entries: dict[str, RegistryEntry] = {}
        for name, group in groupby(self.queries, lambda each: each.name):
            current, *before = group
            entries[name] = RegistryEntry(current=current, previous=before[0] if before else None)
        return entries


def registry_from(revisions: Iterable[Sequence[Any]], queries: Iterable[Sequence[Any]]) -> Registry:
    """Return the registry from the rows of REVISIONS and QUERIES."""
    versions = [_version(*row) for row in queries]
    return Registry(
        revisions=tuple(sorted(each for (each,) in revisions if str(each).startswith("registry_"))),
        queries=tuple(sorted(versions, key=lambda each: (each.name, -each.version))),
    )


def _version(name: str, version: int, text: str, enabled: object, changed: object) -> QueryVersion:
    moment = moment_of(changed)
    changed_at = rfc3339(moment, "seconds") if moment else ""
    return QueryVersion(name=name, version=version, text=text, enabled=bool(enabled), changed_at=changed_at)


def rfc3339(moment: datetime, timespec: str = "milliseconds") -> str:
    """Return *moment* as RFC 3339 in UTC, to the unit of *timespec*."""
    return moment.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


def moment_of(written: object) -> datetime | None:
    """Return the time in *written*, a value of a database, in UTC by default; None if it is not a time."""
    try:
        moment = datetime.fromisoformat(str(written))
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class Purpose(Enum):
    """The purpose of a transaction of a store."""

    READ_CALLS = auto()
    APPEND_CALLS = auto()
    CHANGE_QUERIES = auto()  #: one at a time; servers are notified


class RecordStore(Protocol):
    """The tables that dbtools keeps in a database, for one thread at a time.

    It opens a connection when needed, and another one after an error. It raises OSError with the database's
    message, and DatabaseUnavailable if the tables or the database do not exist.
    """

    DIALECT: str  #: SQLAlchemy's name of the SQL
    SCHEMA: str  #: of the tables

    def moment(self, text: str) -> object:
        """Return the time *text* (RFC 3339, UTC) as the driver takes it."""

    def begin(self, purpose: Purpose) -> AbstractContextManager[object]:
        """Begin a transaction, after checking that the tables exist and have a trusted owner."""

    def fetch(self, sql: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        """Run *sql* in the transaction, and return its rows."""

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run *sql* in the transaction once for each of *rows* of values."""

    def close(self) -> None:
        """Close the connection."""
