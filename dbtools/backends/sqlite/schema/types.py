"""The types of SQLite's columns. A declared type in, a ColumnType out; CHECK constraints in, limits out.

A well-known name (DATE, DECIMAL, JSON) takes precedence over SQLite's rules of affinity, which look for parts
of names (https://sqlite.org/datatype3.html, 3.1).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from dbtools.backends.checks import NUMBER_TEXT, Check, limits_of
from dbtools.schema.catalog import Column
from dbtools.values.types import NUMERIC, TEMPORAL, ColumnType, Family

LEAST, MOST = -(2**63), 2**63 - 1  #: of SQLite's integers

FAMILY_OF_NAME: Mapping[str, Family] = {
    "": Family.ANY,
    "any": Family.ANY,
    "bool": Family.BOOLEAN,
    "boolean": Family.BOOLEAN,
    "date": Family.DATE,
    "time": Family.TIME,
    "time with time zone": Family.TIME,
    "time without time zone": Family.TIME,
    "json": Family.JSON,
    "jsonb": Family.JSON,
    "uuid": Family.TEXT,
    "guid": Family.TEXT,
    "decimal": Family.DECIMAL,
    "numeric": Family.DECIMAL,
    "money": Family.DECIMAL,
    # These contain "int", but are not integers.
    "interval": Family.ANY,
    "point": Family.ANY,
    "multipoint": Family.ANY,
}
#: In SQLite's order, after timestamps such as "timestamp(3) with time zone" and "datetime2".
FAMILY_OF_PART = (
    (re.compile("^(timestamp|datetime)"), Family.TIMESTAMP),
    (re.compile("int"), Family.INTEGER),
    (re.compile("char|clob|text"), Family.TEXT),
    (re.compile("blob|binary"), Family.BYTES),
    (re.compile("real|floa|doub"), Family.NUMBER),
)
#: SQLite keeps comments between the words of a type.
COMMENT = re.compile(r"--[^\n]*(\n|$)|/\*.*?(\*/|$)", re.DOTALL)
#: Cells of these families may have any length, even if types are enforced.
LARGE = (Family.TEXT, Family.BYTES, Family.JSON, Family.ANY)

MOMENT = re.compile(r"(\d{4}-\d\d|\d\d:\d\d).*", re.ASCII | re.DOTALL)


@lru_cache(maxsize=1024)
def column_type(declared: str, *, strict: bool, rowid: bool = False) -> ColumnType:
    """Return the type of a column with the *declared* type; *rowid*: it is an alias of the rowid."""
    name = " ".join(COMMENT.sub(" ", declared.lower()).split()) or "any"
    family = _family(name)
    integer = family is Family.INTEGER
    enforced = rowid or (strict and family is not Family.ANY)
    return ColumnType(
        family=family,
        name=name,
        minimum=LEAST if integer else None,
        maximum=MOST if integer else None,
        lenient=not enforced,
        large=not enforced or family in LARGE,
        dated=family in (Family.TEXT, Family.ANY),
        unchecked=family in (Family.TEXT, Family.ANY),
    )


def _family(name: str) -> Family:
    base = re.sub(r" ?\([^)]*\)", "", name).strip()
    if base in FAMILY_OF_NAME:
        return FAMILY_OF_NAME[base]
    return next((family for pattern, family in FAMILY_OF_PART if pattern.search(base)), Family.ANY)


def with_limits(column: Column, checks: Iterable[Check], *, collated: bool) -> Column:
    """Return *column* with the limits of its *checks*; if *collated*, different texts may be equal."""
    family = column.type.family
    certain = () if collated and family not in NUMERIC else checks
    return replace(column, **limits_of((check for check in certain if _is_of(family, check)), family))


def _is_of(family: Family, check: Check) -> bool:
    """Return whether SQLite compares cells of *family* with the literals of *check* as they are written.

    It compares by affinity, so a number that a constraint compares with a text is a text, not a bound.
    """
    numbers = {NUMBER_TEXT.fullmatch(literal) is not None for literal in check.literals}
    if family in NUMERIC:
        return numbers == {True}
    if check.operator == "=":
        return family in (Family.TEXT, Family.ANY) or (family in TEMPORAL and numbers == {False})
    if family in TEMPORAL:
        return MOMENT.fullmatch(check.literals[0]) is not None
    return family is Family.TEXT and numbers == {False}
