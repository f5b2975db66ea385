"""Servers over HTTP with a configuration."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.protocol.http_server import HttpServer, http_server

DDL = """
create table person (id integer primary key, name text not null);
insert into person values (1, 'Ada'), (2, 'Bo');
create view slow as
with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) as total from n;
"""
LIMITS = """
[limits]
timeout = "60s"
[server]
max_body = 10000
max_sessions = 5
max_streams = 3
max_requests = 4
"""


def configured(url: str, folder: Path, rest: str = LIMITS) -> Path:
    path = folder / "dbtools.toml"
    path.write_text(f'[database]\nurl = "{url}"\n{rest}')
    return path


@pytest.fixture
async def server(sqlite_database: Callable[[str], Path], tmp_path: Path) -> AsyncIterator[HttpServer]:
    path = configured(f"sqlite:///{sqlite_database(DDL)}", tmp_path)
    async with http_server(path, tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
async def shared(
    sqlite_database: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HttpServer]:
    """Yield a server that no test ends or fills."""
    folder = tmp_path_factory.mktemp("shared")
    path = configured(f"sqlite:///{sqlite_database(DDL)}", folder)
    async with http_server(path, folder) as server:
        yield server
