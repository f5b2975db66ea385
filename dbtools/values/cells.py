"""Encode and mask cells. A cell in, a JSON value or a text out; every cell has an encoding.

Numbers that a double cannot hold become strings, as do NaN and infinities; bytes become base64. A cell of
another type than its column declares, as some databases allow, is encoded by its own type.
"""

import base64
import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from types import NoneType
from typing import Any

import orjson

from dbtools.values.types import SAFE_INTEGER, ColumnType, Digits, Family, Mask

Encode = Callable[[object], object]

DEEPEST_CELL = 60  #: levels of a JSON cell; a deeper cell is shown as text

#: Shown as JSON escapes: Cc but tab and line ends, Zl, Zp, Cf, and what has Default_Ignorable_Code_Point
#: (Unicode 15.0, DerivedCoreProperties.txt).
BASIC = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
INVISIBLE = re.compile(
    f"[{BASIC}\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a]"
)
SUSPECT = re.compile(f"[{BASIC}\U000110bd-\U0001d17a]")  #: with others: few ranges are searched faster
SURROGATES = re.compile("[\ud800-\udfff]")
SPECIAL = re.compile('[",\r\n]')  #: characters for which a CSV cell is quoted

class_of = type  #: the built-in function, under a name that no parameter shadows
INFINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
JSON_CLASSES = {str, bool, NoneType}  #: classes whose cells are always JSON values
INTEGERS = {int, NoneType}
FLOATS = {float, NoneType}

MEDIA_TYPES: tuple[tuple[bytes, int, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", 0, "image/png"),
    (b"\xff\xd8\xff", 0, "image/jpeg"),
    (b"GIF87a", 0, "image/gif"),
    (b"GIF89a", 0, "image/gif"),
    (b"WEBP", 8, "image/webp"),
    (b"WAVE", 8, "audio/wav"),
    (b"ID3", 0, "audio/mpeg"),
    (b"\xff\xfb", 0, "audio/mpeg"),
    (b"OggS", 0, "audio/ogg"),
    (b"fLaC", 0, "audio/flac"),
    (b"%PDF-", 0, "application/pdf"),
)

REDACTED = "***"
DOMAIN_LABEL = r"[^\W_](?:(?:[^\W_]|-){0,61}[^\W_])?"
#: Only the domain is shown (RFC 1035, 2.3.1).
ADDRESS = re.compile(
    rf'(?:"[^"]{{1,64}}"|[^\s@"]{{1,64}})@((?=.{{1,253}}$){DOMAIN_LABEL}(?:\.{DOMAIN_LABEL})+)'
)
HASH_DIGITS = 16  #: hexadecimal digits of a hashed cell
#: Characters or bytes that are read of a masked cell. No ADDRESS has more than 320.
READ_OF_MASKED: Mapping[Mask, int] = {Mask.NULL: 1, Mask.REDACT: 1, Mask.PARTIAL: 320, Mask.HASH: 10_000}
#: Masks that show the same for all cells, so that no cell needs to be read.
BLANK = (Mask.NULL, Mask.REDACT)


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The beginning of a cell that is too long to read whole."""

    start: str | bytes
    length: int  #: of the whole cell, in characters or bytes

    def __len__(self) -> int:
        """Return the number of characters or bytes that have been read."""
        return len(self.start)


SIZED = {str, bytes, Cut}  #: classes of cells that may be large


def media_type(content: bytes) -> str:
    """Return the MIME type of *content*, by its first bytes."""
    for magic, offset, type in MEDIA_TYPES:
        if content[offset : offset + len(magic)] == magic and (offset == 0 or content[:4] == b"RIFF"):
            return type
    return "application/octet-stream"


def cut_text(cut: Cut) -> str:
    """Return the text for a *cut* cell: its beginning and full length, or the type of its bytes."""
    if isinstance(cut.start, bytes):
        return f"[{cut.length:,} bytes, {media_type(cut.start)}]"
    return f"{cut.start}… [{cut.length:,} characters]"


def is_media(type: str) -> bool:
    """Return whether clients display content of this MIME *type*."""
    return type.startswith(("image/", "audio/"))


def encoder(type: ColumnType) -> Encode:
    """Return the function that turns a cell of *type* into a JSON value."""
    if type.rounded:
        return _rounded_value
    match type.family:
        case Family.BOOLEAN:
            return _boolean
        case Family.JSON:
            return _json
        case Family.BYTES:
            return _bytes
        case Family.ARRAY | Family.OBJECT:
            return lambda cell: _nested_value(cell, type)
        case _:
            return json_value


def encode_column(type: ColumnType, cells: Sequence[object], kinds: Set[type[object]]) -> Sequence[object]:
    """Return the JSON values of *cells* of one column of *type*; *kinds* are the classes of the cells."""
    encode = encoder(type)
    if Cut in kinds:
        return [cut_text(cell) if isinstance(cell, Cut) else encode(cell) for cell in cells]
    # The cells of most columns are JSON values already.
    if kinds <= JSON_CLASSES and encode in (json_value, _boolean):
        return cells
    if encode is json_value and _are_numbers(cells, kinds):
        return cells
    return list(map(encode, cells))


def _are_numbers(cells: Sequence[Any], kinds: Set[type[object]]) -> bool:
    """Return whether *cells* are nulls and numbers that JSON can represent exactly."""
    if kinds <= INTEGERS:
        return max(map(abs, filter(None, cells)), default=0) <= SAFE_INTEGER
    # If one is not finite, neither is the sum.
    return kinds <= FLOATS and math.isfinite(sum(filter(None, cells)))


def _rounded_value(cell: object) -> object:
    """Return the JSON value of a sum or an average, to the 15 significant digits that a double holds."""
    finite = isinstance(cell, float) and math.isfinite(cell)
    return float(f"{cell:.15g}") if finite else json_value(cell)


def json_value(cell: object) -> object:
    """Return the JSON value of *cell*, by its Python type alone."""
    if cell is None or cell.__class__ is str:
        return cell
    if cell.__class__ is int:
        return cell if -SAFE_INTEGER <= cell <= SAFE_INTEGER else str(cell)
    if cell.__class__ is float:
        return cell if math.isfinite(cell) else INFINITE.get(cell, "NaN")
    match cell:
        case bool():
            return cell
        case Decimal():
            return format(cell, "f") if cell.is_finite() else str(cell)
        case bytes() | bytearray() | memoryview():
            return {"base64": base64.b64encode(cell).decode()}
        case list() | tuple() | set() | frozenset():
            return [json_value(each) for each in cell]
        case Mapping():
            return {str(name): json_value(each) for name, each in cell.items()}
        case _:
            return str(cell)


def _boolean(cell: object) -> object:
    return bool(cell) if cell.__class__ is int and cell in (0, 1) else json_value(cell)


def _bytes(cell: object) -> object:
    if isinstance(cell, bytes):
        return base64.b64encode(cell).decode()
    # A text in a column of bytes must not look like base64.
    return {"text": cell} if isinstance(cell, str) else json_value(cell)


def _json(cell: object) -> object:
    if not isinstance(cell, str):
        return json_value(cell)
    try:
        value = _loads(cell, _integer, _float_of)
    except (ValueError, RecursionError):
        return cell
    return cell if _is_deep(cell, value) else value


def _loads(text: str, integer: Callable[[str], object], number: Callable[[str], object]) -> object:
    value: object = json.loads(text, parse_int=integer, parse_float=number, parse_constant=str)
    return value


def _integer(digits: str) -> int | str:
    # Python rejects integers with thousands of digits.
    if len(digits.lstrip("-")) > 16:
        return str(digits)
    value = int(digits)
    return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(digits)


def _float_of(digits: str) -> float | str:
    value = float(digits)
    try:
        exact = math.isfinite(value) and Decimal(repr(value)) == Decimal(digits)
    except InvalidOperation:
        # Not even Decimal can hold an exponent of twenty digits.
        exact = False
    return value if exact else str(digits)


def _is_deep(text: str, value: object) -> bool:
    return text.count("[") + text.count("{") > DEEPEST_CELL and _depth(value, DEEPEST_CELL) > DEEPEST_CELL


def _depth(value: object, most: int) -> int:
    if most < 0:
        return 1
    if not isinstance(value, dict | list):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max((_depth(each, most - 1) for each in parts), default=0)


def _nested_value(cell: object, type: ColumnType) -> object:
    """Encode an array or composite that the database returned as JSON, by the types of its parts."""
    if not isinstance(cell, str):
        return json_value(cell)
    try:
        value = _loads(cell, Digits, Digits)
        return cell if _is_deep(cell, value) else _encode(value, type)
    except (ValueError, RecursionError):
        return cell


def _encode(value: object, type: ColumnType | None) -> object:
    match value:
        case list():
            element = type.element if type else None
            # All dimensions of an array share one element type.
            return [_encode(each, type if isinstance(each, list) and element else element) for each in value]
        case dict():
            types = dict(type.fields) if type else {}
            return {name: _encode(each, types.get(name)) for name, each in value.items()}
        case _:
            return _part(value, type.family if type else None)


def _part(value: object, family: Family | None) -> object:
    match family, value:
        case Family.DECIMAL, Digits():
            return str(value)
        case Family.NUMBER, Digits():
            return float(value)
        case _, Digits():
            return _integer(value) if value.lstrip("-").isdigit() else _float_of(value)
        case Family.BYTES, str() if value.startswith("\\x"):
            return base64.b64encode(bytes.fromhex(value[2:])).decode()
        case Family.TIMESTAMPTZ, str():
            return value.replace("+00:00", "Z", 1)
        case _:
            return json_value(value)


def json_of(value: object) -> str:
    """Encode *value* as compact JSON, with invisible characters escaped and invalid text replaced."""
    try:
        text = orjson.dumps(value)
    except TypeError:
        # It cannot encode half a surrogate pair.
        text = utf8_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")), slash=r"\\").encode()
    # orjson escapes all other control characters.
    return text.decode() if text.isascii() and b"\x7f" not in text else escape(text.decode())


def size(value: object) -> int:
    """Return the size of *value* as JSON, in bytes."""
    return bytes_of(json_of(value))


def bytes_of(text: str) -> int:
    """Return the size of *text* in bytes."""
    return len(text) if text.isascii() else len(text.encode())


def length_of(cells: Iterable[Any]) -> int:
    """Return the total length of the texts and bytes among *cells*."""
    return sum([len(cell) for cell in cells if type(cell) in SIZED])


def csv_line(row: Sequence[object]) -> str:
    """Return a *row* of JSON values as CSV, in the format of COPY: null is empty, '' is ""."""
    return ",".join(map(_csv_cell, row))


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if value == "":
        return '""'
    text = escape(utf8_text(value)) if isinstance(value, str) else json_of(value)
    return '"' + text.replace('"', '""') + '"' if SPECIAL.search(text) else text


def shorten_cell(cell: object, encode: Encode, longest: int) -> object:
    """Cut *cell*, as *encode* shows it, to *longest* characters or bytes."""
    if isinstance(cell, Cut):
        return replace(cell, start=cell.start[:longest])
    if isinstance(cell, bytes):
        return cell if len(cell) <= longest else Cut(start=cell[:longest], length=len(cell))
    value = encode(cell)
    text = value if isinstance(value, str) else json_of(value)
    return cell if len(text) <= longest else Cut(start=text[:longest], length=len(text))


def escape(text: str) -> str:
    """Return *text* with invisible characters as JSON escapes."""
    is_plain = text.isascii() and text.isprintable()
    return text if is_plain else SUSPECT.sub(lambda found: _escape_character(found[0]), text)


@lru_cache(maxsize=1_024)
def _escape_character(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return re.sub("(....)", r"\\u\1", units) if INVISIBLE.match(character) else character


def one_line(text: str) -> str:
    """Return *text* as one line without invisible characters: for names, which anyone may have chosen."""
    return escape(" ".join(text.splitlines()))


def is_json(text: str) -> bool:
    """Return whether *text* is JSON."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def utf8_text(text: str, slash: str = "\\") -> str:
    """Return *text* with escapes, which begin with *slash*, for what UTF-8 cannot encode."""
    return text if text.isascii() else SURROGATES.sub(lambda found: slash + _code(found[0]), text)


def _code(surrogate: str) -> str:
    unit = ord(surrogate)
    # Python represents an invalid byte of UTF-8 as U+DC80 to U+DCFF (PEP 383).
    return f"x{unit - 0xDC00:02x}" if 0xDC80 <= unit <= 0xDCFF else f"u{unit:04x}"


def masked_rows(
    types: Sequence[ColumnType], rows: Sequence[tuple[object, ...]], key: bytes
) -> tuple[tuple[object, ...], ...]:
    """Return *rows* with the masks of *types* applied; *key* is for hashes.

    Each column has a separate key, so that equal cells of two columns have different hashes.
    Masked cells reach callers only through this function, whatever a statement has read.
    """
    masks = [
        (at, type.mask, hmac.digest(key, type.place.encode("utf-8", "surrogatepass"), "sha256"))
        for at, type in enumerate(types)
        if type.mask is not None
    ]
    shown = list(map(list, rows))
    for cells in shown:
        for at, mask, own in masks:
            cells[at] = mask_cell(cells[at], mask, own)
    return tuple(map(tuple, shown))


def mask_cell(cell: object, mask: Mask, key: bytes) -> str | None:
    """Apply *mask* to *cell*, which may be a Cut; *key* is for hashes."""
    if mask is Mask.REDACT:
        return REDACTED
    if mask is Mask.NULL or cell is None:
        return None
    if isinstance(cell, Cut):
        # The beginning of a cell may have the hash of another cell, and is not an address.
        return f"{_text(cell.start)[:1]}…" if mask is Mask.PARTIAL else REDACTED
    text = _text(cell)
    if mask is Mask.PARTIAL:
        address = ADDRESS.fullmatch(text)
        return f"{text[:1]}…" + (f"@{address[1]}" if address else "")
    # The key of HMAC-SHA256 (RFC 2104) keeps callers from finding a value by trial.
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:HASH_DIGITS]


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else str(json_value(cell))
