"""Random calls with idempotency keys, against a model of the rules."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from dbtools import errors
from dbtools.policy import roles as policy
from tests.database.keyed_writes import keeping, table_of
from tests.database.role_callers import ROLE, Caller
from tests.database.sharing import Shelf
from tests.database.shop import Serve, Shop
from tests.database.written_journal import repeated, writing

TABLE = "create table things (id integer primary key, v text);"
examples = count()  #: so that examples do not share keys


class Insert(NamedTuple):
    """A call that inserts the row *id*."""

    key: str
    id: int
    identity: str | None
    dry_run: bool


class Delete(NamedTuple):
    """Another program deletes the row *id*."""

    id: int


class Age(NamedTuple):
    """A day goes by."""


ids = st.sampled_from((1, 2))
inserts = st.builds(
    Insert, st.sampled_from("ab"), ids, st.sampled_from((None, "ann")), st.sampled_from((False, False, True))
)
steps = st.lists(st.one_of(inserts, inserts, st.builds(Delete, ids), st.builds(Age)), max_size=12)
Outcome = tuple[str, list[list[object]], bool]  #: a code, rows, and whether an earlier call made the change
Opened = Callable[[str], tuple[Shop, Caller]]


class Model:
    """What the rules say."""

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self._kept: dict[tuple[str | None, str], int] = {}

    def insert(self, call: Insert) -> Outcome:
        """Return what *call* gets."""
        known = None if call.dry_run else self._kept.get((call.identity, call.key))
        if known is not None:
            shown: list[list[object]] = [[call.id, None]] if call.id in self.rows else []
            return ("", shown, True) if known == call.id else ("conflict", [], False)
        if call.id in self.rows:
            return "constraint", [], False
        if not call.dry_run:
            self.rows.add(call.id)
            self._kept[call.identity, call.key] = call.id
        return "", [[call.id, None]], False

    def age(self) -> None:
        """Forget the keys."""
        self._kept.clear()


@pytest.fixture(scope="module")
def opened(serve: Serve, shelf: Shelf) -> Iterator[Opened]:
    """Yield what opens the database of a dialect, once for all examples."""
    with ExitStack() as stack:

        @cache
        def open_one(dialect: str) -> tuple[Shop, Caller]:
            shop = stack.enter_context(keeping(serve, shelf)(dialect, ddl=TABLE))
            return shop, stack.enter_context(writing(shop))

        yield open_one


def _insert(caller: Caller, call: Insert, example: int) -> Outcome:
    who = policy.Caller(role=ROLE, identity=call.identity)
    arguments = {
        "rows": [{"id": call.id}],
        "idempotency_key": f"{example} {call.key}",
        "dry_run": call.dry_run,
    }
    try:
        answer = caller.portal.call(caller.toolbox.call, who, "insert_things", arguments).structured
    except errors.CallError as exc:
        return exc.code, [], False
    rows = answer["rows"]
    assert isinstance(rows, list)
    return "", rows, repeated(answer)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_calls_with_keys_follow_the_rules(
    dialect: str, opened: Opened, steps: list[Insert | Delete | Age]
) -> None:
    shop, caller = opened(dialect)
    shop.bare.execute("delete from things")
    model, example = Model(), next(examples)
    for step in steps:
        match step:
            case Insert():
                assert _insert(caller, step, example) == model.insert(step)
            case Delete():
                shop.bare.execute(f"delete from things where id = {step.id}")
                model.rows.discard(step.id)
            case Age():
                shop.bare.execute(f"update {table_of(shop)} set seconds = seconds - 90000")
                model.age()
        assert {id for (id,) in shop.bare.rows("select id from things")} == model.rows
