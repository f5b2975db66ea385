"""A command that only reads a SQLite file in WAL mode leaves its folder as it was, also beside a writer."""

import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from threading import Thread

import anyio
import anyio.lowlevel
import pytest

from dbtools.answers.results import Answer
from dbtools.policy.roles import Caller
from dbtools.service.checking import check
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, Settings

CALLER = Caller(role="default")
COUNT = {"table": "item", "measures": [{"function": "count"}]}
CALLS: Mapping[str, Mapping[str, object]] = {
    "list_item": {},
    "get_item": {"id": 1},
    "aggregate_rows": COUNT,
    "run_sql": {"sql": "select count(*) from item"},
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file in WAL mode that no program has open."""
    path = tmp_path / "folder" / "shop.db"
    path.parent.mkdir()
    with closing(connected(path)) as connection:
        connection.executescript(
            """
            pragma journal_mode = wal;
            create table item (id integer primary key);
            insert into item values (1);
            """
        )
    return path


def connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=30)


def content(path: Path) -> dict[str, bytes]:
    """Return the names and the contents of the files in the folder of *path*, without shared memory."""
    files = sorted(each for each in path.parent.iterdir() if each.is_file())
    return {each.name: b"" if each.name.endswith("-shm") else each.read_bytes() for each in files}


def settings_of(path: Path, options: str = "") -> Settings:
    return Settings(database=DatabaseSection(url=f"sqlite:///{path}{options}"))


async def read(path: Path) -> int:
    """Check the file, call every kind of tool, and return the number of rows."""
    await check(settings_of(path))
    toolbox, backend = open_toolbox(settings_of(path))
    try:
        answers = [await toolbox.call(CALLER, tool, arguments) for tool, arguments in CALLS.items()]
        assert (await (await backend.runner()).probe()).refuses_writes
    finally:
        await backend.close()
    return count_in(answers[-1])


def count_in(answer: Answer) -> int:
    rows = answer.structured["rows"]
    assert isinstance(rows, list)
    return int(rows[0][0])


async def test_folder_is_as_before_a_read(path: Path) -> None:
    before = content(path)
    rows = await read(path)

    assert (rows, content(path)) == (1, before)
    assert list(before) == ["shop.db"]


async def test_symbolic_link_leaves_no_files_either(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    before = content(path)
    await read(link)

    assert content(path) == before
    assert sorted(content(link)) == ["link.db"]


async def test_files_of_a_program_that_has_the_file_open_stay(path: Path) -> None:
    with closing(connected(path)) as writer:
        writer.execute("select * from item").fetchall()
        for number in (2, 3):
            assert await read(path) == number - 1
            assert list(content(path)) == ["shop.db", "shop.db-shm", "shop.db-wal"]
            writer.execute("insert into item values (?)", (number,))
        before = content(path)

        assert (await read(path), content(path)) == (3, before)


async def test_what_a_program_left_that_stopped_while_writing_is_read_and_stays(
    path: Path, tmp_path: Path
) -> None:
    with closing(connected(path)) as writer:
        writer.execute("insert into item values (2)")
        for each in ("shop.db", "shop.db-wal"):
            shutil.copy(path.parent / each, tmp_path)
    copy = tmp_path / "shop.db"
    before = {name: copy.with_name(name).read_bytes() for name in ("shop.db", "shop.db-wal")}

    assert await read(copy) == 2
    assert {name: copy.with_name(name).read_bytes() for name in before} == before


@pytest.fixture
def writing(path: Path) -> Iterator[list[int]]:
    """Yield the numbers that another thread inserts until the test ends, each on a new connection."""
    written, errors = [1], list[sqlite3.Error]()
    stopped = False

    def write() -> None:
        while not stopped:
            try:
                with closing(connected(path)) as connection:
                    connection.execute("insert into item values (?)", (written[-1] + 1,))
            except sqlite3.Error as exc:
                errors.append(exc)
                return
            written.append(written[-1] + 1)

    thread = Thread(target=write)
    thread.start()
    yield written
    stopped = True
    thread.join()
    with closing(connected(path)) as connection:
        rows = [id for (id,) in connection.execute("select id from item order by id")]
        checked = connection.execute("pragma integrity_check").fetchall()

    assert (errors, rows, checked) == ([], written, [("ok",)])


async def test_writer_that_opens_and_closes_the_file_meets_no_error(path: Path, writing: list[int]) -> None:
    """Both sides may be the last one, which removes the files, while the other one opens them."""
    backends = [open_toolbox(settings_of(path)) for _ in range(3)]
    for _ in range(30):
        for toolbox, backend in backends:
            least = writing[-1]
            answer = await toolbox.call(CALLER, "aggregate_rows", COUNT)
            await backend.close()

            assert count_in(answer) >= least
        await anyio.lowlevel.checkpoint()
    assert len(writing) > 3
