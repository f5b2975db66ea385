"""What is computed over rows: buckets that dates are grouped by, and measures of groups."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dbtools import errors
from dbtools.errors import listing, nearest
from dbtools.paths import folded
from dbtools.terms import Finds, Literal, Operand
from dbtools.types import NUMERIC, TEMPORAL, ColumnType, Family, quoted


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
COUNTED = ColumnType(family=Family.INTEGER, name="integer")


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A function over the rows of a group; nulls count for nothing."""

    function: Function
    place: Operand | None = None  #: None: the rows themselves

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


Group = Operand


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


def find_group(names: Finds, text: str, argument: str) -> tuple[str, Group]:
    """Return what *text* such as "ordered_on:month" groups by, and its name in results."""
    term = names.find(text, argument)
    if isinstance(term, Literal) or not (term.type.equatable and term.type.ordered):
        raise errors.BadArgument(f"{argument}: {term.name} ({term.type.name}) cannot be grouped by.")
    return text.strip(), term


def find_measure(names: Finds, function: Function, column: str, argument: str) -> Measure:
    """Return the measure of *function* over *column*, or raise a CallError that names the *argument*."""
    if not column or (column == "*" and function is Function.COUNT):
        if function is not Function.COUNT:
            raise errors.BadArgument(f"{argument}.column is missing: {function} needs one.")
        return Measure(function=function)
    place = names.find(column, f"{argument}.column")
    if place.type.mask is not None:
        raise errors.BadOperator(f"{argument}: {place.name} is masked: it can be shown, and nothing else.")
    offered = list(functions_of(place.type))
    if function not in offered:
        raise errors.BadArgument(
            f"{argument}: there is no {function} of {place.name} ({place.type.name}).",
            hint=f"It takes: {listing(offered)}.",
        )
    return Measure(function=function, place=place)


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What `having` and `order_by` may name: groups and measures by their names in results."""

    names: Finds
    groups: Mapping[str, Group]
    measures: Mapping[str, Measure]

    def find(self, text: str, argument: str) -> Group | Measure:
        """Return the group or the measure that *text* names, or raise UnknownColumn."""
        known: Mapping[str, Group | Measure] = {**self.groups, **self.measures}
        found = folded(text.strip(), known) or self._group(text, argument)
        if found is None:
            raise errors.UnknownColumn(
                f"{argument}: there is no group or measure {quoted(text)} here.",
                hint=f"{nearest(text, known)}There are: {listing(known)}.",
            )
        return found

    def _group(self, text: str, argument: str) -> Group | None:
        """Return the group that *text* means in another spelling."""
        try:
            _, group = find_group(self.names, text, argument)
        except errors.CallError:
            return None
        return group if group in self.groups.values() else None


@dataclass(frozen=True, kw_only=True)
class Having:
    """What `having` may name: measures alone."""

    measures: Mapping[str, Measure]

    def find(self, text: str, argument: str) -> Measure:
        """Return the measure that *text* names, or raise UnknownColumn."""
        found = folded(text.strip(), self.measures)
        if found is None:
            raise errors.UnknownColumn(
                f"{argument}: there is no measure {quoted(text)} here.",
                hint=f"{nearest(text, self.measures)}Measures: {listing(self.measures)}. "
                "Conditions on columns belong in where.",
            )
        return found
