"""A SQLite file. A location in; a connection that can only read, a stamp of the schema, or an error out.

A stamp consists of the file's identity, SQLite's schema_version, and a digest of the schema. schema_version
increases whenever any process changes the schema, and with each ANALYZE and VACUUM
(https://sqlite.org/pragma.html).
"""

import hashlib
import os
import sqlite3
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote

from dbtools import errors
from dbtools.backends.compiled import identifier
from dbtools.backends.refusals import Cause
from dbtools.backends.sqlite.connection import functions
from dbtools.backends.sqlite.connection.statements import STATEMENTS, BoundedConnection
from dbtools.backends.sqlite.connection.urls import YES, options_of, path_of

T = TypeVar("T")
LOCK_TIMEOUT = 2.0  #: seconds that a reader waits for a writer
SAMPLE_BYTES = 2**12  #: bytes at the beginning of a file that show whether it is a text
CANNOT_READ = ("The database file cannot be read.", "")
LOCKED = (
    "The database file is locked by another program.",
    "Try again when that has finished writing, or end it.",
)
CLOSED_FOLDER = (
    "The database is in WAL mode in a folder that cannot be written, so it cannot be opened.",
    "If no program writes to it, add ?immutable=1 to its URL; otherwise make the folder writable.",
)
#: The beginnings of SQLite's names for errors: of locks, and of what a program that stopped left behind.
BUSY = ("SQLITE_BUSY", "SQLITE_LOCKED")
UNFINISHED = ("SQLITE_READONLY_ROLLBACK", "SQLITE_READONLY_RECOVERY")
#: The message and the remedy, by the beginning of SQLite's name for the error.
FAULTS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(BUSY, LOCKED),
    "SQLITE_CORRUPT": (
        "The database file is damaged.",
        "`sqlite3 FILE .recover` saves what can be read; a backup is better.",
    ),
    **dict.fromkeys(UNFINISHED, (Cause.UNFINISHED.message, Cause.UNFINISHED.hint)),
    **dict.fromkeys(("SQLITE_READONLY", "SQLITE_CANTOPEN"), CLOSED_FOLDER),
}
TEXT_FILE = (
    "This is a text file, not a SQLite database.",
    "Make a database of it first: `sqlite3 NEW.db`, then .read FILE for SQL or .import FILE TABLE for CSV.",
)
OTHER = (
    "This is not a SQLite database, or an encrypted one (SQLCipher, SEE), which dbtools cannot read.",
    "Decrypt it into another file: sqlcipher_export() of SQLCipher does.",
)
SCHEMA_VERSION = "pragma schema_version"
SCHEMA_ROWS = "select type, name, cast(sql as blob) from main.sqlite_schema"
UNHEX = "dbtools_unhex"  #: a function that `secure` adds to each connection; SQLite 3.41 has unhex()
#: The function of `connections.Search`: its arguments are a text as a blob, what to find, and where.
MATCHES = "dbtools_matches"
RELATIONS_WITH_SQL = (
    "select rowid, name from main.sqlite_schema where type in ('table', 'view') and rootpage = 0"
)
COLUMNS_OF_ONE = """
select 1
from main.sqlite_schema as s
join pragma_table_xinfo(s.name, 'main')
where s.rowid = ?
"""
#: Errors of one relation; any other, such as a lock or an interrupt, makes the whole introspection fail.
LOCAL_ERRORS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)
LARGEST_VALUE = 16 * 2**20  #: bytes of the largest cell that SQLite may load
#: Full-text search reads data_version, SQLAlchemy read_uncommitted, and a Job encoding.
READABLE_PRAGMAS = {"schema_version", "data_version", "read_uncommitted", "encoding"}
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_TRANSACTION}
CHANGE_KINDS = {
    sqlite3.SQLITE_INSERT: "insert",
    sqlite3.SQLITE_UPDATE: "update",
    sqlite3.SQLITE_DELETE: "delete",
}
#: Triggers and virtual tables may use savepoints.
CHANGE_ACTIONS = {*CHANGE_KINDS, sqlite3.SQLITE_SAVEPOINT}
VIEWS_WITH_QUOTES = """
select exists (select 1 from main.sqlite_schema where type = 'view' and instr(sql, '"'))
"""


@dataclass(frozen=True, kw_only=True)
class FileLocation:
    """A database file, and whether to assume that no program writes to it."""

    path: Path
    given: str = ""  #: the path as written
    immutable: bool = False

    @cached_property
    def name(self) -> str:
        """The path as text, for the system call that each tool call makes."""
        return str(self.path)


def location_of(url: str) -> FileLocation:
    """Return the file at *url*, which may end in `?immutable=1`, or raise ConfigurationError."""
    path, options = path_of(url), options_of(url)
    return FileLocation(path=Path(path).absolute(), given=path, immutable=options.get("immutable") in YES)


def open_file(
    location: FileLocation, *, mode: Literal["ro", "rw"] = "ro", lock_timeout: float = LOCK_TIMEOUT
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
        factory=BoundedConnection,
        cached_statements=STATEMENTS,
        check_same_thread=False,
        timeout=lock_timeout,
    )


def connect(location: FileLocation, *, lock_timeout: float = LOCK_TIMEOUT) -> sqlite3.Connection:
    """Open *location* for reading, or raise DatabaseUnavailable with a remedy."""
    check_file(location)
    try:
        return _open_location(location, "ro", lock_timeout)
    except sqlite3.Error as exc:
        raise opening_error(location, exc) from exc


def recover(location: FileLocation) -> None:
    """Roll back what a program that stopped has half written to *location*, or raise DatabaseUnavailable."""
    path = os.path.realpath(location.name)
    if not any(os.path.exists(f"{path}{suffix}") for suffix in ("-journal", "-wal")):
        return
    try:
        try:
            _open_location(location, "ro", LOCK_TIMEOUT).close()
        except sqlite3.OperationalError as exc:
            if not has_code(exc, UNFINISHED):
                raise
            _open_location(location, "rw", LOCK_TIMEOUT).close()
    except sqlite3.Error as exc:
        raise opening_error(location, exc) from exc


def _open_location(
    location: FileLocation, mode: Literal["ro", "rw"], lock_timeout: float
) -> sqlite3.Connection:
    """Open *location* and read it, or raise sqlite3.Error."""
    connection = open_file(location, mode=mode, lock_timeout=lock_timeout)
    connection.execute("select count(*) from sqlite_schema").fetchone()
    return connection


def check_file(location: FileLocation) -> None:
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
        raise _fault(location, *CANNOT_READ) from exc
    if stat.S_ISDIR(mode):
        raise _fault(location, "This is a folder, not a database file.", "Name the file in it.")
    raise _fault(location, "This is not a regular file.")


def _fault(location: FileLocation, message: str, hint: str = "") -> errors.DatabaseUnavailable:
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


def opening_error(location: FileLocation, exc: sqlite3.Error) -> errors.DatabaseUnavailable:
    """Return the error that explains why *location* cannot be opened."""
    if has_code(exc, "SQLITE_NOTADB"):
        return _fault(location, *_content(location.path))
    words = next((words for name, words in FAULTS.items() if has_code(exc, name)), CANNOT_READ)
    if words is CLOSED_FOLDER and os.access(location.path.parent, os.W_OK):
        words = CANNOT_READ
    return _fault(location, *words)


def _content(path: Path) -> tuple[str, str]:
    """Return the message and the remedy if the file at *path* is not a SQLite database."""
    with suppress(OSError), open(path, "rb") as file:
        head = file.read(SAMPLE_BYTES)
        with suppress(UnicodeDecodeError):
            # The last character may be cut.
            if not set(head.decode(errors="strict" if len(head) < SAMPLE_BYTES else "ignore")) & set(
                "\0\ufffd"
            ):
                return TEXT_FILE
    return OTHER


def has_code(error: Exception, beginnings: str | tuple[str, ...]) -> bool:
    """Return whether SQLite's name for *error* has one of *beginnings*; errors of the driver have no name."""
    return (getattr(error, "sqlite_errorname", "") or "").startswith(beginnings)


def identity_of(location: FileLocation) -> str:
    """Return the identity of the file that is now at *location*, empty if there is no file."""
    try:
        found = os.stat(location.name)
    except OSError:
        return ""
    return f"{found.st_dev}.{found.st_ino}"


def write_obstacle(location: FileLocation, served: FileLocation) -> str:
    """Return why rows of the file *served* cannot be changed at *location*, or nothing."""
    if identity_of(location) != identity_of(served):
        return "write_url names another file than url."
    if location.immutable or served.immutable:
        return "immutable=1 in the URL says that no program changes the file."
    if not os.access(location.path, os.W_OK):
        return "the user who runs dbtools may not write the database file."
    if not os.access(location.path.parent, os.W_OK):
        return "the user who runs dbtools may not write to the folder of the file, where its journal is."
    return ""


def read_file(location: FileLocation, read: Callable[[sqlite3.Connection, str], T]) -> T:
    """Return the result of *read* on a new connection and the file's identity, or raise DatabaseUnavailable.

    An older connection could have cached the schema of a file that has been overwritten.
    """
    identity = identity_of(location)
    with closing(connect(location)) as connection:
        try:
            return read(connection, identity)
        except sqlite3.Error as exc:
            raise opening_error(location, exc) from exc


def remove_side_files(location: FileLocation) -> None:
    """Let SQLite remove the files -wal and -shm, which readers leave, unless another program uses them."""
    try:
        is_unused = os.stat(f"{os.path.realpath(location.name)}-wal").st_size == 0
    except OSError:
        return
    if location.immutable or not is_unused:
        return
    # SQLite removes them when the last connection closes that may write. If that fails, another program has
    # the file open, or this user may not write to it.
    with suppress(sqlite3.Error), closing(open_file(location, mode="rw", lock_timeout=0)) as connection:
        connection.execute("pragma query_only = on")
        connection.execute(SCHEMA_VERSION).fetchone()


def stamp_of(connection: sqlite3.Connection, identity: str) -> str:
    """Return the stamp of the schema on *connection*, in the file *identity*."""
    (version,) = connection.execute(SCHEMA_VERSION).fetchone()
    rows = connection.execute(SCHEMA_ROWS).fetchall()
    digest = hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{identity}.{version} {digest}"


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow SELECT and reading a few pragmas; deny everything else, including unknown actions."""
    if action in ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second != "load_extension":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first in READABLE_PRAGMAS and second is None:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def authorize_writes(action: int, first: str | None, second: str | None, *rest: str | None) -> int:
    """Allow what `authorize` allows, and to change rows of tables that are not the system's."""
    is_system = first is not None and first.lower().startswith("sqlite_")
    if action in CHANGE_ACTIONS and not is_system:
        return sqlite3.SQLITE_OK
    return authorize(action, first, second, *rest)


def secure(connection: sqlite3.Connection) -> None:
    """Restrict *connection* to reading, and to cells of a bounded size."""
    connection.execute("pragma query_only = on")
    _harden(connection)
    connection.set_authorizer(authorize)


def secure_for_writes(connection: sqlite3.Connection) -> None:
    """Restrict *connection* to reading and changing rows; enforce foreign keys."""
    connection.execute("pragma foreign_keys = on")
    _harden(connection)
    connection.set_authorizer(authorize_writes)
    # A change must not run again because a text that it returns is not valid UTF-8.
    connection.text_factory = lambda text: text.decode(errors="surrogateescape")


def _harden(connection: sqlite3.Connection) -> None:
    if sys.version_info >= (3, 12):
        # Double quotes never quote a text: a second defence besides `with_names`. Views may use them.
        (texts,) = connection.execute(VIEWS_WITH_QUOTES).fetchone()
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DDL, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, bool(texts))
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.create_function(UNHEX, 1, bytes.fromhex, deterministic=True)
    functions.install(connection)
    _warm(connection)


def resolve_views(connection: sqlite3.Connection) -> dict[str, str]:
    """Resolve the columns of each view and virtual table once, and return the errors by name.

    Otherwise pragma_table_list prepares a failing view again and again, which takes seconds each time if the
    view reads too many others (3.40).
    """
    problems = {}
    for number, name in connection.execute(RELATIONS_WITH_SQL).fetchall():
        try:
            connection.execute(COLUMNS_OF_ONE, (number,)).fetchone()
        except sqlite3.DatabaseError as exc:
            # The driver's errors, such as for a text that it cannot decode, have no code.
            if getattr(exc, "sqlite_errorcode", -1) & 0xFF not in LOCAL_ERRORS:
                raise
            problems[name] = str(exc)
    return problems


def _warm(connection: sqlite3.Connection) -> None:
    """Connect virtual tables once: SQLite 3.40 asks for a write to the schema, which is denied later."""
    connection.execute("select 1 from json_each('[1]'), json_tree('[1]')").fetchall()
    connection.execute("explain select 1 from pragma_table_list").fetchall()
    # Running it would resolve all views. Only virtual tables have no root page.
    names = connection.execute("select name from main.sqlite_schema where type = 'table' and rootpage = 0")
    for (name,) in names.fetchall():
        # Without its module, only this table is unreadable.
        with suppress(sqlite3.Error):
            connection.execute(f"select 1 from {identifier(name)} limit 1").fetchall()
