"""A SQLite file: open it, explain why it cannot be opened, stamp its schema and watch it for changes.

A stamp consists of the file's identity, SQLite's schema_version, and a digest of the schema. schema_version
increases whenever any process changes the schema, and with each ANALYZE and VACUUM
(https://sqlite.org/pragma.html).
"""

import asyncio
import hashlib
import os
import sqlite3
import stat
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import parse_qs, quote, unquote

from dbtools import errors
from dbtools.errors import DatabaseUnavailable

T = TypeVar("T")
LOCK_TIMEOUT = 5.0  #: seconds that a reader waits for a writer's lock
STATEMENTS = 256  #: prepared statements that a connection caches
SAMPLE = 2**12  #: bytes at the beginning of a file that show whether it is a text
UNREADABLE = ("The database file cannot be read.", "")
LOCKED = (
    "The database file is locked by another program.",
    "Try again when that has finished writing, or end it.",
)
RECOVERY = (
    "The database file has to be recovered: a program stopped while writing to it.",
    "Open it once with a program that may write to it, such as `sqlite3 FILE .tables`.",
)
CLOSED_FOLDER = (
    "The database is in WAL mode in a folder that cannot be written, so it cannot be opened.",
    "If no program writes to it, add ?immutable=1 to its URL; otherwise make the folder writable.",
)
#: The message and the remedy, by the beginning of SQLite's name for the error.
FAULTS: Mapping[str, tuple[str, str]] = {
    "SQLITE_BUSY": LOCKED,
    "SQLITE_LOCKED": LOCKED,
    "SQLITE_CORRUPT": (
        "The database file is damaged.",
        "`sqlite3 FILE .recover` saves what can be read; a backup is better.",
    ),
    "SQLITE_READONLY_ROLLBACK": RECOVERY,
    "SQLITE_READONLY_RECOVERY": RECOVERY,
    "SQLITE_READONLY": CLOSED_FOLDER,
    "SQLITE_CANTOPEN": CLOSED_FOLDER,
}
TEXT = (
    "This is a text file, not a SQLite database.",
    "Make a database of it first: `sqlite3 NEW.db`, then .read FILE for SQL or .import FILE TABLE for CSV.",
)
OTHER = (
    "This is not a SQLite database, or an encrypted one (SQLCipher, SEE), which dbtools cannot read.",
    "Decrypt it into another file: sqlcipher_export() of SQLCipher does.",
)
SCHEMA_VERSION = "pragma schema_version"
SCHEMA = "select type, name, cast(sql as blob) from main.sqlite_schema"
TICK = 2.0  #: seconds: two writes within one tick of a file system's clock have the same time


@dataclass(frozen=True, kw_only=True)
class Location:
    """A database file, and whether to assume that no program writes to it."""

    path: Path
    given: str = ""  #: the path as written
    immutable: bool = False

    @cached_property
    def name(self) -> str:
        """The path as text, for the system call that each tool call makes."""
        return str(self.path)


def location_of(url: str) -> Location:
    """Return the file at *url*, which may end in `?immutable=1`, or raise ConfigurationError."""
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
    return Location(path=Path(path).absolute(), given=path, immutable=immutable)


def encoded(path: Path) -> str:
    """Return *path* encoded for a URL."""
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


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
    """Open *location* for reading, or raise DatabaseUnavailable with a remedy."""
    check_file(location)
    try:
        connection = open_file(location, lock_timeout=lock_timeout)
        connection.execute("select count(*) from sqlite_schema").fetchone()
    except sqlite3.Error as exc:
        raise unavailable(location, exc) from exc
    return connection


def check_file(location: Location) -> None:
    """Raise DatabaseUnavailable if *location* is not a file that this user may read."""
    try:
        mode = os.stat(location.path).st_mode
        # The file is not opened: to close it would release the locks of every connection in this process
        # (https://sqlite.org/howtocorrupt.html, 2.2).
        if stat.S_ISREG(mode) and not os.access(location.path, os.R_OK):
            raise PermissionError
        if stat.S_ISREG(mode):
            return
    except PermissionError as exc:
        hint = "Let the user who runs dbtools read it, and enter each folder above it."
        raise _fault(location, "This user may not read the database file.", hint) from exc
    except (FileNotFoundError, NotADirectoryError) as exc:
        hint = errors.nearest_path(Path(location.given))
        raise _fault(location, "The database file does not exist.", hint) from exc
    except OSError as exc:
        raise _fault(location, *UNREADABLE) from exc
    if stat.S_ISDIR(mode):
        raise _fault(location, "This is a folder, not a database file.", "Name the file in it.")
    raise _fault(location, "This is not a regular file.")


def _fault(location: Location, message: str, hint: str = "") -> errors.DatabaseUnavailable:
    return errors.DatabaseUnavailable(f"{location.given or location.path}: {message}", hint=hint)


def read_any_text(
    connection: sqlite3.Connection, read: Callable[[], T], errors: str = "surrogateescape"
) -> T:
    """Return the result of *read* on *connection*; *errors* says how to decode invalid UTF-8."""
    try:
        return read()
    except sqlite3.OperationalError as exc:
        if not str(exc).startswith("Could not decode"):
            raise
    # Decoding here costs more, so it is the second attempt.
    connection.text_factory = lambda text: text.decode(errors=errors)
    try:
        return read()
    finally:
        connection.text_factory = str


def unavailable(location: Location, exc: sqlite3.Error) -> errors.DatabaseUnavailable:
    """Return the error that explains why *location* cannot be opened."""
    name = getattr(exc, "sqlite_errorname", "")
    if name.startswith("SQLITE_NOTADB"):
        return _fault(location, *_content(location.path))
    words = next((words for state, words in FAULTS.items() if name.startswith(state)), UNREADABLE)
    if words is CLOSED_FOLDER and os.access(location.path.parent, os.W_OK):
        words = UNREADABLE
    return _fault(location, *words)


def _content(path: Path) -> tuple[str, str]:
    """Return what the file at *path* is, if not a SQLite database, and what to do."""
    with suppress(OSError), open(path, "rb") as file:
        head = file.read(SAMPLE)
        with suppress(UnicodeDecodeError):
            # The last character may be cut.
            if not set(head.decode(errors="strict" if len(head) < SAMPLE else "ignore")) & set("\0\ufffd"):
                return TEXT
    return OTHER


def is_locked(error: Exception) -> bool:
    """Return whether another program locks the file."""
    return (getattr(error, "sqlite_errorname", "") or "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


def wants_recovery(error: Exception) -> bool:
    """Return whether a program stopped while writing, which a reader cannot roll back."""
    return getattr(error, "sqlite_errorname", "") in ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY")


def identity_of(location: Location) -> str:
    """Return the identity of the file that is now at *location*, empty if there is no file."""
    try:
        found = os.stat(location.name)
    except OSError:
        return ""
    return f"{found.st_dev}.{found.st_ino}"


def read_file(location: Location, read: Callable[[sqlite3.Connection, str], T]) -> T:
    """Return the result of *read* on a new connection and the file's identity, or raise DatabaseUnavailable.

    An older connection could have cached the schema of a file that has been overwritten.
    """
    identity = identity_of(location)
    with closing(connect(location)) as connection:
        try:
            return read(connection, identity)
        except sqlite3.Error as exc:
            raise unavailable(location, exc) from exc


def stamp_of(connection: sqlite3.Connection, identity: str) -> str:
    """Return the stamp of the schema on *connection*, in the file *identity*."""
    (version,) = connection.execute(SCHEMA_VERSION).fetchone()
    rows = connection.execute(SCHEMA).fetchall()
    digest = hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{identity}.{version} {digest}"


class Watched:
    """Calls *read* again whenever the file at *location* has been written."""

    def __init__(self, location: Location, read: Callable[[], Awaitable[Hashable]]) -> None:
        self._location = location
        self._read = read
        self._seen: tuple[Hashable, Hashable] = None, None  #: the state of the files, and the result

    async def look(self) -> Hashable:
        """Return the result of *read* for the current file, or raise DatabaseUnavailable."""
        state, written = await asyncio.to_thread(_state_of, self._location)
        if state != self._seen[0] or time.time() - written < TICK:
            self._seen = state, await self._read()
        return self._seen[1]


def _state_of(location: Location) -> tuple[Hashable, float]:
    """Return a value that changes with each write to the file or its WAL, and the time of the last write."""
    try:
        found = [os.stat(location.name)]
    except OSError as exc:
        raise DatabaseUnavailable("The database file is gone.") from exc
    with suppress(FileNotFoundError):
        found.append(os.stat(f"{location.name}-wal"))
    state = tuple((each.st_dev, each.st_ino, each.st_mtime_ns, each.st_size) for each in found)
    return state, max(each.st_mtime for each in found)
