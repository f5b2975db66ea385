"""Tables that roles may change by random grants, and a model of what a call then does to their rows."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import ANY

from dbtools.settings.sections import GrantSection
from dbtools.values.types import Mask
from tests.database.shop import DIALECTS

TABLES = 24
CLAIMS = {"region": "north", "sub": "ann"}
PRESETS = {":claims.region": "north", ":claims.sub": "ann"}
Record = dict[str, Any]
#: Values of the columns whose cells the model knows.
VALUES: Mapping[str, Sequence[Any]] = {
    "id": (1, 2, 3, 4, 5),
    "a": tuple("pqr"),
    "b": tuple("xy"),
    "n": (None, 1, 2, 3),
    "amount": (None, 1, 49, 60),
    "region": ("north", "north", "both", "south"),
    "author": ("eve", None),
}
NEEDED = ("id", "a", "b")  #: columns that are not null and have no default
#: Types of further columns: how each is declared, and values that it holds, perhaps written in another way.
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
TYPES = "create type mood as enum ('a', 'b'); create domain positive as integer check (value > 0);"
FILTERS = (
    None,
    "region = :claims.region",
    "region in (:claims.region, 'both')",
    "region = :claims.region or region = 'both'",
)
#: Conditions, and what each means of a row.
CHECKS: Mapping[str, Callable[[Record], bool]] = {
    "amount < 50": lambda row: row["amount"] is not None and row["amount"] < 50,
    "amount is null or amount < 50": lambda row: row["amount"] is None or row["amount"] < 50,
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
    kinds: tuple[str, ...]
    section: GrantSection
    default: str  #: of the region

    def ddl(self, dialect: str) -> str:
        columns = [
            *("id integer not null, a text not null, b text not null, n integer, amount integer",),
            f"region text not null default '{self.default}', author text default 'none'",
            *(f"{kind} {KINDS[kind][0][dialect]}" for kind in self.kinds),
        ]
        columns += [f"primary key ({', '.join(self.primary)})"] * bool(self.primary)
        columns += [f"unique ({', '.join(key)})" for key in self.keys if key != self.primary]
        return f"create table {self.name} ({', '.join(columns)});"

    @property
    def values(self) -> Mapping[str, Sequence[Any]]:
        """Valid values by column."""
        return {**VALUES, **{kind: (*KINDS[kind][1], None) for kind in self.kinds}}

    @property
    def shown(self) -> list[str]:
        return [name for name in self.values if name not in self.section.exclude]

    @property
    def insert(self) -> list[str]:
        return self._supplied(self.section.insert, self.section.preset)

    @property
    def update(self) -> list[str]:
        """The columns that may be set, if there is a key to find the row by."""
        fixed = {**self.section.preset_update, **(self.section.preset if self.section.update is True else {})}
        finds = any("n" not in key and self.is_plain(key) for key in self.keys)
        return self._supplied(self.section.update, fixed) if finds else []

    def _supplied(self, granted: object, presets: Mapping[str, object]) -> list[str]:
        names = self.shown if granted is True else list(granted) if isinstance(granted, tuple) else []
        return [name for name in names if name not in presets]

    @property
    def inserts(self) -> bool:
        """Whether a grant gives every new row what it needs."""
        return self.section.insert is not False and {*NEEDED} <= {*self.insert, *self.section.preset}

    def is_plain(self, key: Sequence[str]) -> bool:
        return all(name in self.shown and name not in self.section.mask for name in key)

    @property
    def usable(self) -> list[tuple[str, ...]]:
        """The keys by which an upsert may find a row."""
        given = {*self.insert, *self.section.preset}
        return [key for key in self.keys if self.is_plain(key) and given.issuperset(key)]

    def is_visible(self, row: Record) -> bool:
        where = self.section.where or ""
        return not where or row["region"] == "north" or ("both" in where and row["region"] == "both")

    def may_stay(self, row: Record) -> bool:
        check = self.section.check
        return self.is_visible(row) and (check is None or CHECKS[check](row))

    def cells(self, row: Record | None) -> list[Any] | None:
        """Return *row* as the role sees it."""
        return None if row is None else [self._cell(name, row[name]) for name in self.shown]

    def _cell(self, name: str, cell: Any) -> Any:
        match self.section.mask.get(name):
            case Mask.NULL:
                return None
            case Mask.REDACT:
                return "***"
            case _:
                return cell

    @property
    def most(self) -> int:
        """How many rows one call may change."""
        return self.section.max_affected or 1


def _granted(dialect: str, at: int) -> Granted:
    """Return table number *at*, which is the same in every run."""
    draw = random.Random(f"{dialect} writes {at}")
    kinds = tuple(draw.sample([each for each in KINDS if ONLY.get(each, dialect) == dialect], 3))
    primary = draw.choice([("id",), ("id",), ("a", "b"), ("b", "id"), ()])
    others = draw.sample([key for key in KEYS if key != primary], draw.randint(0 if primary else 1, 3))
    exclude = tuple(draw.sample(["n", "author", *kinds], draw.choice([0, 0, 1, 2])))
    shown = [name for name in (*VALUES, *kinds) if name not in exclude]
    preset: Record = draw.choice(
        [{}, {}, {"region": ":claims.region"}, {"author": ":claims.sub", "b": "x"}, {"author": "a robot"}]
    )
    preset_update: Record = draw.choice([{}, {"author": ":claims.sub"}, {"amount": 7}])
    masked = draw.choice([None, None, "n", kinds[0]])
    is_poor = draw.random() < 0.2

    def some(presets: Mapping[str, object], needed: Sequence[str]) -> bool | tuple[str, ...]:
        usual = [name for name in shown if name not in presets]
        few = tuple(each for each in usual if (each in needed and not is_poor) or draw.random() < 0.75)
        return draw.random() < 0.25 or few

    finds = bool(primary) or any("n" not in key for key in others)
    update = some(preset_update, ()) if finds and draw.random() < 0.85 else False
    section = GrantSection(
        exclude=exclude,
        mask={masked: draw.choice([Mask.NULL, Mask.REDACT])} if masked in shown else {},
        where=draw.choice(FILTERS),
        check=draw.choice([None, *CHECKS]),
        insert=some(preset, NEEDED),
        update=update,
        delete=finds,
        preset=preset,
        preset_update=preset_update if update else {},
        max_affected=at % 4 + 1,
    )
    return Granted(
        name=f"t{at}",
        primary=primary,
        keys=(*([primary] if primary else []), *others),
        kinds=kinds,
        section=section,
        default=draw.choice(["north", "north", "south"]),
    )


GRANTED = {dialect: [_granted(dialect, at) for at in range(TABLES)] for dialect in DIALECTS}
Changes = list[tuple[Record | None, Record | None]]  #: each row before and after the call


@dataclass(frozen=True, kw_only=True)
class Model:
    """The rows of a table, and what the rules say of a call: its changes, or Violated."""

    table: Granted
    rows: list[Record]

    def insert(self, given: Sequence[Record]) -> Changes:
        return self._kept([self._added(values) for values in given])

    def upsert(self, given: Sequence[Record], how: str, key: Sequence[str] | None) -> tuple[Changes, int]:
        """Return the changes, and how many rows are ignored."""
        table, updates = self.table, how == "update"
        chosen = self._key_of(given, key, updates=updates)
        changes: Changes = []
        met: list[Record] = []
        ignored = 0
        for values in given:
            new = {**values, **preset_values(table.section.preset)}
            same = [row for row in self.rows if table.is_visible(row) and has_same(row, new, chosen)]
            sets = {name: value for name, value in values.items() if name not in chosen}
            sets |= preset_values(table.section.preset_update)
            if any(row is each for row in same for each in met):
                raise Violated("bad_value")
            if not same:
                added = self._added(values)
                changes.append(added)
                same = [added[1]]
            elif updates and sets:
                changes += self._changed(same, sets)
            else:
                ignored += 1
            met += same
        return self._kept(changes), ignored

    def _key_of(self, given: Sequence[Record], key: Sequence[str] | None, *, updates: bool) -> Sequence[str]:
        table = self.table
        if updates and not table.update:
            raise Violated("denied")
        names = [{*row, *table.section.preset} for row in given]
        fitting = [each for each in table.usable if all(row.issuperset(each) for row in names)]
        if key is not None:
            fitting = [each for each in fitting if {*each} == {*key}]
        if not fitting or (fitting[0] != table.primary and len(fitting) > 1):
            raise Violated("bad_argument")
        chosen = fitting[0]
        if updates and any(name not in chosen and name not in table.update for row in given for name in row):
            raise Violated("bad_argument")
        return chosen

    def update(self, found: list[Record], sets: Record) -> Changes:
        return self._kept(self._changed(found, {**sets, **preset_values(self.table.section.preset_update)}))

    def delete(self, found: list[Record]) -> Changes:
        for row in found:
            self.rows.remove(row)
        return [(row, None) for row in found]

    def _added(self, values: Record) -> tuple[Record | None, Record]:
        unset = dict.fromkeys(self.table.values) | {"region": self.table.default, "author": "none"}
        new = unset | self._stored(values) | preset_values(self.table.section.preset)
        if is_taken(self.table, self.rows, new):
            raise Violated("constraint")
        self.rows.append(new)
        return None, new

    def _changed(self, found: list[Record], sets: Record) -> Changes:
        olds = [dict(row) for row in found]
        for row in found:
            row.update(self._stored(sets))
        for row in found:
            if is_taken(self.table, [each for each in self.rows if each is not row], row):
                raise Violated("constraint")
        return list(zip(olds, found, strict=True))

    def _stored(self, values: Record) -> Record:
        """Return *values* without what a database may write in another way."""
        return {
            name: ANY if name in self.table.kinds and value is not None else value
            for name, value in values.items()
        }

    def _kept(self, changes: Changes) -> Changes:
        if not all(self.table.may_stay(row) for _, row in changes if row is not None):
            raise Violated("denied")
        return changes


def preset_values(values: Mapping[str, object]) -> Record:
    return {name: PRESETS.get(str(value), value) for name, value in values.items()}


def has_same(row: Record, other: Record, key: Sequence[str]) -> bool:
    return all(row[name] is not None and row[name] == other[name] for name in key)


def is_taken(table: Granted, rows: Sequence[Record], row: Record) -> bool:
    return any(has_same(other, row, key) for key in table.keys for other in rows)
