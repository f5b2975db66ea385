"""The tools `update_T`, `update_rows`, `delete_T` and `delete_rows`: change one row, by its key."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Column, Table, Writes
from dbtools.errors import listing
from dbtools.expressions import refuse_masked
from dbtools.paths import folded
from dbtools.statement import Condition, Statement, Write, WriteKind
from dbtools.tools.arguments import as_text, check, named, unknown_argument, unknown_column
from dbtools.tools.binding import equal_value, equality
from dbtools.tools.change_calls import ChangeCall
from dbtools.tools.changing import (
    CHANGES,
    ChangeArguments,
    ChangeTool,
    Values,
    effects,
    granted_writes,
    outputs_of,
    parameters,
    read_values,
    row_schema,
    write_call,
)
from dbtools.tools.definition import ToolDefinition
from dbtools.tools.get_row import Lookup, key_arguments, key_schema
from dbtools.tools.wording import table_name
from dbtools.types import Operator

#: The names of arguments, which a column of a key must not have.
RESERVED = {"key", "set", "expected", "dry_run", "idempotency_key", "confirm"}
KEY = "key"


class KeyedArguments(ChangeArguments):
    """Arguments of every tool that changes a row by its key."""

    expected: Values = Field(default={}, description="old values: refused if the row has others")


class UpdateArguments(KeyedArguments):
    """Arguments of `update_T`, besides the key."""

    set: Values = Field(description="new values by column")


class DeleteRowsArguments(KeyedArguments):
    """Arguments of `delete_rows`."""

    table: str
    key: Values = Field(description='such as {"id": "17"}')


class UpdateRowsArguments(UpdateArguments):
    """Arguments of `update_rows`."""

    table: str
    key: Values = Field(description='such as {"id": "17"}')


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyedTool(ChangeTool):
    """A tool that changes one row of a table with a key, or of any table."""

    kind: ClassVar[WriteKind]
    typed: ClassVar[type[KeyedArguments]]
    generic: ClassVar[type[DeleteRowsArguments | UpdateRowsArguments]]
    does: ClassVar[str]  #: the description, with the name of the table

    @classmethod
    def suits(cls, table: Table) -> bool:
        """Return whether the role may change *table* in this way, and arguments can hold its key."""
        return super().suits(table) and bool(key_arguments(table))

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        title = f"{self.prefix.capitalize()} a row"
        if self.table is None:
            schema = self.schema(self.generic, self.labels())
            return self.defined(self.does.format("a table"), schema, CHANGES, title, self.effects)
        setting, table = self.setting, self.table
        schema = self.schema(self.typed)
        properties = schema["properties"]
        assert isinstance(properties, Mapping)
        keys = key_schema(self._keys)
        own = dict(reversed(list(properties.items())))  # values before dry_run
        if "set" in own:
            # A default has no effect on a row that exists.
            columns = [replace(each, default=None) for each in granted_writes(table).update]
            own["set"] = row_schema(setting.catalog, table, columns, ())
        if self._wraps:
            whole = {"type": "object", "properties": keys, "required": list(keys)}
            keys = {KEY: {**whole, "additionalProperties": False}}
        schema |= {"properties": {**keys, **own}, "required": [*keys, *(["set"] if "set" in own else [])]}
        description = self.does.format(table_name(setting.catalog, table))
        return self.defined(description, schema, CHANGES, f"{title} of {setting.shown(table)}", self.effects)

    @cached_property
    def _keys(self) -> Mapping[str, Column]:
        assert self.table is not None
        return key_arguments(self.table)

    @property
    def _wraps(self) -> bool:
        """Whether the key is one argument, because a column of it has the name of another argument."""
        return not RESERVED.isdisjoint(self._keys)

    def bind(self, arguments: Mapping[str, object]) -> ChangeCall:
        """Bind the key and the values in *arguments* to a call."""
        if self.table is None:
            found = self.setting.read(self.generic, arguments)
            table = self.target(found.table)
            keys = {column.name: column for column in key_arguments(table).values()}
            return self._call(table, keys, found.key, found, f"{KEY}.")
        own = {name: value for name, value in arguments.items() if name in self.typed.model_fields}
        key = {name: value for name, value in arguments.items() if name not in own}
        self._refuse_unknown(key)
        if self._wraps:
            whole = key.get(KEY)
            if not isinstance(whole, Mapping):
                raise errors.BadArgument(f"{KEY}: must be an object with {listing(self._keys)}.")
            key = dict(whole)
        check(key)
        asked = self.setting.read(self.typed, own)
        return self._call(self.table, self._keys, key, asked, f"{KEY}." if self._wraps else "")

    def _refuse_unknown(self, names: Collection[str]) -> None:
        """Raise a CallError for the first of *names* that is not part of the key."""
        known = {name: name for name in ([KEY] if self._wraps else self._keys)}
        for name in names:
            if folded(name, known) is None:
                error = unknown_argument(name, [*known, *reversed(self.typed.model_fields)])
                settable = _names(self.table) if self.table and "set" in self.typed.model_fields else ()
                error.hint = "Put new values into set. " * (name in settable) + error.hint
                raise error

    def _call(
        self,
        table: Table,
        keys: Mapping[str, Column],
        key: Mapping[str, object],
        asked: KeyedArguments,
        place: str,
    ) -> ChangeCall:
        lookup = Lookup(setting=self.setting, table=table, keys=keys)
        texts = lookup.texts(key, place)
        found: Statement = lookup.statement(texts)
        values = self.assignments(table, asked)
        conditions, expected = _expected(table, asked.expected)
        shape = Write(
            kind=self.kind,
            table=table,
            # In the order of the table, so that equal sets of columns share one statement.
            columns=tuple(each for each in granted_writes(table).update if each in values),
            conditions=(*found.shape.comparisons, *conditions),
            key=len(found.shape.comparisons),
            outputs=outputs_of(self.setting, table),
        )
        return write_call(
            self,
            table,
            [(shape, {**found.values, **expected, **parameters(values)})],
            asked,
            missing=lookup.missing(texts),
        )

    @abstractmethod
    def assignments(self, table: Table, asked: KeyedArguments) -> Mapping[Column, object]:
        """Return the new values that *asked* has for columns of *table*."""


class UpdateRow(KeyedTool):
    """`update_T` for one table with a key, or `update_rows`."""

    prefix = "update"
    general_name = "update_rows"
    kind = WriteKind.UPDATE
    typed, generic = UpdateArguments, UpdateRowsArguments
    does = "Update one row of {} by key; values may be null; returns it as stored."
    effects = effects(destroys=True, repeats=True)

    @classmethod
    def grants(cls, writes: Writes) -> bool:
        """Return whether rows may be updated."""
        return bool(writes.update)

    def assignments(self, table: Table, asked: KeyedArguments) -> Mapping[Column, object]:
        """Return the values in `set`."""
        assert isinstance(asked, UpdateArguments)
        if not asked.set:
            raise errors.BadArgument("set: is empty.", hint=f"Columns: {listing(_names(table))}.")
        return read_values(granted_writes(table).update, asked.set, "set")


class DeleteRow(KeyedTool):
    """`delete_T` for one table with a key, or `delete_rows`."""

    prefix = "delete"
    general_name = "delete_rows"
    kind = WriteKind.DELETE
    typed, generic = KeyedArguments, DeleteRowsArguments
    does = "Delete one row of {} by key; returns it as it was."
    effects = effects(destroys=True, repeats=True)

    @classmethod
    def grants(cls, writes: Writes) -> bool:
        """Return whether rows may be deleted."""
        return writes.delete

    def assignments(self, table: Table, asked: KeyedArguments) -> Mapping[Column, object]:
        """Return nothing."""
        return {}


def _names(table: Table) -> list[str]:
    return [column.name for column in granted_writes(table).update]


def _expected(
    table: Table, expected: Mapping[str, object]
) -> tuple[Sequence[Condition], Mapping[str, object]]:
    """Return the conditions that a row has the values *expected*, and their parameters."""
    conditions: list[Condition] = []
    values: dict[str, object] = {}
    for at, (name, value) in enumerate(expected.items()):
        column = folded(name, table.column_by_name)
        if column is None:
            raise unknown_column(name, list(table.column_by_name), "expected", "there is no column")
        place = f"expected.{column.name}"
        refuse_masked(column, place)
        if value is None:
            conditions.append(Condition(term=column, operator=Operator.IS_NULL))
            continue
        if Operator.EQ not in column.type.operators:
            raise errors.BadArgument(f"{place}: {column.type.name} cannot be compared.", hint="Leave it out.")
        if isinstance(value, list | tuple | Mapping):
            raise errors.BadValue(f"{place}: must be {column.type.expected}, not {named(value)}.")
        conditions.append(equality(column, f"x{at}"))
        values[f"x{at}"] = equal_value(column, str(as_text(value)), place)
    return conditions, values
