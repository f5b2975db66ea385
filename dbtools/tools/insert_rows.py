"""The tools `insert_T` and `insert_rows`: new rows of a table, all or none."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Table, Writes
from dbtools.errors import listing
from dbtools.statement import Write, WriteKind
from dbtools.tools.arguments import Array
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
from dbtools.tools.wording import cleaned, table_name

MOST_INSERTED = 100  #: rows of one call, unless the role says otherwise
DESCRIPTION = (
    "Insert rows into a table, all or none; values may be null; returns them as stored. "
    "describe_tables says which columns to give."
)


class InsertArguments(ChangeArguments):
    """Arguments of `insert_T`."""

    rows: Annotated[tuple[Values, ...], Field(min_length=1), Array] = Field(
        description='such as [{"name": "Ann"}]'
    )


class InsertRowsArguments(InsertArguments):
    """Arguments of `insert_rows`."""

    table: str


class InsertRows(ChangeTool):
    """`insert_T` for one table, or `insert_rows`."""

    prefix = "insert"
    general_name = "insert_rows"
    effects = effects(destroys=False, repeats=False)

    @classmethod
    def grants(cls, writes: Writes) -> bool:
        """Return whether rows may be inserted."""
        return writes.insert is not None

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        if self.table is None:
            schema = self.schema(InsertRowsArguments, self.labels())
            return self.defined(DESCRIPTION, schema, CHANGES, "Insert rows", self.effects)
        table, writes = self.table, granted_writes(self.table)
        most = writes.most or MOST_INSERTED
        columns = writes.insert or ()
        required = [column.name for column in columns if column.required]
        schema = self.schema(InsertArguments)
        properties = schema["properties"]
        assert isinstance(properties, Mapping)
        items = row_schema(self.setting.catalog, table, columns, required)
        rows = {"type": "array", "minItems": 1, "maxItems": most, "items": items}
        schema["properties"] = {**dict(reversed(list(properties.items()))), "rows": rows}
        preset = [
            each.column.name for each in writes.insert_presets if each.column.name in table.column_by_name
        ]
        filled = f" Filled in for you: {cleaned(listing(preset), 200)}." if preset else ""
        name = table_name(self.setting.catalog, table)
        description = (
            f"Insert rows into {name}, all or none; values may be null; returns them as stored.{filled}"
        )
        title = f"Insert rows into {self.setting.shown(table)}"
        return self.defined(description, schema, CHANGES, title, self.effects)

    def bind(self, arguments: Mapping[str, object]) -> ChangeCall:
        """Bind the rows in *arguments* to a call."""
        if self.table is not None:
            return self._call(self.table, self.setting.read(InsertArguments, arguments))
        asked = self.setting.read(InsertRowsArguments, arguments)
        return self._call(self.target(asked.table), asked)

    def _call(self, table: Table, asked: InsertArguments) -> ChangeCall:
        writes = granted_writes(table)
        most = writes.most or MOST_INSERTED
        if len(asked.rows) > most:
            raise errors.TooManyRows(
                f"rows: at most {most} a call, not {len(asked.rows)}.", hint="Split them."
            )
        columns, outputs = writes.insert or (), outputs_of(self.setting, table)
        steps = []
        for at, row in enumerate(asked.rows):
            values = read_values(columns, row, f"rows[{at}]")
            missing = [each.name for each in columns if each.required and each not in values]
            if missing:
                raise errors.BadArgument(f"rows[{at}]: needs {listing(missing)}.")
            shape = Write(
                kind=WriteKind.INSERT,
                table=table,
                # In the order of the table, so that equal sets of columns share one statement.
                columns=tuple(each for each in columns if each in values),
                outputs=outputs,
            )
            steps.append((shape, parameters(values)))
        return write_call(self, table, steps, asked)
