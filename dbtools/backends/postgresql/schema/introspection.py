"""Read the catalog of a PostgreSQL database. A connection in, a Catalog out."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import anyio
import asyncpg
from asyncpg import Record

from dbtools.backends.checks import Check, limits_of, read_checks
from dbtools.backends.postgresql.connection.pipeline import DriverConnection
from dbtools.backends.postgresql.schema import catalog_queries
from dbtools.backends.postgresql.schema.changes import fingerprint, view_version
from dbtools.backends.postgresql.schema.dependencies import CHILDREN, READ_RELATIONS
from dbtools.backends.postgresql.schema.predicates import predicate_of, read_partial_keys
from dbtools.backends.postgresql.schema.types import DeclaredTypes, lexis, read_types
from dbtools.errors import listing
from dbtools.schema.catalog import (
    Catalog,
    Column,
    ForeignKey,
    Key,
    Selection,
    Table,
    TableKind,
    TextIndex,
    identity_columns,
    with_indexes,
)
from dbtools.values.types import ColumnType, Family

TABLE_KINDS: Mapping[str, TableKind] = {
    "r": TableKind.TABLE,
    "p": TableKind.PARTITIONED,
    "v": TableKind.VIEW,
    "m": TableKind.MATERIALIZED_VIEW,
    "f": TableKind.FOREIGN,
}
HIDDEN_SCHEMAS = ("information_schema", "dbtools")  #: schemas whose tables are hidden
#: PostgreSQL, "System Columns"; the version is the transaction that has made it.
TABLE_NUMBER, ROW_PLACE, ROW_VERSION = (
    Column(
        name=name, type=ColumnType(family=Family.OTHER, name=type, cast=f"pg_catalog.{type}"), nullable=False
    )
    for name, type in (("tableoid", "oid"), ("ctid", "tid"), ("xmin", "xid"))
)
PLACE = (TABLE_NUMBER, ROW_PLACE)  #: of a row: its partition, and where it is stored there
DERIVED = ("v", "m")  #: kinds in which an outer join may leave nulls that a domain forbids

#: Different types of a target and of a source that "=" compares as their foreign key does.
ALIKE = {
    *product(("int2", "int4", "int8"), repeat=2),
    *product(("float4", "float8"), repeat=2),
    *product(("numeric",), ("int2", "int4", "int8")),
    *product(("text", "varchar"), repeat=2),
    *(("text", "bpchar"), ("bpchar", "varchar"), ("timestamp", "date"), ("date", "timestamp")),
}

CONFIGURATION = re.compile(r"'(?:[^']|'')*'::(?:pg_catalog\.)?regconfig")  #: in an expression

UNPOPULATED = "the materialized view {0} cannot be read until you run REFRESH MATERIALIZED VIEW {0}."
MOST_DEFINITIONS = 500  #: definitions of views to read, since each takes up to 0.3 ms
NAMES_PER_SENTENCE = 5  #: at most, in the posture
#: The sentences of the posture in their order, by facts such as the attributes of roles; the first fact
#: implies all others.
SENTENCES: Mapping[str, str] = {
    "rolsuper": "The login{roles} is a superuser: it may do anything, whatever dbtools forbids.",
    "rolbypassrls": "The login{roles} bypasses row-level security.",
    "own": "The login{roles} owns {names}, and so may write, change and drop them.",
    "write": "The login{roles} may write to {names}.",
    "create": "The login{roles} may create objects in schema {names}.",
    "create schemas": "The login{roles} may create schemas in the database.",
    "member": "The login is a member of {names}.",
    "rolcreaterole": "The login{roles} may create roles.",
    "rolcreatedb": "The login{roles} may create databases.",
    "rolreplication": "The login{roles} may replicate: it can read every change to every database.",
}

ColumnsByNumber = Mapping[int, Mapping[int, Column]]  #: by the numbers of table and column
TableRows = Mapping[int, Sequence[Record]]  #: by the number of the table


async def read_catalog(connection: DriverConnection, selection: Selection) -> Catalog:
    """Return the catalog of what the login of *connection* may select from, from one snapshot."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(catalog_queries.NO_JIT)
        search_path = await connection.fetchval(catalog_queries.SEARCH_PATH)
        found = await connection.fetch(catalog_queries.RELATIONS)
        relations = [row for row in found if selection.admits(row["schema"], row["name"])]
        facts = await _read_facts(connection, relations)
        raising = await connection.fetch(catalog_queries.RAISING)
        posture = await connection.fetch(catalog_queries.POSTURE)
        stamp = await fingerprint(connection)
        definitions = await _read_definitions(connection, facts)
        await connection.execute(catalog_queries.QUALIFIED)
        text_indexes = await connection.fetch(catalog_queries.TEXT_INDEXES, list(facts.relations))
        partial_keys = await read_partial_keys(connection, facts.whole)
    # A login may have the name of a hidden schema, which is then on its search path.
    shown = (each for each in search_path if not each.startswith("pg_") and each not in HIDDEN_SCHEMAS)
    default_schema = next(shown, "public")
    # In a thread: a large schema takes 50 ms, and calls continue meanwhile.
    read = await anyio.to_thread.run_sync(
        _tables, facts, definitions, by_relation(text_indexes), by_relation(partial_keys)
    )
    tables = sorted(read, key=lambda each: (each.schema != default_schema, each.schema, each.name))
    return Catalog(
        tables=tuple(_with_versions_beneath(tables)),
        default_schema=default_schema,
        search_path=tuple(search_path),
        warnings=(
            *selection.idle_warnings([(row["schema"], row["name"]) for row in found]),
            *(UNPOPULATED.format(f"{each.schema}.{each.name}") for each in tables if not each.populated),
        ),
        posture=_posture(posture),
        raising=frozenset(row["name"].lower() for row in raising),
        unreadable={
            (row["schema"], row["name"]): tuple(each["name"] for each in facts.unreadable[row["number"]])
            for row in relations
            if row["number"] in facts.unreadable
        },
        stamp=stamp,
    )


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """The rows of the system catalogs about some tables."""

    relations: Mapping[int, Record]  #: the tables by their numbers
    columns: Sequence[Record]
    unreadable: TableRows  #: the columns that may not be selected
    types: DeclaredTypes
    checks: Sequence[Record]
    keys: TableRows
    foreign_keys: TableRows
    reads: TableRows  #: what views name

    @property
    def whole(self) -> Sequence[int]:
        """The tables of which no others inherit."""
        return [number for number, row in self.relations.items() if not row["inherited"]]


async def _read_facts(connection: DriverConnection, known: Sequence[Record]) -> _Facts:
    """Return the facts about the *known* tables in schemas that the login may use."""
    relations = {row["number"]: row for row in known if row["reachable"]}
    restricted = [row["number"] for row in known if not row["readable"]]
    # Any login may read the names of columns.
    named = await connection.fetch(catalog_queries.COLUMNS, [row["number"] for row in known], restricted)
    columns: list[Record] = []
    closed: list[Record] = []
    for row in named:
        (columns if row["readable"] and row["relation"] in relations else closed).append(row)
    types = await read_types(connection, {(row["type"], row["modifier"]) for row in columns})
    keys = await connection.fetch(catalog_queries.KEYS, list(relations))
    return _Facts(
        relations=relations,
        columns=columns,
        unreadable=by_relation(closed),
        types=DeclaredTypes(types),
        checks=await connection.fetch(catalog_queries.CHECKS, list(relations)),
        # The keys of a parent are not unique: its children may repeat them.
        keys=by_relation(row for row in keys if not relations[row["relation"]]["inherited"]),
        foreign_keys=by_relation(await connection.fetch(catalog_queries.FOREIGN_KEYS, list(relations))),
        reads=by_relation(
            [
                *await connection.fetch(
                    READ_RELATIONS, [key for key, row in relations.items() if row["kind"] in DERIVED]
                ),
                *await connection.fetch(
                    CHILDREN, [key for key, row in relations.items() if row["inherited"]]
                ),
            ]
        ),
    )


async def _read_definitions(connection: DriverConnection, facts: _Facts) -> Mapping[int, str]:
    """Return the definitions of views by number, or none while a migration locks what they read."""
    views = [number for number, row in facts.relations.items() if row["kind"] in DERIVED]
    try:
        async with connection.transaction():
            await connection.execute(catalog_queries.SHORT_LOCK_TIMEOUT)
            rows = await connection.fetch(catalog_queries.DEFINITIONS, views[:MOST_DEFINITIONS])
    except asyncpg.PostgresError:
        # Definitions are optional. A table may be locked, or may have been dropped since the list was read.
        return {}
    return {row["number"]: row["query"] or "" for row in rows}


def _identity(row: Record, keys: Sequence[Key], columns: Mapping[int, Column]) -> tuple[Column, ...]:
    """Return what identifies a row of the table *row*: its primary key, or else its place.

    Tables that inherit from it have separate keys.
    """
    if TABLE_KINDS[row["kind"]] not in (TableKind.TABLE, TableKind.PARTITIONED) or row["inherited"]:
        return ()
    primary = next((key.columns for key in keys if key.primary), ())
    return identity_columns(column for column in columns.values() if column.name in primary) or PLACE


def _tables(
    facts: _Facts, definitions: Mapping[int, str], text_indexes: TableRows, partial_keys: TableRows
) -> list[Table]:
    """Return the tables of *facts*."""
    columns = _columns(facts)
    return [
        Table(
            name=row["name"],
            schema=row["schema"],
            kind=TABLE_KINDS[row["kind"]],
            columns=with_indexes(
                tuple(columns[number].values()),
                _text_indexes(text_indexes.get(number, ()), [each.name for each in columns[number].values()]),
            ),
            keys=(keys := _keys(facts.keys.get(number, ()), columns)),
            identity=_identity(row, keys, columns[number]),
            unique=frozenset(_unique_columns(facts.keys.get(number, ()), columns)),
            lesser_keys=(
                *_nullable_keys(facts.keys.get(number, ()), columns),
                *_partial_keys(partial_keys.get(number, ()), columns),
            ),
            foreign_keys=tuple(_foreign_keys(facts, number, columns)),
            comment=row["comment"],
            definition=definitions.get(number, ""),
            # The estimate counts rows that row-level security hides.
            row_estimate=None if row["policies"] is not None or row["rows"] is None else round(row["rows"]),
            derived=row["kind"] in DERIVED or row["inherited"] or row["inherits"],
            reads=tuple((each["schema"], each["name"]) for each in facts.reads.get(number, ())),
            computed=row["computed"],
            policies=row["policies"],
            populated=row["populated"],
            version=row["version"],
        )
        for number, row in facts.relations.items()
        if number in columns
    ]


def _text_indexes(rows: Iterable[Record], columns: Collection[str]) -> Mapping[str, TextIndex]:
    """Return the full-text index of each of *columns*: of several, the one that reads the fewest columns."""
    found: dict[str, TextIndex] = {}
    for row in sorted(rows, key=lambda row: len(row["columns"])):
        reads = frozenset(row["columns"])
        configuration = CONFIGURATION.search(row["definition"])
        # Without a constant, the configuration may differ from row to row.
        if reads.issubset(columns) and (configuration or not row["computed"]):
            source = configuration[0] if configuration else ""
            index = TextIndex(reads=reads, document=row["document"], source=source)
            found = {**dict.fromkeys(reads, index), **found}
    return found


def by_relation(rows: Iterable[Record]) -> TableRows:
    """Return *rows* grouped by the number of their relation."""
    found: defaultdict[int, list[Record]] = defaultdict(list)
    for row in rows:
        found[row["relation"]].append(row)
    return found


def _with_versions_beneath(tables: Sequence[Table]) -> Iterator[Table]:
    """Yield *tables*; the version of a view includes the versions of the views that it reads."""
    catalog = Catalog(tables=tuple(tables))
    for table in tables:
        beneath = sorted(catalog.underlying_tables(table), key=lambda each: each.location)
        views = [each.version for each in beneath if each.kind is TableKind.VIEW]
        yield replace(table, version=view_version((table.version, *views))) if views else table


def _columns(facts: _Facts) -> ColumnsByNumber:
    unvalidated = {(row["relation"], row["nullable"]) for row in facts.checks}
    checks: defaultdict[tuple[int, str], list[Check]] = defaultdict(list)
    for row in facts.checks:
        for check in read_checks(row["expression"] or "", lexis):
            checks[row["relation"], check.column].append(check)
    columns: defaultdict[int, dict[int, Column]] = defaultdict(dict)
    shared: dict[tuple[object, ...], Column] = {}  #: in a large schema, many tables have the same columns
    for row in facts.columns:
        relation, number, name, type, modifier, collation, filled, generated, *others = row
        default, sources, comment, _ = others
        declared = facts.types[type, modifier]
        filled = filled or (declared.filled and facts.relations[relation]["kind"] not in DERIVED)
        nullable = not filled or (relation, number) in unvalidated
        limits = (*checks.get((relation, name), ()), *declared.checks)
        key = (name, type, modifier, collation, nullable, generated, default, comment, limits, *sources)
        columns[relation][number] = shared.get(key) or shared.setdefault(
            key,
            Column(
                name=name,
                type=declared.type,
                nullable=nullable,
                default=default,
                generated=generated,
                sources=frozenset(sources),
                comment=comment,
                collation=str(collation or ""),
                **limits_of(limits, declared.type.family),
            ),
        )
    return columns


def _keys(rows: Iterable[Record], columns: ColumnsByNumber) -> tuple[Key, ...]:
    keys: dict[tuple[str, ...], Key] = {}
    for row in rows:
        found = _find(columns, row["relation"], row["columns"])
        if found and not any(each.nullable for each in found):
            names = tuple(column.name for column in found)
            keys.setdefault(names, Key(columns=names, primary=row["main"], deferrable=row["deferrable"]))
    return tuple(keys.values())


def _unique_columns(rows: Iterable[Record], columns: ColumnsByNumber) -> Iterator[str]:
    single = (row for row in rows if len(row["columns"]) == 1)
    return (column.name for row in single for column in _find(columns, row["relation"], row["columns"]))


def _nullable_keys(rows: Iterable[Record], columns: ColumnsByNumber) -> Iterator[Key]:
    for row in rows:
        found = _find(columns, row["relation"], row["columns"])
        if len(found) > 1 and any(each.nullable for each in found) and not row["deferrable"]:
            yield Key(columns=tuple(each.name for each in found))


def _partial_keys(rows: Iterable[Record], columns: ColumnsByNumber) -> Iterator[Key]:
    for row in rows:
        if found := _find(columns, row["relation"], row["columns"]):
            yield Key(
                columns=tuple(each.name for each in found),
                condition=row["shown"],
                predicate=predicate_of(row),
                reads=frozenset(row["reads"]),
            )


def _foreign_keys(facts: _Facts, relation: int, columns: ColumnsByNumber) -> Iterable[ForeignKey]:
    found: dict[ForeignKey, None] = {}
    for row in facts.foreign_keys.get(relation, ()):
        sources = _find(columns, relation, row["columns"])
        targets = _find(columns, row["target"], row["target_columns"])
        if not (sources and targets):
            continue
        target = facts.relations[row["target"]]
        foreign_key = ForeignKey(
            columns=tuple(column.name for column in sources),
            target_schema=target["schema"],
            target=target["name"],
            target_columns=tuple(column.name for column in targets),
            joinable=not target["inherited"] and all(map(are_alike, targets, sources)),
        )
        found[foreign_key] = None
    return found


def are_alike(target: Column, source: Column) -> bool:
    """Return whether "=" compares the columns as a foreign key does, without an error."""
    types = (target.type.cast, source.type.cast)
    same = types[0] == types[1] or tuple(each.removeprefix("pg_catalog.") for each in types) in ALIKE
    return same and target.collation == source.collation and target.type.equatable and source.type.equatable


def _find(columns: ColumnsByNumber, relation: int, numbers: Iterable[int]) -> tuple[Column, ...]:
    """Return the columns with *numbers*, or none if one is missing or cannot be compared."""
    known = columns.get(relation, {})
    found = [known.get(number) for number in numbers]
    comparable = [column for column in found if column and column.type.equatable]
    return tuple(comparable) if len(comparable) == len(found) else ()


def _posture(rows: Iterable[Record]) -> tuple[str, ...]:
    """Return what the login can do beyond reading, in sentences."""
    found = {row["fact"]: row for row in rows}
    sentences = tuple(_sentence(found[fact]) for fact in SENTENCES if fact in found)
    return sentences[:1] if "rolsuper" in found else sentences


def _sentence(row: Record) -> str:
    roles = "" if row["own"] else f", as {listing(sorted(row['roles']))},"
    return SENTENCES[row["fact"]].format(names=listing(sorted(row["names"]), NAMES_PER_SENTENCE), roles=roles)
