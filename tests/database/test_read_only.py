"""No statement can write through the connections that serve calls."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from dbtools.backends.compiled import Compiled
from dbtools.backends.runs import Run, RunContext
from dbtools.errors import CallError
from dbtools.schema.catalog import Table
from dbtools.statements.select import Select
from tests.database.shop import Serve, Shop, Shops, open_shops
from tests.unit.shop import plan_of

ROOT = Path(__file__).parents[2]
NOBODY = 65534
DDL = "create table t (id int not null primary key, v text); insert into t values (1, 'one');"

EVERYWHERE = (
    "insert into t values (2, 'two')",
    "update t set v = 'changed'",
    "delete from t",
    "drop table t",
    "alter table t add column w int",
    "create table u (id int)",
    "create temp table u (id int)",
    "create view u as select 1",
    "create index u on t (v)",
    "with x as (select 1) insert into t select 3, 'three' from x",
    "insert into t values (1, 'again') on conflict (id) do update set v = 'changed'",
    "vacuum",
    "reindex t",
)
OWN = {
    "sqlite": (
        "attach '{folder}/other.db' as other",
        "attach ':memory:' as other",
        "vacuum into '{folder}/copy.db'",
        "pragma query_only = 0",
        "pragma query_only(0)",
        "pragma writable_schema = on",
        "pragma journal_mode = wal",
        "pragma user_version = 1",
        "pragma case_sensitive_like = on",
        "pragma hard_heap_limit = 1000",
        "pragma trusted_schema = on",
        "pragma schema_version = 9",
        "pragma wal_checkpoint",
        "create virtual table u using fts5(v)",
        "create temp trigger u after insert on t begin select 1; end",
        "create temp view u as select 1",
        "detach main",
        "select load_extension('{folder}/evil')",
        "replace into t values (1, 'changed')",
        "pragma optimize",
        "analyze",
    ),
    "postgresql": (
        "set transaction read write",
        "set local transaction_read_only = off",
        "select set_config('transaction_read_only', 'off', true)",
        "select nextval('s')",
        "select * from t for update",
        "with gone as (delete from t returning *) select * from gone",
        "truncate t",
        "create function f() returns int language sql as 'select 1'",
        "grant all on t to public",
        "comment on table t is 'changed'",
        "refresh materialized view m",
        "create role evil",
    ),
}
SEQUENCE = {"sqlite": "", "postgresql": "create sequence s; create materialized view m as select 1 as one;"}


@pytest.fixture(scope="module")
def shops(serve: Serve) -> Iterator[Shops]:
    with open_shops(serve, {dialect: DDL + own for dialect, own in SEQUENCE.items()}) as shops:
        yield shops


@pytest.mark.parametrize(
    ("dialect", "statement"),
    [(dialect, statement) for dialect in OWN for statement in (*EVERYWHERE, *OWN[dialect])],
)
def test_statement_that_writes_is_refused(statement: str, shop: Shop, tmp_path: Path) -> None:
    before = _state(shop)
    sql = statement.format(folder=tmp_path)

    refused = shop.portal.call(_is_refused, shop, sql)

    assert refused
    assert list(tmp_path.iterdir()) == []
    assert _state(shop) == before


async def _is_refused(shop: Shop, sql: str) -> bool:
    """Run *sql* in the place of a call's statement, and return whether the database refused it."""
    runner, plan = await shop.database.runner(), _plan(sql)
    try:
        await runner.run(Run(plan, {}, limit=1, context=RunContext(timeout=5)))
    except CallError:
        stamp = (await shop.toolbox.snapshot()).catalog.stamp
        return _looked_up(runner, Run(plan, {}, limit=1, context=RunContext(timeout=5, stamp=stamp))) is None
    return False


def _plan(sql: str, **constants: int) -> Compiled:
    """Return *sql* as the plan of a statement, with *constants* for its parameters."""
    return plan_of(Select(table=Table(name="t", columns=()), outputs=()), sql, **constants)


def _looked_up(runner: Any, run: Run) -> object:
    """Return what *runner* reads at once, None where it has nothing that reads at once."""
    warmest = runner.pool.warmest
    return warmest.lookup(run) if hasattr(warmest, "lookup") else None


def test_rows_are_looked_up_where_the_database_is_near(shop: Shop) -> None:
    plan = _plan("select 1 where ? = ?", a=1, b=1)
    shop.rows("t")

    stamp = shop.portal.call(shop.toolbox.snapshot).catalog.stamp
    runner = shop.portal.call(shop.database.runner)
    run = Run(plan, {}, limit=1, context=RunContext(timeout=5, stamp=stamp))
    found = shop.portal.call(lambda: _looked_up(runner, run))

    assert (found is not None) is (shop.dialect == "sqlite")


def _state(shop: Shop) -> object:
    """Return what would be different after a change."""
    if shop.dialect == "sqlite":
        pragmas = ("schema_version", "user_version", "journal_mode")
        facts = [shop.bare.rows(f"pragma {pragma}") for pragma in pragmas]
        return (
            facts,
            shop.bare.rows("select * from t"),
            shop.bare.rows("select name, sql from sqlite_schema"),
        )
    classes = "select oid::text, relname::text, relacl::text from pg_class order by 1"
    return (
        shop.bare.rows(classes),
        shop.bare.rows("select * from t"),
        shop.bare.rows("select last_value, is_called from s"),
    )


def test_calls_are_answered_after_all_that(shop: Shop) -> None:
    assert shop.rows("t") == [[1, "one"]]


#: Lists a table by a first URL with privileges, so that all is imported, and by others without.
LIST = """
import os, sys
import anyio
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, Settings
from dbtools.policy.roles import Caller
from dbtools.errors import DbtoolsError

async def show(url):
    toolbox, database = open_toolbox(Settings(database=DatabaseSection(url=url)))
    try:
        print((await toolbox.call(Caller(), "list_t", {})).structured["rows"])
    except DbtoolsError as exc:
        print(exc.code, exc)
    finally:
        await database.close()

anyio.run(show, sys.argv[2])
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(sys.argv[1]))
    os.setuid(int(sys.argv[1]))
for url in sys.argv[3:]:
    anyio.run(show, url)
"""


@pytest.fixture
def closed_database() -> Iterator[Path]:
    """Return a database in WAL mode, in a folder that every user may read and none may write."""
    with TemporaryDirectory(prefix="dbtools-") as name:
        folder = Path(name)
        path = folder / "closed.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript("pragma journal_mode = wal;" + DDL)
        path.chmod(0o444)
        folder.chmod(0o555)
        yield path
        folder.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no modes of folders")
def test_wal_in_a_closed_folder_says_what_helps(
    closed_database: Path, sqlite_database: Callable[[str], Path]
) -> None:
    opened = f"sqlite:///{sqlite_database(DDL)}"
    closed = f"sqlite:///{closed_database}"
    command = (sys.executable, "-c", LIST, str(NOBODY), opened, closed, f"{closed}?immutable=1")

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    first, complaint, rows = answer.stdout.splitlines()
    assert first == rows == "[[1, 'one']]"
    assert complaint.startswith("database_unavailable")
    assert "?immutable=1" in complaint


UNGRANTED = """
import sys
from pathlib import Path

import anyio

from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import load

async def main(path, role):
    toolbox, backend = open_toolbox(load(Path(path)))
    view = await toolbox.view(role)
    await toolbox.call(Caller(role=role), "list_t", {})
    await backend.close()
    print(*(name for name, tool in view.tools.items() if tool.definition.annotations != READS))
    print(*(name for name in sys.modules if name.endswith((".writer", ".compile.writes"))))

READS = {"readOnlyHint": True, "openWorldHint": False}
anyio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("role", "rest"), [("default", ""), ("r", "[roles.r]\ntables.t = { where = \"v <> 'x'\" }\n")]
)
def test_without_a_grant_nothing_that_writes_is_listed_or_imported(
    role: str, rest: str, shop: Shop, tmp_path: Path
) -> None:
    path = tmp_path / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{shop.url}"\n{rest}')
    command = (sys.executable, "-c", UNGRANTED, str(path), role)

    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)

    assert answer.stdout == "\n\n"
