"""The tools `update_T`, `update_rows`, `delete_T` and `delete_rows`: change rows by a key or conditions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from dbtools import errors
from dbtools.answers.styles import Surface
from dbtools.errors import listing
from dbtools.expressions.parser import Expressions, refuse_masked
from dbtools.queries.headers import OF_CHANGES
from dbtools.schema.catalog import Column, Table, Writes
from dbtools.schema.paths import find_caseless
from dbtools.statements.select import Condition, Match, Order, Select
from dbtools.statements.write import Write, WriteKind, repeated_key
from dbtools.tools.arguments import (
    BRIEFLY,
    Array,
    Comparison,
    Conditions,
    Schema,
    arguments_schema,
    as_text,
    check,
    in_words,
    unknown_argument,
    unknown_column,
)
from dbtools.tools.binding import bind_where, equal_value, equality
from dbtools.tools.definition import ToolDefinition
from dbtools.tools.get_row import KEY_FORM, Lookup, key_arguments, key_schema, with_own_key
from dbtools.tools.meanings import Meanings
from dbtools.tools.reasons import Reasons
from dbtools.tools.wording import column_note, description_of, frequent_values, table_arguments, table_name
from dbtools.tools.writes.calls import ChangeCall
from dbtools.tools.writes.changing import (
    CHANGES,
    ChangeTool,
    TableChangeArguments,
    Values,
    effects,
    first_columns,
    granted_writes,
    named_columns,
    outputs_of,
    parameters,
    read_values,
    row_schema,
)
from dbtools.values.types import Operator

#: The arguments of typed tools besides the columns of the key.
BESIDE_KEY = {"set", "expected", *OF_CHANGES}
KEY = "key"
EXPECTED = "values that the row must still have"
NEW_VALUES = "new values by column"
EACH_ROW = 'instead of key and set: each with its key and new values, such as [{"id": 1, "price": 2}]'


class KeyedArguments(TableChangeArguments):
    """Arguments of `delete_rows`; the conditions are those of `list_rows`."""

    key: Values | SkipJsonSchema[None] = None
    where: Annotated[Conditions, BRIEFLY] = Field(
        default=(), description="instead of key: conditions as in list tools"
    )
    match: Match = Match.ALL
    expected: Values = Field(default={})


class UpdateArguments(KeyedArguments):
    """Arguments of `update_rows`."""

    set: Values = Field(default={})
    rows: Annotated[tuple[Values, ...], Array] = ()


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
            schema = self._generic_schema()
            return self.definition_of(self.generic_description, schema, CHANGES, f"{verb} rows", annotations)
        context, table = self.context, self.table
        description = self.typed_description.format(table_name(context.catalog, table))
        title = f"{verb} a row of {context.title_of(table)}"
        return self.definition_of(description, self._typed_schema(table), CHANGES, title, annotations)

    def _generic_schema(self) -> Schema:
        """Return the JSON Schema of the arguments of the tool for any table."""
        return self.schema(self.arguments, **self._any_values())

    def _any_values(self) -> Mapping[str, Mapping[str, object]]:
        """Return the JSON Schemas of the values of any table."""
        columns = {
            "key": (KEY_FORM, ((table, table.key_columns) for table in self.tables)),
            "expected": (EXPECTED, ((table, _expectable_columns(table)) for table in self.tables)),
            "set": (NEW_VALUES, ((table, granted_writes(table).update) for table in self.tables)),
        }
        return {
            name: {**frequent_values(some), "description": text}
            for name, (text, some) in columns.items()
            if name in self.arguments.model_fields
        }

    def _typed_schema(self, table: Table) -> Schema:
        """Return the JSON Schema with the columns of the key, and those that may be set."""
        key = key_schema(self._keys)
        keys = {KEY: key} if self._wraps else key["properties"]
        # A default has no effect on a row that exists.
        columns = [replace(each, default=None) for each in granted_writes(table).update]
        is_update = "set" in self.arguments.model_fields
        new = {"set": row_schema(self.context.catalog, table, columns)} if is_update else {}
        old = {"expected": _expected_schema(table)}
        own = self.schema(self.arguments, key=None, where=None, match=None, rows=None, **new, **old)
        properties = {**keys, **new, **own["properties"]}
        return arguments_schema(properties, [*keys, *new, *own.get("required", ())])

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
        try:
            asked = self.read(self.arguments, keyed)
        except errors.BadArgument as exc:
            raise with_own_key(exc, self.context, keyed) from exc.__cause__
        table = self.table or self.target(asked.table)
        return self.bind_call(table, asked)

    def bind_call(self, table: Table, asked: KeyedArguments) -> ChangeCall:
        """Return the call that changes rows of *table* as *asked*."""
        values = self.assignments(table, asked)
        shape = self._shape_of(table, values)
        bind = self._change_by_conditions if "where" in asked.model_fields_set else self._change_by_key
        return bind(shape, asked, parameters(values))

    def _shape_of(self, table: Table, values: Collection[Column]) -> Write:
        """Return the shape of a change that gives *table* new *values*."""
        return Write(
            kind=self.kind,
            table=table,
            # In the order of the table, so that equal sets of columns share one statement.
            columns=tuple(each for each in granted_writes(table).update if each in values),
            outputs=outputs_of(self.context, table, self.kind),
        )

    def _with_key(self, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """Return *arguments* of the typed tool with the columns of the key in one argument."""
        assert self.table is not None
        check(arguments)
        own = {name: value for name, value in arguments.items() if name in BESIDE_KEY}
        key = {name: value for name, value in arguments.items() if name not in own}
        known = {KEY: KEY} if self._wraps else named_columns(self.table, self.table.key_columns)
        for name in key:
            if find_caseless(name, known) is None:
                raise unknown_argument(name, list(self.definition.input_schema["properties"]))
        return {**own, **(key if self._wraps else {KEY: key})}

    def _change_by_key(self, shape: Write, asked: KeyedArguments, new: Mapping[str, object]) -> ChangeCall:
        """Return the call that changes the row with the key of *asked*."""
        if asked.key is None:
            hint = "Or choose rows with where." * (self.table is None)
            raise errors.BadArgument("key is missing.", hint=hint)
        if "match" in asked.model_fields_set:
            raise errors.BadArgument("match is only for where.", hint="Leave it out.")
        typed = self.table is not None
        lookup = self._lookup(shape.table)
        texts = lookup.texts(asked.key, "" if typed and not self._wraps else f"{KEY}.")
        key, keyed = lookup.conditions(texts)
        conditions, expected = _expected_conditions(shape.table, asked.expected)
        shape = replace(shape, conditions=(*key, *conditions), key_count=len(key))
        writes = [(shape, {**keyed, **expected, **new})]
        return self.call(shape.table, writes, asked, missing=[lookup.missing_message(texts)])

    def _lookup(self, table: Table) -> Lookup:
        """Return what finds rows of *table*."""
        keys = self._keys if self.table is not None else key_arguments(table)
        return Lookup(context=self.context, table=table, keys=keys)

    def _change_by_conditions(
        self, shape: Write, asked: KeyedArguments, new: Mapping[str, object]
    ) -> ChangeCall:
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
        bound = {**terms.values, **values}
        reasons = Reasons(
            terms=terms, written=asked.where, conditions=conditions, match=asked.match, values=bound
        )
        chosen = Select(
            table=table,
            outputs=shape.outputs,
            conditions=conditions,
            match=asked.match,
            order=tuple(Order(each) for each in table.key_columns),
        )
        writes = [(replace(shape, chosen=chosen), {**bound, **new})]
        return self.call(table, writes, asked, meanings=Meanings(reasons=reasons, shape=chosen))

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

    def _generic_schema(self) -> Schema:
        values = self._any_values()
        if all((writes.most or 1) == 1 for writes in self.writes):
            schema = self.schema(self.arguments, rows=None, **values)
            return arguments_schema(schema["properties"], [*schema["required"], "set"])
        columns = ((table, (*table.key_columns, *granted_writes(table).update)) for table in self.tables)
        rows = {"type": "array", "description": EACH_ROW, "items": frequent_values(columns)}
        return self.schema(self.arguments, rows=rows, **values)

    def bind_call(self, table: Table, asked: KeyedArguments) -> ChangeCall:
        """Return the call that changes the rows of *asked*, each to its own values, or to the same."""
        assert isinstance(asked, UpdateArguments)
        return (
            self._change_each_row(table, asked)
            if "rows" in asked.model_fields_set
            else super().bind_call(table, asked)
        )

    def _change_each_row(self, table: Table, asked: UpdateArguments) -> ChangeCall:
        """Return the call that changes each of the rows of *asked*, which have a key and new values."""
        for name in ("set", KEY, "where", "match", "expected"):
            if name in asked.model_fields_set:
                raise errors.BadArgument(
                    f"{name} must not be passed together with rows.", hint="Leave it out."
                )
        if not asked.rows:
            raise errors.BadArgument("rows must not be empty.")
        most = granted_writes(table).most or 1
        if len(asked.rows) > most:
            message = f"rows must have at most {most} item{'s' * (most > 1)}, not {len(asked.rows)}."
            raise errors.TooManyRows(message, hint="Split them.")
        lookup, places, keys = self._lookup(table), dict[str, int](), named_columns(table, table.key_columns)
        of_key = {each.name for each in table.key_columns}
        writes: list[tuple[Write, Mapping[str, object]]] = []
        missing: list[str] = []
        for at, row in enumerate(asked.rows):
            place = f"rows[{at}]"
            key = {name: value for name, value in row.items() if find_caseless(name, keys) is not None}
            texts = lookup.texts(key, f"{place}.")
            conditions, keyed = lookup.conditions(texts)
            if (first := places.setdefault(repr(keyed), at)) != at:
                raise repeated_key(table.key_columns, at, first)
            others = {name: value for name, value in row.items() if name not in key}
            columns = [each for each in granted_writes(table).update if each.name not in of_key]
            values = read_values(named_columns(table, columns), others, place)
            if not values:
                raise errors.BadArgument(f"{place} sets no column.", hint=_columns_hint(columns))
            shape = replace(self._shape_of(table, values), conditions=conditions, key_count=len(conditions))
            writes.append((shape, {**keyed, **parameters(values)}))
            missing.append(lookup.missing_message(texts))
        return self.call(table, writes, asked, missing=missing)

    def assignments(self, table: Table, asked: KeyedArguments) -> Mapping[Column, object]:
        """Return the values in `set`."""
        assert isinstance(asked, UpdateArguments)
        columns = granted_writes(table).update
        if not asked.set:
            is_missing = "set" not in asked.model_fields_set
            problem = "set is missing." if is_missing else "set must not be empty."
            raise errors.BadArgument(problem, hint=_columns_hint(columns))
        return read_values(named_columns(table, columns), asked.set, "set")


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


def _columns_hint(columns: Sequence[Column]) -> str:
    return f"Columns: {listing(each.name for each in columns)}."


def _expected_schema(table: Table) -> Mapping[str, object]:
    """Return the JSON Schema of the old values of columns of *table*, without those of the key."""
    columns = table_arguments(table, first_columns(_expectable_columns(table)))
    properties = {
        name: {"type": column.type.schema()["type"]} | description_of(column_note(name, column))
        for name, column in columns.items()
    }
    return {"type": "object", "description": EXPECTED, "properties": properties}


def _expectable_columns(table: Table) -> Sequence[Column]:
    """Return the columns of *table* that can be expected, without those of the key if there are others."""
    found = [each for each in table.columns if each.type.mask is None and Operator.EQ in each.type.operators]
    keys = set(table.key_columns)
    return [each for each in found if each not in keys] or found


def _expected_conditions(
    table: Table, expected: Mapping[str, object]
) -> tuple[Sequence[Condition], Mapping[str, object]]:
    """Return the conditions that a row has the values *expected*, and their parameters."""
    conditions: list[Condition] = []
    values: dict[str, object] = {}
    known = named_columns(table, table.columns) if expected else {}
    for at, (name, value) in enumerate(expected.items()):
        column = find_caseless(name, known)
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
            raise errors.BadValue(f"{place} must be {column.type.expected}, not {in_words(value)}.")
        meant = equal_value(column, str(as_text(value)), place)
        conditions.append(equality(column, f"x{at}", meant))
        values[f"x{at}"] = meant
    return conditions, values
