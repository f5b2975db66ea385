"""The arguments that choose rows: conditions, order and page, as pydantic models."""

from typing import Annotated

from pydantic import Field, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

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

MOST_CONDITIONS = 50
MOST_VALUES = 1_000


class Comparison(Arguments):
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
