"""The Grammar of PostgreSQL. Terms in, SQL out.

A value is sent as text, and the server casts it to the type of its column, so that all types work alike. A
cell that is large, or that the driver would not keep exactly, is read as text.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.sql import quoted_name

from dbtools.backends.compile.sources import LONG, Element, Grammar, Truth, Written, dialect_with_places
from dbtools.backends.compiled import ESCAPE, pin, search_parameter
from dbtools.backends.postgresql.reading import arithmetic
from dbtools.backends.postgresql.reading.arithmetic import FIRST, LAST_MOMENT, OPERATION_TYPES
from dbtools.backends.postgresql.reading.dialect import Dialect, Named
from dbtools.backends.postgresql.schema.introspection import ROW_VERSION
from dbtools.backends.postgresql.schema.vocabulary import SYSTEM
from dbtools.expressions.terms import Bucket, Calculation, Function
from dbtools.schema.catalog import Column, TextIndex
from dbtools.statements.select import Output
from dbtools.values.types import ColumnType, Family, Operator

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
    dialect: sa.Dialect = dialect_with_places(Dialect())  # type: ignore[no-untyped-call]

    def driver_value(self, value: object, type: ColumnType) -> object:
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
        return [self.driver_value(value, type) for value in values]

    def pinned_rows(self, columns: Sequence[Column], name: str) -> sa.FromClause:
        """Return arrays as a table."""
        lists = [self.array(pin(at), f"{_cast(each.type)}[]") for at, each in enumerate(columns)]
        columns_of_lists = (sa.func.unnest(each).label(f"k{at}") for at, each in enumerate(lists))
        return sa.select(*columns_of_lists).subquery(quoted_name(name, quote=True))

    def insert(self, table: sa.TableClause) -> postgresql.Insert:
        """Return an INSERT into *table* that can have an ON CONFLICT clause."""
        return postgresql.insert(table)

    def value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter as a text that is cast to *type*."""
        return sa.cast(sa.bindparam(name, type_=sa.Text), Named(_cast(type), type.operator_schema))

    def stored_value(self, name: str, type: ColumnType) -> Element:
        """Return the parameter as a text, or an array of texts, that is cast to *type*."""
        is_array = type.family is Family.ARRAY
        return self.array(name, _cast(type)) if is_array else self.value(name, type)

    def member(self, column: Element, name: str, type: ColumnType, *, negated: bool) -> Truth:
        """Compare with an array, so that a list of any length is one parameter."""
        array = sa.cast(sa.bindparam(name, type_=sa.ARRAY(sa.Text)), _array_of(type))
        column = self.as_key(column, type)
        if negated:
            return column.op("<>", is_comparison=True)(sa.func.all(array))
        return column.op("=", is_comparison=True)(sa.func.any(array))

    def like(self, column: Element, name: str, operator: Operator, type: ColumnType) -> Truth:
        """Compare by ILIKE in the default collation, since others may not support it and raise an error.

        If that knows only the case of ASCII letters, use one that knows all. Search long texts by a regular
        expression first, which contains the text literally. Both can use an index of trigrams.
        """
        text: Element = sa.cast(column, sa.Text).collate("default")
        if type.folding:
            text = sa.cast(column, sa.Text).op("collate")(sa.literal_column(type.folding))
        like = text.ilike(sa.bindparam(name, type_=sa.Text), escape=ESCAPE)
        if operator is Operator.STARTS_WITH:
            return like
        wanted: Element = sa.bindparam(search_parameter(name), type_=sa.Text)
        literally: Element = sa.literal_column("'***='")
        found: Truth = text.op("~*", is_comparison=True)(literally.op("||")(wanted))
        if type.folding:
            # Without regard to case, a regular expression takes I for ı.
            low = sa.func.lower(wanted.op("collate")(sa.literal_column(type.folding)))
            found = sa.func.lower(text).op("~", is_comparison=True)(literally.op("||")(low))
        if operator is Operator.ENDS_WITH:
            end = sa.func.right(text, sa.func.char_length(wanted))
            found = sa.and_(found, end.ilike(sa.bindparam(name, type_=sa.Text), escape=ESCAPE))
        most: Element = sa.literal_column(str(LONG))
        size = sa.func.octet_length(text)
        return sa.or_(sa.and_(size <= most, like), sa.and_(size > most, found))

    def compare(self, operator: Operator, column: Element, type: ColumnType, *values: Element) -> Truth:
        """Compare *column* as a value of the type that an extension's operators take exactly."""
        return super().compare(operator, self.as_key(column, type), type, *values)

    def as_key(self, column: Element, type: ColumnType) -> Element:
        """Return *column*, as a value of the type that an extension's operators take exactly."""
        return sa.cast(column, Named(type.cast, type.operator_schema)) if type.operator_schema else column

    def matches(self, document: Element, index: TextIndex, name: str) -> Truth:
        """Compare with the query that `websearch_to_tsquery` returns for the search: it never fails."""
        return document.op("@@", is_comparison=True)(_search_query(index, name))

    def rank(self, document: Element, index: TextIndex, name: str) -> Element:
        """Return the negative `ts_rank`, which depends on the document alone."""
        rank = sa.cast(
            sa.func.ts_rank(document, _search_query(index, name)), Named(OPERATION_TYPES[Family.NUMBER])
        )
        return sa.case((self.matches(document, index, name), -rank))

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Compare the value with each item."""
        items = sa.cast(column, _array_of(type)) if type.operator_schema else column
        return self.value(name, type).op("=", is_comparison=True)(sa.func.any(items))

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
            return (column,) if longest is None else (start, _long_length(length, length, longest))
        cell = self._output_column(column, type)
        if longest is None or not type.large:
            return (cell,)
        text = sa.cast(cell, sa.Text) if type.family in AS_THEY_ARE or type.cast in PLAIN_TEXT else cell
        start = sa.func.left(text, sa.literal_column(str(longest)))
        return (start, _long_length(sa.func.octet_length(text), sa.func.char_length(text), longest))

    def _output_column(self, column: Element, type: ColumnType) -> Element:
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

    def sortable_form(self, column: Element, type: ColumnType) -> Element:
        """Return *column*, or its text if its type has no order."""
        return column if type.ordered else sa.cast(column, sa.Text)

    def bucket(self, column: Element, type: ColumnType, bucket: Bucket) -> Element:
        """Write dates of the years 1 to 9999 in the session's zone, which is UTC; other dates are null."""
        moment = column if type.family is Family.TIMESTAMPTZ else sa.cast(column, Named("timestamp"))
        text = sa.func.to_char(moment, sa.literal_column(f"'{FORMATS[bucket]}'"))
        return sa.case((column.between(sa.literal_column(FIRST), sa.literal_column(LAST_MOMENT)), text))

    def comparable_pair(
        self, left: tuple[Element, ColumnType], right: tuple[Element, ColumnType]
    ) -> tuple[Element, Element]:
        """Compare texts in the default collation: two columns may have different ones."""
        if left[1].family is not Family.TEXT:
            return left[0], right[0]
        one, other = (sa.cast(each, sa.Text).collate("default") for each, _ in (left, right))
        return one, other

    def calculation_sql(self, term: Calculation, operands: Sequence[Element]) -> Element:
        """Compute in the types of PostgreSQL."""
        return arithmetic.calculation_sql(term, operands)

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
                functions = getattr(sa.func, type.operator_schema or SYSTEM)
                return getattr(functions, function)(self.as_key(column, type))  # type: ignore[no-any-return]


def _search_query(index: TextIndex, name: str) -> Element:
    configuration = [Written([index.source])] if index.source else []
    return sa.func.websearch_to_tsquery(*configuration, sa.bindparam(name, type_=sa.Text))


def _cast(type: ColumnType) -> str:
    # The sum of integers may exceed their type.
    whole = type.family is Family.INTEGER
    return type.cast or OPERATION_TYPES[Family.DECIMAL if whole else type.family]


def _array_of(type: ColumnType) -> Named:
    return Named(f"{_cast(type)}[]", type.operator_schema)


def _long_length(size: Element, length: Element, cut: int) -> Element:
    """Return *length* only if *size*, which is never smaller but cheaper to compute, exceeds *cut*."""
    return sa.case((size > sa.literal_column(str(cut)), length))
