"""Compare moments that SQLite keeps as texts in any spelling of ISO 8601. Terms in, SQL out.

A cell is compared in one spelling, which sorts as the moments do; a cell that is no date or time is compared
as it is. Spellings of one moment differ by less than a day in their dates, so that a range of texts, which an
index serves, holds all cells that a comparison may choose; outside of it no cell needs to be spelled.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from dbtools.backends.compile.sources import PYTHON_OPERATORS, Element, Truth
from dbtools.statements.select import Direction, Order
from dbtools.values.dates import clock_of, day_of, utc
from dbtools.values.types import ColumnType, Family, Operator

DAY_GLOB = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
MINUTE = "[0-2][0-9]:[0-5][0-9]"
CLOCK = "[0-2][0-9]:[0-5][0-9]:[0-5][0-9]"
SECOND = "????-??-??[ T]??:??:??"
UNPRINTABLE = "*[^ -~]*"
LONGEST_MOMENT = 60  #: characters of a date with a time
ORDERING = (Operator.LT, Operator.LTE, Operator.GT, Operator.GTE)


class Spelling(NamedTuple):
    """The one spelling of a family."""

    read: Callable[[str], str]  #: the spelling of a value
    function: str  #: the same in SQL, for cells in spellings that are rare
    begins: str  #: the pattern of cells in any spelling


SPELLINGS: Mapping[Family, Spelling] = {
    Family.DATE: Spelling(lambda text: day_of(utc(text) or text), "dbtools_day", f"{DAY_GLOB}[ Tt]*"),
    Family.TIME: Spelling(clock_of, "dbtools_clock", f"{MINUTE}*"),
    **dict.fromkeys(
        (Family.TIMESTAMP, Family.TIMESTAMPTZ),
        Spelling(lambda text: utc(text) or text, "dbtools_utc", f"{DAY_GLOB}[ Tt]*"),
    ),
}


def are_texts(type: ColumnType) -> bool:
    """Return whether the cells of *type* are dates or times that may be spelled in several ways."""
    return type.lenient and type.family in SPELLINGS


def as_text(cell: Element) -> Element:
    """Return *cell* if it may be a date, otherwise null: no function can read a text of invalid UTF-8."""
    kind = sa.func.typeof(cell) == _text("text")
    return sa.case((sa.and_(kind, _is_printable(cell)), _part(cell, 1, LONGEST_MOMENT)))


def spelling_of(cell: Element, family: Family) -> Element:
    """Return *cell* in the spelling of *family*, or as it is if it is no date or time."""
    spelling = SPELLINGS[family]
    if not isinstance(cell, sa.ColumnClause):
        # What is computed is named only once.
        return getattr(sa.func, spelling.function)(cell)  # type: ignore[no-any-return]
    odd = sa.and_(_glob(cell, spelling.begins), _is_printable(cell))
    other = odd, getattr(sa.func, spelling.function)(_part(cell, 1, LONGEST_MOMENT))
    match family:
        case Family.DATE:
            return sa.case((_glob(cell, DAY_GLOB), cell), other, else_=cell)
        case Family.TIME:
            return sa.case((_glob(cell, CLOCK), cell), other, else_=cell)
        case _:
            return sa.case(*_plain_spellings(cell), other, else_=cell)


def _plain_spellings(cell: Element) -> tuple[tuple[Truth, Element], ...]:
    """Return the frequent spellings of moments, and what is compared for each: the cheapest first."""
    # SQLite takes 24:00 for a time as well.
    is_moment = sa.and_(_part(cell, 12, 2) < _text("24"), sa.func.julianday(cell).is_not(sa.null()))
    whole = sa.or_(*(_part(cell, 20) == _text(end) for end in ("", "Z", "+00:00")))
    # Without +00:00 and the zeros before it, but with the point.
    shortest = sa.func.rtrim(cell, _text("Zz0:+"))
    in_utc = sa.not_(_glob(_part(shortest, 21), "*[^0-9]*"))
    return (
        (sa.and_(_glob(cell, "????-??-?? ??:??:??"), _part(cell, 12, 2) < _text("24")), cell),
        (sa.and_(_glob(cell, f"{SECOND}*"), whole, is_moment), _with_space(_part(cell, 1, 19))),
        (_glob(cell, DAY_GLOB), cell.op("||")(_text(" 00:00:00"))),
        (
            sa.and_(_glob(cell, f"{SECOND}.*"), in_utc, is_moment),
            _with_space(sa.func.rtrim(shortest, _text("."))),
        ),
        (sa.and_(_glob(cell, "????-??-??[ T]??:??"), is_moment), _with_space(cell).op("||")(_text(":00"))),
    )


def _with_space(moment: Element) -> Element:
    return sa.func.replace(moment, _text("T"), _text(" "))


def compare(operator: Operator, cell: Element, family: Family, *values: Element) -> Truth:
    """Return whether *cell* is to *values*, in the spelling of *family*, as *operator* says."""
    exact = PYTHON_OPERATORS[operator](spelling_of(cell, family), *values)
    if not isinstance(cell, sa.ColumnClause):
        return exact
    least, most = sa.func.dbtools_before(values[0]), sa.func.dbtools_after(values[-1])
    match operator:
        case Operator.EQ:
            return sa.and_(cell >= least, cell <= most, exact)
        case Operator.NE:
            return _unless(cell < least, cell > most, exact)
        case Operator.LT | Operator.LTE:
            return sa.and_(cell <= most, _unless(cell < least, exact))
        case Operator.GT | Operator.GTE:
            return sa.and_(cell >= least, _unless(cell > most, exact))
        case _:
            first, last = sa.func.dbtools_after(values[0]), sa.func.dbtools_before(values[1])
            inside = sa.and_(cell > first, cell < last)
            return sa.and_(cell >= least, cell <= most, _unless(inside, exact))


def window(select: sa.Select[Any], cell: Element, step: Order, limit: Element) -> Truth:
    """Return a condition on *cell* that holds for the first *limit* rows of *select*, sorted by *step*.

    The first texts, which an index finds, are as many moments: none of the first moments is later than all
    of these, and so its text is near to theirs.
    """
    first = step.direction is Direction.ASC
    near = select.with_only_columns(spelling_of(cell, step.term.type.family).label("k"))
    near = near.where(cell.is_not(sa.null())).order_by(cell.asc() if first else cell.desc()).limit(limit)
    keys = near.subquery("w").c
    last = sa.func.max(keys.k) if first else sa.func.min(keys.k)
    end = sa.func.dbtools_after(last) if first else sa.func.dbtools_before(last)
    # Every blob sorts after every text, and every text after the empty one.
    unread = sa.literal_column("x''") if first else _text("")
    readable = sa.or_(sa.func.typeof(last) != _text("text"), _is_printable(last))
    bound = sa.select(sa.case((readable, end), else_=unread)).scalar_subquery()
    inside: Truth = cell <= bound if first else cell >= bound
    return sa.or_(inside, cell.is_(sa.null())) if step.term.nullable else inside


def member(cell: Element, family: Family, name: str, items: sa.TextClause, *, negated: bool) -> Truth:
    """Return whether *cell* is (not) among *items*, those of the JSON array in the parameter *name*."""
    exact: Truth = spelling_of(cell, family).op("not in" if negated else "in", is_comparison=True)(items)
    if not isinstance(cell, sa.ColumnClause):
        return exact
    least, most = (
        getattr(sa.func, f"dbtools_{function}")(
            sa.text(f"(select {end}(value) from json_each(:{name}))").bindparams(sa.bindparam(name))
        )
        for function, end in (("before", "min"), ("after", "max"))
    )
    if negated:
        return _unless(cell < least, cell > most, exact)
    return sa.and_(cell >= least, cell <= most, exact)


def _unless(*certain_and_exact: Truth) -> Truth:
    """Return the last condition, unless one of the others holds, which is cheaper to see."""
    *certain, exact = certain_and_exact
    return sa.case(*((each, sa.true()) for each in certain), else_=exact)


def _is_printable(text: Element) -> Truth:
    """Return whether *text* is printable ASCII; GLOB does not see what follows a zero byte."""
    zero = sa.func.instr(text, sa.func.char(sa.literal_column("0")))
    return sa.and_(sa.not_(_glob(text, UNPRINTABLE)), zero == sa.literal_column("0"))


def _glob(cell: Element, pattern: str) -> Truth:
    return cell.op("glob", is_comparison=True)(_text(pattern))


def _part(cell: Element, first: int, length: int | None = None) -> Element:
    bounds: list[Element] = [sa.literal_column(str(each)) for each in (first, length) if each is not None]
    return sa.func.substr(cell, *bounds)


def _text(text: str) -> Element:
    return sa.literal_column(f"'{text}'")
