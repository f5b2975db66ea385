"""What a registry holds, and what can be changed in it, as values."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One version of a permitted query that a registry keeps."""

    name: str
    version: int
    text: str  #: the whole query, as in a .sql file
    enabled: bool
    changed_at: str  #: RFC 3339, UTC


@dataclass(frozen=True, kw_only=True)
class Registry:
    """What the tables of a registry hold, as of one moment."""

    revisions: tuple[str, ...]  #: of its tables; none where the database does not tell
    queries: tuple[Registered, ...]  #: by name, the highest version of each first


@dataclass(frozen=True, kw_only=True)
class Save:
    """Keep a query, as a version of its own; of the versions before only the last stays."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Remove:
    """Drop all versions of a query."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Enable:
    """Serve the current version of a query."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Disable:
    """Do not serve a query, and keep it."""

    name: str


Change = Save | Remove | Enable | Disable
