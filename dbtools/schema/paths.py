"""Resolve paths along foreign keys, such as `customer.country`. A text in, a column or a path out.

A relation is a step of a path. It leads to at most one row, so a path never multiplies rows; if there is no
such row, its columns are null.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count, islice
from typing import ClassVar, TypeVar

from dbtools import errors
from dbtools.errors import alternatives, did_you_mean, listing
from dbtools.schema.catalog import Catalog, Column, ForeignKey, Location, Table
from dbtools.values.types import ColumnType, Family, quote

LONGEST_PATH = 4_000  #: characters of a path, or of an expression over paths
MOST_STEPS = 3
MOST_PATHS = 500  #: paths in which a name is searched
#: An unquoted part has no dot, no colon, and no quote at its start; in a quoted part, quotes are doubled.
PART = re.compile(r'"(?:[^"]|"")*"|[^.:"][^.:]*')
SUFFIXES = ("_id", "Id", "ID")
LONGEST_TOOL_NAME = 40  #: characters of a tool's name
RESERVED_NAMES = {"tables", "rows", "row"}  #: in the names of generic tools
LONGEST_PREFIX = len("list_")


@dataclass(frozen=True, kw_only=True)
class Relation:
    """A foreign key as a step: to the row that it refers to, or back to the rows that refer to this row."""

    name: str
    foreign_key: ForeignKey
    target: Table  #: where the step leads

    def __hash__(self) -> int:
        """Hash only the name, so that the lookup of a compiled shape is fast."""
        return hash(self.name)

    @property
    def example(self) -> Column:
        """A column of the target for examples, a text if possible."""
        columns = [each for each in self.target.columns if each.type.mask is None]
        texts = (each for each in columns if each.type.family is Family.TEXT)
        return next(texts, [*columns, *self.target.columns][0])


@dataclass(frozen=True, kw_only=True)
class PathColumn:
    """A column at the end of a path; null if a step of the path finds no row."""

    path: tuple[Relation, ...]
    column: Column
    nullable: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """The path as callers write it."""
        return ".".join(path_part(part) for part in (*(step.name for step in self.path), self.column.name))

    @property
    def type(self) -> ColumnType:
        """The column's type."""
        return self.column.type


Place = Column | PathColumn  #: a column of the row itself, or at the end of a path


def path_part(name: str) -> str:
    """Return *name* as a part of a path, in double quotes if it contains a dot, a colon or a quote.

    A name that is empty, or has spaces at its ends, is quoted as well.
    """
    plain = name and name == name.strip() and not re.search('[.:"]', name)
    return name if plain else '"' + name.replace('"', '""') + '"'


def term_part(name: str) -> str:
    """Return *name* as a part of a path in an expression: in double quotes unless it is a word."""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else '"' + name.replace('"', '""') + '"'


def parts_of(text: str) -> list[str] | None:
    """Return the parts of the path *text*, or None if *text* is not a path."""
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
    """The relations of a catalog; those of a table are built at their first use."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._relations: dict[Location, Mapping[str, Relation]] = {}
        self._referrers: dict[Location, Mapping[str, Relation]] = {}

    def relations(self, table: Table) -> Mapping[str, Relation]:
        """Return the relations of *table* by their names."""
        if table.location not in self._relations:
            self._relations[table.location] = {each.name: each for each in self._named_relations(table)}
        return self._relations[table.location]

    def step(self, table: Table, name: str) -> Relation | None:
        """Return the relation of *table* that *name* means: by its name, or by its only column."""
        relations = self.relations(table)
        found = find_caseless(name, relations)
        if found is None:
            single = [each for each in relations.values() if len(each.foreign_key.columns) == 1]
            found = find_caseless(name, {each.foreign_key.columns[0]: each for each in reversed(single)})
        return found

    def referrers(self, table: Table) -> Mapping[str, Relation]:
        """Return the relations back from *table*, named after the other table, and its columns if needed."""
        if table.location not in self._referrers:
            found = [each for each in self.catalog.references(table) if each[1].joinable]
            keys = Counter(source.location for source, _ in found)
            named: dict[str, Relation] = {}
            for source, key in found:
                name = self.table_names[source.location]
                if keys[source.location] > 1:
                    name = f"{name}_by_{'_'.join(map(normalise, key.columns))}"
                name = next(
                    each for each in chain([name], (f"{name}_{n}" for n in count(2))) if each not in named
                )
                named[name] = Relation(name=name, foreign_key=key, target=source)
            self._referrers[table.location] = named
        return self._referrers[table.location]

    @cached_property
    def table_names(self) -> Mapping[Location, str]:
        """The T in the names of tools such as `list_T`, by table.

        The first table with a name has it unchanged, another one with its schema appended. A name that still
        collides, or is too long, ends in a digest.
        """
        tables: dict[str, Location] = {}
        for table in self.catalog.tables:
            name = next(each for each in _candidates(self.catalog, table) if each not in tables)
            tables[name] = table.location
        return {location: name for name, location in tables.items()}

    def _named_relations(self, table: Table) -> Iterator[Relation]:
        """Yield the relations of *table*, named after the column, or else after target and columns.

        A relation that would have the name of another column gets the longer name.
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
    """The names that callers may use for one table: its columns, and columns at the end of its paths."""

    table: Table
    paths: Paths
    nested: bool = False  #: whether they are names of related rows, which lead to no further ones

    def get(self, text: str) -> Place | None:
        """Return the column or the path that *text* names, if there is one."""
        own = self.table.column_by_name.get(text)
        if own is not None or len(text) > LONGEST_PATH:
            return own
        path, table, (part, *further) = self._walk(text)
        column = None if further else find_caseless(part, table.column_by_name)
        return PathColumn(path=tuple(path), column=column) if path and column is not None else column

    def find(self, text: str, argument: str) -> Place:
        """Return the column or the path that *text* names, or raise UnknownColumn for *argument*."""
        place = self.get(text)
        if place is None:
            raise self.unknown_path(text, argument)
        return place

    def _walk(self, text: str) -> tuple[list[Relation], Table, list[str]]:
        """Return the steps with which *text* begins, the table that they lead to, and the other parts."""
        parts = parts_of(text.strip()) or [text.strip()]
        path: list[Relation] = []
        table = self.table
        if len(parts) == 2 and parts[0] == table.name and self.paths.step(table, parts[0]) is None:
            # SQL would also name a column of the table itself like this.
            parts = parts[1:]
        while len(parts) > 1 and len(path) < MOST_STEPS:
            step = self.paths.step(table, parts[0])
            if step is None:
                break
            path.append(step)
            table, parts = step.target, parts[1:]
        return path, table, parts

    def unknown_path(self, text: str, argument: str) -> errors.UnknownColumn:
        """Return the error for an unknown *text*, with the place where its path ends and the known names."""
        path, table, (part, *further) = self._walk(text)
        relations = self.paths.relations(table)
        columns = [path_part(name) for name in table.column_by_name]
        related = None if self.nested else find_caseless(part, self.paths.referrers(table))
        what = "path" if further else "column"
        if related is not None:
            message = f"{related.name} are related rows of {table.name}, not a {what}."
            hint = self._related_hint(related, further, outside=not path)
        elif further and len(path) == MOST_STEPS:
            message, hint = f"{quote(text)} has more than {MOST_STEPS} steps.", ""
        elif part in relations and not further:
            end = PathColumn(path=(*path, relations[part]), column=relations[part].example)
            message = f"{quote(text)} is a path to {relations[part].target.name}, not a column."
            hint = f"Name one of its columns, such as {end.name}."
        else:
            within = f" as in {quote(text)}" if text != part else ""
            message = f"{table.name} has no {what} {quote(part)}{within}."
            leading = [name for name, each in relations.items() if each.target.name.lower() == part.lower()]
            near = relations if further else columns if path else [*columns, *self._ends(part)]
            meant = (
                f"Did you mean {alternatives(map(path_part, leading))}? "
                if leading
                else did_you_mean(part, near)
            )
            steps = f" Paths: {listing(f'{path_part(name)}.…' for name in relations)}." if relations else ""
            hint = f"{meant}Columns: {listing(columns)}.{steps}{'' if path else self._referrer_hint(part)}"
        return errors.UnknownColumn(f"{argument}: {message}", hint=hint)

    def _referrer_hint(self, part: str) -> str:
        """Return how to name the rows that refer to a row, by the example of those that *part* resembles."""
        known = self.paths.referrers(self.table)
        if self.nested or not known:
            return ""
        some = next((each for each in known if part.lower() in each), next(iter(known)))
        return f" Related rows: {listing(known)}: write {_measure_hint(known[some])}."

    def _related_hint(self, related: Relation, further: Sequence[str], *, outside: bool) -> str:
        """Return how to read *related* rows: in their own table, or also in an expression *outside* paths."""
        text, target = ".".join(map(path_part, further)), related.target
        place = Names(table=target, paths=self.paths).get(text) if further else None
        label, by = self.paths.catalog.label(target), f" by {text}" if place is not None else ""
        own = f"Aggregate {label}{by}" if target.aggregated else f"List {label}"
        return f"{own}, or write {_measure_hint(related)}." if outside else f"{own}."

    def _ends(self, name: str) -> Iterator[str]:
        """Yield the paths of one step, without the keys at their ends, and longer ones to a column *name*."""
        paths: list[tuple[Relation, ...]] = [()]
        for _ in range(MOST_STEPS):
            steps = ((*path, step) for path in paths for step in self._steps(path))
            paths = list(islice(steps, MOST_PATHS))
            for path in paths:
                keys, target = path[-1].foreign_key.target_columns, path[-1].target
                for end in target.column_by_name if len(path) == 1 else (name,):
                    column = target.column_by_name.get(end)
                    if column is not None and (end == name or end not in keys):
                        yield PathColumn(path=path, column=column).name

    def _steps(self, path: Sequence[Relation]) -> Iterable[Relation]:
        return self.paths.relations(path[-1].target if path else self.table).values()


def _measure_hint(related: Relation) -> str:
    """Return what callers may write about *related* rows."""
    name = related.name
    measures = f"count({name}) or max({name}.…), or " if related.target.aggregated else ""
    return f"{measures}some and none in where"


ValueT = TypeVar("ValueT")


def find_caseless(name: str, known: Mapping[str, ValueT]) -> ValueT | None:
    """Return the value of *name* in *known*, ignoring case if only one name matches."""
    if name in known:
        return known[name]
    low = name.lower()
    found = [value for each, value in known.items() if each.lower() == low]
    return found[0] if len(found) == 1 else None


def _candidates(catalog: Catalog, table: Table) -> Iterable[str]:
    bare = normalise(table.name)
    mark = hashlib.sha256(catalog.full_name(table).encode()).hexdigest()
    longest = LONGEST_TOOL_NAME - LONGEST_PREFIX
    if bare.strip("_") and len(bare) <= longest and bare not in RESERVED_NAMES:
        yield bare
        if table.schema and len(in_schema := f"{bare}_{normalise(table.schema)}") <= longest:
            yield in_schema
    for digits in range(6, len(mark)):
        yield f"{bare[: longest - 1 - digits].rstrip('_')}_{mark[:digits]}".lstrip("_")


def normalise(name: str) -> str:
    """Return *name* in lower case, with `_` for every character except a-z, 0-9 and `_`."""
    return re.sub(r"[^a-z0-9_]", "_", name.lower())
