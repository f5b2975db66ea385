"""The tool `aggregate_rows`: counts, sums and averages of rows, by groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from pydantic import Field

from dbtools import errors
from dbtools.answers.results import Answer, Page, Reserve, ResultSet
from dbtools.errors import BadArgument, Denied, did_you_mean, listing
from dbtools.expressions.operations import name_and_type
from dbtools.expressions.parser import Expressions, refuse_masked
from dbtools.expressions.terms import ROW_COUNT, Function, Literal, Measure, Operand, Term, functions_of
from dbtools.schema.paths import find_caseless
from dbtools.statements.select import Match, Order, Output, Select, Statement
from dbtools.tools.arguments import (
    BRIEFLY,
    DEFAULT_LIMIT,
    MOST_SKIPPED,
    Arguments,
    Array,
    Comparisons,
    Conditions,
    Count,
    Steps,
)
from dbtools.tools.binding import bind_having, bind_order, bind_where
from dbtools.tools.calls import ReadCall
from dbtools.tools.definition import ROWS_SCHEMA, Tool, ToolContext, ToolDefinition
from dbtools.tools.meanings import Meanings
from dbtools.tools.reasons import PAST_END, Reasons, null_note
from dbtools.values.types import quote

HAVING = "having takes one measure by its name in measures. Conditions on columns belong in where."
MOST_GROUPS = 16
MOST_MEASURES = 32
LONGEST_MEASURE = 100  #: characters of a measure's name
AGGREGATE_DESCRIPTION = (
    "Count, sum, average or group the rows of a table or view by columns, foreign-key paths "
    "(describe_tables lists them) and date buckets. Revenue by country and month: group_by "
    '["customer.country", "ordered_on:month"], measures [{"function": "sum", "column": "total", "name": '
    '"revenue"}]. count without a column counts rows. Buckets, in UTC: year, quarter, month (2024-03), '
    "week, day; weekday (1 is Monday), hour (00 to 23)."
)


class MeasureArguments(Arguments):
    """One measure."""

    example = '{"function": "count"}'
    function: Function
    column: str = ""
    name: Annotated[str, Field(max_length=LONGEST_MEASURE)] = Field(
        default="", description="default function_column"
    )


class AggregateArguments(Arguments):
    """Arguments of `aggregate_rows`."""

    table: str
    group_by: Annotated[tuple[str, ...], Field(max_length=MOST_GROUPS), Array] = ()
    measures: Annotated[tuple[MeasureArguments, ...], Field(max_length=MOST_MEASURES), Array] = ()
    where: Conditions = ()
    match: Match = Match.ALL
    having: Annotated[Comparisons, BRIEFLY] = Field(
        default=(), description="as where, on measures by name; all must hold"
    )
    order_by: Steps = Field(default=(), description='groups and measures: "revenue desc"')
    limit: Count = Field(default=DEFAULT_LIMIT, ge=1)
    offset: Count = Field(default=0, ge=0, le=MOST_SKIPPED)


class AggregateRows(Tool):
    """`aggregate_rows` for any table."""

    name = "aggregate_rows"

    @cached_property
    def definition(self) -> ToolDefinition:
        """How the tool is listed."""
        return self.definition_of(AGGREGATE_DESCRIPTION, AggregateArguments, ROWS_SCHEMA)

    def bind(self, arguments: Mapping[str, object]) -> "AggregateCall":
        """Return the call that computes what *arguments* ask for."""
        asked = self.context.read(AggregateArguments, arguments)
        table, most = self.context.table(asked.table), self.context.limits.max_cell
        if not table.aggregated:
            raise Denied(f"Rows of {table.name} may be listed, but not aggregated.")
        names = Expressions(names=self.context.names(table), aggregating=True)
        groups = _groups(names, asked.group_by)
        measures = _measures(names, asked.measures, taken=groups)
        conditions, values = bind_where(names, asked.where)
        results = Results(known=measures, kind="measure", hint=HAVING)
        having, bounds = bind_having(results, asked.having)
        order = bind_order(Results(known={**groups, **measures}, names=names), asked.order_by)
        named = {step.term for step in order}
        # With all groups in the order, repeated calls get the same answer.
        total = (*order, *(Order(term=group) for group in groups.values() if group not in named))
        terms = {**groups, **measures}
        values = {**names.values, **values, **bounds}
        values |= {"skip": asked.offset} if asked.offset else {}
        shape = Select(
            table=table,
            outputs=tuple(
                Output(term=term, cut=most if term.type.large else None) for term in terms.values()
            ),
            conditions=conditions,
            match=asked.match,
            groups=tuple(groups.values()),
            having=having,
            order=total,
            skip=asked.offset > 0,
        )
        return AggregateCall(
            context=self.context,
            shape=shape,
            statement=Statement(shape=shape, values=values, limit=asked.limit),
            columns=tuple(terms),
            limited="limit" in asked.model_fields_set,
            reasons=Reasons(
                terms=names, written=asked.where, conditions=conditions, match=asked.match, values=values
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Results:
    """The groups and measures of an answer, or the measures alone, by their names."""

    known: Mapping[str, Term]
    kind: str = "group or measure"
    hint: str = ""
    names: Expressions | None = None  #: to find groups in other spellings

    def get(self, text: str) -> Term | None:
        """Return the group or measure with the name *text*, if there is one."""
        return find_caseless(text.strip(), self.known)

    def find(self, text: str, argument: str) -> Term:
        """Return what *text* names, or raise UnknownColumn."""
        found = self.get(text) or self._find_group(text, argument)
        if found is None:
            names = listing(self.known) or "none"
            raise errors.UnknownColumn(
                f"{argument}: no {self.kind} is named {quote(text)}.",
                hint=f"{did_you_mean(text, self.known)}Names: {names}. {self.hint}".rstrip(),
            )
        return found

    def _find_group(self, text: str, argument: str) -> Term | None:
        """Return the group that *text* names in another spelling, if any."""
        try:
            group = self.names.find(text, argument) if self.names else None
        except errors.CallError:
            return None
        return group if group in self.known.values() else None


def _groups(names: Expressions, texts: Sequence[str]) -> Mapping[str, Operand]:
    """Return the groups that *texts* such as "ordered_on:month" name, by their names in results."""
    groups: dict[str, Operand] = {}
    for at, text in enumerate(texts):
        label, group = names.named_term(text, f"group_by[{at}]")
        if isinstance(group, Literal) or not (group.type.equatable and group.type.ordered):
            raise BadArgument(f"group_by[{at}]: {name_and_type(group)} cannot be grouped by.")
        if group in groups.values() or label in groups:
            raise BadArgument(f"group_by[{at}]: {group.name} appears twice.")
        groups[label] = group
    return groups


def _measures(
    names: Expressions, asked: Sequence[MeasureArguments], taken: Mapping[str, Operand]
) -> Mapping[str, Measure]:
    """Return the measures *asked* for, by their names in results, which must not be *taken*."""
    if not (asked or taken):
        message = "group_by or measures is required."
        raise BadArgument(message, hint='To count rows: measures [{"function": "count"}].')
    measures: dict[str, Measure] = {}
    for at, each in enumerate(asked):
        argument = f"measures[{at}]"
        measure = _measure(names, each.function, each.column, argument)
        name = each.name.strip() or "_".join(filter(None, [each.function, each.column.strip(" *")]))
        if name in measures or name in taken:
            raise BadArgument(
                f"{argument}: the name {name} is already used.", hint="Give each measure its own name."
            )
        measures[name] = measure
    return measures


def _measure(names: Expressions, function: Function, column: str, argument: str) -> Measure:
    """Return the measure of *function* over *column*, or raise a CallError that names the *argument*."""
    if function is Function.COUNT and column in ("", "*"):
        return Measure(function=function)
    if not column:
        raise BadArgument(f"{argument}.column is missing: {function} needs one.")
    place = names.find(column, f"{argument}.column")
    refuse_masked(place, argument)
    offered = list(functions_of(place.type))
    if function not in offered:
        message = f"{argument}: {name_and_type(place)} does not support {function}."
        raise BadArgument(message, hint=f"Functions: {listing(offered)}.")
    return Measure(function=function, place=place)


@dataclass(frozen=True, kw_only=True)
class AggregateCall(ReadCall[Answer]):
    """A call of `aggregate_rows` whose arguments have been read."""

    context: ToolContext
    shape: Select  #: of the statement
    columns: tuple[str, ...]
    limited: bool  #: whether the caller has set the limit
    reasons: Reasons

    def inquire(self, found: ResultSet) -> Sequence[Statement]:
        """Return statements that count all groups, or explain why no row or no value was found.

        Then follow those that count the rows that are left out.
        """
        return (*self._further_statements(found), *self.meanings.statements)

    @property
    def meanings(self) -> Meanings:
        """What the conditions mean beyond what they say."""
        return Meanings(reasons=self.reasons, shape=self.shape)

    def _further_statements(self, found: ResultSet) -> Sequence[Statement]:
        if found.more:
            return (self._count_statement(having=True),)
        if self.shape.skip or (found.rows and self.shape.groups):
            return ()
        if not found.rows:
            # Perhaps having excludes all groups.
            return (
                *(self._count_statement(having=False),) * bool(self.shape.having),
                *self.reasons.statements,
            )
        nulls, known = self._nulls(found), any(map(_has_value, self.shape.outputs, found.rows[0]))
        if known and not nulls:
            return ()
        outputs = (Output(term=ROW_COUNT), *(Output(term=each) for each in nulls.values()))
        rows = replace(self.shape, outputs=outputs, having=(), order=())
        counted = Statement(shape=rows, values=self.statement.values, limit=1)
        return (counted, *(() if known else self.reasons.statements))

    def render(self, found: ResultSet, further: Sequence[ResultSet] = ()) -> Answer:
        """Return the groups that *found* holds, as many as fit."""
        budget = self.context.budgets[Reserve.ROWS]
        page = budget.page(found, self.columns)
        asked = len(self._further_statements(found))
        further, counts = further[:asked], further[asked:]
        groups = _number(further[0]) if found.more and further else None
        said = self._note(page, groups) if page.truncated else self._why(found, further)
        null = null_note(self.shape.groups, found.columns)
        note = " ".join(filter(None, [said, null, self.meanings.note(counts)]))
        return budget.rows_answer(page, group_count=groups, note=note)

    def _count_statement(self, *, having: bool) -> Statement:
        """Return the statement that counts the groups, all of them if *having* is false."""
        kept = self.shape.having if having else ()
        shape = replace(
            self.shape, outputs=(Output(term=ROW_COUNT),), having=kept, order=(), skip=False, counting=True
        )
        return Statement(shape=shape, values=self.statement.values, limit=1)

    def _nulls(self, found: ResultSet) -> Mapping[str, Measure]:
        """Return the counts of values for the measures that are null, by their names."""
        cells = zip(self.shape.outputs, found.rows[0], strict=True)
        nulls = [output.term for output, cell in cells if cell is None and isinstance(output.term, Measure)]
        places = [measure.place for measure in nulls if measure.place is not None]
        return {place.name: Measure(function=Function.COUNT, place=place) for place in places}

    def _why(self, found: ResultSet, further: Sequence[ResultSet]) -> str:
        """Return why no row or no value was found, if the *further* results explain it."""
        if found.rows and (self.shape.groups or not further):
            return ""
        if self.shape.skip:
            return PAST_END
        if not (found.rows or self.shape.having):
            return self.reasons.note(further)
        if not further:
            return ""
        first, *others = further
        rows = _number(first)
        if not rows:
            return self.reasons.note(others)
        if not found.rows:
            return f"having excludes all groups ({rows:,})."
        counts = zip(self._nulls(found), first.rows[0][1:], strict=True)
        where = f"all {rows:,} rows" if rows > 1 else "the only row"
        # A sum of cells that are not numbers is null, too.
        notes = (
            f"No row has a number in {name}." if n else f"{name} is null in {where}." for name, n in counts
        )
        return " ".join(notes)

    def _note(self, page: Page, groups: int | None) -> str:
        if page.capped:
            return "Cut at max_tokens: group by fewer or shorter columns, or narrow where or having."
        if self.limited:
            count = f"; there are {groups:,} groups" if groups is not None else ""
            return f"Stopped at your limit{count}."
        if self.statement.limit < self.context.limits.max_rows:
            return "More groups: raise limit, pass offset, or narrow where or having."
        return "More groups: pass offset, group more coarsely, or narrow where or having."


def _number(counted: ResultSet) -> int:
    """Return the first cell of *counted*."""
    return int(str(counted.rows[0][0]))


def _has_value(output: Output, cell: object) -> bool:
    """Return whether *cell* belongs to a measure that has met a value."""
    counts = isinstance(output.term, Measure) and not output.term.nullable
    return cell != 0 if counts else cell is not None
