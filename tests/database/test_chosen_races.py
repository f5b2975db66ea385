"""No row is changed that another caller has changed so that it no longer meets the conditions."""

import asyncio
from collections.abc import Mapping
from contextlib import AbstractContextManager
from itertools import product
from typing import Any

import anyio
import asyncpg
import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from tests.database.role_callers import Caller
from tests.database.shop import Serve, Shop
from tests.database.test_write_locks import ENDLESS, RUNNING
from tests.database.written_journal import writing

DDL = """
create table owners (id integer primary key, name text);
insert into owners values (1, 'Ann'), (2, 'Bob');
create table things (
    id integer primary key, v text, state text not null default 'open',
    owner_id integer references owners (id)
);
insert into things values (1, 'one', 'open', 1), (2, 'two', 'open', null), (3, 'three', 'done', 1);
"""
#: Enough rows that the server finds them by an index.
MANY = "insert into things select i, 'more', 'done', 2 from generate_series(10, 20000) as i; analyze things;"
MOST: dict[str, Any] = {"max_affected": 5}
GRANTS = {
    "whole": GrantSection(update=True, delete=True, **MOST),
    "filtered": GrantSection(update=True, delete=True, where="v <> 'hidden'", **MOST),
    "guarded": GrantSection(update=True, delete=True, where="length(v) / length(v) = 1", **MOST),
}
OWNERS = {"owners": GrantSection()}
CALLS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "update": ("update_rows", {"set": {"v": "new"}}),
    "delete": ("delete_rows", {}),
}
OPEN = [{"column": "state", "value": "open"}]
CONDITIONS = {
    "column": OPEN,
    "absent path": [
        *OPEN,
        {
            "any": [
                {"column": "owner.name", "op": "is_null", "value": "true"},
                {"column": "owner.name", "value": "Ann"},
            ]
        },
    ],
}
ALL = "select id, v, state from things where id < 10 order by id"


def _served(serve: Serve, more: str = "") -> AbstractContextManager[Shop]:
    return serve("postgresql", DDL + more)


async def _meet(caller: Caller, shop: Shop, call: tuple[str, Mapping[str, Any]], other: str, end: str) -> str:
    """Return the code of *call*, which waits for a transaction that did *other* and then ends."""
    tool, arguments = call
    holder, watcher = await asyncpg.connect(shop.url), await asyncpg.connect(shop.url)
    try:
        await holder.execute(f"begin; {other}")
        calling = asyncio.ensure_future(_code(caller, tool, {"table": "things", **arguments}))
        with anyio.fail_after(30):
            while not await watcher.fetchval("select count(*) from pg_locks where not granted"):
                await anyio.lowlevel.checkpoint()
        await holder.execute(end)
        return await calling
    finally:
        await holder.close()
        await watcher.close()


async def _code(caller: Caller, tool: str, arguments: Mapping[str, Any]) -> str:
    try:
        answer = await caller.toolbox.call(caller.identity, tool, arguments)
    except errors.CallError as exc:
        return exc.code
    return str(answer.structured["affected"])


#: What another transaction does to a row, and the row that is then left.
OTHERS: Mapping[str, tuple[str, tuple[Any, ...] | None]] = {
    "leaves": ("update things set state = 'done' where id = 2", (2, "two", "done")),
    "path": ("update things set owner_id = 2 where id = 2", (2, "two", "open")),
    "new key": ("update things set id = 4 where id = 2", (4, "two", "open")),
    "another row": (
        "delete from things where id = 2; insert into things values (2, 'x', 'done', 2)",
        (2, "x", "done"),
    ),
    "deleted": ("delete from things where id = 2", None),
}
#: Each with each kind of grant, and by turns with the other dimensions.
MEETINGS = [
    (grant, other, [*CALLS][at % 2], ["", "", MANY][(at + at // 3) % 3])
    for at, (other, grant) in enumerate(product(OTHERS, GRANTS))
]


@pytest.mark.parametrize(("grant", "other", "kind", "more"), MEETINGS)
def test_row_that_changes_meanwhile_keeps_all_as_they_are(
    grant: str, other: str, kind: str, more: str, serve: Serve
) -> None:
    tool, arguments = CALLS[kind]
    sql, left = OTHERS[other]
    chosen = {**arguments, "where": CONDITIONS["absent path"]}
    with _served(serve, more) as shop, writing(shop, GRANTS[grant], lock_timeout=30, more=OWNERS) as caller:
        code = shop.portal.call(_meet, caller, shop, (tool, chosen), sql, "commit")
        found = shop.bare.rows(ALL)

    assert code == "busy"
    assert found == sorted([(1, "one", "open"), (3, "three", "done"), *([left] if left else [])])


@pytest.mark.parametrize("kind", CALLS)
def test_row_whose_change_is_rolled_back_is_chosen(kind: str, serve: Serve) -> None:
    tool, arguments = CALLS[kind]
    other = "update things set state = 'done' where id = 2"
    with _served(serve) as shop, writing(shop, GRANTS["filtered"], lock_timeout=30) as caller:
        code = shop.portal.call(_meet, caller, shop, (tool, {**arguments, "where": OPEN}), other, "rollback")
        found = shop.bare.rows(ALL)

    assert code == "2"
    changed = [(1, "new", "open"), (2, "new", "open")] if kind == "update" else []
    assert found == [*changed, (3, "three", "done")]


@pytest.mark.parametrize("kind", CALLS)
def test_rows_that_join_meanwhile_are_not_changed(kind: str, serve: Serve) -> None:
    tool, arguments = CALLS[kind]
    other = "select from things where id = 2 for update; insert into things values (5, 'late', 'open', null)"
    other += "; update things set state = 'open' where id = 3"
    with _served(serve) as shop, writing(shop, GRANTS["whole"], lock_timeout=30) as caller:
        code = shop.portal.call(_meet, caller, shop, (tool, {**arguments, "where": OPEN}), other, "commit")
        found = shop.bare.rows(ALL)

    assert code == "2"
    assert found[-2:] == [(3, "three", "open"), (5, "late", "open")]
    assert [row[1] for row in found[:-2]] == ["new"] * 2 * (kind == "update")


def test_calls_that_choose_the_same_rows_at_once_change_all_or_none(serve: Serve) -> None:
    async def change(caller: Caller) -> list[str]:
        codes: list[str] = []

        async def one(number: int) -> None:
            where = [{"column": "id", "op": "gte" if number % 2 else "lte", "value": 1 if number % 2 else 3}]
            arguments = {"table": "things", "where": where, "set": {"v": str(number)}}
            codes.append(await _code(caller, "update_rows", arguments))

        async with anyio.create_task_group() as group:
            for number in range(24):
                group.start_soon(one, number)
        return codes

    with _served(serve) as shop, writing(shop, GRANTS["whole"], lock_timeout=10) as caller:
        codes = shop.portal.call(change, caller)
        values = shop.bare.rows("select distinct v from things")

    assert {*codes} <= {"3", "busy"}
    assert "3" in codes
    assert len(values) == 1


def test_chosen_rows_of_a_file_wait_for_other_programs(serve: Serve) -> None:
    with serve("sqlite", DDL) as shop, writing(shop, GRANTS["whole"], lock_timeout=0.2) as caller:
        shop.bare.execute("begin immediate; update things set state = 'done' where id = 2")
        busy = caller.portal.call(_code, caller, "delete_rows", {"table": "things", "where": OPEN})
        shop.bare.execute("commit")
        later = caller.portal.call(_code, caller, "delete_rows", {"table": "things", "where": OPEN})

        assert (busy, later) == ("busy", "1")
        assert shop.bare.rows(ALL) == [(2, "two", "done"), (3, "three", "done")]


def test_deadline_in_the_middle_of_chosen_rows_changes_none(serve: Serve, dialect: str) -> None:
    # The trigger takes for ever at the third row.
    slow = ENDLESS[dialect].replace("new.v = 'new'", "new.v = 'new' and new.id = 2")
    slow = "create table journal (what text, id integer, v text);" + slow
    arguments = {"table": "things", "where": OPEN, "set": {"v": "new"}}
    with serve(dialect, DDL + slow) as shop, writing(shop, GRANTS["whole"], timeout=0.5) as caller:
        code = caller.portal.call(_code, caller, "update_rows", arguments)
        found = shop.bare.rows(ALL)
        if dialect == "postgresql":
            assert shop.bare.rows(RUNNING) == [(0,)]

    assert code == "timeout"
    assert [row[1] for row in found] == ["one", "two", "three"]


SLEEPING = """
select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()
"""


def test_cancellation_in_the_middle_of_chosen_rows_changes_none(serve: Serve) -> None:
    async def cancel(caller: Caller, shop: Shop) -> None:
        watcher = await asyncpg.connect(shop.url)
        calling = asyncio.ensure_future(caller.toolbox.call(caller.identity, "update_rows", arguments))
        with anyio.fail_after(30):
            while not await watcher.fetchval(SLEEPING):
                await anyio.lowlevel.checkpoint()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        assert await watcher.fetchval(RUNNING) == 0
        await watcher.close()

    arguments = {"table": "things", "where": OPEN, "set": {"v": "new"}}
    slow = ENDLESS["postgresql"].replace("new.v = 'new'", "new.v = 'new' and new.id = 2")
    with _served(serve, slow) as shop, writing(shop, GRANTS["whole"]) as caller:
        shop.portal.call(cancel, caller, shop)
        found = shop.bare.rows(ALL)
        later = caller.portal.call(_code, caller, "delete_rows", {"table": "things", "where": OPEN})

    assert [row[1] for row in found] == ["one", "two", "three"]
    assert later == "2"


@pytest.mark.parametrize("kind", CALLS)
def test_migration_of_what_conditions_read_is_noticed(kind: str, serve: Serve, dialect: str) -> None:
    tool, arguments = CALLS[kind]
    chosen = {"table": "things", "where": [{"column": "owner.name", "value": "Ann"}], **arguments}
    renamed = "alter table owners rename column name to alias; alter table owners add column name text;"
    with serve(dialect, DDL, fresh=True) as shop, writing(shop, GRANTS["whole"], more=OWNERS) as caller:
        before = caller.portal.call(_code, caller, tool, {**chosen, "dry_run": True})
        shop.bare.execute(renamed)
        after = caller.portal.call(_code, caller, tool, chosen)
        shop.bare.execute(
            "update owners set name = 'Ann' where id = 2; alter table owners drop column alias;"
        )
        later = caller.portal.call(_code, caller, tool, chosen)

    assert (before, after, later) == ("2", "0", "0")
