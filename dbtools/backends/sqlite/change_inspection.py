"""Check a query that changes rows before it is served. A location and pieces of SQL in, an Inspected out.

SQLite explains the query, which does not run it, and reports to the authorizer what it reads and changes,
foreign keys and triggers included. A temporary view of what RETURNING lists shows its types.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dbtools.backends.port import NOT_CHANGING, Declared, Inspected, refusal
from dbtools.backends.query_syntax import FOLLOWED_BY, Main, Piece, main_of
from dbtools.backends.sqlite.files import FileLocation, authorize_writes
from dbtools.backends.sqlite.inspection import (
    SqliteQuery,
    events_of,
    inspected,
    inspecting,
    relations_of,
    written_query,
)
from dbtools.backends.sqlite.introspection import REPLACING
from dbtools.backends.sqlite.syntax import fold, lexis
from dbtools.queries import Effect, Effects
from dbtools.sql import Token

REPLACES = "OR REPLACE deletes rows that are not counted."
REPLACED = "A constraint of the table has ON CONFLICT REPLACE, which deletes rows that are not counted."
DEFINITION = "select sql from main.sqlite_schema where type = 'table' and name = ?"
UPSERT = "Write ON CONFLICT … DO UPDATE."
VIEW_CHANGED = "SQLite does not count the rows that a change to a view affects."


def inspect_change(
    location: FileLocation, pieces: Sequence[Piece], declared: Mapping[str, Declared]
) -> Inspected:
    """Return the query in *pieces* as SQLite understands it, or raise Refused if it is not one change."""
    query = written_query(pieces, declared)
    main = main_of(query.pieces, lexis)
    target = _target(main)
    with inspecting(location) as connection:
        events = events_of(connection, query, authorize_writes, NOT_CHANGING)
        reading = inspected(connection, query, events, _returned(query, main, target))
        table = _table(connection, target)
    changes = frozenset(
        Effect(kind, "", name, column, named=name == table) for kind, name, column in events.changes
    )
    return replace(reading, effects=Effects(target=("", table), changes=changes))


def _table(connection: sqlite3.Connection, target: Sequence[Token]) -> str:
    """Return the name of the table *target*, or raise Refused if its changes cannot be counted."""
    offset = target[0].offset
    for table, kind, _ in relations_of(connection, {fold(target[-1].value)}):
        if kind == "view":
            raise refusal(VIEW_CHANGED, offset=offset)
        ((definition,),) = connection.execute(DEFINITION, (table,))
        if REPLACING.search(definition):
            raise refusal(REPLACED, offset=offset)
        return table
    raise refusal(NOT_CHANGING, offset=offset)


def _target(main: Main) -> Sequence[Token]:
    """Return the name of the table that *main* changes, which RETURNING uses even if there is an alias."""
    words = [token.word for token in main.tokens]
    at = 1
    if words[at : at + 1] == ["or"]:
        if words[at + 1 : at + 2] == ["replace"]:
            raise refusal(REPLACES, hint=UPSERT, offset=main.tokens[at + 1].offset)
        at += 2
    at += words[at : at + 1] == [FOLLOWED_BY.get(main.verb)]
    first = at
    while words[at + 1 : at + 2] == ["."]:
        at += 2
    if at >= len(main.tokens):
        raise refusal(NOT_CHANGING, offset=main.offset)
    return main.tokens[first : at + 1]


def _returned(query: SqliteQuery, main: Main, target: Sequence[Token]) -> SqliteQuery | None:
    """Return a query of the table for what RETURNING lists, None without RETURNING."""
    if main.returning is None:
        return None
    table = "".join(map(str, query.pieces))[target[0].offset : target[-1].end]
    listed = _after(query.pieces, main.returning)
    return replace(query, pieces=("select ", *listed, f"\nfrom {table}"))


def _after(pieces: Sequence[Piece], offset: int) -> Iterator[Piece]:
    """Yield the rest of *pieces* from *offset* of their text on."""
    for piece in pieces:
        if offset <= 0 or not isinstance(piece, str):
            yield from (piece,) if offset <= 0 else ()
        elif offset < len(piece):
            yield piece[offset:]
        offset -= len(str(piece))
