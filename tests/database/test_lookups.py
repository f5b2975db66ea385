"""A row by its key from a file: read where it is asked for, while nothing has to be waited for."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from dbtools.catalog import Catalog
from dbtools.column_types import Operator
from dbtools.dialects.driver import Fetched, Plan
from dbtools.dialects.sqlite.driver import DRIVER
from dbtools.dialects.sqlite.location import location_of
from dbtools.dialects.sqlite.lookups import LARGEST_VALUE, PAUSE, Lookups
from dbtools.dialects.sqlite.opened import ConnectionLost
from dbtools.statement import Condition, Output, Select
from tests.database.conftest import Serve
from tests.database.shop import Shop, rows_of

DDL = """
create table item (id integer primary key, name text, body text);
insert into item values (1, 'one', 'short'), (2, 'two', cast(x'ff41' as text));
insert into item values (3, 'three', zeroblob(2000000));
"""
ONE = [1, "one", "short"]


@pytest.fixture(scope="module")
def shop(serve: Serve) -> Iterator[Shop]:
    """Give a file that is served."""
    with serve("sqlite", DDL) as shop:
        yield shop


@dataclass(frozen=True)
class Looked:
    """What looks up rows of `item` in a file by their ids."""

    lookups: Lookups
    plan: Plan

    def row(self, id: int, stamp: str = "") -> list[object] | None:
        """Return the row *id*, None where it has to be read with time."""
        found = self.fetch(id, stamp)
        return None if found is None else list(found.rows[0])

    def fetch(self, id: int, stamp: str = "") -> Fetched | None:
        """Return what is found of the row *id*."""
        values = DRIVER.bound(self.plan, {"id": id}, 1)
        return self.lookups.fetch(self.plan, values, limit=1, stamp=stamp, comment="")


def _catalog(shop: Shop) -> Catalog:
    return shop.portal.call(shop.toolbox.snapshot).catalog


@contextmanager
def _looked(shop: Shop, url: str) -> Iterator[Looked]:
    (item,) = _catalog(shop).tables
    condition = Condition(term=item.columns[0], operator=Operator.EQ, parameters=("id",))
    outputs = tuple(Output(term=column, cut=100) for column in item.columns)
    plan = DRIVER.compile(Select(table=item, outputs=outputs, conditions=(condition,)))
    with closing(Lookups(location_of(url))) as lookups:
        yield Looked(lookups, plan)


@pytest.fixture
def looked(shop: Shop) -> Iterator[Looked]:
    """Give lookups of the file."""
    with _looked(shop, shop.database.url) as looked:
        yield looked


def test_rows_are_as_they_are_by_way_of_a_thread(shop: Shop, looked: Looked) -> None:
    listed = rows_of(shop.call("list_item", {"where": [{"column": "id", "value": "1"}]}).structured)

    assert looked.row(1) == listed[0] == ONE
    assert looked.row(2) == [2, "two", "\udcffA"]


def test_comment_reaches_the_database(looked: Looked) -> None:
    seen: list[str] = []
    looked.lookups._connection.set_trace_callback(seen.append)
    values = DRIVER.bound(looked.plan, {"id": 1}, 1)

    looked.lookups.fetch(looked.plan, values, limit=1, stamp="", comment="/*abc*/ ")

    assert [each.lower()[:14] for each in seen if "item" in each] == ["/*abc*/ select"]


def test_what_would_take_time_is_left(looked: Looked) -> None:
    assert LARGEST_VALUE < 2_000_000
    assert looked.row(3) is None
    assert looked.row(1) == ONE


def test_lock_is_not_waited_for(shop: Shop, looked: Looked) -> None:
    with closing(sqlite3.connect(location_of(shop.database.url).path, isolation_level=None)) as writer:
        writer.execute("begin exclusive")
        locked = looked.row(1)
        writer.execute("rollback")

    assert (locked, looked.row(1)) == (None, ONE)


def test_statement_that_takes_long_is_left_for_a_while(
    looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = (
        " AS t, (with recursive n (i) as (select 1 union all select i + 1 from n where i < {}) "
        "select count(*) from n) "
    )
    sql = looked.plan.sql.replace(" AS t \n", counting)
    plans = (replace(looked.plan, sql=sql.format(most)) for most in (9, 100_000))
    quick, slow = (Looked(looked.lookups, plan) for plan in plans)

    assert [quick.row(1) for _ in range(2_000)] == [ONE] * 2_000
    assert (slow.row(1), quick.row(1)) == (None, ONE)

    monkeypatch.setattr("dbtools.dialects.sqlite.lookups.MOST_LOOKS", 10**9)
    now = time.monotonic()
    assert slow.row(1) is None
    monkeypatch.setattr("dbtools.dialects.sqlite.lookups.time.monotonic", lambda: now + PAUSE + 1)
    assert slow.row(1) == ONE


def test_another_schema_is_left_and_another_file_is_lost(shop: Shop, looked: Looked, tmp_path: Path) -> None:
    stamp = _catalog(shop).stamp
    copy, url = tmp_path / "copy.db", f"sqlite:///{tmp_path / 'served.db'}"
    served = location_of(url).path
    shop.bare.execute("vacuum into ?", str(served))
    shop.bare.execute("vacuum into ?", str(copy))

    assert looked.row(1, stamp) == ONE
    assert looked.row(1, f"{stamp.partition(' ')[0]}9 x") is None
    with _looked(shop, url) as other:
        assert other.row(1) == ONE
        copy.rename(served)
        with pytest.raises(ConnectionLost):
            other.fetch(1, stamp)
