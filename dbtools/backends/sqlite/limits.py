"""Which values CHECK constraints leave to a column. A type and what was read of constraints in, limits out.

SQLite compares by affinity, so a number that a constraint compares a text with is a text: that is no bound.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from dbtools.backends.checks import Check
from dbtools.types import NUMERIC, ColumnType, Family

INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)
NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
MOMENT = re.compile(r"(\d{4}-\d\d|\d\d:\d\d).*", re.ASCII | re.DOTALL)
TEMPORAL = (Family.DATE, Family.TIME, Family.TIMESTAMP)


class Limits(NamedTuple):
    """What a Column tells of its CHECK constraints."""

    choices: tuple[str, ...] = ()
    minimum: str | None = None
    maximum: str | None = None


def column_limits(type: ColumnType, checks: Iterable[Check], *, collated: bool) -> Limits:
    """Return the limits of a column of *type*; where it is *collated*, unequal texts may count as equal."""
    checks = [] if collated and type.family not in NUMERIC else list(checks)
    chosen = (check.choices for check in checks if check.choices)
    least = (_bound(type, check.minimum, ">" * check.exclusive_minimum) for check in checks)
    most = (_bound(type, check.maximum, "<" * check.exclusive_maximum) for check in checks)
    return Limits(
        choices=next((each for each in chosen if all(_may_be_choice(type, one) for one in each)), ()),
        minimum=next((each for each in least if each is not None), None),
        maximum=next((each for each in most if each is not None), None),
    )


def _may_be_choice(type: ColumnType, literal: str) -> bool:
    if type.family in NUMERIC:
        return NUMBER.fullmatch(literal) is not None
    if type.family in TEMPORAL:
        return NUMBER.fullmatch(literal) is None
    return type.family in (Family.TEXT, Family.ANY)


def _bound(type: ColumnType, literal: str | None, sign: str) -> str | None:
    if literal is None or not _may_be_bound(type, literal):
        return None
    if sign and type.family is Family.INTEGER and INTEGER.fullmatch(literal):
        return str(int(literal) + (1 if sign == ">" else -1))
    return f"{sign} {literal}" if sign else literal


def _may_be_bound(type: ColumnType, literal: str) -> bool:
    if type.family in NUMERIC:
        return NUMBER.fullmatch(literal) is not None
    if type.family in TEMPORAL:
        return MOMENT.fullmatch(literal) is not None
    return type.family is Family.TEXT and NUMBER.fullmatch(literal) is None
