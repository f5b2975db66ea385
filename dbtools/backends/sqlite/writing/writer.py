"""Change rows of a SQLite file, in one hop to the thread of a connection. A WriteRun in, its result out."""

import asyncio
import re
import secrets
import sqlite3
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from itertools import islice
from threading import Event

from dbtools import errors
from dbtools.backends.compile.queries import compile_changing_query
from dbtools.backends.compile.writes import attempt_of, compile_write
from dbtools.backends.compiled import Compiled, CompiledWrite
from dbtools.backends.refusals import Cause
from dbtools.backends.runs import Row, WriteResult, WriteRun
from dbtools.backends.sqlite.connection.connections import (
    OPERATIONS,
    FileConnection,
    Job,
    Stopped,
    on_thread,
    run_with_retries,
)
from dbtools.backends.sqlite.connection.events import explain
from dbtools.backends.sqlite.connection.files import (
    BUSY,
    FileLocation,
    authorize_writes,
    has_code,
)
from dbtools.backends.sqlite.queries.inspection import LIST_FORMS
from dbtools.backends.sqlite.reading.grammar import SqliteGrammar
from dbtools.backends.sqlite.reading.runner import GRACE, FilteringGrammar, cause_of, cut_cell, pool_of
from dbtools.backends.steps import journal_of, script_of
from dbtools.errors import Broken, SchemaChanged
from dbtools.schema.catalog import Location
from dbtools.statements.select import QueryShape
from dbtools.statements.write import Write, WriteKind, WriteShape

GRAMMAR = SqliteGrammar()
JOURNAL = journal_of(GRAMMAR, "main")
#: Whether there may be foreign keys that only COMMIT checks.
DEFERS = "select exists (select 1 from main.sqlite_schema where sql like '%initially%deferred%')"
#: What SQLite says if a trigger, a check or a generated column needs what is missing.
UNMADE = re.compile("no such (function|table|column|module|collation)|unknown function")
#: Nothing more can be written, before what would complete a COMMIT.
DISK_FULL = ("SQLITE_FULL", "SQLITE_IOERR_WRITE")
#: The kinds of constraints, by SQLite's extended result codes.
BROKEN_BY_CODE = {
    "SQLITE_CONSTRAINT_UNIQUE": Broken.UNIQUE,
    "SQLITE_CONSTRAINT_PRIMARYKEY": Broken.UNIQUE,
    "SQLITE_CONSTRAINT_ROWID": Broken.UNIQUE,
    "SQLITE_CONSTRAINT_NOTNULL": Broken.NOT_NULL,
    "SQLITE_CONSTRAINT_CHECK": Broken.CHECK,
    "SQLITE_CONSTRAINT_FOREIGNKEY": Broken.FOREIGN_KEY,
    "SQLITE_CONSTRAINT_TRIGGER": Broken.TRIGGER,
}


class SqliteWriter:
    """The Writer of SQLite: one connection, because SQLite lets one program write at a time."""

    def __init__(self, where: FileLocation, lock_timeout: float) -> None:
        self.pool = pool_of(lambda: FileConnection(where, "rw"), size=1)
        self._lock_timeout = lock_timeout

    def compile(self, shape: WriteShape) -> CompiledWrite:
        """Return the SQL of *shape*; conditions load no cell of a hidden row, which may be too large."""
        if isinstance(shape, QueryShape):
            return compile_changing_query(shape, GRAMMAR, LIST_FORMS)
        plan = compile_write(shape, GRAMMAR if shape.chosen is None else FilteringGrammar())
        return replace(plan, attempt=attempt_of(shape, GRAMMAR)) if shape.conflict_where else plan

    async def write(self, run: WriteRun) -> WriteResult:
        """Run the steps of *run* between BEGIN IMMEDIATE and COMMIT, or ROLLBACK if it does not keep them."""
        jobs: list[WriteJob] = []

        def work(connection: FileConnection, cancelled: Event) -> WriteResult:
            # A connection is lost before the first step; the next one opens the new file.
            jobs.append(WriteJob(run, connection, cancelled, self._lock_timeout))
            return jobs[-1].write()

        try:
            async with asyncio.timeout(run.context.timeout + self._lock_timeout + GRACE):
                return await _finish_write(on_thread(self.pool, work), jobs)
        except TimeoutError as exc:
            raise errors.TimedOut from exc
        except (Stopped, sqlite3.Error) as exc:
            is_unknown = jobs and jobs[-1].is_committing
            raise errors.UnknownOutcome if is_unknown else refusal(exc) from exc

    async def close(self) -> None:
        """Close the connection."""
        await self.pool.dispose()


async def _finish_write(
    running: Coroutine[object, None, WriteResult], jobs: Sequence["WriteJob"]
) -> WriteResult:
    """Return what *running* returns; a cancellation that comes after COMMIT has no effect."""
    try:
        return await running
    except asyncio.CancelledError:
        job, task = jobs[-1] if jobs else None, asyncio.current_task()
        if job is None or task is None or not job.is_committing:
            raise
        task.uncancel()
        if job.written is None:
            raise errors.UnknownOutcome from None
        return job.written


class WriteJob(Job):
    """Runs one transaction."""

    def __init__(
        self, run: WriteRun, connection: FileConnection, cancelled: Event, lock_timeout: float
    ) -> None:
        super().__init__(connection, cancelled, run.context.timeout)
        self._run = run
        self._lock_timeout = lock_timeout
        self._in_journal = 0  #: changes of the journal
        self.is_committing = False  #: whether COMMIT has begun, and has not been refused
        self.written: WriteResult | None = None  #: once it is committed

    def write(self) -> WriteResult:
        """Return what was changed, or raise Stopped, CallError, ConnectionLost or sqlite3.Error."""
        try:
            self._patiently("begin immediate")
            self.driver.set_progress_handler(self.is_over, OPERATIONS)
            if self._run.context.stamp and self.connection.stamp() != self._run.context.stamp:
                raise SchemaChanged
            written = self._make_change()
            self.check()
            self.driver.set_progress_handler(None, 0)
            if self._run.keeps(written):
                self._commit()
                written = written._replace(is_kept=True)
            self.written = written
            return written
        except UnicodeEncodeError as exc:
            # The driver cannot bind the text again that it has returned.
            raise Cause.UNDECODABLE_KEY.error() from exc
        except sqlite3.OperationalError as exc:
            if exc.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
                raise Stopped from exc
            if has_code(exc, BUSY):
                # The lock timeout is over: FileConnection.run would repeat the work until its own is.
                raise Cause.FILE_LOCKED.error() from exc
            raise
        finally:
            self.driver.set_progress_handler(None, 0)
            self.driver.rollback()

    def _commit(self) -> None:
        self.is_committing = True
        try:
            self._patiently("commit")
        except (Stopped, sqlite3.Error) as exc:
            # Otherwise SQLite has ended the transaction, in one way or the other.
            self.is_committing = not (self.driver.in_transaction or has_code(exc, DISK_FULL))
            raise

    def _make_change(self) -> WriteResult:
        before, script = self.driver.total_changes, script_of(self._run, JOURNAL)
        step = next(script)
        try:
            while True:
                step = script.send(() if step is None else self._rows(*step))
        except StopIteration as exc:
            written: WriteResult = exc.value
        if not self._run.counts:
            return written
        others = self.driver.total_changes - before - self._in_journal - written.affected
        (unchecked,) = self.driver.execute(DEFERS).fetchone()
        elsewhere = ((self._touched_tables(), others),) if others else ()
        return written._replace(elsewhere=elsewhere, unchecked=bool(unchecked))

    def _rows(self, plan: Compiled, *runs: tuple[object, ...]) -> list[Row]:
        before, most = self.driver.total_changes, plan.most
        rows: list[Row] = []
        for parameters in runs:
            self.check()
            cursor = self.driver.execute(f"{self._run.context.comment}{plan.sql}", parameters)
            # Cut at once: only one large row is held.
            rows += (tuple(map(cut_cell, row, plan.outputs)) for row in islice(cursor, most and most + 1))
            cursor.close()
        if JOURNAL.includes(plan):
            self._in_journal += self.driver.total_changes - before
        return rows if plan.outputs else self.driver.execute("select changes()").fetchall()

    def _touched_tables(self) -> frozenset[Location]:
        """Return the tables that foreign keys and triggers may change."""
        shape = self._run.steps[0][0].shape
        if isinstance(shape, QueryShape):
            return shape.others or frozenset({shape.target})
        others: set[str] = set()
        changes = [each for plan, _ in self._run.steps for each in (plan.change, plan.instead)]
        for change in filter(None, changes):
            # The driver keeps prepared statements, which ask for nothing again.
            sql = f"{change.sql} -- {secrets.token_hex(8)}"
            nulls = [None for _ in change.parameters]
            touched = explain(self.driver, sql, nulls, allow=authorize_writes).changes
            # The statement itself comes first, column by column if it updates.
            own = change.shape
            assert isinstance(own, Write)
            first = len(own.parameters) if own.kind is WriteKind.UPDATE else 1
            others.update(name for _, name, _ in touched[first:])
        return frozenset(("", name) for name in others)

    def _patiently(self, sql: str) -> None:
        """Run *sql*; wait for a lock until the lock timeout."""

        def work() -> None:
            self.check()
            self.driver.execute(sql)

        run_with_retries(work, timeout=self._lock_timeout)


def refusal(error: Exception) -> errors.CallError:
    """Return the error that a caller gets for *error*, after which nothing is changed."""
    if has_code(error, "SQLITE_CONSTRAINT"):
        return _violation(error)
    return _cause_of(error).error()


def _cause_of(error: Exception) -> Cause:
    if has_code(error, DISK_FULL):
        return Cause.FILE_FULL
    if has_code(error, ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_IOERR")):
        return Cause.FILE_UNWRITABLE
    if UNMADE.match(str(error)):
        return Cause.INCOMPLETE_SCHEMA
    cause = cause_of(error)
    return Cause.FAILED if cause.kind is errors.Unreadable else cause


def _violation(error: Exception) -> errors.ConstraintViolated:
    """Return the constraint that *error* concerns."""
    kind = BROKEN_BY_CODE.get(getattr(error, "sqlite_errorname", ""), Broken.UNKNOWN)
    if kind not in (Broken.UNIQUE, Broken.NOT_NULL):
        return errors.ConstraintViolated(kind=kind)
    # Such as "UNIQUE constraint failed: orders.number, orders.year".
    named = str(error).partition(": ")[2].split(", ")
    (table, *_), *_ = places = [each.partition(".") for each in named]
    columns = tuple(column for _, _, column in places)
    return errors.ConstraintViolated(kind=kind, table=("", table), columns=columns)
