"""Changes to the rows that match `where`: confirmed for exactly these rows, made once per key, and logged."""

from typing import Any

import pytest

from dbtools.settings.sections import GrantSection
from tests.database.conftest import Serve
from tests.database.logged_calls import Logged
from tests.database.shop import rows_of
from tests.database.written_shop import Opens, opening, refused, stored

DDL = """
    create table things (id integer primary key, v text, state text not null default 'open', n integer);
    insert into things values (1, 'one', 'open', 1), (2, 'two', 'open', 2), (3, 'three', 'done', 3);
    create table parts (id integer primary key, thing_id integer references things (id) on delete cascade);
    insert into parts values (1, 1), (2, 1), (3, 3);
"""
GRANT = GrantSection(update=("v", "n"), delete=True, max_affected=4, confirm=True)
OPEN: dict[str, Any] = {"table": "things", "where": [{"column": "state", "value": "open"}]}
CALLS = {"update": {"set": {"v": "new"}}, "delete": {}}
ALL = "select id, v from things order by id"


@pytest.fixture
def opened(serve: Serve) -> Opens:
    """Give what opens a database whose caller confirms changes of chosen rows."""
    opened = opening(serve)
    grants = {"things": GRANT, "parts": True}
    return lambda dialect, grants=grants, **options: opened(dialect, grants, **{"ddl": DDL, **options})


@pytest.mark.parametrize("kind", CALLS)
def test_preview_is_confirmed_once(kind: str, opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        pending: Any = caller.call(f"{kind}_rows", **OPEN, **CALLS[kind])
        earlier = stored(shop, ALL)
        answer = caller.call(f"{kind}_rows", **OPEN, **CALLS[kind], confirm=pending["confirm"])
        found = stored(shop, ALL)
        again = refused(caller, f"{kind}_rows", **OPEN, **CALLS[kind], confirm=pending["confirm"])

    assert (pending["affected"], pending["preview"]["affected"]) == (0, 2)
    assert earlier == [(1, "one"), (2, "two"), (3, "three")]
    assert answer["affected"] == 2
    assert rows_of(answer) == pending["preview"]["rows"]
    changed = [(1, "new"), (2, "new")] if kind == "update" else []
    assert found == [*changed, (3, "three")]
    assert again.code == "not_confirmed"


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize(
    ("meanwhile", "count"),
    [
        pytest.param("update things set state = 'open' where id = 3", 3, id="joins"),
        pytest.param("insert into things values (0, 'zero', 'open', 0)", 3, id="is new"),
        pytest.param("update things set state = 'done' where id = 2", 1, id="leaves"),
        pytest.param("delete from things where id = 2", 1, id="is deleted"),
        pytest.param("update things set id = 4 where id = 2", 2, id="another key"),
        pytest.param("update things set v = 'other' where id = 2", 2, id="changes"),
    ],
)
def test_preview_is_new_if_a_row_joins_or_leaves(
    kind: str, meanwhile: str, count: int, opened: Opens, dialect: str
) -> None:
    call = (f"{kind}_rows", {**OPEN, **CALLS[kind]})
    with opened(dialect) as (caller, shop):
        first: Any = caller.call(call[0], **call[1])
        shop.bare.execute(meanwhile)
        earlier = stored(shop, ALL)
        second: Any = caller.call(call[0], **call[1], confirm=first["confirm"])
        later = stored(shop, ALL)
        answer = caller.call(call[0], **call[1], confirm=second["confirm"])

    assert earlier == later
    assert (second["affected"], second["preview"]["affected"]) == (0, count)
    assert (answer["affected"], rows_of(answer)) == (count, second["preview"]["rows"])


def test_nothing_is_left_to_confirm_if_all_rows_leave(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        first: Any = caller.call("delete_rows", **OPEN)
        shop.bare.execute("update things set state = 'done'")
        answer = caller.call("delete_rows", **OPEN, confirm=first["confirm"])

    assert (answer["affected"], answer["note"]) == (0, "No row matches where.")
    assert "confirm" not in answer


def test_confirmation_belongs_to_its_conditions(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        first: Any = caller.call("delete_rows", **OPEN)
        other = {"table": "things", "where": [{"column": "n", "op": "lte", "value": 2}]}
        error = refused(caller, "delete_rows", **other, confirm=first["confirm"])
        found = stored(shop, "select count(*) from things")

    assert (error.code, found) == ("not_confirmed", [(3,)])


def test_question_names_each_row_and_its_changes(opened: Opens, dialect: str) -> None:
    with opened(dialect) as (caller, _):
        call, identity = caller.toolbox.call, caller.identity
        updated = caller.portal.call(call, identity, "update_rows", {**OPEN, "set": {"v": "new"}})
        deleted = caller.portal.call(call, identity, "delete_rows", OPEN)

    assert updated.pending is not None
    assert updated.pending.question.splitlines() == [
        "Update 2 rows of things?",
        'id 1: v "one" → "new"',
        'id 2: v "two" → "new"',
    ]
    assert deleted.pending is not None
    first, *_, last = deleted.pending.question.splitlines()
    assert first == "Delete 2 rows from things?"
    assert "2 rows of parts" in last


@pytest.mark.parametrize("kind", CALLS)
def test_change_with_an_idempotency_key_is_made_once(kind: str, opened: Opens, dialect: str) -> None:
    grant = GRANT.model_copy(update={"confirm": False})
    with opened(dialect, {"things": grant}) as (caller, shop):
        first = caller.call(f"{kind}_rows", **OPEN, **CALLS[kind], idempotency_key="k")
        shop.bare.execute("update things set state = 'open' where id = 3")
        again = caller.call(f"{kind}_rows", **OPEN, **CALLS[kind], idempotency_key="k")
        other = {**OPEN, "where": [{"column": "n", "value": 3}]}
        conflict = refused(caller, f"{kind}_rows", **other, **CALLS[kind], idempotency_key="k")
        found = stored(shop, "select v from things where id = 3")

    assert (first["affected"], again["affected"], conflict.code) == (2, 2, "conflict")
    assert "An earlier call" in str(again["note"])
    assert again["rows"] == (first["rows"] if kind == "update" else [])
    assert found == [("three",)]


@pytest.mark.parametrize("dry_run", [False, True])
def test_changes_are_logged_in_pairs(dry_run: bool, opened: Opens, dialect: str) -> None:
    grant = GRANT.model_copy(update={"confirm": False})
    with opened(dialect, {"things": grant}) as (caller, _):
        log = Logged(caller=caller)
        updated = log.call("update_rows", **OPEN, set={"v": "two"}, dry_run=dry_run)
        deleted = log.call("delete_rows", **OPEN, dry_run=dry_run)

    assert updated["arguments"] == {
        "table": "things",
        "where": [{"column": "state", "value": "…"}],
        "set": {"v": "…"},
        "dry_run": dry_run,
    }
    assert (updated["affected"], deleted["affected"]) == (2, 2)
    assert updated["changes"] == [
        {"key": {"id": 1}, "old": {"v": "one"}, "new": {"v": "two"}},
        {"key": {"id": 2}, "old": {}, "new": {}},
    ]
    first = {"id": 1, "v": "one" if dry_run else "two", "state": "open", "n": 1}
    second = {"id": 2, "v": "two", "state": "open", "n": 2}
    assert deleted["changes"] == [
        {"key": {"id": 1}, "old": first, "new": None},
        {"key": {"id": 2}, "old": second, "new": None},
    ]
