"""What to ask the database, as values: the shape of a SELECT, and the values bound to it.

A shape holds no value that a caller gave, so equal shapes share one compiled statement. The dialects turn
shapes into SQL; every table that a shape names passes through their one `source` function.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Protocol

from dbtools import errors
from dbtools.aggregates import Bucketed, Group, Measure
from dbtools.catalog import Column, Table
from dbtools.errors import listing, nearest
from dbtools.paths import Distant
from dbtools.policy import READ_OF_MASKED
from dbtools.sql import Parameter
from dbtools.types import EQUALITY, ORDER, TEXTUAL, ColumnType, Family, Operator, quoted

MOST_CONDITIONS = 50
MOST_SEARCHES = 10  #: conditions that search inside texts, which may be long
MOST_VALUES = 1_000
ORDER_FORM = 'Write "column" or "column desc".'
LONGEST_PATTERN = 200  #: characters of a value that is searched for inside texts


Term = Column | Distant | Bucketed | Measure  #: what a statement reads, compares and orders by


class Finds(Protocol):
    """What knows the terms that callers may name, such as `paths.Names`."""

    def find(self, text: str, argument: str) -> Term:
        """Return the term that *text* names, or raise a CallError that names the *argument*."""


class Match(StrEnum):
    """Whether all conditions must hold or any of them."""

    ALL = "all"
    ANY = "any"


class Direction(StrEnum):
    """Which end of an order comes first."""

    ASC = "asc"
    DESC = "desc"


@dataclass(frozen=True, kw_only=True)
class Output:
    """One column of the answer."""

    term: Term
    cut: int | None = None  #: characters (or bytes, of bytes) that are read of a large cell

    @property
    def longest(self) -> int | None:
        """How much is read of a large cell: of a masked one, what its mask needs."""
        mask = self.term.type.mask
        return self.cut if mask is None else READ_OF_MASKED[mask]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A comparison of one term with as many bound values as its operator takes."""

    term: Term
    operator: Operator
    wanted: bool = True  #: of IS_NULL: whether null is wanted
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Order:
    """One step of an order; nulls come last in both directions."""

    term: Term
    direction: Direction = Direction.ASC


@dataclass(frozen=True, kw_only=True)
class Select:
    """The shape of a statement that reads one table, and what its paths join to it.

    With groups or measures there is one row a group, of which *having* leaves out some.
    """

    table: Table
    outputs: tuple[Output, ...]
    conditions: tuple[Condition, ...] = ()
    match: Match = Match.ALL
    groups: tuple[Group, ...] = ()
    having: tuple[Condition, ...] = ()
    order: tuple[Order, ...] = ()
    #: the parameters that hold the last row of the page before, one for each step of the order: None for null
    after: tuple[str | None, ...] = ()
    skip: bool = False  #: whether the parameter `skip` leaves out the first rows

    def __hash__(self) -> int:
        """Hash by a part of what makes it, so that it is found again quickly."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        compared = [(each.term.name, each.operator, each.parameters) for each in self.comparisons]
        ordered = [(each.term.name, each.direction) for each in self.order]
        named = [each.term.name for each in self.outputs] + [each.name for each in self.groups]
        return hash((self.table.name, self.match, self.skip, len(self.after), *named, *compared, *ordered))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are read, its own first."""
        named: tuple[Output | Condition | Order, ...] = (*self.outputs, *self.comparisons, *self.order)
        terms = [*(each.term for each in named), *self.groups]
        places = [term.place if isinstance(term, Bucketed | Measure) else term for term in terms]
        paths = [place.path for place in places if isinstance(place, Distant)]
        return tuple(dict.fromkeys((self.table, *(step.target for path in paths for step in path))))

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the tables that are read, where they are known."""
        known = self.table.version != ""
        return tuple(table.version for table in self.tables) if known else ()

    @property
    def claimed(self) -> bool:
        """Whether the filter of a table asks for a claim of the caller."""
        return any(table.filter and table.filter.condition.parameters for table in self.tables)

    @property
    def asked(self) -> tuple[str, ...]:
        """What callers give values for, with its type."""
        terms = (each.term for each in self.comparisons if each.parameters)
        return tuple(dict.fromkeys(f"{term.name} ({term.type.name})" for term in terms))

    @property
    def computes(self) -> bool:
        """Whether there are measures among the outputs."""
        return any(isinstance(output.term, Measure) for output in self.outputs)

    @property
    def is_lookup(self) -> bool:
        """Whether it reads one row by its key and asks for nothing else, which any cell might make long."""
        key = self.table.key_columns()
        compared = [each.term for each in self.conditions if each.operator is Operator.EQ]
        only = len(compared) == len(self.conditions) == len(key) and set(compared) == set(key)
        return only and bool(key) and self.match is Match.ALL and not self.groups and not self.computes

    @property
    def comparisons(self) -> tuple[Condition, ...]:
        """All conditions, those on groups last."""
        return self.conditions + self.having


@dataclass(frozen=True, kw_only=True)
class QueryShape:
    """The shape of a statement that an operator wrote: one variant of a permitted query."""

    name: str
    pieces: tuple[str | Parameter, ...]
    outputs: tuple[Output, ...]
    types: Mapping[str, ColumnType]  #: of the parameters, by the names in the pieces
    casts: Mapping[str, str]  #: their SQL names, where the database needs them
    versions: tuple[str, ...] = field(default=(), compare=False)  #: of the tables that it reads, where known
    comparisons: tuple[Condition, ...] = field(default=(), init=False)
    tables: tuple[Table, ...] = field(default=(), init=False)  #: none that rules are about

    def __hash__(self) -> int:
        """Hash by what was written: it is looked up at every call."""
        return hash((self.name, self.pieces))

    @property
    def claimed(self) -> bool:
        """Whether a claim of the caller is among the values."""
        return bool(self.claims)

    @property
    def claims(self) -> tuple[str, ...]:
        """The claims of the caller that are among the values, by name."""
        claims = (piece.claim for piece in self.pieces if isinstance(piece, Parameter))
        return tuple(claim for claim in claims if claim is not None)


Shape = Select | QueryShape


def argument(name: str) -> str:
    """Return the name under which a query's parameter *name* is bound, unlike any name of dbtools."""
    return f"argument_{name}"


@dataclass(slots=True, kw_only=True)
class Statement:
    """A shape, the values of its parameters, and the most rows that it may return."""

    shape: Shape
    values: Mapping[str, object] = field(default_factory=dict)
    limit: int
    timeout: float = math.inf  #: seconds, where the role's are too many


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One condition as the caller wrote it; the values are texts."""

    column: str
    operator: Operator = Operator.EQ
    value: str | None = None
    values: tuple[str, ...] | None = None
    argument: str = "where"  #: where it stands among the arguments, for complaints

    @property
    def texts(self) -> tuple[str, ...]:
        """The values, or the one value."""
        return self.values if self.values is not None else (str(self.value),)


def bind_conditions(
    names: Finds, comparisons: Sequence[Comparison], prefix: str = "c"
) -> tuple[tuple[Condition, ...], dict[str, object]]:
    """Return the conditions that *comparisons* mean, and the values of their parameters.

    The names of the parameters begin with *prefix*.
    """
    if len(comparisons) > MOST_CONDITIONS:
        raise errors.BadArgument(f"where: at most {MOST_CONDITIONS} conditions, not {len(comparisons)}.")
    searches = sum(comparison.operator in TEXTUAL for comparison in comparisons)
    if searches > MOST_SEARCHES:
        raise errors.BadArgument(
            f"where: at most {MOST_SEARCHES} conditions with {' or '.join(TEXTUAL)}, not {searches}."
        )
    bound = [_bind(names, each, f"{prefix}{index}") for index, each in enumerate(comparisons)]
    values = {
        name: value
        for condition, each in bound
        for name, value in zip(condition.parameters, each, strict=True)
    }
    return tuple(condition for condition, _ in bound), values


def _bind(names: Finds, comparison: Comparison, prefix: str) -> tuple[Condition, Sequence[object]]:
    """Return the condition that *comparison* means, and the values of its parameters."""
    argument, operator = comparison.argument, comparison.operator
    term = names.find(comparison.column, f"{argument}.column")
    if term.type.mask is not None:
        raise errors.BadOperator(f"{argument}: {term.name} is masked and can only be shown.")
    if operator not in term.type.operators:
        raise errors.BadOperator(
            f"{argument}.op: {term.name} ({term.type.name}) does not support {operator}.",
            hint=f"Operators: {listing(term.type.operators)}.",
        )
    texts = _texts(comparison)
    if operator is Operator.IS_NULL:
        wanted = texts[0].lower()
        if wanted not in ("true", "false"):
            raise errors.BadValue(f"{argument}.value: is_null takes true or false, not {quoted(texts[0])}.")
        return Condition(term=term, operator=operator, wanted=wanted == "true"), ()
    places = [f"{argument}.values[{at}]" for at in range(len(texts))]
    if comparison.value is not None:
        places = [f"{argument}.value"]
    bound = [decode(term, operator, text, where) for text, where in zip(texts, places, strict=True)]
    if term.type.family is Family.ANY and operator in EQUALITY:
        negative = operator in (Operator.NE, Operator.NOT_IN)
        operator, bound = Operator.NOT_IN if negative else Operator.IN, either(bound, texts)
    elif term.type.family is Family.ANY and operator in ORDER:
        # Numbers are compared with the number, texts with the text.
        bound = [*(None if isinstance(value, str) else value for value in bound), *texts]
    if operator in (Operator.IN, Operator.NOT_IN):
        bound = [bound]
    parameters = tuple(f"{prefix}_{at}" for at in range(len(bound)))
    return Condition(term=term, operator=operator, parameters=parameters), bound


def _texts(comparison: Comparison) -> tuple[str, ...]:
    """Return the values that the operator takes, or say which are missing or too many."""
    argument, operator = comparison.argument, comparison.operator
    value, values = comparison.value, comparison.values
    many = operator in (Operator.IN, Operator.NOT_IN, Operator.BETWEEN)
    if many and (values is None or value is not None):
        given = "value is given" if value is not None else "there are none"
        raise errors.BadArgument(f"{argument}: {operator} takes an array in values; {given}.")
    if not many and (value is None or values is not None):
        given = "values are given" if values is not None else "there is none"
        takes = "true or false in value" if operator is Operator.IS_NULL else "one value"
        null = operator is not Operator.IS_NULL and values is None
        hint = 'For null use op is_null with value "true".' if null else ""
        raise errors.BadArgument(f"{argument}: {operator} takes {takes}; {given}.", hint=hint)
    texts = comparison.texts
    if operator is Operator.BETWEEN and len(texts) != 2:
        raise errors.BadArgument(f"{argument}.values: between takes two values, not {len(texts)}.")
    if len(texts) > MOST_VALUES:
        raise errors.BadArgument(f"{argument}.values: at most {MOST_VALUES:,} values, not {len(texts):,}.")
    return texts


def decode(term: Term, operator: Operator, text: str, argument: str) -> object:
    """Return the value that *text* is to *operator*, or raise BadValue for *argument*."""
    if operator in TEXTUAL:
        if len(text) > LONGEST_PATTERN:
            raise errors.BadValue(f"{argument}: at most {LONGEST_PATTERN:,} characters, not {len(text):,}.")
        if term.type.family is not Family.ARRAY:
            return text
    column = term.column if isinstance(term, Distant) else term
    choices = column.choices if isinstance(column, Column) else ()
    if choices and operator in EQUALITY and text not in choices:
        raise errors.BadValue(
            f"{argument}: {term.name} is never {quoted(text)}.",
            hint=f"{nearest(text, choices)}It is one of {listing(choices)}.",
        )
    named = "" if argument == term.name else f"{term.name}: "
    return term.type.decode(text, f"{argument}: {named}")


def either(decoded: Sequence[object], texts: Sequence[str]) -> list[object]:
    """Return the values *decoded* and the *texts* that look like them: a column of no type may have both."""
    return [*decoded, *(text for text, value in zip(texts, decoded, strict=True) if text != value)]


def bind_order(names: Finds, steps: Sequence[str]) -> tuple[Order, ...]:
    """Return the order that *steps* such as "total desc" ask for."""
    order: dict[Term, Order] = {}
    for index, step in enumerate(steps):
        argument = f"order_by[{index}]"
        term, direction = _directed(names, step, argument)
        if term.type.mask is not None:
            raise errors.BadArgument(f"{argument}: {term.name} is masked and can only be shown.")
        if not set(ORDER) & set(term.type.operators) and term.type.family is not Family.BOOLEAN:
            raise errors.BadArgument(f"{argument}: {term.name} ({term.type.name}) has no order.")
        order.setdefault(term, Order(term=term, direction=direction))
    return tuple(order.values())


def _directed(names: Finds, step: str, argument: str) -> tuple[Term, Direction]:
    """Return the term and the direction of *step*; a name may itself end in " desc"."""
    name, _, last = step.rstrip().rpartition(" ")
    directed = name.strip() and last.lower() in tuple(Direction)
    try:
        return names.find(step, argument), Direction.ASC
    except errors.UnknownColumn as exc:
        if not directed:
            raise errors.UnknownColumn(exc.message, hint=f"{ORDER_FORM} {exc.hint}") from exc
    return names.find(name, argument), Direction(last.lower())
