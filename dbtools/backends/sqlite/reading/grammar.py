"""The Grammar of SQLite. Terms in, SQL out; no operator ever fails, whatever a cell holds."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from sqlalchemy.dialects.sqlite.aiosqlite import dialect as aiosqlite_dialect
from sqlalchemy.sql import quoted_name
from sqlalchemy.sql.functions import Function as Call

from dbtools.backends.compile.sources import LONG, Element, Grammar, Truth, column_of, dialect_with_places
from dbtools.backends.compiled import ESCAPE, identifier, prefix_parameter, search_parameter
from dbtools.backends.sqlite.connection.files import MATCHES, UNHEX
from dbtools.backends.sqlite.connection.functions import CELL
from dbtools.backends.sqlite.reading import moments
from dbtools.backends.sqlite.schema.syntax import with_names
from dbtools.backends.sqlite.schema.types import LEAST, MOST
from dbtools.expressions.terms import (
    SEARCH,
    Bucket,
    Calculation,
    Function,
    Literal,
    Operand,
    Operation,
    alternatives_of,
    is_moment,
)
from dbtools.schema.catalog import TextIndex
from dbtools.statements.select import Order, Output
from dbtools.values.cells import SURROGATES
from dbtools.values.types import NUMERIC, ColumnType, Family, Operator

NUMBER_FORM = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,5})?", re.ASCII)
INTEGER_DIGITS = 19  #: at most in an integer

SCALE = re.compile(r"\(\s*\d+\s*,\s*([1-9]|1\d)\s*\)")  #: in the declaration of a decimal
LARGEST = "1e12"  #: units of one decimal in an exact sum, so that nine million rows fit
FORMATS: Mapping[Bucket, str] = {
    Bucket.YEAR: "%Y",
    Bucket.MONTH: "%Y-%m",
    Bucket.DAY: "%Y-%m-%d",
    Bucket.HOUR: "%H",
}
CLAIM_CASTS: Mapping[str, Any] = {
    "integer": sa.INTEGER,
    "real": sa.REAL,
    "numeric": sa.NUMERIC,
    "text": sa.TEXT,
}


#: The steps of `dbtools_compute`, with numbers and with decimals.
STEPS: Mapping[Operation, str] = {
    Operation.ADD: "+p",
    Operation.SUBTRACT: "-m",
    Operation.MULTIPLY: "*t",
    Operation.DIVIDE: "/d",
}
#: How many of the first operands are dates; the others are numbers.
DATES: Mapping[Operation, int] = {Operation.DAYS: 2, Operation.SHIFT: 1}
NATIVE = (Operation.LENGTH, Operation.LOWER, Operation.UPPER)


class SqliteGrammar(Grammar):
    """The Grammar of SQLite."""

    dialect: sa.Dialect = dialect_with_places(aiosqlite_dialect())
    barrier = False

    def driver_value(self, value: object, type: ColumnType) -> object:
        """Return *value* as the driver takes it."""
        if type is SEARCH:
            return f"({' OR '.join(map(_alternative, alternatives_of(str(value))))})"
        if isinstance(value, str) and type.family is Family.DECIMAL:
            return _number(value)
        if isinstance(value, str) and moments.are_texts(type):
            return moments.SPELLINGS[type.family].read(value)
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, int) and not LEAST <= value <= MOST:
            return _number(str(value))
        return value

    def bound_list(self, values: Sequence[object], type: ColumnType) -> object:
        """Return *values* as the JSON array that `member` reads."""
        return f"[{','.join(_item(self.driver_value(value, type)) for value in values)}]"

    def insert(self, table: sa.TableClause) -> sqlite.Insert:
        """Return an INSERT into *table* that can have an ON CONFLICT clause."""
        return sqlite.insert(table)

    def value(self, name: str, type: ColumnType) -> Element:
        """Return the bare parameter, because SQLite's values have types."""
        return sa.bindparam(name)

    def member(self, column: Element, name: str, type: ColumnType, *, negated: bool) -> Truth:
        """Compare with the items of a JSON array, so that a list is one parameter."""
        item = f"{UNHEX}(value)" if type.family is Family.BYTES else "value"
        if type.unchecked:
            item = f"iif(type = 'array', cast({UNHEX}(json_extract(value, '$[0]')) as text), value)"
        items = sa.text(f"(select {item} from json_each(:{name}))").bindparams(sa.bindparam(name))
        if moments.are_texts(type):
            return moments.member(column, type.family, name, items, negated=negated)
        return column.op("not in" if negated else "in", is_comparison=True)(items)

    def like(self, column: Element, name: str, operator: Operator, type: ColumnType) -> Truth:
        """Compare by LIKE, which ignores case in ASCII, or by a function if a cell has other letters."""
        pattern = sa.func.dbtools_caseless(sa.bindparam(name))
        like = column.like(pattern, escape=ESCAPE)
        blob, length = sa.cast(column, sa.BLOB), sa.func.length(column)
        # An escape may mean a byte that is not UTF-8.
        escaped = sa.func.instr(sa.bindparam(search_parameter(name)), _text("\\x"))
        odd = sa.or_(sa.func.length(blob) != length, length > sa.literal_column(str(LONG)), escaped)
        found = getattr(sa.func, MATCHES)(blob, sa.bindparam(search_parameter(name)), _text(operator))
        whole: Truth = sa.case((odd, found), else_=like)
        if operator is Operator.STARTS_WITH:
            # An index serves LIKE with a bare parameter.
            return sa.and_(column.like(sa.bindparam(prefix_parameter(name)), escape=ESCAPE), whole)
        return whole

    def matches(self, document: Element, index: TextIndex, name: str) -> Truth:
        """Compare the row's number with those that the index finds."""
        table, found = _search_source(index, name)
        return document.in_(sa.select(column_of(table, "rowid")).where(found))

    def rank(self, document: Element, index: TextIndex, name: str) -> Element:
        """Return the rank that the index is configured to compute, `bm25` by default."""
        table, found = _search_source(index, name)
        select = sa.select(column_of(table, "rowid"), column_of(table, "rank")).where(found)
        # With an OFFSET the search runs once, and not once for each row.
        ranks = select.offset(sa.literal_column("0")).subquery("s")
        rank = sa.select(ranks.c.rank).where(ranks.c.rowid == document)
        return rank.correlate_except(ranks).scalar_subquery()

    def equal_form(self, column: Element, type: ColumnType) -> Element:
        """Write dates and times in one spelling each, so that equal moments are equal texts."""
        return moments.spelling_of(column, type.family) if moments.are_texts(type) else column

    def compare(self, operator: Operator, column: Element, type: ColumnType, *values: Element) -> Truth:
        """Compare moments, not texts."""
        if moments.are_texts(type):
            return moments.compare(operator, column, type.family, *values)
        return super().compare(operator, column, type, *values)

    def window(self, select: sa.Select[Any], column: Element, step: Order, limit: Element) -> Truth | None:
        """Bound the spellings of the first moments."""
        return moments.window(select, column, step, limit) if moments.are_texts(step.term.type) else None

    def sortable_form(self, column: Element, type: ColumnType) -> Element:
        """Return *column* as it is compared."""
        return self.equal_form(column, type)

    def is_text(self, column: Element) -> Truth:
        """Compare the cell's storage class."""
        return sa.func.typeof(column) == sa.literal_column("'text'")

    def array_contains(self, column: Element, name: str, type: ColumnType) -> Truth:
        """Refuse: SQLite has no arrays, so no column has the operator."""
        raise AssertionError(name)

    def native_sql(self, sql: str) -> str:
        """Write names in backticks, because SQLite may take double quotes for texts."""
        return with_names(sql)

    def array(self, name: str, cast: str) -> Element:
        """Return the bare parameter: a list is the text of a JSON array."""
        return sa.bindparam(name)

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter cast to *cast*, or bare so that it takes the affinity of a column."""
        bare: Element = sa.bindparam(name)
        return sa.cast(bare, CLAIM_CASTS[cast]()) if cast else bare

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Read the bare column: cells are cut as they are fetched."""
        return (column,)

    def bucket(self, column: Element, type: ColumnType, bucket: Bucket) -> Element:
        """Return the bucket of dates in texts, in UTC if they have an offset.

        Other texts give null, and so do numbers, which may count days or seconds from any origin.
        """
        start = sa.func.substr(column, sa.literal_column("1"), sa.literal_column("10"))
        # SQLite takes "now" for a date, and normalizes February 31 to March 2 when there is a modifier.
        same = sa.func.strftime(_text("%Y-%m-%d"), start, _text("+0 days"))
        valid = sa.and_(self.is_text(column), start == same, start >= _text("0001-01-01"))
        return sa.case((valid, _bucket(column, bucket)))

    def calculation_sql(self, term: Calculation, operands: Sequence[Element]) -> Element:
        """Compute by functions that each connection has."""
        name = term.operation.name.lower()
        if term.operation is Operation.COALESCE:
            return sa.func.coalesce(*map(partial(_operand_value, term.type), term.operands, operands))
        if term.operation in NATIVE:
            return getattr(sa.func, name)(*operands)  # type: ignore[no-any-return]
        dates = DATES.get(term.operation, 0)
        operands = [
            cell
            if isinstance(of, Calculation | Literal)
            else (moments.as_text if at < dates else _as_number)(cell)
            for at, (of, cell) in enumerate(zip(term.operands, operands, strict=True))
        ]
        if term.operation is Operation.NEGATE:
            return _computation("-", sa.literal_column("0"), *operands)
        if term.operation in STEPS:
            return _computation(STEPS[term.operation][term.type.family is Family.DECIMAL], *operands)
        return getattr(sa.func, f"dbtools_{name}")(*operands)  # type: ignore[no-any-return]

    def comparable_pair(
        self, left: tuple[Element, ColumnType], right: tuple[Element, ColumnType]
    ) -> tuple[Element, Element]:
        """Compare dates as points in time: a text may be a date, with or without a time."""
        if is_moment(left[1]) and is_moment(right[1]) and left[1].family is not Family.TEXT:
            one, other = (sa.func.dbtools_moment(moments.as_text(each)) for each, _ in (left, right))
            return one, other
        return self.equal_form(*left), self.equal_form(*right)

    def measure(self, function: Function, column: Element, type: ColumnType) -> Element:
        """Ignore cells of numeric columns that are not numbers, and sum decimals exactly."""
        numbers = self.equal_form(column, type)
        if type.lenient and (type.family in NUMERIC or function in (Function.SUM, Function.AVG)):
            numbers = sa.case((sa.func.typeof(column).in_([_text("integer"), _text("real")]), column))
        if function in (Function.MIN, Function.MAX):
            return getattr(sa.func, function)(numbers)  # type: ignore[no-any-return]
        total: Element = sa.func.sum(numbers)
        if type.family is Family.DECIMAL and not type.lenient:
            total = sa.func.dbtools_total(numbers)
        if type.family is Family.DECIMAL and (scale := SCALE.search(type.name)):
            total = _exact_sum(total, numbers, int(scale[1]))
        elif function is Function.AVG and type.lenient:
            return sa.func.avg(numbers)
        if function is Function.SUM:
            return total
        return total.op("*")(sa.literal_column("1.0")).op("/")(sa.func.count(numbers))


def _search_source(index: TextIndex, name: str) -> tuple[sa.FromClause, Truth]:
    """Return the table *index*, and the condition that its row matches the search in what *index* reads."""
    table = sa.table(quoted_name(index.source, quote=True)).alias("f")
    columns = sa.literal(f"{{{' '.join(map(identifier, sorted(index.reads)))}}} : ")
    return table, column_of(table, index.source).op("match")(columns.op("||")(sa.bindparam(name)))


def _alternative(alternative: tuple[Sequence[str], Sequence[str]]) -> str:
    """Return *alternative* in the syntax of FTS5, with quotes, so that no word is an operator."""
    wanted, unwanted = (list(map(identifier, words)) for words in alternative)
    without = f" NOT ({' OR '.join(unwanted)})" if unwanted else ""
    return f"({' '.join(wanted)}{without})"


def _computation(step: str, *operands: Element) -> Element:
    """Return *step* with two *operands*, merged with the programs of those that are computed."""
    program, cells = "", []
    for each in operands:
        if isinstance(each, Call) and each.name == "dbtools_compute":
            known, *further = each.clauses
            program += str(known)[1:-1]
            cells += further
        else:
            program += CELL
            cells.append(each)
    return sa.func.dbtools_compute(_text(program + step), *cells)


def _as_number(cell: Element) -> Element:
    """Return *cell*, or null if it is a text: our functions cannot read texts that are not valid UTF-8."""
    return sa.case((sa.func.typeof(cell) != _text("text"), cell))


def _operand_value(type: ColumnType, term: Operand, cell: Element) -> Element:
    """Return *cell*, the SQL of *term*, or null if it is not a number or a date as *type* requires."""
    if isinstance(term, Calculation | Literal):
        return cell
    if type.family in NUMERIC:
        return sa.func.dbtools_number(_as_number(cell))
    return sa.func.dbtools_date(moments.as_text(cell)) if is_moment(type) else cell


def _exact_sum(total: Element, numbers: Element, scale: int) -> Element:
    """Return *total* as a sum of integers, such as hundredths for a *scale* of 2, if all numbers conform.

    Binary fractions would add rounding errors. Beyond LARGEST, the sum of integers could overflow.
    """
    unit: Element = sa.literal_column(f"1e{scale}")
    units = sa.func.round(numbers.op("*")(unit))
    whole = sa.and_(numbers == units.op("/")(unit), sa.func.abs(units) < sa.literal_column(LARGEST))
    left = sa.func.count(numbers).op("-")(sa.func.count(sa.case((whole, numbers))))
    exact = sa.func.sum(sa.case((whole, sa.cast(units, sa.Integer)))).op("/")(unit)
    conforms = sa.and_(sa.func.typeof(total) == _text("real"), left == sa.literal_column("0"))
    return sa.case((conforms, exact), else_=total)


def _bucket(column: Element, bucket: Bucket) -> Element:
    match bucket:
        case Bucket.QUARTER:
            quarter = _part("%m", column, ("+", 2), ("/", 3))
            return _strftime("%Y-Q", column).op("||")(sa.cast(quarter, sa.Text))
        case Bucket.WEEK:
            # A day belongs to the week and the year of its Thursday (ISO 8601).
            thursday = sa.func.date(column, _text("-3 days"), _text("weekday 4"))
            week = sa.func.printf(_text("%02d"), _part("%j", thursday, ("+", 6), ("/", 7)))
            return _strftime("%Y-W", thursday).op("||")(week)
        case Bucket.WEEKDAY:
            return sa.cast(_part("%w", column, ("+", 6), ("%", 7), ("+", 1)), sa.Text)
        case _:
            return _strftime(FORMATS[bucket], column)


def _strftime(format: str, column: Element) -> Element:
    return sa.func.strftime(_text(format), column)


def _part(format: str, column: Element, *steps: tuple[str, int]) -> Element:
    """Return a number in a date after *steps* of integer arithmetic."""
    number: Element = sa.cast(_strftime(format, column), sa.Integer)
    for operator, operand in steps:
        number = number.op(operator)(sa.literal_column(str(operand)))
    return number


def _text(text: str) -> Element:
    return sa.literal_column(f"'{text}'")


def _item(value: object) -> str:
    match value:
        case bytes():
            return f'"{value.hex()}"'
        case str() if SURROGATES.search(value):
            # JSON cannot hold a text that is not UTF-8.
            return f'["{value.encode(errors="surrogateescape").hex()}"]'
        case float() if math.isinf(value):
            # JSON has no infinity, but SQLite reads numbers that overflow as such.
            return "9e999" if value > 0 else "-9e999"
        case _:
            return json.dumps(value)


def _number(text: str) -> int | float | str:
    """Return *text* as a number if it is one: the column, and so a cursor, may also hold texts."""
    if not NUMBER_FORM.fullmatch(text):
        return text
    exact = Decimal(text)
    whole = exact.adjusted() < INTEGER_DIGITS and exact == exact.to_integral_value()
    return int(exact) if whole and LEAST <= exact <= MOST else float(text)
