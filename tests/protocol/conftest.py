"""A database of every kind of content, and clients of servers on it."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from dbtools.answers.styles import Surface
from dbtools.backends import url_of_file
from dbtools.policy.roles import Caller
from dbtools.service.serving import open_toolbox
from dbtools.settings import DatabaseSection, LimitsSection, Settings, ToolsSection
from tests.protocol.changing import Changing, open_changing
from tests.protocol.client import VERSIONS, Client, Serving, build_server, connect
from tests.protocol.confirmed_things import DDL as THINGS
from tests.redis_server import NoRedisError, open_redis

PNG = b"\x89PNG\r\n\x1a\n" + b"picture"
WAV = b"RIFF\x24\0\0\0WAVEfmt " + b"sound"
PDF = b"%PDF-1.7 paper"
LONG_TEXT = "long " * 1_000  #: more than max_cell
DDL = """
create table person ( -- Somebody.
  id integer primary key,
  name text not null, -- What they are called
  salary decimal(10,2),
  notes text
);
insert into person values (1, 'Ada', 10.50, null), (2, 'Bo', null, 'x'), (3, 'Cy', 7, 'y');
create table album (id integer primary key, picture blob, sound blob, paper blob);
create table story (slug text primary key, body text not null);
create table tag (story text, word text, primary key (story, word));
insert into tag values ('one', 'a,b');
create view slow as
with recursive n (i) as (select 1 union all select i + 1 from n) select count(*) as total from n;
"""


@pytest.fixture(scope="session")
def path(sqlite_database: Callable[[str], Path]) -> Path:
    """Return the path of a database with every kind of content, and a view that never ends."""
    path = sqlite_database(DDL)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("insert into album values (1, ?, ?, ?)", (PNG, WAV, PDF))
        connection.execute("insert into story values ('long', ?), ('short', 'brief')", (LONG_TEXT,))
    return path


@pytest.fixture(scope="session")
def large_path(sqlite_database: Callable[[str], Path]) -> Path:
    """Return the path of a database of 450 tables."""
    return sqlite_database("".join(f"create table t{number:03} (a text);" for number in range(450)))


def settings_for(path: Path, *, timeout: float = 10.0, surface: Surface = Surface.AUTO) -> Settings:
    """Return the settings that serve the database file at *path*."""
    return Settings(
        database=DatabaseSection(url=url_of_file(path)),
        limits=LimitsSection(timeout=timeout),
        tools=ToolsSection(style=surface),
    )


@pytest.fixture(scope="module")
async def server(path: Path) -> AsyncIterator[Serving]:
    """Yield a server of the database in this process, which the tests of a module share."""
    toolbox, database = open_toolbox(settings_for(path))
    yield build_server(toolbox, Caller(), "A small world.")
    await database.close()


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
async def client(server: Serving, version: str) -> AsyncIterator[Client]:
    """Yield a raw client of each version, its connection open."""
    async with connect(server, version=version) as client:
        await client.open()
        yield client


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """Yield the URL of a Redis of the module's own."""
    try:
        with open_redis() as url:
            yield url
    except NoRedisError as exc:
        pytest.skip(str(exc))


@pytest.fixture
def things(request: pytest.FixtureRequest) -> Iterator[Changing]:
    """Yield a database with things, in a file unless the test names another dialect."""
    with open_changing(getattr(request, "param", "sqlite"), THINGS, request) as changing:
        yield changing


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"
