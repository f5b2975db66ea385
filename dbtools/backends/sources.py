"""The one place where a table is read: narrowed by its row filter, without what a mask does not show."""

import re
import secrets
from collections.abc import Iterable, Iterator
from itertools import count, repeat
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import quoted_name
from sqlalchemy.sql.compiler import IdentifierPreparer

from dbtools.catalog import RowFilter, Table, TableKind
from dbtools.policy import BLANK

Element = sa.ColumnElement[Any]
#: The column that says whether the filter shows a row, unless the table has one of this name.
SEEN = "dbtools seen"


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


def source(
    table: Table, alias: str, grammar: Filtering, claims: dict[str, str], *, guarded: bool
) -> sa.FromClause:
    """Return *table* as every statement reads it: the one place where a row filter narrows it.

    The parameters of the filter are added to *claims*. Where *guarded*, nothing is asked of a hidden row.
    """
    schema = quoted_name(table.schema, quote=True) if table.schema else None
    whole = sa.table(quoted_name(table.name, quote=True), schema=schema)
    # A view hides rows as a filter does.
    barrier = guarded and (table.filter is not None or table.kind is TableKind.VIEW)
    if not (table.filter or barrier or any(column.type.mask in BLANK for column in table.columns)):
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
            select = select.add_columns(Written(_pieces(table.filter, grammar, claims)).label(seen_in(table)))
        select = select.where(Written(_pieces(table.filter, grammar, claims)))
    if barrier:
        # No planner moves a condition beneath an offset.
        select = select.offset(sa.literal_column("0"))
    return select.subquery(alias)


def seen_in(table: Table) -> quoted_name:
    """Return the name, which is no column's, of what says whether the filter of *table* shows a row."""
    taken = {column.name.lower() for column in table.columns}
    names = (f"{SEEN}{'.' * dots}" for dots in count())
    return quoted_name(next(name for name in names if name not in taken), quote=True)


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


#: What stands for a piece of text or a name while SQLAlchemy looks for marks of its own: its bytes in hex.
#: The names of tables and columns are anybody's: none can know the mark.
MARK = secrets.token_hex(16)
STAND_IN = re.compile(f"<{MARK}([0-9a-f]*)>")


def veiled(text: str) -> str:
    """Return what stands for *text* until the statement is compiled."""
    return f"<{MARK}{text.encode().hex()}>"


def unveiled(sql: str) -> str:
    """Return *sql* with the pieces of conditions and the names that stand-ins mean."""
    return STAND_IN.sub(lambda match: bytes.fromhex(match[1]).decode(), sql)


class _Veiling(IdentifierPreparer):
    """Veils names, which *own* quotes: SQLAlchemy would find parameters in them, such as %(limit)s."""

    def __init__(self, dialect: sa.Dialect, own: IdentifierPreparer) -> None:
        super().__init__(dialect)
        self._own = own

    def quote_identifier(self, value: str) -> str:
        """Return what stands for the name *value* until the statement is compiled."""
        return veiled(self._own.quote_identifier(value))


def veiling(dialect: sa.Dialect) -> sa.Dialect:
    """Return *dialect*, whose statements are to be `unveiled` from now on."""
    dialect.identifier_preparer = _Veiling(dialect, dialect.identifier_preparer)
    return dialect


@compiles(Written)
def compile_pieces(element: Any, compiler: Any, **options: Any) -> str:
    """Return the pieces of *element* as one text, in parentheses."""
    written = (
        veiled(piece) if isinstance(piece, str) else compiler.process(piece, **options)
        for piece in element.pieces
    )
    # The parenthesis stands on a line of its own, where no comment swallows it.
    return f"({''.join(written)}\n)"


def column_of(table: sa.FromClause, name: str) -> Element:
    """Return the column *name* of *table*."""
    return sa.column(quoted_name(name, quote=True), _selectable=table)
