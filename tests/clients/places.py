"""The servers that clients visit: over stdio or HTTP, on either database, which a test can change."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import asyncpg

from dbtools.backends import open_backend
from dbtools.server.http.identity import hash_of, new_token
from tests.processes import forked
from tests.protocol.changing import Changing
from tests.protocol.client import PATIENCE
from tests.protocol.http_server import http_server

TABLES = """
create table person (id integer primary key, name text not null, born date);
insert into person values (1, 'Ada', '1815-12-10'), (2, 'Bo', null), (3, 'Cy', '1990-01-02');
create table secret (id integer primary key);
"""
#: `slow` never ends by itself. On SQLite it reads a table, so that the file stays locked while it runs.
DDL = {
    "sqlite": f"""
        {TABLES}
        create view slow as
        with recursive n (i) as (select 1 union all select i + 1 from n)
        select count(*) as total from n, person;
    """,
    "postgresql": f"""
        {TABLES}
        create view slow as select count(*) as total from pg_sleep(600);
        analyze;
    """,
}
RUNNING = """
select count(*) > 0 from pg_stat_activity
where datname = current_database() and state = 'active' and query like '%"slow"%' and pid <> pg_backend_pid()
"""
ADD = "create table late (id integer primary key)"
DROP = "drop table if exists late"
LIMITS = '[limits]\ntimeout = "60s"\n'  #: longer than anybody waits here


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A way to serve."""

    dialect: str
    http: bool = False
    options: tuple[str, ...] = ()
    token: str | None = None  #: of the only caller who may see something

    def configuration(self, url: str) -> str:
        """Return what serves all of the database at *url* but one table."""
        database = f'[database]\nurl = "{url}"\n'
        if self.token is None:
            return f'{database}exclude = ["secret"]\n{LIMITS}'
        tables = '[roles.tourist]\ntables = { "*" = true, slow = true, secret = false }\n'
        tokens = f'[auth]\ntokens = [{{ sha256 = "{hash_of(self.token)}", role = "tourist" }}]\n'
        return f"{database}{LIMITS}{tables}{tokens}"


KINDS = {
    "stdio-sqlite": Kind(dialect="sqlite"),
    "http-postgresql": Kind(dialect="postgresql", http=True),
    "http-stateless-token": Kind(
        dialect="postgresql", http=True, options=("--stateless",), token=new_token()
    ),
}
#: Each transport, each database, and once without sessions.
EVERYWHERE = ("stdio-sqlite", "http-postgresql", "http-stateless-token")


@dataclass(frozen=True, kw_only=True)
class Place:
    """A server to visit."""

    kind: Kind
    changing: Changing
    folder: Path  #: for what processes write
    url: str | None = None  #: none: who visits starts the server
    command: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)

    async def lend_a_hand(self, wanted: str) -> None:
        """Change the database as a tour asks, or wait until the database shows what it asks about."""
        match wanted:
            case "add a table":
                await self.changing.change(ADD)
            case "drop it":
                await self.changing.change(DROP)
            case "see it run":
                await self._wait_until(running=True)
            case "see it stopped":
                await self._wait_until(running=False)
            case _:
                raise ValueError(wanted)

    async def _wait_until(self, *, running: bool) -> None:
        """Wait until the slow statement runs, or none does."""
        is_running = IS_RUNNING[self.kind.dialect]
        with anyio.fail_after(PATIENCE):
            while True:
                if await is_running(self.changing.url) is running:
                    return
                await anyio.sleep(0.02)


async def _is_running_in_sqlite(url: str) -> bool:
    return await anyio.to_thread.run_sync(_is_held, urlsplit(url).path)


def _is_held(path: str) -> bool:
    """Tell whether a statement reads the file; none but the slow one does for long."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        try:
            connection.execute("begin exclusive")
        except sqlite3.OperationalError:
            return True
        return False


async def _is_running_in_postgresql(url: str) -> bool:
    connection = await asyncpg.connect(url)
    try:
        running: bool = await connection.fetchval(RUNNING)
        return running
    finally:
        await connection.close()


IS_RUNNING: Mapping[str, Callable[[str], Awaitable[bool]]] = {
    "sqlite": _is_running_in_sqlite,
    "postgresql": _is_running_in_postgresql,
}


@asynccontextmanager
async def open_place(kind: Kind, changing: Changing, folder: Path) -> AsyncIterator[Place]:
    """Serve *changing* as *kind* has it, with what the server says in *folder*."""
    if changing.dialect == "postgresql":
        await open_backend(changing.url).install_watch()  # clients are notified at once
    path = folder / "dbtools.toml"
    path.write_text(kind.configuration(changing.url))
    if not kind.http:
        command = (*forked(), "serve", str(path))
        yield Place(kind=kind, changing=changing, folder=folder, command=command)
        return
    headers = {"Authorization": f"Bearer {kind.token}"} if kind.token else {}
    async with http_server(path, folder, *kind.options) as server:
        url = f"{server.url}/mcp"
        yield Place(kind=kind, changing=changing, folder=folder, url=url, headers=headers)
