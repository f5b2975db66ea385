"""What is kept for later calls is bounded by its size, and no cache is bounded by its number alone."""

import re
import sqlite3
import threading
from collections.abc import Hashable
from contextlib import closing
from pathlib import Path

import pytest

import dbtools
from dbtools.backends.caches import (
    LARGE_SHAPE,
    MOST_RESULTS,
    PLANS,
    RESULTS,
    BoundedCache,
    CompiledCache,
    bounded_cache,
    terms_in,
)
from dbtools.backends.compiled import Compiled
from dbtools.backends.sqlite.connection.files import location_of, open_file
from dbtools.backends.sqlite.connection.statements import LONG, MOST_PREPARED, STATEMENTS
from dbtools.schema.catalog import Column, Table
from dbtools.statements.select import Output, Select, Shape
from dbtools.values.types import ColumnType, Family
from tests.unit.shop import plan_of

CACHE = re.compile(r"^ *@(?:functools\.)?(?:lru_cache|cache)\b.*\n(?:@.*\n)*def (\w+)", re.MULTILINE)
#: Functions whose results are only counted, and why these stay small whatever callers send.
COUNTED = {
    **dict.fromkeys(("_dialect", "_token_pattern", "schema_of"), "one result for each constant of the code"),
    **dict.fromkeys(("column_type", "read_checks", "_stems"), "texts of the database's schema"),
    **dict.fromkeys(
        ("read_definition", "module_of", "query_of", "condition_of"), "texts of the database's schema"
    ),
    "_pattern_adapter": "patterns in operators' queries",
    "_escape_character": "one character",
    "time_limit": "one number",
    "_cell": "the server cuts the name of a column after 63 bytes",
    "filtering_plan": "ten plans, each of one call's arguments",
}


def test_no_cache_is_bounded_by_its_number_alone_unless_its_entries_are_small() -> None:
    sources = Path(dbtools.__file__).parent.rglob("*.py")
    counted = {name for path in sources for name in CACHE.findall(path.read_text())}

    assert counted == COUNTED.keys()


@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        pytest.param([40, 40], [0, 1], id="all"),
        pytest.param([40, 40, 40], [1, 2], id="the last ones"),
        pytest.param([40, 40, 90], [2], id="a large one instead of several"),
        pytest.param([40, 101], [], id="nothing that is too large"),
        pytest.param([1] * 6, [2, 3, 4, 5], id="so many"),
    ],
)
def test_values_are_kept_up_to_their_size_and_number(sizes: list[int], kept: list[int]) -> None:
    cache = BoundedCache[int, str](count=4, most=100)
    for key, size in enumerate(sizes):
        cache.keep(key, "x", size)

    assert [*cache] == kept
    assert cache.size == sum(sizes[key] for key in kept)


def test_value_that_was_used_last_is_forgotten_last_and_counts_once() -> None:
    cache = BoundedCache[str, str](count=2, most=100)
    for key, size in (("a", 60), ("a", 70), ("b", 1)):
        cache.keep(key, key.upper(), size)

    assert (cache.get("a"), cache.size) == ("A", 71)
    cache.keep("c", "C", 1)
    assert [cache.get(key) for key in "abc"] == ["A", None, "C"]
    cache.forget("a")
    assert (cache.get("a"), cache.size) == (None, 1)


@pytest.mark.parametrize("length", [10, MOST_RESULTS // 5])
def test_results_of_a_function_are_kept_up_to_their_length(length: int) -> None:
    computed: list[Hashable] = []

    @bounded_cache
    def text(number: int) -> str:
        computed.append(number)
        return "x" * length

    most = min(RESULTS, MOST_RESULTS // length)
    for number in (*range(most), *range(most)):
        text(number)
    assert computed == [*range(most)]
    for number in (most, 1, 0):
        text(number)
    assert computed == [*range(most + 1), 0]


class Watched:
    """A connection that says whether SQLite has prepared a statement: it then asks what this may do."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection, self._asked = connection, 0
        connection.set_authorizer(self._allow)

    def _allow(self, *_: object) -> int:
        self._asked += 1
        return sqlite3.SQLITE_OK

    def prepares(self, sql: str) -> bool:
        """Run *sql*, and return whether it was prepared for that."""
        before = self._asked
        self._connection.execute(sql).fetchall()
        return self._asked > before


def test_sqlite_keeps_prepared_statements_up_to_their_length(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    long = [f"select {number} /* {'x' * (MOST_PREPARED // 10)} */" for number in range(25)]
    short = [f"select {number} /* {'x' * (LONG - 100)} */" for number in range(STATEMENTS // 2)]
    with closing(open_file(location_of(f"sqlite:///{tmp_path / 'empty.db'}"))) as connection:
        watched = Watched(connection)
        first = [watched.prepares(sql) for sql in long]
        kept = [sql for sql in reversed(long) if not watched.prepares(sql)]
        again = [[watched.prepares(sql) for sql in short] for _ in range(2)]

    assert all(first)
    assert long[-1] in kept
    assert sum(map(len, kept)) <= MOST_PREPARED
    assert [sum(each) for each in again] == [len(short), 0]


TEXT = ColumnType(family=Family.TEXT, name="text", large=True)
BYTES = ColumnType(family=Family.BYTES, name="bytea", large=True)
NUMBER = ColumnType(family=Family.INTEGER, name="integer")


def _plan(*outputs: tuple[ColumnType, int | None]) -> Compiled:
    """Return a plan whose outputs have types and are cut."""
    columns = [Column(name=f"c{at}", type=type) for at, (type, _) in enumerate(outputs)]
    read = [Output(term=column, cut=cut) for column, (_, cut) in zip(columns, outputs, strict=True)]
    return plan_of(Select(table=Table(name="t", columns=tuple(columns)), outputs=tuple(read)))


@pytest.mark.parametrize(
    ("outputs", "cuts", "most", "bounded"),
    [
        pytest.param([(NUMBER, None)], {}, 64, True, id="small"),
        pytest.param([(NUMBER, 100), (TEXT, 100)], {1: 100}, 464, True, id="characters of four bytes"),
        pytest.param([(BYTES, 100), (NUMBER, None)], {0: 100}, 164, True, id="bytes"),
        pytest.param([(TEXT, None), (TEXT, 100)], {1: 100}, 464, False, id="read whole"),
    ],
)
def test_rows_are_as_large_as_what_is_cut_of_them(
    outputs: list[tuple[ColumnType, int | None]], cuts: dict[int, int], most: int, bounded: bool
) -> None:
    plan = _plan(*outputs)

    assert (plan.cuts, plan.most_bytes, plan.is_bounded) == (cuts, most, bounded)


def _shape(number: int, columns: int = 1) -> Select:
    """Return a shape that differs from those with other numbers."""
    of = Table(name=f"t{number}", columns=tuple(Column(name=f"c{at}", type=TEXT) for at in range(columns)))
    return Select(table=of, outputs=tuple(Output(term=each) for each in of.columns))


class Compiler:
    """Compiles every shape to SQL of *length*, and remembers which, and in which threads."""

    def __init__(self, length: int = 1) -> None:
        self.sql, self.compiled, self.threads = "x" * length, list[Shape](), list[threading.Thread]()

    def compile(self, shape: Select) -> Compiled:
        self.compiled.append(shape)
        self.threads.append(threading.current_thread())
        return plan_of(shape, self.sql)


async def test_only_large_shapes_are_compiled_in_a_thread() -> None:
    compiler = Compiler()
    cache: CompiledCache[Select, Compiled] = CompiledCache(compiler.compile)
    small, large = _shape(1, LARGE_SHAPE), _shape(2, LARGE_SHAPE + 1)

    plans = [await cache.plan(each) for each in (small, large, small, large)]

    assert [terms_in(each) for each in (small, large)] == [LARGE_SHAPE, LARGE_SHAPE + 1]
    assert [plan.shape for plan in plans] == [small, large, small, large]
    assert compiler.compiled == [small, large]
    assert [each is threading.main_thread() for each in compiler.threads] == [True, False]


async def test_plans_are_kept_by_the_length_of_their_sql() -> None:
    compiler = Compiler(length=30)
    cache: CompiledCache[Select, Compiled] = CompiledCache(compiler.compile, most=100)
    for number in (1, 2, 3, 1, 4, 1):
        await cache.plan(_shape(number))

    assert compiler.compiled == [_shape(number) for number in (1, 2, 3, 4)]
    assert cache.length == 90
    await cache.plan(_shape(2))
    assert cache.length == 90
    assert len(compiler.compiled) == 5


async def test_plan_that_is_too_long_to_be_kept_is_used_once() -> None:
    compiler = Compiler(length=101)
    cache: CompiledCache[Select, Compiled] = CompiledCache(compiler.compile, most=100)

    plan = await cache.plan(_shape(1))

    assert len(plan.sql) == 101
    assert cache.length == 0


async def test_no_more_than_so_many_plans_are_kept() -> None:
    compiler = Compiler()
    cache: CompiledCache[Select, Compiled] = CompiledCache(compiler.compile)
    for number in range(PLANS + 10):
        await cache.plan(_shape(number))

    assert cache.length == PLANS
