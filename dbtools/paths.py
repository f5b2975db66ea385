"""Foreign-key paths: `customer.country` is a column of the row that a foreign key leads to.

A relation is a step of a path. It leads to at most one row, so a path never multiplies rows; where there is
no such row, its columns are null.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from typing import TypeVar

from dbtools import errors
from dbtools.catalog import Catalog, Column, ForeignKey, Location, Table
from dbtools.errors import listing, nearest
from dbtools.naming import normalised, table_names
from dbtools.types import ColumnType, quoted

MOST_STEPS = 3
MOST_LISTED = 40  #: names of columns and paths that a tool's schema lists
#: An unquoted part has no dot, no colon and no quote at its start; in a quoted one a quote is doubled.
PART = re.compile(r'"(?:[^"]|"")*"|[^.:"][^.:]*')
SUFFIXES = ("_id", "Id", "ID")


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A foreign key as a step of a path."""

    name: str
    foreign_key: ForeignKey
    target: Table

    def __hash__(self) -> int:
        """Hash by name and target, so that a statement's shape is found again quickly."""
        return hash((self.name, self.target))


@dataclass(frozen=True, kw_only=True)
class Distant:
    """A column at the end of a path; null where the path ends before."""

    path: tuple[Relation, ...]
    column: Column
    nullable: bool = field(default=True, init=False)

    @property
    def name(self) -> str:
        """The path as callers write it."""
        return ".".join(spelled(part) for part in (*(step.name for step in self.path), self.column.name))

    @property
    def type(self) -> ColumnType:
        """The column's type."""
        return self.column.type


@dataclass(frozen=True, kw_only=True)
class Referrer:
    """A foreign key backwards: the rows of *table* that refer to a row."""

    name: str
    foreign_key: ForeignKey
    table: Table

    def __hash__(self) -> int:
        """Hash by name and table, so that a statement's shape is found again quickly."""
        return hash((self.name, self.table))


Place = Column | Distant  #: where a cell is: in the row itself, or at the end of a path


def spelled(name: str) -> str:
    """Return *name* as a part of a path: in double quotes where a dot, a colon or a quote is in it.

    So is a name that is empty, or has blanks at its ends, where they would be lost.
    """
    plain = name and name == name.strip() and not re.search('[.:"]', name)
    return name if plain else '"' + name.replace('"', '""') + '"'


def parts_of(text: str) -> tuple[list[str], str | None] | None:
    """Return the parts of the path *text* and what stands behind its colon, or None where it is no path."""
    parts: list[str] = []
    at = 0
    while match := PART.match(text, at):
        part = match[0]
        parts.append(part[1:-1].replace('""', '"') if part.startswith('"') else part)
        at = match.end()
        if at == len(text):
            return parts, None
        if text[at] == ":":
            return parts, text[at + 1 :]
        if text[at] != ".":
            return None
        at += 1
    return None


class Paths:
    """The relations of a catalog, each table's made when they are first asked for."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._relations: dict[Location, Mapping[str, Relation]] = {}
        self._referrers: dict[Location, Mapping[str, Referrer]] = {}

    def relations(self, table: Table) -> Mapping[str, Relation]:
        """Return the relations of *table* by their names."""
        if table.location not in self._relations:
            self._relations[table.location] = {each.name: each for each in self._named(table)}
        return self._relations[table.location]

    def steps(self, table: Table) -> Mapping[str, Relation]:
        """Return the relations of *table* by what callers may write: their names, and their one column."""
        relations = self.relations(table)
        single = [each for each in relations.values() if len(each.foreign_key.columns) == 1]
        return {**{each.foreign_key.columns[0]: each for each in reversed(single)}, **relations}

    def referrers(self, table: Table) -> Mapping[str, Referrer]:
        """Return what refers to *table*, by the name of its table, and its columns if there are more keys."""
        if table.location not in self._referrers:
            found = [each for each in self.catalog.references(table) if each[1].joinable]
            keys = Counter(source.location for source, _ in found)
            named: dict[str, Referrer] = {}
            for source, key in found:
                name = self.table_names[source.location]
                if keys[source.location] > 1:
                    name = f"{name}_by_{'_'.join(map(normalised, key.columns))}"
                name = next(
                    each for each in chain([name], (f"{name}_{n}" for n in count(2))) if each not in named
                )
                named[name] = Referrer(name=name, foreign_key=key, table=source)
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
    aggregating: bool = False  #: whether what is named takes part in counts and sums

    @cached_property
    def listed(self) -> Mapping[str, Place]:
        """What a schema lists, by name: all columns, and paths of one step while there are few.

        Of paths, those that are informative: keys and foreign keys of the target are left out.
        """
        places: dict[str, Place] = {spelled(column.name): column for column in self.table.columns}
        for relation in self.paths.relations(self.table).values():
            distant = [Distant(path=(relation,), column=each) for each in _telling(relation)]
            if len(places) + len(distant) > MOST_LISTED:
                break
            places |= {place.name: place for place in distant}
        return places

    def find(self, text: str, argument: str) -> Place:
        """Return the column or the path that *text* names, or raise UnknownColumn for *argument*."""
        own = self.table.column_by_name.get(text)
        if own is not None:
            return own
        found = self._along(text.strip(), argument)
        # Where a row has one other row at most, counting one counts the other.
        path = found.path if self.aggregating and isinstance(found, Distant) else ()
        if not all(step.target.aggregated for step in path):
            raise errors.Denied(
                f"{argument}: {found.name} may not be aggregated.", hint="list_rows reads such rows."
            )
        return found

    def _along(self, text: str, argument: str) -> Place:
        found = parts_of(text)
        parts = found[0] if found and found[1] is None else [text]
        path: list[Relation] = []
        table = self.table
        if len(parts) == 2 and parts[0] == table.name and self._step(table, parts[0]) is None:
            # As SQL would name a column of the table itself.
            parts = parts[1:]
        if len(parts) - 1 > MOST_STEPS:
            raise errors.UnknownColumn(f"{argument}: {quoted(text)} goes more than {MOST_STEPS} steps.")
        for part in parts[:-1]:
            relation = self._step(table, part)
            if relation is None:
                raise self._unknown_step(table, text, part, argument)
            path.append(relation)
            table = relation.target
        column = folded(parts[-1], table.column_by_name)
        if column is None:
            raise self._unknown_column(table, parts[-1], text, argument)
        return Distant(path=tuple(path), column=column) if path else column

    def _step(self, table: Table, part: str) -> Relation | None:
        return folded(part, self.paths.steps(table))

    def _unknown_step(self, table: Table, text: str, part: str, argument: str) -> errors.UnknownColumn:
        relations = self.paths.relations(table)
        columns = f"Columns: {listing(map(spelled, table.column_by_name))}. "
        hint = f"{nearest(part, relations)}{columns}{_paths(relations)}"
        for source, _ in self.paths.catalog.references(table):
            if source.name.lower() == part.lower():
                hint = f"Paths lead from {source.name} to {table.name}, not back: ask for {source.name}."
        return errors.UnknownColumn(
            f"{argument}: {table.name} has no path {quoted(part)} as in {quoted(text)}.", hint=hint
        )

    def _unknown_column(self, table: Table, part: str, text: str, argument: str) -> errors.UnknownColumn:
        relations = self.paths.relations(table)
        if part in relations and table is self.table:
            example = spelled(relations[part].target.columns[0].name)
            return errors.UnknownColumn(
                f"{argument}: {quoted(part)} is a path to {relations[part].target.name}, not a column.",
                hint=f"Name one of its columns, such as {spelled(part)}.{example}.",
            )
        known = [spelled(name) for name in table.column_by_name]
        within = f" as in {quoted(text)}" if text != part else ""
        also = [*known, *(self.listed if table is self.table else ())]
        return errors.UnknownColumn(
            f"{argument}: {table.name} has no column {quoted(part)}{within}.",
            hint=f"{nearest(part, also)}Columns: {listing(known)}. {_paths(relations)}",
        )


def _paths(relations: Mapping[str, Relation]) -> str:
    """Return which paths begin with *relations*, for a hint."""
    return f"Paths: {listing(f'{spelled(name)}.…' for name in relations)}." if relations else ""


def _telling(relation: Relation) -> Iterator[Column]:
    target = relation.target
    references = {name for key in target.foreign_keys for name in key.columns}
    numbers = references.union(relation.foreign_key.target_columns)
    return (column for column in target.columns if column.name not in numbers)


ValueT = TypeVar("ValueT")


def folded(name: str, known: Mapping[str, ValueT]) -> ValueT | None:
    """Return what *name* means among *known*, in another case of letters if only one is meant."""
    if name in known:
        return known[name]
    found = [value for each, value in known.items() if each.lower() == name.lower()]
    return found[0] if len(found) == 1 else None
