"""The tools of permitted queries: one for each, and `find_queries` and `run_query` for all of them.

The header of a query determines both the advertised schema and how arguments are read.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated, Any

from pydantic import Field

from dbtools import errors
from dbtools.answers.results import Answer, Reserve, ResultSet
from dbtools.answers.styles import Surface
from dbtools.errors import did_you_mean, listing
from dbtools.queries import Effects, Permitted, Returns
from dbtools.statements.select import Output, QueryShape, Statement, argument
from dbtools.tools.arguments import TEXTS, Arguments, Object, Schema, read
from dbtools.tools.calls import Call, CatalogCall, SingleCall
from dbtools.tools.definition import (
    BOOLEAN,
    INTEGER,
    READS,
    Tool,
    ToolContext,
    ToolDefinition,
    ToolGroup,
    content_schema,
    entries_schema,
)
from dbtools.tools.list_tables import rank_candidates
from dbtools.tools.queries.arguments import cell_schema, parameters_schema, values_of
from dbtools.tools.wording import frequent_texts, nonempty_parts, sentences, tidy
from dbtools.tools.writes.calls import ChangeCall
from dbtools.tools.writes.changing import CHANGES, ChangeArguments, change_schemas, effects, transaction_of
from dbtools.values.types import STRING, TEMPORAL, quote

NAMES = ("find_queries", "run_query")  #: of the generic tools
#: Characters to read of a cell for each byte of its row: white space in JSON is not shown.
READ_FOR_ONE = 4
LONGEST_LISTED = 200  #: characters of a description in a list


class GenericQueryTool(Tool):
    """A generic tool for queries."""

    group = ToolGroup.QUERIES
    surface = Surface.GENERIC


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryTool(Tool):
    """The tool of one permitted query."""

    group = ToolGroup.QUERIES
    surface = Surface.TYPED
    permitted: Permitted
    #: The variants that have been called, by their clauses.
    shapes: dict[frozenset[int], QueryShape] = field(default_factory=dict, init=False, repr=False)

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.permitted.name

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        query, columns = self.permitted.query, listing(each.name for each in self.permitted.columns)
        shown = f"{'One row' if query.returns is Returns.ONE else 'Rows'} of: {columns}."
        description = sentences(query.description.rstrip(), shown)
        return self.definition_of(description, self.schema, self._answers(), query.title)

    @cached_property
    def schema(self) -> Schema:
        """The JSON Schema of its arguments, with those of every change if it changes rows."""
        confirms = self.permitted.query.confirm
        changes = change_schemas(self.context, confirms=confirms) if self.permitted.effects else {}
        return parameters_schema(self.permitted, changes)

    def _answers(self) -> Mapping[str, object]:
        """Return the schema of its answers, with the type of each column."""
        columns = self.permitted.columns
        if self.permitted.query.returns is Returns.ONE:
            cells = {column.name: cell_schema(column) for column in columns}
            return content_schema({"row": {"type": "object", "properties": cells}}, note=STRING)
        row = {"type": "array", "prefixItems": [cell_schema(each) for each in columns]}
        # A query has no pages: if rows are left out, a note says what to do.
        arrays = {"columns": TEXTS, "rows": {"type": "array", "items": row}}
        return content_schema({"row_count": INTEGER, "truncated": BOOLEAN, **arrays}, note=STRING)

    def bind(self, arguments: Mapping[str, object]) -> Call[Answer]:
        """Bind *arguments* to a call of the query."""
        query, limits = self.permitted.query, self.context.limits
        shape, values = self._bind_variant(arguments)
        most = 1 if query.returns is Returns.ONE else query.max_rows or limits.max_rows
        limit = min(most, limits.max_rows)
        statement = Statement(shape=shape, values=values, limit=limit, timeout=self._timeout)
        return SingleCall(statement=statement, answer=partial(self._answer, limit))

    def _bind_variant(self, arguments: Mapping[str, object]) -> tuple[QueryShape, Mapping[str, object]]:
        """Return the variant of the query for *arguments*, and the values of its parameters."""
        given = dict(values_of(self.permitted, arguments, list(self.schema["properties"])))
        values = {argument(each.name): given.get(each.name) for each in self.permitted.parameters}
        return self._shape(frozenset(given)), values

    @property
    def _timeout(self) -> float:
        timeout = self.permitted.query.timeout
        return math.inf if timeout is None else timeout

    def _shape(self, present: frozenset[str]) -> QueryShape:
        permitted, limits = self.permitted, self.context.limits
        body = permitted.query.body
        wanted = frozenset(at for at, clause in enumerate(body.clauses) if present.issuperset(clause.needs))
        if wanted not in self.shapes:
            one = permitted.query.returns is Returns.ONE
            cut = limits.max_bytes * READ_FOR_ONE if one else limits.max_cell
            self.shapes[wanted] = QueryShape(
                name=permitted.name,
                pieces=body.variant(present).pieces,
                outputs=tuple(
                    Output(term=each, cut=cut if each.type.large else None) for each in permitted.columns
                ),
                types=permitted.types,
                casts=permitted.casts,
                versions=permitted.versions,
                **self._changes(),
            )
        return self.shapes[wanted]

    def _changes(self) -> Mapping[str, Any]:
        """Return what the shape says about changes."""
        return {}

    def _answer(self, limit: int, found: ResultSet) -> Answer:
        """Render the rows *found*, as many as fit, of at most *limit*."""
        one = self.permitted.query.returns is Returns.ONE
        if one and not found.rows:
            raise errors.NoRow(f"{self.name} found no row.")
        budget = self.context.budgets[Reserve.QUERY]
        page = budget.page(found, [column.name for column in self.permitted.columns])
        if not one:
            cap = "max_tokens" if page.capped else f"{limit} rows"
            note = f"Cut at {cap}: other arguments may find fewer." if page.truncated else ""
            return budget.rows_answer(page, note=note)
        note = "More rows: this is the first." if found.more else ""
        row = dict(zip(page.table.columns, page.table.rows[0], strict=True))
        return budget.answer({"row": row}, rows=1, truncated=found.more, note=note)


class ChangingQueryTool(QueryTool):
    """The tool of a permitted query that changes rows."""

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        query, columns = self.permitted.query, listing(each.name for each in self.permitted.columns)
        most = query.writes or 0
        changes = f"Changes at most {most} row{'s' * (most > 1)}, all or none"
        shown = f"{changes}; returns {columns}." if columns else f"{changes}."
        description = sentences(query.description.rstrip(), shown)
        return self.definition_of(description, self.schema, CHANGES, query.title, effects_of([self]))

    def bind(self, arguments: Mapping[str, object]) -> ChangeCall:
        """Bind *arguments* to a call of the query."""
        of_changes = change_schemas(self.context, confirms=True)
        own = {name: value for name, value in arguments.items() if name in of_changes}
        asked = read(ChangeArguments, own)
        write = self._bind_variant({name: arguments[name] for name in arguments if name not in own})
        confirms, timeout = self.permitted.query.confirm, self._timeout
        transaction = transaction_of([write], asked, confirms=confirms, what=self.name, timeout=timeout)
        return ChangeCall(context=self.context, transaction=transaction, query=self.name, arguments=arguments)

    def _changes(self) -> Mapping[str, Any]:
        query, found = self.permitted.query, self.permitted.effects or Effects()
        places = {(each.schema, each.table) for each in found.changes}
        return {
            "writes": query.writes,
            "target": found.target,
            "others": frozenset(places - {found.target}),
            "stable": frozenset(self._stable_columns(found)),
        }

    def _stable_columns(self, found: Effects) -> Iterator[str]:
        """Yield the columns that are the same whenever the query makes the same change.

        The database chooses what an INSERT does not set, and a moment that is set is probably now.
        """
        own = [each for each in found.changes if each.named and (each.schema, each.table) == found.target]
        written = {each.column for each in own if each.kind != "delete"}
        inserts = any(each.kind == "insert" for each in own)
        for column in self.permitted.columns:
            is_written = column.name in written
            if (is_written or not inserts) and not (is_written and column.type.family in TEMPORAL):
                yield column.name


def effects_of(tools: Sequence[QueryTool]) -> Mapping[str, bool]:
    """Return the annotations of a tool that runs those queries of *tools* that change rows."""
    found = [each.permitted.effects for each in tools if each.permitted.effects is not None]
    return effects(destroys=any(not each.only_inserts for each in found), repeats=False) if found else READS


class FindArguments(Arguments):
    """Arguments of `find_queries`."""

    search: str = Field(default="", description="words of names and descriptions")


class RunArguments(Arguments):
    """Arguments of `run_query`."""

    example = '{"query": "top_customers", "arguments": {"since": "2024-01-01"}}'
    query: str
    arguments: Annotated[dict[str, object], Object] = Field(default={})


QUERIES_SCHEMA = content_schema(
    {"query_count": INTEGER, "truncated": BOOLEAN, "queries": entries_schema("query")}
)


class FindQueries(GenericQueryTool):
    """`find_queries`: search permitted queries."""

    name = "find_queries"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        description = (
            f"Search the {len(self.context.queries):,} saved queries, with their arguments; run_query "
            "runs one. Prefer a saved query that answers the question."
        )
        return self.definition_of(description, FindArguments, QUERIES_SCHEMA)

    def bind(self, arguments: Mapping[str, object]) -> CatalogCall[Answer]:
        """Bind a search to a call."""
        asked = read(FindArguments, arguments)
        return CatalogCall(answer=lambda _: self._answer(asked.search.strip()))

    def _answer(self, search: str) -> Answer:
        """Render the matching queries, as many as fit."""
        budget = self.context.budgets[Reserve.QUERY]
        matching = (
            rank_candidates(search, self.context.queries, _search_texts) if search else self.context.queries
        )
        shown = budget.entries(map(partial(_entry, self.context), matching))
        truncated = len(shown) < len(matching)
        content: dict[str, object] = {"query_count": len(matching), "truncated": truncated, "queries": shown}
        note = "More queries: search for words." if truncated else ""
        if not matching:
            names = [each.name for each in self.context.queries]
            note = f"No query matches. {did_you_mean(search, names)}Omit search to list all."
        return budget.answer(content, rows=len(shown), truncated=truncated, note=note)


def _search_texts(permitted: Permitted) -> tuple[Sequence[str], str]:
    return (permitted.name,), f"{permitted.query.title} {permitted.query.description}"


def _entry(context: ToolContext, permitted: Permitted) -> dict[str, object]:
    schema = _tool(context, permitted).schema
    return nonempty_parts(
        query=permitted.name,
        description=tidy(permitted.query.description, LONGEST_LISTED),
        arguments=schema["properties"],
        required=schema.get("required"),
        columns=[column.name for column in permitted.columns],
        writes=permitted.query.writes,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class RunQuery(GenericQueryTool):
    """`run_query`: run a permitted query by name."""

    name = "run_query"
    tools: Mapping[str, QueryTool]

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        description = "Run a saved query by name; find_queries lists names and arguments."
        names = [name for tool in self.tools.values() for name in tool.schema["properties"]]
        schema = self.context.schema(RunArguments, arguments=frequent_texts(names) if names else None)
        # Whether an answer has one row or many depends on the query.
        answers = content_schema({}, note=STRING)
        return self.definition_of(
            description, schema, answers, annotations=effects_of([*self.tools.values()])
        )

    def bind(self, arguments: Mapping[str, object]) -> Call[Answer]:
        """Bind *arguments* to a call of the query that they name."""
        asked = read(RunArguments, arguments)
        tool = self.tools.get(asked.query)
        if tool is None:
            raise errors.BadArgument(
                f"query: there is no query {quote(asked.query)}.",
                hint=f"{did_you_mean(asked.query, self.tools)}Queries: {listing(self.tools)}.",
            )
        return tool.bind(asked.arguments)


def _tool(context: ToolContext, permitted: Permitted) -> QueryTool:
    return (ChangingQueryTool if permitted.effects else QueryTool)(context=context, permitted=permitted)


def define(context: ToolContext) -> Iterator[Tool]:
    """Yield the tools of the permitted queries of *context*."""
    tools = {each.name: _tool(context, each) for each in context.queries}
    if tools:
        yield FindQueries(context=context)
        yield RunQuery(context=context, tools=tools)
        yield from tools.values()
