"""Check a query that changes rows before it is served. A location and pieces of SQL in, an Inspected out.

SQLite explains the query, which does not run it, and reports to the authorizer what it reads and changes,
foreign keys and triggers included. A temporary view of what RETURNING lists shows its types.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial

from dbtools.backends.changing_queries import FOLLOWED_BY, Main, main_of
from dbtools.backends.plans import with_lists
from dbtools.backends.port import NOT_CHANGING, Declared, Inspected, refusal
from dbtools.backends.sqlite.files import Location, authorize_writes, connect, secure
from dbtools.backends.sqlite.inspection import (
    LIST_FORMS,
    TEXT,
    Description,
    WrittenQuery,
    allow_views,
    check_lists,
    check_pragmas,
    columns_of,
    is_denied,
    is_passing,
    is_strict,
    parameter_type,
    reads_of,
    relations_of,
)
from dbtools.backends.sqlite.introspection import REPLACING
from dbtools.backends.sqlite.syntax import Piece, explained, fold, lexis
from dbtools.catalog import Column
from dbtools.queries import Effect, Effects
from dbtools.sql import Token

KINDS = {sqlite3.SQLITE_INSERT: "insert", sqlite3.SQLITE_UPDATE: "update", sqlite3.SQLITE_DELETE: "delete"}
REPLACES = "OR REPLACE deletes rows that are not counted."
REPLACED = "A constraint of the table has ON CONFLICT REPLACE, which deletes rows that are not counted."
DEFINITION = "select sql from main.sqlite_schema where type = 'table' and name = ?"
UPSERT = "Write ON CONFLICT … DO UPDATE."
VIEW = "SQLite does not count the rows that a change of a view affects."


class ChangeDescription(Description):
    """Asks the SQLite file at a location what queries that change rows mean."""

    async def query(self, pieces: Sequence[Piece], declared: Mapping[str, Declared]) -> Inspected:
        """Return the query in *pieces* as SQLite understands it, or raise Refused."""
        return await self._ask(partial(inspect_change, self._location, pieces, declared))


@dataclass(frozen=True, kw_only=True)
class Events:
    """What SQLite reports about a query."""

    reads: frozenset[tuple[str, str]]  #: tables and columns
    changes: frozenset[tuple[str, str, str]]  #: kinds, tables and columns


def inspect_change(
    location: Location, pieces: Sequence[Piece], declared: Mapping[str, Declared]
) -> Inspected:
    """Return the query in *pieces* as SQLite understands it, or raise Refused if it is not one change."""
    arrays = {name for name, each in declared.items() if each.array}
    query = WrittenQuery(source=pieces, pieces=with_lists(pieces, arrays.__contains__, LIST_FORMS))
    check_lists(query, arrays)
    main = main_of(query.pieces, lexis)
    target = _target(main)
    with closing(connect(location)) as connection:
        connection.execute("pragma foreign_keys = on")
        secure(connection)
        connection.text_factory = lambda text: text.decode(errors="replace")
        events = _explain(connection, query)
        check_pragmas(connection, query, {fold(table) for table, _ in events.reads})
        table, kind = next(iter(relations_of(connection, {fold(target[-1].value)})), ("", ""))
        if kind != "table":
            raise refusal(VIEW if kind else NOT_CHANGING, offset=target[0].offset)
        ((definition,),) = connection.execute(DEFINITION, (table,))
        if REPLACING.search(definition):
            raise refusal(REPLACED, offset=target[0].offset)
        columns = tuple(_columns(connection, query, main, target, events))
        reads = frozenset(reads_of(connection, query, events.reads))
    changes = frozenset(
        Effect(kind, "", name, column, named=name == table) for kind, name, column in events.changes
    )
    return Inspected(
        columns=columns,
        parameters={name: parameter_type(declared.get(name, TEXT)) for name in query.numbers},
        casts={},
        reads=reads,
        functions=(),
        effects=Effects(target=("", table), changes=changes),
    )


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


def _explain(connection: sqlite3.Connection, query: WrittenQuery) -> Events:
    """Return what SQLite reports about *query*, which does not run; or raise Refused."""
    reads: set[tuple[str, str]] = set()
    changes: set[tuple[str, str, str]] = set()

    def note(action: int, first: str | None, second: str | None, *rest: str | None) -> int:
        if action == sqlite3.SQLITE_READ and first is not None:
            reads.add((first, second or ""))
        elif action in KINDS and first is not None:
            changes.add((KINDS[action], first, second or ""))
        return authorize_writes(action, first, second, *rest)

    connection.set_authorizer(note)
    try:
        connection.execute(f"explain {query.alone()}", [None] * len(query.numbers)).close()
    except (sqlite3.Error, sqlite3.Warning) as exc:
        if is_passing(exc):
            raise
        message = str(exc).rstrip(".")
        problem = NOT_CHANGING if is_denied(exc) else explained(message, query.text)
        raise refusal(problem, offset=query.offset_of(message)) from exc
    # From here on, only a temporary view is created, of what RETURNING lists.
    allow_views(connection)
    return Events(reads=frozenset(reads), changes=frozenset(changes))


def _columns(
    connection: sqlite3.Connection,
    query: WrittenQuery,
    main: Main,
    target: Sequence[Token],
    events: Events,
) -> Iterator[Column]:
    """Yield the columns of what RETURNING lists, as those of a query of the table."""
    if main.returning is None:
        return
    table = "".join(map(str, query.pieces))[target[0].offset : target[-1].end]
    listed = (*_after(query.pieces, main.returning), f"\nfrom {table}")
    returned = replace(query, pieces=("select ", *listed))
    strict = is_strict(connection, query, {name for name, _ in events.reads})
    try:
        yield from columns_of(connection, returned, strict=strict)
    except sqlite3.Error as exc:
        raise refusal(explained(str(exc), query.text), offset=main.returning) from exc


def _after(pieces: Sequence[Piece], offset: int) -> Iterator[Piece]:
    """Yield the rest of *pieces* from *offset* of their text on."""
    for piece in pieces:
        if offset <= 0 or not isinstance(piece, str):
            yield from (piece,) if offset <= 0 else ()
        elif offset < len(piece):
            yield piece[offset:]
        offset -= len(str(piece))
