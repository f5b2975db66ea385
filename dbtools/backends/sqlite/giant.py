"""Cells that are too large to be loaded: a statement without them in, their beginnings and lengths out.

Where SQLite refuses to load a cell, the statement runs again for all but texts and blobs, and these are read
piece by piece by the number of their row.
"""

import codecs
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools.backends.plans import Plan
from dbtools.backends.selects import compile_select
from dbtools.backends.sources import Element, source, unveiled
from dbtools.backends.sqlite.grammar import SqliteGrammar
from dbtools.backends.sqlite.job import Job, cut
from dbtools.catalog import Column, Table
from dbtools.cells import Cut
from dbtools.statement import Output, Select
from dbtools.types import ColumnType, Family

PIECE = 2**20  #: bytes that are read at once
LARGE = "('text', 'blob')"  #: storage classes of what is read piece by piece


class FilteringGrammar(SqliteGrammar):
    """The Grammar of SQLite for statements that load no cell of a hidden row, but for their filter."""

    barrier = True


class GiantGrammar(FilteringGrammar):
    """The Grammar of SQLite for statements that load no text and no blob."""

    def cell(self, column: Element, output: Output) -> tuple[Element, ...]:
        """Read the cell where it is small, and its storage class, which is known without its content."""
        kind = sa.func.typeof(column)
        small = kind.op("not in", is_comparison=True)(sa.literal_column(LARGE))
        return sa.case((small, column)), kind


@lru_cache(maxsize=100)
def filtering_plan(shape: Select) -> Plan | None:
    """Return how *shape* is read without loading hidden rows, or None where nothing is filtered."""
    plan = compile_select(shape, FilteringGrammar())
    return plan if plan.sql != compile_select(shape, SqliteGrammar()).sql else None


def giant_plan(shape: Select) -> Plan | None:
    """Return how *shape* is read without texts and blobs, or None where its cells have no number of a row."""
    own = all(isinstance(output.term, Column) for output in shape.outputs)
    if shape.table.row_identifier is None or shape.groups or not own:
        return None
    integer = ColumnType(family=Family.INTEGER, name="integer")
    number = Output(term=Column(name=shape.table.row_identifier, type=integer, nullable=False))
    return compile_select(replace(shape, outputs=(*shape.outputs, number)), GiantGrammar())


@dataclass(kw_only=True)
class GiantJob(Job):
    """A job whose plan is a `giant_plan`."""

    table: Table

    def _row(self, cursor: sqlite3.Cursor, row: Sequence[object]) -> tuple[object, ...]:
        half = len(row) // 2
        cells, kinds = row[:half], row[half:]
        number = cells[-1]
        assert isinstance(number, int)
        return tuple(
            self._large_cell(cursor.connection, output, number, kind) if kind in ("text", "blob") else cell
            for output, cell, kind in zip(self.outputs, cells, kinds, strict=False)
        )

    def _large_cell(
        self, connection: sqlite3.Connection, output: Output, number: int, kind: object
    ) -> object:
        name = output.term.name
        try:
            blob = connection.blobopen(self.table.name, name, number, readonly=True)
        except sqlite3.OperationalError:
            # Computed, or the default of a column that is younger than the row: only a statement has it.
            (cell,) = connection.execute(_statement_of_cell(self.table, name), (number,)).fetchone()
            return cut(cell, output)
        with blob:
            most = len(blob) if output.longest is None else output.longest
            return _bytes(blob, most) if kind == "blob" else self._text(blob, most, connection)

    def _text(self, blob: sqlite3.Blob, most: int, connection: sqlite3.Connection) -> object:
        (encoding,) = connection.execute("pragma encoding").fetchone()
        start = ""
        length = 0
        for piece in _decoded(self._pieces(blob), encoding):
            start += piece[: most - len(start)]
            length += len(piece)
        return start if length <= most else Cut(start=start, length=length)

    def _pieces(self, blob: sqlite3.Blob) -> Iterator[bytes]:
        while piece := blob.read(PIECE):
            self._check()
            yield piece


def _bytes(blob: sqlite3.Blob, most: int) -> object:
    start = blob.read(most)
    return start if len(blob) <= most else Cut(start=start, length=len(blob))


def _decoded(pieces: Iterator[bytes], encoding: str) -> Iterator[str]:
    # As small cells are read: bytes that are no UTF-8 stay, what is no UTF-16 SQLite itself replaces.
    errors = "surrogateescape" if encoding == "UTF-8" else "replace"
    decoder = codecs.getincrementaldecoder(encoding)(errors)
    for piece in pieces:
        yield decoder.decode(piece)
    yield decoder.decode(b"", final=True)


@lru_cache(maxsize=100)
def _statement_of_cell(table: Table, name: str) -> str:
    rows = source(table, "t", SqliteGrammar(), {})
    column: Element = sa.column(quoted_name(name, quote=True), _selectable=rows)
    number: Element = sa.column(quoted_name(str(table.row_identifier), quote=True), _selectable=rows)
    statement = sa.select(column).select_from(rows).where(number == sa.bindparam("number"))
    return unveiled(str(statement.compile(dialect=SqliteGrammar.dialect)))
