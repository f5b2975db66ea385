"""What a role sees, as the temporary views of a worker's connection. A FreeRun in, a specification out."""

import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools.backends.free import FreeRun
from dbtools.backends.sources import Element, column_of, source
from dbtools.backends.sqlite.files import Location
from dbtools.backends.sqlite.grammar import CLAIM_CASTS, SqliteGrammar
from dbtools.backends.sqlite.syntax import fold, lexis
from dbtools.backends.sqlite.types import LEAST, MOST
from dbtools.catalog import Catalog, Column, RowFilter, Table, TableKind
from dbtools.errors import Denied
from dbtools.masks import ADDRESS, READ_OF_MASKED, REDACTED
from dbtools.policy import uncovered
from dbtools.sql import Group, Kind, Part, Token, code_of, grouped, scan, words
from dbtools.types import UNSENDABLE, Mask

#: Functions that only compute a value from their arguments, the clock or chance.
FUNCTIONS = words(
    """
    abs char coalesce concat concat_ws format glob hex if ifnull iif instr length like likelihood likely lower
    ltrim max min nullif octet_length printf quote random replace round rtrim sign soundex sqlite_version
    substr substring trim typeof unhex unicode unistr unistr_quote unlikely upper zeroblob
    current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch
    avg count group_concat median percentile percentile_cont percentile_disc string_agg sum total
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
    acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi
    pow power radians sin sinh sqrt tan tanh trunc
    -> ->> json json_array json_array_insert json_array_length json_each json_error_position json_extract
    json_group_array json_group_object json_insert json_object json_patch json_pretty json_quote json_remove
    json_replace json_set json_tree json_type json_valid jsonb jsonb_array jsonb_array_insert jsonb_extract
    jsonb_group_array jsonb_group_object jsonb_insert jsonb_object jsonb_patch jsonb_remove jsonb_replace
    jsonb_set bm25 highlight match matchinfo offsets snippet
    """
)
FILE_OF = "main"  #: the schema that the operator sees in explanations
#: Words that end the list of tables after FROM.
ENDS = words("where group order limit having union intersect except window returning")
NAMES = (Kind.WORD, Kind.NAME, Kind.TEXT)


@dataclass(frozen=True, kw_only=True)
class View:
    """The temporary view that stands for a table of which a role does not see everything."""

    name: str
    sql: str


@dataclass(frozen=True, kw_only=True)
class Lens:
    """What the names in the statements of one role, with its claims, stand for."""

    direct: tuple[str, ...]  #: tables that are read under their own names
    views: tuple[View, ...]
    withheld: tuple[str, ...]  #: names of tables whose rows may not be aggregated


def lens_of(run: FreeRun, schema: str, mask: str) -> Lens:
    """Return what the names in *run* stand for, with the file as *schema* and the function *mask*.

    Raise Denied if a claim is missing that a row filter needs.
    """
    seen = {table.location: table for table in run.catalog.tables}
    direct = tuple(
        table.name for table in run.catalog.tables if table.aggregated and _is_whole(table, run.whole, seen)
    )
    return Lens(
        direct=direct,
        views=tuple(
            View(name=table.name, sql=_view(table, run.claims, schema, mask))
            for table in run.catalog.tables
            if table.aggregated and table.name not in direct and any(_shown(table))
        ),
        withheld=tuple(table.name for table in run.catalog.tables if not table.aggregated),
    )


def specification(lens: Lens, location: Location, stamp: str, schema: str, mask: str) -> Mapping[str, Any]:
    """Return what a worker needs to open *location* through *lens*."""
    immutable = "&immutable=1" if location.immutable else ""
    return {
        "path": location.name,
        "uri": f"{location.path.as_uri()}?mode=ro{immutable}",
        "stamp": stamp,
        "schema": schema,
        "mask": mask,
        "address": ADDRESS.pattern,
        "longest": READ_OF_MASKED[Mask.PARTIAL],
        "functions": sorted(FUNCTIONS),
        "tables": lens.direct,
        "views": [(view.name, random_name(), view.sql) for view in lens.views],
    }


def random_name() -> str:
    """Return a name that no caller can guess."""
    return f"x{secrets.token_hex(16)}"


def claims_of(catalog: Catalog) -> tuple[str, ...]:
    """Return the claims that the row filters of *catalog* need."""
    filters = [table.filter for table in catalog.tables if table.filter is not None]
    asked = (parameter.claim for each in filters for parameter in each.condition.parameters)
    return tuple(sorted({claim for claim in asked if claim is not None}))


def _is_whole(table: Table, whole: Catalog, seen: Mapping[tuple[str, str], Table]) -> bool:
    """Return whether *table* hides nothing of what it is in *whole*, and nothing beneath it."""
    full = whole.table(*table.location)
    if full is None or table.filter is not None or any(each.type.mask for each in table.columns):
        return False
    # A view hides rows, as a filter does, if the role does not see everything that it reads.
    hides = table.kind is TableKind.VIEW and any(uncovered(whole.reads_of(full), whole, seen))
    return not hides and len(table.columns) == len(full.columns)


def _shown(table: Table) -> Iterator[Column]:
    """Yield the columns of *table*; the database cannot compute the mask `hash`."""
    yield from (column for column in table.columns if column.type.mask is not Mask.HASH)


def _view(table: Table, claims: Mapping[str, object], schema: str, mask: str) -> str:
    """Return the SELECT of *table*: its filter is evaluated first, behind a barrier."""
    filter = None if table.filter is None else qualified(table.filter, schema)
    grammar = FreeGrammar(claims)
    whole = source(
        replace(table, schema=schema, filter=filter),
        "t",
        grammar,
        grammar.names,
        guarded=True,
        tied={},
        searched=False,
    )
    if (filter or table.kind is TableKind.VIEW) and isinstance(whole, sa.Subquery):
        assert isinstance(whole.element, sa.Select)
        # SQLAlchemy would bind the -1 before an OFFSET, and a view has no parameters.
        whole = whole.element.limit(sa.literal_column("-1")).subquery("t")
    cells = (
        _cell(column_of(whole, each.name), each, mask).label(quoted_name(each.name, quote=True))
        for each in _shown(table)
    )
    return str(sa.select(*cells).select_from(whole).compile(dialect=grammar.dialect))


def _cell(cell: Element, column: Column, mask: str) -> Element:
    match column.type.mask:
        case Mask.REDACT:
            return sa.literal_column(literal(REDACTED))
        case Mask.PARTIAL:
            function = getattr(sa.func, mask)
            shown: Element = function(sa.cast(cell, sa.BLOB), sa.func.typeof(cell))
            return shown
        case _:
            return cell


class FreeGrammar(SqliteGrammar):
    """The Grammar of views, which have no parameters: claims become literals."""

    def __init__(self, claims: Mapping[str, object]) -> None:
        self._claims = claims
        self.names: dict[str, str] = {}  #: of the claims, by parameter

    def claim(self, name: str, cast: str) -> Element:
        """Return the claim as a literal, cast to *cast*, or bare so that it takes a column's affinity."""
        bare: Element = sa.literal_column(literal(self._claims.get(self.names[name])))
        return sa.cast(bare, CLAIM_CASTS[cast]()) if cast else bare


def literal(value: object) -> str:
    """Return the SQL of *value*, which equals the bound parameter; raise Denied if there is none."""
    match value:
        case bool():
            return str(int(value))
        case int() if LEAST < value <= MOST:
            return f"({value})" if value < 0 else str(value)
        case float() if math.isinf(value):
            return "9e999" if value > 0 else "(-9e999)"
        case float() if not math.isnan(value):
            return f"({value!r})"
        case str() if not UNSENDABLE.search(value):
            return "'" + value.replace("'", "''") + "'"
        case _:
            raise Denied


def qualified(filter: RowFilter, schema: str) -> RowFilter:
    """Return *filter* with the tables in its subqueries in *schema*: their bare names are the caller's."""
    sql = filter.condition.text
    whole = grouped(code_of(sql, lexis), sql)
    written, end = "", 0
    for offset in sorted(token.offset for token in _tables(whole)):
        written += f"{sql[end:offset]}{schema}."
        end = offset
    return replace(filter, condition=scan(written + sql[end:], lexis)) if end else filter


def _tables(whole: Group) -> Iterator[Token]:
    """Yield the unqualified names of tables after FROM, JOIN and IN, and between commas after FROM."""
    defined = {fold(name.value) for group in whole.groups() for name in _defined(group.parts)}
    for group in whole.groups():
        for token in _named(group):
            if fold(token.value) not in defined:
                yield token


def _defined(parts: list[Part]) -> Iterator[Token]:
    """Yield the names of common table expressions among *parts*."""
    for at, part in enumerate(parts):
        if part.word == "as" and parts[at + 1 : at + 4] and _opens_query(parts[at + 1 : at + 4]):
            before = parts[at - 1] if isinstance(parts[at - 1], Token) else parts[at - 2]
            if isinstance(before, Token):
                yield before


def _opens_query(parts: list[Part]) -> bool:
    left = [part for part in parts if part.word not in ("not", "materialized")]
    return isinstance(left[0], Group) if left else False


def _named(group: Group) -> Iterator[Token]:
    first = group.words[0] if group.parts else ""
    within = expects = False
    # The parts of a join in parentheses, as in FROM (a JOIN b).
    joined = "join" in group.words and first not in ("select", "with", "values")
    within = expects = joined
    around = ["", "", *group.words, ""]
    for at, part in enumerate(group.parts, 2):
        word = part.word
        if (word == "from" and around[at - 1] != "distinct") or word == "join":
            within = expects = True
        elif word == "in" or (word == "," and within):
            expects = True
        else:
            is_name = isinstance(part, Token) and part.kind in NAMES
            if expects and is_name and around[at + 1] not in (".", "("):
                assert isinstance(part, Token)
                yield part
            expects = False
            within = within and word not in ENDS
