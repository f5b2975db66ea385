"""The Grammar of PostgreSQL. Terms in, SQL out.

A value is sent as text, and the server casts it to the type of its column, so that all types work alike. A
cell that is large, or that the driver would not keep exactly, is read as text.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect
from sqlalchemy.sql import quoted_name

from dbtools.backends.plans import ESCAPE, pin, sought
from dbtools.backends.postgresql import arithmetic
from dbtools.backends.postgresql.arithmetic import FIRST, LAST, TYPES, Named
from dbtools.backends.postgresql.introspection import ROW_VERSION
from dbtools.backends.sources import LONG, Element, Grammar, Truth, Written, placing
from dbtools.catalog import Column, TextIndex
from dbtools.statement import Output
from dbtools.terms import Bucket, Calculation, Function
from dbtools.types import ColumnType, Family, Operator

#: Types whose cells are read without a cast to text: an inet would get a netmask even for one host.
PLAIN_TEXT = {"pg_catalog.text", "pg_catalog.varchar", "pg_catalog.inet"}
PADDED = "pg_catalog.bpchar"  #: a cast to text removes its padding, which is not significant
#: The families whose cells the driver decodes exactly.
AS_THEY_ARE = {
    *(Family.INTEGER, Family.NUMBER, Family.DECIMAL, Family.BOOLEAN, Family.UUID, Family.BYTES),
    *(Family.DATE, Family.TIME, Family.TIMESTAMP, Family.TIMESTAMPTZ, Family.INTERVAL),
}
FORMATS: Mapping[Bucket, str] = {
    Bucket.YEAR: "YYYY",
    Bucket.QUARTER: 'YYYY-"Q"Q',
    Bucket.MONTH: "YYYY-MM",
    Bucket.WEEK: 'IYYY-"W"IW',
    Bucket.DAY: "YYYY-MM-DD",
    Bucket.WEEKDAY: "ID",
    Bucket.HOUR: "HH24",
}


class PostgresqlGrammar(Grammar):
    """The Grammar of PostgreSQL."""

    barrier = False
    version = ROW_VERSION
    dialect: sa.Dialect = placing(asyncpg_dialect())  # type: ignore[no-untyped-call]

    def bound(self, value: object, type: ColumnType) -> object:
        """Return *value* as the text that the server casts."""
        match value:
            case None:
                return None
            case bool():
                return "true" if value else "false"
            case bytes():
                return "\\x" + value.hex()
            case list():
                return self.bound_list(value, type)
            case _:
                return str(value)

    def bound_list(self, values: Sequence[object], type: ColumnType) -> object:
        """Return *values* as texts."""
        return [self.bound(value, type) for value in values]

    def pinned(self, columns: Sequence[Column], name: str) -> sa.FromClause:
        """Return arrays as a table."""
        lists = [self.array(pin(at), f"{_cast(each.type)}[]") for at, each in enumerate(columns)]
        table = sa.func.unnest(*lists).table_valued(*(f"k{at}" for at in range(len(lists))))
        return table.render_derived(name=quoted_name(name, quote=True))

    def insert(self, table: sa.TableClause) -> postgresql.Insert:
        """Return an INSERT into *table* that can have an ON CONFLICT clause."""
        return postgresql.insert(table)

    def value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter as a text that is cast to *type*."""
        return sa.cast(sa.bindparam(name, type_=sa.Text), Named(_cast(type)))

    def stored(self, name: str, type: ColumnType) -> Element:
        """Return the parameter as a text, or an array of texts, that is cast to *type*."""
        is_array = type.family is Family.ARRAY
        return self.array(name, _cast(type)) if is_array else self.value(name, type)

    def member(self, column: Element, name: str, type: ColumnType, *, negated: bool) -> Truth:
        """Compare with an array, so that a list of any length is one parameter."""
        array = self.array(name, f"{_cast(type)}[]")
        if negated:
            return column.op("<>", is_comparison=True)(sa.func.all(array))
        return column.op("=", is_comparison=True)(sa.func.any(array))

    def like(self, column: Element, name: str, operator: Operator) -> Truth:
        """Compare by ILIKE in the default collation, since others may not support it and raise an error.

        Search long texts by a regular expression first, which contains the text literally. Both can use an
        index of trigrams.
        """
        text = sa.cast(column, sa.Text).collate("default")
        like = text.ilike(sa.bindparam(name, type_=sa.Text), escape=ESCAPE)
        if operator is Operator.STARTS_WITH:
            return like
        wanted = sa.bindparam(sought(name), type_=sa.Text)
        found: Truth = text.op("~*", is_comparison=True)(sa.literal_column("'***='").op("||")(wanted))
        if operator is Operator.ENDS_WITH:
            end = sa.func.right(text, sa.func.char_length(wanted))
            found = sa.and_(found, end.ilike(sa.bindparam(name, type_=sa.Text), escape=ESCAPE))
        most: Element = sa.literal_column(str(LONG))
        size = sa.func.octet_length(text)
        return sa.or_(sa.and_(size <= most, like), sa.and_(size > most, found))

    def matches(self, document: Element, index: TextIndex, name: str) -> Truth:
        """Compare with the query that `websearch_to_tsquery` returns for the search: it never fails."""
        return document.op("@@", is_comparison=True)(_sought(index, name))

    def rank(self, document: Element, index: TextIndex, name: str) -> Element:
        """Return the negative `ts_rank`, which depends on the document alone."""
        rank = sa.cast(sa.func.ts_rank(document, _sought(index, name)), Named(TYPES[Family.NUMBER]))
        return sa.case((self.matches(document, index, name), -rank))

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Compare the value with each item."""
        return self.value(name, type).op("=", is_comparison=True)(sa.func.any(column))

    def array(self, name: str, cast: str) -> Element:
        """Return the parameter as an array of texts, cast to the type that the server infers."""
        return sa.cast(sa.bindparam(name, type_=sa.ARRAY(sa.Text)), Named(cast))

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter as a text, cast to the type that the server infers."""
        return sa.cast(sa.bindparam(name, type_=sa.Text), Named(cast or "pg_catalog.text"))

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Read the cell, or its beginning and its length if it is longer than its cut."""
        type, longest = output.term.type, output.longest
        if type.family is Family.BYTES:
            length = sa.func.octet_length(column)
            start = sa.func.substr(column, sa.literal_column("1"), sa.literal_column(str(longest)))
            return (column,) if longest is None else (start, _beyond(length, length, longest))
        cell = self._read(column, type)
        if longest is None or not type.large:
            return (cell,)
        text = sa.cast(cell, sa.Text) if type.family in AS_THEY_ARE or type.cast in PLAIN_TEXT else cell
        start = sa.func.left(text, sa.literal_column(str(longest)))
        return (start, _beyond(sa.func.octet_length(text), sa.func.char_length(text), longest))

    def _read(self, column: Element, type: ColumnType) -> Element:
        if type.mask is not None:
            # The type of a masked cell is hidden: its text is masked, whatever the type is.
            return sa.cast(column, sa.Text)
        if type.family in AS_THEY_ARE or type.cast in PLAIN_TEXT or not type.cast:
            return column
        if type.family in (Family.ARRAY, Family.OBJECT):
            padded = type.element is not None and type.element.cast == PADDED
            whole = sa.cast(column, sa.ARRAY(sa.Text)) if padded else column
            return sa.cast(sa.func.to_json(whole), sa.Text)
        return sa.cast(column, sa.Text)

    def sortable(self, column: Element, type: ColumnType) -> Element:
        """Return *column*, or its text if its type has no order."""
        return column if type.ordered else sa.cast(column, sa.Text)

    def bucket(self, column: Element, type: ColumnType, bucket: Bucket) -> Element:
        """Write dates of the years 1 to 9999 in the session's zone, which is UTC; other dates are null."""
        moment = column if type.family is Family.TIMESTAMPTZ else sa.cast(column, Named("timestamp"))
        text = sa.func.to_char(moment, sa.literal_column(f"'{FORMATS[bucket]}'"))
        return sa.case((column.between(sa.literal_column(FIRST), sa.literal_column(LAST)), text))

    def compared(
        self, left: tuple[Element, ColumnType], right: tuple[Element, ColumnType]
    ) -> tuple[Element, Element]:
        """Compare texts in the default collation: two columns may have different ones."""
        if left[1].family is not Family.TEXT:
            return left[0], right[0]
        one, other = (sa.cast(each, sa.Text).collate("default") for each, _ in (left, right))
        return one, other

    def calculated(self, term: Calculation, operands: Sequence[Element]) -> Element:
        """Compute in the types of PostgreSQL."""
        return arithmetic.calculated(term, operands)

    def measure(self, function: Function, column: Element, type: ColumnType) -> Element:
        """Compute exact sums of exact types, and minima and maxima of types without these functions."""
        match function, type.family:
            case Function.SUM, Family.NUMBER:
                return sa.func.sum(sa.cast(column, Named("float8")))
            case Function.AVG, Family.NUMBER:
                total = sa.func.sum(sa.cast(column, Named("float8")))
                return total.op("/")(sa.func.nullif(sa.func.count(column), sa.literal_column("0")))
            case (Function.AVG, (Family.INTEGER | Family.DECIMAL)):
                return sa.func.trim_scale(sa.func.avg(column))
            case ((Function.MIN | Function.MAX), Family.BOOLEAN):
                return sa.func.bool_and(column) if function is Function.MIN else sa.func.bool_or(column)
            case ((Function.MIN | Function.MAX), Family.UUID):
                text = sa.cast(column, sa.Text).collate("C")
                return sa.cast(getattr(sa.func, function)(text), Named("uuid"))
            case _:
                return getattr(sa.func, function)(column)  # type: ignore[no-any-return]


def _sought(index: TextIndex, name: str) -> Element:
    configuration = [Written([index.source])] if index.source else []
    return sa.func.websearch_to_tsquery(*configuration, sa.bindparam(name, type_=sa.Text))


def _cast(type: ColumnType) -> str:
    # The sum of integers may exceed their type.
    whole = type.family is Family.INTEGER
    return type.cast or TYPES[Family.DECIMAL if whole else type.family]


def _beyond(size: Element, length: Element, cut: int) -> Element:
    """Return *length* only if *size*, which is never smaller but cheaper to compute, exceeds *cut*."""
    return sa.case((size > sa.literal_column(str(cut)), length))
