"""What a role sees of a table, as SQL for free statements. A table in, SQL and the claims in it out."""

import re
import secrets
from collections.abc import Sequence
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.sql import quoted_name

from dbtools.backends.postgresql.arithmetic import Named
from dbtools.backends.postgresql.grammar import PostgresqlGrammar
from dbtools.backends.postgresql.vocabulary import NAMING
from dbtools.backends.sources import Element, column_of, source
from dbtools.catalog import Catalog, Column, Table, TableKind
from dbtools.cells import READ_OF_MASKED, REDACTED
from dbtools.types import ColumnType, Mask

#: Stands before and after the name of a claim, and occurs nowhere else.
MARK = f"dbtools{secrets.token_hex(16)}"
LABEL = "[[:alnum:]](?:[[:alnum:]-]{0,61}[[:alnum:]])?"
#: The address in cells.ADDRESS, as PostgreSQL writes it; what it finds is the domain. Which letters beyond
#: ASCII it may have depends on the locale of the database.
DOMAIN = rf'^(?:"[^"]{{1,64}}"|[^[:space:]@"]{{1,64}})@((?=.{{1,253}}$){LABEL}(?:\.{LABEL})+)$'


TEXT = Named("pg_catalog.text")


class LensGrammar(PostgresqlGrammar):
    """The Grammar of lenses, in which parameters can be numbered later."""

    hides_statistics = True

    def __init__(self) -> None:
        self.claims: dict[str, str] = {}  #: by parameter

    def claim(self, name: str, cast: str) -> Element:
        """Return the claim that the parameter *name* is, to be replaced by its number."""
        return sa.cast(sa.literal_column(f"{MARK}{self.claims[name]}{MARK}"), Named(cast or TEXT.name))


def lens(table: Table, whole: Catalog) -> str | None:
    """Return the SQL of what a role sees of *table*, for `numbered`; None if it sees all.

    *whole*: what the login sees.
    """
    known = whole.table(*table.location)
    names = [column.name for column in table.columns if column.type.mask is None]
    is_whole = known is not None and names == [column.name for column in known.columns]
    is_whole = is_whole and table.location not in whole.unreadable
    is_whole = is_whole and not any(names_objects(column.type) for column in table.columns)
    if is_whole and table.filter is None and table.kind is not TableKind.VIEW:
        return None
    return _written(table)


def numbered(sql: str) -> tuple[str, Sequence[str]]:
    """Return *sql* with parameters for the claims in it, and the claims in their order."""
    texts = re.split(f"{MARK}(.*?){MARK}", sql)
    claims = tuple(dict.fromkeys(texts[1::2]))
    texts[1::2] = [f"${claims.index(claim) + 1}" for claim in texts[1::2]]
    return "".join(texts), claims


@lru_cache(maxsize=1_000)
def _written(table: Table) -> str:
    grammar = LensGrammar()
    rows = source(table, "t", grammar, grammar.claims, guarded=True, tied={}, searched=False)
    shown = [column for column in table.columns if column.type.mask is not Mask.HASH]
    cells = (_cell(rows, column).label(quoted_name(column.name, quote=True)) for column in shown)
    return str(sa.select(*cells).select_from(rows).compile(dialect=grammar.dialect))


def names_objects(type: ColumnType) -> bool:
    """Return whether texts and numbers compared with a value of *type* become names in the database.

    Such a value would reveal which hidden relations exist, so free SQL reads it as a text.
    """
    parts = (*(each for _, each in type.fields), *([type.element] if type.element else []))
    return type.cast.rpartition(".")[2] in NAMING.split() or any(map(names_objects, parts))


def _cell(rows: sa.FromClause, column: Column) -> Element:
    """Return the cell of *column*, masked."""
    cell = column_of(rows, column.name)
    match column.type.mask:
        case None:
            return sa.cast(cell, TEXT) if names_objects(column.type) else cell
        case Mask.NULL | Mask.HASH:
            return sa.cast(sa.null(), TEXT)
        case Mask.REDACT:
            return sa.cast(sa.literal_column(f"'{REDACTED}'"), TEXT)
        case Mask.PARTIAL:
            return _partial(sa.cast(cell, TEXT))


def _partial(text: Element) -> Element:
    """Return the first character of *text*, and the domain if it is an address, as cells.masked does."""
    system = sa.func.pg_catalog
    most: Element = sa.literal_column(str(READ_OF_MASKED[Mask.PARTIAL] + 1))
    domain = system.substring(system.left(text, most), sa.literal_column(f"'{DOMAIN}'"))
    part = sa.case((domain.is_not(sa.null()), system.concat(sa.literal_column("'@'"), domain)))
    first = system.left(text, sa.literal_column("1"))
    return sa.case((text.is_not(sa.null()), system.concat(first, sa.literal_column("'…'"), part)))
