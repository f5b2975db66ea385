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

    known: Mapping[str, Operand | Measure]
    kind: str = "group or measure"
    hint: str = ""
    names: Expressions | None = None  #: by which groups are found in other spellings

    def find(self, text: str, argument: str) -> Operand | Measure:
        """Return what *text* names, or raise UnknownColumn."""
        found = folded(text.strip(), self.known) or self._respelled(text, argument)
        if found is None:
            raise errors.UnknownColumn(
                f"{argument}: no {self.kind} is named {quoted(text)}.",
                hint=f"{nearest(text, self.known)}Names: {listing(self.known)}. {self.hint}".rstrip(),
            )
        return found

    def _respelled(self, text: str, argument: str) -> Operand | None:
        """Return the group that *text* means in another spelling."""
        try:
            group = self.names.find(text, argument) if self.names else None
        except errors.CallError:
            return None
        return group if group in self.known.values() else None
