"""The tools `get_T` and `get_row`: one row by its key, with whole cells, and pictures and sound as such."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.catalog import Column, Table
from dbtools.cells import Cut, Encode, class_of, encoder, is_media, media_type, shortened, shown_cut, size
from dbtools.errors import listing
from dbtools.links import CELL_TEMPLATE
from dbtools.paths import Place, folded
from dbtools.results import LARGEST_MEDIA, Answer, Budget, Link, Reserve, ResultSet
from dbtools.statement import Condition, Output, Select, Statement, decode, either
from dbtools.tools.arguments import (
    Arguments,
    Columns,
    Object,
    Written,
    as_text,
    check,
    read,
    unknown_argument,
)
from dbtools.tools.definition import ROW_SCHEMA, GeneralTool, Setting, Settled, TableTool, ToolDefinition
from dbtools.tools.list_rows import MOST_LINKS, find_columns
from dbtools.tools.wording import LONGEST_LABEL, argument_names, cleaned, quotation, table_name
from dbtools.types import Family, Operator, quoted

LONGEST_CHARACTER = 4  #: bytes
MOST_NAMED = 3  #: of the columns that are cut
PARTED = {Cut, bytes}  #: classes of cells that have an address of their own


class RowArguments(Arguments):
    """Arguments of `get_row`."""

    table: str
    key: Annotated[dict[str, Written], Object] = Field(description='such as {"id": "17"}')
    columns: Columns = Field(default=(), description="default all; also paths")


@dataclass(frozen=True, kw_only=True)
class GetRow(TableTool):
    """`get_T` for one table that has a key."""

    prefix = "get"
    keys: Mapping[str, Column]  #: the key's columns by the names of their arguments
    columns: Sequence[str] = ()  #: what is shown, as it was named; nothing: all columns

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

    def bind(self, arguments: Mapping[str, object]) -> Settled:
        """Return the call that gets the row whose key *arguments* are."""
        check(arguments)
        for name in arguments:
            if name not in self.keys:
                raise unknown_argument(name, list(self.keys))
        return self.bind_key(_key_texts(self.keys, arguments))

    def bind_key(self, texts: Sequence[str]) -> Settled:
        """Return the call that gets the row whose key is written as *texts*."""
        return Settled(statement=self.statement(texts), answer=partial(self._answer, texts))

    def statement(self, texts: Sequence[str]) -> Statement:
        """Return what reads the row whose key is written as *texts*."""
        values: dict[str, object] = {}
        for condition, name, text in zip(self._shape.conditions, self.keys, texts, strict=True):
            value = decode(condition.term, Operator.EQ, text, name)
            (parameter,) = condition.parameters
            values[parameter] = either([value], [text]) if condition.operator is Operator.IN else value
        return Statement(shape=self._shape, values=values, limit=1)

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """What is shown, by its name in the result."""
        return find_columns(self.names, self.columns)

    @cached_property
    def encoders(self) -> tuple[tuple[str, Encode], ...]:
        """What makes JSON values of the cells that are shown, and their names in the result."""
        return tuple((name, encoder(place.type)) for name, place in self.places.items())

    @cached_property
    def _shape(self) -> Select:
        """What is asked of the database: what is shown first, then what else there is of the key."""
        most, places = self.setting.limits.max_bytes, self.places.values()
        blobs = {each for each in places if isinstance(each, Column) and each.type.family is Family.BYTES}
        shown = (Output(term=place, cut=LARGEST_MEDIA if place in blobs else most) for place in places)
        others = (Output(term=column) for column in self.keys.values() if column not in places)
        conditions = tuple(
            Condition(
                term=column,
                operator=Operator.IN if column.type.family is Family.ANY else Operator.EQ,
                parameters=(f"c{at}_0",),
            )
            for at, column in enumerate(self.keys.values())
        )
        return Select(table=self.table, outputs=(*shown, *others), conditions=conditions)

    def _answer(self, texts: Sequence[str], found: ResultSet) -> Answer:
        """Return the row, or raise NoRow, which names the key as it was given."""
        if not found.rows:
            key = ", ".join(f"{name} {quoted(text)}" for name, text in zip(self.keys, texts, strict=True))
            raise errors.NoRow(f"{self.table.name} has no row with {key}.")
        cells, budget = found.rows[0], self.setting.budgets[Reserve.NOTE]
        if PARTED.isdisjoint(map(class_of, cells)):
            row = {name: encode(cell) for (name, encode), cell in zip(self.encoders, cells, strict=False)}
            answer = budget.answer({"row": row}, rows=1)
            if len(answer.json) <= budget.room // LONGEST_CHARACTER:
                return answer
        return self._large(budget, found, dict(zip(self.places, cells, strict=False)))

    def _large(self, budget: Budget, found: ResultSet, cells: Mapping[str, object]) -> Answer:
        """Return a row in which something may have to be cut, or is shown as what it is."""
        links = {name: self._link(found, name) for name, cell in cells.items() if class_of(cell) in PARTED}

        def cut(longest: int) -> Mapping[str, object]:
            shorter = {name: shortened(cells[name], encode, longest) for name, encode in self.encoders}
            # Of a picture nothing is cut: the row holds only its address.
            return {name: cells[name] if _is_picture(cells[name]) else cell for name, cell in shorter.items()}

        def row(longest: int) -> Mapping[str, object]:
            cells = cut(longest)
            return {name: _shown(cells[name], links.get(name), encode) for name, encode in self.encoders}

        def fits(longest: int) -> bool:
            return size({"row": row(longest)}) <= budget.room

        longest = LARGEST_MEDIA if fits(LARGEST_MEDIA) else budget.longest(fits)
        media, left = budget.attached(row(longest), cells, links)
        short = [*(name for name, cell in cut(longest).items() if isinstance(cell, Cut)), *left]
        more = f" and {len(short) - MOST_NAMED} more" if len(short) > MOST_NAMED else ""
        named = ", ".join(short[:MOST_NAMED])
        note = f"Cut: {named}{more}. Read {CELL_TEMPLATE} for the whole." if short else ""
        whole = tuple(filter(None, (self._link(found, name) for name in short[:MOST_LINKS])))
        return budget.answer({"row": row(longest)}, rows=1, media=media, links=whole, note=note)

    def _link(self, found: ResultSet, name: str) -> Link | None:
        """Return the link to the whole cell shown as *name*; None for a cell at the end of a path."""
        place = self.places[name]
        if not isinstance(place, Column):
            return None
        return self.setting.link(self.table, found.outputs, found.rows[0], place)


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

    def bind(self, arguments: Mapping[str, object]) -> Settled:
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
        texts = _key_texts(known, given, "key.")
        names = self.setting.names(table)
        return GetRow(setting=self.setting, names=names, keys=known, columns=asked.columns).bind_key(texts)


def key_arguments(table: Table) -> Mapping[str, Column]:
    """Return the columns that name a row of *table* by their arguments; none where no row can be named."""
    keys = argument_names(table.key_columns())
    return keys if all(Operator.EQ in column.type.operators for column in keys.values()) else {}


def _key_texts(
    keys: Mapping[str, Column], arguments: Mapping[str, object], prefix: str = ""
) -> tuple[str, ...]:
    """Return the values of *keys* in *arguments* as texts, or raise BadArgument."""
    texts: list[str] = []
    for name, column in keys.items():
        text = as_text(arguments.get(name))
        if text is None:
            raise errors.BadArgument(f"{prefix}{name} is missing.", hint=f"The key is: {listing(keys)}.")
        if not isinstance(text, str):
            raise errors.BadArgument(
                f"{prefix}{name}: must be {column.type.wants}, not an array or an object."
            )
        texts.append(text)
    return tuple(texts)


def _shown(cell: object, link: Link | None, encode: Encode) -> object:
    """Return what stands for the bytes or the cut *cell* that is whole at *link*."""
    if isinstance(cell, Cut):
        return shown_cut(cell) + (f" {link.uri}" if link else "")
    if isinstance(cell, bytes) and link is not None and _is_picture(cell):
        # The picture itself goes along; in base64 it would only cost tokens.
        return f"[{len(cell):,} bytes, {media_type(cell)}] {link.uri}"
    return encode(cell)


def _is_picture(cell: object) -> bool:
    """Return whether *cell* is a picture or a sound, which clients show by itself."""
    return isinstance(cell, bytes) and is_media(media_type(cell))


def define(setting: Setting) -> Iterator[GetRow]:
    """Yield `get_T` for every table that has a key."""
    for table in setting.catalog.tables:
        if keys := key_arguments(table):
            yield GetRow(setting=setting, names=setting.names(table), keys=keys)
