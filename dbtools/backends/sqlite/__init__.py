"""SQLite: reads the catalog of a file through the standard library's driver."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing

from dbtools.backends.inspected import Reads
from dbtools.backends.registered import Registry
from dbtools.backends.sqlite.inspection import inspector
from dbtools.backends.sqlite.introspection import read_catalog
from dbtools.backends.sqlite.location import NO_SESSION, connect, location_of, unavailable
from dbtools.backends.sqlite.registry import change_registry, read_registry
from dbtools.backends.sqlite.stamps import identity_of
from dbtools.backends.sqlite.syntax import lexis
from dbtools.backends.sqlite.watching import INTERVAL, registry_watcher, watcher
from dbtools.catalog import Catalog, Selection
from dbtools.errors import ConfigurationError, Refused
from dbtools.policy import Role

__all__ = [
    "ANNOUNCEMENT",
    "INTERVAL",
    "NAMES_CONNECTIONS",
    "WATCH_SCRIPT",
    "Reader",
    "change_registry",
    "check_url",
    "grants",
    "inspector",
    "install_watch",
    "introspect",
    "lexis",
    "read_registry",
    "registry_watcher",
    "watcher",
]

#: A file tells nobody.
ANNOUNCEMENT: str | None = None
WATCH_SCRIPT: str | None = None
NAMES_CONNECTIONS = False


def check_url(url: str) -> None:
    """Raise ConfigurationError where *url* names no file."""
    location_of(url)


async def install_watch(url: str) -> None:
    """Raise ConfigurationError: a file tells nobody."""
    raise ConfigurationError("A database file tells nobody of changes.")


class Reader:
    """Reads the catalog of a file again and again, each time on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def read(self, selection: Selection) -> Catalog:
        """Return what the file holds now, or raise DatabaseUnavailable."""
        return await introspect(self._url, selection, {})

    async def registry(self) -> Registry | None:
        """Return what the registry holds now, None where there is none; or raise DatabaseUnavailable."""
        return await read_registry(self._url)

    async def close(self) -> None:
        """Do nothing: nothing stays open."""


async def introspect(url: str, selection: Selection, session: Mapping[str, str]) -> Catalog:
    """Return what the database file at *url* holds."""
    if session:
        raise Refused(NO_SESSION)
    return await asyncio.to_thread(_introspect, url, selection)


def _introspect(url: str, selection: Selection) -> Catalog:
    location = location_of(url)
    identity = identity_of(location)
    with closing(connect(location)) as connection:
        try:
            return read_catalog(connection, selection, identity)
        except sqlite3.Error as exc:
            raise unavailable(location, exc) from exc


async def grants(url: str, catalog: Catalog, roles: Sequence[Role], reads: Reads, login: str) -> str:
    """Raise ConfigurationError: a file knows no logins."""
    raise ConfigurationError(
        "A SQLite database has no logins: whoever may read the file may read all of it.",
        hint="dbtools opens it for reading only, and roles narrow what its callers see.",
    )
