"""Policies: roles, grants and limits, and `restrict`, which narrows a catalog to a role.

What a role may not see is absent from the catalog that `restrict` returns, so no layer above can name it.
Row filters and masks are attached to the remaining tables and columns.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import itemgetter

from dbtools.findings import Finding, Source, WriteProblem
from dbtools.policy.writes import EVERYTHING, Problem, WriteGrant, with_writes
from dbtools.schema.catalog import UNKNOWN_TYPE, Catalog, Column, Location, RowFilter, Table, matches_any
from dbtools.values.cells import BLANK
from dbtools.values.types import Mask, masked_type


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one call may take."""

    max_rows: int = 200
    max_tokens: int = 20_000  #: bytes of the encoded result / 3
    max_cell: int = 2_000  #: characters of a cell in a list
    timeout: float = 10.0  #: seconds
    calls_per_minute: int | None = None  #: for each caller; None: no limit
    concurrent_calls: int | None = None  #: for each caller; None: no limit

    @property
    def max_bytes(self) -> int:
        """The maximum size of the encoded result in bytes."""
        return self.max_tokens * 3


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who makes a call: a role, claims and an identity."""

    role: str = "default"
    claims: Mapping[str, object] = field(default_factory=dict)  #: facts for row filters, by name
    identity: str | None = None  #: None: the user who started the server


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a role may see of one table."""

    columns: tuple[str, ...] | None = None  #: None: all
    exclude: tuple[str, ...] = ()
    filter: RowFilter | None = None
    masks: Mapping[str, Mask] = field(default_factory=dict)  #: by column
    aggregate: bool = True
    writes: WriteGrant | None = None  #: None: none


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A grant or a denial for the tables that match a pattern."""

    pattern: str  #: a name or a shell pattern; with a dot, it matches qualified names
    grant: Grant | None  #: None: a denial
    source: Source = field(default_factory=Source)

    def names(self, catalog: Catalog, table: Table) -> bool:
        """Return whether the rule names *table*, rather than match it as a pattern."""
        return self.pattern in catalog.names_of(table)

    def precision(self, catalog: Catalog, table: Table) -> int | None:
        """Return the precision with which the rule matches *table*; None if it does not match."""
        if self.names(catalog, table):
            return MOST_PRECISE
        meant = catalog.full_name(table) if "." in self.pattern else table.name
        if self.is_pattern and fnmatchcase(meant, self.pattern):
            return len(WILDCARD.sub("", self.pattern))
        return None

    @property
    def narrows(self) -> bool:
        """Whether it hides its tables or a part of them."""
        return self.grant is None or replace(self.grant, writes=None) != WHOLE_GRANT

    @property
    def is_pattern(self) -> bool:
        """Whether it may match several tables."""
        return bool(set("*?[") & set(self.pattern))


WILDCARD = re.compile(r"[*?]|\[[^\]]*\]")
WHOLE_GRANT = Grant()  #: of a role without rules
MOST_PRECISE = 1_000_000  #: the precision of a name


@dataclass(frozen=True, kw_only=True)
class QueryGrant:
    """Permitted queries that a role may call."""

    pattern: str  #: a name or a shell pattern
    source: Source = field(default_factory=Source)

    def means(self, name: str) -> bool:
        """Return whether the grant includes the query *name*."""
        return fnmatchcase(name, self.pattern)


SET_ROLE = "role"  #: the setting with which a statement runs as another role of the database


@dataclass(frozen=True, kw_only=True)
class SessionSetting:
    """A database setting for the statements of a role, for example for row-level security."""

    name: str
    value: str = ""
    claim: str | None = None  #: that provides the value instead
    source: Source = field(default_factory=Source)


@dataclass(frozen=True, kw_only=True)
class FunctionRules:
    """Which functions a role's own SQL may call: patterns of "name" or "schema.name"."""

    include: tuple[str, ...] = ()  #: besides those that only compute a value from their arguments
    exclude: tuple[str, ...] = ()  #: these never

    def permits(self, name: str, schema: str = "", *, harmless: bool = False) -> bool:
        """Return whether the function may be called; *harmless*: whether it may unless it is excluded."""
        names = (name, f"{schema}.{name}")
        return not matches_any(names, self.exclude) and (harmless or matches_any(names, self.include))


NO_RULES = FunctionRules()


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a group of callers may see and call."""

    name: str = "default"
    limits: Limits = field(default_factory=Limits)
    rules: tuple[Rule, ...] | None = None  #: its own before inherited ones; None: it sees everything
    queries: tuple[QueryGrant, ...] | None = None  #: None: all permitted queries
    writable: bool = False  #: whether a role that sees everything may change everything
    sql: bool = False  #: whether it may run its own SQL
    functions: FunctionRules = NO_RULES  #: of this SQL
    session: tuple[SessionSetting, ...] = ()
    #: The places of its configured limits, by name.
    bounds: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)
    problems: tuple[Finding, ...] = ()  #: of its rules; what they concern is withheld
    source: Source = field(default_factory=Source)

    @property
    def may_write(self) -> bool:
        """Whether a rule grants changes, or the role may change everything."""
        grants = [rule.grant for rule in self.rules or ()]
        return self.writable or any(grant is not None and grant.writes for grant in grants)

    def may_call(self, query: str) -> bool:
        """Return whether the role may call the permitted query *query*."""
        return self.queries is None or any(grant.means(query) for grant in self.queries)

    def rule_of(self, catalog: Catalog, table: Table) -> Rule | None:
        """Return the rule that applies to *table*: the most precise one, and the first of equals."""
        precisions = ((rule.precision(catalog, table), rule) for rule in self.rules or ())
        found = [(precision, rule) for precision, rule in precisions if precision is not None]
        return max(found, key=itemgetter(0))[1] if found else None


@dataclass(frozen=True, kw_only=True)
class Restriction:
    """What a role sees of a catalog, and what is withheld despite a grant."""

    catalog: Catalog
    views: tuple[Table, ...] = ()  #: that patterns match but do not grant
    columns: tuple[tuple[Table, Rule, str], ...] = ()  #: withheld generated columns
    writes: tuple[tuple[Table, Rule, Problem], ...] = ()  #: withheld writes, each with the reason


def restrict(catalog: Catalog, role: Role) -> Catalog:
    """Return the part of *catalog* that *role* has been granted."""
    return restriction_of(catalog, role).catalog


def restriction_of(catalog: Catalog, role: Role) -> Restriction:
    """Return the part of *catalog* that *role* has been granted, without what would reveal the rest."""
    bare = replace(catalog, warnings=(), posture=(), unreadable={})
    withheld: list[tuple[Table, Rule, Problem]] = []
    if role.rules is None:
        pairs = ((table, tuple(_revealing_columns(table, WHOLE_GRANT))) for table in catalog.tables)
        every = {table.location: _restrict_table(table, WHOLE_GRANT, names) for table, names in pairs}
        tables = tuple(_redact_view(catalog, _with_keys(table, every), every) for table in every.values())
        if role.writable:
            found = [with_writes(*pair, EVERYTHING) for pair in zip(catalog.tables, tables, strict=True)]
            tables = tuple(table for table, _ in found)
            anything = Rule(pattern="*", grant=Grant(), source=role.source)
            refused = [(table, problem) for table, several in found for problem in several]
            withheld += [(table, anything, each) for table, each in refused if WriteProblem.KEYLESS in each]
        return Restriction(catalog=replace(bare, tables=tables), writes=tuple(withheld))
    seen: dict[Location, Table] = {}
    columns: list[tuple[Table, Rule, str]] = []
    views: list[Table] = []
    ruled = [(table, role.rule_of(catalog, table)) for table in catalog.whole.tables]
    hides = any(rule is None or rule.narrows for _, rule in ruled)
    for table, rule in ruled:
        if rule is None or rule.grant is None or catalog.table(*table.location) is None:
            continue
        if (
            table.derived
            and not rule.names(catalog, table)
            and (hides or _reads_others(catalog.whole, table))
        ):
            views.append(table)
            continue
        revealing = tuple(_revealing_columns(table, rule.grant))
        left = _restrict_table(table, rule.grant, revealing)
        if left.columns:
            columns += [(table, rule, name) for name in revealing]
            if rule.grant.writes is not None:
                left, problems = with_writes(table, left, rule.grant.writes)
                withheld += [(table, rule, problem) for problem in problems]
            seen[table.location] = left
        elif rule.grant.writes is not None:
            withheld.append((table, rule, ("", WriteProblem.COLUMNLESS)))
    linked = (_with_keys(table, seen) for table in seen.values())
    tables = tuple(
        replace(each, definition="") if hides else _redact_view(catalog, each, seen) for each in linked
    )
    return Restriction(
        catalog=replace(bare, tables=tables),
        views=tuple(views),
        columns=tuple(columns),
        writes=tuple(withheld),
    )


def _reads_others(whole: Catalog, view: Table) -> bool:
    """Return whether *view* reads, directly or through views, what *whole* does not have."""
    reads = (place for each in (view, *whole.underlying_tables(view)) for place in each.reads)
    return any(whole.table(*place) is None for place in reads)


def _redact_view(catalog: Catalog, view: Table, seen: Mapping[Location, Table]) -> Table:
    """Return *view* without its definition if that names anything that is not *seen*."""
    hides = view.location in catalog.unreadable or catalog.whole.conceals(view.definition, seen)
    hides = hides or not seen.keys() >= {*view.reads}
    return replace(view, definition="") if view.definition and hides else view


def _restrict_table(table: Table, grant: Grant, revealing: Sequence[str]) -> Table:
    """Apply *grant* to *table*, without the *revealing* columns; keep the foreign keys.

    A column that the login cannot read stays only if its mask reads no cell.
    """
    columns = tuple(column for column in _shown_columns(table, grant) if column.name not in revealing)
    plain = {column.name for column in columns if column.type.mask is None}
    whole = len(plain) == len(table.columns) and grant.filter is None
    if whole and grant.aggregate:
        return table
    columns = tuple(
        _with_text_index(column, plain, grant) if column.text_index else column for column in columns
    )
    if not whole:
        # The expression of a generated column may name a hidden column.
        columns = tuple(replace(each, default=None) if each.generated else each for each in columns)
    return replace(
        table,
        columns=columns,
        keys=tuple(key for key in table.keys if plain.issuperset(key.columns)),
        # A row identifier may be an alias of a hidden key, and an estimate counts hidden rows.
        row_identifier=table.row_identifier if whole else None,
        row_estimate=table.row_estimate if grant.filter is None and grant.aggregate else None,
        filter=grant.filter,
        aggregated=grant.aggregate,
        definition=table.definition if whole else "",
    )


def _with_text_index(column: Column, plain: Set[str], grant: Grant) -> Column:
    """Return *column* with its full-text index, if that shows nothing besides the *plain* columns.

    A rank that depends on other rows or columns would show how often a word is in those that are hidden.
    """
    index = column.text_index
    # If rows share a number, a visible row would be found by the words of a hidden one.
    if index is None or not index.reads <= plain or (index.shared and grant.filter is not None):
        return replace(column, text_index=None)
    ranked = not index.weighs or (grant.filter is None and index.weighs <= plain)
    return replace(column, text_index=replace(index, ranked=ranked))


def _shown_columns(table: Table, grant: Grant) -> Iterator[Column]:
    """Yield the columns of *table* that *grant* shows, with their masks."""
    for column in table.columns:
        granted = grant.columns is None or column.name in grant.columns
        readable = column.type is not UNKNOWN_TYPE or grant.masks.get(column.name) in BLANK
        if granted and readable and column.name not in grant.exclude:
            yield _masked_column(table, column, grant)


def _revealing_columns(table: Table, grant: Grant) -> Iterator[str]:
    """Yield generated columns that would reveal what *grant* hides or masks, unless it names them."""
    if not any(column.sources for column in table.columns):
        return
    plain = {column.name for column in _shown_columns(table, grant) if column.type.mask is None}
    asked = set(grant.columns or ())
    while found := [name for name in plain - asked if not table.column_by_name[name].sources <= plain]:
        yield from sorted(found)
        plain.difference_update(found)


def _masked_column(table: Table, column: Column, grant: Grant) -> Column:
    """Return *column* with its mask, if *grant* has one or does not name a sensitive column."""
    name, mask = column.name, grant.masks.get(column.name)
    sensitive = mask is None and column.sensitive and name not in (grant.columns or ())
    type = masked_type(mask, "\0".join((*table.location, name)))
    masked = Column(name=name, type=type, comment=column.comment, sensitive=sensitive)
    return masked if mask is not None or sensitive else column


def _with_keys(table: Table, seen: Mapping[Location, Table]) -> Table:
    """Return *table* with the visible foreign keys; *table* itself, which roles share, if all are."""
    followed = tuple(
        key
        for key in table.foreign_keys
        if _shows(table, key.columns)
        and _shows(seen.get((key.target_schema, key.target)), key.target_columns)
    )
    return table if followed == table.foreign_keys else replace(table, foreign_keys=followed)


def _shows(table: Table | None, names: Sequence[str]) -> bool:
    known = table.column_by_name if table else {}
    return all(name in known and known[name].type.mask is None for name in names)
