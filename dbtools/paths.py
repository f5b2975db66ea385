"""Foreign-key paths, and the names of tables: `customer.country` is a column of the row that a key leads to.

A relation is a step of a path. It leads to at most one row, so a path never multiplies rows; where there is
no such row, its columns are null.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from typing import ClassVar, TypeVar

from dbtools import errors
from dbtools.catalog import Catalog, Column, ForeignKey, Location, Table
from dbtools.errors import listing, nearest
from dbtools.types import ColumnType, quoted

MOST_STEPS = 3
#: An unquoted part has no dot, no colon and no quote at its start; in a quoted one a quote is doubled.
SPECIAL = re.compile('[.:"]')  #: characters for which a part is quoted
PART = re.compile(r'"(?:[^"]|"")*"|[^.:"][^.:]*')
SUFFIXES = ("_id", "Id", "ID")
LONGEST_NAME = 40  #: characters of a tool's name
RESERVED = {"tables", "rows", "row"}  #: in the names of generic tools
LONGEST_PREFIX = len("list_")


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A foreign key as a step: to the row that it refers to, or back to the rows that refer to a row."""

    name: str
    foreign_key: ForeignKey
    target: Table  #: where the step leads

    def __hash__(self) -> int:
        """Hash only the name, so that the lookup of a compiled shape is fast."""
        return hash(self.name)


@dataclass(frozen=True, kw_only=True)
class Distant:
    """A column at the end of a path; null where the path ends before."""

    path: tuple[Relation, ...]
    column: Column
    nullable: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The path as callers write it."""
        return ".".join(spelled(part) for part in (*(step.name for step in self.path), self.column.name))

    @property
    def type(self) -> ColumnType:
        """The column's type."""
        return self.column.type


Place = Column | Distant  #: where a cell is: in the row itself, or at the end of a path


def spelled(name: str) -> str:
    """Return *name* as a part of a path: in double quotes where a dot, a colon or a quote is in it.

    So is a name that is empty, or has blanks at its ends, where they would be lost.
    """
    plain = name and name == name.strip() and not SPECIAL.search(name)
    return name if plain else '"' + name.replace('"', '""') + '"'


def parts_of(text: str) -> list[str] | None:
    """Return the parts of the path *text*, or None where it is no path."""
    parts: list[str] = []
    at = 0
    while match := PART.match(text, at):
        part = match[0]
        parts.append(part[1:-1].replace('""', '"') if part.startswith('"') else part)
        at = match.end()
        if at == len(text):
            return parts
        if text[at] != ".":
            return None
        at += 1
    return None


class Paths:
    """The relations of a catalog, each table's made when they are first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._relations: dict[Location, Mapping[str, Relation]] = {}
        self._referrers: dict[Location, Mapping[str, Relation]] = {}

    def relations(self, table: Table) -> Mapping[str, Relation]:
        """Return the relations of *table* by their names."""
        if table.location not in self._relations:
            self._relations[table.location] = {each.name: each for each in self._named(table)}
        return self._relations[table.location]

    def step(self, table: Table, name: str) -> Relation | None:
        """Return the relation of *table* that *name* means: its own name, or its only column."""
        relations = self.relations(table)
        found = folded(name, relations)
        if found is None:
            single = [each for each in relations.values() if len(each.foreign_key.columns) == 1]
            found = folded(name, {each.foreign_key.columns[0]: each for each in reversed(single)})
        return found

    def referrers(self, table: Table) -> Mapping[str, Relation]:
        """Return what refers to *table*, by the name of its table, and its columns if there are more keys."""
        if table.location not in self._referrers:
            found = [each for each in self.catalog.references(table) if each[1].joinable]
            keys = Counter(source.location for source, _ in found)
            named: dict[str, Relation] = {}
            for source, key in found:
                name = self.table_names[source.location]
                if keys[source.location] > 1:
                    name = f"{name}_by_{'_'.join(map(normalised, key.columns))}"
                name = next(
                    each for each in chain([name], (f"{name}_{n}" for n in count(2))) if each not in named
                )
                named[name] = Relation(name=name, foreign_key=key, target=source)
            self._referrers[table.location] = named
        return self._referrers[table.location]

    @cached_property
    def table_names(self) -> Mapping[Location, str]:
        """The part T of the names of each table's tools."""
        return table_names(self.catalog)

    def _named(self, table: Table) -> Iterator[Relation]:
        """Yield the relations of *table*: named after the column, else after target and columns.

        A column keeps its name: a relation that would take it from another column gets the long one.
        """
        taken: set[str] = set()
        for foreign_key in table.foreign_keys:
            target = self.catalog.table(foreign_key.target_schema, foreign_key.target)
            if target is None or not foreign_key.joinable:
                continue
            others = table.column_by_name.keys() - set(foreign_key.columns)
            name = next(each for each in _names(foreign_key) if each not in taken and each not in others)
            taken.add(name)
            yield Relation(name=name, foreign_key=foreign_key, target=target)


def _names(foreign_key: ForeignKey) -> Iterator[str]:
    """Yield names for *foreign_key*, the best first."""
    columns = foreign_key.columns
    if len(columns) == 1:
        suffix = next((each for each in SUFFIXES if columns[0].endswith(each)), "")
        yield columns[0].removesuffix(suffix).rstrip("_") or columns[0]
    long = f"{foreign_key.target}_by_{'_'.join(columns)}"
    yield long
    yield from (f"{long}_{number}" for number in count(2))


@dataclass(frozen=True, kw_only=True)
class Names:
    """What callers may name of one table: its columns, and columns at the end of its paths."""

    table: Table
    paths: Paths

    def get(self, text: str) -> Place | None:
        """Return the column or the path that *text* names, if there is one."""
        own = self.table.column_by_name.get(text)
        if own is not None:
            return own
        path, table, (part, *further) = self._walk(text)
        column = None if further else folded(part, table.column_by_name)
        return Distant(path=tuple(path), column=column) if path and column is not None else column

    def find(self, text: str, argument: str) -> Place:
        """Return the column or the path that *text* names, or raise UnknownColumn for *argument*."""
        place = self.get(text)
        if place is None:
            raise self.unknown(text, argument)
        return place

    def _walk(self, text: str) -> tuple[list[Relation], Table, list[str]]:
        """Return the steps with which *text* begins, the table that they lead to, and the other parts."""
        parts = parts_of(text.strip()) or [text.strip()]
        path: list[Relation] = []
        table = self.table
        if len(parts) == 2 and parts[0] == table.name and self.paths.step(table, parts[0]) is None:
            # As SQL would name a column of the table itself.
            parts = parts[1:]
        while len(parts) > 1 and len(path) < MOST_STEPS:
            step = self.paths.step(table, parts[0])
            if step is None:
                break
            path.append(step)
            table, parts = step.target, parts[1:]
        return path, table, parts

    def unknown(self, text: str, argument: str) -> errors.UnknownColumn:
        """Return the error for an unknown *text*: where its path ends, and which names there are."""
        path, table, (part, *further) = self._walk(text)
        relations = self.paths.relations(table)
        within = f" as in {quoted(text)}" if text != part else ""
        columns = [spelled(name) for name in table.column_by_name]
        steps = f" Paths: {listing(f'{spelled(name)}.…' for name in relations)}." if relations else ""
        known = f"Columns: {listing(columns)}.{steps}"
        if further and len(path) == MOST_STEPS:
            message, hint = f"{quoted(text)} goes more than {MOST_STEPS} steps.", ""
        elif further:
            message = f"{table.name} has no path {quoted(part)}{within}."
            leading = [name for name, each in relations.items() if each.target.name.lower() == part.lower()]
            meant = (
                f"Did you mean {' or '.join(map(spelled, leading))}? "
                if leading
                else nearest(part, relations)
            )
            hint = self._way_back(table, part) or f"{meant}{known}"
        elif part in relations and not path:
            target = relations[part].target
            message = f"{quoted(part)} is a path to {target.name}, not a column."
            hint = f"Name one of its columns, such as {spelled(part)}.{spelled(target.columns[0].name)}."
        else:
            message = f"{table.name} has no column {quoted(part)}{within}."
            near = nearest(part, columns if path else [*columns, *self._ends()])
            hint = self._way_back(table, part) or f"{near}{known}"
        return errors.UnknownColumn(f"{argument}: {message}", hint=hint)

    def _way_back(self, table: Table, name: str) -> str:
        """Return where to start, if *name* is that of a table that refers to *table*."""
        for source, _ in self.paths.catalog.references(table):
            if source.name.lower() == name.lower():
                return f"Paths lead from {source.name} to {table.name}, not back: ask for {source.name}."
        return ""

    def _ends(self) -> Iterator[str]:
        """Yield the paths of one step; the keys at their ends are in the row itself."""
        for step in self.paths.relations(self.table).values():
            for column in step.target.columns:
                if column.name not in step.foreign_key.target_columns:
                    yield Distant(path=(step,), column=column).name


ValueT = TypeVar("ValueT")


def folded(name: str, known: Mapping[str, ValueT]) -> ValueT | None:
    """Return what *name* means among *known*, in another case of letters if only one is meant."""
    if name in known:
        return known[name]
    found = [value for each, value in known.items() if each.lower() == name.lower()]
    return found[0] if len(found) == 1 else None


def table_names(catalog: Catalog) -> Mapping[Location, str]:
    """Return the T of `list_T` and `get_T` for each table, by schema and name.

    The first table with a name has it unchanged, another one with its schema appended. A name that still
    collides, or is too long, ends in a digest.
    """
    names: dict[Location, str] = {}
    taken: set[str] = set()
    for table in catalog.tables:
        name = next(each for each in _candidates(catalog, table) if each not in taken)
        taken.add(name)
        names[table.location] = name
    return names


def _candidates(catalog: Catalog, table: Table) -> Iterable[str]:
    bare = normalised(table.name)
    mark = hashlib.sha256(catalog.qualified(table).encode()).hexdigest()
    longest = LONGEST_NAME - LONGEST_PREFIX
    if bare.strip("_") and len(bare) <= longest and bare not in RESERVED:
        yield bare
        if table.schema and len(in_schema := f"{bare}_{normalised(table.schema)}") <= longest:
            yield in_schema
    for digits in range(6, len(mark)):
        yield f"{bare[: longest - 1 - digits].rstrip('_')}_{mark[:digits]}".lstrip("_")


def normalised(name: str) -> str:
    """Return *name* in lower case, with `_` for every character except a-z, 0-9 and `_`."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())
