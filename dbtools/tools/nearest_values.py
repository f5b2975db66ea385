"""Why nothing was found: the stored values that are nearest to those that a condition asked for."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from heapq import nlargest, nsmallest
from itertools import islice, pairwise
from operator import itemgetter

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
MOST_DOUBTS = 3  #: conditions that are looked at
FEW = 10  #: values that are all told
SOME = 25  #: values that are all told where none is like what was asked for
MOST_MISSING = 3  #: values whose nearest are looked for
LIKELY = 50  #: values that are held against one letter by letter
COMPARED = 40  #: characters of two values that are held against each other
NEAR = 5  #: values that are told of many
LONGEST = 200  #: characters that are read of a value
PARTS: Mapping[Operator, Callable[[str, str], bool]] = {
    Operator.CONTAINS: str.__contains__,
    Operator.STARTS_WITH: str.startswith,
    Operator.ENDS_WITH: str.endswith,
}
SEARCHING = {Operator.EQ, Operator.IN, *PARTS}
STORED = ""  #: what is said of values that are all stored
DOUBTED = {Family.TEXT, Family.ENUM, Family.ANY, *NUMERIC, *TEMPORAL}
#: What of a day a comparison leaves out, or takes in, that its writer may not have meant.
MISTAKABLE = (Operator.EQ, Operator.LTE, Operator.GT, Operator.BETWEEN)


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """A condition whose values may not be stored at all."""

    place: Place
    operator: Operator
    wanted: tuple[str, ...]
    statement: Statement  #: reads the values that are stored


@dataclass(frozen=True, kw_only=True)
class Doubts:
    """The conditions of one call that may have left nothing."""

    each: tuple[Doubt, ...]
    complete: bool  #: whether there are no other conditions, and all must hold
    days: str  #: what callers should know of days that moments are compared with

    @property
    def statements(self) -> Sequence[Statement]:
        """What reads the values that are stored."""
        return [doubt.statement for doubt in self.each]

    def note(self, stored: Sequence[ResultSet], *, instead: str, proved: bool = True) -> str:
        """Return what callers should know: what is said *instead*, or what the *stored* values explain.

        *proved* is whether the answer is certainly empty.
        """
        findings = [] if instead else list(map(_find, self.each, stored))
        said = instead or " ".join(dict.fromkeys(filter(None, findings)))
        complete = proved and self.complete and len(findings) == len(self.each) > 1
        if complete and set(findings) == {STORED}:
            said = "Each of these values is stored, but no row has all of them."
        return " ".join(filter(None, [said, self.days]))


def doubts(table: Table, written: Sequence[Written], conditions: Sequence[Clause], match: Match) -> Doubts:
    """Return what to doubt of *conditions* on *table*, which mean what is *written*."""
    pairs = [
        (comparison, condition)
        for comparison, condition in zip(written, conditions, strict=True)
        if isinstance(comparison, Comparison) and isinstance(condition, Condition)
    ]
    found = [doubt for each in pairs if (doubt := _doubt(table, *each)) is not None]
    complete = len(found) == len(conditions) <= MOST_DOUBTS and match is Match.ALL
    days = _note_of_days(pairs)
    return Doubts(each=tuple(found[:MOST_DOUBTS]), complete=complete, days=days)


def _doubt(of: Table, comparison: Comparison, condition: Condition) -> Doubt | None:
    place = condition.term
    if not isinstance(place, Column | Distant) or comparison.operator not in SEARCHING:
        return None
    column, table = (place, of) if isinstance(place, Column) else (place.column, place.path[-1].target)
    is_key = column.type.family in NUMERIC and any(key.columns == (column.name,) for key in table.keys)
    is_told = column.type.family in DOUBTED and column.type.equatable and not is_key
    if not is_told or (table.row_estimate or 0) >= MOST_ROWS or not comparison.texts:
        return None
    output, order = Output(term=column, cut=LONGEST), Order(term=column)
    shape = Select(table=table, outputs=(output,), groups=(column,), order=(order,))
    statement = Statement(shape=shape, limit=MOST_VALUES)
    return Doubt(place=place, operator=comparison.operator, wanted=comparison.texts, statement=statement)


def _note_of_days(conditions: Sequence[tuple[Comparison, Condition]]) -> str:
    """Return that a day means its first moment, where *conditions* compare moments with the end of a day."""
    for comparison, condition in conditions:
        if not comparison.texts or comparison.operator not in MISTAKABLE:
            continue
        if condition.term.type.family not in MOMENTS:
            continue
        last = comparison.texts[-1].strip()
        if DAY.fullmatch(last):
            name = condition.term.name
            return f"{name} has times: {last} is 00:00 of that day. For all of it use gte and lt."
    return ""


def _find(doubt: Doubt, found: ResultSet) -> str | None:
    """Return what the values *found* say of *doubt*: None where that is not known."""
    name = doubt.place.name
    encode = encoder(doubt.place.type)
    values = (encode(cell.start if isinstance(cell, Cut) else cell) for (cell,) in found.rows)
    texts = [str(value) for value in values if value is not None]
    missing = _missing(doubt, texts)
    if not missing:
        return STORED
    if doubt.operator in TEXTUAL and any("%" in wanted for wanted in missing):
        return f"{doubt.operator} takes % as itself: leave it out."
    if not texts:
        return f"{name} is null in every row." if found.rows else None
    likest = (value for wanted in missing for value in nearest_values(doubt, wanted, texts))
    near = list(dict.fromkeys(likest))[:NEAR]
    if found.more or any(isinstance(cell, Cut) for (cell,) in found.rows):
        # Not all has been read: what is missing here may yet be stored.
        return f"Stored values of {name}: {_listed(near)}, …" if near else None
    if len(texts) <= (FEW if near else SOME):
        return f"{name} has only these values: {_listed(texts)}."
    if not near:
        return f"No {name} is like {_listed(missing)}."
    return f"{name} has no {_listed(missing)}; nearest stored values: {_listed(near)}."


def _missing(doubt: Doubt, texts: Sequence[str]) -> Sequence[str]:
    """Return some of the values that *doubt* asks for and that are not among *texts*."""
    if doubt.operator in (Operator.EQ, Operator.IN):
        family = doubt.place.type.family
        stored = {_value(text, family) for text in texts}
        missing = (wanted for wanted in doubt.wanted if _value(wanted, family) not in stored)
    else:
        has, folded = PARTS[doubt.operator], [text.lower() for text in texts]
        missing = (each for each in doubt.wanted if not any(has(text, each.lower()) for text in folded))
    return list(islice(missing, MOST_MISSING))


def _value(text: str, family: Family) -> object:
    """Return what *text* means, so that two spellings of one value are equal."""
    if family in TEMPORAL:
        return shortest(text)
    number = _number(text) if family in NUMERIC else None
    return text if number is None else number


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return None if number.is_nan() else number


def nearest_values(doubt: Doubt, wanted: str, texts: Sequence[str]) -> Sequence[str]:
    """Return the *texts* most like *wanted*: by number, by order, or by letters."""
    family = doubt.place.type.family
    if family in NUMERIC:
        return _nearest_numbers(wanted, texts)
    if family in TEMPORAL:
        at = bisect_left(sorted(texts), wanted)
        return sorted(texts)[max(0, at - 1) : at + 1]
    return _nearest_texts(wanted, texts)


def _nearest_numbers(wanted: str, texts: Sequence[str]) -> Sequence[str]:
    number = _number(wanted)
    if number is None or not number.is_finite():
        return ()
    away = [(abs(value - number), text) for text in texts if (value := _number(text)) is not None]
    return [text for _, text in nsmallest(2, away, key=itemgetter(0))]


def _nearest_texts(wanted: str, texts: Sequence[str]) -> Sequence[str]:
    low = wanted.strip().lower()[:COMPARED]
    folded: Mapping[str, str] = {text.strip().lower()[:COMPARED]: text for text in texts}
    inside = [text for each, text in folded.items() if len(low) > 2 and low in each]
    around = [text for each, text in folded.items() if len(each) > 2 and each in low]
    # Those that share the most pairs of letters are quickly known, if roughly.
    pairs = set(pairwise(low))
    likely = nlargest(LIKELY, folded, key=lambda text: len(pairs & set(pairwise(text))))
    close = [folded[each] for each in get_close_matches(low, likely, n=NEAR, cutoff=0.7)]
    same = [folded[low]] if low in folded else []
    return list(dict.fromkeys([*same, *close[:2], *inside, *around, *close]))[:NEAR]


def _listed(values: Sequence[str]) -> str:
    return ", ".join(map(quoted, values))
