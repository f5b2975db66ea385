"""Terms, as values: columns, paths, and what is computed from them.

A statement treats equal terms as one, however callers have spelled them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

from dbtools.schema.catalog import Column, TextIndex
from dbtools.schema.paths import PathColumn, Place, Relation
from dbtools.values.types import MOMENTS, NUMERIC, TEMPORAL, ColumnType, Family


class Bucket(StrEnum):
    """The part of a date that rows are grouped by."""

    YEAR = "year"
    QUARTER = "quarter"
    MONTH = "month"
    WEEK = "week"
    DAY = "day"
    WEEKDAY = "weekday"
    HOUR = "hour"


class Operation(StrEnum):
    """What an expression computes from its operands; null if one of them is null."""

    ADD = "+"
    SUBTRACT = "-"
    MULTIPLY = "*"
    DIVIDE = "/"  #: null for a division by zero
    NEGATE = "negate"
    ABS = "abs"
    ROUND = "round"  #: half away from zero, to as many decimal places as the second operand says
    DAYS = "days"  #: from the second date to the first, rounded to six decimal places
    SHIFT = "shift"  #: a date by a number of days; null before the year 1 and after 9999
    COALESCE = "coalesce"  #: the first operand that is not null
    LENGTH = "length"
    LOWER = "lower"
    UPPER = "upper"


#: The operations that never raise an error. Others convert a cell, or their result may be too large.
TOTAL = (Operation.LENGTH, Operation.LOWER, Operation.UPPER)

TEXT = ColumnType(family=Family.TEXT, name="text")
NUMBER = ColumnType(family=Family.NUMBER, name="number")
SEARCH = ColumnType(family=Family.TEXT, name="search")  #: of the words to search for
#: A word, or a phrase in double quotes; with a minus sign, rows must not have it.
SOUGHT = re.compile(r'(?P<without>-)?(?:"(?P<phrase>[^"]*)"?|(?P<word>[^\s"]+))')


@dataclass(frozen=True, kw_only=True)
class Literal:
    """A number or a text in an expression, whose value is bound to *parameter*."""

    parameter: str
    type: ColumnType
    name: str = field(compare=False)  #: as it is written
    nullable: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class Calculation:
    """An operation on terms."""

    operation: Operation
    operands: "tuple[Operand, ...]"
    type: ColumnType
    name: str = field(compare=False)  #: as it is written
    nullable: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Bucketed:
    """One part of a date, as text: 2024, 2024-Q1, 2024-03, 2024-W09, 2024-03-05, 1, 07.

    Weeks are those of ISO 8601, and Monday is weekday 1. A value that is not a date gives null.
    """

    place: "Operand"
    bucket: Bucket
    type: ClassVar[ColumnType] = TEXT
    nullable: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The bucket as callers write it."""
        return f"{self.place.name}:{self.bucket}"


class Function(StrEnum):
    """How to compute one value from the values of a group."""

    COUNT = "count"
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


SUMMABLE = {*NUMERIC, Family.INTERVAL, Family.ANY}
COMPARABLE = SUMMABLE | {Family.BOOLEAN, Family.TEXT, Family.ENUM, Family.UUID, *TEMPORAL}
COUNTED = ColumnType(family=Family.INTEGER, name="integer")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A function over the rows of a group; nulls are ignored."""

    function: Function
    place: "Operand | None" = None  #: None: the rows themselves

    @property
    def name(self) -> str:
        """The default name of the measure."""
        return str(self.function) if self.place is None else f"{self.function}_{self.place.name}"

    @property
    def nullable(self) -> bool:
        """Whether it is null if there are no values."""
        return self.function not in (Function.COUNT, Function.COUNT_DISTINCT)

    @cached_property
    def type(self) -> ColumnType:
        """The type of its values."""
        if self.place is None or not self.nullable:
            return COUNTED
        of = self.place.type
        if self.function in (Function.MIN, Function.MAX) or of.family in (Family.INTERVAL, Family.ANY):
            return of
        family = of.family
        if self.function is Function.AVG and family is Family.INTEGER:
            family = Family.DECIMAL
        rounded = family in (Family.NUMBER, Family.DECIMAL)
        name = str(family)
        return ColumnType(family=family, name=name, infinite=of.infinite, lenient=of.lenient, rounded=rounded)


ROW_COUNT = Measure(function=Function.COUNT)


@dataclass(frozen=True, kw_only=True)
class Related:
    """A measure of the rows that refer to a row."""

    relation: Relation
    measure: Measure
    name: str = field(compare=False)  #: as it is written

    @property
    def type(self) -> ColumnType:
        """The type of its values."""
        return self.measure.type

    @property
    def nullable(self) -> bool:
        """Whether it is null if no row refers to the row."""
        return self.measure.nullable


@dataclass(frozen=True, kw_only=True)
class Rank:
    """How well a cell matches a search: the lower, the better; null if it does not match."""

    place: Place
    parameter: str  #: the name of the parameter with the search
    type: ClassVar[ColumnType] = NUMBER
    nullable: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The rank as callers write it."""
        return f"rank({self.place.name})"


Operand = Column | PathColumn | Literal | Calculation | Bucketed | Related
Term = Operand | Measure | Rank  #: what a statement reads, compares and orders by


def parts_within(term: Operand) -> Iterator[Operand]:
    """Yield *term* and every term that it is computed from."""
    yield term
    match term:
        case Calculation():
            for operand in term.operands:
                yield from parts_within(operand)
        case Bucketed():
            yield from parts_within(term.place)
        case Related() if term.measure.place is not None:
            yield from parts_within(term.measure.place)
        case _:
            pass


def text_index_of(term: object) -> TextIndex | None:
    """Return the full-text index of *term*, if it is a column that has one."""
    column = term.column if isinstance(term, PathColumn) else term
    return column.text_index if isinstance(column, Column) else None


def alternatives_of(search: str) -> Sequence[tuple[Sequence[str], Sequence[str]]]:
    """Return the alternatives in *search*: the words and phrases that rows must have, and must not have."""
    found: list[tuple[list[str], list[str]]] = [([], [])]
    for match in SOUGHT.finditer(search):
        if match[0].lower() == "or":
            found.append(([], []))
        else:
            found[-1][match["without"] is not None].append(match["phrase"] or match["word"] or "")
    return [each for each in found if any(each)]


def may_raise(part: Operand) -> bool:
    """Return whether computing *part* may raise an error: then it must not be computed for hidden rows."""
    match part:
        case Calculation():
            return part.operation not in TOTAL
        case Related():
            return part.measure.function in (Function.SUM, Function.AVG)
        case _:
            return False


def buckets_of(type: ColumnType) -> tuple[Bucket, ...]:
    """Return the buckets that a term of *type* has."""
    if type.family in MOMENTS or type.dated:
        return tuple(Bucket)
    return tuple(each for each in Bucket if each is not Bucket.HOUR) if type.family is Family.DATE else ()


def are_comparable(type: ColumnType, other: ColumnType) -> bool:
    """Return whether values of *type* can be compared with values of *other*."""
    if type.family is Family.ENUM or type.family is not other.family:
        return (
            (is_number(type) and is_number(other)) or (is_moment(type) and is_moment(other)) or type == other
        )
    return type.comparable and other.comparable


def is_moment(type: ColumnType) -> bool:
    """Return whether values of *type* are dates, with or without a time, or texts that may be."""
    return type.family is Family.DATE or type.family in MOMENTS or type.dated


def is_number(type: ColumnType) -> bool:
    """Return whether values of *type* are numbers, or may be."""
    return type.family in NUMERIC or type.family is Family.ANY


def functions_of(type: ColumnType) -> Iterator[Function]:
    """Yield the functions that take a column of *type*."""
    if type.mask is not None:
        return
    yield Function.COUNT
    if type.equatable and type.ordered:
        yield Function.COUNT_DISTINCT
        if type.family in SUMMABLE:
            yield from (Function.SUM, Function.AVG)
        if type.family in COMPARABLE:
            yield from (Function.MIN, Function.MAX)
