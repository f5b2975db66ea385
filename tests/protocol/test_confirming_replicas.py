"""A confirmation counts once, whichever worker or replica gets it (2026-07-28)."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from dbtools.alembic import upgrade
from tests.protocol.changing import Changing
from tests.protocol.confirmed_things import AGREED, CALL, PARAMS, QUESTION, value_of
from tests.protocol.http_server import HANDSHAKE, HttpServer, events, http_server, modern, posted
from tests.protocol.talking import ABLE

MANY = 8  #: requests at once


@pytest.fixture
async def configured(things: Changing, tmp_path: Path) -> Path:
    """Return the configuration of several servers of the things."""
    await anyio.to_thread.run_sync(upgrade, things.url)
    path = tmp_path / "dbtools.toml"
    grant = "[roles.default.tables]\nthings = { update = true, confirm = true }\n"
    secret = '[server]\nsecret = "what all replicas of these tests know"\n'
    path.write_text(f'[database]\nurl = "{things.url}"\n{secret}{grant}')
    return path


async def call(server: HttpServer, **more: object) -> Any:
    """Return the result of the call, on a separate connection."""
    request = modern("tools/call", {**PARAMS, **more})
    content = json.loads(request["content"])
    content["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = ABLE
    async with server.client() as client:
        answer = await client.post(**{**request, "content": json.dumps(content).encode()})
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


async def repeat(server: HttpServer, asked: Mapping[str, Any]) -> Any:
    """Return the result of the confirmed call."""
    return await call(server, requestState=asked["requestState"], inputResponses={"confirm": AGREED})


async def test_workers_count_a_confirmation_once(configured: Path, things: Changing, tmp_path: Path) -> None:
    async with http_server(configured, tmp_path, "--workers", "2") as server:
        asked = await call(server)
        results = await asyncio.gather(*[repeat(server, asked) for _ in range(MANY)])

    made = [each for each in results if not each["isError"]]
    assert asked["inputRequests"]["confirm"]["params"]["message"] == QUESTION
    assert [each["structuredContent"]["affected"] for each in made] == [1]
    assert ["used already" in each["content"][0]["text"] for each in results].count(True) == MANY - 1
    assert await value_of(things) == "new"


async def test_replicas_count_a_confirmation_once(configured: Path, things: Changing, tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    async with http_server(configured, folders[0]) as one, http_server(configured, folders[1]) as two:
        asked = await call(one)
        results = await asyncio.gather(*[repeat(each, asked) for each in (one, two) * (MANY // 2)])

    made = [each for each in results if not each["isError"]]
    assert [each["structuredContent"]["affected"] for each in made] == [1]
    assert await value_of(things) == "new"


async def test_stateless_session_gets_a_token(configured: Path, tmp_path: Path) -> None:
    async with http_server(configured, tmp_path, "--stateless") as server, server.client() as client:
        answer = await client.post(**posted(CALL, {"MCP-Protocol-Version": HANDSHAKE}))

    [message] = events(answer.text)
    assert "confirm" in message["result"]["structuredContent"]
