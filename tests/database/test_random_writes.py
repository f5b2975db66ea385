"""Random writes under random grants: whatever a caller sends, only what was granted changes."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools import errors
from dbtools.settings.sections import GrantSection
from dbtools.types import Mask
from tests.database.conftest import DIALECTS, Serve, Shops, open_shops
from tests.database.role_callers import Caller, calling_as
from tests.database.shop import Row, Shop, rows_of

TABLES = 24
CLAIMS = {"region": "north", "sub": "ann"}
FILTERS = ("region = :claims.region", "region = :claims.region or region = 'both'", None)
#: Conditions, and what each means of a row.
CHECKS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    "amount < 50": lambda row: row["amount"] is not None and row["amount"] < 50,
    "amount is null or amount < 50": lambda row: row["amount"] is None or row["amount"] < 50,
    "region <> 'both'": lambda row: row["region"] != "both",
}
KEYS = {
    "number": ("id",),
    "text": ("code",),
    "both": ("id", "code"),
    "none": (),
}
#: Types of columns: how each is declared, and values that it holds.
KINDS: Mapping[str, tuple[Mapping[str, str], Sequence[Any]]] = {
    "whole": ({"sqlite": "bigint", "postgresql": "bigint"}, (0, -1, 2**63 - 1, -(2**63), "17")),
    "real_number": ({"sqlite": "double", "postgresql": "float8"}, (0.5, -1e308, 0.1, "2.5")),
    "money": ({"sqlite": "decimal(10,2)", "postgresql": "numeric(10,2)"}, ("19.90", 5, "-0.01")),
    "flag": ({"sqlite": "boolean", "postgresql": "boolean"}, (True, False)),
    "word": ({"sqlite": "text", "postgresql": "text"}, ("", "x", "naïve 😀", "null", "a'b\"c")),
    "day": ({"sqlite": "date", "postgresql": "date"}, ("2024-03-05", "0001-01-01", "9999-12-31")),
    "moment": ({"sqlite": "timestamp", "postgresql": "timestamp"}, ("2024-03-05T14:30:00Z", "2024-03-05")),
    "document": ({"sqlite": "json", "postgresql": "jsonb"}, ({"a": [1, None]}, [], "text", 5)),
    "data": ({"sqlite": "blob", "postgresql": "bytea"}, ("aGVsbG8=", "")),
    "mood": ({"sqlite": "text check (mood in ('a', 'b'))", "postgresql": "mood"}, ("a", "b")),
    "positive": ({"sqlite": "integer check (positive > 0)", "postgresql": "positive"}, (1, 99)),
    "list": ({"sqlite": "any_type", "postgresql": "integer[]"}, ([1, None, 3], [], [[1, 2], [3, 4]])),
}
ONLY = {"list": "postgresql"}
ODD: Sequence[Any] = (
    None,
    "",
    "x",
    -5,
    60,
    2**70,
    1.5,
    True,
    [],
    [1],
    {"a": 1},
    "2024-02-30",
    "both",
    "south",
    "north",
    "😀",
)


@dataclass(frozen=True, kw_only=True)
class Granted:
    """A table, and what a role may do with it."""

    name: str
    key: tuple[str, ...]
    kinds: tuple[str, ...]
    section: GrantSection
    default: str  #: of the region
    known: Mapping[str, Sequence[Any]] = field(repr=False)  #: valid values by column

    @property
    def shown(self) -> list[str]:
        return [name for name in self.known if name not in self.section.exclude]

    def supplied(self, granted: object, presets: Mapping[str, object]) -> list[str]:
        """Return the columns that callers may give."""
        names = self.shown if granted is True else list(granted) if isinstance(granted, tuple) else []
        return [name for name in names if name not in presets]

    @property
    def insert(self) -> list[str]:
        return self.supplied(self.section.insert, self.section.preset)

    @property
    def update(self) -> list[str]:
        presets = {**self.section.preset_update}
        if self.section.update is True:
            presets |= self.section.preset
        return self.supplied(self.section.update, presets)

    @property
    def is_usable(self) -> bool:
        """Whether the grant gives every new row what it needs, and can find rows by key."""
        lacks = {"id", "code"} - {*self.insert, *self.section.preset}
        changes = self.section.update is not False or self.section.delete
        return not (self.section.insert is not False and lacks) and (bool(self.key) or not changes)

    def may_stay(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row filter and the check hold."""
        check = self.section.check
        return self.is_visible(row) and (check is None or CHECKS[check](row))

    def is_visible(self, row: Mapping[str, Any]) -> bool:
        match self.section.where:
            case None:
                return True
            case where:
                return row["region"] == "north" or ("both" in where and row["region"] == "both")

    def ddl(self, dialect: str) -> str:
        columns = [f"{kind} {KINDS[kind][0][dialect]}" for kind in self.kinds]
        primary = [f"primary key ({', '.join(self.key)})"] if self.key else []
        fixed = (
            *("n integer", "id integer not null", "code text not null"),
            *("amount integer", f"region text not null default '{self.default}'", "author text"),
        )
        return f"create table {self.name} ({', '.join([*fixed, *columns, *primary])});"


def _granted(dialect: str, at: int) -> Granted:
    """Return table number *at*, which is the same in every run."""
    draw = random.Random(f"{dialect} {at}")
    kinds = tuple(draw.sample([each for each in KINDS if ONLY.get(each, dialect) == dialect], 4))
    key = KEYS[draw.choice([*KEYS, "number", "both"])]
    names = ["id", "code", "amount", "region", "author", *kinds]
    exclude = ("n", *draw.sample([*kinds, "author"], draw.randint(0, 2)))
    shown = [name for name in names if name not in exclude]
    region = draw.choice([{}, {"region": ":claims.region"}])
    preset: dict[str, Any] = {**region, **draw.choice([{}, {"author": ":claims.sub"}, {"author": "a robot"}])}
    update_preset: dict[str, Any] = draw.choice([{}, {"author": ":claims.sub"}, {"amount": 7}])

    def some(presets: Mapping[str, object], needed: Sequence[str]) -> bool | tuple[str, ...]:
        usual = [name for name in shown if name not in presets]
        few = [each for each in usual if each in needed or draw.random() < 0.6]
        return draw.random() < 0.25 or tuple(few)

    finds = bool(key)
    masks: dict[str, Mask] = (
        {draw.choice(kinds): draw.choice([Mask.NULL, Mask.REDACT])} if draw.random() < 0.4 else {}
    )
    section = GrantSection(
        exclude=exclude,
        where=draw.choice(FILTERS),
        check=draw.choice([None, *CHECKS]),
        mask={name: mask for name, mask in masks.items() if name in shown},
        insert=some(preset, ("id", "code")) if draw.random() < 0.9 else False,
        update=some(update_preset, ()) if finds else False,
        delete=finds,
        preset=preset,
        preset_update=update_preset,
    )
    fixed = {
        "id": tuple(range(8, 40)),
        "code": tuple("efghijkl"),
        "amount": (1, 2, 49, 50, None),
        "region": ("north", "north", "north", "both", "south"),
        "author": ("eve", None),
    }
    return Granted(
        name=f"t{at}",
        key=key,
        kinds=kinds,
        section=section
        if section.insert is not False or finds
        else section.model_copy(update={"insert": True}),
        default=draw.choice(["north", "south"]),
        known=fixed | {kind: (*KINDS[kind][1], None) for kind in kinds},
    )


GRANTED = {dialect: [_granted(dialect, at) for at in range(TABLES)] for dialect in DIALECTS}
TYPES = "create type mood as enum ('a', 'b'); create domain positive as integer check (value > 0);"


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    """Give the tables."""
    ddl = {each: "".join(table.ddl(each) for table in GRANTED[each]) for each in DIALECTS}
    ddl["postgresql"] = TYPES + ddl["postgresql"]
    with open_shops(serve, ddl) as shops:
        yield shops


@pytest.fixture(scope="module")
def caller(dialect: str, shops: Shops) -> Iterator[Caller]:
    """Give the caller with the grants."""
    grants = {table.name: table.section for table in GRANTED[dialect]}
    with calling_as(shops(dialect), grants, CLAIMS) as caller:
        yield caller


def test_grants_are_usable_where_the_rules_say_so(caller: Caller, dialect: str) -> None:
    tools = caller.tools()
    for table in GRANTED[dialect]:
        section = table.section
        inserts = table.is_usable and section.insert is not False
        assert (f"insert_{table.name}" in tools) == inserts, table
        assert (f"update_{table.name}" in tools) == (table.is_usable and bool(table.update)), table
        assert (f"delete_{table.name}" in tools) == (table.is_usable and section.delete), table
    assert sum(table.is_usable for table in GRANTED[dialect]) > TABLES // 2


seeds = st.lists(
    st.tuples(
        st.integers(0, 7),
        st.sampled_from("abcd"),
        st.sampled_from([None, 1, 49, 60]),
        st.sampled_from(["north", "north", "north", "south", "both"]),
    ),
    min_size=2,
    max_size=5,
    unique_by=(lambda row: row[0], lambda row: row[1]),
)


@settings(suppress_health_check=list(HealthCheck))
@given(data=st.data(), seeded=seeds)
def test_only_what_was_granted_changes(
    data: st.DataObject, seeded: list[tuple[Any, ...]], caller: Caller, shop: Shop, dialect: str
) -> None:
    table = data.draw(st.sampled_from([each for each in GRANTED[dialect] if each.is_usable]))
    tools = {each: f"{each}_{table.name}" for each in ("insert", "update", "delete")}
    kind = data.draw(st.sampled_from([each for each, tool in tools.items() if tool in caller.tools()]))
    shop.bare.execute(f"delete from {table.name}")
    for n, (id, code, amount, region) in enumerate(seeded):
        amounts = "null" if amount is None else amount
        shop.bare.execute(
            f"insert into {table.name} (n, id, code, amount, region, author)"
            f" values ({n}, {id}, '{code}', {amounts}, '{region}', 'eve')"
        )
    before, listed = _stored(shop, table), _listed(caller, table)
    arguments, is_plain = _drawn(data, table, kind, before)

    try:
        answer: Mapping[str, Any] | None = caller.call(tools[kind], **arguments)
        code = ""
    except errors.CallError as exc:
        answer, code = None, exc.code

    after = _stored(shop, table)
    if answer is None or arguments.get("dry_run"):
        assert after == before
    hidden = [row for row in before if not table.is_visible(row)]
    assert [row for row in after if row in hidden] == hidden
    if is_plain:
        assert (code == "") == _is_allowed(table, kind, arguments, before), (code, arguments)
    if answer is None or arguments.get("dry_run"):
        return
    gone = [row for row in before if row not in after]
    new = [row for row in after if row not in before]
    match kind:
        case "insert":
            assert (gone, len(new)) == ([], len(arguments["rows"]))
            _check_new(table, new)
        case "update":
            assert len(new) == len(gone) <= 1
            for old, row in zip(gone, new, strict=True):
                _check_updated(table, old, row, arguments)
        case _:
            assert (len(gone), new) == (1, [])
            assert _has_key(gone[0], arguments)
    shown = listed if kind == "delete" else _listed(caller, table)
    assert answer["affected"] == len(answer["rows"])
    assert all(row in shown for row in answer["rows"])


def _stored(shop: Shop, table: Granted) -> list[dict[str, Any]]:
    names = ["n", *table.known]
    order = "coalesce(n, -1), id, code"
    found: list[Row] = shop.bare.rows(f"select {', '.join(names)} from {table.name} order by {order}")
    return [dict(zip(names, row, strict=True)) for row in found]


def _listed(caller: Caller, table: Granted) -> list[list[Any]]:
    return rows_of(caller.call("list_rows", table=table.name, limit=100))


def _drawn(
    data: st.DataObject, table: Granted, kind: str, before: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], bool]:
    """Return arguments, and whether they name only what is granted, with values that fit."""
    is_plain = data.draw(st.booleans())
    arguments: dict[str, Any] = {}
    if kind == "insert":
        count = data.draw(st.integers(1, 3))
        arguments["rows"] = [
            _values(data, table, table.insert, {"id", "code"}, is_plain) for _ in range(count)
        ]
    if kind != "insert":
        row = data.draw(st.sampled_from(before))
        arguments |= {name: row[name] for name in table.key}
        if data.draw(st.integers(0, 7)) == 7:
            arguments["id"] = 77
            is_plain = is_plain and "id" in table.key
    if kind == "update":
        arguments["set"] = _values(data, table, table.update, set(), is_plain)
        is_plain = is_plain and bool(arguments["set"])
    if kind != "insert" and data.draw(st.booleans()):
        names = [each for each in ("id", "code", "amount", "region") if each not in table.section.mask]
        expected = data.draw(st.dictionaries(st.sampled_from(names), st.booleans(), max_size=2))
        other = {"id": 99, "code": "z", "amount": 3, "region": "west"}
        arguments["expected"] = {name: row[name] if same else other[name] for name, same in expected.items()}
    if data.draw(st.integers(0, 7)) == 7:
        arguments["dry_run"] = True
    return arguments, is_plain


def _values(
    data: st.DataObject, table: Granted, names: Sequence[str], needed: set[str], is_plain: bool
) -> dict[str, Any]:
    if is_plain:
        chosen = [each for each in names if each in needed or data.draw(st.booleans())]
        never = {"id", "code", "region", *table.key}
        valid = {
            each: [v for v in table.known[each] if v is not None or each not in never] for each in chosen
        }
        return {name: data.draw(st.sampled_from(valid[name])) for name in chosen}
    odd = st.sampled_from(
        [*table.known, *table.known, "n", "N", "REGION", '"region"', "t.region", "nonsense"]
    )
    chosen = data.draw(st.lists(odd, max_size=4, unique=True))
    known = {name: (*table.known.get(name, ()), *ODD) for name in chosen}
    needs = {name: data.draw(st.sampled_from(table.known[name])) for name in needed}
    return needs | {name: data.draw(st.sampled_from(known[name])) for name in chosen}


def _has_key(row: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    return all(str(row[name]) == str(arguments[name]) for name in ("id", "code") if name in arguments)


def _is_allowed(
    table: Granted, kind: str, arguments: Mapping[str, Any], before: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether the rules allow the call, whose arguments fit their columns."""
    section, presets = table.section, {":claims.region": "north", ":claims.sub": "ann"}
    if kind == "insert":
        rows = [
            {"n": None, "amount": None, "region": table.default, **row, **section.preset}
            for row in arguments["rows"]
        ]
        rows = [{name: presets.get(str(value), value) for name, value in row.items()} for row in rows]
        return all(map(table.may_stay, rows)) and _are_unique(table, [*before, *rows])
    found = [row for row in before if table.is_visible(row) and _has_key(row, arguments)]
    expected = arguments.get("expected", {})
    if not found or any(found[0][name] != value for name, value in expected.items()):
        return False
    if kind == "delete":
        return True
    changed = {**found[0], **arguments["set"], **section.preset_update}
    others = [row for row in before if row is not found[0]]
    return table.may_stay(changed) and _are_unique(table, [*others, changed])


def _are_unique(table: Granted, rows: Sequence[Mapping[str, Any]]) -> bool:
    keys = [tuple(str(row[name]) for name in table.key) for row in rows]
    return not table.key or len(set(keys)) == len(keys)


def _check_new(table: Granted, rows: Sequence[Mapping[str, Any]]) -> None:
    """Check that new *rows* hold what callers may give and what is preset."""
    unset = dict.fromkeys(table.known) | {"region": table.default, "n": None}
    presets = {":claims.region": "north", ":claims.sub": "ann"}
    for row in rows:
        assert table.may_stay(row)
        for name, cell in row.items():
            if name in table.section.preset:
                assert cell == presets.get(str(table.section.preset[name]), table.section.preset[name])
            elif name not in table.insert:
                assert cell == unset[name]


def _check_updated(
    table: Granted, old: Mapping[str, Any], row: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Check that the *old* row was the one meant, and changed to *row* as granted."""
    presets = {":claims.sub": "ann"}
    assert table.is_visible(old)
    assert table.may_stay(row)
    assert _has_key(old, arguments)
    for name, cell in row.items():
        if name in table.section.preset_update:
            value = table.section.preset_update[name]
            assert cell == presets.get(str(value), value)
        elif name not in table.update:
            assert cell == old[name]
