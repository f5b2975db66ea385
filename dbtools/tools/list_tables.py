"""The tool `list_tables`: which tables there are, those that match a search first."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools.catalog import Table, TableKind
from dbtools.cells import size
from dbtools.errors import listing
from dbtools.paging import Position, Total, digest, read_cursor, write_cursor
from dbtools.results import Answer, ResultSet, write
from dbtools.tools.arguments import DEFAULT_LIMIT, Arguments, Count, read, schema_of
from dbtools.tools.definition import Setting, Settled, ToolDefinition
from dbtools.tools.search import MOST_WORDS, fit, words_of
from dbtools.tools.tables import limited_schema
from dbtools.tools.wording import cleaned

LONGEST_COMMENT = 120
LONGEST_SEARCH = 200  #: characters
ROOM_FOR_REST = 400  #: bytes for all but the tables
MOST_NEAR = 10  #: tables that are shown where none matches


class TablesArguments(Arguments):
    """Arguments of `list_tables`."""

    search: Annotated[str, Field(max_length=LONGEST_SEARCH)] = Field(
        default="", description="words of names and comments, or a pattern such as sales.*_2024"
    )
    limit: Count = Field(default=DEFAULT_LIMIT, ge=1)
    cursor: str = Field(default="", description="next_cursor of the page before")


TABLES_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "table_count": {"type": "integer"},
        "truncated": {"type": "boolean"},
        "tables": {"type": "array", "items": {"type": "object"}},
        "next_cursor": {"type": "string"},
        "note": {"type": "string"},
    },
    "required": ["table_count", "truncated", "tables"],
}


@dataclass(frozen=True, kw_only=True)
class ListTables:
    """`list_tables` for one catalog."""

    setting: Setting
    name: str = "list_tables"
    table: None = None

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return ToolDefinition(
            name=self.name,
            title="List tables",
            description=(
                f"List the {len(self.setting.labels):,} tables and views with comments and estimates of "
                "rows, those that match search first. Then describe_tables for columns and paths."
            ),
            input_schema=limited_schema(self.setting, schema_of(TablesArguments)),
            output_schema=TABLES_SCHEMA,
        )

    def bind(self, arguments: Mapping[str, object]) -> "TablesCall":
        """Return the call that lists the tables that *arguments* search for."""
        asked = read(TablesArguments, arguments, bounds={"limit": self.setting.limits.max_rows})
        search = asked.search.strip()
        mark = digest("list_tables", search, self.setting.labels)
        start = read_cursor(asked.cursor, mark, Total(order=(), keyset=False)) if asked.cursor else Position()
        limit = min(asked.limit, self.setting.limits.max_rows)
        return TablesCall(setting=self.setting, search=search, start=start.skip, limit=limit, mark=mark)


@dataclass(frozen=True, kw_only=True)
class TablesCall(Settled):
    """A call of `list_tables` whose arguments have been read."""

    setting: Setting
    search: str
    start: int
    limit: int
    mark: str
    statement: None = None

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the page of tables, as many as fit."""
        matching = found_tables(self.setting, self.search) if self.search else self.setting.catalog.tables
        note = ""
        if not matching and self.search:
            near = listing(self._nearest())
            note = "No table matches" + (f"; the nearest names: {near}." if near else ".")
        elif self.search and not _has_all_words(self.setting, matching[0], self.search):
            note = "No table has all of these words."
        shown = self._page(matching)
        end = self.start + len(shown)
        structured: dict[str, object] = {
            "table_count": len(matching),
            "truncated": end < len(matching),
            "tables": shown,
        }
        if end < len(matching):
            structured["next_cursor"] = write_cursor(Position(skip=end), self.mark)
        if note:
            structured["note"] = note
        structured, text = write(structured, None, self.setting.style)
        return Answer(
            structured=structured, text=text, rows=len(shown), truncated=bool(structured["truncated"])
        )

    def _nearest(self) -> Iterator[str]:
        folded = {label.lower(): label for label in self.setting.labels}
        wanted = self.search.strip("*?").lower()
        return (folded[each] for each in get_close_matches(wanted, folded, n=MOST_NEAR, cutoff=0.5))

    def _page(self, tables: Sequence[Table]) -> list[object]:
        room = self.setting.limits.max_bytes - ROOM_FOR_REST
        shown: list[object] = []
        for table in tables[self.start : self.start + self.limit]:
            entry = _entry(self.setting.catalog.label(table), table)
            room -= size(entry) + 1
            if room < 0 and shown:
                break
            shown.append(entry)
        return shown


def _entry(label: str, table: Table) -> dict[str, object]:
    optional = {
        "kind": "" if table.kind is TableKind.TABLE else str(table.kind),
        "comment": cleaned(table.comment, LONGEST_COMMENT),
        "row_estimate": table.row_estimate,
    }
    return {"name": label} | {name: value for name, value in optional.items() if value not in ("", None)}


def found_tables(setting: Setting, search: str) -> tuple[Table, ...]:
    """Return the tables that *search* finds, the best first: by all of its words before some, then by fit."""
    catalog = setting.catalog
    if 0 < search.count("*") + search.count("?") <= MOST_WORDS:
        pattern = search.lower()
        names = ((table, (table.name.lower(), catalog.qualified(table).lower())) for table in catalog.tables)
        found = [table for table, each in names if any(fnmatchcase(name, pattern) for name in each)]
        if found:
            # What has the least beside the pattern matches best.
            return tuple(sorted(found, key=lambda table: len(table.name)))
    words = words_of(search)
    ranked = []
    for at, table in enumerate(catalog.tables):
        fits = [fit for word in words if (fit := _fit(table, catalog.qualified(table), word))]
        if fits:
            ranked.append((-len(fits), -sum(fits), len(table.name), at, table))
    return tuple(table for *_, table in sorted(ranked, key=lambda each: each[:-1]))


def _has_all_words(setting: Setting, table: Table, search: str) -> bool:
    qualified = setting.catalog.qualified(table)
    return bool(set(search) & set("*?")) or all(_fit(table, qualified, word) for word in words_of(search))


def _fit(table: Table, qualified: str, word: str) -> int:
    return fit(word, table.name, table.comment, qualified=qualified, group=table.schema)


def define(setting: Setting) -> Iterator[ListTables]:
    """Yield the one `list_tables`."""
    yield ListTables(setting=setting)
