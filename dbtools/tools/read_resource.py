"""Rows, cells and the schema by their address: what `resources/read` answers."""

from dataclasses import dataclass

from dbtools import errors
from dbtools.catalog import Column
from dbtools.cells import Cut, dump, encoder, is_json, valid, visible
from dbtools.links import address_of, schema_of_uri
from dbtools.results import Media, ResultSet, media_type
from dbtools.statement import Output, Statement
from dbtools.tools.definition import Setting
from dbtools.tools.get_row import GetCall, bind_get, key_arguments, key_statement, reading_of
from dbtools.tools.schema_resources import SchemaCall, bind_schema
from dbtools.types import Family, quoted

LARGEST_CELL = 10_000_000  #: characters, or bytes of bytes
LARGE_JSON = 100_000  #: characters of JSON that is passed on as it is stored, and not parsed


@dataclass(frozen=True, kw_only=True)
class RowCall:
    """A row by its address."""

    uri: str
    call: GetCall

    @property
    def statement(self) -> Statement:
        """What reads the row."""
        return self.call.statement

    def render(self, found: ResultSet) -> Media:
        """Return the row as JSON, as `get_T` answers it."""
        answer = self.call.render(found)
        return Media(uri=self.uri, type="application/json", content=answer.text.encode())


@dataclass(frozen=True, kw_only=True)
class CellCall:
    """A cell by its address."""

    uri: str
    column: Column
    statement: Statement

    def render(self, found: ResultSet) -> Media:
        """Return the whole cell: bytes as what they are, JSON as JSON, anything else as text."""
        if not found.rows:
            raise unknown(self.uri)
        cell = found.rows[0][0]
        if isinstance(cell, Cut):
            raise errors.UnknownResource(
                f"{quoted(self.uri, 200)} has more than {LARGEST_CELL:,} characters or bytes: too large."
            )
        if isinstance(cell, bytes):
            return Media(uri=self.uri, type=media_type(cell), content=cell)
        declared = self.column.type.family is Family.JSON
        if declared and isinstance(cell, str) and len(cell) > LARGE_JSON and self._is_valid(cell):
            return Media(uri=self.uri, type="application/json", content=visible(valid(cell)).encode())
        value = encoder(self.column.type)(cell)
        if isinstance(value, str) and not declared:
            # Not JSON's escapes here: a text resource is the text itself.
            return Media(uri=self.uri, type="text/plain", content=valid(value).encode())
        return Media(uri=self.uri, type="application/json", content=dump(value)[1].encode())

    def _is_valid(self, text: str) -> bool:
        """Return whether *text* is JSON, as the database has made sure of it or not."""
        return not self.column.type.lenient or is_json(text)


def unknown(uri: str) -> errors.UnknownResource:
    """Return the one complaint for what is gone, hidden or never was."""
    return errors.UnknownResource(f"There is no resource {quoted(uri, 200)}.")


def bind_resource(setting: Setting, uri: str) -> RowCall | CellCall | SchemaCall:
    """Return the call that reads *uri*, or raise UnknownResource."""
    schema = schema_of_uri(uri)
    if schema is not None and setting.catalog.tables:
        try:
            return bind_schema(setting, uri, *schema)
        except errors.CallError as exc:
            raise unknown(uri) from exc
    address = address_of(uri)
    tables = setting.catalog.named(address.table) if address else ()
    if address is None or len(tables) != 1:
        raise unknown(uri)
    keys = key_arguments(tables[0])
    # A client that fills in the template by RFC 6570 encodes the commas of a composite key.
    key = tuple(address.key[0].split(",")) if len(address.key) == 1 < len(keys) else address.key
    if not keys or len(key) != len(keys):
        raise unknown(uri)
    names = setting.names(tables[0])
    try:
        if address.column is None:
            return RowCall(uri=uri, call=bind_get(reading_of(setting, names, keys), key))
        column = tables[0].column_by_name.get(address.column)
        if column is None:
            raise unknown(uri)
        statement = key_statement(names, keys, key, (Output(term=column, cut=LARGEST_CELL),))
        return CellCall(uri=uri, column=column, statement=statement)
    except errors.CallError as exc:
        raise unknown(uri) from exc
