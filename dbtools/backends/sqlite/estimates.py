"""About how many rows tables have, as far as SQLite knows without counting. Tables in, numbers out.

ANALYZE, where it has run, has left a count. Otherwise the rowids tell: the first and the last are found at
once, and rows lie between them without gaps, unless some were deleted or given keys from elsewhere.
"""

import re
import sqlite3
from collections.abc import Collection, Iterable

from dbtools.backends.identifiers import identifier
from dbtools.catalog import Table, TableKind

MOST_RANGES = 200  #: tables whose rowids are looked at: one statement, with two searches for each
SHORTEST_ROW = 6  #: bytes in the file

STATISTICS = """
select tbl, stat
from main.sqlite_stat1
"""
RANGE = """
select {number}, (select max({rowid}) from main.{table}) - (select min({rowid}) from main.{table}) + 1
"""
SIZE = """
select page_count * page_size
from pragma_page_count('main'), pragma_page_size('main')
"""


def row_estimates(connection: sqlite3.Connection, tables: Collection[Table]) -> dict[str, int]:
    """Return about how many rows *tables* have, by name; nothing of those where that takes a count."""
    known = _statistics(connection)
    others = [table for table in tables if table.kind is TableKind.TABLE and table.name not in known]
    with_rowid = [table for table in others if table.row_identifier is not None]
    return known | _ranges(connection, with_rowid)


def _statistics(connection: sqlite3.Connection) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, statistic in _rows(connection, STATISTICS):
        # The index of a part of the rows counts only these.
        if match := re.match(r"\d{1,18}\b", str(statistic), re.ASCII):
            counts[str(name)] = max(counts.get(str(name), 0), int(match[0]))
    return counts


def _ranges(connection: sqlite3.Connection, tables: list[Table]) -> dict[str, int]:
    if not 0 < len(tables) <= MOST_RANGES:
        return {}
    ranges = _rows(connection, "union all".join(_range(*each) for each in enumerate(tables)))
    most = next((size // SHORTEST_ROW for (size,) in _rows(connection, SIZE) if isinstance(size, int)), 0)
    # A file too small for so many rows: their keys are not numbers in sequence.
    return {
        tables[number].name: rows or 0
        for number, rows in ranges
        if isinstance(number, int) and (rows is None or (isinstance(rows, int) and rows <= most))
    }


def _range(number: int, table: Table) -> str:
    return RANGE.format(number=number, rowid=table.row_identifier, table=identifier(table.name))


def _rows(connection: sqlite3.Connection, sql: str) -> Iterable[tuple[object, ...]]:
    """Return the rows of *sql*, none where a table is missing or damaged: an estimate is no need."""
    try:
        return connection.execute(sql).fetchall()
    except sqlite3.DatabaseError:
        return ()
