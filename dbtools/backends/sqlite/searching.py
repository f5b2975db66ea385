"""Whether a long text contains another one: bytes and a text in, a truth out, in time that is linear.

SQLite's own LIKE and instr() take the product of both lengths at worst, and nothing stops them meanwhile.
"""

import sqlite3
from collections.abc import Callable

CONTAINS = "dbtools_contains"  #: the SQL function: a text as a blob, and what is looked for in it
PIECE = 2**20  #: bytes that are searched at once


class Search:
    """The function CONTAINS of one connection, which agrees with LIKE: it ignores the case of ASCII."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Give *connection* the function."""
        (self._encoding,) = connection.execute("pragma encoding").fetchone()
        self.check: Callable[[], None] = _never  #: raises where the statement that searches is to end
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


def _never() -> None:
    return None
