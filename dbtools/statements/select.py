"""Statements as values: the shape of a SELECT, and the values bound to it.

A shape contains no value from a caller, so equal shapes share one compiled statement. Backends compile shapes
to SQL, in which the one function `source` reads every table.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

from dbtools.expressions.terms import (
    SEARCH,
    Literal,
    Measure,
    Operand,
    Rank,
    Related,
    Term,
    may_raise,
    parts_within,
)
from dbtools.schema.catalog import Column, Location, Table
from dbtools.schema.paths import PathColumn, Relation
from dbtools.schema.sql import Parameter
from dbtools.values.cells import READ_OF_MASKED
from dbtools.values.types import ColumnType, Operator


class Match(StrEnum):
    """Whether all conditions must hold or any of them."""

    ALL = "all"
    ANY = "any"


class Direction(StrEnum):
    """Whether the lowest or the highest value comes first."""

    ASC = "asc"
    DESC = "desc"


class Output(NamedTuple):
    """One column of the answer."""

    term: Term
    cut: int | None = None  #: characters (or bytes, of bytes) that are read of a large cell

    @property
    def longest(self) -> int | None:
        """How much of a large cell is read; of a masked cell, as much as its mask needs."""
        mask = self.term.type.mask
        return self.cut if mask is None else READ_OF_MASKED[mask]


class Condition(NamedTuple):
    """A comparison of one term with another one, or with as many bound values as its operator takes."""

    term: Term
    operator: Operator
    other: Operand | None = None
    wanted: bool = True  #: of IS_NULL: whether the term must be null
    parameters: tuple[str, ...] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """What is compared."""
        return (self.term,) if self.other is None else (self.term, self.other)

    @property
    def type(self) -> ColumnType:
        """The type of its values."""
        return SEARCH if self.operator is Operator.MATCHES else self.term.type


@dataclass(frozen=True, kw_only=True)
class AnyOf:
    """Conditions of which at least one must hold."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, kw_only=True)
class Existence:
    """Whether rows that meet conditions refer to a row."""

    relation: Relation  #: back to these rows
    wanted: bool
    conditions: tuple[Condition | AnyOf, ...] = ()
    match: Match = Match.ALL


Clause = Condition | AnyOf | Existence


def conditions_within(clauses: Iterable[Clause]) -> Iterator[Condition]:
    """Yield the comparisons in *clauses*, in the order in which they are written."""
    for clause in clauses:
        if isinstance(clause, Condition):
            yield clause
        else:
            yield from conditions_within(clause.conditions)


class Order(NamedTuple):
    """One term of an order; nulls come last in both directions."""

    term: Term
    direction: Direction = Direction.ASC


@dataclass(frozen=True, kw_only=True)
class Select:
    """The shape of a statement that reads one table, and the tables that its paths join.

    With groups or measures, each row of the result is a group; *having* filters the groups.
    """

    table: Table
    outputs: tuple[Output, ...]
    conditions: tuple[Clause, ...] = ()
    match: Match = Match.ALL
    groups: tuple[Operand, ...] = ()
    having: tuple[Condition, ...] = ()
    order: tuple[Order, ...] = ()
    #: The parameters with the previous page's last values of the order's terms; None stands for null.
    after: tuple[str | None, ...] = ()
    skip: bool = False  #: whether the parameter `skip` says how many rows to skip
    counting: bool = False  #: whether the result is the number of groups

    def __hash__(self) -> int:
        """Hash only once, since a lookup uses the same shape many times."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        compared = self.conditions, self.match, self.having
        return hash((self.table, self.outputs, *compared, self.groups, self.order, self.after, self.skip))

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that the statement reads, beginning with its own."""
        steps = [step for part in self.parts if isinstance(part, PathColumn) for step in part.path]
        steps += [part.relation for part in self.parts if isinstance(part, Related)]
        steps += [each.relation for each in self.conditions if isinstance(each, Existence)]
        return tuple(dict.fromkeys((self.table, *(step.target for step in steps))))

    @cached_property
    def parts(self) -> tuple[Operand, ...]:
        """Every term that the statement reads, and the terms from which each is computed."""
        named: tuple[Output | Condition | Order, ...] = (*self.outputs, *self.comparisons, *self.order)
        others = (each.other for each in self.comparisons)
        terms = (*(each.term for each in named), *self.groups, *others)
        operands = (term.place if isinstance(term, Measure | Rank) else term for term in terms)
        return tuple(part for operand in operands if operand is not None for part in parts_within(operand))

    @property
    def raises(self) -> bool:
        """Whether computing a row may raise an error, in which case no hidden row may be computed."""
        others = ((each.term, each.other) for each in self.comparisons if each.other is not None)
        # To compare numbers of two families, the database converts one of them.
        converts = any(term.type.family is not other.type.family for term, other in others)
        return converts or any(map(may_raise, self.parts))

    @property
    def searches(self) -> bool:
        """Whether the statement uses a full-text index."""
        return any(each.operator is Operator.MATCHES for each in self.comparisons)

    @property
    def literals(self) -> Mapping[str, ColumnType]:
        """The types of the values in expressions, by their parameters."""
        return {part.parameter: part.type for part in self.parts if isinstance(part, Literal)}

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of the tables that the statement reads, and of their filters, if they are known."""
        return tuple(version for table in self.tables for version in versions_of(table))

    @property
    def claims(self) -> tuple[Parameter, ...]:
        """The claims of the caller that the filters of tables use."""
        filters = (table.filter for table in self.tables if table.filter is not None)
        return tuple(each for filter in filters for each in filter.condition.parameters)

    @property
    def asked(self) -> tuple[str, ...]:
        """The terms for which callers give values, with their types."""
        terms = (each.term for each in self.comparisons if each.parameters)
        return tuple(dict.fromkeys(f"{term.name} ({term.type.name})" for term in terms))

    @property
    def computes(self) -> bool:
        """Whether an output is a measure."""
        return any(isinstance(output.term, Measure) for output in self.outputs)

    @property
    def distinct(self) -> bool:
        """Whether the statement reads groups alone, in any order, so that it can stop at enough of them."""
        return bool(self.groups) and not (self.order or self.having or self.computes or self.counting)

    @property
    def is_lookup(self) -> bool:
        """Whether the statement only reads one row by its key, so that it cannot take long."""
        key = self.table.key_columns
        plain = [each for each in self.conditions if isinstance(each, Condition)]
        compared = [each.term for each in plain if each.operator is Operator.EQ and each.other is None]
        only = len(compared) == len(self.conditions) == len(key) and set(compared) == set(key)
        plain_cells = all(isinstance(each.term, Column | PathColumn) for each in self.outputs)
        return only and bool(key) and self.match is Match.ALL and not self.groups and plain_cells

    @cached_property
    def comparisons(self) -> tuple[Condition, ...]:
        """All comparisons; those in *having* come last."""
        return (*conditions_within(self.conditions), *self.having)


@dataclass(frozen=True, kw_only=True)
class QueryShape:
    """The shape of a statement that an operator wrote: one variant of a permitted query."""

    name: str
    pieces: tuple[str | Parameter, ...]
    outputs: tuple[Output, ...]
    types: Mapping[str, ColumnType]  #: of the parameters, by the names in the pieces
    casts: Mapping[str, str]  #: their SQL names, if the database needs casts
    versions: tuple[str, ...] = field(default=(), compare=False)  #: of the tables that it reads, if known
    writes: int | None = None  #: the most rows that it may change; None: it only reads
    target: Location = ("", "")  #: the table whose rows count as changed
    others: frozenset[Location] = frozenset()  #: tables that may change as well
    stable: frozenset[str] = frozenset()  #: outputs that are the same whenever it makes the same change

    def __hash__(self) -> int:
        """Hash only the SQL, so that the lookup of a compiled shape is fast."""
        return hash((self.name, self.pieces))

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
    """A shape, the values of its parameters, and the maximum number of rows."""

    shape: Shape
    values: Mapping[str, object] = field(default_factory=dict)
    limit: int
    timeout: float = math.inf  #: seconds, if less than the role's limit


@dataclass(slots=True, kw_only=True)
class SqlStatement:
    """SQL that a caller wrote, and the limits of its result."""

    sql: str
    limit: int  #: the maximum number of rows
    longest: int  #: characters of a cell
    most_bytes: int  #: of all cells


def versions_of(table: Table) -> tuple[str, ...]:
    """Return the versions of *table*, and of the names in its row filter and checks, if they are known."""
    checks = table.writes.checks if table.writes is not None else ()
    filters = [each.version for each in (table.filter, *checks) if each is not None]
    return tuple(version for version in (table.version, *filters) if version)
