"""A SQLite file whose writer was killed in the middle of a change must be recovered."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from dbtools.backends.sqlite.connection.files import location_of
from dbtools.errors import DatabaseUnavailable
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_served
from dbtools.settings import DatabaseSection, Settings
from tests.database.shop import Serve
from tests.protocol.command_line import run

DDL = """
create table note (id integer primary key, body text);
insert into note
with recursive n (i) as (select 1 union all select i + 1 from n where i < 2000)
select i, hex(randomblob(200)) from n;
"""


def _interrupt(path: Path) -> None:
    """Leave the file at *path* as a program does that ends while it writes: with a hot journal."""
    written, journal = path.with_name("written.db"), f"{path.name}-journal"
    shutil.copy(path, written)
    with closing(sqlite3.connect(written, isolation_level=None)) as connection:
        connection.executescript("pragma cache_size = 1; begin; update note set body = 'half'")
        path.write_bytes(written.read_bytes())
        shutil.copy(f"{written}-journal", path.with_name(journal))


def _recover(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("select count(*) from note").fetchone()


@pytest.mark.parametrize("command", [("check",), ("tools",), ("call", "list_note")], ids=" ".join)
def test_file_that_has_to_be_recovered_is_reported_as_that(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DDL)
    _interrupt(path)
    first, *rest = command
    result = run(first, str(path), *rest)
    _recover(path)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"dbtools: {path}: The database file must be recovered")
    assert "Open it once with a program that may write to it" in result.stderr
    assert run("check", str(path)).exit_code == 0


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        pytest.param("list_note", {"columns": ["id"]}, id="list"),
        pytest.param("get_note", {"id": 7}, id="row"),
        pytest.param(
            "aggregate_rows", {"table": "note", "measures": [{"function": "count"}]}, id="aggregate"
        ),
    ],
)
def test_call_is_refused_while_the_file_must_be_recovered_and_answered_afterwards(
    serve: Serve, tool: str, arguments: dict[str, object]
) -> None:
    with serve("sqlite", DDL) as shop:
        before = shop.call(tool, arguments).structured
        path = location_of(shop.url).path
        _interrupt(path)
        with pytest.raises(DatabaseUnavailable, match="must be recovered"):
            shop.call(tool, arguments)
        _recover(path)
        after = shop.call(tool, arguments).structured

    assert after == before


@pytest.mark.parametrize("writable", [True, False], ids=["with changes", "read-only"])
async def test_served_file_is_recovered_by_the_next_poll_only_if_callers_may_change_it(
    tmp_path: Path, writable: bool
) -> None:
    path = tmp_path / "notes.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DDL)
    served = open_served(Settings(database=DatabaseSection(url=f"sqlite:///{path}", writable=writable)))
    try:
        stamp = (await served.toolbox.snapshot()).stamps["database"]
        _interrupt(path)
        if writable:
            assert await served.observed[0].poll() == stamp
            answer = await served.toolbox.call(Caller(), "get_note", {"id": 7})
            assert "half" not in str(answer.structured)
        else:
            with pytest.raises(DatabaseUnavailable, match="must be recovered"):
                await served.observed[0].poll()
    finally:
        await served.backend.close()
