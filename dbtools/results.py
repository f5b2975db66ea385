"""What the database answered, and how it is shown: ResultSet in, Answer out, equal in both channels."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from dbtools import errors
from dbtools.cells import Cut, Encode, class_of, dump, encode_column, encoder, size, valid, visible
from dbtools.policy import Limits
from dbtools.statement import Output
from dbtools.types import ColumnType

SHORTEST_CUT = 20  #: characters that a cell keeps even where a single row is too large
SPECIAL = re.compile('[",\r\n]')  #: what a cell of CSV is quoted for


class Rows(StrEnum):
    """How rows stand in structured content."""

    ARRAYS = "arrays"
    OBJECTS = "objects"


class Text(StrEnum):
    """How the text channel is written."""

    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True, kw_only=True)
class Style:
    """How results are written."""

    rows: Rows = Rows.ARRAYS
    text: Text = Text.JSON


class Surface(StrEnum):
    """How tables are offered."""

    TYPED = "typed"  #: by two tools a table
    GENERIC = "generic"  #: by tools that take the table as an argument
    AUTO = "auto"  #: typed while the definitions fit the budget


@dataclass(frozen=True, kw_only=True)
class Listing:
    """How tools are listed."""

    surface: Surface = Surface.AUTO
    budget: int = 10_000  #: tokens of the definitions of tables, and again of queries
    pin: tuple[str, ...] = ()  #: tables whose own tools are listed on either surface


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How every role is served: how answers are written, and how tools are listed."""

    style: Style = field(default_factory=Style)
    listing: Listing = field(default_factory=Listing)


@dataclass(frozen=True, kw_only=True)
class ResultSet:
    """Rows as the driver read them, in the order of their outputs."""

    outputs: tuple[Output, ...]
    rows: tuple[tuple[object, ...], ...]
    more: bool = False  #: whether the statement has further rows

    def is_longer(self, most: int) -> bool:
        """Return whether the cells hold more than *most* characters and bytes."""
        length = 0
        for row in self.rows:
            starts = [cell.start if isinstance(cell, Cut) else cell for cell in row]
            length += sum([len(cell) for cell in starts if isinstance(cell, str | bytes)])
            if length > most:
                return True
        return False


@dataclass(frozen=True, kw_only=True)
class Media:
    """Bytes of one cell that go along with a result."""

    uri: str
    type: str  #: MIME
    content: bytes

    @property
    def size(self) -> int:
        """How many bytes it takes in a message, where it stands as base64."""
        return -(-len(self.content) // 3) * 4


@dataclass(frozen=True, kw_only=True)
class Link:
    """Where the whole of a cut cell can be read."""

    uri: str
    name: str
    type: str  #: MIME


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a call: structured content, the same as text, and what goes along."""

    structured: Mapping[str, object]
    text: str
    media: tuple[Media, ...] = ()
    links: tuple[Link, ...] = ()
    rows: int = 0
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class Table:
    """Encoded rows under their column names."""

    columns: tuple[str, ...]
    rows: list[list[object]]


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


def media_type(content: bytes) -> str:
    """Return the MIME type that the first bytes of *content* tell (RFC 2046 names)."""
    for magic, offset, type in MEDIA_TYPES:
        if content[offset : offset + len(magic)] == magic and (offset == 0 or content[:4] == b"RIFF"):
            return type
    return "application/octet-stream"


def shown_cut(cut: Cut) -> str:
    """Return how a *cut* cell is shown: its beginning and its full length, or what the bytes are."""
    if isinstance(cut.start, bytes):
        return f"[{cut.length:,} bytes, {media_type(cut.start)}]"
    return f"{cut.start}… [{cut.length:,} characters]"


def encode_rows(found: ResultSet, names: Sequence[str]) -> Table:
    """Return the first `len(names)` outputs of *found* as JSON values."""
    cells = zip(*found.rows, strict=True)
    columns = [_encoded(output.term.type, each) for output, each in zip(found.outputs, cells, strict=False)]
    rows = [list(row) for row in zip(*columns[: len(names)], strict=True)]
    return Table(columns=tuple(names), rows=rows)


def _encoded(type: ColumnType, cells: Sequence[object]) -> Sequence[object]:
    if Cut not in set(map(class_of, cells)):
        return encode_column(type, cells)
    encode = encoder(type)
    return [shown_cut(cell) if isinstance(cell, Cut) else encode(cell) for cell in cells]


def envelope(
    table: Table, style: Style, *, truncated: bool, extra: Mapping[str, object]
) -> dict[str, object]:
    """Return the structured content of *table*'s rows."""
    rows: list[object] = list(table.rows)
    if style.rows is Rows.OBJECTS:
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    structured: dict[str, object] = {"row_count": len(rows), "truncated": truncated}
    return {**structured, "columns": list(table.columns), "rows": rows, **extra}


def fitting(table: Table, style: Style, limits: Limits, *, reserve: int) -> int:
    """Return how many rows of *table* stay below the cap, with *reserve* bytes for what goes around them."""
    room = limits.max_bytes - reserve - size(list(table.columns))
    names = size(list(table.columns)) if style.rows is Rows.OBJECTS else 0
    if style.text is Text.JSON and size(table.rows) + names * len(table.rows) <= room:
        return len(table.rows)
    for index, row in enumerate(table.rows):
        room -= _size_of_row(row, names, style) + 1
        if room < 0:
            return index
    return len(table.rows)


def _size_of_row(row: list[object], names: int, style: Style) -> int:
    structured = size(row) + names
    return structured if style.text is Text.JSON else max(structured, len(_csv_line(row).encode()))


def fitted(found: ResultSet, names: Sequence[str], style: Style, limits: Limits, *, reserve: int) -> Table:
    """Return the rows of *found* that fit beside *reserve* bytes: at least the first, cut if need be."""
    encoded = encode_rows(found, names)
    count = fitting(encoded, style, limits, reserve=reserve)
    if count == 0 and found.rows:
        return encode_rows(narrowed(found, names, style, limits, reserve=reserve), names)
    return Table(columns=encoded.columns, rows=encoded.rows[:count])


def narrowed(
    found: ResultSet, names: Sequence[str], style: Style, limits: Limits, *, reserve: int
) -> ResultSet:
    """Return the first row of *found* alone, the cells under *names* cut until it fits."""
    encoders = [encoder(output.term.type) for output in found.outputs[: len(names)]]
    row = found.rows[0]
    longest = limits.max_bytes
    while longest > SHORTEST_CUT:
        longest //= 2
        cells = [_shortened(cell, encode, longest) for cell, encode in zip(row, encoders, strict=False)]
        smaller = replace(found, rows=((*cells, *row[len(names) :]),))
        if fitting(encode_rows(smaller, names), style, limits, reserve=reserve):
            return smaller
    raise errors.BadArgument(
        "One row of these columns is larger than max_tokens.", hint="Name fewer columns."
    )


def _shortened(cell: object, encode: Encode, longest: int) -> object:
    if isinstance(cell, Cut):
        return replace(cell, start=cell.start[:longest])
    if isinstance(cell, bytes):
        return cell if len(cell) <= longest else Cut(start=cell[:longest], length=len(cell))
    value = encode(cell)
    text = value if isinstance(value, str) else dump(value)[1]
    return cell if len(text) <= longest else Cut(start=text[:longest], length=len(text))


def write(structured: dict[str, object], table: Table | None, style: Style) -> tuple[dict[str, object], str]:
    """Return *structured* and its text; in both, what is no valid text has been replaced."""
    value, text = dump(structured)
    assert isinstance(value, dict)
    if style.text is Text.CSV and table is not None:
        text = csv_text(value, table)
    return value, text


def csv_text(structured: Mapping[str, object], table: Table) -> str:
    """Return a line on rows and completeness, then CSV as COPY writes it: null is empty, '' is ""."""
    complete = "more rows exist" if structured["truncated"] else "complete"
    around = {key: structured[key] for key in ("next_cursor", "note") if key in structured}
    first = f"# {structured['row_count']} rows, {len(table.columns)} columns, {complete}"
    lines = [first + (" " + dump(around)[1] if around else ""), _csv_line(table.columns)]
    lines.extend(map(_csv_line, table.rows))
    return "\n".join(lines)


def _csv_line(row: Sequence[object]) -> str:
    return ",".join(map(_csv_cell, row))


def _csv_cell(value: object) -> str:
    if value is None:
        return ""
    if value == "":
        return '""'
    text = visible(valid(value)) if isinstance(value, str) else dump(value)[1]
    return '"' + text.replace('"', '""') + '"' if SPECIAL.search(text) else text


def is_media(type: str) -> bool:
    """Return whether clients show content of this MIME *type* by itself."""
    return type.startswith(("image/", "audio/"))
