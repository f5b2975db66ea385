"""The tools `list_T` and `list_rows`: rows that meet conditions, in an order, a page at a time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dbtools.catalog import Column, Table
from dbtools.cells import Cut, class_of, size
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
from dbtools.paths import Names, Place, label_of
from dbtools.results import (
    Answer,
    Link,
    ResultSet,
    Table as Encoded,
    encode_rows,
    envelope,
    fitting,
    narrowed,
    write,
)
from dbtools.statement import Output, Select, Statement, bind_conditions, bind_order
from dbtools.tools.arguments import ListArguments, RowsArguments, narrowed_schema, read, schema_of
from dbtools.tools.definition import ROWS_SCHEMA, Setting, ToolDefinition
from dbtools.tools.nearest_values import Doubts, doubts, explain
from dbtools.tools.tables import limited_schema, table_of, table_schema
from dbtools.tools.wording import (
    LONGEST_LABEL,
    LONGEST_TABLE_COMMENT,
    cleaned,
    columns_line,
    quotation,
    table_name,
)
from dbtools.types import Family, Operator

UNASKED_BYTES = 64  #: bytes that a blob may have to be shown in a list that did not name its column
MOST_LINKS = 10
ENVELOPE = 800  #: bytes for all but rows, columns and cursor


@dataclass(frozen=True, kw_only=True)
class ListRows:
    """`list_T` for one table."""

    setting: Setting
    names: Names

    @property
    def table(self) -> Table:
        """The table that it is for."""
        return self.names.table

    @property
    def name(self) -> str:
        """The name of the tool."""
        return f"list_{self.setting.name(self.names.table)}"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return _definition(self.setting, self.names, self.name)

    def bind(self, arguments: Mapping[str, object]) -> "ListCall":
        """Return the call that lists the rows that *arguments* ask for."""
        asked = read(ListArguments, arguments, bounds={"limit": self.setting.limits.max_rows})
        return bind_list(self.setting, self.names, asked)


@dataclass(frozen=True, kw_only=True)
class ListRowsOfAny:
    """`list_rows` for any table."""

    setting: Setting
    name: str = "list_rows"
    table: None = None

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        schema = table_schema(self.setting, schema_of(RowsArguments))
        return ToolDefinition(
            name=self.name,
            title="List rows",
            description=(
                "List rows of one table or view that meet conditions, in an order, a page at a time. "
                "Columns may be paths along foreign keys, such as customer.country; describe_tables "
                "names columns and paths. For totals use aggregate_rows."
            ),
            input_schema=limited_schema(self.setting, schema),
            output_schema=ROWS_SCHEMA,
        )

    def bind(self, arguments: Mapping[str, object]) -> "ListCall":
        """Return the call that lists the rows that *arguments* ask for."""
        asked = read(RowsArguments, arguments, bounds={"limit": self.setting.limits.max_rows})
        table = table_of(self.setting.catalog, asked.table, "table")
        return bind_list(self.setting, self.setting.names(table), asked)


def bind_list(setting: Setting, names: Names, asked: ListArguments) -> "ListCall":
    """Return the call that lists the rows that *asked* asks for of the table of *names*."""
    columns = find_columns(names, asked.columns)
    where = asked.comparisons()
    conditions, values = bind_conditions(names, where)
    total = total_order(names.table, bind_order(names, asked.order_by))
    mark = digest(
        setting.catalog.qualified(names.table),
        [[each.column, each.op, each.value, each.values] for each in asked.where],
        asked.match,
        [[step.term.name, step.direction] for step in total.order],
    )
    position = read_cursor(asked.cursor, mark, total) if asked.cursor else Position()
    steps, keys = after(total.order, position)
    shape = Select(
        table=names.table,
        outputs=_outputs(setting, names.table, columns, total, named=bool(asked.columns)),
        conditions=conditions,
        match=asked.match,
        order=total.order,
        after=steps,
        skip=position.skip > 0,
    )
    skip = {"skip": position.skip} if position.skip else {}
    limit = min(asked.limit, setting.limits.max_rows)
    statement = Statement(shape=shape, values={**values, **keys, **skip}, limit=limit)
    return ListCall(
        setting=setting,
        table=names.table,
        statement=statement,
        columns=columns,
        total=total,
        position=position,
        mark=mark,
        doubts=doubts(names.table, where, conditions, asked.match),
    )


def find_columns(names: Names, texts: Sequence[str]) -> Mapping[str, Place]:
    """Return what *texts* name by its name in results: by default all of the table's own columns."""
    if not texts:
        return names.table.column_by_name
    columns: dict[str, Place] = {}
    for at, text in enumerate(texts):
        place = names.find(text, f"columns[{at}]")
        label = label_of(place, text)
        if place in columns.values() or label in columns:
            raise BadArgument(f"columns: {place.name} is named twice.")
        columns[label] = place
    return columns


def _outputs(
    setting: Setting, table: Table, columns: Mapping[str, Place], total: Total, *, named: bool
) -> tuple[Output, ...]:
    """Return what to read: the visible columns, then what cursor and links need besides."""
    most = setting.limits.max_cell
    least = most if named else min(UNASKED_BYTES, most)
    shown = [
        Output(term=place, cut=least if place.type.family is Family.BYTES else most)
        for place in columns.values()
    ]
    visible = set(columns.values())
    needed = [step.term for step in total.order] if total.keyset else []
    hidden = dict.fromkeys(term for term in (*needed, *table.key_columns()) if term not in visible)
    return (*shown, *(Output(term=term, cut=LONGEST_KEY) for term in hidden))


@dataclass(frozen=True, kw_only=True)
class ListCall:
    """A call of `list_T` whose arguments have been read."""

    setting: Setting
    table: Table
    statement: Statement
    columns: Mapping[str, Place]  #: what is shown, by its name in the result
    total: Total
    position: Position
    mark: str
    doubts: Doubts

    def inquire(self, found: ResultSet) -> Sequence[Statement]:
        """Return what reads the values that are stored, where none was found."""
        first = self.position == Position()
        return [doubt.statement for doubt in self.doubts.each] if first and not found.rows else ()

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the page that *found* makes, with a cursor if there is more."""
        setting = self.setting
        names = list(self.columns)
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
        note = self._note(capped=count < len(found.rows), truncated=truncated, cuts=bool(cuts))
        if note := " ".join(filter(None, [note or explain(self.doubts, further), self.doubts.days])):
            extra["note"] = note
        structured, text = write(
            envelope(page, setting.style, truncated=truncated, extra=extra), page, setting.style
        )
        links = tuple(link for link in map(self._link, cuts[:MOST_LINKS]) if link is not None)
        return Answer(structured=structured, text=text, links=links, rows=count, truncated=truncated)

    def _fitting(self, found: ResultSet, encoded: Encoded) -> int:
        """Return how many rows fit together with the cursor after them."""
        setting = self.setting
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
        index = {output.term: at for at, output in enumerate(found.outputs)}
        values = [last[index[step.term]] for step in self.total.order] if self.total.keyset else []
        return write_cursor(next_position(self.total, self.position, count, values), self.mark)

    def _note(self, *, capped: bool, truncated: bool, cuts: bool) -> str:
        notes: list[str] = []
        if capped:
            notes.append("Cut at max_tokens: pass next_cursor as cursor, or name fewer columns.")
        elif truncated:
            notes.append("More rows: pass next_cursor as cursor, or narrow where; for totals aggregate_rows.")
        if cuts and self.table.keys:
            notes.append(f"Long cells are cut: get the row, or read {CELL_TEMPLATE}.")
        return " ".join(notes)

    def _cuts(self, found: ResultSet, count: int) -> Iterator[tuple[tuple[object, ...], Column]]:
        for row in found.rows[:count]:
            if Cut not in set(map(class_of, row)):
                continue
            for place, cell in zip(self.columns.values(), row, strict=False):
                # The row at the end of a path has an address that these columns may not tell.
                if isinstance(cell, Cut) and isinstance(place, Column):
                    yield row, place

    def _link(self, cut: tuple[tuple[object, ...], Column]) -> Link | None:
        row, column = cut
        index = {output.term: at for at, output in enumerate(self.statement.shape.outputs)}
        key = [row[index[each]] for each in self.table.key_columns()]
        uri = cell_uri(self.setting.catalog.label(self.table), key, column.name)
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
        yield ListRows(setting=setting, names=setting.names(table, near=True))


def define_for_any(setting: Setting) -> Iterator[ListRowsOfAny]:
    """Yield the one `list_rows`."""
    yield ListRowsOfAny(setting=setting)


def _definition(setting: Setting, names: Names, name: str) -> ToolDefinition:
    table = names.table
    label = cleaned(setting.catalog.label(table), LONGEST_LABEL)
    comment = quotation(table.comment, LONGEST_TABLE_COMMENT)
    parts = [
        f"List rows of {table_name(setting.catalog, table)}{comment and f' {comment}'}.",
        f"Columns: {columns_line(setting.catalog, table)}.",
    ]
    return ToolDefinition(
        name=name,
        title=f"List {label}",
        description=" ".join(parts),
        input_schema=input_schema(setting, names),
        output_schema=ROWS_SCHEMA,
    )


def input_schema(setting: Setting, names: Names) -> Mapping[str, object]:
    """Return the schema of `list_T`'s arguments: the model's, with a table's columns, paths and operators."""
    column = {"type": "string", "enum": list(names.listed)}
    # What is masked can be shown, and nothing else.
    plain = {name: place for name, place in names.listed.items() if place.type.mask is None}
    compared = {"type": "string", "enum": list(plain or names.listed)}
    taken = {operator for place in plain.values() for operator in place.type.operators}
    operators = [str(each) for each in Operator if each in taken]
    operator: dict[str, object] = {"type": "string", "enum": operators}
    if Operator.EQ in taken:
        operator["default"] = str(Operator.EQ)
    schema = schema_of(ListArguments)
    schema = narrowed_schema(schema, ("properties", "where", "items", "properties", "column"), compared)
    schema = narrowed_schema(schema, ("properties", "where", "items", "properties", "op"), operator)
    schema = narrowed_schema(schema, ("properties", "columns", "items"), column)
    return limited_schema(setting, schema)
