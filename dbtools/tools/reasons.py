"""Why nothing was found: the stored values that are nearest to those that a condition asked for."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from heapq import nlargest
from itertools import islice, pairwise

from dbtools.binding import Comparison, Written
from dbtools.catalog import Column, Table
from dbtools.cells import Cut, encoder
from dbtools.dates import DAY, shortest
from dbtools.paths import Distant, Place
from dbtools.results import ResultSet
from dbtools.statement import Clause, Condition, Match, Order, Output, Select, Statement
from dbtools.types import MOMENTS, NUMERIC, TEMPORAL, TEXTUAL, Family, Operator, quoted

MOST_ROWS = 100_000  #: estimated, of a table whose values are looked at
MOST_VALUES = 1_000
MOST_CHECKS = 3  #: conditions whose values are looked at
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
SEARCHING = {Operator.EQ, Operator.IN, *PARTS}
CHECKED = {Family.TEXT, Family.ENUM, Family.ANY, *NUMERIC, *TEMPORAL}
#: What of a day a comparison leaves out, or takes in, that its writer may not have meant.
MISTAKABLE = (Operator.EQ, Operator.LTE, Operator.GT, Operator.BETWEEN)
STORED = ""  #: the finding on values that are all stored


@dataclass(frozen=True, kw_only=True)
class ValueCheck:
    """Whether the values of one condition are stored at all."""

    place: Place
    operator: Operator
    wanted: tuple[str, ...]
    statement: Statement  #: reads the values that are stored

    def finding(self, found: ResultSet) -> str | None:
        """Return what the values *found* say: STORED, or None where they explain nothing."""
        name, encode = self.place.name, encoder(self.place.type)
        values = (encode(cell.start if isinstance(cell, Cut) else cell) for (cell,) in found.rows)
        texts = [str(value) for value in values if value is not None]
        missing = self._missing(texts)
        if not missing:
            return STORED
        if self.operator in TEXTUAL and any("%" in wanted for wanted in missing):
            return f"{self.operator} matches % literally: leave it out."
        if not texts:
            return f"{name} is null in every row." if found.rows else None
        family = self.place.type.family
        nearest = (value for wanted in missing for value in nearest_values(family, wanted, texts))
        near = _listed(list(dict.fromkeys(nearest))[:NEAR])
        if found.more or any(isinstance(cell, Cut) for (cell,) in found.rows):
            # Not all has been read: what is missing here may yet be stored.
            return f"Stored values of {name}: {near}, …" if near else None
        if len(texts) <= (FEW if near else SOME):
            return f"{name} has only these values: {_listed(texts)}."
        if not near:
            return f"No {name} is like {_listed(missing)}."
        return f"{name} has no {_listed(missing)}; nearest stored values: {near}."

    def _missing(self, texts: Sequence[str]) -> Sequence[str]:
        """Return some of the values that are wanted and that are not among *texts*."""
        if self.operator in (Operator.EQ, Operator.IN):
            family = self.place.type.family
            stored = {_value(text, family) for text in texts}
            missing = (wanted for wanted in self.wanted if _value(wanted, family) not in stored)
        else:
            has, folded = PARTS[self.operator], [text.lower() for text in texts]
            missing = (each for each in self.wanted if not any(has(text, each.lower()) for text in folded))
        return list(islice(missing, MOST_MISSING))


@dataclass(frozen=True, kw_only=True)
class ValueChecks:
    """The conditions of one call that may have left nothing."""

    each: tuple[ValueCheck, ...]
    complete: bool  #: whether there are no other conditions, and all must hold
    days: str  #: what callers should know of days that moments are compared with

    @property
    def statements(self) -> Sequence[Statement]:
        """What reads the values that are stored."""
        return [check.statement for check in self.each]

    def note(self, stored: Sequence[ResultSet], *, instead: str, proved: bool = True) -> str:
        """Return what callers should know: what is said *instead*, or what the *stored* values explain.

        *proved* is whether the answer is certainly empty.
        """
        pairs = () if instead else zip(self.each, stored, strict=False)
        findings = [check.finding(found) for check, found in pairs]
        said = instead or " ".join(dict.fromkeys(filter(None, findings)))
        if proved and self.complete and len(findings) == len(self.each) > 1 and set(findings) == {STORED}:
            said = "Each of these values is stored, but no row has all of them."
        return " ".join(filter(None, [said, self.days]))


def value_checks(
    table: Table, written: Sequence[Written], conditions: Sequence[Clause], match: Match
) -> ValueChecks:
    """Return what to check of *conditions* on *table*, which mean what is *written*."""
    pairs = [
        (comparison, condition)
        for comparison, condition in zip(written, conditions, strict=True)
        if isinstance(comparison, Comparison) and isinstance(condition, Condition)
    ]
    checks = [check for pair in pairs if (check := _check(table, *pair)) is not None]
    days = (_note_of_day(comparison, condition) for comparison, condition in pairs)
    return ValueChecks(
        each=tuple(checks[:MOST_CHECKS]),
        complete=len(checks) == len(conditions) <= MOST_CHECKS and match is Match.ALL,
        days=next(filter(None, days), ""),
    )


def _check(of: Table, comparison: Comparison, condition: Condition) -> ValueCheck | None:
    place = condition.term
    if not isinstance(place, Column | Distant) or comparison.operator not in SEARCHING:
        return None
    column, table = (place, of) if isinstance(place, Column) else (place.column, place.path[-1].target)
    is_key = column.type.family in NUMERIC and any(key.columns == (column.name,) for key in table.keys)
    is_checked = column.type.family in CHECKED and column.type.equatable and not is_key
    if not is_checked or (table.row_estimate or 0) >= MOST_ROWS or not comparison.texts:
        return None
    output, order = Output(term=column, cut=LONGEST), Order(term=column)
    shape = Select(table=table, outputs=(output,), groups=(column,), order=(order,))
    statement = Statement(shape=shape, limit=MOST_VALUES)
    return ValueCheck(place=place, operator=comparison.operator, wanted=comparison.texts, statement=statement)


def _note_of_day(comparison: Comparison, condition: Condition) -> str:
    """Return that a day means its first moment, where moments are compared with the end of a day."""
    if comparison.operator not in MISTAKABLE or condition.term.type.family not in MOMENTS:
        return ""
    name, last = condition.term.name, comparison.texts[-1].strip() if comparison.texts else ""
    note = f"{name} has a time of day: {last} means 00:00. For the whole day use gte and lt."
    return note if DAY.fullmatch(last) else ""


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
