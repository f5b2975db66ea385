"""What to ask the database, as values: the shape of a SELECT, and the values bound to it.

A shape holds no value that a caller gave, so equal shapes share one compiled statement. The dialects turn
shapes into SQL; every table that a shape names passes through their one `source` function.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from dbtools import errors
from dbtools.catalog import Column, Table
from dbtools.column_types import EQUALITY, ORDER, TEXTUAL, Family, Operator, quoted
from dbtools.errors import listing, nearest

MOST_CONDITIONS = 50
MOST_VALUES = 1_000
LONGEST_PATTERN = 200  #: characters of a value that is searched for inside texts


class Match(StrEnum):
    """Whether all conditions must hold or any of them."""

    ALL = "all"
    ANY = "any"


class Direction(StrEnum):
    """Which end of an order comes first."""

    ASC = "asc"
    DESC = "desc"


@dataclass(frozen=True, kw_only=True)
class Output:
    """One column of the answer."""

    column: Column
    cut: int | None = None  #: characters (or bytes, of bytes) that are read of a large cell


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A comparison of one column with as many bound values as its operator takes."""

    column: Column
    operator: Operator
    wanted: bool = True  #: of IS_NULL: whether null is wanted
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Order:
    """One step of an order; nulls come last in both directions."""

    column: Column
    direction: Direction = Direction.ASC


@dataclass(frozen=True, kw_only=True)
class After:
    """The end of the page before, as the place of one order column's last value."""

    order: Order
    parameter: str | None  #: None where the last value was null


@dataclass(frozen=True, kw_only=True)
class Select:
    """The shape of a statement that reads one table."""

    table: Table
    outputs: tuple[Output, ...]
    conditions: tuple[Condition, ...] = ()
    match: Match = Match.ALL
    order: tuple[Order, ...] = ()
    after: tuple[After, ...] = ()
    skip: bool = False  #: whether the parameter `skip` leaves out the first rows


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A shape, the values of its parameters, and how many rows are wanted of it at the most."""

    shape: Select
    values: Mapping[str, object] = field(default_factory=dict)
    limit: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One condition as the caller wrote it; the values are texts."""

    column: str
    operator: Operator = Operator.EQ
    value: str | None = None
    values: tuple[str, ...] | None = None
    argument: str = "where"  #: where it stands among the arguments, for complaints
    value_argument: str = "where.value"


def column_of(table: Table, name: str, argument: str) -> Column:
    """Return *table*'s column *name*, or raise UnknownColumn naming the *argument* that asked for it."""
    known = table.column_by_name
    if name in known:
        return known[name]
    folded = [column for column in table.columns if column.name.lower() == name.lower()]
    if len(folded) == 1:
        return folded[0]
    bare = name.removeprefix(f"{table.name}.")
    raise errors.UnknownColumn(
        f"{argument}: {table.name} has no column {quoted(name)}.",
        hint=f"{nearest(bare, known)}Columns: {listing(known)}.",
    )


def bind_conditions(
    table: Table, comparisons: Sequence[Comparison]
) -> tuple[tuple[Condition, ...], dict[str, object]]:
    """Return the conditions that *comparisons* on *table* mean, and the values of their parameters."""
    if len(comparisons) > MOST_CONDITIONS:
        raise errors.BadArgument(f"where: at most {MOST_CONDITIONS} conditions, not {len(comparisons)}.")
    conditions: list[Condition] = []
    values: dict[str, object] = {}
    for index, comparison in enumerate(comparisons):
        bound, condition = _bind(table, comparison, index)
        conditions.append(condition)
        values.update(bound)
    return tuple(conditions), values


def _bind(table: Table, comparison: Comparison, index: int) -> tuple[dict[str, object], Condition]:
    argument = comparison.argument
    column = column_of(table, comparison.column, f"{argument}.column")
    operator = comparison.operator
    if operator not in column.type.operators:
        raise errors.BadOperator(
            f"{argument}.op: {column.name} ({column.type.name}) cannot be compared by {operator}.",
            hint=f"It takes: {listing(column.type.operators)}.",
        )
    if operator is Operator.IS_NULL:
        wanted = _truth(_texts(comparison, argument)[0], argument)
        return {}, Condition(column=column, operator=operator, wanted=wanted)
    decoded = [_decode(column, operator, text, where) for text, where in _places(comparison, argument)]
    operator, decoded = _alternatives(column, operator, decoded, comparison)
    bound = [decoded] if operator in (Operator.IN, Operator.NOT_IN) else decoded
    if column.type.family is Family.ANY and operator in ORDER:
        # Numbers are compared with the number, texts with the text: neither tells anything of the other.
        numbers = [None if isinstance(value, str) else value for value in decoded]
        bound = [*numbers, *_texts(comparison, argument)]
    names = tuple(f"c{index}_{at}" for at in range(len(bound)))
    return dict(zip(names, bound, strict=True)), Condition(column=column, operator=operator, parameters=names)


def _places(comparison: Comparison, argument: str) -> list[tuple[str, str]]:
    texts = _texts(comparison, argument)
    if comparison.value is not None:
        return [(texts[0], comparison.value_argument)]
    return [(text, f"{argument}.values[{at}]") for at, text in enumerate(texts)]


def _texts(comparison: Comparison, argument: str) -> tuple[str, ...]:
    """Return the values that the operator takes, or say which are missing or too many."""
    operator, value, values = comparison.operator, comparison.value, comparison.values
    many = operator in (Operator.IN, Operator.NOT_IN, Operator.BETWEEN)
    if many and (values is None or value is not None):
        given = "value" if value is not None else "no values"
        raise errors.BadArgument(f"{argument}: {operator} takes an array in values; there is {given}.")
    if not many and (value is None or values is not None):
        given = "values" if values is not None else "no value"
        takes = "true or false in value" if operator is Operator.IS_NULL else "one value"
        null = "" if operator is Operator.IS_NULL else 'For null use op is_null with value "true".'
        raise errors.BadArgument(f"{argument}: {operator} takes {takes}; there is {given}.", hint=null)
    texts = values if values is not None else (str(value),)
    if operator is Operator.BETWEEN and len(texts) != 2:
        raise errors.BadArgument(f"{argument}.values: between takes two values, not {len(texts)}.")
    if len(texts) > MOST_VALUES:
        raise errors.BadArgument(f"{argument}.values: at most {MOST_VALUES:,} values, not {len(texts):,}.")
    return texts


def _truth(text: str, argument: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise errors.BadValue(f"{argument}.value: is_null takes true or false, not {quoted(text)}.")
    return text.lower() == "true"


def _decode(column: Column, operator: Operator, text: str, argument: str) -> object:
    if operator in TEXTUAL and len(text) > LONGEST_PATTERN:
        raise errors.BadValue(f"{argument}: at most {LONGEST_PATTERN:,} characters, not {len(text):,}.")
    if operator in TEXTUAL and column.type.family is not Family.ARRAY:
        return text
    if column.choices and operator in EQUALITY and text not in column.choices:
        raise errors.BadValue(
            f"{argument}: {column.name} is never {quoted(text)}.",
            hint=f"{nearest(text, column.choices)}It is one of {listing(column.choices)}.",
        )
    try:
        return column.type.decode(text)
    except errors.BadValue as exc:
        named = "" if argument == column.name else f"{column.name}: "
        raise errors.BadValue(f"{argument}: {named}{exc.message}", hint=exc.hint) from exc


def _alternatives(
    column: Column, operator: Operator, decoded: list[object], comparison: Comparison
) -> tuple[Operator, list[object]]:
    """Let a column of no declared type equal a number and the text that looks like it."""
    if column.type.family is not Family.ANY or operator not in EQUALITY:
        return operator, decoded
    texts = comparison.values if comparison.values is not None else (str(comparison.value),)
    either = [
        *decoded,
        *(text for text, value in zip(texts, decoded, strict=True) if text != value),
    ]
    negative = operator in (Operator.NE, Operator.NOT_IN)
    return (Operator.NOT_IN if negative else Operator.IN), either


def bind_order(table: Table, steps: Sequence[str]) -> tuple[Order, ...]:
    """Return the order that *steps* such as "total desc" ask of *table*."""
    order: dict[str, Order] = {}
    for index, step in enumerate(steps):
        name, direction = _direction(table, step)
        column = column_of(table, name, f"order_by[{index}]")
        if not set(ORDER) & set(column.type.operators) and column.type.family is not Family.BOOLEAN:
            raise errors.BadArgument(
                f"order_by[{index}]: {column.name} ({column.type.name}) has no order.",
            )
        order.setdefault(column.name, Order(column=column, direction=direction))
    return tuple(order.values())


def _direction(table: Table, step: str) -> tuple[str, Direction]:
    name, _, last = step.rstrip().rpartition(" ")
    if step in table.column_by_name:
        return step, Direction.ASC
    if last.lower() not in tuple(Direction):
        return step.strip(), Direction.ASC
    return name if name in table.column_by_name else name.strip(), Direction(last.lower())
