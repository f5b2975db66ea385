"""Random conditions under random grants change exactly the rows that the rules allow, or none."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools import errors
from tests.database.conftest import DIALECTS, Serve, Shops, open_shops
from tests.database.role_callers import Caller, calling_as
from tests.database.shop import Shop, rows_of
from tests.database.test_random_writes import CLAIMS, GRANTED, TYPES, Granted

PRESETS = {":claims.region": "north", ":claims.sub": "ann"}
SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda cell, value: cell == value,
    "ne": lambda cell, value: cell != value,
    "lt": lambda cell, value: cell < value,
    "lte": lambda cell, value: cell <= value,
    "gt": lambda cell, value: cell > value,
    "gte": lambda cell, value: cell >= value,
}
VALUES: Mapping[str, Sequence[Any]] = {
    "id": (0, 3, 5),
    "code": ("a", "c"),
    "amount": (1, 49, 50),
    "region": ("north", "south", "both"),
    "amount + id": (4, 50),
}
Rows = list[dict[str, Any]]
Truth = Callable[[Mapping[str, Any]], bool | None]


def _usable(dialect: str) -> list[Granted]:
    """Return the tables whose rows may be updated or deleted."""
    return [each for each in GRANTED[dialect] if each.is_usable and each.key]


def _most(table: Granted) -> int:
    """Return how many rows of *table* one call may change."""
    return int(table.name[1:]) % 4 + 1


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give the tables."""
    ddl = {each: "".join(table.ddl(each) for table in _usable(each)) for each in DIALECTS}
    ddl["postgresql"] = TYPES + ddl["postgresql"]
    with open_shops(serve, ddl) as shops:
        yield shops


@pytest.fixture(scope="module")
def caller(dialect: str, shops: Shops) -> Iterator[Caller]:
    """Give the caller with the grants."""
    grants = {
        table.name: table.section.model_copy(update={"max_affected": _most(table)})
        for table in _usable(dialect)
    }
    with calling_as(shops(dialect), grants, CLAIMS) as caller:
        yield caller


seeds = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from("abcdef"),
        st.sampled_from([None, 1, 49, 60]),
        st.sampled_from(["north", "north", "north", "south", "both"]),
    ),
    min_size=2,
    max_size=8,
    unique_by=lambda row: (row[0],),
)


def _cell(row: Mapping[str, Any], name: str) -> Any:
    if name == "amount + id":
        return None if row["amount"] is None else row["amount"] + row["id"]
    return row[name]


@st.composite
def conditions(draw: st.DrawFn) -> tuple[Mapping[str, Any], Truth]:
    """Draw a condition, and what it means of a row: None if it is unknown."""
    if draw(st.integers(0, 5)) == 5:
        parts = [draw(conditions()) for _ in range(2)]
        comparisons = [each for each, _ in parts if "column" in each]
        truths = [truth for each, truth in parts if "column" in each]
        if comparisons:
            return {"any": comparisons}, lambda row: any(truth(row) for truth in truths)
    name = draw(st.sampled_from(list(VALUES)))
    if draw(st.integers(0, 5)) == 5:
        wanted = draw(st.booleans())
        written = {"column": name, "op": "is_null", "value": str(wanted).lower()}
        return written, lambda row: (_cell(row, name) is None) == wanted
    sign, value = draw(st.sampled_from(list(SIGNS))), draw(st.sampled_from(VALUES[name]))

    def holds(row: Mapping[str, Any]) -> bool | None:
        cell = _cell(row, name)
        return None if cell is None else SIGNS[sign](cell, value)

    return {"column": name, "op": sign, "value": value}, holds


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data(), seeded=seeds, chosen=st.lists(conditions(), min_size=1, max_size=3))
def test_exactly_the_chosen_rows_change(
    data: st.DataObject,
    seeded: list[tuple[Any, ...]],
    chosen: list[tuple[Mapping[str, Any], Truth]],
    caller: Caller,
    shop: Shop,
    dialect: str,
) -> None:
    table = data.draw(st.sampled_from(_usable(dialect)))
    kind = data.draw(st.sampled_from(["update", "delete"] if table.update else ["delete"]))
    _seed(shop, table, seeded)
    before = _stored(shop, table)
    match = data.draw(st.sampled_from(["all", "any"]))
    arguments: dict[str, Any] = {"table": table.name, "where": [each for each, _ in chosen], "match": match}
    new: dict[str, Any] = {}
    if kind == "update":
        new = arguments["set"] = _new(data, table)
    if data.draw(st.integers(0, 5)) == 5:
        arguments["dry_run"] = True

    try:
        answer: Mapping[str, Any] | None = caller.call(f"{kind}_rows", **arguments)
        code = ""
    except errors.CallError as exc:
        answer, code = None, exc.code

    joined = all if match == "all" else any
    found = [row for row in before if table.is_visible(row) and joined(truth(row) for _, truth in chosen)]
    expected, after = _expected(table, kind, new, found, before)
    assert code in expected
    assert _stored(shop, table) == (before if code or arguments.get("dry_run") else after)
    if answer is None:
        return
    assert answer["affected"] == len(answer["rows"]) == len(found)
    keys = [answer["columns"].index(name) for name in table.key]
    listed = [[row[at] for at in keys] for row in answer.get("before", answer["rows"])]
    if "before" in answer or kind == "delete":
        assert listed == [[row[name] for name in table.key] for row in sorted(found, key=_by_key(table))]
    if kind == "update":
        same = [answer["columns"].index(name) for name in table.key if name not in new]
        pairs = zip(answer["rows"], answer.get("before", ()), strict=False)
        assert all(row[at] == old[at] for row, old in pairs for at in same)
        if not arguments.get("dry_run"):
            shown = rows_of(caller.call("list_rows", table=table.name, limit=100))
            assert all(row in shown for row in answer["rows"])


def _by_key(table: Granted) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    return lambda row: tuple(row[name] for name in table.key)


def _seed(shop: Shop, table: Granted, seeded: Sequence[tuple[Any, ...]]) -> None:
    shop.bare.execute(f"delete from {table.name}")
    codes: set[str] = set()
    for n, (id, code, amount, region) in enumerate(seeded):
        if code in codes and "code" in table.key and len(table.key) == 1:
            continue
        codes.add(code)
        shop.bare.execute(
            f"insert into {table.name} (n, id, code, amount, region, author) values"
            f" ({n}, {id}, '{code}', {'null' if amount is None else amount}, '{region}', 'eve')"
        )


def _stored(shop: Shop, table: Granted) -> Rows:
    names = ["n", *table.known]
    found = shop.bare.rows(f"select {', '.join(names)} from {table.name} order by n")
    return [dict(zip(names, row, strict=True)) for row in found]


def _new(data: st.DataObject, table: Granted) -> dict[str, Any]:
    """Return new values of some columns whose cells are stored as they are given."""
    plain = [name for name in table.update if name in ("id", "code", "amount", "region", "author")]
    names = data.draw(st.lists(st.sampled_from(plain), unique=True, min_size=1)) if plain else []
    if not names:
        return {table.update[0]: None}
    never = {"id", "code", "region", *table.key}
    return {
        name: data.draw(
            st.sampled_from([each for each in table.known[name] if each is not None or name not in never])
        )
        for name in names
    }


def _expected(
    table: Granted, kind: str, new: Mapping[str, Any], found: Rows, before: Rows
) -> tuple[set[str], Rows]:
    """Return the codes with which the call may end, and the rows if it succeeds."""
    if len(found) > _most(table):
        return {"too_many_rows"}, before
    if kind == "delete":
        return {""}, [row for row in before if row not in found]
    presets = {name: PRESETS.get(str(value), value) for name, value in table.section.preset_update.items()}
    changed = [{**row, **new, **presets} for row in found]
    after = sorted([*(row for row in before if row not in found), *changed], key=lambda row: int(row["n"]))
    keys = [tuple(row[name] for name in table.key) for row in after]
    wrong = set[str]()
    if len(set(keys)) < len(keys):
        wrong.add("constraint")
    elif not all(map(table.may_stay, changed)):
        wrong.add("denied")
    return wrong or {""}, after
