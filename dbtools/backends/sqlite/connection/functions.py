"""The operations of expressions as functions of SQLite. Cells in, a value out.

SQLite stores any value in any column: a cell that an operation cannot use counts as null. A function is
faster than SQL that checks each cell, and names its operands only once.
"""

import math
import operator
import sqlite3
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from dbtools.values.dates import FIRST_MOMENT, clock_of, day_of, instant, utc
from dbtools.values.types import lower

LEAST, MOST = -(2**63), 2**63 - 1  #: of SQLite's integers
DECIMAL_DIGITS = 15  #: significant ones, of a decimal
PRECISE = 10.0**DECIMAL_DIGITS  #: larger numbers have no decimal places
CELL = "x"  #: the step of a program that takes the next cell
DAY_MICROSECONDS = 86_400_000_000  #: microseconds
EXACT = Context(prec=1_000)  #: more digits than any sum of binary numbers can have
LAST_MICROSECOND = (datetime.max - FIRST_MOMENT) // timedelta(microseconds=1)

Number = int | float
Step = Callable[[Any, Any], Any]


def _number(cell: object) -> Number | None:
    """Return *cell* if it is a finite number."""
    if type(cell) is int:
        return cell
    return cell if type(cell) is float and math.isfinite(cell) else None


def _in_range(value: Number) -> Number:
    if isinstance(value, int) and not LEAST <= value <= MOST:
        raise ArithmeticError
    if isinstance(value, float) and not math.isfinite(value):
        raise ArithmeticError
    return value


def _step(apply: Step) -> Step:
    """Return *apply* for cells: null if one of them is not a number, or if *apply* returns null."""

    def compute(left: Any, right: Any) -> Number | None:
        one, other = _number(left), _number(right)
        result = None if one is None or other is None else apply(one, other)
        return None if result is None else _in_range(result)

    return compute


def _decimal(apply: Step) -> Step:
    """Return *apply* for decimals, which SQLite stores as binary numbers.

    The shortest digits of such a number are those of the decimal.
    """

    def compute(one: Number, other: Number) -> Number:
        exact = apply(Decimal(repr(one)), Decimal(repr(other)))
        whole = type(one) is type(other) is int and LEAST <= exact <= MOST
        return int(exact) if whole else float(exact)

    return _step(compute)


def _quotient(one: Number, other: Number) -> float | None:
    return one / other if other else None


def _decimal_quotient(one: Number, other: Number) -> float | None:
    return float(f"{one / other:.{DECIMAL_DIGITS}g}") if other else None


#: What `dbtools_compute` does with two cells; the last four are for decimals.
STEP_FUNCTIONS: Mapping[str, Step] = {
    "+": _step(operator.add),
    "-": _step(operator.sub),
    "*": _step(operator.mul),
    "/": _step(_quotient),
    "p": _decimal(operator.add),
    "m": _decimal(operator.sub),
    "t": _decimal(operator.mul),
    "d": _step(_decimal_quotient),
}


def _compute(program: str, *cells: object) -> object:
    """Return what *program* computes from *cells*, in reverse Polish notation: an x takes the next cell.

    One call computes a whole expression, since SQLite's parser allows only about twenty nested calls.
    """
    further, stack = iter(cells), []
    for step in program:
        if step == CELL:
            stack.append(next(further))
        else:
            right = stack.pop()
            stack[-1] = STEP_FUNCTIONS[step](stack[-1], right)
    return stack[0]


def _abs(cell: object) -> Number | None:
    number = _number(cell)
    return None if number is None else _in_range(abs(number))


def _round(cell: object, places: int) -> Number | None:
    number = _number(cell)
    if number is None or isinstance(number, int) or abs(number) >= PRECISE:
        return number
    exact = Decimal(f"{number:.{DECIMAL_DIGITS}g}")
    if exact == exact.to_integral_value() or -int(exact.as_tuple().exponent) <= places:
        return number
    return float(exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def _microseconds(cell: object) -> int | None:
    """Return the microseconds from the year 1 to *cell*, in UTC, if it is a date as text."""
    found = instant(cell) if isinstance(cell, str) else None
    if found is None:
        return None
    microseconds = found[0] * 1_000_000 + round(Decimal(f"0.{found[1] or 0}") * 1_000_000)
    return microseconds if microseconds <= LAST_MICROSECOND else None


def _date(cell: object) -> object:
    """Return *cell* if it is the text of a date, with or without a time."""
    return None if _microseconds(cell) is None else cell


def _utc(cell: object) -> object:
    """Return *cell* as `utc` writes it; anything else as it is."""
    return (utc(cell) or cell) if isinstance(cell, str) else cell


def _day(cell: object) -> object:
    """Return *cell* as `utc` writes it, a date without a time at midnight; anything else as it is."""
    return day_of(utc(cell) or cell) if isinstance(cell, str) else cell


def _clock(cell: object) -> object:
    """Return *cell* as `clock_of` writes it; anything else as it is."""
    return clock_of(cell) if isinstance(cell, str) else cell


def _lower_limit(value: object) -> object:
    """Return a value that no spelling of *value*, or of a later moment, sorts before.

    *value* is spelled as cells are compared. An offset moves a moment by less than a day.
    """
    return _date_limit(value, -1, "")


def _upper_limit(value: object) -> object:
    """Return a value that no spelling of *value*, or of an earlier moment, sorts after."""
    return _date_limit(value, 2, b"")


def _date_limit(value: object, days: int, otherwise: object) -> object:
    """Return the date of the moment *value* moved by *days*, or the minute of a time of day.

    Return *otherwise*, which sorts before or after every text, if *value* is another text.
    """
    if not isinstance(value, str):
        return value
    if value[2:3] == ":" and clock_of(value) == value:
        return value[:5] + "~" * (days > 0)
    found = instant(value)
    if found is None:
        return otherwise
    day = found[0] // 86_400 + days + 1
    return date.fromordinal(day).isoformat() if 0 < day <= date.max.toordinal() else otherwise


def _days(left: object, right: object) -> float | None:
    """Return the days from *right* to *left*, rounded to six places, half away from zero."""
    one, other = _microseconds(left), _microseconds(right)
    if one is None or other is None:
        return None
    between = one - other
    # Millionths of a day, in integers.
    millionths = (abs(between) * 20 + DAY_MICROSECONDS // 100_000) // (DAY_MICROSECONDS // 50_000)
    return math.copysign(millionths / 1e6, between) if millionths else 0.0


def _shift(cell: object, days: object) -> str | None:
    """Return the date *cell* moved by *days*; without a time if both are whole."""
    at, by = _microseconds(cell), _number(days)
    if at is None or by is None or abs(by) > 4_000_000:
        return None
    whole = int(by)
    at += whole * DAY_MICROSECONDS + round(round((by - whole) * 86_400, 6) * 1_000_000)
    if not 0 <= at <= LAST_MICROSECOND:
        return None
    moved = FIRST_MOMENT + timedelta(microseconds=at)
    if isinstance(by, int) and len(str(cell)) == 10:
        return moved.date().isoformat()
    written = moved.isoformat(" ")
    return written.rstrip("0") if moved.microsecond else written


#: The functions by their names in SQL, with the number of their arguments; -1: any number.
FUNCTIONS: Mapping[str, tuple[int, Callable[..., Any]]] = {
    "dbtools_compute": (-1, _compute),
    "dbtools_number": (1, _number),
    "dbtools_date": (1, _date),
    "dbtools_abs": (1, _abs),
    "dbtools_round": (2, _round),
    "dbtools_moment": (1, _microseconds),
    "dbtools_days": (2, _days),
    "dbtools_shift": (2, _shift),
    "dbtools_caseless": (1, lower),
    "dbtools_utc": (1, _utc),
    "dbtools_day": (1, _day),
    "dbtools_clock": (1, _clock),
    "dbtools_before": (1, _lower_limit),
    "dbtools_after": (1, _upper_limit),
}


class DecimalSum:
    """The exact sum of decimals, each with the shortest digits of the binary number that SQLite stores."""

    def __init__(self) -> None:
        self.sum = Decimal(0)
        self.types: set[type[Number]] = set()  #: the types of the numbers so far

    def step(self, cell: object) -> None:
        """Add a cell."""
        number = _number(cell)
        if number is not None:
            self.sum = EXACT.add(self.sum, Decimal(repr(number)))
            self.types.add(type(number))

    def finalize(self) -> Number | None:
        """Return the sum, or null without numbers."""
        if not self.types:
            return None
        return _in_range(float(self.sum) if float in self.types else int(self.sum))


def install(connection: sqlite3.Connection) -> None:
    """Add the functions to *connection*."""
    for name, (arguments, function) in FUNCTIONS.items():
        connection.create_function(name, arguments, function, deterministic=True)
    connection.create_aggregate("dbtools_total", 1, DecimalSum)  # type: ignore[arg-type]
