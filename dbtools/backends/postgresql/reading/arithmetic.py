"""The operations of expressions in PostgreSQL. Calculations in, SQL that fails only by overflow out.

NaN, infinity and dates outside the years 1 to 9999 count as null in an operation, as they do in buckets. A
computed operand is written only once, so that the SQL grows no faster than the expression.
"""

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from dbtools.backends.compile.sources import Element
from dbtools.backends.postgresql.reading.dialect import Named
from dbtools.expressions.terms import Calculation, Literal, Operand, Operation, Related, is_moment
from dbtools.schema.catalog import Column
from dbtools.schema.paths import PathColumn
from dbtools.values.types import NUMERIC, ColumnType, Family

#: The types in which operations are computed.
OPERATION_TYPES: Mapping[Family, str] = {
    Family.INTEGER: "pg_catalog.int8",
    Family.DECIMAL: "pg_catalog.numeric",
    Family.NUMBER: "pg_catalog.float8",
    Family.TEXT: "pg_catalog.text",
    Family.DATE: "pg_catalog.date",
    Family.TIMESTAMP: "pg_catalog.timestamp",
    Family.TIMESTAMPTZ: "pg_catalog.timestamptz",
}
FIRST, LAST_MOMENT = "timestamp '0001-01-01'", "timestamp '9999-12-31 23:59:59.999999'"
SIGNS = {Operation.ADD: "+", Operation.SUBTRACT: "-", Operation.MULTIPLY: "*"}
MOST_DAYS = 3_700_000  #: more than from the year 1 to the year 9999
#: The days of 20,000 years, after which the calendar repeats. Moves stay within MOST_DAYS of a valid date.
AHEAD = 7_304_850
ZERO: Element = sa.literal_column("0")


def calculation_sql(term: Calculation, operands: Sequence[Element]) -> Element:
    """Return the SQL of *term*, given the SQL of its *operands*."""
    pairs = list(zip(term.operands, operands, strict=True))
    family = term.type.family
    match term.operation:
        case Operation.ADD | Operation.SUBTRACT | Operation.MULTIPLY:
            left, right = (_number(*each, family) for each in pairs)
            return left.op(SIGNS[term.operation])(right)
        case Operation.DIVIDE:
            left, right = (_number(*each, family) for each in pairs)
            # A double keeps 15 significant digits when it is cast to a decimal.
            return _cast(
                _cast(left.op("/")(sa.func.nullif(right, _cast(ZERO, family))), Family.NUMBER), family
            )
        case Operation.NEGATE:
            return ZERO.op("-")(_number(*pairs[0], family))
        case Operation.ABS:
            return sa.func.abs(_number(*pairs[0], family))
        case Operation.ROUND:
            places = sa.cast(operands[1], Named("pg_catalog.int4"))
            return _cast(sa.func.round(_number(*pairs[0], Family.DECIMAL), places), family)
        case Operation.DAYS:
            left, right = (_cast(_moment(*each), Family.TIMESTAMP) for each in pairs)
            seconds = _cast(sa.extract("epoch", left.op("-")(right)), Family.DECIMAL)
            return _cast(sa.func.round(seconds.op("/")(_constant("86400")), _constant("6")), family)
        case Operation.SHIFT:
            return _shifted_date(term, *pairs)
        case Operation.COALESCE:
            return sa.func.coalesce(*(_operand_value(*each, term.type) for each in pairs))
        case _:
            return getattr(sa.func, term.operation)(_cast(operands[0], Family.TEXT))  # type: ignore[no-any-return]


def _operand_value(term: Operand, value: Element, type: ColumnType) -> Element:
    """Return *value* as one of *type*, or null if operations cannot use it."""
    if type.family in NUMERIC:
        return _number(term, value, type.family)
    if is_moment(type):
        return _cast(_moment(term, value), type.family)
    # Two columns may have different collations.
    return _cast(value, type.family).collate("default") if type.family is Family.TEXT else value


def _number(term: Operand, value: Element, family: Family) -> Element:
    """Return *value* as a finite number of *family*."""
    if isinstance(term, Related) and term.type.family is not Family.INTEGER:
        # Checking the text names the value only once, which may be a subquery.
        value = sa.cast(value, Named("pg_catalog.text"))
        for endless in ("NaN", "Infinity", "-Infinity"):
            value = sa.func.nullif(value, _constant(f"'{endless}'"))
    elif isinstance(term, Column | PathColumn) and term.type.family is not Family.INTEGER:
        # NaN minus NaN is NaN, and so is infinity minus infinity.
        value = sa.case((value.op("-")(value) == ZERO, value))
    return _cast(value, family)


def _moment(term: Operand, value: Element) -> Element:
    """Return *value*, or null outside the years 1 to 9999."""
    if isinstance(term, Calculation | Literal):
        return value
    return sa.case((value.between(_constant(FIRST), _constant(LAST_MOMENT)), value))


def _shifted_date(
    term: Calculation, moment: tuple[Operand, Element], days: tuple[Operand, Element]
) -> Element:
    """Return a date that is moved by days, or null outside the years 1 to 9999.

    least() and greatest() ignore nulls: they turn null into a bound, which becomes null at the end.
    """
    family = term.type.family
    number = _number(*days, days[0].type.family)
    capped = sa.func.greatest(sa.func.least(number, _constant(f"{MOST_DAYS}")), _constant(f"-{MOST_DAYS}"))
    if family is Family.DATE:
        ahead, tick, day = f"{AHEAD}", "1", "1"
        by: Element = sa.cast(capped, Named("pg_catalog.int4"))
    else:
        ahead, tick, day = f"interval '{AHEAD} days'", "interval '1 microsecond'", "interval '1 day'"
        by = _constant(day).op("*")(_cast(capped, Family.NUMBER))
    name = OPERATION_TYPES[family].rpartition(".")[2]
    low = _constant(f"({name} '0001-01-01' + {ahead} - {tick})")
    high = _constant(f"({name} '9999-12-31' + {ahead} + {day})")
    moved = _cast(_moment(*moment), family).op("+")(_constant(ahead)).op("+")(by)
    known = sa.func.nullif(sa.func.nullif(sa.func.greatest(sa.func.least(moved, high), low), low), high)
    return known.op("-")(_constant(ahead))


def _cast(value: Element, family: Family) -> Element:
    return sa.cast(value, Named(OPERATION_TYPES[family]))


def _constant(sql: str) -> Element:
    return sa.literal_column(sql)
