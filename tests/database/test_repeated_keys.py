"""Two rows of one call with the same key, as the database compares keys, are refused."""

from collections.abc import Mapping, Sequence

import pytest

from dbtools.settings.sections import GrantSection
from tests.database.written_shop import Opens, refused, stored

Row = Mapping[str, object]
#: Each kind of primary key, by which rows are found again.
KEYS = ("id integer primary key", "id integer not null", "id integer not null unique")
STOCK = GrantSection(
    insert=True,
    update=True,
    where="region = :claims.region",
    preset={"region": ":claims.region"},
    check="n < 10",
)
FIRST = "(1, 'a', 1, 'north')"


def ddl(key: str) -> str:
    """Return the DDL of a table with *key*, and with one row."""
    columns = f"{key}, code text not null unique, n integer, region text not null"
    return f"create table stock ({columns}); insert into stock values {FIRST};"


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("on_conflict", ["update", "ignore"])
@pytest.mark.parametrize("code", ["a", "b"])
def test_rows_with_the_same_key_are_refused(
    key: str, on_conflict: str, code: str, opened: Opens, dialect: str
) -> None:
    rows = [{"id": at + 5, "code": each, "n": 2} for at, each in enumerate((code, "c", code))]
    how = {"on_conflict": on_conflict, "conflict_key": ["code"]}
    with opened(dialect, {"stock": STOCK}, ddl=ddl(key)) as (caller, shop):
        errors = [refused(caller, "insert_stock", rows=rows, **how, dry_run=dry) for dry in (True, False)]
        found = stored(shop, "select * from stock")

    assert [each.code for each in errors] == ["bad_value"] * 2
    assert str(errors[1]) == "rows[2] has the same code as rows[0]. Nothing was changed. Give each row once."
    assert found == [(1, "a", 1, "north")]


#: Keys that are equal only in the database: a type or a collation, by dialect, and two of its values.
EQUAL: Mapping[str, Sequence[tuple[str, object, object]]] = {
    "sqlite": [
        ("text collate nocase", "x", "X"),
        ("text collate rtrim", "x", "x "),
        ("numeric", "1", "1.0"),
        ("", 1, 1.0),
    ],
    "postgresql": [
        ("char(3)", "x", "x "),
        ("numeric", "1", "1.0"),
        ("double precision", "0", "-0"),
        ("timestamptz", "2024-03-05T14:30:00Z", "2024-03-05T15:30:00+01:00"),
    ],
}


@pytest.mark.parametrize(("dialect", "at"), [(each, at) for each in EQUAL for at in range(len(EQUAL[each]))])
@pytest.mark.parametrize("stores", [False, True])
def test_keys_that_only_the_database_finds_equal_are_refused(
    at: int, stores: bool, opened: Opens, dialect: str
) -> None:
    type, first, second = EQUAL[dialect][at]
    table = f"create table t (k {type} not null primary key, n integer);"
    known = f"insert into t values ('{first}', 0);" if stores else ""
    grant = GrantSection(insert=True, update=True, max_affected=5)
    rows = [{"k": first, "n": 1}, {"k": second, "n": 2}]
    with opened(dialect, {"t": grant}, ddl=table + known) as (caller, shop):
        upserts = [refused(caller, "insert_t", rows=rows, on_conflict=each) for each in ("update", "ignore")]
        updates = [refused(caller, "update_rows", table="t", rows=rows)] if stores else []
        found = stored(shop, "select n from t")

    assert {str(each).partition(" Nothing")[0] for each in upserts} == {"rows[1] has the same k as rows[0]."}
    assert {each.code for each in updates} <= {"bad_value", "no_row"}
    assert found == [(0,)] * stores


def test_key_of_a_row_that_the_first_one_hides_is_a_constraint(opened: Opens, dialect: str) -> None:
    grant = STOCK.model_copy(update={"preset": {}, "after": "n < 10", "check": None})
    rows = [
        {"id": 1, "code": "a", "n": 2, "region": "south"},
        {"id": 2, "code": "a", "n": 3, "region": "north"},
    ]
    with opened(dialect, {"stock": grant}, ddl=ddl(KEYS[0])) as (caller, shop):
        error = refused(caller, "insert_stock", rows=rows, on_conflict="update", conflict_key=["code"])
        found = stored(shop, "select * from stock")

    assert error.code == "constraint"
    assert found == [(1, "a", 1, "north")]


PARTIAL = """
    create table users (id integer primary key, email text not null, gone integer, n integer);
    create unique index one on users (email) where gone is null;
"""


def test_rows_that_a_partial_key_is_not_about_may_be_equal(opened: Opens, dialect: str) -> None:
    grant = GrantSection(insert=True, update=True)
    rows: list[Row] = [
        {"id": 1, "email": "e", "gone": 1},
        {"id": 2, "email": "e", "gone": 1},
        {"id": 3, "email": "e"},
    ]
    how = {"on_conflict": "update", "conflict_key": ["email"]}
    with opened(dialect, {"users": grant}, ddl=PARTIAL) as (caller, shop):
        answer = caller.call("insert_users", rows=rows, **how, dry_run=True)
        error = refused(caller, "insert_users", rows=[*rows, {"id": 4, "email": "e"}], **how)
        found = stored(shop, "select * from users")

    assert answer["affected"] == 3
    assert str(error).startswith("rows[3] has the same email as rows[2].")
    assert found == []


def test_rows_with_null_in_the_key_are_not_equal(opened: Opens, dialect: str) -> None:
    table = "create table t (id integer primary key, code text unique);"
    rows = [{"id": 1, "code": None}, {"id": 2, "code": None}]
    with opened(dialect, {"t": GrantSection(insert=True, update=True)}, ddl=table) as (caller, _):
        answer = caller.call("insert_t", rows=rows, on_conflict="update", conflict_key=["code"])

    assert answer["affected"] == 2
