"""What a SQLite connection that serves calls may do: read, and nothing else; and what it tells of that."""

import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from dbtools.backends.plans import identifier

UNHEX = "dbtools_unhex"  #: the function that `secure` gives each connection; SQLite 3.41 has one of its own
CONTAINS = "dbtools_contains"  #: the function of `Search`: a text as a blob, and what is looked for in it
PIECE = 2**20  #: bytes that are searched at once
COMPUTED = "select rowid, name from main.sqlite_schema where type in ('table', 'view') and rootpage = 0"
COLUMNS_OF_ONE = """
select 1
from main.sqlite_schema as s
join pragma_table_xinfo(s.name, 'main')
where s.rowid = ?
"""
#: What is wrong with one relation; all else, such as a lock or an interrupt, is wrong with the whole reading.
LOCAL_ERRORS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)
LOCK_TIMEOUT = 2.0  #: seconds that such a connection waits for the lock of somebody who writes
LARGEST_VALUE = 16 * 2**20  #: bytes of one cell that SQLite may load at all
#: data_version is asked by full-text search, read_uncommitted by SQLAlchemy, encoding for giant texts
READABLE_PRAGMAS = {"schema_version", "data_version", "read_uncommitted", "encoding"}
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_TRANSACTION}
VIEWS_WITH_QUOTES = """
select exists (select 1 from main.sqlite_schema where type = 'view' and instr(sql, '"'))
"""


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow to select, and to read a few pragmas; deny the rest, what is not known included."""
    if action in ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second != "load_extension":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first in READABLE_PRAGMAS and second is None:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def secure(connection: sqlite3.Connection) -> None:
    """Make *connection* one that can only read, and that no cell can make too large."""
    connection.execute("pragma query_only = on")
    if sys.version_info >= (3, 12):
        # Nothing in double quotes is a text: a wall behind `with_names`. Views are the database's own.
        (texts,) = connection.execute(VIEWS_WITH_QUOTES).fetchone()
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DDL, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, bool(texts))
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.create_function(UNHEX, 1, bytes.fromhex, deterministic=True)
    _warm(connection)
    connection.set_authorizer(authorize)


def resolve_views(connection: sqlite3.Connection) -> dict[str, str]:
    """Work out the columns of each view and virtual table once, and return what is wrong with which.

    Otherwise pragma_table_list prepares the same view over and over where that fails, as of one that reads
    too many others, which takes seconds each time (3.40).
    """
    problems = {}
    for number, name in connection.execute(COMPUTED).fetchall():
        try:
            connection.execute(COLUMNS_OF_ONE, (number,)).fetchone()
        except sqlite3.DatabaseError as exc:
            # The driver's own errors, such as that of a text that it cannot decode, have no code.
            if getattr(exc, "sqlite_errorcode", -1) & 0xFF not in LOCAL_ERRORS:
                raise
            problems[name] = str(exc)
    return problems


def explain(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[None] = (), *, allow: Callable[..., int]
) -> set[tuple[str, str]]:
    """Return what *sql* reads, without running it: tables and views with columns, also below views.

    Of tables that are joined by USING or NATURAL, SQLite may tell nothing (3.40). From now on *allow* is the
    authorizer of *connection*.
    """
    reads: set[tuple[str, str]] = set()

    def note(action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first is not None:
            reads.add((first, second or ""))
        return allow(action, first, second, *rest)

    connection.set_authorizer(note)
    connection.execute(f"explain {sql}", parameters).close()
    return reads


def _warm(connection: sqlite3.Connection) -> None:
    """Connect virtual tables once: it asks to write the schema table, which is denied later (3.40)."""
    connection.execute("select 1 from json_each('[1]'), json_tree('[1]')").fetchall()
    connection.execute("explain select 1 from pragma_table_list").fetchall()
    # It is not run, since it works out all views. Only virtual tables have no pages of their own.
    names = connection.execute("select name from main.sqlite_schema where type = 'table' and rootpage = 0")
    for (name,) in names.fetchall():
        # A module that this SQLite lacks makes its own table unreadable, and nothing else.
        with suppress(sqlite3.Error):
            connection.execute(f"select 1 from {identifier(name)} limit 1").fetchall()


class Search:
    """The function CONTAINS of one connection: whether a long text contains another one, in linear time.

    It agrees with LIKE, which ignores the case of ASCII. SQLite's own LIKE and instr() take the product of
    both lengths at worst, and nothing stops them meanwhile.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Give *connection* the function."""
        (self._encoding,) = connection.execute("pragma encoding").fetchone()
        self.check: Callable[[], None] = lambda: None  #: raises where the statement that searches is to end
        connection.create_function(CONTAINS, 2, self._contains, deterministic=True)

    def _contains(self, blob: bytes, text: str) -> bool:
        if self._encoding != "UTF-8":
            blob = blob.decode(self._encoding, "replace").encode()
        # Like any function on texts, LIKE takes a NUL for the end.
        cell, wanted = blob.partition(b"\0")[0], text.encode().lower()
        # Piece by piece, so that other threads get their turn.
        for at in range(0, len(cell), PIECE):
            self.check()
            if wanted in cell[at : at + PIECE + len(wanted)].lower():
                return True
        return False
