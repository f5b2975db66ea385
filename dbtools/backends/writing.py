"""Compile writes with SQLAlchemy Core, for every database: a Write in, its statements out.

The row filter of the role applies to the row before the change and after it. The change returns what
identifies the row, by which it is read again: as the role sees it, and if it satisfies the role's check.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools import errors
from dbtools.backends.journal import Journal, completed, earlier_of, entered, outdated
from dbtools.backends.plans import Plan, WritePlan
from dbtools.backends.port import UNFIT, UNSEEN, Row, WriteResult, WriteRun
from dbtools.backends.selects import LISTS, all_hold, cells_of, compile_select, plan_of
from dbtools.backends.sources import Element, Grammar, Truth, column_of, filtering
from dbtools.catalog import Column, RowFilter
from dbtools.masks import BLANK
from dbtools.results import keys_of
from dbtools.statement import Condition, Output, QueryShape, Select, Write, WriteKind, assigned
from dbtools.types import Family, Operator


def compile_write(shape: Write, grammar: Grammar) -> WritePlan:
    """Return the SQL of *shape* in *grammar*."""
    own = Select(table=shape.table, outputs=shape.outputs, conditions=shape.conditions[: shape.key])
    found = replace(shape, outputs=tuple(map(_plain, shape.table.identity)))
    return WritePlan(
        shape=shape,
        before=None if shape.kind is WriteKind.INSERT else compile_select(own, grammar),
        change=_change(shape, grammar),
        after=_reading(shape, shape.table.filter, grammar) if shape.kind is not WriteKind.DELETE else None,
        checked=None if shape.check is None else _reading(found, shape.check, grammar),
    )


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
    before: list[Row] = []
    changed: list[tuple[WritePlan, Row]] = []
    for plan, values in run.steps:
        assert isinstance(plan.shape, Write)
        is_delete, expects = plan.after is None, len(plan.shape.conditions) > plan.shape.key
        # What is expected is compared only with a row that the role sees: a comparison may raise an error.
        if plan.before is not None and (expects or not is_delete):
            seen = yield _bound(plan.before, values, run)
            if not seen:
                raise errors.NoRow
            before += () if is_delete else seen
        found = yield _bound(plan.change, values, run)
        if not found:
            seen = (yield _bound(plan.before, values, run)) if plan.before is not None else ()
            raise _unchanged(plan, seen)
        if len(found) > 1:
            raise errors.TooManyRows
        rows += found if is_delete else ()
        changed += ((plan, each) for each in found)
    yield None
    for plan, identity in changed:
        rows += yield from _after(plan, identity, run)
    return WriteResult(rows=rows, before=before, affected=len(changed))


Reads = Generator[tuple[Plan, tuple[object, ...]] | None, Sequence[Row], Sequence[Row]]


def _after(plan: WritePlan, identity: Row, run: WriteRun) -> Reads:
    """Read the row with *identity* after its change, or raise Denied if the role may not write it so."""
    if plan.after is None or isinstance(plan.shape, QueryShape):
        return ()
    places = {place(at): cell for at, cell in enumerate(identity)}
    shown = yield _bound(plan.after, places, run)
    # Without a filter, a trigger has moved the row elsewhere.
    if not shown and plan.shape.table.filter is not None:
        raise errors.Denied(UNSEEN)
    if plan.checked is not None and not (yield _bound(plan.checked, places, run)):
        raise errors.Denied(UNFIT)
    return shown


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
    target, claims, identity = _target(shape), dict[str, str](), shape.table.identity
    conditions = [
        Condition(term=column, operator=Operator.EQ, parameters=(place(at),))
        for at, column in enumerate(identity)
    ]
    same = all_hold(conditions, target, grammar)
    read = [_read(each, target, grammar) for each in shape.outputs]
    select = sa.select(*cells_of(read)).select_from(target).where(same)
    if filter is not None:
        # A CASE is evaluated in its order: the filter may raise an error on another row.
        select = select.where(sa.case((same, filtering(filter, grammar, claims))))
    types = {place(at): column.type for at, column in enumerate(identity)}
    return plan_of(shape, select, grammar, types, frozenset(), claims)


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
    written = shape.written
    values = {target.c[column.name]: grammar.stored(assigned(column.name), column.type) for column in written}
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
    outputs = shape.outputs if shape.kind is WriteKind.DELETE else tuple(map(_plain, table.identity))
    read = [_read(each, target, grammar) for each in outputs]
    types = {assigned(each.name): each.type.element or each.type for each in written}
    types |= {name: each.type for each in shape.conditions for name in each.parameters}
    arrays = (assigned(each.name) for each in written if each.type.family is Family.ARRAY)
    among = (name for each in shape.conditions if each.operator in LISTS for name in each.parameters)
    lists = frozenset((*arrays, *among))
    returning = statement.returning(*cells_of(read))
    return plan_of(replace(shape, outputs=outputs), returning, grammar, types, lists, claims)


def _plain(column: Column) -> Output:
    return Output(term=column)


def _read(output: Output, target: sa.FromClause, grammar: Grammar) -> tuple[Element, ...]:
    """Return the cells of *output*, null in a blank column, which is never read."""
    column = sa.null() if output.term.type.mask in BLANK else column_of(target, output.term.name)
    return grammar.cell(column, output)
