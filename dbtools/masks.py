"""Masks: what is shown of the cells of a column that may not be read. Any cell in, a text or null out."""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

from dbtools.cells import Cut, plain
from dbtools.types import ColumnType, Mask

REDACTED = "***"
LABEL = r"[^\W_](?:(?:[^\W_]|-){0,61}[^\W_])?"
#: What is shown of it is a domain (RFC 1035, 2.3.1) or nothing.
ADDRESS = re.compile(rf'(?:"[^"]{{1,64}}"|[^\s@"]{{1,64}})@((?=.{{1,253}}$){LABEL}(?:\.{LABEL})+)')
DIGITS = 16  #: hexadecimal, of a hashed cell
#: Characters (or bytes, of bytes) that are read of a masked cell. No ADDRESS is longer than 320.
LONGEST: Mapping[Mask, int] = {Mask.NULL: 1, Mask.REDACT: 1, Mask.PARTIAL: 320, Mask.HASH: 10_000}


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
    """Return what *mask* shows of *cell*, which may be a Cut; *key* is that of the hashes."""
    if mask is Mask.REDACT:
        return REDACTED
    if mask is Mask.NULL or cell is None:
        return None
    if isinstance(cell, Cut):
        # The hash of a beginning would equal that of another cell; a beginning is no address.
        return f"{_text(cell.start)[:1]}…" if mask is Mask.PARTIAL else REDACTED
    text = _text(cell)
    if mask is Mask.PARTIAL:
        address = ADDRESS.fullmatch(text)
        return f"{text[:1]}…" + (f"@{address[1]}" if address else "")
    # HMAC-SHA256 (RFC 2104) has a key, so that nobody can try out what gives a digest.
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGITS]


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else str(plain(cell))
