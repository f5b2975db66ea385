"""The tools of permitted queries: one each, and `find_queries` and `run_query` for all of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Column
from dbtools.errors import listing, nearest
from dbtools.queries import Permitted, Returns
from dbtools.results import Answer, Reserve, ResultSet, Rows, Surface
from dbtools.statement import Output, QueryShape, Statement, argument
from dbtools.tools.arguments import Arguments, Object, narrowed_schema, read
from dbtools.tools.definition import (
    BOOLEAN,
    ENTRIES,
    INTEGER,
    OBJECT,
    ROW_SCHEMA,
    ROWS,
    STRING,
    Setting,
    SingleCall,
    Tool,
    ToolGroup,
    content_schema,
)
from dbtools.tools.list_tables import best_first
from dbtools.tools.query_arguments import arguments_schema, properties_of, read_arguments, required_of
from dbtools.tools.wording import cleaned, sentences, told
from dbtools.types import SAFE_INTEGER, Family, quoted

NAMES = ("find_queries", "run_query")  #: of the tools for any query
#: Characters that are read of a cell for each byte that its row may take: the blanks in JSON are not shown.
READ_FOR_ONE = 4
LONGEST_TEXT = 200  #: characters of a description in a list
#: How cells are shown; those that are not here are texts.
SHOWN: Mapping[Family, tuple[str, ...]] = {
    Family.INTEGER: ("integer",),
    Family.NUMBER: ("number", "string"),  # NaN and infinities
    Family.BOOLEAN: ("boolean",),
    Family.ARRAY: ("array", "string"),  # cut where it is too long
    Family.OBJECT: ("object", "string"),
}


class GenericQueryTool(Tool):
    """A tool for any query, which is listed where they have no tools of their own."""

    group = ToolGroup.QUERIES
    surface = Surface.GENERIC


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryTool(Tool):
    """The tool of one permitted query."""

    group = ToolGroup.QUERIES
    surface = Surface.TYPED
    permitted: Permitted
    #: The variants that have been called, by their clauses: they go with the tool and its catalog.
    shapes: dict[frozenset[int], QueryShape] = field(default_factory=dict, init=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.permitted.name

    @property
    def title(self) -> str:
        """The name that people read."""
        return self.permitted.query.title or super().title

    @property
    def description(self) -> str:
        """The description that a model reads."""
        rows = "One row" if self.permitted.query.returns is Returns.ONE else "Rows"
        columns = listing(column.name for column in self.permitted.columns)
        return sentences(self.permitted.query.description.rstrip(), f"{rows} of: {columns}.")

    @property
    def input_schema(self) -> Mapping[str, object]:
        """The JSON Schema of its arguments."""
        return arguments_schema(self.permitted)

    @property
    def output_schema(self) -> Mapping[str, object]:
        """The JSON Schema of its answers."""
        columns = self.permitted.columns
        if self.permitted.query.returns is Returns.ONE:
            return narrowed_schema(ROW_SCHEMA, ("properties", "row"), _object_schema(columns))
        return _rows_schema(columns, self.setting.style.rows)

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Return the call that runs the query with *arguments*."""
        query, limits = self.permitted.query, self.setting.limits
        given = read_arguments(self.permitted, arguments)
        most = 1 if query.returns is Returns.ONE else query.max_rows or limits.max_rows
        statement = Statement(
            shape=self._shape(frozenset(given)),
            values={argument(each.name): given.get(each.name) for each in self.permitted.parameters},
            limit=min(most, limits.max_rows),
            timeout=math.inf if query.timeout is None else query.timeout,
        )
        return SingleCall(statement=statement, answer=partial(self._answer, statement.limit))

    def _shape(self, present: frozenset[str]) -> QueryShape:
        permitted, limits = self.permitted, self.setting.limits
        body = permitted.query.body
        wanted = frozenset(at for at, clause in enumerate(body.clauses) if present.issuperset(clause.needs))
        if wanted not in self.shapes:
            one = permitted.query.returns is Returns.ONE
            cut = limits.max_bytes * READ_FOR_ONE if one else limits.max_cell
            self.shapes[wanted] = QueryShape(
                name=permitted.name,
                pieces=body.written(present).pieces,
                outputs=tuple(
                    Output(term=each, cut=cut if each.type.large else None) for each in permitted.columns
                ),
                types=permitted.types,
                casts=permitted.casts,
                versions=permitted.versions,
            )
        return self.shapes[wanted]

    def _answer(self, limit: int, found: ResultSet) -> Answer:
        """Return the rows that *found* holds, as many as fit, of at most *limit*."""
        one = self.permitted.query.returns is Returns.ONE
        if one and not found.rows:
            raise errors.NoRow(f"{self.name} found no row.")
        budget = self.setting.budgets[Reserve.QUERY]
        page = budget.page(found, [column.name for column in self.permitted.columns])
        if not one:
            cap = "max_tokens" if page.capped else f"{limit} rows"
            note = f"Cut at {cap}: other arguments may find fewer." if page.truncated else ""
            return budget.rows_answer(page, note=note)
        note = "There is more than one row: this is the first." if found.more else ""
        row = dict(zip(page.table.columns, page.table.rows[0], strict=True))
        return budget.answer({"row": row}, rows=1, truncated=found.more, note=note)


def _rows_schema(columns: Sequence[Column], rows: Rows) -> Mapping[str, object]:
    # A query has no pages: where rows are cut off, a note says what helps.
    row: dict[str, object] = {"type": "array", "prefixItems": [_cell_schema(each) for each in columns]}
    if rows is Rows.OBJECTS:
        row = _object_schema(columns)
    schema = narrowed_schema(content_schema(ROWS, note=STRING), ("properties", "rows", "items"), row)
    return narrowed_schema(schema, ("properties", "columns", "items"), STRING)


def _object_schema(columns: Sequence[Column]) -> dict[str, object]:
    return {"type": "object", "properties": {each.name: _cell_schema(each) for each in columns}}


def _cell_schema(column: Column) -> dict[str, object]:
    """Return the schema of the cells of *column*: exact where its database keeps its types."""
    if column.type.lenient or column.type.family in (Family.ANY, Family.JSON):
        return {}
    types = SHOWN.get(column.type.family, ("string",))
    most = column.type.maximum
    if column.type.family is Family.INTEGER and (most is None or most > SAFE_INTEGER):
        types = ("integer", "string")  # not all readers of JSON read greater integers
    types = (*types, "null") if column.nullable else types
    return {"type": types[0] if len(types) == 1 else list(types)}


class FindArguments(Arguments):
    """Arguments of `find_queries`."""

    search: str = Field(default="", description="words of names and descriptions")


class RunArguments(Arguments):
    """Arguments of `run_query`."""

    example = '{"query": "top_customers", "arguments": {"since": "2024-01-01"}}'
    query: str
    arguments: Annotated[dict[str, object], Object] = Field(default={})


QUERIES_SCHEMA = content_schema({"query_count": INTEGER, "truncated": BOOLEAN, "queries": ENTRIES})


class FindQueries(GenericQueryTool):
    """`find_queries`: the permitted queries, by words."""

    name = "find_queries"
    arguments = FindArguments
    output_schema = QUERIES_SCHEMA

    @property
    def description(self) -> str:
        """The description that a model reads."""
        return (
            f"Find among the {len(self.setting.queries):,} prepared queries, with their arguments. "
            "run_query runs one: prefer it where one answers the question."
        )

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Return the call that finds what *arguments* search for."""
        asked = read(FindArguments, arguments)
        return SingleCall(answer=lambda _: self._answer(asked.search.strip()))

    def _answer(self, search: str) -> Answer:
        """Return the queries that match, as many as fit."""
        budget = self.setting.budgets[Reserve.QUERY]
        matching = best_first(search, self.setting.queries, _texts) if search else self.setting.queries
        shown = budget.entries(map(_entry, matching))
        truncated = len(shown) < len(matching)
        content: dict[str, object] = {"query_count": len(matching), "truncated": truncated, "queries": shown}
        note = "More queries: search for words of what you want." if truncated else ""
        if not matching:
            names = [each.name for each in self.setting.queries]
            note = f"No query matches. {nearest(search, names)}Without search all are shown."
        return budget.answer(content, rows=len(shown), truncated=truncated, note=note)


def _texts(permitted: Permitted) -> tuple[Sequence[str], str]:
    return (permitted.name,), f"{permitted.query.title} {permitted.query.description}"


def _entry(permitted: Permitted) -> dict[str, object]:
    query, properties = permitted.query, properties_of(permitted)
    for schema in properties.values():
        if "description" in schema:
            schema["description"] = cleaned(str(schema["description"]), LONGEST_TEXT)
    return told(
        query=query.name,
        description=cleaned(query.description, LONGEST_TEXT),
        arguments=properties,
        required=required_of(permitted),
    ) | {"columns": [column.name for column in permitted.columns]}


@dataclass(frozen=True, kw_only=True, eq=False)
class RunQuery(GenericQueryTool):
    """`run_query`: a permitted query by its name."""

    name = "run_query"
    arguments = RunArguments
    output_schema = OBJECT  #: of many rows or of one, as the query has it
    description = "Run a prepared query by its name; find_queries tells names and arguments."
    tools: Mapping[str, QueryTool]

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Return the call that runs the query that *arguments* name."""
        asked = read(RunArguments, arguments)
        tool = self.tools.get(asked.query)
        if tool is None:
            raise errors.BadArgument(
                f"query: there is no query {quoted(asked.query)}.",
                hint=f"{nearest(asked.query, self.tools)}Queries: {listing(self.tools)}.",
            )
        return tool.bind(asked.arguments)


def define(setting: Setting) -> Iterator[Tool]:
    """Yield the tools of the queries that the role may call."""
    tools = {each.name: QueryTool(setting=setting, permitted=each) for each in setting.queries}
    if tools:
        yield FindQueries(setting=setting)
        yield RunQuery(setting=setting, tools=tools)
        yield from tools.values()
