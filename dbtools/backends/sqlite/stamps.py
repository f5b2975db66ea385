"""Which schema a file holds: a location or a connection in, a stamp out; and how a file is followed.

A stamp is made of the file's identity, SQLite's own count of changes, and a digest of the schema. The count
goes up with each change of the schema that any process commits, and with each ANALYZE and VACUUM
(https://sqlite.org/pragma.html, schema_version).
"""

import asyncio
import hashlib
import os
import sqlite3
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

from dbtools.backends.sqlite.guard import read_quotes_as_names
from dbtools.backends.sqlite.location import Location, connect, unavailable
from dbtools.errors import DatabaseUnavailable, SchemaChanged

T = TypeVar("T")

SCHEMA_VERSION = "pragma schema_version"  #: counts the changes of the schema
DATA_VERSION = "pragma data_version"  #: differs on a connection once any other one has written to the file


class ConnectionLost(Exception):
    """The connection's thread has ended, or its file is not the one in its place any more."""


def identity_of(location: Location) -> str:
    """Return which file is at *location* now, nothing where none is: another file has another one."""
    try:
        found = os.stat(location.name)
    except OSError:
        return ""
    return f"{found.st_dev}.{found.st_ino}"


def read_file(location: Location, read: Callable[[sqlite3.Connection, str], T]) -> T:
    """Return what *read* makes of the file at *location* and its identity, or raise DatabaseUnavailable.

    The connection is new: another one keeps the schema that it read first, also of a file that was filled
    anew.
    """
    identity = identity_of(location)
    with closing(connect(location)) as connection:
        try:
            return read(connection, identity)
        except sqlite3.Error as exc:
            raise unavailable(location, exc) from exc


def stamp_of(connection: sqlite3.Connection, identity: str) -> str:
    """Return the stamp of the schema that *connection* sees, of the file *identity*."""
    (version,) = connection.execute(SCHEMA_VERSION).fetchone()
    return f"{identity}.{version} {_digest(connection)}"


def _versions(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the version of the schema that *connection* sees, and that of the file."""
    (schema,) = connection.execute(SCHEMA_VERSION).fetchone()
    (content,) = connection.execute(DATA_VERSION).fetchone()
    return schema, content


def _digest(connection: sqlite3.Connection) -> str:
    """Return a short name of the schema as it is written.

    The count may be the same in a file that another program has filled with another database.
    """
    rows = connection.execute("select type, name, cast(sql as blob) from main.sqlite_schema").fetchall()
    return hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:12]


class Opened:
    """The file that a connection opens at this moment, and what the connection has seen of it."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._identity = identity_of(location)
        self._seen = -1, 0  #: the versions of the schema and of the file that were seen last
        self._digest = ""  #: of that schema
        self._stamp = ""  #: of that schema

    def stamp(self, connection: sqlite3.Connection) -> str:
        """Return the stamp of the schema that *connection* sees, or raise ConnectionLost."""
        self._check()
        return stamp_of(connection, self._identity)

    def look(self, connection: sqlite3.Connection) -> None:
        """See what *connection*, in a transaction, has before it; or raise ConnectionLost."""
        self._check()
        # Who fills the file with another database writes to it, and may leave the count as it was.
        versions = _versions(connection)
        if versions == self._seen:
            return
        before, digest = self._seen, self._digest
        self._seen, self._digest = versions, _digest(connection)
        self._stamp = f"{self._identity}.{versions[0]} {self._digest}"
        if self._digest == digest:
            return
        read_quotes_as_names(connection)
        if versions[0] == before[0]:
            # SQLite knows another schema by the same count, and keeps what it has read of it.
            raise ConnectionLost

    def confirm(self, connection: sqlite3.Connection, stamp: str) -> None:
        """Look, and raise SchemaChanged where the schema is not as of *stamp*, if that is known."""
        if not stamp:
            return
        self.look(connection)
        if stamp != self._stamp:
            has_counted = stamp.partition(" ")[0] != self._stamp.partition(" ")[0]
            raise SchemaChanged if has_counted else ConnectionLost

    def confirm_as_seen(self, connection: sqlite3.Connection, stamp: str) -> None:
        """Raise SchemaChanged where the schema is not as of *stamp*, or nobody has seen so since a write.

        As quick for any schema; raise ConnectionLost where the file is another one.
        """
        self._check()
        if stamp != self._stamp or _versions(connection) != self._seen:
            raise SchemaChanged

    def _check(self) -> None:
        # No file at all may be one that is being replaced: what is open can still be read.
        if identity_of(self._location) not in (self._identity, ""):
            raise ConnectionLost


class Watched:
    """A file that is followed: what is read of it is read again whenever anything has been written.

    SQLite tells nobody of a change, so whoever wants to know asks, on a connection that stays open: another
    one would parse the whole schema first. A file that has been replaced is opened anew. One thread opens the
    connection, uses it and closes it, since a look that is cancelled goes on there.
    """

    def __init__(self, location: Location, read: Callable[[], Awaitable[Hashable]]) -> None:
        self._location = location
        self._read = read
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._connection: sqlite3.Connection | None = None
        self._file: Hashable = None  #: that the connection has opened
        self._seen: tuple[Hashable, Hashable] = None, None  #: the version of the file, and what was read

    async def look(self) -> Hashable:
        """Return what is read of the file as it is now, or raise DatabaseUnavailable."""
        version = await asyncio.get_running_loop().run_in_executor(self._thread, self._look)
        if version != self._seen[0]:
            self._seen = version, await self._read()
        return self._seen[1]

    def _look(self) -> Hashable:
        """Return what changes whenever anything in the file has been written."""
        try:
            found = os.stat(self._location.name)
        except OSError as exc:
            raise DatabaseUnavailable("The database file is gone.") from exc
        file = found.st_dev, found.st_ino
        if self._connection is None or file != self._file:
            self._close()
            self._connection, self._file = connect(self._location), file
        try:
            version = self._connection.execute(DATA_VERSION).fetchone()
            return file, version, found.st_mtime_ns, found.st_size
        except sqlite3.Error as exc:
            self._close()
            raise unavailable(self._location, exc) from exc

    def close(self) -> None:
        """Have the thread close the connection and end, after the look that it may be at."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
