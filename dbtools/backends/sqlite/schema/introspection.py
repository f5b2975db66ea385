"""Read the catalog of a SQLite database. A connection in, a Catalog out, with few statements.

The catalog covers the file itself (the schema "main"), without the internal tables of SQLite, virtual tables
and dbtools. A relation that cannot be read is left out with a warning.
"""

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from dbtools.backends.checks import Check, read_checks
from dbtools.backends.compiled import identifier
from dbtools.backends.query_syntax import GAP
from dbtools.backends.sqlite.connection.files import read_any_text, resolve_views, stamp_of
from dbtools.backends.sqlite.schema.relations import (
    HIDDEN,
    STORED,
    VIRTUAL,
    ColumnRow,
    Index,
    Structure,
    bound_to_main,
    is_derived,
    read_by,
    read_foreign_keys,
    read_text_indexes,
)
from dbtools.backends.sqlite.schema.syntax import (
    BINARY,
    Definition,
    condition_of,
    fold,
    generation,
    lexis,
    module_of,
    predicate_of,
    query_of,
)
from dbtools.backends.sqlite.schema.types import column_type, with_limits
from dbtools.schema.catalog import (
    Catalog,
    Column,
    Key,
    Selection,
    Table,
    TableKind,
    identity_columns,
    with_indexes,
)
from dbtools.values.types import ColumnType, Family, quote

#: The tables of migrations and of the registry.
INTERNAL = frozenset({"alembic_version", "dbtools_version", "dbtools_query", "dbtools_call", "dbtools_write"})
TABLE_KINDS = {"table": TableKind.TABLE, "view": TableKind.VIEW, "virtual": TableKind.VIRTUAL}
#: Modules of virtual tables whose rowids are known to be stable.
MODULES_WITH_ROWID = frozenset({"fts3", "fts4", "fts5", "rtree", "rtree_i32"})
ROWIDS = ("rowid", "_rowid_", "oid")
REPLACEMENT_CHARACTER = "\ufffd"  #: replaces invalid UTF-8
LONGEST_IDENTIFIER = 500  #: characters; longer names would break the bounds of answers
MOST_RANGES = 200  #: tables whose rowids are read, in one statement with two searches for each
SHORTEST_ROW = 6  #: bytes in the file
#: A constraint that replaces other rows; it may also be part of a text, which is rare.
REPLACING = re.compile(rf"\bon{GAP}+conflict{GAP}+replace\b", re.IGNORECASE | re.DOTALL)

BOUND = "run_sql cannot read the view {}: {}."

RELATIONS = """
select name, type, wr, strict
from pragma_table_list
where schema = 'main'
and type in ('table', 'view', 'virtual')
"""
RELATION_NAMES = (
    "select name from pragma_table_list where schema = 'main'"  #: those of full-text indexes included
)
DEFINITIONS = """
select name, sql
from main.sqlite_schema
where type in ('table', 'view')
"""
COLUMNS = """
select l.name, x.name, x.type, x."notnull", x.dflt_value, x.pk, x.hidden
from pragma_table_list as l
join pragma_table_xinfo(l.name, 'main') as x
where l.schema = 'main'
and l.type in ('table', 'view', 'virtual')
and l.name not in (select value from json_each(?))
"""
INDEXES = """
select s.name, i.name, i.origin,
    case when i.partial then (select d.sql from main.sqlite_schema as d where d.name = i.name) end,
    x.name, x.coll
from main.sqlite_schema as s
join pragma_index_list(s.name, 'main') as i
join pragma_index_xinfo(i.name, 'main') as x
where s.type = 'table'
and (
    s.name in (select tbl_name from main.sqlite_schema where type = 'index')
    or instr(lower(s.sql), 'without')
)
and i."unique"
and x.key
order by s.name, i.seq desc, x.seqno
"""
RANGE = """
select {number}, (select max({rowid}) from main.{table}) - (select min({rowid}) from main.{table}) + 1
"""
SIZE = """
select page_count * page_size
from pragma_page_count('main'), pragma_page_size('main')
"""


def read_catalog(connection: sqlite3.Connection, selection: Selection, identity: str = "") -> Catalog:
    """Return the catalog of the tables that *selection* admits, from one snapshot.

    *identity* is the identity of the file, read before the file was opened.
    """
    connection.execute("begin")
    try:
        stamp = stamp_of(connection, identity)
        catalog = read_any_text(connection, lambda: _read(connection, selection), "replace")
        return replace(catalog, stamp=stamp)
    finally:
        connection.rollback()


def _read(connection: sqlite3.Connection, selection: Selection) -> Catalog:
    unreadable = resolve_views(connection)
    listed = sorted(connection.execute(RELATIONS))
    kinds = {name: TABLE_KINDS[type] for name, type, *_ in listed if _is_wanted(name, selection)}
    columns, problems = _columns(connection, kinds, unreadable)
    indexes = _indexes(connection)
    definitions = dict(connection.execute(DEFINITIONS).fetchall())
    structures = {
        name: Structure(
            name=name,
            kind=kinds[name],
            has_rowid=not without_rowid,
            strict=bool(strict),
            sql=definitions.get(name) or "",
            rows=columns[name],
            indexes=indexes.get(name, ()),
        )
        for name, _, without_rowid, strict in listed
        if name in kinds and name not in problems
    }
    tables = {name: _table(structure) for name, structure in structures.items()}
    foreign_keys = read_foreign_keys(connection, tables, structures)
    estimates = _row_estimates(connection, tables.values())
    names = {fold(name): name for (name,) in connection.execute(RELATION_NAMES)}
    reads = {name: read_by(structure, names) for name, structure in structures.items()}
    virtual = {name: definitions.get(name) or "" for name, type, *_ in listed if type == "virtual"}
    text_indexes = read_text_indexes(virtual, structures, columns)
    left_out = (f"{kinds[name]} {quote(name)} is left out: {why}." for name, why in problems.items())
    catalog = Catalog(
        tables=tuple(
            replace(
                table,
                columns=with_indexes(table.columns, text_indexes.get(name, {})),
                foreign_keys=foreign_keys.get(name, ()),
                row_estimate=estimates.get(name),
                derived=is_derived(structures[name], reads[name]),
                reads=reads[name],
            )
            for name, table in tables.items()
        ),
        raising=frozenset(
            name.lower()
            for name, type, *_ in listed
            if type != "table" or _is_computed(columns.get(name, ()))
        ),
        warnings=(*left_out, *selection.idle_warnings([("", name) for name, *_ in listed])),
    )
    bound = (BOUND.format(quote(name), why) for (_, name), why in bound_to_main(catalog).items())
    return replace(catalog, warnings=(*catalog.warnings, *bound))


def _is_computed(rows: Iterable[ColumnRow]) -> bool:
    """Return whether reading a row may raise an error, because a cell is computed."""
    return any(row.hidden == VIRTUAL for row in rows)


def _is_wanted(name: str, selection: Selection) -> bool:
    own = fold(name).startswith("sqlite_") or fold(name) in INTERNAL
    return selection.admits("", name) and not own


def _columns(
    connection: sqlite3.Connection, relations: Iterable[str], unreadable: Mapping[str, str]
) -> tuple[dict[str, list[ColumnRow]], dict[str, str]]:
    """Return the columns by table, and the problems of those of *relations* that cannot be read."""
    problems = dict(unreadable)
    found: dict[str, list[ColumnRow]] = defaultdict(list)
    for row in map(ColumnRow._make, connection.execute(COLUMNS, (json.dumps([*problems]),))):
        found[row.table].append(row)
    for name in set(relations) - problems.keys():
        names = (name, *(row.name for row in found[name]))
        if any(REPLACEMENT_CHARACTER in each for each in names):
            problems[name] = "its name or that of a column is not valid text"
        elif max(map(len, names)) > LONGEST_IDENTIFIER:
            problems[name] = f"its name or that of a column has more than {LONGEST_IDENTIFIER} characters"
        elif all(row.hidden == HIDDEN for row in found[name]):
            problems[name] = "it has no columns"
    return found, {name: problems[name] for name in relations if name in problems}


def _indexes(connection: sqlite3.Connection) -> dict[str, list[Index]]:
    indexes: dict[str, list[Index]] = defaultdict(list)
    for (table, _, origin, sql), rows in groupby(connection.execute(INDEXES), key=lambda row: row[:4]):
        columns, collations = zip(*((name, fold(collation)) for *_, name, collation in rows), strict=True)
        indexes[table].append(Index(origin, sql is not None, columns, collations, sql or ""))
    return indexes


def _table(structure: Structure) -> Table:
    checks = _checks(structure.definition)
    columns = tuple(_column(row, structure, checks) for row in structure.rows if row.hidden != HIDDEN)
    if any(column.generated for column in columns):
        columns = tuple(_with_sources(columns, generation(structure.sql)))
    keys = _keys(structure, columns)
    return Table(
        name=structure.name,
        kind=structure.kind,
        columns=columns,
        keys=keys,
        identity=_identity(structure, keys, columns),
        unique=frozenset(each.name for each in columns if {each.name} in structure.unique),
        lesser_keys=(*_nullable_keys(structure, keys), *_partial_keys(structure)),
        comment=structure.definition.comment,
        definition=query_of(structure.sql) if structure.kind is TableKind.VIEW else "",
        row_identifier=_row_identifier(structure),
        computed=structure.kind is not TableKind.TABLE or _is_computed(structure.rows),
    )


def _with_sources(columns: Sequence[Column], words: Mapping[str, frozenset[str]]) -> Iterator[Column]:
    """Yield *columns*, generated ones with the columns that they may be computed from."""
    for column in columns:
        named = words.get(fold(column.name))
        others = (each.name for each in columns if each != column)
        sources = frozenset(name for name in others if named is None or fold(name) in named)
        yield replace(column, sources=sources) if column.generated else column


def _checks(definition: Definition) -> dict[str, list[Check]]:
    """Return the checks of each column, by folded name."""
    checks: dict[str, list[Check]] = defaultdict(list)
    for expression in definition.checks:
        for check in read_checks(expression, lexis):
            checks[fold(check.column)].append(check)
    return checks


def _column(row: ColumnRow, structure: Structure, checks: Mapping[str, Sequence[Check]]) -> Column:
    definition, rowid = structure.definition, row.name == structure.rowid
    type = column_type(row.type, strict=structure.strict, rowid=rowid)
    folded = fold(row.name) if checks or definition.comments else ""
    column = Column(
        name=row.name,
        type=type,
        nullable=not (row.not_null or rowid),
        default=row.default,
        generated=row.hidden in (VIRTUAL, STORED),
        assigned=rowid,
        comment=definition.comments.get(folded, ""),
    )
    if folded not in checks:
        return column
    return with_limits(column, checks[folded], collated=structure.collation(row.name) != BINARY)


def _keys(structure: Structure, columns: Iterable[Column]) -> tuple[Key, ...]:
    primary = tuple(row.name for row in sorted(structure.rows, key=lambda row: row.primary) if row.primary)
    if any(index.origin == "pk" and index not in structure.exact for index in structure.indexes):
        primary = ()
    certain = {column.name for column in columns if not column.nullable}
    unique = dict.fromkeys(
        tuple(name for name in index.columns if name is not None)
        for index in structure.exact
        if index.origin != "pk" and not index.partial and certain.issuperset(index.columns)
    )
    keys = (Key(columns=primary, primary=True),) if primary else ()
    return keys + tuple(Key(columns=names) for names in unique if names != primary)


def _nullable_keys(structure: Structure, keys: Sequence[Key]) -> Iterator[Key]:
    """Yield the unique indexes of several columns that are not among *keys*."""
    known = {key.columns for key in keys}
    whole = (_columns_of(index) for index in structure.exact if not index.partial)
    names = dict.fromkeys(each for each in whole if len(each) > 1 and each not in known)
    yield from (Key(columns=each) for each in names)


def _partial_keys(structure: Structure) -> Iterator[Key]:
    """Yield the partial unique indexes of columns."""
    names = {fold(row.name): row.name for row in structure.rows}
    for index in structure.exact:
        if index.partial and (columns := _columns_of(index)):
            condition = condition_of(index.sql)
            predicate, reads = predicate_of(condition, names)
            yield Key(columns=columns, condition=condition, predicate=predicate, reads=reads)


def _columns_of(index: Index) -> tuple[str, ...]:
    """Return the columns of *index*, none if it has an expression."""
    names = tuple(name for name in index.columns if name is not None)
    return names if len(names) == len(index.columns) else ()


def _row_identifier(structure: Structure) -> str | None:
    """Return a name of the rowid that no column has; None if columns have all names, or without a rowid."""
    keeps_rowid = structure.kind is TableKind.VIRTUAL and module_of(structure.sql).name in MODULES_WITH_ROWID
    if not keeps_rowid and not (structure.kind is TableKind.TABLE and structure.has_rowid):
        return None
    taken = {fold(row.name) for row in structure.rows}
    return next((name for name in ROWIDS if name not in taken), None)


def _identity(structure: Structure, keys: Sequence[Key], columns: Sequence[Column]) -> tuple[Column, ...]:
    """Return what identifies a row of a table: its rowid, or else its primary key.

    A change to a table that replaces rows could delete rows that the role does not see.
    """
    if structure.kind is not TableKind.TABLE or REPLACING.search(structure.sql):
        return ()
    if (name := _row_identifier(structure)) is not None:
        return (Column(name=name, type=ColumnType(family=Family.OTHER, name="rowid"), nullable=False),)
    primary = next((key.columns for key in keys if key.primary), ())
    return identity_columns(column for column in columns if column.name in primary)


def _row_estimates(connection: sqlite3.Connection, tables: Iterable[Table]) -> dict[str, int]:
    """Return estimated row counts by table, from the first and the last rowid, which are found quickly.

    They are correct unless rows were deleted or have keys from elsewhere.
    """
    numbered = [each for each in tables if each.kind is TableKind.TABLE and each.row_identifier is not None]
    if not 0 < len(numbered) <= MOST_RANGES:
        return {}
    ranges = (
        RANGE.format(number=number, rowid=table.row_identifier, table=identifier(table.name))
        for number, table in enumerate(numbered)
    )
    try:
        rows = connection.execute("union all".join(ranges)).fetchall()
        ((size,),) = connection.execute(SIZE)
    except sqlite3.DatabaseError:
        # A table is damaged, and estimates are optional.
        return {}
    # If the file is too small for so many rows, their keys are not sequential.
    counts = ((numbered[at].name, count or 0) for at, count in rows)
    return {name: count for name, count in counts if isinstance(count, int) and count <= size // SHORTEST_ROW}
