"""Random changes under random grants do what a model of the rules says; odd ones exceed no grant."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools import errors
from tests.database.random_grants import (
    CLAIMS,
    GRANTED,
    KEYS,
    NEEDED,
    TABLES,
    TYPES,
    VALUES,
    Changes,
    Granted,
    Model,
    Record,
    Violated,
    is_taken,
    preset_values,
)
from tests.database.role_callers import Caller, calling_as
from tests.database.shop import DIALECTS, Serve, Shop, Shops, literal, open_shops

#: What callers may send instead of a valid value.
ODD: tuple[Any, ...] = (
    *(None, "", "x", -5, 60, 2**70, 1.5, True, [], [1], {"a": 1}),
    *("2024-02-30", "both", "south", "north", "😀"),
)
ODD_NAMES = ("N", "REGION", '"region"', "t.region", "nonsense")
SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "eq": lambda cell, value: cell == value,
    "ne": lambda cell, value: cell != value,
    "lt": lambda cell, value: cell < value,
    "lte": lambda cell, value: cell <= value,
    "gt": lambda cell, value: cell > value,
    "gte": lambda cell, value: cell >= value,
}
OPERANDS: Mapping[str, tuple[Any, ...]] = {
    "id": (0, 2, 4),
    "a": ("p", "r"),
    "amount": (1, 49, 50),
    "region": ("north", "south", "both"),
    "amount + id": (4, 50),
}
KINDS = ("insert", "upsert", "update", "delete", "update_rows", "delete_rows")
Truth = Callable[[Record], bool | None]
examples = settings(suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    ddl = {each: "".join(table.ddl(each) for table in GRANTED[each]) for each in DIALECTS}
    ddl["postgresql"] = TYPES + ddl["postgresql"]
    with open_shops(serve, ddl) as shops:
        yield shops


@pytest.fixture(scope="module")
def caller(dialect: str, shops: Shops) -> Iterator[Caller]:
    grants = {table.name: table.section for table in GRANTED[dialect]}
    with calling_as(shops(dialect), grants, CLAIMS) as caller:
        yield caller


def kinds_of(table: Granted) -> list[str]:
    """Return the kinds of calls that may change rows of *table*."""
    kinds = ["insert"] * table.inserts + ["upsert"] * (table.inserts and bool(table.usable))
    if table.primary:
        kinds += ["update", "update_rows"] * bool(table.update) + ["delete", "delete_rows"]
    return kinds


def test_changes_are_offered_where_the_rules_say_so(caller: Caller, dialect: str) -> None:
    tools = caller.portal.call(caller.toolbox.view, caller.role).tools
    for table in GRANTED[dialect]:
        # SQLite numbers rows by itself.
        numbered = {"id"} if dialect == "sqlite" and table.primary == ("id",) else set()
        needed = {*NEEDED} - {*table.section.preset} - numbered
        inserts = table.section.insert is not False and needed <= {*table.insert}
        assert (f"insert_{table.name}" in tools) == inserts, table
        assert (f"update_{table.name}" in tools) == bool(table.update), table
        if not inserts:
            continue
        definition = tools[f"insert_{table.name}"].definition
        offered: Any = definition.input_schema["properties"]
        choices = offered["on_conflict"]["enum"] if "on_conflict" in offered else []
        updates = bool(table.update) and any(needed <= {*key, *table.update} for key in table.usable)
        expected = ["error", "ignore", "update"] if updates else ["error", "ignore"]
        assert choices == (expected if table.usable else []), table
        assert definition.annotations["destructiveHint"] == updates, table
    for kind in KINDS:
        assert sum(kind in kinds_of(table) for table in GRANTED[dialect]) > TABLES // 4


@st.composite
def conditions(draw: st.DrawFn) -> tuple[Mapping[str, Any], Truth]:
    """Draw a condition, and what it means of a row: None if it is unknown."""
    if draw(st.integers(0, 5)) == 5:
        parts = [each for each in (draw(conditions()) for _ in range(2)) if "column" in each[0]]
        if parts:
            return {"any": [each for each, _ in parts]}, lambda row: any(truth(row) for _, truth in parts)
    name = draw(st.sampled_from(list(OPERANDS)))

    def cell(row: Record) -> Any:
        if name != "amount + id":
            return row[name]
        return None if row["amount"] is None else row["amount"] + row["id"]

    if draw(st.integers(0, 5)) == 5:
        wanted = draw(st.booleans())
        written = {"column": name, "op": "is_null", "value": str(wanted).lower()}
        return written, lambda row: (cell(row) is None) == wanted
    sign, value = draw(st.sampled_from(list(SIGNS))), draw(st.sampled_from(OPERANDS[name]))
    truth: Truth = lambda row: None if cell(row) is None else SIGNS[sign](cell(row), value)  # noqa: E731
    return {"column": name, "op": sign, "value": value}, truth


seeds = st.lists(st.tuples(*map(st.sampled_from, VALUES.values())), max_size=7)


def _seed(shop: Shop, table: Granted, seeded: list[tuple[Any, ...]]) -> list[Record]:
    shop.bare.execute(f"delete from {table.name}")
    rows: list[Record] = []
    for cells in seeded:
        row = dict(zip(VALUES, cells, strict=True))
        if not is_taken(table, rows, row):
            rows.append(row)
            written = (
                "null" if cell is None else literal(cell) if isinstance(cell, str) else str(cell)
                for cell in cells
            )
            shop.bare.execute(f"insert into {table.name} ({', '.join(row)}) values ({', '.join(written)})")
    return [{**row, **dict.fromkeys(table.kinds)} for row in rows]


def _stored(shop: Shop, table: Granted) -> list[Record]:
    rows = shop.bare.rows(f"select {', '.join(table.values)} from {table.name}")
    return _sorted([dict(zip(table.values, row, strict=True)) for row in rows])


def _sorted(rows: list[Record]) -> list[Record]:
    return sorted(rows, key=lambda row: [str(row[name]) for name in VALUES])


class Drawn:
    """A call that is drawn for a table with rows, and what the model says of it."""

    def __init__(self, data: st.DataObject, table: Granted, kind: str, rows: list[Record]) -> None:
        self.data, self.table, self.kind = data, table, kind
        self.model = Model(table=table, rows=[dict(row) for row in rows])
        self.arguments: Record = {"dry_run": data.draw(st.integers(0, 3)) == 3}
        self.changes: Changes = []
        self.ignored, self.code = 0, ""
        getattr(self, f"draw_{kind}")()

    @property
    def tool(self) -> str:
        if self.kind.endswith("_rows"):
            return self.kind
        return f"{'insert' if self.kind == 'upsert' else self.kind}_{self.table.name}"

    def expect(self, make: Callable[[], Changes]) -> None:
        try:
            self.changes = make()
        except Violated as exc:
            self.code = str(exc)

    def values(self, names: list[str], needed: tuple[str, ...] = ()) -> Record:
        """Draw values of columns *names*, all *needed* ones among them."""
        never = {*NEEDED, "region", *self.table.primary}
        chosen = [each for each in names if each in needed or self.data.draw(st.integers(0, 2))]
        valid = {
            name: [each for each in self.table.values[name] if each is not None or name not in never]
            for name in chosen
        }
        return {name: self.data.draw(st.sampled_from(valid[name])) for name in chosen}

    def rows(self, names: list[str]) -> list[Record]:
        count = self.data.draw(st.integers(1, min(3, self.table.most)))
        return [self.values(names, NEEDED) for _ in range(count)]

    def draw_insert(self) -> None:
        self.arguments["rows"] = self.rows(self.table.insert)
        self.expect(lambda: self.model.insert(self.arguments["rows"]))

    def draw_upsert(self) -> None:
        table, draw = self.table, self.data.draw
        fit = [name for name in table.insert if name in NEEDED or name in table.update]
        rows = self.rows(fit if draw(st.booleans()) else table.insert)
        how = draw(st.sampled_from(["update", "update", "ignore"]))
        key = draw(st.sampled_from([None, *table.usable, *table.usable, *KEYS[:2]]))
        self.arguments |= {"rows": rows, "on_conflict": how}
        if key:
            self.arguments["conflict_key"] = draw(st.permutations(list(key)))

        def make() -> Changes:
            changes, self.ignored = self.model.upsert(rows, how, key)
            return changes

        self.expect(make)

    def found(self) -> list[Record]:
        """Draw a key and expected values; return the row that has them, or raise Violated."""
        table, draw = self.table, self.data.draw
        row = draw(st.sampled_from(self.model.rows))
        key = {name: row[name] for name in table.primary}
        if draw(st.integers(0, 7)) == 7:
            key[table.primary[0]] = 77 if table.primary[0] == "id" else "zz"
        self.arguments |= key
        names = [name for name in ("id", "a", "amount", "region") if table.is_plain([name])]
        same = draw(st.dictionaries(st.sampled_from(names), st.integers(0, 3), max_size=2))
        other = {"id": 99, "a": "z", "amount": 3, "region": "west"}
        expected = {name: row[name] if is_same else other[name] for name, is_same in same.items()}
        if expected:
            self.arguments["expected"] = expected
        rows = [
            each
            for each in self.model.rows
            if table.is_visible(each) and all(each[name] == value for name, value in key.items())
        ]
        if not rows:
            raise Violated("no_row")
        if any(rows[0][name] != value for name, value in expected.items()):
            raise Violated("conflict")
        return rows

    def draw_update(self) -> None:
        sets = self.arguments["set"] = self.values(self.table.update, tuple(self.table.update[:1]))
        self.expect(lambda: self.model.update(self.found(), sets))

    def draw_delete(self) -> None:
        self.expect(lambda: self.model.delete(self.found()))

    def chosen(self) -> list[Record]:
        """Draw conditions; return the rows that meet them in the order of their keys, or raise Violated."""
        table, draw = self.table, self.data.draw
        drawn = draw(st.lists(conditions(), min_size=1, max_size=3))
        match = draw(st.sampled_from(["all", "any"]))
        self.arguments |= {"table": table.name, "where": [each for each, _ in drawn], "match": match}
        joined = all if match == "all" else any
        rows = [
            row
            for row in self.model.rows
            if table.is_visible(row) and joined(truth(row) for _, truth in drawn)
        ]
        if len(rows) > table.most:
            raise Violated("too_many_rows")
        return sorted(rows, key=lambda row: [row[name] for name in table.primary])

    def draw_update_rows(self) -> None:
        sets = self.arguments["set"] = self.values(self.table.update, tuple(self.table.update[:1]))
        self.expect(lambda: self.model.update(self.chosen(), sets))

    def draw_delete_rows(self) -> None:
        self.expect(lambda: self.model.delete(self.chosen()))


def _call(caller: Caller, tool: str, arguments: Record) -> tuple[Mapping[str, Any] | None, str]:
    """Return the answer or the code of the error."""
    try:
        return caller.call(tool, **arguments), ""
    except errors.CallError as exc:
        return None, exc.code


def _drawn_table(data: st.DataObject, dialect: str) -> tuple[Granted, str]:
    kind = data.draw(st.sampled_from(KINDS))
    return data.draw(st.sampled_from([each for each in GRANTED[dialect] if kind in kinds_of(each)])), kind


@examples
@given(data=st.data(), seeded=seeds)
def test_change_does_what_the_model_says(
    data: st.DataObject, seeded: list[tuple[Any, ...]], caller: Caller, shop: Shop, dialect: str
) -> None:
    table, kind = _drawn_table(data, dialect)
    before = _seed(shop, table, seeded or [tuple(values[0] for values in VALUES.values())])
    drawn = Drawn(data, table, kind, before)

    answer, code = _call(caller, drawn.tool, drawn.arguments)

    assert (code, drawn.arguments) == (drawn.code, drawn.arguments)
    is_kept = not code and not drawn.arguments["dry_run"]
    assert _stored(shop, table) == _sorted(drawn.model.rows if is_kept else before)
    if answer is None:
        return
    assert answer["affected"] == len(drawn.changes)
    assert answer["rows"] == [table.cells(old if new is None else new) for old, new in drawn.changes]
    assert (f"{drawn.ignored} row" in str(answer.get("note", ""))) == (drawn.ignored > 0)
    if "before" in answer:
        assert answer["before"] == [table.cells(old) for old, _ in drawn.changes]


@examples
@given(data=st.data(), seeded=seeds)
def test_odd_values_change_nothing_beyond_the_grant(
    data: st.DataObject, seeded: list[tuple[Any, ...]], caller: Caller, shop: Shop, dialect: str
) -> None:
    kind = data.draw(st.sampled_from(["insert", "update"]))
    table = data.draw(st.sampled_from([each for each in GRANTED[dialect] if kind in kinds_of(each)]))
    before = _seed(shop, table, seeded or [tuple(values[0] for values in VALUES.values())])
    drawn = Drawn(data, table, kind, before)
    names = data.draw(st.lists(st.sampled_from([*table.values, *table.values, *ODD_NAMES]), max_size=3))
    odd = {name: data.draw(st.sampled_from((*table.values.get(name, ()), *ODD))) for name in names}
    target = drawn.arguments["rows"][0] if kind == "insert" else drawn.arguments["set"]
    target.update(odd)

    _, code = _call(caller, drawn.tool, drawn.arguments)

    after = _stored(shop, table)
    if code or drawn.arguments["dry_run"]:
        assert after == _sorted(before)
        return
    gone, new = (
        [row for row in rows if row not in others] for rows, others in ((before, after), (after, before))
    )
    assert all(map(table.is_visible, gone))
    assert all(map(table.may_stay, new))
    section, names = table.section, table.insert if kind == "insert" else table.update
    fixed = preset_values(section.preset if kind == "insert" else section.preset_update)
    unset = dict.fromkeys(table.values) | {"region": table.default, "author": "none"}
    assert len(gone) == (kind == "update" and bool(new))
    for row in new:
        kept = gone[0] if gone else unset
        assert {name: row[name] for name in fixed} == fixed
        assert all(row[name] == kept[name] for name in row if name not in fixed and name not in names)
