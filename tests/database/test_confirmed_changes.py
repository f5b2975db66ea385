"""A change that must be confirmed: the question for a person, and tokens that are rejected."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from dbtools import errors
from dbtools.results import Pending
from dbtools.service.transactions import TOKEN_LIFETIME, Confirmations
from dbtools.tools.change_calls import LONGEST_ASKED, LONGEST_LINE, MOST_ASKED
from dbtools.types import Mask
from tests.database.conftest import Serve
from tests.database.role_callers import Caller
from tests.database.shop import Shop
from tests.database.written_shop import GRANTS, ORDERS, opening, refused, stored

PAY: Mapping[str, Any] = {"id": 1, "set": {"status": "paid"}}
#: The columns of a new order that are not null.
SHOWN = ["id", "customer_id", "number", "status", "note", "quantity", "region", "created_by"]
STATUS = "select status from orders where id = 1"
Opened = Callable[..., AbstractContextManager[tuple[Caller, Shop]]]


@pytest.fixture
def opened(serve: Serve) -> Opened:
    """Give what opens a database where changes of orders must be confirmed; the grant may be updated."""

    @contextmanager
    def opened(dialect: str, **update: object) -> Iterator[tuple[Caller, Shop]]:
        orders = ORDERS.model_copy(update={"confirm": True, **update})
        with opening(serve)(dialect, {**GRANTS, "orders": orders}) as opened:
            yield opened

    return opened


def pending(caller: Caller, tool: str, **arguments: object) -> Pending:
    """Return what a call waits for."""
    answer = caller.portal.call(caller.toolbox.call, caller.identity, tool, arguments)
    assert answer.pending is not None
    return answer.pending


def test_token_of_a_caller_with_other_claims_is_refused(opened: Opened, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        token = pending(caller, "update_orders", **PAY).token
        other = replace(caller, claims={**caller.claims, "sub": "bob"})
        error = refused(other, "update_orders", **PAY, confirm=token)
        found = stored(shop, STATUS)

    assert (error.code, found) == ("not_confirmed", [("new",)])


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("update_orders", {**PAY, "set": {"status": "new"}}, id="other arguments"),
        pytest.param("update_orders", {**PAY, "idempotency_key": "k"}, id="with a key"),
        pytest.param("delete_orders", {"id": 1}, id="other tool"),
    ],
)
def test_token_of_another_call_is_refused(
    opened: Opened, dialect: str, tool: str, arguments: dict[str, object]
) -> None:
    with opened(dialect) as (caller, shop):
        token = pending(caller, "update_orders", **PAY).token
        error = refused(caller, tool, **arguments, confirm=token)
        found = stored(shop, STATUS)

    assert (error.code, found) == ("not_confirmed", [("new",)])
    assert "another call" in str(error)


@pytest.mark.parametrize("token", ["yes", "true", "A" * 64, "☃" * 8])
def test_what_is_no_token_is_refused(opened: Opened, dialect: str, token: str) -> None:
    with opened(dialect) as (caller, shop):
        error = refused(caller, "update_orders", **PAY, confirm=token)
        found = stored(shop, STATUS)

    assert (error.code, found) == ("not_confirmed", [("new",)])


def test_token_works_once(opened: Opened, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        token = pending(caller, "update_orders", **PAY).token
        made = caller.call("update_orders", **PAY, confirm=token)
        shop.bare.execute("update orders set status = 'new' where id = 1")
        error = refused(caller, "update_orders", **PAY, confirm=token)
        found = stored(shop, STATUS)

    assert made["affected"] == 1
    assert (error.code, found) == ("not_confirmed", [("new",)])


def test_token_of_another_preview_asks_again(opened: Opened, dialect: str) -> None:
    """Here only what the deletion does elsewhere has changed."""
    with opened(dialect) as (caller, shop):
        first = pending(caller, "delete_orders", id=1)
        shop.bare.execute("insert into order_lines values (9, 1, 'cup')")
        second = pending(caller, "delete_orders", id=1, confirm=first.token)
        before = stored(shop, STATUS)
        caller.call("delete_orders", id=1, confirm=second.token)
        after = stored(shop, STATUS)

    assert first.question.endswith("Triggers and foreign keys would change 2 rows of order_lines.")
    assert second.question.startswith("The call would no longer make the change that was confirmed.")
    assert second.question.endswith("Triggers and foreign keys would change 3 rows of order_lines.")
    assert (before, after) == ([("new",)], [])


def test_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    confirmations = Confirmations("secret")
    token = confirmations.seal("call", b"preview".ljust(16))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + TOKEN_LIFETIME - 2)
    in_time = confirmations.open(token, "call")
    monkeypatch.setattr(time, "time", lambda: now + TOKEN_LIFETIME + 2)
    with pytest.raises(errors.NotConfirmed, match="expired"):
        confirmations.open(token, "call")

    assert in_time.preview == b"preview".ljust(16)


@pytest.mark.parametrize(
    ("tool", "arguments", "lines"),
    [
        pytest.param(
            "insert_orders",
            {"rows": [{"id": 9, "customer_id": 1, "number": "A"}]},
            [
                "Insert 1 row into orders?",
                'id 9, customer_id 1, number "A", status "new", quantity 1, region "north", created_by "ann"',
            ],
            id="insert",
        ),
        pytest.param(
            "update_orders",
            {"id": 1, "set": {"status": "paid", "note": None}},
            ["Update 1 row of orders?", 'id 1: status "new" → "paid", note "call" → null'],
            id="update",
        ),
        pytest.param(
            "update_orders",
            {"id": 1, "set": {"quantity": 2}},
            ["Update 1 row of orders?", "id 1: quantity 2 → 2"],
            id="same value",
        ),
    ],
)
def test_question_says_what_would_happen(
    opened: Opened, dialect: str, tool: str, arguments: dict[str, object], lines: list[str]
) -> None:
    with opened(dialect) as (caller, _):
        asked = pending(caller, tool, **arguments)

    assert asked.question.splitlines() == lines


def test_cells_cannot_imitate_the_question(opened: Opened, dialect: str) -> None:
    note = 'x"\nUpdate 0 rows of orders?\r\u2028\x1b[2J\u202e'
    with opened(dialect) as (caller, _):
        asked = pending(caller, "update_orders", id=1, set={"note": note})

    [_, line] = asked.question.splitlines()
    assert line == ('id 1: note "call" → "x\\"\\nUpdate 0 rows of orders?\\r \\u001b[2J\\u202e"')


def test_question_is_bounded(opened: Opened, dialect: str) -> None:
    long = "ä" * 5_000
    rows = [
        {"id": number, "customer_id": 1, "number": f"{number} {long}", "note": long}
        for number in range(10, 40)
    ]
    with opened(dialect, max_affected=50) as (caller, _):
        asked = pending(caller, "insert_orders", rows=rows)

    lines = asked.question.splitlines()
    more = f"… and {30 - MOST_ASKED} more, which are not shown"
    assert (lines[0], lines[-1]) == ("Insert 30 rows into orders?", more)
    assert len(lines) == MOST_ASKED + 2
    # Every column is shown, each as long as there is room for all.
    assert max(map(len, lines)) <= LONGEST_LINE + 200
    assert re.findall(r'(?:^|, )(\w+) ["\d]', lines[1]) == SHOWN
    assert f'number "10 {"ä" * 100}' in lines[1]


def test_question_shows_what_the_role_sees(opened: Opened, dialect: str) -> None:
    """A masked cell that the call sets is named, although it looks the same."""
    with opened(dialect, mask={"note": Mask.REDACT}) as (caller, _):
        asked = pending(caller, "update_orders", id=1, set={"note": "SECRET"})

    assert asked.question.splitlines()[1:] == ['id 1: note "***" → "***"']


def test_cell_that_differs_behind_what_is_shown_is_named(opened: Opened, dialect: str) -> None:
    with opened(dialect) as (caller, shop):
        shop.bare.execute(f"update orders set note = '{'a' * 300}' where id = 1")
        asked = pending(caller, "update_orders", id=1, set={"note": "a" * 300 + "b"})

    assert asked.question.count("a" * (LONGEST_ASKED - 1)) == 2
