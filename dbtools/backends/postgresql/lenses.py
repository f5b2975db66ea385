"""What a role sees of a table, as SQL for free statements. A table in, pieces of SQL and claims out."""

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
from dbtools.masks import READ_OF_MASKED, REDACTED
from dbtools.types import ColumnType, Mask

#: Stands before and after the name of a parameter, and occurs nowhere else.
PLACE = f"dbtools{secrets.token_hex(16)}"
LABEL = "[[:alnum:]](?:[[:alnum:]-]{0,61}[[:alnum:]])?"
#: The address in masks.ADDRESS, as PostgreSQL writes it; what it finds is the domain. Which letters beyond
#: ASCII it may have depends on the locale of the database.
DOMAIN = rf'^(?:"[^"]{{1,64}}"|[^[:space:]@"]{{1,64}})@((?=.{{1,253}}$){LABEL}(?:\.{LABEL})+)$'


class LensGrammar(PostgresqlGrammar):
    """The Grammar of lenses, in which parameters can be numbered later."""

    hides_statistics = True

    def claim(self, name: str, cast: str) -> Element:
        """Return the parameter *name*, to be replaced by its number."""
        return sa.cast(sa.literal_column(f"{PLACE}{name}{PLACE}"), Named(cast or "pg_catalog.text"))


GRAMMAR = LensGrammar()
TEXT = Named("pg_catalog.text")


def lens(table: Table, whole: Catalog) -> Sequence[tuple[str, str]] | None:
    """Return the SQL of what a role sees of *table*, as pairs of a text and a claim; None if it sees all.

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


@lru_cache(maxsize=1_000)
def _written(table: Table) -> Sequence[tuple[str, str]]:
    shown = [column for column in table.columns if column.type.mask is not Mask.HASH]
    claims: dict[str, str] = {}
    rows = source(table, "t", GRAMMAR, claims, guarded=True, tied={}, searched=False)
    cells = (_cell(rows, column).label(quoted_name(column.name, quote=True)) for column in shown)
    compiled = sa.select(*cells).select_from(rows).compile(dialect=GRAMMAR.dialect)
    texts = re.split(f"{PLACE}(.*?){PLACE}", str(compiled))
    after = (claims[name] for name in texts[1::2])
    return tuple(zip(texts[::2], [*after, ""], strict=True))


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
        case Mask.NULL:
            return sa.cast(sa.null(), TEXT)
        case Mask.REDACT:
            return sa.cast(sa.literal_column(f"'{REDACTED}'"), TEXT)
        case _:
            return _partial(sa.cast(cell, TEXT))


def _partial(text: Element) -> Element:
    """Return the first character of *text*, and the domain if it is an address, as masks.masked does."""
    system = sa.func.pg_catalog
    most: Element = sa.literal_column(str(READ_OF_MASKED[Mask.PARTIAL] + 1))
    domain = system.substring(system.left(text, most), sa.literal_column(f"'{DOMAIN}'"))
    part = sa.case((domain.is_not(sa.null()), system.concat(sa.literal_column("'@'"), domain)))
    first = system.left(text, sa.literal_column("1"))
    return sa.case((text.is_not(sa.null()), system.concat(first, sa.literal_column("'…'"), part)))
