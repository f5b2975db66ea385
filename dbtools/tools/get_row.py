"""The tool `get_T`: one row by its key, with whole cells, and pictures and sound as such."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dbtools import errors
from dbtools.catalog import Column, Table
from dbtools.cells import dump, encoder, size
from dbtools.column_types import Family, Operator, quoted
from dbtools.errors import listing
from dbtools.links import CELL_TEMPLATE, cell_uri
from dbtools.results import (
    Answer,
    Cut,
    Link,
    Media,
    ResultSet,
    is_media,
    media_type,
    shown_cut,
    write,
)
from dbtools.statement import Comparison, Output, Select, Statement, bind_conditions
from dbtools.tools.arguments import as_text, check, unknown_argument
from dbtools.tools.definition import ROW_SCHEMA, Setting, ToolDefinition
from dbtools.tools.list_rows import link_type
from dbtools.tools.naming import argument_names
from dbtools.tools.wording import LONGEST_TABLE_COMMENT, cleaned, sentence

LARGEST_MEDIA = 1_000_000  #: bytes of the pictures and sounds that go along with a row
LARGEST_OTHER = 100_000  #: bytes of the other blobs that do
MOST_LINKS = 10
ROOM_FOR_NOTE = 300  #: bytes
MOST_NAMED = 3  #: of the columns that are cut
ROOM_FOR_LENGTH = 40  #: bytes that say how long a cut cell is
SHORTEST = 100  #: bytes that a cut cell keeps


@dataclass(frozen=True, kw_only=True)
class GetRow:
    """`get_T` for one table that has a key."""

    setting: Setting
    table: Table
    keys: Mapping[str, Column]  #: the key's columns by the names of their arguments
    definition: ToolDefinition

    def bind(self, arguments: Mapping[str, object]) -> "GetCall":
        """Return the call that gets the row whose key *arguments* are."""
        check(arguments)
        for name in arguments:
            if name not in self.keys:
                raise unknown_argument(name, list(self.keys))
        texts = [self._text(name, arguments.get(name)) for name in self.keys]
        return self.bind_key(texts)

    def bind_key(self, texts: Sequence[str]) -> "GetCall":
        """Return the call that gets the row whose key's values are written as *texts*."""
        statement = key_statement(self.table, self.keys, texts, self._outputs())
        shown = ", ".join(f"{name} {quoted(text)}" for name, text in zip(self.keys, texts, strict=True))
        return GetCall(tool=self, statement=statement, key=shown)

    def _text(self, name: str, value: object) -> str:
        text = as_text(value)
        if text is None:
            raise errors.BadArgument(f"{name} is missing.", hint=f"The key is: {listing(self.keys)}.")
        if not isinstance(text, str):
            raise errors.BadArgument(
                f"{name}: wants {self.keys[name].type.wants}, not an array or an object."
            )
        return text

    def _outputs(self) -> tuple[Output, ...]:
        most = self.setting.limits.max_bytes
        return tuple(
            Output(column=column, cut=LARGEST_MEDIA if column.type.family is Family.BYTES else most)
            for column in self.table.columns
        )


def key_statement(
    table: Table, keys: Mapping[str, Column], texts: Sequence[str], outputs: tuple[Output, ...]
) -> Statement:
    """Return the statement that reads *outputs* of the row of *table* whose *keys* are *texts*."""
    comparisons = [
        Comparison(column=column.name, value=text, argument=name, value_argument=name)
        for (name, column), text in zip(keys.items(), texts, strict=True)
    ]
    conditions, values = bind_conditions(table, comparisons)
    return Statement(
        shape=Select(table=table, outputs=outputs, conditions=conditions), values=values, limit=1
    )


@dataclass(frozen=True, kw_only=True)
class GetCall:
    """A call of `get_T` whose key has been read."""

    tool: GetRow
    statement: Statement
    key: str

    def render(self, found: ResultSet) -> Answer:
        """Return the row, or raise NoRow."""
        if not found.rows:
            raise errors.NoRow(f"{self.tool.table.name} has no row with {self.key}.")
        cells = dict(zip((column.name for column in self.tool.table.columns), found.rows[0], strict=True))
        uris = {name: self._uri(cells, name) for name, cell in cells.items() if isinstance(cell, Cut | bytes)}
        media = tuple(self._media(cells, uris))
        row = {
            column.name: self._shown(column, cells[column.name], uris.get(column.name))
            for column in self.tool.table.columns
        }
        cut = self._fit(row, cells)
        structured: dict[str, object] = {"row": row}
        if cut:
            more = f" and {len(cut) - MOST_NAMED} more" if len(cut) > MOST_NAMED else ""
            names = ", ".join(cut[:MOST_NAMED]) + more
            structured["note"] = f"Cut: {names}. Read {CELL_TEMPLATE} for the whole."
        links = tuple(
            Link(uri=uri, name=name, type=link_type(self.tool.table.column_by_name[name]))
            for name in cut[:MOST_LINKS]
            if (uri := self._uri(cells, name)) is not None
        )
        structured, text = write(structured, None, self.tool.setting.style)
        return Answer(structured=structured, text=text, media=media, links=links, rows=1)

    def _uri(self, cells: Mapping[str, object], column: str) -> str | None:
        key = [cells[each.name] for each in self.tool.keys.values()]
        return cell_uri(self.tool.setting.catalog.label(self.tool.table), key, column)

    def _media(self, cells: Mapping[str, object], uris: Mapping[str, str | None]) -> Iterator[Media]:
        room = LARGEST_MEDIA
        for name, cell in cells.items():
            uri = uris.get(name)
            if not isinstance(cell, bytes) or not cell or uri is None:
                continue
            type = media_type(cell)
            if len(cell) <= (room if is_media(type) else min(room, LARGEST_OTHER)):
                room -= len(cell)
                yield Media(uri=uri, type=type, content=cell)

    def _shown(self, column: Column, cell: object, uri: str | None) -> object:
        if isinstance(cell, Cut):
            return shown_cut(cell) + (f" {uri}" if uri else "")
        if isinstance(cell, bytes) and uri is not None and is_media(type := media_type(cell)):
            # The picture itself goes along; in base64 it would only cost tokens.
            return f"[{len(cell):,} bytes, {type}] {uri}"
        return encoder(column.type)(cell)

    def _fit(self, row: dict[str, object], cells: Mapping[str, object]) -> list[str]:
        """Cut the longest cells of *row* until it fits; return the names of all that are cut."""
        cut = [name for name, cell in cells.items() if isinstance(cell, Cut)]
        room = self.tool.setting.limits.max_bytes - ROOM_FOR_NOTE
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


def _shortened(cell: object, shown: object, most: int) -> str:
    """Return *cell*, or the JSON value *shown* that it is, cut so that it takes about *most* bytes."""
    if isinstance(cell, bytes):
        return shown_cut(Cut(start=cell, length=len(cell)))
    text = shown if isinstance(shown, str) else dump(shown)[1]
    length = len(text)
    if isinstance(cell, Cut) and isinstance(cell.start, str):
        text, length = cell.start, cell.length
    end = bisect_right(range(len(text) + 1), most, key=lambda end: size(text[:end])) - 1
    return shown_cut(Cut(start=text[:end], length=length))


def define(setting: Setting) -> Iterator[GetRow]:
    """Yield `get_T` for every table that has a key."""
    for table in setting.catalog.tables:
        keys = argument_names(table.key_columns())
        if keys and all(Operator.EQ in column.type.operators for column in keys.values()):
            definition = _definition(setting, table, keys, setting.name(table))
            yield GetRow(setting=setting, table=table, keys=keys, definition=definition)


def _definition(setting: Setting, table: Table, keys: Mapping[str, Column], name: str) -> ToolDefinition:
    label = cleaned(setting.catalog.label(table), 140)
    comment = sentence(cleaned(table.comment, LONGEST_TABLE_COMMENT))
    pictures = any(column.type.family is Family.BYTES for column in table.columns)
    parts = [
        f"Get one row of {table.kind} {label} by its key, all columns, long texts whole.",
        comment,
        "Pictures and sound come as such." if pictures else "",
    ]
    return ToolDefinition(
        name=f"get_{name}",
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
    comment = cleaned(column.comment, 80)
    if name != column.name:
        comment = " ".join(filter(None, [f"Column {cleaned(column.name, 63)}.", comment]))
    return schema | ({"description": comment} if comment else {})
