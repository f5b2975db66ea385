"""Which schema a file holds: a location or a connection in, a stamp out; and how a file is followed.

A stamp is made of the file's identity, SQLite's own count of changes, and a digest of the schema. The count
goes up with each change of the schema that any process commits, and with each ANALYZE and VACUUM
(https://sqlite.org/pragma.html, schema_version).
"""

import asyncio
import hashlib
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import closing, suppress
from typing import TypeVar

from dbtools.backends.sqlite.location import Location, connect, unavailable
from dbtools.errors import DatabaseUnavailable

T = TypeVar("T")

SCHEMA_VERSION = "pragma schema_version"  #: counts the changes of the schema
DATA_VERSION = "pragma data_version"  #: differs on a connection once any other one has written to the file
SCHEMA = "select type, name, cast(sql as blob) from main.sqlite_schema"
TICK = 2.0  #: seconds: two writes within one tick of a file system's clock look like one


class ConnectionLost(Exception):
    """The connection's thread has ended, or it has opened another file or schema than there is now."""


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
    rows = connection.execute(SCHEMA).fetchall()
    digest = hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{identity}.{version} {digest}"


class Opened:
    """The file and the schema that a connection has opened. It serves no other ones.

    SQLite keeps what it has read of a schema while the count is the same, and another program may fill the
    file with a database of the same count.
    """

    def __init__(self, location: Location) -> None:
        self._location = location
        self._identity = identity_of(location)
        self._seen = -1, -1  #: the versions when the stamp was read
        self._stamp = ""

    def stamp(self, connection: sqlite3.Connection) -> str:
        """Return the stamp of what *connection*, in a transaction, reads; or raise ConnectionLost."""
        versions = self._versions(connection)
        if versions != self._seen:
            stamp = stamp_of(connection, self._identity)
            if self._stamp not in ("", stamp):
                raise ConnectionLost
            self._seen, self._stamp = versions, stamp
        return self._stamp

    def is_seen_as(self, connection: sqlite3.Connection, stamp: str) -> bool:
        """Return whether *stamp* was read, and nothing written since: as quick for any schema."""
        return stamp == self._stamp != "" and self._versions(connection) == self._seen

    def _versions(self, connection: sqlite3.Connection) -> tuple[int, int]:
        """Return the version of the schema that *connection* sees, and that of the file."""
        # No file at all may be one that is being replaced: what is open can still be read.
        if identity_of(self._location) not in (self._identity, ""):
            raise ConnectionLost
        (schema,) = connection.execute(SCHEMA_VERSION).fetchone()
        (content,) = connection.execute(DATA_VERSION).fetchone()
        return schema, content


class Watched:
    """A file that is followed: what is read of it is read again when the file has been written."""

    def __init__(self, location: Location, read: Callable[[], Awaitable[Hashable]]) -> None:
        self._location = location
        self._read = read
        self._seen: tuple[Hashable, Hashable] = None, None  #: the state of the files, and what was read

    async def look(self) -> Hashable:
        """Return what is read of the file as it is now, or raise DatabaseUnavailable."""
        state, written = await asyncio.to_thread(_state_of, self._location)
        if state != self._seen[0] or time.time() - written < TICK:
            self._seen = state, await self._read()
        return self._seen[1]


def _state_of(location: Location) -> tuple[Hashable, float]:
    """Return what changes when the file at *location* or its log is written, and when that was last."""
    try:
        found = [os.stat(location.name)]
    except OSError as exc:
        raise DatabaseUnavailable("The database file is gone.") from exc
    with suppress(FileNotFoundError):
        found.append(os.stat(f"{location.name}-wal"))
    state = tuple((each.st_dev, each.st_ino, each.st_mtime_ns, each.st_size) for each in found)
    return state, max(each.st_mtime for each in found)
