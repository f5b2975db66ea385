"""Upserts of the same key meet other transactions: one row results, and each caller gets a true answer."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import asyncpg
import pytest

from dbtools import errors
from dbtools.settings.sections import GrantSection
from tests.database.role_callers import Caller
from tests.database.shop import Bare, Serve, Shop, open_bare
from tests.database.written_journal import writing

CALLERS = 8
DELETIONS = 2  #: fewer than the attempts at an upsert
ROWS = "insert into things values (1, 'a', 0, 0), (2, 'b', 0, 1);"
DDL = f"""
create table things (
    id integer primary key, code text not null unique, n integer not null, hidden integer not null default 0
);
{ROWS}
"""
GRANT = GrantSection(
    insert=("id", "code", "n"), update=("id", "n"), delete=True, where="hidden = 0", exclude=("hidden",)
)
WAITING = (
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
)


@contextmanager
def _other(shop: Shop) -> Iterator[Bare]:
    other = open_bare(shop.dialect, shop.url, shop.portal)
    try:
        yield other
    finally:
        other.close()


async def _upsert(caller: Caller, how: str, code: str, id: int) -> Any:
    """Return the answer to an upsert of *code*, or its error."""
    row = {"id": id, "code": code, "n": id}
    more = {"on_conflict": how, "conflict_key": ["code"]}
    try:
        answer = await caller.toolbox.call(caller.identity, "insert_things", {"rows": [row], **more})
    except errors.CallError as exc:
        return exc.code
    return answer.structured


X = "insert into things values (9, 'x', 0, {})"
DELETE_A = "delete from things where code = 'a'"
#: What another transaction does and how it ends, the code that is upserted, and n and whether the row is
#: hidden after an update, and after an ignored row; None: the upsert meets a constraint.
MEETINGS: tuple[tuple[str, str, str, tuple[int, int] | None, tuple[int, int] | None], ...] = (
    (X.format(0), "commit", "x", (5, 0), (0, 0)),
    (X.format(0), "rollback", "x", (5, 0), (5, 0)),
    (X.format(1), "commit", "x", None, None),
    (DELETE_A, "commit", "a", (5, 0), (5, 0)),
    (DELETE_A, "rollback", "a", (5, 0), (0, 0)),
    ("update things set hidden = 1 where code = 'a'", "commit", "a", None, None),
    ("update things set hidden = 0 where code = 'b'", "commit", "b", (5, 0), (0, 0)),
    ("update things set code = 'z' where code = 'a'", "commit", "a", (5, 0), (5, 0)),
    ("update things set code = 'x' where code = 'a'", "commit", "x", (5, 0), (0, 0)),
)


@pytest.mark.parametrize("how", ["update", "ignore"])
def test_upsert_waits_for_the_transaction_that_changes_the_row(how: str, serve: Serve, dialect: str) -> None:
    async def meet(last: str, code: str) -> Any:
        calling = asyncio.ensure_future(_upsert(caller, how, code, 5))
        if dialect == "postgresql":
            await _until_it_waits(shop, calling)
        await anyio.to_thread.run_sync(_run, shop, other, last)
        return await calling

    with serve(dialect, DDL) as shop, writing(shop, GRANT, lock_timeout=30) as caller, _other(shop) as other:
        for first, last, code, update, ignore in MEETINGS:
            shop.bare.execute(f"delete from things; {ROWS}")
            other.execute(f"begin{' immediate' * (dialect == 'sqlite')}; {first}")
            answer = shop.portal.call(meet, last, code)
            found = shop.bare.rows(f"select n, hidden from things where code = '{code}'")

            if how == "ignore" and dialect == "postgresql" and code == "a":
                # A row that is only read is not locked: it exists until the other transaction is committed.
                assert (answer["affected"], answer["rows"]) == (0, []), first
                continue
            expected = update if how == "update" else ignore
            assert found == ([expected] if expected is not None else [(0, 1)]), first
            assert answer == "constraint" if expected is None else answer["affected"] == (expected[0] == 5)


def _run(shop: Shop, other: Bare, sql: str) -> None:
    other.execute(sql)


async def _until_it_waits(shop: Shop, calling: "asyncio.Future[Any]") -> None:
    """Wait until a statement waits for a lock, or the call has ended."""
    connection = await asyncpg.connect(shop.url)
    try:
        while not calling.done() and not await connection.fetchval(WAITING):
            await anyio.lowlevel.checkpoint()
    finally:
        await connection.close()


@pytest.mark.parametrize("how", ["update", "ignore"])
def test_callers_who_upsert_a_new_key_at_once_make_one_row(how: str, serve: Serve, dialect: str) -> None:
    with serve(dialect, DDL) as shop, writing(shop, GRANT, lock_timeout=30) as caller:

        async def together() -> list[Any]:
            return await asyncio.gather(*(_upsert(caller, how, "x", 10 + at) for at in range(CALLERS)))

        answers = shop.portal.call(together)
        found = shop.bare.rows("select id, n from things where code = 'x'")

    assert len(found) == 1
    notes = [str(answer.get("note", "")) for answer in answers]
    again = "0 inserted, 1 updated." if how == "update" else "1 row exists already, left unchanged."
    assert sorted(notes) == ["", *[again] * (CALLERS - 1)]
    assert found[0] in [(10 + at, 10 + at) for at in range(CALLERS)]


def test_upserts_and_deletions_at_once_leave_a_row_or_none(serve: Serve, dialect: str) -> None:
    with serve(dialect, DDL) as shop, writing(shop, GRANT, lock_timeout=30) as caller:

        async def delete() -> Any:
            try:
                ask = {"id": 7}
                return (await caller.toolbox.call(caller.identity, "delete_things", ask)).structured[
                    "affected"
                ]
            except errors.CallError as exc:
                return exc.code

        async def together() -> list[Any]:
            calls = [_upsert(caller, "update", "x", 7) for _ in range(CALLERS)] + [
                delete() for _ in range(DELETIONS)
            ]
            return await asyncio.gather(*calls)

        answers = shop.portal.call(together)
        found = shop.bare.rows("select id, n from things where code = 'x'")

    upserts, deletions = answers[:CALLERS], answers[CALLERS:]
    made = [answer for answer in upserts if not isinstance(answer, str)]
    inserted = sum("note" not in answer for answer in made)
    assert [answer["affected"] for answer in made] == [1] * len(made)
    # After a few attempts, an upsert gives up: the row has come and gone each time.
    assert {answer for answer in upserts if isinstance(answer, str)} <= {"constraint", "busy"}
    # A row that appears just after a deletion found none looks as if a trigger had kept it.
    assert set(deletions) <= {1, "no_row", "constraint"}
    assert inserted == deletions.count(1) + len(found)
