"""What is computed over rows: buckets that dates are grouped by, and measures of groups."""

from collections.abc import Mapping
from dataclasses import dataclass

from dbtools import errors
from dbtools.errors import listing, nearest
from dbtools.expressions import Expressions
from dbtools.paths import folded
from dbtools.terms import Finds, Function, Literal, Measure, Operand, functions_of
from dbtools.types import quoted


def find_group(names: Expressions, text: str, argument: str) -> tuple[str, Operand]:
    """Return what *text* such as "ordered_on:month" groups by, and its name in results."""
    name, term = names.named(text, argument)
    if isinstance(term, Literal) or not (term.type.equatable and term.type.ordered):
        raise errors.BadArgument(f"{argument}: {term.name} ({term.type.name}) cannot be grouped by.")
    return name, term


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

    names: Expressions
    groups: Mapping[str, Operand]
    measures: Mapping[str, Measure]

    def find(self, text: str, argument: str) -> Operand | Measure:
        """Return the group or the measure that *text* names, or raise UnknownColumn."""
        known: Mapping[str, Operand | Measure] = {**self.groups, **self.measures}
        found = folded(text.strip(), known) or self._group(text, argument)
        if found is None:
            raise errors.UnknownColumn(
                f"{argument}: there is no group or measure {quoted(text)} here.",
                hint=f"{nearest(text, known)}There are: {listing(known)}.",
            )
        return found

    def _group(self, text: str, argument: str) -> Operand | None:
        """Return the group that *text* means in another spelling."""
        try:
            group = self.names.find(text, argument)
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
