"""Check a query that changes rows before it is served. A connection and pieces of SQL in, an Inspected out.

SQLite explains the query, which does not run it, and reports to the authorizer what it reads and changes,
foreign keys and triggers included. A temporary view of what RETURNING lists shows its types.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from dbtools.backends.compiled import identifier
from dbtools.backends.port import NOT_CHANGING, Declared, Inspected
from dbtools.backends.query_syntax import FOLLOWED_BY, Main, Piece, main_of
from dbtools.backends.sqlite.connection.events import explain
from dbtools.backends.sqlite.connection.files import authorize_writes
from dbtools.backends.sqlite.queries.inspection import (
    SqliteQuery,
    events_of,
    inspection_of,
    relations_of,
    unsecured,
    written_query,
)
from dbtools.backends.sqlite.schema.introspection import REPLACING
from dbtools.backends.sqlite.schema.syntax import fold, in_groups, lexis
from dbtools.errors import Refused
from dbtools.findings import Hindrance
from dbtools.policy.writes import CHANGES, granted_changes
from dbtools.queries import Effect, Effects
from dbtools.schema.catalog import Location, Table
from dbtools.schema.sql import Group, Part, Token, split

REPLACES = "OR REPLACE deletes rows that are not counted."
REPLACED = "A constraint of the table has ON CONFLICT REPLACE, which deletes rows that are not counted."
TRIGGERS = "select name, tbl_name, sql from main.sqlite_schema where type = 'trigger' order by name"
DEFINITION = "select sql from main.sqlite_schema where type = 'table' and name = ?"
UPSERT = "Write ON CONFLICT … DO UPDATE."
VIEW_CHANGED = "SQLite does not count the rows that a change to a view affects."


def inspect_change(
    connection: sqlite3.Connection, pieces: Sequence[Piece], declared: Mapping[str, Declared]
) -> Inspected:
    """Return the query in *pieces* as SQLite understands it, or raise Refused if it is not one change."""
    query = written_query(pieces, declared)
    main = main_of(query.pieces, lexis)
    target = _target(main)
    events = events_of(connection, query, authorize_writes, NOT_CHANGING)
    with unsecured(connection):
        reading = inspection_of(connection, query, events, _returning_query(query, main, target))
        table = _table(connection, target)
    changes = frozenset(
        Effect(kind, "", name, column, named=name == table) for kind, name, column in events.changes
    )
    return replace(reading, effects=Effects(target=("", table), changes=changes))


def unprepared_changes(connection: sqlite3.Connection, tables: Sequence[Table]) -> Mapping[Location, str]:
    """Return why SQLite cannot prepare the granted changes of *tables*: what they need is missing.

    On a connection that opens the file read-only, SQLite leaves out the checks of a table.
    """
    found = {}
    for table in tables:
        for sql in _changes(table):
            try:
                explain(connection, sql, allow=authorize_writes)
            except sqlite3.OperationalError as exc:
                if exc.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:
                    raise
                kind, message = sql.partition(" ")[0], str(exc)
                found[table.location] = f"SQLite cannot prepare {kind} statements: {message}."
    return found


def hindrances(connection: sqlite3.Connection, tables: Sequence[Table]) -> Mapping[Location, Sequence[str]]:
    """Return which granted changes of *tables* each trigger refuses, whatever the row is."""
    by_name = {fold(table.name): table for table in tables}
    found: dict[Location, list[str]] = {}
    for name, of, sql in connection.execute(TRIGGERS).fetchall():
        table = by_name.get(fold(of))
        hindrance, change = _hindrance(in_groups(sql).parts)
        if table is not None and hindrance is not None and change in granted_changes(table):
            sentence = hindrance.format(name=name, change=change)
            found.setdefault(table.location, []).append(sentence)
    return found


def _hindrance(parts: Sequence[Part]) -> tuple[Hindrance | None, str]:
    """Return how the trigger in *parts* of SQL hinders every change, and which; None if it may not."""
    words = [part.word for part in parts]
    if "begin" not in words or "when" in words[: words.index("begin")]:
        return None, ""
    header = words[: words.index("begin")]
    change, after = next(pair for pair in pairwise(header) if pair[0] in CHANGES)
    for statement in split(parts[len(header) + 1 :], ";"):
        match statement:
            case [Token(word="select"), Token(word="raise"), Group(parts=[action, *_])] if after != "of":
                return Hindrance.KEPT if action.word == "ignore" else Hindrance.REFUSED, change
    return None, ""


def _changes(table: Table) -> Iterator[str]:
    """Yield a statement for each kind of change that is granted on *table*."""
    writes, name = table.writes, identifier(table.name)
    if writes is None:
        return
    if writes.delete:
        yield f"delete from {name}"
    columns = {each.name for each in (*writes.update, *(preset.column for preset in writes.update_presets))}
    if columns:
        yield f"update {name} set " + ", ".join(f"{identifier(each)} = null" for each in sorted(columns))
    if writes.insert is not None:
        yield f"insert into {name} default values"


def _table(connection: sqlite3.Connection, target: Sequence[Token]) -> str:
    """Return the name of the table *target*, or raise Refused if its changes cannot be counted."""
    offset = target[0].offset
    for table, kind, _ in relations_of(connection, {fold(target[-1].value)}):
        if kind == "view":
            raise Refused(VIEW_CHANGED, offset=offset)
        ((definition,),) = connection.execute(DEFINITION, (table,))
        if REPLACING.search(definition):
            raise Refused(REPLACED, offset=offset)
        return table
    raise Refused(NOT_CHANGING, offset=offset)


def _target(main: Main) -> Sequence[Token]:
    """Return the name of the table that *main* changes, which RETURNING uses even if there is an alias."""
    words = [token.word for token in main.tokens]
    at = 1
    if words[at : at + 1] == ["or"]:
        if words[at + 1 : at + 2] == ["replace"]:
            raise Refused(REPLACES, hint=UPSERT, offset=main.tokens[at + 1].offset)
        at += 2
    at += words[at : at + 1] == [FOLLOWED_BY.get(main.verb)]
    first = at
    while words[at + 1 : at + 2] == ["."]:
        at += 2
    if at >= len(main.tokens):
        raise Refused(NOT_CHANGING, offset=main.offset)
    return main.tokens[first : at + 1]


def _returning_query(query: SqliteQuery, main: Main, target: Sequence[Token]) -> SqliteQuery | None:
    """Return a query of the table for what RETURNING lists, None without RETURNING."""
    if main.returning is None:
        return None
    table = "".join(map(str, query.pieces))[target[0].offset : target[-1].end]
    listed = _rest_of(query.pieces, main.returning)
    return replace(query, pieces=("select ", *listed, f"\nfrom {table}"))


def _rest_of(pieces: Sequence[Piece], offset: int) -> Iterator[Piece]:
    """Yield the rest of *pieces* from *offset* of their text on."""
    for piece in pieces:
        if offset <= 0 or not isinstance(piece, str):
            yield from (piece,) if offset <= 0 else ()
        elif offset < len(piece):
            yield piece[offset:]
        offset -= len(str(piece))
