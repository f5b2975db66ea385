"""Render results. A ResultSet in; an Answer that fits the limits and is equal in both channels out."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from itertools import accumulate, takewhile
from typing import Any

import orjson

from dbtools import errors
from dbtools.answers.styles import Text
from dbtools.policy.roles import Limits
from dbtools.schema.catalog import Location
from dbtools.statements.select import Output
from dbtools.statements.write import EarlierCall, WriteShape, pair_rows, without_none
from dbtools.values.cells import (
    SIZED,
    Cut,
    bytes_of,
    class_of,
    csv_line,
    encode_column,
    encoder,
    is_media,
    json_of,
    length_of,
    media_type,
    shorten_cell,
    size,
)

Record = Mapping[str, object]  #: the cells of a row by column
SHORTEST_CUT = 20  #: characters of a cell that are always kept
LARGEST_MEDIA = 1_000_000  #: bytes of attachments to one row
#: Bytes that an image or audio counts as at most: a model reads one in about 2,000 tokens.
MOST_MEDIA_COST = 6_000


@dataclass(kw_only=True)
class ResultSet:
    """Rows as the driver returned them."""

    outputs: tuple[Output, ...]
    rows: tuple[tuple[object, ...], ...]
    more: bool = False  #: whether the statement has more rows
    length: int | None = None  #: characters and bytes of the cells, if counted

    @cached_property
    def columns(self) -> tuple[tuple[object, ...], ...]:
        """The cells of each output; empty without rows."""
        return tuple(zip(*self.rows, strict=True))

    @cached_property
    def kinds(self) -> tuple[frozenset[type[object]], ...]:
        """The classes of the cells of each output."""
        return tuple(frozenset(map(class_of, column)) for column in self.columns)

    @property
    def is_cut(self) -> bool:
        """Whether any cell is cut."""
        return any(Cut in kinds for kinds in self.kinds)

    def is_longer(self, most: int) -> bool:
        """Return whether the cells have more than *most* characters and bytes."""
        if self.length is not None:
            return self.length > most
        columns = zip(self.columns, self.kinds, strict=True)
        return sum(length_of(column) for column, kinds in columns if kinds & SIZED) > most


@dataclass(kw_only=True)
class Changed(ResultSet):
    """The rows of a transaction as they are after it, or, if they were deleted, as they were before."""

    shape: WriteShape  #: of the first write
    before: tuple[tuple[object, ...] | None, ...]  #: updated rows as they were; None for an inserted one
    affected: int
    #: Rows that the role does not see after the change, as they were and as they are; None: no such row.
    left: tuple[tuple[object, ...] | None, ...] = ()
    left_after: tuple[tuple[object, ...] | None, ...] = ()
    ignored: int = 0  #: rows that an upsert left as they were
    dry_run: bool  #: whether it was rolled back
    #: If counted: other tables whose rows change, by sets of their places, and how many rows.
    elsewhere: Sequence[tuple[frozenset[Location], int]] = ()
    unchecked: bool = False  #: whether constraints were left out that only COMMIT checks
    earlier: EarlierCall | None = None  #: nothing was done, because this call had done it
    #: How it was confirmed: "elicitation" or "token".
    confirmed: str | None = None

    def records(self, most: int | None = None) -> tuple[Sequence[Record], Sequence[Record | None]]:
        """Return the first *most* rows, and those before the change, as JSON values by column."""
        return self._records(self.rows[:most]), self._known_records(self.before[:most])

    def left_records(self, most: int | None = None) -> Sequence[Record]:
        """Return the first *most* rows that the role does not see any more, as they were."""
        return self._records(without_none(self.left)[:most])

    def left_changes(self, most: int) -> Sequence[tuple[Record | None, Record | None]]:
        """Return the first *most* rows that the role does not see after the change, before it and after it.

        Callers must not get what is after it.
        """
        pairs = (self._known_records(each[:most]) for each in (self.left, self.left_after))
        return list(zip(*pairs, strict=True))

    def _known_records(self, rows: tuple[tuple[object, ...] | None, ...]) -> Sequence[Record | None]:
        return list(pair_rows(self._records(without_none(rows)), rows))

    def _records(self, rows: tuple[tuple[object, ...], ...]) -> Sequence[Record]:
        names = [output.term.name for output in self.outputs]
        encoded = encode_rows(replace(self, rows=rows), names, Text.JSON).rows
        return [dict(zip(names, row, strict=True)) for row in encoded]


@dataclass(frozen=True, kw_only=True)
class Media:
    """The bytes of one cell, attached to a result."""

    uri: str
    type: str  #: MIME
    content: bytes

    @property
    def size(self) -> int:
        """Its size in a message in bytes, as base64."""
        return -(-len(self.content) // 3) * 4


@dataclass(frozen=True, kw_only=True)
class Link:
    """A link to a whole cell that is cut in the result."""

    uri: str
    name: str
    type: str  #: MIME


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A change that was previewed, and happens when it is confirmed."""

    token: str
    question: str  #: for a person: what would happen, in plain text


@dataclass(kw_only=True)
class Answer:
    """The result of a call: structured content, the same as text, and attachments."""

    json: str  #: the structured content, encoded once for both channels
    csv: str = ""  #: the text channel, if it is not the JSON
    media: tuple[Media, ...] = ()
    links: tuple[Link, ...] = ()
    rows: int = 0
    truncated: bool = False
    changed: Changed | None = field(default=None, repr=False)  #: what the call changed, for the audit log
    pending: Pending | None = field(default=None, repr=False)  #: what must be confirmed first

    @property
    def text(self) -> str:
        """The text channel."""
        return self.csv or self.json

    @cached_property
    def structured(self) -> Mapping[str, object]:
        """The structured content, decoded."""
        content: Mapping[str, object] = orjson.loads(self.json)
        return content


@dataclass(frozen=True, kw_only=True)
class EncodedRows:
    """Rows as JSON values with their column names; each format is encoded once."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    text: Text = Text.JSON  #: the format of the lines

    @cached_property
    def json(self) -> str:
        """The rows as JSON."""
        return json_of(self.rows)

    @cached_property
    def parts(self) -> Sequence[str]:
        """Each row as JSON."""
        return [json_of(row) for row in self.rows]

    @cached_property
    def lines(self) -> Sequence[str]:
        """Each row as a line of the text channel."""
        return list(map(csv_line, self.rows)) if self.text is Text.CSV else self.parts


def encode_rows(found: ResultSet, names: Sequence[str], text: Text) -> EncodedRows:
    """Return the first `len(names)` outputs of *found* as JSON values."""
    shown = zip(names, found.outputs, found.columns, found.kinds, strict=False)
    columns = [encode_column(output.term.type, cells, kinds) for _, output, cells, kinds in shown]
    return EncodedRows(columns=tuple(names), rows=list(zip(*columns, strict=True)), text=text)


def too_wide_error() -> errors.BadArgument:
    """Return the error for columns so wide that their names, or a single row, do not fit."""
    return errors.BadArgument(
        "One row of these columns is larger than max_tokens.", hint="Ask for fewer columns."
    )


class Reserve(IntEnum):
    """Bytes that an answer reserves for everything except its rows, entries or cells."""

    ROWS = 800  #: of a table, without a cursor
    QUERY = 600
    TABLES = 400  #: with a cursor
    NOTE = 300


@dataclass(frozen=True, kw_only=True)
class Page:
    """The rows of an answer that fit."""

    found: ResultSet  #: a single row that is too large has cut cells
    table: EncodedRows  #: as JSON values, including the rows that do not fit
    capped: bool  #: whether rows were left out because they do not fit
    next_cursor: str = ""

    @property
    def truncated(self) -> bool:
        """Whether there are more rows."""
        return self.found.more or self.capped

    @property
    def json(self) -> str:
        """The rows as JSON."""
        count, table = len(self.found.rows), self.table
        # Reuse the JSON of the rows that was made to measure them.
        if count < len(table.rows) or table.text is Text.CSV:
            return f"[{','.join(table.parts[:count])}]"
        return table.json


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The size limit of one answer, and the format of its text channel."""

    limits: Limits
    text: Text = Text.JSON
    reserved: int  #: bytes for everything except rows, entries or cells

    @property
    def room(self) -> int:
        """The bytes available for rows, entries or cells."""
        return self.limits.max_bytes - self.reserved

    def fitting_count(self, sizes: Iterable[int], beside: int = 0) -> int:
        """Return how many values of *sizes* bytes fit, in this order, in addition to *beside* other bytes."""
        return sum(1 for _ in takewhile((self.room - beside).__ge__, accumulate(sizes)))

    def page(
        self, found: ResultSet, names: Sequence[str], *, cursor: Callable[[int], str] = lambda count: ""
    ) -> Page:
        """Return the rows of *found* that fit: at least the first, with cut cells if necessary.

        *cursor* returns the cursor after a number of rows, for a page that more rows follow.
        """
        table = encode_rows(found, names, self.text)
        count = total = len(found.rows)
        if total == 0 and size(table.columns) > self.room:
            raise too_wide_error()
        after = cursor(count) if found.more else ""
        while count and (fits := self.fitting_rows(table, after)) < count:
            count, after = fits, cursor(max(1, fits))
        if count == 0 < total:
            return self.first_row_page(found, names, after if found.more or total > 1 else "")
        kept = found if count == total else replace(found, rows=found.rows[:count])
        return Page(found=kept, table=table, capped=count < total, next_cursor=after)

    def fitting_rows(self, table: EncodedRows, after: str = "") -> int:
        """Return how many rows of *table* fit, with its column names and the cursor *after* them."""
        beside, count = size(table.columns) + len(after), len(table.rows)
        if table.text is Text.JSON and bytes_of(table.json) + beside <= self.room:
            return count
        written = zip(table.parts, table.lines, strict=True)
        sizes = (max(bytes_of(part), bytes_of(line)) + 1 for part, line in written)
        return self.fitting_count(sizes, beside)

    def first_row_page(self, found: ResultSet, names: Sequence[str], after: str) -> Page:
        """Return the first row of *found*, with the cells of *names* cut, and the cursor *after* it."""
        encoders = [encoder(output.term.type) for output in found.outputs[: len(names)]]
        row = found.rows[0]

        def cut(longest: int) -> Page:
            cells = [shorten_cell(cell, encode, longest) for cell, encode in zip(row, encoders, strict=False)]
            smaller = replace(found, rows=((*cells, *row[len(names) :]),), length=None)
            table = encode_rows(smaller, names, self.text)
            return Page(found=smaller, table=table, capped=len(found.rows) > 1, next_cursor=after)

        return cut(self.longest_cell(lambda longest: self.fitting_rows(cut(longest).table, after) == 1))

    def longest_cell(self, fits: Callable[[int], bool]) -> int:
        """Return the maximum length of cells at which a row *fits*, or raise BadArgument."""
        if not fits(SHORTEST_CUT):
            raise too_wide_error()
        lengths = range(SHORTEST_CUT, self.limits.max_bytes)
        return lengths[bisect_left(lengths, True, key=lambda length: not fits(length)) - 1]

    def entries(
        self,
        entries: Iterable[dict[str, object]],
        shorten: Callable[[dict[str, object]], dict[str, object]] = lambda entry: entry,
    ) -> list[object]:
        """Return the *entries* that fit: at least the first, shortened by *shorten* if necessary."""
        room = self.room
        shown: list[object] = []
        for entry in entries:
            room -= size(entry) + 1
            if room < 0:
                return shown or [shorten(entry)]
            shown.append(entry)
        return shown

    def attachments(
        self, row: Mapping[str, object], cells: Mapping[str, object], links: Mapping[str, Link | None]
    ) -> tuple[tuple[Media, ...], list[str]]:
        """Return the attachments among *cells* that fit beside *row*, and the names of media that do not.

        Only cells with one of the *links* are attached; other bytes are part of the row.
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
            cost = min(media.size, MOST_MEDIA_COST) if shown else media.size
            if len(cell) <= free and cost <= room:
                attached.append(media)
                free -= len(cell)
                room -= cost
            elif shown:
                left.append(name)
        return tuple(attached), left

    def rows_answer(
        self,
        page: Page,
        *,
        group_count: int | None = None,
        note: str = "",
        links: tuple[Link, ...] = (),
    ) -> Answer:
        """Return the answer with the rows of *page*."""
        count, columns, more = len(page.found.rows), page.table.columns, _page_notes(page.next_cursor, note)
        more = more if group_count is None else {"group_count": group_count, **more}
        head = json_of({"row_count": count, "truncated": page.truncated, "columns": columns})
        rest = json_of(more) if more else ""
        json = f'{head[:-1]},"rows":{page.json}' + (f",{rest[1:]}" if rest else "}")
        csv = ""
        if page.table.text is Text.CSV:
            complete = "more rows exist" if page.truncated else "complete"
            first = f"# {count} rows, {len(columns)} columns, {complete} {rest}".rstrip()
            csv = "\n".join([first, csv_line(columns), *page.table.lines[:count]])
        return Answer(json=json, csv=csv, links=links, rows=count, truncated=page.truncated)

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
        changed: Changed | None = None,
        pending: Pending | None = None,
    ) -> Answer:
        """Return the answer with *content*; invalid text is replaced in both channels."""
        json = json_of({**content, **_page_notes(next_cursor, note)})
        shown: dict[str, Any] = {"media": media, "links": links, "rows": rows, "truncated": truncated}
        return Answer(json=json, changed=changed, pending=pending, **shown)


def _page_notes(next_cursor: str, note: str) -> Mapping[str, object]:
    return ({"next_cursor": next_cursor} if next_cursor else {}) | ({"note": note} if note else {})
