"""The statements of a write in their order, for every database. A WriteRun in; its WriteResult out.

A script is a generator: it yields each statement with its parameters, and gets the rows. The statements of
the journal, the table `dbtools_write`, make a change once: they run in its transaction.
"""

import json
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import sqlalchemy as sa

from dbtools import errors
from dbtools.backends.compile.selects import plan_of
from dbtools.backends.compile.sources import Grammar
from dbtools.backends.compiled import Compiled, CompiledWrite, pin, place
from dbtools.backends.refusals import Cause, kept_row, many_by_query, many_matches, unfit_row, unseen_row
from dbtools.backends.runs import JournalEntry, Row, WriteResult, WriteRun
from dbtools.schema.catalog import Column
from dbtools.statements.select import Output, QueryShape
from dbtools.statements.write import (
    KEPT,
    EarlierCall,
    RowKeys,
    WriteKind,
    keys_of,
    repeated_key,
    taken_key,
    used_confirmation,
)
from dbtools.values.types import ColumnType, Family

JOURNAL_TABLE = "dbtools_write"
PRUNED = 100  #: how many outdated entries of the journal one call removes at most
JOURNAL_COLUMNS = ("id", "caller", "tool", "key", "arguments", "seconds", "affected", "keys")
OTHER = ColumnType(family=Family.OTHER, name="")
ATTEMPTS = 3  #: of an upsert, while other transactions insert and delete a row with its key
#: A statement, and the parameters of each of its runs; their rows come back together, in this order.
BoundPlan = tuple[Compiled, *tuple[Row, ...]]
T = TypeVar("T")
Script = Generator[BoundPlan | None, Sequence[Row], T]


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The statements on the journal of one database."""

    prune: Compiled  #: removes entries that are older than the parameter `seconds`
    enter: Compiled  #: returns a row, or none if the ID or the key is taken
    find: Compiled  #: returns what the entry with the key has: arguments, seconds, affected and keys
    complete: Compiled  #: adds affected and keys to the entry with an ID

    def includes(self, plan: Compiled) -> bool:
        """Return whether *plan* is one of these."""
        return any(plan is each for each in (self.prune, self.enter, self.find, self.complete))


def journal_of(grammar: Grammar, schema: str) -> Journal:
    """Return the statements in *grammar* on the journal in *schema*."""
    table = sa.table(JOURNAL_TABLE, *map(sa.column, JOURNAL_COLUMNS), schema=schema)
    c = table.c
    few = sa.select(c.id).where(c.seconds < sa.bindparam("seconds")).limit(PRUNED)
    # Other calls may be removing the same entries. As a subquery, it could run for each row, and find others.
    old = few.with_for_update(skip_locked=True).cte("old")
    values: dict[str, sa.BindParameter[object]] = {name: sa.bindparam(name) for name in JOURNAL_COLUMNS}
    same = [c[name] == values[name] for name in ("caller", "tool", "key")]
    entered = ("id", "caller", "tool", "key", "arguments", "seconds")
    enter = grammar.insert(table).values({name: values[name] for name in entered}).on_conflict_do_nothing()
    found = (c.arguments, c.seconds, c.affected, c["keys"])

    def plan(statement: object, *names: str) -> Compiled:
        outputs = tuple(Output(term=Column(name=name, type=OTHER)) for name in names)
        shape = QueryShape(name=JOURNAL_TABLE, pieces=(), outputs=outputs, types={}, casts={})
        return plan_of(shape, statement, grammar, {}, frozenset(), {})

    return Journal(
        prune=plan(sa.delete(table).where(c.id.in_(sa.select(old.c.id)))),
        enter=plan(enter.returning(c.id), "id"),
        find=plan(sa.select(*found).where(*same), "arguments", "seconds", "affected", "keys"),
        complete=plan(
            sa.update(table)
            .where(c.id == values["id"])
            .values(affected=values["affected"], keys=values["keys"])
        ),
    )


def script_of(run: WriteRun, journal: Journal) -> Script[WriteResult]:
    """Yield the statements of *run* in their order, each with its parameters; get their rows.

    A statement without outputs gets one row with the number of rows that it changed. None asks for all
    deferred constraints to be checked. Raise a CallError if the transaction must be rolled back. Without
    steps, only the entry is kept.
    """
    if run.entry is None:
        return (yield from _run_steps(run))
    now = int(time.time())
    yield journal.prune, journal.prune.bind_values({"seconds": now - KEPT}, 1)
    parameters = {**run.entry._asdict(), "seconds": now}
    if not (yield journal.enter, journal.enter.bind_values(parameters, 1)):
        earlier = _earlier_call(run.entry, (yield journal.find, journal.find.bind_values(parameters, 1)))
        return WriteResult(rows=(), before=(), affected=earlier.affected, earlier=earlier)
    if not run.steps:
        return WriteResult(rows=(), before=(), affected=0)
    result = yield from _run_steps(run)
    keys = keys_of(run.steps[0][0].shape, result.rows)
    done = {"affected": result.affected, "keys": None if keys is None else json.dumps(keys)}
    yield journal.complete, journal.complete.bind_values({"id": run.entry.id, **done}, 1)
    return result


def _earlier_call(entry: JournalEntry, found: Sequence[Row]) -> EarlierCall:
    """Return the call that has the key of *entry*, as *found*; raise Conflict or NotConfirmed."""
    if not found:
        raise used_confirmation()
    ((arguments, seconds, affected, kept),) = found
    if arguments != entry.arguments:
        raise taken_key()
    keys: RowKeys | None = None
    if kept is not None:
        table, columns, rows = json.loads(str(kept))
        keys = RowKeys(tuple(table), tuple(columns), rows)
    return EarlierCall(affected=int(str(affected)), keys=keys, seconds=int(str(seconds)))


class StepResult(NamedTuple):
    """What one step has done."""

    found: Sequence[Row]  #: the identity of the changed row, or the cells of the deleted one
    before: Sequence[Row | None] = ()
    existing: Row = ()  #: the identity of the row that an upsert has found, or a keyed update has changed


def _run_steps(run: WriteRun) -> Script[WriteResult]:
    plan, values = run.steps[0]
    if isinstance(plan.shape, QueryShape):
        return (yield from _change_by_query(plan, plan.shape.writes or 0, values, run))
    if plan.shape.chosen is not None:
        return (yield from _change_matching(plan, values, run))
    return (yield from _change_each(run))


def _change_by_query(
    plan: CompiledWrite, most: int, values: Mapping[str, object], run: WriteRun
) -> Script[WriteResult]:
    found = yield _bound_plan(plan.change, values, run=run, limit=most)
    affected = len(found) if plan.change.outputs else int(str(found[0][0]))
    if affected > most:
        raise many_by_query(most)
    yield None
    return WriteResult(rows=found if plan.change.outputs else (), before=(), affected=affected)


def _change_each(run: WriteRun) -> Script[WriteResult]:
    rows: list[Row] = []
    before: list[Row | None] = []
    changed: list[tuple[CompiledWrite, Row]] = []
    step_of: dict[str, int] = {}  #: by the current identity of the row
    ignored = 0
    for at, (plan, values) in enumerate(run.steps):
        if plan.existing is None:
            step = yield from _change_row(plan, values, run, at)
            _refuse_repeated(plan, step.existing, at, step_of)
        else:
            step = yield from _upsert_row(plan, values, run, at, step_of)
        rows += step.found if plan.after is None else ()
        before += step.before
        ignored += not step.found
        identities = step.found if plan.after is not None else ()
        step_of |= dict.fromkeys(map(repr, identities or [step.existing]), at)
        changed += ((plan, identity) for identity in step.found)
    yield None
    read = yield from _read_each(changed, before, run)
    return read._replace(rows=[*rows, *read.rows], ignored=ignored)


def _change_row(
    plan: CompiledWrite, values: Mapping[str, object], run: WriteRun, at: int
) -> Script[StepResult]:
    """Insert, update or delete the row of the step *at*, or raise a CallError."""
    before: Sequence[Row] = ()
    is_delete, expects = plan.after is None, len(plan.write.conditions) > plan.write.key_count
    # What is expected is compared only with a row that the role sees: a comparison may raise an error.
    if plan.before is not None and (expects or not is_delete):
        before = yield _bound_plan(plan.before, values, run=run)
        if not before:
            # Row-level security shows fewer rows to a SELECT that locks them.
            is_seen = plan.unlocked is not None and (yield _bound_plan(plan.unlocked, values, run=run))
            raise kept_row() if is_seen else errors.NoRow(step=at)
    found = yield _bound_plan(plan.change, values, run=run)
    if not found:
        seen = (yield _bound_plan(plan.before, values, run=run)) if plan.before is not None else ()
        raise _unchanged_error(plan, seen, at)
    if len(found) > 1:
        raise errors.TooManyRows
    is_update = plan.write.kind is WriteKind.UPDATE
    return StepResult(found, () if is_delete else before, found[0] if is_update else ())


def _refuse_repeated(plan: CompiledWrite, identity: Row, at: int, step_of: Mapping[str, int]) -> None:
    """Raise BadValue if an earlier step was about the row of the step *at* too.

    Only the database knows which keys are equal: by a collation, or as numbers.
    """
    if identity and (first := step_of.get(repr(identity))) is not None:
        raise repeated_key(plan.write.conflict or plan.write.table.key_columns, at, first)


def _upsert_row(
    plan: CompiledWrite, values: Mapping[str, object], run: WriteRun, at: int, step_of: Mapping[str, int]
) -> Script[StepResult]:
    """Insert a row, or update or ignore the visible row with its key, or raise a CallError.

    If a hidden row has the key, the plain insert fails like any other. Only the database knows whether a new
    row is one of those that a partial key is about, so it is inserted first.
    """
    assert plan.existing is not None
    if plan.write.conflict_where and plan.attempt is not None:
        found = yield _bound_plan(plan.attempt, values, run=run)
        if found:
            return StepResult(found, (None,))
    for left in reversed(range(ATTEMPTS + 1)):
        seen = yield _bound_plan(plan.existing, values, run=run)
        if seen or plan.attempt is None or not left:
            break
        found = yield _bound_plan(plan.attempt, values, run=run)
        if found:
            return StepResult(found, (None,))
        # The row is hidden, or another transaction has just inserted it.
    if not seen:
        inserted = yield from _change_row(plan, values, run, at)
        return inserted._replace(before=(None,))
    if len(seen) > 1:
        raise errors.TooManyRows
    width = len(plan.write.table.identity)
    existing, before = seen[0][:width], seen[0][width:]
    _refuse_repeated(plan, existing, at, step_of)
    if plan.instead is None:
        return StepResult((), (), existing)
    found = yield _bound_plan(plan.instead, {**values, **_places(existing)}, run=run)
    if not found:
        raise _unchanged_error(plan, seen, at)
    return StepResult(found, (before,), existing)


def _change_matching(plan: CompiledWrite, values: Mapping[str, object], run: WriteRun) -> Script[WriteResult]:
    """Change all rows that meet the conditions, or none."""
    shape = plan.write
    assert plan.before is not None
    found = yield _bound_plan(plan.before, values, run=run, limit=shape.most)
    if len(found) > shape.most:
        raise many_matches(shape.most)
    if not found:
        return WriteResult(rows=(), before=(), affected=0)
    width = len(shape.outputs)
    before, pins = [row[:width] for row in found], [row[width:] for row in found]
    keys = [cells[: len(shape.table.key_columns)] for cells in pins]
    pinned = {pin(at): list(cells) for at, cells in enumerate(zip(*pins, strict=True))}
    changed = yield _bound_plan(plan.change, {**values, **pinned}, run=run)
    if shape.kind is WriteKind.DELETE:
        yield from _check_deleted(plan, keys, changed, run)
        yield None
        return WriteResult(rows=before, before=(), affected=len(found))
    identities = _in_order(plan, keys, changed)
    yield None
    if shape.writes.leaves:
        return (yield from _read_each([(plan, each) for each in identities], before, run))
    rows = yield from _read_after(plan, identities, run)
    if len(rows) != len(before):
        raise Cause.MOVED.error()
    return WriteResult(rows=rows, before=before, affected=len(found))


def _read_each(
    changed: Sequence[tuple[CompiledWrite, Row]], before: Sequence[Row | None], run: WriteRun
) -> Script[WriteResult]:
    """Read the *changed* rows with an identity one by one: some are not seen after the change."""
    rows: list[Row] = []
    stayed: list[Row | None] = []
    left: list[tuple[Row | None, Row | None]] = []
    for at, (plan, identity) in enumerate(changed):
        shown = yield from _read_after(plan, [identity], run)
        rows += shown
        old = before[at : at + 1]
        stayed += old if shown else ()
        if not shown and plan.after is not None:
            after = (
                (yield _bound_plan(plan.left, _places(identity), run=run)) if plan.left is not None else ()
            )
            left.append((next(iter(old), None), next(iter(after), None)))
    return WriteResult(
        rows=rows,
        before=stayed,
        affected=len(changed),
        left=[old for old, _ in left],
        left_after=[new for _, new in left],
    )


def _check_deleted(
    plan: CompiledWrite, keys: Sequence[Row], deleted: Sequence[Row], run: WriteRun
) -> Script[Sequence[Row]]:
    """Raise a CallError unless exactly the rows with *keys* are gone; the change has returned *deleted*."""
    left = set(keys) - set(deleted)
    # One database does not return a row that a foreign key deletes together with another one.
    if len(deleted) + len(left) > len(keys) or (left and plan.after is None):
        raise _incomplete_error(plan)
    if left and plan.after is not None and (yield _bound_plan(plan.after, *map(_places, left), run=run)):
        raise _incomplete_error(plan)
    return ()


def _in_order(plan: CompiledWrite, keys: Sequence[Row], changed: Sequence[Row]) -> Sequence[Row]:
    """Return the identities of the *changed* rows in the order of the *keys* that they had.

    Each of *changed* is an identity with the new key. Its columns that the change does not set
    distinguish the rows, since all get the same values in the others.
    """
    written = {column.name for column in plan.write.written}
    same = [at for at, column in enumerate(plan.write.table.key_columns) if column.name not in written]
    width = len(plan.write.table.identity)
    by_key = {tuple(row[width + at] for at in same): row[:width] for row in changed}
    identities = [by_key.get(tuple(key[at] for at in same)) for key in keys]
    if len(changed) != len(keys) or None in identities:
        raise _incomplete_error(plan)
    return [each for each in identities if each is not None]


def _incomplete_error(plan: CompiledWrite) -> errors.CallError:
    """Return why the change has left out some of the matching rows."""
    # A change that is pinned to the versions of rows misses those that another transaction has changed since.
    is_pinned = pin(0) in plan.change.parameters
    return Cause.CHANGED_CONCURRENTLY.error() if is_pinned else kept_row()


def _read_after(plan: CompiledWrite, identities: Sequence[Row], run: WriteRun) -> Script[Sequence[Row]]:
    """Read the rows with *identities* after the change, or raise Denied if the role may not write them."""
    if plan.after is None:
        return ()
    places = [_places(each) for each in identities]
    shown = yield _bound_plan(plan.after, *places, run=run)
    # Without a filter, a trigger has moved a row elsewhere.
    filtered = plan.write.table.filter is not None and not plan.write.writes.leaves
    if len(shown) < len(places) and filtered:
        raise unseen_row(plan.write)
    if plan.checked is not None and len((yield _bound_plan(plan.checked, *places, run=run))) < len(places):
        raise unfit_row(plan.write)
    return shown


def _places(identity: Row) -> Mapping[str, object]:
    return {place(at): cell for at, cell in enumerate(identity)}


def _bound_plan(plan: Compiled, *values: Mapping[str, object], run: WriteRun, limit: int = 1) -> BoundPlan:
    claims = {name: run.claims[claim] for name, claim in plan.claims.items()}
    return plan, *(plan.bind_values({**each, **claims}, limit) for each in values)


def _unchanged_error(plan: CompiledWrite, seen: Sequence[Row], at: int) -> errors.CallError:
    """Return why the change of the step *at* found no row; *seen*: the row exists."""
    if plan.before is not None and not seen:
        return errors.NoRow(step=at)
    if len(plan.write.conditions) > plan.write.key_count:
        return Cause.OTHER_VALUES.error()
    return kept_row()
