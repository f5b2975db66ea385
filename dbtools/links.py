"""The addresses of rows, cells and the schema.

`dbtools://row/TABLE/KEY`, `dbtools://cell/TABLE/KEY/COLUMN`, `dbtools://schema` and `dbtools://schema/TABLE`.

Each part is percent-encoded (RFC 3986); the values of a composite key have commas between them.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from dbtools.cells import plain
from dbtools.types import UNSENDABLE

ROW_TEMPLATE = "dbtools://row/{table}/{key}"
CELL_TEMPLATE = "dbtools://cell/{table}/{key}/{column}"
SCHEMA = "dbtools://schema"
MOST_CHARACTERS = 4_000


@dataclass(frozen=True, kw_only=True)
class Address:
    """Which row, or which cell of it, a URI names."""

    table: str
    key: tuple[str, ...]
    column: str | None = None


def address_of(uri: str) -> Address | None:
    """Return what *uri* names, or None if it is no address of ours."""
    scheme, separator, rest = uri.partition("://")
    parts = rest.split("/")
    if scheme != "dbtools" or not separator or len(uri) > MOST_CHARACTERS:
        return None
    if UNSENDABLE.search(unquote(rest)):
        return None
    match parts:
        case ["row", table, key] if table and key:
            column = ""
        case ["cell", table, key, column] if table and key and column:
            pass
        case _:
            return None
    values = tuple(map(unquote, key.split(",")))
    return Address(table=unquote(table), key=values, column=unquote(column) or None)


def schema_uri(table: str) -> str:
    """Return the address of the schema of *table*."""
    return f"{SCHEMA}/{quote(table, safe='')}"


def schema_of_uri(uri: str) -> tuple[str | None] | None:
    """Return the table whose schema *uri* names, or None for all; None alone for another address."""
    if uri == SCHEMA:
        return (None,)
    table = uri.removeprefix(f"{SCHEMA}/")
    return (unquote(table),) if table and table != uri and "/" not in table else None


def row_uri(table: str, key: Sequence[object]) -> str | None:
    """Return the address of the row of *table* with this *key*, or None where it cannot be written."""
    texts = [key_text(value) for value in key]
    if not texts or any(not text for text in texts):
        return None
    uri = f"dbtools://row/{quote(table, safe='')}/{','.join(quote(str(text), safe='') for text in texts)}"
    return uri if len(uri) <= MOST_CHARACTERS else None


def cell_uri(table: str, key: Sequence[object], column: str) -> str | None:
    """Return the address of one cell of the row of *table* with this *key*."""
    row = row_uri(table, key)
    return None if row is None else f"{row.replace('row', 'cell', 1)}/{quote(column, safe='')}"


def key_text(value: object) -> str | None:
    """Return *value* as a caller would write it in an argument, or None where it cannot be written."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case None | int() | float() | str():
            shown = plain(value)
            return None if shown is None or UNSENDABLE.search(str(shown)) else str(shown)
        case _:
            return None
