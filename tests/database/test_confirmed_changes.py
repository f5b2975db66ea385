"""A change that must be confirmed: the question for a person, and what a token confirms."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from dbtools.alembic import upgrade
from dbtools.answers.results import Pending
from dbtools.tools.writes.calls import LONGEST_ASKED, LONGEST_LINE, MOST_ASKED
from dbtools.values.types import Mask
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop
from tests.database.written_shop import DDL, GRANTS, ORDERS, opening, refused, stored

MORE = """
    insert into orders values
        (4, 1, 'A-4', 'paid', null, 7, 'north', 'eve', 10),
        (5, 1, 'A-5', 'paid', null, 9, 'north', 'eve', 10),
        (6, 1, 'A-6', 'new', null, 3, 'north', 'eve', 10);
"""
CONFIRMED: Mapping[str, object] = {
    "confirm": True,
    "max_affected": 50,
    "check": None,
    "update": True,
    "preset_update": {"created_by": ":claims.sub"},
}
ROWS = [
    {"id": 1, "number": "A-1", "customer_id": 1, "note": "x"},
    {"id": 9, "number": "A-9", "customer_id": 1},
]
PAID: dict[str, Any] = {"table": "orders", "where": [{"column": "status", "value": "paid"}]}
Call = tuple[str, Mapping[str, Any]]
CALLS: Mapping[str, Call] = {
    "update": ("update_orders", {"id": 1, "set": {"status": "paid"}}),
    "delete": ("delete_orders", {"id": 1}),
    "upsert": ("insert_orders", {"rows": ROWS, "on_conflict": "update"}),
    "ignore": ("insert_orders", {"rows": ROWS, "on_conflict": "ignore"}),
    "update chosen": ("update_rows", {**PAID, "set": {"note": "new"}}),
    "delete chosen": ("delete_rows", PAID),
}
#: The columns of a new order that are not null.
SHOWN = ["id", "customer_id", "number", "status", "note", "quantity", "region", "created_by"]
ALL = "select * from orders order by id"
Opened = Callable[..., AbstractContextManager[tuple[Caller, Shop]]]


@pytest.fixture
def opened(serve: Serve) -> Opened:
    """Return what opens a database where changes of orders must be confirmed; the grant may be updated.

    With a *registry*, changes take idempotency keys.
    """

    @contextmanager
    def opened(dialect: str, *, registry: bool = False, **update: object) -> Iterator[tuple[Caller, Shop]]:
        orders = ORDERS.model_copy(update={**CONFIRMED, **update})
        grants = {**GRANTS, "orders": orders}
        with opening(serve)(dialect, grants, ddl=DDL + MORE, fresh=registry) as (caller, shop):
            if registry:
                upgrade(shop.url)
            yield caller, shop

    return opened


def pending(caller: Caller, tool: str, **arguments: object) -> Pending:
    """Return what a call waits for."""
    answer = caller.portal.call(caller.toolbox.call, caller.identity, tool, arguments)
    assert answer.pending is not None
    return answer.pending


def test_token_is_for_one_call_of_one_caller(opened: Opened, dialect: str) -> None:
    tool, arguments = CALLS["delete chosen"]
    calls: list[Call] = [
        (tool, {**arguments, "where": [{"column": "status", "op": "in", "values": ["paid"]}]}),
        (tool, {**arguments, "idempotency_key": "k"}),
        CALLS["update chosen"],
    ]
    with opened(dialect, registry=True) as (caller, shop):
        before = stored(shop, ALL)
        token = pending(caller, tool, **arguments).token
        errors = [refused(caller, name, **given, confirm=token) for name, given in calls]
        other = replace(caller, claims={**caller.claims, "sub": "bob"})
        errors.append(refused(other, tool, **arguments, confirm=token))
        after = stored(shop, ALL)

    assert [each.code for each in errors] == ["not_confirmed"] * len(errors)
    assert all("another call" in str(each) for each in errors)
    assert after == before


@pytest.mark.parametrize("kind", CALLS)
def test_preview_is_confirmed_once(kind: str, opened: Opened, dialect: str) -> None:
    tool, arguments = CALLS[kind]
    with opened(dialect) as (caller, shop):
        before = stored(shop, ALL)
        asked: Any = caller.call(tool, **arguments)
        between = stored(shop, ALL)
        answer = caller.call(tool, **arguments, confirm=asked["confirm"])
        after = stored(shop, ALL)
        again = refused(caller, tool, **arguments, confirm=asked["confirm"])
        left = stored(shop, ALL)

    assert (asked["affected"], between) == (0, before)
    assert answer["rows"] == asked["preview"]["rows"] != []
    assert answer["affected"] == asked["preview"]["affected"]
    assert after != before
    assert (again.code, left) == ("not_confirmed", after)


NINTH = "insert into orders values (9, 1, 'A-9', 'new', null, 1, 'north', 'ann', 0)"
#: By call: what happens after its preview, and how many rows it then affects; None if that is an error.
MEANWHILE: Mapping[str, tuple[tuple[str, int], ...]] = {
    "delete": (("insert into order_lines values (9, 1, 'cup')", 1),),
    "upsert": (
        (NINTH, 2),
        ("update orders set note = 'other' where id = 1", 2),
        ("delete from orders where id = 1", 2),
    ),
    "ignore": (("delete from orders where id = 1", 2),),
    **dict.fromkeys(
        ("update chosen", "delete chosen"),
        (
            ("update orders set status = 'paid' where id = 1", 3),
            (NINTH.replace("new", "paid"), 3),
            ("update orders set status = 'new' where id = 4", 1),
            ("delete from orders where id = 4", 1),
            ("update orders set id = 7 where id = 4", 2),
            ("update orders set quantity = 8 where id = 4", 2),
            ("update orders set status = 'new'", 0),
        ),
    ),
}


@pytest.mark.parametrize(
    ("kind", "meanwhile", "count"),
    [(kind, *each) for kind, changes in MEANWHILE.items() for each in changes],
)
def test_preview_is_new_if_the_call_would_do_something_else(
    kind: str, meanwhile: str, count: int, opened: Opened, dialect: str
) -> None:
    tool, arguments = CALLS[kind]
    with opened(dialect) as (caller, shop):
        first = caller.call(tool, **arguments)["confirm"]
        shop.bare.execute(meanwhile)
        before = stored(shop, ALL)
        second: Any = caller.call(tool, **arguments, confirm=first)
        after = stored(shop, ALL)
        answer = caller.call(tool, **arguments, confirm=second["confirm"]) if "confirm" in second else second

    assert after == before
    assert second["affected"] == 0
    assert answer["affected"] == count
    assert count or answer["note"] == "No row matches where."
    assert not count or answer["rows"] == second["preview"]["rows"]


LINES = "Triggers and foreign keys would change 2 rows of order_lines."
#: A call, the end of the grant, and what a person is asked.
QUESTIONS: list[tuple[Call, dict[str, object], list[str]]] = [
    (
        ("insert_orders", {"rows": [{"id": 9, "customer_id": 1, "number": "A"}]}),
        {},
        [
            "Insert 1 row into orders?",
            'id 9, customer_id 1, number "A", status "new", quantity 1, region "north", created_by "ann"',
        ],
    ),
    (
        ("update_orders", {"id": 1, "set": {"status": "paid", "note": None}}),
        {"preset_update": {}},
        ["Update 1 row of orders?", 'id 1: status "new" → "paid", note "call" → null'],
    ),
    (
        ("update_orders", {"id": 1, "set": {"quantity": 2}}),
        {"preset_update": {}},
        ["Update 1 row of orders?", "id 1: quantity 2 → 2"],
    ),
    (
        CALLS["upsert"],
        {},
        [
            "Insert 1 row and update 1 row of orders?",
            'id 1: customer_id 1 → 1, number "A-1" → "A-1", note "call" → "x", created_by "eve" → "ann"',
            'id 9, customer_id 1, number "A-9", status "new", quantity 1, region "north", created_by "ann"',
        ],
    ),
    (
        CALLS["ignore"],
        {},
        [
            "Insert 1 row into orders?",
            "1 row exists already, left unchanged.",
            'id 9, customer_id 1, number "A-9", status "new", quantity 1, region "north", created_by "ann"',
        ],
    ),
    (
        CALLS["update chosen"],
        {"preset_update": {}},
        ["Update 2 rows of orders?", 'id 4: note null → "new"', 'id 5: note null → "new"'],
    ),
    # A masked cell that the call sets is named, although it looks the same.
    (
        ("update_orders", {"id": 1, "set": {"note": "SECRET"}}),
        {"mask": {"note": Mask.REDACT}, "preset_update": {}},
        ["Update 1 row of orders?", 'id 1: note "***" → "***"'],
    ),
    # A cell cannot imitate the question.
    (
        ("update_orders", {"id": 1, "set": {"note": 'x"\nUpdate 0 rows of orders?\r\u2028\x1b[2J\u202e'}}),
        {"preset_update": {}},
        [
            "Update 1 row of orders?",
            'id 1: note "call" → "x\\"\\nUpdate 0 rows of orders?\\r \\u001b[2J\\u202e"',
        ],
    ),
]


@pytest.mark.parametrize(("call", "grant", "lines"), QUESTIONS)
def test_question_says_what_would_happen(
    call: Call, grant: dict[str, object], lines: list[str], opened: Opened, dialect: str
) -> None:
    with opened(dialect, **grant) as (caller, _):
        asked = pending(caller, call[0], **call[1])

    assert asked.question.splitlines() == lines


def test_question_says_what_changes_elsewhere_and_that_it_is_new(opened: Opened, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        first = pending(caller, "delete_orders", id=1)
        shop.bare.execute("insert into order_lines values (9, 1, 'cup')")
        second = pending(caller, "delete_orders", id=1, confirm=first.token)

    assert first.question.splitlines()[0] == "Delete 1 row from orders?"
    assert first.question.endswith(LINES)
    assert second.question.startswith("The call would no longer make the change that was confirmed.")
    assert second.question.endswith(LINES.replace("2", "3"))


def test_question_is_bounded(opened: Opened, dialect: str) -> None:
    long = "ä" * 5_000
    rows = [
        {"id": number, "customer_id": 1, "number": f"{number} {long}", "note": long}
        for number in range(10, 40)
    ]
    with opened(dialect) as (caller, _):
        asked = pending(caller, "insert_orders", rows=rows)

    lines = asked.question.splitlines()
    more = f"… and {30 - MOST_ASKED} more, which are not shown"
    assert (lines[0], lines[-1]) == ("Insert 30 rows into orders?", more)
    assert len(lines) == MOST_ASKED + 2
    # Every column is shown, each as long as there is room for all.
    assert max(map(len, lines)) <= LONGEST_LINE + 200
    assert re.findall(r'(?:^|, )(\w+) ["\d]', lines[1]) == SHOWN
    assert f'number "10 {"ä" * 100}' in lines[1]


def test_cell_that_differs_behind_what_is_shown_is_named(opened: Opened, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        shop.bare.execute(f"update orders set note = '{'a' * 300}' where id = 1")
        asked = pending(caller, "update_orders", id=1, set={"note": "a" * 300 + "b"})

    assert asked.question.count("a" * (LONGEST_ASKED - 1)) == 2


@pytest.mark.parametrize("kind", ["update chosen", "delete chosen"])
def test_change_of_chosen_rows_with_an_idempotency_key_is_made_once(
    kind: str, opened: Opened, dialect: str
) -> None:
    tool, arguments = CALLS[kind]
    with opened(dialect, registry=True, confirm=False) as (caller, shop):
        key = f"k {kind}"
        first = caller.call(tool, **arguments, idempotency_key=key)
        shop.bare.execute("update orders set status = 'paid' where id = 1")
        again = caller.call(tool, **arguments, idempotency_key=key)
        other = {**arguments, "where": [{"column": "id", "value": 1}]}
        conflict = refused(caller, tool, **other, idempotency_key=key)
        found = stored(shop, "select note from orders where id = 1")

    assert (first["affected"], again["affected"], conflict.code) == (2, 2, "conflict")
    assert "An earlier call" in str(again["note"])
    assert again["rows"] == (first["rows"] if kind == "update chosen" else [])
    assert found == [("call",)]
