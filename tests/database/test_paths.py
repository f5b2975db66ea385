"""Paths neither multiply nor drop rows: lists, pages and aggregates are what Python computes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from dbtools.expressions.terms import Function
from tests.database.python_aggregates import (
    KINDS,
    TEXT,
    Asked,
    Condition,
    Kind,
    Row,
    calls,
    conditions,
    in_order,
    insert,
    means,
    whole,
)
from tests.database.shop import Serve, Shop, Shops, open_shops, rows_of
from tests.database.test_values import examples

EXAMPLES = 50
MOST_ROWS = 8  #: of each table

NUMBER = Kind(
    declared="int", values=st.integers(1, MOST_ROWS), read=whole, functions=(Function.COUNT_DISTINCT,)
)
WORD, PRICE, DAY = KINDS["word"], KINDS["price"], KINDS["day"]
DDL = """
create table regions (
    id int not null primary key, name {text}, parent_id int references regions (id)
);
create table people (
    id int not null primary key, name {text}, day date, home_region_id int references regions (id),
    "ReportsTo" int references people (id)
);
create table codes (code {text} not null unique, price decimal(10,2));
create table sites (
    area int not null, place {text} not null, name {text}, "regionId" int references regions (id),
    primary key (area, place)
);
create table tickets (id int not null primary key, {ticket});
create table notes (id int, {ticket});
"""
TICKET = """
    price decimal(10,2), customer_id int references people (id), agent_id int references people (id),
    code {text} references codes (code), area int, place {text},
    foreign key (area, place) references sites (area, place)
"""
#: In the order in which they refer to one another. The last has the rows of the tickets, and no key.
TABLES = ("regions", "people", "codes", "sites", "tickets", "notes")
ABSENT = MOST_ROWS + 1  #: what nothing has for its number


@dataclass(frozen=True, kw_only=True)
class Step:
    """Where one step of a path leads: from the columns of a row to the row that has these values."""

    columns: tuple[str, ...]
    table: str
    keys: tuple[str, ...] = ("id",)


STEPS: Mapping[tuple[str, str], Step] = {
    ("regions", "parent"): Step(columns=("parent_id",), table="regions"),
    ("people", "home_region"): Step(columns=("home_region_id",), table="regions"),
    ("people", "ReportsTo"): Step(columns=("ReportsTo",), table="people"),
    ("sites", "region"): Step(columns=("regionId",), table="regions"),
    ("tickets", "customer"): Step(columns=("customer_id",), table="people"),
    ("tickets", "agent_id"): Step(columns=("agent_id",), table="people"),
    ("tickets", "code"): Step(columns=("code",), table="codes", keys=("code",)),
    ("tickets", "sites_by_area_place"): Step(
        columns=("area", "place"), table="sites", keys=("area", "place")
    ),
}
#: What tickets know of themselves and, by one to three steps, of others.
PLACES: Mapping[str, Kind] = {
    "id": NUMBER,
    "price": PRICE,
    "customer_id": NUMBER,
    "agent_id": NUMBER,
    "code": WORD,
    "area": NUMBER,
    "place": WORD,
    "customer.id": NUMBER,
    "customer.name": WORD,
    "customer.day": DAY,
    "agent_id.name": WORD,
    "agent_id.day": DAY,
    "code.price": PRICE,
    "code.code": WORD,
    "sites_by_area_place.name": WORD,
    "sites_by_area_place.area": NUMBER,
    "customer.home_region.name": WORD,
    "customer.ReportsTo.name": WORD,
    "agent_id.home_region.name": WORD,
    "agent_id.ReportsTo.day": DAY,
    "sites_by_area_place.region.name": WORD,
    "sites_by_area_place.region.parent_id": NUMBER,
    "customer.home_region.parent.name": WORD,
    "customer.ReportsTo.ReportsTo.id": NUMBER,
    "agent_id.ReportsTo.home_region.name": WORD,
    "sites_by_area_place.region.parent.id": NUMBER,
}
Rows = list[dict[str, Any]]
Tables = Mapping[str, Rows]


@st.composite
def stored(draw: st.DrawFn) -> Tables:
    """Draw the rows of all tables. Some refer to no row, some to themselves, some to missing rows."""
    number = st.none() | st.integers(1, ABSENT)
    words = ("", "a", "A", "é", "🦉", "b")
    word = st.none() | st.sampled_from(words)

    def rows(**cells: st.SearchStrategy[Any]) -> Rows:
        drawn: Rows = draw(st.lists(st.fixed_dictionaries(cells), max_size=MOST_ROWS))
        return drawn

    def numbered(rows: Rows) -> Rows:
        return [{"id": at, **row} for at, row in enumerate(rows, 1)]

    sites = rows(area=st.integers(1, 3), place=st.sampled_from(words[:3]), name=word, regionId=number)
    return {
        "regions": numbered(rows(name=word, parent_id=number)),
        "people": numbered(
            rows(name=word, day=st.none() | DAY.values, home_region_id=number, ReportsTo=number)
        ),
        "codes": [{"code": code, "price": Decimal(at) / 4} for at, code in enumerate(words[:5])],
        "sites": list({(row["area"], row["place"]): row for row in sites}.values()),
        "tickets": numbered(
            rows(
                price=st.none() | PRICE.values,
                customer_id=number,
                agent_id=number,
                code=word,
                area=st.none() | st.integers(1, 3),
                place=st.none() | st.sampled_from(words[:3]),
            )
        ),
    }


@dataclass(frozen=True, kw_only=True)
class Stored:
    """What is stored, and how Python follows a path in it."""

    tables: Tables

    def cell(self, row: Row, path: str) -> object:
        """Return what is at the end of *path*, which begins in a ticket."""
        *steps, column = path.split(".")
        table, here = "tickets", [row]
        for name in steps:
            step = STEPS[table, name]
            table = step.table
            here = [each for before in here for each in self.targets(before, step)]
        assert len(here) <= 1
        return here[0][column] if here else None

    def targets(self, row: Row, step: Step) -> Rows:
        """Return the rows that *step* leads to from *row*: nulls are equal to nothing."""
        values = [row[column] for column in step.columns]
        return [
            each
            for each in self.tables[step.table]
            if None not in values and [each[key] for key in step.keys] == values
        ]


def _held(tables: Tables) -> Tables:
    """Return *tables* without what refers to nothing, as a database that holds to its references has them."""
    held = Stored(tables={name: [dict(row) for row in rows] for name, rows in tables.items()})
    for (table, _), step in STEPS.items():
        for row in held.tables[table]:
            if not held.targets(row, step):
                row[step.columns[-1]] = None
    return held.tables


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    ddl = {dialect: DDL.format(text=text, ticket=TICKET.format(text=text)) for dialect, text in TEXT.items()}
    with open_shops(serve, ddl) as shops:
        yield shops


def _store(shop: Shop, tables: Tables) -> Stored:
    """Store *tables*, on SQLite with references to nothing, and return what is stored."""
    tables = tables if shop.dialect == "sqlite" else _held(tables)
    for name in reversed(TABLES):
        shop.bare.execute(f"delete from {name}")
    for name in TABLES:
        insert(shop, name, tables[name if name != "notes" else "tickets"])
    return Stored(tables=tables)


@dataclass(frozen=True, kw_only=True)
class Listed:
    columns: tuple[str, ...]
    where: tuple[Condition, ...]
    match: str
    order: tuple[tuple[str, str], ...]
    limits: tuple[int, ...]

    def arguments(self, table: str) -> dict[str, object]:
        return {
            "table": table,
            "columns": list(self.columns),
            "where": [each.argument() for each in self.where],
            "match": self.match,
            "order_by": [f"{name} {direction}" for name, direction in self.order],
        }

    def answer(self, stored: Stored) -> list[list[object]]:
        """Return all rows of the answer; what is equal in the order comes by its number."""
        wanted = any if self.match == "any" and self.where else all
        rows = [
            row
            for row in stored.tables["tickets"]
            if wanted(each.holds(stored.cell(row, each.column)) for each in self.where)
        ]
        last = self.order[-1][1] if self.order else "asc"
        ordered = in_order(rows, [*self.order, ("id", last)], stored.cell)
        return [[stored.cell(row, column) for column in self.columns] for row in ordered]


NAMES = st.sampled_from(list(PLACES))
LISTED = st.builds(
    Listed,
    columns=st.lists(NAMES, min_size=1, max_size=6, unique=True).map(tuple),
    where=st.lists(NAMES.flatmap(lambda name: conditions(name, PLACES[name])), max_size=2).map(tuple),
    match=st.sampled_from(["all", "any"]),
    order=st.lists(
        st.tuples(NAMES, st.sampled_from(("asc", "desc"))), max_size=3, unique_by=lambda step: step[0]
    ).map(tuple),
    limits=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
)


@pytest.mark.parametrize("table", ["tickets", "notes"])
@examples(EXAMPLES)
@given(tables=stored(), listed=LISTED)
def test_pages_with_paths_are_the_rows_of_the_table_in_order(
    table: str, tables: Tables, listed: Listed, shop: Shop
) -> None:
    expected = listed.answer(_store(shop, tables))

    pages = list(shop.pages("list_rows", listed.limits, listed.arguments(table)))

    found = [row for page in pages for row in rows_of(page)]
    assert _read(found, listed.columns) == expected
    assert all(page["columns"] == list(listed.columns) for page in pages)
    assert [len(rows_of(page)) for page in pages[:-1]] == [
        listed.limits[at % len(listed.limits)] for at in range(len(pages) - 1)
    ]


def _read(rows: Sequence[Sequence[object]], columns: Sequence[str]) -> list[list[object]]:
    return [
        [
            None if cell is None else PLACES[column].read(cell)
            for column, cell in zip(columns, row, strict=True)
        ]
        for row in rows
    ]


@examples(EXAMPLES)
@given(tables=stored(), asked=calls(PLACES))
def test_aggregates_over_paths_are_what_python_computes(tables: Tables, asked: Asked, shop: Shop) -> None:
    stored = _store(shop, tables)
    expected = asked.answer(stored.tables["tickets"], stored.cell)

    page = shop.call("aggregate_rows", asked.arguments("tickets")).structured

    assert asked.read(rows_of(page), PLACES) == means(expected[: asked.limit])
    assert page["columns"] == asked.names()
    assert page["truncated"] is (len(expected) > asked.limit)


@examples(EXAMPLES // 4)
@given(tables=stored(), columns=st.lists(NAMES, min_size=1, max_size=6, unique=True))
def test_row_by_its_key_has_the_cells_of_its_paths(tables: Tables, columns: list[str], shop: Shop) -> None:
    stored = _store(shop, tables)

    for row in stored.tables["tickets"]:
        arguments = {"table": "tickets", "key": {"id": row["id"]}, "columns": columns}
        found = shop.call("get_row", arguments).structured["row"]

        assert isinstance(found, dict)
        assert list(found) == columns
        assert _read([list(found.values())], columns) == [[stored.cell(row, column) for column in columns]]


def test_reference_is_compared_as_the_target_compares(serve: Serve) -> None:
    ddl = """
    create table codes (code text collate nocase primary key, label text);
    create table numbers (number integer primary key, label text);
    create table t (
        id integer primary key, code_id text references codes (code), number_id text references numbers
    );
    insert into codes values ('a', 'first'), ('b', 'second');
    insert into numbers values (1, 'one'), (2, 'two');
    insert into t values (1, 'A', '1'), (2, 'b', '02'), (3, 'c', '3'), (4, null, null);
    """
    with serve("sqlite", ddl) as shop:
        violations = {row[1] for row in shop.bare.rows("pragma foreign_key_check(t)")}
        rows = rows_of(
            shop.call("list_rows", {"table": "t", "columns": ["id", "code.label", "number.label"]}).structured
        )

    assert violations == {3}
    assert rows == [[1, "first", "one"], [2, "second", "two"], [3, None, None], [4, None, None]]
