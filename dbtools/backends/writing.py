"""Compile writes with SQLAlchemy Core, for every database: a Write in, its statements out.

The row filter of the role applies to the row before the change and after it. The change returns what
identifies the row, by which it is read again: as the role sees it, and if it satisfies the role's check.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools import errors
from dbtools.backends.journal import Journal, completed, earlier_of, entered, outdated
from dbtools.backends.plans import Plan, WritePlan
from dbtools.backends.port import UNFIT, UNSEEN, Row, WriteResult, WriteRun
from dbtools.backends.selects import LISTS, all_hold, cells_of, compile_select, plan_of
from dbtools.backends.sources import Element, Grammar, Truth, column_of, filtering
from dbtools.catalog import Column, RowFilter
from dbtools.changed import keys_of
from dbtools.masks import BLANK
from dbtools.statement import Condition, Output, QueryShape, Select, Write, WriteKind
from dbtools.types import ColumnType, Family, Operator

ATTEMPTS = 3  #: at an upsert, if other transactions insert and delete a row with its key


def compile_write(shape: Write, grammar: Grammar) -> WritePlan:
    """Return the SQL of *shape* in *grammar*."""
    own = Select(table=shape.table, outputs=shape.outputs, conditions=shape.conditions[: shape.key])
    found = replace(shape, outputs=tuple(map(_plain, shape.table.identity)))
    instead = shape.instead and replace(shape.instead, conditions=_identified(shape))
    return WritePlan(
        shape=shape,
        before=None if shape.kind is WriteKind.INSERT else compile_select(own, grammar),
        change=_change(shape, grammar),
        after=_reading(shape, shape.table.filter, grammar) if shape.kind is not WriteKind.DELETE else None,
        checked=None if shape.check is None else _reading(found, shape.check, grammar),
        existing=_existing(shape, grammar) if shape.conflict else None,
        instead=None if instead is None else _change(instead, grammar),
    )


def attempt_of(shape: Write, grammar: Grammar) -> Plan:
    """Return the statement that inserts the row of an upsert, unless a row has the key."""
    target = _target(shape)
    key = [target.c[column.name] for column in shape.conflict]
    insert = grammar.insert(target).values(_values(shape, grammar))
    return _returning(insert.on_conflict_do_nothing(index_elements=key), shape, target, grammar, {})


def place(at: int) -> str:
    """Return the parameter for the column number *at* of an identity."""
    return f"identity{at}"


Script = Generator[tuple[Plan, tuple[object, ...]] | None, Sequence[Row], WriteResult]


def script_of(run: WriteRun, journal: Journal) -> Script:
    """Yield the statements of *run* in their order, each with its parameters; get their rows.

    A statement without outputs gets one row with the number of rows that it changed. None asks for all
    deferred constraints to be checked. Raise a CallError if the transaction must be rolled
    back.
    """
    if run.entry is None:
        return (yield from _changes(run))
    yield journal.prune, journal.prune.bound(outdated(), 1)
    parameters = entered(run.entry)
    if not (yield journal.enter, journal.enter.bound(parameters, 1)):
        earlier = earlier_of(run.entry, (yield journal.find, journal.find.bound(parameters, 1)))
        return WriteResult(rows=(), before=(), affected=earlier.affected, earlier=earlier)
    result = yield from _changes(run)
    keys = keys_of(run.steps[0][0].shape, result.rows)
    yield journal.complete, journal.complete.bound(completed(run.entry, result.affected, keys), 1)
    return result


class Step(NamedTuple):
    """What one step has done."""

    found: Sequence[Row]  #: the identity of the changed row, or the cells of the deleted one
    before: Sequence[Row | None] = ()
    previous: Row = ()  #: the identity of the row before an upsert updated it


def _changes(run: WriteRun) -> Script:
    plan, values = run.steps[0]
    if isinstance(plan.shape, QueryShape):
        return (yield from _of_query(plan, plan.shape.writes or 0, values, run))
    return (yield from _of_rows(run))


def _of_query(plan: WritePlan, most: int, values: Mapping[str, object], run: WriteRun) -> Script:
    found = yield _bound(plan.change, values, run, most)
    affected = len(found) if plan.change.outputs else int(str(found[0][0]))
    if affected > most:
        raise errors.TooManyRows(f"The query would change more than {most} row{'s' * (most > 1)}.")
    yield None
    return WriteResult(rows=found if plan.change.outputs else (), before=(), affected=affected)


def _of_rows(run: WriteRun) -> Script:
    rows: list[Row] = []
    before: list[Row | None] = []
    changed: list[tuple[WritePlan, Row]] = []
    ignored = 0
    for plan, values in run.steps:
        step = yield from (_changed if plan.existing is None else _upserted)(plan, values, run)
        rows += step.found if plan.after is None else ()
        before += step.before
        ignored += not step.found
        for identity in step.found:
            # An earlier step may have changed the same row.
            changed = [(each, identity if known == step.previous else known) for each, known in changed]
            changed.append((plan, identity))
    yield None
    for plan, identity in changed:
        rows += yield from _after(plan, identity, run)
    return WriteResult(rows=rows, before=before, affected=len(changed), ignored=ignored)


Steps = Generator[tuple[Plan, tuple[object, ...]] | None, Sequence[Row], Step]


def _changed(plan: WritePlan, values: Mapping[str, object], run: WriteRun) -> Steps:
    """Insert, update or delete a row, or raise a CallError."""
    before: Sequence[Row] = ()
    assert isinstance(plan.shape, Write)
    is_delete, expects = plan.after is None, len(plan.shape.conditions) > plan.shape.key
    # What is expected is compared only with a row that the role sees: a comparison may raise an error.
    if plan.before is not None and (expects or not is_delete):
        before = yield _bound(plan.before, values, run)
        if not before:
            raise errors.NoRow
    found = yield _bound(plan.change, values, run)
    if not found:
        seen = (yield _bound(plan.before, values, run)) if plan.before is not None else ()
        raise _unchanged(plan, seen)
    if len(found) > 1:
        raise errors.TooManyRows
    return Step(found, () if is_delete else before)


def _upserted(plan: WritePlan, values: Mapping[str, object], run: WriteRun) -> Steps:
    """Insert a row, or update the visible one with its key or leave it as it is, or raise a CallError.

    If a hidden row has the key, the plain insert fails as any other.
    """
    assert isinstance(plan.shape, Write)
    assert plan.existing is not None
    for left in reversed(range(ATTEMPTS + 1)):
        seen = yield _bound(plan.existing, values, run)
        if seen or plan.attempt is None or not left:
            break
        found = yield _bound(plan.attempt, values, run)
        if found:
            return Step(found, (None,))
        # The row is hidden, or another transaction has just inserted it.
    if not seen:
        inserted = yield from _changed(plan, values, run)
        return inserted._replace(before=(None,))
    if len(seen) > 1:
        raise errors.TooManyRows
    if plan.instead is None:
        return Step(())
    width = len(plan.shape.table.identity)
    previous, before = seen[0][:width], seen[0][width:]
    found = yield _bound(plan.instead, {**values, **_places(previous)}, run)
    if not found:
        raise _unchanged(plan, seen)
    return Step(found, (before,), previous)


Reads = Generator[tuple[Plan, tuple[object, ...]] | None, Sequence[Row], Sequence[Row]]


def _after(plan: WritePlan, identity: Row, run: WriteRun) -> Reads:
    """Read the row with *identity* after its change, or raise Denied if the role may not write it so."""
    if plan.after is None or isinstance(plan.shape, QueryShape):
        return ()
    places = _places(identity)
    shown = yield _bound(plan.after, places, run)
    # Without a filter, a trigger has moved the row elsewhere.
    if not shown and plan.shape.table.filter is not None:
        raise errors.Denied(UNSEEN)
    if plan.checked is not None and not (yield _bound(plan.checked, places, run)):
        raise errors.Denied(UNFIT)
    return shown


def _places(identity: Row) -> Mapping[str, object]:
    return {place(at): cell for at, cell in enumerate(identity)}


def _bound(
    plan: Plan, values: Mapping[str, object], run: WriteRun, most: int = 1
) -> tuple[Plan, tuple[object, ...]]:
    claims = {name: run.claims[claim] for name, claim in plan.claims.items()}
    return plan, plan.bound({**values, **claims}, most)


def _unchanged(plan: WritePlan, seen: Sequence[Row]) -> errors.CallError:
    """Return why a change found no row; *seen*: the row exists."""
    assert isinstance(plan.shape, Write)
    if plan.before is not None and not seen:
        return errors.NoRow()
    if len(plan.shape.conditions) > plan.shape.key:
        return errors.Conflict()
    refused = errors.ConstraintViolated()
    refused.kind = errors.Broken.TRIGGER
    return refused


def _reading(shape: Write, filter: RowFilter | None, grammar: Grammar) -> Plan:
    """Return the statement that reads the row with an identity, if *filter* shows it."""
    target = _target(shape)
    same = all_hold(_identified(shape), target, grammar)
    return _reading_where(same, shape, filter, target, grammar)


def _existing(shape: Write, grammar: Grammar) -> Plan:
    """Return the statement that reads the row with the key of an upsert, if the role sees it.

    Cells and values are compared as the unique key compares them.
    """
    target, values = _target(shape), _values(shape, grammar)
    same = sa.and_(*(column_of(target, each.name) == values[each.name] for each in shape.conflict))
    whole = replace(shape, outputs=(*map(_plain, shape.table.identity), *shape.outputs))
    return _reading_where(same, whole, shape.table.filter, target, grammar)


def _reading_where(
    same: Truth, shape: Write, filter: RowFilter | None, target: sa.TableClause, grammar: Grammar
) -> Plan:
    """Return the statement that reads the row of *target* that is the *same*, if *filter* shows it."""
    claims: dict[str, str] = {}
    read = [_read(each, target, grammar) for each in shape.outputs]
    select = sa.select(*cells_of(read)).select_from(target).where(same)
    if filter is not None:
        # A CASE is evaluated in its order: the filter may raise an error on another row.
        select = select.where(sa.case((same, filtering(filter, grammar, claims))))
    return plan_of(shape, select, grammar, *_types(shape, _identified(shape)), claims)


def _identified(shape: Write) -> tuple[Condition, ...]:
    """Return the conditions that a row has an identity."""
    return tuple(
        Condition(term=column, operator=Operator.EQ, parameters=(place(at),))
        for at, column in enumerate(shape.table.identity)
    )


def _target(shape: Write) -> sa.TableClause:
    """Return the table of *shape* without an alias, as the SQL of row filters names it."""
    table = shape.table
    names = dict.fromkeys(column.name for column in (*shape.written, *table.columns, *table.identity))
    schema = quoted_name(table.schema, quote=True) if table.schema else None
    columns: list[sa.ColumnClause[Any]] = [sa.column(quoted_name(name, quote=True)) for name in names]
    return sa.table(quoted_name(table.name, quote=True), *columns, schema=schema)


def _change(shape: Write, grammar: Grammar) -> Plan:
    """Return the statement that changes the row."""
    table, target, claims = shape.table, _target(shape), dict[str, str]()
    values = _values(shape, grammar)
    statement: Any
    match shape.kind:
        case WriteKind.INSERT:
            statement = sa.insert(target).values(values)
        case WriteKind.UPDATE:
            statement = sa.update(target).values(values)
        case WriteKind.DELETE:
            statement = sa.delete(target)
    if shape.kind is not WriteKind.INSERT:
        where: list[Truth] = [all_hold(shape.conditions, target, grammar)]
        if table.filter is not None:
            where.append(filtering(table.filter, grammar, claims))
        statement = statement.where(*where)
    return _returning(statement, shape, target, grammar, claims)


def _returning(
    statement: Any, shape: Write, target: sa.TableClause, grammar: Grammar, claims: Mapping[str, str]
) -> Plan:
    """Return *statement*, which changes rows of *target*, with what it returns of each row."""
    is_delete = shape.kind is WriteKind.DELETE
    outputs = shape.outputs if is_delete else tuple(map(_plain, shape.table.identity))
    read = [_read(each, target, grammar) for each in outputs]
    returning, bound = statement.returning(*cells_of(read)), _types(shape, shape.conditions)
    return plan_of(replace(shape, outputs=outputs), returning, grammar, *bound, claims)


def _values(shape: Write, grammar: Grammar) -> Mapping[str, Element]:
    """Return the parameters for the new values, by column."""
    return {each.name: grammar.stored(name, each.type) for each, name in shape.parameters.items()}


def _types(shape: Write, conditions: Sequence[Condition]) -> tuple[Mapping[str, ColumnType], frozenset[str]]:
    """Return the types of the new values and of what *conditions* compare, and which of them are lists."""
    types = {name: each.type.element or each.type for each, name in shape.parameters.items()}
    types |= {name: each.type for each in conditions for name in each.parameters}
    arrays = (name for each, name in shape.parameters.items() if each.type.family is Family.ARRAY)
    among = (name for each in conditions if each.operator in LISTS for name in each.parameters)
    return types, frozenset((*arrays, *among))


def _plain(column: Column) -> Output:
    return Output(term=column)


def _read(output: Output, target: sa.FromClause, grammar: Grammar) -> tuple[Element, ...]:
    """Return the cells of *output*, null in a blank column, which is never read."""
    column = sa.null() if output.term.type.mask in BLANK else column_of(target, output.term.name)
    return grammar.cell(column, output)
