"""Compile where a page begins. A shape and the cells of its order in, a condition out."""

from collections.abc import Sequence
from operator import is_

import sqlalchemy as sa

from dbtools.backends.compile.sources import Element, Grammar, Truth
from dbtools.statements.select import Direction, Order, Select
from dbtools.values.types import Operator


def is_after(shape: Select, cells: Sequence[Element], grammar: Grammar) -> Truth:
    """Return the condition that a row, with the *cells* of its order, comes after the previous page.

    Use a row comparison if possible, because an index can serve all of it. Otherwise use one alternative for
    each step, and bound the first column so that an index can be used.
    """
    steps, names = shape.order, shape.after
    types = [step.term.type for step in steps]
    columns = [
        grammar.as_key(grammar.equal_form(cell, type), type) for cell, type in zip(cells, types, strict=True)
    ]
    values = [grammar.value(str(name), step.term.type) for step, name in zip(steps, names, strict=True)]
    plain = all(name and not step.term.nullable for step, name in zip(steps, names, strict=True))
    first = steps[0].direction is Direction.ASC
    as_stored = all(map(is_, cells, columns))
    if plain and as_stored and len(steps) > 1 and len({step.direction for step in steps}) == 1:
        row, last = sa.tuple_(*columns), sa.tuple_(*values)
        return row > last if first else row < last
    alternatives: list[Truth] = []
    same: list[Truth] = []
    for step, name, column, value in zip(steps, names, columns, values, strict=True):
        beyond = sa.false() if name is None else _beyond(step, column, value)
        alternatives.append(sa.and_(*same, beyond))
        same.append(column.is_(sa.null()) if name is None else column == value)
    if plain and not (as_stored and len(steps) == 1):
        sign = Operator.GTE if first else Operator.LTE
        return sa.and_(grammar.compare(sign, cells[0], steps[0].term.type, values[0]), sa.or_(*alternatives))
    return sa.or_(*alternatives)


def _beyond(step: Order, column: Element, value: Element) -> Truth:
    further: Truth = column > value if step.direction is Direction.ASC else column < value
    return sa.or_(further, column.is_(sa.null())) if step.term.nullable else further
