"""The tools `get_T` and `get_row`: one row by its key, with whole cells; images and audio are attached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.answers.results import LARGEST_MEDIA, Answer, Budget, Link, Reserve, ResultSet
from dbtools.errors import listing
from dbtools.expressions.parser import Expressions
from dbtools.expressions.terms import Operand
from dbtools.schema.catalog import Column, Table
from dbtools.schema.paths import find_caseless
from dbtools.schema.uris import CELL_TEMPLATE
from dbtools.statements.select import Condition, Output, Select, Statement
from dbtools.tools.arguments import (
    Arguments,
    AsText,
    Columns,
    Object,
    Schema,
    arguments_schema,
    as_text,
    check,
    unknown_argument,
)
from dbtools.tools.binding import equal_value, equality
from dbtools.tools.calls import SingleCall
from dbtools.tools.definition import ROW_SCHEMA, TableTool, ToolContext, ToolDefinition
from dbtools.tools.list_rows import MOST_LINKS, find_columns
from dbtools.tools.wording import (
    LONGEST_COLUMN_COMMENT,
    argument_schema,
    frequent_values,
    quotation,
    table_arguments,
    table_name,
)
from dbtools.values.cells import (
    Cut,
    Encode,
    class_of,
    cut_text,
    encoder,
    escape,
    is_media,
    json_of,
    media_type,
    shorten_cell,
    size,
)
from dbtools.values.types import Family, Operator, quote

LONGEST_CHARACTER = 4  #: bytes
NO_OBJECT = "key must be an object"
KEY_FORM = 'such as {"id": "17"}'
MOST_NAMED = 3  #: cut columns that a note names
GET_DESCRIPTION = (
    "Get one row of a table by key, with all columns and long text in full; "
    "images and audio are attached. Columns may be foreign-key paths."
)
PARTED = {Cut, bytes}  #: the classes of cells that may need a link or an attachment


class RowArguments(Arguments):
    """Arguments of `get_row`."""

    table: str
    key: Annotated[dict[str, AsText], Object]
    columns: Columns = Field(default=(), description="default all; paths allowed")


class GetRow(TableTool):
    """`get_T` for one table with a key, or `get_row`."""

    prefix = "get"
    general_name = "get_row"

    @cached_property
    def lookup(self) -> "Lookup | None":
        """The lookup for the table."""
        if self.table is None:
            return None
        return Lookup(context=self.context, table=self.table, keys=key_arguments(self.table))

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        if self.lookup is None:
            keyed = ((table, table.key_columns) for table in self.context.catalog.tables)
            key = {**frequent_values(keyed), "description": KEY_FORM}
            schema = self.context.schema(RowArguments, key=key)
            return self.definition_of(GET_DESCRIPTION, schema, ROW_SCHEMA, "Get a row")
        keys, table = self.lookup.keys, self.lookup.table
        bytes = any(column.type.family is Family.BYTES for column in table.columns)
        pictures = " Images and audio are attached." if bytes else ""
        label = table_name(self.context.catalog, table)
        description = f"Get one row of {label} by key, in full.{pictures}"
        return self.definition_of(
            description, key_schema(keys), ROW_SCHEMA, f"Get a row of {self.context.title_of(table)}"
        )

    def bind(self, arguments: Mapping[str, object]) -> SingleCall[Answer]:
        """Bind the key in *arguments* to a call."""
        if self.lookup is not None:
            check(arguments)
            return self.lookup.bind(self.lookup.texts(arguments))
        try:
            asked = self.context.read(RowArguments, arguments)
        except errors.BadArgument as exc:
            raise with_own_key(exc, self.context, arguments) from exc.__cause__
        table = self.context.table(asked.table)
        keys = {column.name: column for column in key_arguments(table).values()}
        if not keys:
            raise errors.BadArgument(
                f"{table.name} has no key that you can give.", hint="List its rows, with where."
            )
        found = Lookup(context=self.context, table=table, keys=keys, columns=asked.columns)
        return found.bind(found.texts(asked.key, "key."))

    @classmethod
    def suits(cls, table: Table) -> bool:
        """Return whether *table* has a key that arguments can hold."""
        return bool(key_arguments(table))


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """Reads rows of one table by key."""

    context: ToolContext
    table: Table
    keys: Mapping[str, Column]  #: the columns of the key, by the names of their arguments
    columns: Sequence[str] = ()  #: to show, as the caller wrote them; empty: all columns

    def texts(self, arguments: Mapping[str, object], place: str = "") -> Sequence[str]:
        """Return the values of the key in *arguments* as texts, or raise a CallError that names *place*."""
        known = {column.name: name for name, column in self.keys.items()} | {name: name for name in self.keys}
        given: dict[str, object] = {}
        for name, value in arguments.items():
            key = find_caseless(name, known)
            if key is None:
                error = unknown_argument(name, list(self.keys), place.removesuffix("."))
                lists = find_caseless(name, self.table.column_by_name) is not None
                advice = " List tools find rows by other columns, with where." * lists
                raise error.with_hint(f"{error.hint}{advice}")
            if key in given:
                raise errors.BadArgument(f"{place}{key} appears twice.")
            given[key] = as_text(value)
        texts: list[str] = []
        for name, column in self.keys.items():
            text = given.get(name)
            if text is None:
                raise errors.BadArgument(
                    f"{place}{name} is missing.", hint=f"The key is: {listing(self.keys)}."
                )
            if not isinstance(text, str):
                problem = f"must be {column.type.expected}, not an array or an object"
                raise errors.BadArgument(f"{place}{name} {problem}.")
            texts.append(text)
        return texts

    def bind(self, texts: Sequence[str]) -> SingleCall[Answer]:
        """Return the call for the row with the key *texts*."""
        return SingleCall(statement=self.statement(texts), answer=partial(self._answer, texts))

    def statement(self, texts: Sequence[str]) -> Statement:
        """Return the statement for the row with the key *texts*."""
        conditions, values = self.conditions(texts)
        # Most calls share one shape.
        shape = self._shape
        shape = shape if conditions == shape.conditions else replace(shape, conditions=conditions)
        return Statement(shape=shape, values={**self.terms.values, **values}, limit=1)

    def conditions(self, texts: Sequence[str]) -> tuple[tuple[Condition, ...], Mapping[str, object]]:
        """Return the conditions for the row with the key *texts*, and their values."""
        keys = zip(self.keys.items(), texts, strict=True)
        values = {
            f"c{at}_0": equal_value(column, text, name) for at, ((name, column), text) in enumerate(keys)
        }
        pairs = zip(self.keys.values(), values.items(), strict=True)
        return tuple(equality(column, *pair) for column, pair in pairs), values

    @cached_property
    def terms(self) -> Expressions:
        """The terms that columns may name, and the values of literals."""
        return Expressions(names=self.context.names(self.table))

    @cached_property
    def places(self) -> Mapping[str, Operand]:
        """The terms to show, by their names in the result."""
        return find_columns(self.terms, self.columns)

    @cached_property
    def encoders(self) -> tuple[tuple[str, Encode], ...]:
        """The encoders of the cells that are shown, with their names in the result."""
        return tuple((name, encoder(place.type)) for name, place in self.places.items())

    @cached_property
    def _shape(self) -> Select:
        """The shape of the statement: first what is shown, then the rest of the key."""
        most, places = self.context.limits.max_bytes, self.places.values()
        blobs = {each for each in places if isinstance(each, Column) and each.type.family is Family.BYTES}
        shown = (Output(term=place, cut=LARGEST_MEDIA if place in blobs else most) for place in places)
        others = (Output(term=column) for column in self.keys.values() if column not in places)
        conditions = tuple(equality(column, f"c{at}_0") for at, column in enumerate(self.keys.values()))
        return Select(table=self.table, outputs=(*shown, *others), conditions=conditions)

    def missing_message(self, texts: Sequence[str]) -> str:
        """Return the message that no row has the key *texts*."""
        key = ", ".join(f"{name} {quote(text)}" for name, text in zip(self.keys, texts, strict=True))
        return f"{self.table.name} has no row with {key}."

    def _answer(self, texts: Sequence[str], found: ResultSet) -> Answer:
        """Render the row, or raise NoRow with the key as given."""
        if not found.rows:
            raise errors.NoRow(self.missing_message(texts))
        cells, budget = found.rows[0], self.context.budgets[Reserve.NOTE]
        if PARTED.isdisjoint(map(class_of, cells)):
            row = {name: encode(cell) for (name, encode), cell in zip(self.encoders, cells, strict=False)}
            answer = budget.answer({"row": row}, rows=1)
            if len(answer.json) <= budget.room // LONGEST_CHARACTER:
                return answer
        return self._render_large_row(budget, found, dict(zip(self.places, cells, strict=False)))

    def _render_large_row(self, budget: Budget, found: ResultSet, cells: Mapping[str, object]) -> Answer:
        """Render a row with cells that may be cut or attached."""
        links = {name: self._link(found, name) for name, cell in cells.items() if class_of(cell) in PARTED}

        def cut(longest: int) -> Mapping[str, object]:
            shorter = {name: shorten_cell(cells[name], encode, longest) for name, encode in self.encoders}
            # An image is not cut: the row contains only its URI.
            return {name: cells[name] if _is_picture(cells[name]) else cell for name, cell in shorter.items()}

        def row(longest: int) -> Mapping[str, object]:
            cells = cut(longest)
            return {name: _cell_value(cells[name], links.get(name), encode) for name, encode in self.encoders}

        def fits(longest: int) -> bool:
            return size({"row": row(longest)}) <= budget.room

        longest = LARGEST_MEDIA if fits(LARGEST_MEDIA) else budget.longest_cell(fits)
        media, left = budget.attachments(row(longest), cells, links)
        short = [*(name for name, cell in cut(longest).items() if isinstance(cell, Cut)), *left]
        note = f"Cut: {listing(short, MOST_NAMED)}. Read {CELL_TEMPLATE} for the whole." if short else ""
        whole = tuple(filter(None, (self._link(found, name) for name in short[:MOST_LINKS])))
        return budget.answer({"row": row(longest)}, rows=1, media=media, links=whole, note=note)

    def _link(self, found: ResultSet, name: str) -> Link | None:
        """Return the link to the whole cell shown as *name*; None for one at the end of a path."""
        place = self.places[name]
        if not isinstance(place, Column):
            return None
        return self.context.link(self.table, found.outputs, found.rows[0], place)


def key_schema(keys: Mapping[str, Column]) -> Schema:
    """Return the JSON Schema of a key with the columns *keys*, by the names of their arguments."""
    return arguments_schema({name: _key_schema(name, column) for name, column in keys.items()}, list(keys))


def _key_schema(name: str, column: Column) -> dict[str, object]:
    return argument_schema(name, column, quotation(column.comment, LONGEST_COLUMN_COMMENT))


def key_arguments(table: Table) -> Mapping[str, Column]:
    """Return the key columns of *table* by their arguments; empty if arguments cannot hold the key."""
    keys = table_arguments(table, table.key_columns)
    return keys if all(Operator.EQ in column.type.operators for column in keys.values()) else {}


def with_own_key(
    error: errors.CallError, context: ToolContext, arguments: Mapping[str, object]
) -> errors.CallError:
    """Return *error*; if the key must be an object, with the key of the table that *arguments* name."""
    tables = (
        context.catalog.find_tables(str(arguments.get("table")))
        if error.message.startswith(NO_OBJECT)
        else ()
    )
    names = [name for table in tables[:1] for name in key_arguments(table)]
    form = escape(json_of(dict.fromkeys(names, "VALUE")))
    return error.with_hint(f"Write {form} as key.") if names else error


def _cell_value(cell: object, link: Link | None, encode: Encode) -> object:
    """Return the JSON value of *cell*, which is bytes or cut; *link* leads to the whole cell."""
    if isinstance(cell, Cut):
        return cut_text(cell) + (f" {link.uri}" if link else "")
    if isinstance(cell, bytes) and link is not None and _is_picture(cell):
        # The image is attached; as base64 it would only cost tokens.
        return f"[{len(cell):,} bytes, {media_type(cell)}] {link.uri}"
    return encode(cell)


def _is_picture(cell: object) -> bool:
    """Return whether *cell* is an image or audio, which clients display."""
    return isinstance(cell, bytes) and is_media(media_type(cell))
