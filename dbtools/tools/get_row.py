"""The tools `get_T` and `get_row`: one row by its key, with whole cells, and pictures and sound as such."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Column, Table
from dbtools.cells import Cut, Encode, encoder, is_media, media_type, shown_cut
from dbtools.errors import listing
from dbtools.links import CELL_TEMPLATE
from dbtools.paths import Names, Place, folded
from dbtools.results import LARGEST_MEDIA, Answer, Budget, Link, Reserve, ResultSet
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
    unknown_argument,
)
from dbtools.tools.definition import ROW_SCHEMA, GeneralTool, Setting, Settled, ToolDefinition
from dbtools.tools.list_rows import MOST_LINKS, find_columns
from dbtools.tools.wording import LONGEST_LABEL, argument_names, cleaned, quotation, table_name
from dbtools.types import Family, Operator, quoted

LONGEST_CHARACTER = 4  #: bytes
MOST_NAMED = 3  #: of the columns that are cut


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
        return f"get_{self.setting.name(self.table)}"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        catalog, table = self.setting.catalog, self.table
        label = table_name(catalog, table)
        bytes = any(column.type.family is Family.BYTES for column in table.columns)
        pictures = " Pictures and sound come as such." if bytes else ""
        return ToolDefinition(
            name=self.name,
            title=f"Get one of {cleaned(catalog.label(table), LONGEST_LABEL)}",
            description=f"Get one row of {label} by its key, long texts whole.{pictures}",
            input_schema={
                "type": "object",
                "properties": {name: _argument(name, column) for name, column in self.keys.items()},
                "required": list(self.keys),
                "additionalProperties": False,
            },
            output_schema=ROW_SCHEMA,
        )

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
        return self.reading.bind(key_texts(self.keys, arguments))


def _argument(name: str, column: Column) -> dict[str, object]:
    schema = column.type.schema() or {"type": "string"}
    if column.choices and "enum" not in schema:
        schema["enum"] = list(column.choices)
    renamed = f"Column {cleaned(column.name, 63)}." if name != column.name else ""
    description = f"{renamed} {quotation(column.comment, 80)}".strip()
    return schema | ({"description": description} if description else {})


class GetRowOfAny(GeneralTool):
    """`get_row` for any table that has a key."""

    name = "get_row"
    title = "Get a row"
    arguments = RowArguments
    output_schema = ROW_SCHEMA
    description = (
        "Get one row of a table by its key, all columns, long texts whole; "
        "pictures and sound come as such. Columns may be paths along foreign keys."
    )

    def bind(self, arguments: Mapping[str, object]) -> "GetCall":
        """Return the call that gets the row that *arguments* name."""
        asked = read(RowArguments, arguments)
        table = self.setting.table(asked.table)
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
        return reading_of(self.setting, self.setting.names(table), known, asked.columns).bind(texts)


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
        return self._shape(
            tuple(
                Condition(term=column, operator=Operator.EQ, parameters=(name,))
                for name, column in zip(self.parameters, self.keys.values(), strict=True)
            )
        )

    def _shape(self, conditions: tuple[Condition, ...]) -> Select:
        return Select(table=self.names.table, outputs=self.outputs, conditions=conditions)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The parameters of the values of the key."""
        return tuple(f"c{at}_0" for at in range(len(self.keys)))

    def bind(self, texts: Sequence[str]) -> "GetCall":
        """Return the call that reads the row whose key is written as *texts*."""
        return GetCall(reading=self, texts=texts, statement=self.statement(texts))

    def statement(self, texts: Sequence[str]) -> Statement:
        """Return what reads the row whose key is written as *texts*."""
        keys = zip(self.keys.items(), texts, strict=True)
        if self.shape is not None:
            decoded = [decode(column, Operator.EQ, text, name) for (name, column), text in keys]
            values = dict(zip(self.parameters, decoded, strict=True))
            return Statement(shape=self.shape, values=values, limit=1)
        comparisons = [
            Comparison(column=column.name, value=text, argument=name, value_argument=name)
            for (name, column), text in keys
        ]
        conditions, bound = bind_conditions(self.names, comparisons)
        return Statement(shape=self._shape(conditions), values=bound, limit=1)


def reading_of(
    setting: Setting, names: Names, keys: Mapping[str, Column], columns: Sequence[str] = ()
) -> Reading:
    """Return what it takes to show *columns*, by default all, of a row by its *keys*."""
    places = find_columns(names, columns)
    shown = [
        Output(
            term=place,
            cut=LARGEST_MEDIA
            if place.type.family is Family.BYTES and isinstance(place, Column)
            else setting.limits.max_bytes,
        )
        for place in places.values()
    ]
    hidden = [Output(term=column) for column in keys.values() if column not in places.values()]
    return Reading(setting=setting, names=names, keys=keys, places=places, outputs=(*shown, *hidden))


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
        budget = self.reading.setting.budget(Reserve.NOTE)
        if not any(isinstance(cell, Cut | bytes) for cell in cells.values()):
            encoded = zip(cells.items(), self.reading.encoders, strict=True)
            row = {name: encode(cell) for (name, cell), encode in encoded}
            answer = budget.answer({"row": row}, rows=1)
            if len(answer.text) <= budget.room // LONGEST_CHARACTER:
                return answer
        return self._large(budget, found, cells)

    def _large(self, budget: Budget, found: ResultSet, cells: Mapping[str, object]) -> Answer:
        """Return a row in which something may have to be cut, or is shown as what it is."""
        links = {
            name: self._link(found, name) for name, cell in cells.items() if isinstance(cell, Cut | bytes)
        }
        row = {
            name: _shown(cell, links[name], encode) if name in links else encode(cell)
            for (name, cell), encode in zip(cells.items(), self.reading.encoders, strict=True)
        }
        cut = budget.cut_longest(row, cells)
        media, left = budget.attached(row, cells, links)
        cut += left
        content: dict[str, object] = {"row": row}
        if cut:
            more = f" and {len(cut) - MOST_NAMED} more" if len(cut) > MOST_NAMED else ""
            content["note"] = f"Cut: {', '.join(cut[:MOST_NAMED])}{more}. Read {CELL_TEMPLATE} for the whole."
        whole = tuple(filter(None, (self._link(found, name) for name in cut[:MOST_LINKS])))
        return budget.answer(content, rows=1, media=media, links=whole)

    def _key(self) -> str:
        pairs = zip(self.reading.keys, self.texts, strict=True)
        return ", ".join(f"{name} {quoted(text)}" for name, text in pairs)

    def _link(self, found: ResultSet, name: str) -> Link | None:
        """Return where the cell shown as *name* is whole; None where it is at the end of a path."""
        place = self.reading.places[name]
        if not isinstance(place, Column):
            return None
        return self.reading.setting.link(self.reading.names.table, found.outputs, found.rows[0], place)


def _shown(cell: object, link: Link | None, encode: Encode) -> object:
    """Return what stands for the bytes or the cut *cell* that is whole at *link*."""
    if isinstance(cell, Cut):
        return shown_cut(cell) + (f" {link.uri}" if link else "")
    if isinstance(cell, bytes) and link is not None and is_media(type := media_type(cell)):
        # The picture itself goes along; in base64 it would only cost tokens.
        return f"[{len(cell):,} bytes, {type}] {link.uri}"
    return encode(cell)


def define(setting: Setting) -> Iterator[GetRow]:
    """Yield `get_T` for every table that has a key."""
    for table in setting.catalog.tables:
        if keys := key_arguments(table):
            yield GetRow(setting=setting, names=setting.names(table), keys=keys)
