"""What all tools share: the context of a role's tools, their definitions, and how they bind calls."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import ClassVar

from dbtools import errors
from dbtools.answers.results import Answer, Budget, Link, Reserve
from dbtools.answers.styles import Surface, Text
from dbtools.errors import did_you_mean, listing
from dbtools.policy.roles import Limits
from dbtools.queries import Permitted
from dbtools.schema.catalog import Catalog, Column, Table
from dbtools.schema.paths import Names, Paths
from dbtools.schema.uris import cell_uri
from dbtools.statements.paging import digest
from dbtools.statements.select import Output
from dbtools.tools.arguments import (
    DEFAULT_LIMIT,
    TEXTS,
    Arguments,
    ArgumentsT,
    Schema,
    arguments_schema,
    read,
    schema_of,
)
from dbtools.tools.calls import Call
from dbtools.tools.wording import LONGEST_LABEL, cut_description, tidy
from dbtools.values.cells import escape, json_of, size
from dbtools.values.types import STRING, Family, choices_schema, quote

BYTES_PER_TOKEN = 4  #: of definitions
#: The MIME type of a whole cell, while its bytes are unknown; text for other families.
LINKED: Mapping[Family, str] = {
    Family.BYTES: "application/octet-stream",
    **dict.fromkeys((Family.JSON, Family.ARRAY, Family.OBJECT), "application/json"),
}
MOST_NAMES = 100  #: of tables in a schema
#: The annotations of tools that only read: the other hints are for tools that write.
READS: Mapping[str, bool] = {"readOnlyHint": True, "openWorldHint": False}


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool as `tools/list` shows it."""

    name: str
    title: str
    description: str
    input_schema: Schema
    output_schema: Mapping[str, object]
    annotations: Mapping[str, bool] = field(default_factory=lambda: READS)

    @cached_property
    def json(self) -> bytes:
        """The definition as `tools/list` shows it."""
        return json_of(tool_content(self)).encode()


def tool_content(definition: ToolDefinition) -> dict[str, object]:
    """Return *definition* as `tools/list` shows it (MCP 2026-07-28, server/tools)."""
    return {
        "name": definition.name,
        "title": definition.title,
        "description": definition.description,
        "inputSchema": definition.input_schema,
        "outputSchema": definition.output_schema,
        "annotations": definition.annotations,
    }


def tokens_of(content: object) -> int:
    """Estimate the tokens that *content* costs a model."""
    return tokens_in(size(content))


def tokens_in(length: int) -> int:
    """Estimate the tokens that JSON of *length* bytes costs a model."""
    return -(-length // BYTES_PER_TOKEN)


@dataclass(frozen=True, kw_only=True)
class ListChange:
    """The changes to the tools of a role, by name and in the order of the list."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    resources: bool = False  #: whether the list of resources differs
    updated: tuple[str, ...] = ()  #: the URIs of resources whose content changed

    @property
    def tools(self) -> bool:
        """Whether the list of tools differs."""
        return bool(self.added or self.changed or self.removed)

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return self.tools or self.resources or bool(self.updated)


def compare(before: Sequence[ToolDefinition], after: Sequence[ToolDefinition]) -> ListChange:
    """Compare the tools *before* and *after* a change."""
    if before == after:
        return ListChange()
    old, new = ({each.name: each for each in definitions} for definitions in (before, after))
    return ListChange(
        added=tuple(name for name in new if name not in old),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
        removed=tuple(name for name in old if name not in new),
    )


@dataclass(frozen=True, kw_only=True)
class ToolContext:
    """Everything from which the tools of one role are defined."""

    catalog: Catalog = field(repr=False)  #: not in repr, which asyncio logs for the results of tasks
    limits: Limits = field(default_factory=Limits)
    text: Text = Text.JSON
    queries: tuple[Permitted, ...] = field(default=(), repr=False)  #: that the role may call
    #: Whether the database keeps idempotency keys and used confirmations; None: not known so far.
    journal: bool | None = False
    server: str = ""  #: the database and version whose SQL callers may run; empty: they may not

    def names(self, table: Table) -> Names:
        """Return the names that arguments may use for *table*."""
        return Names(table=table, paths=self.paths)

    def table(self, name: str, argument: str = "table") -> Table:
        """Return the only table that matches *name*, or raise UnknownTable with the candidates."""
        catalog = self.catalog
        tables = catalog.find_tables(name)
        if len(tables) == 1:
            return tables[0]
        if tables:
            message = f"{quote(name)} is ambiguous: {len(tables)} tables have this name."
            hint = f"Use one of: {listing(map(catalog.label, tables))}."
        else:
            message = f"there is no table {quote(name)}."
            many = len(self.labels) > MOST_NAMES
            known = f"There are {len(self.labels):,} tables: list_tables finds them."
            known = known if many else f"Tables: {listing(self.labels) or 'none'}."
            hint = f"{did_you_mean(name, self.labels)}{known}"
        raise errors.UnknownTable(f"{argument}: {message}", hint=hint)

    def title_of(self, table: Table) -> str:
        """Return the name of *table* as a part of a title."""
        return tidy(self.catalog.label(table), LONGEST_LABEL)

    def read(self, model: type[ArgumentsT], arguments: Mapping[str, object]) -> ArgumentsT:
        """Validate *arguments* as *model*, with the maximum number of rows of the role."""
        return read(model, arguments, max_rows=self.limits.max_rows)

    def link(
        self, table: Table, outputs: Sequence[Output], row: Sequence[object], column: Column
    ) -> Link | None:
        """Return the link to the whole cell of *column* in *row*, the *outputs* of *table*."""
        at = {output.term: at for at, output in enumerate(outputs)}
        key = [row[at[each]] for each in table.key_columns]
        uri = cell_uri(self.catalog.label(table), key, column.name)
        type = LINKED.get(column.type.family, "text/plain")
        return None if uri is None else Link(uri=uri, name=column.name, type=type)

    def schema(
        self,
        model: type[Arguments],
        of: Table | None = None,
        labels: Sequence[str] | None = None,
        **instead: Mapping[str, object] | None,
    ) -> Schema:
        """Return the JSON Schema of *model*, for all tables, or for the table *of* only.

        *labels*: the tables to choose from, by default all. *instead*: other schemas of arguments, None for
        one to omit.
        """
        tables = (of,) if of else self.catalog.tables
        searches, relates = any(each.searchable for each in tables), any(map(self.paths.referrers, tables))
        schema, most = schema_of(model, searches=searches, relates=relates), self.limits.max_rows
        table = self._table_schema(self.labels if labels is None else labels)
        limit = {"maximum": most, "default": min(DEFAULT_LIMIT, most)}
        narrowed = {"table": table, "tables": {"items": table}, "limit": limit}
        own = {name: {**each, **narrowed.get(name, {})} for name, each in schema["properties"].items()}
        shown = {name: each for name, each in {**own, **instead}.items() if each is not None}
        return arguments_schema(shown, [name for name in schema.get("required", ()) if name in shown])

    def _table_schema(self, labels: Sequence[str]) -> Mapping[str, object]:
        """Return the schema of one of the names *labels*: an enum, or their number and a digest."""
        if len(labels) <= MOST_NAMES:
            return {**STRING, **choices_schema(labels)}
        description = f"one of {len(labels):,}, see list_tables (schema {self.digest})"
        return {"type": "string", "description": description}

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The shortest unique name of each table."""
        return tuple(map(self.catalog.label, self.catalog.tables))

    @cached_property
    def fingerprints(self) -> Mapping[str, str]:
        """A digest of the description of each table, without its row estimate, by label."""
        catalog = self.catalog
        referring = (catalog.references(table) for table in catalog.tables)
        return {
            label: digest(_cache_key(table), [(other.location, key) for other, key in references])
            for label, table, references in zip(self.labels, catalog.tables, referring, strict=True)
        }

    @cached_property
    def digest(self) -> str:
        """A digest of all tables: a definition that contains it changes whenever they do."""
        return digest(*self.fingerprints.values())

    @cached_property
    def paths(self) -> Paths:
        """The paths between the tables."""
        return Paths(self.catalog)

    @cached_property
    def vocabulary(self) -> frozenset[str]:
        """The names of the tables, columns, relations, queries and their arguments."""
        names: set[str] = set()
        for query in self.queries:
            names.update((query.name, *(parameter.name for parameter in query.parameters)))
        for table in self.catalog.tables:
            related = (*self.paths.relations(table), *self.paths.referrers(table))
            names.update((table.schema, table.name, *table.column_by_name, *related))
        return frozenset(names)

    @cached_property
    def budgets(self) -> Mapping[Reserve, Budget]:
        """The budgets of answers, by what they reserve."""
        return {each: Budget(limits=self.limits, text=self.text, reserved=each) for each in Reserve}


def _cache_key(table: Table) -> object:
    columns = [
        (each.name, each.type.name, each.nullable, each.default, each.generated, each.comment)
        for each in table.columns
    ]
    values = [(each.choices, each.type.labels, each.minimum, each.maximum) for each in table.columns]
    keys = (table.keys, table.foreign_keys, *filter(None, [table.definition]))
    others = [*filter(None, [[*table.searchable]]), *table.withheld]
    writes = table.writes
    changes = [[_names(writes.insert), _names(writes.update), writes.delete]] if writes is not None else []
    return (table.schema, table.name, table.kind, table.comment, columns, values, keys, *others, *changes)


def _names(columns: Iterable[Column] | None) -> Sequence[str] | None:
    return None if columns is None else [column.name for column in columns]


class ToolGroup(StrEnum):
    """A group of typed tools: either all of them are listed, or generic tools instead."""

    QUERIES = "queries"
    TABLES = "tables"
    WRITES = "writes"


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """A tool. Each kind has a definition and binds its calls."""

    context: ToolContext
    table: Table | None = None  #: None: any table, or a query
    group: ClassVar[ToolGroup | None] = ToolGroup.TABLES  #: None: always listed, beside the budget

    @property
    def surface(self) -> Surface | None:
        """Whether it is listed with the typed tools of its group or instead of them; None: always."""
        return None

    @property
    def name(self) -> str:
        """The name by which it is called."""
        raise NotImplementedError

    @property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        raise NotImplementedError

    def bind(self, arguments: Mapping[str, object]) -> Call[Answer]:
        """Bind *arguments* to a call, or raise a CallError."""
        raise NotImplementedError

    def definition_of(
        self,
        description: str,
        arguments: type[Arguments] | Schema,
        answers: Mapping[str, object],
        title: str = "",
        annotations: Mapping[str, bool] = READS,
    ) -> ToolDefinition:
        """Return the definition; *arguments* and *answers* are schemas."""
        return ToolDefinition(
            name=self.name,
            title=escape(title or self.name.replace("_", " ").capitalize()),
            description=cut_description(escape(description)),
            input_schema=self.context.schema(arguments, self.table)
            if isinstance(arguments, type)
            else arguments,
            output_schema=answers,
            annotations=annotations,
        )

    @classmethod
    def define(cls, context: ToolContext) -> Iterator["Tool"]:
        """Yield the tools of this kind."""
        yield cls(context=context)


Toolset = Mapping[str, Tool]


class TableTool(Tool):
    """A tool for one table, or for any table as an argument."""

    prefix: ClassVar[str]  #: of the names of typed tools
    general_name: ClassVar[str]  #: of the generic tool

    @property
    def surface(self) -> Surface | None:
        """The surface on which it is listed; None: both."""
        return Surface.GENERIC if self.table is None else Surface.TYPED

    @property
    def name(self) -> str:
        """The name by which it is called."""
        names = self.context.paths.table_names
        return self.general_name if self.table is None else f"{self.prefix}_{names[self.table.location]}"

    @classmethod
    def suits(cls, table: Table) -> bool:
        """Return whether *table* can have this kind of tool."""
        return True

    @classmethod
    def define(cls, context: ToolContext) -> Iterator[Tool]:
        """Yield the generic tool, then the tool of each table."""
        yield cls(context=context)
        yield from (cls(context=context, table=each) for each in context.catalog.tables if cls.suits(each))


def content_schema(required: Mapping[str, object], **optional: object) -> Mapping[str, object]:
    """Return the schema of structured content with *required* properties; it may have others."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def entries_schema(name: str) -> Mapping[str, object]:
    """Return the schema of objects that each have a *name*, and more."""
    return {"type": "array", "items": {"type": "object", "properties": {name: STRING}}}


INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}
ANY: Mapping[str, object] = {}  #: of cells, which may have any type
ARRAY = {"type": "array", "items": ANY}
TABLES = {"table_count": INTEGER, "truncated": BOOLEAN, "tables": entries_schema("name")}
ROWS = {"row_count": INTEGER, "truncated": BOOLEAN, "columns": TEXTS, "rows": ARRAY}
ROWS_SCHEMA = content_schema(ROWS, next_cursor=STRING)
ROW_SCHEMA = content_schema({"row": ANY})
