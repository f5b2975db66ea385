"""What a role sees, as the temporary views of a worker's connection. A SqlRun in, a specification out."""

import math
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools.backends.compile.sources import Element, column_of, source
from dbtools.backends.runs import SqlRun
from dbtools.backends.sqlite.connection.files import FileLocation
from dbtools.backends.sqlite.reading.grammar import CLAIM_CASTS, SqliteGrammar
from dbtools.backends.sqlite.schema.relations import bound_to_main
from dbtools.backends.sqlite.schema.syntax import fold, names_in
from dbtools.backends.sqlite.schema.types import LEAST, MOST
from dbtools.errors import Denied
from dbtools.policy.roles import FunctionRules
from dbtools.schema.catalog import Catalog, Column, Table, TableKind
from dbtools.schema.sql import words
from dbtools.values.cells import ADDRESS, READ_OF_MASKED, REDACTED
from dbtools.values.types import UNSENDABLE, Mask

#: Functions that only compute a value from their arguments, the clock or chance.
PURE_FUNCTIONS = words(
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
#: Names that mean something else in a subquery on a view, which stands for each table of a row filter.
NOT_OF_VIEWS = words("main temp rowid oid _rowid_ match")
FILE_OF = "main"  #: the schema that the operator sees in explanations


class Lens(NamedTuple):
    """What the names in the statements of one role, with its claims, stand for."""

    direct: tuple[str, ...]  #: tables that are read under their own names
    views: Mapping[str, str]  #: the SELECT for each other table
    named: Mapping[str, frozenset[str]]  #: by view, the folded words of its row filter: tables are among them
    denied: frozenset[str]  #: the folded names of tables whose row filter needs a claim that is missing


def lens_of(run: SqlRun, schema: str) -> Lens:
    """Return what the names in *run* stand for, with the file as *schema*."""
    seen = {table.location: table for table in run.catalog.tables}
    withheld = withheld_of(run)
    tables = [table for table in run.catalog.tables if fold(table.name) not in withheld]
    direct = tuple(table.name for table in tables if _is_whole(table, run.whole, seen))
    views, denied = {}, set()
    for table in tables:
        if table.name not in direct:
            try:
                views[table.name] = _view(table, run.claims, schema)
            except Denied:
                denied.add(fold(table.name))
    named = {table.name: _filter_names(table) for table in tables if table.name in views}
    return Lens(direct=direct, views=views, named=named, denied=frozenset(denied))


def withheld_of(run: SqlRun) -> frozenset[str]:
    """Return the folded names of the tables that callers' SQL cannot read, although the role sees them."""
    bound = frozenset(fold(name) for _, name in bound_to_main(run.whole))
    return frozenset(fold(table.name) for table in run.catalog.tables if _is_withheld(table, bound))


def _is_withheld(table: Table, bound: frozenset[str]) -> bool:
    named = _filter_names(table)
    unlike = "select" in named and named & NOT_OF_VIEWS
    unreadable = not bound.isdisjoint((fold(table.name), *named))
    return not table.aggregated or bool(unlike) or unreadable or not any(_shown_columns(table))


def _filter_names(table: Table) -> frozenset[str]:
    return names_in(table.filter.condition.text) if table.filter else frozenset()


def specification(
    lens: Lens, location: FileLocation, stamp: str, schema: str, functions: FunctionRules
) -> Mapping[str, Any]:
    """Return what a worker needs to open *location* through *lens*."""
    immutable = "&immutable=1" if location.immutable else ""
    return {
        "path": location.name,
        "uri": f"{location.path.as_uri()}?mode=ro{immutable}",
        "stamp": stamp,
        "schema": schema,
        "address": ADDRESS.pattern,
        "longest": READ_OF_MASKED[Mask.PARTIAL],
        "functions": permitted_functions(functions),
        "tables": lens.direct,
        "views": [(name, sql, sorted(lens.named[name])) for name, sql in lens.views.items()],
    }


def permitted_functions(rules: FunctionRules) -> list[str]:
    """Return the functions that *rules* permit."""
    return sorted(name for name in PURE_FUNCTIONS if rules.permits(name, harmless=True))


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
    beneath = (each in seen and _is_whole(seen[each], whole, seen) for each in full.reads)
    return len(table.columns) == len(full.columns) and all(beneath)


def _shown_columns(table: Table) -> Iterator[Column]:
    """Yield the columns of *table*; the database cannot compute the mask `hash`."""
    yield from (column for column in table.columns if column.type.mask is not Mask.HASH)


def _view(table: Table, claims: Mapping[str, object], schema: str) -> str:
    """Return the SELECT of *table*: its filter is evaluated first, behind a barrier.

    Raise Denied if a claim is missing.
    """
    grammar = SqlGrammar(claims)
    there = replace(table, schema=schema)
    whole = source(there, "t", grammar, grammar.names, needs_barrier=True, tied={}, searched=False)
    if (table.filter or table.kind is TableKind.VIEW) and isinstance(whole, sa.Subquery):
        assert isinstance(whole.element, sa.Select)
        # SQLAlchemy would bind the -1 before an OFFSET, and a view has no parameters.
        whole = whole.element.limit(sa.literal_column("-1")).subquery("t")
    cells = (
        _cell(column_of(whole, each.name), each, schema).label(quoted_name(each.name, quote=True))
        for each in _shown_columns(table)
    )
    return str(sa.select(*cells).select_from(whole).compile(dialect=grammar.dialect))


def _cell(cell: Element, column: Column, schema: str) -> Element:
    match column.type.mask:
        case None:
            return cell
        case Mask.NULL | Mask.HASH:
            return sa.null()
        case Mask.REDACT:
            return sa.literal_column(literal(REDACTED))
        case Mask.PARTIAL:
            function = getattr(sa.func, f"{schema}_mask")
            shown: Element = function(sa.cast(cell, sa.BLOB), sa.func.typeof(cell))
            return shown


class SqlGrammar(SqliteGrammar):
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
