"""Idempotency keys: a repeated call changes nothing and gets a true answer, on both databases."""

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dbtools import errors
from dbtools.policy import roles as policy
from dbtools.settings.sections import RoleSection
from dbtools.values.types import Mask
from tests.database.keyed_writes import (
    CALLERS,
    UPDATE,
    Keeps,
    at_once,
    codes,
    entries,
    opened as opened,
    table_of,
)
from tests.database.role_callers import ROLE, calling_as
from tests.database.shop import Shop
from tests.database.written_journal import (
    AFTER,
    BEFORE,
    CALLS,
    GRANT,
    journal,
    repeated,
    restore,
    things,
    writing,
)
from tests.database.written_shop import DDL, GRANTS, NORTH, ORDERS, refused, stored

DAY = 86_400
NOW, UNSHOWN = "the rows are as they are now.", "rows are not shown."
REPEATED = "An earlier call with this idempotency_key made the change at "


def test_change_is_made_once(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        for kind, (tool, arguments, noted) in CALLS.items():
            restore(shop)
            first = caller.call(tool, **arguments, idempotency_key=kind)
            again = caller.call(tool, **arguments, idempotency_key=kind)

            assert (things(shop), journal(shop)) == (AFTER[kind], [noted])
            assert (first["affected"], repeated(first)) == (1, False)
            assert str(again["note"]).startswith(REPEATED)
            gone = kind in ("delete", "query")
            assert str(again["note"]).endswith(UNSHOWN if gone else NOW)
            assert again == {**first, "note": again["note"], "rows": [] if gone else first["rows"]}


def test_repeated_call_reads_the_rows_as_they_are_now(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        caller.call("update_things", **UPDATE)
        shop.bare.execute("update things set v = 'later' where id = 1")
        later = caller.rows("update_things", **UPDATE)
        shop.bare.execute("delete from things where id = 1")
        gone = caller.call("update_things", **UPDATE)

    assert later == [[1, "later"]]
    assert (gone["affected"], gone["rows"]) == (1, [])


def test_key_with_other_arguments_is_a_conflict(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        caller.call("update_things", **UPDATE)
        error = refused(caller, "update_things", **{**UPDATE, "id": 2})
        found = things(shop)

    assert error.code == "conflict"
    assert str(error) == (
        "A call with other arguments has used this idempotency_key. Use a new key for another change."
    )
    assert found == AFTER["update"]


def test_key_of_another_identity_role_or_tool_is_another_key(opened: Keeps, dialect: str) -> None:
    others = {"other": RoleSection(tables={"things": GRANT})}
    callers = [(ROLE, None), (ROLE, "ann"), (ROLE, "bob"), ("other", None), ("other", "ann")]
    with opened(dialect) as shop, calling_as(shop, {"things": GRANT}, roles=others) as caller:
        for number, (role, identity) in enumerate(callers):
            who = policy.Caller(role=role, identity=identity)
            arguments = {"rows": [{"id": 10 + number}], "idempotency_key": "k"}
            made = caller.portal.call(caller.toolbox.call, who, "insert_things", arguments)
            assert not repeated(made.structured)
        caller.call("update_things", **UPDATE)
        found = things(shop)

    assert [id for id, _ in found] == [1, 2, 3, 10, 11, 12, 13, 14]


def test_failed_call_leaves_its_key_free(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        error = refused(caller, "insert_things", rows=[{"id": 9}, {"id": 1}], idempotency_key="k")
        made = caller.call("insert_things", rows=[{"id": 9}], idempotency_key="k")

    assert error.code == "constraint"
    assert (made["affected"], repeated(made)) == (1, False)


def test_dry_run_leaves_its_key_free(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        tried = caller.call("update_things", **{**UPDATE, "id": 2}, dry_run=True)
        made = caller.call("update_things", **UPDATE)
        after = caller.call("update_things", **UPDATE, dry_run=True)

    assert str(tried["note"]).startswith("Dry run: nothing was changed.")
    assert (made["affected"], repeated(made)) == (1, False)
    assert str(after["note"]).startswith("Dry run: nothing was changed.")


def test_eight_callers_with_one_key_make_the_change_once(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop, lock_timeout=30.0) as caller:
        for kind, (tool, arguments, noted) in CALLS.items():
            restore(shop)
            keyed = {**arguments, "idempotency_key": kind}
            found = caller.portal.call(at_once, [caller] * CALLERS, tool, keyed)

            assert codes(found) == [""] * CALLERS
            again = [repeated(each.structured) for each in found if not isinstance(each, errors.CallError)]
            assert sorted(again) == [False, *[True] * (CALLERS - 1)]
            assert (things(shop), journal(shop)) == (AFTER[kind], [noted])


@pytest.mark.parametrize("kept", [True, False], ids=["key", "no key"])
def test_two_servers_make_the_change_of_one_key_once(kept: bool, opened: Keeps, dialect: str) -> None:
    row: dict[str, Any] = {"rows": [{"v": "new", "id": 9}]} | ({"idempotency_key": "k"} if kept else {})
    with (
        opened(dialect) as shop,
        writing(shop, lock_timeout=30.0) as one,
        writing(shop, lock_timeout=30.0) as two,
    ):
        found = shop.portal.call(at_once, [one, two] * 4, "insert_things", row)
        after = journal(shop)

    assert after == [("+", 9, "new")]
    assert sorted(codes(found)) == [""] * 8 if kept else ["", *["constraint"] * 7]


ROW = {"customer_id": 1, "number": "N-1", "status": "paid"}
NUMBERED = {
    "sqlite": "",
    "postgresql": "alter table orders alter id add generated by default as identity (start 100)",
}
INSERTED = ("customer_id", "number", "status")
#: How the rule of the role may change between two calls with one key, and what the second one shows.
LENSES: Mapping[str, tuple[Mapping[str, Any], int, str]] = {
    "nothing": ({}, 1, NOW),
    "filter": ({"where": "region = :claims.region and note is null"}, 0, NOW),
    "mask": ({"mask": {"note": Mask.REDACT}}, 1, NOW),
    "hidden column": ({"exclude": ("margin", "note")}, 1, NOW),
    "hidden key": ({"exclude": ("margin", "id")}, 0, UNSHOWN),
    "masked key": ({"mask": {"id": Mask.HASH}}, 0, UNSHOWN),
}


@pytest.mark.parametrize("lens", LENSES)
def test_repeated_call_shows_what_the_role_sees_now(lens: str, opened: Keeps, dialect: str) -> None:
    changed, count, end = LENSES[lens]
    grant = ORDERS.model_copy(update={"insert": INSERTED, "update": False, "delete": False})
    keyed = {"rows": [ROW], "idempotency_key": "k"}
    with opened(dialect, ddl=f"{DDL}{NUMBERED[dialect]}") as shop:
        with calling_as(shop, {**GRANTS, "orders": grant}, NORTH) as caller:
            caller.call("insert_orders", **keyed)
        shop.bare.execute("update orders set note = 'hush' where number = 'N-1'")
        later = grant.model_copy(update=changed)
        with calling_as(shop, {**GRANTS, "orders": later}, NORTH) as caller:
            found = caller.call("insert_orders", **keyed)
        made = stored(shop, "select count(*) from orders where number = 'N-1'")

    rows = found["rows"]
    assert isinstance(rows, list)
    assert (found["affected"], len(rows), made) == (1, count, [(1,)])
    assert str(found["note"]).endswith(end)
    assert ("hush" in json.dumps(found)) == (lens == "nothing")


def test_key_of_a_caller_with_other_claims_is_another_key(opened: Keeps, dialect: str) -> None:
    row = {"customer_id": 1, "number": "X-1", "id": 10}
    with opened(dialect, ddl=DDL) as shop, calling_as(shop, GRANTS, NORTH) as caller:
        other = replace(caller, claims={**NORTH, "sub": "bob"})
        first = caller.call("insert_orders", rows=[row], idempotency_key="k")
        second = other.call("insert_orders", rows=[{**row, "id": 11, "number": "X-2"}], idempotency_key="k")
        again = other.call("insert_orders", rows=[{**row, "id": 11, "number": "X-2"}], idempotency_key="k")

    assert [repeated(each) for each in (first, second, again)] == [False, False, True]


def test_key_of_a_table_with_the_same_name_reads_no_other_table(opened: Keeps) -> None:
    ddl = "create schema a; create table a.t (id integer primary key, v text); create schema b;"
    with opened("postgresql", ddl=ddl) as shop:
        with writing(shop, table="t") as caller:
            caller.call("insert_t", rows=[{"id": 1, "v": "a"}], idempotency_key="k")
        shop.bare.execute("alter table a.t set schema b; update b.t set v = 'b'")
        with writing(shop, table="t") as caller:
            found = caller.call("insert_t", rows=[{"id": 1, "v": "a"}], idempotency_key="k")

    assert (found["affected"], found["rows"]) == (1, [])
    assert str(found["note"]).endswith(UNSHOWN)


def test_rows_that_cannot_be_read_again_are_left_out(opened: Keeps, dialect: str) -> None:
    ddl = "create table t (id text default 'x' not null primary key, v text);"
    # The login of the tests has the name of the schema, which the registry puts in front of public.
    name = {"sqlite": "t", "postgresql": "public.t"}[dialect]
    changed = f"drop table {name}; create table {name} (id integer primary key, v text);"
    with opened(dialect, ddl=ddl) as shop, writing(shop, table="t") as caller:
        caller.call("insert_t", rows=[{"v": "a"}], idempotency_key="k")
        shop.bare.execute(f"{changed} {NUMBERED[dialect].replace('orders', name)}")
        found = caller.call("insert_t", rows=[{"v": "a"}], idempotency_key="k")

    assert (found["affected"], found["rows"]) == (1, [])
    assert str(found["note"]).endswith(UNSHOWN)


def _fill(shop: Shop, ages: list[int]) -> None:
    """Enter changes of *ages* in seconds into the journal."""
    now = int(time.time())
    for at, age in enumerate(ages):
        shop.bare.execute(
            f"insert into {table_of(shop)} (id, caller, tool, key, arguments, seconds) "
            f"values ('{at}', 'c', 't', '{at}', 'a', {now - age})"
        )


def _left(shop: Shop) -> list[str]:
    return [str(key) for tool, key, *_ in entries(shop) if tool == "t"]


def test_keys_are_kept_for_a_day(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        caller.call("list_things")
        _fill(shop, [0, DAY // 2, DAY - 60, DAY + 60, 2 * DAY])
        caller.call("update_things", **UPDATE)
        left = _left(shop)

    assert left == ["0", "1", "2"]


@pytest.mark.parametrize("first", ["select 1 from", "analyze"], ids=["new", "analysed while empty"])
def test_call_removes_a_limited_number_of_old_keys(opened: Keeps, dialect: str, first: str) -> None:
    left: list[int] = []
    with opened(dialect) as shop, writing(shop) as caller:
        shop.bare.execute(f"{first} {table_of(shop)}")
        _fill(shop, [2 * DAY] * 250)
        for key in "abc":
            caller.call("update_things", **{**UPDATE, "idempotency_key": key})
            left.append(len(_left(shop)))

    assert left == [150, 50, 0]


def test_old_key_that_another_call_removes_is_not_waited_for(opened: Keeps) -> None:
    with opened("postgresql") as shop, writing(shop, lock_timeout=0.2) as caller:
        _fill(shop, [2 * DAY, 2 * DAY])
        shop.bare.execute("begin; delete from dbtools.dbtools_write where id = '0'")
        caller.call("update_things", **UPDATE)
        shop.bare.execute("rollback")
        left = _left(shop)

    assert left == ["0"]


def test_key_of_a_call_that_still_runs_is_busy(opened: Keeps) -> None:
    with opened("postgresql") as shop, writing(shop, lock_timeout=0.2) as caller:
        caller.call("list_things")
        shop.bare.execute(
            "begin; insert into dbtools.dbtools_write (id, caller, tool, key, arguments, seconds) "
            f"values ('x', '[\"{ROLE}\",null]', 'update_things', 'k', 'a', 1)"
        )
        error = refused(caller, "update_things", **UPDATE)
        shop.bare.execute("rollback")
        made = caller.call("update_things", **UPDATE)

    assert error.code == "busy"
    assert str(error).endswith("this one changed nothing. Repeat the call with the same key.")
    assert (made["affected"], repeated(made)) == (1, False)


def test_journal_has_no_values(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        caller.call("insert_things", rows=[{"id": 7, "v": "hush-hush"}], idempotency_key="k")
        kept = stored(shop, f"select * from {table_of(shop)}")

    assert len(kept) == 1
    assert "hush" not in repr(kept)
    assert json.loads(str(kept[0][-1])) == [["public" * (dialect == "postgresql"), "things"], ["id"], [["7"]]]


def test_journal_is_served_to_nobody(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, calling_as(shop, {"*": GRANT}) as caller:
        caller.call("update_things", **UPDATE)
        names = caller.tools()
        asked = [refused(caller, "list_rows", table=name) for name in ("dbtools_write", table_of(shop))]
        written = refused(caller, "delete_rows", table=table_of(shop), key={"id": "1"})
        described = json.dumps(caller.call("describe_tables"))

    assert {each.code for each in (*asked, written)} == {"unknown_table"}
    assert "dbtools_write" not in " ".join((*names, described))


def test_only_with_a_journal_do_tools_take_a_key(opened: Keeps, dialect: str) -> None:
    found: dict[str, tuple[bool, object]] = {}
    for keeper in ("journal", "memory"):
        with opened(dialect, keeper) as shop, writing(shop) as caller:
            tools = caller.portal.call(caller.toolbox.view, ROLE).tools
        for name in ("insert_things", "update_rows", "delete_things", "change_thing"):
            schema = tools[name].definition.input_schema["properties"].get("idempotency_key", {})
            found[f"{keeper}: {name}"] = (bool(schema), schema.get("description", ""))

    kept = (True, "makes the change once per key, for 24 hours")
    assert found == {name: kept if name.startswith("journal") else (False, "") for name in found}


@pytest.mark.parametrize("kind", CALLS)
def test_key_without_a_journal_is_an_unknown_argument(kind: str, opened: Keeps, dialect: str) -> None:
    tool, arguments, _ = CALLS[kind]
    with opened(dialect, "memory") as shop, writing(shop) as caller:
        errors = [
            refused(caller, tool, **arguments, idempotency_key="k", **more)
            for more in ({}, {"dry_run": True})
        ]
        found = things(shop), journal(shop)

    assert [each.code for each in errors] == ["unknown_argument"] * 2
    assert "idempotency_key" not in "".join(each.hint for each in errors)
    assert found == (BEFORE, [])


def test_rows_of_the_journal_are_not_counted_as_rows_elsewhere(opened: Keeps, dialect: str) -> None:
    grant = GRANT.model_copy(update={"confirm": True})
    with opened(dialect, ddl="create table things (id integer primary key, v text);") as shop:
        _fill(shop, [2 * DAY] * 5)
        with writing(shop, grant) as caller:
            keyed = {"rows": [{"id": 1}], "idempotency_key": "k"}
            asked = caller.call("insert_things", **keyed)
            made = caller.call("insert_things", **keyed, confirm=asked["confirm"])
        left = _left(shop)

    preview = asked["preview"]
    assert isinstance(preview, dict)
    assert not repeated(preview)
    assert ("confirm" in made, made["affected"]) == (False, 1)
    assert left == []
