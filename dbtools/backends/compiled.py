"""A compiled statement. The values of a call in, the driver's parameters out."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from dbtools.expressions.terms import Measure
from dbtools.statements.select import Condition, Output, QueryShape, Shape
from dbtools.statements.write import Write, WriteShape
from dbtools.values.types import TEXTUAL, ColumnType, Family, Operator

ESCAPE = "\\"
JSON_SPACE = " \t\n\r"  #: what may stand between the parts of JSON
UNSPACED = str.maketrans("", "", JSON_SPACE)
CELLS_HELD = 32 * 2**20  #: characters and bytes of one result


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compiled shape: SQL, and how to bind its values."""

    shape: Shape | Write
    sql: str
    parameters: tuple[str, ...] = ()  #: names in the order of their placeholders
    types: Mapping[str, ColumnType] = field(default_factory=dict)  #: of parameters compared with columns
    lists: frozenset[str] = frozenset()  #: the parameters that are lists
    constants: Mapping[str, object] = field(default_factory=dict)  #: values that are the same in every call
    claims: Mapping[str, str] = field(default_factory=dict)  #: the parameters that are claims of the caller
    brief: bool = False  #: whether it always ends so soon that the event loop can wait for it
    #: Convert a value, and a list of values, to what the driver takes.
    one: Callable[[object, ColumnType], object] = field(repr=False)
    many: Callable[[Sequence[object], ColumnType], object] = field(repr=False)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The columns of the result."""
        return self.shape.outputs

    @property
    def length(self) -> int:
        """The characters of its SQL."""
        return len(self.sql)

    @property
    def most(self) -> int | None:
        """The most rows that it may change, if it is a query that changes rows."""
        return self.shape.writes if isinstance(self.shape, QueryShape) else None

    @cached_property
    def runs_functions(self) -> bool:
        """Whether the operator's SQL in the statement may run functions of users."""
        return isinstance(self.shape, QueryShape) or any(
            each.filter is not None and not each.filter.total for each in self.shape.tables
        )

    @cached_property
    def shortest(self) -> int:
        """The length in characters or bytes up to which no cell is cut."""
        return min((each.longest for each in self.outputs if each.longest is not None), default=0)

    @cached_property
    def cuts(self) -> Mapping[int, int]:
        """The longest cell of each output that may be cut, by its index."""
        return {
            at: each.longest
            for at, each in enumerate(self.outputs)
            if each.longest is not None and (each.term.type.large or each.term.type.family is Family.BYTES)
        }

    @cached_property
    def most_bytes(self) -> int:
        """The most bytes of one row, if each cell that is not cut is small."""
        wide = sum(
            longest * (1 if self.outputs[at].term.type.family is Family.BYTES else 4)
            for at, longest in self.cuts.items()
        )
        return wide + 64 * (len(self.outputs) - len(self.cuts))

    @cached_property
    def is_bounded(self) -> bool:
        """Whether no row exceeds `most_bytes`, because every long cell is cut."""
        return all(each.longest is not None or not each.term.type.large for each in self.outputs)

    @cached_property
    def sums(self) -> Collection[int]:
        """The indexes of the sums of integers."""
        terms = [each.term for each in self.outputs]
        integers = Family.INTEGER
        return [
            at for at, each in enumerate(terms) if isinstance(each, Measure) and each.type.family is integers
        ]

    @cached_property
    def is_masked(self) -> bool:
        """Whether cells must be masked."""
        return any(each.term.type.mask is not None for each in self.outputs)

    @property
    def _comparisons(self) -> Sequence[Condition]:
        return () if isinstance(self.shape, QueryShape) else self.shape.comparisons

    @cached_property
    def _patterns(self) -> Mapping[str, Operator]:
        """The operators of the parameters that are patterns."""
        return {
            each.parameters[0]: each.operator
            for each in self._comparisons
            if each.operator in TEXTUAL and each.term.type.family is not Family.ARRAY
        }

    @cached_property
    def _within_json(self) -> Collection[str]:
        """The parameters that are searched for in JSON."""
        of = {name: each for each in self._comparisons for name in each.parameters[:1]}
        return [name for name in self._patterns if of[name].term.type.family is Family.JSON]

    def with_clause(self, sql: str) -> "Compiled":
        """Return the plan with the clause *sql* at its end."""
        return replace(self, sql=f"{self.sql}\n{sql}")

    def bind_values(self, values: Mapping[str, object], limit: int) -> tuple[object, ...]:
        """Return *values* in the order of the parameters, as the driver takes them.

        The statement asks for one row more than *limit*, to find out whether there are more.
        """
        bound = {"limit": limit + 1, **self.constants, **values}
        bound |= {name: str(bound[name]).translate(UNSPACED) for name in self._within_json}
        bound |= {search_parameter(name): bound[name] for name in self._patterns}
        bound |= {prefix_parameter(name): _prefix_pattern(str(bound[name])) for name in self._patterns}
        return tuple([self._driver_value(name, bound[name]) for name in self.parameters])

    def _driver_value(self, name: str, value: object) -> object:
        if name in self._patterns:
            return pattern(self._patterns[name], str(value))
        if name in self.lists and isinstance(value, list):
            return self.many(value, self.types[name])
        return self.one(value, self.types[name]) if name in self.types else value


@dataclass(frozen=True, kw_only=True)
class CompiledWrite:
    """The statements of a change, in order; of a query that writes, only the change itself."""

    shape: WriteShape
    before: Compiled | None  #: reads the row that is to be changed, or the chosen rows with their keys
    #: Returns the identity of each changed row, or the cells of each deleted row; for chosen rows also their
    #: keys, or the keys alone.
    change: Compiled
    after: Compiled | None  #: reads the row with an identity, or the chosen row with a key that may be left
    checked: Compiled | None  #: the same, but only if the row satisfies the check
    left: Compiled | None = (
        None  #: reads the row with an identity, whatever the row filter, if it may leave that
    )
    unlocked: Compiled | None = None  #: the same as `before`, which locks the row, without the lock
    existing: Compiled | None = None  #: of an upsert: reads the visible row with the key, and its identity
    #: Of an upsert: inserts the row if no row has the key; None if that is known, as no other transaction can
    #: interfere.
    attempt: Compiled | None = None
    instead: Compiled | None = None  #: of an upsert: updates the existing row

    @property
    def write(self) -> Write:
        """The shape, if it is not a query's."""
        assert isinstance(self.shape, Write)
        return self.shape

    @property
    def claims(self) -> frozenset[str]:
        """The claims of the caller that the statements use."""
        return frozenset(claim for plan in self.statements for claim in plan.claims.values())

    @property
    def length(self) -> int:
        """The characters of the SQL of all statements."""
        return sum(plan.length for plan in self.statements)

    @property
    def statements(self) -> tuple[Compiled, ...]:
        """All statements, in their order."""
        upserts = (self.existing, self.instead, self.attempt)
        plans = (self.before, *upserts, self.change, self.after, self.checked, self.left)
        return tuple(plan for plan in plans if plan is not None)


def identifier(name: str) -> str:
    """Return *name* as a quoted identifier of standard SQL."""
    return '"' + name.replace('"', '""') + '"'


def place(at: int) -> str:
    """Return the parameter for column number *at* of an identity or a key."""
    return f"identity{at}"


def pin(at: int) -> str:
    """Return the parameter for the list number *at* of `Grammar.pinned`."""
    return f"pin{at}"


def search_parameter(name: str) -> str:
    """Return the parameter for the text whose LIKE pattern is the parameter *name*."""
    return f"{name}_text"


def prefix_parameter(name: str) -> str:
    """Return the parameter for a LIKE pattern of what begins as the text of the parameter *name* does.

    It matches all texts that begin with that text in any case, although LIKE may ignore only that of ASCII.
    """
    return f"{name}_begun"


def _prefix_pattern(text: str) -> str:
    # In lower case, two letters beyond ASCII are i and k: the dotted I, and the sign of Kelvin. An escape may
    # mean a byte that is not UTF-8.
    return pattern(Operator.STARTS_WITH, re.split(r"[iIkK]|\\x|[^\x01-\x7f]", text, maxsplit=1)[0])


def pattern(operator: Operator, text: str) -> str:
    """Return the LIKE pattern that matches *text* literally."""
    escaped = text.replace(ESCAPE, ESCAPE * 2).replace("%", ESCAPE + "%").replace("_", ESCAPE + "_")
    before = "" if operator is Operator.STARTS_WITH else "%"
    after = "" if operator is Operator.ENDS_WITH else "%"
    return f"{before}{escaped}{after}"
