"""The tables that dbtools keeps in a SQLite file. A location in; a Registry or a RecordStore out."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dbtools.backends.records import NO_REGISTRY, QUERIES, REVISIONS, Purpose, Registry, registry_from
from dbtools.backends.sqlite.connection.files import (
    BUSY,
    FileLocation,
    connect,
    has_code,
    open_file,
    opening_error,
)
from dbtools.errors import DatabaseUnavailable

LARGEST_QUERY = 4 * 2**20  #: bytes of one query
REGISTRY_LOCK_TIMEOUT = 5.0  #: seconds
HAS_TABLE = "select count(*) from main.sqlite_schema where type = 'table' and name = ?"


def registry_of(connection: sqlite3.Connection, _: str) -> Registry | None:
    """Return the content of the registry on *connection*, None if there is none."""
    connection.text_factory = decode_text
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_QUERY)
    connection.execute("begin")
    if not _has(connection, "dbtools_query"):
        return None
    versioned = _has(connection, "dbtools_version")
    try:
        return registry_from(
            connection.execute(REVISIONS.format("main.dbtools_version")) if versioned else (),
            connection.execute(QUERIES.format("main.dbtools_query")),
        )
    except sqlite3.Error as exc:
        raise DatabaseUnavailable("The registry cannot be read.") from exc


def has_journal(connection: sqlite3.Connection) -> bool:
    """Return whether the file keeps which changes have been made."""
    return _has(connection, "dbtools_write")


def decode_text(text: bytes) -> str:
    """Return *text*, in which U+FFFD replaces what is not valid UTF-8."""
    return text.decode(errors="replace")


def _has(connection: sqlite3.Connection, table: str) -> bool:
    return bool(connection.execute(HAS_TABLE, (table,)).fetchone()[0])


class SqliteRecords:
    """The RecordStore in a file. A write waits *timeout* seconds for a lock."""

    DIALECT = "sqlite"
    SCHEMA = "main"

    def __init__(self, location: FileLocation, timeout: float | None) -> None:
        self._location = location
        self._timeout = REGISTRY_LOCK_TIMEOUT if timeout is None else timeout
        self._connection: sqlite3.Connection | None = None

    def moment(self, text: str) -> str:
        """Return *text* as SQLite writes times."""
        return text.replace("T", " ").removesuffix("Z")

    @contextmanager
    def begin(self, purpose: Purpose) -> Iterator[None]:
        """Begin a transaction."""
        reads = purpose is Purpose.READ_CALLS
        try:
            if self._connection is None:
                self._connection = connect(self._location) if reads else self._write_connection()
                self._connection.text_factory = decode_text
            self._connection.execute("begin" if reads else "begin immediate")
            if reads and not _has(self._connection, "dbtools_call"):
                raise DatabaseUnavailable(NO_REGISTRY)
            yield
            self._connection.execute("commit")
        except BaseException as exc:
            self.close()
            if isinstance(exc, sqlite3.Error):
                if has_code(exc, (*BUSY, "SQLITE_NOTADB")):
                    raise opening_error(self._location, exc) from exc
                raise OSError(str(exc)) from exc
            raise

    def _write_connection(self) -> sqlite3.Connection:
        connect(self._location).close()  # explains what is wrong with the file
        return open_file(self._location, mode="rw", lock_timeout=self._timeout)

    def fetch(self, sql: str, values: Sequence[object]) -> Sequence[Sequence[Any]]:
        """Run *sql* and return its rows."""
        assert self._connection is not None
        return self._connection.execute(sql, values).fetchall()

    def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Run *sql* once for each of *rows*."""
        assert self._connection is not None
        self._connection.executemany(sql, rows)

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
