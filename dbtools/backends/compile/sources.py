"""The only function that reads a table, with its row filter and masks; and the Grammar of a database."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name

from dbtools.backends.compiled import JSON_SPACE
from dbtools.expressions.terms import Bucket, Calculation, Function
from dbtools.schema.catalog import Column, RowFilter, Table, TableKind, TextIndex
from dbtools.statements.select import Order, Output
from dbtools.values.cells import BLANK
from dbtools.values.types import ColumnType, Operator

LONG = 1_000  #: characters or bytes; LIKE, which does not take linear time, is too slow for longer texts
Element = sa.ColumnElement[Any]
Truth = sa.ColumnElement[bool]
PYTHON_OPERATORS: Mapping[Operator, Callable[..., Truth]] = {
    Operator.EQ: eq,
    Operator.NE: ne,
    Operator.LT: lt,
    Operator.LTE: le,
    Operator.GT: gt,
    Operator.GTE: ge,
    Operator.BETWEEN: lambda column, least, most: column.between(least, most),
}
#: The column that says whether the filter shows a row. No table has a column with this name.
SEEN = quoted_name(f"seen {secrets.token_hex(8)}", quote=True)


class Grammar(Protocol):
    """How one database writes SQL. The defaults are those of most databases."""

    @property
    def dialect(self) -> sa.Dialect:
        """The SQLAlchemy dialect."""

    def driver_value(self, value: object, type: ColumnType) -> object:
        """Return *value* of *type* as the driver takes it."""

    def bound_list(self, values: Sequence[object], type: ColumnType) -> object:
        """Return the list *values* of *type* as the driver takes it, as one parameter."""

    #: The system column that differs between two versions of a row, if others may change chosen rows before
    #: they are changed.
    version: Column | None = None

    def pinned_rows(self, columns: Sequence[Column], name: str) -> sa.FromClause:
        """Return the lists in the parameters `pin(at)`, cells of *columns*, as a table with this *name*."""
        raise AssertionError(columns)

    def insert(self, table: sa.TableClause) -> Any:
        """Return an INSERT into *table* that can have an ON CONFLICT clause."""
        raise AssertionError(table)

    def value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter *name*, a value of *type*."""

    def stored_value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter *name*, the new value of a column of *type*."""
        return self.value(name, type)

    def member(self, column: Element, name: str, type: ColumnType, *, negated: bool) -> Truth:
        """Return whether *column* is (not) in the list parameter *name*."""

    def like(self, column: Element, name: str, operator: Operator, type: ColumnType) -> Truth:
        """Return whether *column* of *type* matches the pattern in the parameter *name*, in any case.

        If *operator* is not anchored at the start, search long texts in linear time for the parameter
        `sought(name)`.
        """

    def matches(self, document: Element, index: TextIndex, name: str) -> Truth:
        """Return whether *index* finds *document* for the search in the parameter *name*."""
        raise AssertionError(name)

    def rank(self, document: Element, index: TextIndex, name: str) -> Element:
        """Return how well *document* matches the search in the parameter *name*: the lower, the better."""
        raise AssertionError(name)

    def equal_form(self, column: Element, type: ColumnType) -> Element:
        """Return *column* in a form in which equal values of *type* are equal, and sort as they compare."""
        return column

    def compare(self, operator: Operator, column: Element, type: ColumnType, *values: Element) -> Truth:
        """Return whether *column* is to *values* as *operator*, one of PYTHON_OPERATORS, says."""
        return PYTHON_OPERATORS[operator](column, *values)

    def as_key(self, column: Element, type: ColumnType) -> Element:
        """Return *column* in the form in which cells of *type* are compared with each other."""
        return column

    def is_text(self, column: Element) -> Truth:
        """Return whether a cell of *column*, which has no declared type, is a text."""
        raise AssertionError(column)

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Return whether the array *column* contains the parameter *name*."""

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Return the expressions for *output*: its value, and its full length if it may be cut."""

    def sortable_form(self, column: Element, type: ColumnType) -> Element:
        """Return *column* in a form that can be sorted."""
        return column

    def window(self, select: sa.Select[Any], column: Element, step: Order, limit: Element) -> Truth | None:
        """Return a condition on *column* that holds for the first *limit* rows of *select*, sorted by *step*.

        Return None if an index of *column* has the order of *step* itself.
        """
        return None

    def nulls_last(self, ordered: sa.UnaryExpression[Any]) -> Element:
        """Return *ordered* with nulls last, in both directions."""
        return ordered.nulls_last()

    def bucket(self, column: Element, type: ColumnType, bucket: Bucket) -> Element:
        """Return the *bucket* of the dates in *column* as text, null for anything else."""

    def measure(self, function: Function, column: Element, type: ColumnType) -> Element:
        """Return the aggregate *function*, except counts, of *column*."""

    def calculation_sql(self, term: Calculation, operands: Sequence[Element]) -> Element:
        """Return *term*, given the SQL of its operands."""

    def comparable_pair(
        self, left: tuple[Element, ColumnType], right: tuple[Element, ColumnType]
    ) -> tuple[Element, Element]:
        """Return two terms, given with their types, in a form in which they can be compared."""
        return left[0], right[0]

    @property
    def barrier(self) -> bool:
        """Whether no condition is evaluated on a hidden row, because a cell may be too large to load.

        This prevents the use of indexes for the caller's conditions.
        """

    #: Whether the planner must not use statistics behind a barrier: it would apply conditions of the caller,
    #: which may raise errors, to values of hidden rows in them.
    hides_statistics: bool = False

    def native_sql(self, sql: str) -> str:
        """Return *sql*, a piece of an operator's SQL, for this database."""
        return sql

    def array(self, name: str, cast: str) -> Element:
        """Return the list parameter *name* of a query."""

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter *name*, a claim of the caller, cast to the type *cast*."""


def source(
    table: Table,
    alias: str,
    grammar: Grammar,
    claims: dict[str, str],
    *,
    needs_barrier: bool,
    tied: Mapping[str, Element],
    searched: bool,
    versioned: bool = False,
) -> sa.FromClause:
    """Return *table* as every statement reads it: this is the one place that applies its row filter.

    Add the parameters of the filter to *claims*. If it *needs_barrier*, nothing is evaluated on a hidden row,
    except whether its columns equal what they are *tied* to, so that the index of a foreign key is used. If
    *searched*, add what its full-text indexes search; if *versioned*, the version of a row.
    """
    schema = quoted_name(table.schema, quote=True) if table.schema else None
    whole = sa.table(quoted_name(table.name, quote=True), schema=schema)
    # A view hides rows as a filter does.
    barrier = needs_barrier and (table.filter is not None or table.kind is TableKind.VIEW)
    documents = documents_of(table) if searched else {}
    blank = any(column.type.mask in BLANK for column in table.columns)
    if not (table.filter or barrier or blank or documents):
        return whole.alias(alias)
    # The cells of a column with such a mask are never shown, so they are not read.
    visible = (
        sa.null().label(quoted_name(column.name, quote=True))
        if column.type.mask in BLANK
        else column_of(whole, column.name)
        for column in table.columns
    )
    select = sa.select(*visible).select_from(whole)
    if versioned and grammar.version is not None:
        select = select.add_columns(column_of(whole, grammar.version.name))
    if documents and table.row_identifier is not None:
        select = select.add_columns(column_of(whole, table.row_identifier))
    # The SQL of an index names columns without a table, so it must be where only this table is in scope.
    select = select.add_columns(*(Written([each]).label(name) for each, name in documents.items()))
    if table.filter is not None:
        if grammar.barrier:
            select = select.add_columns(filter_condition(table.filter, grammar, claims).label(SEEN))
        select = select.where(filter_condition(table.filter, grammar, claims))
    if barrier:
        # No planner moves a condition below an OFFSET.
        types = {name: column.type for name, column in table.column_by_name.items()}
        same = (same_key(there, column_of(whole, here), types[here], grammar) for here, there in tied.items())
        outer = {there.table for there in tied.values()}
        return _with_barrier(select.where(*same).correlate(*outer), whole, grammar).subquery(alias)
    return select.subquery(alias)


def same_key(target: Element, cell: Element, type: ColumnType, grammar: Grammar) -> Truth:
    """Return whether *target* equals *cell*, which refers to it; both have a type like *type*."""
    same: Truth = grammar.as_key(target, type) == grammar.as_key(cell, type)
    return same


def _with_barrier(select: sa.Select[Any], whole: sa.TableClause, grammar: Grammar) -> sa.GenerativeSelect:
    """Return *select* from *whole* behind a barrier."""
    rows: sa.GenerativeSelect = select
    if grammar.hides_statistics:
        # PostgreSQL looks through no set operation.
        none = sa.select(*select.selected_columns).select_from(whole).where(sa.literal_column("false"))
        rows = sa.union_all(select, none)
    return rows.offset(sa.literal_column("0"))


def documents_of(table: Table) -> Mapping[str, quoted_name]:
    """Return unused column names for what the full-text indexes of *table* search, by its SQL."""
    documents = dict.fromkeys(index.document for index in table.searchable.values())
    return {each: quoted_name(f"{SEEN} {at}", quote=True) for at, each in enumerate(documents)}


def filter_condition(filter: RowFilter, grammar: Grammar, claims: dict[str, str]) -> Truth:
    """Return the condition of *filter* on a table without an alias; add its parameters to *claims*."""
    return Written(_pieces(filter, grammar, claims))


def _pieces(filter: RowFilter, grammar: Grammar, claims: dict[str, str]) -> Iterator[str | Element]:
    casts = iter(filter.casts or repeat(""))
    for piece in filter.condition.pieces:
        if isinstance(piece, str):
            yield grammar.native_sql(piece)
        else:
            name = f"claim{len(claims)}"
            claims[name] = str(piece.claim)
            yield grammar.claim(name, next(casts))


class Written(sa.ColumnElement[bool]):
    """An operator's condition, in parentheses."""

    inherit_cache = False

    def __init__(self, pieces: Iterable[str | Element]) -> None:
        self.pieces = tuple(pieces)


class _Places:
    """Writes the placeholder of each parameter when the compiler visits it.

    SQLAlchemy would replace %(limit)s in the finished SQL, also within names and operators' SQL.
    """

    mark = ""  #: the placeholder, with braces for its number if it has one

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.places: list[str] = []  #: the parameters in their order
        super().__init__(*arguments, **options)

    def bindparam_string(self, name: str, **options: Any) -> str:
        """Return the placeholder of the parameter *name*."""
        if "{" not in self.mark or name not in self.places:
            self.places.append(name)
        self.compilation_bindtemplate = self.mark.format(self.places.index(name) + 1)
        place: str = super().bindparam_string(name, **options)  # type: ignore[misc]
        return place


#: Placeholders by parameter style (PEP 249). SQLAlchemy needs a percent sign doubled.
PLACEHOLDERS: Mapping[str, str] = {"qmark": "?", "format": "%%s", "numeric": ":{}", "numeric_dollar": "${}"}


def dialect_with_places(dialect: sa.Dialect) -> sa.Dialect:
    """Return *dialect* with a compiler that lists the parameters in `places` and changes nothing else."""
    own = {"mark": PLACEHOLDERS[dialect.paramstyle]}
    dialect.statement_compiler = type("Compiler", (_Places, dialect.statement_compiler), own)
    dialect.paramstyle, dialect.positional = "named", False
    return dialect


@compiles(Written)
def compile_pieces(element: Any, compiler: Any, **options: Any) -> str:
    """Return the pieces of *element* in parentheses."""
    written = (
        piece if isinstance(piece, str) else compiler.process(piece, **options) for piece in element.pieces
    )
    # On a separate line, the parenthesis cannot be part of a comment.
    return f"({''.join(written)}\n)"


def column_of(table: sa.FromClause, name: str) -> Element:
    """Return the column *name* of *table*."""
    return sa.column(quoted_name(name, quote=True), _selectable=table)


def without_json_space(column: Element) -> Element:
    """Return the text of *column*, which is JSON, without the white space that `Compiled.bound` omits too.

    Databases differ in the spaces that they keep or add.
    """
    text: Element = sa.cast(column, sa.Text)
    for each in JSON_SPACE:
        text = sa.func.replace(text, sa.literal_column(f"'{each}'"), sa.literal_column("''"))
    return text
