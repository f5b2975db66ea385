"""Restrict a SQLite connection to reading, and learn from its authorizer what a statement reads."""

import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from dbtools.backends.plans import identifier
from dbtools.backends.sqlite import arithmetic

UNHEX = "dbtools_unhex"  #: a function that `secure` adds to each connection; SQLite 3.41 has unhex()
CONTAINS = "dbtools_contains"  #: the function of `Search`: a text as a blob, and the text to find in it
PIECE = 2**20  #: bytes that are searched at once
COMPUTED = "select rowid, name from main.sqlite_schema where type in ('table', 'view') and rootpage = 0"
COLUMNS_OF_ONE = """
select 1
from main.sqlite_schema as s
join pragma_table_xinfo(s.name, 'main')
where s.rowid = ?
"""
#: Errors of one relation; any other, such as a lock or an interrupt, makes the whole introspection fail.
LOCAL_ERRORS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)
LOCK_TIMEOUT = 2.0  #: seconds that such a connection waits for a writer's lock
LARGEST_VALUE = 16 * 2**20  #: bytes of the largest cell that SQLite may load
#: Full-text search reads data_version, SQLAlchemy read_uncommitted, and a Job encoding.
READABLE_PRAGMAS = {"schema_version", "data_version", "read_uncommitted", "encoding"}
ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_TRANSACTION}
VIEWS_WITH_QUOTES = """
select exists (select 1 from main.sqlite_schema where type = 'view' and instr(sql, '"'))
"""


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow SELECT and reading a few pragmas; deny everything else, including unknown actions."""
    if action in ALLOWED:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second != "load_extension":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and first in READABLE_PRAGMAS and second is None:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def secure(connection: sqlite3.Connection) -> None:
    """Restrict *connection* to reading, and to cells of a bounded size."""
    connection.execute("pragma query_only = on")
    if sys.version_info >= (3, 12):
        # Double quotes never quote a text: a wall behind `with_names`. The database's views may use them.
        (texts,) = connection.execute(VIEWS_WITH_QUOTES).fetchone()
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DDL, False)
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DQS_DML, bool(texts))
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.create_function(UNHEX, 1, bytes.fromhex, deterministic=True)
    arithmetic.install(connection)
    _warm(connection)
    connection.set_authorizer(authorize)


def resolve_views(connection: sqlite3.Connection) -> dict[str, str]:
    """Resolve the columns of each view and virtual table once, and return the errors by name.

    Otherwise pragma_table_list prepares a failing view again and again, which takes seconds each time if the
    view reads too many others (3.40).
    """
    problems = {}
    for number, name in connection.execute(COMPUTED).fetchall():
        try:
            connection.execute(COLUMNS_OF_ONE, (number,)).fetchone()
        except sqlite3.DatabaseError as exc:
            # The driver's errors, such as for a text that it cannot decode, have no code.
            if getattr(exc, "sqlite_errorcode", -1) & 0xFF not in LOCAL_ERRORS:
                raise
            problems[name] = str(exc)
    return problems


def explain(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[None] = (), *, allow: Callable[..., int]
) -> set[tuple[str, str]]:
    """Return the tables and columns that *sql* reads, also below views, without running it.

    SQLite may not report tables that are joined by USING or NATURAL (3.40). *allow* becomes the authorizer of
    *connection*.
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
    """Connect virtual tables once: this asks to write the schema table, which is denied later (3.40)."""
    connection.execute("select 1 from json_each('[1]'), json_tree('[1]')").fetchall()
    connection.execute("explain select 1 from pragma_table_list").fetchall()
    # Running it would resolve all views. Only virtual tables have no root page.
    names = connection.execute("select name from main.sqlite_schema where type = 'table' and rootpage = 0")
    for (name,) in names.fetchall():
        # Without its module, only this table is unreadable.
        with suppress(sqlite3.Error):
            connection.execute(f"select 1 from {identifier(name)} limit 1").fetchall()


class Search:
    """The function CONTAINS of one connection, which searches a long text in linear time.

    It agrees with LIKE, which ignores the case of ASCII letters. LIKE and instr() may take time proportional
    to the product of both lengths, and cannot be interrupted.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Add the function to *connection*."""
        (self._encoding,) = connection.execute("pragma encoding").fetchone()
        self.check: Callable[[], None] = lambda: None  #: raises if the statement must end
        connection.create_function(CONTAINS, 2, self._contains, deterministic=True)

    def _contains(self, blob: bytes, text: str) -> bool:
        if self._encoding != "UTF-8":
            blob = blob.decode(self._encoding, "replace").encode()
        # As for LIKE, a NUL ends the text.
        cell, wanted = blob.partition(b"\0")[0], text.encode().lower()
        # In pieces, so that other threads can run.
        for at in range(0, len(cell), PIECE):
            self.check()
            if wanted in cell[at : at + PIECE + len(wanted)].lower():
                return True
        return False
