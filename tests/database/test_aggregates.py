"""What `aggregate_rows` computes is what Python computes over all rows, and no stored cell makes it fail."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import asyncpg
import pytest
from hypothesis import given, strategies as st

from dbtools.aggregates import Bucket, Function
from dbtools.column_types import SAFE_INTEGER
from dbtools.config import LimitsSection
from dbtools.errors import BadArgument, CallError, OutOfRange
from tests.database.conftest import Serve, Shops, open_shops
from tests.database.shop import Shop, literal, quote, rows_of
from tests.database.test_totality import CELLS, EXPECTED, FEW
from tests.database.test_values import examples
from tests.database.test_values_sqlite import DECLARED

EXAMPLES = 300
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
        # The mean of such numbers has a test of its own.
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


CALENDAR = "create table calendar (id int primary key, day date, moment timestamp);"


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give a table with a column of each kind, and one of dates."""
    columns = ", ".join(f"{name} {kind.declared}" for name, kind in KINDS.items())
    ddl = {
        dialect: f"create table facts ({columns.format(text=text)}); {CALENDAR}"
        for dialect, text in TEXT.items()
    }
    with open_shops(serve, ddl, limits=LimitsSection(max_rows=1_000, max_tokens=1_000_000)) as shops:
        yield shops


@examples(EXAMPLES)
@given(rows=ROWS, asked=calls(KINDS))
def test_answer_is_what_python_computes_over_all_rows(rows: list[Row], asked: Asked, shop: Shop) -> None:
    shop.bare.execute("delete from facts")
    insert(shop, "facts", rows)
    expected = asked.answer(rows, lambda row, name: row[name])

    page = shop.call("aggregate_rows", asked.arguments("facts")).structured

    assert asked.read(rows_of(page), KINDS) == means(expected[: asked.limit])
    assert page["columns"] == asked.names()
    assert page["row_count"] == len(rows_of(page))
    assert page["truncated"] is (len(expected) > asked.limit)


def means(rows: list[list[object]]) -> list[list[object]]:
    """Return *rows* with means to the digits that `nearly` reads."""
    return [[nearly(cell) if isinstance(cell, Fraction) else cell for cell in row] for row in rows]


def test_buckets_are_those_of_the_calendar(shop: Shop) -> None:
    turns = [date(year, 12, 24) + timedelta(days=days) for year in range(1990, 2040) for days in range(16)]
    first = [date.min + timedelta(days=days) for days in range(9)]
    last = [date.max - timedelta(days=days) for days in range(9)]
    days = [*first, *turns, *last]
    moments = [datetime(day.year, day.month, day.day, at % 24, 59, 59) for at, day in enumerate(days)]
    rows = [{"id": at, "day": day, "moment": moments[at]} for at, day in enumerate(days)]
    shop.bare.execute("delete from calendar")
    insert(shop, "calendar", rows)
    groups = [*(f"day:{bucket}" for bucket in DATES), *(f"moment:{bucket}" for bucket in Bucket)]

    answer = shop.call(
        "aggregate_rows",
        {
            "table": "calendar",
            "group_by": ["id", *groups],
            "measures": [{"function": "count"}],
            "limit": 1_000,
        },
    )

    assert rows_of(answer.structured) == [
        [row["id"], *(grouped(row, group, lambda row, name: row[name]) for group in groups), 1]
        for row in rows
    ]


def test_moments_with_an_offset_are_bucketed_in_utc(dialect: str, serve: Serve) -> None:
    ddl = """
    create table t (v timestamp with time zone);
    insert into t values ('2024-01-01 00:30:00+02:00'), ('2024-12-29 22:30:00-03:30'), ('2024-06-30 12:00Z')
    """
    groups = ["v:day", "v:week", "v:hour"]
    with serve(dialect, ddl) as shop:
        page = shop.call(
            "aggregate_rows", {"table": "t", "group_by": groups, "measures": [{"function": "count"}]}
        )

    assert rows_of(page.structured) == [
        ["2023-12-31", "2023-W52", "22", 1],
        ["2024-06-30", "2024-W26", "12", 1],
        ["2024-12-30", "2025-W01", "02", 1],
    ]


def test_what_is_no_date_is_in_no_bucket(serve: Serve) -> None:
    broken = (
        *("'now'", "'2024-02-30'", "'2023-02-29'", "'2024-13-01'", "'2024-1-5'", "' 2024-03-05'", "'12:30'"),
        *("''", "'2459000.5'", "1700000000", "2459000.5", "x'323032342d30332d3035'", "null", "9e999"),
        *("'2024-03-05 25:00'", "'2024-03-05 noon'", "'+2024-03-05'", "'-2024-03-05'", "'12024-03-05'"),
    )
    right = ("'2024-03-05'", "'2024-03-05T14:30:00.123Z'", "'2024-03-05 14:30'")
    values = ", ".join(f"({value}, {value}, {value})" for value in (*broken, *right))
    ddl = f"create table t (day date, word text, plain); insert into t values {values}"
    with serve("sqlite", ddl) as shop:
        found = {
            group: rows_of(
                shop.call(
                    "aggregate_rows",
                    {"table": "t", "group_by": [group], "measures": [{"function": "count"}]},
                ).structured
            )
            for group in _every(("day", "word", "plain"), ("year", "month", "week", "weekday"))
        }

    shown = {"year": "2024", "month": "2024-03", "week": "2024-W10", "weekday": "2"}
    assert found == {
        group: [[shown[group.partition(":")[2]], len(right)], [None, len(broken)]] for group in found
    }


def _every(columns: Sequence[str], buckets: Sequence[str]) -> list[str]:
    """Return every bucket of every column."""
    return [f"{column}:{bucket}" for column in columns for bucket in buckets]


@pytest.mark.parametrize("dialect", ["postgresql"])
def test_means_of_large_integers_keep_their_digits(shop: Shop) -> None:
    numbers = [2**58 + 1, -(2**58), 2**53 + 1, -(2**53)]
    shop.bare.execute("delete from facts")
    insert(shop, "facts", [{"large": number} for number in numbers])

    [[mean]] = _computed(shop, "facts", {"function": "avg", "column": "large"})

    assert float(str(mean)) == sum(numbers) / len(numbers)


def test_sum_of_many_decimals_has_no_error_of_binary_fractions(dialect: str, serve: Serve) -> None:
    ddl = """
    create table t (v decimal(10,2));
    insert into t
    with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < 10000)
    select 99999999.99 from numbers;
    """
    measures = [{"function": function, "column": "v"} for function in ("sum", "avg")]
    with serve(dialect, ddl) as shop:
        [sums] = _computed(shop, "t", *measures)

    assert [Decimal(str(each)) for each in sums] == [Decimal("999999999900.00"), Decimal("99999999.99")]


def test_there_is_one_row_where_nothing_is_grouped(shop: Shop) -> None:
    shop.bare.execute("delete from facts")
    pairs = [(function, name) for name, kind in KINDS.items() for function in kind.functions]

    rows = _computed(
        shop, "facts", *({"function": function, "column": name} for function, name in pairs[:32])
    )

    assert rows == [[0 if function in COUNTS else None for function, _ in pairs[:32]]]


@pytest.mark.parametrize(
    ("dialect", "declared", "value"),
    [
        pytest.param("sqlite", "bigint", "9223372036854775807", id="sqlite integers"),
        pytest.param("postgresql", "float8", "1e308", id="numbers"),
        pytest.param("postgresql", "interval", "'178000000 years'", id="intervals"),
    ],
)
def test_sum_that_is_too_large_is_an_error_that_says_so(
    dialect: str, declared: str, value: str, serve: Serve
) -> None:
    ddl = f"create table t (v {declared}); insert into t values ({value}), ({value})"
    with serve(dialect, ddl) as shop, pytest.raises(OutOfRange):
        _computed(shop, "t", {"function": "sum", "column": "v"})


def test_answer_that_is_too_long_is_truncated(dialect: str, serve: Serve) -> None:
    words = ", ".join(f"('{at:03}{'x' * 97}')" for at in range(100))
    ddl = f"create table t (v varchar(100)); insert into t values {words}"
    limits = LimitsSection(max_tokens=2_000)
    with serve(dialect, ddl, limits=limits) as shop:
        answer = shop.call(
            "aggregate_rows",
            {"table": "t", "group_by": ["v"], "measures": [{"function": "count"}], "limit": 100},
        )

    rows = rows_of(answer.structured)
    assert rows == [[f"{at:03}{'x' * 97}", 1] for at in range(len(rows))]
    assert 0 < len(rows) < 100
    assert answer.structured["truncated"] is True
    assert len(answer.text.encode()) <= 3 * limits.max_tokens


def _computed(shop: Shop, table: str, *measures: Mapping[str, object]) -> list[list[object]]:
    """Return the rows of *measures* over all of *table*."""
    return rows_of(shop.call("aggregate_rows", {"table": table, "measures": list(measures)}).structured)


#: Types of PostgreSQL with values at their ends.
TYPES: Mapping[str, tuple[str, ...]] = {
    "int2": ("-32768", "32767"),
    "int4": ("-2147483648", "2147483647"),
    "int8": ("-9223372036854775808", "9223372036854775807", "9223372036854775807"),
    "numeric": ("NaN", "Infinity", "-Infinity", "1e-300", "-1e300", "1.50", "1.5"),
    "numeric(12,4)": ("NaN", "99999999.9999", "-0.0001"),
    "float4": ("NaN", "Infinity", "-Infinity", "3.4e38", "1e-45", "-0", "0"),
    "float8": ("NaN", "Infinity", "-Infinity", "1e308", "5e-324", "-0", "0"),
    "bool": ("true", "false"),
    "text": ("", " ", "ß", "🦉", "x" * 3_000),
    "varchar(40)": ("", "a", "A"),
    "char(3)": ("", "a  ", "a"),
    '"char"': ("", "a"),
    "name": ("", "a"),
    "citing": ("", "a"),
    "bytea": ("\\x", "\\x00ff", "\\x00"),
    "date": ("infinity", "-infinity", "4713-01-01 BC", "5874897-12-31", "0001-01-01", "9999-12-31"),
    "time": ("00:00", "24:00:00", "23:59:59.999999"),
    "timetz": ("00:00+15:59", "24:00:00-15:59"),
    "timestamp": ("infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59", "2024-02-29"),
    "timestamptz": ("infinity", "-infinity", "4713-01-02 00:00:00+00 BC", "294276-12-31 23:59:59+00"),
    "interval": ("0", "-178000000 years", "178000000 years", "1 month", "30 days", "infinity"),
    "uuid": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "json": ("null", "{}", '[1, "a"]', '""'),
    "jsonb": ("null", "{}", '[1, "a"]', '""'),
    "jsonpath": ("$", "$.a[*]"),
    "xml": ("<a/>", ""),
    "point": ("(NaN,Infinity)", "(0,-0)", "(0,0)"),
    "line": ("{1,2,3}",),
    "lseg": ("[(0,0),(1,1)]",),
    "box": ("(0,0),(1,1)", "(0,0),(0,0)"),
    "path": ("[(0,0)]", "((0,0),(1,1))"),
    "polygon": ("((0,0),(1,1),(1,0))",),
    "circle": ("<(0,0),1>", "<(1,1),1>"),
    "inet": ("10.0.0.1", "10.0.0.1/8", "::1"),
    "cidr": ("10.0.0.0/8", "::/0"),
    "macaddr": ("08:00:2b:01:02:03",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "bit(8)": ("10101010", "00000000"),
    "varbit": ("", "1"),
    "money": ("-92233720368547758.08", "92233720368547758.07"),
    "tsvector": ("", "a:1 b:2A"),
    "tsquery": ("", "a & !b"),
    "int4range": ("empty", "(,)", "[1,2)"),
    "numrange": ("empty", "[-Infinity,NaN]"),
    "tstzrange": ("(,)", "[infinity,infinity]"),
    "int4multirange": ("{}", "{(,1),[5,6)}"),
    "oid": ("0", "4294967295"),
    "regclass": ("pg_class", "-"),
    "regtype": ("int4", "text[]"),
    "regrole": ("-",),
    "xid": ("0", "4294967295"),
    "xid8": ("0", "18446744073709551615"),
    "cid": ("0",),
    "tid": ("(0,0)", "(4294967295,65535)"),
    "pg_lsn": ("0/0", "FFFFFFFF/FFFFFFFF"),
    "pg_snapshot": ("1:2:1",),
    "refcursor": ("",),
    "int2vector": ("", "1 2"),
    "oidvector": ("", "1 2"),
    "int4[]": ("{}", "{1,NULL}", "{{1,2},{3,4}}"),
    "text[]": ("{}", '{"",NULL}'),
    "float8[]": ("{NaN,-0}", "{NaN,0}"),
    "json[]": ("{}", "{null}"),
    "point[]": ("{}", '{"(0,0)"}'),
    "mood": ("sad", ""),
    "mood[]": ("{}", '{sad,""}'),
    "mood_domain": ("sad", ""),
    "positive": ("1", "2147483647"),
    "tags": ("{}", "{a}"),
    "part": ("(,)", '(NaN,"")', "(1.50,a)", "(1.5,a)"),
    "part[]": ("{}", '{"(1,a)",NULL}'),
    "part_domain": ("(1,a)",),
    "odd_part": ("(,)", '({},"(0,0)")'),
    "odd_part[]": ("{}",),
}
OWN_TYPES = """
create type mood as enum ('sad', '');
create domain mood_domain as mood;
create domain positive as int check (value > 0);
create domain tags as text[];
create domain citing as text collate "C";
create type part as (number numeric, word text);
create domain part_domain as part;
create type odd_part as (content json, place point);
"""
#: Types whose measures are of a type of their own, or the column's.
MEASURED = ("int8", "numeric", "float4", "bool", "text", "date", "timestamptz", "interval", "uuid", "mood")
COMPARING = ("eq", "lt", "between", "contains")
#: Some servers are built without XML, or do not know an infinite interval yet.
UNCERTAIN = ("xml", "interval")


@pytest.fixture(scope="module")
def postgresql(serve: Serve) -> Iterator[Shop]:
    """Give a table with a column of every type, rows of values at their ends, and one of nulls."""
    columns = ", ".join(f"c{at} {name}" for at, name in enumerate(TYPES))
    with serve("postgresql", f"{OWN_TYPES} create table t (id int primary key, {columns});") as shop:
        shop.bare.execute("insert into t values (0)")
        for row in range(max(map(len, TYPES.values()))):
            cells = ", ".join(_cell(shop, name, values[row % len(values)]) for name, values in TYPES.items())
            shop.bare.execute(f"insert into t select {row + 1}, {cells}")
        yield shop


def _cell(shop: Shop, name: str, value: str) -> str:
    """Return *value* of the type *name* as SQL, or null where the server does not know it."""
    cell = f"{literal(value)}::{name}"
    if name in UNCERTAIN:
        try:
            shop.bare.rows(f"select ({cell})::text")
        except asyncpg.PostgresError:
            return "null"
    return cell


def outcomes(shop: Shop, column: str) -> Mapping[str, object]:
    """Return the rows, or the type of the error, of each measure and each group of *column* of `t`."""
    count = {"function": "count"}
    groups = [column, *(f"{column}:{bucket}" for bucket in Bucket)]
    asked: dict[str, dict[str, object]] = {
        **{
            f"{function}": {"measures": [{"function": function, "column": column, "name": "m"}]}
            for function in Function
        },
        **{group: {"group_by": [group], "measures": [count]} for group in groups},
    }
    varied = dict(asked)
    for name, call in asked.items():
        term = name if name in groups else "m"
        varied[f"{name} in order"] = {**call, "order_by": [f"{term} desc"]}
        if name not in groups:
            condition = {"column": "m", "op": "is_null", "value": False}
            varied[f"{name} having"] = {**call, "having": [condition]}
    return {name: _outcome(shop, call) for name, call in varied.items()}


def _outcome(shop: Shop, arguments: Mapping[str, object]) -> object:
    try:
        return rows_of(shop.call("aggregate_rows", {"table": "t", **arguments}).structured)
    except CallError as exc:
        return type(exc)


def _check(shop: Shop, column: str, found: Mapping[str, object]) -> None:
    """Assert that every outcome is rows or a refusal, and that the database counts as many groups."""
    [(count,)] = shop.bare.rows(f"select count({column}) from t")
    refused = {name for name, each in found.items() if each is BadArgument}

    assert {name: each for name, each in found.items() if not isinstance(each, list)} == dict.fromkeys(
        refused, BadArgument
    )
    assert found["count"] == [[count]]
    # What can be counted apart can be grouped by.
    assert ("count_distinct" in refused) is (column in refused)
    if column not in refused:
        [(groups,)] = shop.bare.rows(f"select count(*) from (select distinct {column} from t) as d")
        rows = found[column]
        assert isinstance(rows, list)
        assert len(rows) == groups
        assert found["count_distinct"] == [[groups - 1]]


def _unclean(shop: Shop, column: str) -> Mapping[tuple[str, str, str], object]:
    """Return what neither finds rows nor says what is wrong, among conditions on measures of *column*."""
    found = {}
    for function, operator, value in product(Function, COMPARING, FEW):
        condition: dict[str, object] = {"column": "m", "op": operator}
        condition |= {"values": [value, value]} if operator == "between" else {"value": value}
        measure = {"function": function, "column": column, "name": "m"}
        found[function, operator, value] = _outcome(shop, {"measures": [measure], "having": [condition]})
    return {call: each for call, each in found.items() if not isinstance(each, list) and each not in EXPECTED}


@pytest.mark.parametrize(("at", "name"), [pytest.param(at, name, id=name) for at, name in enumerate(TYPES)])
def test_every_measure_and_group_of_every_type_is_answered_or_refused(
    at: int, name: str, postgresql: Shop
) -> None:
    found = outcomes(postgresql, f"c{at}")

    _check(postgresql, f"c{at}", found)


@pytest.mark.parametrize("name", MEASURED)
def test_every_condition_on_a_measure_is_answered_or_refused(name: str, postgresql: Shop) -> None:
    assert _unclean(postgresql, f"c{list(TYPES).index(name)}") == {}


@pytest.fixture(scope="module")
def sqlite(serve: Serve) -> Iterator[Shop]:
    """Give a table with a column of every declared type, each of which holds cells of every kind."""
    columns = ", ".join(f"c{at} {declared}" for at, (declared, _) in enumerate(DECLARED))
    with serve("sqlite", f"create table t (id integer primary key, {columns})") as shop:
        for cell in CELLS:
            shop.bare.execute(f"insert into t values (null, {', '.join([cell] * len(DECLARED))})")
        yield shop


@pytest.mark.parametrize(
    "at", [pytest.param(at, id=declared or "nothing") for at, (declared, _) in enumerate(DECLARED)]
)
def test_every_measure_and_group_is_total_whatever_a_cell_holds(at: int, sqlite: Shop) -> None:
    found = outcomes(sqlite, f"c{at}")

    _check(sqlite, f"c{at}", found)


@pytest.mark.parametrize(
    "at", [pytest.param(at, id=declared or "nothing") for at, (declared, _) in enumerate(DECLARED)]
)
def test_every_condition_on_a_measure_is_total_whatever_a_cell_holds(at: int, sqlite: Shop) -> None:
    assert _unclean(sqlite, f"c{at}") == {}
