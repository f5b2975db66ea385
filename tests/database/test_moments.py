"""Moments in any spelling of ISO 8601 are compared, sorted, paged and grouped as Python does it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dbtools.backends.sqlite.connection.connections import Search
from dbtools.backends.sqlite.connection.functions import install
from dbtools.settings.sections import GrantSection
from dbtools.values.types import Operator
from tests.calls import statement_of
from tests.database.role_callers import calling_as
from tests.database.shop import ROLE, BareSqlite, Serve, Shop, Shops, rows_of
from tests.database.test_values import examples

EXAMPLES = 40
MOST_ROWS = 14
#: Cells that are not moments: each sorts as it is, numbers before texts.
OTHERS: Sequence[object] = ("", "soon", "2024-01-05T", "2024x", "1704412800x", "~", 0, 1704412800, 2.5)
DDL = {
    "sqlite": "create table seen (id integer primary key, at timestamp, other datetime, day date);"
    "create index by_at on seen (at); create index by_day on seen (day);",
    "postgresql": "create table seen (id int primary key, at timestamp, other timestamptz, day date);",
}
NEAR = datetime(2024, 1, 5)
#: So near to each other that days, and offsets across midnight, matter.
instants = st.builds(
    lambda hours, minutes, micro: NEAR + timedelta(hours=hours, minutes=minutes, microseconds=micro),
    st.integers(-60, 60),
    st.sampled_from([0, 0, 0, 10, 59]),
    st.sampled_from([0, 0, 0, 500_000, 123_450, 1]),
)


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A cell, and the moment that it is, if it is one."""

    cell: object
    moment: datetime | None = None

    @property
    def key(self) -> tuple[int, object]:
        """What sorts it among others: numbers, and then texts."""
        if self.moment is not None:
            return 1, self.moment.replace(tzinfo=None).isoformat(" ", timespec="microseconds")
        return int(isinstance(self.cell, str)), self.cell


def _spelled(moment: datetime, separator: str, offset: int | None, zone: str, brief: bool) -> Stored:
    """Spell *moment* as the programs of the world do."""
    local = moment if offset is None else moment.astimezone(timezone(timedelta(minutes=offset)))
    text = local.replace(tzinfo=None).isoformat(separator)
    if brief and not (moment.second or moment.microsecond):
        text = text[:16] if local.hour or local.minute or offset is not None else text[:10]
    shown = "" if offset is None else f"{local:%z}"
    marks = {"Z": "Z" if not offset else f"{shown[:3]}:{shown[3:]}", "": "", "+0000": shown}
    return Stored(
        cell=text + ("" if offset is None or len(text) == 10 else marks[zone or "Z"]), moment=moment
    )


spellings = st.builds(
    _spelled,
    instants.map(lambda moment: moment.replace(tzinfo=UTC)),
    st.sampled_from([" ", "T", "t"]),
    st.sampled_from([None, None, 0, 60, -330, 14 * 60, -12 * 60]),
    st.sampled_from(["Z", "+0000"]),
    st.booleans(),
)
cells = spellings | st.sampled_from(OTHERS).map(lambda cell: Stored(cell=cell)) | st.none()
values = instants.map(lambda moment: moment.replace(tzinfo=UTC))
Test = Callable[[Any, Sequence[Any]], bool]
OPERATORS: Mapping[Operator, Test] = {
    Operator.EQ: lambda key, wanted: key == wanted[0],
    Operator.NE: lambda key, wanted: key != wanted[0],
    Operator.LT: lambda key, wanted: key < wanted[0],
    Operator.LTE: lambda key, wanted: key <= wanted[0],
    Operator.GT: lambda key, wanted: key > wanted[0],
    Operator.GTE: lambda key, wanted: key >= wanted[0],
    Operator.IN: lambda key, wanted: key in wanted,
    Operator.NOT_IN: lambda key, wanted: key not in wanted,
    Operator.BETWEEN: lambda key, wanted: wanted[0] <= key <= wanted[1],
}
MANY = (Operator.IN, Operator.NOT_IN, Operator.BETWEEN)


@pytest.fixture(scope="module")
def sqlite(shops: Shops) -> Shop:
    return shops("sqlite")


def _fill(shop: Shop, rows: Sequence[Stored | None], column: str) -> None:
    shop.bare.execute("delete from seen")
    for id, row in enumerate(rows):
        shop.bare.execute(f"insert into seen (id, {column}) values (?, ?)", id, row and row.cell)


def _written(moment: datetime, brief: bool) -> str:
    text = moment.replace(tzinfo=None).isoformat("T")
    return text.removesuffix(":00") if brief and len(text) == 19 else text


@pytest.mark.parametrize("column", ["at", "day"])
@pytest.mark.parametrize("operator", OPERATORS)
@examples(EXAMPLES)
@given(
    rows=st.lists(cells, max_size=MOST_ROWS),
    wanted=st.lists(values, min_size=2, max_size=2),
    brief=st.booleans(),
)
def test_operators_choose_the_moments_that_python_chooses(
    operator: Operator,
    column: str,
    rows: list[Stored | None],
    wanted: list[datetime],
    brief: bool,
    sqlite: Shop,
) -> None:
    _fill(sqlite, rows, column)
    if column == "day":
        wanted = [each.replace(hour=0, minute=0, second=0, microsecond=0) for each in wanted]
    texts = [_written(each, brief) for each in wanted]
    keys = [Stored(cell=None, moment=each).key for each in wanted]
    condition: dict[str, object] = {"column": column, "op": operator}
    condition |= {"values": texts} if operator in MANY else {"value": texts[0]}

    found = [row[0] for row in sqlite.rows("seen", columns=["id"], where=[condition], order_by=["id"])]

    chosen = [id for id, row in enumerate(rows) if row and OPERATORS[operator](row.key, keys)]
    assert found == chosen


@pytest.mark.parametrize("column", ["at", "day"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
@examples(EXAMPLES)
@given(rows=st.lists(cells, max_size=MOST_ROWS), limits=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_pages_follow_the_order_of_moments(
    column: str, direction: str, rows: list[Stored | None], limits: list[int], sqlite: Shop
) -> None:
    _fill(sqlite, rows, column)
    order = {"columns": ["id"], "order_by": [f"{column} {direction}"]}

    pages = list(sqlite.pages("list_seen", limits, order))

    found = [int(str(row[0])) for page in pages for row in rows_of(page)]
    assert sorted(found) == list(range(len(rows)))
    known = [row.key for id in found if (row := rows[id])]
    assert known == sorted(known, reverse=direction == "desc")
    assert [rows[id] is None for id in found] == sorted(row is None for row in rows)


@examples(EXAMPLES)
@given(rows=st.lists(cells, min_size=1, max_size=MOST_ROWS))
def test_groups_and_measures_are_of_moments(rows: list[Stored | None], sqlite: Shop) -> None:
    _fill(sqlite, rows, "at")
    keys = [row and row.key for row in rows]
    known = [key for key in keys if key]
    measures = [{"function": each, "column": "at"} for each in ("count_distinct", "min", "max")]

    (found,) = rows_of(sqlite.call("aggregate_rows", {"table": "seen", "measures": measures}).structured)
    alone = [
        rows_of(sqlite.call("aggregate_rows", {"table": "seen", "measures": [each]}).structured)[0][0]
        for each in measures[1:]
    ]
    grouped = rows_of(
        sqlite.call(
            "aggregate_rows", {"table": "seen", "group_by": ["at"], "measures": [{"function": "count"}]}
        ).structured
    )

    assert found[0] == len(set(known))
    ends = [min(known), max(known)] if known else [None, None]
    assert [_key(cell) for cell in found[1:]] == [_key(cell) for cell in alone] == ends
    assert sorted((str(_key(cell)), count) for cell, count in grouped) == sorted(
        (str(key), keys.count(key)) for key in set(keys)
    )


def _key(cell: object) -> tuple[int, object] | None:
    """Return the key of a *cell* in the one spelling of answers."""
    if cell is None:
        return None
    try:
        moment = datetime.fromisoformat(str(cell)) if len(str(cell)) > 10 and "-" in str(cell) else None
    except ValueError:
        moment = None
    return Stored(cell=cell, moment=moment).key


@examples(EXAMPLES)
@given(rows=st.lists(st.tuples(spellings, spellings), max_size=MOST_ROWS))
def test_columns_of_different_spellings_are_compared(rows: list[tuple[Stored, Stored]], sqlite: Shop) -> None:
    sqlite.bare.execute("delete from seen")
    for id, (one, other) in enumerate(rows):
        sqlite.bare.execute("insert into seen (id, at, other) values (?, ?, ?)", id, one.cell, other.cell)
    condition = {"column": "at", "op": "lte", "value_column": "other"}

    found = [row[0] for row in sqlite.rows("seen", columns=["id"], where=[condition], order_by=["id"])]

    assert found == [id for id, (one, other) in enumerate(rows) if one.key <= other.key]


#: Every spelling of one moment, and moments beside it.
MIDNIGHT = ("2025-01-02", "2025-01-02 00:00", "2025-01-02T00:00:00", "2025-01-02T00:00:00.000Z")
BESIDE = {"before": "2025-01-01 23:59:59", "after": "2025-01-02 00:00:01"}


@pytest.mark.parametrize("column", ["at", "other"])
@pytest.mark.parametrize("value", MIDNIGHT)
@pytest.mark.parametrize(
    ("operator", "found"),
    [
        ("eq", [1]),
        ("ne", [0, 2]),
        ("in", [1]),
        ("not_in", [0, 2]),
        ("lt", [0]),
        ("lte", [0, 1]),
        ("gt", [2]),
        ("gte", [1, 2]),
        ("between", [1]),
    ],
)
def test_date_is_its_first_moment_in_both_databases(
    operator: str, value: str, found: list[int], column: str, shop: Shop
) -> None:
    rows = [BESIDE["before"], "2025-01-02 00:00:00", BESIDE["after"]]
    shop.bare.execute("delete from seen")
    lines = ", ".join(f"({id}, '{each}')" for id, each in enumerate(rows))
    shop.bare.execute(f"insert into seen (id, {column}) values {lines}")
    many = operator in MANY
    condition = {"column": column, "op": operator, **({"values": [value] * 2} if many else {"value": value})}

    rows_found = shop.rows("seen", columns=["id"], where=[condition], order_by=["id"])

    assert [id for (id,) in rows_found] == found


@pytest.mark.parametrize("cell", ["14:10", "14:10:00", "14:10:00.000", "14:10Z"])
def test_times_of_day_are_compared_in_any_spelling(cell: str, serve: Serve) -> None:
    with serve("sqlite", "create table t (id integer primary key, v time)") as shop:
        shop.bare.execute("insert into t values (1, ?), (2, '14:09:59.9'), (3, '14:11')", cell)
        found = {
            operator: [
                row[0] for row in shop.rows("t", where=[{"column": "v", "op": operator, "value": "14:10"}])
            ]
            for operator in ("eq", "lt", "lte", "gt", "gte", "ne")
        }
        ordered = [row[0] for row in shop.rows("t", order_by=["v"])]

    assert found == {"eq": [1], "lt": [2], "lte": [1, 2], "gt": [3], "gte": [1, 3], "ne": [2, 3]}
    assert ordered == [2, 1, 3]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_cells_that_no_function_can_read_are_no_moments(encoding: str, serve: Serve) -> None:
    ddl = f"""
    pragma encoding = '{encoding}';
    create table t (id integer primary key, v timestamp, w timestamp);
    create index by_v on t (v);
    insert into t values
        (1, '2024-01-05T10:00Z', '2024-01-05 10:00:00'), (2, cast(x'32303234' as text), null),
        (3, '2024-01-05T10:00' || cast(x'ff00ff' as text), '2024'), (4, x'00ff', x''), (5, '2024-01-05Té', 5),
        (6, '2024-01-05T10:00' || cast(x'00ff' as text), null), (7, cast(x'80' as text), null);
    """
    with serve("sqlite", ddl) as shop:
        equal = shop.rows("t", columns=["id"], where=[{"column": "v", "value": "2024-01-05 10:00"}])
        alike = shop.rows("t", columns=["id"], where=[{"column": "v", "value_column": "w"}])
        orders = [
            [
                tuple(row)
                for page in shop.pages("list_t", [limit], {"columns": ["id"], "order_by": [order]})
                for row in rows_of(page)
            ]
            for order in ("v asc", "v desc")
            for limit in (1, 3, 9)
        ]

    assert equal == alike == [[1]]
    assert [len(set(order)) for order in orders] == [7] * 6
    assert [orders[0], orders[3]] == [orders[2], orders[5]]


PLANS = [
    pytest.param({"op": "eq", "value": "2024-01-05"}, id="eq"),
    pytest.param({"op": "gt", "value": "2024-01-05"}, id="gt"),
    pytest.param({"op": "lte", "value": "2024-01-05T00:00Z"}, id="lte"),
    pytest.param({"op": "in", "values": ["2024-01-05", "2024-02-05"]}, id="in"),
    pytest.param({"op": "between", "values": ["2024-01-05", "2024-02-05"]}, id="between"),
]


@pytest.mark.parametrize("column", ["at", "day"])
@pytest.mark.parametrize("condition", PLANS)
def test_index_serves_the_comparison_of_moments(
    condition: Mapping[str, object], column: str, sqlite: Shop
) -> None:
    counted = {"table": "seen", "measures": [{"function": "count"}]}
    plan = plan_of(sqlite, "aggregate_rows", {**counted, "where": [{"column": column, **condition}]})

    assert f"SEARCH t USING COVERING INDEX by_{column} (" in plan


@pytest.mark.parametrize("direction", ["asc", "desc"])
@pytest.mark.parametrize("after", [False, True])
def test_index_serves_the_order_of_moments(direction: str, after: bool, serve: Serve) -> None:
    ddl = """
    create table t (id integer primary key, at timestamp not null);
    insert into t
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)
        select i, strftime('%Y-%m-%dT%H:%M:00Z', '2024-01-01', (i * 7919 % 2000) || ' hours') from n;
    create index by_at on t (at);
    """
    asked: dict[str, object] = {"columns": ["at"], "order_by": [f"at {direction}"], "limit": 5}
    with serve("sqlite", ddl) as shop:
        first = shop.page("t", **asked)
        cursor = {"cursor": first["next_cursor"]} if after else {}
        found = [str(row[0]) for row in shop.rows("t", **asked, **cursor)]
        plan = plan_of(shop, "list_t", {**asked, **cursor})
        cells = [str(row[0]) for row in shop.bare.rows(f"select at from t order by at {direction} limit 10")]

    assert found == (cells[5:] if after else cells[:5])
    assert plan.startswith("SEARCH t USING COVERING INDEX by_at (at"), plan


@pytest.mark.parametrize("function", ["min", "max"])
def test_index_serves_the_first_and_the_last_moment(function: str, sqlite: Shop) -> None:
    measured = {"table": "seen", "measures": [{"function": function, "column": "at"}]}

    assert "SCAN" not in plan_of(sqlite, "aggregate_rows", measured).replace("SCAN w", "")


@examples(EXAMPLES)
@given(
    rows=st.lists(st.tuples(cells, st.integers(0, 3)), max_size=MOST_ROWS),
    direction=st.sampled_from(["asc", "desc"]),
    limit=st.integers(1, 4),
)
def test_conditions_on_other_tables_keep_the_order_of_moments(
    rows: list[tuple[Stored | None, int]], direction: str, limit: int, places: Shop
) -> None:
    places.bare.execute("delete from trips")
    for id, (row, place) in enumerate(rows):
        places.bare.execute("insert into trips values (?, ?, ?)", id, place, row and row.cell)
    where = [
        {"column": "place.name", "op": "ne", "value": "place 3"},
        {"some": "notes", "where": [{"column": "text", "op": "contains", "value": "É"}]},
    ]
    asked = {"columns": ["id"], "where": where, "order_by": [f"at {direction}"]}

    with calling_as(places, {"*": True, "trips": GrantSection(where="id <> 5")}) as caller:
        found = [int(str(row[0])) for row in caller.rows("list_trips", **asked, limit=limit)]

    seen = [id for id, (_, place) in enumerate(rows) if id != 5 and place != 3 and id % 2 == 0]
    known = sorted((row.key for id in seen if (row := rows[id][0]) is not None), reverse=direction == "desc")
    first = [None if (row := rows[id][0]) is None else row.key for id in found]
    assert first == [*known, *[None] * len(seen)][: min(limit, len(seen))]


@pytest.fixture(scope="module")
def places(serve: Serve) -> Iterator[Shop]:
    """Yield trips with places, and with notes to those of even numbers."""
    ddl = """
    create table places (id integer primary key, name text not null);
    create table trips (id integer primary key, place_id integer references places(id), at timestamp);
    create table notes (id integer primary key, trip_id integer references trips(id), text text);
    insert into places values (0, 'place 0'), (1, 'place 1'), (2, 'place 2'), (3, 'place 3');
    insert into notes
        with recursive n(i) as (select 0 union all select i + 1 from n where i < 20)
        select i, i, case i % 2 when 0 then 'école' else 'x' end from n;
    create index by_at on trips (at);
    """
    with serve("sqlite", ddl) as shop:
        yield shop


def plan_of(shop: Shop, tool: str, asked: Mapping[str, object]) -> str:
    """Return how SQLite runs the call of *tool*."""
    assert isinstance(shop.bare, BareSqlite)
    install(shop.bare.connection)
    Search(shop.bare.connection)
    statement = statement_of(shop.portal.call(shop.toolbox.view, ROLE).tools[tool].bind(asked))
    assert statement is not None
    plan = shop.portal.call(shop.database.runner).compile(statement.shape)
    values = plan.bind_values(statement.values, statement.limit)
    return "\n".join(str(row[-1]) for row in shop.bare.rows(f"explain query plan {plan.sql}", *values))
