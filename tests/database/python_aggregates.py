"""What `aggregate_rows` should answer, computed in Python over all rows, and strategies for calls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from dbtools.expressions.terms import Bucket, Function
from dbtools.values.types import SAFE_INTEGER
from tests.database.shop import Shop, literal, quote

EXAMPLES = 50
MOST_ROWS = 16

#: Texts that are ordered by their characters.
TEXT = {"sqlite": "text", "postgresql": 'text collate "C"'}

Row = Mapping[str, object]
#: A row and the name of a column or of a path in; the cell out.
Cell = Callable[[Row, str], Any]
Values = st.SearchStrategy[Any]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """What the columns of one type hold, how an answer is read as that, and what is computed of it."""

    declared: str
    values: Values
    read: Callable[[Any], object]
    functions: tuple[Function, ...]
    buckets: tuple[Bucket, ...] = ()
    ordered: bool = True


def whole(cell: Any) -> int:
    """Read an integer, which is a text where a double would lose digits."""
    assert isinstance(cell, str) is (abs(int(cell)) > SAFE_INTEGER)
    return int(cell)


def number(cell: Any) -> float:
    """Read a floating-point number."""
    assert isinstance(cell, int | float)
    return float(cell)


def moment(cell: str) -> datetime:
    """Read a timestamp as any database writes it."""
    return datetime.fromisoformat(cell)


def truth(cell: Any) -> bool:
    """Read a boolean."""
    assert isinstance(cell, bool)
    return cell


def nearly(cell: Any) -> str:
    """Read a mean to as many digits as every database computes."""
    return f"{float(Fraction(str(cell))):.14g}"


COUNTS = (Function.COUNT, Function.COUNT_DISTINCT)
COMPARED = (*COUNTS, Function.MIN, Function.MAX)
ENDS_OF_YEARS = [date(year, *day) for year in (2004, 2015, 2020) for day in ((12, 31), (1, 1), (1, 4))]
DAYS = st.dates(date(2023, 12, 20), date(2025, 1, 12)) | st.sampled_from(
    [date.min, date.max, date(2024, 2, 29), *ENDS_OF_YEARS]
)
DATES = tuple(Bucket)[:-1]
KINDS: Mapping[str, Kind] = {
    "flag": Kind(declared="boolean", values=st.booleans(), read=truth, functions=COMPARED, ordered=False),
    "number": Kind(
        declared="int",
        values=st.integers(-4, 4) | st.sampled_from([2**31 - 1, -(2**31)]),
        read=whole,
        functions=tuple(Function),
    ),
    "large": Kind(
        declared="bigint",
        values=st.sampled_from([0, 7, 2**53, 2**53 + 1, -(2**53) - 1, 2**55 + 3, -(2**58)]),
        read=whole,
        # The mean of such numbers has a separate test.
        functions=(*COMPARED, Function.SUM),
    ),
    "ratio": Kind(
        declared="double precision",
        # Eighths, whose sums no order of addition changes.
        values=st.integers(-40, 40).map(lambda eighths: eighths / 8),
        read=number,
        functions=tuple(Function),
    ),
    "price": Kind(
        declared="decimal(10,2)",
        values=st.integers(-999, 99_999).map(lambda cents: Decimal(cents) / 100),
        read=lambda cell: Decimal(str(cell)),
        functions=tuple(Function),
    ),
    "word": Kind(
        declared="{text}",
        values=st.sampled_from(["", "a", "A", "a b", "é", "z", "🦉", "%", "it's"]),
        read=str,
        functions=COMPARED,
    ),
    "day": Kind(declared="date", values=DAYS, read=date.fromisoformat, functions=COMPARED, buckets=DATES),
    "moment": Kind(
        declared="timestamp",
        values=st.builds(
            lambda day, seconds: datetime(day.year, day.month, day.day) + timedelta(seconds=seconds),
            DAYS.filter(lambda day: day < date.max),
            st.integers(0, 86_399),
        ),
        read=moment,
        functions=COMPARED,
        buckets=tuple(Bucket),
    ),
}
#: What measures are compared with, besides values of their column: no mean is ever equal to such a number.
BOUNDS = st.sampled_from([Decimal("-1.2345678"), Decimal("0.1234567"), Decimal("50.7654321")])
OPERATORS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda cell, value: bool(cell == value),
    "ne": lambda cell, value: bool(cell != value),
    "lt": lambda cell, value: bool(cell < value),
    "lte": lambda cell, value: bool(cell <= value),
    "gt": lambda cell, value: bool(cell > value),
    "gte": lambda cell, value: bool(cell >= value),
}


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition, for the tool and for Python."""

    column: str
    operator: str
    value: object  #: None: what is wanted is null

    def argument(self) -> Mapping[str, object]:
        """Return the condition as an argument."""
        if self.value is None:
            return {"column": self.column, "op": "is_null", "value": self.operator == "eq"}
        return {"column": self.column, "op": self.operator, "value": text_of(self.value)}

    def holds(self, cell: object) -> bool:
        """Return whether *cell* meets the condition: null meets none but its own."""
        if self.value is None:
            return (cell is None) is (self.operator == "eq")
        return cell is not None and OPERATORS[self.operator](cell, self.value)


def text_of(value: object) -> str:
    """Return *value* as a caller writes it."""
    match value:
        case bool():
            return str(value).lower()
        case date():
            return value.isoformat()
        case _:
            return str(value)


@st.composite
def conditions(draw: st.DrawFn, column: str, kind: Kind) -> Condition:
    """Draw a condition on *column*, which is of *kind*."""
    operators = list(OPERATORS) if kind.ordered else ["eq", "ne"]
    value = draw(kind.values | kind.values | st.none())
    return Condition(
        column=column,
        operator=draw(st.sampled_from(operators if value is not None else ["eq", "ne"])),
        value=value,
    )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A measure by its name in the answer."""

    name: str
    function: Function
    column: str

    def argument(self, default: str) -> Mapping[str, object]:
        """Return the measure as an argument, without a name where that is the *default*."""
        name = {"name": self.name} if self.name != default else {}
        column = {"column": self.column} if self.column else {}
        return {"function": self.function, **column, **name}

    def of(self, rows: Sequence[Row], cell: Cell) -> object:
        """Return what the measure is over *rows*."""
        if not self.column:
            return len(rows)
        values = [value for row in rows if (value := cell(row, self.column)) is not None]
        match self.function:
            case Function.COUNT:
                return len(values)
            case Function.COUNT_DISTINCT:
                return len(set(values))
            case Function.AVG:
                return sum(map(Fraction, values)) / len(values) if values else None
            case Function.SUM:
                return sum(values) if values else None
            case Function.MIN:
                return min(values, default=None)
            case Function.MAX:
                return max(values, default=None)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A call of `aggregate_rows` on columns, or on paths, of known kinds."""

    groups: tuple[str, ...]
    measures: tuple[Measured, ...]
    where: tuple[Condition, ...]
    match: str
    having: tuple[Condition, ...]
    order: tuple[tuple[str, str], ...]
    limit: int

    def arguments(self, table: str) -> dict[str, object]:
        """Return the arguments of the call on *table*."""
        return {
            "table": table,
            "group_by": list(self.groups),
            "measures": [each.argument(default_name(each.function, each.column)) for each in self.measures],
            "where": [each.argument() for each in self.where],
            "match": self.match,
            "having": [each.argument() for each in self.having],
            "order_by": [f"{name} {direction}" for name, direction in self.order],
            "limit": self.limit,
        }

    def answer(self, rows: Sequence[Row], cell: Cell) -> list[list[object]]:
        """Return all rows of the answer as Python computes them from *rows*."""
        wanted = any if self.match == "any" and self.where else all
        chosen = [row for row in rows if wanted(each.holds(cell(row, each.column)) for each in self.where)]
        groups: dict[tuple[object, ...], list[Row]] = {} if self.groups else {(): []}
        for row in chosen:
            groups.setdefault(tuple(grouped(row, group, cell) for group in self.groups), []).append(row)
        answer = [
            dict(zip(self.names(), [*key, *(each.of(members, cell) for each in self.measures)], strict=True))
            for key, members in groups.items()
        ]
        answer = [row for row in answer if all(each.holds(row[each.column]) for each in self.having)]
        steps = [*self.order, *((group, "asc") for group in self.groups)]
        return [list(row.values()) for row in in_order(answer, steps, lambda row, name: row[name])]

    def names(self) -> list[str]:
        """Return the names of the answer's columns."""
        return [*self.groups, *(each.name for each in self.measures)]

    def read(self, rows: Sequence[Sequence[object]], kinds: Mapping[str, Kind]) -> list[list[object]]:
        """Return the *rows* of an answer as Python's values; means to the digits that all agree on."""
        readers: list[Callable[[Any], object]] = [
            str if ":" in group else kinds[group].read for group in self.groups
        ]
        for each in self.measures:
            if each.function is Function.AVG:
                readers.append(nearly)
            else:
                readers.append(whole if each.function in COUNTS else kinds[each.column].read)
        return [
            [None if cell is None else read(cell) for read, cell in zip(readers, row, strict=True)]
            for row in rows
        ]


def in_order(rows: Sequence[Any], steps: Sequence[tuple[str, str]], cell: Cell) -> list[Any]:
    """Return *rows* in the order of *steps*, nulls last in both directions."""
    ordered = list(rows)
    for name, direction in reversed(steps):
        present = [row for row in ordered if cell(row, name) is not None]
        absent = [row for row in ordered if cell(row, name) is None]
        present.sort(key=lambda row: cell(row, name), reverse=direction == "desc")
        ordered = present + absent
    return ordered


def default_name(function: Function, column: str) -> str:
    """Return the name of a measure that is given none."""
    return f"{function}_{column}" if column else str(function)


def grouped(row: Row, group: str, cell: Cell) -> object:
    """Return what *row* belongs to among the groups of *group*, which may have a bucket."""
    column, _, bucket = group.partition(":")
    value = cell(row, column)
    return value if not bucket or value is None else bucketed(value, Bucket(bucket))


def bucketed(value: date, bucket: Bucket) -> str:
    """Return the *bucket* of a date, by Python's calendar."""
    calendar = value.isocalendar()
    match bucket:
        case Bucket.YEAR:
            return f"{value.year:04}"
        case Bucket.QUARTER:
            return f"{value.year:04}-Q{(value.month - 1) // 3 + 1}"
        case Bucket.MONTH:
            return f"{value.year:04}-{value.month:02}"
        case Bucket.WEEK:
            return f"{calendar.year:04}-W{calendar.week:02}"
        case Bucket.DAY:
            return value.isoformat()[:10]
        case Bucket.WEEKDAY:
            return str(value.isoweekday())
        case Bucket.HOUR:
            assert isinstance(value, datetime)
            return f"{value.hour:02}"


@st.composite
def calls(draw: st.DrawFn, kinds: Mapping[str, Kind]) -> Asked:
    """Draw a call on columns, or on paths, of *kinds*."""
    columns = st.sampled_from(list(kinds))
    buckets = [f"{name}:{bucket}" for name, kind in kinds.items() for bucket in kind.buckets]
    groups = draw(st.lists(columns | st.sampled_from(buckets), max_size=3, unique=True))
    pairs = [(function, name) for name, kind in kinds.items() for function in kind.functions]
    chosen = draw(
        st.lists(st.sampled_from([(Function.COUNT, ""), *pairs]), min_size=1, max_size=3, unique=True)
    )
    measures = [
        Measured(
            name=draw(st.sampled_from([default_name(*pair), f"m{at}"])), function=pair[0], column=pair[1]
        )
        for at, pair in enumerate(chosen)
    ]
    # Two databases need not agree on which of two equal means is the greater by its last digit.
    orderable = [*groups, *(each.name for each in measures if each.function is not Function.AVG)]
    where = draw(st.lists(columns.flatmap(lambda name: conditions(name, kinds[name])), max_size=2))
    having = draw(st.lists(st.sampled_from(measures).flatmap(lambda each: _having(each, kinds)), max_size=2))
    steps = [(name, direction) for name in orderable for direction in ("asc", "desc")]
    order = (
        st.lists(st.sampled_from(steps), max_size=3, unique_by=lambda step: step[0]) if steps else st.just([])
    )
    return Asked(
        groups=tuple(groups),
        measures=tuple(measures),
        where=tuple(where),
        match=draw(st.sampled_from(["all", "any"])),
        having=tuple(having),
        order=tuple(draw(order)),
        limit=draw(st.sampled_from([200, 50]) | st.integers(1, 6)),
    )


def _having(measure: Measured, kinds: Mapping[str, Kind]) -> st.SearchStrategy[Condition]:
    if measure.function in COUNTS:
        counts = Kind(declared="int", values=st.integers(0, 4), read=whole, functions=())
        return conditions(measure.name, counts).filter(lambda condition: condition.value is not None)
    kind = kinds[measure.column]
    if measure.function is Function.AVG:
        kind = Kind(declared="decimal", values=BOUNDS, read=nearly, functions=())
    return conditions(measure.name, kind)


ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | kind.values for name, kind in KINDS.items()}), max_size=MOST_ROWS
)


def insert(shop: Shop, table: str, rows: Sequence[Row]) -> None:
    """Put *rows* into *table* in one statement."""
    if rows:
        names = list(rows[0])
        columns = ", ".join(map(quote, names))
        values = ", ".join(f"({', '.join(_written(row[name]) for name in names)})" for row in rows)
        shop.bare.execute(f"insert into {table} ({columns}) values {values}")


def _written(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float() | Decimal():
            return str(value)
        case datetime():
            return literal(value.isoformat(" "))
        case _:
            return literal(str(value))


def means(rows: list[list[object]]) -> list[list[object]]:
    """Return *rows* with means to the digits that `nearly` reads."""
    return [[nearly(cell) if isinstance(cell, Fraction) else cell for cell in row] for row in rows]
