"""Whether a database file has changed: its schema, and the registry in it. A URL in, answers out.

SQLite tells nobody of a change, and whoever wants to know asks: on a connection that stays open, since
another one would parse the whole schema first. A file that has been replaced by another is opened anew.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager

from dbtools.backends.port import Look
from dbtools.backends.sqlite.location import Location, connect, location_of, unavailable
from dbtools.backends.sqlite.registry import read_registry
from dbtools.backends.sqlite.stamps import identity_of, stamp_of
from dbtools.errors import DatabaseUnavailable

INTERVAL = 1.0  #: seconds between two looks


class Watched:
    """A file, and the connection that looks at it; each look is on one thread or another, never on two."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._identity = ""
        self._connection: sqlite3.Connection | None = None
        self._seen: tuple[Hashable, str] = None, ""  #: what was written last, and the stamp then

    def stamp(self) -> str:
        """Return the stamp of the schema now, or raise DatabaseUnavailable."""
        version = self.version()
        if version != self._seen[0]:
            # SQLite has the schema in mind that it has read first, also of a file that was filled anew.
            self.close()
            connection = self._opened()
            try:
                self._seen = version, stamp_of(connection, self._identity)
            except sqlite3.Error as exc:
                self.close()
                raise unavailable(self._location, exc) from exc
            self._seen = self.version(), self._seen[1]
        return self._seen[1]

    def version(self) -> Hashable:
        """Return what changes whenever anything in the file has been written."""
        connection = self._opened()
        try:
            found = os.stat(self._location.path)
            version = connection.execute("pragma data_version").fetchone()
            return self._identity, *version, found.st_mtime_ns, found.st_size
        except OSError as exc:
            raise DatabaseUnavailable("The database file is gone.") from exc
        except sqlite3.Error as exc:
            self.close()
            raise unavailable(self._location, exc) from exc

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        identity = identity_of(self._location)
        if not identity:
            raise DatabaseUnavailable("The database file is gone.")
        if self._connection is None or identity != self._identity:
            self.close()
            self._connection, self._identity = connect(self._location), identity
        return self._connection


@asynccontextmanager
async def watcher(url: str, heard: Callable[[], None]) -> AsyncIterator[Look]:
    """Lend what tells the stamp of the schema; nothing is ever *heard*."""
    watched = Watched(location_of(url))

    async def look() -> Hashable:
        return await asyncio.to_thread(watched.stamp)

    try:
        yield look
    finally:
        watched.close()


@asynccontextmanager
async def registry_watcher(url: str, heard: Callable[[], None]) -> AsyncIterator[Look]:
    """Lend what tells what the registry holds: it is read where the file has been written."""
    watched = Watched(location_of(url))
    seen: tuple[Hashable, Hashable] = None, None

    async def look() -> Hashable:
        nonlocal seen
        version = await asyncio.to_thread(watched.version)
        if version != seen[0]:
            seen = version, await read_registry(url)
        return seen[1]

    try:
        yield look
    finally:
        watched.close()
