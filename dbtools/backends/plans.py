"""A compiled statement: its SQL, how the values of one call go in, and how names and patterns are written.

A list is one parameter: an operator writes `in (:ids)`, `not in (:ids)`, `= any(:ids)` or `<> all(:ids)` on
any database. No value is one of an empty list: the first and the third are never true, the others always.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from dbtools.sql import Lexis, Parameter, code_of
from dbtools.statement import Output, QueryShape, Select, Shape
from dbtools.terms import Measure
from dbtools.types import TEXTUAL, ColumnType, Family, Operator

ESCAPE = "\\"
CELLS_HELD = 32 * 2**20  #: characters and bytes of one result


Piece = str | Parameter

#: What is written before the parenthesis, and whether the value may not be in the list.
OPENINGS = (
    (("not", "in"), True),
    (("in",), False),
    (("=", "any"), False),
    (("<>", "all"), True),
    (("!=", "all"), True),
)


@dataclass(frozen=True, kw_only=True)
class ListForms:
    """How a database writes that a value is, or is not, one of a list that is one parameter."""

    among: str
    not_among: str
    closing: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A compiled shape: SQL, and how its values go in."""

    shape: Shape
    sql: str
    parameters: tuple[str, ...]  #: names in the order of their places
    types: Mapping[str, ColumnType]  #: of the parameters that are values of a column
    lists: frozenset[str]  #: the parameters that are lists
    constants: Mapping[str, object]  #: the values that are the same in every call
    claims: Mapping[str, str]  #: the parameters that are claims of the caller
    #: What writes one value of a type, and what writes a list of them, as the driver takes them.
    one: Callable[[object, ColumnType], object] = field(repr=False)
    many: Callable[[Sequence[object], ColumnType], object] = field(repr=False)

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What is read."""
        return self.shape.outputs

    @cached_property
    def runs_functions(self) -> bool:
        """Whether the statement may run functions that did not come with the database system."""
        return isinstance(self.shape, QueryShape) or any(
            each.runs_functions or (each.filter is not None and not each.filter.total)
            for each in self.shape.tables
        )

    @cached_property
    def shortest(self) -> int:
        """The characters or bytes up to which no cell is cut."""
        return min((each.longest for each in self.outputs if each.longest is not None), default=0)

    @cached_property
    def cuts(self) -> Mapping[int, int]:
        """How much is read at the most of the outputs that may be cut, by their places."""
        return {
            at: each.longest
            for at, each in enumerate(self.outputs)
            if each.longest is not None and (each.term.type.large or each.term.type.family is Family.BYTES)
        }

    @cached_property
    def most_bytes(self) -> int:
        """How many bytes one row may take, where each cell that cannot be cut is a small one."""
        wide = sum(
            longest * (1 if self.outputs[at].term.type.family is Family.BYTES else 4)
            for at, longest in self.cuts.items()
        )
        return wide + 64 * (len(self.outputs) - len(self.cuts))

    @cached_property
    def is_bounded(self) -> bool:
        """Whether no row takes more than `most_bytes`: whatever may be long is cut."""
        return all(each.longest is not None or not each.term.type.large for each in self.outputs)

    @cached_property
    def sums(self) -> Collection[int]:
        """The places of the sums of integers."""
        terms = [each.term for each in self.outputs]
        integers = Family.INTEGER
        return [
            at for at, each in enumerate(terms) if isinstance(each, Measure) and each.type.family is integers
        ]

    @cached_property
    def is_lookup(self) -> bool:
        """Whether it reads one row of a table by its key."""
        return isinstance(self.shape, Select) and self.shape.is_lookup

    @cached_property
    def is_masked(self) -> bool:
        """Whether cells of it are to be masked."""
        return any(each.term.type.mask is not None for each in self.outputs)

    @cached_property
    def _patterns(self) -> Mapping[str, Operator]:
        """The parameters that are patterns, with their operators."""
        return {
            each.parameters[0]: each.operator
            for each in self.shape.comparisons
            if each.operator in TEXTUAL and each.term.type.family is not Family.ARRAY
        }

    def bound(self, values: Mapping[str, object], limit: int) -> tuple[object, ...]:
        """Return *values* in the order of the parameters, as the driver takes them.

        One row more than *limit* is asked for, so that whether there are more is a fact.
        """
        bound = {"limit": limit + 1, **self.constants, **values}
        bound |= {sought(name): bound[name] for name in self._patterns}
        return tuple([self._written(name, bound[name]) for name in self.parameters])

    def _written(self, name: str, value: object) -> object:
        if name in self._patterns:
            return pattern(self._patterns[name], str(value))
        if name in self.lists and isinstance(value, list):
            return self.many(value, self.types[name])
        return self.one(value, self.types[name]) if name in self.types else value


def identifier(name: str) -> str:
    """Return *name* in double quotes, as the standard has it (ISO 9075-2, delimited identifiers)."""
    return '"' + name.replace('"', '""') + '"'


def sought(name: str) -> str:
    """Return the parameter that is the text itself of which the parameter *name* is the pattern."""
    return f"{name}_text"


def pattern(operator: Operator, text: str) -> str:
    """Return the LIKE pattern that finds *text* itself, whatever characters it has."""
    escaped = text.replace(ESCAPE, ESCAPE * 2).replace("%", ESCAPE + "%").replace("_", ESCAPE + "_")
    before = "" if operator is Operator.STARTS_WITH else "%"
    after = "" if operator is Operator.ENDS_WITH else "%"
    return f"{before}{escaped}{after}"


def with_lists(
    pieces: Sequence[Piece], is_list: Callable[[str], bool], lexis: Lexis, forms: ListForms
) -> tuple[Piece, ...]:
    """Return *pieces* with the list parameters among them as *forms* has them; elsewhere they stay."""
    written = list(pieces)
    for at in range(1, len(pieces) - 1):
        piece = pieces[at]
        if not isinstance(piece, Parameter) or not is_list(piece.name):
            continue
        before, after = written[at - 1], written[at + 1]
        if not isinstance(before, str) or not isinstance(after, str):
            continue
        opened, behind = _opened(before, lexis, forms), code_of(after, lexis)[:1]
        if opened is not None and behind and behind[0].text == ")":
            # Blanks and comments may stand before the parenthesis.
            closed = after[: behind[0].offset] + forms.closing + after[behind[0].end :]
            written[at - 1], written[at + 1] = opened, closed
    return tuple(written)


def _opened(text: str, lexis: Lexis, forms: ListForms) -> str | None:
    """Return *text* with the words and the parenthesis at its end in another form, None if there are none."""
    code = code_of(text, lexis)
    if not code or code[-1].text != "(":
        return None
    for words, negated in OPENINGS:
        before = code[-len(words) - 1 : -1]
        if tuple(token.word for token in before) == words:
            form = forms.not_among if negated else forms.among
            return text[: before[0].offset] + form + text[code[-1].end :]
    return None
