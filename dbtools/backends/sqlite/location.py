"""Where a SQLite database is, and how it is opened: the URL of a file in, a connection out."""

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import parse_qs, quote, unquote

from dbtools import errors

T = TypeVar("T")

LOCK_TIMEOUT = 5.0  #: seconds that a reader waits for the lock of somebody who writes
STATEMENTS = 256  #: prepared statements that a connection keeps


@dataclass(frozen=True, kw_only=True)
class Location:
    """A database file, and whether it is taken as one that nobody writes."""

    path: Path
    immutable: bool = False

    @cached_property
    def name(self) -> str:
        """The path as a text, since each call asks the system for the file."""
        return str(self.path)


def location_of(url: str) -> Location:
    """Return where *url* points, or raise ConfigurationError; `?immutable=1` may stand behind it."""
    _, _, rest = url.partition("://")
    text, _, query = rest.partition("?")
    if not text.startswith("/") or text == "/" or "\0" in unquote(text):
        raise errors.ConfigurationError(
            "This URL names no database file.",
            hint="Write sqlite:///shop.db or sqlite:////srv/shop.db.",
        )
    options = parse_qs(query)
    immutable = options.get("immutable", ["0"])[-1] in ("1", "true")
    written = text[1:]
    path = written if os.path.exists(written) else unquote(written)
    return Location(path=Path(path).absolute(), immutable=immutable)


def open_file(
    location: Location, *, mode: Literal["ro", "rw"] = "ro", lock_timeout: float = LOCK_TIMEOUT
) -> sqlite3.Connection:
    """Open *location* in autocommit mode, for reading only unless *mode* is "rw"; or raise sqlite3.Error.

    Each statement waits *lock_timeout* seconds for a lock. Any thread may use the connection.
    """
    # The options of a URI: https://sqlite.org/uri.html
    immutable = "&immutable=1" if location.immutable and mode == "ro" else ""
    return sqlite3.connect(
        f"file:{quote(location.name)}?mode={mode}{immutable}",
        uri=True,
        isolation_level=None,
        cached_statements=STATEMENTS,
        check_same_thread=False,
        timeout=lock_timeout,
    )


def connect(location: Location, *, lock_timeout: float = LOCK_TIMEOUT) -> sqlite3.Connection:
    """Open *location* for reading, or raise DatabaseUnavailable with what can be done."""
    if not os.path.isfile(location.path):
        raise errors.DatabaseUnavailable("The database file does not exist.")
    try:
        connection = open_file(location, lock_timeout=lock_timeout)
        connection.execute("select count(*) from sqlite_schema").fetchone()
    except sqlite3.Error as exc:
        raise unavailable(location, exc) from exc
    return connection


def read_any_text(connection: sqlite3.Connection, read: Callable[[], T]) -> T:
    """Return what *read* reads on *connection*; bytes that are no UTF-8 are surrogates in it (PEP 383)."""
    try:
        return read()
    except sqlite3.OperationalError as exc:
        if not str(exc).startswith("Could not decode"):
            raise
    # It is read again by way of the bytes, which costs more.
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")
    try:
        return read()
    finally:
        connection.text_factory = str


def unavailable(location: Location, exc: sqlite3.Error) -> errors.DatabaseUnavailable:
    """Return what keeps *location* from being opened."""
    name = getattr(exc, "sqlite_errorname", "")
    if wants_recovery(exc):
        return to_be_recovered()
    if name.startswith("SQLITE_NOTADB"):
        return errors.DatabaseUnavailable("The file is not a SQLite database.")
    writable = os.access(location.path.parent, os.W_OK)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY")) and not writable:
        return errors.DatabaseUnavailable(
            "The database is in WAL mode in a folder that cannot be written, so it cannot be opened.",
            hint="If nobody writes to it, add ?immutable=1 to its URL, else make the folder writable.",
        )
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return errors.DatabaseUnavailable("The database file is locked by another program.")
    return errors.DatabaseUnavailable("The database file cannot be read.")


def wants_recovery(error: Exception) -> bool:
    """Return whether a program stopped while writing, which a reader cannot undo."""
    return getattr(error, "sqlite_errorname", "") in ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY")


def to_be_recovered() -> errors.DatabaseUnavailable:
    """Return what is said of a file that has to be recovered."""
    return errors.DatabaseUnavailable(
        "The database file has to be recovered: a program stopped while writing to it.",
        hint="Open it once with a program that may write to it, such as `sqlite3 FILE .tables`.",
    )
