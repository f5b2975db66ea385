"""Read the catalog of a PostgreSQL database. A connection in, a Catalog out."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation

import anyio
from asyncpg import Record

from dbtools.backends.checks import Check, read_checks
from dbtools.backends.postgresql import catalog_queries
from dbtools.backends.postgresql.changes import fingerprint, together
from dbtools.backends.postgresql.dependencies import read_dependencies
from dbtools.backends.postgresql.pipeline import DriverConnection
from dbtools.backends.postgresql.posture import read_posture
from dbtools.backends.postgresql.syntax import lexis
from dbtools.backends.postgresql.types import DeclaredTypes, read_types
from dbtools.catalog import Catalog, Column, ForeignKey, Key, Reads, Selection, Table, TableKind
from dbtools.types import Family

KINDS: Mapping[str, TableKind] = {
    "r": TableKind.TABLE,
    "p": TableKind.PARTITIONED,
    "v": TableKind.VIEW,
    "m": TableKind.MATERIALIZED_VIEW,
    "f": TableKind.FOREIGN,
}
HIDDEN = ("information_schema", "dbtools")  #: schemas of which no table is shown
COMPUTED = ("v", "f")  #: reading a row of these may raise an error
DERIVED = ("v", "m")  #: an outer join in these leaves nulls that a domain forbids

#: Types of a target and its source between which "=" is made for others, and yet is that of a foreign key.
ALIKE = {
    (f"pg_catalog.{target}", f"pg_catalog.{source}")
    for target, source in (
        ("text", "varchar"),
        ("varchar", "text"),
        ("text", "bpchar"),
        ("bpchar", "varchar"),
        ("numeric", "int2"),
        ("numeric", "int4"),
        ("numeric", "int8"),
    )
}

Columns = Mapping[int, Mapping[int, Column]]  #: by the number of the table and their own
Checks = Mapping[tuple[int, str], Sequence[Check]]  #: by the number of the table and the column


async def read_catalog(connection: DriverConnection, selection: Selection) -> Catalog:
    """Return what the login of *connection* may select from, all as of one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.execute(catalog_queries.SETTINGS)
        search_path = await connection.fetchval(catalog_queries.SEARCH_PATH)
        found = await connection.fetch(catalog_queries.RELATIONS)
        relations = [row for row in found if selection.admits(row["schema"], row["name"])]
        facts = await _read_facts(connection, relations)
        raising = {row["name"].lower() for row in await connection.fetch(catalog_queries.RAISING)}
        if await connection.fetchval(catalog_queries.CASTING):
            raising |= lexis.total_operators
        replaced = await connection.fetchval(catalog_queries.REPLACED)
        posture = await read_posture(connection)
        stamp = await fingerprint(connection)
    # The login may well have the name of a hidden schema.
    shown = (each for each in search_path if not each.startswith("pg_") and each not in HIDDEN)
    default_schema = next(shown, "public")
    # A large schema takes a tenth of a second, and calls go on meanwhile.
    read = await anyio.to_thread.run_sync(_tables, facts, replaced)
    tables = sorted(read, key=lambda each: (each.schema != default_schema, each.schema, each.name))
    return Catalog(
        tables=tuple(_with_versions_beneath(tables)),
        default_schema=default_schema,
        search_path=tuple(search_path),
        warnings=selection.idle([(row["schema"], row["name"]) for row in found]),
        posture=posture,
        raising=frozenset(raising),
        unreadable={
            (row["schema"], row["name"]): tuple(each["name"] for each in facts.unreadable[row["number"]])
            for row in relations
            if row["number"] in facts.unreadable
        },
        stamp=stamp,
    )


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What the system catalogs say of some tables."""

    relations: Sequence[Record]
    columns: Sequence[Record]
    types: DeclaredTypes
    collations: Mapping[tuple[int, int], int]  #: by table and column, where they are not the default
    constraints: Sequence[Record]
    partitions: Sequence[Record]
    #: By table: columns that may not be selected, and keys.
    unreadable: Mapping[int, Sequence[Record]]
    keys: Mapping[int, Sequence[Record]]
    foreign_keys: Mapping[int, Sequence[Record]]
    operators: Mapping[int, tuple[str, str]]  #: that "=" may stand for, and the types they are made for
    reads: Mapping[int, Reads]


async def _read_facts(connection: DriverConnection, known: Sequence[Record]) -> _Facts:
    """Return the facts of those of the *known* tables that are within reach."""
    relations = [row for row in known if row["reachable"]]
    numbers = [row["number"] for row in relations]
    reachable = set(numbers)
    restricted = [row["number"] for row in known if not row["readable"]]
    partitioned = [row["number"] for row in relations if row["kind"] == "p"]
    # What inherits from a table repeats its keys.
    inherited = {row["number"] for row in relations if row["inherited"]}
    # Everybody may read the names of columns.
    named = await connection.fetch(catalog_queries.COLUMNS, [row["number"] for row in known], restricted)
    columns = [row for row in named if row["readable"] and row["relation"] in reachable]
    closed = [row for row in named if not (row["readable"] and row["relation"] in reachable)]
    types = await read_types(connection, {(row["type"], row["modifier"]) for row in columns})
    found = await connection.fetch(catalog_queries.KEYS, numbers)
    keys = [row for row in found if row["relation"] not in inherited]
    constraints = await connection.fetch(catalog_queries.CONSTRAINTS, numbers)
    shared = await connection.fetch(catalog_queries.SHARED_FOREIGN_KEYS, partitioned)
    foreign_keys = [*(row for row in constraints if row["kind"] == "f"), *shared]
    comparing = sorted({number for row in foreign_keys for number in row["operators"]})
    operators = await connection.fetch(catalog_queries.OPERATORS, comparing)
    return _Facts(
        relations=relations,
        columns=columns,
        types=DeclaredTypes(types),
        collations={
            (row["relation"], row["number"]): row["collation"] for row in columns if row["collation"]
        },
        constraints=constraints,
        partitions=await connection.fetch(catalog_queries.PARTITIONS, partitioned),
        unreadable=_by_relation(closed),
        keys=_by_relation(keys),
        foreign_keys=_by_relation(foreign_keys),
        operators={row["number"]: (row["left_type"], row["right_type"]) for row in operators},
        reads=await read_dependencies(
            connection, [row["number"] for row in relations if row["kind"] in DERIVED]
        ),
    )


def _by_relation(rows: Iterable[Record]) -> Mapping[int, Sequence[Record]]:
    found: defaultdict[int, list[Record]] = defaultdict(list)
    for row in rows:
        found[row["relation"]].append(row)
    return found


def _tables(facts: _Facts, replaced: bool) -> list[Table]:
    """Return the tables of *facts*, where own functions may have *replaced* those of the system."""
    columns = _columns(facts)
    places = {row["number"]: (row["schema"], row["name"]) for row in facts.relations}
    counted = [*facts.relations, *facts.partitions]
    rows = {row["number"]: round(row["rows"]) for row in counted if row["rows"] is not None}
    return [
        Table(
            name=row["name"],
            schema=row["schema"],
            kind=KINDS[row["kind"]],
            columns=tuple(columns[row["number"]].values()),
            keys=_keys(facts.keys.get(row["number"], ()), columns),
            foreign_keys=_foreign_keys(facts, row["number"], columns, places),
            comment=row["comment"],
            # The estimate counts rows that row-level security hides.
            row_estimate=None if row["secured"] else rows.get(row["number"]),
            reads=facts.reads.get(row["number"]),
            computed=row["kind"] in COMPUTED or row["computed"],
            runs_functions=replaced
            or row["guarded"]
            or row["kind"] in COMPUTED
            or any(map(_is_foreign, columns[row["number"]].values())),
            version=row["version"],
        )
        for row in facts.relations
        if row["number"] in columns
    ]


def _is_foreign(column: Column) -> bool:
    """Return whether a value of *column* is read or compared by functions that are not the system's."""
    return not column.type.cast.startswith("pg_catalog.") and column.type.family is not Family.ENUM


def _with_versions_beneath(tables: Sequence[Table]) -> Iterator[Table]:
    """Yield *tables*, the views among them with the versions of the views beneath them as well."""
    catalog = Catalog(tables=tuple(tables))
    for table in tables:
        places = {place[:2] for place in catalog.reads_of(table).columns} if table.reads else set()
        beneath = [catalog.table(*place) for place in sorted(places)]
        views = [each.version for each in beneath if each and each.kind is TableKind.VIEW]
        yield replace(table, version=together((table.version, *views))) if views else table


def _columns(facts: _Facts) -> Columns:
    derived = {row["number"] for row in facts.relations if row["kind"] in DERIVED}
    broken = {(row["relation"], row["columns"][0]) for row in facts.constraints if row["kind"] == "n"}
    checks = _checks(facts.constraints)
    columns: defaultdict[int, dict[int, Column]] = defaultdict(dict)
    for row in facts.columns:
        relation, number = row["relation"], row["number"]
        declared = facts.types[row["type"], row["modifier"]]
        filled = row["filled"] or (declared.filled and relation not in derived)
        column = Column(
            name=row["name"],
            type=declared.type,
            nullable=not filled or (relation, number) in broken,
            default=row["expression"],
            generated=row["generated"],
            sources=frozenset(row["sources"]),
            comment=row["comment"],
        )
        columns[relation][number] = _checked(
            column, (*checks.get((relation, row["name"]), ()), *declared.checks)
        )
    return columns


def _checked(column: Column, checks: Sequence[Check]) -> Column:
    if not checks:
        return column
    minima = [(each.minimum, each.exclusive_minimum) for each in checks if each.minimum is not None]
    maxima = [(each.maximum, each.exclusive_maximum) for each in checks if each.maximum is not None]
    return replace(
        column,
        choices=_choices(checks),
        minimum=_bound(minima, 1, column.type.family),
        maximum=_bound(maxima, -1, column.type.family),
    )


def _choices(checks: Iterable[Check]) -> tuple[str, ...]:
    """Return the values that every one of *checks* allows."""
    first, *others = [check.choices for check in checks if check.choices] or [()]
    return tuple(value for value in first if all(value in choices for choices in others))


def _bound(bounds: Sequence[tuple[str, bool]], sign: int, family: Family) -> str | None:
    """Return the narrowest of *bounds*, which are minima if *sign* is 1 and maxima if it is -1."""
    if not bounds:
        return None
    try:
        text, exclusive = max(bounds, key=lambda bound: (sign * Decimal(bound[0]), bound[1]))
    except InvalidOperation:
        # Dates and texts are not compared: any one bound is true, if not the narrowest.
        text, exclusive = bounds[0]
    if not exclusive:
        return text
    if family is Family.INTEGER and re.fullmatch(r"-?\d+", text):
        return str(int(text) + sign)
    return f"{'>' if sign == 1 else '<'} {text}"


def _checks(constraints: Iterable[Record]) -> Checks:
    checks: defaultdict[tuple[int, str], list[Check]] = defaultdict(list)
    for row in constraints:
        for check in read_checks(row["expression"] or "", lexis):
            checks[row["relation"], check.column].append(check)
    return checks


def _keys(rows: Iterable[Record], columns: Columns) -> tuple[Key, ...]:
    keys: dict[tuple[str, ...], Key] = {}
    for row in rows:
        found = _find(columns, row["relation"], row["columns"])
        if found and not any(each.nullable for each in found):
            names = tuple(column.name for column in found)
            keys.setdefault(names, Key(columns=names, primary=row["main"]))
    return tuple(keys.values())


def _foreign_keys(
    facts: _Facts, relation: int, columns: Columns, places: Mapping[int, tuple[str, str]]
) -> tuple[ForeignKey, ...]:
    found: dict[ForeignKey, None] = {}
    for row in sorted(facts.foreign_keys.get(relation, ()), key=lambda row: tuple(row["columns"])):
        sources = _find(columns, relation, row["columns"])
        targets = _find(columns, row["target"], row["target_columns"])
        if sources and targets:
            schema, name = places[row["target"]]
            foreign_key = ForeignKey(
                columns=tuple(column.name for column in sources),
                target_schema=schema,
                target=name,
                target_columns=tuple(column.name for column in targets),
                joinable=_is_joinable(facts, row, sources, targets),
            )
            found[foreign_key] = None
    return tuple(found)


def _is_joinable(facts: _Facts, row: Record, sources: Iterable[Column], targets: Iterable[Column]) -> bool:
    """Return whether `target = source` holds for one row, and for that of the foreign key *row*."""
    columns = set(row["target_columns"])
    pairs = zip(row["operators"], targets, sources, strict=True)
    return (
        any(columns.issuperset(key["columns"]) for key in facts.keys.get(row["target"], ()))
        and _collations(facts, row["target"], row["target_columns"])
        == _collations(facts, row["relation"], row["columns"])
        and all(_is_plain(facts, operator, *(each.type.cast for each in pair)) for operator, *pair in pairs)
    )


def _is_plain(facts: _Facts, operator: int, target: str, source: str) -> bool:
    types = facts.operators.get(operator)
    return types is not None and (target == source or types == (target, source) or (target, source) in ALIKE)


def _collations(facts: _Facts, table: int, columns: Iterable[int]) -> list[int | None]:
    return [facts.collations.get((table, column)) for column in columns]


def _find(columns: Columns, relation: int, numbers: Iterable[int]) -> tuple[Column, ...]:
    """Return the columns with *numbers*, or none at all if one is missing or is never equal to a value."""
    known = columns.get(relation, {})
    found = [known.get(number) for number in numbers]
    comparable = [column for column in found if column and column.type.equatable]
    return tuple(comparable) if len(comparable) == len(found) else ()
