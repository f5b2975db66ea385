"""Masks: what is shown of the cells of a column that may not be read. Any cell in, a text or null out."""

import hashlib
import hmac
from collections.abc import Sequence

from dbtools.cells import plain
from dbtools.column_types import ColumnType, Mask

REDACTED = "***"
DIGITS = 16  #: hexadecimal, of a hashed cell


def masked_rows(
    types: Sequence[ColumnType], rows: Sequence[tuple[object, ...]], key: bytes
) -> tuple[tuple[object, ...], ...]:
    """Return *rows*, whose cells have *types*, with each cell masked as its type says.

    Of masked cells nothing else comes by here, so none is shown whatever a statement has read.
    """
    masks = [(at, type.mask) for at, type in enumerate(types) if type.mask is not None]
    if not masks:
        return tuple(rows)
    shown: list[tuple[object, ...]] = []
    for row in rows:
        cells = list(row)
        for at, mask in masks:
            cells[at] = masked(cells[at], mask, key)
        shown.append(tuple(cells))
    return tuple(shown)


def masked(cell: object, mask: Mask, key: bytes) -> str | None:
    """Return what *mask* shows of *cell*; *key* is that of the hashes."""
    if mask is Mask.REDACT:
        return REDACTED
    if mask is Mask.NULL or cell is None:
        return None
    text = cell if isinstance(cell, str) else str(plain(cell))
    return _partial(text) if mask is Mask.PARTIAL else _hash(text, key)


def _partial(text: str) -> str:
    name, at, domain = text.rpartition("@")
    is_address = bool(at and name and domain) and not any(each.isspace() for each in text)
    return f"{text[:1]}…" + (f"@{domain}" if is_address else "")


def _hash(text: str, key: bytes) -> str:
    """Return a keyed digest: HMAC-SHA256 (RFC 2104), so that nobody can try out what gives it."""
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGITS]
