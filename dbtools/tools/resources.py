"""Rows, cells and the schema as resources. A URI in, the call that reads it out; lists and completion.

Some clients let people attach what a model should know: for them, the schema is a resource, and so is each
table. These resources contain what `describe_tables` shows to the role.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from dbtools import errors
from dbtools.answers.results import Answer, Budget, Media, ResultSet
from dbtools.errors import listing
from dbtools.policy.roles import Limits
from dbtools.policy.sensitive import is_secret
from dbtools.schema.catalog import Column, Table
from dbtools.schema.uris import (
    CELL_TEMPLATE,
    ROW_TEMPLATE,
    SCHEMA_URI,
    Address,
    address_of,
    key_text,
    schema_uri,
)
from dbtools.statements.select import Condition, Order, Output, Select, Statement
from dbtools.tools.calls import CatalogCall, SingleCall
from dbtools.tools.definition import ToolContext
from dbtools.tools.describe_tables import DescribeTables, Detail
from dbtools.tools.get_row import Lookup, key_arguments
from dbtools.tools.wording import nonempty_parts, quotation
from dbtools.values.cells import Cut, encoder, escape, is_json, json_of, media_type, size, utf8_text
from dbtools.values.types import Family, Operator, quote

LARGEST_CELL = 10_000_000  #: characters or bytes
LARGE_JSON = 100_000  #: characters of JSON that is sent as stored, without parsing it
JSON = "application/json"
LONGEST_DESCRIPTION = 200  #: characters
MOST_COMPLETED = 100  #: values that the protocol allows (MCP, server/utilities/completion)
VARIABLES: Mapping[str, tuple[str, ...]] = {
    ROW_TEMPLATE: ("table", "key"),
    CELL_TEMPLATE: ("table", "key", "column"),
}
UNCOMPLETED = (Family.BYTES, Family.ARRAY)  #: families of keys that cannot be searched by their beginning
LONGEST_KEY = 400  #: characters to read of a key


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A resource as `resources/list` shows it."""

    uri: str
    name: str
    title: str
    description: str = ""

    def content(self) -> dict[str, object]:
        """Return the resource as `resources/list` shows it (MCP 2026-07-28, server/resources)."""
        head = {"uri": self.uri, "name": self.name, "title": self.title}
        return head | nonempty_parts(description=self.description, mimeType=JSON)


def define_resources(context: ToolContext) -> Iterator[Resource]:
    """Yield the resources of *context*, beginning with the whole schema."""
    if not context.catalog.tables:
        return
    description = "All tables: columns, types, keys and relations."
    yield Resource(uri=SCHEMA_URI, name="schema", title="Schema", description=description)
    for table, label in zip(context.catalog.tables, context.labels, strict=True):
        yield Resource(
            uri=schema_uri(label),
            name=label,
            title=f"Schema of {context.title_of(table)}",
            description=quotation(table.comment, LONGEST_DESCRIPTION),
        )


def updated_resources(before: ToolContext, after: ToolContext) -> Iterator[str]:
    """Yield the URIs of resources that exist *before* and *after* a change and differ."""
    old, new = before.fingerprints, after.fingerprints
    changed = [label for label, mark in new.items() if old.get(label, mark) != mark]
    if old and new and (changed or old.keys() != new.keys()):
        yield SCHEMA_URI
    yield from map(schema_uri, changed)


def unknown_resource(uri: str) -> errors.UnknownResource:
    """Return the error for a resource that no longer exists, is hidden or never existed."""
    return errors.UnknownResource(f"There is no resource {quote(uri, 200)}.")


def bind_resource(context: ToolContext, uri: str) -> CatalogCall[Media] | SingleCall[Media]:
    """Return the call that reads *uri*, or raise UnknownResource."""
    address = address_of(uri)
    if address is None or not context.catalog.tables:
        raise unknown_resource(uri)
    try:
        if address.key:
            return _bind_row(context, uri, address)
        one = {} if address.table is None else {"tables": [address.table], "detail": Detail.FULL}
        description = DescribeTables(context=context).bind(one)
        return CatalogCall(answer=lambda results: _as_json(uri, description.answer(results)))
    except errors.CallError as exc:
        raise unknown_resource(uri) from exc


def _bind_row(context: ToolContext, uri: str, address: Address) -> SingleCall[Media]:
    tables = context.catalog.find_tables(str(address.table))
    keys = key_arguments(tables[0]) if len(tables) == 1 else {}
    if not keys:
        raise unknown_resource(uri)
    found = Lookup(context=context, table=tables[0], keys=keys)
    # A client that fills in the template by RFC 6570 encodes the commas of a composite key.
    key = tuple(address.key[0].split(",")) if len(address.key) == 1 < len(keys) else address.key
    column = found.table.column_by_name.get(address.column or "")
    if len(key) != len(keys) or (address.column is not None and column is None):
        raise unknown_resource(uri)
    if column is None:
        call = found.bind(key)
        return SingleCall(statement=call.statement, answer=lambda rows: _as_json(uri, call.answer(rows)))
    statement = found.statement(key)
    shape = replace(statement.shape, outputs=(Output(term=column, cut=LARGEST_CELL),))
    return SingleCall(statement=replace(statement, shape=shape), answer=partial(_whole_cell, uri, column))


def _as_json(uri: str, answer: Answer) -> Media:
    """Return *answer* as a resource."""
    return Media(uri=uri, type=JSON, content=answer.text.encode())


def _whole_cell(uri: str, column: Column, found: ResultSet) -> Media:
    """Return the whole cell of *column*: bytes with their type, JSON, or text."""
    if not found.rows:
        raise unknown_resource(uri)
    cell = found.rows[0][0]
    if isinstance(cell, Cut):
        raise errors.UnknownResource(
            f"{quote(uri, 200)} has more than {LARGEST_CELL:,} characters or bytes: too large."
        )
    if isinstance(cell, bytes):
        return Media(uri=uri, type=media_type(cell), content=cell)
    declared = column.type.family is Family.JSON
    sure = not column.type.lenient  # the database itself has checked that it is JSON
    if declared and isinstance(cell, str) and len(cell) > LARGE_JSON and (sure or is_json(cell)):
        return Media(uri=uri, type=JSON, content=escape(utf8_text(cell)).encode())
    value = encoder(column.type)(cell)
    if isinstance(value, str) and not declared:
        # A text resource is the text itself, without JSON escapes.
        return Media(uri=uri, type="text/plain", content=utf8_text(value).encode())
    return Media(uri=uri, type=JSON, content=json_of(value).encode())


@dataclass(frozen=True, kw_only=True)
class Completed:
    """Values that complete a text, the likeliest first."""

    values: tuple[str, ...]
    more: bool = False


def bind_completion(
    context: ToolContext, template: str, name: str, value: str, given: Mapping[str, str]
) -> CatalogCall[Completed] | SingleCall[Completed]:
    """Return the call that completes *value* of the variable *name* of *template*.

    *given* are the variables before it.
    """
    variables = VARIABLES.get(template, ())
    if name not in variables:
        raise errors.UnknownArgument(
            f"{quote(template)} has no variable {quote(name)}.",
            hint=f"Variables: {listing(variables) or 'none'}.",
        )
    keyed = [table for table in context.catalog.tables if key_arguments(table)]
    tables = [table for table in context.catalog.find_tables(given.get("table", "")) if table in keyed]
    names: Iterable[str] = ()
    if name == "table":
        names = map(context.catalog.label, keyed)
    elif name == "column" and len(tables) == 1:
        names = tables[0].column_by_name
    elif len(tables) == 1 and (statement := _keys(context.limits, tables[0], value)):
        return SingleCall(statement=statement, answer=partial(_completed_keys, context.limits))
    low = value.lower()
    found = sorted(
        (each for each in names if low in each.lower()), key=lambda each: not each.lower().startswith(low)
    )
    return CatalogCall(answer=lambda _: _completion(context.limits, found))


def _keys(limits: Limits, table: Table, value: str) -> Statement | None:
    """Return the statement for the keys of *table* that begin with *value*, if the key has one column."""
    column, *others = table.key_columns
    if others or not column.type.ordered or column.type.family in UNCOMPLETED or is_secret(column):
        return None
    starts = Condition(term=column, operator=Operator.STARTS_WITH, parameters=("start",))
    shape = Select(
        table=table,
        outputs=(Output(term=column, cut=LONGEST_KEY),),
        conditions=(starts,) if value else (),
        order=(Order(term=column),),
    )
    values = {"start": value} if value else {}
    return Statement(shape=shape, values=values, limit=min(MOST_COMPLETED, limits.max_rows))


def _completed_keys(limits: Limits, found: ResultSet) -> Completed:
    return _completion(limits, [text for (cell,) in found.rows if (text := key_text(cell))], more=found.more)


def _completion(limits: Limits, values: Sequence[str], *, more: bool = False) -> Completed:
    """Return as many of *values* as fit."""
    shown = tuple(values[: min(MOST_COMPLETED, limits.max_rows)])
    shown = shown[: Budget(limits=limits, reserved=0).fitting_count(map(size, shown))]
    return Completed(values=shown, more=more or len(shown) < len(values))
