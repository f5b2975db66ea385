"""The arguments that choose rows, as pydantic models, and notes on values that callers may misunderstand."""

import re
from typing import Annotated

from pydantic import Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from dbtools.dates import DAY
from dbtools.statement import Condition, Match
from dbtools.terms import Calculation, Term
from dbtools.tools.arguments import (
    DEFAULT_LIMIT,
    MOST_SKIPPED,
    Arguments,
    Array,
    AsText,
    Columns,
    Count,
    Meant,
    Steps,
)
from dbtools.types import MOMENTS, Family, Operator

MOST_CONDITIONS = 50
MOST_VALUES = 1_000
#: Operators that compare a time with a day, and may exclude or include more than the caller expects.
MISTAKABLE = (Operator.EQ, Operator.NE, Operator.LTE, Operator.GT)
#: The same if a day is compared with a time.
TURNED = (Operator.EQ, Operator.NE, Operator.GTE, Operator.LT)
SIGNS = re.compile(r"\b(AND|NOT|NEAR)\b|\w\*(?!\w)|\s[&|]\s")  #: of other languages for searches
SEARCH_FORM = 'Write words, "a phrase", or between alternatives, and -word to leave out.'


class Comparison(Arguments):
    """A comparison of a term with values, or with another term."""

    example = '{"column": "id", "value": "1"}'
    column: str
    op: Annotated[Operator, Meant] = Field(
        default=Operator.EQ,
        description='is_null: value "true" or "false"; in, not_in: values; between: both values included',
    )
    value: AsText | SkipJsonSchema[None] = None
    values: Annotated[tuple[AsText, ...], Field(max_length=MOST_VALUES), Array] | SkipJsonSchema[None] = None
    value_column: str | SkipJsonSchema[None] = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The values, or the one value."""
        if self.value_column is not None:
            return ()
        return self.values if self.values is not None else (str(self.value),)


Comparisons = Annotated[tuple[Comparison, ...], Field(max_length=MOST_CONDITIONS), Array]
OBJECTS = WithJsonSchema({"type": "array", "items": {"type": "object"}})


class Within(Comparison):
    """A condition on a related row."""

    column: str = ""
    any: Annotated[Comparisons, OBJECTS] = ()


class Where(Within):
    """One condition."""

    some: str = Field(default="", description="relation with such rows; none: without")
    none: str = ""
    where: Annotated[tuple[Within, ...], Field(max_length=MOST_CONDITIONS), Array, OBJECTS] = Field(
        default=(), description="as where"
    )
    match: Match = Match.ALL


Conditions = Annotated[tuple[Where, ...], Field(max_length=MOST_CONDITIONS), Array]


class ListArguments(Arguments):
    """Arguments of `list_T`."""

    where: Conditions = ()
    match: Match = Match.ALL
    columns: Columns = ()
    order_by: Steps = Field(default=(), description="such as total desc")
    limit: Count = Field(default=DEFAULT_LIMIT, ge=1)
    offset: Count = Field(default=0, ge=0, le=MOST_SKIPPED)
    cursor: str = ""


class RowsArguments(ListArguments):
    """Arguments of `list_rows`."""

    table: str


def not_meant(comparison: Comparison, condition: Condition) -> str:
    """Return a note if *comparison* may not mean what the caller expects: a time of day, or a search."""
    if comparison.op is Operator.MATCHES and SIGNS.search(comparison.value or ""):
        return f"matches has no AND, NOT, NEAR, &, | or *. {SEARCH_FORM}"
    first, *other = (each.type.family for each in condition.terms)
    name = condition.term.name
    if {first, *other} & {Family.DATE} and {first, *other} & {*MOMENTS}:
        moment, day = condition.terms if first in MOMENTS else reversed(condition.terms)
        days = " with ".join(f"{_in_brackets(each)}:day" for each in (moment, day))
        note = f"{moment.name} has a time of day: for whole days compare {days}."
        return note if comparison.op in (MISTAKABLE if first in MOMENTS else TURNED) else ""
    last = comparison.texts[-1].strip() if comparison.texts else ""
    if (
        first not in MOMENTS
        or comparison.op not in (*MISTAKABLE, Operator.BETWEEN)
        or not DAY.fullmatch(last)
    ):
        return ""
    return f"{name} has a time of day: {last} means 00:00. For the whole day use gte and lt."


def _in_brackets(term: Term) -> str:
    """Return *term* in a form that a bucket may follow."""
    return f"({term.name})" if isinstance(term, Calculation) else term.name


def sought(comparison: Comparison, condition: Condition) -> str:
    """Return a note on what `contains` and `matches` find, if callers may expect something else."""
    match condition.operator, condition.term.type.family:
        case Operator.CONTAINS, Family.ARRAY:
            return f"contains looks for a whole item of {condition.term.name}, case included."
        case Operator.CONTAINS, Family.JSON:
            return f"contains searches the text of {condition.term.name}: look for one key or one value."
        case Operator.MATCHES, _ if not not_meant(comparison, condition):
            return "matches looks for all of these words: write or between them, or search for one."
        case _:
            return ""
