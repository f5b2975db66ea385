"""The tools `insert_T` and `insert_rows`: new rows of a table, all or none, or upserts by a unique key."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.errors import listing
from dbtools.policy.writes import KeyColumns
from dbtools.schema.catalog import Column, Table, Writes
from dbtools.schema.paths import find_caseless
from dbtools.statements.write import Write, WriteKind
from dbtools.tools.arguments import Array
from dbtools.tools.definition import ToolDefinition
from dbtools.tools.wording import (
    LONGEST_LABEL,
    description_of,
    frequent_values,
    list_names,
    table_name,
    tidy,
)
from dbtools.tools.writes.calls import ChangeCall
from dbtools.tools.writes.changing import (
    CHANGES,
    NO_WRITES,
    ChangeTool,
    TableChangeArguments,
    Values,
    effects,
    granted_writes,
    named_columns,
    outputs_of,
    parameters,
    read_values,
    row_schema,
)
from dbtools.values.types import STRING

MOST_INSERTED = 100  #: rows of one call, unless the role says otherwise
INSERT_DESCRIPTION = (
    "Insert rows into a table, all or none; values may be null; returns them as stored. "
    "describe_tables says which columns to give."
)
SUCH_ROWS = {"description": 'such as [{"name": "Ann"}]'}


class OnConflict(StrEnum):
    """What happens to a given row if a row with the same key exists."""

    ERROR = "error"
    IGNORE = "ignore"
    UPDATE = "update"


class InsertArguments(TableChangeArguments):
    """Arguments of `insert_rows`; those of upserts are only listed where they have an effect."""

    rows: Annotated[tuple[Values, ...], Field(min_length=1), Array]
    on_conflict: OnConflict = OnConflict.ERROR
    conflict_key: Annotated[tuple[str, ...], Array] = ()


class InsertRows(ChangeTool):
    """`insert_T` for one table, or `insert_rows`."""

    prefix = "insert"
    general_name = "insert_rows"

    @classmethod
    def grants(cls, writes: Writes) -> bool:
        """Return whether rows may be inserted."""
        return writes.insert is not None

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        choices = _choices(self.writes)
        annotations = effects(destroys=OnConflict.UPDATE in choices, repeats=False)
        if self.table is None:
            any_row = frequent_values((table, granted_writes(table).insert or ()) for table in self.tables)
            rows = {"type": "array", "minItems": 1, "items": any_row, **SUCH_ROWS}
            schema = self.schema(InsertArguments, rows=rows, **_upserts(choices, ()))
            return self.definition_of(INSERT_DESCRIPTION, schema, CHANGES, "Insert rows", annotations)
        (own,), table = self.writes, self.table
        columns = own.insert or ()
        items = row_schema(
            self.context.catalog, table, columns, [each.name for each in columns if each.required]
        )
        rows = {"type": "array", "minItems": 1, "maxItems": own.most or MOST_INSERTED, "items": items}
        # No provider accepts an object without properties.
        given = rows if columns else None
        schema = self.schema(InsertArguments, rows=given, **_upserts(choices, own.conflict_keys, own))
        preset = [each.column.name for each in own.insert_presets if each.column.name in table.column_by_name]
        filled = (
            f" Filled in for you: {list_names(tidy(each, LONGEST_LABEL) for each in preset)}."
            if preset
            else ""
        )
        name = table_name(self.context.catalog, table)
        description = (
            f"Insert rows into {name}, all or none; values may be null; returns them as stored.{filled}"
        )
        title = f"Insert rows into {self.context.title_of(table)}"
        return self.definition_of(description, schema, CHANGES, title, annotations)

    def bind(self, arguments: Mapping[str, object]) -> ChangeCall:
        """Bind the rows in *arguments* to a call."""
        listed = self.definition.input_schema["properties"]
        asked = self.read(InsertArguments, arguments if "rows" in listed else {"rows": [{}], **arguments})
        table = self.table or self.target(asked.table)
        writes = granted_writes(table)
        most = writes.most or MOST_INSERTED
        if len(asked.rows) > most:
            raise errors.TooManyRows(
                f"rows must have at most {most} items, not {len(asked.rows)}.", hint="Split them."
            )
        columns, outputs = writes.insert or (), outputs_of(self.context, table, WriteKind.INSERT)
        known = named_columns(table, columns)
        given = (_without_generated_key(table, row) for row in asked.rows)
        rows = [read_values(known, row, f"rows[{at}]") for at, row in enumerate(given)]
        key = _conflict_key(table, writes, asked, rows)
        steps = []
        for at, values in enumerate(rows):
            missing = [each.name for each in columns if each.required and each not in values]
            if missing:
                raise errors.BadArgument(f"rows[{at}] needs {listing(missing)}.")
            shape = Write(
                kind=WriteKind.INSERT,
                table=table,
                # In the order of the table, so that equal sets of columns share one statement.
                columns=tuple(each for each in columns if each in values),
                outputs=outputs,
                conflict=key,
                conflict_where=writes.partial_keys[key].predicate if key in writes.partial_keys else "",
            )
            if asked.on_conflict is OnConflict.UPDATE:
                shape = replace(shape, instead=_update_instead(shape, f"rows[{at}]"))
            steps.append((shape, parameters(values)))
        return self.call(table, steps, asked)


def _without_generated_key(table: Table, row: Mapping[str, object]) -> Mapping[str, object]:
    """Return *row* without null for a column of the key that the database fills in and that takes no null."""
    key = [each for each in table.key_columns if not each.assigned]
    filled = {each.name: each for each in key if each.generated or each.default}
    return {
        name: value for name, value in row.items() if value is not None or find_caseless(name, filled) is None
    }


def _choices(writes: Iterable[Writes]) -> Sequence[OnConflict]:
    """Return what on_conflict may be where *writes* are granted; nothing if they have no key for it."""
    keyed = [each for each in writes if each.conflict_keys]
    if not keyed:
        return ()
    updates = [OnConflict.UPDATE] * any(map(_may_update, keyed))
    return (OnConflict.ERROR, OnConflict.IGNORE, *updates)


def _may_update(writes: Writes) -> bool:
    """Return whether a row with the columns that *writes* require can be an update instead."""
    required = {each for each in writes.insert or () if each.required}
    return bool(writes.update) and any(required <= {*key, *writes.update} for key in writes.conflict_keys)


def _upserts(
    choices: Sequence[OnConflict], keys: Sequence[KeyColumns], writes: Writes = NO_WRITES
) -> Mapping[str, Mapping[str, object] | None]:
    """Return the schemas of the arguments of upserts, None for what to omit; *keys*: of the only table."""
    of = _key_list(keys, writes) if len(keys) == 1 else "conflict_key"
    how = {"default": OnConflict.ERROR, **description_of(f"if a row has the same {of}"), **STRING}
    which = _key_list(keys, writes) if keys else "a unique key; default the primary key"
    key = {**description_of(which), "items": STRING, "type": "array"}
    return {
        "on_conflict": how | {"enum": list(map(str, choices))} if choices else None,
        "conflict_key": key if choices and len(keys) != 1 else None,
    }


def _key_list(keys: Iterable[KeyColumns], writes: Writes = NO_WRITES) -> str:
    """Return the names of *keys*, and which of them *writes* say are about some rows."""
    return " or ".join(
        ", ".join(each.name for each in key) + " (some rows)" * (key in writes.partial_keys) for key in keys
    )


def _conflict_key(
    table: Table, writes: Writes, asked: InsertArguments, rows: Sequence[Collection[Column]]
) -> KeyColumns:
    """Return the unique key by which existing *rows* are found, empty if none are looked for."""
    if asked.on_conflict is OnConflict.ERROR:
        if asked.conflict_key:
            raise errors.BadArgument(
                "conflict_key has no effect without on_conflict.", hint="Set on_conflict, or leave it out."
            )
        return ()
    if asked.on_conflict is OnConflict.UPDATE and not writes.update:
        raise errors.Denied(f"on_conflict: update is not granted for {table.name}.")
    keys = writes.conflict_keys
    if not keys:
        raise errors.BadArgument(f"on_conflict: {table.name} has no unique key that rows may set.")
    if asked.conflict_key:
        keys = (_named_key(table, writes, asked.conflict_key),)
    preset = {each.column for each in writes.insert_presets}
    given = [preset.union(row) for row in rows]
    fitting = [key for key in keys if all(each.issuperset(key) for each in given)]
    # A row with null in a key of several columns is like no other, and so is one outside a partial index:
    # another key is meant, if there is one.
    lesser = [key for key in fitting if _may_be_partly_null(key) or key in writes.partial_keys]
    fitting = [key for key in fitting if key not in lesser] or fitting
    hint = f"Keys: {_key_list(fitting or keys)}."
    if not fitting:
        rule = "on_conflict needs all columns of one unique key in each row"
        raise errors.BadArgument(f"{_incomplete_row(keys, given)}: {rule}.", hint=hint)
    primary = any(
        key.primary and key.columns == tuple(each.name for each in fitting[0]) for key in table.keys
    )
    if len(fitting) > 1 and not primary:
        raise errors.BadArgument("conflict_key is needed: the rows give several unique keys.", hint=hint)
    return fitting[0]


def _incomplete_row(keys: Sequence[KeyColumns], given: Sequence[Collection[Column]]) -> str:
    """Return which row lacks which columns of the key, among *keys*, that most rows give."""
    lacking = [[[each.name for each in key if each not in row] for row in given] for key in keys]
    nearest = min(lacking, key=lambda rows: sum(map(bool, rows)))
    return next(f"rows[{at}] lacks {listing(names)}" for at, names in enumerate(nearest) if names)


def _may_be_partly_null(key: KeyColumns) -> bool:
    return len(key) > 1 and any(each.nullable for each in key)


def _named_key(table: Table, writes: Writes, names: Sequence[str]) -> KeyColumns:
    """Return the key in *writes* that has the columns *names*, or raise a CallError."""
    known = named_columns(table, table.columns)
    found = {find_caseless(name, known) for name in names}
    for key in writes.conflict_keys:
        if set(key) == found:
            return key
    message = f"conflict_key: {listing(names)} is not a unique key of {table.name} that rows may set."
    if any(set(key) == found for key in writes.partial_keys):
        message = (
            f"conflict_key: {listing(names)} is unique among some rows only, by a condition of an index "
        )
        message += "that upserts cannot use."
    raise errors.BadArgument(message, hint=f"Keys: {_key_list(writes.conflict_keys)}.")


def _update_instead(shape: Write, place: str) -> Write | None:
    """Return the update of a row that exists, None if *shape*, given at *place*, sets nothing but the key."""
    update = shape.writes.update
    given = [each for each in shape.columns if each not in shape.conflict]
    if fixed := [each.name for each in given if each not in update]:
        message = f"{place}: {listing(fixed)} can be inserted, but not updated."
        raise errors.BadArgument(message, hint='Leave it out, or use on_conflict "ignore".')
    if not given and not shape.writes.update_presets:
        return None
    return Write(kind=WriteKind.UPDATE, table=shape.table, columns=tuple(given), outputs=shape.outputs)
