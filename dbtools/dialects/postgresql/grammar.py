"""What PostgreSQL says differently in a statement.

A value goes in as text and is cast to its column's type by the server, so that every type is written one way;
a cell that is large, or that the driver does not keep exactly, comes out as text.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.types import UserDefinedType

from dbtools.column_types import ColumnType, Family
from dbtools.dialects.selects import ESCAPE, Element, Truth
from dbtools.statement import Output

#: An address that is cast to a text has a mask even where it is that of one host.
PLAIN_TEXT = {"pg_catalog.text", "pg_catalog.varchar", "pg_catalog.bpchar", "pg_catalog.inet"}
AS_THEY_ARE = {
    Family.INTEGER,
    Family.NUMBER,
    Family.DECIMAL,
    Family.BOOLEAN,
    Family.DATE,
    Family.TIME,
    Family.TIMESTAMP,
    Family.TIMESTAMPTZ,
    Family.INTERVAL,
    Family.UUID,
    Family.BYTES,
}


class Named(UserDefinedType[Any]):
    """A type by the quoted name that the catalog gave it."""

    cache_ok = True

    def __init__(self, name: str) -> None:
        self.name = name

    def get_col_spec(self, **_: object) -> str:
        """Return the name, as it is written in SQL."""
        return self.name


class PostgresqlGrammar:
    """The Grammar of PostgreSQL."""

    dialect: sa.Dialect = asyncpg_dialect()  # type: ignore[no-untyped-call]

    def value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter as a text that is cast to *type*."""
        return sa.cast(sa.bindparam(name, type_=sa.Text), Named(type.cast))

    def member(self, column: Element, name: str, type: ColumnType, *, negated: bool) -> Truth:
        """Compare with an array, so that a list of any length is one parameter."""
        texts = sa.bindparam(name, type_=sa.ARRAY(sa.Text))
        array = sa.cast(texts, Named(f"{type.cast}[]"))
        if negated:
            return column.op("<>", is_comparison=True)(sa.func.all(array))
        return column.op("=", is_comparison=True)(sa.func.any(array))

    def like(self, column: Element, name: str) -> Truth:
        """Compare by ILIKE in the default collation: others may refuse it, and so fail on a cell."""
        text = sa.cast(column, sa.Text).collate("default")
        return text.ilike(sa.bindparam(name, type_=sa.Text), escape=ESCAPE)

    def comparable(self, column: Element, type: ColumnType) -> Element:
        """Return *column* itself: its cells are what it declares."""
        return column

    def is_text(self, column: Element) -> Truth:
        """Refuse: every column has a type, so none is compared in two ways."""
        raise AssertionError(column)

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Compare the value with each item."""
        return self.value(name, type).op("=", is_comparison=True)(sa.func.any(column))

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Read the cell, or its beginning and its length where it is longer than its cut."""
        type = output.column.type
        if type.family is Family.BYTES:
            length = sa.func.octet_length(column)
            start = sa.func.substr(column, sa.literal_column("1"), sa.literal_column(str(output.cut)))
            return (column,) if output.cut is None else (start, _beyond(length, length, output.cut))
        cell = self._read(column, type)
        if output.cut is None or not type.large:
            return (cell,)
        text = sa.cast(cell, sa.Text) if type.family in AS_THEY_ARE or type.cast in PLAIN_TEXT else cell
        start = sa.func.left(text, sa.literal_column(str(output.cut)))
        return (start, _beyond(sa.func.octet_length(text), sa.func.char_length(text), output.cut))

    def _read(self, column: Element, type: ColumnType) -> Element:
        if type.family in AS_THEY_ARE or type.cast in PLAIN_TEXT:
            return column
        if type.family in (Family.ARRAY, Family.OBJECT):
            return sa.cast(sa.func.to_json(column), sa.Text)
        return sa.cast(column, sa.Text)

    def sortable(self, column: Element, type: ColumnType) -> Element:
        """Return *column*, or its text where its type has no order."""
        return column if type.ordered else sa.cast(column, sa.Text)


def _beyond(size: Element, length: Element, cut: int) -> Element:
    """Return *length* where *size*, which is never smaller and cheaper to know, is beyond *cut*."""
    return sa.case((size > sa.literal_column(str(cut)), length))


def parameter(value: object, type: ColumnType) -> str | None:
    """Return *value* as the text that the server casts."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return "\\x" + value.hex()
        case float():
            return repr(value)
        case _:
            return str(value)


def list_parameter(values: Sequence[object], type: ColumnType) -> list[str | None]:
    """Return *values* as texts."""
    return [parameter(value, type) for value in values]
