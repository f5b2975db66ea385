"""The URIs of rows, cells and the schema. Names and values in, a URI out; and a URI in, an Address out.

`dbtools://row/TABLE/KEY`, `dbtools://cell/TABLE/KEY/COLUMN`, `dbtools://schema` and `dbtools://schema/TABLE`.

Each part is percent-encoded (RFC 3986); commas separate the values of a composite key.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from dbtools.values.cells import json_value
from dbtools.values.types import UNSENDABLE

SCHEME = "dbtools://"
ROW_TEMPLATE = f"{SCHEME}row/{{table}}/{{key}}"
CELL_TEMPLATE = f"{SCHEME}cell/{{table}}/{{key}}/{{column}}"
SCHEMA_URI = f"{SCHEME}schema"
MOST_CHARACTERS = 4_000


@dataclass(frozen=True, kw_only=True)
class Address:
    """What a URI names: a cell, a row, or, without a key, the schema."""

    table: str | None = None  #: None: all tables
    key: tuple[str, ...] = ()
    column: str | None = None


def address_of(uri: str) -> Address | None:
    """Parse *uri*; return None if it is not valid."""
    if len(uri) > MOST_CHARACTERS or not uri.startswith(SCHEME):
        return None
    parts = uri.removeprefix(SCHEME).split("/")
    if not all(parts) or UNSENDABLE.search(unquote(uri)):
        return None
    match parts:
        case ["schema"]:
            return Address()
        case ["schema", table]:
            return Address(table=unquote(table))
        case ["row", table, key]:
            return Address(table=unquote(table), key=_values(key))
        case ["cell", table, key, column]:
            return Address(table=unquote(table), key=_values(key), column=unquote(column))
        case _:
            return None


def _values(key: str) -> tuple[str, ...]:
    return tuple(map(unquote, key.split(",")))


def schema_uri(table: str) -> str:
    """Return the URI of the schema of *table*."""
    return f"{SCHEMA_URI}/{quote(table, safe='')}"


def row_uri(table: str, key: Sequence[object]) -> str | None:
    """Return the URI of the row of *table* with this *key*, or None if the key has no text form."""
    texts = [key_text(value) for value in key]
    if not texts or not all(texts):
        return None
    uri = f"{SCHEME}row/{quote(table, safe='')}/{','.join(quote(str(text), safe='') for text in texts)}"
    return uri if len(uri) <= MOST_CHARACTERS else None


def cell_uri(table: str, key: Sequence[object], column: str) -> str | None:
    """Return the URI of a cell in the row of *table* with this *key*, or None as for `row_uri`."""
    row = row_uri(table, key)
    return None if row is None else f"{row.replace('row', 'cell', 1)}/{quote(column, safe='')}"


def key_text(value: object) -> str | None:
    """Return *value* as the text of an argument, or None if it has no text form."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case int() | float() | str():
            shown = str(json_value(value))
            return None if UNSENDABLE.search(shown) else shown
        case _:
            return None
