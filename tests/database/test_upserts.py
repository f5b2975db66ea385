"""An upsert updates or ignores an existing row, and does no more than an insert and an update may."""

import json
from typing import Any

import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from tests.database.conftest import Serve
from tests.database.role_callers import Caller
from tests.database.written_shop import GRANTS, NORTH, ORDERS, Opens, opening, refused, stored

ALL = "select id, number, status, note, region, created_by, margin from orders order by id"
UPSERTED = ORDERS.model_copy(update={"preset_update": {"created_by": ":claims.sub"}})
UPSERTS = {**GRANTS, "orders": UPSERTED}
FIRST = {"id": 1, "number": "A-1", "customer_id": 1}
HIDDEN = {"id": 2, "number": "B-1"}  #: the keys of a row of another region


@pytest.fixture
def opened(serve: Serve) -> Opens:
    """Give what opens a database that its caller may change."""
    return opening(serve)


def test_row_that_exists_is_updated_and_another_one_inserted(opened: Opens, dialect: str) -> None:
    with opened(dialect, UPSERTS) as (caller, shop):
        rows = [{**FIRST, "note": "new"}, {"id": 9, "number": "A-9", "customer_id": 3}]
        answer = caller.call("insert_orders", rows=rows, on_conflict="update")
        found = stored(shop, ALL)

    assert [found[0], found[-1]] == [
        (1, "A-1", "new", "new", "north", "ann", 40),
        (9, "A-9", "new", None, "north", "ann", None),
    ]
    assert [row[0] for row in answer["rows"]] == [1, 9]  # type: ignore[attr-defined]
    assert (answer["affected"], answer["note"]) == (2, "1 inserted, 1 updated.")


def test_columns_that_are_not_given_stay_as_they_are(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        caller.call("insert_orders", rows=[{**FIRST, "quantity": 7}], on_conflict="update")
        found = stored(shop, "select status, note, quantity, created_by from orders where id = 1")

    assert found == [("new", "call", 7, "eve")]


def test_ignored_row_stays_as_it_is_and_is_counted_in_the_note(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        before = stored(shop, ALL)
        rows = [{**FIRST, "note": "x"}, {"id": 9, "number": "A-9", "customer_id": 1}]
        answer = caller.call("insert_orders", rows=rows, on_conflict="ignore")
        after = stored(shop, ALL)

    assert after[:-1] == before
    assert (answer["affected"], len(answer["rows"])) == (1, 1)  # type: ignore[arg-type]
    assert answer["note"] == "1 row exists already, left unchanged."


@pytest.mark.parametrize("how", ["ignore", "update"])
@pytest.mark.parametrize("key", ["id", "number"])
@pytest.mark.parametrize("dry", [True, False])
def test_hidden_row_with_the_key_is_a_constraint_as_for_an_insert(
    key: str, how: str, dry: bool, opened: Opens, dialect: str
) -> None:
    row = {"id": 77, "number": "Z-1", "customer_id": 1, key: HIDDEN[key]}
    grant = UPSERTED.model_copy(update={"update": True})
    with opened(dialect, {**GRANTS, "orders": grant}) as (caller, shop):
        before = stored(shop, ALL)
        insert = refused(caller, "insert_orders", rows=[row], dry_run=dry)
        more = {"conflict_key": [key], "on_conflict": how, "dry_run": dry}
        upsert = refused(caller, "insert_orders", rows=[row], **more)
        after = stored(shop, ALL)

    assert insert.code == "constraint"
    assert (upsert.code, str(upsert), upsert.hint) == (insert.code, str(insert), insert.hint)
    assert after == before


@pytest.mark.parametrize("how", ["ignore", "update"])
def test_conflict_on_another_unique_key_is_a_constraint(how: str, opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        before = stored(shop, ALL)
        row = {"id": 8, "number": "A-1", "customer_id": 1}
        new = refused(caller, "insert_orders", rows=[row], on_conflict=how, conflict_key=["id"])
        changed = refused(caller, "insert_orders", rows=[{**FIRST, "number": "B-1"}], on_conflict="update")
        after = stored(shop, ALL)

    assert (new.code, changed.code) == ("constraint", "constraint")
    assert after == before


@pytest.mark.parametrize(
    "values",
    [pytest.param({"status": "sent"}, id="check"), pytest.param({"region": "south"}, id="filter")],
)
def test_updated_row_must_satisfy_filter_and_check(
    values: dict[str, object], opened: Opens, dialect: str
) -> None:
    insert = ("customer_id", "number", "status", "id", "region")
    grant = ORDERS.model_copy(update={"insert": insert, "update": insert, "preset": {}})
    with opened(dialect, {**GRANTS, "orders": grant}) as (caller, shop):
        before = stored(shop, ALL)
        row = {**FIRST, "region": "north", **values}
        error = refused(caller, "insert_orders", rows=[row], on_conflict="update")
        after = stored(shop, ALL)

    assert error.code == "denied"
    assert after == before


def test_key_is_the_primary_key_if_all_rows_give_it_else_the_only_one(opened: Opens, dialect: str) -> None:
    ddl = """
        create table stock (
            id integer primary key, code text not null unique, name text unique, n integer, m integer
        );
        create unique index pairs on stock (n, m);
        insert into stock values (1, 'a', 'one', 1, 1);
    """.replace(
        "integer primary key", "serial primary key" if dialect == "postgresql" else "integer primary key"
    )
    upsert = {"on_conflict": "update"}
    with opened(dialect, {"stock": GrantSection(insert=True, update=True)}, ddl=ddl) as (caller, shop):
        primary = caller.call("insert_stock", rows=[{"id": 1, "code": "b", "name": "two"}], **upsert)
        only = caller.call("insert_stock", rows=[{"code": "b", "m": 5}], **upsert)
        named = caller.call(
            "insert_stock", rows=[{"code": "c", "name": "two"}], **upsert, conflict_key=["NAME"]
        )
        several = refused(caller, "insert_stock", rows=[{"code": "b", "name": "x"}], **upsert)
        mixed = [{"id": 1, "code": "b", "name": "x"}, {"code": "d"}]
        lacking = refused(caller, "insert_stock", rows=mixed, **upsert, conflict_key=["name"])
        none = refused(caller, "insert_stock", rows=[{"code": "b"}], **upsert, conflict_key=["n", "m"])
        found = stored(shop, "select id, code, name, n, m from stock")
        described: Any = caller.call("describe_tables", tables=["stock"])["tables"]

    assert [each["affected"] for each in (primary, only, named)] == [1, 1, 1]
    assert found == [(1, "c", "two", 1, 5)]
    assert str(several).startswith("conflict_key is needed: the rows give several unique keys.")
    assert several.hint == "Keys: code or name."
    assert str(lacking) == "on_conflict: each row must give all columns of one unique key. Keys: name."
    assert none.hint == "Keys: id or code or name."
    assert described[0]["changes"]["conflict_keys"] == [["id"], ["code"], ["name"]]


def test_rows_without_a_common_key_are_refused_with_the_keys(opened: Opens, dialect: str) -> None:
    ddl = "create table stock (id integer primary key, code text unique, n integer);"
    if dialect == "postgresql":
        ddl = ddl.replace("integer primary key", "serial primary key")
    with opened(dialect, {"stock": GrantSection(insert=True)}, ddl=ddl) as (caller, _):
        error = refused(caller, "insert_stock", rows=[{"id": 1}, {"code": "a"}], on_conflict="ignore")

    assert (error.code, error.hint) == ("bad_argument", "Keys: id or code.")


def test_conflict_key_alone_is_refused(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        error = refused(caller, "insert_orders", rows=[FIRST], conflict_key=["id"])

    assert (error.code, error.hint) == ("bad_argument", "Set on_conflict, or leave it out.")


def test_update_needs_the_grant_and_is_not_offered_without_it(opened: Opens, dialect: str) -> None:
    grant = ORDERS.model_copy(update={"update": False})
    with opened(dialect, {"orders": grant, "regions": True}) as (caller, shop):
        before = stored(shop, ALL)
        error = refused(caller, "insert_orders", rows=[FIRST], on_conflict="update")
        after = stored(shop, ALL)
        tools = _tools(caller)

    assert error.code == "denied"
    assert after == before
    assert [tools[name] for name in ("insert_orders", "insert_rows")] == [(["error", "ignore"], False)] * 2


def test_tool_that_offers_updates_may_destroy(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        tools = _tools(caller)

    assert tools["insert_orders"] == (["error", "ignore", "update"], True)


def _tools(caller: Caller) -> dict[str, tuple[object, bool]]:
    """Return what each tool offers for a conflict, and whether it may destroy something."""
    tools = caller.portal.call(caller.toolbox.view, caller.role).tools
    found = {name: tool.definition for name, tool in tools.items() if name.startswith("insert_")}
    schemas = {name: json.loads(each.json)["inputSchema"]["properties"] for name, each in found.items()}
    return {
        name: (schemas[name]["on_conflict"]["enum"], each.annotations["destructiveHint"])
        for name, each in found.items()
    }


def test_column_that_may_only_be_inserted_is_named(opened: Opens, dialect: str) -> None:
    grant = ORDERS.model_copy(update={"update": ("status", "note", "customer_id")})
    with opened(dialect, {"orders": grant}) as (caller, _):
        row = {**FIRST, "note": "x", "quantity": 3}
        error = refused(caller, "insert_orders", rows=[row], on_conflict="update", conflict_key=["id"])
        found = caller.call("insert_orders", rows=[row], on_conflict="ignore", conflict_key=["id"])

    assert str(error).startswith("rows[0]: number, quantity can be inserted, but not updated.")
    assert found["affected"] == 0


def test_null_in_the_key_never_conflicts(opened: Opens, dialect: str) -> None:
    ddl = "create table stock (id integer primary key, code text unique, n integer);"
    ddl += "insert into stock values (1, null, 1), (2, 'b', 2);"
    with opened(dialect, {"stock": GrantSection(insert=True, update=True)}, ddl=ddl) as (caller, shop):
        rows = [{"id": 3, "code": None, "n": 3}, {"id": 2, "code": "b", "n": 4}]
        caller.call("insert_stock", rows=rows, on_conflict="update", conflict_key=["code"])
        found = stored(shop, "select id, code, n from stock order by id")

    assert found == [(1, None, 1), (2, "b", 4), (3, None, 3)]


@pytest.mark.parametrize(
    "key", ["id integer primary key", "id integer not null", "id integer not null unique"]
)
def test_rows_with_the_same_key_follow_one_another(key: str, opened: Opens, dialect: str) -> None:
    # Without a primary key, an update changes what identifies the row.
    ddl = f"create table stock ({key}, code text not null unique, n integer, region text not null);"
    grant = GrantSection(
        insert=("id", "code", "n"),
        update=("id", "n"),
        where="region = :claims.region",
        preset={"region": ":claims.region"},
        check="n < 10",
    )
    with opened(dialect, {"stock": grant}, ddl=ddl) as (caller, shop):
        rows = [
            {"id": 1, "code": "a", "n": 99},
            {"id": 7, "code": "a", "n": 2},
            {"id": 8, "code": "a", "n": 3},
        ]
        more = {"on_conflict": "update", "conflict_key": ["code"]}
        dry = caller.call("insert_stock", rows=rows, **more, dry_run=True)
        answer = caller.call("insert_stock", rows=rows, **more)
        left = caller.call("insert_stock", rows=rows, on_conflict="ignore", conflict_key=["code"])
        found = stored(shop, "select * from stock")

    assert found == [(8, "a", 3, "north")]
    assert dry["before"] == [None, [1, "a", 99, "north"], [7, "a", 2, "north"]]
    assert answer["rows"] == dry["rows"] == [[8, "a", 3, "north"]] * 3
    assert (answer["affected"], left["affected"]) == (3, 0)
    assert left["note"] == "3 rows exist already, left unchanged."


def test_dry_run_pairs_each_row_with_what_it_was(opened: Opens, dialect: str) -> None:
    rows = [
        {"id": 8, "number": "A-8", "customer_id": 1},
        {**FIRST, "note": "x"},
        {"id": 9, "number": "A-9", "customer_id": 1},
    ]
    with opened(dialect) as (caller, shop):
        before = stored(shop, ALL)
        answer = caller.call("insert_orders", rows=rows, on_conflict="update", dry_run=True)
        after = stored(shop, ALL)

    assert after == before
    assert answer["before"] == [None, [1, 1, "A-1", "new", "call", 2, "north", "eve"], None]
    assert [row[0] for row in answer["rows"]] == [8, 1, 9]  # type: ignore[attr-defined]


def test_dry_run_counts_only_what_changes_besides_the_rows(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        rows = [{**FIRST, "note": "x"}, {**FIRST, "note": "y"}]
        answer = caller.call("insert_orders", rows=rows, on_conflict="update", dry_run=True)

    assert "elsewhere" not in str(answer["note"])
    assert "besides" not in str(answer["note"])


def test_row_that_gives_nothing_but_its_key_stays_as_it_is(opened: Opens, dialect: str) -> None:
    ddl = "create table tags (name text primary key, n integer); insert into tags values ('a', 1);"
    with opened(dialect, {"tags": GrantSection(insert=True, update=True)}, ddl=ddl) as (caller, shop):
        answer = caller.call("insert_tags", rows=[{"name": "a"}, {"name": "b"}], on_conflict="update")
        found = stored(shop, "select * from tags order by name")

    assert (answer["affected"], answer["rows"]) == (1, [["b", None]])
    assert found == [("a", 1), ("b", None)]


CONFIRMED = {**UPSERTS, "orders": UPSERTED.model_copy(update={"confirm": True})}
UPDATE = {
    "rows": [{**FIRST, "note": "x"}, {"id": 9, "number": "A-9", "customer_id": 1}],
    "on_conflict": "update",
}


def test_preview_says_what_is_inserted_and_what_is_updated(opened: Opens, dialect: str) -> None:
    with opened(dialect, CONFIRMED) as (caller, shop):
        asked: Any = caller.portal.call(caller.toolbox.call, caller.identity, "insert_orders", UPDATE)
        token = asked.structured["confirm"]
        answer = caller.call("insert_orders", **UPDATE, confirm=token)
        found = stored(shop, "select id, note from orders where id in (1, 9) order by id")

    assert asked.pending.question.splitlines() == [
        "Insert 1 row and update 1 row of orders?",
        'id 1: customer_id 1 → 1, number "A-1" → "A-1", note "call" → "x", created_by "eve" → "ann"',
        'id 9, customer_id 1, number "A-9", status "new", quantity 1, region "north", created_by "ann"',
    ]
    assert asked.structured["preview"]["before"][1] is None
    assert answer["affected"] == 2
    assert found == [(1, "x"), (9, None)]


@pytest.mark.parametrize(
    "meanwhile",
    [
        pytest.param(
            "insert into orders values (9, 1, 'A-9', 'new', null, 1, 'north', 'ann', 0)", id="update"
        ),
        pytest.param("update orders set note = 'other' where id = 1", id="other values"),
        pytest.param("delete from orders where id = 1", id="insert"),
    ],
)
def test_what_was_confirmed_is_not_done_if_it_would_do_something_else(
    meanwhile: str, opened: Opens, dialect: str
) -> None:
    with opened(dialect, CONFIRMED) as (caller, shop):
        token = caller.call("insert_orders", **UPDATE)["confirm"]
        shop.bare.execute(meanwhile)
        before = stored(shop, ALL)
        again = caller.call("insert_orders", **UPDATE, confirm=token)
        after = stored(shop, ALL)
        done = caller.call("insert_orders", **UPDATE, confirm=again["confirm"])

    assert again["affected"] == 0
    assert after == before
    assert done["affected"] == 2


def test_ignored_rows_are_part_of_what_is_confirmed(opened: Opens, dialect: str) -> None:
    with opened(dialect, CONFIRMED) as (caller, shop):
        ask = {**UPDATE, "on_conflict": "ignore"}
        asked: Any = caller.portal.call(caller.toolbox.call, caller.identity, "insert_orders", ask)
        shop.bare.execute("delete from orders where id = 1")
        again = caller.call("insert_orders", **ask, confirm=asked.structured["confirm"])

    assert asked.pending.question.splitlines()[:2] == [
        "Insert 1 row into orders?",
        "1 row exists already, left unchanged.",
    ]
    assert again["affected"] == 0
    assert "confirm" in again


def test_idempotency_key_makes_an_upsert_once(opened: Opens, dialect: str) -> None:
    ask = {"rows": [{"id": 9, "number": "A-9", "customer_id": 1}], "idempotency_key": "k"}
    with opened(dialect) as (caller, shop):
        first = caller.call("insert_orders", **ask, on_conflict="ignore")
        again = caller.call("insert_orders", **ask, on_conflict="ignore")
        none = {**ask, "idempotency_key": "other", "on_conflict": "ignore"}
        nothing = [caller.call("insert_orders", **none)["affected"] for _ in range(2)]
        other = refused(caller, "insert_orders", **ask, on_conflict="update")
        found = stored(shop, "select count(*) from orders")

    assert first["affected"] == again["affected"] == 1
    assert first["rows"] == again["rows"]
    assert "An earlier call" in str(again["note"])
    assert nothing == [0, 0]
    assert (other.code, found) == ("conflict", [(4,)])


def test_missing_claim_of_a_preset_denies_the_upsert(opened: Opens, dialect: str) -> None:
    grant = UPSERTED.model_copy(update={"preset": {"region": "north"}})
    with opened(dialect, {**GRANTS, "orders": grant}, region=NORTH["region"]) as (caller, _):
        plain = caller.call("insert_orders", rows=[{"id": 9, "number": "A-9", "customer_id": 1}])
        error = refused(caller, "insert_orders", rows=[FIRST], on_conflict="update")

    assert plain["affected"] == 1
    assert error.code == "denied"
    assert isinstance(error, errors.Denied)


def test_new_and_updated_rows_get_their_own_presets(opened: Opens, dialect: str) -> None:
    grant = ORDERS.model_copy(
        update={
            "preset": {"region": ":claims.region", "created_by": "first"},
            "preset_update": {"created_by": "last"},
        }
    )
    with opened(dialect, {"orders": grant}) as (caller, _):
        rows = [{**FIRST, "note": "x"}, {"id": 9, "number": "A-9", "customer_id": 1}]
        answer = caller.call("insert_orders", rows=rows, on_conflict="update")

    assert [row[-1] for row in answer["rows"]] == ["last", "first"]  # type: ignore[attr-defined]
