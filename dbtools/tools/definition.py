"""What a tool is: its definition, what every tool of a role is made from, and the two steps of a call."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import ClassVar, NamedTuple, Protocol, Self

from dbtools import errors
from dbtools.catalog import Catalog, Column, Location, Table
from dbtools.cells import json_of, size
from dbtools.errors import listing, nearest
from dbtools.links import cell_uri
from dbtools.paging import digest
from dbtools.paths import Names, Paths
from dbtools.policy import Limits
from dbtools.queries import Permitted
from dbtools.results import Answer, Budget, Link, Reserve, ResultSet, Style
from dbtools.statement import Output, Statement
from dbtools.tools.arguments import DEFAULT_LIMIT, Arguments, narrowed_schema, schema_of
from dbtools.tools.wording import table_names
from dbtools.types import Family, quoted

BYTES_PER_TOKEN = 4  #: of definitions
#: The MIME type that the whole of a cell has, before its bytes are known; of other families it is text.
LINKED: Mapping[Family, str] = {
    Family.BYTES: "application/octet-stream",
    **dict.fromkeys((Family.JSON, Family.ARRAY, Family.OBJECT), "application/json"),
}
MOST_NAMES = 100  #: tables that a schema names


@dataclass(frozen=True, kw_only=True)
class ToolDefinition:
    """A tool as `tools/list` shows it. All tools of this release only read."""

    name: str
    title: str
    description: str
    input_schema: Mapping[str, object]
    output_schema: Mapping[str, object]

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
        # What only reads is neither destructive nor has it to say whether it is idempotent.
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def tokens_of(content: object) -> int:
    """Return about how many tokens *content* costs a model."""
    return tokens_in(size(content))


def tokens_in(length: int) -> int:
    """Return about how many tokens JSON of *length* bytes costs a model."""
    return -(-length // BYTES_PER_TOKEN)


@dataclass(frozen=True, kw_only=True)
class Change:
    """How the tools of a role differ from before: names, in the order in which they are listed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    resources: bool = False  #: whether the list of resources differs as well
    updated: tuple[str, ...] = ()  #: the addresses of resources that say something else

    @property
    def tools(self) -> bool:
        """Whether the list of tools differs."""
        return bool(self.added or self.changed or self.removed)

    def __bool__(self) -> bool:
        """Return whether there is any difference."""
        return self.tools or self.resources or bool(self.updated)


def change_of(before: Sequence[ToolDefinition], after: Sequence[ToolDefinition]) -> Change:
    """Return which tools *after* adds to those *before*, which it changes, and which it removes."""
    if before == after:
        return Change()
    old, new = ({each.name: each for each in definitions} for definitions in (before, after))
    return Change(
        added=tuple(name for name in new if name not in old),
        changed=tuple(name for name in new if name in old and new[name] != old[name]),
        removed=tuple(name for name in old if name not in new),
    )


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What every tool of one role is made from."""

    catalog: Catalog = field(repr=False)  #: asyncio writes the results of its tasks out
    limits: Limits = field(default_factory=Limits)
    style: Style = field(default_factory=Style)
    queries: tuple[Permitted, ...] = field(default=(), repr=False)  #: that the role may call

    def names(self, table: Table) -> Names:
        """Return what may be named of *table*."""
        return Names(table=table, paths=self.paths)

    def table(self, name: str, argument: str = "table") -> Table:
        """Return the one table that *name* means, or raise UnknownTable with the candidates."""
        catalog = self.catalog
        tables = catalog.named(name)
        if len(tables) == 1:
            return tables[0]
        if tables:
            message = f"{quoted(name)} is the name of {len(tables)} tables."
            hint = f"Name one of: {listing(map(catalog.label, tables))}."
        else:
            message = f"there is no table {quoted(name)}."
            hint = self._known_tables(name)
        raise errors.UnknownTable(f"{argument}: {message}", hint=hint)

    def _known_tables(self, name: str) -> str:
        """Return which tables there are, the one most like *name* first."""
        catalog, labels = self.catalog, self.labels
        bare = {table.name.lower() for table in catalog.tables}
        likest = get_close_matches(name.lower(), bare, n=1, cutoff=0.8)
        near = catalog.named(likest[0]) if likest else ()
        if len(near) > 1:
            return f"Did you mean one of: {listing(map(catalog.label, near))}?"
        known = f"Tables: {listing(labels) or 'none'}."
        if len(labels) > MOST_NAMES:
            known = f"There are {len(labels):,} tables: list_tables finds them."
        return f"{nearest(name, labels)}{known}"

    def link(
        self, table: Table, outputs: Sequence[Output], row: Sequence[object], column: Column
    ) -> Link | None:
        """Return the link to the whole cell of *column* in *row*, which was read as *outputs* of *table*."""
        at = {output.term: at for at, output in enumerate(outputs)}
        key = [row[at[each]] for each in table.key_columns()]
        uri = cell_uri(self.catalog.label(table), key, column.name)
        type = LINKED.get(column.type.family, "text/plain")
        return None if uri is None else Link(uri=uri, name=column.name, type=type)

    def schema(self, model: type[Arguments]) -> Mapping[str, object]:
        """Return the JSON Schema of *model*, with `table`, `tables` and `limit` narrowed to this setting."""
        schema, fields, most = schema_of(model), model.model_fields, self.limits.max_rows
        if "table" in fields:
            schema = narrowed_schema(schema, ("properties", "table"), self.table_schema)
        if "tables" in fields:
            schema = narrowed_schema(schema, ("properties", "tables", "items"), self.table_schema)
        if "limit" in fields:
            limit = {"type": "integer", "minimum": 1, "maximum": most, "default": min(DEFAULT_LIMIT, most)}
            schema = narrowed_schema(schema, ("properties", "limit"), limit)
        return schema

    @property
    def table_schema(self) -> Mapping[str, object]:
        """The schema of a table's name: which there are, or how many and a digest of what they are."""
        labels = self.labels
        if len(labels) <= MOST_NAMES:
            return {"type": "string", "enum": list(labels)} if labels else {"type": "string"}
        told = f"one of {len(labels):,}, see list_tables (schema {self.digest})"
        return {"type": "string", "description": told}

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of all tables, each the shortest that means only this one."""
        return tuple(map(self.catalog.label, self.catalog.tables))

    @cached_property
    def digest(self) -> str:
        """A short name of all that is told of the tables, by which a definition changes when they do."""
        return digest(*(_told(table) for table in self.catalog.tables))

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
            names.update((table.schema, table.name, *table.column_by_name, *self.paths.relations(table)))
        return frozenset(names)

    @cached_property
    def budgets(self) -> Mapping[Reserve, Budget]:
        """The budgets of answers, by what each reserves."""
        return {each: Budget(limits=self.limits, style=self.style, reserved=each) for each in Reserve}

    @cached_property
    def tool_names(self) -> Mapping[Location, str]:
        """The part T of the names of each table's tools."""
        return table_names(self.catalog)


def _told(table: Table) -> object:
    columns = [
        (each.name, each.type.name, each.nullable, each.default, each.generated, each.comment)
        for each in table.columns
    ]
    values = [(each.choices, each.type.labels, each.minimum, each.maximum) for each in table.columns]
    # A dataclass is written with all of its fields.
    keys = (table.keys, table.foreign_keys)
    return (table.schema, table.name, table.kind, table.comment, columns, values, *keys)


class Call(Protocol):
    """A call whose arguments have been read."""

    @property
    def statement(self) -> Statement | None:
        """What to ask the database; None where the catalog has the answer."""

    def inquire(self, found: ResultSet) -> Sequence[Statement]:
        """Return what else to ask, where *found* wants an explanation."""

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the answer that the rows *found* make; *further* is what the inquiries brought."""


class Settled(NamedTuple):
    """A call that its one statement answers or, without one, the catalog."""

    answer: Callable[[ResultSet], Answer]
    statement: Statement | None = None

    def inquire(self, found: ResultSet) -> Sequence[Statement]:
        """Return nothing."""
        return ()

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the answer."""
        return self.answer(found)


class Tool(Protocol):
    """Something that a model can call."""

    @property
    def name(self) -> str:
        """The name by which it is called."""

    @property
    def table(self) -> Table | None:
        """The table that it is for; None where it is for any."""

    @property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""

    def bind(self, arguments: Mapping[str, object]) -> Call:
        """Return the call that *arguments* mean, or raise a CallError."""


Toolset = Mapping[str, Tool]


@dataclass(frozen=True, kw_only=True)
class GeneralTool:
    """A tool for any table or any query. Each kind says how it is listed, and binds its calls."""

    name: ClassVar[str]
    title: ClassVar[str]
    arguments: ClassVar[type[Arguments]]
    output_schema: ClassVar[Mapping[str, object]]
    table: ClassVar[None] = None
    setting: Setting

    @property
    def description(self) -> str:
        """The description that a model reads."""
        raise NotImplementedError

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return ToolDefinition(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=self.setting.schema(self.arguments),
            output_schema=self.output_schema,
        )

    @classmethod
    def define(cls, setting: Setting) -> Iterator[Self]:
        """Yield the one tool of its kind."""
        yield cls(setting=setting)


@dataclass(frozen=True, kw_only=True)
class TableTool:
    """A tool for one table. Each kind says how it is listed, and binds its calls."""

    prefix: ClassVar[str]
    setting: Setting
    names: Names

    @property
    def table(self) -> Table:
        """The table that it is for."""
        return self.names.table

    @property
    def name(self) -> str:
        """The name of the tool."""
        return f"{self.prefix}_{self.setting.tool_names[self.table.location]}"


def content_schema(required: Mapping[str, object], **optional: object) -> Mapping[str, object]:
    """Return the schema of structured content that has the *required* properties, and may have others."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


INTEGER = {"type": "integer"}
BOOLEAN = {"type": "boolean"}
STRING = {"type": "string"}
ARRAY = {"type": "array"}
OBJECT = {"type": "object"}
ENTRIES = {"type": "array", "items": OBJECT}
TABLES = {"table_count": INTEGER, "truncated": BOOLEAN, "tables": ENTRIES}
ROWS = {"row_count": INTEGER, "truncated": BOOLEAN, "columns": ARRAY, "rows": ARRAY}
ROWS_SCHEMA = content_schema(ROWS, next_cursor=STRING)
ROW_SCHEMA = content_schema({"row": OBJECT}, note=STRING)
