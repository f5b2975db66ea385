"""An upsert finds a row as the unique key of the database does, or is rejected."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import asyncpg
import pytest

from dbtools.settings.sections import GrantSection
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop
from tests.database.written_shop import Opens, opening, refused, stored

EVERYTHING = GrantSection(insert=True, update=True)
UPSERT = {"on_conflict": "update"}


@pytest.fixture
def opened(serve: Serve) -> Opens:
    """Return what opens a database that its caller may change, if the server was built with what it needs."""

    @contextmanager
    def supported(*arguments: Any, **more: Any) -> Iterator[tuple[Caller, Shop]]:
        with ExitStack() as stack:
            try:
                found = stack.enter_context(opening(serve)(*arguments, **more))
            except (asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFileError) as exc:
                pytest.skip(str(exc))
            yield found

    return supported


CASELESS = "create collation caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);"
PARTITIONS = """
create table t (k integer, region text, v text, primary key (region, k)) partition by list (region);
create table t_north partition of t for values in ('north');
create table t_south partition of t for values in ('south');
"""
#: Tables with a key and a column v, a row that exists, and another way to write its key.
FOUND: Mapping[str, Sequence[tuple[str, Any, Any]]] = {
    "sqlite": [
        ("create table t (k integer primary key, v text)", {"k": 1}, {"k": "1"}),
        ("create table t (k integer, v text, primary key (k)) without rowid", {"k": 1}, {"k": 1}),
        ("create table t (k text primary key collate nocase, v text)", {"k": "Ann"}, {"k": "ANN"}),
        ("create table t (k text primary key collate rtrim, v text)", {"k": "Ann"}, {"k": "Ann  "}),
        ("create table t (k text not null, n int not null, v text, unique (n, k))", {"k": "a", "n": 1}, None),
        ("create table t (k decimal(10,2) primary key, v text)", {"k": "1.50"}, {"k": "1.5"}),
        ("create table t (k timestamp primary key, v text)", {"k": "2024-03-05 14:30:00"}, None),
        ("create table t (k blob primary key, v text)", {"k": "aGVsbG8="}, None),
        ("create table t (k primary key, v text)", {"k": "5"}, None),
        ("create table t (k any primary key, v text) strict", {"k": "x"}, None),
        ("create table t (k text not null unique, v text, up text as (upper(v)))", {"k": "a"}, None),
    ],
    "postgresql": [
        ("create table t (k bigint primary key, v text)", {"k": 1}, {"k": "1"}),
        ("create table t (k char(5) primary key, v text)", {"k": "Ann"}, {"k": "Ann  "}),
        ("create table t (k varchar(5) primary key, v text)", {"k": "Ann"}, None),
        (
            "create extension citext; create table t (k citext primary key, v text)",
            {"k": "Ann"},
            {"k": "ANN"},
        ),
        (f"{CASELESS} create table t (k text collate caseless primary key, v text)", {"k": "a"}, {"k": "A"}),
        ("create table t (k text not null, n int not null, v text, unique (n, k))", {"k": "a", "n": 1}, None),
        ("create table t (k numeric primary key, v text)", {"k": "1.50"}, {"k": "1.5"}),
        ("create table t (k timestamptz primary key, v text)", {"k": "2024-03-05T14:30:00Z"}, None),
        ("create table t (k bytea primary key, v text)", {"k": "aGVsbG8="}, None),
        ("create table t (k uuid primary key, v text)", {"k": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}, None),
        ("create table t (k int[] primary key, v text)", {"k": [1, 2]}, None),
        ("create table t (k jsonb primary key, v text)", {"k": {"a": 1}}, None),
        (PARTITIONS, {"k": 1, "region": "north"}, None),
        (
            "create table t (k text not null unique, v text, up text generated always as (upper(v)) stored)",
            {"k": "a"},
            None,
        ),
        (
            "create domain word as text check (value <> ''); create table t (k word primary key, v text)",
            {"k": "a"},
            None,
        ),
        (
            "create type mood as enum ('a', 'b'); create table t (k mood primary key, v text)",
            {"k": "a"},
            None,
        ),
    ],
}


#: What a server may lack, so that the others are tested all the same.
OPTIONAL = ("citext", "collate caseless")
optional = pytest.mark.parametrize("needed", ["", *OPTIONAL])


def _needing(needed: str, ddl: Sequence[str]) -> dict[str, str]:
    """Return those of *ddl* that need what is *needed*, by their table."""
    names = {f"t{at}": each for at, each in enumerate(ddl)}
    found = {
        name: re.sub(r"\bt(?= |_)", name, each).replace("index i ", f"index i_{name} ")
        for name, each in names.items()
        if (needed in each if needed else not any(other in each for other in OPTIONAL))
    }
    return found or pytest.skip("another database")


@optional
def test_row_is_found_by_a_key_of_any_type(needed: str, opened: Opens, dialect: str) -> None:
    tables = _needing(needed, [each for each, *_ in FOUND[dialect]])
    ddl = ";".join(tables.values())
    with opened(dialect, {"*": EVERYTHING}, ddl=f"{ddl};") as (caller, shop):
        for table in tables:
            written, key, other = FOUND[dialect][int(table[1:])]
            insert = f"insert_{table}"
            new = caller.call(insert, rows=[{**key, "v": "a"}], **UPSERT)
            same = caller.call(insert, rows=[{**(other or key), "v": "b"}], **UPSERT)
            left = caller.call(insert, rows=[{**(other or key), "v": "c"}], on_conflict="ignore")

            assert [each["affected"] for each in (new, same, left)] == [1, 1, 0], written
            assert stored(shop, f"select v from {table}") == [("b",)], written
            assert "note" not in new


#: Tables with a key that upserts cannot use: it is not offered.
UNUSABLE = {
    "sqlite": [
        "create table t (id int, k text, v text); create unique index i on t (lower(k));",
        "create table t (k text collate nocase, v text); create unique index i on t (k collate binary);",
    ],
    "postgresql": [
        "create table t (id int, k text, v text); create unique index i on t (lower(k));",
        f"{CASELESS} create table t (id int, k text collate caseless, v text);"
        'create unique index i on t (k collate "C");',
        "create table t (id int, k text unique deferrable, v text);",
        "create table t (id int, k text primary key deferrable initially deferred, v text);",
        "create table t (id int generated always as identity primary key, k text, v text);",
    ],
}


@optional
def test_key_that_cannot_decide_is_not_offered(needed: str, opened: Opens, dialect: str) -> None:
    tables = _needing(needed, UNUSABLE[dialect])
    with opened(dialect, {"*": GrantSection(insert=True)}, ddl="".join(tables.values())) as (caller, shop):
        for table, written in tables.items():
            refusal = refused(caller, f"insert_{table}", rows=[{"k": "a"}], on_conflict="ignore")

            assert refusal.code == "bad_argument", written
            assert "has no unique key that rows may set" in str(refusal), written
            assert stored(shop, f"select count(*) from {table}") == [(0,)]
            assert not {"on_conflict", "conflict_key"} & _arguments(caller, f"insert_{table}"), written


def _arguments(caller: Caller, tool_name: str) -> set[str]:
    tool = caller.portal.call(caller.toolbox.view, caller.role).tools[tool_name]
    properties = tool.definition.input_schema["properties"]
    assert isinstance(properties, dict)
    return set(properties)


#: Indexes to which more values are equal than to their columns, or than to the values as written.
COARSER = {
    "sqlite": "create table t (k text not null, v text); create unique index i on t (k collate nocase);",
    "postgresql": f"{CASELESS} create table t (k text not null, v text);"
    "create unique index i on t (k collate caseless);",
}


def test_row_that_only_the_index_finds_is_a_constraint(opened: Opens, dialect: str) -> None:
    with opened(dialect, {"t": EVERYTHING}, ddl=COARSER[dialect]) as (caller, shop):
        caller.call("insert_t", rows=[{"k": "a", "v": "1"}])
        refusals = [refused(caller, "insert_t", rows=[{"k": "A", "v": "2"}], on_conflict=how) for how in HOW]
        found = stored(shop, "select k, v from t")

    assert [each.code for each in refusals] == ["constraint", "constraint"]
    assert found == [("a", "1")]


HOW = ("ignore", "update")


def test_rounded_key_is_a_constraint(opened: Opens, dialect: str) -> None:
    if dialect == "sqlite":
        pytest.skip("SQLite does not round")
    ddl = "create table t (k numeric(5, 1) primary key, v text); insert into t values (1.5, 'a');"
    with opened(dialect, {"t": EVERYTHING}, ddl=ddl) as (caller, _):
        refusals = [
            refused(caller, "insert_t", rows=[{"k": "1.49", "v": "2"}], on_conflict=how) for how in HOW
        ]

    assert [each.code for each in refusals] == ["constraint", "constraint"]


def test_nulls_that_are_not_distinct_are_a_constraint(opened: Opens, dialect: str) -> None:
    if dialect == "sqlite":
        pytest.skip("nulls are distinct")
    ddl = "create table t (k text unique nulls not distinct, id int primary key);"
    ddl += "insert into t values (null, 1);"
    with opened(dialect, {"t": EVERYTHING}, ddl=ddl) as (caller, _):
        row = {"k": None, "id": 2}
        refusals = [
            refused(caller, "insert_t", rows=[row], on_conflict=how, conflict_key=["k"]) for how in HOW
        ]

    assert [each.code for each in refusals] == ["constraint", "constraint"]


def test_integer_primary_key_that_is_null_is_numbered(opened: Opens, dialect: str) -> None:
    if dialect == "postgresql":
        pytest.skip("a primary key is never null")
    ddl = "create table t (k integer primary key, v text); insert into t values (1, 'a');"
    with opened(dialect, {"t": EVERYTHING}, ddl=ddl) as (caller, shop):
        caller.call("insert_t", rows=[{"k": None, "v": "b"}, {"k": 1, "v": "c"}], **UPSERT)
        same = refused(caller, "insert_t", rows=[{"k": None, "v": "d"}, {"k": 3, "v": "e"}], **UPSERT)
        found = stored(shop, "select * from t order by k")

    assert found == [(1, "c"), (2, "b")]
    assert str(same).startswith("rows[1] has the same k as rows[0].")
