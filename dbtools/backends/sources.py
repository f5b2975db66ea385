"""The one place where a table is read: narrowed by its row filter, without what a mask does not show."""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name

from dbtools.catalog import RowFilter, Table
from dbtools.policy import BLANK

Element = sa.ColumnElement[Any]
#: The column that says whether the filter shows a row: no table has one of this name.
SEEN = quoted_name(f"seen {secrets.token_hex(8)}", quote=True)


class Filtering(Protocol):
    """What the databases say differently of row filters."""

    @property
    def barrier(self) -> bool:
        """Whether nothing at all is asked of a hidden row, in whatever order conditions are evaluated.

        Operators are total, so that no order tells of hidden rows. This is for what is beyond them: a hidden
        cell that is too large to be loaded. It costs the indexes of the caller's conditions.
        """

    def written(self, sql: str) -> str:
        """Return *sql*, a piece of what an operator wrote, as this database is to read it: as it is."""
        return sql

    def array(self, name: str, cast: str) -> Element:
        """Return the parameter *name*, a list, as the array or the text that lists of this database are."""

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter *name*, a claim of the caller, as the type that *cast* names."""


def source(table: Table, alias: str, grammar: Filtering, claims: dict[str, str]) -> sa.FromClause:
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


def _pieces(filter: RowFilter, grammar: Filtering, claims: dict[str, str]) -> Iterator[str | Element]:
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
