"""What a database holds, as values: frozen, ordered and comparable.

A dialect's introspection makes a Catalog; `policy.restrict` narrows it; the tools are defined from it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import count

from dbtools.errors import nearest
from dbtools.sql import Fragment
from dbtools.types import ColumnType, Family, quoted

Location = tuple[str, str]  #: of a table: its schema and its name
#: of a column of which nothing but its name is known
UNREADABLE = ColumnType(family=Family.OTHER, name="unreadable")
UNREPORTED = "what the database does not report"  #: of what a view or a query reads


class TableKind(StrEnum):
    """What sort of relation a table is."""

    TABLE = "table"
    VIEW = "view"
    MATERIALIZED_VIEW = "materialized view"
    PARTITIONED = "partitioned table"
    FOREIGN = "foreign table"
    VIRTUAL = "virtual table"


@dataclass(frozen=True, kw_only=True)
class TextIndex:
    """A full-text index, which finds the rows of a table by words of a column."""

    reads: frozenset[str]  #: the columns in which it looks for words
    document: str  #: SQL, in the row's terms: what is searched, or its number in the index
    source: str = ""  #: the table that is the index, or SQL for the configuration that reads the words
    ranked: bool = True  #: whether rows may be ordered by how well they match
    #: the columns that rank depends on, over all rows; none if it depends on nothing but the document
    weighs: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None  #: the SQL expression, for people to read
    generated: bool = False  #: computed, or an identity that the database fills
    #: the columns of its table that it may be computed from
    sources: frozenset[str] = field(default=frozenset(), compare=False)
    comment: str = ""
    choices: tuple[str, ...] = ()  #: the only values that a CHECK constraint allows
    minimum: str | None = None  #: the least value that a CHECK constraint allows; "> 0" where 0 itself is not
    maximum: str | None = None
    text_index: TextIndex | None = None  #: by which its words are found

    def __hash__(self) -> int:
        """Hash by name: names are unique within a table, and equality is still of the whole."""
        return hash(self.name)


def searched(columns: tuple[Column, ...], indexes: Mapping[str, TextIndex]) -> tuple[Column, ...]:
    """Return *columns* with their full-text *indexes*, which are given by name."""
    if not indexes:
        return columns
    return tuple(replace(column, text_index=indexes.get(column.name)) for column in columns)


@dataclass(frozen=True, kw_only=True)
class Key:
    """Columns whose values name one row."""

    columns: tuple[str, ...]
    primary: bool = False


@dataclass(frozen=True, kw_only=True)
class ForeignKey:
    """Columns that hold the key of a row in another table, or in the same."""

    columns: tuple[str, ...]
    target_schema: str
    target: str
    target_columns: tuple[str, ...]
    #: whether at most one row of the target has these values, and comparing them cannot fail
    joinable: bool = True


@dataclass(frozen=True, kw_only=True)
class RowFilter:
    """An SQL condition, over columns of a table and claims of the caller, on the rows that may be seen."""

    condition: Fragment
    casts: tuple[str, ...] = ()  #: the types of its parameters, where the database needs them
    total: bool = True  #: whether it raises no error, whatever a row holds

    def __hash__(self) -> int:
        """Hash by the condition, so that a statement's shape is found again quickly."""
        return hash(self.condition)


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What a view, or another relation that reads relations, reads under its own name."""

    #: schema, table and column, without a column where only rows are read
    columns: frozenset[tuple[str, str, str]] = frozenset()
    #: the same of tables whose rows these are as well: the parents of a table that inherits
    parents: frozenset[tuple[str, str, str]] = frozenset()
    others: tuple[
        str, ...
    ] = ()  #: in words for the operator: functions, and what the database does not report


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, a view, or another relation that can be selected from."""

    name: str
    schema: str = ""
    kind: TableKind = TableKind.TABLE
    columns: tuple[Column, ...]
    keys: tuple[Key, ...] = ()  #: the primary key first, then unique keys without nulls
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str = ""
    row_estimate: int | None = None
    row_identifier: str | None = None  #: a name that is no column and yet orders the rows uniquely
    filter: RowFilter | None = None  #: which rows may be seen; None: all
    aggregated: bool = True  #: whether rows may be counted and summed up
    reads: Reads | None = field(default=None, compare=False)  #: None: nothing but itself
    computed: bool = field(default=False, compare=False)  #: whether reading a cell may raise an error
    #: whether reading it may run functions that did not come with the database system
    runs_functions: bool = field(default=False, compare=False)
    #: identifies this state of its name and columns; empty if not known for a single table
    version: str = field(default="", compare=False)

    def __hash__(self) -> int:
        """Hash by name, so that a statement's shape is found again quickly."""
        return hash(self.location)

    @property
    def location(self) -> Location:
        """Its schema and its name, which no other table has."""
        return (self.schema, self.name)

    @property
    def guarded(self) -> bool:
        """Whether a caller's conditions are asked only of the rows that its filter shows."""
        return self.filter is not None and (self.computed or not self.filter.total)

    @cached_property
    def column_by_name(self) -> Mapping[str, Column]:
        """The columns by their exact names."""
        return {column.name: column for column in self.columns}

    @cached_property
    def searchable(self) -> Mapping[str, TextIndex]:
        """The full-text indexes by the names of their columns."""
        return {each.name: each.text_index for each in self.columns if each.text_index is not None}

    @property
    def primary_key(self) -> Key | None:
        """The key that names one row, if the table has one."""
        return self.keys[0] if self.keys else None

    def key_columns(self) -> tuple[Column, ...]:
        """Return the columns of the primary key, none if there is no key."""
        key = self.primary_key
        return tuple(self.column_by_name[name] for name in key.columns) if key else ()


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Everything that can be read of one database."""

    tables: tuple[Table, ...] = ()  #: by schema and name, the default schema first
    default_schema: str = ""
    search_path: tuple[str, ...] = field(default=(), compare=False)  #: where names without a schema are found
    #: what was left out and why, for the operator: never shown to a caller
    warnings: tuple[str, ...] = field(default=(), compare=False)
    #: what the login can do beyond reading, likewise
    posture: tuple[str, ...] = field(default=(), compare=False)
    #: by schema and table, the existing columns that the login may not select: for the rules of
    #: roles, which may name them, and never shown to a caller
    unreadable: Mapping[Location, tuple[str, ...]] = field(default_factory=dict, compare=False)
    #: in lower case: relations, functions and operators whose use in a row filter may raise an error
    raising: frozenset[str] = field(default=frozenset(), compare=False)
    #: identifies this state of the schema; empty if unknown
    stamp: str = field(default="", compare=False)

    @cached_property
    def whole(self) -> "Catalog":
        """This catalog with what the login may not select: the names in rules are looked up in it."""
        if not self.unreadable:
            return self
        tables = {table.location: table for table in self.tables}
        for (schema, name), names in self.unreadable.items():
            hidden = tuple(Column(name=each, type=UNREADABLE) for each in names)
            table = tables.get((schema, name), Table(schema=schema, name=name, columns=()))
            tables[table.location] = replace(table, columns=(*table.columns, *hidden))
        return replace(self, tables=tuple(tables.values()), unreadable={})

    def named(self, name: str) -> tuple[Table, ...]:
        """Return the tables that *name* may mean: by label, by exact, qualified or folded name."""
        if table := self._by_label.get(name):
            return (table,)
        exact = tuple(table for table in self.tables if name in (table.name, self.qualified(table)))
        folded = name.lower()
        return exact or tuple(table for table in self.tables if table.name.lower() == folded)

    def table(self, schema: str, name: str) -> Table | None:
        """Return the table *name* of *schema*, if there is one."""
        return self._by_name.get((schema, name))

    def reads_of(self, table: Table) -> Reads:
        """Return all that *table* reads: directly, and beneath what it reads."""
        found: dict[Location, Reads] = {}
        waiting = [table]
        while waiting:
            each = waiting.pop()
            reads = found[each.location] = each.reads or Reads()
            beneath = {place[:2] for place in reads.columns} - found.keys()
            waiting += [known for place in sorted(beneath) if (known := self.table(*place)) is not None]
        places = {place for reads in found.values() for place in reads.columns | reads.parents}
        others = dict.fromkeys(other for reads in found.values() for other in reads.others)
        elsewhere = frozenset(place for place in places if place[:2] != table.location)
        return Reads(columns=elsewhere, others=tuple(others))

    def references(self, table: Table) -> tuple[tuple[Table, ForeignKey], ...]:
        """Return the foreign keys that point to *table*, each with the table that has it."""
        return tuple(self._references.get(table.location, ()))

    @cached_property
    def _references(self) -> Mapping[Location, Sequence[tuple[Table, ForeignKey]]]:
        found: defaultdict[Location, list[tuple[Table, ForeignKey]]] = defaultdict(list)
        for table in self.tables:
            for key in table.foreign_keys:
                found[(key.target_schema, key.target)].append((table, key))
        return found

    @cached_property
    def _by_name(self) -> Mapping[Location, Table]:
        return {table.location: table for table in self.tables}

    def qualified(self, table: Table) -> str:
        """Return *table*'s name with its schema in front."""
        return f"{table.schema}.{table.name}" if table.schema else table.name

    def names_of(self, table: Table) -> tuple[str, ...]:
        """Return the names by which a rule refers to *table*; other tables may have the same.

        Tables that the login cannot read count, so that a name means the same to every login.
        """
        return (self.whole.label(table), self.qualified(table), table.name)

    def unique_name(self, table: Table) -> str:
        """Return a name by which a rule refers to *table* alone."""
        known = Counter(name for each in self.tables for name in set(self.names_of(each)))
        names = (self.label(table), self.qualified(table))
        return next((name for name in names if known[name] == 1), names[0])

    def label(self, table: Table) -> str:
        """Return the shortest name that means only *table*: bare in the default schema or if unique."""
        return self._labels[table.location]

    @cached_property
    def spans_schemas(self) -> bool:
        """Whether the tables are in more than one schema."""
        return len({table.schema for table in self.tables}) > 1

    @cached_property
    def _by_label(self) -> Mapping[str, Table]:
        return {self.label(table): table for table in self.tables}

    @cached_property
    def _labels(self) -> Mapping[Location, str]:
        number = Counter(table.name for table in self.tables)
        labels: dict[Location, str] = {}
        taken = set(number)
        for table in self.tables:
            label = table.name
            if number[label] > 1 and table.schema != self.default_schema:
                # Beside a table "a.b", table "b" of schema "a" is written a."b".
                quotes = ('"' * more for more in count())
                names = (f"{table.schema}.{each}{table.name}{each}".removeprefix(".") for each in quotes)
                label = next(each for each in names if each not in taken)
                taken.add(label)
            labels[table.location] = label
        return labels


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which tables of a database are read at all; patterns are those of a shell (`fnmatch`)."""

    schemas: tuple[str, ...] = ()  #: none: every schema that is not the system's
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def admits(self, schema: str, name: str) -> bool:
        """Return whether the table *name* of *schema* is wanted, by its bare or its qualified name."""
        names = (name, f"{schema}.{name}")
        if self.schemas and schema and schema not in self.schemas:
            return False
        return _matches(names, self.include) and not _matches(names, self.exclude)

    def idle(self, tables: Collection[tuple[str, str]]) -> tuple[str, ...]:
        """Return a warning for each pattern and schema that means none of *tables*, by schema and name."""
        names = [(name, f"{schema}.{name}") for schema, name in tables]
        schemas = {schema for schema, _ in tables}
        patterns = [("include", each) for each in self.include if each != "*"]
        patterns += [("exclude", each) for each in self.exclude]
        idle = [(key, each) for key, each in patterns if not any(_matches(name, (each,)) for name in names)]
        idle += [("schemas", each) for each in self.schemas if each not in schemas]
        bare = [name for name, _ in names]
        return tuple(
            f"[database] {key}: no table or schema matches {quoted(each)}. {nearest(each, bare)}".rstrip()
            for key, each in idle
        )


def _matches(names: tuple[str, ...], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
