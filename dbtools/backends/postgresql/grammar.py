"""How statements are written for PostgreSQL.

A value goes in as text and is cast to its column's type by the server, so that every type is written one way;
a cell that is large, or that the driver does not keep exactly, comes out as text.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import dialect as asyncpg_dialect

from dbtools.backends.plans import ESCAPE, sought
from dbtools.backends.postgresql import arithmetic
from dbtools.backends.postgresql.arithmetic import FIRST, LAST, TYPES, Named
from dbtools.backends.sources import LONG, Element, Grammar, Truth, Written, placing
from dbtools.catalog import TextIndex
from dbtools.statement import Output
from dbtools.terms import Bucket, Calculation, Function
from dbtools.types import ColumnType, Family, Operator

#: An address that is cast to a text has a mask even where it is that of one host.
PLAIN_TEXT = {"pg_catalog.text", "pg_catalog.varchar", "pg_catalog.inet"}
PADDED = "pg_catalog.bpchar"  #: a cast to text removes the blanks at its end, which count for nothing
#: The families whose cells the driver keeps exactly, as the codecs have them.
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
        """Compare by ILIKE in the default collation: others may refuse it, and so fail on a cell.

        Long texts are searched by a regular expression first, which takes the rest of itself literally.
        Either alternative can use an index of trigrams.
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
        """Compare with what `websearch_to_tsquery` makes of the search, which never fails."""
        return document.op("@@", is_comparison=True)(_sought(index, name))

    def rank(self, document: Element, index: TextIndex, name: str) -> Element:
        """Return the negative `ts_rank`, which depends on the document alone."""
        rank = sa.cast(sa.func.ts_rank(document, _sought(index, name)), Named(TYPES[Family.NUMBER]))
        return sa.case((self.matches(document, index, name), -rank))

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Compare the value with each item."""
        return self.value(name, type).op("=", is_comparison=True)(sa.func.any(column))

    def array(self, name: str, cast: str) -> Element:
        """Return the parameter as an array of texts that is cast to what the server takes it for."""
        return sa.cast(sa.bindparam(name, type_=sa.ARRAY(sa.Text)), Named(cast))

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter as a text that is cast to what the server takes it for."""
        return sa.cast(sa.bindparam(name, type_=sa.Text), Named(cast or "pg_catalog.text"))

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Read the cell, or its beginning and its length where it is longer than its cut."""
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
            # Its own type is hidden: whatever it is, its text is masked.
            return sa.cast(column, sa.Text)
        if type.family in AS_THEY_ARE or type.cast in PLAIN_TEXT or not type.cast:
            return column
        if type.family in (Family.ARRAY, Family.OBJECT):
            padded = type.element is not None and type.element.cast == PADDED
            whole = sa.cast(column, sa.ARRAY(sa.Text)) if padded else column
            return sa.cast(sa.func.to_json(whole), sa.Text)
        return sa.cast(column, sa.Text)

    def sortable(self, column: Element, type: ColumnType) -> Element:
        """Return *column*, or its text where its type has no order."""
        return column if type.ordered else sa.cast(column, sa.Text)

    def bucket(self, column: Element, type: ColumnType, bucket: Bucket) -> Element:
        """Write the dates of the years 1 to 9999, in the session's zone, which is UTC; others are null."""
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
        """Compute sums exactly where the type is exact, and the least of types that have no such function."""
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
    # The sum of integers may be beyond them.
    whole = type.family is Family.INTEGER
    return type.cast or TYPES[Family.DECIMAL if whole else type.family]


def _beyond(size: Element, length: Element, cut: int) -> Element:
    """Return *length* where *size*, which is never smaller and cheaper to know, is beyond *cut*."""
    return sa.case((size > sa.literal_column(str(cut)), length))
