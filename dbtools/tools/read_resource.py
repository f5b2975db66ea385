"""Rows and cells by their address: what `resources/read` answers."""

from dataclasses import dataclass

from dbtools import errors
from dbtools.catalog import Catalog, Column
from dbtools.cells import dump, encoder
from dbtools.column_types import Family, quoted
from dbtools.links import Address, address_of
from dbtools.results import Cut, Media, ResultSet, media_type
from dbtools.statement import Output, Statement
from dbtools.tools.definition import Toolset
from dbtools.tools.get_row import GetCall, GetRow, key_statement

LARGEST_CELL = 10_000_000  #: characters, or bytes of bytes


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
        value = encoder(self.column.type)(cell)
        if isinstance(value, str) and self.column.type.family is not Family.JSON:
            # Not JSON's escapes here: a text resource is the text itself.
            clean = str(dump([value])[0][0])  # type: ignore[index]
            return Media(uri=self.uri, type="text/plain", content=clean.encode())
        return Media(uri=self.uri, type="application/json", content=dump(value)[1].encode())


def unknown(uri: str) -> errors.UnknownResource:
    """Return the one complaint for what is gone, hidden or never was."""
    return errors.UnknownResource(f"There is no resource {quoted(uri, 200)}.")


def bind_resource(catalog: Catalog, tools: Toolset, uri: str) -> RowCall | CellCall:
    """Return the call that reads *uri*, or raise UnknownResource."""
    address = address_of(uri)
    if address is None:
        raise unknown(uri)
    tool = _tool(catalog, tools, address)
    try:
        if tool is None or len(address.key) != len(tool.keys):
            raise unknown(uri)
        if address.column is None:
            return RowCall(uri=uri, call=tool.bind_key(address.key))
        column = tool.table.column_by_name.get(address.column)
        if column is None:
            raise unknown(uri)
        outputs = (Output(column=column, cut=LARGEST_CELL),)
        statement = key_statement(tool.table, tool.keys, address.key, outputs)
        return CellCall(uri=uri, column=column, statement=statement)
    except errors.CallError as exc:
        raise unknown(uri) from exc


def _tool(catalog: Catalog, tools: Toolset, address: Address) -> GetRow | None:
    tables = catalog.named(address.table)
    found = (tool for tool in tools.values() if isinstance(tool, GetRow) and (tool.table,) == tables)
    return next(found, None)
