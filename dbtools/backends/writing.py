"""Compile writes with SQLAlchemy Core, for every database: a Write in, its statements out.

The row filter of the role applies to the row before the change and after it. The change returns what
identifies the row, by which it is read again: as the role sees it, and if it satisfies the role's check.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools import errors
from dbtools.backends.plans import Plan, WritePlan
from dbtools.backends.port import UNFIT, UNSEEN, Row, WriteRun, Written
from dbtools.backends.selects import all_hold, cells_of, compile_select, plan_of
from dbtools.backends.sources import Element, Grammar, Truth, column_of, filtering
from dbtools.catalog import Column, RowFilter
from dbtools.masks import BLANK
from dbtools.sql import Fragment, Parameter
from dbtools.statement import Condition, Output, Select, Write, WriteKind, assigned
from dbtools.types import Family, Operator


def compile_write(shape: Write, grammar: Grammar) -> WritePlan:
    """Return the SQL of *shape* in *grammar*."""
    is_update, is_delete = shape.kind is WriteKind.UPDATE, shape.kind is WriteKind.DELETE
    own = Select(table=shape.table, outputs=shape.outputs, conditions=shape.conditions[: shape.key])
    check = shape.writes.check
    return WritePlan(
        shape=shape,
        before=compile_select(own, grammar) if is_update or is_delete else None,
        change=_change(shape, grammar),
        after=None if is_delete else compile_select(_identified(shape, shape.table.filter), grammar),
        checked=None if is_delete or check is None else compile_select(_checked(shape, check), grammar),
    )


def place(at: int) -> str:
    """Return the parameter for the column number *at* of an identity."""
    return f"identity{at}"


Script = Generator[tuple[Plan, tuple[object, ...]] | None, Sequence[Row], Written]


def script_of(run: WriteRun) -> Script:
    """Yield the statements of *run* in their order, each with its parameters; get their rows.

    None asks for all deferred constraints to be checked. Raise a CallError if the transaction must be rolled
    back.
    """
    rows: list[Row] = []
    before: list[Row] = []
    changed: list[tuple[WritePlan, Mapping[str, object], Row]] = []
    for plan, values in run.steps:
        if plan.shape.kind is WriteKind.UPDATE and plan.before is not None:
            seen = yield _bound(plan.before, values, run)
            if not seen:
                raise errors.NoRow
            before += seen
        found = yield _bound(plan.change, values, run)
        if not found:
            seen = (yield _bound(plan.before, values, run)) if plan.before is not None else ()
            raise _unchanged(plan, seen)
        if plan.after is None:
            rows += found
        changed += ((plan, values, each) for each in found)
    yield None
    for plan, values, identity in changed:
        if plan.after is None:
            continue
        places = {place(at): cell for at, cell in enumerate(identity)}
        shown = yield _bound(plan.after, {**values, **places}, run)
        if not shown:
            raise errors.Denied(UNSEEN)
        if plan.checked is not None and not (yield _bound(plan.checked, {**values, **places}, run)):
            raise errors.Denied(UNFIT)
        rows += shown
    return Written(rows=rows, before=before, affected=len(changed))


def _bound(plan: Plan, values: Mapping[str, object], run: WriteRun) -> tuple[Plan, tuple[object, ...]]:
    claims = {name: run.claims[claim] for name, claim in plan.claims.items()}
    return plan, plan.bound({**values, **claims}, 1)


def _unchanged(plan: WritePlan, seen: Sequence[Row]) -> errors.CallError:
    """Return why a change found no row; *seen*: the row exists."""
    if plan.before is not None and not seen:
        return errors.NoRow()
    if len(plan.shape.conditions) > plan.shape.key:
        return errors.Conflict()
    refused = errors.ConstraintViolated()
    refused.kind = errors.Broken.TRIGGER
    return refused


def _identified(shape: Write, filter: RowFilter | None) -> Select:
    """Return the shape that reads the row with an identity, if *filter* shows it."""
    table = shape.table
    known = table.column_by_name
    others = tuple(column for column in table.identity if column.name not in known)
    return Select(
        table=replace(table, columns=(*table.columns, *others), filter=filter),
        outputs=shape.outputs,
        conditions=tuple(
            Condition(term=column, operator=Operator.EQ, parameters=(place(at),))
            for at, column in enumerate(table.identity)
        ),
    )


def _checked(shape: Write, check: RowFilter) -> Select:
    """Return the shape that finds the row with an identity, if it also satisfies *check*."""
    outputs = tuple(map(_plain, shape.table.identity))
    return replace(_identified(shape, _both(shape.table.filter, check)), outputs=outputs)


def _both(filter: RowFilter | None, check: RowFilter) -> RowFilter:
    """Return the condition that both *filter* and *check* hold."""
    if filter is None:
        return check
    # On a separate line, a parenthesis cannot be part of a comment.
    pieces = ("(", *filter.condition.pieces, "\n) and (", *check.condition.pieces, "\n)")
    return RowFilter(
        condition=Fragment(pieces=pieces),
        casts=tuple(chain(*map(_casts, (filter, check)))),
        total=filter.total and check.total,
    )


def _casts(filter: RowFilter) -> Sequence[str]:
    """Return the cast of each claim in *filter*, empty where the database needs none."""
    claims = sum(isinstance(piece, Parameter) for piece in filter.condition.pieces)
    return filter.casts or ("",) * claims


def _change(shape: Write, grammar: Grammar) -> Plan:
    """Return the statement that changes the row."""
    table, claims = shape.table, dict[str, str]()
    written = (*shape.columns, *(preset.column for preset in shape.presets))
    names = dict.fromkeys(column.name for column in (*written, *table.columns, *table.identity))
    schema = quoted_name(table.schema, quote=True) if table.schema else None
    columns: list[sa.ColumnClause[Any]] = [sa.column(quoted_name(name, quote=True)) for name in names]
    target = sa.table(quoted_name(table.name, quote=True), *columns, schema=schema)
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
    lists = frozenset(assigned(each.name) for each in written if each.type.family is Family.ARRAY)
    returning = statement.returning(*cells_of(read))
    return plan_of(replace(shape, outputs=outputs), returning, grammar, types, lists, claims)


def _plain(column: Column) -> Output:
    return Output(term=column)


def _read(output: Output, target: sa.FromClause, grammar: Grammar) -> tuple[Element, ...]:
    """Return the cells of *output*, null in a blank column, which is never read."""
    column = sa.null() if output.term.type.mask in BLANK else column_of(target, output.term.name)
    return grammar.cell(column, output)
