"""HTTP clients without a session that disconnect while a stream answers them."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest

from dbtools.server.exchange import Exchange
from dbtools.server.messages import Json
from tests.protocol.client import PATIENCE, Message
from tests.protocol.http_application import http_application
from tests.protocol.http_server import HANDSHAKE, modern, posted

GET: Message = {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "long"}}


class Endless:
    """Answers `prompts/get` by a stream, and never ends by itself."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> Json:
        """Begin the stream, and wait."""
        exchange.notify("notifications/message", {"level": "info", "data": "begun"})
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        return {}


@pytest.mark.parametrize(
    ("stateless", "request_of"),
    [
        pytest.param(False, lambda: modern("prompts/get", GET["params"]), id="2026-07-28"),
        pytest.param(True, lambda: posted(GET, {"MCP-Protocol-Version": HANDSHAKE}), id="stateless"),
    ],
)
async def test_nothing_goes_on_for_a_client_that_has_left(
    path: Path, *, stateless: bool, request_of: Callable[[], Message]
) -> None:
    endless = Endless()
    async with (
        http_application(path, {"prompts/get": endless}, stateless=stateless) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        async with client.stream("POST", **request_of()) as answer:
            await anext(answer.aiter_lines())
            streams = {each for each in asyncio.all_tasks() if "EventStream.run" in repr(each)}
        with anyio.fail_after(PATIENCE):
            await endless.cancelled.wait()
            ended, _ = await asyncio.wait(streams, timeout=5)

    assert len(streams) == 1
    assert ended == streams


async def test_client_that_leaves_before_its_answer_is_not_refused(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def wait(exchange: Exchange) -> Json:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return {}

    async with (
        http_application(path, {"prompts/get": wait}) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        asking = asyncio.create_task(client.post(**modern("prompts/get", GET["params"])))
        with anyio.fail_after(PATIENCE):
            await begun.wait()
            asking.cancel()
            await cancelled.wait()

    assert caplog.messages == []
