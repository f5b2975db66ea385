"""The catalog of a database, as frozen values that can be compared.

Introspection makes a Catalog, `policy.restrict` narrows it to a role, and tools are defined from the rest.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import count

from dbtools.errors import did_you_mean
from dbtools.schema.sql import Fragment, has_name
from dbtools.values.types import ColumnType, Family, quote

Location = tuple[str, str]  #: of a table: its schema and its name
#: The type of a column whose name alone is known.
UNKNOWN_TYPE = ColumnType(family=Family.OTHER, name="unreadable")
UNKEYED = (Family.ARRAY, Family.OBJECT, Family.JSON)  #: cells that, once read, cannot be compared again


class TableKind(StrEnum):
    """The kind of a relation."""

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
    document: str  #: SQL over the row's columns: what is searched, or the row's number in the index
    source: str = ""  #: the table that is the index, or SQL for the configuration that reads the words
    ranked: bool = True  #: whether rows may be ordered by how well they match
    #: the columns whose cells in all rows affect the rank; empty if the rank depends only on the document
    weighs: frozenset[str] = frozenset()
    shared: bool = False  #: whether several rows may have the same number in the index


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column of a table."""

    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None  #: the SQL expression, for people
    generated: bool = False  #: a generated or an identity column
    assigned: bool = field(default=False, compare=False)  #: whether the database chooses missing values
    sources: frozenset[str] = field(default=frozenset(), compare=False)  #: columns that it is computed from
    comment: str = ""
    choices: tuple[str, ...] = ()  #: the values that a CHECK constraint allows
    minimum: str | None = None  #: that a CHECK constraint allows; "> 0" if it excludes 0
    maximum: str | None = None
    text_index: TextIndex | None = None  #: by which its words are found
    collation: str = field(default="", compare=False)  #: of its texts, if not the default of the database
    sensitive: bool = field(default=False, compare=False)  #: whether it is masked unless a rule names it

    def __hash__(self) -> int:
        """Hash only the name, which is unique within a table; equality compares everything."""
        return hash(self.name)

    @property
    def required(self) -> bool:
        """Whether a new row needs a value for it."""
        return not (self.nullable or self.generated or self.assigned or self.default is not None)


def identity_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return *columns* as the identity of a table: its cells are bound again as the driver returns them."""
    return tuple(replace(each, type=replace(each.type, family=Family.OTHER)) for each in columns)


def with_indexes(columns: tuple[Column, ...], indexes: Mapping[str, TextIndex]) -> tuple[Column, ...]:
    """Return *columns* with their full-text *indexes*, which are given by name."""
    if not indexes:
        return columns
    return tuple(replace(column, text_index=indexes.get(column.name)) for column in columns)


@dataclass(frozen=True, kw_only=True)
class Key:
    """Columns whose values identify one row."""

    columns: tuple[str, ...]
    primary: bool = False
    deferrable: bool = False  #: whether it may be checked only at COMMIT
    condition: str = ""  #: of the rows that a partial index is about, as the database shows it; empty: all
    predicate: str = ""  #: the same as SQL that means the same on any search path; empty if there is none
    reads: frozenset[str] = frozenset()  #: the columns that the condition names


@dataclass(frozen=True, kw_only=True)
class ForeignKey:
    """Columns that refer to a row of another table, or of the same table."""

    columns: tuple[str, ...]
    target_schema: str
    target: str
    target_columns: tuple[str, ...]
    #: Whether at most one row of the target matches, and the comparison cannot fail.
    joinable: bool = True
    declared: bool = field(default=True, compare=False)  #: by the database; else in [tables]


@dataclass(frozen=True, kw_only=True)
class RowFilter:
    """An SQL condition on columns of a table and claims of the caller: which rows a role sees."""

    condition: Fragment
    casts: tuple[str, ...] = ()  #: the types of its parameters, if the database needs them
    total: bool = True  #: whether it cannot raise an error
    #: Changes whenever one of its names may mean something else; empty if names have one meaning.
    version: str = field(default="", compare=False)

    def __hash__(self) -> int:
        """Hash only the condition, so that the lookup of a compiled shape is fast."""
        return hash(self.condition)


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A value that each change gives a column, whatever the caller says."""

    column: Column
    value: object = None  #: decoded
    claim: str | None = None  #: of the caller, whose value it is instead


@dataclass(frozen=True, kw_only=True)
class Writes:
    """What a role may change in a table. The columns have their own types, even if they are masked."""

    insert: tuple[Column, ...] | None = None  #: what callers give new rows; None: they insert no rows
    update: tuple[Column, ...] = ()  #: what callers may set; none: they update no rows
    delete: bool = False
    insert_presets: tuple[Preset, ...] = ()
    update_presets: tuple[Preset, ...] = ()
    checks: tuple[RowFilter, ...] = ()  #: what a row must satisfy after the change
    leaves: bool = False  #: whether the row filter need not show it then
    most: int | None = None  #: rows that one call may change
    confirm: bool = False  #: whether each change must be confirmed
    key: tuple[str, ...] = ()  #: those columns of its first key that the role sees, masked ones included
    conflict_keys: tuple[tuple[Column, ...], ...] = ()  #: by which upserts may find rows that exist
    #: Those of them that are about some rows, and others that upserts cannot use, without a predicate.
    partial_keys: Mapping[tuple[Column, ...], Key] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table, view or other relation."""

    name: str
    schema: str = ""
    kind: TableKind = TableKind.TABLE
    columns: tuple[Column, ...]
    keys: tuple[Key, ...] = ()  #: first the primary key, then unique keys without nulls
    unique: frozenset[str] = field(default=frozenset(), compare=False)  #: columns that are, except for nulls
    #: Unique keys that identify only some rows: several columns with nulls, or a partial index.
    lesser_keys: tuple[Key, ...] = field(default=(), compare=False)
    foreign_keys: tuple[ForeignKey, ...] = ()
    comment: str = ""
    definition: str = ""  #: the SELECT of a view, which names what it reads
    row_estimate: int | None = None
    row_identifier: str | None = None  #: a unique pseudo-column, such as rowid
    filter: RowFilter | None = None  #: None: all rows are visible
    aggregated: bool = True  #: whether its rows may be aggregated
    writes: Writes | None = None  #: None: its rows cannot be changed
    withheld: tuple[tuple[str, str], ...] = ()  #: granted changes that are not possible, and why, for callers
    #: What identifies a row in a transaction, system columns included; empty if no row can be changed.
    identity: tuple[Column, ...] = field(default=(), compare=False)
    #: Whether it shows rows of other tables: a view, an index of words, a parent or a child in inheritance.
    derived: bool = field(default=False, compare=False)
    reads: tuple[Location, ...] = field(default=(), compare=False)  #: the tables and views that a view names
    populated: bool = field(default=True, compare=False)  #: not a materialized view without data
    computed: bool = field(default=False, compare=False)  #: whether reading a cell may raise an error
    policies: int | None = field(default=None, compare=False)  #: that show the login rows; None: it sees all
    #: Changes whenever its name or columns change; empty if the database has no versions of single tables.
    version: str = field(default="", compare=False)

    def __hash__(self) -> int:
        """Hash only the name, so that the lookup of a compiled shape is fast."""
        return hash(self.location)

    @property
    def location(self) -> Location:
        """Its schema and name, which are unique."""
        return (self.schema, self.name)

    @property
    def needs_barrier(self) -> bool:
        """Whether the filter must be evaluated before any condition of a caller."""
        return self.filter is not None and (self.computed or not self.filter.total)

    @cached_property
    def column_by_name(self) -> Mapping[str, Column]:
        """The columns by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def searchable(self) -> Mapping[str, TextIndex]:
        """The full-text indexes by the names of their columns."""
        return {each.name: each.text_index for each in self.columns if each.text_index is not None}

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the first key; none without a key."""
        return tuple(self.column_by_name[name] for key in self.keys[:1] for name in key.columns)

    @cached_property
    def cursor_key(self) -> tuple[Column, ...]:
        """The columns of the first key whose values a cursor can hold; none without one."""
        keys = (tuple(self.column_by_name[name] for name in key.columns) for key in self.keys)
        return next((columns for columns in keys if all(map(_is_keyed, columns))), ())


def _is_keyed(column: Column) -> bool:
    return column.type.ordered and column.type.family not in UNKEYED and not column.nullable


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The tables of one database that can be read."""

    tables: tuple[Table, ...] = ()  #: by schema and name, the default schema first
    default_schema: str = ""
    search_path: tuple[str, ...] = field(default=(), compare=False)  #: the schemas of unqualified names
    #: What was left out and why, for the operator only.
    warnings: tuple[str, ...] = field(default=(), compare=False)
    #: What the login may do beyond reading, for the operator only.
    posture: tuple[str, ...] = field(default=(), compare=False)
    #: Columns that the login may not select, by schema and table: rules may name them, callers may not.
    unreadable: Mapping[Location, tuple[str, ...]] = field(default_factory=dict, compare=False)
    #: Relations, functions and operators, in lower case, that may raise an error in a row filter.
    raising: frozenset[str] = field(default=frozenset(), compare=False)
    #: Changes whenever the schema changes; empty if unknown.
    stamp: str = field(default="", compare=False)

    @cached_property
    def whole(self) -> "Catalog":
        """This catalog with what the login may not select, to look up the names in rules."""
        if not self.unreadable:
            return self
        tables = {table.location: table for table in self.tables}
        for (schema, name), names in self.unreadable.items():
            hidden = tuple(Column(name=each, type=UNKNOWN_TYPE) for each in names)
            table = tables.get((schema, name), Table(schema=schema, name=name, columns=()))
            tables[table.location] = replace(table, columns=(*table.columns, *hidden))
        return replace(self, tables=tuple(tables.values()), unreadable={})

    def find_tables(self, name: str) -> tuple[Table, ...]:
        """Return the tables that match *name*: by label, exact or qualified name, or ignoring case."""
        if table := self._by_label.get(name):
            return (table,)
        exact = tuple(table for table in self.tables if name in (table.name, self.full_name(table)))
        folded = name.lower()
        return exact or tuple(table for table in self.tables if table.name.lower() == folded)

    def table(self, schema: str, name: str) -> Table | None:
        """Return the table *name* of *schema*, or None."""
        return self._by_name.get((schema, name))

    def underlying_tables(self, table: Table) -> Sequence[Table]:
        """Return the tables and views that *table*, a view, reads, directly and through others."""
        found: dict[Location, Table] = {}
        waiting = [*table.reads]
        while waiting:
            each = self.table(*waiting.pop())
            if each is not None and each.location not in found:
                found[each.location] = each
                waiting += each.reads
        return tuple(found.values())

    def conceals(self, sql: str, seen: Mapping[Location, Table]) -> bool:
        """Return whether *sql*, of a view, names tables or columns that are not among those *seen*.

        The SQL of a view may name what it does not read.
        """
        known = {name for table in seen.values() for name in (table.name, *table.column_by_name)}
        named = [table for table in self.tables if has_name(sql, table.name)]
        names = {name for table in named for name in (table.name, *table.column_by_name)} - known
        return any(has_name(sql, name) for name in names)

    def references(self, table: Table) -> tuple[tuple[Table, ForeignKey], ...]:
        """Return the foreign keys that refer to *table*, each with its own table."""
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

    def full_name(self, table: Table) -> str:
        """Return the name of *table* with its schema."""
        return f"{table.schema}.{table.name}" if table.schema else table.name

    def names_of(self, table: Table) -> tuple[str, ...]:
        """Return the names by which a rule can refer to *table*; other tables may share them.

        Labels depend on all tables, even those that the login cannot read, so every login has the same.
        """
        return (self.whole.label(table), self.full_name(table), table.name)

    def unique_name(self, table: Table) -> str:
        """Return a name by which a rule refers only to *table*."""
        known = Counter(name for each in self.tables for name in set(self.names_of(each)))
        names = (self.label(table), self.full_name(table))
        return next((name for name in names if known[name] == 1), names[0])

    def label(self, table: Table) -> str:
        """Return the shortest unique name of *table*: without a schema if that is unique or the default."""
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
            if number[label := table.name] > 1 and table.schema != self.default_schema:
                # Beside a table "a.b", table "b" of schema "a" is written a."b".
                quotes = ('"' * more for more in count())
                names = (f"{table.schema}.{each}{table.name}{each}".removeprefix(".") for each in quotes)
                label = next(each for each in names if each not in taken)
                taken.add(label)
            labels[table.location] = label
        return labels


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which tables of a database are read; patterns are shell patterns (`fnmatch`)."""

    schemas: tuple[str, ...] = ()  #: empty: every schema except those of the system
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def admits(self, schema: str, name: str) -> bool:
        """Return whether the table *name* of *schema* is selected, by its name or its qualified name."""
        names = (name, f"{schema}.{name}")
        if self.schemas and schema and schema not in self.schemas:
            return False
        return matches_any(names, self.include) and not matches_any(names, self.exclude)

    def idle_warnings(self, tables: Collection[tuple[str, str]]) -> tuple[str, ...]:
        """Return a warning for each pattern and schema that matches none of *tables*."""
        names = [(name, f"{schema}.{name}") for schema, name in tables]
        schemas = {schema for schema, _ in tables}
        patterns = [("include", each) for each in self.include if each != "*"]
        patterns += [("exclude", each) for each in self.exclude]
        idle = [
            (key, each) for key, each in patterns if not any(matches_any(name, (each,)) for name in names)
        ]
        idle += [("schemas", each) for each in self.schemas if each not in schemas]
        bare = [name for name, _ in names]
        return tuple(
            f"[database] {key}: no table or schema matches {quote(each)}. {did_you_mean(each, bare)}".rstrip()
            for key, each in idle
        )


def matches_any(names: Iterable[str], patterns: Iterable[str]) -> bool:
    """Return whether one of *names* of an object matches one of *patterns*."""
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
