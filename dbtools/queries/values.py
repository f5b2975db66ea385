"""The types that a query's parameters have, and what is a value of them. Text in, a comparable value out."""

import json
import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import StrEnum
from math import isfinite
from uuid import UUID

from dbtools.types import LONGEST_NUMBER, UNSENDABLE, quoted

INTEGER = re.compile(r"[+-]?\d{1,19}", re.ASCII)
NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
TIME = re.compile(
    r"(\d\d):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?(Z|([+-])(\d\d)(?::?(\d\d))?)?", re.ASCII | re.IGNORECASE
)
IDENTIFIER = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
DAY = 86_400  #: seconds
LARGEST_OFFSET = 16 * 3600  #: seconds between a zone and Greenwich, as databases know them


class ParameterType(StrEnum):
    """What an argument must be."""

    INTEGER = "integer"
    NUMBER = "number"
    DECIMAL = "decimal"
    TEXT = "text"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    UUID = "uuid"
    JSON = "json"


@dataclass(frozen=True)
class Point:
    """A value of a type whose values have an order."""

    at: Decimal  #: the number itself, or seconds
    zoned: bool = False  #: whether it is a moment in a zone, which no moment without one can be compared with


def value_of(text: str, type: ParameterType) -> Hashable:
    """Return what *text* means, a Point where the values of *type* have an order, or raise ValueError.

    Equal values are equal, however they are written.
    """
    row = ROWS[type]
    try:
        return row.read(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"{quoted(text)} is not {row.wants}") from exc


def items_of(text: str, type: ParameterType) -> Iterator[str]:
    """Yield the items of the array that *text* is, each as a text of its own, or raise ValueError."""
    wants = f"{quoted(text)} is not a JSON array in which each item is {ROWS[type].wants}"
    try:
        array = _json(text)
    except (ValueError, RecursionError) as exc:
        raise ValueError(wants) from exc
    if not isinstance(array, list):
        raise ValueError(wants)
    for each in array:
        if not _is_written_as(each, type):
            raise ValueError(wants)
        yield str(each) if isinstance(each, str) else json.dumps(each)


class _Number(str):
    """A number of a JSON text, as it is written."""


def _json(text: str) -> object:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refused)


def _refused(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def _is_written_as(item: object, type: ParameterType) -> bool:
    """Return whether *item* of a JSON array is of the JSON type that a value of *type* is written as."""
    match type:
        case ParameterType.JSON:
            return True
        case ParameterType.BOOLEAN:
            return isinstance(item, bool)
        case ParameterType.INTEGER | ParameterType.NUMBER:
            return isinstance(item, _Number)
        case ParameterType.DECIMAL:
            return isinstance(item, str)
        case _:
            return isinstance(item, str) and not isinstance(item, _Number)


def _integer(text: str) -> Point:
    if not INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
        raise ValueError
    return Point(Decimal(int(text)))


def _number(text: str) -> Point:
    if not isfinite(value := float(_decimal(text).at)):
        raise ValueError
    return Point(Decimal(value))


def _decimal(text: str) -> Point:
    if len(text) > LONGEST_NUMBER or not NUMBER.fullmatch(text):
        raise ValueError
    return Point(Decimal(text))


def _text(text: str) -> str:
    if UNSENDABLE.search(text):
        raise ValueError
    return text


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError
    return text == "true"


def _date(text: str) -> Point:
    if not DATE.fullmatch(text):
        raise ValueError
    return Point(Decimal(date.fromisoformat(text).toordinal() * DAY))


def _time(text: str) -> Point:
    if not (match := TIME.fullmatch(text)):
        raise ValueError
    minutes, seconds = int(match[2]), Decimal(match[3] or 0)
    offset = int(match[6] or 0) * 3600 + int(match[7] or 0) * 60
    at = int(match[1]) * 3600 + minutes * 60 + seconds
    if at > DAY or minutes > 59 or seconds >= 60 or int(match[7] or 0) > 59 or offset >= LARGEST_OFFSET:
        raise ValueError
    return Point(at + offset if match[5] == "-" else at - offset, zoned=match[4] is not None)


def _timestamp(text: str) -> Point:
    day, time = _date(text[:10]), _time(text[11:])
    if text[10] not in "Tt ":  # there is a time, so there is this character
        raise ValueError
    return Point(day.at + time.at, zoned=time.zoned)


def _uuid(text: str) -> UUID:
    if not IDENTIFIER.fullmatch(text):
        raise ValueError
    return UUID(text)


def _document(text: str) -> str:
    _json(text)
    return text


@dataclass(frozen=True, kw_only=True)
class Row:
    """What is true of the values of one type."""

    read: Callable[[str], Hashable]
    wants: str
    ordered: bool = False


ROWS: Mapping[ParameterType, Row] = {
    ParameterType.INTEGER: Row(read=_integer, wants="an integer of 64 bits such as 42", ordered=True),
    ParameterType.NUMBER: Row(read=_number, wants="a number such as 4.2", ordered=True),
    ParameterType.DECIMAL: Row(read=_decimal, wants="a decimal number such as 19.90", ordered=True),
    ParameterType.TEXT: Row(read=_text, wants="a text that a database takes"),
    ParameterType.BOOLEAN: Row(read=_boolean, wants="true or false"),
    ParameterType.DATE: Row(read=_date, wants="a date such as 2024-03-05", ordered=True),
    ParameterType.TIME: Row(read=_time, wants="a time such as 14:30:00", ordered=True),
    ParameterType.TIMESTAMP: Row(
        read=_timestamp, wants="a date and time such as 2024-03-05T14:30:00Z", ordered=True
    ),
    ParameterType.UUID: Row(read=_uuid, wants="a UUID such as 3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f"),
    ParameterType.JSON: Row(read=_document, wants="JSON"),
}
