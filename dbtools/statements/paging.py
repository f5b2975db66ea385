"""Keyset pagination. An order in, a total order out; a position in, a cursor out, and back.

A cursor contains the last row's values of the terms in the order (or, without a key, how many rows to skip),
and a digest of table, conditions and order. A caller could write all of its values in `where`.
"""

import base64
import binascii
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from dbtools import errors
from dbtools.schema.catalog import Column, Table
from dbtools.schema.uris import key_text
from dbtools.statements.select import Direction, Order
from dbtools.values.types import UNSENDABLE, ColumnType, Family

LONGEST_KEY = 400  #: characters of one value in a cursor; with longer values, the cursor counts rows instead
LONGEST_CURSOR = 200_000  #: characters: of the most values, escaped as JSON and encoded
MOST_SKIPPED = 1_000_000_000
FORGED = "cursor: this is not a cursor of this tool. Omit it to start again."
FOREIGN = (
    "cursor: this cursor belongs to another table, where or order_by, or the table has changed. "
    "Omit it to start again."
)


@dataclass(frozen=True, kw_only=True)
class Position:
    """A place in the order: a number of rows after a row with these values."""

    values: tuple[object, ...] | None = None
    skip: int = 0


@dataclass(frozen=True, kw_only=True)
class TotalOrder:
    """An order without ties; if *keyset* is false, it has no key, and pages use an offset."""

    order: tuple[Order, ...]
    keyset: bool


def total_order(table: Table, wanted: tuple[Order, ...]) -> TotalOrder:
    """Return *wanted* with further terms, so that no two rows of *table* are equal in it."""
    key = table.cursor_key
    columns: Iterable[Column] = key or (each for each in table.columns if each.type.mask is None)
    if not key and table.row_identifier is not None:
        integer = ColumnType(family=Family.INTEGER, name="integer")
        columns = (Column(name=table.row_identifier, type=integer, nullable=False),)
    named = {step.term for step in wanted}
    primary = () if wanted or key else table.key_columns
    then = dict.fromkeys(each for each in (*primary, *columns) if each not in named)
    direction = wanted[-1].direction if wanted else Direction.ASC
    order = (*wanted, *(Order(term=each, direction=direction) for each in then))
    return TotalOrder(order=order, keyset=bool(key) or table.row_identifier is not None)


def after_position(position: Position) -> tuple[tuple[str | None, ...], dict[str, object]]:
    """Return the parameters of the condition "after *position*", with None for null, and their values."""
    named = [(None if value is None else f"k{at}", value) for at, value in enumerate(position.values or ())]
    values: dict[str, object] = {"skip": position.skip} if position.skip else {}
    return tuple(name for name, _ in named), values | {name: value for name, value in named if name}


def next_position(total: TotalOrder, position: Position, returned: int, last: Sequence[object]) -> Position:
    """Return where the next page begins after *returned* rows, the last of which has the values *last*."""
    if total.keyset and all(_fits_cursor(value) for value in last):
        return Position(values=tuple(last))
    return Position(values=position.values, skip=position.skip + returned)


def _fits_cursor(value: object) -> bool:
    if isinstance(value, str | bytes) and len(value) > LONGEST_KEY:
        return False
    if isinstance(value, str):
        return not UNSENDABLE.search(value)
    return isinstance(value, bool | int | float | bytes | None)


def digest(*parts: object) -> str:
    """Return a short digest of *parts*, such as a table, conditions and an order."""
    return hashlib.sha256(orjson.dumps(parts, default=str)).hexdigest()[:12]


def write_cursor(position: Position, mark: str) -> str:
    """Return *position* as a text that `read_cursor` understands with the same *mark*."""
    values = None if position.values is None else [_tag_value(value) for value in position.values]
    return base64.urlsafe_b64encode(orjson.dumps([mark, position.skip, values])).decode().rstrip("=")


def read_cursor(text: str, mark: str, total: TotalOrder) -> Position:
    """Return the position that *text* holds, or raise BadCursor."""
    try:
        content = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        found, skip, tagged = content
        values = None if tagged is None else tuple(_untag_value(value) for value in tagged)
    except (ValueError, TypeError, LookupError, binascii.Error) as exc:
        raise errors.BadCursor(FORGED) from exc
    if found != mark:
        raise errors.BadCursor(FOREIGN)
    if isinstance(skip, bool) or not isinstance(skip, int) or not 0 <= skip <= MOST_SKIPPED:
        raise errors.BadCursor(FORGED)
    if values is not None:
        if not total.keyset or len(total.order) != len(values):
            raise errors.BadCursor(FORGED)
        values = tuple(map(_value_at, total.order, values))
    return Position(values=values, skip=skip)


def _tag_value(value: object) -> object:
    match value:
        case bytes():
            return {"b": base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return {"f": repr(value)}
        case _:
            return value


def _untag_value(value: object) -> object:
    match value:
        case {"b": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"f": str(text)}:
            return float(text)
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise ValueError


def _value_at(step: Order, value: object) -> object:
    """Return *value*, decoded for the term of *step*, or raise BadCursor."""
    type, text = step.term.type, key_text(value)
    too_large = isinstance(value, int) and not -(2**63) <= value < 2**63
    if (value is None and not step.term.nullable) or (value is not None and text is None) or too_large:
        raise errors.BadCursor(FORGED)
    # A caller cannot write some floats, such as infinity.
    if text is None or type.lenient or (type.family is Family.NUMBER and isinstance(value, float)):
        return value
    try:
        return type.decode(text)
    except errors.BadValue as exc:
        raise errors.BadCursor(FORGED) from exc
