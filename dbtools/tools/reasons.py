"""Explain why an answer is empty or null. Conditions in, statements that ask about them and a note out."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property, partial
from itertools import chain, islice
from typing import ClassVar

from dbtools.answers.results import ResultSet
from dbtools.expressions.parser import Expressions
from dbtools.expressions.terms import (
    Bucketed,
    Calculation,
    Function,
    Measure,
    Operand,
    Rank,
    Related,
    Term,
    functions_of,
    parts_within,
)
from dbtools.policy.sensitive import is_secret
from dbtools.schema.catalog import Column, Table
from dbtools.schema.paths import PathColumn
from dbtools.statements.select import (
    AnyOf,
    Clause,
    Condition,
    Existence,
    Match,
    Order,
    Output,
    Select,
    Statement,
)
from dbtools.tools.arguments import Comparison, Where, Within
from dbtools.tools.binding import FOR_NULL, NULLS, SEARCH_FORM, column_advice
from dbtools.tools.nearness import NEAR, nearest_values, value_of
from dbtools.values.cells import Cut, encoder
from dbtools.values.dates import DAY
from dbtools.values.types import (
    MOMENTS,
    NUMERIC,
    ORDER,
    TEMPORAL,
    TEXTUAL,
    Family,
    Operator,
    lower,
    quote,
)

MOST_ROWS = 100_000  #: estimated rows of a table whose values are read
MOST_VALUES = 1_000
MOST_CHECKS = 3  #: conditions to explain
FEW = 10  #: at most so many values are all listed
SOME = 25  #: at most so many values are all listed if none is similar to the wanted value
MOST_MISSING = 3  #: wanted values for which the nearest are searched
LONGEST_VALUE = 200  #: characters to read of a value
PARTS: Mapping[Operator, Callable[[str, str], bool]] = {
    Operator.CONTAINS: str.__contains__,
    Operator.STARTS_WITH: str.startswith,
    Operator.ENDS_WITH: str.endswith,
}
LOOKED_UP = {Operator.EQ, Operator.IN, *PARTS}
SIDES = ORDER[:4]  #: operators that one end of a range meets, if any value does
RANGING = {Operator.EQ, Operator.IN, *ORDER}
TEXT_FAMILIES = (Family.TEXT, Family.ENUM, Family.ANY)
ORDERED = (*NUMERIC, *TEMPORAL, Family.INTERVAL)
CHECKED = {*TEXT_FAMILIES, *NUMERIC, *TEMPORAL}
#: Operators that compare a time with a day, and may exclude or include more than the caller expects.
MISTAKABLE = (Operator.EQ, Operator.NE, Operator.LTE, Operator.GT)
SEARCH_SIGNS = re.compile(r"\b(AND|NOT|NEAR)\b|\w\*(?!\w)|\s[&|]\s")  #: of other languages for searches
STORED = ""  #: the finding if all wanted values are stored
PAST_END = "Past the last row."
TOGETHER = "Each condition asks for a stored value, but no row meets all of them."


@dataclass(frozen=True, kw_only=True)
class ValuesQuestion:
    """A question about one condition: which values are stored, or which are the least and the greatest."""

    name: str  #: the name of the compared term, as callers write it
    place: Operand  #: the same term in the table that is read
    operator: Operator
    wanted: Sequence[str]
    shape: Select
    advice: str = ""  #: on values that are not stored
    alone: bool = False  #: whether there is no other condition
    most: ClassVar[int] = MOST_VALUES  #: rows

    def finding(self, found: ResultSet) -> str | None:
        """Return what the values *found* show: STORED, or None if they explain nothing."""
        cells, encode = [cell for row in found.rows for cell in row], encoder(self.place.type)
        values = (encode(cell.start if isinstance(cell, Cut) else cell) for cell in cells)
        texts = [str(value) for value in values if value is not None]
        # If not all values were read, or may be known, a missing value may be stored after all.
        partial = found.more or any(isinstance(cell, Cut) for cell in cells) or not _may_be_known(self.shape)
        if cells and not texts:
            return None if partial else self._null()
        return self._among(texts, partial=partial) if self.shape.groups else self._between(texts)

    def _null(self) -> str:
        # A cell of another type is neither a number nor null.
        is_number = self.place.type.family in NUMERIC and not self.shape.groups
        return f"No row has a number in {self.name}." if is_number else f"{self.name} is null in every row."

    def _between(self, ends: Sequence[str]) -> str | None:
        """Return the range of the values, unless the condition seems to include some of them."""
        least, most, *wanted = self._values([*ends, *self.wanted])
        one_kind = len({type(each) for each in (least, most, *wanted)}) == 1
        ordered = sorted((each,) for each in wanted) if one_kind else []
        is_text = self.place.type.family in TEXT_FAMILIES and not isinstance(self.place, Bucketed)
        if ordered and self.operator is Operator.BETWEEN and ordered[0] != (wanted[0],):
            return "between takes the lower value first."
        if ordered and not self.alone:
            above = self.operator not in (Operator.LT, Operator.LTE) and ordered[0] >= (most,)
            below = self.operator not in (Operator.GT, Operator.GTE) and ordered[-1] <= (least,)
            if not (above or below):
                # The order of texts is that of a collation.
                return STORED if self.operator in SIDES and not is_text else None
        first, last = (quote(end) if is_text else quote(end)[1:-1] for end in ends)
        return f"{self.name} runs from {first} to {last}."

    def _among(self, texts: Sequence[str], *, partial: bool) -> str | None:
        """Return which values are stored instead of the wanted values."""
        if not (missing := self._missing_values(texts)):
            return STORED
        if self.operator in TEXTUAL and any("%" in wanted for wanted in missing):
            return f"{self.operator} matches % literally: omit it."
        nearest = (value for each in missing for value in nearest_values(self.place.type.family, each, texts))
        near = _quoted_list(list(dict.fromkeys(nearest))[:NEAR])
        if partial or not texts:
            said = f"Stored values of {self.name}: {near}, …" if near else ""
        elif len(texts) <= (FEW if near else SOME):
            said = f"{self.name} has only these values: {_quoted_list(texts)}."
        elif near:
            said = f"{self.name} has no {_quoted_list(missing)}; nearest stored values: {near}."
        else:
            said = f"No {self.name} is like {_quoted_list(missing)}."
        return f"{said} {self.advice}".strip() or None

    def _missing_values(self, texts: Sequence[str]) -> Sequence[str]:
        """Return some of the wanted values that are not in *texts*."""
        if self.operator in PARTS:
            has, folded = PARTS[self.operator], list(map(lower, texts))
            missing = (each for each in self.wanted if not any(has(text, lower(each)) for text in folded))
        else:
            stored, meant = set(self._values(texts)), zip(self.wanted, self._values(self.wanted), strict=True)
            missing = (each for each, value in meant if value not in stored)
        return list(islice(missing, MOST_MISSING))

    def _values(self, texts: Sequence[str]) -> list[str | Decimal]:
        return [value_of(text, self.place.type.family) for text in texts]


@dataclass(frozen=True, kw_only=True)
class RowQuestion:
    """A question whose answer is whether such a row exists."""

    shape: Select
    said: str  #: the finding if there is none
    most: ClassVar[int] = 1  #: rows

    def finding(self, found: ResultSet) -> str:
        """Return the finding: STORED if such a row is in *found*."""
        return STORED if found.rows else self.said


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """Explains why a call finds nothing."""

    terms: Expressions
    written: Sequence[Where]  #: the conditions as the caller wrote them
    conditions: Sequence[Clause]
    match: Match
    values: Mapping[str, object]  #: the values that the call binds

    @property
    def statements(self) -> Sequence[Statement]:
        """The statements that ask whether there is any row, and then about the conditions, if any."""
        row = RowQuestion(shape=_any_row(self.terms.names.table), said="")
        return self.statements_for((row, *self._asked)) if self.conditions else ()

    def statements_for(self, questions: Sequence[ValuesQuestion | RowQuestion]) -> Sequence[Statement]:
        """Return the statements that ask *questions*."""
        return tuple(Statement(shape=each.shape, values=self.values, limit=each.most) for each in questions)

    def note(self, found: Sequence[ResultSet]) -> str:
        """Return why there is no row, if *found*, the results of the statements, explains it."""
        if not self.conditions or (found and not found[0].rows):
            return f"{self.terms.names.table.name} has no rows."
        asked = [(each, each.finding(rows)) for each, rows in zip(self._asked, found[1:], strict=False)]
        findings = [said for _, said in asked]
        number = len(self.conditions)
        if self._joined and number <= MOST_CHECKS and findings[:number] == [STORED] * number:
            return TOGETHER
        # The stored values explain more than the fact that some are missing.
        checked = [said for each, said in asked if said and isinstance(each, ValuesQuestion)]
        items = (_search_note(comparison, condition) for _, _, comparison, condition in self._compared)
        return " ".join(dict.fromkeys(filter(None, [*(checked or findings), *items])))

    def nulls(self, terms: Sequence[Operand]) -> Sequence[RowQuestion]:
        """Return the questions which parts of *terms* are null in all rows that meet the conditions."""
        parts = dict.fromkeys(part for term in terms for part in parts_within(term))
        columns = [part for part in parts if isinstance(part, Column | PathColumn)]
        # The columns of related rows are not in the rows themselves.
        is_plain = self.match is Match.ALL and not any(isinstance(part, Related) for part in parts)
        table = self.terms.names.table
        return [_null_question(table, each, *self.conditions) for each in columns[:MOST_CHECKS] if is_plain]

    @property
    def meanings(self) -> str:
        """A note on a value that may not mean what the caller expects: a day, or a search."""
        pairs = [(comparison, condition) for _, _, comparison, condition in self._compared]
        return next(filter(None, (_meaning_note(*pair) for pair in pairs)), "")

    @property
    def _joined(self) -> bool:
        return self.match is Match.ALL and len(self.conditions) > 1

    @property
    def _compared(self) -> "Iterator[_Compared]":
        return _compared_conditions(self.terms.names.table, "", self.written, self.conditions)

    @cached_property
    def _asked(self) -> Sequence[ValuesQuestion | RowQuestion]:
        """The questions about the first conditions, and then about parts of conditions."""
        pairs = list(zip(self.written, self.conditions, strict=True))
        alone: Iterator[ValuesQuestion | RowQuestion] = filter(
            None, (self._question(at, *pair) for at, pair in enumerate(pairs))
        )
        parts = chain.from_iterable(self._parts(*pair) for pair in pairs)
        return (*islice(alone, MOST_CHECKS), *islice(parts, MOST_CHECKS + 1))

    def _question(self, at: int, written: Where, clause: Clause) -> ValuesQuestion | RowQuestion | None:
        """Return the question about *clause*; a single condition needs none, since no row meets it."""
        table, said = self.terms.names.table, f"No row meets where[{at}]." if self._joined else ""
        if isinstance(clause, Condition):
            if check := self._check(table, "", written, clause):
                return check
            if clause.operator is Operator.IS_NULL:
                said = f"{clause.term.name} is {'never null' if clause.wanted else 'null in every row'}."
        return RowQuestion(shape=_any_row(table, clause), said=said) if said else None

    def _parts(self, written: Where, clause: Clause) -> Iterator[ValuesQuestion | RowQuestion]:
        """Yield questions about the terms of *clause*, or about the conditions in it."""
        table = self.terms.names.table
        if isinstance(clause, Condition):
            terms = (each for each in clause.terms if clause.other or isinstance(each, PathColumn))
            yield from (_null_question(table, each) for each in terms)
            return
        within = (self._check(*each) for each in _compared_conditions(table, "", [written], [clause]))
        yield from islice(filter(None, within), MOST_CHECKS)
        if isinstance(clause, Existence) and clause.wanted:
            target, conditions = clause.relation.target, clause.conditions
            said = f"No row of {target.name} meets the conditions in some."
            shape = _any_row(target, *conditions, match=clause.match)
            yield RowQuestion(shape=shape, said=said if conditions else f"{target.name} has no rows.")

    def _check(
        self, of: Table, prefix: str, comparison: Comparison, condition: Condition
    ) -> ValuesQuestion | None:
        """Return the question about *condition* on rows of *of*, whose names begin with *prefix*."""
        term, operator = condition.term, comparison.op
        if isinstance(term, Measure | Rank) or not comparison.texts:
            return None
        table, place = (term.path[-1].target, term.column) if isinstance(term, PathColumn) else (of, term)
        name, texts = f"{prefix}{term.name}", comparison.texts
        check = partial(ValuesQuestion, name=name, place=place, operator=operator, wanted=texts)
        if operator in LOOKED_UP and _is_listed(table, place):
            outputs, order = (Output(term=place, cut=LONGEST_VALUE),), (Order(term=place),)
            shape = Select(table=table, outputs=outputs, groups=(place,), order=order)
            return check(shape=shape, advice="" if prefix else self._advice(comparison))
        # A text between two others is not necessarily similar to them.
        is_ordered = place.type.family in ORDERED or isinstance(place, Bucketed) or operator in ORDER
        if operator not in RANGING or not is_ordered or Function.MIN not in functions_of(place.type):
            return None
        ends = (Measure(function=each, place=place) for each in (Function.MIN, Function.MAX))
        shape = Select(table=table, outputs=tuple(Output(term=each, cut=LONGEST_VALUE) for each in ends))
        return check(shape=shape, alone=[condition] == [*self.conditions]) if _may_be_known(shape) else None

    def _advice(self, comparison: Comparison) -> str:
        """Return what the caller may have meant by the values of *comparison*, if they are not stored."""
        advice = (column_advice(self.terms.names, comparison.op, text) for text in comparison.texts)
        null = any(text.strip().lower() in NULLS for text in comparison.texts)
        return next(filter(None, advice), FOR_NULL if null else "")


def null_note(terms: Iterable[Term], columns: Iterable[Sequence[object]]) -> str:
    """Return a note if a bucket of texts among *terms* is null in all rows, whose cells are *columns*."""
    for term, cells in zip(terms, columns, strict=False):
        if isinstance(term, Bucketed) and term.place.type.family in TEXT_FAMILIES and not any(cells):
            return f"{term.name} is null: no value of {term.place.name} here is a date such as 2024-03-05."
    return ""


def _meaning_note(comparison: Comparison, condition: Condition) -> str:
    """Return a note if *comparison* may not mean what the caller expects: a time of day, or a search."""
    if comparison.op is Operator.MATCHES and SEARCH_SIGNS.search(comparison.value or ""):
        return f"matches has no AND, NOT, NEAR, &, | or *. {SEARCH_FORM}"
    last = comparison.texts[-1].strip() if comparison.texts else ""
    mistakable = comparison.op in (*MISTAKABLE, Operator.BETWEEN) and DAY.fullmatch(last)
    if mistakable and condition.term.type.family in MOMENTS:
        name = condition.term.name
        return f"{name} has a time of day: to compare whole days, write {name}:day as the column."
    return ""


def _search_note(comparison: Comparison, condition: Condition) -> str:
    """Return a note on what contains and matches find, if callers may expect something else."""
    match condition.operator, condition.term.type.family:
        case Operator.IN, _ if not comparison.texts:
            return "values is empty: no row meets the condition."
        case Operator.CONTAINS, Family.ARRAY:
            return f"contains looks for a whole item of {condition.term.name}, case included."
        case Operator.CONTAINS, Family.JSON:
            return f"contains searches the text of {condition.term.name}: look for one key or one value."
        case Operator.MATCHES, _ if not _meaning_note(comparison, condition):
            return "matches needs every word in this column: search another one, or write or between words."
        case _:
            return ""


def _any_row(table: Table, *conditions: Clause, match: Match = Match.ALL) -> Select:
    """Return the shape that reads whether a row of *table* meets *conditions*."""
    column = (*table.key_columns, *table.columns)[0]
    return Select(table=table, outputs=(Output(term=column, cut=1),), conditions=conditions, match=match)


def _null_question(table: Table, term: Term, *conditions: Clause) -> RowQuestion:
    """Return the question whether *term* is null in all rows of *table* that meet *conditions*."""
    stored = Condition(term=term, operator=Operator.IS_NULL, wanted=False)
    rows = "these rows" if conditions else "every row"
    return RowQuestion(shape=_any_row(table, *conditions, stored), said=f"{term.name} is null in {rows}.")


_Compared = tuple[Table, str, Comparison, Condition]


def _compared_conditions(
    table: Table, prefix: str, written: Sequence[Comparison], conditions: Sequence[Clause]
) -> Iterator[_Compared]:
    """Yield the conditions that rows must or may meet, each with its table and the prefix of its names."""
    for each, condition in zip(written, conditions, strict=True):
        match each, condition:
            case _, Condition():
                yield table, prefix, each, condition
            case Within(), AnyOf():
                yield from _compared_conditions(table, prefix, each.any, condition.conditions)
            case Where(), Existence(wanted=True, relation=relation):
                within = f"{relation.name}."
                yield from _compared_conditions(relation.target, within, each.where, condition.conditions)
            case _:
                # The values of other rows do not explain a row that refers to none.
                pass


def _may_be_known(shape: Select) -> bool:
    """Return whether callers may know the values of all rows together."""
    return all(table.aggregated for table in shape.tables)


def _is_listed(table: Table, place: Operand) -> bool:
    """Return whether to read the single values of *place* in *table*."""
    type = place.type
    if not isinstance(place, Column | Calculation) or (table.row_estimate or 0) >= MOST_ROWS:
        return False
    if any(isinstance(part, Column) and is_secret(part) for part in parts_within(place)):
        return False
    is_key = type.family in NUMERIC and any(key.columns == (place.name,) for key in table.keys)
    return type.family in CHECKED and type.equatable and not is_key


def _quoted_list(values: Sequence[str]) -> str:
    return ", ".join(map(quote, values))
