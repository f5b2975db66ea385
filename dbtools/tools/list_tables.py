"""The tool `list_tables`: all tables, or those that match a search, best first."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Annotated, TypeVar

from pydantic import Field

from dbtools.answers.results import Answer, Reserve
from dbtools.answers.styles import Surface
from dbtools.errors import did_you_mean
from dbtools.schema.catalog import Table, TableKind
from dbtools.statements.paging import LONGEST_CURSOR, Position, TotalOrder, digest, read_cursor, write_cursor
from dbtools.tools.arguments import DEFAULT_LIMIT, Arguments, Count
from dbtools.tools.calls import CatalogCall
from dbtools.tools.definition import TABLES, Tool, ToolDefinition, content_schema
from dbtools.tools.wording import nonempty_parts, tidy
from dbtools.values.types import STRING, lower

LONGEST_COMMENT = 120
LONGEST_SEARCH = 200  #: characters
MOST_WORDS = 10
UNORDERED = TotalOrder(order=(), keyset=False)
#: The words of a name, which may be in CamelCase.
NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")

CandidateT = TypeVar("CandidateT")


class TablesArguments(Arguments):
    """Arguments of `list_tables`."""

    search: Annotated[str, Field(max_length=LONGEST_SEARCH)] = Field(
        default="", description="words in names and comments"
    )
    limit: Count = Field(default=DEFAULT_LIMIT, ge=1)
    cursor: Annotated[str, Field(max_length=LONGEST_CURSOR)] = Field(
        default="", description="previous page's next_cursor"
    )


TABLES_SCHEMA = content_schema(TABLES, next_cursor=STRING, note=STRING)


class ListTables(Tool):
    """`list_tables` for one catalog."""

    surface = Surface.GENERIC
    name = "list_tables"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        description = (
            f"List the {len(self.context.labels):,} tables and views with comments and row estimates, or "
            "search them, best match first. For columns and paths use describe_tables."
        )
        return self.definition_of(description, TablesArguments, TABLES_SCHEMA)

    def bind(self, arguments: Mapping[str, object]) -> CatalogCall[Answer]:
        """Bind a search to a call."""
        asked = self.context.read(TablesArguments, arguments)
        search = asked.search.strip()
        mark = digest("list_tables", search, self.context.labels)
        start = read_cursor(asked.cursor, mark, UNORDERED) if asked.cursor else Position()
        return CatalogCall(answer=lambda _: self._answer(search, start.skip, asked.limit, mark))

    def _answer(self, search: str, start: int, limit: int, mark: str) -> Answer:
        """Render the page of tables, as many as fit."""
        tables, budget = self.context.catalog.tables, self.context.budgets[Reserve.TABLES]
        matching = rank_candidates(search, tables, self._texts) if search else tables
        shown = budget.entries(map(self._entry, matching[start : start + limit]))
        end = start + len(shown)
        truncated = end < len(matching)
        nothing = f"No table matches. {did_you_mean(search, self.context.labels)}".rstrip()
        return budget.answer(
            {"table_count": len(matching), "truncated": truncated, "tables": shown},
            rows=len(shown),
            truncated=truncated,
            next_cursor=write_cursor(Position(skip=end), mark) if truncated else "",
            note=nothing if search and not matching else "",
        )

    def _texts(self, table: Table) -> tuple[Sequence[str], str]:
        return (table.name, self.context.catalog.full_name(table)), f"{table.schema} {table.comment}"

    def _entry(self, table: Table) -> dict[str, object]:
        catalog = self.context.catalog
        return {"name": catalog.label(table)} | nonempty_parts(
            schema=catalog.spans_schemas and table.schema,
            kind="" if table.kind is TableKind.TABLE else str(table.kind),
            comment=tidy(table.comment, LONGEST_COMMENT),
            row_estimate=table.row_estimate,
        )


def rank_candidates(
    search: str,
    candidates: Iterable[CandidateT],
    texts: Callable[[CandidateT], tuple[Sequence[str], str]],
) -> Sequence[CandidateT]:
    """Return the *candidates* that match any word of *search*, sorted by the number of words, then by match.

    *texts* returns the names of a candidate, the shortest first, and a comment.
    """
    words = [word for each in re.split(r"[^\w.]+", lower(search)) if (word := each.strip("."))][:MOST_WORDS]
    ranked: list[tuple[tuple[int, int, int], CandidateT]] = []
    for candidate in candidates:
        names, comment = texts(candidate)
        matches = [match for word in words if (match := _match(word, names, comment))]
        if matches:
            ranked.append(((-len(matches), -sum(matches), len(names[0])), candidate))
    return [candidate for _, candidate in sorted(ranked, key=itemgetter(0))]


def _match(word: str, names: Sequence[str], comment: str) -> int:
    """Return how well *word* matches *names* and *comment*; 0 if it does not match."""
    low, stem = lower(names[0]), _stem(word)
    matches = (
        word in map(lower, names),
        stem == _stem(low),
        stem in _stems(names[0]),
        low.startswith(stem),
        stem in low,
        stem in _stems(comment),
        stem in lower(comment),
    )
    return len(matches) - matches.index(True) if True in matches else 0


@lru_cache(maxsize=10_000)
def _stems(text: str) -> frozenset[str]:
    return frozenset(_stem(lower(word)) for word in NAME_WORDS.findall(text))


def _stem(word: str) -> str:
    """Return *word* without the ending of an English plural."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
