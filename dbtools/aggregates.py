"""What is computed over rows: buckets that dates are grouped by, and measures of groups."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from dbtools import errors
from dbtools.errors import listing, nearest
from dbtools.paths import Names, Place, folded, parts_of
from dbtools.types import MOMENTS, NUMERIC, TEMPORAL, ColumnType, Family, quoted


class Bucket(StrEnum):
    """The part of a date that rows are grouped by."""

    YEAR = "year"
    QUARTER = "quarter"
    MONTH = "month"
    WEEK = "week"
    DAY = "day"
    WEEKDAY = "weekday"
    HOUR = "hour"


class Function(StrEnum):
    """How the values of a group become one."""

    COUNT = "count"
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


SUMMABLE = {*NUMERIC, Family.INTERVAL, Family.ANY}
COMPARABLE = SUMMABLE | {Family.BOOLEAN, Family.TEXT, Family.ENUM, Family.UUID, *TEMPORAL}
TEXT = ColumnType(family=Family.TEXT, name="text")
COUNTED = ColumnType(family=Family.INTEGER, name="integer")


@dataclass(frozen=True, kw_only=True)
class Bucketed:
    """A column of dates by one part of them, as text: 2024, 2024-Q1, 2024-03, 2024-W09, 2024-03-05, 1, 07.

    Weeks are those of ISO 8601, and weekdays count from Monday, 1. What is no date is null.
    """

    place: Place
    bucket: Bucket
    type: ColumnType = field(default=TEXT, init=False)
    nullable: bool = field(default=True, init=False)

    @property
    def name(self) -> str:
        """The group as callers write it."""
        return f"{self.place.name}:{self.bucket}"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A function over the rows of a group; nulls count for nothing."""

    function: Function
    place: Place | None = None  #: None: the rows themselves

    @property
    def name(self) -> str:
        """The name that a measure has where none is given."""
        return str(self.function) if self.place is None else f"{self.function}_{self.place.name}"

    @property
    def nullable(self) -> bool:
        """Whether it is null where there is no value."""
        return self.function not in (Function.COUNT, Function.COUNT_DISTINCT)

    @property
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
        return ColumnType(family=family, name=str(family), infinite=of.infinite, lenient=of.lenient)


Group = Place | Bucketed


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


def buckets_of(type: ColumnType) -> tuple[Bucket, ...]:
    """Return the buckets that a column of *type* has."""
    if type.family in MOMENTS or type.dated:
        return tuple(Bucket)
    return tuple(Bucket)[:-1] if type.family is Family.DATE else ()


def find_group(names: Names, text: str, argument: str) -> tuple[str, Group]:
    """Return what *text* such as "ordered_on:month" groups by, and its name in results."""
    parts = None if text in names.table.column_by_name else parts_of(text)
    if parts is None or parts[1] is None:
        place = names.find(text, argument)
        if not (place.type.equatable and place.type.ordered):
            raise errors.BadArgument(f"{argument}: {place.name} ({place.type.name}) cannot be grouped by.")
        return text.strip(), place
    column, _, wanted = text.rstrip().rpartition(":")
    place = names.find(column, argument)
    offered = buckets_of(place.type)
    if wanted.lower() not in offered:
        why = f"Buckets: {listing(offered)}." if offered else "Buckets are for dates and timestamps."
        raise errors.BadArgument(
            f"{argument}: {place.name} ({place.type.name}) has no bucket {quoted(wanted)}.",
            hint=f"{nearest(wanted, offered)}{why}",
        )
    return text.strip(), Bucketed(place=place, bucket=Bucket(wanted.lower()))


def find_measure(names: Names, function: Function, column: str, argument: str) -> Measure:
    """Return the measure of *function* over *column*, or raise a CallError that names the *argument*."""
    if not column or (column == "*" and function is Function.COUNT):
        if function is not Function.COUNT:
            raise errors.BadArgument(f"{argument}.column is missing: {function} needs one.")
        return Measure(function=function)
    place = names.find(column, f"{argument}.column")
    if place.type.mask is not None:
        raise errors.BadOperator(f"{argument}: {place.name} is masked and can only be shown.")
    offered = list(functions_of(place.type))
    if function not in offered:
        raise errors.BadArgument(
            f"{argument}: {place.name} ({place.type.name}) does not support {function}.",
            hint=f"Functions: {listing(offered)}.",
        )
    return Measure(function=function, place=place)


@dataclass(frozen=True, kw_only=True)
class Results:
    """What may be named of an answer: groups and measures by their names in it, or measures alone."""

    known: Mapping[str, Group | Measure]
    kind: str = "group or measure"
    hint: str = ""

    def find(self, text: str, argument: str) -> Group | Measure:
        """Return what *text* names, or raise UnknownColumn."""
        found = folded(text.strip(), self.known)
        if found is None:
            raise errors.UnknownColumn(
                f"{argument}: no {self.kind} is named {quoted(text)}.",
                hint=f"{nearest(text, self.known)}Names: {listing(self.known)}. {self.hint}".rstrip(),
            )
        return found
