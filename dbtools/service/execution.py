"""Run a statement under limits. Statement in, ResultSet out; errors are worded for what it reads."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace

import anyio

from dbtools import errors
from dbtools.answers.results import Changed, ResultSet
from dbtools.backends.caches import CompiledCache
from dbtools.backends.compiled import Compiled, CompiledWrite
from dbtools.backends.port import Backend, Runner, Writer
from dbtools.backends.runs import NO_SESSION, JournalEntry, Run, RunContext, SqlRun, WriteResult, WriteRun
from dbtools.policy.roles import Caller, Role
from dbtools.service.refusals import refused_read, refused_write
from dbtools.service.snapshot import RoleSnapshot
from dbtools.statements.select import QueryShape, Shape, SqlStatement, Statement
from dbtools.statements.write import Transaction, Write, WriteShape, mask_existing_rows
from dbtools.telemetry import RequestIdTarget, is_tracing, request_comment, request_id, statement_span
from dbtools.tools.writes.changing import decode_value
from dbtools.values.cells import masked_rows

REPEAT = "Call again with the same arguments and idempotency_key: the change is made once."
STAMP_TIMEOUT = 5.0  #: seconds

Agrees = Callable[[Changed], bool]  #: whether a change does what was confirmed


class Execution:
    """Runs statements on one database; *request_id_target* says how to pass the request ID to it."""

    def __init__(self, backend: Backend, request_id_target: RequestIdTarget | None = None) -> None:
        self._backend = backend
        self._request_id_target = request_id_target
        self._is_tracing = is_tracing()
        self._runner: Runner | None = None
        self._plans: CompiledCache[Shape, Compiled]
        self._write_plans: CompiledCache[WriteShape, CompiledWrite] | None = None

    async def execute(
        self, statement: Statement, view: RoleSnapshot, caller: Caller, timeout: float
    ) -> ResultSet:
        """Return the rows of *statement* of the tools of *view*, or raise a CallError.

        Raise SchemaChanged if the view is out of date. No statement is still running when this returns.
        *timeout*: seconds, if less than other limits.
        """
        if self._runner is None:
            self._runner = await self._backend.runner()
            self._plans = CompiledCache(self._runner.compile)
        plan = await self._plans.plan(statement.shape)
        run = Run(
            plan=plan,
            values=values_of(plan, statement, caller),
            limit=statement.limit,
            context=context_of(view, caller, min(timeout, statement.timeout), self._request_id_target),
            shape=statement.shape,
        )
        try:
            found = await (_run_with_span(self._runner, run) if self._is_tracing else self._runner.run(run))
        except errors.CallError as exc:
            raise refused_read(exc, statement, run.context.timeout, view.catalog) from exc
        if plan.is_masked:
            types = [output.term.type for output in found.outputs]
            found = replace(found, rows=masked_rows(types, found.rows, view.hash_key))
        return found

    async def run_sql(self, statement: SqlStatement, view: RoleSnapshot, caller: Caller) -> ResultSet:
        """Return the rows of the *statement* that *caller* wrote, or raise a CallError."""
        run = sql_run(statement, view, caller, self._request_id_target)
        runner = await self._backend.sql_runner()
        try:
            # The SQL holds values of the caller, so the span does not get it.
            with statement_span("", "SELECT", "run_sql") if self._is_tracing else nullcontext():
                return await runner.run(run)
        except errors.TimedOut as exc:
            raise errors.TimedOut(
                f"The statement reached its timeout of {run.context.timeout:g} seconds and was stopped.",
                hint=exc.hint or "Filter on key columns first, or read fewer tables.",
            ) from exc

    async def change(
        self,
        transaction: Transaction,
        view: RoleSnapshot,
        caller: Caller,
        entry: JournalEntry | None = None,
        agrees: Agrees | None = None,
    ) -> Changed:
        """Run *transaction* of the tools of *view*, or raise a CallError.

        Roll back a dry run, and a change with which *agrees* does not agree. *entry*: what the journal keeps.
        Raise SchemaChanged if the view is out of date: then nothing was changed.
        """
        writer = await self._backend.writer()
        if self._write_plans is None:
            self._write_plans = CompiledCache(writer.compile)
        steps = [
            (await self._write_plans.plan(shape), {**values, **preset_values(shape, caller)})
            for shape, values in transaction.writes
        ]
        shape, _ = transaction.writes[0]

        def keeps(written: WriteResult) -> bool:
            return not transaction.dry_run and (agrees is None or agrees(_outcome(written, shape, view)))

        run = WriteRun(
            steps=steps,
            claims={claim: claim_of(caller, claim) for plan, _ in steps for claim in plan.claims},
            keeps=keeps,
            counts=True,
            entry=entry,
            context=context_of(view, caller, transaction.timeout, self._request_id_target),
            versions=shape.versions,
        )
        try:
            written = await (_traced_write(writer, run) if self._is_tracing else writer.write(run))
        except errors.CallError as exc:
            if entry is not None and entry.key and isinstance(exc, errors.UnknownOutcome):
                raise errors.UnknownOutcome(exc.message, hint=REPEAT) from exc
            raise refused_write(exc, transaction, view.catalog) from exc
        return _outcome(written, shape, view)

    async def enter(self, entry: JournalEntry, view: RoleSnapshot, caller: Caller) -> None:
        """Keep *entry* in the journal without a change, or raise NotConfirmed if its ID is there already."""
        context = RunContext(timeout=view.role.limits.timeout, session=session_of(view.role, caller))
        run = WriteRun(steps=(), claims={}, keeps=lambda _: True, counts=False, context=context, entry=entry)
        await (await self._backend.writer()).write(run)

    async def is_current(self, stamp: str) -> bool:
        """Return whether the schema still has *stamp*; True if the database does not answer."""
        with anyio.move_on_after(STAMP_TIMEOUT), suppress(errors.CallError):
            return await self._backend.stamp() == stamp
        return True


def sql_run(
    asked: SqlStatement,
    view: RoleSnapshot,
    caller: Caller,
    request_id_target: RequestIdTarget | None = None,
) -> SqlRun:
    """Return *asked* as it runs for *caller*, who sees *view*."""
    return SqlRun(
        sql=asked.sql,
        catalog=view.catalog,
        whole=view.whole,
        claims=caller.claims,
        caller=caller.identity or caller.role,
        limit=asked.limit,
        longest=asked.longest,
        most_bytes=asked.most_bytes,
        context=context_of(view, caller, view.role.limits.timeout, request_id_target),
        functions=view.role.functions,
    )


def context_of(
    view: RoleSnapshot, caller: Caller, timeout: float, request_id_target: RequestIdTarget | None
) -> RunContext:
    """Return how something runs for *caller*, who sees *view*, for at most *timeout* seconds."""
    return RunContext(
        timeout=min(timeout, view.role.limits.timeout),
        session=session_of(view.role, caller),
        stamp=view.stamp,
        comment=request_comment() if request_id_target == "comment" else "",
        application=f"dbtools:{request_id()}" if request_id_target == "application_name" else "",
    )


def _outcome(written: WriteResult, shape: WriteShape, view: RoleSnapshot) -> Changed:
    """Return *written* as the role of *view* sees it."""
    types = [output.term.type for output in shape.outputs]
    return Changed(
        shape=shape,
        outputs=shape.outputs,
        rows=masked_rows(types, written.rows, view.hash_key),
        before=mask_existing_rows(types, written.before, view.hash_key),
        affected=written.affected,
        left=mask_existing_rows(types, written.left, view.hash_key),
        left_after=mask_existing_rows(types, written.left_after, view.hash_key),
        ignored=written.ignored,
        dry_run=not (written.is_kept or written.earlier),
        elsewhere=written.elsewhere,
        unchecked=written.unchecked,
        earlier=written.earlier,
    )


async def _run_with_span(runner: Runner, run: Run) -> ResultSet:
    """Return the rows of *run*, and record a span."""
    shape = run.plan.shape
    read = shape.name if isinstance(shape, QueryShape) else shape.table.name
    with statement_span(run.plan.sql, "SELECT", read) as span:
        found = await runner.run(run)
        span.set_attribute("db.response.returned_rows", len(found.rows))
    return found


async def _traced_write(writer: Writer, run: WriteRun) -> WriteResult:
    """Return what *run* did, and record a span with the SQL of its first change."""
    first, _ = run.steps[0]
    kind = first.shape.kind.upper() if isinstance(first.shape, Write) else "WRITE"
    with statement_span(first.change.sql, kind, first.shape.target[1]) as span:
        written = await writer.write(run)
        span.set_attribute("db.response.returned_rows", written.affected)
    return written


def values_of(plan: Compiled, statement: Statement, caller: Caller) -> Mapping[str, object]:
    """Return the values of *statement*, and the claims of *caller* that the filters of *plan* need.

    Raise Denied if a claim is missing: no filter is ever left out.
    """
    if not plan.claims:
        return statement.values
    return {**statement.values, **{name: claim_of(caller, claim) for name, claim in plan.claims.items()}}


def preset_values(shape: WriteShape, caller: Caller) -> Mapping[str, object]:
    """Return the values that *shape* sets by itself, with the claims of *caller*; or raise Denied."""
    values: dict[str, object] = {}
    if isinstance(shape, QueryShape):
        return values
    parameters = [
        (preset, each.parameters[preset.column]) for each in shape.variants for preset in each.presets
    ]
    for preset, parameter in parameters:
        value = preset.value
        if preset.claim is not None:
            try:
                value = decode_value(preset.column.type, claim_of(caller, preset.claim), "")
            except errors.BadValue as exc:
                raise errors.Denied from exc
        values[parameter] = value
    return values


def session_of(role: Role, caller: Caller) -> Mapping[str, str]:
    """Return the settings of a session of *caller*, who has *role*, or raise Denied."""
    if not role.session:
        return NO_SESSION
    values = {
        each.name: each.value if each.claim is None else claim_of(caller, each.claim) for each in role.session
    }
    return {name: str(each).lower() if isinstance(each, bool) else str(each) for name, each in values.items()}


def claim_of(caller: Caller, name: str) -> object:
    """Return the claim *name* of *caller*, or raise Denied."""
    value = caller.claims.get(name)
    if value is None:
        raise errors.Denied
    return value
