"""Where a table is read, narrowed by its filter and masks: one place. And what databases say differently."""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name

from dbtools.aggregates import Bucket, Function
from dbtools.catalog import RowFilter, Table
from dbtools.policy import BLANK
from dbtools.statement import Output
from dbtools.types import ColumnType, Operator

LONG = 1_000  #: characters or bytes of a text beyond which LIKE, whose time is not linear, takes too long
Element = sa.ColumnElement[Any]
Truth = sa.ColumnElement[bool]
#: The column that says whether the filter shows a row: no table has one of this name.
SEEN = quoted_name(f"seen {secrets.token_hex(8)}", quote=True)


class Grammar(Protocol):
    """What the databases say differently: a database inherits what most of them say."""

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

    @property
    def barrier(self) -> bool:
        """Whether nothing at all is asked of a hidden row, since a cell may be too large to be loaded.

        It costs the indexes of the caller's conditions.
        """

    def written(self, sql: str) -> str:
        """Return *sql*, a piece of what an operator wrote, as this database is to read it: as it is."""
        return sql

    def array(self, name: str, cast: str) -> Element:
        """Return the parameter *name*, a list, as the array or the text that lists of this database are."""

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter *name*, a claim of the caller, as the type that *cast* names."""


def source(table: Table, alias: str, grammar: Grammar, claims: dict[str, str]) -> sa.FromClause:
    """Return *table* as every statement reads it: the one place where a row filter narrows it.

    The parameters of the filter are added to *claims*.
    """
    schema = quoted_name(table.schema, quote=True) if table.schema else None
    whole = sa.table(quoted_name(table.name, quote=True), schema=schema)
    if table.filter is None and not any(column.type.mask in BLANK for column in table.columns):
        return whole.alias(alias)
    # Of a blank column, of which nothing is shown, no cell is read.
    visible = (
        sa.null().label(quoted_name(column.name, quote=True))
        if column.type.mask in BLANK
        else column_of(whole, column.name)
        for column in table.columns
    )
    select = sa.select(*visible).select_from(whole)
    if table.filter is not None:
        if grammar.barrier:
            select = select.add_columns(Written(_pieces(table.filter, grammar, claims)).label(SEEN))
        select = select.where(Written(_pieces(table.filter, grammar, claims)))
    if table.guarded:
        # No planner moves a condition beneath an offset.
        select = select.offset(sa.literal_column("0"))
    return select.subquery(alias)


def _pieces(filter: RowFilter, grammar: Grammar, claims: dict[str, str]) -> Iterator[str | Element]:
    casts = iter(filter.casts or repeat(""))
    for piece in filter.condition.pieces:
        if isinstance(piece, str):
            yield grammar.written(piece)
        else:
            name = f"claim{len(claims)}"
            claims[name] = str(piece.claim)
            yield grammar.claim(name, next(casts))


class Written(sa.ColumnElement[bool]):
    """A condition as an operator wrote it, in parentheses, with parameters between its pieces."""

    inherit_cache = False

    def __init__(self, pieces: Iterable[str | Element]) -> None:
        self.pieces = tuple(pieces)


class _Places:
    """Writes each parameter's place as the compiler comes to it.

    SQLAlchemy would look for the places in the finished text, and find %(limit)s in a name or in what an
    operator wrote as well.
    """

    mark = ""  #: of a place, with braces for its number where it has one

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.places: list[str] = []  #: the parameters in their order
        super().__init__(*arguments, **options)

    def bindparam_string(self, name: str, **options: Any) -> str:
        """Return the place of the parameter *name*."""
        if "{" not in self.mark or name not in self.places:
            self.places.append(name)
        self.compilation_bindtemplate = self.mark.format(self.places.index(name) + 1)
        place: str = super().bindparam_string(name, **options)  # type: ignore[misc]
        return place


#: The places of parameters in the styles of drivers (PEP 249); a percent sign is doubled for SQLAlchemy.
MARKS: Mapping[str, str] = {"qmark": "?", "format": "%%s", "numeric": ":{}", "numeric_dollar": "${}"}


def placing(dialect: sa.Dialect) -> sa.Dialect:
    """Return *dialect*, whose compiler tells the `places` of parameters and leaves all else as it is."""
    own = {"mark": MARKS[dialect.paramstyle]}
    dialect.statement_compiler = type("Compiler", (_Places, dialect.statement_compiler), own)
    dialect.paramstyle, dialect.positional = "named", False
    return dialect


@compiles(Written)
def compile_pieces(element: Any, compiler: Any, **options: Any) -> str:
    """Return the pieces of *element* as one text, in parentheses."""
    written = (
        piece if isinstance(piece, str) else compiler.process(piece, **options) for piece in element.pieces
    )
    # The parenthesis stands on a line of its own, where no comment swallows it.
    return f"({''.join(written)}\n)"


def column_of(table: sa.FromClause, name: str) -> Element:
    """Return the column *name* of *table*."""
    return sa.column(quoted_name(name, quote=True), _selectable=table)
