"""What the tools that change rows share: how values are described and read, and the answer."""

import json
import math
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from pydantic import Field

from dbtools import errors
from dbtools.errors import did_you_mean, listing
from dbtools.policy.writes import NO_KEY
from dbtools.queries.headers import OF_CHANGES
from dbtools.schema.catalog import Catalog, Column, Table, Writes
from dbtools.schema.paths import find_caseless
from dbtools.statements.select import Output
from dbtools.statements.write import KEPT, Transaction, Write, WriteKind, WriteShape, assigned_parameter
from dbtools.tools.arguments import (
    TEXTS,
    Arguments,
    Object,
    Schema,
    arguments_schema,
    as_json,
    as_text,
    in_words,
    read,
    unknown_argument,
    unknown_column,
)
from dbtools.tools.definition import (
    ARRAY,
    BOOLEAN,
    INTEGER,
    TableTool,
    Tool,
    ToolContext,
    ToolGroup,
    content_schema,
)
from dbtools.tools.get_row import key_arguments
from dbtools.tools.list_rows import shown_outputs
from dbtools.tools.meanings import Meanings
from dbtools.tools.wording import argument_schema, relation_targets, shown_default, table_arguments
from dbtools.tools.writes.calls import ChangeCall
from dbtools.values.cells import BLANK, json_of
from dbtools.values.types import STRING, ColumnType, Family, Mask, quote

CHANGES = content_schema(
    {"affected": INTEGER},
    dry_run=BOOLEAN,
    columns=TEXTS,
    rows=ARRAY,
    before=ARRAY,
)
MOST_PROPERTIES = 500  #: columns in the schema of a row
MOST_LABELS = 500  #: choices in the schema of a row
LONGEST_KEY = 200  #: characters of an idempotency key
NO_WRITES = Writes()
UNWRITTEN_KEY = "arguments cannot hold its key"
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
    """Return the schemas of the arguments of every change; *confirms*: `confirm` is among them.

    `idempotency_key` is among them unless the database is known to have no journal.
    """
    shown: dict[str, Mapping[str, object]] = {
        "dry_run": {"description": "preview, change nothing", **BOOLEAN}
    }
    if context.journal is not False:
        once = f"makes the change once per key, for {KEPT // 3_600} hours"
        shown["idempotency_key"] = {"description": once, **STRING}
    if confirms:
        shown["confirm"] = {"description": "token from the answer that asks for it", **STRING}
    return shown


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
    def tables(self) -> Sequence[Table]:
        """The tables that the tool is for."""
        return list(filter(self.suits, self.context.catalog.tables)) if self.table is None else [self.table]

    @property
    def writes(self) -> Sequence[Writes]:
        """What the role may change in the tables that the tool is for."""
        return list(map(granted_writes, self.tables))

    def schema(self, model: type[TableChangeArguments], **instead: Mapping[str, object] | None) -> Schema:
        """Return the JSON Schema of *model*; *instead*: other schemas of arguments, None for one to omit.

        The arguments of every change come last, `confirm` only if a table needs it.
        """
        confirms = any(writes.confirm for writes in self.writes)
        last = change_schemas(self.context, confirms=confirms)
        if self.table is not None:
            instead = {"table": None, **instead}
        omitted = dict.fromkeys(OF_CHANGES)
        schema = self.context.schema(model, self.table, self.labels(), **{**instead, **omitted})
        return arguments_schema({**schema["properties"], **last}, schema.get("required", ()))

    def read(self, model: type[TableChangeT], arguments: Mapping[str, object]) -> TableChangeT:
        """Validate *arguments* as *model*; hints name only the arguments that the definition lists."""
        listed = list(self.definition.input_schema["properties"])
        if arguments.get("idempotency_key") and "idempotency_key" not in listed:
            raise unknown_argument("idempotency_key", listed)
        if self.table is None:
            return read(model, arguments, listed=listed)
        if "table" in arguments:
            raise unknown_argument("table", listed)
        return read(model, {**arguments, "table": self.context.catalog.label(self.table)}, listed=listed)

    def labels(self) -> list[str]:
        """Return the labels of the tables that the tool is for."""
        return list(map(self.context.catalog.label, self.tables))

    def call(
        self,
        table: Table,
        writes: Sequence[tuple[Write, Mapping[str, object]]],
        asked: TableChangeArguments,
        *,
        missing: Sequence[str] = (),
        meanings: Meanings | None = None,
    ) -> ChangeCall:
        """Return the call that runs *writes* on *table*, as *asked*."""
        confirms, what = granted_writes(table).confirm, f"a change of {table.name}"
        transaction = transaction_of(writes, asked, confirms=confirms, what=what, missing=missing)
        return ChangeCall(context=self.context, table=table, transaction=transaction, meanings=meanings)

    def target(self, name: str) -> Table:
        """Return the table *name*, or raise a CallError if the role may not change it in this way."""
        table = self.context.table(name)
        if not self.suits(table):
            if why := impossible_reason(table, self.prefix):
                raise errors.Denied(why)
            may = f"Tables: {listing(self.labels())}."
            raise errors.Denied(f"{self.general_name} is not granted for {table.name}.", hint=may)
        return table


def impossible_reason(table: Table, action: str) -> str:
    """Return why *action*, to get a row or to make a granted change, is not possible for *table*."""
    writes = table.writes or NO_WRITES
    allowed = {"get": True, "update": bool(writes.update), "delete": writes.delete}
    why = dict(table.withheld).get(action, "")
    if allowed.get(action) and not key_arguments(table):
        why = UNWRITTEN_KEY if table.keys else NO_KEY
    return f"{action} is not possible for {table.name}: {why}." if why else ""


def granted_writes(table: Table) -> Writes:
    """Return what the role may change in *table*, which suits a tool."""
    assert table.writes is not None
    return table.writes


def row_schema(
    catalog: Catalog, table: Table, columns: Sequence[Column], required: Collection[str] = ()
) -> Mapping[str, object]:
    """Return the JSON Schema of values for *columns* of *table*; it leaves out some of very many."""
    targets = relation_targets(catalog, table)
    arguments = table_arguments(table, first_columns(columns, required))
    properties: dict[str, Mapping[str, object]] = {}
    left = MOST_LABELS
    for name, column in arguments.items():
        schema = _value_schema(name, column, targets.get(column.name, ""))
        choices = schema.pop("enum", [])
        properties[name] = schema | ({"enum": choices} if 0 < len(choices) <= left else {})
        left -= len(choices) if len(choices) <= left else 0
    return arguments_schema(
        properties, [name for name, column in arguments.items() if column.name in required]
    )


def first_columns(columns: Sequence[Column], required: Collection[str] = ()) -> Sequence[Column]:
    """Return *columns*, or the *required* ones and some others if they are very many."""
    first = sorted(columns, key=lambda column: column.name not in required)[:MOST_PROPERTIES]
    return columns if len(first) == len(columns) else first


def _value_schema(name: str, column: Column, target: str) -> dict[str, Any]:
    default = shown_default(column.default)
    schema = argument_schema(
        name, column, f"default {default}" if default else "", f"→ {target}" if target else ""
    )
    if column.type.family is Family.INTEGER:
        bounds = (("minimum", column.minimum), ("maximum", column.maximum))
        schema |= {key: int(text) for key, text in bounds if text and text.lstrip("-").isdigit()}
    return schema


def named_columns(table: Table, columns: Sequence[Column]) -> Mapping[str, Column]:
    """Return *columns* of *table* by the names that callers may use: their own, and those of arguments."""
    return {**{column.name: column for column in columns}, **table_arguments(table, columns)}


def read_values(
    known: Mapping[str, Column], given: Mapping[str, object], place: str
) -> Mapping[Column, object]:
    """Return the decoded values of *given* for *known* columns, or raise a CallError that names *place*."""
    values: dict[Column, object] = {}
    for written, value in given.items():
        column = find_caseless(written, known)
        if column is None:
            raise unknown_column(written, list(dict.fromkeys(each.name for each in known.values())), place)
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
        message = f"{place} must be one of {listing(column.choices)}, not {quote(value)}."
        raise errors.BadValue(message, hint=did_you_mean(value, column.choices).rstrip())
    return decode_value(column.type, value, place)


def decode_value(type: ColumnType, value: object, place: str) -> object:
    """Return the JSON *value* as a value of *type*, or raise BadValue."""
    structured = isinstance(value, list | tuple | Mapping)
    if type.family is Family.JSON:
        return _json_text(type, value)
    if type.family is Family.ARRAY and type.element is not None:
        items = as_json(value)
        if not isinstance(items, list | tuple):
            form = f"Write a JSON array, such as {json_of([str(value)[:20]])}." if value else ""
            raise errors.BadValue(f"{place} must be an array, not {in_words(value)}.", hint=form)
        # An array of arrays has the same type.
        types = [type if isinstance(each, list) else type.element for each in items]
        return [
            None if each is None else decode_value(of, each, place)
            for of, each in zip(types, items, strict=True)
        ]
    if structured:
        raise errors.BadValue(f"{place} must be {type.expected}, not {in_words(value)}.")
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
    return {assigned_parameter(column.name): value for column, value in values.items()}


def outputs_of(context: ToolContext, table: Table, kind: WriteKind) -> tuple[Output, ...]:
    """Return the outputs that the answer shows for rows of *table*.

    What a caller has written is not shown through a mask that depends on it: its hash would show which cells
    are equal to it. Triggers and generated columns may copy it, so this holds for every masked column.
    """
    columns = table.columns if kind is WriteKind.DELETE else map(_concealed_column, table.columns)
    return tuple(shown_outputs(context, columns, named=False))


def _concealed_column(column: Column) -> Column:
    is_shown = column.type.mask is None or column.type.mask in BLANK
    return column if is_shown else replace(column, type=replace(column.type, mask=Mask.REDACT))


def transaction_of(
    writes: Sequence[tuple[WriteShape, Mapping[str, object]]],
    asked: ChangeArguments,
    *,
    confirms: bool,
    what: str,
    missing: Sequence[str] = (),
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
