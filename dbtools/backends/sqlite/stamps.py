"""What tells one state of a database file's schema from another: which file it is, and SQLite's own count.

The count goes up with each change of the schema that is committed, by whichever process, and with each
ANALYZE and VACUUM (sqlite.org/pragma.html, schema_version).
"""

import hashlib
import os
import sqlite3

from dbtools.backends.sqlite.location import Location


def identity_of(location: Location) -> str:
    """Return which file is at *location* now, nothing where none is: another file has another one."""
    try:
        found = os.stat(location.name)
    except OSError:
        return ""
    return f"{found.st_dev}.{found.st_ino}"


def version_of(connection: sqlite3.Connection, identity: str) -> str:
    """Return the count of changes of the schema that *connection* sees, of the file *identity*."""
    (version,) = connection.execute("pragma schema_version").fetchone()
    return f"{identity}.{version}"


def data_version_of(connection: sqlite3.Connection) -> int:
    """Return what differs on *connection* once any other one has written to the file."""
    (version,) = connection.execute("pragma data_version").fetchone()
    return int(version)


def digest_of(connection: sqlite3.Connection) -> str:
    """Return a short name of the schema as it is written.

    The count may be the same in a file that another program has filled with another database.
    """
    rows = connection.execute("select type, name, cast(sql as blob) from main.sqlite_schema").fetchall()
    return hashlib.sha256(repr(rows).encode(errors="surrogateescape")).hexdigest()[:12]


def stamp_of(connection: sqlite3.Connection, identity: str) -> str:
    """Return the stamp of the schema that *connection* sees, of the file *identity*."""
    return f"{version_of(connection, identity)} {digest_of(connection)}"
