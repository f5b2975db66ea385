"""Compile writes with SQLAlchemy Core, for every database: a Write in, its statements out.

The row filter of the role applies to the row before the change and after it. The change returns what
identifies the row, by which it is read again: as the role sees it, and if it satisfies the role's check.

Rows that conditions choose are read first, with their keys, and then changed by one statement. If another
transaction has changed one of them meanwhile, none is changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools.backends.plans import Plan, WritePlan, pin, place
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
from dbtools.cells import BLANK
from dbtools.changes import Write, WriteKind
from dbtools.statement import Condition, Output, Select
from dbtools.types import ColumnType, Family, Operator


def compile_write(shape: Write, grammar: Grammar) -> WritePlan:
    """Return the SQL of *shape* in *grammar*."""
    if shape.chosen is not None:
        return _compile_chosen(shape, shape.chosen, grammar)
    own = Select(table=shape.table, outputs=shape.outputs, conditions=shape.conditions[: shape.key_count])
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


def _compile_chosen(shape: Write, chosen: Select, grammar: Grammar) -> WritePlan:
    """Return the SQL of *shape*, which changes the rows that *chosen* reads: outputs, then keys."""
    key = tuple(map(_plain, identifying(shape.table.key_columns)))
    version = () if grammar.version is None else (_plain(grammar.version),)
    read = replace(shape, chosen=None)
    found = replace(read, outputs=tuple(map(_plain, shape.table.identity)))
    if shape.kind is not WriteKind.DELETE:
        after: Plan | None = _reading(read, shape.table.filter, grammar)
    else:
        after = None if version else _left(replace(read, outputs=key), grammar)
    return WritePlan(
        shape=shape,
        before=compile_select(replace(chosen, outputs=(*shape.outputs, *key, *version)), grammar),
        change=_change_chosen(shape, chosen, grammar),
        after=after,
        checked=None if shape.check is None else _reading(found, shape.check, grammar),
    )


def _left(shape: Write, grammar: Grammar) -> Plan:
    """Return the statement that reads the row with a key, if it still exists."""
    target, same = _target(shape), _equal(identifying(shape.table.key_columns))
    read = cells_of([_read(each, target, grammar) for each in shape.outputs])
    select = sa.select(*read).select_from(target).where(all_hold(same, target, grammar))
    return plan_of(shape, select, grammar, *_types(shape, same), {})


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
    return _equal(shape.table.identity)


def _equal(columns: Sequence[Column]) -> tuple[Condition, ...]:
    """Return the conditions that *columns* equal the parameters `place(at)`."""
    return tuple(
        Condition(term=column, operator=Operator.EQ, parameters=(place(at),))
        for at, column in enumerate(columns)
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
    statement = _changing(shape, target, grammar)
    if shape.kind is not WriteKind.INSERT:
        where: list[Truth] = [all_hold(shape.conditions, target, grammar)]
        if table.filter is not None:
            where.append(filtering(table.filter, grammar, claims))
        statement = statement.where(*where)
    return _returning(statement, shape, target, grammar, claims)


def _changing(shape: Write, target: sa.TableClause, grammar: Grammar) -> Any:
    """Return the statement of *shape* without its conditions."""
    values = _values(shape, grammar)
    match shape.kind:
        case WriteKind.INSERT:
            return sa.insert(target).values(values)
        case WriteKind.UPDATE:
            return sa.update(target).values(values)
        case WriteKind.DELETE:
            return sa.delete(target)


def _change_chosen(shape: Write, chosen: Select, grammar: Grammar) -> Plan:
    """Return the statement that changes the rows that *chosen* has found."""
    target, claims, key = _target(shape), dict[str, str](), identifying(shape.table.key_columns)
    if grammar.version is None:
        keys = select_of(replace(chosen, outputs=tuple(map(_plain, key)), order=()), grammar, claims)
        found: Truth = sa.tuple_(*(column_of(target, each.name) for each in key)).in_(keys)
        types, lists = bindings_of(chosen)
    else:
        columns = (*key, grammar.version)
        # Unlike the name of the table.
        pinned = grammar.pinned(columns, f"keys of {target.name}")
        pairs = zip(columns, pinned.columns, strict=True)
        found = sa.and_(*(column_of(target, each.name) == cell for each, cell in pairs))
        types = {pin(at): each.type for at, each in enumerate(columns)}
        lists = frozenset(types)
    new_types, arrays = _types(shape, ())
    kept = () if shape.kind is WriteKind.DELETE else shape.table.identity
    outputs = tuple(map(_plain, (*kept, *key)))
    returning = _changing(shape, target, grammar).where(found)
    returning = returning.returning(*cells_of([_read(each, target, grammar) for each in outputs]))
    bound = {**types, **new_types}, lists | arrays
    return plan_of(replace(shape, outputs=outputs), returning, grammar, *bound, claims)


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
