"""A connection to a SQLite file, with its thread. Work in, its result out."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from threading import Event
from typing import Literal, TypeVar

import aiosqlite
import anyio

from dbtools.answers.results import ResultSet
from dbtools.backends.caches import bounded_cache
from dbtools.backends.pool import Pool
from dbtools.backends.runs import Run
from dbtools.backends.sqlite.connection.files import (
    BUSY,
    LARGEST_VALUE,
    LOCK_TIMEOUT,
    MATCHES,
    SCHEMA_VERSION,
    FileLocation,
    has_code,
    identity_of,
    open_file,
    opening_error,
    secure,
    secure_for_writes,
    stamp_of,
)
from dbtools.errors import SchemaChanged
from dbtools.values.cells import length_of
from dbtools.values.types import Operator, lower, with_bytes

T = TypeVar("T")
ATTEMPTS = 2  #: at work, if the connection is lost
STOP_TIMEOUT = 2.0  #: seconds in which a stopped statement must end, or its connection is abandoned
PAUSE = 0.01  #: seconds between two attempts to read a locked file
OPERATIONS = 5_000  #: of SQLite's virtual machine between two calls of the progress handler
MOST_LOOKS = 5  #: calls of the progress handler after which a statement on the event loop is stopped
SMALL_VALUE = 65_536  #: bytes of the largest cell that is read on the event loop
SEARCHED_BYTES = 2**20  #: bytes that are searched at once
DATA_VERSION = "pragma data_version"  #: changes when another connection writes to the file


class ConnectionLost(Exception):
    """The connection's thread has ended, or its file or schema has been replaced."""


class FileConnection(aiosqlite.Connection):
    """A connection with its thread, for the file and the schema that it has opened.

    SQLite caches the schema until schema_version changes, but a program may overwrite the file with a
    database of the same version.

    aiosqlite 0.22 has no public way to run several steps in one hop. A public `run` would let us drop the use
    of `_execute`, `_conn` and `_thread`.
    """

    def __init__(self, where: FileLocation, mode: Literal["ro", "rw"] = "ro") -> None:
        super().__init__(lambda: run_with_retries(self._open), iter_chunk_size=64)
        # A statement that cannot be stopped must not prevent the process from ending.
        self._thread.daemon = True
        self._where, self._mode, self._identity = where, mode, identity_of(where)
        self._seen = -1, -1  #: the versions when the stamp was read
        self._stamp = ""
        self.search: Search
        self.ended: asyncio.Future[object] | None = None  #: if abandoned: done when its thread ends

    @property
    def driver(self) -> sqlite3.Connection:
        """The driver's connection: for its thread, or for the event loop while the thread is idle."""
        return self._conn

    def _open(self) -> sqlite3.Connection:
        """Open the file, or raise DatabaseUnavailable."""
        try:
            connection = open_file(self._where, mode=self._mode, lock_timeout=0)
            self.search = Search(connection)
            restrict = secure if self._mode == "ro" else secure_for_writes
            restrict(connection)
        except sqlite3.Error as exc:
            if has_code(exc, BUSY):
                raise
            raise opening_error(self._where, exc) from exc
        return connection

    def stamp(self) -> str:
        """Return the stamp of the schema in the current transaction, or raise ConnectionLost."""
        versions = self._versions()
        if versions != self._seen:
            stamp = stamp_of(self.driver, self._identity)
            if self._stamp not in ("", stamp):
                raise ConnectionLost
            self._seen, self._stamp = versions, stamp
        return self._stamp

    def _versions(self) -> tuple[int, int]:
        """Return the versions of the schema and of the content, or raise ConnectionLost."""
        # While the file is being replaced, its path may be empty; the open file can still be read.
        if identity_of(self._where) not in (self._identity, ""):
            raise ConnectionLost
        (schema,) = self.driver.execute(SCHEMA_VERSION).fetchone()
        (content,) = self.driver.execute(DATA_VERSION).fetchone()
        return schema, content

    def lookup(self, run: Run) -> ResultSet | None:
        """Return the row of the lookup *run*, read on the event loop: a thread would take ten times as long.

        Return None if it must run on the thread: it takes long, or meets a lock or a large cell.
        """
        driver, plan, stamp, looks = self.driver, run.plan, run.context.stamp, count(1)
        driver.set_progress_handler(lambda: next(looks) > MOST_LOOKS, OPERATIONS)
        driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, SMALL_VALUE)
        try:
            driver.execute("begin")
            # After a write, the thread reads the schema again.
            if not stamp or stamp != self._stamp or self._versions() != self._seen:
                return None
            rows = driver.execute(run.context.comment + plan.sql, run.parameters).fetchmany(run.limit + 1)
        except (sqlite3.Error, ConnectionLost, ValueError, OverflowError):
            return None
        finally:
            driver.rollback()
            driver.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST_VALUE)
            driver.set_progress_handler(None, 0)
        length, more = sum(map(length_of, rows)), len(rows) > run.limit
        if length > plan.shortest:
            return None
        return ResultSet(outputs=plan.outputs, rows=tuple(rows[: run.limit]), more=more, length=length)

    async def run(self, work: Callable[["FileConnection", Event], T]) -> T:
        """Return the result of *work* on the thread, in one hop, or raise ConnectionLost.

        When the task is cancelled, set the event and wait until *work* has stopped, or abandon it.
        """
        cancelled = Event()
        try:
            result: T = await self._execute(  # type: ignore[no-untyped-call]
                run_with_retries, lambda: work(self, cancelled), cancelled.is_set
            )
        except ValueError as exc:
            raise ConnectionLost from exc
        except asyncio.CancelledError:
            cancelled.set()
            with anyio.CancelScope(shield=True):
                await self._stop_work()
            raise
        return result

    async def _stop_work(self) -> None:
        with suppress(TimeoutError):
            try:
                await self.interrupt()
                async with asyncio.timeout(STOP_TIMEOUT):
                    # The thread gets here when *work* has ended.
                    await self._execute(lambda: None)  # type: ignore[no-untyped-call]
            except BaseException:
                # A second cancellation gets through the scope while the thread is still busy.
                self.give_up()
                raise

    def give_up(self) -> "asyncio.Future[object]":
        """Close the connection when its thread is idle, and return a future for that."""
        if self.ended is None:
            self.ended = self.stop()
        assert self.ended is not None
        return self.ended


async def on_thread(pool: Pool, work: Callable[[FileConnection, Event], T]) -> T:
    """Return the result of *work* on the thread of a connection of *pool*; repeat it if that is lost."""
    for _ in range(ATTEMPTS):
        try:
            async with pool.connection() as connection:
                result: T = await connection.run(work)
                return result
        except ConnectionLost as exc:
            lost = exc
            # The idle connections are outdated as well.
            await pool.dispose()
    raise SchemaChanged from lost


class Stopped(Exception):
    """The statement was stopped by its deadline or by cancellation."""


class Job:
    """Work on the thread of *connection*, for *timeout* seconds or until *cancelled*."""

    def __init__(self, connection: FileConnection, cancelled: Event, timeout: float) -> None:
        self.connection, self.driver = connection, connection.driver
        self._cancelled, self._deadline = cancelled, time.monotonic() + timeout
        connection.search.check = self.check

    def check(self) -> None:
        """Raise Stopped if the work must end."""
        if self.is_over():
            raise Stopped

    def is_over(self) -> bool:
        """Return whether the work must end; SQLite calls this while a statement runs."""
        return self._cancelled.is_set() or time.monotonic() > self._deadline


def run_with_retries(
    work: Callable[[], T], is_over: Callable[[], bool] = lambda: False, timeout: float = LOCK_TIMEOUT
) -> T:
    """Return the result of *work*, repeating it while another program locks the file."""
    until = time.monotonic() + timeout
    while True:
        try:
            return work()
        except sqlite3.OperationalError as exc:
            if not has_code(exc, BUSY) or is_over() or time.monotonic() > until:
                raise
        time.sleep(PAUSE)


class Search:
    """The function MATCHES of one connection, which searches a text in linear time, in any case.

    LIKE ignores only the case of ASCII letters; LIKE and instr() may take time proportional to the product
    of both lengths, and cannot be interrupted.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Add the function to *connection*."""
        (self._encoding,) = connection.execute("pragma encoding").fetchone()
        self.check: Callable[[], None] = lambda: None  #: raises if the statement must end
        connection.create_function(MATCHES, 3, self._matches, deterministic=True)

    def _matches(self, cell: bytes | None, text: str, operator: str) -> bool | None:
        if cell is None:
            return None
        if self._encoding != "UTF-8":
            cell = cell.decode(self._encoding, "replace").encode()
        if 0 in cell:
            # As for LIKE, a NUL ends the text.
            cell = cell.partition(b"\0")[0]
        wanted = _possible_texts(text)
        # No letter has more than four bytes.
        most = 4 * max(map(len, wanted))
        if operator == Operator.STARTS_WITH:
            return _folded_text(cell[:most]).startswith(wanted)
        if operator == Operator.ENDS_WITH:
            return _folded_text(cell[-most:] if most else b"").endswith(wanted)
        if len(cell) > SEARCHED_BYTES:
            return self._contains(cell, wanted, most)
        folded = _folded_text(cell)
        return any(each in folded for each in wanted)

    def _contains(self, cell: bytes, wanted: tuple[str, ...], most: int) -> bool:
        # In pieces, so that other threads can run; a letter cut at the end is whole in the next piece.
        for at in range(0, len(cell), SEARCHED_BYTES):
            self.check()
            folded = _folded_text(cell[at : at + SEARCHED_BYTES + most])
            if any(each in folded for each in wanted):
                return True
        return False


def _possible_texts(text: str) -> tuple[str, ...]:
    """Return what *text* may mean: itself, and perhaps a text that is not UTF-8."""
    return (_caseless_text(text), *filter(None, (_invalid_text(text),)))


@bounded_cache
def _caseless_text(text: str) -> str:
    return lower(text)


@bounded_cache
def _invalid_text(text: str) -> str:
    """Return the text without its case in which escapes in *text* are bytes; empty if it has none."""
    return lower(with_bytes(text) or "")


def _folded_text(cell: bytes) -> str:
    """Return the text of *cell* without its case; a byte that is not UTF-8 equals only itself."""
    return lower(cell.decode("utf-8", "surrogateescape"))
