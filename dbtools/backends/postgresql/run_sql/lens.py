"""What a role sees of tables, as SQL for free statements. Tables in, SQL and the claims in it out."""

import re
import secrets
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools.backends.caches import bounded_cache
from dbtools.backends.compile.sources import Element, column_of, source
from dbtools.backends.postgresql.reading.dialect import Named
from dbtools.backends.postgresql.reading.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.schema.vocabulary import NAMING
from dbtools.schema.catalog import Catalog, Column, Table, TableKind
from dbtools.values.cells import READ_OF_MASKED, REDACTED
from dbtools.values.types import ColumnType, Mask

#: Stands before and after the name of a claim, and occurs nowhere else.
MARK = f"dbtools{secrets.token_hex(16)}"
LABEL = "[[:alnum:]](?:[[:alnum:]-]{0,61}[[:alnum:]])?"
#: The address in cells.ADDRESS, as PostgreSQL writes it; what it finds is the domain. Which letters beyond
#: ASCII it may have depends on the locale of the database.
DOMAIN = rf'^(?:"[^"]{{1,64}}"|[^[:space:]@"]{{1,64}})@((?=.{{1,253}}$){LABEL}(?:\.{LABEL})+)$'


TEXT_TYPE = Named("pg_catalog.text")


class LensGrammar(PostgresqlGrammar):
    """The Grammar of lenses, in which parameters can be numbered later."""

    hides_statistics = True

    def __init__(self) -> None:
        self.claims: dict[str, str] = {}  #: by parameter

    def claim(self, name: str, cast: str) -> Element:
        """Return the claim that the parameter *name* is, to be replaced by its number."""
        # Without the inner cast, the server would expect a value of the other type.
        text = sa.cast(sa.literal_column(f"{MARK}{self.claims[name]}{MARK}"), TEXT_TYPE)
        return sa.cast(text, Named(cast or TEXT_TYPE.name))


def is_whole(table: Table, whole: Catalog) -> bool:
    """Return whether a role that sees *table* sees all of it, and reads it without a lens.

    *whole*: what the login sees.
    """
    known = whole.table(*table.location)
    names = [column.name for column in table.columns if column.type.mask is None]
    sees_all = known is not None and names == [column.name for column in known.columns]
    sees_all = sees_all and table.location not in whole.unreadable
    sees_all = sees_all and not any(names_objects(column.type) for column in table.columns)
    return sees_all and table.filter is None and table.kind is not TableKind.VIEW


def lenses(sources: Mapping[Table, str], whole: Catalog) -> tuple[str, Sequence[str]]:
    """Return the SQL to write before a statement, and the claims in it, in the order of their parameters.

    It is WITH and what a role sees of *sources*, tables by the names by which the statement reads them.
    """
    seen = ", ".join(
        f"{name} as not materialized ({_lens_sql(table)})"
        for table, name in sources.items()
        if not is_whole(table, whole)
    )
    texts = re.split(f"{MARK}(.*?){MARK}", f"with {seen}\n" if seen else "")
    claims = tuple(dict.fromkeys(texts[1::2]))
    texts[1::2] = [f"${claims.index(claim) + 1}" for claim in texts[1::2]]
    return "".join(texts), claims


@bounded_cache
def _lens_sql(table: Table) -> str:
    grammar = LensGrammar()
    rows = source(table, "t", grammar, grammar.claims, needs_barrier=True, tied={}, searched=False)
    shown = [column for column in table.columns if column.type.mask is not Mask.HASH]
    cells = (_cell(rows, column).label(quoted_name(column.name, quote=True)) for column in shown)
    return str(sa.select(*cells).select_from(rows).compile(dialect=grammar.dialect))


def names_objects(type: ColumnType) -> bool:
    """Return whether texts and numbers compared with a value of *type* become names in the database.

    Such a value would reveal which hidden relations exist, so ad-hoc SQL reads it as a text.
    """
    parts = (*(each for _, each in type.fields), *([type.element] if type.element else []))
    return type.cast.rpartition(".")[2] in NAMING.split() or any(map(names_objects, parts))


def _cell(rows: sa.FromClause, column: Column) -> Element:
    """Return the cell of *column*, masked."""
    cell = column_of(rows, column.name)
    match column.type.mask:
        case None:
            return sa.cast(cell, TEXT_TYPE) if names_objects(column.type) else cell
        case Mask.NULL | Mask.HASH:
            return sa.cast(sa.null(), TEXT_TYPE)
        case Mask.REDACT:
            return sa.cast(sa.literal_column(f"'{REDACTED}'"), TEXT_TYPE)
        case Mask.PARTIAL:
            return _partial_mask(sa.cast(cell, TEXT_TYPE))


def _partial_mask(text: Element) -> Element:
    """Return the first character of *text*, and the domain if it is an address, as cells.mask_cell does."""
    system = sa.func.pg_catalog
    most: Element = sa.literal_column(str(READ_OF_MASKED[Mask.PARTIAL] + 1))
    domain = system.substring(system.left(text, most), sa.literal_column(f"'{DOMAIN}'"))
    part = sa.case((domain.is_not(sa.null()), system.concat(sa.literal_column("'@'"), domain)))
    first = system.left(text, sa.literal_column("1"))
    return sa.case((text.is_not(sa.null()), system.concat(first, sa.literal_column("'…'"), part)))
