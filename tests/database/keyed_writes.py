"""Databases with a journal of changes, and without one."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import pytest

from dbtools import errors
from dbtools.alembic import upgrade
from dbtools.answers.results import Answer
from tests.database.role_callers import Caller
from tests.database.sharing import Shelf
from tests.database.shop import Serve, Shop
from tests.database.written_journal import DDL
from tests.database.written_shop import stored

CALLERS = 8
UPDATE: Mapping[str, object] = {"id": 1, "set": {"v": "new"}, "idempotency_key": "k"}
KEPT = {
    "sqlite": "select tool, key, affected, keys from dbtools_write order by key",
    "postgresql": "select tool, key, affected, keys from dbtools.dbtools_write order by key",
}
#: A dialect, and whether there is a journal, in; a database of things out.
Keeps = Callable[..., AbstractContextManager[Shop]]


def keeping(serve: Serve, shelf: Shelf) -> Keeps:
    """Return what opens a database, with a registry unless *memory* is to keep confirmations."""

    @contextmanager
    def upgraded(dialect: str, ddl: str) -> Iterator[Shop]:
        with serve(dialect, ddl, fresh=True) as shop:
            upgrade(shop.url)
            yield shop

    @contextmanager
    def opened(dialect: str, keeper: str = "journal", *, ddl: str = "") -> Iterator[Shop]:
        ddl = ddl or DDL[dialect]
        kept = shelf.lend(("keys", dialect, ddl), upgraded(dialect, ddl))
        with kept if keeper == "journal" else serve(dialect, ddl) as shop:
            yield shop

    return opened


@pytest.fixture
def opened(serve: Serve, shelf: Shelf) -> Keeps:
    """Return what opens a database, with a journal or without."""
    return keeping(serve, shelf)


def entries(shop: Shop) -> list[tuple[object, ...]]:
    """Return what the journal has of each change: tool, key, affected, and the keys of its rows."""
    return stored(shop, KEPT[shop.dialect])


def table_of(shop: Shop) -> str:
    """Return the name of the journal."""
    return "dbtools_write" if shop.dialect == "sqlite" else "dbtools.dbtools_write"


async def outcome(caller: Caller, tool: str, arguments: Mapping[str, object]) -> Answer | errors.CallError:
    """Return the answer to the call, or its error."""
    try:
        return await caller.toolbox.call(caller.identity, tool, arguments)
    except errors.CallError as exc:
        return exc


async def at_once(
    callers: list[Caller], tool: str, arguments: Mapping[str, object]
) -> list[Answer | errors.CallError]:
    """Return what each of *callers* gets if all make the same call at the same time."""
    return await asyncio.gather(*(outcome(each, tool, arguments) for each in callers))


def codes(found: list[Answer | errors.CallError]) -> list[str]:
    """Return the codes of *found*, empty for answers."""
    return [each.code if isinstance(each, errors.CallError) else "" for each in found]
