"""Rows, cells and the schema as resources: how they are listed and read, and templates completed.

The schema is there for hosts that let people attach what a model should know: one resource, and one a table.
They say what `describe_tables` does, of what the role sees, and are read under the same lens.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from dbtools import errors
from dbtools.catalog import Column, Table
from dbtools.cells import Cut, encoder, is_json, json_of, media_type, size, valid, visible
from dbtools.errors import listing
from dbtools.links import CELL_TEMPLATE, ROW_TEMPLATE, SCHEMA, Address, address_of, key_text, schema_uri
from dbtools.policy import Limits
from dbtools.results import Budget, Media, ResultSet
from dbtools.statement import Comparison, Condition, Order, Output, Select, Statement, bind_conditions
from dbtools.tools.definition import Call, Setting
from dbtools.tools.describe_tables import DescribeTables, Detail
from dbtools.tools.get_row import GetRow, key_arguments
from dbtools.tools.wording import quotation, told
from dbtools.types import Family, Operator, quoted

LARGEST_CELL = 10_000_000  #: characters, or bytes of bytes
LARGE_JSON = 100_000  #: characters of JSON that is passed on as it is stored, and not parsed
JSON = "application/json"
LONGEST_DESCRIPTION = 200  #: characters
MOST_COMPLETED = 100  #: values that the protocol allows (MCP, server/utilities/completion)
VARIABLES: Mapping[str, tuple[str, ...]] = {
    ROW_TEMPLATE: ("table", "key"),
    CELL_TEMPLATE: ("table", "key", "column"),
}
UNCOMPLETED = (Family.BYTES, Family.ARRAY)  #: of which no value begins as a caller may have
LONGEST_KEY = 400  #: characters that are read of a key


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
        return head | told(description=self.description, mimeType=JSON)


def define_resources(setting: Setting) -> Iterator[Resource]:
    """Yield the resources of *setting*: that of the whole schema first."""
    if not setting.catalog.tables:
        return
    description = "All tables: columns, types, keys and relations."
    yield Resource(uri=SCHEMA, name="schema", title="Schema", description=description)
    for table, label in zip(setting.catalog.tables, setting.labels, strict=True):
        yield Resource(
            uri=schema_uri(label),
            name=label,
            title=f"Schema of {label}",
            description=quotation(table.comment, LONGEST_DESCRIPTION),
        )


def updated_resources(before: Setting, after: Setting) -> Iterator[str]:
    """Yield the addresses of what is there *before* and *after*, and says something else then."""
    old, new = _told(before), _told(after)
    other = [label for label, told in new.items() if label in old and old[label] != told]
    if old and new and (other or old.keys() != new.keys()):
        yield SCHEMA
    yield from map(schema_uri, other)


def _told(setting: Setting) -> Mapping[str, object]:
    """Return what the description of each table is made of; its number of rows changes all the time."""
    catalog = setting.catalog
    references = {
        table: [(catalog.label(other), key) for other, key in catalog.references(table)]
        for table in catalog.tables
    }
    return {
        label: (replace(table, row_estimate=None), references[table])
        for label, table in zip(setting.labels, catalog.tables, strict=True)
    }


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A row, a cell, or the schema, by its address."""

    statement: Statement | None  #: None where the catalog has the answer
    render: Callable[[ResultSet], Media]


def unknown(uri: str) -> errors.UnknownResource:
    """Return the one complaint for what is gone, hidden or never was."""
    return errors.UnknownResource(f"There is no resource {quoted(uri, 200)}.")


def bind_resource(setting: Setting, uri: str) -> Reading:
    """Return the call that reads *uri*, or raise UnknownResource."""
    address = address_of(uri)
    if address is None or not setting.catalog.tables:
        raise unknown(uri)
    try:
        if address.key:
            return _bind_row(setting, uri, address)
        one = {} if address.table is None else {"tables": [address.table], "detail": Detail.FULL}
        return _answered(uri, DescribeTables(setting=setting).bind(one))
    except errors.CallError as exc:
        raise unknown(uri) from exc


def _bind_row(setting: Setting, uri: str, address: Address) -> Reading:
    tables = setting.catalog.named(str(address.table))
    if len(tables) != 1:
        raise unknown(uri)
    keys = key_arguments(tables[0])
    # A client that fills in the template by RFC 6570 encodes the commas of a composite key.
    key = tuple(address.key[0].split(",")) if len(address.key) == 1 < len(keys) else address.key
    if not keys or len(key) != len(keys):
        raise unknown(uri)
    tool = GetRow(setting=setting, names=setting.names(tables[0]), keys=keys)
    if address.column is None:
        return _answered(uri, tool.bind_key(key))
    column = tables[0].column_by_name.get(address.column)
    if column is None:
        raise unknown(uri)
    statement = tool.statement(key)
    shape = replace(statement.shape, outputs=(Output(term=column, cut=LARGEST_CELL),))
    return Reading(statement=replace(statement, shape=shape), render=partial(_whole, uri, column))


def _answered(uri: str, call: Call) -> Reading:
    """Return what reads the answer of the *call* of a tool, as JSON."""
    return Reading(
        statement=call.statement,
        render=lambda found: Media(uri=uri, type=JSON, content=call.render(found).text.encode()),
    )


def _whole(uri: str, column: Column, found: ResultSet) -> Media:
    """Return the whole cell of *column*: bytes as what they are, JSON as JSON, anything else as text."""
    if not found.rows:
        raise unknown(uri)
    cell = found.rows[0][0]
    if isinstance(cell, Cut):
        raise errors.UnknownResource(
            f"{quoted(uri, 200)} has more than {LARGEST_CELL:,} characters or bytes: too large."
        )
    if isinstance(cell, bytes):
        return Media(uri=uri, type=media_type(cell), content=cell)
    declared = column.type.family is Family.JSON
    sure = not column.type.lenient  # The database itself has checked that it is JSON.
    if declared and isinstance(cell, str) and len(cell) > LARGE_JSON and (sure or is_json(cell)):
        return Media(uri=uri, type=JSON, content=visible(valid(cell)).encode())
    value = encoder(column.type)(cell)
    if isinstance(value, str) and not declared:
        # Not JSON's escapes here: a text resource is the text itself.
        return Media(uri=uri, type="text/plain", content=valid(value).encode())
    return Media(uri=uri, type=JSON, content=json_of(value).encode())


@dataclass(frozen=True, kw_only=True)
class Completed:
    """Values that begin as the caller has, the likeliest first."""

    values: tuple[str, ...]
    more: bool = False


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A request for values whose arguments have been read."""

    known: tuple[str, ...] = ()  #: where the catalog has the answer
    statement: Statement | None = None  #: what reads keys
    limits: Limits = field(default_factory=Limits)

    def render(self, found: ResultSet) -> Completed:
        """Return the values that the catalog, or the rows *found*, have."""
        keys = (key for row in found.rows if (key := _key(row)) is not None)
        values = self.known or tuple(keys)
        budget = Budget(limits=self.limits, reserved=0)
        shown = values[: budget.fitting(map(size, values[: _most(self.limits)]))]
        return Completed(values=shown, more=found.more or len(shown) < len(values))


def _most(limits: Limits) -> int:
    return min(MOST_COMPLETED, limits.max_rows)


def _key(row: Sequence[object]) -> str | None:
    """Return the key in *row* as an address has it, or None where an address cannot have it."""
    texts = [key_text(cell) for cell in row]
    if any(text is None or (len(texts) > 1 and "," in text) for text in texts):
        return None
    return ",".join(map(str, texts))


def bind_completion(
    setting: Setting, template: str, name: str, value: str, given: Mapping[str, str]
) -> Completion:
    """Return what completes *value* of the variable *name* of *template*; *given* are those before it."""
    variables = VARIABLES.get(template, ())
    if name not in variables:
        raise errors.UnknownArgument(
            f"{template} has no variable {quoted(name)}.", hint=f"Variables: {listing(variables) or 'none'}."
        )
    catalog, limits = setting.catalog, setting.limits
    if name == "table":
        keyed = filter(key_arguments, catalog.tables)
        return Completion(known=_beginning(map(catalog.label, keyed), value), limits=limits)
    tables = catalog.named(given.get("table", ""))
    if len(tables) != 1 or not key_arguments(tables[0]):
        return Completion(limits=limits)
    if name == "column":
        return Completion(known=_beginning(tables[0].column_by_name, value), limits=limits)
    parts = value.split(",") if len(tables[0].key_columns()) > 1 else [value]
    return Completion(statement=_keys(setting, tables[0], parts), limits=limits)


def _beginning(names: Iterable[str], value: str) -> tuple[str, ...]:
    """Return those of *names* that begin with *value*, then those that contain it."""
    low = value.lower()
    found = [name for name in names if low in name.lower()]
    return tuple(sorted(found, key=lambda name: not name.lower().startswith(low)))


def _keys(setting: Setting, table: Table, parts: list[str]) -> Statement | None:
    """Return what reads the keys of *table* that begin with *parts*, the last of which is unfinished."""
    columns = table.key_columns()
    known = all(each.type.ordered and each.type.family not in UNCOMPLETED for each in columns)
    if len(parts) > len(columns) or not known:
        return None
    before = [
        Comparison(column=column.name, value=part) for column, part in zip(columns, parts[:-1], strict=False)
    ]
    conditions, values = bind_conditions(setting.names(table), before)
    if parts[-1]:
        last = Condition(term=columns[len(parts) - 1], operator=Operator.STARTS_WITH, parameters=("start",))
        conditions, values = (*conditions, last), {**values, "start": parts[-1]}
    shape = Select(
        table=table,
        outputs=tuple(Output(term=column, cut=LONGEST_KEY) for column in columns),
        conditions=conditions,
        order=tuple(Order(term=column) for column in columns),
    )
    return Statement(shape=shape, values=values, limit=_most(setting.limits))
