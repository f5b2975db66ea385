"""The tools `get_T` and `get_row`: one row by its key, with whole cells, and pictures and sound as such."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Column, Table
from dbtools.cells import Cut, Encode, dump, encoder, size
from dbtools.errors import listing
from dbtools.links import CELL_TEMPLATE, cell_uri
from dbtools.paths import Names, Place, folded
from dbtools.results import (
    Answer,
    Link,
    ResultSet,
    is_media,
    media_type,
    shown_cut,
    write,
)
from dbtools.statement import Comparison, Condition, Output, Select, Statement, bind_conditions, decode
from dbtools.tools.arguments import (
    MOST_COLUMNS,
    Arguments,
    Array,
    Object,
    Written,
    as_text,
    check,
    read,
    schema_of,
    unknown_argument,
)
from dbtools.tools.attachments import LARGEST_MEDIA, attached
from dbtools.tools.definition import ROW_SCHEMA, Setting, Settled, ToolDefinition
from dbtools.tools.list_rows import find_columns, link_type
from dbtools.tools.naming import argument_names
from dbtools.tools.tables import table_of, table_schema
from dbtools.tools.wording import LONGEST_LABEL, cleaned, quotation, table_name
from dbtools.types import Family, Operator, quoted

MOST_LINKS = 10
LONGEST_CHARACTER = 4  #: bytes
ROOM_FOR_NOTE = 300  #: bytes
MOST_NAMED = 3  #: of the columns that are cut
ROOM_FOR_LENGTH = 40  #: bytes that say how long a cut cell is
SHORTEST = 100  #: bytes that a cut cell keeps


class RowArguments(Arguments):
    """Arguments of `get_row`."""

    table: str
    key: Annotated[dict[str, Written], Object] = Field(description='such as {"id": "17"}')
    columns: Annotated[tuple[str, ...], Field(max_length=MOST_COLUMNS), Array] = Field(
        default=(), description="default all; also paths"
    )


@dataclass(frozen=True, kw_only=True)
class GetRow:
    """`get_T` for one table that has a key."""

    setting: Setting
    names: Names
    keys: Mapping[str, Column]  #: the key's columns by the names of their arguments

    @property
    def table(self) -> Table:
        """The table that it is for."""
        return self.names.table

    @property
    def name(self) -> str:
        """The name of the tool."""
        return f"get_{self.setting.name(self.names.table)}"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return _definition(self.setting, self.names.table, self.keys, self.name)

    @cached_property
    def reading(self) -> "Reading":
        """What is read in each call."""
        return reading_of(self.setting, self.names, self.keys)

    def bind(self, arguments: Mapping[str, object]) -> "GetCall":
        """Return the call that gets the row whose key *arguments* are."""
        check(arguments)
        for name in arguments:
            if name not in self.keys:
                raise unknown_argument(name, list(self.keys))
        return bind_get(self.reading, key_texts(self.keys, arguments))


@dataclass(frozen=True, kw_only=True)
class GetRowOfAny:
    """`get_row` for any table that has a key."""

    setting: Setting
    name: str = "get_row"
    table: None = None

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return ToolDefinition(
            name=self.name,
            title="Get a row",
            description=(
                "Get one row of a table by its key, all columns, long texts whole; "
                "pictures and sound come as such. Columns may be paths along foreign keys."
            ),
            input_schema=table_schema(self.setting, schema_of(RowArguments)),
            output_schema=ROW_SCHEMA,
        )

    def bind(self, arguments: Mapping[str, object]) -> "GetCall":
        """Return the call that gets the row that *arguments* name."""
        asked = read(RowArguments, arguments)
        table = table_of(self.setting.catalog, asked.table, "table")
        keys = key_arguments(table)
        if not keys:
            raise errors.BadArgument(f"{table.name} has no key.", hint="Use list_rows with where.")
        known = {column.name: column for column in keys.values()}
        given: dict[str, object] = {}
        for name, value in asked.key.items():
            column = folded(name, known)
            if column is None:
                raise unknown_argument(name, list(known), "key")
            if column.name in given:
                raise errors.BadArgument(f"key: {column.name} is named twice.")
            given[column.name] = value
        texts = key_texts(known, given, "key.")
        reading = reading_of(self.setting, self.setting.names(table), known, asked.columns)
        return bind_get(reading, texts)


def key_arguments(table: Table) -> Mapping[str, Column]:
    """Return the columns that name a row of *table* by their arguments; none where no row can be named."""
    keys = argument_names(table.key_columns())
    return keys if all(Operator.EQ in column.type.operators for column in keys.values()) else {}


def key_texts(
    keys: Mapping[str, Column], arguments: Mapping[str, object], prefix: str = ""
) -> tuple[str, ...]:
    """Return the values of *keys* in *arguments* as texts, or raise BadArgument."""
    texts: list[str] = []
    for name, column in keys.items():
        text = as_text(arguments.get(name))
        if text is None:
            raise errors.BadArgument(f"{prefix}{name} is missing.", hint=f"The key is: {listing(keys)}.")
        if not isinstance(text, str):
            raise errors.BadArgument(f"{prefix}{name}: wants {column.type.wants}, not an array or an object.")
        texts.append(text)
    return tuple(texts)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is read of one row of a table."""

    setting: Setting
    names: Names
    keys: Mapping[str, Column]  #: the key's columns by the names of their arguments
    places: Mapping[str, Place]  #: what is shown, by its name in the result
    outputs: tuple[Output, ...]  #: what is shown first, then what else there is of the key

    @cached_property
    def encoders(self) -> tuple[Encode, ...]:
        """What makes JSON values of the cells that are shown."""
        return tuple(encoder(place.type) for place in self.places.values())

    @cached_property
    def shape(self) -> Select | None:
        """What is asked of the database in each call; None where that depends on what kind a value is of."""
        if any(column.type.family is Family.ANY for column in self.keys.values()):
            return None
        conditions = tuple(
            Condition(term=column, operator=Operator.EQ, parameters=(name,))
            for name, column in zip(self.parameters, self.keys.values(), strict=True)
        )
        return Select(table=self.names.table, outputs=self.outputs, conditions=conditions)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the values of the key."""
        return tuple(f"c{at}_0" for at in range(len(self.keys)))


def reading_of(
    setting: Setting, names: Names, keys: Mapping[str, Column], columns: Sequence[str] = ()
) -> Reading:
    """Return what it takes to show *columns*, by default all, of a row by its *keys*."""
    places = find_columns(names, columns)
    most = setting.limits.max_bytes
    cuts = [
        LARGEST_MEDIA if place.type.family is Family.BYTES and isinstance(place, Column) else most
        for place in places.values()
    ]
    shown = [Output(term=place, cut=cut) for place, cut in zip(places.values(), cuts, strict=True)]
    hidden = [Output(term=column) for column in keys.values() if column not in places.values()]
    return Reading(setting=setting, names=names, keys=keys, places=places, outputs=(*shown, *hidden))


def bind_get(reading: Reading, texts: Sequence[str]) -> "GetCall":
    """Return the call that reads the row whose key is written as *texts*."""
    if reading.shape is None:
        statement = key_statement(reading.names, reading.keys, texts, reading.outputs)
    else:
        keys = zip(reading.keys.items(), texts, strict=True)
        decoded = [decode(column, Operator.EQ, text, name) for (name, column), text in keys]
        values = dict(zip(reading.parameters, decoded, strict=True))
        statement = Statement(shape=reading.shape, values=values, limit=1)
    return GetCall(reading=reading, texts=texts, statement=statement)


def key_statement(
    names: Names, keys: Mapping[str, Column], texts: Sequence[str], outputs: tuple[Output, ...]
) -> Statement:
    """Return the statement that reads *outputs* of the row whose *keys* are *texts*."""
    comparisons = [
        Comparison(column=column.name, value=text, argument=name, value_argument=name)
        for (name, column), text in zip(keys.items(), texts, strict=True)
    ]
    conditions, values = bind_conditions(names, comparisons)
    shape = Select(table=names.table, outputs=outputs, conditions=conditions)
    return Statement(shape=shape, values=values, limit=1)


@dataclass(frozen=True, kw_only=True)
class GetCall(Settled):
    """A call of `get_T` whose key has been read."""

    reading: Reading
    texts: Sequence[str]  #: the values of the key, as they were given
    statement: Statement

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the row, or raise NoRow."""
        if not found.rows:
            raise errors.NoRow(f"{self.reading.names.table.name} has no row with {self._key()}.")
        cells = dict(zip(self.reading.places, found.rows[0], strict=False))
        if any(isinstance(cell, Cut | bytes) for cell in cells.values()):
            return self._large(found, cells)
        encoded = zip(cells.items(), self.reading.encoders, strict=True)
        row = {name: encode(cell) for (name, cell), encode in encoded}
        structured, text = write({"row": row}, None, self.reading.setting.style)
        if len(text) > self._room() // LONGEST_CHARACTER:
            return self._large(found, cells)
        return Answer(structured=structured, text=text, rows=1)

    def _large(self, found: ResultSet, cells: Mapping[str, object]) -> Answer:
        """Return a row in which something may have to be cut, or is shown as what it is."""
        table = self.reading.names.table
        uris = {
            name: self._uri(found.rows[0], name)
            for name, cell in cells.items()
            if isinstance(cell, Cut | bytes)
        }
        row = {
            name: _shown(cell, uris[name], encode) if name in uris else encode(cell)
            for (name, cell), encode in zip(cells.items(), self.reading.encoders, strict=True)
        }
        cut = self._fit(row, cells)
        media, left = attached(cells, uris, self._room() - size({"row": row}))
        cut += left
        structured: dict[str, object] = {"row": row}
        if cut:
            more = f" and {len(cut) - MOST_NAMED} more" if len(cut) > MOST_NAMED else ""
            names = ", ".join(cut[:MOST_NAMED]) + more
            structured["note"] = f"Cut: {names}. Read {CELL_TEMPLATE} for the whole."
        links = tuple(
            Link(uri=uri, name=name, type=link_type(table.column_by_name[name]))
            for name in cut[:MOST_LINKS]
            if (uri := self._uri(found.rows[0], name)) is not None
        )
        structured, text = write(structured, None, self.reading.setting.style)
        return Answer(structured=structured, text=text, media=media, links=links, rows=1)

    def _key(self) -> str:
        pairs = zip(self.reading.keys, self.texts, strict=True)
        return ", ".join(f"{name} {quoted(text)}" for name, text in pairs)

    def _uri(self, cells: Sequence[object], name: str) -> str | None:
        """Return the address of what is shown as *name*, which a cell at the end of a path does not have."""
        place = self.reading.places[name]
        if not isinstance(place, Column):
            return None
        at = {output.term: at for at, output in enumerate(self.statement.shape.outputs)}
        table = self.reading.names.table
        key = [cells[at[column]] for column in table.key_columns()]
        return cell_uri(self.reading.setting.catalog.label(table), key, place.name)

    def _room(self) -> int:
        return self.reading.setting.limits.max_bytes - ROOM_FOR_NOTE

    def _fit(self, row: dict[str, object], cells: Mapping[str, object]) -> list[str]:
        """Cut the longest cells of *row* until it fits; return the names of all that are cut."""
        cut = [name for name, cell in cells.items() if isinstance(cell, Cut)]
        room = self._room()
        total = size({"row": row})
        if total <= room:
            return cut
        sizes = {name: size(value) for name, value in row.items()}
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            if total <= room:
                break
            kept = max(SHORTEST, sizes[name] - (total - room) - ROOM_FOR_LENGTH)
            row[name] = _shortened(cells[name], row[name], kept)
            total += size(row[name]) - sizes[name]
            if name not in cut:
                cut.append(name)
        return cut


def _shown(cell: object, uri: str | None, encode: Encode) -> object:
    """Return what stands for the bytes or the cut *cell* at *uri*."""
    if isinstance(cell, Cut):
        return shown_cut(cell) + (f" {uri}" if uri else "")
    if isinstance(cell, bytes) and uri is not None and is_media(type := media_type(cell)):
        # The picture itself goes along; in base64 it would only cost tokens.
        return f"[{len(cell):,} bytes, {type}] {uri}"
    return encode(cell)


def _shortened(cell: object, shown: object, most: int) -> str:
    """Return *cell*, or the JSON value *shown* that it is, cut so that it takes about *most* bytes."""
    if isinstance(cell, bytes):
        return shown_cut(Cut(start=cell, length=len(cell)))
    text = shown if isinstance(shown, str) else dump(shown)[1]
    length = len(text)
    if isinstance(cell, Cut) and isinstance(cell.start, str):
        text, length = cell.start, cell.length
    # A character takes a byte at least.
    end = bisect_right(range(min(len(text), most) + 1), most, key=lambda end: size(text[:end])) - 1
    return shown_cut(Cut(start=text[:end], length=length))


def define(setting: Setting) -> Iterator[GetRow]:
    """Yield `get_T` for every table that has a key."""
    for table in setting.catalog.tables:
        if keys := key_arguments(table):
            yield GetRow(setting=setting, names=setting.names(table), keys=keys)


def define_for_any(setting: Setting) -> Iterator[GetRowOfAny]:
    """Yield the one `get_row`."""
    yield GetRowOfAny(setting=setting)


def _definition(setting: Setting, table: Table, keys: Mapping[str, Column], name: str) -> ToolDefinition:
    label = cleaned(setting.catalog.label(table), LONGEST_LABEL)
    pictures = any(column.type.family is Family.BYTES for column in table.columns)
    parts = [
        f"Get one row of {table_name(setting.catalog, table)} by its key, long texts whole.",
        "Pictures and sound come as such." if pictures else "",
    ]
    return ToolDefinition(
        name=name,
        title=f"Get one of {label}",
        description=" ".join(filter(None, parts)),
        input_schema={
            "type": "object",
            "properties": {argument: _argument(argument, column) for argument, column in keys.items()},
            "required": list(keys),
            "additionalProperties": False,
        },
        output_schema=ROW_SCHEMA,
    )


def _argument(name: str, column: Column) -> dict[str, object]:
    schema = column.type.schema() or {"type": "string"}
    if column.choices and "enum" not in schema:
        schema["enum"] = list(column.choices)
    comment = quotation(column.comment, 80)
    if name != column.name:
        comment = " ".join(filter(None, [f"Column {cleaned(column.name, 63)}.", comment]))
    return schema | ({"description": comment} if comment else {})
