"""The tools of permitted queries: one each, and `find_queries` and `run_query` for all of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.cells import size
from dbtools.errors import listing, nearest
from dbtools.queries import Permitted, Returns
from dbtools.results import (
    Answer,
    ResultSet,
    envelope,
    fitted,
    write,
)
from dbtools.statement import Output, QueryShape, Statement, argument
from dbtools.tools.arguments import Arguments, Object, read, schema_of
from dbtools.tools.definition import Setting, Settled, Tool, ToolDefinition
from dbtools.tools.query_arguments import arguments_schema, properties_of, read_arguments, required_of
from dbtools.tools.query_columns import row_schema, rows_schema
from dbtools.tools.search import fit, words_of
from dbtools.tools.wording import cleaned
from dbtools.types import quoted

ENVELOPE = 600  #: bytes around the rows of an answer
NAMES = ("find_queries", "run_query")  #: of the tools for any query
#: Characters that are read of a cell for each byte that its row may take: the blanks in JSON are not shown.
READ_FOR_ONE = 4
LONGEST_TEXT = 200  #: characters of a description in a list


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryTool:
    """The tool of one permitted query."""

    setting: Setting
    permitted: Permitted
    table: None = None

    @property
    def name(self) -> str:
        """The name of the query."""
        return self.permitted.name

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        query, columns = self.permitted.query, self.permitted.columns
        one = query.returns is Returns.ONE
        kind = "One row" if one else "Rows"
        described = query.description.rstrip()
        parts = [
            described if described.endswith((".", "!", "?")) or not described else f"{described}.",
            f"{kind} of: {listing(column.name for column in columns)}.",
        ]
        rows = self.setting.style.rows
        return ToolDefinition(
            name=query.name,
            title=query.title or query.name.replace("_", " ").capitalize(),
            description=" ".join(filter(None, parts)),
            input_schema=arguments_schema(self.permitted),
            output_schema=row_schema(columns) if one else rows_schema(columns, rows),
        )

    def bind(self, arguments: Mapping[str, object]) -> "QueryCall":
        """Return the call that runs the query with *arguments*."""
        query, limits = self.permitted.query, self.setting.limits
        given = read_arguments(self.permitted, arguments)
        absent = (each.name for each in self.permitted.parameters if each.name not in given)
        shape = self._shape(frozenset(given))
        limit = min(query.max_rows or limits.max_rows, limits.max_rows)
        statement = Statement(
            shape=shape,
            values={argument(name): value for name, value in (given | dict.fromkeys(absent)).items()},
            limit=1 if query.returns is Returns.ONE else limit,
            timeout=query.timeout,
        )
        return QueryCall(setting=self.setting, permitted=self.permitted, statement=statement)

    def _shape(self, present: frozenset[str]) -> QueryShape:
        permitted, body = self.permitted, self.permitted.query.body
        wanted = frozenset(at for at, clause in enumerate(body.clauses) if present.issuperset(clause.needs))
        if wanted not in self._shapes:
            limits = self.setting.limits
            one = permitted.query.returns is Returns.ONE
            cut = limits.max_bytes * READ_FOR_ONE if one else limits.max_cell
            self._shapes[wanted] = QueryShape(
                name=permitted.name,
                pieces=body.written(present).pieces,
                outputs=tuple(
                    Output(term=column, cut=cut if column.type.large else None)
                    for column in permitted.columns
                ),
                types=permitted.types,
                casts=permitted.casts,
                versions=permitted.versions,
            )
        return self._shapes[wanted]

    @cached_property
    def _shapes(self) -> dict[frozenset[int], QueryShape]:
        """The variants that have been called, by their clauses: they go with the tool and its catalog."""
        return {}


@dataclass(frozen=True, kw_only=True)
class QueryCall(Settled):
    """A call of a permitted query whose arguments have been read."""

    setting: Setting
    permitted: Permitted
    statement: Statement

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the rows that *found* holds, as many as fit."""
        if self.permitted.query.returns is Returns.ONE:
            return self._row(found)
        style, limits = self.setting.style, self.setting.limits
        names = [column.name for column in self.permitted.columns]
        page = fitted(found, names, style, limits, reserve=ENVELOPE)
        count = len(page.rows)
        truncated = found.more or count < len(found.rows)
        extra: dict[str, object] = {"note": self._note(capped=count < len(found.rows))} if truncated else {}
        structured, text = write(envelope(page, style, truncated=truncated, extra=extra), page, style)
        return Answer(structured=structured, text=text, rows=count, truncated=truncated)

    def _note(self, *, capped: bool) -> str:
        cap = "max_tokens" if capped else f"{self.statement.limit} rows"
        return f"Cut at {cap}: other arguments may find fewer."

    def _row(self, found: ResultSet) -> Answer:
        if not found.rows:
            raise errors.NoRow(f"{self.permitted.name} found no row.")
        names = [column.name for column in self.permitted.columns]
        style, limits = self.setting.style, self.setting.limits
        page = fitted(found, names, style, limits, reserve=ENVELOPE)
        content: dict[str, object] = {"row": dict(zip(names, page.rows[0], strict=True))}
        if found.more:
            content["note"] = "There is more than one row: this is the first."
        structured, text = write(content, None, style)
        return Answer(structured=structured, text=text, rows=1, truncated=found.more)


class FindArguments(Arguments):
    """Arguments of `find_queries`."""

    search: str = Field(default="", description="words of names and descriptions")


class RunArguments(Arguments):
    """Arguments of `run_query`."""

    example = '{"query": "top_customers", "arguments": {"since": "2024-01-01"}}'
    query: str
    arguments: Annotated[dict[str, object], Object] = Field(default={})


QUERIES_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "query_count": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "queries": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["query_count", "truncated", "queries"],
}


#: Of many rows or of one, as the query has it.
ANSWER_SCHEMA: Mapping[str, object] = {"type": "object"}


@dataclass(frozen=True, kw_only=True)
class FindQueries:
    """`find_queries`: the permitted queries, by words."""

    setting: Setting
    name: str = "find_queries"
    table: None = None

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return ToolDefinition(
            name=self.name,
            title="Find queries",
            description=(
                f"Find among the {len(self.setting.queries):,} prepared queries, with their arguments. "
                "run_query runs one: prefer it where one answers the question."
            ),
            input_schema=schema_of(FindArguments),
            output_schema=QUERIES_SCHEMA,
        )

    def bind(self, arguments: Mapping[str, object]) -> "FindCall":
        """Return the call that finds what *arguments* search for."""
        asked = read(FindArguments, arguments)
        return FindCall(setting=self.setting, search=asked.search.strip())


@dataclass(frozen=True, kw_only=True)
class FindCall(Settled):
    """A call of `find_queries` whose arguments have been read."""

    setting: Setting
    search: str
    statement: None = None

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the queries that match, as many as fit."""
        style, room = self.setting.style, self.setting.limits.max_bytes - ENVELOPE
        matching = _found(self.setting.queries, self.search)
        shown: list[object] = []
        for permitted in matching:
            entry = _entry(permitted)
            room -= size(entry) + 1
            if room < 0 and shown:
                break
            shown.append(entry)
        truncated = len(shown) < len(matching)
        content: dict[str, object] = {"query_count": len(matching), "truncated": truncated, "queries": shown}
        if not matching:
            names = [each.name for each in self.setting.queries]
            content["note"] = f"No query matches. {nearest(self.search, names)}Without search all are shown."
        elif truncated:
            content["note"] = "More queries: search for words of what you want."
        structured, text = write(content, None, style)
        return Answer(structured=structured, text=text, rows=len(shown), truncated=truncated)


def _found(queries: Sequence[Permitted], search: str) -> Sequence[Permitted]:
    """Return the *queries* that *search* finds, the best first: by all of its words before some."""
    words = words_of(search)
    if not words:
        return queries
    ranked = []
    for at, each in enumerate(queries):
        told = f"{each.query.title} {each.query.description}"
        fits = [found for word in words if (found := fit(word, each.name, told))]
        if fits:
            ranked.append((-len(fits), -sum(fits), at, each))
    return [each for *_, each in sorted(ranked, key=lambda each: each[:-1])]


def _entry(permitted: Permitted) -> dict[str, object]:
    query = permitted.query
    entry: dict[str, object] = {"query": query.name}
    if query.description:
        entry["description"] = cleaned(query.description, LONGEST_TEXT)
    if permitted.parameters:
        entry["arguments"] = {name: _shortened(each) for name, each in properties_of(permitted).items()}
    if required := required_of(permitted):
        entry["required"] = required
    return entry | {"columns": [column.name for column in permitted.columns]}


def _shortened(schema: dict[str, object]) -> dict[str, object]:
    """Return *schema* with a description that has its place in a list."""
    if "description" not in schema:
        return schema
    return schema | {"description": cleaned(str(schema["description"]), LONGEST_TEXT)}


@dataclass(frozen=True, kw_only=True)
class RunQuery:
    """`run_query`: a permitted query by its name."""

    setting: Setting
    tools: Mapping[str, QueryTool]
    name: str = "run_query"
    table: None = None

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return ToolDefinition(
            name=self.name,
            title="Run query",
            description="Run a prepared query by its name; find_queries tells names and arguments.",
            input_schema=schema_of(RunArguments),
            output_schema=ANSWER_SCHEMA,
        )

    def bind(self, arguments: Mapping[str, object]) -> QueryCall:
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
