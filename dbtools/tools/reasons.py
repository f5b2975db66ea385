"""Why an answer is empty or null: the conditions of a call in, what to ask about them and a note out."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from functools import cached_property, partial
from heapq import nlargest
from itertools import islice, pairwise

from dbtools.catalog import Column, Table
from dbtools.cells import Cut, encoder
from dbtools.dates import DAY, shortest
from dbtools.expressions import Expressions
from dbtools.paths import Distant
from dbtools.results import ResultSet
from dbtools.statement import AnyOf, Clause, Condition, Existence, Match, Order, Output, Select, Statement
from dbtools.terms import Bucketed, Calculation, Function, Measure, Operand, Rank, functions_of
from dbtools.tools.binding import FOR_NULL, SEARCH_FORM, column_advice
from dbtools.tools.clauses import Comparison, Where, Within
from dbtools.types import MOMENTS, NUMERIC, ORDER, TEMPORAL, TEXTUAL, Family, Operator, quoted

MOST_ROWS = 100_000  #: estimated, of a table whose values are looked at
MOST_VALUES = 1_000
MOST_CHECKS = 3  #: conditions that are looked at
FEW = 10  #: values that are all listed
SOME = 25  #: values that are all listed where none is like what was asked for
MOST_MISSING = 3  #: values whose nearest are looked for
LIKELY = 50  #: values that are compared with one letter by letter
COMPARED = 40  #: characters of two values that are compared
NEAR = 5  #: values that are listed of many
LONGEST = 200  #: characters that are read of a value
PARTS: Mapping[Operator, Callable[[str, str], bool]] = {
    Operator.CONTAINS: str.__contains__,
    Operator.STARTS_WITH: str.startswith,
    Operator.ENDS_WITH: str.endswith,
}
EXCLUDING = (Operator.NE, Operator.NOT_IN)
LOOKED_UP = {Operator.EQ, Operator.IN, *EXCLUDING, *PARTS}
RANGING = {Operator.EQ, Operator.IN, *ORDER}
WORDS = (Family.TEXT, Family.ENUM, Family.ANY)
ORDERED = (*NUMERIC, *TEMPORAL, Family.INTERVAL)
CHECKED = {*WORDS, *NUMERIC, *TEMPORAL}
#: What of a day a comparison leaves out, or takes in, that its writer may not have meant.
MISTAKABLE = (Operator.EQ, Operator.LTE, Operator.GT, Operator.BETWEEN)
NULLS = ("", "null", "none")  #: texts that may mean null
SIGNS = re.compile(r"\b(AND|NOT|NEAR)\b|\w\*(?!\w)|\s[&|]\s")  #: of other languages for searches
STORED = ""  #: the finding on values that are all stored
PAST_END = "Past the last row."
TOGETHER = "Each of these values is stored, but no row has all of them."


@dataclass(frozen=True, kw_only=True)
class Check:
    """What is asked about one condition: the values that are stored, or the least and the greatest."""

    name: str  #: of what is compared, as callers know it
    place: Operand  #: the same in the table that is read
    operator: Operator
    wanted: Sequence[str]
    shape: Select
    advice: str = ""  #: on values that are not stored
    alone: bool = False  #: whether there is no other condition

    def finding(self, found: ResultSet) -> str | None:
        """Return what the values *found* say: STORED, or None where they explain nothing."""
        cells, encode = [cell for row in found.rows for cell in row], encoder(self.place.type)
        values = (encode(cell.start if isinstance(cell, Cut) else cell) for cell in cells)
        texts = [str(value) for value in values if value is not None]
        # Where not all has been read, or may be known, what is missing here may yet be stored.
        partial = found.more or any(isinstance(cell, Cut) for cell in cells) or not _may_be_known(self.shape)
        if cells and not texts:
            return None if partial else self._null()
        return self._among(texts, partial=partial) if self.shape.groups else self._between(texts)

    def _null(self) -> str:
        # A cell of another type is no number, and yet not null.
        is_number = self.place.type.family in NUMERIC and not self.shape.groups
        return f"No row has a number in {self.name}." if is_number else f"{self.name} is null in every row."

    def _between(self, ends: Sequence[str]) -> str | None:
        """Return from where to where values go, unless some of them seem to be wanted."""
        least, most, *wanted = self._values([*ends, *self.wanted])
        one_kind = len({type(each) for each in (least, most, *wanted)}) == 1
        ordered = sorted((each,) for each in wanted) if one_kind else []
        if ordered and self.operator is Operator.BETWEEN and ordered[0] != (wanted[0],):
            return "between takes the lower value first."
        if ordered and not self.alone:
            above = self.operator not in (Operator.LT, Operator.LTE) and ordered[0] >= (most,)
            below = self.operator not in (Operator.GT, Operator.GTE) and ordered[-1] <= (least,)
            if not (above or below):
                return None
        is_text = self.place.type.family in WORDS and not isinstance(self.place, Bucketed)
        first, last = (quoted(end) if is_text else quoted(end)[1:-1] for end in ends)
        return f"{self.name} runs from {first} to {last}."

    def _among(self, texts: Sequence[str], *, partial: bool) -> str | None:
        """Return which values are stored instead of those that are wanted."""
        only = f"{self.name} has only these values: {_listed(texts[:SOME])}."
        if not (missing := self._missing(texts)):
            if self.operator not in EXCLUDING:
                return STORED
            others = set(self._values(texts)) - set(self._values(self.wanted))
            return None if others or partial or len(texts) > SOME else only
        if self.operator in TEXTUAL and any("%" in wanted for wanted in missing):
            return f"{self.operator} matches % literally: leave it out."
        nearest = (value for each in missing for value in nearest_values(self.place.type.family, each, texts))
        near = _listed(list(dict.fromkeys(nearest))[:NEAR])
        if partial or self.operator in EXCLUDING or not texts:
            said = f"Stored values of {self.name}: {near}, …" if near else ""
        elif len(texts) <= (FEW if near else SOME):
            said = only
        elif near:
            said = f"{self.name} has no {_listed(missing)}; nearest stored values: {near}."
        else:
            said = f"No {self.name} is like {_listed(missing)}."
        return f"{said} {self.advice}".strip() or None

    def _missing(self, texts: Sequence[str]) -> Sequence[str]:
        """Return some of the values that are wanted and that are not among *texts*."""
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
class Reasons:
    """Why a call may find nothing."""

    terms: Expressions
    written: Sequence[Where]  #: what the conditions mean
    conditions: Sequence[Clause]
    match: Match

    @property
    def statements(self) -> Sequence[Statement]:
        """What asks whether there is any row, and then about the conditions; without them nothing."""
        table = self.terms.names.table
        column = (*table.key_columns, *table.columns)[0]
        row = Statement(shape=Select(table=table, outputs=(Output(term=column, cut=1),)), limit=1)
        shapes, values = (check.shape for check in self.checks), self.terms.values
        checks = (Statement(shape=each, values=values, limit=MOST_VALUES) for each in shapes)
        return (row, *checks) if self.conditions else ()

    def note(self, found: Sequence[ResultSet]) -> str:
        """Return why there is no row, as far as *found*, the results of the statements, explains it."""
        if not self.conditions or (found and not found[0].rows):
            return f"{self.terms.names.table.name} has no rows."
        findings = [check.finding(each) for check, each in zip(self.checks, found[1:], strict=False)]
        plain = all(isinstance(each, Condition) for each in self.conditions) and self.match is Match.ALL
        if plain and len(findings) == len(self.conditions) > 1 and set(findings) == {STORED}:
            return TOGETHER
        items = (_note_of_items(condition) for _, _, _, condition in self._compared)
        return " ".join(dict.fromkeys(filter(None, [*findings, *items])))

    @property
    def values(self) -> str:
        """What callers may not have meant by a value: a day, or a search."""
        pairs = [(comparison, condition) for _, _, comparison, condition in self._compared]
        notes = (_note_of_day(*pair) or _note_of_search(pair[0]) for pair in pairs)
        return next(filter(None, notes), "")

    @cached_property
    def checks(self) -> Sequence[Check]:
        """What to look at, of the first conditions."""
        checks = (self._check(*each) for each in self._compared)
        return tuple(islice(filter(None, checks), MOST_CHECKS))

    @property
    def _compared(self) -> "Iterator[_Compared]":
        return _compared(self.terms.names.table, "", self.written, self.conditions)

    def _check(self, of: Table, prefix: str, comparison: Comparison, condition: Condition) -> Check | None:
        """Return what to look at for *condition* on rows of *of*, whose names begin with *prefix*."""
        term, operator = condition.term, comparison.op
        if isinstance(term, Measure | Rank) or not comparison.texts:
            return None
        table, place = (term.path[-1].target, term.column) if isinstance(term, Distant) else (of, term)
        name, texts = f"{prefix}{term.name}", comparison.texts
        check = partial(Check, name=name, place=place, operator=operator, wanted=texts)
        if operator in LOOKED_UP and _is_listed(table, place):
            outputs, order = (Output(term=place, cut=LONGEST),), (Order(term=place),)
            shape = Select(table=table, outputs=outputs, groups=(place,), order=order)
            return check(shape=shape, advice="" if prefix else self._advice(comparison))
        # That a text lies between two others does not make it a likely one.
        is_ordered = place.type.family in ORDERED or isinstance(place, Bucketed) or operator in ORDER
        if operator not in RANGING or not is_ordered or Function.MIN not in functions_of(place.type):
            return None
        ends = (Measure(function=each, place=place) for each in (Function.MIN, Function.MAX))
        shape = Select(table=table, outputs=tuple(Output(term=each, cut=LONGEST) for each in ends))
        return check(shape=shape, alone=len(self.conditions) == 1) if _may_be_known(shape) else None

    def _advice(self, comparison: Comparison) -> str:
        """Return what else may be meant by the values of *comparison*, if they are not stored."""
        advice = (column_advice(self.terms.names, comparison.op, text) for text in comparison.texts)
        null = any(text.strip().lower() in NULLS for text in comparison.texts)
        return next(filter(None, advice), FOR_NULL if null else "")


_Compared = tuple[Table, str, Comparison, Condition]


def _compared(
    table: Table, prefix: str, written: Sequence[Comparison], conditions: Sequence[Clause]
) -> Iterator[_Compared]:
    """Yield the conditions that rows must or may meet, each with its table and how names in it begin."""
    for each, condition in zip(written, conditions, strict=True):
        match each, condition:
            case _, Condition():
                yield table, prefix, each, condition
            case Within(), AnyOf():
                yield from _compared(table, prefix, each.any, condition.conditions)
            case Where(), Existence(wanted=True, relation=relation):
                within = f"{relation.name}."
                yield from _compared(relation.target, within, each.where, condition.conditions)
            case _:
                # A row that refers to none is not explained by what others hold.
                pass


def _may_be_known(shape: Select) -> bool:
    """Return whether callers may know what all rows have together."""
    return all(table.aggregated for table in shape.tables)


def _is_listed(table: Table, place: Operand) -> bool:
    """Return whether to look at the single values of *place* in *table*."""
    type = place.type
    if not isinstance(place, Column | Calculation) or (table.row_estimate or 0) >= MOST_ROWS:
        return False
    is_key = type.family in NUMERIC and any(key.columns == (place.name,) for key in table.keys)
    return type.family in CHECKED and type.equatable and not is_key


def _note_of_day(comparison: Comparison, condition: Condition) -> str:
    """Return that a day means its first moment, where moments are compared with the end of a day."""
    if comparison.op not in MISTAKABLE or condition.term.type.family not in MOMENTS:
        return ""
    name, last = condition.term.name, comparison.texts[-1].strip() if comparison.texts else ""
    note = f"{name} has a time of day: {last} means 00:00. For the whole day use gte and lt."
    return note if DAY.fullmatch(last) else ""


def _note_of_search(comparison: Comparison) -> str:
    """Return how searches are written, where one has signs of another language."""
    foreign = comparison.op is Operator.MATCHES and SIGNS.search(comparison.value or "")
    return f"matches has no AND, NOT, NEAR, &, | or *. {SEARCH_FORM}" if foreign else ""


def _note_of_items(condition: Condition) -> str:
    """Return what contains looks for in an array."""
    term = condition.term
    items = condition.operator is Operator.CONTAINS and term.type.family is Family.ARRAY
    return f"contains looks for a whole item of {term.name}, case included." if items else ""


def _value(text: str, family: Family) -> str | Decimal:
    """Return what *text* means, so that two spellings of one value are equal."""
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
    # Those that share the most pairs of letters are quickly known, if roughly.
    pairs = set(pairwise(low))
    likely = nlargest(LIKELY, folded, key=lambda text: len(pairs & set(pairwise(text))))
    close = get_close_matches(low, likely, n=NEAR, cutoff=0.7)
    return [folded[each] for each in dict.fromkeys([*close[:2], *similar, *close])][:NEAR]


def _listed(values: Sequence[str]) -> str:
    return ", ".join(map(quoted, values))
