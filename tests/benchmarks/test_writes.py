"""What a change of one row costs in process, compared with the same SQL in a transaction of the driver."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import DatabaseSection, Settings
from tests.benchmarks.bare_drivers import Bare, open_bare
from tests.benchmarks.conftest import Build
from tests.benchmarks.contest import Figure, Work, medians

pytestmark = pytest.mark.benchmark

Report = Callable[[Figure], Figure]

#: Twenty thousand rows for the calls and as many for the driver, so that each has a row to delete.
ROWS = 40_000
DDL = "create table notes (id integer primary key, word text not null, rank integer not null default 0);"
SQLITE = f"""{DDL}
    insert into notes (id, word)
    with recursive n (i) as (select 1 union all select i + 1 from n where i < {ROWS})
    select i, 'word ' || i from n;
"""
POSTGRESQL = f"{DDL} insert into notes select i, 'word ' || i from generate_series(1, {ROWS}) as n (i);"
BEGIN = {"SQLite": "begin immediate", "PostgreSQL": "begin"}
INSERT = "insert into notes (id, word) values (?, ?)"
UPDATE = "update notes set word = ? where id = ?"
DELETE = "delete from notes where id = ?"


@pytest.mark.parametrize("kind", ["insert", "update", "delete"])
async def test_change_by_key_is_within_reach_of_the_drivers_transaction(
    kind: str, build: Build, report: Report
) -> None:
    target = build(SQLITE, POSTGRESQL)
    settings = Settings(database=DatabaseSection(url=target.url, writable=True))
    toolbox, database = open_toolbox(settings)
    try:
        async with open_bare(target.url) as bare:
            ours, floor = _calling(toolbox, kind), _transaction(bare, BEGIN[target.dialect], kind)
            found = await medians(ours=ours, floor=floor, rounds=15, calls=50)
    finally:
        await database.close()

    figure = report(found.figure(f"{kind} by key, in process", target.dialect, floor_is="BEGIN, it, COMMIT"))
    assert figure.ratio < 20


def _calling(toolbox: Toolbox, kind: str) -> Work:
    """Return the call that changes one row after the other, the odd ones."""
    keys = _keys(kind, 1)

    async def work() -> object:
        key = next(keys)
        arguments: dict[str, dict[str, object]] = {
            "insert": {"rows": [{"id": key, "word": "new"}]},
            "update": {"id": key, "set": {"word": "other"}},
            "delete": {"id": key},
        }
        return await toolbox.call(Caller(), f"{kind}_notes", arguments[kind])

    return work


def _transaction(bare: Bare, begin: str, kind: str) -> Work:
    """Return the driver's transaction that changes one row after the other, the even ones."""
    keys = _keys(kind, 2)

    async def work() -> object:
        key = next(keys)
        await bare.fetch(begin)
        match kind:
            case "insert":
                await bare.fetch(INSERT, key, "new")
            case "update":
                await bare.fetch(UPDATE, "other", key)
            case _:
                await bare.fetch(DELETE, key)
        return await bare.fetch("commit")

    return work


def _keys(kind: str, first: int) -> Iterator[int]:
    return count(ROWS + first if kind == "insert" else first, 2)
