"""Who may see what, and how much: roles, grants, limits, and `restrict`, the lens between catalog and tools.

What a role may not see is absent from the catalog that `restrict` returns, so nothing above it can name it.
Row filters and masks ride on the tables and columns that are left.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from operator import itemgetter

from dbtools.catalog import UNREADABLE, Catalog, Column, Location, Reads, RowFilter, Table
from dbtools.cells import Cut, one_line, plain
from dbtools.types import ColumnType, Family, Mask

REDACTED = "***"
LABEL = r"[^\W_](?:(?:[^\W_]|-){0,61}[^\W_])?"
#: What is shown of it is a domain (RFC 1035, 2.3.1) or nothing.
ADDRESS = re.compile(rf'(?:"[^"]{{1,64}}"|[^\s@"]{{1,64}})@((?=.{{1,253}}$){LABEL}(?:\.{LABEL})+)')
DIGITS = 16  #: hexadecimal, of a hashed cell
#: Characters (or bytes, of bytes) that are read of a masked cell. No ADDRESS is longer than 320.
READ_OF_MASKED: Mapping[Mask, int] = {Mask.NULL: 1, Mask.REDACT: 1, Mask.PARTIAL: 320, Mask.HASH: 10_000}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one call may take."""

    max_rows: int = 200
    max_tokens: int = 20_000  #: bytes of the encoded result / 3
    max_cell: int = 2_000  #: characters of one cell in a list
    timeout: float = 10.0  #: seconds
    calls_per_minute: int | None = None  #: of one caller; None: no limit
    concurrent_calls: int | None = None  #: of one caller at the same time; None: no limit

    @property
    def max_bytes(self) -> int:
        """How many bytes the encoded result may take."""
        return self.max_tokens * 3


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The author of a call: a role, and claims about the caller."""

    role: str = "default"
    claims: Mapping[str, object] = field(default_factory=dict)  #: for row filters, by name
    identity: str | None = None  #: None: the one who started the server


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where in a file something is written."""

    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        """Return the place as it stands before a complaint: nothing where no file is."""
        return f"{one_line(self.file)}:{self.line or 1}: " if self.file else ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that is wrong with what an operator wrote."""

    code: str
    message: str
    level: str = "error"  #: or "warning"
    source: Source = field(default_factory=Source)
    role: str = field(default="", compare=False)  #: the role that it is about, if it is about one
    subject: str = field(default="", compare=False)  #: the query or the view that is withheld by it

    def __str__(self) -> str:
        """Return the finding as one line, its place in front."""
        return f"{self.source}{self.level}: {one_line(self.message)}"


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a role may do with one table."""

    columns: tuple[str, ...] | None = None  #: None: all
    exclude: tuple[str, ...] = ()
    filter: RowFilter | None = None
    masks: Mapping[str, Mask] = field(default_factory=dict)  #: by column
    aggregate: bool = True
    accept_reads: bool = False  #: whether a view may show what it reads and the role does not see


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What a role may do with the tables that a name or a pattern means."""

    pattern: str  #: of a shell, over bare names, or with a dot over qualified ones
    grant: Grant | None  #: None: nothing
    source: Source = field(default_factory=Source)

    def precision(self, catalog: Catalog, table: Table) -> int | None:
        """Return how precisely the rule refers to *table*, None where it does not."""
        if self.pattern in catalog.names_of(table):
            return MOST_PRECISE
        meant = catalog.qualified(table) if "." in self.pattern else table.name
        if self.is_pattern and fnmatchcase(meant, self.pattern):
            return len(WILDCARD.sub("", self.pattern))
        return None

    @property
    def narrows(self) -> bool:
        """Whether it denies its tables, or hides anything of them."""
        return self.grant is None or replace(self.grant, accept_reads=False) != Grant()

    @property
    def is_pattern(self) -> bool:
        """Whether it may mean many tables."""
        return bool(set("*?[") & set(self.pattern))


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
    """A setting of the database for the statements of a role, for example for row-level security."""

    name: str
    value: str = ""
    claim: str | None = None  #: whose value it has instead
    source: Source = field(default_factory=Source)


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a group of callers may see and call."""

    name: str = "default"
    limits: Limits = field(default_factory=Limits)
    rules: tuple[Rule, ...] | None = None  #: own ones before inherited ones; None: everything may be seen
    queries: tuple[QueryGrant, ...] | None = None  #: None: all that are permitted
    session: tuple[SessionSetting, ...] = ()
    #: Where its limits are written, by name, of those that are.
    bounds: Mapping[str, Source] = field(default_factory=dict, compare=False, repr=False)
    problems: tuple[Finding, ...] = ()  #: with what is written; what they concern has been withheld
    source: Source = field(default_factory=Source)

    def may_call(self, query: str) -> bool:
        """Return whether the role has the permitted query *query*."""
        return self.queries is None or any(grant.means(query) for grant in self.queries)

    def rule_of(self, catalog: Catalog, table: Table) -> Rule | None:
        """Return the rule that decides on *table*: the most precise, and of equals the first."""
        precisions = ((rule.precision(catalog, table), rule) for rule in self.rules or ())
        found = [(precision, rule) for precision, rule in precisions if precision is not None]
        return max(found, key=itemgetter(0))[1] if found else None


@dataclass(frozen=True, kw_only=True)
class Lens:
    """What a role sees of a catalog, and what is withheld from it, with the rule that would grant that."""

    catalog: Catalog
    views: tuple[tuple[Table, Rule, Sequence[str]], ...] = ()  #: that show what is not granted, and why
    columns: tuple[tuple[Table, Rule, str], ...] = ()  #: by name, that are computed from what is not seen


def restrict(catalog: Catalog, role: Role) -> Catalog:
    """Return the part of *catalog* that *role* has been granted."""
    return lens_of(catalog, role).catalog


def lens_of(catalog: Catalog, role: Role) -> Lens:
    """Return the part of *catalog* that *role* has been granted, and what of it shows the rest."""
    bare = replace(catalog, warnings=(), posture=(), unreadable={})
    if role.rules is None:
        return Lens(catalog=bare)
    seen: dict[Location, Table] = {}
    rules: dict[Location, Rule] = {}
    columns: list[tuple[Table, Rule, str]] = []
    for table in catalog.whole.tables:
        rule = role.rule_of(catalog, table) if catalog.table(*table.location) else None
        if rule is None or rule.grant is None:
            continue
        revealing = tuple(_revealing_columns(table, rule.grant))
        left = _narrowed(table, rule.grant, revealing)
        if left.columns:
            seen[table.location], rules[table.location] = left, rule
            columns += [(table, rule, name) for name in revealing]
    views = [
        (table, rules[place], reasons)
        for place, table in seen.items()
        if (reasons := list(_betrayed(catalog.whole, table, rules[place].grant, seen)))
    ]
    for view, *_ in views:
        del seen[view.location]
    tables = tuple(_linked(table, seen) for table in seen.values())
    return Lens(catalog=replace(bare, tables=tables), views=tuple(views), columns=tuple(columns))


def _betrayed(
    whole: Catalog, view: Table, grant: Grant | None, seen: Mapping[Location, Table]
) -> Iterator[str]:
    """Yield what *view* shows and a role that is granted *seen* does not see, in words."""
    if view.reads is None or grant is None or grant.accept_reads:
        return
    reads = whole.reads_of(view)
    yield from uncovered(reads, whole, seen)
    for place in sorted({place[:2] for place in reads.columns}):
        if place in seen and not seen[place].aggregated:
            yield f"{label_of(whole, place)}, whose rows the role may not aggregate"


def uncovered(reads: Reads, whole: Catalog, seen: Mapping[Location, Table]) -> Iterator[str]:
    """Yield what *reads* holds and a role that is granted *seen* does not see as it is, in words."""
    yield from reads.others
    places: dict[Location, list[str]] = {}
    for schema, name, column in sorted(reads.columns):
        places.setdefault((schema, name), []).append(column)
    for place, columns in places.items():
        label = label_of(whole, place)
        table = seen.get(place)
        if table is None:
            yield f"{label}, which the role does not see"
            continue
        known = table.column_by_name
        hidden = [each for each in columns if each and each not in known]
        masked = [each for each in columns if each in known and known[each].type.mask is not None]
        if hidden:
            yield f"{', '.join(hidden)} of {label}, which the role does not see"
        if masked:
            yield f"{', '.join(masked)} of {label}, masked for the role"
        if table.filter is not None:
            yield f"{label}, of which the role sees some rows"


def label_of(whole: Catalog, place: Location) -> str:
    """Return the label of the table at *place* in *whole*, or its qualified name if it has none."""
    table = whole.table(*place)
    return whole.label(table) if table is not None else ".".join(filter(None, place))


def series(parts: Sequence[str]) -> str:
    """Return *parts*, which contain commas, as one enumeration."""
    *first, last = parts
    return f"{'; '.join(first)}; and {last}" if first else last


def _narrowed(table: Table, grant: Grant, revealing: Sequence[str]) -> Table:
    """Return what *grant* leaves of *table* without *revealing* columns, its foreign keys as they are.

    A column that the login cannot read is left only if its mask reads no cell.
    """
    columns = tuple(column for column in _shown(table, grant) if column.name not in revealing)
    plain = {column.name for column in columns if column.type.mask is None}
    whole = len(plain) == len(table.columns) and grant.filter is None
    if whole and grant.aggregate:
        return table
    columns = tuple(_searched(column, plain, grant) if column.text_index else column for column in columns)
    if not whole:
        # How a column is computed may name one that is hidden.
        columns = tuple(replace(each, default=None) if each.generated else each for each in columns)
    return replace(
        table,
        columns=columns,
        keys=tuple(key for key in table.keys if plain.issuperset(key.columns)),
        # A number of the row may be a hidden key by another name, and an estimate counts hidden rows.
        row_identifier=table.row_identifier if whole else None,
        row_estimate=table.row_estimate if grant.filter is None and grant.aggregate else None,
        filter=grant.filter,
        aggregated=grant.aggregate,
    )


def _searched(column: Column, plain: Set[str], grant: Grant) -> Column:
    """Return *column* with its full-text index, if that shows nothing besides the *plain* columns.

    A rank that depends on other rows or columns would show how often a word is in those that are hidden.
    """
    index = column.text_index
    if index is None or not index.reads <= plain:
        return replace(column, text_index=None)
    ranked = not index.weighs or (grant.filter is None and index.weighs <= plain)
    return replace(column, text_index=replace(index, ranked=ranked))


def _shown(table: Table, grant: Grant) -> Iterator[Column]:
    """Yield the columns of *table* that *grant* shows, masked as it says."""
    for column in table.columns:
        granted = grant.columns is None or column.name in grant.columns
        readable = column.type is not UNREADABLE or grant.masks.get(column.name) in BLANK
        if granted and readable and column.name not in grant.exclude:
            yield _masked(column, grant.masks.get(column.name))


def _revealing_columns(table: Table, grant: Grant) -> Iterator[str]:
    """Yield the generated columns that are computed from what *grant* hides or masks, and not named by it."""
    if grant.accept_reads or not any(column.sources for column in table.columns):
        return
    plain = {column.name for column in _shown(table, grant) if column.type.mask is None}
    asked = set(grant.columns or ())
    while found := [name for name in plain - asked if not table.column_by_name[name].sources <= plain]:
        yield from sorted(found)
        plain.difference_update(found)


def _masked(column: Column, mask: Mask | None) -> Column:
    if mask is None:
        return column
    type = ColumnType(
        family=Family.TEXT, name="masked", equatable=False, ordered=False, large=True, mask=mask
    )
    return Column(name=column.name, type=type, comment=column.comment)


def _linked(table: Table, seen: Mapping[Location, Table]) -> Table:
    """Return *table* with the foreign keys that are seen; *table* itself, which roles share, if all are."""
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


def masked_rows(
    types: Sequence[ColumnType], rows: Sequence[tuple[object, ...]], key: bytes
) -> tuple[tuple[object, ...], ...]:
    """Return *rows*, whose cells have *types*, with each cell masked as its type says.

    Masked cells pass here alone, so none is shown whatever a statement has read.
    """
    masks = [(at, type.mask) for at, type in enumerate(types) if type.mask is not None]
    shown = list(map(list, rows))
    for cells in shown:
        for at, mask in masks:
            cells[at] = masked(cells[at], mask, key)
    return tuple(map(tuple, shown))


def masked(cell: object, mask: Mask, key: bytes) -> str | None:
    """Return what *mask* shows of *cell*, which may be a Cut; *key* is that of the hashes."""
    if mask is Mask.REDACT:
        return REDACTED
    if mask is Mask.NULL or cell is None:
        return None
    if isinstance(cell, Cut):
        # The hash of a beginning would equal that of another cell; a beginning is no address.
        return f"{_text(cell.start)[:1]}…" if mask is Mask.PARTIAL else REDACTED
    text = _text(cell)
    if mask is Mask.PARTIAL:
        address = ADDRESS.fullmatch(text)
        return f"{text[:1]}…" + (f"@{address[1]}" if address else "")
    # HMAC-SHA256 (RFC 2104) has a key, so that a digest cannot be found by trial.
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGITS]


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else str(plain(cell))
