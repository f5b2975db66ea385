"""Bind conditions and orders. Arguments in; clauses of a statement, and the values bound to it, out."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Protocol

from dbtools import errors
from dbtools.errors import did_you_mean, listing
from dbtools.expressions.hints import json_values, steps_in
from dbtools.expressions.parser import Expressions, refuse_masked
from dbtools.expressions.terms import (
    Bucket,
    Bucketed,
    Literal,
    Measure,
    Rank,
    Term,
    alternatives_of,
    are_comparable,
    buckets_of,
    text_index_of,
)
from dbtools.schema.catalog import Column
from dbtools.schema.paths import PathColumn
from dbtools.statements.select import AnyOf, Clause, Condition, Direction, Existence, Order
from dbtools.tools.arguments import MOST_CONDITIONS, MOST_STEPS, Comparison, Where, Within
from dbtools.values.cells import json_of
from dbtools.values.types import EQUALITY, ORDER, TEXTUAL, ColumnType, Family, Operator, quote, with_bytes

MOST_SEARCHES = 10  #: conditions that search inside texts, which may be long
MOST_RELATIONS = 5  #: conditions on related rows
SEARCHING = (*TEXTUAL, Operator.MATCHES)
#: The operators that compare with several values, by those that compare with one.
LISTED = {Operator.EQ: Operator.IN, Operator.NE: Operator.NOT_IN}
MANY_CONDITIONS = f"{MOST_CONDITIONS} conditions"
MANY_SEARCHES = f"{MOST_SEARCHES} conditions with {' or '.join(SEARCHING)}"
SEARCH_FORM = 'Write words, "a phrase", or between alternatives, and -word to leave out.'
FOR_NULL = 'For null use op is_null with value "true".'
SIGNED = (Operator.EQ, Operator.NE, *ORDER[:4])  #: operators between two terms
RANK = re.compile(r"\s*rank\s*\((?P<place>.*)\)(?P<rest>.*)", re.I | re.S)
RANK_FORM = 'The best come first: write "rank(column)" alone.'
#: How the values of buckets are written.
BUCKETS: Mapping[Bucket, tuple[str, str]] = {
    Bucket.YEAR: (r"\d{4}", "a year such as 2024"),
    Bucket.QUARTER: (r"\d{4}-Q[1-4]", "a quarter such as 2024-Q1"),
    Bucket.MONTH: (r"\d{4}-(0[1-9]|1[0-2])", "a month such as 2024-03"),
    Bucket.WEEK: (r"\d{4}-W[0-5]\d", "an ISO week such as 2024-W09"),
    Bucket.DAY: (r"\d{4}-\d\d-\d\d", "a day such as 2024-03-05"),
    Bucket.WEEKDAY: ("[1-7]", "1 (Monday) to 7 (Sunday)"),
    Bucket.HOUR: (r"[01]\d|2[0-3]", "an hour from 00 to 23"),
}
PERIODS = (Bucket.YEAR, Bucket.QUARTER, Bucket.MONTH, Bucket.WEEK)  #: longer than a day
NULLS = ("", "null", "none")  #: texts that may mean null
LONGEST_PATTERN = 200  #: characters of a value that is searched for inside texts


class TermFinder(Protocol):
    """Finds the terms that callers may name, such as `Expressions`."""

    def get(self, text: str) -> Term | None:
        """Return the term with the name *text*, if there is one."""

    def find(self, text: str, argument: str) -> Term:
        """Return the term that *text* means, or raise a CallError that names the *argument*."""


def bind_where(terms: Expressions, where: Sequence[Where]) -> tuple[tuple[Clause, ...], Mapping[str, object]]:
    """Return the conditions that *where* means, and the values of their parameters."""
    if not where:
        return (), {}
    bound = _Bound("c")
    return tuple(bound.clause(terms, each, f"where[{at}]") for at, each in enumerate(where)), bound.values


def bind_having(
    names: TermFinder, having: Sequence[Comparison]
) -> tuple[tuple[Condition, ...], Mapping[str, object]]:
    """Return the conditions on groups that *having* means, and the values of their parameters."""
    bound = _Bound("h")
    return bound.conditions(names, having, "having"), bound.values


class _Bound:
    """Binds conditions, and collects their values."""

    def __init__(self, prefix: str) -> None:
        self.values: dict[str, object] = {}
        self._prefix = prefix  #: of the names of parameters
        self._count = self._searches = self._relations = 0

    def clause(self, terms: Expressions, clause: Where, argument: str) -> Clause:
        name = clause.some or clause.none
        if not name:
            if clause.where or "match" in clause.model_fields_set:
                raise errors.BadArgument(f"{argument}: where and match are only for some and none.")
            return self._clause(terms, clause, argument)
        if (clause.some and clause.none) or clause.model_fields_set - {"some", "none", "where", "match"}:
            message = f"{argument}: some and none take only where and match."
            hint = f'For example: {{"some": "{name}", "where": [{clause.example}]}}.'
            raise errors.BadArgument(message, hint=hint)
        self._relations += 1
        self._check(self._relations <= MOST_RELATIONS, f"{MOST_RELATIONS} of some and none")
        relation, inner = terms.related_terms(name, f"{argument}.{'some' if clause.some else 'none'}")
        conditions = tuple(
            self._clause(inner, each, f"{argument}.where[{at}]") for at, each in enumerate(clause.where)
        )
        wanted = bool(clause.some)
        return Existence(relation=relation, wanted=wanted, conditions=conditions, match=clause.match)

    def _clause(self, terms: Expressions, clause: Within, argument: str) -> Condition | AnyOf:
        if clause.any and clause.model_fields_set == {"any"}:
            return AnyOf(conditions=self.conditions(terms, clause.any, f"{argument}.any"))
        if clause.any or not clause.column:
            raise errors.BadArgument(
                f"{argument} needs column, any, some or none.",
                hint=f"For example: {clause.example}.",
            )
        return self._condition(terms, clause, argument)

    def conditions(
        self, names: TermFinder, comparisons: Sequence[Comparison], argument: str
    ) -> tuple[Condition, ...]:
        return tuple(self._condition(names, each, f"{argument}[{at}]") for at, each in enumerate(comparisons))

    def _condition(self, names: TermFinder, comparison: Comparison, argument: str) -> Condition:
        condition, values = _bind(names, comparison, argument, f"{self._prefix}{self._count}")
        self._count += 1
        self._searches += comparison.op in SEARCHING
        self._check(self._count <= MOST_CONDITIONS, MANY_CONDITIONS)
        self._check(self._searches <= MOST_SEARCHES, MANY_SEARCHES)
        self.values |= zip(condition.parameters, values, strict=True)
        return condition

    def _check(self, holds: bool, most: str) -> None:
        if not holds:
            raise errors.BadArgument(f"One call takes at most {most}.")


def _bind(
    names: TermFinder, comparison: Comparison, argument: str, prefix: str
) -> tuple[Condition, Sequence[object]]:
    """Return the condition that *comparison* means, and the values of its parameters."""
    operator = comparison.op
    term = _column(names, comparison.column, f"{argument}.column")
    refuse_masked(term, argument)
    if operator not in _operators(term):
        hint = f"Operators: {listing(_operators(term))}."
        if operator in TEXTUAL and not isinstance(term, Measure | Rank) and buckets_of(term.type):
            hint += f" Such a part of a date is a bucket: compare {term.name}:month."
        if term.type.family is Family.ARRAY and Operator.CONTAINS in _operators(term):
            form = json_of({"column": term.name, "op": Operator.CONTAINS, "value": "ITEM"})
            hint += f" For the rows whose array has an item write {form}, once for each item."
        message = f"{argument}.op: {term.name} ({term.type.name}) does not support {operator}."
        raise errors.BadOperator(message, hint=hint)
    if comparison.value_column is not None:
        return _bind_other(names, comparison, argument, term), ()
    texts = _texts(comparison, argument)
    if operator is Operator.IS_NULL:
        return _bind_null(term, texts[0], argument), ()
    if comparison.value is not None:
        bound = [_decode_value(names, comparison, term, comparison.value, f"{argument}.value")]
    else:
        at = f"{argument}.values"
        bound = [_decode_value(names, comparison, term, text, f"{at}[{n}]") for n, text in enumerate(texts)]
    meant = meanings(term.type, bound, texts)
    if operator in EQUALITY and (term.type.family is Family.ANY or len(meant) > len(bound)):
        operator, bound = LISTED.get(operator, operator), meant
    elif term.type.family is Family.ANY and operator in ORDER:
        # Compare numbers with the number, and texts with the text.
        bound = [*(None if isinstance(value, str) else value for value in bound), *texts]
    if operator in (Operator.IN, Operator.NOT_IN):
        bound = [bound]
    parameters = tuple(f"{prefix}_{at}" for at in range(len(bound)))
    return Condition(term=term, operator=operator, parameters=parameters), bound


def _operators(term: Term) -> Sequence[Operator]:
    """Return the operators that *term* supports by its type and by its full-text index."""
    if not text_index_of(term):
        return term.type.operators
    # A tsvector contains stems: compared as a text, it would not match the words of a caller.
    stems = term.type.family is Family.OTHER
    return (*((Operator.IS_NULL,) if stems else term.type.operators), Operator.MATCHES)


def _decode_value(names: TermFinder, comparison: Comparison, term: Term, text: str, place: str) -> object:
    """Decode *text*, which is at *place*, as a value of *term*, or raise BadValue."""
    name = comparison.column if isinstance(term, Measure) else ""
    try:
        return decode(term, comparison.op, text, place, name)
    except errors.BadValue as exc:
        hint = column_advice(names, comparison.op, text) or _value_hint(term, text) or exc.hint
        raise exc.with_hint(hint) from exc


def _value_hint(term: Term, text: str) -> str:
    """Return a hint if *text*, which is not a value of *term*, is a period or means null."""
    if isinstance(term, Measure | Rank):
        return ""
    period = next((each for each in PERIODS if re.fullmatch(BUCKETS[each][0], text, re.ASCII)), None)
    if period in buckets_of(term.type):
        return f"For a whole {period} compare {term.name}:{period}, or days with gte and lt."
    return FOR_NULL if text.lower() in NULLS else ""


def _bind_null(term: Term, text: str, argument: str) -> Condition:
    if text.lower() not in ("true", "false"):
        raise errors.BadValue(f"{argument}.value: is_null takes true or false, not {quote(text)}.")
    return Condition(term=term, operator=Operator.IS_NULL, wanted=text.lower() == "true")


def column_advice(names: TermFinder, operator: Operator, text: str) -> str:
    """Return a hint if *text*, which was given as a value, is the name of a column."""
    is_column = operator in SIGNED and isinstance(names.get(text), Column | PathColumn)
    return f"To compare with the column {text}, pass it as value_column." if is_column else ""


def _bind_other(names: TermFinder, comparison: Comparison, argument: str, term: Term) -> Condition:
    """Return the condition that compares *term* with another one."""
    operator, text = comparison.op, comparison.value_column
    if comparison.value is not None or comparison.values is not None:
        raise errors.BadArgument(f"{argument} has value_column and values: pass one of them.")
    if operator not in SIGNED:
        raise errors.BadOperator(
            f"{argument}.op: {operator} does not take value_column.", hint=f"Operators: {listing(SIGNED)}."
        )
    other = names.find(str(text), f"{argument}.value_column")
    if isinstance(other, Measure | Rank):
        message = f"{argument}.value_column: a measure can only be compared with values."
        raise errors.BadArgument(message, hint="Ask for both measures, and compare them in the answer.")
    refuse_masked(other, argument)
    if operator not in other.type.operators or not are_comparable(term.type, other.type):
        raise errors.BadOperator(
            f"{argument}.value_column: {term.name} ({term.type.name}) cannot be compared with "
            f"{other.name} ({other.type.name})."
        )
    return Condition(term=term, operator=operator, other=other)


def _column(names: TermFinder, text: str, argument: str) -> Term:
    """Return the term that *text* names; reject a number or a text in quotes."""
    term = names.find(text, argument)
    if isinstance(term, Literal):
        kind = "text in single quotes" if term.type.family is Family.TEXT else "a number"
        raise errors.BadArgument(f"{argument}: {term.name} is {kind}, not a column.")
    return term


def _texts(comparison: Comparison, argument: str) -> tuple[str, ...]:
    """Return the values for the operator, or raise BadArgument if there are too few or too many."""
    operator, value, values = comparison.op, comparison.value, comparison.values
    many = operator in (Operator.IN, Operator.NOT_IN, Operator.BETWEEN)
    if many and (values is None or value is not None):
        given = "value was given" if value is not None else "it is missing"
        raise errors.BadArgument(f"{argument}: {operator} takes an array in values; {given}.")
    if operator is Operator.IS_NULL and value is None and values is None:
        return ("true",)
    if not many and (value is None or values is not None):
        given = "values were given" if values is not None else "it is missing"
        takes = "true or false in value" if operator is Operator.IS_NULL else "one value"
        hint = FOR_NULL if values is None else "For several values use in." * (operator is Operator.EQ)
        raise errors.BadArgument(f"{argument}: {operator} takes {takes}; {given}.", hint=hint)
    if operator is Operator.BETWEEN and len(comparison.texts) != 2:
        raise errors.BadArgument(f"{argument}.values: between takes two values, not {len(comparison.texts)}.")
    return comparison.texts


def decode(term: Term, operator: Operator, text: str, argument: str, name: str = "") -> object:
    """Decode *text* as a value for *operator*, or raise BadValue for *argument*.

    *name* is the name of the term, if callers have given it one.
    """
    if isinstance(term, Bucketed) and operator not in TEXTUAL:
        return _bucket(term, text, argument)
    if operator in SEARCHING:
        if len(text) > LONGEST_PATTERN:
            raise errors.BadValue(
                f"{argument} must have at most {LONGEST_PATTERN:,} characters, not {len(text):,}."
            )
        if operator is Operator.MATCHES and not _wants(text):
            raise errors.BadValue(f"{argument}: {quote(text)} has no word to look for.", hint=SEARCH_FORM)
        if term.type.family is not Family.ARRAY:
            return text
    column = term.column if isinstance(term, PathColumn) else term
    choices = column.choices if isinstance(column, Column) else ()
    if choices and operator in EQUALITY and text not in choices:
        raise errors.BadValue(
            f"{argument}: {term.name} is never {quote(text)}.",
            hint=f"{did_you_mean(text, choices)}Use one of {listing(choices)}.",
        )
    named = "" if argument == term.name else f"{name or term.name}: "
    return term.type.decode(text, f"{argument}: {named}")


def _wants(search: str) -> bool:
    """Return whether each alternative of *search* has a word to look for, which an index needs."""
    alternatives = alternatives_of(search)
    return bool(alternatives) and all(wanted for wanted, _ in alternatives)


def _bucket(term: Bucketed, text: str, argument: str) -> str:
    """Return *text*, or raise BadValue if it is not the value of a bucket like *term*."""
    form, example = BUCKETS[term.bucket]
    if not re.fullmatch(form, text, re.ASCII):
        hint = f"To compare days, write {term.place.name}:day." if term.bucket in PERIODS else ""
        raise errors.BadValue(f"{argument}: {term.name} is {example}, not {quote(text)}.", hint=hint)
    return text


def equality(column: Column, parameter: str, value: object = None) -> Condition:
    """Return the condition that *column* equals *value*, an `equal_value`, in *parameter*."""
    among = isinstance(value, list) or column.type.family is Family.ANY
    operator = Operator.IN if among else Operator.EQ
    return Condition(term=column, operator=operator, parameters=(parameter,))


def equal_value(column: Column, text: str, place: str) -> object:
    """Return *text* as what an `equality` with *column* is bound to, or raise BadValue that names *place*."""
    value = decode(column, Operator.EQ, text, place)
    meant = meanings(column.type, [value], [text])
    return meant if column.type.family is Family.ANY or len(meant) > 1 else value


def meanings(type: ColumnType, decoded: Sequence[object], texts: Sequence[str]) -> list[object]:
    """Return the values *decoded* with what else *texts* may mean in a column of *type*.

    A column without a type may hold the text of a number; a text that is not UTF-8 is shown with escapes.
    """
    others = texts if type.family is Family.ANY else ()
    plain = (text for text, value in zip(others, decoded, strict=False) if text != value)
    return [*decoded, *plain, *(filter(None, map(with_bytes, texts)) if type.unchecked else ())]


def bind_order(
    names: TermFinder, steps: Sequence[str], conditions: Sequence[Clause] = ()
) -> tuple[Order, ...]:
    """Return the order that *steps* such as "total desc" ask for, of rows that meet *conditions*."""
    order: dict[Term, Order] = {}
    for index, step in enumerate(steps):
        argument = f"order_by[{index}]"
        if ranked := _rank_of(names, step, argument, conditions):
            order.setdefault(ranked, Order(term=ranked))
            continue
        for term, direction in _steps(names, step, argument):
            refuse_masked(term, argument)
            if ORDER[0] not in term.type.operators and term.type.family is not Family.BOOLEAN:
                raise errors.BadArgument(f"{argument}: {term.name} ({term.type.name}) cannot be sorted.")
            order.setdefault(term, Order(term=term, direction=direction))
    if len(order) > MOST_STEPS:
        raise errors.BadArgument(f"order_by must have at most {MOST_STEPS} items, not {len(order)}.")
    return tuple(order.values())


def _steps(names: TermFinder, step: str, argument: str) -> Sequence[tuple[Term, Direction]]:
    """Return the term and direction that *step* means, or several in the form of another tool."""
    name, direction = _name_and_direction(names, step)
    try:
        return [(_column(names, name, argument), direction)]
    except errors.CallError as exc:
        if (steps := steps_in(step)) in ([], [step]):
            spelled = _corrected_step(names, step)
            raise exc.with_hint(f"Write {json_values([spelled])}." if spelled else exc.hint) from exc
    directed = (_name_and_direction(names, each) for each in steps)
    return [(_column(names, name, argument), direction) for name, direction in directed]


def _corrected_step(names: TermFinder, step: str) -> str:
    """Return *step* with its direction spelled right, if something similar follows a known name."""
    name, _, last = step.strip().rpartition(" ")
    near = get_close_matches(last.lower(), Direction, n=1)
    return f"{name.strip()} {near[0]}" if near and name and names.get(name.strip()) is not None else ""


def _rank_of(names: TermFinder, step: str, argument: str, conditions: Sequence[Clause]) -> Rank | None:
    """Return the rank that *step* such as "rank(body)" means, if it has this form."""
    match = RANK.fullmatch(step)
    if match is None or not isinstance(names, Expressions) or step in names.names.table.column_by_name:
        return None
    term = _column(names, match["place"].strip(), argument)
    plain = (each for each in conditions if isinstance(each, Condition))
    search = next((each for each in plain if each.term == term and each.operator is Operator.MATCHES), None)
    if search is None:
        form = f'{{"column": "{term.name}", "op": "matches", "value": "words"}}'
        message = f"{argument}: rank({term.name}) needs a condition in where such as {form}."
        raise errors.BadArgument(message)
    index = text_index_of(term)
    if not (isinstance(term, Column | PathColumn) and index and index.ranked):
        raise errors.BadArgument(f"{argument}: {term.name} has no rank.", hint="Order by columns.")
    if match["rest"].strip().lower() not in ("", "asc"):
        raise errors.BadArgument(f"{argument}: {quote(step)} is not an order.", hint=RANK_FORM)
    return Rank(place=term, parameter=search.parameters[0])


def _name_and_direction(names: TermFinder, step: str) -> tuple[str, Direction]:
    """Return the name and the direction in *step*; a name may itself end in " desc"."""
    name, _, last = step.rstrip().rpartition(" ")
    directed = name.strip() and last.lower() in tuple(Direction) and names.get(step) is None
    return (name, Direction(last.lower())) if directed else (step, Direction.ASC)
