"""The tools `update_T`, `update_rows`, `delete_T` and `delete_rows`: change rows by a key or conditions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from dbtools import errors
from dbtools.catalog import Column, Table, Writes
from dbtools.changes import Write, WriteKind
from dbtools.errors import listing
from dbtools.expressions import Expressions, refuse_masked
from dbtools.paths import folded
from dbtools.queries.headers import OF_CHANGES
from dbtools.statement import Condition, Match, Order, Select, Statement
from dbtools.styles import Surface
from dbtools.tools.arguments import Schema, as_text, check, named, unknown_argument, unknown_column
from dbtools.tools.binding import bind_where, equal_value, equality
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
from dbtools.tools.clauses import OBJECTS, Comparison, Conditions
from dbtools.tools.definition import ToolDefinition
from dbtools.tools.get_row import Lookup, key_arguments, key_schema
from dbtools.tools.reasons import Reasons
from dbtools.tools.wording import table_name
from dbtools.types import Operator

#: The names of arguments, which a column of a key must not have.
RESERVED = {"key", "set", "expected", *OF_CHANGES}
KEY = "key"
CHOOSING = ("where", "match")  #: arguments of the generic tool alone


class KeyedArguments(ChangeArguments):
    """Arguments of every tool that changes a row by its key."""

    expected: Values = Field(default={}, description="old values: refused if the row differs")


class UpdateArguments(KeyedArguments):
    """Arguments of `update_T`, besides the key."""

    set: Values = Field(description="new values by column")


class AnyTableArguments(KeyedArguments):
    """Arguments of every tool that changes rows of any table; the conditions are those of `list_rows`."""

    table: str
    key: Values | SkipJsonSchema[None] = Field(default=None, description='such as {"id": "17"}')
    where: Annotated[Conditions, OBJECTS] = Field(
        default=(), description="instead of key: conditions as in list tools"
    )
    match: Match = Match.ALL


class UpdateRowsArguments(AnyTableArguments, UpdateArguments):
    """Arguments of `update_rows`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyedTool(ChangeTool):
    """A tool that changes one row of a table with a key, or chosen rows of any table."""

    kind: ClassVar[WriteKind]
    typed: ClassVar[type[KeyedArguments]]
    generic: ClassVar[type[AnyTableArguments]]
    does: ClassVar[str]  #: the description, with the name of the table
    chooses: ClassVar[str]  #: the description of the generic tool

    @classmethod
    def suits(cls, table: Table) -> bool:
        """Return whether the role may change *table* in this way, and arguments can hold its key."""
        return super().suits(table) and bool(key_arguments(table))

    @property
    def surface(self) -> Surface | None:
        """The surface on which it is listed; both if it is the only tool that may change several rows."""
        tables = () if self.table is not None else filter(self.suits, self.setting.catalog.tables)
        return None if any((granted_writes(each).most or 1) > 1 for each in tables) else super().surface

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        verb = self.prefix.capitalize()
        # After a change, other rows may meet the same conditions.
        annotations = effects(destroys=True, repeats=self.table is not None)
        if self.table is None:
            return self.defined(self.chooses, self.schema(self.generic), CHANGES, f"{verb} rows", annotations)
        setting, table = self.setting, self.table
        # A default has no effect on a row that exists.
        columns = [replace(each, default=None) for each in granted_writes(table).update]
        own = self.schema(self.typed, set=row_schema(setting.catalog, table, columns, ()))
        key = key_schema(self._keys)
        keys = {KEY: key} if self._wraps else key["properties"]
        required = [*keys, *own.get("required", ())]
        schema: Schema = {**own, "properties": {**keys, **own["properties"]}, "required": required}
        description = self.does.format(table_name(setting.catalog, table))
        title = f"{verb} a row of {setting.shown(table)}"
        return self.defined(description, schema, CHANGES, title, annotations)

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
            found = self.read(self.generic, arguments)
            table = self.target(found.table)
            if "where" in found.model_fields_set:
                return self._choose(table, found)
            if found.key is None:
                raise errors.BadArgument("key: is missing.", hint="Or choose rows with where.")
            if "match" in found.model_fields_set:
                raise errors.BadArgument("match: only with where.", hint="Leave it out.")
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
        asked = self.read(self.typed, own)
        return self._call(self.table, self._keys, key, asked, f"{KEY}." if self._wraps else "")

    def _refuse_unknown(self, names: Collection[str]) -> None:
        """Raise a CallError for the first of *names* that is not part of the key."""
        known = {name: name for name in ([KEY] if self._wraps else self._keys)}
        for name in names:
            if folded(name, known) is None:
                error = unknown_argument(name, list(self.definition.input_schema["properties"]))
                settable = _names(self.table) if self.table and "set" in self.typed.model_fields else ()
                error.hint = "Put new values into set. " * (name in settable) + error.hint
                error.hint = f"{self.general_name} takes {name}. " * (name in CHOOSING) + error.hint
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
        shape = replace(
            self._shape(table, values),
            conditions=(*found.shape.comparisons, *conditions),
            key_count=len(found.shape.comparisons),
        )
        return write_call(
            self,
            table,
            [(shape, {**found.values, **expected, **parameters(values)})],
            asked,
            missing=lookup.missing(texts),
        )

    def _choose(self, table: Table, asked: AnyTableArguments) -> ChangeCall:
        """Return the call that changes the rows that meet the conditions of *asked*."""
        if not asked.where:
            hint = f"Name at least one condition, such as {Comparison.example}."
            raise errors.BadArgument("where: is empty.", hint=hint)
        for name, hint in (("key", "Pass one of them."), ("expected", "Put the old values into where.")):
            if name in asked.model_fields_set:
                raise errors.BadArgument(f"{name}: not together with where.", hint=hint)
        terms = Expressions(names=self.setting.names(table))
        conditions, chosen = bind_where(terms, asked.where)
        reasons = Reasons(
            terms=terms, written=asked.where, conditions=conditions, match=asked.match, values=chosen
        )
        values = self.assignments(table, asked)
        shape = self._shape(table, values)
        order = tuple(Order(each) for each in table.key_columns)
        rows = Select(
            table=table, outputs=shape.outputs, conditions=conditions, match=asked.match, order=order
        )
        bound = {**terms.values, **chosen, **parameters(values)}
        return write_call(
            self, table, [(replace(shape, chosen=rows), bound)], asked, meanings=reasons.meanings
        )

    def _shape(self, table: Table, values: Mapping[Column, object]) -> Write:
        """Return the change of *table* that sets columns to *values*."""
        return Write(
            kind=self.kind,
            table=table,
            # In the order of the table, so that equal sets of columns share one statement.
            columns=tuple(each for each in granted_writes(table).update if each in values),
            outputs=outputs_of(self.setting, table),
        )

    def assignments(self, table: Table, asked: KeyedArguments) -> Mapping[Column, object]:
        """Return the new values that *asked* has for columns of *table*."""
        return {}


class UpdateRow(KeyedTool):
    """`update_T` for one table with a key, or `update_rows`."""

    prefix = "update"
    general_name = "update_rows"
    kind = WriteKind.UPDATE
    typed, generic = UpdateArguments, UpdateRowsArguments
    does = "Update one row of {} by key; values may be null; returns it as stored."
    chooses = (
        "Update rows of a table by key or where, all or none; values may be null; dry_run previews; "
        "returns them as stored."
    )

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
    typed, generic = KeyedArguments, AnyTableArguments
    does = "Delete one row of {} by key; returns it as it was."
    chooses = (
        "Delete rows of a table by key or where, all or none; dry_run previews; returns them as they were."
    )

    @classmethod
    def grants(cls, writes: Writes) -> bool:
        """Return whether rows may be deleted."""
        return writes.delete


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
