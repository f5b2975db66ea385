"""Explain why an answer is empty. Conditions in, statements that ask about them and a note out."""

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import cached_property
from heapq import nlargest
from itertools import islice, pairwise
from typing import ClassVar

from dbtools.catalog import Column, Table
from dbtools.cells import Cut, encoder
from dbtools.dates import DAY, shortest
from dbtools.expressions import Expressions
from dbtools.paths import PathColumn
from dbtools.results import ResultSet
from dbtools.statement import Clause, Condition, Match, Order, Output, Select, Statement
from dbtools.terms import Bucketed, Calculation, Function, Measure, Operand, Rank, functions_of
from dbtools.tools.arguments import Where
from dbtools.tools.binding import FOR_NULL, NULLS, SEARCH_FORM, column_advice
from dbtools.types import MOMENTS, NUMERIC, ORDER, TEMPORAL, TEXTUAL, Family, Operator, quoted

MOST_ROWS = 100_000  #: estimated rows of a table whose values are read
MOST_VALUES = 1_000
MOST_CHECKS = 3  #: conditions to explain
FEW = 10  #: at most so many values are all listed
SOME = 25  #: at most so many values are all listed if none is similar to the wanted value
MOST_MISSING = 3  #: wanted values for which the nearest are searched
LIKELY = 50  #: candidates that are compared letter by letter
COMPARED = 40  #: characters of two values that are compared
NEAR = 5  #: nearest values to list
LONGEST = 200  #: characters to read of a value
PARTS: Mapping[Operator, Callable[[str, str], bool]] = {
    Operator.CONTAINS: str.__contains__,
    Operator.STARTS_WITH: str.startswith,
    Operator.ENDS_WITH: str.endswith,
}
LOOKED_UP = {Operator.EQ, Operator.IN, *PARTS}
SIDES = ORDER[:4]  #: operators that one end of a range meets, if any value does
RANGING = {Operator.EQ, Operator.IN, *ORDER}
WORDS = (Family.TEXT, Family.ENUM, Family.ANY)
ORDERED = (*NUMERIC, *TEMPORAL, Family.INTERVAL)
CHECKED = {*WORDS, *NUMERIC, *TEMPORAL}
#: Operators that compare a time with a day, and may exclude or include more than the caller expects.
MISTAKABLE = (Operator.EQ, Operator.NE, Operator.LTE, Operator.GT)
SIGNS = re.compile(r"\b(AND|NOT|NEAR)\b|\w\*(?!\w)|\s[&|]\s")  #: of other languages for searches
STORED = ""  #: the finding if all wanted values are stored
PAST_END = "Past the last row."
TOGETHER = "Each condition asks for something that is stored, but no row meets all of them."


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
        is_text = self.place.type.family in WORDS and not isinstance(self.place, Bucketed)
        if ordered and not self.alone:
            above = self.operator not in (Operator.LT, Operator.LTE) and ordered[0] >= (most,)
            below = self.operator not in (Operator.GT, Operator.GTE) and ordered[-1] <= (least,)
            if not (above or below):
                # The order of texts is that of a collation.
                return STORED if self.operator in SIDES and not is_text else None
        first, last = (quoted(end) if is_text else quoted(end)[1:-1] for end in ends)
        return f"{self.name} runs from {first} to {last}."

    def _among(self, texts: Sequence[str], *, partial: bool) -> str | None:
        """Return which values are stored instead of the wanted values."""
        if not (missing := self._missing(texts)):
            return STORED
        if self.operator in TEXTUAL and any("%" in wanted for wanted in missing):
            return f"{self.operator} matches % literally: omit it."
        nearest = (value for each in missing for value in nearest_values(self.place.type.family, each, texts))
        near = _listed(list(dict.fromkeys(nearest))[:NEAR])
        if partial or not texts:
            said = f"Stored values of {self.name}: {near}, …" if near else ""
        elif len(texts) <= (FEW if near else SOME):
            said = f"{self.name} has only these values: {_listed(texts)}."
        elif near:
            said = f"{self.name} has no {_listed(missing)}; nearest stored values: {near}."
        else:
            said = f"No {self.name} is like {_listed(missing)}."
        return f"{said} {self.advice}".strip() or None

    def _missing(self, texts: Sequence[str]) -> Sequence[str]:
        """Return some of the wanted values that are not in *texts*."""
        if self.operator in PARTS:
            has, folded = PARTS[self.operator], [text.lower() for text in texts]
            missing = (each for each in self.wanted if not any(has(text, each.lower()) for text in folded))
        else:
            stored, meant = set(self._values(texts)), zip(self.wanted, self._values(self.wanted), strict=True)
            missing = (each for each, value in meant if value not in stored)
        return list(islice(missing, MOST_MISSING))

    def _values(self, texts: Sequence[str]) -> list[str | Decimal]:
        return [_value(text, self.place.type.family) for text in texts]


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
        row = RowQuestion(shape=_any_row(self._table), said="")
        asked = (row, *self._questions) if self.conditions else ()
        return tuple(Statement(shape=each.shape, values=self.values, limit=each.most) for each in asked)

    def note(self, found: Sequence[ResultSet]) -> str:
        """Return why there is no row, if *found*, the results of the statements, explains it."""
        if not self.conditions or (found and not found[0].rows):
            return f"{self._table.name} has no rows."
        findings = [each.finding(rows) for each, rows in zip(self._questions, found[1:], strict=False)]
        if self._joined and findings == [STORED] * len(self.conditions):
            return TOGETHER
        return " ".join(dict.fromkeys(filter(None, findings)))

    @property
    def meanings(self) -> str:
        """A note on a value that may not mean what the caller expects: a day, or a search."""
        pairs = zip(self.written, self.conditions, strict=True)
        notes = (_meaning_note(*pair) for pair in pairs)
        return next(filter(None, notes), "")

    @property
    def _table(self) -> Table:
        return self.terms.names.table

    @property
    def _joined(self) -> bool:
        return self.match is Match.ALL and len(self.conditions) > 1

    @cached_property
    def _questions(self) -> Sequence[ValuesQuestion | RowQuestion]:
        """The questions about the first conditions, one each."""
        pairs = enumerate(zip(self.written, self.conditions, strict=True))
        questions = (self._question(at, *pair) for at, pair in pairs)
        return tuple(islice(filter(None, questions), MOST_CHECKS))

    def _question(self, at: int, written: Where, clause: Clause) -> ValuesQuestion | RowQuestion | None:
        """Return the question about *clause*: about its values, or else whether any row meets it."""
        if isinstance(clause, Condition) and (question := self._values_question(written, clause)):
            return question
        if not self._joined:
            return None  # the empty answer has shown that no row meets it
        return RowQuestion(shape=_any_row(self._table, clause), said=f"No row meets where[{at}].")

    def _values_question(self, written: Where, condition: Condition) -> ValuesQuestion | None:
        term, operator = condition.term, written.op
        if isinstance(term, Measure | Rank) or not written.texts:
            return None
        table, place = self._table, term
        if isinstance(term, PathColumn):
            table, place = term.path[-1].target, term.column
        if not (shape := _values_shape(table, place, operator) or _range_shape(table, place, operator)):
            return None
        return ValuesQuestion(
            name=term.name,
            place=place,
            operator=operator,
            wanted=written.texts,
            shape=shape,
            advice=self._advice(written),
            alone=len(self.conditions) == 1,
        )

    def _advice(self, written: Where) -> str:
        """Return what the caller may have meant by the values of *written*, if they are not stored."""
        advice = (column_advice(self.terms.names, written.op, text) for text in written.texts)
        null = any(text.strip().lower() in NULLS for text in written.texts)
        return next(filter(None, advice), FOR_NULL if null else "")


def _values_shape(table: Table, place: Operand, operator: Operator) -> Select | None:
    """Return the shape that reads the single values of *place*, if *operator* compares with such."""
    if operator not in LOOKED_UP or not _is_listed(table, place):
        return None
    outputs, order = (Output(term=place, cut=LONGEST),), (Order(term=place),)
    return Select(table=table, outputs=outputs, groups=(place,), order=order)


def _range_shape(table: Table, place: Operand, operator: Operator) -> Select | None:
    """Return the shape that reads the least and the greatest value of *place*, for comparisons by order."""
    # A text between two others is not necessarily similar to them.
    is_ordered = place.type.family in ORDERED or isinstance(place, Bucketed) or operator in ORDER
    if operator not in RANGING or not is_ordered or Function.MIN not in functions_of(place.type):
        return None
    ends = (Measure(function=each, place=place) for each in (Function.MIN, Function.MAX))
    shape = Select(table=table, outputs=tuple(Output(term=each, cut=LONGEST) for each in ends))
    return shape if _may_be_known(shape) else None


def _meaning_note(written: Where, clause: Clause) -> str:
    """Return a note if *written* may not mean what the caller expects: a time of day, or a search."""
    if not isinstance(clause, Condition):
        return ""
    if written.op is Operator.MATCHES and SIGNS.search(written.value or ""):
        return f"matches has no AND, NOT, NEAR, &, | or *. {SEARCH_FORM}"
    last = written.texts[-1].strip() if written.texts else ""
    mistakable = written.op in (*MISTAKABLE, Operator.BETWEEN) and DAY.fullmatch(last)
    if mistakable and clause.term.type.family in MOMENTS:
        return f"{clause.term.name} has a time of day: {last} means 00:00. For the whole day use gte and lt."
    return ""


def _any_row(table: Table, *conditions: Clause) -> Select:
    """Return the shape that reads whether a row of *table* meets *conditions*."""
    column = (*table.key_columns, *table.columns)[0]
    return Select(table=table, outputs=(Output(term=column, cut=1),), conditions=conditions)


def _may_be_known(shape: Select) -> bool:
    """Return whether callers may know the values of all rows together."""
    return all(table.aggregated for table in shape.tables)


def _is_listed(table: Table, place: Operand) -> bool:
    """Return whether to read the single values of *place* in *table*."""
    type = place.type
    if not isinstance(place, Column | Calculation) or (table.row_estimate or 0) >= MOST_ROWS:
        return False
    is_key = type.family in NUMERIC and any(key.columns == (place.name,) for key in table.keys)
    return type.family in CHECKED and type.equatable and not is_key


def _value(text: str, family: Family) -> str | Decimal:
    """Return the value of *text*, equal for all spellings of the same value."""
    if family not in NUMERIC:
        return shortest(text) if family in TEMPORAL else text
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return text
    return text if number.is_nan() else number


def nearest_values(family: Family, wanted: str, texts: Sequence[str]) -> Sequence[str]:
    """Return the *texts* nearest to *wanted*: by letters, or the one before and the one after."""
    if family not in (*NUMERIC, *TEMPORAL):
        return _nearest_texts(wanted, texts)
    meant = _value(wanted, family)
    values = ((_value(text, family), text) for text in texts)
    ordered = sorted(each for each in values if type(each[0]) is type(meant))
    at = bisect_left(ordered, (meant, ""))
    return [text for _, text in ordered[max(0, at - 1) : at + 1]]


def _nearest_texts(wanted: str, texts: Sequence[str]) -> Sequence[str]:
    low = wanted.strip().lower()[:COMPARED]
    folded = {text.strip().lower()[:COMPARED]: text for text in texts}
    similar = [each for each in folded if min(len(each), len(low)) > 2 and (low in each or each in low)]
    # Counting common pairs of letters finds likely candidates quickly.
    pairs = set(pairwise(low))
    likely = nlargest(LIKELY, folded, key=lambda text: len(pairs & set(pairwise(text))))
    close = get_close_matches(low, likely, n=NEAR, cutoff=0.7)
    return [folded[each] for each in dict.fromkeys([*close[:2], *similar, *close])][:NEAR]


def _listed(values: Sequence[str]) -> str:
    return ", ".join(map(quoted, values))
