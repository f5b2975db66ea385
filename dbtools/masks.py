"""Mask cells. A cell in, the part that a role may see out."""

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

from dbtools.cells import Cut, plain
from dbtools.types import ColumnType, Mask

REDACTED = "***"
LABEL = r"[^\W_](?:(?:[^\W_]|-){0,61}[^\W_])?"
#: Only the domain is shown (RFC 1035, 2.3.1).
ADDRESS = re.compile(rf'(?:"[^"]{{1,64}}"|[^\s@"]{{1,64}})@((?=.{{1,253}}$){LABEL}(?:\.{LABEL})+)')
DIGITS = 16  #: hexadecimal digits of a hashed cell
#: Characters or bytes that are read of a masked cell. No ADDRESS has more than 320.
READ_OF_MASKED: Mapping[Mask, int] = {Mask.NULL: 1, Mask.REDACT: 1, Mask.PARTIAL: 320, Mask.HASH: 10_000}
#: Masks that show the same for all cells, so that no cell needs to be read.
BLANK = (Mask.NULL, Mask.REDACT)


def masked_rows(
    types: Sequence[ColumnType], rows: Sequence[tuple[object, ...]], key: bytes
) -> tuple[tuple[object, ...], ...]:
    """Return *rows* with the masks of *types* applied.

    Only this function lets masked cells through, whatever a statement has read.
    """
    masks = [(at, type.mask) for at, type in enumerate(types) if type.mask is not None]
    shown = list(map(list, rows))
    for cells in shown:
        for at, mask in masks:
            cells[at] = masked(cells[at], mask, key)
    return tuple(map(tuple, shown))


def masked(cell: object, mask: Mask, key: bytes) -> str | None:
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
    return hmac.new(key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGITS]


def _text(cell: object) -> str:
    return cell if isinstance(cell, str) else str(plain(cell))
