"""The tools of permitted queries: one for each, and `find_queries` and `run_query` for all of them.

The header of a query determines both the advertised schema and how arguments are read.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Column
from dbtools.errors import listing, nearest
from dbtools.queries import Permitted, QueryParameter, Returns
from dbtools.queries.headers import check_value, defaults_of
from dbtools.results import Answer, Reserve, ResultSet
from dbtools.statement import Output, QueryShape, Statement, argument
from dbtools.styles import Rows, Surface
from dbtools.tools.arguments import Arguments, Object, as_text, check, named, read, unknown_argument
from dbtools.tools.definition import (
    BOOLEAN,
    ENTRIES,
    INTEGER,
    OBJECT,
    STRING,
    Setting,
    SingleCall,
    Tool,
    ToolDefinition,
    ToolGroup,
    content_schema,
)
from dbtools.tools.list_tables import best_first
from dbtools.tools.wording import cleaned, sentences, without_empty
from dbtools.types import SAFE_INTEGER, ColumnType, Family, quoted

NAMES = ("find_queries", "run_query")  #: of the generic tools
#: Characters to read of a cell for each byte of its row: white space in JSON is not shown.
READ_FOR_ONE = 4
LONGEST_TEXT = 200  #: characters of a description in a list
#: The schemas of cells; others are strings.
SHOWN: Mapping[Family, tuple[str, ...]] = {
    Family.INTEGER: ("integer",),
    Family.NUMBER: ("number", "string"),  # NaN and infinities
    Family.BOOLEAN: ("boolean",),
    Family.ARRAY: ("array", "string"),  # a string if it is cut
    Family.OBJECT: ("object", "string"),
}
NUMBERS = (Family.INTEGER, Family.NUMBER)  #: numbers in JSON
#: The forms of values that the schema does not describe.
FORMS: Mapping[Family, str] = {
    Family.DECIMAL: "decimal number",
    Family.TIME: "time such as 14:30",
    Family.TIMESTAMPTZ: "date and time such as 2024-03-05T14:30:00",
    Family.JSON: "any JSON; a text is read as JSON",
}


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
        schema = {"type": "object", **_arguments_schema(self.permitted), "additionalProperties": False}
        description = sentences(query.description.rstrip(), shown)
        return self.defined(description, schema, self._answers(), query.title)

    def _answers(self) -> Mapping[str, object]:
        """Return the schema of its answers, with the type of each column."""
        columns = self.permitted.columns
        row: dict[str, object] = {
            "type": "object",
            "properties": {column.name: _cell_schema(column) for column in columns},
        }
        if self.permitted.query.returns is Returns.ONE:
            return content_schema({"row": row}, note=STRING)
        if self.setting.style.rows is Rows.ARRAYS:
            row = {"type": "array", "prefixItems": [_cell_schema(each) for each in columns]}
        # A query has no pages: if rows are left out, a note says what to do.
        arrays = {"columns": {"type": "array", "items": STRING}, "rows": {"type": "array", "items": row}}
        return content_schema({"row_count": INTEGER, "truncated": BOOLEAN, **arrays}, note=STRING)

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Bind *arguments* to a call of the query."""
        query, limits = self.permitted.query, self.setting.limits
        given = dict(_values(self.permitted, arguments))
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
        """Render the rows *found*, as many as fit, of at most *limit*."""
        one = self.permitted.query.returns is Returns.ONE
        if one and not found.rows:
            raise errors.NoRow(f"{self.name} found no row.")
        budget = self.setting.budgets[Reserve.QUERY]
        page = budget.page(found, [column.name for column in self.permitted.columns])
        if not one:
            cap = "max_tokens" if page.capped else f"{limit} rows"
            note = f"Cut at {cap}: other arguments may find fewer." if page.truncated else ""
            return budget.rows_answer(page, note=note)
        note = "More rows: this is the first." if found.more else ""
        row = dict(zip(page.table.columns, page.table.rows[0], strict=True))
        return budget.answer({"row": row}, rows=1, truncated=found.more, note=note)


def _cell_schema(column: Column) -> dict[str, object]:
    """Return the schema of the cells of *column*: exact if the database enforces types."""
    if column.type.lenient or column.type.family in (Family.ANY, Family.JSON):
        return {}
    types = SHOWN.get(column.type.family, ("string",))
    most = column.type.maximum
    if column.type.family is Family.INTEGER and (most is None or most > SAFE_INTEGER):
        types = ("integer", "string")  # some JSON parsers cannot read greater integers
    types = (*types, "null") if column.nullable else types
    return {"type": types[0] if len(types) == 1 else list(types)}


def _arguments_schema(permitted: Permitted) -> dict[str, object]:
    """Describe the arguments of *permitted*."""
    properties = {each.name: _schema(each, permitted.types[each.name]) for each in permitted.parameters}
    required = [each.name for each in permitted.parameters if each.required]
    return {"properties": properties} | ({"required": required} if required else {})


def _schema(parameter: QueryParameter, type: ColumnType) -> dict[str, object]:
    declared = parameter.type
    item = declared.schema()
    element = type.element if parameter.array and type.element is not None else type
    choices = parameter.choices or element.labels
    if choices:
        item["enum"] = [_shown(each, declared) for each in choices]
    notes = [FORMS[declared.family]] if declared.family in FORMS else []
    for key, bound in (("minimum", parameter.minimum), ("maximum", parameter.maximum)):
        if bound is not None and declared.family in NUMBERS:
            item[key] = _shown(bound, declared)
        elif bound is not None:
            notes.append(f"{key} {bound}")
    if parameter.pattern is not None:
        item["pattern"] = parameter.pattern
    schema: dict[str, object] = {"type": "array", "items": item} if parameter.array else item
    if parameter.default is not None:
        shown = [_shown(each, declared) for each in defaults_of(parameter)]
        schema["default"] = shown if parameter.array else shown[0]
    description = sentences(parameter.description, "; ".join(notes))
    return schema | ({"description": description} if description else {})


def _shown(text: str, type: ColumnType) -> object:
    """Return the JSON value of *text* as *type*."""
    value = json.loads(text) if type.family is Family.JSON else type.read(text)
    # A text argument is parsed as JSON, so a JSON string keeps its quotes.
    return text if isinstance(value, str) else value


def _values(permitted: Permitted, arguments: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the names and values of parameters that are given or have a default, or raise a CallError."""
    check(arguments)
    known = [each.name for each in permitted.parameters]
    for name in arguments:
        if name not in known:
            raise unknown_argument(name, known)
    for parameter in permitted.parameters:
        name, type = parameter.name, permitted.types[parameter.name]
        texts = _texts(parameter, arguments.get(name))
        if texts is not None and parameter.array:
            element = type.element or type
            yield name, [_value(each, parameter, element, f"{name}[{at}]") for at, each in enumerate(texts)]
        elif texts is not None:
            yield name, _value(texts[0], parameter, type, name)


def _texts(parameter: QueryParameter, given: object) -> Sequence[str] | None:
    """Return the *given* value or items of *parameter* as texts, or its default."""
    if given is None or (given == "" and not parameter.required):
        if parameter.required:
            raise errors.BadArgument(f"{parameter.name} is missing.", hint=_wants(parameter))
        return None if parameter.default is None else list(defaults_of(parameter))
    if not parameter.array:
        return [_text(given, parameter.type, parameter.name)]
    items = _items(given, parameter)
    return [_text(each, parameter.type, f"{parameter.name}[{at}]") for at, each in enumerate(items)]


def _wants(parameter: QueryParameter) -> str:
    """Describe *parameter* and its values."""
    bounds = {"at least": parameter.minimum, "at most": parameter.maximum, "matching": parameter.pattern}
    bounds["one of"] = listing(parameter.choices)
    type = f"It is {parameter.type.name}{'[]' if parameter.array else ''}"
    parts = ", ".join([type, *(f"{words} {bound}" for words, bound in bounds.items() if bound)])
    return f"{parts}: {parameter.description}".rstrip(": .") + "."


def _items(given: object, parameter: QueryParameter) -> Sequence[object]:
    """Return *given* as an array: it may be one, the JSON of one, or a single item."""
    if isinstance(given, str) and given.lstrip().startswith("["):
        # Keep numbers as written: a double would lose digits of a decimal number.
        is_decimal = parameter.type.family is Family.DECIMAL
        with suppress(ValueError, RecursionError):
            given = json.loads(given, parse_float=str if is_decimal else float)
            check({parameter.name: given})
    return given if isinstance(given, list | tuple) else [given]


def _text(given: object, type: ColumnType, place: str) -> str:
    if type.family is Family.JSON and not isinstance(given, str):
        return json.dumps(given)
    if isinstance(given, float) and given.is_integer() and type.family is Family.INTEGER:
        return str(int(given))
    text = as_text(given)
    if not isinstance(text, str):
        raise errors.BadArgument(f"{place}: must be one {type.name}, not {named(text)}.")
    if not type.trims:
        return text
    return text.strip().lower() if type.family is Family.BOOLEAN else text.strip().removeprefix("+")


def _value(text: str, parameter: QueryParameter, type: ColumnType, place: str) -> object:
    """Decode *text* as *type*, which the database has for *parameter*."""
    declared = parameter.type.decode(text, f"{place}: ")
    try:
        check_value(place, text, parameter)
    except ValueError as exc:
        hint = f"{nearest(text, parameter.choices)}{_wants(parameter)}"
        raise errors.BadValue(f"{place}: {quoted(text)} is not allowed.", hint=hint) from exc
    if type.family is Family.ANY:
        return text if isinstance(declared, str) else declared
    value = type.decode(text, f"{place}: ")
    # In a database without types for dates, the query compares texts, in the form that its tables use.
    return text if type.lenient and type.family is Family.TIMESTAMP else value


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
    """`find_queries`: search permitted queries."""

    name = "find_queries"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        description = (
            f"Search the {len(self.setting.queries):,} saved queries, with their arguments; run_query "
            "runs one. Prefer a saved query that answers the question."
        )
        return self.defined(description, FindArguments, QUERIES_SCHEMA)

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Bind a search to a call."""
        asked = read(FindArguments, arguments)
        return SingleCall(answer=lambda _: self._answer(asked.search.strip()))

    def _answer(self, search: str) -> Answer:
        """Render the matching queries, as many as fit."""
        budget = self.setting.budgets[Reserve.QUERY]
        matching = best_first(search, self.setting.queries, _searched) if search else self.setting.queries
        shown = budget.entries(map(_entry, matching))
        truncated = len(shown) < len(matching)
        content: dict[str, object] = {"query_count": len(matching), "truncated": truncated, "queries": shown}
        note = "More queries: search for words." if truncated else ""
        if not matching:
            names = [each.name for each in self.setting.queries]
            note = f"No query matches. {nearest(search, names)}Without search all are shown."
        return budget.answer(content, rows=len(shown), truncated=truncated, note=note)


def _searched(permitted: Permitted) -> tuple[Sequence[str], str]:
    return (permitted.name,), f"{permitted.query.title} {permitted.query.description}"


def _entry(permitted: Permitted) -> dict[str, object]:
    schema = _arguments_schema(permitted)
    return without_empty(
        query=permitted.name,
        description=cleaned(permitted.query.description, LONGEST_TEXT),
        arguments=schema["properties"],
        required=schema.get("required"),
        columns=[column.name for column in permitted.columns],
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
        # Whether an answer has one row or many depends on the query.
        return self.defined(description, RunArguments, OBJECT)

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Bind *arguments* to a call of the query that they name."""
        asked = read(RunArguments, arguments)
        tool = self.tools.get(asked.query)
        if tool is None:
            raise errors.BadArgument(
                f"query: there is no query {quoted(asked.query)}.",
                hint=f"{nearest(asked.query, self.tools)}Queries: {listing(self.tools)}.",
            )
        return tool.bind(asked.arguments)


def define(setting: Setting) -> Iterator[Tool]:
    """Yield the tools of the permitted queries of *setting*."""
    tools = {each.name: QueryTool(setting=setting, permitted=each) for each in setting.queries}
    if tools:
        yield FindQueries(setting=setting)
        yield RunQuery(setting=setting, tools=tools)
        yield from tools.values()
