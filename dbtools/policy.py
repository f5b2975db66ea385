"""Who may see what, and how much: roles, grants, limits, and `restrict`, the lens between catalog and tools.

What a role may not see is absent from the catalog that `restrict` returns, so nothing above it can name it.
Row filters and masks ride on the tables and columns that are left.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from dbtools.catalog import UNREADABLE, Catalog, Column, ForeignKey, Key, RowFilter, Table
from dbtools.cells import visible
from dbtools.column_types import ColumnType, Family, Mask, quoted
from dbtools.errors import listing, nearest


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one call may take."""

    max_rows: int = 200
    max_tokens: int = 20_000  #: bytes of the encoded result / 3
    max_cell: int = 2_000  #: characters of one cell in a list
    timeout: float = 10.0  #: seconds
    calls_per_minute: int | None = None  #: of one caller; None: as many as they come
    concurrent_calls: int | None = None  #: of one caller at the same time; None: as many as they come

    @property
    def max_bytes(self) -> int:
        """How many bytes the encoded result may take."""
        return self.max_tokens * 3


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Somebody who makes calls: the role that decides what there is, and what is known of them."""

    role: str = "default"
    claims: Mapping[str, object] = field(default_factory=dict)  #: for row filters, by name
    identity: str | None = None  #: None: whoever started the server


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where in a file something is written."""

    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """Return the place as it stands before a complaint: nothing where no file is."""
        return f"{self.file}:{self.line or 1}: " if self.file else ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong with what an operator wrote."""

    code: str
    message: str
    level: str = "error"  #: or "warning"
    source: Source = field(default_factory=Source)

    def __str__(self) -> str:
        """Return the finding as one line, its place in front."""
        # Names are anybody's: none begins a line of its own.
        return f"{self.source}{self.level}: {visible(' '.join(self.message.splitlines()))}"


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a role may do with one table."""

    columns: tuple[str, ...] | None = None  #: None: all
    exclude: tuple[str, ...] = ()
    filter: RowFilter | None = None
    masks: Mapping[str, Mask] = field(default_factory=dict)  #: by column
    aggregate: bool = True


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a role may do with the tables that a name or a pattern means."""

    pattern: str  #: of a shell, over bare names, or with a dot over qualified ones
    grant: Grant | None  #: None: nothing
    source: Source = field(default_factory=Source)

    def precision(self, catalog: Catalog, table: Table) -> int | None:
        """Return how precisely the pattern means *table*, None where it does not."""
        names = (table.name, catalog.qualified(table))
        meant = names[1] if "." in self.pattern else names[0]
        # A label means one table; a name that is none may mean several. What cannot be read counts, so
        # that a name means the same whichever login reads the catalog.
        whole = catalog.whole
        if self.pattern in (*names, whole.label(table)) and any(
            (each.schema, each.name) == (table.schema, table.name) for each in whole.named(self.pattern)
        ):
            return MOST_PRECISE
        if self.is_pattern and fnmatchcase(meant, self.pattern):
            return len(WILDCARD.sub("", self.pattern))
        return None

    @property
    def is_pattern(self) -> bool:
        """Whether it may mean many tables."""
        return bool(set("*?[") & set(self.pattern))


UNKNOWN_TABLE = "unknown_table"
WILDCARD = re.compile(r"[*?]|\[[^\]]*\]")
MOST_PRECISE = 1_000_000  #: of a name that is no pattern
#: What is shown of such a column is the same for all cells, and so no cell is read.
BLANK = (Mask.NULL, Mask.REDACT)


@dataclass(frozen=True, kw_only=True)
class QueryGrant:
    """Queries that a role may call, whatever they read."""

    pattern: str  #: of a shell
    accept_reads: bool = False  #: whether it is meant that they read what the role does not see
    source: Source = field(default_factory=Source)

    def means(self, name: str) -> bool:
        """Return whether the query *name* is among them."""
        return fnmatchcase(name, self.pattern)


SET_ROLE = "role"  #: the setting that makes a statement run as another role of the database


@dataclass(frozen=True, kw_only=True)
class SessionSetting:
    """What the database is told before each statement of a role, for rules of its own."""

    name: str
    value: str = ""
    claim: str | None = None  #: whose value it has instead
    source: Source = field(default_factory=Source)


@dataclass(frozen=True, kw_only=True)
class Role:
    """Somebody on whose behalf calls are made."""

    name: str = "default"
    limits: Limits = field(default_factory=Limits)
    rules: tuple[Rule, ...] | None = None  #: own ones before inherited ones; None: everything may be seen
    queries: tuple[QueryGrant, ...] | None = None  #: None: all that are permitted
    session: tuple[SessionSetting, ...] = ()
    problems: tuple[Finding, ...] = ()  #: with what is written; what they concern has been withheld
    source: Source = field(default_factory=Source)

    def may_call(self, query: str) -> bool:
        """Return whether the role has the permitted query *query*."""
        return self.queries is None or any(grant.means(query) for grant in self.queries)

    def rule_of(self, catalog: Catalog, table: Table) -> Rule | None:
        """Return the rule that decides on *table*: the most precise, and of equals the first."""
        best: tuple[int, Rule] | None = None
        for rule in self.rules or ():
            precision = rule.precision(catalog, table)
            if precision is not None and (best is None or precision > best[0]):
                best = (precision, rule)
        return best[1] if best else None


def vetted(catalog: Catalog, role: Role) -> tuple[Role, tuple[Finding, ...]]:
    """Return *role* without the rules that cannot be meant, and what is wrong with them.

    A table whose rule names what there is not is withheld: it may be the name of a column to be hidden. Where
    a rule that denies or narrows means no table, those that patterns grant are withheld: one may be meant.
    """
    findings: list[Finding] = []
    rules: list[Rule] = []
    misses = False
    for rule in role.rules or ():
        problems = list(_problems(catalog, role, rule))
        findings += problems or _unread(catalog, role, rule)
        misses |= rule.grant != Grant() and any(each.code == UNKNOWN_TABLE for each in problems)
        rules.append(replace(rule, grant=None) if problems else rule)
    if misses:
        rules = [replace(rule, grant=None) if rule.is_pattern else rule for rule in rules]
    return (role if role.rules is None else replace(role, rules=tuple(rules))), tuple(findings)


def _problems(catalog: Catalog, role: Role, rule: Rule) -> Iterator[Finding]:
    """Yield what is wrong with *rule*: it means no table, or names columns that its tables do not have."""
    whole = catalog.whole
    tables = [table for table in whole.tables if rule.precision(catalog, table) is not None]
    where = f"role {role.name}, tables.{rule.pattern}"
    if not tables and rule.pattern != "*":
        labels = map(whole.label, whole.tables)
        message = f"{where}: there is no such table. {nearest(rule.pattern, labels)}"
        yield Finding(code=UNKNOWN_TABLE, message=message.rstrip(), source=rule.source)
    if len(tables) > 1 and not rule.is_pattern:
        message = f"{where}: this is the name of {listing(map(whole.label, tables))}. Write one of them."
        yield Finding(code="ambiguous_table", message=message, source=rule.source)
    if rule.grant is None:
        return
    named = (*(rule.grant.columns or ()), *rule.grant.exclude, *rule.grant.masks)
    yield from _twins(whole, tables, named, where, rule.source)
    for name in dict.fromkeys(named) if tables else ():
        # Of a pattern's tables not every one need have it.
        if not any(name in table.column_by_name for table in tables):
            known = list(dict.fromkeys(each for table in tables for each in table.column_by_name))
            one = len(tables) == 1
            has = f"{whole.label(tables[0])} has no column" if one else "no table that it means has a column"
            message = f"{where}: {has} {quoted(name)}. {nearest(name, known)}Columns: {listing(known)}."
            yield Finding(code="unknown_column", message=message, source=rule.source)


def _twins(
    catalog: Catalog, tables: Sequence[Table], named: Sequence[str], where: str, source: Source
) -> Iterator[Finding]:
    """Yield columns that differ from a name only in the case of letters, which may well be meant."""
    folded = {name.lower(): name for name in named}
    for table in tables:
        for column in table.column_by_name:
            name = folded.get(column.lower(), column)
            if name != column and name not in table.column_by_name and len(tables) > 1:
                message = f"{where}: {quoted(name)} is written {quoted(column)} in {catalog.label(table)}."
                yield Finding(code="unknown_column", message=message, source=source)


def _unread(catalog: Catalog, role: Role, rule: Rule) -> Iterator[Finding]:
    """Yield what *rule* grants by name and the login may not select: a pattern grants what can be read."""
    where = f"role {role.name}, tables.{rule.pattern}: the login may not select"
    for table in catalog.whole.tables:
        hidden = catalog.unreadable.get((table.schema, table.name), ())
        if not hidden or rule.grant is None or role.rule_of(catalog, table) != rule:
            continue
        label = catalog.whole.label(table)
        if catalog.table(table.schema, table.name) is None:
            message = "" if rule.is_pattern else f"{where} from {label}."
        else:
            names = [name for name in hidden if _means_to_show(rule, name)]
            message = f"{where} {listing(names)} of {label}." if names else ""
        if message:
            yield Finding(code="unreadable", message=message, level="warning", source=rule.source)


def _means_to_show(rule: Rule, column: str) -> bool:
    """Return whether *rule* grants cells of *column* by its name, or by that of the table alone."""
    grant = rule.grant or Grant()
    granted = not rule.is_pattern if grant.columns is None else column in grant.columns
    return granted and column not in grant.exclude and grant.masks.get(column) not in BLANK


def restrict(catalog: Catalog, role: Role) -> Catalog:
    """Return the part of *catalog* that *role* has been granted."""
    bare = replace(catalog, warnings=(), posture=(), unreadable={})
    if role.rules is None:
        return bare
    whole = catalog.whole
    seen = {
        (table.schema, table.name): _narrowed(whole.table(table.schema, table.name) or table, rule.grant)
        for table in catalog.tables
        if (rule := role.rule_of(catalog, table)) is not None and rule.grant is not None
    }
    seen = {place: table for place, table in seen.items() if table.columns}
    tables = (replace(table, foreign_keys=tuple(_followed(table, seen))) for table in seen.values())
    return replace(bare, tables=tuple(tables))


def _narrowed(table: Table, grant: Grant) -> Table:
    """Return what *grant* leaves of *table*, its foreign keys for now as they are.

    Of the columns that cannot be read only those are left of which the role has asked for no cell.
    """
    columns = tuple(
        _masked(column, grant.masks.get(column.name))
        for column in table.columns
        if (grant.columns is None or column.name in grant.columns)
        and column.name not in grant.exclude
        and (column.type is not UNREADABLE or grant.masks.get(column.name) in BLANK)
    )
    plain = {column.name for column in columns if column.type.mask is None}
    whole = len(plain) == len(table.columns) and grant.filter is None
    if not whole:
        # How a column is computed may name one that is hidden.
        columns = tuple(replace(each, default=None) if each.generated else each for each in columns)
    return replace(
        table,
        columns=columns,
        keys=tuple(_kept(table.keys, plain)),
        # A number of the row may be a hidden key by another name, and an estimate counts hidden rows.
        row_identifier=table.row_identifier if whole else None,
        row_estimate=table.row_estimate if grant.filter is None and grant.aggregate else None,
        filter=grant.filter,
        aggregated=grant.aggregate,
    )


def _masked(column: Column, mask: Mask | None) -> Column:
    if mask is None:
        return column
    type = ColumnType(
        family=Family.TEXT, name="masked", equatable=False, ordered=False, large=True, mask=mask
    )
    return Column(name=column.name, type=type, comment=column.comment)


def _kept(keys: Sequence[Key], plain: set[str]) -> Iterator[Key]:
    return (key for key in keys if plain.issuperset(key.columns))


def _followed(table: Table, seen: Mapping[tuple[str, str], Table]) -> Iterator[ForeignKey]:
    """Yield the foreign keys of *table* whose columns, here and there, are seen as they are."""
    for key in table.foreign_keys:
        target = seen.get((key.target_schema, key.target))
        if target is not None and _shows(table, key.columns) and _shows(target, key.target_columns):
            yield key


def _shows(table: Table, names: Sequence[str]) -> bool:
    known = table.column_by_name
    return all(name in known and known[name].type.mask is None for name in names)
