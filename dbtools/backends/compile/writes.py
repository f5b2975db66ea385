"""Compile writes with SQLAlchemy Core, for every database: a Write in, its statements out.

The row filter of the role applies to the row before the change and after it. The change returns what
identifies the row, by which it is read again: as the role sees it, and if it satisfies the role's check.

Rows that conditions choose are read first, with their keys, and then changed by one statement. If another
transaction has changed one of them meanwhile, none is changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools.backends.compile.selects import (
    LISTS,
    all_hold,
    bindings_of,
    cells_of,
    compile_select,
    plan_of,
    select_of,
)
from dbtools.backends.compile.sources import Element, Grammar, Truth, Written, column_of, filter_condition
from dbtools.backends.compiled import Compiled, CompiledWrite, pin, place
from dbtools.schema.catalog import Column, RowFilter, identity_columns
from dbtools.statements.select import Condition, Output, Select
from dbtools.statements.write import Write, WriteKind
from dbtools.values.cells import BLANK
from dbtools.values.types import ColumnType, Family, Operator


def compile_write(shape: Write, grammar: Grammar) -> CompiledWrite:
    """Return the SQL of *shape* in *grammar*."""
    statements = _Statements(shape, grammar)
    return statements.of_row() if shape.chosen is None else statements.of_selection(shape.chosen)


def attempt_of(shape: Write, grammar: Grammar) -> Compiled:
    """Return the statement that inserts the row of an upsert, unless a row has the key."""
    return _Statements(shape, grammar).attempt()


class _Statements:
    """The statements of the write *shape*; its table has no alias, as the SQL of row filters names it."""

    def __init__(self, shape: Write, grammar: Grammar) -> None:
        self._shape, self._grammar, table = shape, grammar, shape.table
        self._identity, self._identified = _plain_outputs(table.identity), _key_conditions(table.identity)
        names = dict.fromkeys(column.name for column in (*shape.written, *table.columns, *table.identity))
        schema = quoted_name(table.schema, quote=True) if table.schema else None
        columns: list[sa.ColumnClause[Any]] = [sa.column(quoted_name(name, quote=True)) for name in names]
        self._target = sa.table(quoted_name(table.name, quote=True), *columns, schema=schema)

    def of_row(self) -> CompiledWrite:
        """Return the statements that change one row."""
        shape, filters = self._shape, _filters(self._shape)
        own = Select(table=shape.table, outputs=shape.outputs, conditions=shape.conditions[: shape.key_count])
        instead = shape.instead and replace(shape.instead, conditions=self._identified)
        return CompiledWrite(
            shape=shape,
            before=None if shape.kind is WriteKind.INSERT else compile_select(own, self._grammar),
            change=self._change(shape),
            after=None if shape.kind is WriteKind.DELETE else self._row(shape.outputs, *filters),
            checked=self._row(self._identity, *shape.checks) if shape.checks else None,
            left=self._left_row(),
            existing=self._existing_row() if shape.conflict else None,
            instead=None if instead is None else self._change(instead),
        )

    def of_selection(self, chosen: Select) -> CompiledWrite:
        """Return the statements that change the rows that *chosen* reads: outputs, then keys."""
        shape, key = self._shape, identity_columns(self._shape.table.key_columns)
        version = () if self._grammar.version is None else (self._grammar.version,)
        if shape.kind is not WriteKind.DELETE:
            after: Compiled | None = self._row(shape.outputs, *_filters(shape))
        else:
            # The row with a key, if it still exists.
            after = None if version else self._matching_row(_key_conditions(key), _plain_outputs(key))
        found = replace(chosen, outputs=(*shape.outputs, *_plain_outputs((*key, *version))))
        return CompiledWrite(
            shape=shape,
            before=compile_select(found, self._grammar),
            change=self._change_chosen(chosen, key),
            after=after,
            checked=self._row(self._identity, *shape.checks) if shape.checks else None,
            left=self._left_row(),
        )

    def attempt(self) -> Compiled:
        """Return the statement that inserts the row, unless a row has the key."""
        key = [self._target.c[column.name] for column in self._shape.conflict]
        insert = self._grammar.insert(self._target).values(self._values(self._shape))
        where = Written([self._shape.conflict_where]) if self._shape.conflict_where else None
        ignoring = insert.on_conflict_do_nothing(index_elements=key, index_where=where)
        return self._returning_plan(ignoring, self._shape, {})

    def _row(self, outputs: Sequence[Output], *filters: RowFilter) -> Compiled:
        """Return the statement that reads the row with an identity, if all *filters* hold for it."""
        return self._matching_row(self._identified, outputs, filters)

    def _left_row(self) -> Compiled | None:
        """Return the statement that reads, for the audit log, the row that the role does not see any more."""
        shape = self._shape
        may_leave = shape.writes.leaves and shape.kind is not WriteKind.DELETE
        return self._row(shape.outputs) if may_leave else None

    def _existing_row(self) -> Compiled:
        """Return the statement that reads the row with the key of an upsert, if the role sees it.

        Cells and values are compared as the unique key compares them.
        """
        shape, values = self._shape, self._values(self._shape)
        same = [self._cell_of(each) == values[each.name] for each in shape.conflict]
        # The index has evaluated its condition for each row, so it raises no error.
        same += [Written([shape.conflict_where])] if shape.conflict_where else []
        outputs = (*self._identity, *shape.outputs)
        return self._matching_row((), outputs, _filters(shape), *same)

    def _matching_row(
        self,
        conditions: Sequence[Condition],
        outputs: Sequence[Output],
        filters: Sequence[RowFilter] = (),
        *others: Truth,
    ) -> Compiled:
        """Return the statement that reads the row for which *conditions* hold, if all *filters* do."""
        claims: dict[str, str] = {}
        same = sa.and_(all_hold(conditions, self._target, self._grammar), *others)
        select = sa.select(*self._cells(outputs)).select_from(self._target).where(same)
        for each in filters:
            # A CASE is evaluated in its order: the filter may raise an error on another row.
            select = select.where(sa.case((same, filter_condition(each, self._grammar, claims))))
        shape, bound = (
            replace(self._shape, outputs=tuple(outputs), chosen=None),
            _types(self._shape, conditions),
        )
        return plan_of(shape, select, self._grammar, *bound, claims)

    def _change(self, shape: Write) -> Compiled:
        """Return the statement of *shape* that changes the row."""
        claims: dict[str, str] = {}
        statement = self._change_statement(shape)
        if shape.kind is not WriteKind.INSERT:
            where: list[Truth] = [all_hold(shape.conditions, self._target, self._grammar)]
            if shape.table.filter is not None:
                where.append(filter_condition(shape.table.filter, self._grammar, claims))
            statement = statement.where(*where)
        return self._returning_plan(statement, shape, claims)

    def _change_statement(self, shape: Write) -> Any:
        """Return the statement of *shape* without its conditions."""
        values = self._values(shape)
        match shape.kind:
            case WriteKind.INSERT:
                return sa.insert(self._target).values(values)
            case WriteKind.UPDATE:
                return sa.update(self._target).values(values)
            case WriteKind.DELETE:
                return sa.delete(self._target)

    def _change_chosen(self, chosen: Select, key: Sequence[Column]) -> Compiled:
        """Return the statement that changes the rows that *chosen* has found, by their *key*."""
        shape, grammar, target, claims = self._shape, self._grammar, self._target, dict[str, str]()
        if grammar.version is None:
            keys = select_of(replace(chosen, outputs=_plain_outputs(key), order=()), grammar, claims)
            found: Truth = sa.tuple_(*(column_of(target, each.name) for each in key)).in_(keys)
            types, lists = bindings_of(chosen)
        else:
            columns = (*key, grammar.version)
            # Unlike the name of the table.
            pinned = grammar.pinned_rows(columns, f"keys of {target.name}")
            pairs = zip(columns, pinned.columns, strict=True)
            found = sa.and_(*(self._cell_of(each) == grammar.as_key(cell, each.type) for each, cell in pairs))
            types = {pin(at): each.type for at, each in enumerate(columns)}
            lists = frozenset(types)
        new_types, arrays = _types(shape, ())
        outputs = (*(() if shape.kind is WriteKind.DELETE else self._identity), *_plain_outputs(key))
        returning = self._change_statement(shape).where(found).returning(*self._cells(outputs))
        bound = {**types, **new_types}, lists | arrays
        return plan_of(replace(shape, outputs=outputs), returning, grammar, *bound, claims)

    def _returning_plan(self, statement: Any, shape: Write, claims: Mapping[str, str]) -> Compiled:
        """Return *statement*, which makes the change of *shape*, with what it returns of each row."""
        outputs = shape.outputs if shape.kind is WriteKind.DELETE else self._identity
        returning, bound = statement.returning(*self._cells(outputs)), _types(shape, shape.conditions)
        return plan_of(replace(shape, outputs=outputs), returning, self._grammar, *bound, claims)

    def _values(self, shape: Write) -> Mapping[str, Element]:
        """Return the parameters for the new values of *shape*, by column."""
        return {
            each.name: self._grammar.stored_value(name, each.type) for each, name in shape.parameters.items()
        }

    def _cell_of(self, column: Column) -> Element:
        """Return the cell of *column*, to be compared with a key."""
        return self._grammar.as_key(column_of(self._target, column.name), column.type)

    def _cells(self, outputs: Sequence[Output]) -> Iterator[Element]:
        """Yield the cells of *outputs*, null in a blank column, which is never read."""
        terms = [each.term for each in outputs]
        read = (
            sa.null() if term.type.mask in BLANK else column_of(self._target, term.name) for term in terms
        )
        return cells_of([self._grammar.cell(*each) for each in zip(read, outputs, strict=True)])


def _key_conditions(columns: Sequence[Column]) -> tuple[Condition, ...]:
    """Return the conditions that *columns* equal the parameters `place(at)`."""
    return tuple(
        Condition(term=column, operator=Operator.EQ, parameters=(place(at),))
        for at, column in enumerate(columns)
    )


def _filters(shape: Write) -> tuple[RowFilter, ...]:
    return () if shape.table.filter is None else (shape.table.filter,)


def _plain_outputs(columns: Sequence[Column]) -> tuple[Output, ...]:
    return tuple(Output(term=column) for column in columns)


def _types(shape: Write, conditions: Sequence[Condition]) -> tuple[Mapping[str, ColumnType], frozenset[str]]:
    """Return the types of the new values and of what *conditions* compare, and which of them are lists."""
    types = {name: each.type.element or each.type for each, name in shape.parameters.items()}
    types |= {name: each.type for each in conditions for name in each.parameters}
    arrays = (name for each, name in shape.parameters.items() if each.type.family is Family.ARRAY)
    among = (name for each in conditions if each.operator in LISTS for name in each.parameters)
    return types, frozenset((*arrays, *among))
