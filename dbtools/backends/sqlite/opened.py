"""What a connection has opened: a file, the schema in it, and whether both are still what they were."""

import sqlite3
from dataclasses import dataclass

from dbtools.backends.sqlite.guard import read_quotes_as_names
from dbtools.backends.sqlite.location import Location
from dbtools.backends.sqlite.stamps import data_version_of, digest_of, identity_of, stamp_of, version_of
from dbtools.errors import SchemaChanged


class ConnectionLost(Exception):
    """The connection's thread has ended, or its file is not the one in its place any more."""


@dataclass(kw_only=True)
class Opened:
    """The file that a connection has opened, and what the connection has seen of it."""

    location: Location
    identity: str
    version: str = ""  #: of the schema that was seen last, and
    written: int = 0  #: what `data_version_of` was then
    digest: str = ""  #: of that schema

    def stamp(self, connection: sqlite3.Connection) -> str:
        """Return the stamp of the schema that *connection* sees, or raise ConnectionLost."""
        self._check()
        return stamp_of(connection, self.identity)

    def confirm(self, connection: sqlite3.Connection, stamp: str) -> None:
        """Raise SchemaChanged where the schema is not as of *stamp*, or ConnectionLost; nothing is of any."""
        if not stamp:
            return
        self._check()
        version, _, digest = stamp.partition(" ")
        if version_of(connection, self.identity) != version:
            raise SchemaChanged
        self._look(connection, version)
        if self.digest != digest:
            raise ConnectionLost

    def confirm_as_seen(self, connection: sqlite3.Connection, stamp: str) -> None:
        """Raise SchemaChanged where the schema is not as of *stamp*, or nobody has seen so since a write.

        As quick for any schema; raise ConnectionLost where the file is another one.
        """
        self._check()
        seen = f"{self.version} {self.digest}" == stamp
        if not seen or version_of(connection, self.identity) != self.version:
            raise SchemaChanged
        if data_version_of(connection) != self.written:
            raise SchemaChanged

    def look(self, connection: sqlite3.Connection) -> None:
        """See what *connection*, in a transaction, has before it; or raise ConnectionLost."""
        self._check()
        self._look(connection, version_of(connection, self.identity))

    def _look(self, connection: sqlite3.Connection, version: str) -> None:
        # Who fills the file with another database writes to it, and may leave the count as it was.
        written = data_version_of(connection)
        if (version, written) == (self.version, self.written):
            return
        known, seen = self.digest if version == self.version else "", self.digest
        self.version, self.written, self.digest = version, written, digest_of(connection)
        if self.digest != seen:
            read_quotes_as_names(connection)
        if known not in ("", self.digest):
            # SQLite knows another schema by the same count, and keeps what it has read of it.
            raise ConnectionLost

    def _check(self) -> None:
        # No file at all may be one that is being replaced: what is open can still be read.
        if identity_of(self.location) not in (self.identity, ""):
            raise ConnectionLost


def open_file(where: Location) -> Opened:
    """Return what a connection to *where* opens at this moment."""
    return Opened(location=where, identity=identity_of(where))
