"""A served file whose callers run SQL. A path, limits and roles in; rows and workers out."""

import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from dbtools.backends.port import Backend
from dbtools.backends.processes import Worker
from dbtools.backends.sqlite.run_sql.runner import SqliteSqlRunner
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.service.toolbox import Toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings
from dbtools.settings.sections import FunctionsSection, PolicySection, RoleSection

DDL = """
    create table item (id integer primary key, name text, region text);
    insert into item values (1, 'one', 'north'), (2, 'two', 'south'), (3, 'three', null);
"""
Roles = Mapping[str, RoleSection]


class Shop:
    """A served file, and its toolbox."""

    def __init__(self, toolbox: Toolbox, backend: Backend, runner: SqliteSqlRunner, path: Path) -> None:
        self.toolbox, self.backend, self.runner, self.path = toolbox, backend, runner, path

    async def ask(self, sql: str, role: str = "default", **claims: object) -> list[list[object]]:
        """Return the rows of *sql*."""
        caller = Caller(role=role, claims=claims)
        answer = await self.toolbox.call(caller, "run_sql", {"sql": sql})
        rows = answer.structured["rows"]
        assert isinstance(rows, list)
        return rows

    def change(self, sql: str) -> None:
        """Run *sql* behind the server's back."""
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(sql)

    @property
    def worker(self) -> Worker:
        """The idle worker that was used last."""
        worker = self.runner.workers.pool.warmest
        assert isinstance(worker, Worker)
        return worker

    def processes(self) -> list[psutil.Process]:
        """Return the processes of workers that have opened the file."""
        return [each for each in psutil.Process().children() if _has_opened(each, self.path)]


def _has_opened(process: psutil.Process, path: Path) -> bool:
    with suppress(psutil.Error):
        return str(path) in [each.path for each in process.open_files()]
    return False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(DDL)
    return path


@asynccontextmanager
async def serving(
    path: Path,
    *,
    timeout: float = 30,
    options: str = "",
    roles: Roles | None = None,
    exclude: Sequence[str] = (),
    functions: FunctionsSection | None = None,
) -> AsyncIterator[Shop]:
    granted: dict[str, Any] = {"roles": roles} if roles else {}
    settings = Settings(
        database=DatabaseSection(url=f"sqlite:///{path}{options}", exclude=tuple(exclude)),
        limits=LimitsSection(timeout=timeout),
        policy=PolicySection(hash_key="a key of the operator's", claims={"region": "text"}),
        functions=functions or FunctionsSection(),
        **granted,
    )
    toolbox, backend = open_toolbox(settings)
    try:
        runner = await backend.sql_runner()
        assert isinstance(runner, SqliteSqlRunner)
        yield Shop(toolbox, backend, runner, path)
    finally:
        await backend.close()
