"""The tool `list_tables`: which tables there are, those that match a search first."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated

from pydantic import Field

from dbtools.catalog import Catalog, Table, TableKind
from dbtools.errors import listing
from dbtools.paging import Position, Total, digest, read_cursor, write_cursor
from dbtools.results import Answer, Reserve
from dbtools.tools.arguments import DEFAULT_LIMIT, Arguments, Count, read
from dbtools.tools.definition import STRING, TABLES, GeneralTool, Setting, Settled, content_schema
from dbtools.tools.search import MOST_WORDS, fit, found_by, words_of
from dbtools.tools.wording import cleaned, told

LONGEST_COMMENT = 120
LONGEST_SEARCH = 200  #: characters
MOST_NEAR = 10  #: tables that are shown where none matches


class TablesArguments(Arguments):
    """Arguments of `list_tables`."""

    search: Annotated[str, Field(max_length=LONGEST_SEARCH)] = Field(
        default="", description="words of names and comments, or a pattern such as sales.*_2024"
    )
    limit: Count = Field(default=DEFAULT_LIMIT, ge=1)
    cursor: str = Field(default="", description="next_cursor of the page before")


TABLES_SCHEMA = content_schema(TABLES, next_cursor=STRING, note=STRING)


class ListTables(GeneralTool):
    """`list_tables` for one catalog."""

    name = "list_tables"
    title = "List tables"
    arguments = TablesArguments
    output_schema = TABLES_SCHEMA

    @property
    def description(self) -> str:
        """The description that a model reads."""
        return (
            f"List the {len(self.setting.labels):,} tables and views with comments and estimates of "
            "rows, those that match search first. Then describe_tables for columns and paths."
        )

    def bind(self, arguments: Mapping[str, object]) -> Settled:
        """Return the call that lists the tables that *arguments* search for."""
        asked = read(TablesArguments, arguments, max_rows=self.setting.limits.max_rows)
        search = asked.search.strip()
        mark = digest("list_tables", search, self.setting.labels)
        start = read_cursor(asked.cursor, mark, Total(order=(), keyset=False)) if asked.cursor else Position()
        return Settled(answer=lambda _: self._answer(search, start.skip, asked.limit, mark))

    def _answer(self, search: str, start: int, limit: int, mark: str) -> Answer:
        """Return the page of tables, as many as fit."""
        catalog = self.setting.catalog
        matching = found_tables(self.setting, search) if search else catalog.tables
        budget = self.setting.budgets[Reserve.TABLES]
        shown = budget.entries(_entry(catalog, each) for each in matching[start : start + limit])
        end = start + len(shown)
        truncated = end < len(matching)
        return budget.answer(
            {"table_count": len(matching), "truncated": truncated, "tables": shown},
            rows=len(shown),
            truncated=truncated,
            next_cursor=write_cursor(Position(skip=end), mark) if truncated else "",
            note=self._note(search, matching) if search else "",
        )

    def _note(self, search: str, matching: Sequence[Table]) -> str:
        if matching:
            has_all = all(_fit(self.setting.catalog, matching[0], word) for word in words_of(search))
            return "" if has_all or set(search) & set("*?") else "No table has all of these words."
        folded = {label.lower(): label for label in self.setting.labels}
        near = get_close_matches(search.strip("*?").lower(), folded, n=MOST_NEAR, cutoff=0.5)
        names = listing(folded[each] for each in near)
        return "No table matches" + (f"; the nearest names: {names}." if near else ".")


def _entry(catalog: Catalog, table: Table) -> dict[str, object]:
    return {"name": catalog.label(table)} | told(
        schema=catalog.spans_schemas and table.schema,
        kind="" if table.kind is TableKind.TABLE else str(table.kind),
        comment=cleaned(table.comment, LONGEST_COMMENT),
        row_estimate=table.row_estimate,
    )


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
    fits = partial(_fit, catalog)
    return tuple(found_by(words_of(search), catalog.tables, fits, lambda table: len(table.name)))


def _fit(catalog: Catalog, table: Table, word: str) -> int:
    qualified = catalog.qualified(table)
    return fit(word, table.name, table.comment, qualified=qualified, group=table.schema)
