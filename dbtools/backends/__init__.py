"""The databases that dbtools speaks: one folder each, and DIALECTS.

A dialect has two halves. Its package reads catalogs and is loaded at once; its `driver` module opens the
pool, compiles and runs statements; it is loaded at the first call, since it costs much to import.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from dbtools import errors
from dbtools.backends.inspected import Reads
from dbtools.catalog import Catalog, Selection
from dbtools.errors import listing
from dbtools.policy import Role
from dbtools.sql import Lexis

if TYPE_CHECKING:
    from dbtools.backends.driver import Driver
    from dbtools.backends.inspected import Inspect
    from dbtools.backends.registered import Change, Registry
    from dbtools.backends.watched import Look

__all__ = [
    "DIALECTS",
    "CallReader",
    "CallWriter",
    "Dialect",
    "announcement_of",
    "call_reader",
    "call_writer",
    "dialect_of",
    "load_driver",
    "resolved_url",
    "url_of_file",
]


class CallWriter(Protocol):
    """What writes the call log to a registry."""

    def write(self, calls: Sequence[Mapping[str, object]]) -> None:
        """Write *calls*, all or none, or raise OSError."""

    def close(self) -> None:
        """Close what is open."""


class CallReader(Protocol):
    """What reads the call log in a registry."""

    def read(self, after: int, seen: Sequence[int], since: str) -> Sequence[tuple[int, Mapping[str, object]]]:
        """Return calls with their numbers, in this order; none where there are no more.

        They come *after* a number and are none of *seen*, and came *since* a time (RFC 3339, UTC). Raise
        DatabaseUnavailable.
        """

    def close(self) -> None:
        """Close what is open."""


class Reader(Protocol):
    """What reads the catalog of a database, and its registry, again and again."""

    async def read(self, selection: Selection) -> Catalog:
        """Return what the database holds now, or raise DatabaseUnavailable."""

    async def registry(self) -> "Registry | None":
        """Return what the registry holds now, None where there is none; or raise DatabaseUnavailable."""

    async def close(self) -> None:
        """Close what is open."""


class Dialect(Protocol):
    """The half of a dialect that reads catalogs and registries."""

    lexis: Lexis
    INTERVAL: float  #: seconds between two looks whether something has changed
    Reader: Callable[[str], Reader]  #: of the database at a URL
    ANNOUNCEMENT: str | None  #: the statement by which a migration tells of itself
    NAMES_CONNECTIONS: bool  #: whether connections have names, by which others see what they do
    WATCH_SCRIPT: str | None  #: with which the database tells of changes by itself

    def check_url(self, url: str) -> None:
        """Raise ConfigurationError where *url* cannot name a database."""

    def inspector(self, url: str, session: Mapping[str, str]) -> "AbstractAsyncContextManager[Inspect]":
        """Lend what asks the database at *url* of queries, or raise DatabaseUnavailable.

        *session* are as for `introspect`.
        """

    async def introspect(self, url: str, selection: Selection, session: Mapping[str, str]) -> Catalog:
        """Return what the database at *url* holds, or raise DatabaseUnavailable.

        *session* are settings of the database that may narrow it; where they cannot be: Refused.
        """

    async def grants(
        self, url: str, catalog: Catalog, roles: Sequence[Role], reads: Reads, login: str
    ) -> str:
        """Return an SQL script for a *login* that reads what *roles* and their queries read of *catalog*.

        Raise ConfigurationError where there are no logins, or where it cannot be told what is read.
        """

    def watcher(self, url: str, heard: "Callable[[], None]") -> "AbstractAsyncContextManager[Look]":
        """Lend what tells the stamp of the schema at *url*, again and again.

        *heard* is called when the database itself tells of a change. Raise DatabaseUnavailable.
        """

    def registry_watcher(self, url: str, heard: Callable[[], None]) -> "AbstractAsyncContextManager[Look]":
        """Lend what tells what `read_registry` of the database at *url* returns, again and again."""

    async def install_watch(self, url: str) -> None:
        """Run WATCH_SCRIPT in the database at *url*, or raise DatabaseUnavailable."""

    async def read_registry(self, url: str) -> "Registry | None":
        """Return what the registry in the database at *url* holds, None where there is none.

        Raise DatabaseUnavailable where it cannot be read.
        """

    async def change_registry(self, url: str, changes: "Sequence[Change]") -> None:
        """Make all *changes* in the registry in the database at *url*, or none: then DatabaseUnavailable."""


#: by the scheme of a URL, up to a plus sign
DIALECTS: Mapping[str, str] = {
    "sqlite": "dbtools.backends.sqlite",
    "postgresql": "dbtools.backends.postgresql",
    "postgres": "dbtools.backends.postgresql",
}


def url_of_file(path: Path) -> str:
    """Return the URL of the database that the file at *path* is."""
    name = str(path.absolute()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    return f"sqlite:///{name}"


def resolved_url(url: str, folder: Path) -> str:
    """Return *url* with a relative path of a file made absolute below *folder*."""
    scheme, separator, rest = url.partition(":///")
    if separator and _module(url) == DIALECTS["sqlite"] and not rest.startswith("/") and rest:
        return f"{scheme}:///{(folder / rest).absolute()}"
    return url


def dialect_of(url: str) -> Dialect:
    """Return the dialect of the database at *url*, or raise ConfigurationError."""
    dialect: Dialect = import_module(_module(url))
    return dialect


def announcement_of(name: str) -> str | None:
    """Return the statement by which a migration of a database of the dialect *name* tells of itself."""
    return dialect_of(f"{name}:").ANNOUNCEMENT if name in DIALECTS else None


def load_driver(url: str) -> "Driver":
    """Return what runs statements on the database at *url*; the first call imports much."""
    driver: Driver = import_module(f"{_module(url)}.driver").DRIVER
    return driver


def call_writer(url: str) -> CallWriter:
    """Return what writes calls to the registry in the database at *url*; nothing is opened yet."""
    writer: CallWriter = import_module(f"{_module(url)}.calls").CallWriter(url)
    return writer


def call_reader(url: str) -> CallReader:
    """Return what reads calls from the registry in the database at *url*; nothing is opened yet."""
    reader: CallReader = import_module(f"{_module(url)}.calls").CallReader(url)
    return reader


def _module(url: str) -> str:
    scheme = url.partition(":")[0].partition("+")[0].lower()
    if scheme not in DIALECTS:
        raise errors.ConfigurationError(
            f"No dialect for URLs that begin with {scheme!r}.",
            hint=f"There are: {listing(DIALECTS)}.",
        )
    return DIALECTS[scheme]
