"""Random upserts under random grants do what an independent model of the rules says, hidden rows included."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools import errors
from dbtools.settings.sections import GrantSection
from dbtools.types import Mask
from tests.database.conftest import DIALECTS, Serve, Shops, open_shops
from tests.database.role_callers import Caller, calling_as
from tests.database.shop import Shop

TABLES = 24
CLAIMS = {"region": "north", "sub": "ann"}
Record = dict[str, Any]
VALUES: Mapping[str, Sequence[Any]] = {
    "id": (1, 2, 3, 4),
    "a": tuple("pqr"),
    "b": tuple("xy"),
    "n": (None, 1, 2, 3),
    "amount": (None, 1, 49, 60),
    "region": ("north", "north", "both", "south"),
    "author": ("eve", None),
}
NEEDED = ("id", "a", "b")
FILTERS = (None, "region = :claims.region", "region in (:claims.region, 'both')")
CHECKS: Mapping[str, Callable[[Record], bool]] = {
    "amount < 50": lambda row: row["amount"] is not None and row["amount"] < 50,
    "region <> 'both'": lambda row: row["region"] != "both",
}
KEYS = (("id",), ("a",), ("a", "b"), ("b", "id"), ("n",))


class Violated(Exception):
    """The rules refuse the call with this code."""


@dataclass(frozen=True, kw_only=True)
class Granted:
    """A table with unique keys, and what a role may do with it."""

    name: str
    primary: tuple[str, ...]
    keys: tuple[tuple[str, ...], ...]  #: all, the primary one first
    section: GrantSection

    def ddl(self) -> str:
        constraints = [f"primary key ({', '.join(self.primary)})"] * bool(self.primary)
        constraints += [f"unique ({', '.join(key)})" for key in self.keys if key != self.primary]
        columns = "id integer not null, a text not null, b text not null, n integer, amount integer"
        fixed = f"{columns}, region text not null default 'north', author text default 'none'"
        return f"create table {self.name} ({', '.join([fixed, *constraints])});"

    @property
    def shown(self) -> list[str]:
        return [name for name in VALUES if name not in self.section.exclude]

    @property
    def insert(self) -> list[str]:
        granted = self.shown if self.section.insert is True else self.section.insert or ()
        return [name for name in granted if name not in self.section.preset]

    @property
    def update(self) -> list[str]:
        fixed = {**self.section.preset_update, **(self.section.preset if self.section.update is True else {})}
        granted = self.shown if self.section.update is True else self.section.update or ()
        finds = any("n" not in key and self.is_plain(key) for key in self.keys)
        return [name for name in granted if name not in fixed] if finds else []

    def is_plain(self, key: Sequence[str]) -> bool:
        return all(name in self.shown and name not in self.section.mask for name in key)

    @property
    def usable(self) -> list[tuple[str, ...]]:
        given = {*self.insert, *self.section.preset}
        return [key for key in self.keys if self.is_plain(key) and given.issuperset(key)]

    def is_visible(self, row: Record) -> bool:
        where = self.section.where or ""
        return not where or row["region"] == "north" or ("both" in where and row["region"] == "both")

    def may_stay(self, row: Record) -> bool:
        check = self.section.check
        return self.is_visible(row) and (check is None or CHECKS[check](row))

    def cells(self, row: Record | None) -> list[Any] | None:
        if row is None:
            return None
        return [None if name in self.section.mask else row[name] for name in self.shown]


def _granted(at: int) -> Granted:
    """Return table number *at*, which is the same in every run."""
    draw = random.Random(f"upserts {at}")
    primary = draw.choice([("id",), ("id",), ("a", "b"), ("b", "id"), ()])
    others = draw.sample([key for key in KEYS if key != primary], draw.randint(0 if primary else 1, 3))
    exclude = tuple(draw.sample(["n", "author"], draw.choice([0, 0, 1])))
    preset: Record = draw.choice([{}, {"region": ":claims.region"}, {"author": ":claims.sub", "b": "x"}])
    preset_update: Record = draw.choice([{}, {"author": ":claims.sub"}, {"amount": 7}])
    shown = [name for name in VALUES if name not in exclude]
    usual = [name for name in shown if name not in preset]
    settable = [name for name in shown if name not in preset_update]
    insert = tuple(name for name in usual if name in NEEDED or draw.random() < 0.8)
    update = tuple(name for name in settable if draw.random() < 0.8)
    updates: Any = draw.choice([True, update, update, False])
    keyed = primary or any("n" not in key for key in others)
    inserts: Any = draw.choice([True, insert, insert])
    section = GrantSection(
        exclude=exclude,
        mask={"n": Mask.NULL} if "n" in shown and draw.random() < 0.2 else {},
        where=draw.choice(FILTERS),
        check=draw.choice([None, *CHECKS]),
        insert=inserts,
        update=updates if keyed else False,
        preset=preset,
        preset_update=preset_update if updates and keyed else {},
    )
    return Granted(
        name=f"t{at}", primary=primary, keys=(*([primary] if primary else []), *others), section=section
    )


GRANTED = [_granted(at) for at in range(TABLES)]
seeds = st.lists(st.tuples(*map(st.sampled_from, VALUES.values())), max_size=6)


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give the tables."""
    with open_shops(serve, dict.fromkeys(DIALECTS, "".join(table.ddl() for table in GRANTED))) as shops:
        yield shops


@pytest.fixture(scope="module")
def caller(dialect: str, shops: Shops) -> Iterator[Caller]:
    """Give the caller with the grants."""
    with calling_as(shops(dialect), {table.name: table.section for table in GRANTED}, CLAIMS) as caller:
        yield caller


def test_upserts_are_offered_where_the_rules_say_so(caller: Caller, dialect: str) -> None:
    tools = caller.portal.call(caller.toolbox.view, caller.role).tools
    for table in GRANTED:
        definition = tools[f"insert_{table.name}"].definition
        offered: Any = definition.input_schema["properties"]
        choices = offered["on_conflict"]["enum"] if "on_conflict" in offered else []
        # SQLite numbers rows by itself.
        numbered = {"id"} if dialect == "sqlite" and table.primary == ("id",) else set()
        needed = {*NEEDED} - {*table.section.preset} - numbered
        updates = any(needed <= {*key, *table.update} for key in table.usable) and bool(table.update)
        expected = ["error", "ignore", "update"] if updates else ["error", "ignore"]
        assert choices == (expected if table.usable else []), table
        assert definition.annotations["destructiveHint"] == (updates and bool(table.usable)), table
    assert sum(bool(table.usable and table.update) for table in GRANTED) > TABLES // 3


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data(), seeded=seeds)
def test_upsert_does_what_the_model_says(
    data: st.DataObject, seeded: list[tuple[Any, ...]], caller: Caller, shop: Shop
) -> None:
    table = data.draw(st.sampled_from([each for each in GRANTED if each.usable]))
    before = _seed(shop, table, seeded)
    arguments = _drawn(data, table)
    expected = [dict(row) for row in before]
    try:
        changes, ignored = _upserted(table, expected, arguments)
        code = ""
    except Violated as exc:
        changes, ignored, code = [], 0, str(exc)

    try:
        answer: Mapping[str, Any] | None = caller.call(f"insert_{table.name}", **arguments)
        told = ""
    except errors.CallError as exc:
        answer, told = None, exc.code

    assert (told, arguments) == (code, arguments)
    is_kept = not code and not arguments["dry_run"]
    assert _stored(shop, table) == _sorted(expected if is_kept else before)
    if answer is None:
        return
    assert answer["rows"] == [table.cells(new) for _, new in changes]
    assert answer["affected"] == len(changes)
    note = str(answer.get("note", ""))
    assert (f"{ignored} row" in note) == (ignored > 0), note
    if arguments["dry_run"] and changes:
        assert answer["before"] == [table.cells(old) for old, _ in changes]


def _seed(shop: Shop, table: Granted, seeded: list[tuple[Any, ...]]) -> list[Record]:
    shop.bare.execute(f"delete from {table.name}")
    rows: list[Record] = []
    for cells in seeded:
        row = dict(zip(VALUES, cells, strict=True))
        if not _is_taken(table, rows, row):
            rows.append(row)
    for row in rows:
        cells = tuple(map(_literal, row.values()))
        shop.bare.execute(f"insert into {table.name} ({', '.join(row)}) values ({', '.join(cells)})")
    return rows


def _literal(value: Any) -> str:
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _stored(shop: Shop, table: Granted) -> list[Record]:
    rows = shop.bare.rows(f"select {', '.join(VALUES)} from {table.name}")
    return _sorted([dict(zip(VALUES, row, strict=True)) for row in rows])


def _sorted(rows: Sequence[Record]) -> list[Record]:
    return sorted(rows, key=lambda row: [str(cell) for cell in row.values()])


def _drawn(data: st.DataObject, table: Granted) -> Record:
    usual = data.draw(st.booleans())
    fit = [name for name in table.insert if name in NEEDED or name in table.update]
    names = fit if usual else table.insert
    never = {"region"}

    def row() -> Record:
        chosen = [each for each in names if each in NEEDED or data.draw(st.integers(0, 2))]
        return {
            name: data.draw(st.sampled_from([v for v in VALUES[name] if v is not None or name not in never]))
            for name in chosen
        }

    arguments: Record = {
        "rows": [row() for _ in range(data.draw(st.integers(1, 3)))],
        "on_conflict": data.draw(st.sampled_from(["update", "update", "ignore"])),
        "dry_run": data.draw(st.integers(0, 3)) == 3,
    }
    keys = [None, *table.usable, *table.usable, *KEYS[:2]]
    if key := data.draw(st.sampled_from(keys)):
        arguments["conflict_key"] = data.draw(st.permutations(list(key)))
    return arguments


def _chosen_key(table: Granted, arguments: Record) -> tuple[str, ...]:
    rows = [{*row, *table.section.preset} for row in arguments["rows"]]
    if arguments["on_conflict"] == "update" and not table.update:
        raise Violated("denied")
    fitting = [key for key in table.usable if all(row.issuperset(key) for row in rows)]
    if "conflict_key" in arguments:
        fitting = [key for key in fitting if set(key) == set(arguments["conflict_key"])]
    if fitting and (fitting[0] == table.primary or len(fitting) == 1):
        return fitting[0]
    raise Violated("bad_argument")


def _upserted(
    table: Granted, rows: list[Record], arguments: Record
) -> tuple[list[tuple[Record | None, Record]], int]:
    """Change *rows* as the rules say; return each changed row before and after, and how many are ignored."""
    key, updates = _chosen_key(table, arguments), arguments["on_conflict"] == "update"
    for row in arguments["rows"]:
        if updates and any(name not in key and name not in table.update for name in row):
            raise Violated("bad_argument")
    changes: list[tuple[Record | None, Record]] = []
    ignored = 0
    for values in arguments["rows"]:
        unset = dict.fromkeys(VALUES) | {"region": "north", "author": "none"}
        new = unset | values | _preset(table.section.preset)
        same = [row for row in rows if table.is_visible(row) and _has_same(row, new, key)]
        sets = {name: value for name, value in values.items() if name not in key}
        sets |= _preset(table.section.preset_update)
        if not same:
            if _is_taken(table, rows, new):
                raise Violated("constraint")
            rows.append(new)
            changes.append((None, new))
        elif updates and sets:
            (found,) = same
            old = dict(found)
            found.update(sets)
            if _is_taken(table, [row for row in rows if row is not found], found):
                raise Violated("constraint")
            changes.append((old, found))
        else:
            ignored += 1
    if not all(table.may_stay(row) for _, row in changes):
        raise Violated("denied")
    return changes, ignored


def _preset(values: Mapping[str, Any]) -> Record:
    claims = {":claims.region": "north", ":claims.sub": "ann"}
    return {name: claims.get(str(value), value) for name, value in values.items()}


def _has_same(row: Record, other: Record, key: Sequence[str]) -> bool:
    return all(row[name] is not None and row[name] == other[name] for name in key)


def _is_taken(table: Granted, rows: Sequence[Record], row: Record) -> bool:
    return any(_has_same(other, row, key) for key in table.keys for other in rows)
