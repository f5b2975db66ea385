"""Say what an answer leaves out, or includes, that a caller may not expect. Conditions in, a note out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property
from itertools import islice

from dbtools.answers.results import ResultSet
from dbtools.expressions.terms import ROW_COUNT, Calculation, Related
from dbtools.statements.select import AnyOf, Clause, Condition, Existence, Match, Output, Select, Statement
from dbtools.tools.arguments import Comparison, Where, Within
from dbtools.tools.reasons import MOST_ROWS, Reasons
from dbtools.values.dates import PLAIN_DATE
from dbtools.values.types import MOMENTS, Operator

MOST_COUNTS = 2  #: of rows that are left out
LAST, NEXT = "last_day", "next_day"  #: parameters: where the last day of a range begins, and the day after


@dataclass(frozen=True, kw_only=True)
class _Omission:
    """Rows that one condition leaves out, all others holding."""

    at: int  #: the place of the condition
    instead: tuple[Clause, ...]  #: what they meet instead of it
    said: str  #: what they are called
    what: str = "left out"  #: or included, which may be as unexpected
    advice: str = ""
    values: Mapping[str, object]
    #: Further conditions for each count: those that follow the first are subtracted from it.
    counts: tuple[tuple[Clause, ...], ...] = ((),)


@dataclass(frozen=True, kw_only=True)
class Meanings:
    """What the conditions of a call mean beyond what they say; its statement reads *shape*."""

    reasons: Reasons
    shape: Select

    @property
    def statements(self) -> Sequence[Statement]:
        """The statements that count the rows that are left out."""
        return [self._count_statement(each, *further) for each in self._omissions for further in each.counts]

    def note(self, found: Sequence[ResultSet]) -> str:
        """Return the note; *found* are those results of the statements that have arrived."""
        counts = list(_differences(self._omissions, found))
        omitted = zip(self._omissions, counts, strict=False)
        said = [_omission_note(each, count) for each, count in omitted if count]
        # A range whose last day has been counted needs no warning.
        counted = {each.at for each in islice(self._omissions, len(counts)) if LAST in each.values}
        warning = "" if counted else self.reasons.meanings
        return " ".join(filter(None, [*said, *self._wholes, warning]))

    @cached_property
    def _omissions(self) -> Sequence[_Omission]:
        table = self.reasons.terms.names.table
        if self.reasons.match is not Match.ALL or not all(each.aggregated for each in self.shape.tables):
            return ()
        if (table.row_estimate or 0) >= MOST_ROWS:
            return ()
        pairs = zip(self.reasons.written, self.reasons.conditions, strict=True)
        each_one = (self._omission(at, *pair) for at, pair in enumerate(pairs))
        return tuple(islice(filter(None, each_one), MOST_COUNTS))

    def _omission(self, at: int, written: Where, clause: Clause) -> _Omission | None:
        """Return what *clause*, which is *at* a place in where, leaves out, if anything."""
        if isinstance(clause, Existence):
            return _related_omission(at, written, clause)
        if isinstance(clause, AnyOf):
            # Rows with null may meet another one of the conditions.
            return _nulls(at, _negative_comparisons(written, clause), counts=((), (clause,)))
        if negative := _negative_comparisons(written, clause):
            return _nulls(at, negative)
        last = written.texts[-1].strip() if written.texts else ""
        if written.op is not Operator.BETWEEN or clause.term.type.family not in MOMENTS:
            return None
        if not PLAIN_DATE.fullmatch(last) or last == date.max.isoformat():
            return None
        return _last_day(at, clause, last)

    def _count_statement(self, omission: _Omission, *further: Clause) -> Statement:
        """Return the statement that counts the rows of *omission* that also meet *further* conditions."""
        others = (each for at, each in enumerate(self.reasons.conditions) if at != omission.at)
        table = self.reasons.terms.names.table
        shape = Select(
            table=table,
            outputs=(Output(term=ROW_COUNT),),
            conditions=(*omission.instead, *further, *others),
            match=Match.ALL,
        )
        return Statement(shape=shape, values={**self.reasons.values, **omission.values}, limit=1)

    @property
    def _wholes(self) -> Iterator[str]:
        """Yield notes on measures of related rows beside a condition on the same rows."""
        conditions = [each for each in self.reasons.conditions if isinstance(each, Existence)]
        some = {each.relation for each in conditions if each.wanted and each.conditions}
        measures = (each for each in self.shape.parts if isinstance(each, Related) and each.relation in some)
        first = next(measures, None)
        if first is not None:
            rows = first.relation.name
            yield f"{first.name} also covers {rows} that do not meet the condition in some."


def _leaves_out_nulls(comparison: Comparison) -> bool:
    """Return whether *comparison* does not hold for null; every value, null too, is not in an empty list."""
    return comparison.op is Operator.NE or (comparison.op is Operator.NOT_IN and bool(comparison.texts))


def _negative_comparisons(written: Within, clause: Condition | AnyOf) -> Sequence[Condition]:
    """Return the comparisons of *clause*, as *written*, that do not hold for null."""
    if isinstance(clause, Condition):
        return [clause] if _leaves_out_nulls(written) else []
    pairs = zip(written.any, clause.conditions, strict=True)
    return [each for comparison, each in pairs if _leaves_out_nulls(comparison)]


def _related_omission(at: int, written: Where, clause: Existence) -> _Omission | None:
    """Return the rows that *clause* leaves out, or includes, only because a related row has null.

    Of several conditions that null does not meet, it is about the first one.
    """
    pairs = zip(written.where, clause.conditions, strict=True)
    for index, (within, condition) in enumerate(pairs):
        nulls = _nulls(at, _negative_comparisons(within, condition), of=f"{clause.relation.name}.")
        if nulls is None:
            continue
        (any_null,) = nulls.instead
        assert isinstance(any_null, AnyOf)
        conditions = list(clause.conditions)
        conditions[index] = any_null
        with_null = replace(
            clause,
            wanted=True,
            match=Match.ALL,
            conditions=tuple(conditions) if clause.match is Match.ALL else (any_null,),
        )
        if clause.wanted:
            # Another related row may meet all conditions.
            return replace(nulls, instead=(with_null,), counts=((), (clause,)))
        return replace(nulls, instead=(with_null, clause), what="included")
    return None


def _nulls(
    at: int,
    negative: Sequence[Condition],
    *,
    of: str = "",
    counts: tuple[tuple[Clause, ...], ...] = ((),),
) -> _Omission | None:
    """Return the rows that have null where *negative* conditions compare, if any may have."""
    terms = dict.fromkeys(term for each in negative for term in each.terms if term.nullable)
    nulls = tuple(Condition(term=each, operator=Operator.IS_NULL) for each in terms)
    said = f"with null in {' or '.join(f'{of}{each.name}' for each in terms)}"
    instead = (AnyOf(conditions=nulls),)
    return _Omission(at=at, instead=instead, said=said, values={}, counts=counts) if nulls else None


def _differences(omissions: Sequence[_Omission], found: Sequence[ResultSet]) -> Iterator[int]:
    """Yield how many rows each of *omissions* has, as far as its counts are in *found*."""
    numbers = iter(int(str(each.rows[0][0])) for each in found)
    for each in omissions:
        counts = list(islice(numbers, len(each.counts)))
        if len(counts) < len(each.counts):
            return
        yield counts[0] - sum(counts[1:])


def _last_day(at: int, clause: Condition, last: str) -> _Omission:
    """Return the rows that end after the beginning of the day *last* and before its end."""
    day = date.fromisoformat(last)
    type = clause.term.type
    later = clause._replace(operator=Operator.GT, parameters=(LAST,))
    earlier = clause._replace(operator=Operator.LT, parameters=(NEXT,))
    ends = {LAST: type.read(last), NEXT: type.read((day + timedelta(days=1)).isoformat())}
    name = f"({clause.term.name})" if isinstance(clause.term, Calculation) else clause.term.name
    advice = f": to include that whole day, write {name}:day as the column"
    return _Omission(
        at=at, instead=(later, earlier), said=f"later on {last} in {name}", advice=advice, values=ends
    )


def _omission_note(omission: _Omission, count: int) -> str:
    rows, are = ("row", "is") if count == 1 else ("rows", "are")
    return f"{count:,} {rows} {omission.said} {are} {omission.what}{omission.advice}."
