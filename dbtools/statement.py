"""What to ask the database, as values: the shape of a SELECT, and the values bound to it.

A shape holds no value that a caller gave, so equal shapes share one compiled statement. The dialects turn
shapes into SQL; every table that a shape names passes through their one `source` function.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

from dbtools.catalog import Column, Preset, RowFilter, Table, Writes
from dbtools.masks import READ_OF_MASKED
from dbtools.paths import Distant, Relation
from dbtools.sql import Parameter
from dbtools.terms import (
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
from dbtools.types import ColumnType, Operator


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
    """A comparison of one term with another one, or with as many bound values as its operator takes."""

    term: Term
    operator: Operator
    other: Operand | None = None
    wanted: bool = True  #: of IS_NULL: whether null is wanted
    parameters: tuple[str, ...] = ()

    @property
    def type(self) -> ColumnType:
        """The type of its values."""
        return SEARCH if self.operator is Operator.MATCHES else self.term.type


@dataclass(frozen=True, kw_only=True)
class AnyOf:
    """Conditions of which one must hold."""

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
    conditions: tuple[Clause, ...] = ()
    match: Match = Match.ALL
    groups: tuple[Operand, ...] = ()
    having: tuple[Condition, ...] = ()
    order: tuple[Order, ...] = ()
    #: the parameters that hold the last row of the page before, one for each step of the order: None for null
    after: tuple[str | None, ...] = ()
    skip: bool = False  #: whether the parameter `skip` leaves out the first rows
    counting: bool = False  #: whether the answer is the number of the groups

    def __hash__(self) -> int:
        """Hash by a part of what makes it, so that it is found again quickly."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        compared = [(each.term.name, each.operator, each.parameters) for each in self.comparisons]
        ordered = [(each.term.name, each.direction) for each in self.order]
        named = [each.term.name for each in self.outputs] + [each.name for each in self.groups]
        return hash(
            (
                self.table.name,
                self.match,
                self.skip,
                self.counting,
                len(self.after),
                *named,
                *compared,
                *ordered,
            )
        )

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are read, its own first."""
        steps = [step for part in self.parts if isinstance(part, Distant) for step in part.path]
        steps += [part.relation for part in self.parts if isinstance(part, Related)]
        steps += [each.relation for each in self.conditions if isinstance(each, Existence)]
        return tuple(dict.fromkeys((self.table, *(step.target for step in steps))))

    @cached_property
    def parts(self) -> tuple[Operand, ...]:
        """Every term that is read, and what each is computed from."""
        named: tuple[Output | Condition | Order, ...] = (*self.outputs, *self.comparisons, *self.order)
        others = (each.other for each in self.comparisons)
        terms = (*(each.term for each in named), *self.groups, *others)
        operands = (term.place if isinstance(term, Measure | Rank) else term for term in terms)
        return tuple(part for operand in operands if operand is not None for part in parts_within(operand))

    @property
    def raises(self) -> bool:
        """Whether a row may raise an error, so that no hidden one may be computed with."""
        others = ((each.term, each.other) for each in self.comparisons if each.other is not None)
        # Numbers of two kinds are made one kind to be compared.
        converts = any(term.type.family is not other.type.family for term, other in others)
        return converts or any(map(may_raise, self.parts))

    @property
    def searches(self) -> bool:
        """Whether a full-text index is asked."""
        return any(each.operator is Operator.MATCHES for each in self.comparisons)

    @property
    def literals(self) -> Mapping[str, ColumnType]:
        """The types of the values in expressions, by their parameters."""
        return {part.parameter: part.type for part in self.parts if isinstance(part, Literal)}

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
        plain = [each for each in self.conditions if isinstance(each, Condition)]
        compared = [each.term for each in plain if each.operator is Operator.EQ and each.other is None]
        only = len(compared) == len(self.conditions) == len(key) and set(compared) == set(key)
        plain_cells = all(isinstance(each.term, Column | Distant) for each in self.outputs)
        return only and bool(key) and self.match is Match.ALL and not self.groups and plain_cells

    @cached_property
    def comparisons(self) -> tuple[Condition, ...]:
        """All comparisons, those of groups last."""
        return (*conditions_within(self.conditions), *self.having)


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


class WriteKind(StrEnum):
    """What is done to a row."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, kw_only=True)
class Write:
    """The shape of a change of one row, together with what reads the row before and after it."""

    kind: WriteKind
    table: Table
    columns: tuple[Column, ...] = ()  #: that the caller sets, each as the parameter `assigned(name)`
    conditions: tuple[Condition, ...] = ()  #: which row: its key, then what the caller expects of it
    key: int = 0  #: how many of the conditions are the key
    outputs: tuple[Output, ...]

    def __hash__(self) -> int:
        """Hash by what usually differs: it is looked up at every call."""
        return hash((self.kind, self.table, self.columns, self.conditions))

    @property
    def writes(self) -> Writes:
        """What the role may change in the table."""
        assert self.table.writes is not None
        return self.table.writes

    @property
    def presets(self) -> tuple[Preset, ...]:
        """The values that the change sets, whatever the caller says."""
        writes = self.writes
        by_kind = {WriteKind.INSERT: writes.insert_presets, WriteKind.UPDATE: writes.update_presets}
        return by_kind.get(self.kind, ())

    @property
    def check(self) -> RowFilter | None:
        """What the row must satisfy after the change, besides the row filter."""
        return None if self.kind is WriteKind.DELETE else self.writes.check

    @property
    def comparisons(self) -> tuple[Condition, ...]:
        """All comparisons."""
        return self.conditions

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that rules are about."""
        return (self.table,)

    @property
    def versions(self) -> tuple[str, ...]:
        """The version of the table, if it is known."""
        return (self.table.version,) if self.table.version else ()


def assigned(name: str) -> str:
    """Return the parameter for the new value of the column *name*."""
    return f"set_{name}"


@dataclass(slots=True, kw_only=True)
class Transaction:
    """Writes that happen together or not at all."""

    writes: Sequence[tuple[Write, Mapping[str, object]]]  #: each with its values
    dry_run: bool = False  #: whether to roll back at the end
    missing: str = ""  #: the message if there is no row with the key


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
