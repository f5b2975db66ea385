"""The journal of writes: when it is used, and that changes are made once however a call ends."""

from collections.abc import Iterator
from itertools import count

import pytest
from anyio.from_thread import BlockingPortal

from dbtools.alembic import upgrade
from dbtools.settings.sections import GrantSection, ServerSection
from tests.database.cutting_proxy import Cut, Cutting, cutting_proxy, is_commit, numbered
from tests.database.keyed_writes import UPDATE, Keeps, at_once, codes, entries, opened as opened, table_of
from tests.database.role_callers import ROLE, Caller
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
from tests.database.written_shop import refused

MOST_REQUESTS = 60
SECRET = ServerSection(secret="a secret that all servers share, long enough")
CONFIRMED = GRANT.model_copy(update={"confirm": True})
CHANGE = {"id": 1, "set": {"v": "new"}}
#: Every way to cut the connection, and every kind of change.
CUTS = [*(("update", cut) for cut in Cut), *((kind, Cut.AFTER) for kind in CALLS if kind != "update")]


def _has_journal(caller: Caller) -> bool | None:
    return caller.portal.call(caller.toolbox.view, ROLE).context.journal


def test_journal_that_appears_is_used(opened: Keeps, dialect: str) -> None:
    with opened(dialect, "memory") as shop, writing(shop) as caller:
        before = _has_journal(caller)
        upgrade(shop.url)
        shop.portal.call(caller.toolbox.refresh)
        caller.call("update_things", **UPDATE)
        found = entries(shop)

    assert (before, found) == (False, [("update_things", "k", 1, _keys(dialect))])


def _keys(dialect: str) -> str:
    return f'[["{"public" * (dialect == "postgresql")}", "things"], ["id"], [["1"]]]'


def test_stamp_of_the_schema_covers_the_journal(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        before = shop.portal.call(caller.database.stamp)
        shop.bare.execute(f"drop table {table_of(shop)}")
        after = shop.portal.call(caller.database.stamp)

    assert before != after


def test_confirmation_after_the_journal_was_dropped_is_kept_in_memory(opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop, CONFIRMED) as caller:
        asked = caller.call("update_things", **CHANGE)
        shop.bare.execute(f"drop table {table_of(shop)}")
        stale = refused(caller, "update_things", **CHANGE, confirm=asked["confirm"])
        asked = caller.call("update_things", **CHANGE)
        made = caller.call("update_things", **CHANGE, confirm=asked["confirm"])
        has_journal = _has_journal(caller)
        found = things(shop), journal(shop)

    # The token was for servers that share a journal.
    assert (stale.code, has_journal) == ("not_confirmed", False)
    assert made["affected"] == 1
    assert found == (AFTER["update"], [CALLS["update"][2]])


@pytest.mark.parametrize("grant", [GRANT, CONFIRMED], ids=["at once", "confirmed"])
def test_key_after_the_journal_was_dropped_changes_nothing(
    grant: GrantSection, opened: Keeps, dialect: str
) -> None:
    with opened(dialect) as shop, writing(shop, grant) as caller:
        has_journal = _has_journal(caller)
        shop.bare.execute(f"drop table {table_of(shop)}")
        error = refused(caller, "update_things", **UPDATE)
        found = things(shop), journal(shop)

    assert (has_journal, error.code) == (True, "unknown_argument")
    assert found == (BEFORE, [])


def test_confirmation_without_a_journal_is_reported(opened: Keeps, dialect: str) -> None:
    with opened(dialect, "memory") as shop, writing(shop, CONFIRMED) as caller:
        problems = caller.problems()
        asked = caller.call("update_things", **CHANGE)
        made = caller.call("update_things", **CHANGE, confirm=asked["confirm"])

    assert made["affected"] == 1
    assert problems == (
        "warning: role reader, tables.things.confirm: confirmations are kept in the memory of one process "
        "only. The database has no table dbtools_write: `dbtools registry upgrade URL` creates it.",
    )


@pytest.mark.parametrize("times", [1, 4])
def test_two_servers_take_one_confirmation_once(times: int, opened: Keeps, dialect: str) -> None:
    with (
        opened(dialect) as shop,
        writing(shop, CONFIRMED, server=SECRET, lock_timeout=30.0) as one,
        writing(shop, CONFIRMED, server=SECRET, lock_timeout=30.0) as two,
    ):
        token = one.call("insert_things", rows=[{"id": 9, "v": "new"}])["confirm"]
        row = {"rows": [{"id": 9, "v": "new"}], "confirm": token}
        found = shop.portal.call(at_once, [one, two] * times, "insert_things", row)
        after = journal(shop)

    assert sorted(codes(found)) == ["", *["not_confirmed"] * (2 * times - 1)]
    assert after == [("+", 9, "new")]


@pytest.mark.parametrize("keeper", ["journal", "memory"])
def test_confirmation_is_not_used_by_a_change_that_fails(keeper: str, opened: Keeps, dialect: str) -> None:
    row = {"rows": [{"id": 9, "v": "new"}]}
    with opened(dialect, keeper) as shop, writing(shop, CONFIRMED) as caller:
        token = caller.call("insert_things", **row)["confirm"]
        shop.bare.execute("insert into things values (9, 'other')")
        error = refused(caller, "insert_things", **row, confirm=token)
        shop.bare.execute("delete from things where id = 9; delete from journal")
        made = caller.call("insert_things", **row, confirm=token)
        again = refused(caller, "insert_things", **row, confirm=token)

    assert error.code == "constraint"
    assert made["affected"] == 1
    assert str(again) == (
        "This confirmation has been used already. Read the rows before you ask for another preview."
    )


@pytest.mark.parametrize("server", [SECRET, ServerSection()], ids=["secret", "no secret"])
def test_confirmation_without_a_journal_is_for_one_process(
    server: ServerSection, opened: Keeps, dialect: str
) -> None:
    with (
        opened(dialect, "memory") as shop,
        writing(shop, CONFIRMED, server=server) as one,
        writing(shop, CONFIRMED, server=server) as two,
    ):
        token = one.call("update_things", **CHANGE)["confirm"]
        other = refused(two, "update_things", **CHANGE, confirm=token)
        found = shop.portal.call(at_once, [one] * 4, "update_things", {**CHANGE, "confirm": token})
        after = journal(shop)

    assert other.code == "not_confirmed"
    assert sorted(codes(found)) == ["", *["not_confirmed"] * 3]
    assert after == [CALLS["update"][2]]


@pytest.fixture
def shop(opened: Keeps) -> Iterator[Shop]:
    """Yield a database on PostgreSQL with a journal."""
    with opened("postgresql") as shop:
        yield shop


@pytest.fixture
def proxy(shop: Shop, portal: BlockingPortal) -> Iterator[Cutting]:
    """Yield a proxy in front of the database."""
    with portal.wrap_async_context_manager(cutting_proxy(shop.url)) as proxy:
        yield proxy


@pytest.mark.parametrize(("kind", "cut"), CUTS)
def test_connection_that_is_cut_at_any_request_leaves_a_change_that_the_key_makes_once(
    kind: str, cut: Cut, shop: Shop, proxy: Cutting
) -> None:
    tool, arguments, noted = CALLS[kind]
    lost: list[str] = []
    with writing(shop, write_url=proxy.url) as caller:
        assert _has_journal(caller)
        for number in count():
            keyed = {**arguments, "idempotency_key": f"{number}"}
            proxy.at(numbered(number), cut)
            (code,) = codes(shop.portal.call(at_once, [caller], tool, keyed))
            was_met = proxy.met.is_set()
            proxy.at(lambda _: False, None)
            made = things(shop), journal(shop)
            assert made == ((BEFORE, []) if code else (AFTER[kind], [noted]))
            again = caller.call(tool, **keyed)
            assert (things(shop), journal(shop)) == (AFTER[kind], [noted])
            assert repeated(again) == (not code)
            restore(shop)
            lost += [code] if code else []
            if not was_met:
                break

    assert {*lost} == {"database_unavailable"}
    assert number < MOST_REQUESTS


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_key_resolves_an_unknown_outcome(cut: Cut, shop: Shop, proxy: Cutting) -> None:
    with writing(shop, write_url=proxy.url) as caller:
        proxy.at(is_commit, cut, refuses=True)
        error = refused(caller, "update_things", **UPDATE)
        proxy.at(lambda _: False, None)
        again = caller.call("update_things", **UPDATE)
        found = things(shop), journal(shop)

    assert error.code == "unknown_outcome"
    assert str(error).endswith(
        "Call again with the same arguments and idempotency_key: the change is made once."
    )
    assert (repeated(again), again["affected"]) == (cut is Cut.AFTER, 1)
    assert found == (AFTER["update"], [CALLS["update"][2]])


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_confirmation_resolves_an_unknown_outcome(cut: Cut, shop: Shop, proxy: Cutting) -> None:
    with writing(shop, CONFIRMED, write_url=proxy.url) as caller:
        token = caller.call("update_things", **CHANGE)["confirm"]
        proxy.at(is_commit, cut, refuses=True)
        error = refused(caller, "update_things", **CHANGE, confirm=token)
        proxy.at(lambda _: False, None)
        (again,) = codes(shop.portal.call(at_once, [caller], "update_things", {**CHANGE, "confirm": token}))
        found = things(shop), journal(shop)

    assert error.code == "unknown_outcome"
    assert again == ("not_confirmed" if cut is Cut.AFTER else "")
    assert found == (AFTER["update"], [CALLS["update"][2]])


def test_unknown_outcome_without_a_journal_uses_the_confirmation(
    opened: Keeps, portal: BlockingPortal
) -> None:
    with (
        opened("postgresql", "memory") as shop,
        portal.wrap_async_context_manager(cutting_proxy(shop.url)) as proxy,
        writing(shop, CONFIRMED, write_url=proxy.url) as caller,
    ):
        token = caller.call("update_things", **CHANGE)["confirm"]
        proxy.at(is_commit, Cut.AFTER, refuses=True)
        first = refused(caller, "update_things", **CHANGE, confirm=token)
        proxy.at(lambda _: False, None)
        again = refused(caller, "update_things", **CHANGE, confirm=token)
        found = journal(shop)

    assert [each.code for each in (first, again)] == ["unknown_outcome", "not_confirmed"]
    assert str(first).endswith("Read the rows before you try again.")
    assert found == [CALLS["update"][2]]


@pytest.mark.parametrize("how", ["ignore", "update"])
def test_key_makes_an_upsert_once(how: str, opened: Keeps, dialect: str) -> None:
    with opened(dialect) as shop, writing(shop) as caller:
        ask = {"rows": [{"id": 1, "v": "new"}], "on_conflict": how, "idempotency_key": "k"}
        first = caller.call("insert_things", **ask)
        shop.bare.execute("update things set v = 'later' where id = 1")
        again = caller.call("insert_things", **ask)
        found = things(shop)

    assert first["affected"] == again["affected"] == (how == "update")
    assert again["rows"] == [[1, "later"]] * (how == "update")
    assert "An earlier call" in str(again["note"])
    assert found[0] == (1, "later")
