"""How requests and sessions end over HTTP: after a late cancellation, a disconnect, or a closed session."""

import asyncio
import json
import logging
from pathlib import Path
from time import monotonic

import anyio
import httpx2
import pytest

from dbtools.policy.roles import Caller
from dbtools.server.http.endpoint import SESSION_TIMEOUT
from dbtools.server.mcp.exchange import TOOLS, Exchange, Notifications
from dbtools.server.messages import Json
from dbtools.service.serving import open_toolbox
from dbtools.settings.sections import ServerSection
from tests.protocol.client import PATIENCE, Message, build_server, connect
from tests.protocol.conftest import settings_for
from tests.protocol.http_application import http_application, http_endpoint
from tests.protocol.http_server import SESSION, initialize, modern, open_session, posted

GET: Message = {"jsonrpc": "2.0", "id": 1, "method": "prompts/get", "params": {"name": "long"}}
CANCELLED: Message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
SIZE = 20_000_000  #: bytes; more than any buffer between client and server


async def _answer_long(exchange: Exchange) -> Json:
    return {"description": "x" * SIZE, "messages": []}


class Silent:
    """Answers `prompts/get` never, and sends nothing before."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, exchange: Exchange) -> Json:
        """Wait."""
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
        return {}


class Endless(Silent):
    """Answers it by a stream, and never ends by itself."""

    async def __call__(self, exchange: Exchange) -> Json:
        """Begin the stream, and wait."""
        exchange.notify("notifications/message", {"level": "info", "data": "begun"})
        return await super().__call__(exchange)


@pytest.mark.parametrize("stateless", [False, True], ids=["2026-07-28", "stateless"])
async def test_nothing_goes_on_for_a_client_that_has_left(path: Path, *, stateless: bool) -> None:
    endless = Endless()
    headers = {"MCP-Protocol-Version": "2025-11-25"}
    asked = posted(GET, headers) if stateless else modern("prompts/get", GET["params"])
    async with (
        http_application(path, {"prompts/get": endless}, stateless=stateless) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        async with client.stream("POST", **asked) as answer:
            await anext(answer.aiter_lines())
            streams = {each for each in asyncio.all_tasks() if "EventStream.run" in repr(each)}
        with anyio.fail_after(PATIENCE):
            await endless.ended.wait()
            ended, _ = await asyncio.wait(streams, timeout=5)

    assert len(streams) == 1
    assert ended == streams


async def _head(reader: asyncio.StreamReader) -> tuple[int, int]:
    """Return the status of an answer, and how many bytes its body has."""
    status, *lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
    length = next(line for line in lines if line.startswith(b"content-length:"))
    return int(status.split()[1]), int(length.partition(b":")[2])


def _request(method: str, url: str, headers: dict[str, str], length: int = 0) -> bytes:
    told = {**headers, "Host": url.removeprefix("http://"), "Content-Length": str(length)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return f"{method} /mcp HTTP/1.1\r\n{lines}\r\n".encode()


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


async def _connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return await asyncio.open_connection(host, int(port))


@pytest.mark.parametrize("end", ["notification", "session"])
async def test_answer_that_is_on_its_way_is_cancelled_no_more(
    path: Path, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    async with (
        http_application(path, {"prompts/get": _answer_long}) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        session = await open_session(client)
        asked = posted(GET, session)
        reader, writer = await _connected(url)
        writer.write(_request("POST", url, asked["headers"], len(asked["content"])) + asked["content"])
        _, length = await _head(reader)
        if end == "notification":
            told = await client.post(**posted(CANCELLED, session))
        else:
            told = await client.delete("/mcp", headers=session)
        with anyio.fail_after(PATIENCE):
            answer = json.loads(await reader.readexactly(length))
        writer.close()

    assert told.status_code == (202 if end == "notification" else 200)
    assert len(answer["result"]["description"]) == SIZE
    assert _warnings(caplog) == []


async def test_connection_of_a_stream_serves_on_after_its_session_was_deleted(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        http_application(path, {}) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        session = await open_session(client)
        reader, writer = await _connected(url)
        writer.write(_request("GET", url, {"Accept": "text/event-stream", **session}))
        await reader.readuntil(b"\r\n\r\n")
        await client.delete("/mcp", headers=session)
        with anyio.fail_after(PATIENCE):
            await reader.readuntil(b"0\r\n\r\n")
            # The server would close the connection after an error.
            await client.get("/healthz")
            writer.write(_request("DELETE", url, session))
            answer = await reader.readuntil(b"\r\n")
        writer.close()

    assert answer == b"HTTP/1.1 404 Not Found\r\n"
    assert _warnings(caplog) == []


async def test_client_that_leaves_is_not_counted_as_refused(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    silent = Silent()
    async with http_application(path, {"prompts/get": silent}) as url:
        asked = modern("prompts/get", GET["params"])
        _, writer = await _connected(url)
        writer.write(_request("POST", url, asked["headers"], len(asked["content"])) + asked["content"])
        with anyio.fail_after(PATIENCE):
            await silent.begun.wait()
            writer.close()
            await silent.ended.wait()

    assert _warnings(caplog) == []


@pytest.mark.parametrize("size", [200_000, SIZE], ids=["in buffers", "larger"])
async def test_unread_answers_leave_no_errors_when_the_server_ends(
    size: int, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(exchange: Exchange) -> Json:
        return {"description": "x" * size, "messages": []}

    async with http_application(path, {"prompts/get": answer}) as url:
        asked = modern("prompts/get", GET["params"])
        request = _request("POST", url, asked["headers"], len(asked["content"])) + asked["content"]
        reader, writer = await _connected(url)
        writer.write(request * 100)
        await _head(reader)
    writer.close()

    # Those that come later than the end are refused.
    assert [each for each in _warnings(caplog) if not each.startswith("Requests have been refused: ")] == []


async def test_message_that_arrives_after_the_end_of_its_session_has_none(path: Path) -> None:
    message = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    async with (
        http_application(path, {}) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        session = await open_session(client)
        reader, writer = await _connected(url)
        asked = posted(message, session)
        writer.write(_request("POST", url, asked["headers"], len(message)) + message[:10])
        await client.get("/mcp", headers={"Accept": "*/*"})
        ended = await client.delete("/mcp", headers={SESSION: session[SESSION]})
        writer.write(message[10:])
        with anyio.fail_after(PATIENCE):
            status, _ = await _head(reader)
        writer.close()

    assert (ended.status_code, status) == (200, 404)


async def test_client_that_initializes_twice_is_notified_once(path: Path) -> None:
    toolbox, database = open_toolbox(settings_for(path))
    notifications, caller = Notifications(), Caller()
    serving = build_server(toolbox, caller, "", notifications=notifications)
    async with connect(serving, version="2025-11-25") as client:
        await client.open()
        await client.notify("notifications/initialized")
        await client.request("ping")
        notifications.notify(caller.role, TOOLS)
        await client.request("ping")
    await database.close()

    assert [each["method"] for each in client.received if "method" in each] == [TOOLS]


async def test_resources_that_a_stream_is_to_tell_of_must_be_strings(path: Path) -> None:
    toolbox, database = open_toolbox(settings_for(path))
    async with connect(build_server(toolbox, Caller(), "", notifications=Notifications())) as client:
        params = {"notifications": {"resourceSubscriptions": ["dbtools://schema", 1]}}
        error = await client.error("subscriptions/listen", params)
    await database.close()

    message = "params.notifications.resourceSubscriptions[] must be a string."
    assert error == {"code": -32602, "message": message}


async def test_session_expires_when_neither_a_request_nor_a_stream_has_used_it(path: Path) -> None:
    async with (
        http_endpoint(path, {}, section=ServerSection(max_sessions=1)) as (url, endpoint),
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        session = await open_session(client)
        began = monotonic()
        async with client.stream("GET", "/mcp", headers={**session, "Accept": "text/event-stream"}):
            endpoint.sweep(began + 2 * SESSION_TIMEOUT)
        endpoint.sweep(began + 3 * SESSION_TIMEOUT - 1)
        full = await client.post(**initialize())
        ping = posted({"jsonrpc": "2.0", "id": 1, "method": "ping"}, session)
        with anyio.fail_after(PATIENCE):
            # The server may learn a little later that the stream is closed.
            while (gone := await client.post(**ping)).status_code != 404:
                endpoint.sweep(began + 3 * SESSION_TIMEOUT + 1)
        again = await client.post(**initialize())

    assert (full.status_code, gone.status_code, again.status_code) == (503, 404, 200)
