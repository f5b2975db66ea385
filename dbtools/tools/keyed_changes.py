"""The tools `update_T`, `update_rows`, `delete_T` and `delete_rows`: change rows by a key or conditions."""

from collections.abc import Mapping, Sequence
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
from dbtools.statement import Condition, Match, Order, Select
from dbtools.styles import Surface
from dbtools.tools.arguments import (
    OBJECTS,
    Comparison,
    Conditions,
    Schema,
    as_text,
    check,
    named,
    unknown_argument,
    unknown_column,
)
from dbtools.tools.binding import bind_where, equal_value, equality
from dbtools.tools.change_calls import ChangeCall
from dbtools.tools.changing import (
    CHANGES,
    ChangeTool,
    TableChangeArguments,
    Values,
    effects,
    granted_writes,
    outputs_of,
    parameters,
    read_values,
    row_schema,
)
from dbtools.tools.definition import ToolDefinition
from dbtools.tools.get_row import Lookup, key_arguments, key_schema
from dbtools.tools.reasons import Reasons
from dbtools.tools.wording import table_name
from dbtools.types import Operator

#: The arguments of typed tools besides the columns of the key.
BESIDE_KEY = {"set", "expected", *OF_CHANGES}
KEY = "key"


class KeyedArguments(TableChangeArguments):
    """Arguments of `delete_rows`; the conditions are those of `list_rows`."""

    key: Values | SkipJsonSchema[None] = Field(default=None, description='such as {"id": "17"}')
    where: Annotated[Conditions, OBJECTS] = Field(
        default=(), description="instead of key: conditions as in list tools"
    )
    match: Match = Match.ALL
    expected: Values = Field(default={}, description="values that the row must still have")


class UpdateArguments(KeyedArguments):
    """Arguments of `update_rows`."""

    set: Values = Field(description="new values by column")


@dataclass(frozen=True, kw_only=True, eq=False)
class KeyedTool(ChangeTool):
    """A tool that changes one row of a table with a key, or chosen rows of any table."""

    kind: ClassVar[WriteKind]
    arguments: ClassVar[type[KeyedArguments]]
    typed_description: ClassVar[str]  #: with a place for the name of the table
    generic_description: ClassVar[str]

    @classmethod
    def suits(cls, table: Table) -> bool:
        """Return whether the role may change *table* in this way, and arguments can hold its key."""
        return super().suits(table) and bool(key_arguments(table))

    @property
    def surface(self) -> Surface | None:
        """The surface on which it is listed; both if it is the only tool that may change several rows."""
        several = any((writes.most or 1) > 1 for writes in self.writes)
        return None if self.table is None and several else super().surface

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        verb = self.prefix.capitalize()
        # After a change, other rows may meet the same conditions.
        annotations = effects(destroys=True, repeats=self.table is not None)
        if self.table is None:
            schema = self.schema(self.arguments)
            return self.defined(self.generic_description, schema, CHANGES, f"{verb} rows", annotations)
        context, table = self.context, self.table
        description = self.typed_description.format(table_name(context.catalog, table))
        title = f"{verb} a row of {context.shown(table)}"
        return self.defined(description, self._typed_schema(table), CHANGES, title, annotations)

    def _typed_schema(self, table: Table) -> Schema:
        """Return the JSON Schema with the columns of the key, and those that may be set."""
        key = key_schema(self._keys)
        keys = {KEY: key} if self._wraps else key["properties"]
        # A default has no effect on a row that exists.
        columns = [replace(each, default=None) for each in granted_writes(table).update]
        is_update = "set" in self.arguments.model_fields
        new = {"set": row_schema(self.context.catalog, table, columns, ())} if is_update else {}
        own = self.schema(self.arguments, key=None, where=None, match=None, **new)
        properties = {**keys, **new, **own["properties"]}
        return {**own, "properties": properties, "required": [*keys, *own["required"]]}

    @cached_property
    def _keys(self) -> Mapping[str, Column]:
        assert self.table is not None
        return key_arguments(self.table)

    @property
    def _wraps(self) -> bool:
        """Whether the key is one argument, because a column of it has the name of another argument."""
        return not BESIDE_KEY.isdisjoint(self._keys) or KEY in self._keys

    def bind(self, arguments: Mapping[str, object]) -> ChangeCall:
        """Bind the key or the conditions, and the values, in *arguments* to a call."""
        keyed = arguments if self.table is None else self._with_key(arguments)
        asked = self.read(self.arguments, keyed)
        table = self.table or self.target(asked.table)
        values = self.assignments(table, asked)
        shape = Write(
            kind=self.kind,
            table=table,
            # In the order of the table, so that equal sets of columns share one statement.
            columns=tuple(each for each in granted_writes(table).update if each in values),
            outputs=outputs_of(self.context, table),
        )
        bind = self._chosen if "where" in asked.model_fields_set else self._keyed
        return bind(shape, asked, parameters(values))

    def _with_key(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return *arguments* of the typed tool with the columns of the key in one argument."""
        check(arguments)
        own = {name: value for name, value in arguments.items() if name in BESIDE_KEY}
        key = {name: value for name, value in arguments.items() if name not in own}
        known = {name: name for name in ([KEY] if self._wraps else self._keys)}
        for name in key:
            if folded(name, known) is None:
                raise unknown_argument(name, list(self.definition.input_schema["properties"]))
        return {**own, **(key if self._wraps else {KEY: key})}

    def _keyed(self, shape: Write, asked: KeyedArguments, new: Mapping[str, object]) -> ChangeCall:
        """Return the call that changes the row with the key of *asked*."""
        if asked.key is None:
            hint = "Or choose rows with where." * (self.table is None)
            raise errors.BadArgument("key is missing.", hint=hint)
        if "match" in asked.model_fields_set:
            raise errors.BadArgument("match is only for where.", hint="Leave it out.")
        typed = self.table is not None
        keys = self._keys if typed else {each.name: each for each in key_arguments(shape.table).values()}
        lookup = Lookup(context=self.context, table=shape.table, keys=keys)
        texts = lookup.texts(asked.key, "" if typed and not self._wraps else f"{KEY}.")
        found = lookup.statement(texts)
        conditions, expected = _expected(shape.table, asked.expected)
        key = found.shape.comparisons
        shape = replace(shape, conditions=(*key, *conditions), key_count=len(key))
        writes = [(shape, {**found.values, **expected, **new})]
        return self.call(shape.table, writes, asked, missing=lookup.missing(texts))

    def _chosen(self, shape: Write, asked: KeyedArguments, new: Mapping[str, object]) -> ChangeCall:
        """Return the call that changes the rows that meet the conditions of *asked*."""
        if not asked.where:
            hint = f"Name at least one condition, such as {Comparison.example}."
            raise errors.BadArgument("where must not be empty.", hint=hint)
        for name, hint in ((KEY, "Pass one of them."), ("expected", "Put the old values into where.")):
            if name in asked.model_fields_set:
                raise errors.BadArgument(f"{name} must not be passed together with where.", hint=hint)
        table = shape.table
        terms = Expressions(names=self.context.names(table))
        conditions, values = bind_where(terms, asked.where)
        reasons = Reasons(
            terms=terms, written=asked.where, conditions=conditions, match=asked.match, values=values
        )
        chosen = Select(
            table=table,
            outputs=shape.outputs,
            conditions=conditions,
            match=asked.match,
            order=tuple(Order(each) for each in table.key_columns),
        )
        writes = [(replace(shape, chosen=chosen), {**terms.values, **values, **new})]
        return self.call(table, writes, asked, meanings=reasons.meanings)

    def assignments(self, table: Table, asked: KeyedArguments) -> Mapping[Column, object]:
        """Return the new values that *asked* has for columns of *table*."""
        return {}


class UpdateRow(KeyedTool):
    """`update_T` for one table with a key, or `update_rows`."""

    prefix = "update"
    general_name = "update_rows"
    kind = WriteKind.UPDATE
    arguments = UpdateArguments
    typed_description = "Update one row of {} by key and return it as stored. Values may be null."
    generic_description = (
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
        columns = granted_writes(table).update
        if not asked.set:
            hint = f"Columns: {listing(each.name for each in columns)}."
            raise errors.BadArgument("set must not be empty.", hint=hint)
        return read_values(columns, asked.set, "set")


class DeleteRow(KeyedTool):
    """`delete_T` for one table with a key, or `delete_rows`."""

    prefix = "delete"
    general_name = "delete_rows"
    kind = WriteKind.DELETE
    arguments = KeyedArguments
    typed_description = "Delete one row of {} by key; returns it as it was."
    generic_description = (
        "Delete rows of a table by key or where, all or none; dry_run previews; returns them as they were."
    )

    @classmethod
    def grants(cls, writes: Writes) -> bool:
        """Return whether rows may be deleted."""
        return writes.delete


def _expected(
    table: Table, expected: Mapping[str, object]
) -> tuple[Sequence[Condition], Mapping[str, object]]:
    """Return the conditions that a row has the values *expected*, and their parameters."""
    conditions: list[Condition] = []
    values: dict[str, object] = {}
    for at, (name, value) in enumerate(expected.items()):
        column = folded(name, table.column_by_name)
        if column is None:
            raise unknown_column(name, list(table.column_by_name), "expected")
        place = f"expected.{column.name}"
        refuse_masked(column, place)
        if value is None:
            conditions.append(Condition(term=column, operator=Operator.IS_NULL))
            continue
        if Operator.EQ not in column.type.operators:
            raise errors.BadArgument(
                f"{place} ({column.type.name}) cannot be compared.", hint="Leave it out."
            )
        if isinstance(value, list | tuple | Mapping):
            raise errors.BadValue(f"{place} must be {column.type.expected}, not {named(value)}.")
        conditions.append(equality(column, f"x{at}"))
        values[f"x{at}"] = equal_value(column, str(as_text(value)), place)
    return conditions, values
