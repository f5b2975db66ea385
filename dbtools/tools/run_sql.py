"""The tool `run_sql`: one SELECT of the caller, over the tables, columns and rows that its role sees."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import Annotated

from pydantic import Field

from dbtools.results import Answer, Reserve, ResultSet
from dbtools.statement import FreeStatement
from dbtools.tools.arguments import DEFAULT_LIMIT, Arguments, Count
from dbtools.tools.definition import ROWS, SingleCall, Tool, ToolContext, ToolDefinition, content_schema

LONGEST_SQL = 20_000  #: characters
DESCRIPTION = (
    "Run one SELECT of {} on the tables of describe_tables. Only for what the other tools cannot do: "
    "window functions, top rows per group, percentiles, recursion, unions. The others join, page and "
    "need no SQL."
)
#: A comparison with a text, which may be misspelt if nothing is found; a date is not.
COMPARISON = re.compile(r"""(?:[^<>!]=|\bin\s*\()\s*'[^\d']""", re.IGNORECASE)
MISSPELT = "Is a text spelled as it is stored? select distinct lists the values of a column."


class SqlArguments(Arguments):
    """Arguments of `run_sql`."""

    example = '{"sql": "select count(*) from orders"}'
    sql: Annotated[str, Field(max_length=LONGEST_SQL)]
    limit: Count = Field(default=DEFAULT_LIMIT, ge=1)


class RunSql(Tool):
    """`run_sql`, for a role that may run SQL."""

    name = "run_sql"
    group = None

    @classmethod
    def define(cls, context: ToolContext) -> Iterator[Tool]:
        """Yield the tool, if callers may run SQL."""
        if context.dialect:
            yield cls(context=context)

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return self.defined(
            DESCRIPTION.format(self.context.dialect), SqlArguments, content_schema(ROWS), title="Run SQL"
        )

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Return the call that runs the SQL in *arguments*."""
        asked, limits = self.context.read(SqlArguments, arguments), self.context.limits
        statement = FreeStatement(
            sql=asked.sql, limit=asked.limit, longest=limits.max_cell, most_bytes=limits.max_bytes
        )
        return SingleCall(statement=statement, answer=partial(self._answer, asked))

    def _answer(self, asked: SqlArguments, found: ResultSet) -> Answer:
        """Render the rows *found*, as many as fit."""
        budget = self.context.budgets[Reserve.QUERY]
        page = budget.page(found, unique_names([output.term.name for output in found.outputs]))
        notes = ["Long cells are cut: read a part with substr."] if page.found.is_cut else []
        is_empty = len(found.rows) < 2 and not any(chain(*found.rows))  # or a row of 0 and null
        if is_empty and COMPARISON.search(asked.sql):
            notes.append(MISSPELT)
        if page.capped:
            notes.append("Cut at max_tokens: select fewer columns, or aggregate.")
        elif page.truncated:
            is_most = asked.limit >= self.context.limits.max_rows
            more = f"add offset {asked.limit} to the SQL" if is_most else "raise limit"
            notes.append(f"More rows: {more}, add conditions, or aggregate.")
        return budget.rows_answer(page, note=" ".join(notes))


def unique_names(names: Sequence[str]) -> Sequence[str]:
    """Return *names*, each with a number after it if another one is the same."""
    given, numbers = set(names), Counter[str]()
    unique: dict[str, None] = {}
    for name in names:
        shown = name
        while shown in unique or (shown != name and shown in given):
            numbers[name] += 1
            shown = f"{name}_{numbers[name] + 1}"
        unique[shown] = None
    return list(unique)
