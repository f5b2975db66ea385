"""Change rows on PostgreSQL, the writes of one call in one transaction. A WriteRun in, a WriteResult out."""

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace

import anyio
import asyncpg

from dbtools import errors
from dbtools.backends.compile.queries import compile_changing_query
from dbtools.backends.compile.writes import attempt_of, compile_write
from dbtools.backends.compiled import CompiledWrite
from dbtools.backends.pool import Pool
from dbtools.backends.postgresql.connection.connections import ANOTHER, connect, is_lost
from dbtools.backends.postgresql.connection.pipeline import (
    CLEAN,
    DRIVER_ERRORS,
    KEEP,
    ServerConnection,
    is_failure_of,
    messages,
    roll_back,
    setting,
)
from dbtools.backends.postgresql.queries.inspection import LIST_FORMS
from dbtools.backends.postgresql.reading.runner import (
    ANALYSES,
    CHECK,
    GRACE,
    GRAMMAR,
    STALE,
    Unsure,
    cause_of,
    is_usable,
    open_connection,
)
from dbtools.backends.postgresql.registry import SCHEMA
from dbtools.backends.postgresql.schema.changes import CHANGED, confirmation
from dbtools.backends.postgresql.schema.types import lexis
from dbtools.backends.postgresql.writing.transaction import NotBegun, OpenTransaction, other_changes
from dbtools.backends.refusals import Cause
from dbtools.backends.runs import WriteResult, WriteRun
from dbtools.backends.steps import journal_of, script_of
from dbtools.errors import Broken
from dbtools.schema.catalog import Location
from dbtools.statements.select import QueryShape
from dbtools.statements.write import Write, WriteKind, WriteShape

JOURNAL = journal_of(GRAMMAR, SCHEMA)
CONNECTIONS = 4
COMMIT_TIMEOUT = 10.0  #: seconds to wait for COMMIT
LOOKUP_TIMEOUT = 2.0  #: seconds to ask for the outcome of a COMMIT, or for a violated constraint
LOOKS = (0.0, 0.2, 1.0, 2.0)  #: seconds before each check of the outcome of a transaction
BEGIN_WRITE = "begin isolation level read committed read write"
SETTLE = messages("set constraints all immediate")
#: Undoes what functions may have done to the session: settings, a role, LISTEN, temporary tables.
RESTORED = b"".join(map(messages, ("reset all", "reset role", "unlisten *", "discard temp")))
TRANSACTION_ID = "select pg_catalog.pg_current_xact_id()::pg_catalog.text"
OUTCOME = "select pg_catalog.pg_xact_status($1::pg_catalog.text::pg_catalog.xid8)"
#: The table of the constraint or unique index $3 of the table $2 in the schema $1, and its columns.
CONSTRAINED = """
select m.nspname::text, w.relname::text, array(
    select a.attname::text
    from pg_catalog.pg_attribute as a
    where a.attrelid = r.oid and a.attnum = any(coalesce(c.conkey, i.indkey::pg_catalog.int2[]))
)
from pg_catalog.pg_class as r
join pg_catalog.pg_namespace as n on n.oid = r.relnamespace
join pg_catalog.pg_class as w on w.oid = coalesce(pg_catalog.pg_partition_root(r.oid), r.oid)
join pg_catalog.pg_namespace as m on m.oid = w.relnamespace
left join pg_catalog.pg_constraint as c on c.conrelid = r.oid and c.conname = $3
left join pg_catalog.pg_class as x on x.relnamespace = r.relnamespace and x.relname = $3
left join pg_catalog.pg_index as i on i.indexrelid = x.oid and i.indrelid = r.oid
where n.nspname = $1 and r.relname = $2
"""
#: The kinds of constraints, by SQLSTATE.
BROKEN_BY_STATE: Mapping[str, Broken] = {
    "23001": Broken.REFERENCED,
    "23502": Broken.NOT_NULL,
    "23503": Broken.FOREIGN_KEY,
    "23505": Broken.UNIQUE,
    "23514": Broken.CHECK,
    "23P01": Broken.EXCLUSION,
    "P0001": Broken.TRIGGER,
}
LOCK = "for update"
#: The functions of the server that raise an error for a policy of row-level security, and for RAISE.
POLICED, RAISED = "ExecWithCheckOptions", "exec_stmt_raise"
#: The causes of errors that have another meaning for a change than for a read, by SQLSTATE.
CHANGE_CAUSES: Mapping[str, Cause] = {
    "22001": Cause.LONG_VALUE,
    "22003": Cause.LARGE_NUMBER,
    "25006": Cause.READ_ONLY,
    "42501": Cause.CHANGE_DENIED,
    **dict.fromkeys(("40P01", "55P03"), Cause.ROW_LOCKED),
    "53100": Cause.DISK_FULL,
}


class PostgresqlWriter:
    """The Writer of PostgreSQL."""

    def __init__(self, url: str, lock_timeout: float) -> None:
        self._url = url
        self._lock_timeout = setting({"lock_timeout": f"{max(1, round(lock_timeout * 1000))}ms"})
        self.pool = Pool(self._open, size=CONNECTIONS, is_usable=is_usable, end=ServerConnection.terminate)

    def compile(self, shape: WriteShape) -> CompiledWrite:
        """Return the SQL of *shape*; the row with a key that is to be updated is locked when it is read.

        Locking a row takes the privilege to update it, which a login that only deletes may lack. Behind the
        barrier of a filter that may raise an error, every row that the role sees would be locked.
        """
        if isinstance(shape, QueryShape):
            return compile_changing_query(shape, GRAMMAR, LIST_FORMS, lexis)
        plan = compile_write(shape, GRAMMAR)
        if plan.existing is not None:
            existing = plan.existing.with_clause(LOCK) if plan.instead is not None else plan.existing
            return replace(plan, existing=existing, attempt=attempt_of(shape, GRAMMAR))
        is_keyed = shape.kind is WriteKind.UPDATE and shape.chosen is None
        lock = LOCK if is_keyed and not shape.table.needs_barrier else ""
        return replace(
            plan,
            before=plan.before and plan.before.with_clause(lock),
            unlocked=plan.before if lock else None,
        )

    async def write(self, run: WriteRun) -> WriteResult:
        """Run the steps of *run* between BEGIN and COMMIT, or ROLLBACK if it does not keep them."""
        try:
            return await self._write(run)
        except NotBegun:
            # The idle connections are probably lost as well.
            await self.pool.dispose()
        try:
            return await self._write(run)
        except NotBegun as exc:
            raise Cause.LOST_BEFORE_COMMIT.error() from exc

    async def _write(self, run: WriteRun) -> WriteResult:
        for _ in range(ANALYSES):
            with suppress(Unsure):
                return await self._write_once(run)
        raise errors.SchemaChanged

    async def _write_once(self, run: WriteRun) -> WriteResult:
        async with self.pool.connection() as connection:
            try:
                async with asyncio.timeout(run.context.timeout + GRACE):
                    written, number = await self._change(connection, run)
            except BaseException as exc:
                await roll_back(connection, CLEAN)
                if isinstance(exc, TimeoutError):
                    raise errors.TimedOut from exc
                if isinstance(exc, DRIVER_ERRORS):
                    raise await self._call_error(connection, exc, run) from exc
                raise
            if not run.keeps(written):
                await roll_back(connection)
                return written
            await _uncancelled(self._end(connection, number))
        return written._replace(is_kept=True)

    async def _call_error(
        self, connection: ServerConnection, error: Exception, run: WriteRun
    ) -> errors.CallError:
        refusal = await _refusal(connection, error, run)
        if isinstance(refusal, errors.SchemaChanged):
            # In an old session, functions of triggers keep plans for the old types.
            connection.terminate()
            await self.pool.dispose()
        return refusal

    async def _end(self, connection: ServerConnection, number: str) -> None:
        """Commit transaction *number*, or raise a CallError."""
        failure = await _commit(connection, number)
        if failure is None:
            return
        connection.terminate()
        try:
            # Functions that COMMIT has run may also make what follows it fail.
            await self._find_outcome(number)
        except errors.DatabaseUnavailable:
            if isinstance(failure, TimeoutError) or is_lost(failure):
                raise
            raise await _refusal(connection, failure, None) from failure

    async def _change(self, connection: ServerConnection, run: WriteRun) -> tuple[WriteResult, str]:
        """Return what the statements of *run* did, and the number of the transaction, which is still open."""
        transaction, script = OpenTransaction(connection, run), script_of(run, JOURNAL)
        await transaction.begin(self._lock_timeout)
        # The server also counts for transactions before, as long as it has not yet reported them.
        # A run without steps notes that a confirmation was used.
        shapes = [plan.shape for plan, _ in run.steps[:1]] if run.counts else []
        counted = [each for each in shapes if await transaction.reaches_others(each)]
        earlier = await transaction.counts() if counted else {}
        step = next(script)
        try:
            while True:
                if step is None:
                    transaction.add(SETTLE)
                    step = script.send(())
                else:
                    plan, *runs = step
                    step = script.send(await transaction.run(plan, *runs))
        except StopIteration as exc:
            written: WriteResult = exc.value
        for shape in counted:
            later = await transaction.counts()
            elsewhere = other_changes(earlier, later, shape.target, written.affected)
            written = written._replace(elsewhere=[*elsewhere])
        transaction.add(CHECK + confirmation(tuple(run.versions)))
        ((number,),) = await transaction.rows(TRANSACTION_ID)
        return written, str(number)

    async def _open(self) -> ServerConnection:
        try:
            connection = await open_connection(self._url)
        except DRIVER_ERRORS as exc:
            raise NotBegun from exc
        connection.begin = messages(BEGIN_WRITE) + connection.settings
        return connection

    async def _find_outcome(self, number: str) -> None:
        """Return if transaction *number* was committed, otherwise raise a CallError."""
        for pause in LOOKS:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(LOOKUP_TIMEOUT):
                    connection = await connect(self._url)
                    try:
                        outcome = await connection.fetchval(OUTCOME, number)
                    finally:
                        # To close it in due form may take longer than there is time for the outcome.
                        connection.terminate()
            except (*DRIVER_ERRORS, errors.DatabaseUnavailable, TimeoutError):
                continue
            if outcome == "committed":
                return
            if outcome == "aborted":
                raise Cause.LOST_BEFORE_COMMIT.error()
        raise errors.UnknownOutcome

    async def close(self) -> None:
        """Close every connection."""
        await self.pool.dispose()


def _restore_messages(connection: ServerConnection) -> bytes:
    """Return the messages that undo what triggers may have done to the session, which COMMIT keeps."""
    path = {} if connection.local else {"search_path": connection.path}
    return RESTORED + setting(path, KEEP)


async def _uncancelled(work: Coroutine[object, None, None]) -> None:
    """Finish *work*, even if cancelled meanwhile."""
    working, task = asyncio.ensure_future(work), asyncio.current_task()
    with anyio.CancelScope(shield=True):
        while not working.done():
            try:
                await asyncio.wait([working])
            except asyncio.CancelledError:
                if task is not None:
                    task.uncancel()
    working.result()


async def _commit(connection: ServerConnection, number: str) -> Exception | None:
    """Commit transaction *number* and clean the session; return an error if that is not known to be done.

    COMMIT may run functions too: triggers can defer others until then.
    """
    ending = messages("commit") + messages(OUTCOME, number) + CLEAN + _restore_messages(connection)
    committing = asyncio.ensure_future(connection.texts(ending))
    await asyncio.wait([committing], timeout=COMMIT_TIMEOUT)
    if not committing.done():
        committing.add_done_callback(lambda done: done.cancelled() or done.exception())
        return TimeoutError()
    try:
        outcomes = committing.result()
    except DRIVER_ERRORS as exc:
        return exc
    if outcomes != ["committed"]:
        raise Cause.FAILED.error()
    return None


async def _refusal(connection: ServerConnection, error: Exception, run: WriteRun | None) -> errors.CallError:
    """Return the error that a caller gets for *error*, after which nothing is changed."""
    if isinstance(error, STALE) or is_failure_of(error, CHANGED):
        return Cause.SCHEMA_CHANGED.error()
    if is_failure_of(error, ANOTHER):
        return Cause.PREPARES_STATEMENT.error()
    if is_lost(error):
        connection.terminate()
        return Cause.LOST_BEFORE_COMMIT.error()
    state = getattr(error, "sqlstate", None) or ""
    if isinstance(error, asyncpg.PostgresError) and (kind := _kind_of(error, state)) is not None:
        return await _violation(connection, error, kind, run)
    cause = CHANGE_CAUSES.get(state) or cause_of(error)
    return (Cause.FAILED if cause.kind is errors.Unreadable else cause).error()


def _kind_of(error: asyncpg.PostgresError, state: str) -> Broken | None:
    """Return the kind of the constraint that *error* concerns, None if it concerns none.

    Code in the database may raise an error with any SQLSTATE and any names.
    """
    source = getattr(error, "server_source_function", None)
    if source == RAISED:
        return Broken.TRIGGER
    return Broken.POLICY if state == "42501" and source == POLICED else BROKEN_BY_STATE.get(state)


async def _violation(
    connection: ServerConnection, error: asyncpg.PostgresError, kind: Broken, run: WriteRun | None
) -> errors.ConstraintViolated:
    """Return the constraint that *error* concerns, with what the server reports about it."""
    facts = {name: getattr(error, name, None) for name in ("schema_name", "table_name", "constraint_name")}
    schema, name, constraint = facts.values()
    if kind is Broken.TRIGGER or not (isinstance(schema, str) and isinstance(name, str)):
        return errors.ConstraintViolated(kind=kind)
    table: Location = (schema, name)
    columns: tuple[str, ...] = ()
    column = getattr(error, "column_name", None)
    if isinstance(column, str):
        columns = (column,)
    elif isinstance(constraint, str):
        table, columns = await _constraint_columns(connection, table, constraint)
    shape = run.steps[0][0].shape if run is not None and run.steps else None
    # No row refers to a new one: then a trigger has changed the other table.
    if kind is Broken.FOREIGN_KEY and isinstance(shape, Write):
        is_new = shape.kind is WriteKind.INSERT
        kind = kind if is_new or table == shape.table.location else Broken.REFERENCED
    return errors.ConstraintViolated(kind=kind, table=table, columns=columns)


async def _constraint_columns(
    connection: ServerConnection, table: Location, constraint: str
) -> tuple[Location, tuple[str, ...]]:
    """Return the table and the columns of *constraint* of *table*, or of what it is a partition of."""
    if not connection.is_closed():
        with suppress(*DRIVER_ERRORS):
            rows = await connection.fetch(CONSTRAINED, *table, constraint, timeout=LOOKUP_TIMEOUT)
            for schema, name, columns in rows:
                return (schema, name), tuple(columns)
    return table, ()
