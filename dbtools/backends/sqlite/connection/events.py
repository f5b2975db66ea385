"""What a statement reads and changes. SQL in, what SQLite reports to the authorizer out."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dbtools.backends.sqlite.connection.files import CHANGE_KINDS


class Events(NamedTuple):
    """What SQLite reports to the authorizer about a statement."""

    reads: set[tuple[str, str]]  #: tables and columns, also below views
    changes: list[tuple[str, str, str]]  #: kinds, tables and columns, also of foreign keys and triggers


def explain(
    connection: sqlite3.Connection, sql: str, parameters: Sequence[None] = (), *, allow: Callable[..., int]
) -> Events:
    """Return what *sql* reads and changes, without running it; *allow* becomes the authorizer.

    SQLite may not report tables that are joined by USING or NATURAL (3.40).
    """
    events = Events(set(), [])

    def note(action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first is not None:
            events.reads.add((first, second or ""))
        elif action in CHANGE_KINDS and first is not None:
            events.changes.append((CHANGE_KINDS[action], first, second or ""))
        return allow(action, first, second, *rest)

    connection.set_authorizer(note)
    try:
        connection.execute(f"explain {sql}", parameters).close()
    finally:
        connection.set_authorizer(allow)
    return events
