"""Replicas and workers that get the same key or confirmation at once make the change once."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from dbtools.alembic import upgrade
from tests.protocol.command_line import run
from tests.protocol.http_server import HttpServer, call, http_server

DDL = "create table things (id integer primary key, v text); insert into things values (1, 'one');"
SECRET = 'secret = "a secret that all replicas share, long enough"\n'
CALLS = 8
KEYED = {"rows": [{"id": 9, "v": "new"}], "idempotency_key": "k"}
REPEATED = "An earlier call with this idempotency_key made the change at "


@pytest.fixture
def url(url_of: Callable[[str], str]) -> str:
    """Return a database of each dialect, without a registry."""
    return url_of(DDL)


def _configured(folder: Path, url: str, server: str = SECRET, confirm: str = "true") -> Path:
    path = folder / "dbtools.toml"
    path.write_text(
        f'[database]\nurl = "{url}"\nlock_timeout = "30s"\n[server]\n{server}[roles.default]\n'
        f"tables.things = {{ insert = true, update = true, confirm = {confirm} }}\n"
    )
    return path


@asynccontextmanager
async def _clients(
    path: Path, folder: Path, count: int, *options: str
) -> AsyncIterator[tuple[list[HttpServer], list[httpx2.AsyncClient]]]:
    """Yield *count* replicas with a client of each."""
    async with AsyncExitStack() as stack:
        servers: list[HttpServer] = []
        for number in range(count):
            own = folder / str(number)
            own.mkdir()
            servers.append(await stack.enter_async_context(http_server(path, own, *options)))
        yield servers, [await stack.enter_async_context(each.client()) for each in servers]


async def _at_once(
    clients: list[httpx2.AsyncClient], arguments: Mapping[str, object]
) -> list[Mapping[str, Any]]:
    """Return the answers to the same call, made eight times at once."""
    asked = [call(clients[at % len(clients)], "insert_things", arguments) for at in range(CALLS)]
    return list(await asyncio.gather(*asked))


async def _values(client: httpx2.AsyncClient) -> object:
    listed = await call(client, "list_things", {"order_by": ["id"]})
    return listed["structuredContent"]["rows"]


@pytest.mark.parametrize("workers", [1, 2])
async def test_change_with_one_key_is_made_once(url: str, workers: int, tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(upgrade, url)
    path = _configured(tmp_path, url, confirm="false")
    async with _clients(path, tmp_path, 2, "--workers", str(workers)) as (_, clients):
        answers = await _at_once(clients, KEYED)
        other = await call(clients[1], "insert_things", {**KEYED, "rows": [{"id": 8}]})
        values = await _values(clients[0])

    contents = [each["structuredContent"] for each in answers]
    notes = [each.get("note", "") for each in contents]
    assert [(each["affected"], each["rows"]) for each in contents] == [(1, [[9, "new"]])] * CALLS
    assert sorted(note[: len(REPEATED)] for note in notes) == ["", *[REPEATED] * (CALLS - 1)]
    assert (other["isError"], "idempotency_key" in str(other["content"])) == (True, True)
    assert values == [[1, "one"], [9, "new"]]


@pytest.mark.parametrize("workers", [1, 2])
async def test_confirmed_change_is_made_once(url: str, workers: int, tmp_path: Path) -> None:
    await anyio.to_thread.run_sync(upgrade, url)
    path = _configured(tmp_path, url)
    row = {"rows": [{"v": "new", "id": 9}]}
    async with _clients(path, tmp_path, 2, "--workers", str(workers)) as (_, clients):
        asked = await call(clients[0], "insert_things", row)
        confirmed = {**row, "confirm": asked["structuredContent"]["confirm"]}
        answers = await _at_once(clients, confirmed)
        values = await _values(clients[1])

    texts = [str(each["content"]) for each in answers if each["isError"]]
    assert len(texts) == CALLS - 1
    assert all("has been used already" in text for text in texts)
    assert values == [[1, "one"], [9, "new"]]


async def test_confirmation_of_a_server_that_was_killed_works_at_another_one(
    url: str, tmp_path: Path
) -> None:
    await anyio.to_thread.run_sync(upgrade, url)
    path = _configured(tmp_path, url)
    keyed = {**KEYED, "rows": [{"id": 7, "v": "once"}]}
    async with _clients(path, tmp_path, 2) as (servers, clients):
        asked = await call(clients[0], "insert_things", keyed)
        os.kill(servers[0].process.pid, signal.SIGKILL)
        confirmed = {**keyed, "confirm": asked["structuredContent"]["confirm"]}
        made = await call(clients[1], "insert_things", confirmed)
        again = await call(clients[1], "insert_things", keyed)
        values = await _values(clients[1])

    assert "note" not in made["structuredContent"]
    # The key says that there is nothing to confirm.
    assert again["structuredContent"]["note"].startswith(REPEATED)
    assert values == [[1, "one"], [7, "once"]]


@pytest.mark.parametrize(
    ("server", "registry", "named"),
    [
        pytest.param("", True, "Configure [server] secret", id="no secret"),
        pytest.param(SECRET, False, "need the table dbtools_write", id="no journal"),
    ],
)
def test_workers_that_could_not_share_confirmations_do_not_start(
    server: str, registry: bool, named: str, url: str, tmp_path: Path
) -> None:
    if registry:
        upgrade(url)
    path = _configured(tmp_path, url, server)
    result = run("serve", str(path), "--http", "127.0.0.1:0", "--workers", "2")

    assert (result.exit_code, result.stdout) == (2, "")
    assert "role default: changes of things are confirmed" in result.stderr
    assert named in result.stderr


async def test_one_process_confirms_without_a_journal(url: str, tmp_path: Path) -> None:
    path = _configured(tmp_path, url, "")
    async with http_server(path, tmp_path) as server, server.client() as client:
        asked = await call(client, "insert_things", {"rows": [{"id": 9}]})
        token = asked["structuredContent"]["confirm"]
        made = await call(client, "insert_things", {"rows": [{"id": 9}], "confirm": token})
        told = server.log.read_text()

    assert made["structuredContent"]["affected"] == 1
    assert "confirmations are kept in the memory of one process only" in told
