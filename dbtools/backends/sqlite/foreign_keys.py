"""Read the foreign keys of SQLite's tables. Tables and their structures in, ForeignKeys out."""

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from dbtools.backends.sqlite.ddl import BINARY, fold
from dbtools.backends.sqlite.structure import Structure
from dbtools.backends.sqlite.types import Affinity, affinity
from dbtools.catalog import ForeignKey, Table, TableKind

FOREIGN_KEYS = """
select s.name, f.id, f."table", f."from", f."to"
from main.sqlite_schema as s
join pragma_foreign_key_list(s.name, 'main') as f
where s.type = 'table'
and instr(lower(s.sql), 'references')
order by s.name, f.id desc, f.seq
"""
#: Those of SQLite itself: an application's are unknown here, and comparing by them would fail.
COLLATIONS = (BINARY, "nocase", "rtrim")


def read_foreign_keys(
    connection: sqlite3.Connection, tables: Mapping[str, Table], structures: Mapping[str, Structure]
) -> dict[str, tuple[ForeignKey, ...]]:
    """Return the foreign keys from each of *tables* to another, or to itself."""
    targets = {fold(name): table for name, table in tables.items() if table.kind is TableKind.TABLE}
    keys: dict[str, dict[ForeignKey, None]] = defaultdict(dict)
    for (table, _, target), rows in groupby(connection.execute(FOREIGN_KEYS), key=lambda row: row[:3]):
        found = targets.get(fold(target))
        if table not in tables or found is None:
            continue
        pairs = [row[3:] for row in rows]
        key = _foreign_key(pairs, found, structures[table], structures[found.name])
        if key is not None:
            keys[table][key] = None
    return {table: tuple(each) for table, each in keys.items()}


def _foreign_key(
    pairs: Sequence[tuple[str, str | None]], target: Table, here: Structure, there: Structure
) -> ForeignKey | None:
    """Return the key of *pairs* of columns, here and there, if there are such columns in *target*."""
    exact = [_exact_name(target, name) for _, name in pairs if name is not None]
    if not exact and target.primary_key and target.primary_key.primary:
        exact = [*target.primary_key.columns]
    target_columns = tuple([name for name in exact if name is not None])
    if len(target_columns) != len(pairs):
        return None
    columns = tuple([name for name, _ in pairs])
    return ForeignKey(
        columns=columns,
        target_schema="",
        target=target.name,
        target_columns=target_columns,
        joinable=_is_joinable(here, columns, there, target_columns),
    )


def _exact_name(table: Table, name: str) -> str | None:
    if name in table.column_by_name:
        return name
    return next((column.name for column in table.columns if fold(column.name) == fold(name)), None)


def _is_joinable(
    here: Structure, columns: Sequence[str], there: Structure, target_columns: Sequence[str]
) -> bool:
    """Return whether `there = here` is true of one row at most, and means what the foreign key does."""
    if not (_has_known_collations(here, columns) and _has_known_collations(there, target_columns)):
        return False
    # The rowid is unique, and compares with anything as a number does.
    if target_columns == (there.rowid,):
        return True
    if not any(unique.issubset(target_columns) for unique in there.unique):
        return False
    source_is_strict, target_is_strict = here.relation.strict, there.relation.strict
    return all(
        _compares_alike(here.type(source), source_is_strict, there.type(target), target_is_strict)
        for source, target in zip(columns, target_columns, strict=True)
    )


def _has_known_collations(structure: Structure, columns: Sequence[str]) -> bool:
    return not structure.definition.collations or all(
        structure.collation(column) in COLLATIONS for column in columns
    )


@lru_cache(maxsize=1024)
def _compares_alike(source: str, source_is_strict: bool, target: str, target_is_strict: bool) -> bool:
    """Return whether `target = source` compares as a foreign key does: by the affinity of the target.

    A number as the source would make numbers of the target's texts: both '1' and '01' would equal it. A text
    as the target would make no texts of the source's numbers, as a foreign key does.
    """
    given = affinity(source, strict=source_is_strict)
    match affinity(target, strict=target_is_strict):
        case Affinity.NUMERIC:
            return True
        case Affinity.TEXT:
            return given is Affinity.TEXT
        case Affinity.BLOB:
            return given is not Affinity.NUMERIC
