"""The tools `list_T` and `list_rows`: rows that meet conditions, sorted, one page at a time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import Field

from dbtools.answers.results import Answer, Page, Reserve, ResultSet
from dbtools.errors import BadArgument
from dbtools.expressions.parser import Expressions
from dbtools.expressions.terms import Bucketed, Calculation, Operand, Rank
from dbtools.schema.catalog import Column, Table
from dbtools.schema.paths import Names
from dbtools.schema.uris import CELL_TEMPLATE
from dbtools.statements.paging import (
    LONGEST_CURSOR,
    LONGEST_KEY,
    Position,
    TotalOrder,
    after_position,
    digest,
    next_position,
    read_cursor,
    total_order,
    write_cursor,
)
from dbtools.statements.select import Match, Output, Select, Statement
from dbtools.tools.arguments import DEFAULT_LIMIT, MOST_SKIPPED, Arguments, Columns, Conditions, Count, Steps
from dbtools.tools.binding import bind_order, bind_where
from dbtools.tools.calls import ReadCall
from dbtools.tools.definition import ROWS_SCHEMA, TableTool, ToolContext, ToolDefinition
from dbtools.tools.meanings import Meanings
from dbtools.tools.reasons import PAST_END, Reasons, null_note
from dbtools.tools.wording import (
    DESCRIPTION_LIMIT,
    LONGEST_TABLE_COMMENT,
    columns_line,
    list_names,
    quotation,
    searches_line,
    table_name,
)
from dbtools.values.cells import Cut
from dbtools.values.types import Family

UNASKED_BYTES = 64  #: the longest blob, in bytes, that a list shows if the caller did not name its column
MOST_LINKS = 10
COMPUTED_TERMS = (Calculation, Bucketed)
LIST_DESCRIPTION = (
    "List rows of one table or view, filtered, sorted and a page at a time. "
    "Columns may be foreign-key paths, such as customer.country; describe_tables "
    "lists columns and paths. For totals use aggregate_rows."
)


class ListArguments(Arguments):
    """Arguments of `list_T`."""

    where: Conditions = ()
    match: Match = Match.ALL
    columns: Columns = ()
    order_by: Steps = Field(default=(), description="like total desc")
    limit: Count = Field(default=DEFAULT_LIMIT, ge=1)
    offset: Count = Field(default=0, ge=0, le=MOST_SKIPPED)
    cursor: str = Field(default="", max_length=LONGEST_CURSOR)


class RowsArguments(ListArguments):
    """Arguments of `list_rows`."""

    table: str


class ListRows(TableTool):
    """`list_T` for one table, or `list_rows` for any."""

    prefix = "list"
    general_name = "list_rows"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        catalog, table = self.context.catalog, self.table
        if table is None:
            return self.definition_of(LIST_DESCRIPTION, RowsArguments, ROWS_SCHEMA)
        comment = quotation(table.comment, LONGEST_TABLE_COMMENT)
        head = f"List {table_name(catalog, table)}{comment and f' {comment}'}. Columns: "
        referring = list_names(self.context.paths.referrers(table), ": describe_tables")
        related = f"Related rows: {referring}." if referring else ""
        tail = " ".join(filter(None, [".", related, searches_line(table)]))
        columns = columns_line(catalog, table, DESCRIPTION_LIMIT - len(head + tail))
        description = f"{head}{columns}{tail}"
        return self.definition_of(
            description, ListArguments, ROWS_SCHEMA, f"List {self.context.title_of(table)}"
        )

    def bind(self, arguments: Mapping[str, object]) -> "ListCall":
        """Return the call that lists the rows that *arguments* ask for."""
        context = self.context
        if self.table is not None:
            return bind_list(context, context.names(self.table), context.read(ListArguments, arguments))
        asked = context.read(RowsArguments, arguments)
        return bind_list(context, context.names(context.table(asked.table)), asked)


def bind_list(context: ToolContext, names: Names, asked: ListArguments) -> "ListCall":
    """Return the call that lists the rows that *asked* asks for of the table of *names*."""
    terms = Expressions(names=names)
    columns = find_columns(terms, asked.columns)
    conditions, values = bind_where(terms, asked.where)
    total = total_order(names.table, bind_order(terms, asked.order_by, conditions))
    if asked.cursor and asked.offset:
        raise BadArgument("offset must not be passed together with cursor.", hint="Pass one of them.")
    position = Position(skip=asked.offset)
    if asked.cursor:
        position = read_cursor(asked.cursor, _mark(context, names.table, asked, total), total)
    steps, keys = after_position(position)
    values = {**terms.values, **values, **keys}
    shape = Select(
        table=names.table,
        outputs=_outputs(context, names.table, columns, total, named=bool(asked.columns)),
        conditions=conditions,
        match=asked.match,
        order=total.order,
        after=steps,
        skip=position.skip > 0,
    )
    return ListCall(
        context=context,
        shape=shape,
        asked=asked,
        statement=Statement(shape=shape, values=values, limit=asked.limit),
        columns=columns,
        total=total,
        position=position,
        reasons=Reasons(
            terms=terms,
            written=asked.where,
            conditions=conditions,
            match=asked.match,
            values=values,
        ),
    )


def _mark(context: ToolContext, table: Table, asked: ListArguments, total: TotalOrder) -> str:
    """Return a digest of the table, conditions and order to which a cursor belongs."""
    where = asked.model_dump_json(include={"where", "match"}, exclude_defaults=True)
    return digest(
        context.catalog.full_name(table), where, [(step.term.name, step.direction) for step in total.order]
    )


def find_columns(terms: Expressions, texts: Sequence[str]) -> Mapping[str, Operand]:
    """Return the terms that *texts* name, by their names in results; by default all columns of the table."""
    if not texts:
        return terms.names.table.column_by_name
    columns: dict[str, Operand] = {}
    for at, text in enumerate(texts):
        label, term = terms.named_term(text, f"columns[{at}]")
        label = term.name if isinstance(term, Column) else label
        if term in columns.values() or label in columns:
            raise BadArgument(f"columns[{at}]: {term.name} appears twice.")
        columns[label] = term
    return columns


def shown_outputs(context: ToolContext, places: Iterable[Operand], *, named: bool) -> Sequence[Output]:
    """Return the outputs that show *places* in a list; *named*: the caller has named them."""
    most = context.limits.max_cell
    least = most if named else min(UNASKED_BYTES, most)
    return [Output(place, least if place.type.family is Family.BYTES else most) for place in places]


def _outputs(
    context: ToolContext, table: Table, columns: Mapping[str, Operand], total: TotalOrder, *, named: bool
) -> tuple[Output, ...]:
    """Return what to read: the columns to show, then what the cursor and links need in addition."""
    shown = shown_outputs(context, columns.values(), named=named)
    visible = set(columns.values())
    needed = [step.term for step in total.order] if total.keyset else []
    hidden = dict.fromkeys(term for term in (*needed, *table.key_columns) if term not in visible)
    # A rank is a number; ORDER BY refers to it by its name.
    return (*shown, *(Output(term, None if isinstance(term, Rank) else LONGEST_KEY) for term in hidden))


@dataclass(frozen=True, kw_only=True)
class ListCall(ReadCall[Answer]):
    """A call of `list_T` whose arguments have been read."""

    context: ToolContext
    shape: Select  #: of the statement
    asked: ListArguments
    columns: Mapping[str, Operand]  #: the terms to show, by their names in the result
    total: TotalOrder
    position: Position
    reasons: Reasons

    def inquire(self, found: ResultSet) -> Sequence[Statement]:
        """Return statements that explain why no row was found, or nulls, and what is left out."""
        left_out = self.meanings.statements if self.position == Position() else ()
        return (*self._further_statements(found), *left_out)

    def _further_statements(self, found: ResultSet) -> Sequence[Statement]:
        if found.rows:
            nulls = self._nulls(found) if self.asked.columns else ()
            return self.reasons.statements_for(self.reasons.nulls(nulls)) if nulls else ()
        return self.reasons.statements if self.position == Position() else ()

    @property
    def meanings(self) -> Meanings:
        """What the conditions mean beyond what they say."""
        return Meanings(reasons=self.reasons, shape=self.shape)

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Render the page of rows in *found*, with a cursor if there are more."""
        budget = self.context.budgets[Reserve.ROWS]
        page = budget.page(found, tuple(self.columns), cursor=lambda count: self._cursor(found, count))
        # These columns do not tell the URI of a row at the end of a path.
        cuts = [
            (row, place)
            for row in (page.found.rows if page.found.is_cut else ())
            for place, cell in zip(self.columns.values(), row, strict=False)
            if isinstance(cell, Cut) and isinstance(place, Column)
        ]
        links = (
            self.context.link(self.shape.table, found.outputs, row, column)
            for row, column in cuts[:MOST_LINKS]
        )
        asked = len(self._further_statements(found))
        said = self._note(page, further[:asked], cuts=bool(cuts))
        return budget.rows_answer(
            page,
            note=" ".join(filter(None, [said, self.meanings.note(further[asked:])])),
            links=tuple(filter(None, links)),
        )

    def _nulls(self, found: ResultSet) -> Sequence[Operand]:
        """Return what is computed and null in all rows of *found*."""
        computed = [at for at, term in enumerate(self.columns.values()) if isinstance(term, COMPUTED_TERMS)]
        nulls = (at for at in computed if all(row[at] is None for row in found.rows))
        return [list(self.columns.values())[at] for at in nulls]

    def _cursor(self, found: ResultSet, count: int) -> str:
        """Return the cursor after *count* rows of *found*."""
        last = found.rows[count - 1]
        index = {output.term: at for at, output in enumerate(found.outputs)}
        values = [last[index[step.term]] for step in self.total.order] if self.total.keyset else []
        mark = _mark(self.context, self.shape.table, self.asked, self.total)
        return write_cursor(next_position(self.total, self.position, count, values), mark)

    def _note(self, page: Page, further: Sequence[ResultSet], *, cuts: bool) -> str:
        if not page.found.rows:
            return self.reasons.note(further) if self.position == Position() else PAST_END
        more = cut = null = ""
        if nulls := self.reasons.nulls(self._nulls(page.found)) if further else ():
            said = [each.finding(rows) for each, rows in zip(nulls, further, strict=False)]
            null = " ".join(filter(None, said)) or null_note(self.columns.values(), page.found.columns)
        if page.capped:
            more = "Cut at max_tokens: pass next_cursor as cursor, or name fewer columns."
        elif page.truncated:
            more = "More rows: pass next_cursor as cursor, or narrow where; for totals aggregate_rows."
            more = "Stopped at your limit." if "limit" in self.asked.model_fields_set else more
        if cuts and self.shape.table.keys:
            cut = f"Long cells are cut: get the row, or read {CELL_TEMPLATE}."
        return " ".join(filter(None, [more, cut, null]))
