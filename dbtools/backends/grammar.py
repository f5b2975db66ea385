"""What the databases say differently in a statement: a database inherits what most of them say."""

from collections.abc import Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from dbtools.backends.sources import Element, Filtering
from dbtools.statement import Output
from dbtools.terms import Bucket, Calculation, Function
from dbtools.types import ColumnType, Operator

Truth = sa.ColumnElement[bool]

LONG = 1_000  #: characters or bytes of a text beyond which LIKE, whose time is not linear, takes too long


class Grammar(Filtering, Protocol):
    """How a database writes terms, conditions and values."""

    @property
    def dialect(self) -> sa.Dialect:
        """What SQLAlchemy compiles for."""

    def bound(self, value: object, type: ColumnType) -> object:
        """Return *value* of *type* as the driver takes it."""

    def bound_list(self, values: Sequence[object], type: ColumnType) -> object:
        """Return *values* of *type*, which are one parameter, as the driver takes them."""

    def value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter *name*, a value of *type*."""

    def member(self, column: Element, name: str, type: ColumnType, *, negated: bool) -> Truth:
        """Return whether *column* is (not) one of the list that the parameter *name* holds."""

    def like(self, column: Element, name: str, operator: Operator) -> Truth:
        """Return whether the text of *column* is like the pattern that the parameter *name* holds.

        Where *operator* may meet it anywhere, long texts are searched in linear time, for the parameter
        `sought(name)`.
        """

    def comparable(self, column: Element, type: ColumnType) -> Element:
        """Return *column* in the form in which decoded values of *type* are written: as it is."""
        return column

    def is_text(self, column: Element) -> Truth:
        """Return whether the cell of *column*, which declares no type, holds a text: all declare one."""
        raise AssertionError(column)

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Return whether the array *column* has the value of the parameter *name* among its items."""

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Return what is read for *output*: its value, and its full length where it may be cut."""

    def sortable(self, column: Element, type: ColumnType) -> Element:
        """Return *column* in a form that has an order: as it is."""
        return column

    def nulls_last(self, ordered: sa.UnaryExpression[Any]) -> Element:
        """Return the step *ordered* of an order with nulls at its end, in both directions."""
        return ordered.nulls_last()

    def bucket(self, column: Element, type: ColumnType, bucket: Bucket) -> Element:
        """Return the text that *bucket* makes of the dates of *column*, null for what is none."""

    def measure(self, function: Function, column: Element, type: ColumnType) -> Element:
        """Return *function*, any but a count, over the values of *column*."""

    def compared(
        self, left: tuple[Element, ColumnType], right: tuple[Element, ColumnType]
    ) -> tuple[Element, Element]:
        """Return two terms, each with its type, in the form in which they are compared: as they are."""
        return left[0], right[0]

    def calculated(self, term: Calculation, operands: Sequence[Element]) -> Element:
        """Return *term*, of whose operands *operands* are the SQL."""
