"""A database that changes while it is served, and the notifications that its clients get."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from tests.postgresql_server import PostgresqlServer
from tests.protocol.client import MODERN, PATIENCE, Client, Message, spawn

HANDSHAKE = "2025-11-25"
ERAS = (HANDSHAKE, MODERN)
CHANGED = "notifications/tools/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


@dataclass(frozen=True, kw_only=True)
class Changing:
    """A database, and a hand that changes it from elsewhere."""

    dialect: str
    url: str
    execute: Callable[[str], None]  #: statements of one transaction, or one that cannot be in any

    async def change(self, sql: str) -> None:
        """Run *sql* while others go on."""
        await anyio.to_thread.run_sync(self.execute, sql)


@contextmanager
def open_changing(dialect: str, ddl: str, request: pytest.FixtureRequest) -> Iterator[Changing]:
    """Yield a new database of *dialect* with *ddl*, by the fixtures that *request* asks for."""
    with request.getfixturevalue("open_database")(dialect, ddl) as url:

        def execute_in_file(sql: str) -> None:
            path = url.removeprefix("sqlite:///")
            with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as connection:
                connection.executescript(sql)

        def execute_on_server(sql: str) -> None:
            server: PostgresqlServer = request.getfixturevalue("postgresql_server")
            server.execute(sql, url=url)

        execute = execute_in_file if dialect == "sqlite" else execute_on_server
        yield Changing(dialect=dialect, url=url, execute=execute)


class Hearing:
    """A client that hears of changes."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._heard = 0
        self._listening: object = None

    async def open(self) -> None:
        """Shake hands, or subscribe to notifications in the modern era."""
        await self.client.open()
        if self.client.version != MODERN:
            return
        wanted = {"notifications": {"toolsListChanged": True}}
        self._listening = await self.client.start("subscriptions/listen", wanted)
        first = await self._next(ACKNOWLEDGED, 0)
        assert first["params"]["notifications"] == {"toolsListChanged": True}

    async def told(self) -> None:
        """Wait for a notification that has not been received yet."""
        notice = await self._next(CHANGED, self._heard)
        if self._listening is not None:
            meta = notice["params"]["_meta"]
            assert meta == {"io.modelcontextprotocol/subscriptionId": self._listening}
        self._heard += 1

    async def heard(self) -> int:
        """Return how often it has been told by now: what has changed is noticed by the call of a tool."""
        await self.client.request("tools/call", {"name": "no_such_tool", "arguments": {}})
        return sum(each.get("method") == CHANGED for each in self.client.received)

    async def tools(self) -> dict[str, Message]:
        """Return the tools that are listed, by name."""
        return {each["name"]: each for each in await self.client.list_all("tools/list", "tools")}

    async def _next(self, method: str, number: int) -> Message:
        """Return the message of *method* that comes after *number* others, asking meanwhile."""
        with anyio.fail_after(PATIENCE):
            while True:
                found = [each for each in self.client.received if each.get("method") == method]
                if len(found) > number:
                    return found[number]
                self.client.received.append(await self.client.receive())


@asynccontextmanager
async def hearing(target: object, folder: Path, version: str, *options: str) -> AsyncIterator[Hearing]:
    """Run a server of *target* in a separate process, and return a client that counts notifications."""
    await anyio.Path(folder).mkdir(exist_ok=True)
    async with spawn(target, folder, version=version, options=options) as client:
        hearing = Hearing(client)
        await hearing.open()
        yield hearing
