"""The arguments that say which rows, in which order: conditions, pages and what stands in them."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from dbtools import errors
from dbtools.binding import (
    MOST_CONDITIONS,
    MOST_VALUES,
    Alternatives,
    Comparison,
    RelatedRows,
    Written as Clause,
)
from dbtools.statement import Match
from dbtools.tools.arguments import (
    DEFAULT_LIMIT,
    MOST_SKIPPED,
    Arguments,
    Array,
    Columns,
    Count,
    Meant,
    Steps,
    Written,
)
from dbtools.types import Operator


class Comparing(Arguments):
    """A comparison of a term with values, or with another term."""

    example = '{"column": "id", "value": "1"}'
    column: str
    op: Annotated[Operator, Meant] = Field(
        default=Operator.EQ,
        description='is_null: value "true" or "false"; in, not_in: values; between: both values included',
    )
    value: Written | SkipJsonSchema[None] = None
    values: Annotated[tuple[Written, ...], Field(max_length=MOST_VALUES), Array] | SkipJsonSchema[None] = None
    value_column: str | SkipJsonSchema[None] = None


Comparisons = Annotated[tuple[Comparing, ...], Field(max_length=MOST_CONDITIONS), Array]
OBJECTS = WithJsonSchema({"type": "array", "items": {"type": "object"}})


class Within(Comparing):
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


def comparisons(conditions: Sequence[Comparing], argument: str) -> tuple[Comparison, ...]:
    """Return *conditions*, which stand in *argument*, as values without pydantic."""
    return tuple(_comparison(each, f"{argument}[{index}]") for index, each in enumerate(conditions))


def clauses(conditions: Sequence[Where], argument: str) -> tuple[Clause, ...]:
    """Return *conditions*, which stand in *argument*, as values without pydantic."""
    return tuple(_clause(each, f"{argument}[{index}]") for index, each in enumerate(conditions))


def _clause(condition: Where, argument: str) -> Clause:
    if not (condition.some or condition.none):
        if condition.where or "match" in condition.model_fields_set:
            raise errors.BadArgument(f"{argument}: where and match belong to some or none.")
        return _plain(condition, argument)
    if (condition.some and condition.none) or condition.model_fields_set - {"some", "none", "where", "match"}:
        raise errors.BadArgument(f"{argument}: some or none takes where and match, and nothing else.")
    within = tuple(_plain(each, f"{argument}.where[{at}]") for at, each in enumerate(condition.where))
    return RelatedRows(
        relation=condition.some or condition.none,
        wanted=bool(condition.some),
        clauses=within,
        match=condition.match,
        argument=f"{argument}.{'some' if condition.some else 'none'}",
    )


def _plain(condition: Within, argument: str) -> Comparison | Alternatives:
    if condition.any and condition.model_fields_set == {"any"}:
        return Alternatives(comparisons=comparisons(condition.any, f"{argument}.any"))
    if condition.any or not condition.column:
        raise errors.BadArgument(
            f"{argument}: a condition has either column, any, some or none.",
            hint=f"Such as {condition.example}.",
        )
    return _comparison(condition, argument)


def _comparison(condition: Comparing, argument: str) -> Comparison:
    return Comparison(
        column=condition.column,
        operator=condition.op,
        value=condition.value,
        values=condition.values,
        value_column=condition.value_column,
        argument=argument,
    )
