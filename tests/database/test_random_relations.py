"""Random conditions on related rows, and alternatives: each database finds the same rows as Python."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools.settings.sections import GrantSection
from tests.database.python_aggregates import insert
from tests.database.role_callers import Grants, calling_as
from tests.database.shop import Serve, Shop, rows_of

DDL = """
create table owners (id integer not null primary key, n integer);
create table things (id integer not null primary key, owner_id integer references owners (id), n integer);
"""
Row = Mapping[str, Any]
SIGNS: Mapping[str, Callable[[int, int], bool]] = {
    "eq": lambda one, other: one == other,
    "gt": lambda one, other: one > other,
    "lte": lambda one, other: one <= other,
}
number = st.none() | st.integers(0, 3)


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A condition as callers write it, and whether it holds for a row, of which these are the things."""

    written: dict[str, Any]
    holds: Callable[[Row, list[Row]], bool]


@st.composite
def compared(draw: st.DrawFn) -> Clause:
    """Draw a comparison of n with a value, or with the number of the row."""
    sign, value, column = draw(st.sampled_from([*SIGNS])), draw(st.integers(0, 3)), draw(st.booleans())
    other = {"value_column": "id"} if column else {"value": str(value)}

    def holds(row: Row, _: list[Row]) -> bool:
        return row["n"] is not None and SIGNS[sign](row["n"], row["id"] if column else value)

    return Clause(written={"column": "n", "op": sign, **other}, holds=holds)


@st.composite
def counted(draw: st.DrawFn) -> Clause:
    """Draw a condition on the number of things, or on the sum of their numbers."""
    sign, value, sums = draw(st.sampled_from([*SIGNS])), draw(st.integers(0, 3)), draw(st.booleans())

    def holds(_: Row, things: list[Row]) -> bool:
        known = [each["n"] for each in things if each["n"] is not None]
        if sums:
            return bool(known) and SIGNS[sign](sum(known), value)
        return SIGNS[sign](len(things), value)

    column = "sum(things.n)" if sums else "count(things)"
    return Clause(written={"column": column, "op": sign, "value": str(value)}, holds=holds)


@st.composite
def alternatives(draw: st.DrawFn, of: st.SearchStrategy[Clause]) -> Clause:
    each = draw(st.lists(of, min_size=1, max_size=3))
    return Clause(
        written={"any": [one.written for one in each]},
        holds=lambda row, things: any(one.holds(row, things) for one in each),
    )


@st.composite
def related(draw: st.DrawFn) -> Clause:
    """Draw whether there are things that meet conditions."""
    each = draw(st.lists(compared() | alternatives(compared()), max_size=2))
    wanted, match = draw(st.booleans()), draw(st.sampled_from(["all", "any"]))
    hold = any if match == "any" and each else all
    where = {"where": [one.written for one in each], "match": match} if each else {}

    def holds(_: Row, things: list[Row]) -> bool:
        return wanted is any(hold(one.holds(thing, []) for one in each) for thing in things)

    return Clause(written={"some" if wanted else "none": "things", **where}, holds=holds)


clauses = st.lists(
    st.one_of(compared(), counted(), related(), alternatives(compared() | counted())), min_size=1, max_size=3
)
matches = st.sampled_from(["all", "any"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(number, max_size=4), st.lists(st.tuples(number, number), max_size=6), clauses, matches)
def test_rows_are_those_that_python_finds(
    shop: Shop,
    owners: list[int | None],
    things: list[tuple[int | None, int | None]],
    asked: list[Clause],
    match: str,
) -> None:
    stored = [{"id": at, "n": n} for at, n in enumerate(owners)]
    known = {row["id"] for row in stored}
    kept = [
        {"id": at, "owner_id": owner if owner in known else None, "n": n}
        for at, (owner, n) in enumerate(things)
    ]
    shop.bare.execute("delete from things")
    shop.bare.execute("delete from owners")
    insert(shop, "owners", stored)
    insert(shop, "things", kept)
    where = [each.written for each in asked]

    answer = shop.call("list_rows", {"table": "owners", "columns": ["id"], "where": where, "match": match})

    hold = any if match == "any" else all
    assert [row[0] for row in rows_of(answer.structured)] == [
        row["id"]
        for row in stored
        if hold(each.holds(row, [one for one in kept if one["owner_id"] == row["id"]]) for each in asked)
    ]


def test_measure_within_a_condition_counts_the_rows_of_its_own_table(serve: Serve, dialect: str) -> None:
    ddl = """
    create table regions (code integer primary key);
    create table accounts (code integer primary key, region_code integer references regions (code));
    create table bookings (code integer, account_code integer references accounts (code));
    insert into regions values (1), (2);
    insert into accounts values (10, 1), (20, 2);
    insert into bookings values (10, 10), (20, 10), (30, 20);
    """
    grants: Grants = {"regions": True, "accounts": True, "bookings": GrantSection(exclude=("code",))}
    condition = {"column": "count(bookings)", "op": "gte", "value": "2"}
    with serve(dialect, ddl) as shop, calling_as(shop, grants) as caller:
        rows = caller.rows("list_rows", table="regions", where=[{"some": "accounts", "where": [condition]}])

    assert rows == [[1]]
