"""Conditions and orders as callers write them in; those of a statement, and the values bound to it, out."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dbtools import errors
from dbtools.catalog import Column
from dbtools.errors import listing, nearest
from dbtools.expressions import Expressions
from dbtools.paths import Distant
from dbtools.statement import AnyOf, Clause, Condition, Direction, Existence, Match, Order, Term
from dbtools.terms import Bucket, Bucketed, Literal, Measure, are_comparable
from dbtools.types import EQUALITY, ORDER, TEXTUAL, Family, Operator, quoted

MOST_CONDITIONS = 50
MOST_SEARCHES = 10  #: conditions that search inside texts, which may be long
MOST_RELATIONS = 5  #: conditions on related rows
MOST_VALUES = 1_000
SIGNED = (Operator.EQ, Operator.NE, *ORDER[:4])  #: operators between two terms
FOR_NULL = 'For null use op is_null with value "true".'
ORDER_FORM = 'Write "column" or "column desc".'
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
LONGEST_PATTERN = 200  #: characters of a value that is searched for inside texts


class Finds(Protocol):
    """What knows the terms that callers may name, such as `Expressions`."""

    def find(self, text: str, argument: str) -> Term:
        """Return the term that *text* names, or raise a CallError that names the *argument*."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One condition as the caller wrote it; the values are texts."""

    column: str
    operator: Operator = Operator.EQ
    value: str | None = None
    values: tuple[str, ...] | None = None
    value_column: str | None = None
    argument: str = "where"  #: where it stands among the arguments, for complaints

    @property
    def texts(self) -> tuple[str, ...]:
        """The values, or the one value."""
        if self.value_column is not None:
            return ()
        return self.values if self.values is not None else (str(self.value),)


@dataclass(frozen=True, kw_only=True)
class Alternatives:
    """Conditions of which one must hold."""

    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, kw_only=True)
class RelatedRows:
    """Whether rows of a relation that meet conditions refer to a row."""

    relation: str
    wanted: bool
    clauses: "tuple[Comparison | Alternatives, ...]"
    match: Match
    argument: str


Written = Comparison | Alternatives | RelatedRows


def comparisons_within(clauses: Sequence[Written]) -> Iterator[Comparison]:
    """Yield the comparisons in *clauses*, in the order in which they are written."""
    for clause in clauses:
        match clause:
            case Comparison():
                yield clause
            case Alternatives():
                yield from clause.comparisons
            case RelatedRows():
                yield from comparisons_within(clause.clauses)


def bind_where(
    terms: Expressions, clauses: Sequence[Written]
) -> tuple[tuple[Clause, ...], Mapping[str, object]]:
    """Return the conditions that *clauses* mean, and the values of their parameters."""
    _check_numbers([*comparisons_within(clauses)])
    relations = sum(isinstance(each, RelatedRows) for each in clauses)
    if relations > MOST_RELATIONS:
        raise errors.BadArgument(f"where: at most {MOST_RELATIONS} of some and none, not {relations}.")
    bound = _Bound({})
    return tuple(bound.clause(terms, each) for each in clauses), bound.values


def bind_having(
    names: Finds, comparisons: Sequence[Comparison]
) -> tuple[tuple[Condition, ...], Mapping[str, object]]:
    """Return the conditions on groups that *comparisons* mean, and the values of their parameters."""
    _check_numbers(comparisons)
    bound = _Bound({}, "h")
    return tuple(bound.condition(names, each) for each in comparisons), bound.values


@dataclass
class _Bound:
    """The values of the conditions that have been bound."""

    values: dict[str, object]
    prefix: str = "c"  #: of the names of parameters
    count: int = 0

    def clause(self, terms: Expressions, clause: Written) -> Clause:
        match clause:
            case Comparison():
                return self.condition(terms, clause)
            case Alternatives():
                return AnyOf(conditions=tuple(self.condition(terms, each) for each in clause.comparisons))
            case RelatedRows():
                referrer, inner = terms.referring(clause.relation, clause.argument)
                within = tuple(self.clause(inner, each) for each in clause.clauses)
                plain = tuple(each for each in within if not isinstance(each, Existence))
                return Existence(
                    referrer=referrer, wanted=clause.wanted, conditions=plain, match=clause.match
                )

    def condition(self, names: Finds, comparison: Comparison) -> Condition:
        condition, values = _bind(names, comparison, f"{self.prefix}{self.count}")
        self.count += 1
        self.values |= zip(condition.parameters, values, strict=True)
        return condition


def _check_numbers(comparisons: Sequence[Comparison]) -> None:
    if len(comparisons) > MOST_CONDITIONS:
        raise errors.BadArgument(f"where: at most {MOST_CONDITIONS} conditions, not {len(comparisons)}.")
    searches = sum(comparison.operator in TEXTUAL for comparison in comparisons)
    if searches > MOST_SEARCHES:
        raise errors.BadArgument(
            f"where: at most {MOST_SEARCHES} conditions with {' or '.join(TEXTUAL)}, not {searches}."
        )


def _bind(names: Finds, comparison: Comparison, prefix: str) -> tuple[Condition, Sequence[object]]:
    """Return the condition that *comparison* means, and the values of its parameters."""
    argument, operator = comparison.argument, comparison.operator
    term = _column(names, comparison.column, f"{argument}.column")
    if term.type.mask is not None:
        raise errors.BadOperator(f"{argument}: {term.name} is masked and can only be shown.")
    if operator not in term.type.operators:
        raise errors.BadOperator(
            f"{argument}.op: {term.name} ({term.type.name}) does not support {operator}.",
            hint=f"Operators: {listing(term.type.operators)}.",
        )
    if comparison.value_column is not None:
        return _bind_other(names, comparison, term), ()
    texts = _texts(comparison)
    if operator is Operator.IS_NULL:
        return _bind_null(term, texts[0], argument), ()
    places = [f"{argument}.values[{at}]" for at in range(len(texts))]
    if comparison.value is not None:
        places = [f"{argument}.value"]
    try:
        bound = [decode(term, operator, text, where) for text, where in zip(texts, places, strict=True)]
    except errors.BadValue as exc:
        raise errors.BadValue(exc.message, hint=column_advice(names, operator, texts[0]) or exc.hint) from exc
    if term.type.family is Family.ANY and operator in EQUALITY:
        negative = operator in (Operator.NE, Operator.NOT_IN)
        operator, bound = Operator.NOT_IN if negative else Operator.IN, either(bound, texts)
    elif term.type.family is Family.ANY and operator in ORDER:
        # Numbers are compared with the number, texts with the text.
        bound = [*(None if isinstance(value, str) else value for value in bound), *texts]
    if operator in (Operator.IN, Operator.NOT_IN):
        bound = [bound]
    parameters = tuple(f"{prefix}_{at}" for at in range(len(bound)))
    return Condition(term=term, operator=operator, parameters=parameters), bound


def _bind_null(term: Term, text: str, argument: str) -> Condition:
    if text.lower() not in ("true", "false"):
        raise errors.BadValue(f"{argument}.value: is_null takes true or false, not {quoted(text)}.")
    return Condition(term=term, operator=Operator.IS_NULL, wanted=text.lower() == "true")


def column_advice(names: Finds, operator: Operator, text: str) -> str:
    """Return a hint if *text*, which stands as a value, is the name of a column."""
    try:
        is_column = operator in SIGNED and isinstance(names.find(text, "value"), Column | Distant)
    except errors.CallError:
        is_column = False
    return f"To compare with the column {text}, pass it as value_column." if is_column else ""


def _bind_other(names: Finds, comparison: Comparison, term: Term) -> Condition:
    """Return the condition that compares *term* with another one."""
    argument, operator, text = comparison.argument, comparison.operator, comparison.value_column
    if comparison.value is not None or comparison.values is not None:
        raise errors.BadArgument(f"{argument}: value_column stands alone, without value or values.")
    if operator not in SIGNED:
        raise errors.BadOperator(
            f"{argument}.op: {operator} does not take value_column.", hint=f"Operators: {listing(SIGNED)}."
        )
    other = names.find(str(text), f"{argument}.value_column")
    if isinstance(other, Measure):
        raise errors.BadArgument(f"{argument}.value_column: a measure is compared with values only.")
    if other.type.mask is not None:
        raise errors.BadOperator(f"{argument}: {other.name} is masked and can only be shown.")
    if operator not in other.type.operators or not are_comparable(term.type, other.type):
        raise errors.BadOperator(
            f"{argument}.value_column: {term.name} ({term.type.name}) cannot be compared with "
            f"{other.name} ({other.type.name})."
        )
    return Condition(term=term, operator=operator, other=other)


def _column(names: Finds, text: str, argument: str) -> Term:
    """Return the term that *text* names; a number or a text in quotes is none."""
    term = names.find(text, argument)
    if isinstance(term, Literal):
        kind = "text in single quotes" if term.type.family is Family.TEXT else "a number"
        raise errors.BadArgument(f"{argument}: {term.name} is {kind}, not a column.")
    return term


def _texts(comparison: Comparison) -> tuple[str, ...]:
    """Return the values that the operator takes, or say which are missing or too many."""
    argument, operator = comparison.argument, comparison.operator
    value, values = comparison.value, comparison.values
    many = operator in (Operator.IN, Operator.NOT_IN, Operator.BETWEEN)
    if many and (values is None or value is not None):
        given = "value is given" if value is not None else "there are none"
        raise errors.BadArgument(f"{argument}: {operator} takes an array in values; {given}.")
    if not many and (value is None or values is not None):
        given = "values are given" if values is not None else "there is none"
        takes = "true or false in value" if operator is Operator.IS_NULL else "one value"
        null = operator is not Operator.IS_NULL and values is None
        raise errors.BadArgument(f"{argument}: {operator} takes {takes}; {given}.", hint=FOR_NULL * null)
    texts = comparison.texts
    if operator is Operator.BETWEEN and len(texts) != 2:
        raise errors.BadArgument(f"{argument}.values: between takes two values, not {len(texts)}.")
    if len(texts) > MOST_VALUES:
        raise errors.BadArgument(f"{argument}.values: at most {MOST_VALUES:,} values, not {len(texts):,}.")
    return texts


def decode(term: Term, operator: Operator, text: str, argument: str) -> object:
    """Return the value that *text* is to *operator*, or raise BadValue for *argument*."""
    if isinstance(term, Bucketed) and operator not in TEXTUAL:
        return _bucket(term, text, argument)
    if operator in TEXTUAL:
        if len(text) > LONGEST_PATTERN:
            raise errors.BadValue(f"{argument}: at most {LONGEST_PATTERN:,} characters, not {len(text):,}.")
        if term.type.family is not Family.ARRAY:
            return text
    column = term.column if isinstance(term, Distant) else term
    choices = column.choices if isinstance(column, Column) else ()
    if choices and operator in EQUALITY and text not in choices:
        raise errors.BadValue(
            f"{argument}: {term.name} is never {quoted(text)}.",
            hint=f"{nearest(text, choices)}It is one of {listing(choices)}.",
        )
    named = "" if argument == term.name else f"{term.name}: "
    return term.type.decode(text, f"{argument}: {named}")


def _bucket(term: Bucketed, text: str, argument: str) -> str:
    """Return *text*, or raise BadValue if no bucket is written like it."""
    form, example = BUCKETS[term.bucket]
    if not re.fullmatch(form, text, re.ASCII):
        hint = f"To compare days, name {term.place.name} itself."
        raise errors.BadValue(f"{argument}: {term.name} is {example}, not {quoted(text)}.", hint=hint)
    return text


def either(decoded: Sequence[object], texts: Sequence[str]) -> list[object]:
    """Return the values *decoded* and the *texts* that look like them: a column of no type may have both."""
    return [*decoded, *(text for text, value in zip(texts, decoded, strict=True) if text != value)]


def bind_order(names: Finds, steps: Sequence[str]) -> tuple[Order, ...]:
    """Return the order that *steps* such as "total desc" ask for."""
    order: dict[Term, Order] = {}
    for index, step in enumerate(steps):
        argument = f"order_by[{index}]"
        term, direction = _directed(names, step, argument)
        if term.type.mask is not None:
            raise errors.BadArgument(f"{argument}: {term.name} is masked and can only be shown.")
        if not set(ORDER) & set(term.type.operators) and term.type.family is not Family.BOOLEAN:
            raise errors.BadArgument(f"{argument}: {term.name} ({term.type.name}) has no order.")
        order.setdefault(term, Order(term=term, direction=direction))
    return tuple(order.values())


def _directed(names: Finds, step: str, argument: str) -> tuple[Term, Direction]:
    """Return the term and the direction of *step*; a name may itself end in " desc"."""
    name, _, last = step.rstrip().rpartition(" ")
    directed = name.strip() and last.lower() in tuple(Direction)
    try:
        return _column(names, step, argument), Direction.ASC
    except errors.CallError as exc:
        if not directed and isinstance(exc, errors.UnknownColumn):
            raise errors.UnknownColumn(exc.message, hint=f"{ORDER_FORM} {exc.hint}") from exc
        if not directed:
            raise
    return _column(names, name, argument), Direction(last.lower())
