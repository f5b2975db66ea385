"""The type system: one table of type families. A text from a caller in, the value to bind out.

A backend maps each SQL type to a ColumnType; PARAMETERS has one for each type that queries and settings
declare. `ColumnType.decode` decodes a value from a caller; `cells.encoder` encodes a cell from the driver.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

from dbtools import errors
from dbtools.errors import did_you_mean, listing
from dbtools.values.dates import instant, read_date, read_interval, read_moment, read_time, read_timestamp

SAFE_INTEGER = 2**53 - 1  #: a double, and so most JSON parsers, lose digits of larger integers
LONGEST_NUMBER = 400  #: characters of a number from a caller
WHOLE = re.compile(r"([+-]?\d+)(?:\.0*)?", re.ASCII)
MOST_ENUMERATED = 100  #: choices in a JSON Schema
MOST_DIGITS = 16_000  #: of a decimal number, before and after its point
INVALID_BYTE = re.compile(r"\\x([89a-f][0-9a-f])")  #: as a cell is shown
UNSENDABLE = re.compile("[\0\ud800-\udfff]")  #: characters that a database does not accept in a text


class Operator(StrEnum):
    """How a column is compared with a value."""

    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LTE = "lte"
    GT = "gt"
    GTE = "gte"
    IN = "in"
    NOT_IN = "not_in"
    BETWEEN = "between"
    CONTAINS = "contains"
    STARTS_WITH = "starts_with"
    ENDS_WITH = "ends_with"
    IS_NULL = "is_null"
    MATCHES = "matches"  #: with a full-text index, whatever the type of the column


EQUALITY = (Operator.EQ, Operator.NE, Operator.IN, Operator.NOT_IN, Operator.IS_NULL)
ORDER = (Operator.LT, Operator.LTE, Operator.GT, Operator.GTE, Operator.BETWEEN)
TEXTUAL = (Operator.CONTAINS, Operator.STARTS_WITH, Operator.ENDS_WITH)


class Mask(StrEnum):
    """How a masked column is shown."""

    NULL = "null"  #: as null
    REDACT = "redact"  #: as a fixed text
    PARTIAL = "partial"  #: as the first character, and the domain of an e-mail address
    HASH = "hash"  #: as a keyed digest: equal cells have equal digests


class Family(StrEnum):
    """The kinds of values."""

    INTEGER = "integer"
    NUMBER = "number"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    TEXT = "text"
    ENUM = "enum"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    INTERVAL = "interval"
    UUID = "uuid"
    JSON = "json"
    BYTES = "bytes"
    ARRAY = "array"
    OBJECT = "object"
    OTHER = "other"
    ANY = "any"


NUMERIC = (Family.INTEGER, Family.NUMBER, Family.DECIMAL)
MOMENTS = (Family.TIMESTAMP, Family.TIMESTAMPTZ)
TEMPORAL = (Family.DATE, Family.TIME, *MOMENTS)


class Digits(str):
    """A JSON number as it was written."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class ColumnType:
    """The type of a column, as declared in its database."""

    family: Family
    name: str  #: for people, for example "numeric(10,2)"
    cast: str = ""  #: the quoted SQL name to cast parameters to, if the database needs a cast
    operator_schema: str = ""  #: of the operators that compare its values; empty: they are the system's
    minimum: int | None = None  #: of an integer
    maximum: int | None = None
    infinite: bool = False  #: whether it includes NaN, infinity and dates BC
    lenient: bool = False  #: whether a cell may have another type than the declared one
    labels: tuple[str, ...] = ()  #: of an enum
    element: "ColumnType | None" = None  #: of an array
    fields: tuple[tuple[str, "ColumnType"], ...] = ()  #: of a composite
    equatable: bool = True
    ordered: bool = True
    large: bool = False  #: whether the length of a cell is unbounded
    mask: Mask | None = None  #: a masked column can only be shown
    place: str = ""  #: of a masked column: its schema, table and name, on which a hash depends
    dated: bool = False  #: whether a text may hold a date: the database has no date type
    unchecked: bool = False  #: whether a text may hold bytes that are not UTF-8
    rounded: bool = False  #: whether cells are sums or averages of binary numbers, which are rounded
    #: The SQL name of the collation in which texts are searched, if that of the database knows only ASCII.
    folding: str = field(default="", compare=False)

    def __hash__(self) -> int:
        """Hash only the name; equality compares everything."""
        return hash(self.name)

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators that a column of this type supports."""
        taken = FAMILIES[self.family].operators if self.mask is None else ()
        if not self.equatable:
            # CONTAINS compares the items of an array; a search of a text compares nothing.
            refused = (*EQUALITY[:4], *ORDER, *(TEXTUAL if self.family is Family.ARRAY else ()))
            return tuple(each for each in taken if each not in refused)
        return taken if self.ordered else tuple(each for each in taken if each not in ORDER)

    @property
    def comparable(self) -> bool:
        """Whether no operator raises an error when it compares two values of the column."""
        if self.family in (Family.OTHER, Family.OBJECT) or self.name == "json":
            return False
        return self.element is None or self.element.comparable

    @property
    def expected(self) -> str:
        """The expected form of a value, with an example."""
        if self.labels:
            return f"one of {listing(self.labels)}"
        if self.family is Family.INTEGER and self.minimum is not None:
            return f"an integer from {self.minimum} to {self.maximum}"
        if self.family is Family.ARRAY and self.element is not None:
            return self.element.expected
        return FAMILIES[self.family].expected

    @property
    def trims(self) -> bool:
        """Whether spaces around a value are ignored."""
        return self.family not in (Family.TEXT, Family.ENUM, Family.OTHER, Family.JSON, Family.ANY)

    def schema(self) -> dict[str, object]:
        """Return the JSON Schema of an argument of this type."""
        schema = dict(FAMILIES[self.family].schema)
        if self.family is Family.ARRAY and self.element is not None:
            schema["items"] = self.element.schema()
        return schema | choices_schema(self.labels)

    def decode(self, text: str, place: str = "") -> object:
        """Decode *text*, or raise BadValue with a message that begins with *place*."""
        try:
            return self.read(text)
        except ValueError as exc:
            labels = (self.element or self).labels
            timed = self.family is Family.DATE and instant(text.strip()) is not None
            hint = "A date has no time of day." if timed else did_you_mean(text, labels).rstrip()
            raise errors.BadValue(f"{place}{exc}.", hint=hint) from exc

    def read(self, text: str) -> object:
        """Decode *text*, or raise ValueError with what is expected."""
        if self.element is not None:
            return self.element.read(text.strip())
        row = FAMILIES[self.family]
        try:
            return row.decode(text.strip() if self.trims else text, self)
        except (ValueError, InvalidOperation, RecursionError) as exc:
            # The bounds of an integer do not help a caller who wrote something else.
            beside = self.family is Family.INTEGER and not WHOLE.fullmatch(text.strip())
            raise ValueError(f"{quote(text)} is not {row.expected if beside else self.expected}") from exc

    def comparable_value(self, text: str) -> Any:
        """Decode *text* to a value that is the same for all its spellings, or raise ValueError."""
        value = self.read(text)
        match self.family:
            case Family.INTEGER | Family.NUMBER | Family.DECIMAL:
                return Decimal(str(value))
            case Family.DATE:
                return date.fromisoformat(str(value))
            case Family.TIME:
                return time.fromisoformat(text.upper())
            case Family.TIMESTAMP | Family.TIMESTAMPTZ:
                return datetime.fromisoformat(str(value).upper())
            case _:
                return value


#: The type of masked columns, whose values cannot be compared.
MASKED = ColumnType(family=Family.TEXT, name="masked", equatable=False, ordered=False, large=True)


def masked_type(mask: Mask | None, place: str) -> ColumnType:
    """Return the type of the column at *place* with *mask*, or without one if it may be a secret."""
    name = "masked" if mask is not None else "masked: may be a secret"
    return replace(MASKED, name=name, mask=mask or Mask.REDACT, place=place)


def choices_schema(choices: Sequence[str]) -> dict[str, object]:
    """Return the enum of a JSON Schema for the *choices* of a text, if they are few.

    Not every provider of models accepts '' in an enum, so then a description lists them.
    """
    if "" in choices and len(choices) <= MOST_ENUMERATED:
        return {"description": f"one of {shown_choices(choices)}"}
    return {"enum": list(choices)} if 0 < len(choices) <= MOST_ENUMERATED else {}


def shown_choices(choices: Sequence[str]) -> str:
    """Return *choices* as a list for a description, cut to some hundred characters."""
    return listing([each[:40] or "''" for each in choices], 10)


def lower(text: str) -> str:
    """Return *text* in lower case, letter by letter, as databases search in it: İ is i, and Σ never ς."""
    return text.replace("İ", "i").replace("Σ", "σ").lower()


def quote(text: str, most: int = 60) -> str:
    """Return *text* in single quotes, cut after *most* characters, with control characters escaped."""
    shown = text if len(text) <= most else text[:most] + "…"
    if shown.isprintable():
        return f"'{shown}'"
    return "'" + "".join(each if each.isprintable() else _escape_character(each) for each in shown) + "'"


def _escape_character(character: str) -> str:
    """Return *character* as an escape of JSON, or an invalid byte of UTF-8 as cells show it."""
    if "\udc80" <= character <= "\udcff":  # how Python represents such a byte (PEP 383)
        return f"\\x{ord(character) - 0xDC00:02x}"
    return f"\\u{ord(character):04x}" if character <= "\uffff" else json.dumps(character)[1:-1]


def with_bytes(text: str) -> str | None:
    """Return *text* with bytes for their escapes, as cells are shown, or None if that is valid UTF-8."""
    if "\\x" not in text:
        return None
    bytes_within = INVALID_BYTE.sub(lambda found: chr(0xDC00 + int(found[1], 16)), text)
    try:
        bytes_within.encode(errors="surrogateescape").decode()
    except UnicodeError:
        return bytes_within
    return None


def _integer(text: str, type: ColumnType) -> int:
    if len(text) > LONGEST_NUMBER or not (match := WHOLE.fullmatch(text)):
        raise ValueError
    value = int(match[1])
    least, most = type.minimum, type.maximum
    if (least is not None and value < least) or (most is not None and value > most):
        raise ValueError
    return value


def _ascii(text: str) -> str:
    """Return *text*, or raise ValueError if it has digits that only Python accepts."""
    if len(text) > LONGEST_NUMBER or "_" in text or not text.isascii():
        raise ValueError
    return text


def _number(text: str, type: ColumnType) -> float:
    value = float(_ascii(text))
    if not math.isfinite(value) and not (type.infinite and text.strip("+-").lower()[:3] in ("nan", "inf")):
        raise ValueError
    return value


def _decimal(text: str, type: ColumnType) -> str:
    value = Decimal(_ascii(text))
    if not value.is_finite():
        if value.is_snan() or not type.infinite:
            raise ValueError
        # In Python, NaN may have a sign and digits.
        return "NaN" if value.is_nan() else str(value)
    if max(abs(value.adjusted()), -int(value.as_tuple().exponent)) > MOST_DIGITS:
        raise ValueError
    return str(value)


def _boolean(text: str, type: ColumnType) -> bool:
    is_true = text.lower() in ("true", "t", "1", "yes")
    if not is_true and text.lower() not in ("false", "f", "0", "no"):
        raise ValueError
    return is_true


def _text(text: str, type: ColumnType) -> str:
    if UNSENDABLE.search(text):
        raise ValueError
    return text


def _label(text: str, type: ColumnType) -> str:
    if text not in type.labels:
        raise ValueError
    return text


def _uuid(text: str, type: ColumnType) -> str:
    return str(UUID(_ascii(text)))


def _bytes(text: str, type: ColumnType) -> bytes:
    return base64.b64decode(text, validate=True)


def _json(text: str, type: ColumnType) -> str:
    json.loads(text, parse_constant=_no_value)
    return text


def _no_value(*_: object) -> object:
    raise ValueError


def _any_number(text: str, type: ColumnType) -> object:
    """Decode a number as a number; for equality, the text is compared as well (`binding`)."""
    for name in ("integer", "number"):
        with suppress(ValueError):
            return PARAMETERS[name].read(text)
    return text


STRING: Mapping[str, object] = {"type": "string"}


ORDERED = (*EQUALITY, *ORDER)
SEARCHED = (*ORDERED, *TEXTUAL)
CONTAINING = (Operator.CONTAINS, Operator.IS_NULL)


class FamilyRow(NamedTuple):
    """The properties of all types of one family."""

    decode: Callable[[str, ColumnType], object]
    expected: str
    schema: Mapping[str, object] = STRING
    operators: tuple[Operator, ...] = ORDERED


FAMILIES: Mapping[Family, FamilyRow] = {
    Family.INTEGER: FamilyRow(_integer, "an integer such as 42", {"type": "integer"}),
    Family.NUMBER: FamilyRow(_number, "a number such as 4.2", {"type": "number"}),
    Family.DECIMAL: FamilyRow(_decimal, "a decimal number such as 19.90"),
    Family.BOOLEAN: FamilyRow(_boolean, "true or false", {"type": "boolean"}, EQUALITY),
    Family.TEXT: FamilyRow(_text, "a text", STRING, SEARCHED),
    Family.ENUM: FamilyRow(_label, "a label"),
    Family.DATE: FamilyRow(read_date, "a date such as 2024-03-05", {**STRING, "description": "YYYY-MM-DD"}),
    Family.TIME: FamilyRow(read_time, "a time such as 14:30:00"),
    Family.TIMESTAMP: FamilyRow(read_timestamp, "a date and time such as 2024-03-05T14:30:00"),
    Family.TIMESTAMPTZ: FamilyRow(read_moment, "a date and time such as 2024-03-05T14:30:00Z"),
    Family.INTERVAL: FamilyRow(read_interval, "a duration such as P1DT2H"),
    Family.UUID: FamilyRow(
        _uuid, "a UUID such as 3f2b8c1e-0d4a-4b6e-9c55-1a2b3c4d5e6f", {**STRING, "description": "UUID"}
    ),
    Family.JSON: FamilyRow(_json, "JSON", {**STRING, "description": "JSON"}, CONTAINING),
    Family.BYTES: FamilyRow(
        _bytes, "bytes in base64, such as aGVsbG8=", {**STRING, "description": "base64"}, EQUALITY
    ),
    Family.ARRAY: FamilyRow(_no_value, "one item", {"type": "array", "items": STRING}, CONTAINING),
    Family.OBJECT: FamilyRow(_text, "JSON", {**STRING, "description": "JSON"}, (Operator.IS_NULL,)),
    Family.OTHER: FamilyRow(_text, "a value as the database writes it", STRING, SEARCHED),
    Family.ANY: FamilyRow(_any_number, "a number or a text", STRING, SEARCHED),
}
ParameterName = Literal[
    "integer", "number", "decimal", "text", "boolean", "date", "time", "timestamp", "uuid", "json"
]


def _parameter_type(name: str) -> ColumnType:
    family = Family.TIMESTAMPTZ if name == "timestamp" else Family(name)
    least, most = (-(2**63), 2**63 - 1) if family is Family.INTEGER else (None, None)
    return ColumnType(family=family, name=name, minimum=least, maximum=most)


#: The types that queries declare for parameters, and settings for claims.
PARAMETERS: Mapping[str, ColumnType] = {name: _parameter_type(name) for name in get_args(ParameterName)}
