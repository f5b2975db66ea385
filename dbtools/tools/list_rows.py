"""The tool `list_T`: rows of one table that meet conditions, in an order, a page at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dbtools.catalog import Column, Table
from dbtools.cells import class_of, size
from dbtools.column_types import Family, Operator
from dbtools.errors import BadArgument
from dbtools.links import CELL_TEMPLATE, cell_uri
from dbtools.paging import (
    LONGEST_KEY,
    Position,
    Total,
    after,
    digest,
    next_position,
    read_cursor,
    total_order,
    write_cursor,
)
from dbtools.results import (
    Answer,
    Cut,
    Link,
    ResultSet,
    Table as Encoded,
    encode_rows,
    envelope,
    fitting,
    narrowed,
    write,
)
from dbtools.statement import (
    Output,
    Select,
    Statement,
    bind_conditions,
    bind_order,
    column_of,
)
from dbtools.tools.arguments import DEFAULT_LIMIT, ListArguments, narrowed_schema, read, schema_of
from dbtools.tools.definition import ROWS_SCHEMA, Setting, ToolDefinition
from dbtools.tools.wording import (
    LONGEST_TABLE_COMMENT,
    cleaned,
    columns_line,
    estimate,
    sentence,
)

UNASKED_BYTES = 64  #: bytes that a blob may have to be shown in a list that did not name its column
MOST_LINKS = 10
ENVELOPE = 600  #: bytes for all but rows, columns and cursor


@dataclass(frozen=True, kw_only=True)
class ListRows:
    """`list_T` for one table."""

    setting: Setting
    table: Table
    definition: ToolDefinition

    def bind(self, arguments: Mapping[str, object]) -> "ListCall":
        """Return the call that lists the rows that *arguments* ask for."""
        limits = self.setting.limits
        asked = read(ListArguments, arguments, bounds={"limit": limits.max_rows})
        columns = self._columns(asked.columns)
        conditions, values = bind_conditions(self.table, asked.comparisons())
        total = total_order(self.table, bind_order(self.table, asked.order_by))
        mark = digest(
            self.setting.catalog.qualified(self.table),
            [[each.column, each.op, each.value, each.values] for each in asked.where],
            asked.match,
            [[step.column.name, step.direction] for step in total.order],
        )
        position = read_cursor(asked.cursor, mark, total) if asked.cursor else Position()
        steps, keys = after(total.order, position)
        shape = Select(
            table=self.table,
            outputs=self._outputs(columns, total, named=bool(asked.columns)),
            conditions=conditions,
            match=asked.match,
            order=total.order,
            after=steps,
            skip=position.skip > 0,
        )
        skip = {"skip": position.skip} if position.skip else {}
        statement = Statement(
            shape=shape, values={**values, **keys, **skip}, limit=min(asked.limit, limits.max_rows)
        )
        return ListCall(
            tool=self,
            statement=statement,
            columns=columns,
            total=total,
            position=position,
            mark=mark,
        )

    def _columns(self, names: Sequence[str]) -> tuple[Column, ...]:
        if not names:
            return self.table.columns
        columns = tuple(column_of(self.table, name, f"columns[{at}]") for at, name in enumerate(names))
        if len(set(columns)) < len(columns):
            twice = next(column for column in columns if columns.count(column) > 1)
            raise BadArgument(f"columns: {twice.name} is named twice.")
        return columns

    def _outputs(self, columns: Sequence[Column], total: Total, *, named: bool) -> tuple[Output, ...]:
        """Return what to read: the visible columns, then what cursor and links need besides."""
        shown = [Output(column=column, cut=self._cut(column, named=named)) for column in columns]
        visible = {column.name for column in columns}
        needed = {step.column.name: step.column for step in total.order if total.keyset}
        needed |= {column.name: column for column in self.table.key_columns()}
        hidden = [
            Output(column=column, cut=LONGEST_KEY) for name, column in needed.items() if name not in visible
        ]
        return (*shown, *hidden)

    def _cut(self, column: Column, *, named: bool) -> int:
        most = self.setting.limits.max_cell
        return most if named or column.type.family is not Family.BYTES else min(UNASKED_BYTES, most)


@dataclass(frozen=True, kw_only=True)
class ListCall:
    """A call of `list_T` whose arguments have been read."""

    tool: ListRows
    statement: Statement
    columns: tuple[Column, ...]
    total: Total
    position: Position
    mark: str

    def render(self, found: ResultSet) -> Answer:
        """Return the page that *found* makes, with a cursor if there is more."""
        setting = self.tool.setting
        names = [column.name for column in self.columns]
        encoded, shown = encode_rows(found, names), found
        count = self._fitting(found, encoded)
        if count == 0 and found.rows:
            reserve = self._reserve(found, 1)
            shown = narrowed(found, names, setting.style, setting.limits, reserve=reserve)
            encoded, count = encode_rows(shown, names), 1
        page = Encoded(columns=encoded.columns, rows=encoded.rows[:count])
        truncated = found.more or count < len(found.rows)
        cuts = list(self._cuts(shown, count))
        extra: dict[str, object] = {"next_cursor": self._cursor(found, count)} if truncated else {}
        if note := self._note(capped=count < len(found.rows), truncated=truncated, cuts=bool(cuts)):
            extra["note"] = note
        structured, text = write(
            envelope(page, setting.style, truncated=truncated, extra=extra), page, setting.style
        )
        links = tuple(link for link in map(self._link, cuts[:MOST_LINKS]) if link is not None)
        return Answer(structured=structured, text=text, links=links, rows=count, truncated=truncated)

    def _fitting(self, found: ResultSet, encoded: Encoded) -> int:
        """Return how many rows fit together with the cursor after them."""
        setting = self.tool.setting
        count = len(found.rows)
        while count:
            reserve = self._reserve(found, count)
            fits = fitting(encoded, setting.style, setting.limits, reserve=reserve)
            if fits >= count:
                break
            count = fits
        return count

    def _reserve(self, found: ResultSet, count: int) -> int:
        return ENVELOPE + size(self._cursor(found, count))

    def _cursor(self, found: ResultSet, count: int) -> str:
        last = found.rows[count - 1]
        index = {output.column.name: at for at, output in enumerate(found.outputs)}
        values = [last[index[step.column.name]] for step in self.total.order] if self.total.keyset else []
        return write_cursor(next_position(self.total, self.position, count, values), self.mark)

    def _note(self, *, capped: bool, truncated: bool, cuts: bool) -> str:
        notes: list[str] = []
        if capped:
            notes.append("Cut at max_tokens: pass next_cursor as cursor, or name fewer columns.")
        elif truncated:
            notes.append("More rows: pass next_cursor as cursor, or narrow where.")
        if cuts and self.tool.table.keys:
            notes.append(f"Long cells are cut: get the row, or read {CELL_TEMPLATE}.")
        return " ".join(notes)

    def _cuts(self, found: ResultSet, count: int) -> Iterator[tuple[tuple[object, ...], Column]]:
        for row in found.rows[:count]:
            if Cut not in set(map(class_of, row)):
                continue
            for column, cell in zip(self.columns, row, strict=False):
                if isinstance(cell, Cut):
                    yield row, column

    def _link(self, cut: tuple[tuple[object, ...], Column]) -> Link | None:
        row, column = cut
        table = self.tool.table
        index = {output.column.name: at for at, output in enumerate(self.statement.shape.outputs)}
        key = [row[index[each.name]] for each in table.key_columns()]
        uri = cell_uri(self.tool.setting.catalog.label(table), key, column.name)
        return None if uri is None else Link(uri=uri, name=column.name, type=link_type(column))


def link_type(column: Column) -> str:
    """Return the MIME type that the whole of a cell of *column* has, before its bytes are known."""
    match column.type.family:
        case Family.BYTES:
            return "application/octet-stream"
        case Family.JSON | Family.ARRAY | Family.OBJECT:
            return "application/json"
        case _:
            return "text/plain"


def define(setting: Setting) -> Iterator[ListRows]:
    """Yield `list_T` for every table."""
    for table in setting.catalog.tables:
        definition = _definition(setting, table, setting.name(table))
        yield ListRows(setting=setting, table=table, definition=definition)


def _definition(setting: Setting, table: Table, name: str) -> ToolDefinition:
    label = cleaned(setting.catalog.label(table), 140)
    comment = sentence(cleaned(table.comment, LONGEST_TABLE_COMMENT))
    what = ", ".join(filter(None, [f"{table.kind} {label}", estimate(table)]))
    description = " ".join(
        filter(
            None,
            [
                f"List rows of {what}.",
                comment,
                f"Columns: {columns_line(setting.catalog, table)}.",
            ],
        )
    )
    return ToolDefinition(
        name=f"list_{name}",
        title=f"List {label}",
        description=description,
        input_schema=input_schema(setting, table),
        output_schema=ROWS_SCHEMA,
    )


def input_schema(setting: Setting, table: Table) -> Mapping[str, object]:
    """Return the schema of `list_T`'s arguments: the model's, with *table*'s columns and operators."""
    column = {"type": "string", "enum": [column.name for column in table.columns]}
    taken = {operator for column in table.columns for operator in column.type.operators}
    names = [str(each) for each in Operator if each in taken]
    operator: dict[str, object] = {"type": "string", "enum": names}
    if Operator.EQ in taken:
        operator["default"] = str(Operator.EQ)
    most = setting.limits.max_rows
    schema = schema_of(ListArguments)
    schema = narrowed_schema(schema, ("properties", "where", "items", "properties", "column"), column)
    schema = narrowed_schema(schema, ("properties", "where", "items", "properties", "op"), operator)
    schema = narrowed_schema(schema, ("properties", "columns", "items"), column)
    limit = {"type": "integer", "minimum": 1, "maximum": most, "default": min(DEFAULT_LIMIT, most)}
    return narrowed_schema(schema, ("properties", "limit"), limit)
