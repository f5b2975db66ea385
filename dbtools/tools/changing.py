"""What the tools that change rows share: how values are described and read, and the answer."""

import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, TypeVar

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Catalog, Column, Table, Writes
from dbtools.changes import KEPT, KEPT_IN_MEMORY, Transaction, Write, WriteShape, assigned
from dbtools.errors import listing, nearest
from dbtools.paths import folded
from dbtools.queries.headers import OF_CHANGES
from dbtools.statement import Output
from dbtools.tools.arguments import (
    Arguments,
    Object,
    Schema,
    as_json,
    as_text,
    named,
    read,
    unknown_argument,
    unknown_column,
)
from dbtools.tools.change_calls import ChangeCall
from dbtools.tools.definition import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    STRING,
    TableTool,
    Tool,
    ToolContext,
    ToolGroup,
    content_schema,
)
from dbtools.tools.list_rows import shown_outputs
from dbtools.tools.wording import relation_targets, shown_default
from dbtools.types import ColumnType, Family, quoted

CHANGES = content_schema(
    {"affected": INTEGER},
    dry_run=BOOLEAN,
    columns=ARRAY,
    rows=ARRAY,
    before=ARRAY,
)
LONGEST_KEY = 200  #: characters of an idempotency key
Values = Annotated[dict[str, object], Object]


class ChangeArguments(Arguments):
    """Arguments of every change, as `change_schemas` lists them."""

    dry_run: bool = False
    idempotency_key: str = Field(default="", max_length=LONGEST_KEY)
    confirm: str = Field(default="", max_length=LONGEST_KEY)


class TableChangeArguments(ChangeArguments):
    """Arguments of every tool that changes rows of a table; typed tools supply the table."""

    table: str


def effects(*, destroys: bool, repeats: bool) -> Mapping[str, bool]:
    """Return the annotations of a tool; *repeats*: a repeated call has no further effect."""
    return {
        "readOnlyHint": False,
        "destructiveHint": destroys,
        "idempotentHint": repeats,
        "openWorldHint": False,
    }


def change_schemas(context: ToolContext, *, confirms: bool) -> Mapping[str, Mapping[str, object]]:
    """Return the schemas of the arguments of every change; *confirms*: `confirm` is among them."""
    in_memory = f"{KEPT_IN_MEMORY // 60} minutes on this server"
    kept = f"{KEPT // 3_600} hours" if context.journal else in_memory
    shown = {
        "dry_run": {"description": "preview, change nothing", **BOOLEAN},
        "idempotency_key": {"description": f"makes the change once per key, for {kept}", **STRING},
    }
    token = {"description": "token from the answer that asks for it", **STRING}
    return shown | ({"confirm": token} if confirms else {})


TableChangeT = TypeVar("TableChangeT", bound=TableChangeArguments)


class ChangeTool(TableTool):
    """A tool that changes rows of one table, or of any table that the role may change in this way."""

    group = ToolGroup.WRITES

    @classmethod
    @abstractmethod
    def grants(cls, writes: Writes) -> bool:
        """Return whether *writes* include this kind of change."""

    @classmethod
    def suits(cls, table: Table) -> bool:
        """Return whether the role may change *table* in this way."""
        return table.writes is not None and cls.grants(table.writes)

    @classmethod
    def define(cls, context: ToolContext) -> Iterator[Tool]:
        """Yield the generic tool and those of tables, if there are any."""
        if any(map(cls.suits, context.catalog.tables)):
            yield from super().define(context)

    @property
    def writes(self) -> Sequence[Writes]:
        """What the role may change in the tables that the tool is for."""
        tables = self.context.catalog.tables if self.table is None else (self.table,)
        return [table.writes for table in tables if table.writes is not None and self.suits(table)]

    def schema(self, model: type[TableChangeArguments], **instead: Mapping[str, object] | None) -> Schema:
        """Return the JSON Schema of *model*; *instead*: other schemas of arguments, None for one to omit.

        The arguments of every change come last, `confirm` only if a table needs it.
        """
        schema = self.context.schema(model, self.table, self.labels() if self.table is None else ())
        own = {name: each for name, each in schema["properties"].items() if name not in OF_CHANGES}
        if self.table is not None:
            del own["table"]
        confirms = any(writes.confirm for writes in self.writes)
        properties = {**own, **instead, **change_schemas(self.context, confirms=confirms)}
        shown = {name: each for name, each in properties.items() if each is not None}
        return {
            **schema,
            "properties": shown,
            "required": [each for each in schema["required"] if each in shown],
        }

    def read(self, model: type[TableChangeT], arguments: Mapping[str, object]) -> TableChangeT:
        """Validate *arguments* as *model*; hints name only the arguments that the definition lists."""
        listed = list(self.definition.input_schema["properties"])
        if self.table is None:
            return read(model, arguments, listed=listed)
        if "table" in arguments:
            raise unknown_argument("table", listed)
        return read(model, {**arguments, "table": self.context.catalog.label(self.table)}, listed=listed)

    def labels(self) -> list[str]:
        """Return the labels of the tables that the role may change in this way."""
        catalog = self.context.catalog
        return [catalog.label(table) for table in catalog.tables if self.suits(table)]

    def call(
        self,
        table: Table,
        writes: Sequence[tuple[Write, Mapping[str, object]]],
        asked: TableChangeArguments,
        *,
        missing: str = "",
        meanings: str = "",
    ) -> ChangeCall:
        """Return the call that runs *writes* on *table*, as *asked*."""
        confirms, what = granted_writes(table).confirm, f"a change of {table.name}"
        transaction = transaction_of(writes, asked, confirms=confirms, what=what, missing=missing)
        return ChangeCall(context=self.context, table=table, transaction=transaction, meanings=meanings)

    def target(self, name: str) -> Table:
        """Return the table *name*, or raise a CallError if the role may not change it in this way."""
        table = self.context.table(name)
        if not self.suits(table):
            may = f"Tables: {listing(self.labels())}."
            raise errors.Denied(f"{self.general_name} is not granted for {table.name}.", hint=may)
        return table


def granted_writes(table: Table) -> Writes:
    """Return what the role may change in *table*, which suits a tool."""
    assert table.writes is not None
    return table.writes


def row_schema(
    catalog: Catalog, table: Table, columns: Sequence[Column], required: Sequence[str]
) -> Mapping[str, object]:
    """Return the JSON Schema of values for *columns* of *table*."""
    targets = relation_targets(catalog, table)
    properties = {each.name: _value_schema(each, targets.get(each.name, "")) for each in columns}
    needs = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needs, "additionalProperties": False}


def _value_schema(column: Column, target: str) -> Mapping[str, object]:
    type = column.type
    schema: dict[str, object] = {"type": "array"} if type.family is Family.ARRAY else type.schema()
    if column.choices and "enum" not in schema and schema.get("type") == "string":
        schema["enum"] = list(column.choices)
    if type.family is Family.INTEGER:
        bounds = (("minimum", column.minimum), ("maximum", column.maximum))
        schema |= {key: int(text) for key, text in bounds if text and text.lstrip("-").isdigit()}
    default = shown_default(column.default)
    words = [f"default {default}" if default else "", f"→ {target}" if target else ""]
    description = ", ".join(filter(None, words))
    return schema | ({"description": description} if description else {})


def read_values(
    columns: Sequence[Column], given: Mapping[str, object], place: str
) -> Mapping[Column, object]:
    """Return the decoded values of *given* for *columns*, or raise a CallError that names *place*."""
    known = {column.name: column for column in columns}
    values: dict[Column, object] = {}
    for written, value in given.items():
        column = folded(written, known)
        if column is None:
            raise unknown_column(written, list(known), place)
        if column in values:
            raise errors.BadArgument(f"{place}.{column.name} appears twice.")
        values[column] = _value(column, value, f"{place}.{column.name}")
    return values


def _value(column: Column, value: object, place: str) -> object:
    if value is None:
        if not column.nullable and not column.assigned:
            raise errors.BadValue(f"{place} must not be null.")
        return None
    if isinstance(value, str) and column.choices and value not in column.choices:
        message = f"{place} must be one of {listing(column.choices)}, not {quoted(value)}."
        raise errors.BadValue(message, hint=nearest(value, column.choices).rstrip())
    return decoded(column.type, value, place)


def decoded(type: ColumnType, value: object, place: str) -> object:
    """Return the JSON *value* as a value of *type*, or raise BadValue."""
    structured = isinstance(value, list | tuple | Mapping)
    if type.family is Family.JSON:
        return _json_text(type, value)
    if type.family is Family.ARRAY and type.element is not None:
        items = as_json(value)
        if not isinstance(items, list | tuple):
            raise errors.BadValue(f"{place} must be an array, not {named(value)}.")
        # An array of arrays has the same type.
        types = [type if isinstance(each, list) else type.element for each in items]
        return [
            None if each is None else decoded(of, each, place) for of, each in zip(types, items, strict=True)
        ]
    if structured:
        raise errors.BadValue(f"{place} must be {type.expected}, not {named(value)}.")
    if type.family is Family.ANY and isinstance(value, str):
        return value
    return type.decode(str(as_text(value)), f"{place}: ")


def _json_text(type: ColumnType, value: object) -> object:
    """Return *value* as the text of JSON: some clients send an object or an array as its text."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        with suppress(ValueError):
            return type.read(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parameters(values: Mapping[Column, object]) -> Mapping[str, object]:
    """Return *values* by the parameters of a Write."""
    return {assigned(column.name): value for column, value in values.items()}


def outputs_of(context: ToolContext, table: Table) -> tuple[Output, ...]:
    """Return the outputs that the answer shows for rows of *table*."""
    return tuple(shown_outputs(context, table.columns, named=False))


def transaction_of(
    writes: Sequence[tuple[WriteShape, Mapping[str, object]]],
    asked: ChangeArguments,
    *,
    confirms: bool,
    what: str,
    missing: str = "",
    timeout: float = math.inf,
) -> Transaction:
    """Return the transaction of *writes* as *asked*, or raise BadArgument if *what* needs no token."""
    if asked.confirm and (asked.dry_run or not confirms):
        why = "a dry run" if asked.dry_run else what
        raise errors.BadArgument(f"confirm is not needed for {why}.", hint="Leave it out.")
    return Transaction(
        writes=writes,
        dry_run=asked.dry_run,
        missing=missing,
        timeout=timeout,
        idempotency_key=asked.idempotency_key,
        confirms=confirms,
        token=asked.confirm,
    )
