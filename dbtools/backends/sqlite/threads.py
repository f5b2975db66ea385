"""The thread of a connection: a function in, what it returns there out."""

import sqlite3
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import aiosqlite

from dbtools.backends.sqlite.opened import ConnectionLost

T = TypeVar("T")


async def on_thread(connection: aiosqlite.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
    """Run *function* on the thread of *connection*, in one hop.

    aiosqlite 0.22 has no public way to run several steps in one hop; a public `run` would let us drop this.
    """
    try:
        work = partial(function, connection._conn)
        result: T = await connection._execute(work)  # type: ignore[no-untyped-call]
    except ValueError as exc:
        raise ConnectionLost from exc
    return result
