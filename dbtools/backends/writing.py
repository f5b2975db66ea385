"""Compile writes with SQLAlchemy Core, for every database: a Write in, its statements out.

The row filter of the role applies to the row before the change and after it. The change returns what
identifies the row, by which it is read again: as the role sees it, and if it satisfies the role's check.

Rows that conditions choose are read first, with their keys, and then changed by one statement. If another
transaction has changed one of them meanwhile, none is changed.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools import errors
from dbtools.backends.journal import Journal, completed, earlier_of, entered, outdated
from dbtools.backends.plans import Plan, WritePlan, pin
from dbtools.backends.port import UNFIT, UNSEEN, Row, WriteResult, WriteRun
from dbtools.backends.selects import (
    LISTS,
    all_hold,
    bindings_of,
    cells_of,
    compile_select,
    plan_of,
    select_of,
)
from dbtools.backends.sources import Element, Grammar, Truth, column_of, filtering
from dbtools.catalog import Column, RowFilter, identifying
from dbtools.masks import BLANK
from dbtools.results import keys_of
from dbtools.statement import Condition, Output, Select, Write, WriteKind, assigned
from dbtools.types import ColumnType, Family, Operator

MEANWHILE = "The rows have changed meanwhile, or a trigger keeps some as they are."
AGAIN = "Try again."
MOVED = "A trigger moves a row away."


def compile_write(shape: Write, grammar: Grammar) -> WritePlan:
    """Return the SQL of *shape* in *grammar*."""
    if shape.chosen is not None:
        return _compile_chosen(shape, shape.chosen, grammar)
    own = Select(table=shape.table, outputs=shape.outputs, conditions=shape.conditions[: shape.key])
    found = replace(shape, outputs=tuple(map(_plain, shape.table.identity)))
    return WritePlan(
        shape=shape,
        before=None if shape.kind is WriteKind.INSERT else compile_select(own, grammar),
        change=_change(shape, grammar),
        after=_reading(shape, shape.table.filter, grammar) if shape.kind is not WriteKind.DELETE else None,
        checked=None if shape.check is None else _reading(found, shape.check, grammar),
    )


def _compile_chosen(shape: Write, chosen: Select, grammar: Grammar) -> WritePlan:
    """Return the SQL of *shape*, which changes the rows that *chosen* reads: outputs, then keys."""
    key = identifying(shape.table.key_columns)
    version = () if grammar.version is None else (grammar.version,)
    read = replace(shape, chosen=None)
    found = replace(read, outputs=tuple(map(_plain, shape.table.identity)))
    if shape.kind is not WriteKind.DELETE:
        after: Plan | None = _reading(read, shape.table.filter, grammar)
    else:
        deleted = replace(read, outputs=tuple(map(_plain, key)))
        after = None if version else _reading(deleted, None, grammar, key)
    return WritePlan(
        shape=shape,
        before=compile_select(
            replace(chosen, outputs=(*shape.outputs, *map(_plain, (*key, *version)))), grammar
        ),
        change=_change(shape, grammar),
        after=after,
        checked=None if shape.check is None else _reading(found, shape.check, grammar),
    )


def place(at: int) -> str:
    """Return the parameter for the column number *at* of an identity."""
    return f"identity{at}"


class Step(NamedTuple):
    """A statement to run with each of the parameters; its rows are those of all runs, in their order."""

    plan: Plan
    parameters: Sequence[tuple[object, ...]]


Script = Generator[Step | None, Sequence[Row], WriteResult]


def script_of(run: WriteRun, journal: Journal) -> Script:
    """Yield the statements of *run* in their order; get their rows.

    None asks for all deferred constraints to be checked. Raise a CallError if the transaction must be rolled
    back.
    """
    if run.entry is None:
        return (yield from _changes(run))
    yield Step(journal.prune, [journal.prune.bound(outdated(), 1)])
    parameters = entered(run.entry)
    if not (yield Step(journal.enter, [journal.enter.bound(parameters, 1)])):
        earlier = earlier_of(run.entry, (yield Step(journal.find, [journal.find.bound(parameters, 1)])))
        return WriteResult(rows=(), before=(), affected=earlier.affected, earlier=earlier)
    result = yield from _changes(run)
    keys = keys_of(run.steps[0][0].shape, result.rows)
    yield Step(journal.complete, [journal.complete.bound(completed(run.entry, result.affected, keys), 1)])
    return result


def _changes(run: WriteRun) -> Script:
    if run.steps[0][0].shape.chosen is not None:
        return (yield from _change_chosen(*run.steps[0], run))
    rows: list[Row] = []
    before: list[Row] = []
    changed: list[tuple[WritePlan, Row]] = []
    for plan, values in run.steps:
        is_delete, expects = plan.after is None, len(plan.shape.conditions) > plan.shape.key
        # What is expected is compared only with a row that the role sees: a comparison may raise an error.
        if plan.before is not None and (expects or not is_delete):
            seen = yield _bound(plan.before, values, run=run)
            if not seen:
                raise errors.NoRow
            before += () if is_delete else seen
        found = yield _bound(plan.change, values, run=run)
        if not found:
            seen = (yield _bound(plan.before, values, run=run)) if plan.before is not None else ()
            raise _unchanged(plan, seen)
        if len(found) > 1:
            raise errors.TooManyRows
        rows += found if is_delete else ()
        changed += ((plan, each) for each in found)
    yield None
    for plan, identity in changed:
        rows += yield from _after(plan, [identity], run)
    return WriteResult(rows=rows, before=before, affected=len(changed))


Reads = Generator[Step | None, Sequence[Row], Sequence[Row]]


def _change_chosen(plan: WritePlan, values: Mapping[str, object], run: WriteRun) -> Script:
    """Change the rows that conditions choose, all or none."""
    shape = plan.shape
    assert plan.before is not None
    found = yield _bound(plan.before, values, run=run, limit=shape.most)
    if len(found) > shape.most:
        raise errors.TooManyRows
    if not found:
        return WriteResult(rows=(), before=(), affected=0)
    width = len(shape.outputs)
    before, pins = [row[:width] for row in found], [row[width:] for row in found]
    keys = [cells[: len(shape.table.key_columns)] for cells in pins]
    pinned = {pin(at): list(cells) for at, cells in enumerate(zip(*pins, strict=True))}
    changed = yield _bound(plan.change, {**values, **pinned}, run=run)
    if shape.kind is WriteKind.DELETE:
        yield from _check_deleted(plan, keys, changed, run)
        yield None
        return WriteResult(rows=before, before=(), affected=len(found))
    identities = _paired(plan, keys, changed)
    yield None
    rows = yield from _after(plan, identities, run)
    if len(rows) != len(before):
        raise errors.Refused(MOVED)
    return WriteResult(rows=rows, before=before, affected=len(found))


def _check_deleted(plan: WritePlan, keys: Sequence[Row], deleted: Sequence[Row], run: WriteRun) -> Reads:
    """Raise a CallError unless exactly the rows with *keys* are gone; the change has returned *deleted*."""
    left = set(keys) - set(deleted)
    # One database does not return a row that a foreign key deletes together with another one.
    if len(deleted) + len(left) > len(keys) or (left and plan.after is None):
        raise _kept(plan)
    if left and plan.after is not None and (yield _bound(plan.after, *map(_places, left), run=run)):
        raise _kept(plan)
    return ()


def _paired(plan: WritePlan, keys: Sequence[Row], changed: Sequence[Row]) -> Sequence[Row]:
    """Return the identities of the *changed* rows in the order of the *keys* that they had.

    Each of *changed* is an identity with the new key. The columns of it that the change does not set
    distinguish the rows, since all get the same values in the others.
    """
    written = {column.name for column in plan.shape.written}
    same = [at for at, column in enumerate(plan.shape.table.key_columns) if column.name not in written]
    width = len(plan.shape.table.identity)
    by_key = {tuple(row[width + at] for at in same): row[:width] for row in changed}
    identities = [by_key.get(tuple(key[at] for at in same)) for key in keys]
    if len(changed) != len(keys) or None in identities:
        raise _kept(plan)
    return [each for each in identities if each is not None]


def _kept(plan: WritePlan) -> errors.CallError:
    """Return why the change of chosen rows has left out some of them."""
    return errors.Busy(MEANWHILE, hint=AGAIN) if plan.is_pinned else _refused_by_trigger()


def _after(plan: WritePlan, identities: Sequence[Row], run: WriteRun) -> Reads:
    """Read the rows with *identities* after the change, or raise Denied if the role may not write them so."""
    if plan.after is None:
        return ()
    places = [_places(each) for each in identities]
    shown = yield _bound(plan.after, *places, run=run)
    # Without a filter, a trigger has moved a row elsewhere.
    if len(shown) < len(places) and plan.shape.table.filter is not None:
        raise errors.Denied(UNSEEN)
    if plan.checked is not None and len((yield _bound(plan.checked, *places, run=run))) < len(places):
        raise errors.Denied(UNFIT)
    return shown


def _places(identity: Row) -> Mapping[str, object]:
    return {place(at): cell for at, cell in enumerate(identity)}


def _bound(plan: Plan, *values: Mapping[str, object], run: WriteRun, limit: int = 1) -> Step:
    claims = {name: run.claims[claim] for name, claim in plan.claims.items()}
    return Step(plan, [plan.bound({**each, **claims}, limit) for each in values])


def _unchanged(plan: WritePlan, seen: Sequence[Row]) -> errors.CallError:
    """Return why a change found no row; *seen*: the row exists."""
    if plan.before is not None and not seen:
        return errors.NoRow()
    if len(plan.shape.conditions) > plan.shape.key:
        return errors.Conflict()
    return _refused_by_trigger()


def _refused_by_trigger() -> errors.CallError:
    refused = errors.ConstraintViolated()
    refused.kind = errors.Broken.TRIGGER
    return refused


def _reading(
    shape: Write, filter: RowFilter | None, grammar: Grammar, identity: Sequence[Column] = ()
) -> Plan:
    """Return the statement that reads the row with an *identity*, if *filter* shows it."""
    target, claims, identity = _target(shape), dict[str, str](), identity or shape.table.identity
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
    types = {assigned(each.name): each.type.element or each.type for each in written}
    arrays = (assigned(each.name) for each in written if each.type.family is Family.ARRAY)
    among = (name for each in shape.conditions if each.operator in LISTS for name in each.parameters)
    lists = frozenset((*arrays, *among))
    outputs = shape.outputs if shape.kind is WriteKind.DELETE else tuple(map(_plain, table.identity))
    if shape.chosen is not None:
        condition, more, others = _is_chosen(shape.chosen, target, grammar, claims)
        statement = statement.where(condition)
        types, lists = {**types, **more}, lists | others
        kept = () if shape.kind is WriteKind.DELETE else outputs
        outputs = (*kept, *map(_plain, identifying(table.key_columns)))
    elif shape.kind is not WriteKind.INSERT:
        where: list[Truth] = [all_hold(shape.conditions, target, grammar)]
        if table.filter is not None:
            where.append(filtering(table.filter, grammar, claims))
        statement = statement.where(*where)
        types |= {name: each.type for each in shape.conditions for name in each.parameters}
    read = [_read(each, target, grammar) for each in outputs]
    returning = statement.returning(*cells_of(read))
    return plan_of(replace(shape, outputs=outputs), returning, grammar, types, lists, claims)


def _is_chosen(
    chosen: Select, target: sa.TableClause, grammar: Grammar, claims: dict[str, str]
) -> tuple[Truth, Mapping[str, ColumnType], frozenset[str]]:
    """Return whether *chosen* has found a row of *target*; types of parameters, and which are lists."""
    key = identifying(chosen.table.key_columns)
    if grammar.version is None:
        keys = select_of(replace(chosen, outputs=tuple(map(_plain, key)), order=()), grammar, claims)
        same = sa.tuple_(*(column_of(target, each.name) for each in key)).in_(keys)
        return same, *bindings_of(chosen)
    columns = (*key, grammar.version)
    # Unlike the name of the table.
    pinned = grammar.pinned(columns, f"keys of {target.name}")
    pairs = zip(columns, pinned.columns, strict=True)
    found = sa.and_(*(column_of(target, each.name) == cell for each, cell in pairs))
    types = {pin(at): each.type for at, each in enumerate(columns)}
    return found, types, frozenset(types)


def _plain(column: Column) -> Output:
    return Output(term=column)


def _read(output: Output, target: sa.FromClause, grammar: Grammar) -> tuple[Element, ...]:
    """Return the cells of *output*, null in a blank column, which is never read."""
    column = sa.null() if output.term.type.mask in BLANK else column_of(target, output.term.name)
    return grammar.cell(column, output)
