"""What the database answered, and how it is shown: ResultSet in, Answer out, equal in both channels."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from itertools import accumulate, takewhile

from dbtools import errors
from dbtools.cells import (
    Cut,
    Encode,
    dump,
    encode_column,
    encoder,
    is_media,
    media_type,
    shown_cut,
    size,
    valid,
    visible,
)
from dbtools.policy import Limits
from dbtools.statement import Output

SHORTEST_CUT = 20  #: characters that a cell keeps even where a single row is too large
SHORTEST_VALUE = 100  #: bytes that a cell of a single row keeps where it is cut by itself
ROOM_FOR_LENGTH = 40  #: bytes that say how long a cut cell is
LARGEST_MEDIA = 1_000_000  #: bytes of the pictures and sounds that go along with a row
LARGEST_OTHER = 100_000  #: bytes of the other blobs that do
DEAREST = 6_000  #: bytes that a picture or a sound counts as at most: a model takes some 2,000 tokens for it
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

    @property
    def json(self) -> str:
        """TEMPORARY."""
        return dump(self.structured)[1]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Encoded rows under their column names."""

    columns: tuple[str, ...]
    rows: list[list[object]]


def encode_rows(found: ResultSet, names: Sequence[str]) -> Table:
    """Return the first `len(names)` outputs of *found* as JSON values."""
    cells = zip(*found.rows, strict=True)
    shown = zip(names, found.outputs, cells, strict=False)
    columns = [encode_column(output.term.type, each) for _, output, each in shown]
    return Table(columns=tuple(names), rows=list(map(list, zip(*columns, strict=True))))


class Reserve(IntEnum):
    """Bytes that an answer reserves for everything but its rows, entries or cells."""

    ROWS = 800  #: of a table; a cursor is counted besides
    QUERY = 600
    TABLES = 400  #: with a cursor
    NOTE = 300


@dataclass(frozen=True, kw_only=True)
class Page:
    """The rows of an answer that fit."""

    found: ResultSet  #: as they were read; of a single row that is too large the cells are cut
    table: Table  #: as they are shown
    capped: bool  #: whether rows were left out since they do not fit

    @property
    def truncated(self) -> bool:
        """Whether there are further rows."""
        return self.found.more or self.capped


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much one answer may hold, and how it is written."""

    limits: Limits
    style: Style = field(default_factory=Style)
    reserved: int  #: bytes for all but rows, entries or cells

    @property
    def room(self) -> int:
        """How many bytes rows, entries or cells may take."""
        return self.limits.max_bytes - self.reserved

    def fitting(self, sizes: Iterable[int], beside: int = 0) -> int:
        """Return how many values of *sizes* bytes fit *beside* so many bytes, one after the other."""
        return sum(1 for _ in takewhile((self.room - beside).__ge__, accumulate(sizes)))

    def page(
        self, found: ResultSet, names: Sequence[str], *, after: Callable[[int], int] = lambda count: 0
    ) -> Page:
        """Return the rows of *found* that fit: at least the first, cut if need be.

        *after* says how many bytes a number of rows needs besides, such as for a cursor.
        """
        table = encode_rows(found, names)
        count = total = len(found.rows)
        while count and (fits := self.fitting_rows(table, after(count))) < count:
            count = fits
        if count == total:
            return Page(found=found, table=table, capped=False)
        if count == 0:
            found = self.narrowed(found, names, after(1))
            return Page(found=found, table=encode_rows(found, names), capped=total > 1)
        table = Table(columns=table.columns, rows=table.rows[:count])
        return Page(found=replace(found, rows=found.rows[:count]), table=table, capped=True)

    def fitting_rows(self, table: Table, after: int = 0) -> int:
        """Return how many rows of *table* fit beside the names of its columns and *after* bytes."""
        columns, is_csv = size(list(table.columns)), self.style.text is Text.CSV
        names = columns if self.style.rows is Rows.OBJECTS else 0
        room = self.room - after - columns
        if not is_csv and size(table.rows) + names * len(table.rows) <= room:
            return len(table.rows)
        lines = (len(_csv_line(row).encode()) if is_csv else 0 for row in table.rows)
        sizes = (max(size(row) + names, line) + 1 for row, line in zip(table.rows, lines, strict=True))
        return self.fitting(sizes, after + columns)

    def narrowed(self, found: ResultSet, names: Sequence[str], after: int = 0) -> ResultSet:
        """Return the first row of *found* alone, the cells under *names* cut until it fits."""
        encoders = [encoder(output.term.type) for output in found.outputs[: len(names)]]
        row = found.rows[0]
        longest = self.limits.max_bytes
        while longest > SHORTEST_CUT:
            longest //= 2
            cells = [_shortened(cell, encode, longest) for cell, encode in zip(row, encoders, strict=False)]
            smaller = replace(found, rows=((*cells, *row[len(names) :]),))
            if self.fitting_rows(encode_rows(smaller, names), after):
                return smaller
        raise errors.BadArgument(
            "One row of these columns is larger than max_tokens.", hint="Name fewer columns."
        )

    def entries(
        self,
        entries: Iterable[dict[str, object]],
        shorten: Callable[[dict[str, object]], dict[str, object]] = lambda entry: entry,
    ) -> list[object]:
        """Return the *entries* that fit: at least the first, which *shorten* shortens if need be."""
        room = self.room
        shown: list[object] = []
        for entry in entries:
            room -= size(entry) + 1
            if room < 0:
                return shown or [shorten(entry)]
            shown.append(entry)
        return shown

    def cut_longest(
        self, row: Mapping[str, object], cells: Mapping[str, object]
    ) -> tuple[Mapping[str, object], list[str]]:
        """Return *row*, read as *cells*, the longest values cut until it fits, and the names of those cut."""
        cut = [name for name, cell in cells.items() if isinstance(cell, Cut)]
        excess = size({"row": row}) - self.room
        shown = dict(row)
        sizes = {name: size(value) for name, value in row.items()} if excess > 0 else {}
        for name in sorted(sizes, key=lambda name: -sizes[name]):
            if excess <= 0:
                break
            kept = max(SHORTEST_VALUE, sizes[name] - excess - ROOM_FOR_LENGTH)
            shown[name] = _cut_to(cells[name], row[name], kept)
            excess += size(shown[name]) - sizes[name]
            cut += [] if name in cut else [name]
        return shown, cut

    def attached(
        self, row: Mapping[str, object], cells: Mapping[str, object], links: Mapping[str, Link | None]
    ) -> tuple[tuple[Media, ...], list[str]]:
        """Return the bytes among *cells* that fit beside *row*, and the names of the pictures that do not.

        Bytes without one of the *links* stand in the row itself.
        """
        room = self.room - size({"row": row})
        attached: list[Media] = []
        left: list[str] = []
        free = LARGEST_MEDIA
        for name, link in links.items():
            cell = cells[name]
            if not isinstance(cell, bytes) or not cell or link is None:
                continue
            media = Media(uri=link.uri, type=media_type(cell), content=cell)
            shown = is_media(media.type)
            cost = min(media.size, DEAREST) if shown else media.size
            if len(cell) <= (free if shown else min(free, LARGEST_OTHER)) and cost <= room:
                attached.append(media)
                free -= len(cell)
                room -= cost
            elif shown:
                left.append(name)
        return tuple(attached), left

    def rows_answer(
        self, page: Page, *, next_cursor: str = "", note: str = "", links: tuple[Link, ...] = ()
    ) -> Answer:
        """Return the answer that shows *page*."""
        rows: list[object] = list(page.table.rows)
        if self.style.rows is Rows.OBJECTS:
            rows = [dict(zip(page.table.columns, row, strict=True)) for row in page.table.rows]
        content: dict[str, object] = {"row_count": len(rows), "truncated": page.truncated}
        content |= {"columns": list(page.table.columns), "rows": rows}
        told = self.answer(content, rows=len(rows), next_cursor=next_cursor, note=note, links=links)
        text = csv_text(told.structured, page.table) if self.style.text is Text.CSV else told.text
        return replace(told, text=text, truncated=page.truncated)

    def answer(
        self,
        content: Mapping[str, object],
        *,
        rows: int,
        truncated: bool = False,
        next_cursor: str = "",
        note: str = "",
        media: tuple[Media, ...] = (),
        links: tuple[Link, ...] = (),
    ) -> Answer:
        """Return the answer of *content*; in both channels, what is no valid text has been replaced."""
        told = {**content, "next_cursor": next_cursor} if next_cursor else content
        structured, text = dump({**told, "note": note} if note else told)
        assert isinstance(structured, dict)
        return Answer(
            structured=structured, text=text, media=media, links=links, rows=rows, truncated=truncated
        )


def _shortened(cell: object, encode: Encode, longest: int) -> object:
    if isinstance(cell, Cut):
        return replace(cell, start=cell.start[:longest])
    if isinstance(cell, bytes):
        return cell if len(cell) <= longest else Cut(start=cell[:longest], length=len(cell))
    value = encode(cell)
    text = value if isinstance(value, str) else dump(value)[1]
    return cell if len(text) <= longest else Cut(start=text[:longest], length=len(text))


def _cut_to(cell: object, shown: object, most: int) -> str:
    """Return *cell*, or the JSON value *shown* that it is, cut so that it takes about *most* bytes."""
    if isinstance(cell, bytes):
        return shown_cut(Cut(start=cell, length=len(cell)))
    text = shown if isinstance(shown, str) else dump(shown)[1]
    length = len(text)
    if isinstance(cell, Cut) and isinstance(cell.start, str):
        text, length = cell.start, cell.length
    # A character takes a byte at least.
    end = bisect_right(range(min(len(text), most) + 1), most, key=lambda end: size(text[:end])) - 1
    return shown_cut(Cut(start=text[:end], length=length))


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
